/* Chooses which thread runs next. Lanes of a warp run in rounds: each runs until it waits, then
 * those that may continue. Forward and reverse stay with a warp while any of its lanes can run,
 * so that a race between warps with a missing block barrier shows even when the warps have barriers
 * of their own; random changes the warp after each round. */
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

} // namespace cudasim
