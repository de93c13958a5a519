/* Steps 2 and 3 of sampling.h: sparse edits, one thread each, on a copy of the row where the raw
 * logits are still needed. */
#include "kernels/cuda/sample_row.cuh"

#define COPY_THREADS 256
#define COPY_BLOCKS 8 /* a row */

__global__ void __launch_bounds__(COPY_THREADS) copy_kernel(struct sample_tensors t) {
    if (!sample_is_copied(&t.rows[blockIdx.x]))
        return;
    size_t first = static_cast<size_t>(blockIdx.x) * t.vocab_size;
    for (int32_t i = blockIdx.y * COPY_THREADS + threadIdx.x; i < t.vocab_size;
         i += COPY_BLOCKS * COPY_THREADS)
        t.edited[first + i] = t.logits[first + i];
}

extern "C" cudaError_t launch_sample_copy(cudaStream_t stream,
                                          const struct sample_tensors *tensors) {
    LAUNCH(copy_kernel, dim3(tensors->num_rows, COPY_BLOCKS), COPY_THREADS, 0, stream, *tensors);
    return cudaGetLastError();
}

__global__ void __launch_bounds__(COPY_THREADS)
    edit_kernel(struct sample_tensors t, const struct sample_edit *edits, int32_t num_edits,
                enum sample_edit_kind kind) {
    int32_t i = blockIdx.x * COPY_THREADS + threadIdx.x;
    if (i >= num_edits)
        return;
    struct sample_edit edit = edits[i];
    const struct sample_row *row = &t.rows[edit.row];
    float *logits = sample_is_copied(row) ? t.edited : t.logits;
    float *logit = &logits[static_cast<size_t>(edit.row) * t.vocab_size + edit.token];
    float raw = tame(*logit);
    *logit =
        kind == SAMPLE_EDIT_BIAS ? raw + edit.bias : sample_penalised(row, raw, edit.output_count);
}

extern "C" cudaError_t launch_sample_edit(cudaStream_t stream, const struct sample_tensors *tensors,
                                          const struct sample_edit *edits, int32_t num_edits,
                                          enum sample_edit_kind kind) {
    int32_t num_blocks = (num_edits + COPY_THREADS - 1) / COPY_THREADS;
    LAUNCH(edit_kernel, num_blocks, COPY_THREADS, 0, stream, *tensors, edits, num_edits, kind);
    return cudaGetLastError();
}
