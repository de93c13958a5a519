/* The KV cache: element types, and the location of (block, layer, K or V, head, token) in it. Only
 * this file knows the layout; C and CUDA share it. Plain arithmetic, any thread.
 *
 * The pool is block-major: one block is contiguous over all layers, so that a copy or swap of a
 * block is one copy. Within a block there is a PLANE for each (layer, K or V, KV head), in this
 * order:
 *
 *   plane   [block_size tokens][head_dim] elements, then, of a quantised type, the scales
 *           float [block_size], one for each token
 *
 * A LATENT layout is that of multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024): one KV
 * head, whose K is a token's compressed keys and values followed by its rotated elements, and whose
 * V is the first latent_dim elements of K. V has no planes: where it is asked for, those of K are
 * meant.
 *
 * The backend decides the order of the elements within 16 consecutive tokens of a plane
 * (cpu_op_kernels.h; the oracle and CUDA have [token][head_dim]); the bytes of those 16 tokens are
 * contiguous.
 *
 * Quantised types keep each token's K and V of a head as codes times one scale, a float; quotients
 * are rounded to float, then to the nearest code (ties to even), which is at most the largest:
 *   INT8   code = x / scale in -127 .. 127, scale = largest magnitude / 127
 *   E4M3   code = x / scale as an 8-bit float (dtype.h), scale = largest magnitude / 448 times one
 * of the factors 1, 1 + 1/16 .. 1 + 15/16: the one with the smallest error, because 3 bits of
 * mantissa are few. The error is factor^2 * sum of (code - quotient)^2; each square is rounded to a
 * multiple of 2^-8, so that the sum is exact in any order; the first of equals is taken If the
 * scale is 0 (all zeros, or nearly), the codes are 0. A token whose values are not all finite has
 * codes 0 and the scale NaN, so that every value read back is NaN. */
#ifndef QUIRE_KERNELS_KV_LAYOUT_H
#define QUIRE_KERNELS_KV_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define KV_INLINE static __host__ __device__ __forceinline__
#else
#define KV_INLINE static inline
#endif

#define KV_MAX_HEAD_DIM 256
#define KV_MAX_LATENT_ROW 576 /* head_dim of a latent layout */
#define KV_HEAD_DIM_STEP 8
#define KV_TOKEN_STEP 16

#define KV_E4M3_FACTORS 16
#define KV_E4M3_ROUNDER 0x1.8p15F /* adding and subtracting it rounds to a multiple of 2^-8 */

enum kv_type {
    KV_F32,
    KV_F16,
    KV_BF16,
    KV_INT8,
    KV_E4M3,
    NUM_KV_TYPES, /* no value */
    KV_AUTO       /* value of an option: its reader chooses */
};

/* A set of types is the sum of their bits. */
#define KV_TYPE_BIT(type) (UINT32_C(1) << (type))

enum kv_part { KV_PART_K, KV_PART_V };

/* slot = block id * block_size + offset in the block. */
struct kv_layout {
    int32_t num_layers;
    int32_t num_kv_heads;
    int32_t head_dim;   /* a multiple of KV_HEAD_DIM_STEP, at most KV_MAX_HEAD_DIM, or if latent,
                           KV_MAX_LATENT_ROW */
    int32_t latent_dim; /* a multiple of KV_HEAD_DIM_STEP, less than head_dim; 0: not latent */
    int32_t block_size; /* tokens; a multiple of KV_TOKEN_STEP */
    enum kv_type type;
};

KV_INLINE bool kv_type_has_scales(enum kv_type type) {
    return type == KV_INT8 || type == KV_E4M3;
}

/* Returns whether the backends' attention supports these sizes. */
KV_INLINE bool kv_layout_is_supported(const struct kv_layout *l) {
    bool is_latent = l->latent_dim > 0;
    return l->head_dim % KV_HEAD_DIM_STEP == 0 &&
           l->head_dim <= (is_latent ? KV_MAX_LATENT_ROW : KV_MAX_HEAD_DIM) &&
           l->latent_dim % KV_HEAD_DIM_STEP == 0 && l->latent_dim < l->head_dim &&
           l->block_size % KV_TOKEN_STEP == 0 && (!is_latent || l->num_kv_heads == 1);
}

/* Elements of a token's V. */
KV_INLINE int32_t kv_value_dim(const struct kv_layout *l) {
    return l->latent_dim > 0 ? l->latent_dim : l->head_dim;
}

/* Elements of a token's row that paged_attention reads queries from. */
KV_INLINE int32_t kv_query_row(const struct kv_layout *l, int32_t num_q_heads) {
    return (num_q_heads + (l->latent_dim > 0 ? 0 : 2 * l->num_kv_heads)) * l->head_dim;
}

