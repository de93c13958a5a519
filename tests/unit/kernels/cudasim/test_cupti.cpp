/* The simulated CUPTI: what a program does on the device and calls comes as records. */
#include "sim_test.h"

#include "cupti.h"

#include <stdlib.h>
#include <string.h>

__global__ static void count(int *counter) {
    atomicAdd(counter, 1);
}

/* Everything that was recorded, copied out of the buffers. */
struct record {
    CUpti_ActivityKind kind;
    std::string name; /* of a kernel or a call */
    uint64_t start, end, bytes;
    uint32_t stream, correlation, graph;
    int copy_kind;
};
static std::vector<record> records;
static size_t buffer_bytes = 512; /* two kernels; 0: there is no buffer */

static void give_buffer(uint8_t **buffer, size_t *size, size_t *max_records) {
    *buffer = buffer_bytes > 0 ? static_cast<uint8_t *>(malloc(buffer_bytes)) : nullptr;
    *size = buffer_bytes;
    *max_records = 0;
}

template <class T> static record read_work(const T *work) {
    return {work->kind,    "", work->start, work->end, 0, work->streamId, work->correlationId,
            work->graphId, 0};
}

static record read_call(const CUpti_ActivityAPI *call) {
    CUpti_CallbackDomain domain = call->kind == CUPTI_ACTIVITY_KIND_RUNTIME
                                      ? CUPTI_CB_DOMAIN_RUNTIME_API
                                      : CUPTI_CB_DOMAIN_DRIVER_API;
    const char *name = nullptr;
    assert_int_equal(cuptiGetCallbackName(domain, call->cbid, &name), CUPTI_SUCCESS);
    return {call->kind, name, call->start, call->end, 0, 0, call->correlationId, 0, 0};
}

static record read_record(const CUpti_Activity *activity) {
    record out = {};
    if (activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        auto kernel = reinterpret_cast<const CUpti_ActivityKernel10 *>(activity);
        out = read_work(kernel);
        out.name = kernel->name;
    } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        auto copy = reinterpret_cast<const CUpti_ActivityMemcpy6 *>(activity);
        out = read_work(copy);
        out.bytes = copy->bytes;
        out.copy_kind = copy->copyKind;
    } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        auto fill = reinterpret_cast<const CUpti_ActivityMemset4 *>(activity);
        out = read_work(fill);
        out.bytes = fill->bytes;
    } else {
        out = read_call(reinterpret_cast<const CUpti_ActivityAPI *>(activity));
    }
    return out;
}

static void take_buffer(CUcontext, uint32_t, uint8_t *buffer, size_t size, size_t valid) {
    assert_true(valid <= size && size == buffer_bytes);
    CUpti_Activity *activity = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &activity) == CUPTI_SUCCESS)
        records.push_back(read_record(activity));
    free(buffer);
}

static std::vector<record> flush() {
    assert_int_equal(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), CUPTI_SUCCESS);
    return std::move(records);
}

static const record &find(const std::vector<record> &all, CUpti_ActivityKind kind, int nth = 0) {
    for (const record &one : all)
        if (one.kind == kind && nth-- == 0)
            return one;
    fail_msg("no record of kind %d", kind);
    abort();
}

static const record &find_call(const std::vector<record> &all, const char *name) {
    for (const record &one : all)
        if (one.name == name)
            return one;
    fail_msg("no call of %s", name);
    abort();
}

static uint64_t steady_now() {
    static uint64_t time = 1000;
    return time++;
}

/* One after another, since what is enabled stays so. */
static void test_nothing_before_it_is_wanted(void **) {
    assert_int_equal(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME),
                     CUPTI_ERROR_INVALID_OPERATION);
    assert_int_equal(cuptiActivityFlushAll(0), CUPTI_ERROR_INVALID_OPERATION);
    assert_int_equal(cuptiActivityRegisterCallbacks(nullptr, take_buffer),
                     CUPTI_ERROR_INVALID_PARAMETER);
    assert_int_equal(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), CUPTI_SUCCESS);
    assert_int_equal(cuptiActivityRegisterTimestampCallback(steady_now), CUPTI_SUCCESS);
    device_array<int> counter(std::vector<int>{0});
    LAUNCH(count, 1, 1, 0, nullptr, counter.get());
    ASSERT_CUDA(cudaDeviceSynchronize());
    assert_int_equal(flush().size(), 0);
    setenv("QUIRE_CUDASIM_CUPTI_STATUS", "35", 1);
    assert_int_equal(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME),
                     CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    unsetenv("QUIRE_CUDASIM_CUPTI_STATUS");
}

static void enable_all() {
    for (CUpti_ActivityKind kind :
         {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
          CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME})
        assert_int_equal(cuptiActivityEnable(kind), CUPTI_SUCCESS);
}

