/* A block's view of one row of logits, or of a part of it: passes over it, reductions, and the
 * search in id order.
 *
 * Sums are of integers, so they do not depend on which thread adds what, or when. A pass reads four
 * logits at a time, aligned for any address of the row. */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_ROW_CUH
#define QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_ROW_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/sample/sample_launch.h"

#include <float.h>
#include <math.h>

#define SAMPLE_THREADS (SAMPLE_WARPS * WARP_SIZE)

/* Quads are aligned groups of four; quad 0 is the first that holds a logit of the row. */
struct logit_row {
    const float *logits; /* [size] */
    int32_t size;
    int32_t lead;       /* places before logits[0] in its quad, 0..3 */
    int32_t begin, end; /* quads in view: of a whole row, all that hold it */
};

__device__ __forceinline__ struct logit_row logit_row_at(const float *logits, int32_t size) {
    int32_t lead = static_cast<int32_t>(reinterpret_cast<uintptr_t>(logits) / sizeof(float) % 4);
    return {logits, size, lead, 0, (lead + size + 3) / 4};
}

/* `count` quads of a whole row, or fewer at its end. */
__device__ __forceinline__ struct logit_row part_of(struct logit_row row, int32_t first,
                                                    int32_t count) {
    row.begin = min(first, row.end);
    row.end = min(first + count, row.end);
    return row;
}

/* Returns the logit without NaN and infinity: nothing above the largest float. */
__device__ __forceinline__ float tame(float logit) {
    return fminf(fmaxf(logit, -INFINITY), FLT_MAX);
}

