/* Steps 2 and 3 of sampling.h, on a copy of the row where the raw logits are still needed: masks in
 * one pass over it, sparse edits one thread each, read from pinned memory once. */
#include "kernels/cuda/sample/sample_row.cuh"

#define EDIT_THREADS 256
#define MASK_BLOCKS 8 /* a row */
#define EDIT_BLOCKS 4 /* a range of edits */

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

static_assert(sizeof(struct token_bias) == SAMPLE_EDIT_BYTES);
static_assert(sizeof(struct token_count) == SAMPLE_EDIT_BYTES);

__global__ void __launch_bounds__(EDIT_THREADS)
    edit_kernel(struct sample_tensors t, const struct sample_edit_range *ranges, const void *items,
                enum sample_edit_kind kind) {
    struct sample_edit_range range = ranges[blockIdx.x];
    const struct sample_row *row = &t.rows[range.row];
    float *logits = (sample_is_copied(row) ? t.edited : t.logits) +
                    static_cast<size_t>(range.row) * t.row_stride;
    for (int32_t i = blockIdx.y * EDIT_THREADS + threadIdx.x; i < range.count;
         i += EDIT_BLOCKS * EDIT_THREADS)
        if (kind == SAMPLE_EDIT_BIAS) {
            struct token_bias edit = static_cast<const struct token_bias *>(items)[range.first + i];
            logits[edit.token] = tame(logits[edit.token]) + edit.bias;
        } else {
            struct token_count edit =
                static_cast<const struct token_count *>(items)[range.first + i];
            logits[edit.token] = sample_penalised(row, tame(logits[edit.token]), edit.output_count);
        }
}

extern "C" cudaError_t launch_sample_edit(cudaStream_t stream, const struct sample_tensors *tensors,
                                          const struct sample_edits *edits,
                                          enum sample_edit_kind kind) {
    LAUNCH(edit_kernel, dim3(edits->num_ranges, EDIT_BLOCKS), EDIT_THREADS, 0, stream, *tensors,
           static_cast<const struct sample_edit_range *>(edits->ranges),
           static_cast<const void *>(edits->items), kind);
    return cudaGetLastError();
}
