/* A head's row is in the registers of consecutive lanes of one warp, ROW_CHUNK elements each, since
 * its norm and the scale of a quantised row are of all of it. */
#include "kernels/cuda/ops/rope_store_launch.h"
#include "kernels/cuda/device/kv_codes.cuh"
#include "kernels/cuda/device/vector_access.cuh"

#define BLOCK 128
#define ROW_CHUNK 8

static_assert(KV_MAX_HEAD_DIM <= ROW_CHUNK * WARP_SIZE, "a warp holds a row");
static_assert(KV_HEAD_DIM_STEP % ROW_CHUNK == 0, "a row is whole chunks");

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

/* Returns the element that turns together with element `at` of the rotary part. */
__device__ __forceinline__ int32_t partner_of(int32_t at, int32_t half) {
    return at < half ? at + half : at - half;
}

/* The partners of elements first .. first + ROW_CHUNK - 1, of a row at p. */
template <class T>
__device__ __forceinline__ void load_partners(float (&out)[ROW_CHUNK], const T *p, int32_t first,
                                              int32_t rotary_dim) {
    int32_t half = rotary_dim / 2;
    if (half % ROW_CHUNK == 0) {
        load_floats(out, p + partner_of(first, half));
        return;
    }
#pragma unroll
    for (int i = 0; i < ROW_CHUNK; i++)
        out[i] = first + i < rotary_dim ? to_float(p[partner_of(first + i, half)]) : 0.0f;
}

/* Rotates elements first .. first + ROW_CHUNK - 1 of a head. Rows of the table need not start at
 * multiples of 16 bytes. */
