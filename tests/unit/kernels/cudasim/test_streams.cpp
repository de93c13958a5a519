/* Work of two streams: as the order says where no event does, and as events say in every order. */
#include "sim_test.h"

/* Two streams whose work writes its letter down. */
struct two_streams {
    cudaStream_t a, b;
    cudaEvent_t event;
    std::string log;

    two_streams() {
        ASSERT_CUDA(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
        ASSERT_CUDA(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
        ASSERT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    ~two_streams() {
        ASSERT_CUDA(cudaEventDestroy(event));
        ASSERT_CUDA(cudaStreamDestroy(b));
        ASSERT_CUDA(cudaStreamDestroy(a));
    }
    void enqueue(cudaStream_t stream, const char *letters) {
        for (; *letters != '\0'; letters++)
            cudasim::enqueue_work(stream, [this, letter = *letters] { log += letter; });
    }
    /* What is enqueued on `waiter` from here on comes after what `stream` has so far. */
    void order(cudaStream_t stream, cudaStream_t waiter) {
        ASSERT_CUDA(cudaEventRecord(event, stream));
        ASSERT_CUDA(cudaStreamWaitEvent(waiter, event, 0));
    }
    std::string wait(cudaStream_t stream) {
        ASSERT_CUDA(cudaStreamSynchronize(stream));
        return log;
    }
};

static std::string unordered(const char *order, bool wait_for_first) {
    two_streams s;
    assert_int_equal(cudasim_set_order(order), 0);
    s.enqueue(s.a, "abc");
    s.enqueue(s.b, "xyz");
    std::string log = s.wait(wait_for_first ? s.a : s.b);
    assert_int_equal(cudasim_set_order("forward"), 0);
    return log;
}

static void test_without_events(void **) {
    assert_string_equal(unordered("forward", true).c_str(), "abc");
    assert_string_equal(unordered("forward", false).c_str(), "xyz");
    assert_string_equal(unordered("reverse", true).c_str(), "xyzabc");
    assert_string_equal(unordered("reverse", false).c_str(), "abcxyz");
    int num_mixed = 0;
    for (int seed = 0; seed < 20; seed++) {
        std::string order = "random:" + std::to_string(seed);
        std::string log = unordered(order.c_str(), true);
        assert_string_equal(unordered(order.c_str(), true).c_str(), log.c_str());
        assert_true(log.find('a') < log.find('b') && log.find('b') < log.find('c'));
        num_mixed += log.find('x') > log.find('a') && log.find('x') < log.find('c');
    }
    assert_in_range(num_mixed, 1, 19);
}

/* A query of a stream runs a piece, one of an event what comes before it and no more; a wait
 * likewise. */
static void test_queries_and_events(void **) {
    two_streams s;
    assert_int_equal(cudasim_set_order("reverse"), 0);
    s.enqueue(s.a, "a");
    ASSERT_CUDA(cudaEventRecord(s.event, s.a));
    s.enqueue(s.a, "b");
    s.enqueue(s.b, "xy");
    assert_int_equal(cudaStreamQuery(s.a), cudaErrorNotReady);
    assert_string_equal(s.log.c_str(), "x");
    assert_int_equal(cudaEventQuery(s.event), cudaErrorNotReady);
    assert_string_equal(s.log.c_str(), "xya");
    ASSERT_CUDA(cudaEventQuery(s.event));
    s.enqueue(s.a, "c");
    ASSERT_CUDA(cudaEventRecord(s.event, s.a));
    s.enqueue(s.a, "d");
    ASSERT_CUDA(cudaEventSynchronize(s.event));
    assert_string_equal(s.log.c_str(), "xyabc");
    assert_string_equal(s.wait(s.a).c_str(), "xyabcd");
    assert_int_equal(cudasim_set_order("forward"), 0);
    cudaGetLastError();
}

/* Each stream waits for the other once: x for a, and c for y. */
static void enqueue_ordered(two_streams &s) {
    s.enqueue(s.b, "w");
    s.enqueue(s.a, "a");
    s.order(s.a, s.b);
    s.enqueue(s.a, "b");
    s.enqueue(s.b, "xy");
    s.order(s.b, s.a);
    s.enqueue(s.b, "z");
    s.enqueue(s.a, "c");
}

static void test_events_hold_in_every_order(void **) {
    in_every_order([] {
        two_streams s;
        enqueue_ordered(s);
        std::string log = s.wait(s.a);
        assert_true(log.find('a') < log.find('x') && log.find('y') < log.find('c'));
        s.wait(s.b);
        assert_int_equal(s.log.size(), 7);
    });
}

/* No stream goes further than it is waited for, or further back than events let it. */
static void test_events_leave_the_rest_free(void **) {
    static const struct {
        const char *order, *log;
    } expected[] = {{"forward", "abwxyc"}, {"reverse", "waxyzbc"}};
    for (const auto &e : expected) {
        two_streams s;
        assert_int_equal(cudasim_set_order(e.order), 0);
        enqueue_ordered(s);
        assert_string_equal(s.wait(s.a).c_str(), e.log);
        assert_int_equal(cudasim_set_order("forward"), 0);
    }
}

/* A stream waits for what the event was recorded behind when it began to; one that was never
 * recorded is no wait. */
static void test_event_recorded_again(void **) {
    two_streams s;
    ASSERT_CUDA(cudaStreamWaitEvent(s.b, s.event, 0));
    s.enqueue(s.a, "a");
    s.order(s.a, s.b);
    s.enqueue(s.a, "b");
    ASSERT_CUDA(cudaEventRecord(s.event, s.a));
    s.enqueue(s.b, "x");
    assert_string_equal(s.wait(s.b).c_str(), "ax");
    ASSERT_CUDA(cudaEventRecord(s.event, s.b));
    ASSERT_CUDA(cudaEventSynchronize(s.event));
    assert_string_equal(s.log.c_str(), "ax");
}

static void test_refused(void **) {
    two_streams s;
    cudaStream_t gone;
    cudaGraph_t graph;
    ASSERT_CUDA(cudaStreamCreate(&gone));
    ASSERT_CUDA(cudaStreamDestroy(gone));
    assert_int_equal(cudaStreamWaitEvent(gone, s.event, 0), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaStreamWaitEvent(s.a, s.event, 7), cudaErrorInvalidValue);
    ASSERT_CUDA(cudaEventRecord(s.event, s.b));
    ASSERT_CUDA(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(cudaStreamWaitEvent(s.a, s.event, 0), cudaErrorStreamCaptureIsolation);
    assert_int_equal(cudaStreamEndCapture(s.a, &graph), cudaErrorStreamCaptureInvalidated);
    ASSERT_CUDA(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal));
    ASSERT_CUDA(cudaEventRecord(s.event, s.a));
    assert_int_equal(cudaStreamWaitEvent(s.b, s.event, 0), cudaErrorStreamCaptureIsolation);
    ASSERT_CUDA(cudaStreamEndCapture(s.a, &graph));
    ASSERT_CUDA(cudaGraphDestroy(graph));
    cudaGetLastError();
}

/* Copies and kernels as well: a value that one stream writes and another reads. In one order or the
 * other, it is read too early without the event. */
static float copied_value(const char *order, bool is_ordered, bool wait_for_reader) {
    two_streams s;
    device_array<float> value(std::vector<float>{1.0f});
    float *pinned, *x = value.get();
    ASSERT_CUDA(cudaMallocHost(&pinned, sizeof(float)));
    assert_int_equal(cudasim_set_order(order), 0);
    cudasim::enqueue_work(s.a, [x] { *x = 2.0f; });
    if (is_ordered)
        s.order(s.a, s.b);
    ASSERT_CUDA(cudaMemcpyAsync(pinned, x, sizeof(float), cudaMemcpyDeviceToHost, s.b));
    ASSERT_CUDA(cudaStreamSynchronize(wait_for_reader ? s.b : s.a));
    ASSERT_CUDA(cudaStreamSynchronize(s.b));
    float copied = *pinned;
    assert_int_equal(cudasim_set_order("forward"), 0);
    ASSERT_CUDA(cudaFreeHost(pinned));
    return copied;
}

static void test_missing_event(void **) {
    for (bool wait_for_reader : {false, true}) {
        assert_true(copied_value("forward", true, wait_for_reader) == 2.0f);
        assert_true(copied_value("reverse", true, wait_for_reader) == 2.0f);
        assert_true(copied_value("forward", false, wait_for_reader) !=
                    copied_value("reverse", false, wait_for_reader));
    }
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_without_events),
        cmocka_unit_test(test_queries_and_events),
        cmocka_unit_test(test_events_hold_in_every_order),
        cmocka_unit_test(test_events_leave_the_rest_free),
        cmocka_unit_test(test_event_recorded_again),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_missing_event),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
