#include "device.h"
#include "device_memory.h"

#include <stdlib.h>
#include <string.h>

namespace cudasim {

static std::map<uintptr_t, memory_range>::const_iterator
find_range(const std::map<uintptr_t, memory_range> &memory, const void *address) {
    uintptr_t at = reinterpret_cast<uintptr_t>(address);
    auto after = memory.upper_bound(at);
    if (after == memory.begin())
        return memory.end();
    auto found = std::prev(after);
    return at - found->first < found->second.bytes ? found : memory.end();
}

bool range_touches(const std::map<uintptr_t, memory_range> &memory, const void *address) {
    return find_range(memory, address) != memory.end();
}

bool range_within(const std::map<uintptr_t, memory_range> &memory, const void *start,
                  size_t bytes) {
    auto found = find_range(memory, start);
    return found != memory.end() &&
           bytes <= found->second.bytes - (reinterpret_cast<uintptr_t>(start) - found->first);
}

static uintptr_t key_of(const void *start) {
    return reinterpret_cast<uintptr_t>(start);
}

static char *allocate_pinned(size_t bytes) {
    void *start;
    if (posix_memalign(&start, 256, bytes) != 0)
        return nullptr;
    memset(start, 0xff, bytes);
    return static_cast<char *>(start);
}

} // namespace cudasim

using namespace cudasim;

cudaError_t cudaMalloc(void **dev_ptr, size_t size) {
    api_call call;
    if (refuse_while_capturing(call.dev) != cudaSuccess)
        return call.end(cudaErrorStreamCaptureUnsupported);
    device &dev = call.dev;
    if (dev.failed)
        return call.end(cudaErrorIllegalAddress);
    *dev_ptr = nullptr;
    if (size == 0)
        return call.end(cudaSuccess);
    if (size > dev.memory_bytes - dev.allocated_bytes)
        return call.end(cudaErrorMemoryAllocation);
    char *start = map_device_memory(size);
    if (start == nullptr)
        return call.end(cudaErrorMemoryAllocation);
    dev.device_memory[key_of(start)] = {start, size};
    dev.allocated_bytes += size;
    *dev_ptr = start;
    return call.end(cudaSuccess);
}

cudaError_t cudaFree(void *dev_ptr) {
    api_call call;
    if (refuse_while_capturing(call.dev) != cudaSuccess)
        return call.end(cudaErrorStreamCaptureUnsupported);
    run_all_streams(call.dev);
    if (call.dev.failed || dev_ptr == nullptr)
        return call.end(cudaSuccess);
    auto found = call.dev.device_memory.find(key_of(dev_ptr));
    if (found == call.dev.device_memory.end())
        return call.end(cudaErrorInvalidValue);
    unmap_device_memory(found->second.start, found->second.bytes);
    call.dev.allocated_bytes -= found->second.bytes;
    call.dev.device_memory.erase(found);
    return call.end(cudaSuccess);
}

cudaError_t cudaHostAlloc(void **host_ptr, size_t size, unsigned int flags) {
    api_call call;
    if (refuse_while_capturing(call.dev) != cudaSuccess)
        return call.end(cudaErrorStreamCaptureUnsupported);
    if (flags > (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
        return call.end(cudaErrorInvalidValue);
    if (call.dev.failed)
        return call.end(cudaErrorIllegalAddress);
    *host_ptr = nullptr;
    if (size == 0)
        return call.end(cudaSuccess);
    char *start = allocate_pinned(size);
    if (start == nullptr)
        return call.end(cudaErrorMemoryAllocation);
    call.dev.pinned_memory[key_of(start)] = {start, size};
    *host_ptr = start;
    return call.end(cudaSuccess);
}

cudaError_t cudaMallocHost(void **host_ptr, size_t size) {
    return cudaHostAlloc(host_ptr, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *host_ptr) {
    api_call call;
    if (refuse_while_capturing(call.dev) != cudaSuccess)
        return call.end(cudaErrorStreamCaptureUnsupported);
    run_all_streams(call.dev);
    if (call.dev.failed || host_ptr == nullptr)
        return call.end(cudaSuccess);
    if (call.dev.pinned_memory.erase(key_of(host_ptr)) == 0)
        return call.end(cudaErrorInvalidValue);
    free(host_ptr);
    return call.end(cudaSuccess);
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags) {
    api_call call;
    if (refuse_while_capturing(call.dev) != cudaSuccess)
        return call.end(cudaErrorStreamCaptureUnsupported);
    if (ptr == nullptr || size == 0 || flags != cudaHostRegisterDefault)
        return call.end(cudaErrorInvalidValue);
    if (call.dev.failed)
        return call.end(cudaErrorIllegalAddress);
    if (!call.dev.pinned_memory
             .try_emplace(key_of(ptr), memory_range{static_cast<char *>(ptr), size})
             .second)
        return call.end(cudaErrorHostMemoryAlreadyRegistered);
    return call.end(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *ptr) {
    api_call call;
    if (refuse_while_capturing(call.dev) != cudaSuccess)
        return call.end(cudaErrorStreamCaptureUnsupported);
    run_all_streams(call.dev);
    if (call.dev.failed)
        return call.end(cudaSuccess);
    if (call.dev.pinned_memory.erase(key_of(ptr)) == 0)
        return call.end(cudaErrorHostMemoryNotRegistered);
    return call.end(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    api_call call;
    *free_bytes = call.dev.memory_bytes - call.dev.allocated_bytes;
    *total_bytes = call.dev.memory_bytes;
    return call.end(cudaSuccess);
}
