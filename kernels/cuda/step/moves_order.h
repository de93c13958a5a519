/* The order between KV block moves, which have their own stream, and the compute stream, which has
 * everything else. It is decided on the host by block ids, without CUDA.
 *
 * THE RULE. Work of the two streams that may touch the same device block, reading or writing, is
 * done in the order of the calls. Within a stream everything is in order, so host blocks, which
 * only moves touch, need no rule. What work may touch:
 *   a move          the device blocks it names
 *   a step          from step_begin to step_end, the blocks that its block tables name for
 *                   context_lens tokens
 *   anything else   any block: a transfer, a move within a step, a recording that moves blocks or
 *                   is replayed outside a step
 * A step ends only when its moves are done too. Two steps may be in flight, and the moves of a
 * third come after the wait for the first (backend.h: step_end): so of the steps before a move,
 * only the last one begun may still run.
 *
 * Call these before enqueueing. True means that the stream must first wait for everything that the
 * other stream has been given so far, which then counts as done. */
#ifndef QUIRE_KERNELS_CUDA_STEP_MOVES_ORDER_H
#define QUIRE_KERNELS_CUDA_STEP_MOVES_ORDER_H

#include <stdbool.h>
#include <stdint.h>

/* A set of blocks, by id modulo its size: it may report a block that was not added, but never miss
 * one that was. Zeroed: empty. */
#define BLOCK_SET_SIZE 65536
struct block_set {
    uint64_t words[BLOCK_SET_SIZE / 64];
};

void block_set_add(struct block_set *set, const int32_t *blocks, int32_t num_blocks);

/* The caller's arrays, unchanged until the next step begins. */
struct step_blocks {
    const int32_t *block_tables; /* [num_groups][group_rows][stride], num_seqs rows of each */
    const int32_t *context_lens; /* [num_seqs] */
    int32_t num_seqs;
    int32_t stride;
    int32_t num_groups; /* 0: one */
    int32_t group_rows;
};

/* Work given to the compute stream that moves do not wait for yet. */
enum computed { COMPUTED_NOTHING, COMPUTED_STEP, COMPUTED_ANYTHING };

/* Zeroed: nothing was enqueued. */
struct moves_order {
    struct block_set moved; /* blocks of moves that the compute stream does not wait for yet */
    bool has_moved;
    int32_t block_size; /* tokens; the smallest of the pools in which blocks were moved */
    enum computed computed;
    bool is_step_open;
    struct step_blocks step; /* the last begun */
};

/* For a move outside a step; one within a step is enqueued in the compute stream, like everything
 * else. */
bool moves_order_move(struct moves_order *order, const struct block_set *blocks,
                      int32_t block_size);
/* The functions below are for the compute stream. */
bool moves_order_begin_step(struct moves_order *order, const struct step_blocks *step);
bool moves_order_end_step(struct moves_order *order);
bool moves_order_anything(struct moves_order *order);
/* The host waits for everything in the compute stream, and thereby for moves. */
bool moves_order_synchronize(struct moves_order *order);

#endif
