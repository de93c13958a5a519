/* Paged attention of a whole step: a launch for each kind of tile, narrow ones of decodes and wide
 * ones of prefills and shared prefixes, of a fixed grid whose blocks work through lists of items
 * that attention_plan.h makes. Queries and output are of one 16-bit type, bf16 or else f16; the
 * cache is of the same, or quantised. */
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
#define ATTENTION_WIDE_ROWS 64   /* of a wide tile */
#define ATTENTION_NARROW_ROWS 16 /* of a narrow tile */

/* Each has a kernel and a grid of its own: a narrow tile's registers are half of a wide one's. */
enum attention_tile { ATTENTION_NARROW, ATTENTION_WIDE, NUM_ATTENTION_TILES };

/* Query rows of one KV head are packed: row r of a step is query head r % group of the KV head's
 * group, of the step's token r / group. A RUN is some that follow one another, of one sequence, and
 * are merged together where their context is divided among several items: each leaves partial
 * results, and the last to finish merges them, in order of their part. */
struct attention_run {
    int32_t first_row; /* of the step's packed rows */
    /* Row r of part p has partial results in row first_part_row + p * run_rows + r. */
    int32_t first_part_row;
    int32_t num_parts; /* 0: one item has all of its context, and writes to `out` */
};

/* One tile of query rows over one range of their context. They are those of one run, or of several
 * decodes' runs that have this range in common, which is then read once for all of them. */
struct attention_item {
    int32_t sequence; /* whose block table the range is looked up in */
    int16_t kv_head;
    int16_t tile;     /* enum attention_tile */
    int16_t num_rows; /* at most the tile's: run_rows of each run */
    int16_t run_rows;
    int32_t first_run; /* the next ones are num_kv_heads apart, each of another sequence */
    int32_t first_row; /* of each run: its position in the context * group + head of the group; with
                          several runs any that sees the whole range */
    int32_t kv_begin;  /* a multiple of ATTENTION_KV_TILE */
    int32_t kv_end;
    int32_t part; /* this one of its runs' parts */
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
ATTENTION_DECLARE(64);
ATTENTION_DECLARE(96);
ATTENTION_DECLARE(128);
ATTENTION_DECLARE(256);

#ifdef __cplusplus
}
#endif

#endif