/* Maps floats to unsigned integers in the same order; both zeros map to one. */
__device__ __forceinline__ uint32_t key_of(float logit) {
    uint32_t bits = logit == 0 ? 0 : __float_as_uint(logit);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float logit_of(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

/* The quad from token `first` on, with anything in the places outside [low, high). */
__device__ __forceinline__ float4 load_edge_quad(const struct logit_row &row, int32_t first,
                                                 int32_t low, int32_t high) {
    const float *at = row.logits + first;
    if (first >= low && first + 4 <= high)
        return __ldg(reinterpret_cast<const float4 *>(at));
    float4 quad = {};
    if (first >= low && first < high)
        quad.x = at[0];
    if (first + 1 >= low && first + 1 < high)
        quad.y = at[1];
    if (first + 2 >= low && first + 2 < high)
        quad.z = at[2];
    if (first + 3 >= low && first + 3 < high)
        quad.w = at[3];
    return quad;
}

/* Calls visit(token, logit) for the tokens of every STRIDE-th of quads `begin` to `end`, from
 * number `offset` on, by ascending id. A few loads are in flight at a time. */
template <int STRIDE, class Visit>
__device__ __forceinline__ void visit_quads(const struct logit_row &row, int32_t begin, int32_t end,
                                            int32_t offset, Visit visit) {
    constexpr int BATCH = 4;
    int32_t low = max(4 * begin - row.lead, 0), high = min(4 * end - row.lead, row.size);
    for (int32_t q = begin + offset; q < end; q += BATCH * STRIDE) {
        float4 quads[BATCH];
        int32_t first = 4 * q - row.lead;
        if (first >= low && first + 4 * (BATCH - 1) * STRIDE + 4 <= high) {
            for (int i = 0; i < BATCH; i++)
                quads[i] =
                    __ldg(reinterpret_cast<const float4 *>(row.logits + first + 4 * i * STRIDE));
        } else {
            for (int i = 0; i < BATCH; i++)
                quads[i] = load_edge_quad(row, first + 4 * i * STRIDE, low, high);
        }
        for (int i = 0; i < BATCH; i++) {
            const float logits[] = {quads[i].x, quads[i].y, quads[i].z, quads[i].w};
            for (int j = 0; j < 4; j++) {
                int32_t token = first + 4 * i * STRIDE + j;
                if (token >= low && token < high)
                    visit(token, tame(logits[j]));
            }
        }
    }
}

/* A pass of the block over what is in view; a thread sees its tokens by ascending id. */
template <class Visit>
__device__ __forceinline__ void visit_row(const struct logit_row &row, Visit visit) {
    visit_quads<SAMPLE_THREADS>(row, row.begin, row.end, threadIdx.x, visit);
}

template <class Combine>
__device__ __forceinline__ uint64_t warp_reduce(uint64_t x, Combine combine) {
    for (int lanes = WARP_SIZE / 2; lanes > 0; lanes /= 2)
        x = combine(x, __shfl_xor_sync(FULL_MASK, x, lanes));
    return x;
}

/* Every thread gets the combination of all threads' x. */
template <class Combine>
__device__ __forceinline__ uint64_t block_reduce(uint64_t x, uint64_t (&of_warps)[SAMPLE_WARPS],
                                                 Combine combine) {
    x = warp_reduce(x, combine);
    __syncthreads();
    if (threadIdx.x % WARP_SIZE == 0)
        of_warps[threadIdx.x / WARP_SIZE] = x;
    __syncthreads();
    x = of_warps[0];
    for (int w = 1; w < SAMPLE_WARPS; w++)
        x = combine(x, of_warps[w]);
    return x;
}

__device__ __forceinline__ uint64_t block_sum(uint64_t x, uint64_t (&of_warps)[SAMPLE_WARPS]) {
    return block_reduce(x, of_warps, [](uint64_t a, uint64_t b) { return a + b; });
}

/* Packs a token into an integer that is larger for more probable tokens; among equal logits, the
 * lowest id is largest. */
__device__ __forceinline__ uint64_t pack_logit(float logit, int32_t token) {
    return static_cast<uint64_t>(key_of(logit)) << 32 | (UINT32_MAX - token);
}
__device__ __forceinline__ struct sample_logit unpack_logit(uint64_t packed) {
    return {logit_of(packed >> 32), static_cast<int32_t>(UINT32_MAX - (packed & UINT32_MAX))};
}

/* The most probable token in view, packed; less than any token when there is none. */
__device__ __forceinline__ uint64_t find_best(const struct logit_row &row,
                                              uint64_t (&of_warps)[SAMPLE_WARPS]) {
    float logit = -INFINITY;
    int32_t token = INT32_MAX;
    visit_row(row, [&](int32_t i, float x) {
        if (x > logit || token == INT32_MAX)
            logit = x, token = i;
    });
    return block_reduce(pack_logit(logit, token), of_warps,
                        [](uint64_t a, uint64_t b) { return a > b ? a : b; });
}

/* The first token in view, in id order, at which the sum of weigh(token, logit) exceeds
 * target_of(total), which is less than the total. Each warp sums one chunk of what is in view, then
 * of the chunk in which the target lies, and so on: one pass and little more, without a scan. */
template <class Weigh, class TargetOf>
__device__ __forceinline__ int32_t first_to_exceed(const struct logit_row &row,
                                                   uint64_t (&of_warps)[2][SAMPLE_WARPS],
                                                   Weigh weigh, TargetOf target_of) {
    int32_t begin = row.begin, size = row.end - row.begin;
    uint64_t before = 0, target = 0;
    __syncthreads();
    for (int round = 0; round == 0 || size > 1; round++) {
        uint64_t(&sums)[SAMPLE_WARPS] = of_warps[round % 2];
        int32_t warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
        int32_t chunk = (size + SAMPLE_WARPS - 1) / SAMPLE_WARPS;
        int32_t first = begin + min(warp * chunk, size), end = min(first + chunk, begin + size);
        uint64_t sum = 0;
        visit_quads<WARP_SIZE>(row, first, end, lane,
                               [&](int32_t i, float x) { sum += weigh(i, x); });
        sum = warp_reduce(sum, [](uint64_t a, uint64_t b) { return a + b; });
        if (lane == 0)
            sums[warp] = sum;
        __syncthreads();
        if (round == 0) {
            uint64_t total = 0;
            for (int w = 0; w < SAMPLE_WARPS; w++)
                total += sums[w];
            target = target_of(total);
        }
        int32_t chosen = 0;
        for (; chosen < SAMPLE_WARPS - 1 && before + sums[chosen] <= target; chosen++)
            before += sums[chosen];
        begin += chosen * chunk;
        size = min(chunk, size - chosen * chunk);
    }
    int32_t found = -1;
    visit_quads<1>(row, begin, begin + 1, 0, [&](int32_t i, float x) {
        before += weigh(i, x);
        found = found < 0 && before > target ? i : found;
    });
    return found;
}

#endif
