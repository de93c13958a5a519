/* Which experts compute which token, and the sums of what they computed.
 *
 * A warp routes a token: lane l has the experts l, l + 32, l + 64, ... Numbers that belong to a
 * choice, or to a group of experts, are spread over the lanes in the same way. */
#include "kernels/cuda/device/block_sum.cuh"
#include "kernels/cuda/device/vector_access.cuh"
#include "kernels/cuda/experts/expert_launch.h"

#include <float.h>

#define ROUTE_BLOCK 128
#define ROW_BLOCK 256

struct scored {
    float score;
    int32_t index; /* -1: none */
};

__device__ __forceinline__ scored larger(scored a, scored b) {
    const bool is_b = b.index >= 0 && (a.index < 0 || b.score > a.score ||
                                       (b.score == a.score && b.index < a.index));
    return is_b ? b : a;
}

/* Every lane gets the warp's largest of those that are not taken (bit i: the lane's i-th); of equal
 * ones the first. Also where a score is not a number, all lanes get the same. */
template <int N>
__device__ __forceinline__ scored largest(const float (&scores)[N], uint32_t taken, int lane) {
    scored best = {0, -1};
#pragma unroll
    for (int i = 0; i < N; i++)
        if ((taken >> i & 1) == 0)
            best = larger(best, {scores[i], lane + i * WARP_SIZE});
#pragma unroll
    for (int d = WARP_SIZE / 2; d > 0; d /= 2)
        best = larger(best, {__shfl_xor_sync(FULL_MASK, best.score, d),
                             __shfl_xor_sync(FULL_MASK, best.index, d)});
    best.index = __shfl_sync(FULL_MASK, best.index, 0);
    return {__shfl_sync(FULL_MASK, best.score, 0), best.index};
}

/* The bit of this lane's part of a set that stands for `index`. */
__device__ __forceinline__ uint32_t bit_of(int32_t index, int lane) {
    return index % WARP_SIZE == lane ? 1u << index / WARP_SIZE : 0;
}

/* This lane's elements from `count` on. */
template <int N> __device__ __forceinline__ uint32_t beyond(int32_t count, int lane) {
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        bits |= lane + i * WARP_SIZE >= count ? 1u << i : 0;
    return bits;
}

/* The experts that are not of group `group`. */
template <int N>
__device__ __forceinline__ uint32_t others(int32_t group, int32_t size, int32_t num, int lane) {
    return beyond<N>(min(group * size + size, num), lane) | ~beyond<N>(group * size, lane);
}

/* Adds to `taken` the experts outside of the groups that can be chosen from. */
template <int N>
__device__ __forceinline__ uint32_t take_other_groups(const route_args &a, const float (&scores)[N],
                                                      int lane, uint32_t taken) {
    const int32_t size = a.num_experts / a.num_groups;
    float groups[N] = {};
    for (int32_t g = 0; g < a.num_groups; g++) {
        const uint32_t outside = others<N>(g, size, a.num_experts, lane);
        const scored first = largest(scores, outside, lane);
        float sum = first.score;
        if (a.group_score == ROUTE_GROUP_TOP2 && size > 1)
            sum += largest(scores, outside | bit_of(first.index, lane), lane).score;
#pragma unroll
        for (int i = 0; i < N; i++)
            groups[i] = lane + i * WARP_SIZE == g ? sum : groups[i];
    }
    uint32_t chosen = beyond<N>(a.num_groups, lane), allowed = 0;
    for (int32_t i = 0; i < a.num_chosen_groups; i++) {
        const scored group = largest(groups, chosen, lane);
        chosen |= bit_of(group.index, lane);
        allowed |= ~others<N>(group.index, size, a.num_experts, lane);
    }
    return taken | ~allowed;
}

/* The smallest number where there is none, and a finite one where it is infinite. */
__device__ __forceinline__ float finite_logit(float x) {
    return x != x ? -FLT_MAX : fminf(fmaxf(x, -FLT_MAX), FLT_MAX);
}

/* Softmax's 1 / sum over those that are not left out; `max` is one of them. */
template <int N>
__device__ __forceinline__ float softmax_norm(const float (&logits)[N], uint32_t left_out,
                                              float max) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        sum += (left_out >> i & 1) == 0 ? expf(logits[i] - max) : 0;
    return 1 / warp_sum(sum);
}

template <int N>
__device__ __forceinline__ float sparsemixer_weight(const route_args &a, const float (&logits)[N],
                                                    uint32_t taken, float max) {
#pragma unroll
    for (int i = 0; i < N; i++)
        if ((max - logits[i]) / fmaxf(fabsf(logits[i]), max) > 2 * a.jitter)
            taken |= 1u << i;
    return softmax_norm(logits, taken, max);
}

