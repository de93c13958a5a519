/* The plan of a step's attention: which tile of query rows covers which part of its context, and
 * which block of the grid processes it. Plain C, no device: made once per step from the host's
 * arrays and used by every layer of its kind.
 *
 * A sequence with more packed rows (attention_launch.h) than ATTENTION_NARROW_ROWS is cut into wide
 * tiles, one with fewer is a single narrow tile. A tile's range leaves out the tokens that none of
 * its rows sees, and those of shared prefixes (attention_prefix.h), which are ranges of tiles with
 * rows of several sequences. Narrow and wide tiles have separate grids, one after the other. If the
 * tiles are too few or too unequal to keep every block busy, long ranges are split. Items are
 * assigned longest first, each to the block with the least work. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_PLAN_H
#define QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_PLAN_H

#include "kernels/cuda/attention/attention_prefix.h"

/* A range is split into pieces of at most this number of tokens, or more when there is more work.
 * Only pieces of a decode, whose rows all see the same, may be shorter than half of it. A wide tile
 * of several decodes has so many rows of partial results that it is not split further either. */
#define ATTENTION_MIN_PIECE 256
#define ATTENTION_MIN_DECODE_PIECE 64

struct attention_plan {
    int32_t num_items;
    int32_t num_runs;
    int32_t num_part_rows;        /* of partial results, <= max_part_rows */
    int32_t num_shared_prefixes;  /* that were found */
    int32_t num_split_ranges;     /* of tiles, among several items */
    struct attention_item *items; /* [num_items], block by block, narrow tiles first */
    struct attention_run *runs;   /* [num_runs] */
    /* For both grids, narrow first: the first item of each block, then the end of the last one:
     * [attention_plan_num_starts()]. */
    int32_t *block_items;
    int32_t num_blocks[NUM_ATTENTION_TILES];
    /* Private: */
    int32_t max_items, max_runs, max_part_rows;
    int32_t num_q_heads, num_kv_heads; /* of the config */
    struct attention_prefixes prefixes;
    struct attention_item *found; /* [max_items] in order of sequences */
    int32_t *order;               /* [max_items] of `found`, longest first */
    int32_t *block_of;            /* [max_items] of `order` */
    int32_t *costs;               /* [max_items] of `found` */
    int32_t *next_block;          /* [num_blocks] of the same load */
    int32_t *by_cost;             /* counts of the sort, then the first block of each load */
};

/* Allocates for the largest step of the config; never allocates again. num_blocks: of each grid, >
 * 0. Fails with ERROR_CONFIG when the config's sizes make a plan too large, or ERROR_MEMORY. */
int attention_plan_init(struct attention_plan *plan, const struct backend_config *config,
                        const int32_t num_blocks[NUM_ATTENTION_TILES], struct error *err);
int32_t attention_plan_num_starts(const struct attention_plan *plan);
/* Returns the index in block_items where the num_blocks[tile] + 1 starts of a grid begin. */
int32_t attention_plan_first_start(const struct attention_plan *plan, enum attention_tile tile);
/* Return upper bounds of the items and runs of a step of that many tokens and sequences. */
int32_t attention_plan_max_items(const struct attention_plan *plan, int32_t num_tokens,
                                 int32_t num_seqs);
int32_t attention_plan_max_runs(const struct attention_plan *plan, int32_t num_tokens,
                                int32_t num_seqs);
/* Accepts a zeroed plan. */
void attention_plan_finish(struct attention_plan *plan);

/* Padding (step_inputs.num_padding) has no items. Batch-invariant layers have only wide tiles of
 * one sequence, which are never split: a row's bits depend only on its sequence and position. */
void attention_plan_make(struct attention_plan *plan, const struct step_inputs *step,
                         const struct attention_shape *shape);

#endif
