/* Runs a grid: blocks one after another, or some at a time, the threads of a block as fibers in the
 * chosen order (cudasim/order.h), warp by warp: a warp continues until all its threads wait for the
 * block or are done. */
#ifndef CUDASIM_BLOCK_H
#define CUDASIM_BLOCK_H

#include "cudasim/launch.h"
#include "cudasim/thread.h"

#include "copy_async.h"
#include "fiber.h"
#include "shared_memory.h"
#include "visibility.h"
#include "wgmma.h"

namespace cudasim {

const int WARP_LANES = 32;
const int MAX_BLOCK_THREADS = 1024;
const int MAX_BLOCK_WARPS = MAX_BLOCK_THREADS / WARP_LANES;

struct warp_state;

struct thread_state : thread_place {
    warp_state *warp;
    fiber stack;
    site waits_at; /* operation NULL: it does not wait */
    pending_copies copies;
    bool has_counted; /* came to an atomic since the last barrier or fence */
};

/* Lane masks: bit l is lane l. */
struct warp_state {
    thread_state *lanes;
    int index;
    uint32_t live;
    uint32_t round;   /* those still to run before the rest of the warp runs again */
    uint32_t ready;   /* those that run in the next round */
    uint32_t waiting; /* at the warp barrier */
    uint32_t waiting_for_block;
    /* Two, used in turn: a lane that is past a meeting may prepare the next while others still read
     * this one, but not the one after. */
    warp_exchange exchanges[2];
    uint32_t num_meetings;
    warp_products products;
};

struct block_state {
    int num_threads;
    int num_warps;
    int num_live;
    int num_waiting; /* at the block barrier */
    int num_true;    /* of those, with a true predicate */
    int vote_true;   /* of the last barrier that was passed */
    int vote_all;
    uint32_t live_warps;
    warp_state *warp; /* which runs; NULL: to be chosen */
    fiber scheduler;
    const std::function<void()> *body;
    uint3 index;
    thread_state *left_at; /* continues when the block does; NULL: it has not begun */
    bool was_held;
    void *dynamic_shared;
    block_shared shared;
    block_view view;
    warp_state warps[MAX_BLOCK_WARPS];
    warpgroup_products warpgroups[MAX_BLOCK_WARPS / WARPGROUP_WARPS];
    thread_state threads[MAX_BLOCK_THREADS];
};

struct grid_state {
    bool interleaved;
    std::vector<unsigned> order; /* linear block indices */
    size_t num_begun;
    std::vector<block_state *> in_flight; /* that have begun and not ended, as they were left */
    size_t num_held;
    bool is_early;
};

/* The block that runs now. */
extern block_state *current_block;
/* NULL: none runs. */
extern const char *running_kernel;

static inline thread_state *running_thread() {
    return static_cast<thread_state *>(current_thread);
}

void run_grid(const launch_config &config, const std::function<void()> &body);

/* The running thread yields to the next one that can run, itself included; `ends`: for good. When
 * none can although threads live, the process ends with a message. */
void run_next_thread(bool ends);

/* As exchange; ends the process unless the whole warp takes part. matrix.cpp. */
const warp_exchange &exchange_all(const site &where, const void *input, size_t bytes,
                                  void (*finish)(warp_exchange &));

/* The running thread is done: those that wait for it continue. barrier.cpp. */
void leave_barriers(thread_state *thread);

/* Where the running block may give way to another of an interleaved grid, done with what it came
 * to. */
enum class switch_point { barrier, atomic, fence };
void pass_switch_point(switch_point point);

/* Whether it does, and which block continues: one in flight, NULL: a new one. schedule.cpp. */
bool gives_way(grid_state *grid, block_state *block, switch_point point);
block_state *choose_block(const grid_state &grid);

/* The thread that runs next, NULL when no live thread can. schedule.cpp. */
thread_state *choose_thread(block_state *block);

} // namespace cudasim

#endif
