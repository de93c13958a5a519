/* Device and pinned host memory. Both are taken at start only; a failed allocation is an ordinary
 * error then and leaves the device in order. */
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/ranks/cuda_group.h"
#include "kernels/cuda/step/cuda_streams.h"

#include "config/base/numbers.h"

void cuda_memory_info(struct backend *base, size_t *out_free, size_t *out_total) {
    struct cuda_backend *b = cuda_state_of(base);
    size_t free_bytes = 0, total_bytes = 0;
    bool known = CUDA_TRY(b, cudaMemGetInfo(&free_bytes, &total_bytes));
    *out_free = known ? free_bytes : 0;
    *out_total = known ? total_bytes : 0;
}

/* The runtime keeps the last error until it is read; left there, it would be blamed on the
 * next kernel. */
static int out_of_memory(struct backend *b, size_t bytes, struct error *err) {
    cudaGetLastError();
    size_t free_bytes, total_bytes;
    cuda_memory_info(b, &free_bytes, &total_bytes);
    return error_set(err, ERROR_MEMORY,
                     "cannot allocate %.1f MiB of device memory: %.1f MiB are free of %.1f MiB",
                     mib(bytes), mib(free_bytes), mib(total_bytes));
}

int cuda_buffer_alloc(struct backend *base, size_t bytes, struct buffer *out, struct error *err) {
    struct cuda_backend *b = cuda_state_of(base);
    void *data;
    cudaError_t status = cudaMalloc(&data, bytes > 0 ? bytes : 1);
    if (status == cudaErrorMemoryAllocation)
        return out_of_memory(base, bytes, err);
    if (CUDA_START(status, err) != 0)
        return -1;
    cuda_streams_before_anything(b);
    if (CUDA_START(cudaMemsetAsync(data, 0, bytes, b->stream), err) != 0) {
        CUDA_RELEASE(b, cudaFree(data));
        return -1;
    }
    *out = (struct buffer){.data = data, .bytes = bytes};
    return 0;
}

/* What waits for the device never returns while that waits for a rank that is lost. */
static void settle(struct cuda_backend *b) {
    if (b->comm != NULL && b->stream != NULL)
        cuda_comm_await(b, NULL);
}

/* cudaFree waits for the device, so that what it returns may be the failure of work before it. */
void cuda_buffer_free(struct backend *b, struct buffer *buffer) {
    settle(cuda_state_of(b));
    CUDA_RELEASE(cuda_state_of(b), cudaFree(buffer->data));
    *buffer = (struct buffer){0};
}

int cuda_host_alloc(struct backend *b, size_t bytes, struct buffer *out, struct error *err) {
    void *data;
    cudaError_t status = cudaMallocHost(&data, bytes > 0 ? bytes : 1);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return error_set(err, ERROR_MEMORY, "cannot allocate %.1f MiB of pinned host memory",
                         mib(bytes));
    }
    if (CUDA_START(status, err) != 0)
        return -1;
    *out = (struct buffer){.data = data, .bytes = bytes};
    return 0;
}

void cuda_host_free(struct backend *b, struct buffer *buffer) {
    settle(cuda_state_of(b));
    if (buffer->data != NULL) /* of which NVIDIA says nothing */
        CUDA_RELEASE(cuda_state_of(b), cudaFreeHost(buffer->data));
    *buffer = (struct buffer){0};
}

int cuda_host_pin(struct backend *b, void *memory, size_t bytes, struct error *err) {
    cudaError_t status = cudaHostRegister(memory, bytes, cudaHostRegisterDefault);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return error_set(err, ERROR_MEMORY, "cannot pin %.1f MiB of host memory", mib(bytes));
    }
    return CUDA_START(status, err);
}

void cuda_host_unpin(struct backend *b, void *memory) {
    settle(cuda_state_of(b));
    CUDA_RELEASE(cuda_state_of(b), cudaHostUnregister(memory));
}