/* Bytes of an element. */
KV_INLINE size_t kv_type_bytes(enum kv_type type) {
    return type == KV_F32 ? 4 : kv_type_has_scales(type) ? 1 : 2;
}

/* Bytes of one token's elements in a plane. */
KV_INLINE size_t kv_row_bytes(const struct kv_layout *l) {
    return (size_t)l->head_dim * kv_type_bytes(l->type);
}

KV_INLINE size_t kv_plane_bytes(const struct kv_layout *l) {
    size_t token_bytes = kv_row_bytes(l) + (kv_type_has_scales(l->type) ? sizeof(float) : 0);
    return (size_t)l->block_size * token_bytes;
}

/* Bytes of one layer of a block. */
KV_INLINE size_t kv_layer_bytes(const struct kv_layout *l) {
    return (l->latent_dim > 0 ? 1 : 2) * (size_t)l->num_kv_heads * kv_plane_bytes(l);
}

/* Bytes of one block over all layers. */
KV_INLINE size_t kv_block_bytes(const struct kv_layout *l) {
    return (size_t)l->num_layers * kv_layer_bytes(l);
}

/* Offset of a plane, in bytes from the pool's beginning. */
KV_INLINE size_t kv_plane_offset(const struct kv_layout *l, int32_t block, int32_t layer,
                                 enum kv_part part, int32_t head) {
    size_t plane = (l->latent_dim > 0 ? 0 : (size_t)part * (size_t)l->num_kv_heads) + (size_t)head;
    return (size_t)block * kv_block_bytes(l) + (size_t)layer * kv_layer_bytes(l) +
           plane * kv_plane_bytes(l);
}

/* Offset of a token's elements in its plane where the order is [token][head_dim]; for the first of
 * KV_TOKEN_STEP tokens, it is the offset of all of them in any order. token < block_size. */
KV_INLINE size_t kv_row_offset(const struct kv_layout *l, int32_t token) {
    return (size_t)token * kv_row_bytes(l);
}

/* Offset of a token's scale in its plane; of a quantised type only. */
KV_INLINE size_t kv_scale_offset(const struct kv_layout *l, int32_t token) {
    return (size_t)l->block_size * kv_row_bytes(l) + (size_t)token * sizeof(float);
}

/* The same for one layer as strides, for the inner loop of a kernel. */
struct kv_layer_strides {
    size_t first[2]; /* by kv_part: offset of the plane of block 0 and head 0, from the pool's */
    size_t block;    /* from a block to the next */
    size_t head;     /* likewise */
    size_t token;    /* likewise */
    size_t scales;   /* from a plane's beginning to its scales */
};

KV_INLINE struct kv_layer_strides kv_strides_of(const struct kv_layout *l, int32_t layer) {
    struct kv_layer_strides strides;
    strides.first[KV_PART_K] = kv_plane_offset(l, 0, layer, KV_PART_K, 0);
    strides.first[KV_PART_V] = kv_plane_offset(l, 0, layer, KV_PART_V, 0);
    strides.block = kv_block_bytes(l);
    strides.head = kv_plane_bytes(l);
    strides.token = kv_row_bytes(l);
    strides.scales = kv_scale_offset(l, 0);
    return strides;
}

/* Like kv_plane_offset. */
KV_INLINE size_t kv_strides_plane(const struct kv_layer_strides *s, int32_t block,
                                  enum kv_part part, int32_t head) {
    return s->first[part] + (size_t)block * s->block + (size_t)head * s->head;
}

/* A constant that is missing from the cached keys of a KV head: before the rotation, in the
 * elements of these pairs (see rope_store_args). A quantised key has one scale for all its
 * elements, and a few large constants would leave few codes for the others. */
#define KEY_BIAS_MAX_PAIRS 64
struct key_bias {
    int32_t num_pairs; /* 0: nothing is missing */
    int32_t pairs[KEY_BIAS_MAX_PAIRS];
    float values[KEY_BIAS_MAX_PAIRS][2];
};

#define ROPE_COLUMN_STEP 64

/* The key biases of a layer, and what they are rotated by. */
struct key_biases {
    const struct key_bias *heads; /* [num_kv_heads] device memory */
    const float *rope_columns;    /* [rotary_dim][stride] device memory: the rope table's columns;
                                     finite beyond its positions */
    int32_t stride;               /* a multiple of ROPE_COLUMN_STEP, at least the positions */
    int32_t rotary_dim;
    bool interleaved;
};

#endif
