/* A block computes HEADS query heads of one token. Its warps take the cached rows in turn, each
 * with its own running maximum; a lane has the same pairs of elements of queries, rows and results,
 * so that a row is read once, as K and as V. The warps' results are merged in their order: the bits
 * of a row depend on that row alone. */
#include "kernels/cuda/attention/latent_launch.h"
#include "kernels/cuda/device/block_sum.cuh"
#include "kernels/cuda/device/device.cuh"

namespace {

constexpr int WARPS = 4, HEADS = 4;
constexpr int PAIRS = KV_MAX_LATENT_ROW / 2 / WARP_SIZE; /* of a lane */
constexpr int WIDTH = 2 * PAIRS * WARP_SIZE;
constexpr float LOG2E = 1.4426950408889634f;
static_assert(PAIRS * 2 * WARP_SIZE == KV_MAX_LATENT_ROW, "lanes hold a row");

/* What a warp has of a head. */
struct part {
    float max, sum;
    float out[2 * PAIRS];
};

/* What the others read of it. */
struct shared_part {
    float max, sum;
    float out[WIDTH];
};

/* A lane's pairs of `width` elements, zeros beyond. */
template <class T>
__device__ __forceinline__ void load_pairs(float (&x)[2 * PAIRS], const T *row, int32_t width) {
    const int lane = (int)(threadIdx.x % WARP_SIZE);
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const int32_t at = 2 * (lane + i * WARP_SIZE);
        union {
            uint32_t bits;
            T element[2];
        } pair;
        pair.bits = at < width ? *reinterpret_cast<const uint32_t *>(row + at) : 0;
        x[2 * i] = to_float(pair.element[0]);
        x[2 * i + 1] = to_float(pair.element[1]);
    }
}

__device__ __forceinline__ float capped(const latent_attention_launch &a, float score) {
    return a.soft_cap > 0 ? a.soft_cap * tanhf(score / a.soft_cap) : score;
}

/* Adds a cached row to a head's part. */
__device__ __forceinline__ void add_row(const latent_attention_launch &a,
                                        const float (&q)[2 * PAIRS], const float (&x)[2 * PAIRS],
                                        part &p) {
    float dot = 0;
#pragma unroll
    for (int i = 0; i < 2 * PAIRS; i++)
        dot += q[i] * x[i];
    const float score = capped(a, warp_sum(dot) * a.scale) * LOG2E;
    const float max = fmaxf(p.max, score);
    const float decay = exp2f(p.max - max), weight = exp2f(score - max);
    p.max = max;
    p.sum = p.sum * decay + weight;
#pragma unroll
    for (int i = 0; i < 2 * PAIRS; i++)
        p.out[i] = p.out[i] * decay + weight * x[i];
}

template <class T>
__device__ __forceinline__ void attend(const latent_attention_launch &a, int64_t token,
                                       int32_t first_head, part (&parts)[HEADS]) {
    const int32_t length = a.positions[token] + 1;
    const int32_t first = a.window > 0 && length > a.window ? length - a.window : 0;
    const int32_t *table = a.block_tables + (int64_t)a.sequences[token] * a.table_stride;
    float q[HEADS][2 * PAIRS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        const int32_t head = min(first_head + h, a.num_q_heads - 1);
        load_pairs(q[h],
                   static_cast<const T *>(a.queries) + (token * a.num_q_heads + head) * a.head_dim,
                   a.head_dim);
        parts[h].max = __uint_as_float(0xff800000);
        parts[h].sum = 0;
#pragma unroll
        for (int i = 0; i < 2 * PAIRS; i++)
            parts[h].out[i] = 0;
    }
    for (int32_t t = first + (int32_t)(threadIdx.x / WARP_SIZE); t < length; t += WARPS) {
        const char *plane =
            a.cache + kv_strides_plane(&a.strides, table[t / a.block_size], KV_PART_K, 0);
        float x[2 * PAIRS];
        load_pairs(
            x, reinterpret_cast<const T *>(plane + (size_t)(t % a.block_size) * a.strides.token),
            a.head_dim);
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            add_row(a, q[h], x, parts[h]);
    }
}

__device__ __forceinline__ void share(const part &p, shared_part *out) {
    const int lane = (int)(threadIdx.x % WARP_SIZE);
    if (lane == 0) {
        out->max = p.max;
        out->sum = p.sum;
    }
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        out->out[2 * (lane + i * WARP_SIZE)] = p.out[2 * i];
        out->out[2 * (lane + i * WARP_SIZE) + 1] = p.out[2 * i + 1];
    }
}

/* parts: of the warps, HEADS apart. */
template <class T>
__device__ __forceinline__ void merge(const latent_attention_launch &a, const shared_part *parts,
                                      int32_t head, T *out) {
    const float sink = a.sinks != nullptr ? a.sinks[head] * LOG2E : __uint_as_float(0xff800000);
    float max = sink, weights[WARPS];
    for (int w = 0; w < WARPS; w++)
        max = fmaxf(max, parts[w * HEADS].max);
    float sum = exp2f(sink - max);
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        weights[w] = exp2f(parts[w * HEADS].max - max);
        sum += weights[w] * parts[w * HEADS].sum;
    }
    for (int32_t d = (int32_t)threadIdx.x; d < a.latent_dim; d += WARPS * WARP_SIZE) {
        float total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            total += weights[w] * parts[w * HEADS].out[d];
        out[d] = from_float<T>(total / sum);
    }
}

/* Grid: tokens along x, groups of heads along y. */
template <class T>
__global__ void __launch_bounds__(WARPS *WARP_SIZE)
    latent_attention_kernel(const __grid_constant__ latent_attention_launch a) {
    DYNAMIC_SHARED(shared_part, shared);
    const int64_t token = blockIdx.x;
    const int32_t first_head = (int32_t)blockIdx.y * HEADS;
    const int warp = (int)(threadIdx.x / WARP_SIZE);
    if (a.slots[token] < 0)
        return;
    part parts[HEADS];
    attend<T>(a, token, first_head, parts);
#pragma unroll
    for (int h = 0; h < HEADS; h++)
        share(parts[h], shared + warp * HEADS + h);
    __syncthreads();
    for (int32_t h = 0; h < HEADS && first_head + h < a.num_q_heads; h++)
        merge(a, shared + h, first_head + h,
              static_cast<T *>(a.out) + (token * a.num_q_heads + first_head + h) * a.latent_dim);
}

} // namespace

cudaError_t launch_latent_attention(cudaStream_t stream,
                                    const struct latent_attention_launch *args) {
    const dim3 grid((unsigned)args->num_tokens,
                    (unsigned)((args->num_q_heads + HEADS - 1) / HEADS));
    const size_t shared_bytes = WARPS * HEADS * sizeof(shared_part);
    static_assert(WARPS * HEADS * sizeof(shared_part) <= 48 << 10, "more must be asked for");
    if (args->bf16)
        LAUNCH((latent_attention_kernel<__nv_bfloat16>), grid, WARPS * WARP_SIZE, shared_bytes,
               stream, *args);
    else
        LAUNCH((latent_attention_kernel<__half>), grid, WARPS * WARP_SIZE, shared_bytes, stream,
               *args);
    return cudaGetLastError();
}
