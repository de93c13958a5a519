/* A token's heads are cut into tasks of one thread each: to rotate PAIRS pairs, or to copy COPY
 * elements into the cache. Pairs (2i, 2i+1) of a task are 2 PAIRS elements in a row; pairs
 * (i, i + rotary_dim/2) are PAIRS of the first half and the PAIRS across. Accesses are of 16 bytes
 * where the rotary part divides so; else everything goes one by one, which no known model needs.
 *
 * A row of a quantised cache has one scale, so its threads must agree on it: they are lanes of one
 * warp, ROW_CHUNK elements each, that keep them in registers in between. */
#include "kernels/cuda/ops/rope_store_launch.h"
#include "kernels/cuda/device/kv_codes.cuh"
#include "kernels/cuda/device/vector_access.cuh"

#define BLOCK 128
#define ROW_CHUNK 8

static_assert(KV_MAX_HEAD_DIM <= ROW_CHUNK * WARP_SIZE, "a warp holds a row");
static_assert(KV_HEAD_DIM_STEP % ROW_CHUNK == 0, "a row is whole chunks");

/* Counts the tasks of a head of each kind: q and k to rotate, the rest of k and all of v to copy.
 */
struct head_tasks {
    int32_t rotate, copy_rest, copy_all;
};

__device__ __forceinline__ char *cache_plane(const rope_store_launch &a, int32_t slot, kv_part part,
                                             int32_t head) {
    return a.cache + kv_plane_offset(&a.layout, slot / a.layout.block_size, a.layer, part, head);
}

/* Returns where a head's elements lie in the cache at this slot. */
template <class T>
__device__ __forceinline__ T *cache_row(const rope_store_launch &a, int32_t slot, kv_part part,
                                        int32_t head) {
    return reinterpret_cast<T *>(cache_plane(a, slot, part, head) +
                                 kv_row_offset(&a.layout, slot % a.layout.block_size));
}

template <class T> __device__ __forceinline__ T *qkv_row(const rope_store_launch &a) {
    int32_t heads = a.num_q_heads + 2 * a.layout.num_kv_heads;
    return static_cast<T *>(a.qkv) + (int64_t)blockIdx.x * heads * a.layout.head_dim;
}

/* Task `task` of a head: pairs task * PAIRS on, from src to dst. */
template <class T, int PAIRS, bool INTERLEAVED>
__device__ __forceinline__ void rotate(const rope_store_launch &a, const float *cosines, T *dst,
                                       const T *src, int32_t task) {
    int32_t pair = task * PAIRS, across = a.rotary_dim / 2;
    float x[PAIRS], y[PAIRS], row[2 * PAIRS];
    if (INTERLEAVED) {
        load_floats(row, src + 2 * pair);
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            x[i] = row[2 * i], y[i] = row[2 * i + 1];
    } else {
        load_floats(x, src + pair);
        load_floats(y, src + across + pair);
    }
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        float c = cosines[pair + i], s = cosines[across + pair + i], first = x[i];
        x[i] = first * c - y[i] * s;
        y[i] = first * s + y[i] * c;
    }
    if (INTERLEAVED) {
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            row[2 * i] = x[i], row[2 * i + 1] = y[i];
        store_floats(dst + 2 * pair, row);
    } else {
        store_floats(dst + pair, x);
        store_floats(dst + across + pair, y);
    }
}

