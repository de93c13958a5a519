/* Attention over a latent layout of the KV cache (kernels/kv_layout.h), whose elements are of the
 * activations' type. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_LATENT_LAUNCH_H
#define QUIRE_KERNELS_CUDA_ATTENTION_LATENT_LAUNCH_H

#include "kernels/kv_layout.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The fields of `struct attention_args` of kernels/backend.h, flattened; pointers are to device
 * memory. */
struct latent_attention_launch {
    const void *queries; /* [num_tokens, num_q_heads, head_dim] */
    void *out;           /* [num_tokens, num_q_heads, latent_dim]; of padding: not written */
    const char *cache;
    struct kv_layer_strides strides;
    const int32_t *block_tables; /* [sequences, table_stride] */
    const int32_t *positions;    /* [num_tokens] */
    const int32_t *slots;        /* [num_tokens]; -1: padding */
    const int32_t *sequences;    /* [num_tokens] */
    const float *sinks;          /* [num_q_heads]; NULL: none */
    int32_t table_stride;
    int32_t num_tokens;
    int32_t num_q_heads;
    int32_t head_dim, latent_dim;
    int32_t block_size;
    int32_t window; /* 0: none */
    float scale;
    float soft_cap; /* 0: none */
    bool bf16;
};

cudaError_t launch_latent_attention(cudaStream_t stream,
                                    const struct latent_attention_launch *args);

#ifdef __cplusplus
}
#endif

#endif
