/* Paged attention of a whole step, prefill and decode alike, in one launch of a fixed grid whose
 * blocks work through lists of items that attention_plan.h makes. Queries and output are of one
 * 16-bit type, bf16 or else f16; the cache is of the same, or quantised. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_LAUNCH_H
#define QUIRE_KERNELS_CUDA_ATTENTION_LAUNCH_H

#include "kernels/kv_layout.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTENTION_KV_TILE 64     /* tokens of a step through the context */
#define ATTENTION_WIDE_ROWS 64   /* of a tile of a prefill */
#define ATTENTION_NARROW_ROWS 16 /* of a tile of a decode */

/* One tile of query rows over one range of its context. The rows of a sequence and one KV head are
 * packed: row r is query head r % group of the KV head's group, of the sequence's token r / group
 * in this step. */
struct attention_item {
    int32_t sequence;
    int16_t kv_head;
    int16_t tile_rows; /* ATTENTION_WIDE_ROWS or ATTENTION_NARROW_ROWS */
    int32_t first_row;
    int32_t kv_begin; /* a multiple of ATTENTION_KV_TILE */
    int32_t kv_end;
    /* A tile whose range is shared among several items: they leave partial results in the slots
     * first_part .. first_part + num_parts - 1, this one in `part`; the last to finish merges them
     * in this order. num_parts is 1 otherwise. */
    int32_t part;
    int32_t first_part;
    int32_t num_parts;
};

/* Pointers are to device memory. */
struct attention_launch {
    const void *qkv;                 /* [T, (num_q_heads + 2 * num_kv_heads) * head_dim] */
    void *out;                       /* [T, num_q_heads * head_dim] */
    const char *cache;               /* the pool */
    struct kv_layer_strides strides; /* of this layer in it */
    const int32_t *query_start;
    const int32_t *context_lens;
    const int32_t *block_tables; /* [sequences, max_blocks_per_seq] */
    const struct attention_item *items;
    const int32_t *block_items; /* [num_blocks + 1]: block b does items block_items[b] on, up to
                                   block_items[b + 1] */
    float *part_out;            /* [slots, ATTENTION_WIDE_ROWS, padded head_dim]: not normalised */
    float *part_state;          /* [slots, ATTENTION_WIDE_ROWS, 2]: maximum and sum of a row */
    int32_t *part_counts; /* [slots], of the tile whose first slot it is; 0 between launches */
    int32_t num_blocks;
    int32_t max_blocks_per_seq;
    int32_t num_q_heads;
    int32_t num_kv_heads;
    int32_t group;      /* num_q_heads / num_kv_heads */
    int32_t head_dim;   /* a multiple of 8, at most the kernel's */
    int32_t block_size; /* a multiple of 16 */
    int32_t window;     /* 0: none */
    float scale;
    float soft_cap; /* 0: none */
    float factor;   /* (soft_cap > 0 ? soft_cap : scale) * log2(e) */
};

/* One kernel per type and head_dim that rows are padded to. _prepare must have succeeded before the
 * first launch; it returns how many blocks a multiprocessor can hold. */
#define ATTENTION_DECLARE(head_dim)                                                                \
    cudaError_t launch_attention_##head_dim##_prepare(bool bf16, enum kv_type type,                \
                                                      int *out_blocks);                            \
    cudaError_t launch_attention_##head_dim(cudaStream_t stream, bool bf16, enum kv_type type,     \
                                            const struct attention_launch *args)
ATTENTION_DECLARE(64);
ATTENTION_DECLARE(96);
ATTENTION_DECLARE(128);
ATTENTION_DECLARE(256);

#ifdef __cplusplus
}
#endif

#endif
