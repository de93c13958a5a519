/* Chooses which thread runs next, and which block. Lanes of a warp run in rounds: each runs until
 * it waits, then those that may continue. Forward and reverse stay with a warp while any of its
 * lanes can run, so that a race between warps with a missing block barrier shows even when the
 * warps have barriers of their own; random changes the warp after each round. */
#include "block.h"
#include "order.h"

namespace cudasim {

static uint32_t runnable_warps(block_state *block) {
    uint32_t runnable = 0;
    for (uint32_t left = block->live_warps; left != 0; left &= left - 1) {
        int w = __builtin_ctz(left);
        if ((block->warps[w].round | block->warps[w].ready) != 0)
            runnable |= 1u << w;
    }
    return runnable;
}

static warp_state *choose_warp(block_state *block) {
    uint32_t runnable = runnable_warps(block);
    return runnable == 0 ? nullptr : &block->warps[pick_bit(runnable)];
}

thread_state *choose_thread(block_state *block) {
    warp_state *warp = block->warp;
    if (warp == nullptr || warp->round == 0) {
        bool stay = warp != nullptr && warp->ready != 0 && current_order() != order_kind::random;
        if (!stay)
            warp = choose_warp(block);
        if (warp == nullptr)
            return nullptr;
        block->warp = warp;
        if (warp->round == 0) {
            warp->round = warp->ready;
            warp->ready = 0;
        }
    }
    int lane = pick_bit(warp->round);
    warp->round &= ~(1u << lane);
    return &warp->lanes[lane];
}

static const size_t MAX_IN_FLIGHT = 4;
static const uint32_t POINTS_PER_SWITCH = 4; /* in random order */

/* In forward and reverse order the first block that comes to a fence, and the first that comes to
 * an atomic, stay there until all others have ended. */
bool gives_way(grid_state *grid, block_state *block, switch_point point) {
    static const switch_point held_at[] = {switch_point::fence, switch_point::atomic};
    if (grid->in_flight.size() == 1 && grid->num_begun == grid->order.size())
        return false;
    if (current_order() == order_kind::random)
        return random_below(POINTS_PER_SWITCH) == 0;
    if (block->was_held || grid->num_held == 2 ||
        point != held_at[grid->num_held ^ (current_order() == order_kind::reverse)])
        return false;
    grid->num_held++;
    return block->was_held = true;
}

block_state *choose_block(const grid_state &grid) {
    size_t num_left = grid.in_flight.size();
    bool can_begin = grid.num_begun < grid.order.size() && num_left < MAX_IN_FLIGHT;
    if (current_order() != order_kind::random)
        return can_begin ? nullptr : grid.in_flight.back();
    uint32_t choice = random_below((uint32_t)num_left + can_begin);
    return choice < num_left ? grid.in_flight[choice] : nullptr;
}

} // namespace cudasim
