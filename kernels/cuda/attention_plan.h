/* The plan of a step's attention: which tile of query rows goes over which part of its context, and
 * which block of the grid does it. Plain C, no device: made once per step from the host's arrays
 * and used by every layer of its kind.
 *
 * A sequence with more packed rows (attention_launch.h) than ATTENTION_NARROW_ROWS is cut into wide
 * tiles, one with fewer is a single narrow tile. A tile's range leaves out the tokens that none of
 * its rows sees, and those of prefixes that the sequence shares (attention_prefix.h): these are
 * ranges of tiles with rows of several sequences. Narrow and wide tiles are done by a grid of their
 * own, one after the other. Where the tiles are too few or too unequal to keep every block of
 * theirs busy, long ranges are split. Items go to blocks longest first, each to the block with the
 * least to do. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_PLAN_H
#define QUIRE_KERNELS_CUDA_ATTENTION_PLAN_H

#include "kernels/cuda/attention_prefix.h"

/* A range is split into pieces of at most so many tokens, or more when there is more to do; none
 * but a decode's, whose rows all see the same, is shorter than half. A wide tile of several decodes
 * has so many rows of partial results that it is not split further either. */
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
    /* Of both grids, one after the other, narrow first: the first item of each of its blocks, then
     * the end of the last: [attention_plan_num_starts()]. */
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

/* For steps of the config's tokens, sequences and heads at most; never allocates again. num_blocks:
 * of each grid, > 0. ERROR_CONFIG when the config's sizes make a plan too large, or
 * ERROR_MEMORY. */
int attention_plan_init(struct attention_plan *plan, const struct backend_config *config,
                        const int32_t num_blocks[NUM_ATTENTION_TILES], struct error *err);
int32_t attention_plan_num_starts(const struct attention_plan *plan);
/* Where the starts of a grid begin in block_items, which has num_blocks[tile] + 1 of them. */
int32_t attention_plan_first_start(const struct attention_plan *plan, enum attention_tile tile);
/* Items and runs that no plan of a step of so many tokens and sequences exceeds. */
int32_t attention_plan_max_items(const struct attention_plan *plan, int32_t num_tokens,
                                 int32_t num_seqs);
int32_t attention_plan_max_runs(const struct attention_plan *plan, int32_t num_tokens,
                                int32_t num_seqs);
/* Accepts a zeroed plan. */
void attention_plan_finish(struct attention_plan *plan);

/* Padding (step_inputs.num_padding) has no items. Batch-invariant layers have wide tiles of one
 * sequence only, never split: a row's bits depend on its own sequence and position alone. */
void attention_plan_make(struct attention_plan *plan, const struct step_inputs *step,
                         const struct attention_shape *shape);

#endif
