/* Streams and events. A stream is a queue that only a wait empties; all streams that synchronise
 * with the default stream share its queue, which is one of the orders a GPU may choose. */
#include "device.h"
#include "device_memory.h"

#include "fatal.h"

#include <unistd.h>

#include <chrono>

#define MAX_HANG_S 300 /* a test that waits for ever ends at last */

struct CUstream_st {};

/* Marks are numbered by record; `reached` is the newest that the queue came to. */
struct event_state {
    uint64_t num_records;
    uint64_t reached;
    std::chrono::steady_clock::time_point time;
};

struct CUevent_st {
    std::shared_ptr<event_state> state;
    std::shared_ptr<cudasim::work_queue> queue; /* it was last recorded in */
    bool timed;
    bool captured; /* it was last recorded in a capture: nobody can wait for it */
};

namespace cudasim {

std::shared_ptr<work_queue> queue_of(device &dev, cudaStream_t stream) {
    if (stream == nullptr)
        return dev.default_queue;
    auto found = dev.streams.find(stream);
    return found == dev.streams.end() ? nullptr : found->second;
}

bool run_one(device &dev, work_queue &queue) {
    if (dev.hung)
        return true;
    if (queue.empty())
        return false;
    std::function<void()> work = std::move(queue.front());
    queue.pop_front();
    if (!dev.failed) {
        device_at_work at_work(dev);
        work();
    }
    return true;
}

/* What a call that waits for work does once the device hangs. */
[[noreturn]] static void wait_for_ever() {
    sleep(MAX_HANG_S);
    fatal("a call has waited %d s for a kernel that never ends", MAX_HANG_S);
}

void run_all(device &dev, work_queue &queue) {
    if (!dev.hung && queue.empty())
        return;
    device_at_work at_work(dev);
    while (run_one(dev, queue))
        if (dev.hung)
            wait_for_ever();
}

void run_all_streams(device &dev) {
    run_all(dev, *dev.default_queue);
    for (auto &entry : dev.streams)
        run_all(dev, *entry.second);
}

} // namespace cudasim

using namespace cudasim;

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    api_call call;
    if (flags > cudaStreamNonBlocking)
        return call.end(cudaErrorInvalidValue);
    if (call.dev.failed)
        return call.end(cudaErrorIllegalAddress);
    *stream = new CUstream_st;
    call.dev.streams[*stream] =
        flags == cudaStreamNonBlocking ? std::make_shared<work_queue>() : call.dev.default_queue;
    return call.end(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    api_call call;
    auto found = call.dev.streams.find(stream);
    if (found == call.dev.streams.end())
        return call.end(cudaErrorInvalidResourceHandle);
    run_all(call.dev, *found->second);
    call.dev.captures.erase(stream);
    call.dev.streams.erase(found);
    delete stream;
    return call.end(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    api_call call;
    std::shared_ptr<work_queue> queue = queue_of(call.dev, stream);
    if (queue == nullptr)
        return call.end(cudaErrorInvalidResourceHandle);
    if (refuse_captured(call.dev, stream) != cudaSuccess)
        return call.end(cudaErrorStreamCaptureUnsupported);
    run_all(call.dev, *queue);
    return call.end(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    api_call call;
    std::shared_ptr<work_queue> queue = queue_of(call.dev, stream);
    if (queue == nullptr)
        return call.end(cudaErrorInvalidResourceHandle);
    if (refuse_captured(call.dev, stream) != cudaSuccess)
        return call.end(cudaErrorStreamCaptureUnsupported);
    return call.end(run_one(call.dev, *queue) ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void) {
    api_call call;
    if (refuse_while_capturing(call.dev) != cudaSuccess)
        return call.end(cudaErrorStreamCaptureUnsupported);
    run_all_streams(call.dev);
    return call.end(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    api_call call;
    if (flags > (cudaEventBlockingSync | cudaEventDisableTiming))
        return call.end(cudaErrorInvalidValue);
    if (call.dev.failed)
        return call.end(cudaErrorIllegalAddress);
    *event = new CUevent_st{std::make_shared<event_state>(), nullptr,
                            (flags & cudaEventDisableTiming) == 0, false};
    return call.end(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    api_call call;
    delete event;
    return call.end(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    api_call call;
    cudaError_t error;
    std::shared_ptr<work_queue> target = target_of(call.dev, stream, &error);
    if (target == nullptr)
        return call.end(error);
    event->captured = is_capturing(call.dev, stream);
    if (event->captured)
        return call.end(cudaSuccess);
    event->queue = target;
    uint64_t mark = ++event->state->num_records;
    event->queue->push_back([state = event->state, mark] {
        state->reached = mark;
        state->time = std::chrono::steady_clock::now();
    });
    return call.end(cudaSuccess);
}

static bool is_reached(cudaEvent_t event) {
    return event->state->reached == event->state->num_records;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    api_call call;
    if (event->captured)
        return call.end(cudaErrorCapturedEvent);
    if (is_reached(event))
        return call.end(cudaSuccess);
    device_at_work at_work(call.dev);
    while (!is_reached(event) && run_one(call.dev, *event->queue))
        if (call.dev.hung)
            wait_for_ever();
    return call.end(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    api_call call;
    if (event->captured)
        return call.end(cudaErrorCapturedEvent);
    if (is_reached(event))
        return call.end(cudaSuccess);
    run_one(call.dev, *event->queue);
    return call.end(cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    api_call call;
    if (!start->timed || !end->timed || start->queue == nullptr || end->queue == nullptr)
        return call.end(cudaErrorInvalidResourceHandle);
    if (start->captured || end->captured)
        return call.end(cudaErrorCapturedEvent);
    if (!is_reached(start) || !is_reached(end))
        return call.end(cudaErrorNotReady);
    std::chrono::duration<float, std::milli> elapsed = end->state->time - start->state->time;
    *ms = elapsed.count();
    return call.end(cudaSuccess);
}
