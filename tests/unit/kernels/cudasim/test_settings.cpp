/* The environment variables, which hold from the first call of a process on. */
#include "sim_test.h"

#include <stdlib.h>
#include <unistd.h>

__global__ static void count(int *counter) {
    atomicAdd(counter, 1);
}

static void test_memory_and_multiprocessors(void **) {
    size_t left, total;
    ASSERT_CUDA(cudaMemGetInfo(&left, &total));
    assert_int_equal(total, 1 << 20);
    int value;
    ASSERT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    assert_int_equal(value, 3);
    char *most, *more;
    ASSERT_CUDA(cudaMalloc(&most, 1 << 20));
    assert_int_equal(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    ASSERT_CUDA(cudaFree(most));
}

__global__ static void skipped_count(int *counter) {
    atomicAdd(counter, 1);
}

static void test_skip(void **) {
    int *counter, value;
    ASSERT_CUDA(cudaMalloc(&counter, sizeof *counter));
    ASSERT_CUDA(cudaMemset(counter, 0, sizeof *counter));
    LAUNCH(skipped_count, 1, 1, 0, nullptr, counter);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    ASSERT_CUDA(cudaMemcpy(&value, counter, sizeof value, cudaMemcpyDeviceToHost));
    assert_int_equal(value, 0);
    ASSERT_CUDA(cudaFree(counter));
}

static void test_device_fails(void **) {
    int *counter, *pinned, value;
    ASSERT_CUDA(cudaMalloc(&counter, sizeof *counter));
    ASSERT_CUDA(cudaMallocHost(&pinned, sizeof *pinned));
    ASSERT_CUDA(cudaMemset(counter, 0, sizeof *counter));
    for (int i = 0; i < 2; i++)
        LAUNCH(count, 1, 1, 0, nullptr, counter);
    ASSERT_CUDA(cudaMemcpy(&value, counter, sizeof value, cudaMemcpyDeviceToHost));
    assert_int_equal(value, 2);
    LAUNCH(count, 1, 1, 0, nullptr, counter);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaMalloc(&counter, 4), cudaErrorIllegalAddress);
    assert_int_equal(cudaMemcpy(&value, counter, 4, cudaMemcpyDeviceToHost),
                     cudaErrorIllegalAddress);
    assert_int_equal(cudaFreeHost(pinned), cudaErrorIllegalAddress);
    cudaStream_t stream;
    assert_int_equal(cudaStreamCreate(&stream), cudaErrorIllegalAddress);
}

/* Queries say so for ever; a call that waits does not return, which a child's alarm ends. */
static void hang() {
    setenv("QUIRE_CUDASIM_HANG_AFTER", "1", 1);
    int *counter;
    cudaStream_t stream;
    cudaEvent_t before, after;
    bool right = cudaMalloc(&counter, sizeof *counter) == cudaSuccess &&
                 cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
                 cudaEventCreate(&before) == cudaSuccess && cudaEventCreate(&after) == cudaSuccess;
    LAUNCH(count, 1, 1, 0, stream, counter);
    right = right && cudaEventRecord(before, stream) == cudaSuccess;
    LAUNCH(count, 1, 1, 0, stream, counter);
    right = right && cudaEventRecord(after, stream) == cudaSuccess &&
            cudaEventSynchronize(before) == cudaSuccess;
    for (int i = 0; i < 100; i++)
        right = right && cudaStreamQuery(stream) == cudaErrorNotReady &&
                cudaEventQuery(after) == cudaErrorNotReady && cudaEventQuery(before) == cudaSuccess;
    int *more;
    right = right && cudaMalloc(&more, sizeof *more) == cudaSuccess;
    fputs(right ? "hangs as it should" : "does not hang", stderr);
    alarm(1);
    if (cudaStreamSynchronize(stream) == cudaSuccess)
        fputs("but returned", stderr);
}