template <bool INTERLEAVED>
__device__ __forceinline__ void rotate_chunk(const float *cosines, int32_t rotary_dim,
                                             int32_t first, float (&x)[ROW_CHUNK],
                                             const float (&partners)[ROW_CHUNK]) {
    int32_t half = rotary_dim / 2;
    const float *sines = cosines + half;
#pragma unroll
    for (int i = 0; i < ROW_CHUNK; i += INTERLEAVED ? 2 : 1) {
        int32_t at = first + i;
        if (at >= rotary_dim)
            break;
        if (INTERLEAVED) {
            float c = cosines[at / 2], s = sines[at / 2], low = x[i];
            x[i] = low * c - x[i + 1] * s;
            x[i + 1] = low * s + x[i + 1] * c;
        } else {
            bool is_low = at < half;
            int32_t pair = is_low ? at : at - half;
            float c = cosines[pair], s = sines[pair];
            x[i] = is_low ? x[i] * c - partners[i] * s : partners[i] * s + x[i] * c;
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

/* Stores ROW_CHUNK elements of a row as codes of one scale for all of it, if there is a slot for
 * them; every lane of the warp takes part. */
__device__ __forceinline__ void store_codes(const rope_store_launch &a, int32_t slot, kv_part part,
                                            int32_t head, int32_t first,
                                            const float (&x)[ROW_CHUNK], int32_t lanes) {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < ROW_CHUNK; i++)
        largest = max(largest, __float_as_uint(x[i]) & 0x7fffffff);
    float scale = kv_scale_of(a.layout.type, max_of_lanes(largest, lanes));
    if (a.layout.type == KV_E4M3)
        scale = best_e4m3_scale(x, scale, lanes);
    if (slot < 0)
        return;
    *reinterpret_cast<uint2 *>(cache_row<uint8_t>(a, slot, part, head) + first) =
        pack_codes(a.layout.type, x, scale);
    if (first == 0)
        *reinterpret_cast<float *>(cache_plane(a, slot, part, head) +
                                   kv_scale_offset(&a.layout, slot % a.layout.block_size)) = scale;
}

/* Grid: tokens along x; along y their heads of q, k and v. Along x of a block are the lanes of a
 * row, a power of two, of which those after head_dim have nothing. */
template <class T, bool INTERLEAVED, bool CODES>
__global__ void rope_store_kernel(const rope_store_launch a) {
    let_next_begin();
    wait_for_earlier_work();
    int32_t token = (int32_t)blockIdx.x, lanes = (int32_t)blockDim.x;
    int32_t num_kv_heads = a.layout.num_kv_heads, head_dim = a.layout.head_dim;
    int32_t index = (int32_t)(blockIdx.y * blockDim.y + threadIdx.y);
    int32_t first = (int32_t)threadIdx.x * ROW_CHUNK, kv_index = index - a.num_q_heads;
    bool is_used = index < a.num_q_heads + 2 * num_kv_heads && first < head_dim;
    bool is_q = kv_index < 0, is_v = kv_index >= num_kv_heads;
    bool turns = is_used && !is_v && first < a.rotary_dim;
    T *head = static_cast<T *>(a.qkv) +
              ((int64_t)token * (a.num_q_heads + 2 * num_kv_heads) + index) * head_dim;
    float x[ROW_CHUNK] = {}, partners[ROW_CHUNK] = {};
    if (is_used)
        load_floats(x, head + first);
    if (turns && !INTERLEAVED)
        load_partners(partners, head, first, a.rotary_dim);
    __syncwarp(); /* before another lane writes what this one reads */
    const float *norm = is_q ? a.q_norm : is_v ? nullptr : a.k_norm;
    if (a.q_norm != nullptr) {
        float squares = 0.0f, weight[ROW_CHUNK] = {};
#pragma unroll
        for (int i = 0; i < ROW_CHUNK; i++)
            squares += x[i] * x[i];
        float scale = rsqrtf(sum_of_lanes(squares, lanes) / (float)head_dim + a.norm_epsilon);
        if (is_used && !is_v) {
            load_floats(weight, norm + first);
#pragma unroll
            for (int i = 0; i < ROW_CHUNK; i++)
                x[i] = x[i] * scale * weight[i];
        }
        if (turns && !INTERLEAVED) {
            load_partners(weight, norm, first, a.rotary_dim);
#pragma unroll
            for (int i = 0; i < ROW_CHUNK; i++)
                partners[i] = partners[i] * scale * weight[i];
        }
    }
    if (turns)
        rotate_chunk<INTERLEAVED>(a.rope_table + (int64_t)a.positions[token] * a.rotary_dim,
                                  a.rotary_dim, first, x, partners);
    if (is_q && is_used && (turns || norm != nullptr))
        store_floats(head + first, x);
    int32_t slot = is_used && !is_q ? a.slots[token] : -1;
    kv_part part = is_v ? KV_PART_V : KV_PART_K;
    int32_t kv_head = is_v ? kv_index - num_kv_heads : kv_index;
    if (!CODES) {
        if (slot >= 0)
            store_floats(cache_row<T>(a, slot, part, kv_head) + first, x);
    } else if (__any_sync(FULL_MASK, !is_q)) {
        store_codes(a, slot, part, kv_head, first, x, lanes);
    }
}

template <class T, bool INTERLEAVED, bool CODES>
static void launch_rows(cudaStream_t stream, const rope_store_launch &a) {
    int32_t lanes = 1, num_rows = a.num_q_heads + 2 * a.layout.num_kv_heads;
    while (lanes * ROW_CHUNK < a.layout.head_dim)
        lanes *= 2;
    int32_t rows = BLOCK / lanes; /* of a block */
    dim3 grid((unsigned)a.num_tokens, (unsigned)((num_rows + rows - 1) / rows));
    dim3 block((unsigned)lanes, (unsigned)rows);
    LAUNCH_EARLY(a.begins_early, (rope_store_kernel<T, INTERLEAVED, CODES>), grid, block, 0, stream,
                 a);
}

template <class T> static void launch_order(cudaStream_t stream, const rope_store_launch &a) {
    bool codes = kv_type_has_scales(a.layout.type);
    if (a.interleaved)
        codes ? launch_rows<T, true, true>(stream, a) : launch_rows<T, true, false>(stream, a);
    else
        codes ? launch_rows<T, false, true>(stream, a) : launch_rows<T, false, false>(stream, a);
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
