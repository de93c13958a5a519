/* Row-wise kernels on 16-bit elements: bf16, otherwise f16. Pointers are to device memory; rows and
 * widths may be of any size > 0. The bits of a row depend only on that row. */
#ifndef QUIRE_KERNELS_CUDA_OPS_ELEMENTWISE_LAUNCH_H
#define QUIRE_KERNELS_CUDA_OPS_ELEMENTWISE_LAUNCH_H

#include "kernels/backend.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Like `struct norm_args` of kernels/backend.h. The sums are in float. */
struct norm_launch {
    const void *x;
    const float *weight; /* [width] */
    const float *bias;   /* [width]; NULL: none */
    void *out;           /* may be x */
    int32_t num_rows;
    int32_t row_stride; /* elements */
    int32_t width;
    float epsilon;
    bool center;
    bool accumulate;
    bool bf16;
    bool begins_early; /* see struct cuda_level */
};

cudaError_t launch_norm(cudaStream_t stream, const struct norm_launch *args);
/* Like `act_mul` of kernels/backend.h, computed in float. */
cudaError_t launch_act_mul(cudaStream_t stream, bool bf16, const struct act_mul_args *args);
/* Like `embed` of kernels/backend.h: out[t] = scale * table[id of token t]. The id is
 * sampled_tokens[token_rows[t]] if token_rows is given and token_rows[t] >= 0, otherwise
 * token_ids[t]. With a scale of 1 it is a copy. */
struct embed_launch {
    const void *table;         /* [num_rows, width]: of tokens first_row on */
    const int32_t *token_ids;  /* [num_tokens] */
    const int32_t *token_rows; /* [num_tokens] or NULL */
    const int32_t *sampled_tokens;
    void *out; /* [num_tokens, width] */
    int32_t first_row;
    int32_t num_rows;
    int32_t num_tokens;
    int32_t width;
    float scale;
    bool bf16;
};

cudaError_t launch_embed(cudaStream_t stream, const struct embed_launch *args);
/* x = cap * tanh(x / cap) for n floats. */
cudaError_t launch_soft_cap(cudaStream_t stream, float *x, int64_t n, float cap);
/* out[r] = x[rows[r]], rows of `width` 16-bit elements of any type. */
cudaError_t launch_gather_rows(cudaStream_t stream, const void *x, const int32_t *rows, void *out,
                               int32_t num_rows, int32_t width);
/* out[rows[r]] = x[r], likewise. */
cudaError_t launch_scatter_rows(cudaStream_t stream, const void *x, const int32_t *rows, void *out,
                                int32_t num_rows, int32_t width);
/* Row s of sums += rows spans[2s] .. spans[2s] + spans[2s + 1] - 1 of x, in this order. */
cudaError_t launch_add_rows(cudaStream_t stream, bool bf16, const void *x, const int32_t *spans,
                            float *sums, int32_t num_spans, int32_t width);

#ifdef __cplusplus
}
#endif

#endif