/* Before the first call of this process. */
static void test_device_hangs(void **) {
    bool survived;
    std::string text = run_child(hang, &survived);
    assert_false(survived);
    assert_string_equal(text.c_str(), "hangs as it should");
}

static bool run_kernels(cudaStream_t stream, cudaGraphExec_t graph, int *counter) {
    LAUNCH(count, 1, 1, 0, stream, counter);
    return cudaGraphLaunch(graph, stream) == cudaSuccess &&
           cudaStreamSynchronize(stream) == cudaSuccess;
}

/* A kernel in no graph, then two in one, as often as wanted; the last of the fourth time fails. */
static void fail_by_order() {
    char path[] = "/tmp/cudasim_order_XXXXXX";
    close(mkstemp(path));
    unlink(path);
    setenv("QUIRE_CUDASIM_FAIL_FILE", path, 1);
    unsetenv("QUIRE_CUDASIM_FAIL_AFTER");
    int *counter;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    bool right = cudaMalloc(&counter, sizeof *counter) == cudaSuccess &&
                 cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
                 cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    LAUNCH(count, 1, 1, 0, stream, counter);
    LAUNCH(count, 1, 1, 0, stream, counter);
    right = right && cudaStreamEndCapture(stream, &graph) == cudaSuccess &&
            cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess &&
            run_kernels(stream, exec, counter) && run_kernels(stream, exec, counter);
    FILE *order = fopen(path, "w");
    fputs("graph 3", order);
    fclose(order);
    right = right && run_kernels(stream, exec, counter) && access(path, F_OK) != 0 &&
            !run_kernels(stream, exec, counter);
    fputs(right ? "fails as it should" : "does not fail", stderr);
}

static void test_device_fails_by_order(void **) {
    bool survived;
    assert_string_equal(run_child(fail_by_order, &survived).c_str(), "fails as it should");
    assert_true(survived);
}

static void test_order(void **) {
    for (const char *wrong : {"", "backward", "random", "random:", "random:x", "random:1x"})
        assert_int_equal(cudasim_set_order(wrong), -1);
    for (const char *right : {"random:0", "random:123", "reverse", "forward"})
        assert_int_equal(cudasim_set_order(right), 0);
}

static void check_wrong_setting(const char *name, const char *value) {
    assert_dies(
        [name, value] {
            setenv(name, value, 1);
            cudaDeviceSynchronize();
        },
        {name});
}

/* Before the first call of this process: the children make theirs. */
static void test_wrong_settings(void **) {
    check_wrong_setting("QUIRE_CUDASIM_ORDER", "sideways");
    check_wrong_setting("QUIRE_CUDASIM_BLOCKS", "all");
    check_wrong_setting("QUIRE_CUDASIM_MEMORY", "lots");
    check_wrong_setting("QUIRE_CUDASIM_SMS", "-1");
    check_wrong_setting("QUIRE_CUDASIM_FAIL_AFTER", "");
    for (const char *wrong :
         {"refuse", "refuse:1", "refuse:1:2", "hide:12:1-2", "wrong:", "wrong:1,", "slow:1",
          "takes:1", "takes:1:", "first:1:", "coarse:1 wrong:2", "coarse:"})
        check_wrong_setting("QUIRE_CUDASIM_PRODUCTS", wrong);
    check_wrong_setting("QUIRE_CUDASIM_HANG_AFTER", "soon");
}

int main() {
    setenv("QUIRE_CUDASIM_MEMORY", "1048576", 1);
    setenv("QUIRE_CUDASIM_SMS", "3", 1);
    setenv("QUIRE_CUDASIM_SKIP", "skipped_", 1);
    setenv("QUIRE_CUDASIM_FAIL_AFTER", "2", 1);
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_settings),
        cmocka_unit_test(test_device_hangs),
        cmocka_unit_test(test_device_fails_by_order),
        cmocka_unit_test(test_memory_and_multiprocessors),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_skip),
        cmocka_unit_test(test_device_fails),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
