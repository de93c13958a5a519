#include "kernels/cuda/step/moves_order.h"

#include "config/base/numbers.h"

#include <stddef.h>

static uint32_t place_of(int32_t block) {
    return (uint32_t)block % BLOCK_SET_SIZE;
}

void block_set_add(struct block_set *set, const int32_t *blocks, int32_t num_blocks) {
    for (int32_t i = 0; i < num_blocks; i++)
        set->words[place_of(blocks[i]) / 64] |= (uint64_t)1 << place_of(blocks[i]) % 64;
}

static bool block_set_has(const struct block_set *set, int32_t block) {
    return (set->words[place_of(block) / 64] >> place_of(block) % 64 & 1) != 0;
}

static void block_set_merge(struct block_set *set, const struct block_set *other) {
    for (size_t i = 0; i < BLOCK_SET_SIZE / 64; i++)
        set->words[i] |= other->words[i];
}

static bool sequence_touches(const struct step_blocks *step, int32_t group, int32_t sequence,
                             const struct block_set *blocks, int32_t block_size) {
    size_t row = (size_t)group * (size_t)step->group_rows + (size_t)sequence;
    const int32_t *table = step->block_tables + row * (size_t)step->stride;
    int32_t context_len = step->context_lens[sequence];
    for (int32_t i = 0; i < step->stride && (int64_t)i * block_size < context_len; i++)
        if (block_set_has(blocks, table[i]))
            return true;
    return false;
}

static bool step_touches(const struct step_blocks *step, const struct block_set *blocks,
                         int32_t block_size) {
    for (int32_t group = 0; group < max_int32(step->num_groups, 1); group++)
        for (int32_t s = 0; s < step->num_seqs; s++)
            if (sequence_touches(step, group, s, blocks, block_size))
                return true;
    return false;
}

/* The compute stream waits for all moves so far. */
static bool wait_for_moves(struct moves_order *order) {
    bool has_moved = order->has_moved;
    if (has_moved)
        order->moved = (struct block_set){0};
    order->has_moved = false;
    return has_moved;
}

bool moves_order_move(struct moves_order *order, const struct block_set *blocks,
                      int32_t block_size) {
    order->block_size =
        order->block_size > 0 ? min_int32(order->block_size, block_size) : block_size;
    block_set_merge(&order->moved, blocks);
    order->has_moved = true;
    bool waits =
        order->computed == COMPUTED_ANYTHING ||
        (order->computed == COMPUTED_STEP && step_touches(&order->step, blocks, order->block_size));
    if (waits)
        order->computed = COMPUTED_NOTHING;
    return waits;
}

/* Of a step that has not ended when the next begins, the blocks are not known any more. */
bool moves_order_begin_step(struct moves_order *order, const struct step_blocks *step) {
    if (order->is_step_open)
        order->computed = COMPUTED_ANYTHING;
    order->is_step_open = true;
    order->step = *step;
    return order->has_moved && step_touches(step, &order->moved, order->block_size) &&
           wait_for_moves(order);
}

bool moves_order_end_step(struct moves_order *order) {
    if (order->is_step_open && order->computed == COMPUTED_NOTHING)
        order->computed = COMPUTED_STEP;
    order->is_step_open = false;
    return wait_for_moves(order);
}

bool moves_order_anything(struct moves_order *order) {
    order->computed = COMPUTED_ANYTHING;
    return wait_for_moves(order);
}

bool moves_order_synchronize(struct moves_order *order) {
    return wait_for_moves(order);
}
