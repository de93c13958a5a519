/* The kernels of the sample op: sample_edit.cu, sample_choose.cu, sample_report.cu. Each launcher
 * enqueues on `stream` and returns cudaGetLastError(); num_rows > 0. */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_LAUNCH_H
#define QUIRE_KERNELS_CUDA_SAMPLE_LAUNCH_H

#include "kernels/sample_common.h"

#include <cuda_runtime_api.h>

/* Weights are multiples of 2^-42 of the most probable token's, so that any sum of a row's fits in
 * 63 bits and is exact. */
#define SAMPLE_WEIGHT_BITS 42
#define SAMPLE_MAX_VOCAB ((1 << (63 - SAMPLE_WEIGHT_BITS)) - 1)

/* Device memory, all of it. */
struct sample_tensors {
    const struct sample_row *rows; /* [num_rows] */
    float *logits;                 /* [num_rows, row_stride]; edited in place where nobody looks */
    float *edited;                 /* [num_rows, row_stride]; rows with edits and logprobs */
    const uint32_t *masks;         /* [..][SAMPLE_MASK_WORDS(vocab_size)], from first_mask on */
    struct sample_output *out;     /* [num_rows] */
    int32_t *sampled_tokens;       /* [num_rows] what stays on the device of out[].token */
    double *log_totals;            /* [num_rows] of the rows that are reported on */
    int32_t num_rows;
    int32_t vocab_size;
    int32_t row_stride; /* >= vocab_size; what lies between is not read */
    int32_t first_mask;
};

/* One bias, or one token that a penalty hits. No two of one launch are of the same row and token.
 */
struct sample_edit {
    int32_t row;
    int32_t token;
    float bias;
    int32_t output_count;
};

/* A token whose logprob is reported. */
struct sample_listed {
    int32_t row;
    int32_t token;
};

enum sample_edit_kind { SAMPLE_EDIT_BIAS, SAMPLE_EDIT_PENALTY };

/* The row's logits change before it is sampled. */
SAMPLE_INLINE bool sample_is_edited(const struct sample_row *row) {
    return row->target == SAMPLE_NO_TARGET && sample_has_edits(row);
}

/* Its edits are made on a copy, because its logprobs need the raw logits. */
SAMPLE_INLINE bool sample_is_copied(const struct sample_row *row) {
    return sample_is_edited(row) && row->num_logprobs >= 0;
}

/* A mask says which tokens may be sampled. */
SAMPLE_INLINE bool sample_is_masked(const struct sample_row *row) {
    return row->target == SAMPLE_NO_TARGET && row->mask != SAMPLE_NO_MASK;
}

#ifdef __cplusplus
extern "C" {
#endif

/* Fills `edited` where sample_is_copied, and bans what masks do not allow; before other edits. */
cudaError_t launch_sample_mask(cudaStream_t stream, const struct sample_tensors *tensors);
/* Changes the logits the rows are sampled from; biases go before penalties. */
cudaError_t launch_sample_edit(cudaStream_t stream, const struct sample_tensors *tensors,
                               const struct sample_edit *edits, int32_t num_edits,
                               enum sample_edit_kind kind);
/* Writes out[].token and sampled_tokens. */
cudaError_t launch_sample_choose(cudaStream_t stream, const struct sample_tensors *tensors);
/* Writes the rest of out[] where logprobs are requested; the tokens are there. */
cudaError_t launch_sample_report(cudaStream_t stream, const struct sample_tensors *tensors);
/* Writes the logprobs of these tokens, of rows that were reported on. */
cudaError_t launch_sample_list(cudaStream_t stream, const struct sample_tensors *tensors,
                               const struct sample_listed *listed, int32_t num_listed,
                               float *logprobs);

#ifdef __cplusplus
}
#endif

#endif