/* Grid: tokens along x, their tasks along y: those of q, then those of k and v head by head. */
template <class T, int PAIRS, int COPY, bool INTERLEAVED>
__global__ void rope_store_kernel(const rope_store_launch a, const head_tasks tasks) {
    int32_t token = (int32_t)blockIdx.x, task = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x);
    T *row = qkv_row<T>(a);
    const float *cosines = a.rope_table + (int64_t)a.positions[token] * a.rotary_dim;
    if (task < a.num_q_heads * tasks.rotate) {
        T *head = row + task / tasks.rotate * a.layout.head_dim;
        rotate<T, PAIRS, INTERLEAVED>(a, cosines, head, head, task % tasks.rotate);
        return;
    }
    task -= a.num_q_heads * tasks.rotate;
    int32_t per_head = tasks.rotate + tasks.copy_rest + tasks.copy_all;
    int32_t head = task / per_head, slot = a.slots[token];
    task %= per_head;
    if (head >= a.layout.num_kv_heads || slot < 0)
        return;
    const T *k = row + (a.num_q_heads + head) * a.layout.head_dim;
    const T *v = k + a.layout.num_kv_heads * a.layout.head_dim;
    if (task < tasks.rotate) {
        rotate<T, PAIRS, INTERLEAVED>(a, cosines, cache_row<T>(a, slot, KV_PART_K, head), k, task);
    } else if (task < tasks.rotate + tasks.copy_rest) {
        int32_t i = a.rotary_dim + (task - tasks.rotate) * COPY;
        copy_elements<COPY>(cache_row<T>(a, slot, KV_PART_K, head) + i, k + i);
    } else {
        int32_t i = (task - tasks.rotate - tasks.copy_rest) * COPY;
        copy_elements<COPY>(cache_row<T>(a, slot, KV_PART_V, head) + i, v + i);
    }
}

/* Elements first .. first + ROW_CHUNK - 1 of a head, rotated. */
template <class T, bool INTERLEAVED>
__device__ __forceinline__ void rotate_chunk(const rope_store_launch &a, const float *cosines,
                                             const T *head, int32_t first, float (&x)[ROW_CHUNK]) {
    int32_t across = a.rotary_dim / 2;
    const float *sines = cosines + across;
#pragma unroll
    for (int i = 0; i < ROW_CHUNK; i += INTERLEAVED ? 2 : 1) {
        int32_t at = first + i;
        if (at >= a.rotary_dim)
            break;
        if (INTERLEAVED) {
            float c = cosines[at / 2], s = sines[at / 2], low = x[i];
            x[i] = low * c - x[i + 1] * s;
            x[i + 1] = low * s + x[i + 1] * c;
        } else {
            bool is_low = at < across;
            int32_t pair = is_low ? at : at - across;
            float c = cosines[pair], s = sines[pair];
            float other = to_float(head[is_low ? at + across : pair]);
            x[i] = is_low ? x[i] * c - other * s : other * s + x[i] * c;
        }
    }
}

/* The largest of `lanes` neighbours, a power of two. */
__device__ __forceinline__ uint32_t max_of_lanes(uint32_t value, int32_t lanes) {
    for (int32_t d = lanes / 2; d > 0; d /= 2)
        value = max(value, (uint32_t)__shfl_xor_sync(FULL_MASK, value, d));
    return value;
}

__device__ __forceinline__ float sum_of_lanes(float value, int32_t lanes) {
    for (int32_t d = lanes / 2; d > 0; d /= 2)
        value += __shfl_xor_sync(FULL_MASK, value, d);
    return value;
}

/* The best of the scales that kv_layout.h names, of a row that these lanes have. Where the least is
 * 0 or NaN, all of them are. */
__device__ __forceinline__ float best_e4m3_scale(const float (&x)[ROW_CHUNK], float least,
                                                 int32_t lanes) {
    float best = least, best_error = __uint_as_float(0x7f800000);
    for (int c = 0; c < KV_E4M3_FACTORS; c++) {
        float factor = 1.0f + (float)c / KV_E4M3_FACTORS, scale = least * factor;
        float error = sum_of_lanes(e4m3_errors(x, scale), lanes) * (factor * factor);
        if (error < best_error) {
            best_error = error;
            best = scale;
        }
    }
    return best;
}

/* Grid: tokens along x; along y the tasks of q, filled up to whole warps, then for each row of k
 * and of v row_lanes threads, of which those after head_dim do nothing. */
