/* A mixture of experts on the device (kernels/experts.h): which experts compute a token, products
 * with their weights, and the sums of a token's choices. Sizes of grids follow from the numbers of
 * tokens, choices and experts alone, never from what is chosen, so a recording holds any choices.
 * Activations and weights are of one 16-bit type: bf16, otherwise f16. Pointers are to device
 * memory. The bits of a row depend only on that row. */
#ifndef QUIRE_KERNELS_CUDA_EXPERTS_EXPERT_LAUNCH_H
#define QUIRE_KERNELS_CUDA_EXPERTS_EXPERT_LAUNCH_H

#include "kernels/cuda/packed/packed_layout.h"
#include "kernels/experts.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fills args->choices. */
cudaError_t launch_route(cudaStream_t stream, const struct route_args *args);

/* Fills args->choices by the slots of the tokens, [num_tokens]; NULL: none has one. */
cudaError_t launch_choose_adapters(cudaStream_t stream, const int32_t *slots,
                                   const struct choose_adapters_args *args);

/* Like struct expert_linear_args, or, with choices.order NULL, struct head_linear_args: every token
 * takes all experts, in order. */
struct expert_product_launch {
    const void *x;      /* rows begin at multiples of 16 bytes */
    const void *weight; /* [num_own][rows][cols], likewise */
    const float *bias;  /* [num_own][rows]; NULL: none */
    void *out;          /* [num_tokens * num_chosen, rows] */
    struct expert_choices choices;
    int32_t num_choices; /* num_tokens * num_chosen */
    int32_t row_choices; /* of a row of x: num_chosen, or 1 if each choice has its own */
    int32_t num_own;
    int32_t num_tokens;           /* if choices.order is NULL */
    int32_t rows, cols;           /* of an expert; cols is a multiple of 8 */
    int32_t x_stride, out_stride; /* elements from row to row; that of x is a multiple of 8 */
    bool accumulate;              /* out += the product */
    bool bf16;
};

/* As many blocks as the choices can need, whatever they are; the others end at once. */
cudaError_t launch_expert_product(cudaStream_t stream, const struct expert_product_launch *args);

/* The same with packed weights of a form, instead of args->weight: rows of all experts. */
cudaError_t launch_packed_experts(cudaStream_t stream, int form, const struct packed_planes *planes,
                                  const struct expert_product_launch *args);

/* Like struct combine_args. */
struct expert_combine_launch {
    const void *x;
    void *out;
    struct expert_choices choices;
    int32_t num_tokens, num_chosen, own_first, num_own, width;
    float scale;
    bool accumulate;
    bool bf16;
};

cudaError_t launch_expert_combine(cudaStream_t stream, const struct expert_combine_launch *args);

#ifdef __cplusplus
}
#endif

#endif
