/* Normalises and rotates q in place, and k while storing it; stores k and v in the tokens' slots.
 */
#ifndef QUIRE_KERNELS_CUDA_OPS_ROPE_STORE_LAUNCH_H
#define QUIRE_KERNELS_CUDA_OPS_ROPE_STORE_LAUNCH_H

#include "kernels/kv_layout.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The fields of `struct rope_store_args` of kernels/backend.h, flattened; pointers are to device
 * memory. */
struct rope_store_launch {
    void *qkv;                    /* [num_tokens, (num_q_heads + 2 * num_kv_heads) * head_dim] */
    const float *rope_table;      /* [positions, rotary_dim]: cosines, then sines */
    const float *q_norm, *k_norm; /* [head_dim]; both NULL: none */
    float norm_epsilon;
    const int32_t *positions;
    const int32_t *slots;
    char *cache; /* the pool, laid out as `layout` */
    struct kv_layout layout;
    int32_t layer;
    int32_t num_tokens;
    int32_t num_q_heads;
    int32_t rotary_dim; /* 0: nothing rotates, and rope_table is not read */
    bool interleaved;
    bool bf16;
    bool begins_early; /* see struct cuda_level */
};

cudaError_t launch_rope_store(cudaStream_t stream, const struct rope_store_launch *args);

/* The same of `struct latent_store_args`. */
struct latent_store_launch {
    const void *q;
    const void *kv;
    void *queries;
    const float *rope_table; /* NULL: nothing rotates */
    const int32_t *positions;
    const int32_t *slots;
    char *cache;
    struct kv_layout layout;
    int32_t layer;
    int32_t num_tokens;
    int32_t num_q_heads;
    int32_t q_dim;
    int32_t rotary_dim;
    bool interleaved;
    bool bf16;
};

cudaError_t launch_latent_store(cudaStream_t stream, const struct latent_store_launch *args);

#ifdef __cplusplus
}
#endif

#endif