template <class T, int PAIRS, bool INTERLEAVED>
__global__ void rope_store_codes_kernel(const rope_store_launch a, int32_t head_tasks,
                                        int32_t row_lanes) {
    int32_t token = (int32_t)blockIdx.x, task = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x);
    int32_t q_tasks = a.num_q_heads * head_tasks;
    int32_t q_threads = (q_tasks + WARP_SIZE - 1) / WARP_SIZE * WARP_SIZE;
    T *row = qkv_row<T>(a);
    const float *cosines = a.rope_table + (int64_t)a.positions[token] * a.rotary_dim;
    if (task < q_threads) {
        T *head = row + task / max(head_tasks, 1) * a.layout.head_dim;
        if (task < q_tasks)
            rotate<T, PAIRS, INTERLEAVED>(a, cosines, head, head, task % head_tasks);
        return;
    }
    int32_t index = (task - q_threads) / row_lanes; /* of the row: k's heads, then v's */
    int32_t first = (task - q_threads) % row_lanes * ROW_CHUNK;
    bool is_used = index < 2 * a.layout.num_kv_heads && first < a.layout.head_dim;
    const T *head = row + (a.num_q_heads + index) * a.layout.head_dim;
    float x[ROW_CHUNK] = {};
    if (is_used) {
        load_floats(x, head + first);
        if (index < a.layout.num_kv_heads)
            rotate_chunk<T, INTERLEAVED>(a, cosines, head, first, x);
    }
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < ROW_CHUNK; i++)
        largest = max(largest, __float_as_uint(x[i]) & 0x7fffffff);
    float scale = kv_scale_of(a.layout.type, max_of_lanes(largest, row_lanes));
    if (a.layout.type == KV_E4M3)
        scale = best_e4m3_scale(x, scale, row_lanes);
    int32_t slot = a.slots[token];
    if (!is_used || slot < 0)
        return;
    kv_part part = index < a.layout.num_kv_heads ? KV_PART_K : KV_PART_V;
    int32_t kv_head = index - (int32_t)part * a.layout.num_kv_heads;
    *reinterpret_cast<uint2 *>(cache_row<uint8_t>(a, slot, part, kv_head) + first) =
        pack_codes(a.layout.type, x, scale);
    if (first == 0)
        *reinterpret_cast<float *>(cache_plane(a, slot, part, kv_head) +
                                   kv_scale_offset(&a.layout, slot % a.layout.block_size)) = scale;
}

template <class T, int PAIRS, bool INTERLEAVED>
static void launch_codes(cudaStream_t stream, const rope_store_launch &a) {
    int32_t head_tasks = a.rotary_dim / 2 / PAIRS, row_lanes = 1;
    while (row_lanes * ROW_CHUNK < a.layout.head_dim)
        row_lanes *= 2;
    int32_t total =
        a.num_q_heads * head_tasks + WARP_SIZE - 1 + 2 * a.layout.num_kv_heads * row_lanes;
    dim3 grid((unsigned)a.num_tokens, (unsigned)((total + BLOCK - 1) / BLOCK));
    LAUNCH((rope_store_codes_kernel<T, PAIRS, INTERLEAVED>), grid, BLOCK, 0, stream, a, head_tasks,
           row_lanes);
}

template <class T, int PAIRS, int COPY, bool INTERLEAVED>
static void launch_tasks(cudaStream_t stream, const rope_store_launch &a) {
    if (kv_type_has_scales(a.layout.type)) {
        launch_codes<T, PAIRS, INTERLEAVED>(stream, a);
        return;
    }
    head_tasks tasks = {a.rotary_dim / 2 / PAIRS, (a.layout.head_dim - a.rotary_dim) / COPY,
                        a.layout.head_dim / COPY};
    int32_t total = a.num_q_heads * tasks.rotate +
                    a.layout.num_kv_heads * (tasks.rotate + tasks.copy_rest + tasks.copy_all);
    dim3 grid((unsigned)a.num_tokens, (unsigned)((total + BLOCK - 1) / BLOCK));
    LAUNCH((rope_store_kernel<T, PAIRS, COPY, INTERLEAVED>), grid, BLOCK, 0, stream, a, tasks);
}