static void test_work_and_its_calls(void **) {
    enable_all();
    device_array<int> counter(1);
    int value = 0;
    cudaStream_t stream;
    ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    flush();
    ASSERT_CUDA(cudaMemsetAsync(counter.get(), 0, 4, stream));
    LAUNCH(count, 1, 1, 0, stream, counter.get());
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    ASSERT_CUDA(cudaMemcpy(&value, counter.get(), 4, cudaMemcpyDeviceToHost));
    assert_int_equal(value, 1);
    std::vector<record> all = flush();
    assert_int_equal(all.size(), 7);
    const record &fill = find(all, CUPTI_ACTIVITY_KIND_MEMSET);
    const record &kernel = find(all, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    const record &copy = find(all, CUPTI_ACTIVITY_KIND_MEMCPY);
    assert_string_equal(kernel.name.c_str(), "count");
    assert_int_equal(kernel.graph, 0);
    assert_int_equal(fill.bytes, 4);
    assert_int_equal(copy.bytes, 4);
    assert_int_equal(copy.copy_kind, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
    assert_int_equal(fill.stream, kernel.stream);
    assert_int_not_equal(copy.stream, kernel.stream);
    const record &launch = find_call(all, "cudaLaunchKernel_v3020");
    const record &wait = find_call(all, "cudaStreamSynchronize_v3020");
    assert_int_equal(launch.correlation, kernel.correlation);
    assert_int_equal(find_call(all, "cudaMemsetAsync_v3020").correlation, fill.correlation);
    assert_int_equal(find_call(all, "cudaMemcpy_v3020").correlation, copy.correlation);
    /* Work runs when it is waited for. */
    assert_true(launch.start < launch.end && launch.end < wait.start);
    assert_true(wait.start < fill.start && fill.end < kernel.start);
    assert_true(kernel.start < kernel.end && kernel.end < wait.end);
    ASSERT_CUDA(cudaStreamDestroy(stream));
}

static void test_single_calls(void **) {
    enable_all();
    device_array<int> counter(1);
    flush();
    assert_int_equal(
        cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020, 0),
        CUPTI_SUCCESS);
    cudasim::enqueue_work(nullptr, [] {});
    ASSERT_CUDA(cudaPeekAtLastError());
    ASSERT_CUDA(cudaDeviceSynchronize());
    assert_int_equal(flush().size(), 2);
    assert_int_equal(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, 1),
                     CUPTI_SUCCESS);
    cudasim::enqueue_work(nullptr, [] {});
    ASSERT_CUDA(cudaDeviceSynchronize());
    std::vector<record> all = flush();
    assert_int_equal(all.size(), 3);
    assert_int_equal(find_call(all, "cuLaunchKernelEx").correlation,
                     find(all, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL).correlation);
}

/* Each launch runs the captured work as its own. */
static void test_graphs(void **) {
    enable_all();
    device_array<int> counter(std::vector<int>{0});
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    LAUNCH(count, 1, 1, 0, stream, counter.get());
    LAUNCH(count, 1, 1, 0, stream, counter.get());
    ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    flush();
    ASSERT_CUDA(cudaGraphLaunch(exec, stream));
    LAUNCH(count, 1, 1, 0, stream, counter.get());
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    std::vector<record> all = flush();
    const record &launch = find_call(all, "cudaGraphLaunch_v3020");
    for (int i = 0; i < 2; i++) {
        const record &kernel = find(all, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, i);
        assert_int_equal(kernel.correlation, launch.correlation);
        assert_int_not_equal(kernel.graph, 0);
    }
    const record &alone = find(all, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 2);
    assert_int_equal(alone.correlation, find_call(all, "cudaLaunchKernel_v3020").correlation);
    assert_int_equal(alone.graph, 0);
    assert_int_equal(counter.download()[0], 3);
    ASSERT_CUDA(cudaGraphExecDestroy(exec));
    ASSERT_CUDA(cudaGraphDestroy(graph));
    ASSERT_CUDA(cudaStreamDestroy(stream));
}

static void test_dropped_records(void **) {
    enable_all();
    flush();
    size_t full = buffer_bytes, dropped = 7;
    assert_int_equal(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), CUPTI_SUCCESS);
    assert_int_equal(dropped, 0);
    buffer_bytes = 0;
    ASSERT_CUDA(cudaDeviceSynchronize());
    ASSERT_CUDA(cudaDeviceSynchronize());
    assert_int_equal(flush().size(), 0);
    assert_int_equal(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), CUPTI_SUCCESS);
    assert_int_equal(dropped, 2);
    buffer_bytes = full;
}

static void test_injection_that_is_not_there(void **) {
    for (const char *path : {"/nowhere/library.so", "libm.so.6"})
        assert_dies(
            [path] {
                setenv("CUDA_INJECTION64_PATH", path, 1);
                cudaDeviceSynchronize();
            },
            {"CUDA_INJECTION64_PATH: "});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_injection_that_is_not_there),
        cmocka_unit_test(test_nothing_before_it_is_wanted),
        cmocka_unit_test(test_work_and_its_calls),
        cmocka_unit_test(test_single_calls),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_dropped_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