/* The score of a logit; max and norm are softmax's over all experts. */
__device__ __forceinline__ float score_of(const route_args &a, float logit, float max, float norm) {
    if (a.scoring == ROUTE_SOFTMAX)
        return expf(logit - max) * norm;
    return a.scoring == ROUTE_SIGMOID ? 1 / (1 + expf(-logit)) : logit;
}

/* Lane j gets choice j and its weight, before they are renormalised. */
template <int N>
__device__ __forceinline__ scored choose(const route_args &a, const float *row, int lane) {
    float logits[N], scores[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int32_t e = lane + i * WARP_SIZE;
        logits[i] = finite_logit(e < a.num_experts ? row[e] : -FLT_MAX);
    }
    const uint32_t none = beyond<N>(a.num_experts, lane);
    const float max = largest(logits, none, lane).score;
    const float norm = a.scoring == ROUTE_SOFTMAX ? softmax_norm(logits, none, max) : 1;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int32_t e = lane + i * WARP_SIZE;
        scores[i] = score_of(a, logits[i], max, norm);
        if (a.bias != nullptr && e < a.num_experts)
            scores[i] += a.bias[e];
    }
    uint32_t taken = none;
    if (a.num_groups > 1)
        taken = take_other_groups(a, scores, lane, taken);
    scored choice = {-INFINITY, -1};
    for (int32_t j = 0; j < a.num_chosen; j++) {
        const int32_t e = largest(scores, taken, lane).index;
        const float logit = finite_logit(row[e]);
        const float weight = a.scoring == ROUTE_SPARSEMIXER
                                 ? sparsemixer_weight(a, logits, taken, logit)
                                 : score_of(a, logit, max, norm);
        if (lane == j)
            choice = {weight, e};
        taken |= bit_of(e, lane);
    }
    return choice;
}

__device__ __forceinline__ float softmax_of_lanes(float logit) {
    float max = logit;
#pragma unroll
    for (int d = WARP_SIZE / 2; d > 0; d /= 2)
        max = fmaxf(max, __shfl_xor_sync(FULL_MASK, max, d));
    const float x = expf(logit - max);
    return x / warp_sum(x);
}

template <int N>
__global__ void __launch_bounds__(ROUTE_BLOCK) route_kernel(const __grid_constant__ route_args a) {
    const int32_t token = (int32_t)((blockIdx.x * blockDim.x + threadIdx.x) / WARP_SIZE);
    const int lane = (int)(threadIdx.x % WARP_SIZE);
    if (token >= a.num_tokens)
        return;
    scored choice = choose<N>(a, a.logits + (int64_t)token * a.num_experts, lane);
    if (a.scoring == ROUTE_SOFTMAX_OF_CHOSEN)
        choice.score = softmax_of_lanes(choice.score);
    const float sum = warp_sum(lane < a.num_chosen ? choice.score : 0);
    if (lane >= a.num_chosen)
        return;
    const int32_t at = token * a.num_chosen + lane;
    a.choices.experts[at] = choice.index;
    a.choices.weights[at] = choice.score / (a.renormalise ? sum + 1e-20f : 1) * a.scale;
}

/* The choices of one own expert per block, in ascending order, after those of all before it: each
 * warp counts and then places a range of the choices. */
__global__ void __launch_bounds__(1024) order_kernel(const __grid_constant__ route_args a) {
    __shared__ int32_t before[MAX_WARPS], own[MAX_WARPS];
    const int32_t expert = a.own_first + (int32_t)blockIdx.x, num = a.num_tokens * a.num_chosen;
    const int lane = (int)(threadIdx.x % WARP_SIZE), warp = (int)(threadIdx.x / WARP_SIZE);
    const int num_warps = (int)(blockDim.x / WARP_SIZE);
    const int32_t steps = (num + (int32_t)blockDim.x - 1) / (int32_t)blockDim.x;
    const int32_t begin = warp * steps * WARP_SIZE, end = min(begin + steps * WARP_SIZE, num);
    int32_t num_before = 0, num_own = 0;
    for (int32_t i = begin + lane; i < end; i += WARP_SIZE) {
        const int32_t e = a.choices.experts[i];
        num_before += e >= a.own_first && e < expert;
        num_own += e == expert;
    }
#pragma unroll
    for (int d = WARP_SIZE / 2; d > 0; d /= 2) {
        num_before += __shfl_xor_sync(FULL_MASK, num_before, d);
        num_own += __shfl_xor_sync(FULL_MASK, num_own, d);
    }
    if (lane == 0) {
        before[warp] = num_before;
        own[warp] = num_own;
    }
    __syncthreads();
    int32_t first = 0, at = 0, total = 0;
    for (int w = 0; w < num_warps; w++) {
        first += before[w];
        at += w < warp ? own[w] : 0;
        total += own[w];
    }
    if (threadIdx.x == 0) {
        a.choices.first[blockIdx.x] = first;
        if (blockIdx.x == gridDim.x - 1)
            a.choices.first[gridDim.x] = first + total;
    }
    at += first;
    for (int32_t group = begin; group < end; group += WARP_SIZE) {
        const int32_t i = group + lane;
        const bool is_own = i < end && a.choices.experts[i] == expert;
        const uint32_t found = __ballot_sync(FULL_MASK, is_own);
        if (is_own)
            a.choices.order[at + __popc(found & ((1u << lane) - 1))] = i;
        at += __popc(found);
    }
}

