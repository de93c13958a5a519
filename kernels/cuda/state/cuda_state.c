#include "kernels/cuda/state/cuda_check.h"

/* A backend may be called by another thread than the one that opened it. */
struct cuda_backend *cuda_state_of(struct backend *base) {
    static _Thread_local int current; /* the runtime's own begins with 0 */
    struct cuda_backend *b = (struct cuda_backend *)base;
    if (current != b->device && CUDA_RELEASE(b, cudaSetDevice(b->device)))
        current = b->device;
    return b;
}
