/* Copies and fills: checked at the call, done in stream order. */
#include "activity.h"
#include "device_memory.h"

#include <string.h>

#include <vector>

namespace cudasim {

enum class place { device, pinned, pageable };

static place place_of(const device &dev, const void *address) {
    if (range_touches(dev.device_memory, address))
        return place::device;
    return range_touches(dev.pinned_memory, address) ? place::pinned : place::pageable;
}

static bool is_inside(const device &dev, place where, const void *start, size_t bytes) {
    return where == place::pageable ||
           range_within(where == place::device ? dev.device_memory : dev.pinned_memory, start,
                        bytes);
}

static bool kind_fits(cudaMemcpyKind kind, place dst, place src) {
    if (kind == cudaMemcpyDefault)
        return true;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return to_device == (dst == place::device) && from_device == (src == place::device);
}

static cudaError_t check_copy(const device &dev, void *dst, const void *src, size_t bytes,
                              cudaMemcpyKind kind) {
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    place to = place_of(dev, dst), from = place_of(dev, src);
    bool valid = kind_fits(kind, to, from) && is_inside(dev, to, dst, bytes) &&
                 is_inside(dev, from, src, bytes);
    return valid ? cudaSuccess : cudaErrorInvalidValue;
}

static uint8_t copy_kind(place to, place from) {
    if (to == place::device)
        return from == place::device ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOD
                                     : CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
    return from == place::device ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                                 : CUPTI_ACTIVITY_MEMCPY_KIND_HTOH;
}

/* With pageable memory the host takes part: it reads the source at the call, or waits until the
 * destination is filled. Copies within the host wait too. */
static bool takes_host(const device &dev, const void *dst, const void *src) {
    place to = place_of(dev, dst), from = place_of(dev, src);
    return to == place::pageable || from == place::pageable ||
           (to == place::pinned && from == place::pinned);
}

static void enqueue_copy(const api_call &call, work_queue &queue, cudaStream_t stream, void *dst,
                         const void *src, size_t bytes) {
    device &dev = call.dev;
    place to = place_of(dev, dst), from = place_of(dev, src);
    const activity what = {CUPTI_ACTIVITY_KIND_MEMCPY, nullptr, copy_kind(to, from), bytes, stream};
    if (from == place::pageable) {
        const char *start = static_cast<const char *>(src);
        std::vector<char> staged(start, start + bytes);
        queue.push_back(recorded(call, what, [&dev, dst, staged = std::move(staged)] {
            open_memory(dev);
            memcpy(dst, staged.data(), staged.size());
        }));
    } else {
        queue.push_back(recorded(call, what, [&dev, dst, src, bytes] {
            open_memory(dev);
            memmove(dst, src, bytes);
        }));
    }
    if (to == place::pageable || (to == place::pinned && from != place::device))
        run_all(dev, queue);
}

} // namespace cudasim

using namespace cudasim;

static cudaError_t copy(api_call &call, void *dst, const void *src, size_t count,
                        cudaMemcpyKind kind, cudaStream_t stream, bool waits) {
    cudaError_t error = waits ? refuse_while_capturing(call.dev) : cudaSuccess;
    if (error != cudaSuccess)
        return call.end(error);
    std::shared_ptr<work_queue> queue = target_of(call.dev, stream, &error);
    if (queue == nullptr)
        return call.end(error);
    if (call.dev.failed || count == 0)
        return call.end(cudaSuccess);
    error = check_copy(call.dev, dst, src, count, kind);
    if (error == cudaSuccess && takes_host(call.dev, dst, src))
        error = refuse_captured(call.dev, stream);
    if (error != cudaSuccess)
        return call.end(error);
    if (!is_skipped(call.dev, "cudaMemcpyAsync"))
        enqueue_copy(call, *queue, stream, dst, src, count);
    if (waits)
        run_all(call.dev, *queue);
    return call.end(cudaSuccess);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind) {
    api_call call;
    return copy(call, dst, src, count, kind, nullptr, true);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    api_call call;
    return copy(call, dst, src, count, kind, stream, false);
}

cudaError_t cudaMemset(void *dev_ptr, int value, size_t count) {
    return cudaMemsetAsync(dev_ptr, value, count, nullptr);
}

cudaError_t cudaMemsetAsync(void *dev_ptr, int value, size_t count, cudaStream_t stream) {
    api_call call;
    cudaError_t error;
    std::shared_ptr<work_queue> queue = target_of(call.dev, stream, &error);
    if (queue == nullptr)
        return call.end(error);
    if (count == 0)
        return call.end(cudaSuccess);
    if (!range_within(call.dev.device_memory, dev_ptr, count))
        return call.end(cudaErrorInvalidValue);
    const activity what = {CUPTI_ACTIVITY_KIND_MEMSET, nullptr, 0, count, stream};
    queue->push_back(recorded(call, what, [&dev = call.dev, dev_ptr, value, count] {
        open_memory(dev);
        memset(dev_ptr, value, count);
    }));
    return call.end(cudaSuccess);
}