__global__ void adapter_kernel(const int32_t *slots, const __grid_constant__ route_args a) {
    const int32_t token = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    if (token < a.num_tokens)
        a.choices.experts[token] = slots != nullptr ? slots[token] : -1;
}

static void order(cudaStream_t stream, const route_args &a) {
    const int32_t num = a.num_tokens * a.num_chosen;
    const unsigned threads = num <= 256 ? 64 : num <= 4096 ? 256 : 1024;
    LAUNCH(order_kernel, (unsigned)a.num_own, threads, 0, stream, a);
}

template <int N> static void route(cudaStream_t stream, const route_args &a) {
    constexpr int tokens = ROUTE_BLOCK / WARP_SIZE;
    LAUNCH(route_kernel<N>, (unsigned)((a.num_tokens + tokens - 1) / tokens), ROUTE_BLOCK, 0,
           stream, a);
}

cudaError_t launch_route(cudaStream_t stream, const struct route_args *args) {
    if (args->num_experts <= 4 * WARP_SIZE)
        route<4>(stream, *args);
    else if (args->num_experts <= 16 * WARP_SIZE)
        route<16>(stream, *args);
    else
        route<EXPERTS_MAX / WARP_SIZE>(stream, *args);
    order(stream, *args);
    return cudaGetLastError();
}

cudaError_t launch_choose_adapters(cudaStream_t stream, const int32_t *slots,
                                   const struct choose_adapters_args *args) {
    route_args a = {};
    a.choices = args->choices;
    a.num_tokens = args->num_tokens;
    a.num_chosen = 1;
    a.num_own = args->num_slots;
    LAUNCH(adapter_kernel, (unsigned)((a.num_tokens + ROW_BLOCK - 1) / ROW_BLOCK), ROW_BLOCK, 0,
           stream, slots, a);
    order(stream, a);
    return cudaGetLastError();
}

template <class T, int N>
__global__ void combine_kernel(const __grid_constant__ expert_combine_launch a) {
    const int32_t i = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x) * N;
    if (i >= a.width)
        return;
    const int64_t first = (int64_t)blockIdx.x * a.num_chosen;
    const T *x = static_cast<const T *>(a.x) + first * a.width + i;
    T *out = static_cast<T *>(a.out) + (int64_t)blockIdx.x * a.width + i;
    float sum[N] = {}, before[N] = {};
    for (int32_t j = 0; j < a.num_chosen; j++, x += a.width) {
        const int32_t own = a.choices.experts[first + j] - a.own_first;
        if (own < 0 || own >= a.num_own)
            continue;
        const float weight = a.choices.weights[first + j];
        float v[N];
        load_floats(v, x);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[k] += weight * v[k];
    }
    if (a.accumulate)
        load_floats(before, out);
#pragma unroll
    for (int k = 0; k < N; k++)
        sum[k] = a.scale * sum[k] + before[k];
    store_floats(out, sum);
}

template <class T, int N>
static void combine_by(cudaStream_t stream, const expert_combine_launch &a) {
    const int32_t chunks = (a.width / N + ROW_BLOCK - 1) / ROW_BLOCK;
    LAUNCH((combine_kernel<T, N>), dim3((unsigned)a.num_tokens, (unsigned)chunks), ROW_BLOCK, 0,
           stream, a);
}

template <class T> static void combine(cudaStream_t stream, const expert_combine_launch &a) {
    if (a.width % 8 == 0 && is_aligned_16(a.x) && is_aligned_16(a.out))
        combine_by<T, 8>(stream, a);
    else
        combine_by<T, 1>(stream, a);
}

cudaError_t launch_expert_combine(cudaStream_t stream, const struct expert_combine_launch *args) {
    if (args->bf16)
        combine<__nv_bfloat16>(stream, *args);
    else
        combine<__half>(stream, *args);
    return cudaGetLastError();
}