template <class T> static void launch_order(cudaStream_t stream, const rope_store_launch &a) {
    bool aligned = is_aligned_16(a.qkv);
    if (a.interleaved) {
        if (aligned && a.rotary_dim % 8 == 0)
            launch_tasks<T, 4, 8, true>(stream, a);
        else
            launch_tasks<T, 1, 1, true>(stream, a);
    } else {
        if (aligned && a.rotary_dim % 16 == 0)
            launch_tasks<T, 8, 8, false>(stream, a);
        else
            launch_tasks<T, 1, 1, false>(stream, a);
    }
}

cudaError_t launch_rope_store(cudaStream_t stream, const struct rope_store_launch *args) {
    if (args->bf16)
        launch_order<__nv_bfloat16>(stream, *args);
    else
        launch_order<__half>(stream, *args);
    return cudaGetLastError();
}

/* --- Latent layouts --- */

/* Pair `pair` of rotary_dim elements, from src to dst. */
template <class T>
__device__ __forceinline__ void rotate_pair(const latent_store_launch &a, int32_t position, T *dst,
                                            const T *src, int32_t pair) {
    const int32_t half = a.rotary_dim / 2;
    const int32_t low = a.interleaved ? 2 * pair : pair,
                  high = a.interleaved ? low + 1 : low + half;
    const float x = to_float(src[low]), y = to_float(src[high]);
    float c = 1, s = 0;
    if (a.rope_table != nullptr) {
        const float *row = a.rope_table + (int64_t)position * a.rotary_dim;
        c = row[pair];
        s = row[half + pair];
    }
    dst[low] = from_float<T>(x * c - y * s);
    dst[high] = from_float<T>(x * s + y * c);
}

/* Grid: tokens along x; their tasks along y: the pairs of each head, those of the row, and the
 * row's other elements. */
template <class T> __global__ void latent_store_kernel(const latent_store_launch a) {
    const int64_t token = blockIdx.x;
    const int32_t half = a.rotary_dim / 2, dim = a.layout.head_dim, first = dim - a.rotary_dim;
    const int32_t position = a.positions[token], slot = a.slots[token];
    int32_t task = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x);
    if (task < a.num_q_heads * half) {
        const int64_t head = token * a.num_q_heads + task / half;
        rotate_pair(a, position, static_cast<T *>(a.queries) + head * dim + first,
                    static_cast<const T *>(a.q) + (head + 1) * a.q_dim - a.rotary_dim, task % half);
        return;
    }
    task -= a.num_q_heads * half;
    if (slot < 0 || task >= half + first)
        return;
    const T *row = static_cast<const T *>(a.kv) + token * dim;
    T *cached = reinterpret_cast<T *>(
        a.cache + kv_plane_offset(&a.layout, slot / a.layout.block_size, a.layer, KV_PART_K, 0) +
        kv_row_offset(&a.layout, slot % a.layout.block_size));
    if (task < half)
        rotate_pair(a, position, cached + first, row + first, task);
    else
        cached[task - half] = row[task - half];
}

cudaError_t launch_latent_store(cudaStream_t stream, const struct latent_store_launch *args) {
    const int32_t total =
        (args->num_q_heads + 1) * (args->rotary_dim / 2) + args->layout.head_dim - args->rotary_dim;
    const dim3 grid((unsigned)args->num_tokens, (unsigned)((total + BLOCK - 1) / BLOCK));
    if (args->bf16)
        LAUNCH((latent_store_kernel<__nv_bfloat16>), grid, BLOCK, 0, stream, *args);
    else
        LAUNCH((latent_store_kernel<__half>), grid, BLOCK, 0, stream, *args);
    return cudaGetLastError();
}
