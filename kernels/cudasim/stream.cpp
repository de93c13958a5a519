/* Streams and events. A stream is a queue that only a wait empties; all streams that synchronise
 * with the default stream share its queue, which is one of the orders a GPU may choose. */
#include "device.h"
#include "device_memory.h"

#include "fatal.h"
#include "order.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#define MAX_HANG_S 300 /* a test that waits for ever ends at last */

struct CUstream_st {};

/* A place in a queue. */
struct event_record {
    std::shared_ptr<cudasim::work_queue> queue;
    bool reached;
    std::chrono::steady_clock::time_point time;
};

struct CUevent_st {
    std::shared_ptr<event_record> last; /* NULL: it was never recorded */
    bool timed;
    bool captured; /* it was last recorded in a capture: nobody can wait for it */
};

namespace cudasim {

std::chrono::steady_clock::time_point device_time(const device &dev) {
    return std::chrono::steady_clock::now() + dev.ahead;
}

simulated_duration::simulated_duration(std::chrono::nanoseconds duration)
    : end(device_time(the_device()) + duration) {
}

simulated_duration::~simulated_duration() {
    the_device().ahead += end - device_time(the_device());
}

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

/* The queue to go on with while the host waits for `wanted`, which is not empty. */
static work_queue &choose_queue(device &dev, work_queue &wanted) {
    std::vector<work_queue *> others;
    for (const std::shared_ptr<work_queue> &queue : dev.queues)
        if (queue.get() != &wanted && !queue->empty())
            others.push_back(queue.get());
    if (current_order() == order_kind::forward || others.empty())
        return wanted;
    if (current_order() == order_kind::reverse)
        return *others.front();
    uint32_t choice = random_below((uint32_t)others.size() + 1);
    return choice < others.size() ? *others[choice] : wanted;
}

bool run_towards(device &dev, work_queue &wanted) {
    if (dev.hung || wanted.empty())
        return dev.hung;
    return run_one(dev, choose_queue(dev, wanted));
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
    while (run_towards(dev, queue))
        if (dev.hung)
            wait_for_ever();
}

void run_all_streams(device &dev) {
    for (const std::shared_ptr<work_queue> &queue : dev.queues)
        run_all(dev, *queue);
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
    if (flags == cudaStreamNonBlocking)
        call.dev.queues.push_back(std::make_shared<work_queue>());
    call.dev.streams[*stream] =
        flags == cudaStreamNonBlocking ? call.dev.queues.back() : call.dev.default_queue;
    return call.end(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    api_call call;
    auto found = call.dev.streams.find(stream);
    if (found == call.dev.streams.end())
        return call.end(cudaErrorInvalidResourceHandle);
    run_all(call.dev, *found->second);
    if (found->second != call.dev.default_queue)
        call.dev.queues.erase(
            std::find(call.dev.queues.begin(), call.dev.queues.end(), found->second));
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
    return call.end(run_towards(call.dev, *queue) ? cudaErrorNotReady : cudaSuccess);
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
    *event = new CUevent_st{nullptr, (flags & cudaEventDisableTiming) == 0, false};
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
    std::shared_ptr<event_record> record = std::make_shared<event_record>();
    record->queue = target;
    event->last = record;
    target->push_back([&dev = call.dev, record] {
        record->reached = true;
        record->time = device_time(dev);
    });
    return call.end(cudaSuccess);
}

/* The stream's queue comes to the wait, and stays there until the other queue came to the record.
 * It runs no more of that than it must. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    api_call call;
    std::shared_ptr<work_queue> queue = queue_of(call.dev, stream);
    if (queue == nullptr)
        return call.end(cudaErrorInvalidResourceHandle);
    if (flags != 0)
        return call.end(cudaErrorInvalidValue);
    if (event->captured || refuse_captured(call.dev, stream) != cudaSuccess)
        return call.end(cudaErrorStreamCaptureIsolation);
    device &dev = call.dev;
    if (event->last != nullptr && !is_skipped(dev, "cudaStreamWaitEvent"))
        queue->push_back([&dev, record = event->last] {
            while (!record->reached && !dev.hung && run_one(dev, *record->queue)) {
            }
        });
    return call.end(cudaSuccess);
}

static bool is_reached(cudaEvent_t event) {
    return event->last == nullptr || event->last->reached;
}

static void run_until(device &dev, cudaEvent_t event) {
    device_at_work at_work(dev); /* once, not for each piece of work */
    while (!is_reached(event) && !dev.hung && run_towards(dev, *event->last->queue))
        continue;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    api_call call;
    if (event->captured)
        return call.end(cudaErrorCapturedEvent);
    run_until(call.dev, event);
    if (!is_reached(event) && call.dev.hung)
        wait_for_ever();
    return call.end(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    api_call call;
    if (event->captured)
        return call.end(cudaErrorCapturedEvent);
    if (is_reached(event))
        return call.end(cudaSuccess);
    run_until(call.dev, event);
    return call.end(cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    api_call call;
    if (!start->timed || !end->timed || start->last == nullptr || end->last == nullptr)
        return call.end(cudaErrorInvalidResourceHandle);
    if (start->captured || end->captured)
        return call.end(cudaErrorCapturedEvent);
    if (!is_reached(start) || !is_reached(end))
        return call.end(cudaErrorNotReady);
    std::chrono::duration<float, std::milli> elapsed = end->last->time - start->last->time;
    *ms = elapsed.count();
    return call.end(cudaSuccess);
}
