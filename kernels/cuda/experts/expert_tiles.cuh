/* Which choices a block of a grouped product takes: the own ones lie in order of their experts, and
 * a tile is up to ROWS of one expert. */
#ifndef QUIRE_KERNELS_CUDA_EXPERTS_EXPERT_TILES_CUH
#define QUIRE_KERNELS_CUDA_EXPERTS_EXPERT_TILES_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/experts/expert_launch.h"

namespace {

constexpr int narrow_mean = 8; /* choices per expert, up to which tiles are narrow */

/* Choices first .. end - 1 of `order`, all of one own expert. */
struct choice_range {
    int32_t expert; /* -1: the tile does not exist */
    int32_t first, end;
};

/* Where an own expert's choices begin in their order; num_own: where they end. */
__device__ __forceinline__ int32_t first_choice(const expert_product_launch &a, int32_t expert) {
    return a.choices.order != nullptr ? a.choices.first[expert] : expert * a.num_tokens;
}

__device__ __forceinline__ int32_t choice_at(const expert_product_launch &a, int32_t i) {
    return a.choices.order != nullptr ? a.choices.order[i]
                                      : i % a.num_tokens * a.num_own + i / a.num_tokens;
}

/* The same for all lanes; each counts the tiles of a few experts. */
template <int ROWS>
__device__ __forceinline__ choice_range find_tile(const expert_product_launch &a, int32_t tile) {
    const int lane = (int)(threadIdx.x % WARP_SIZE);
    const int32_t step = (a.num_own + WARP_SIZE - 1) / WARP_SIZE;
    int32_t expert = min(lane * step, a.num_own), num = 0;
    const int32_t end = min(expert + step, a.num_own);
    for (int32_t e = expert; e < end; e++)
        num += (first_choice(a, e + 1) - first_choice(a, e) + ROWS - 1) / ROWS;
    int32_t up_to = num;
#pragma unroll
    for (int d = 1; d < WARP_SIZE; d *= 2) {
        const int32_t before = __shfl_up_sync(FULL_MASK, up_to, d);
        up_to += lane >= d ? before : 0;
    }
    int32_t left = tile - (up_to - num);
    const uint32_t found = __ballot_sync(FULL_MASK, left >= 0 && left < num);
    if (found == 0)
        return {-1, 0, 0};
    const int source = __ffs((int)found) - 1;
    for (; lane == source; expert++) {
        num = (first_choice(a, expert + 1) - first_choice(a, expert) + ROWS - 1) / ROWS;
        if (left < num)
            break;
        left -= num;
    }
    expert = __shfl_sync(FULL_MASK, expert, source);
    const int32_t begin = first_choice(a, expert) + __shfl_sync(FULL_MASK, left, source) * ROWS;
    return {expert, begin, min(begin + ROWS, first_choice(a, expert + 1))};
}

/* The most tiles there can be: each expert that is chosen at all may have a part of one. */
template <int ROWS> unsigned max_tiles(const expert_product_launch &a) {
    const int64_t experts = a.num_own < a.num_choices ? a.num_own : a.num_choices;
    return (unsigned)((a.num_choices + experts * (ROWS - 1)) / ROWS);
}

} // namespace

#endif
