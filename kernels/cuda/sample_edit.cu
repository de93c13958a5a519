/* Steps 2 and 3 of sampling.h, on a copy of the row where the raw logits are still needed: masks in
 * one pass over it, sparse edits one thread each. */
#include "kernels/cuda/sample_row.cuh"

#define EDIT_THREADS 256
#define MASK_BLOCKS 8 /* a row */

__global__ void __launch_bounds__(EDIT_THREADS) mask_kernel(struct sample_tensors t) {
    const struct sample_row *row = &t.rows[blockIdx.x];
    bool is_copied = sample_is_copied(row), is_masked = sample_is_masked(row);
    if (!is_copied && !is_masked)
        return;
    size_t first = static_cast<size_t>(blockIdx.x) * t.row_stride;
    const uint32_t *mask = t.masks + (is_masked ? static_cast<size_t>(row->mask - t.first_mask) *
                                                      SAMPLE_MASK_WORDS(t.vocab_size)
                                                : 0);
    for (int32_t i = blockIdx.y * EDIT_THREADS + threadIdx.x; i < t.vocab_size;
         i += MASK_BLOCKS * EDIT_THREADS) {
        if (is_masked && !sample_allows(mask, i))
            (is_copied ? t.edited : t.logits)[first + i] = -INFINITY;
        else if (is_copied)
            t.edited[first + i] = t.logits[first + i];
    }
}

extern "C" cudaError_t launch_sample_mask(cudaStream_t stream,
                                          const struct sample_tensors *tensors) {
    LAUNCH(mask_kernel, dim3(tensors->num_rows, MASK_BLOCKS), EDIT_THREADS, 0, stream, *tensors);
    return cudaGetLastError();
}

__global__ void __launch_bounds__(EDIT_THREADS)
    edit_kernel(struct sample_tensors t, const struct sample_edit *edits, int32_t num_edits,
                enum sample_edit_kind kind) {
    int32_t i = blockIdx.x * EDIT_THREADS + threadIdx.x;
    if (i >= num_edits)
        return;
    struct sample_edit edit = edits[i];
    const struct sample_row *row = &t.rows[edit.row];
    float *logits = sample_is_copied(row) ? t.edited : t.logits;
    float *logit = &logits[static_cast<size_t>(edit.row) * t.row_stride + edit.token];
    float raw = tame(*logit);
    *logit =
        kind == SAMPLE_EDIT_BIAS ? raw + edit.bias : sample_penalised(row, raw, edit.output_count);
}

extern "C" cudaError_t launch_sample_edit(cudaStream_t stream, const struct sample_tensors *tensors,
                                          const struct sample_edit *edits, int32_t num_edits,
                                          enum sample_edit_kind kind) {
    int32_t num_blocks = (num_edits + EDIT_THREADS - 1) / EDIT_THREADS;
    LAUNCH(edit_kernel, num_blocks, EDIT_THREADS, 0, stream, *tensors, edits, num_edits, kind);
    return cudaGetLastError();
}
