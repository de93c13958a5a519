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
#define PAUSE_US 20

struct CUstream_st {};

/* A place in a queue. */
struct event_record {
    std::shared_ptr<cudasim::work_queue> queue;
    bool reached;
    std::chrono::nanoseconds time;
};

struct CUevent_st {
    std::shared_ptr<event_record> last; /* NULL: it was never recorded */
    bool timed;
    bool captured; /* it was last recorded in a capture: nobody can wait for it */
};

namespace cudasim {

std::chrono::nanoseconds device_time(const device &dev) {
    const machine &all = the_machine();
    return all.at_work == &dev ? dev.worked + (std::chrono::steady_clock::now() - all.at_work_since)
                               : dev.worked;
}

simulated_duration::simulated_duration(std::chrono::nanoseconds duration)
    : dev(*the_machine().at_work), end(device_time(dev) + duration) {
}

simulated_duration::~simulated_duration() {
    dev.worked += end - device_time(dev);
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
    dev.unfinished = false;
    if (!dev.failed) {
        device_at_work at_work(dev);
        work();
    }
    if (dev.unfinished)
        queue.push_front(std::move(work));
    return true;
}

void wait_for_devices(device &dev, std::vector<awaited_queue> queues) {
    dev.unfinished = true;
    dev.awaited = std::move(queues);
}

bool run_awaited(device &dev) {
    bool went_on = false;
    const std::vector<awaited_queue> queues = dev.awaited;
    for (const awaited_queue &other : queues)
        if (!other.dev->hung && run_one(*other.dev, *other.queue))
            went_on = went_on || !other.dev->unfinished;
    return went_on;
}

void pause_call() {
    device_at_work none;
    the_machine().lock.unlock();
    usleep(PAUSE_US);
    the_machine().lock.lock();
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
    work_queue &chosen = choose_queue(dev, wanted);
    run_one(dev, chosen);
    return !dev.unfinished || &chosen == &wanted || run_one(dev, wanted);
}

/* A call that waits for work, which may wait for another device, or for ever on one that hangs. */
class waiting_call {
  public:
    void look(device &dev) {
        if (!dev.hung && (!dev.unfinished || run_awaited(dev)))
            return;
        pause_call();
        if (std::chrono::steady_clock::now() > end)
            fatal("a call has waited %d s for work that never ends", MAX_HANG_S);
    }

  private:
    const std::chrono::steady_clock::time_point end =
        std::chrono::steady_clock::now() + std::chrono::seconds(MAX_HANG_S);
};

void run_all(device &dev, work_queue &queue) {
    waiting_call call;
    if (!dev.hung && queue.empty())
        return;
    device_at_work at_work(dev);
    while (run_towards(dev, queue))
        call.look(dev);
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
    if (!run_towards(call.dev, *queue))
        return call.end(cudaSuccess);
    if (call.dev.unfinished)
        run_awaited(call.dev);
    return call.end(cudaErrorNotReady);
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
            while (!record->reached && !dev.hung && run_one(dev, *record->queue) &&
                   !dev.unfinished) {
            }
        });
    return call.end(cudaSuccess);
}

static bool is_reached(cudaEvent_t event) {
    return event->last == nullptr || event->last->reached;
}

/* Or until the work waits for another device. */
static void run_until(device &dev, cudaEvent_t event) {
    device_at_work at_work(dev); /* once, not for each piece of work */
    dev.unfinished = false;
    while (!is_reached(event) && !dev.hung && !dev.unfinished &&
           run_towards(dev, *event->last->queue))
        continue;
}

static bool is_waiting(const device &dev, cudaEvent_t event) {
    return !is_reached(event) && (dev.hung || dev.unfinished);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    api_call call;
    if (event->captured)
        return call.end(cudaErrorCapturedEvent);
    waiting_call wait;
    for (run_until(call.dev, event); is_waiting(call.dev, event); run_until(call.dev, event))
        wait.look(call.dev);
    return call.end(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    api_call call;
    if (event->captured)
        return call.end(cudaErrorCapturedEvent);
    if (is_reached(event))
        return call.end(cudaSuccess);
    run_until(call.dev, event);
    if (is_waiting(call.dev, event))
        run_awaited(call.dev);
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
