/* Gives a kernel its place in the grid, and synchronises it with other threads. Every barrier and
 * warp function records where it was called: threads that wait for one another at different places,
 * on which a GPU may hang or compute wrong results, end the process with a message that names both.
 *
 * A thread that has returned is no longer waited for. Warp functions take the full mask only; a
 * value asked of a lane that does not take part is 0xff in every byte. */
#ifndef CUDASIM_THREAD_H
#define CUDASIM_THREAD_H

#include "cudasim/vector_types.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace cudasim {

/* Names the place where a thread waits. */
struct site {
    const char *operation;
    const char *file;
    int line;
};

struct thread_place {
    uint3 thread_index;
    int lane;
    bool is_early; /* its grid was launched early, and it has not waited yet */
};
struct grid_place {
    uint3 block_index;
    dim3 block_dim;
    dim3 grid_dim;
    void *dynamic_shared;
};
/* Belong to the thread that runs now: the device runs one at a time. */
extern __attribute__((visibility("hidden"))) thread_place *current_thread;
extern __attribute__((visibility("hidden"))) grid_place current_grid;

/* QUIRE_CUDASIM_SKIP=wait_for_earlier_work */
extern __attribute__((visibility("hidden"))) bool waits_are_left_out;

/* Blocks of the running grid take turns, and see of each other's stores what a GPU promises. */
extern __attribute__((visibility("hidden"))) bool blocks_are_interleaved;
/* Then; by the running thread. */
void fence();
void begin_atomic(const void *address, size_t bytes);
void end_atomic(const void *address, size_t bytes);

enum class vote { none, any, all, count };

void sync_block(const site &where);
int sync_block_vote(const site &where, vote kind, bool predicate);
void sync_warp(const site &where, unsigned mask);

/* One operation of the whole warp: each lane leaves `input`, waits for the others, and reads what
 * they left. */
constexpr size_t max_exchange_bytes = 48;
struct warp_exchange {
    uint32_t participants; /* bit l: lane l took part */
    alignas(16) unsigned char box[32][max_exchange_bytes];
};
/* The last lane to arrive calls `finish` (unless NULL) once, before anyone returns. The result is
 * valid until this lane's next warp operation. */
const warp_exchange &exchange(const site &where, unsigned mask, const void *input, size_t bytes,
                              void (*finish)(warp_exchange &) = nullptr);

template <class T> T read_lane(const warp_exchange &from, int lane) {
    static_assert(sizeof(T) <= max_exchange_bytes, "too large for a warp exchange");
    T value;
    memset(static_cast<void *>(&value), 0xff, sizeof value);
    if (from.participants >> (lane & 31) & 1)
        memcpy(static_cast<void *>(&value), from.box[lane & 31], sizeof value);
    return value;
}

template <class T> T shuffle(const site &where, unsigned mask, T value, int lane) {
    return read_lane<T>(exchange(where, mask, &value, sizeof value), lane);
}

/* The lanes of the vote that take part, and those of them whose predicate holds. */
struct ballot {
    uint32_t participants;
    uint32_t set;
};
ballot take_ballot(const site &where, unsigned mask, bool predicate);

} // namespace cudasim

#define threadIdx (cudasim::current_thread->thread_index)
#define blockIdx (cudasim::current_grid.block_index)
#define blockDim (cudasim::current_grid.block_dim)
#define gridDim (cudasim::current_grid.grid_dim)
static const int warpSize = 32;

static inline void wait_for_earlier_work() {
    cudasim::current_thread->is_early &= cudasim::waits_are_left_out;
}
static inline void let_next_begin() {
}

#define CUDASIM_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(CUDASIM_CALLER) {
    cudasim::sync_block({"__syncthreads", file, line});
}
static inline int __syncthreads_or(int predicate, CUDASIM_CALLER) {
    return cudasim::sync_block_vote({"__syncthreads_or", file, line}, cudasim::vote::any,
                                    predicate != 0);
}
static inline int __syncthreads_and(int predicate, CUDASIM_CALLER) {
    return cudasim::sync_block_vote({"__syncthreads_and", file, line}, cudasim::vote::all,
                                    predicate != 0);
}
static inline int __syncthreads_count(int predicate, CUDASIM_CALLER) {
    return cudasim::sync_block_vote({"__syncthreads_count", file, line}, cudasim::vote::count,
                                    predicate != 0);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, CUDASIM_CALLER) {
    cudasim::sync_warp({"__syncwarp", file, line}, mask);
}

/* `width`, a power of two, splits the warp into segments that shuffle on their own. */
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, CUDASIM_CALLER) {
    int segment = cudasim::current_thread->lane & ~(width - 1);
    return cudasim::shuffle({"__shfl_sync", file, line}, mask, value,
                            segment + (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, CUDASIM_CALLER) {
    int lane = cudasim::current_thread->lane;
    int source = lane ^ lane_mask;
    bool inside = source < (lane & ~(width - 1)) + width;
    return cudasim::shuffle({"__shfl_xor_sync", file, line}, mask, value, inside ? source : lane);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, CUDASIM_CALLER) {
    int lane = cudasim::current_thread->lane;
    int source = lane - (int)delta;
    bool inside = source >= (lane & ~(width - 1));
    return cudasim::shuffle({"__shfl_up_sync", file, line}, mask, value, inside ? source : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, CUDASIM_CALLER) {
    int lane = cudasim::current_thread->lane;
    int source = lane + (int)delta;
    bool inside = source < (lane & ~(width - 1)) + width;
    return cudasim::shuffle({"__shfl_down_sync", file, line}, mask, value, inside ? source : lane);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, CUDASIM_CALLER) {
    return cudasim::take_ballot({"__ballot_sync", file, line}, mask, predicate != 0).set;
}
static inline int __any_sync(unsigned mask, int predicate, CUDASIM_CALLER) {
    return cudasim::take_ballot({"__any_sync", file, line}, mask, predicate != 0).set != 0;
}
static inline int __all_sync(unsigned mask, int predicate, CUDASIM_CALLER) {
    cudasim::ballot votes = cudasim::take_ballot({"__all_sync", file, line}, mask, predicate != 0);
    return votes.set == votes.participants;
}

#endif
