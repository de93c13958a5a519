/* Captured streams and graphs: what a launch repeats, and what may not be done during a capture. */
#include "sim_test.h"

#include <thread>

__global__ static void scale(float *x, int n, float by) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        x[i] *= by;
}

/* A stream with pinned memory, an array of one float, and what it captured. */
struct recorder {
    cudaStream_t stream;
    float *pinned;
    device_array<float> array;
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    recorder() : array(1), graph(nullptr), exec(nullptr) {
        ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        ASSERT_CUDA(cudaMallocHost(&pinned, sizeof(float)));
    }
    ~recorder() {
        if (exec != nullptr)
            ASSERT_CUDA(cudaGraphExecDestroy(exec));
        if (graph != nullptr)
            ASSERT_CUDA(cudaGraphDestroy(graph));
        ASSERT_CUDA(cudaFreeHost(pinned));
        ASSERT_CUDA(cudaStreamDestroy(stream));
        cudaGetLastError();
    }
    void begin() {
        ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    }
    void end() {
        ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
        ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    }
    void assert_lost() {
        assert_int_equal(cudaMemsetAsync(array.get(), 0, 4, stream),
                         cudaErrorStreamCaptureInvalidated);
        assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
        assert_null(graph);
        ASSERT_CUDA(cudaStreamSynchronize(stream));
        cudaGetLastError();
    }
    void upload() {
        ASSERT_CUDA(cudaMemcpyAsync(array.get(), pinned, 4, cudaMemcpyHostToDevice, stream));
    }
    void download() {
        ASSERT_CUDA(cudaMemcpyAsync(pinned, array.get(), 4, cudaMemcpyDeviceToHost, stream));
    }
    void add_one() {
        float *x = array.get();
        cudasim::enqueue_work(stream, [x] { *x += 1.0f; });
    }
    void launch() {
        ASSERT_CUDA(cudaGraphLaunch(exec, stream));
    }
    float value() {
        ASSERT_CUDA(cudaStreamSynchronize(stream));
        float host;
        ASSERT_CUDA(cudaMemcpy(&host, array.get(), 4, cudaMemcpyDeviceToHost));
        return host;
    }
};

static void test_launches_repeat(void **) {
    recorder r;
    *r.pinned = 1.0f;
    r.upload();
    r.begin();
    float by = 3.0f;
    LAUNCH(scale, 1, 32, 0, r.stream, r.array.get(), 1, by);
    by = 100.0f;
    r.add_one();
    r.end();
    assert_true(r.value() == 1.0f); /* the capture ran nothing */
    r.launch();
    assert_true(r.value() == 4.0f);
    r.launch();
    ASSERT_CUDA(cudaMemsetAsync(r.array.get(), 0, 4, r.stream)); /* in the stream's order */
    r.launch();
    assert_true(r.value() == 1.0f);
}

static void test_pinned_memory_is_read_by_the_launch(void **) {
    recorder r;
    r.begin();
    *r.pinned = 1.0f;
    r.upload();
    r.add_one();
    r.download();
    r.end();
    *r.pinned = 10.0f;
    r.launch();
    ASSERT_CUDA(cudaStreamSynchronize(r.stream));
    assert_true(*r.pinned == 11.0f);
    r.launch();
    r.launch();
    ASSERT_CUDA(cudaStreamSynchronize(r.stream));
    assert_true(*r.pinned == 13.0f);
}

static void test_destroyed_after_the_launch(void **) {
    recorder r;
    *r.pinned = 2.0f;
    r.begin();
    r.upload();
    r.end();
    r.launch();
    ASSERT_CUDA(cudaGraphExecDestroy(r.exec));
    ASSERT_CUDA(cudaGraphDestroy(r.graph));
    r.exec = nullptr;
    r.graph = nullptr;
    assert_true(r.value() == 2.0f);
}

/* By the device's clock, once, wherever it is. */
static void test_upload(void **) {
    for (bool is_uploaded : {false, true}) {
        recorder r;
        cudaEvent_t events[3];
        float ms[2];
        r.begin();
        r.add_one();
        r.end();
        if (is_uploaded)
            ASSERT_CUDA(cudaGraphUpload(r.exec, r.stream));
        for (cudaEvent_t &event : events) {
            ASSERT_CUDA(cudaEventCreate(&event));
            ASSERT_CUDA(cudaEventRecord(event, r.stream));
            r.launch();
        }
        ASSERT_CUDA(cudaStreamSynchronize(r.stream));
        for (int i = 0; i < 2; i++)
            ASSERT_CUDA(cudaEventElapsedTime(&ms[i], events[i], events[i + 1]));
        assert_int_equal(ms[0] >= 1000.0f * CUDASIM_GRAPH_UPLOAD_SECONDS, !is_uploaded);
        assert_true(ms[1] < 1000.0f * CUDASIM_GRAPH_UPLOAD_SECONDS);
        for (cudaEvent_t event : events)
            ASSERT_CUDA(cudaEventDestroy(event));
    }
}

/* Of a stream that is captured, and of the thread that captures. */
/* What a launch leaves out, the next one may do again; the graph's own nodes name those of what it
 * became. */
