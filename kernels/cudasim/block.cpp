#include "block.h"

#include "fatal.h"
#include "cudasim/reads.h"
#include "order.h"

#include <stdio.h>

#include <algorithm>
#include <vector>

namespace cudasim {

block_state *current_block;
const char *running_kernel;
bool blocks_are_interleaved;

static grid_state grid;

static block_state *create_block() {
    block_state *block = new block_state();
    std::vector<fiber> stacks(MAX_BLOCK_THREADS);
    fiber_allocate_stacks(stacks.data(), MAX_BLOCK_THREADS);
    for (int i = 0; i < MAX_BLOCK_THREADS; i++)
        block->threads[i].stack = stacks[(size_t)i];
    return block;
}

static void report_stuck_threads(const block_state *block) {
    const site *seen = nullptr;
    for (int i = 0; i < block->num_threads; i++) {
        const thread_state &thread = block->threads[i];
        const site &where = thread.waits_at;
        if (!(thread.warp->live >> thread.lane & 1) || where.operation == nullptr)
            continue;
        if (seen != nullptr && seen->line == where.line && seen->operation == where.operation)
            continue;
        const uint3 &t = thread.thread_index;
        fprintf(stderr, "cudasim: thread (%u, %u, %u) waits at %s (%s:%d)\n", t.x, t.y, t.z,
                where.operation, where.file, where.line);
        seen = &where;
    }
    current_thread = nullptr;
    fatal("the threads wait for one another and none can run");
}

void run_next_thread(bool ends) {
    block_state *block = current_block;
    thread_state *self = running_thread();
    thread_state *next = choose_thread(block);
    if (next == self)
        return;
    if (next == nullptr && block->num_live > 0)
        report_stuck_threads(block);
    current_thread = next;
    fiber_switch(&self->stack, next == nullptr ? &block->scheduler : &next->stack, ends);
}

static void run_thread() {
    fiber_entered();
    (*current_block->body)();
    if (current_thread->is_early)
        fatal("ends without wait_for_earlier_work");
    leave_barriers(running_thread());
    run_next_thread(true);
}

static uint3 index_in(const dim3 &dim, unsigned linear) {
    return {linear % dim.x, linear / dim.x % dim.y, linear / dim.x / dim.y};
}

static void reset_warp(block_state *block, int w) {
    warp_state *warp = &block->warps[w];
    int num_lanes = block->num_threads - w * WARP_LANES;
    warp->lanes = &block->threads[w * WARP_LANES];
    warp->index = w;
    warp->live = num_lanes >= WARP_LANES ? 0xffffffffu : (1u << num_lanes) - 1;
    warp->ready = warp->live;
    warp->round = warp->waiting = warp->waiting_for_block = 0;
    warp->num_meetings = 0;
    reset_products(&warp->products);
}

static void reset_thread(block_state *block, int i) {
    thread_state *thread = &block->threads[i];
    thread->thread_index = index_in(current_grid.block_dim, (unsigned)i);
    thread->lane = i % WARP_LANES;
    thread->warp = &block->warps[i / WARP_LANES];
    thread->waits_at.operation = nullptr;
    thread->copies.copies.clear();
    thread->copies.next_group = 0;
    thread->has_counted = false;
    thread->is_early = grid.is_early;
    fiber_prepare(&thread->stack, run_thread);
}

static void reset_block(block_state *block, const dim3 &threads,
                        const std::function<void()> &body) {
    block->num_threads = block->num_live = (int)(threads.x * threads.y * threads.z);
    block->num_warps = (block->num_threads + WARP_LANES - 1) / WARP_LANES;
    block->body = &body;
    block->num_waiting = block->num_true = 0;
    block->live_warps = block->num_warps == 32 ? 0xffffffffu : (1u << block->num_warps) - 1;
    block->warp = nullptr;
    block->left_at = nullptr;
    block->was_held = false;
    for (int w = 0; w < block->num_warps; w++)
        reset_warp(block, w);
    for (warpgroup_products &group : block->warpgroups)
        group = {};
    for (int i = 0; i < block->num_threads; i++)
        reset_thread(block, i);
}

/* Of the next index, with the state of one that is not in flight. */
static block_state *begin_block(const std::function<void()> &body) {
    static auto &states = *new std::vector<block_state *>;
    auto is_free = [](block_state *state) {
        return std::find(grid.in_flight.begin(), grid.in_flight.end(), state) ==
               grid.in_flight.end();
    };
    auto found = std::find_if(states.begin(), states.end(), is_free);
    if (found == states.end())
        found = states.insert(found, create_block());
    block_state *block = *found;
    reset_block(block, current_grid.block_dim, body);
    block->index = index_in(current_grid.grid_dim, grid.order[grid.num_begun++]);
    block->dynamic_shared = begin_block_memory(&block->shared);
    return block;
}

/* Until it ends or gives way. */
static void run_block(block_state *block) {
    current_block = block;
    current_grid.block_index = block->index;
    current_grid.dynamic_shared = block->dynamic_shared;
    if (grid.interleaved)
        enter_view(&block->view);
    if (block->left_at != nullptr)
        restore_static_memory(&block->shared);
    current_thread = block->left_at != nullptr ? block->left_at : choose_thread(block);
    fiber_switch(&block->scheduler, &running_thread()->stack, false);
    if (grid.interleaved)
        leave_view(block->num_live == 0);
    if (block->num_live > 0)
        save_static_memory(&block->shared);
}

void pass_switch_point(switch_point point) {
    block_state *block = current_block;
    if (!grid.interleaved || !gives_way(&grid, block, point))
        return;
    block->left_at = running_thread();
    fiber_switch(&block->left_at->stack, &block->scheduler, false);
}

/* Linear block indices in the chosen order. */
static std::vector<unsigned> block_order(unsigned num_blocks) {
    std::vector<unsigned> order(num_blocks);
    for (unsigned i = 0; i < num_blocks; i++)
        order[i] = current_order() == order_kind::reverse ? num_blocks - 1 - i : i;
    if (current_order() == order_kind::random)
        for (unsigned i = num_blocks; i > 1; i--)
            std::swap(order[i - 1], order[random_below(i)]);
    return order;
}

static void run_blocks(const std::function<void()> &body) {
    while (grid.num_begun < grid.order.size() || !grid.in_flight.empty()) {
        block_state *block = choose_block(grid);
        if (block == nullptr)
            block = begin_block(body);
        else
            grid.in_flight.erase(std::find(grid.in_flight.begin(), grid.in_flight.end(), block));
        grid.in_flight.push_back(block);
        run_block(block);
        if (block->num_live == 0)
            grid.in_flight.pop_back();
    }
}

void run_grid(const launch_config &config, const std::function<void()> &body) {
    const dim3 &dim = config.grid_dim;
    unsigned num_blocks = dim.x * dim.y * dim.z;
    grid = {are_blocks_interleaved() && num_blocks > 1,
            block_order(num_blocks),
            0,
            {},
            0,
            config.is_early};
    begin_shared_memory(config.kernel, config.shared_bytes);
    current_grid = {{}, config.block_dim, dim, nullptr};
    running_kernel = config.kernel_name;
    blocks_are_interleaved = grid.interleaved;
    if (grid.interleaved)
        begin_visibility(*the_machine().at_work);
    begin_grid_reads(config.is_early);
    run_blocks(body);
    if (grid.interleaved)
        end_visibility();
    end_grid_reads(config.kernel_name);
    blocks_are_interleaved = false;
    running_kernel = nullptr;
}

} // namespace cudasim
