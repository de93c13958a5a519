/* A token's heads are cut into tasks of one thread each: to rotate PAIRS pairs, or to copy COPY
 * elements into the cache. Pairs (2i, 2i+1) of a task are 2 PAIRS elements in a row; pairs
 * (i, i + rotary_dim/2) are PAIRS of the first half and the PAIRS across. Accesses are of 16 bytes
 * where the rotary part divides so; else everything goes one by one, which no known model needs. */
#include "kernels/cuda/rope_store_launch.h"
#include "kernels/cuda/vector_access.cuh"

#define BLOCK 128

/* Counts the tasks of a head of each kind: q and k to rotate, the rest of k and all of v to copy. */
struct head_tasks {
    int32_t rotate, copy_rest, copy_all;
};

/* Returns where a head's elements lie in the cache at this slot. */
template <class T>
__device__ __forceinline__ T *cache_row(const rope_store_launch &a, int32_t slot, kv_part part,
                                        int32_t head) {
    int32_t block = slot / a.layout.block_size, token = slot % a.layout.block_size;
    return reinterpret_cast<T *>(a.cache + kv_plane_offset(&a.layout, block, a.layer, part, head) +
                                 kv_row_offset(&a.layout, token));
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
    T *row = static_cast<T *>(a.qkv) +
             (int64_t)token * (a.num_q_heads + 2 * a.layout.num_kv_heads) * a.layout.head_dim;
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
    if (head >= a.layout.num_kv_heads)
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

template <class T, int PAIRS, int COPY, bool INTERLEAVED>
static void launch_tasks(cudaStream_t stream, const rope_store_launch &a) {
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
