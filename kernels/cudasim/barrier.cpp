/* Barriers of the block and of a warp count live threads, as a GPU does. */
#include "block.h"
#include "fatal.h"

namespace cudasim {

thread_place *current_thread;
grid_place current_grid;

static bool same_text(const char *a, const char *b) {
    return a == b || strcmp(a, b) == 0;
}

static bool same_site(const site &a, const site &b) {
    return a.line == b.line && same_text(a.operation, b.operation) && same_text(a.file, b.file);
}

/* `other` waits at the barrier that the running thread arrives at. */
static void check_meeting(const thread_state *other, const site &where, const char *group) {
    if (same_site(other->waits_at, where))
        return;
    const uint3 &t = other->thread_index;
    fatal("is at %s (%s:%d) while thread (%u, %u, %u) of the same %s waits at %s (%s:%d)",
          where.operation, where.file, where.line, t.x, t.y, t.z, group, other->waits_at.operation,
          other->waits_at.file, other->waits_at.line);
}

static void open_block_barrier(block_state *block) {
    block->vote_true = block->num_true;
    block->vote_all = block->num_waiting;
    block->num_waiting = 0;
    block->num_true = 0;
    for (int w = 0; w < block->num_warps; w++) {
        warp_state *warp = &block->warps[w];
        warp->ready |= warp->waiting_for_block;
        warp->waiting_for_block = 0;
    }
    block->warp = nullptr;
}

static const thread_state *any_waiting_for_block(const block_state *block) {
    for (int w = 0; w < block->num_warps; w++)
        if (block->warps[w].waiting_for_block != 0)
            return &block->warps[w].lanes[__builtin_ctz(block->warps[w].waiting_for_block)];
    return nullptr;
}

static void wait_for_block(const site &where, bool predicate) {
    block_state *block = current_block;
    thread_state *self = running_thread();
    if (block->num_waiting > 0)
        check_meeting(any_waiting_for_block(block), where, "block");
    self->waits_at = where;
    self->warp->waiting_for_block |= 1u << self->lane;
    block->num_true += predicate;
    if (++block->num_waiting == block->num_live) {
        open_block_barrier(block);
        pass_switch_point(switch_point::barrier);
    }
    run_next_thread(false);
    self->waits_at.operation = nullptr;
    self->has_counted = false;
}

void sync_block(const site &where) {
    wait_for_block(where, false);
}

int sync_block_vote(const site &where, vote kind, bool predicate) {
    wait_for_block(where, predicate);
    const block_state *block = current_block;
    if (kind == vote::count)
        return block->vote_true;
    return kind == vote::any ? block->vote_true > 0 : block->vote_true == block->vote_all;
}

static void open_warp_barrier(warp_state *warp, void (*finish)(warp_exchange &)) {
    warp_exchange &meeting = warp->exchanges[warp->num_meetings++ & 1];
    meeting.participants = warp->waiting;
    if (finish != nullptr)
        finish(meeting);
    warp->ready |= warp->waiting;
    warp->waiting = 0;
}

static const warp_exchange &meet(const site &where, unsigned mask, const void *input, size_t bytes,
                                 void (*finish)(warp_exchange &)) {
    thread_state *self = running_thread();
    warp_state *warp = self->warp;
    if (mask != 0xffffffffu)
        fatal("%s (%s:%d) with mask 0x%08x: only the full mask is simulated", where.operation,
              where.file, where.line, mask);
    if (warp->waiting != 0)
        check_meeting(&warp->lanes[__builtin_ctz(warp->waiting)], where, "warp");
    warp_exchange &meeting = warp->exchanges[warp->num_meetings & 1];
    memcpy(meeting.box[self->lane], input, bytes);
    self->waits_at = where;
    warp->waiting |= 1u << self->lane;
    if (warp->waiting == warp->live)
        open_warp_barrier(warp, finish);
    run_next_thread(false);
    self->waits_at.operation = nullptr;
    return meeting;
}

void sync_warp(const site &where, unsigned mask) {
    meet(where, mask, &where, 0, nullptr);
}

const warp_exchange &exchange(const site &where, unsigned mask, const void *input, size_t bytes,
                              void (*finish)(warp_exchange &)) {
    return meet(where, mask, input, bytes, finish);
}

ballot take_ballot(const site &where, unsigned mask, bool predicate) {
    const warp_exchange &votes = exchange(where, mask, &predicate, sizeof predicate);
    ballot result = {votes.participants, 0};
    for (uint32_t left = votes.participants; left != 0; left &= left - 1) {
        int lane = __builtin_ctz(left);
        result.set |= (uint32_t)(votes.box[lane][0] != 0) << lane;
    }
    return result;
}

void leave_barriers(thread_state *thread) {
    block_state *block = current_block;
    warp_state *warp = thread->warp;
    warp->live &= ~(1u << thread->lane);
    if (warp->live == 0) {
        end_products(block, warp);
        block->live_warps &= ~(1u << warp->index);
    } else if (warp->waiting == warp->live)
        open_warp_barrier(warp, nullptr);
    block->num_live--;
    if (block->num_live > 0 && block->num_waiting == block->num_live)
        open_block_barrier(block);
}

} // namespace cudasim