static void test_disabled_nodes(void **) {
    recorder r;
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t *last = nullptr;
    size_t num = 0;
    *r.pinned = 1.0f;
    r.upload();
    r.begin();
    r.add_one();
    ASSERT_CUDA(
        cudaStreamGetCaptureInfo(r.stream, &status, nullptr, nullptr, &last, nullptr, &num));
    assert_int_equal(num, 1);
    cudaGraphNode_t node = *last;
    LAUNCH(scale, 1, 32, 0, r.stream, r.array.get(), 1, 3.0f);
    r.end();
    ASSERT_CUDA(cudaGraphNodeSetEnabled(r.exec, node, 0));
    r.launch();
    assert_true(r.value() == 3.0f);
    ASSERT_CUDA(cudaGraphNodeSetEnabled(r.exec, node, 1));
    r.launch();
    assert_true(r.value() == 12.0f);
    ASSERT_CUDA(cudaGraphDestroy(r.graph));
    r.graph = nullptr;
    assert_int_equal(cudaGraphNodeSetEnabled(r.exec, node, 0), cudaErrorInvalidValue);
    cudaGetLastError();
}

static void test_waits_lose_the_capture(void **) {
    const std::function<cudaError_t(recorder &)> calls[] = {
        [](recorder &r) { return cudaStreamSynchronize(r.stream); },
        [](recorder &r) { return cudaStreamQuery(r.stream); },
        [](recorder &) { return cudaDeviceSynchronize(); },
        [](recorder &r) { return cudaFree(r.array.get()); },
        [](recorder &r) { return cudaFreeHost(r.pinned); },
        [](recorder &) {
            void *memory;
            return cudaMalloc(&memory, 4);
        },
        [](recorder &) {
            void *memory;
            return cudaMallocHost(&memory, 4);
        },
        [](recorder &r) {
            float host;
            return cudaMemcpy(&host, r.array.get(), 4, cudaMemcpyDeviceToHost);
        },
        [](recorder &r) {
            float host = 0;
            return cudaMemcpyAsync(r.array.get(), &host, 4, cudaMemcpyHostToDevice, r.stream);
        },
        [](recorder &r) {
            float host;
            return cudaMemcpyAsync(&host, r.array.get(), 4, cudaMemcpyDeviceToHost, r.stream);
        },
    };
    for (const auto &call : calls) {
        recorder r;
        r.begin();
        r.upload();
        assert_int_equal(call(r), cudaErrorStreamCaptureUnsupported);
        r.assert_lost();
    }
}

static void test_events_of_a_capture(void **) {
    recorder r;
    cudaEvent_t event;
    float ms;
    ASSERT_CUDA(cudaEventCreate(&event));
    ASSERT_CUDA(cudaEventRecord(event, r.stream));
    r.begin();
    ASSERT_CUDA(cudaEventRecord(event, r.stream));
    assert_int_equal(cudaEventSynchronize(event), cudaErrorCapturedEvent);
    assert_int_equal(cudaEventQuery(event), cudaErrorCapturedEvent);
    r.end();
    assert_int_equal(cudaEventElapsedTime(&ms, event, event), cudaErrorCapturedEvent);
    ASSERT_CUDA(cudaEventRecord(event, r.stream));
    ASSERT_CUDA(cudaEventSynchronize(event));
    ASSERT_CUDA(cudaEventElapsedTime(&ms, event, event));
    ASSERT_CUDA(cudaEventDestroy(event));
}

static void test_refused_captures(void **) {
    recorder r;
    assert_int_equal(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal),
                     cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamBeginCapture(r.stream, (cudaStreamCaptureMode)0),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaStreamEndCapture(r.stream, &r.graph), cudaErrorIllegalState);
    assert_int_equal(cudaGraphInstantiate(&r.exec, nullptr, 0), cudaErrorInvalidValue);
    assert_int_equal(cudaGraphLaunch(nullptr, r.stream), cudaErrorInvalidValue);
    r.begin();
    assert_int_equal(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal),
                     cudaErrorIllegalState);
    r.end();
}

/* Another thread works on as if nothing were captured, but cannot end the capture. */
static void test_another_thread(void **) {
    recorder r, other;
    cudaError_t ended = cudaSuccess;
    *other.pinned = 7.0f;
    r.begin();
    std::thread([&] {
        cudaGraph_t graph;
        ended = cudaStreamEndCapture(r.stream, &graph);
        other.upload();
        void *memory;
        ASSERT_CUDA(cudaMalloc(&memory, 4));
        ASSERT_CUDA(cudaStreamSynchronize(other.stream));
        ASSERT_CUDA(cudaFree(memory));
    }).join();
    assert_int_equal(ended, cudaErrorStreamCaptureWrongThread);
    *r.pinned = 5.0f;
    r.upload();
    r.end();
    r.launch();
    assert_true(r.value() == 5.0f && other.value() == 7.0f);
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_launches_repeat),
        cmocka_unit_test(test_pinned_memory_is_read_by_the_launch),
        cmocka_unit_test(test_destroyed_after_the_launch),
        cmocka_unit_test(test_upload),
        cmocka_unit_test(test_disabled_nodes),
        cmocka_unit_test(test_waits_lose_the_capture),
        cmocka_unit_test(test_events_of_a_capture),
        cmocka_unit_test(test_refused_captures),
        cmocka_unit_test(test_another_thread),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
