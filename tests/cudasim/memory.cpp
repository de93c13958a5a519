#include "device.h"

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

static void *allocate(std::map<uintptr_t, memory_range> &memory, size_t bytes) {
    char *start = static_cast<char *>(aligned_alloc(256, (bytes + 255) / 256 * 256));
    if (start == nullptr)
        return nullptr;
    memset(start, 0xff, bytes);
    memory[reinterpret_cast<uintptr_t>(start)] = {start, bytes};
    return start;
}

} // namespace cudasim

using namespace cudasim;

cudaError_t cudaMalloc(void **dev_ptr, size_t size) {
    api_call call;
    device &dev = call.dev;
    if (dev.failed)
        return call.end(cudaErrorIllegalAddress);
    *dev_ptr = nullptr;
    if (size == 0)
        return call.end(cudaSuccess);
    if (size > dev.memory_bytes - dev.allocated_bytes)
        return call.end(cudaErrorMemoryAllocation);
    *dev_ptr = allocate(dev.device_memory, size);
    if (*dev_ptr == nullptr)
        return call.end(cudaErrorMemoryAllocation);
    dev.allocated_bytes += size;
    return call.end(cudaSuccess);
}

cudaError_t cudaFree(void *dev_ptr) {
    api_call call;
    run_all_streams(call.dev);
    if (call.dev.failed || dev_ptr == nullptr)
        return call.end(cudaSuccess);
    auto found = call.dev.device_memory.find(reinterpret_cast<uintptr_t>(dev_ptr));
    if (found == call.dev.device_memory.end())
        return call.end(cudaErrorInvalidValue);
    call.dev.allocated_bytes -= found->second.bytes;
    call.dev.device_memory.erase(found);
    free(dev_ptr);
    return call.end(cudaSuccess);
}

cudaError_t cudaHostAlloc(void **host_ptr, size_t size, unsigned int flags) {
    api_call call;
    if (flags > (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
        return call.end(cudaErrorInvalidValue);
    if (call.dev.failed)
        return call.end(cudaErrorIllegalAddress);
    *host_ptr = nullptr;
    if (size == 0)
        return call.end(cudaSuccess);
    *host_ptr = allocate(call.dev.pinned_memory, size);
    return call.end(*host_ptr != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void **host_ptr, size_t size) {
    return cudaHostAlloc(host_ptr, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *host_ptr) {
    api_call call;
    run_all_streams(call.dev);
    if (call.dev.failed || host_ptr == nullptr)
        return call.end(cudaSuccess);
    if (call.dev.pinned_memory.erase(reinterpret_cast<uintptr_t>(host_ptr)) == 0)
        return call.end(cudaErrorInvalidValue);
    free(host_ptr);
    return call.end(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    api_call call;
    *free_bytes = call.dev.memory_bytes - call.dev.allocated_bytes;
    *total_bytes = call.dev.memory_bytes;
    return call.end(cudaSuccess);
}
