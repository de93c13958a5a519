#include "cudasim/launch.h"

#include "activity.h"
#include "block.h"
#include "device.h"
#include "device_memory.h"
#include "fatal.h"
#include "shared_memory.h"

namespace cudasim {

static int allowed_shared_bytes(const device &dev, const void *kernel) {
    auto found = dev.max_shared_bytes.find(kernel);
    return found == dev.max_shared_bytes.end() ? (int)MAX_SHARED_BYTES : found->second;
}

static cudaError_t check_launch(const device &dev, const launch_config &config) {
    const dim3 &grid = config.grid_dim, &block = config.block_dim;
    uint64_t num_threads = (uint64_t)block.x * block.y * block.z;
    if (num_threads == 0 || num_threads > (uint64_t)MAX_BLOCK_THREADS || block.z > 64)
        return cudaErrorInvalidConfiguration;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > 65535 ||
        grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (config.shared_bytes > (size_t)allowed_shared_bytes(dev, config.kernel))
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

static bool is_for_kernels(const device &dev, const void *pointer) {
    const char *at = static_cast<const char *>(pointer);
    for (const char *p : {at, at - 1})
        if (range_touches(dev.device_memory, p) || range_touches(dev.pinned_memory, p))
            return true;
    return false;
}

void check_pointer(const char *kernel_name, const void *pointer) {
    api_call call(nullptr);
    if (pointer != nullptr && !is_for_kernels(call.dev, pointer))
        fatal("%s is launched with %p, neither device nor pinned memory", kernel_name, pointer);
}

/* One kernel, ours or a library's, unless it is the one that fails, or never ends. */
static void run_kernel(device &dev, const std::function<void()> &kernel) {
    if (dev.hung) /* in a graph, after the one that never ends */
        return;
    uint64_t number = dev.num_kernels++;
    open_memory(dev);
    if (number == dev.fail_after || fails_next(dev.failure, dev.in_graph))
        dev.failed = true;
    else if (number == dev.hang_after)
        dev.hung = true;
    else
        kernel();
}

static activity kernel_activity(const char *name, cudaStream_t stream) {
    return {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, name, 0, 0, stream};
}

void enqueue_grid(const launch_config &config, std::function<void()> body) {
    api_call call("cudaLaunchKernel");
    cudaError_t error;
    std::shared_ptr<work_queue> queue = target_of(call.dev, config.stream, &error);
    if (queue != nullptr)
        error = check_launch(call.dev, config);
    if (call.end(error) != cudaSuccess || is_skipped(call.dev, config.kernel_name))
        return;
    device &dev = call.dev;
    queue->push_back(recorded(call, kernel_activity(config.kernel_name, config.stream),
                              [&dev, config, body = std::move(body)] {
                                  run_kernel(dev, [&] { run_grid(config, body); });
                              }));
}

void enqueue_work(cudaStream_t stream, std::function<void()> work) {
    api_call call("cuLaunchKernelEx");
    cudaError_t error;
    std::shared_ptr<work_queue> queue = target_of(call.dev, stream, &error);
    if (call.end(error) != cudaSuccess || is_skipped(call.dev, "cublasLtMatmul"))
        return;
    device &dev = call.dev;
    queue->push_back(recorded(call, kernel_activity("simulated_gemm_kernel", stream),
                              [&dev, work = std::move(work)] { run_kernel(dev, work); }));
}

} // namespace cudasim

using namespace cudasim;

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value) {
    api_call call;
    if (func == nullptr)
        return call.end(cudaErrorInvalidDeviceFunction);
    if (attr == cudaFuncAttributePreferredSharedMemoryCarveout) {
        if (value < cudaSharedmemCarveoutDefault || value > cudaSharedmemCarveoutMaxShared)
            return call.end(cudaErrorInvalidValue);
        call.dev.carveouts[func] = value;
        return call.end(cudaSuccess);
    }
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > (int)MAX_SHARED_BYTES_OPTIN)
        return call.end(cudaErrorInvalidValue);
    call.dev.max_shared_bytes[func] = value;
    return call.end(cudaSuccess);
}

/* Kernels can begin early: 9.0 is the first that does. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func) {
    api_call call;
    if (attr == nullptr || func == nullptr)
        return call.end(cudaErrorInvalidValue);
    *attr = {90};
    return call.end(cudaSuccess);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *num_blocks, const void *func,
                                                          int block_size,
                                                          size_t dynamic_shared_bytes) {
    api_call call;
    if (func == nullptr || block_size <= 0 || block_size > MAX_BLOCK_THREADS)
        return call.end(cudaErrorInvalidValue);
    auto carveout = call.dev.carveouts.find(func);
    if (dynamic_shared_bytes > 0 && (carveout == call.dev.carveouts.end() ||
                                     carveout->second != cudaSharedmemCarveoutMaxShared))
        fatal("the blocks of a kernel with %zu bytes of shared memory are counted for the largest "
              "carve-out, which was not asked for",
              dynamic_shared_bytes);
    *num_blocks = dynamic_shared_bytes <= MAX_SHARED_BYTES ? 2 : 1;
    return call.end(cudaSuccess);
}
