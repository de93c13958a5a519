/* Paged attention of a whole step: one launch for each kind of tile, narrow ones for decodes and
 * wide ones for prefills and shared prefixes. The grid is fixed; its blocks work through lists of
 * items made by attention_plan.h. Queries and output are of one 16-bit type, bf16 or f16; the cache
 * is of the same type, or quantised. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_LAUNCH_H
#define QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_LAUNCH_H

#include "kernels/kv_layout.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTENTION_KV_TILE 64     /* tokens of a step through the context */
#define ATTENTION_WIDE_ROWS 64   /* of a wide tile */
#define ATTENTION_NARROW_ROWS 16 /* of a narrow tile */

/* Each has its own kernel and grid: a narrow tile needs half the registers of a wide one. */
enum attention_tile { ATTENTION_NARROW, ATTENTION_WIDE, NUM_ATTENTION_TILES };

/* Query rows of one KV head are packed: row r of a step is query head r % group of the KV head's
 * group, of the step's token r / group. A RUN is several consecutive rows of one sequence. If their
 * context is split among several items, each item writes partial results, and the last one to
 * finish merges them, in order of their parts. */
struct attention_run {
    int32_t first_row; /* of the step's packed rows */
    /* Row r of part p has partial results in row first_part_row + p * run_rows + r. */
    int32_t first_part_row;
    int32_t num_parts; /* 0: one item has the whole context, and writes to `out` */
};

/* One tile of query rows over one range of their context. The rows are those of one run, or of the
 * runs of several decodes that share this range, which is then read once for all of them. */
struct attention_item {
    int32_t sequence; /* whose block table the range is looked up in */
    int16_t kv_head;
    int16_t tile;     /* enum attention_tile */
    int16_t num_rows; /* at most the tile's: run_rows of each run */
    int16_t run_rows;
    int32_t first_run; /* the next ones are num_kv_heads apart, each of another sequence */
    int32_t first_row; /* of each run: position in the context * group + head of the group; with
                          several runs, any value that sees the whole range */
    int32_t kv_begin;  /* a multiple of ATTENTION_KV_TILE */
    int32_t kv_end;
    int32_t part; /* index of this part within its runs */
};

/* Pointers are to device memory. */
struct attention_launch {
    const void *qkv;                 /* [T, (num_q_heads + 2 * num_kv_heads) * head_dim] */
    void *out;                       /* [T, num_q_heads * head_dim] */
    const char *cache;               /* the pool */
    struct kv_layer_strides strides; /* of this layer in it */
    const int32_t *block_tables;     /* [sequences, max_blocks_per_seq] */
    const struct attention_item *items;
    const struct attention_run *runs;
    const int32_t *block_items; /* [num_blocks + 1]: block b does items block_items[b] on, up to
                                   block_items[b + 1] */
    float *part_out;            /* [rows of partial results, padded head_dim]: not normalised */
    float *part_state;          /* [rows of partial results, 2]: maximum and sum of a row */
    int32_t *part_counts;       /* [runs] parts that are done; 0 between launches */
    int32_t num_blocks;
    int32_t max_blocks_per_seq;
    int32_t num_q_heads;
    int32_t num_kv_heads;
    int32_t group;       /* num_q_heads / num_kv_heads */
    int32_t head_dim;    /* a multiple of 8, at most the kernel's */
    int32_t block_shift; /* a block of the cache has 2^block_shift tokens, 16 or more */
    int32_t window;      /* 0: none */
    float scale;
    float soft_cap;               /* 0: none */
    const float *sinks;           /* [num_q_heads]; NULL: none */
    float factor;                 /* (soft_cap > 0 ? soft_cap : scale) * log2(e) */
    struct key_biases key_biases; /* heads NULL: none */
};

/* One kernel per kind of tile, type and head_dim that rows are padded to. _prepare must have
 * succeeded before the first launch; it returns how many blocks a multiprocessor can hold. */
#define ATTENTION_DECLARE(head_dim)                                                                \
    cudaError_t launch_attention_##head_dim##_prepare(enum attention_tile tile, bool bf16,         \
                                                      enum kv_type type, int *out_blocks);         \
    cudaError_t launch_attention_##head_dim(cudaStream_t stream, enum attention_tile tile,         \
                                            bool bf16, enum kv_type type,                          \
                                            const struct attention_launch *args)
/* Wide tiles by wgmma, of compute capability 9.0 alone (attention_wgmma.cu). */
#define WGMMA_ATTENTION_DECLARE(head_dim)                                                          \
    cudaError_t launch_wgmma_attention_##head_dim##_prepare(bool bf16, enum kv_type type,          \
                                                            int *out_blocks);                      \
    cudaError_t launch_wgmma_attention_##head_dim(                                                 \
        cudaStream_t stream, bool bf16, enum kv_type type, const struct attention_launch *args)
WGMMA_ATTENTION_DECLARE(64);
WGMMA_ATTENTION_DECLARE(96);
WGMMA_ATTENTION_DECLARE(128);
WGMMA_ATTENTION_DECLARE(256);
ATTENTION_DECLARE(64);
ATTENTION_DECLARE(96);
ATTENTION_DECLARE(128);
ATTENTION_DECLARE(256);

#ifdef __cplusplus
}
#endif

#endif
