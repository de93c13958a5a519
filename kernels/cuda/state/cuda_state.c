#include "kernels/cuda/state/cuda_check.h"

/* A backend may be called by another thread than the one that opened it. */
struct cuda_backend *cuda_state_of(struct backend *base) {
    static _Thread_local int current; /* the runtime's own begins with 0 */
    struct cuda_backend *b = (struct cuda_backend *)base;
    if (current != b->device && CUDA_RELEASE(b, cudaSetDevice(b->device)))
        current = b->device;
    return b;
}

const int32_t *cuda_step_slots(const struct cuda_backend *b, int32_t group) {
    return b->step.slot_mapping + (size_t)group * (size_t)b->config.limits.max_num_batched_tokens;
}

const int32_t *cuda_step_tables(const struct cuda_backend *b, int32_t group) {
    size_t rows = (size_t)group * (size_t)b->config.limits.max_num_seqs;
    return b->step.block_tables + rows * (size_t)b->step.table_stride;
}
