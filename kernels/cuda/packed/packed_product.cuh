/* Products with packed weights, or with plain ones as they are: out = x W^T, where a tile's rows
 * are those of W and its columns are rows of x. Codes are unpacked in registers, as exact small
 * numbers, and multiplied by tensor cores; the sums of 16 or 32 columns are then scaled in float. A
 * min is multiplied with the sum of x over its columns. So no weight is ever rounded.
 *
 *   narrow  up to PACKED_NARROW_ROWS rows of x. The warps of a block share its rows of W, and each
 *           takes every fourth chunk of their columns; their sums are added in order. x comes
 *           through the L1 cache.
 *   wide    for more rows: the warps have rows of W of their own; x passes through shared memory.
 *           Every fourth chunk is a split of its own, and splits are added in order: by one block,
 *           or, where that would be too few for the device, by the last of four.
 *
 * So a sum has the same bits in both.
 *
 * With FP8 x is codes of E4M3 too, in the order of a chunk's codes of weights (packed_layout.h): as
 * both sides have the same order, it does not matter to a sum. Tensor cores multiply them as they
 * are; a chunk's sum, of which they keep few bits, is then scaled and added in float.
 *
 * While a chunk is multiplied, the next one is on its way to other registers. The first one may be
 * on its way before x is there (wait_for_earlier_work). */
#ifndef QUIRE_KERNELS_CUDA_PACKED_PACKED_PRODUCT_CUH
#define QUIRE_KERNELS_CUDA_PACKED_PACKED_PRODUCT_CUH

#include "kernels/cuda/device/activation.cuh"
#include "kernels/cuda/packed/packed_codes.cuh"
#include "kernels/cuda/packed/packed_launch.h"

#include <type_traits>
#include <utility>

namespace {

/* What x has, for results of T. */
template <int F, class T> using x_element = std::conditional_t<F == FP8, uint8_t, T>;

constexpr int num_warps = 4, num_threads = num_warps * WARP_SIZE;
constexpr int group_columns = 32, num_groups = PACKED_CHUNK / group_columns; /* of a chunk */

constexpr int num_splits = 4; /* of a sum: every fourth chunk, added up in order */
static_assert(num_splits == num_warps, "each warp of a narrow block has one");

/* A warp's part of a product: M tiles of 16 rows of W by N tiles of 8 rows of x. */
template <int M, int N> using tile_sums = float[M][N][4];
/* What it needs of a chunk: rows g and g + 8 of each tile, or g and the up of g. */
template <int F, int M> using tile_words = chunk_words<F>[M][2];

__device__ __forceinline__ int lane_of() {
    return (int)(threadIdx.x % WARP_SIZE);
}
__device__ __forceinline__ int warp_of() {
    return (int)(threadIdx.x / WARP_SIZE);
}

/* Rows of the weights that a tile is from: the matrix, or one expert of it. */
struct packed_rows {
    packed_planes planes;
    int begin, num_rows; /* rows past the last one are the last one again: they are not stored */
    int cols;
    int second; /* rows from the first 8 of a tile to its others: 8, or from a gate to its up */
};

template <int F, int M>
__device__ __forceinline__ void load_tiles(tile_words<F, M> &out, const packed_rows &a,
                                           int first_row, int chunk) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row =
                a.begin + min(first_row + m * 16 + i * a.second + lane_of() / 4, a.num_rows - 1);
            load_chunk(out[m][i], a.planes, row, a.cols, chunk, lane_of() % 4);
        }
}

/* The product of 16 columns, pairs 2 half and 2 half + 1, of a tile's two rows. */
template <class T>
__device__ __forceinline__ void multiply_half(float (&sums)[4], const uint32_t (&row)[4],
                                              const uint32_t (&row_8)[4], const uint32_t (&x)[4],
                                              int half) {
    const uint32_t rows[4] = {row[2 * half], row_8[2 * half], row[2 * half + 1],
                              row_8[2 * half + 1]};
    const uint32_t columns[2] = {x[2 * half], x[2 * half + 1]};
    mma_m16n8k16<T>(sums, rows, columns);
}

/* A group has two scales, of the half of its columns each, or one. */
template <int F> constexpr int num_scales = form_of<F>::group == 16 ? 2 : 1;
template <int F> constexpr int halves = 2 / num_scales<F>;

/* Sums over the columns of scale s of a group, of the lane's two rows of x: as a product with
 * ones. */
template <int F, class T> __device__ __forceinline__ float2 sum_x(const uint32_t (&x)[4], int s) {
    const uint32_t one = pack2<T>(1.0f, 1.0f), ones[4] = {one, one, one, one};
    float sums[4] = {};
#pragma unroll
    for (int half = s; half < s + halves<F>; half++) {
        const uint32_t columns[2] = {x[2 * half], x[2 * half + 1]};
        mma_m16n8k16<T>(sums, ones, columns);
    }
    return make_float2(sums[0], sums[1]);
}

/* sums += those of one scale, whose two rows have their own. */
__device__ __forceinline__ void add_scaled(float (&sums)[4], const float (&added)[4],
                                           const float (&scales)[2]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        sums[i] += added[i] * scales[i / 2];
}
__device__ __forceinline__ void add_mins(float (&sums)[4], float2 of_x, const float (&mins)[2]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        sums[i] += (i % 2 == 0 ? of_x.x : of_x.y) * mins[i / 2];
}

/* sums += the product of a chunk; x_of(n, j, out): the lane's elements of group j of tile n;
 * sum_of(n, j, s, x): sum_x of them. The words may be gone afterwards. */
template <class T, int M, int N, class X, class Sum>
__device__ __forceinline__ void
multiply_chunk(tile_sums<M, N> &sums, chunk_words<PLAIN> (&words)[M][2], X &&x_of, Sum &&) {
#pragma unroll
    for (int j = 0; j < num_groups; j++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            uint32_t x[4];
            x_of(n, j, x);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    multiply_half<T>(sums[m][n], words[m][0].pairs[j], words[m][1].pairs[j], x,
                                     half);
        }
}

/* Likewise; x(n, half, out): the lane's codes of two groups. */
template <class T, int M, int N, class X, class Sum>
__device__ __forceinline__ void multiply_chunk(tile_sums<M, N> &sums,
                                               chunk_words<FP8> (&words)[M][2], X &&x_of, Sum &&) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        float of_codes[M][4] = {};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t x[4];
            x_of(n, half, x);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int i = 0; i < 4; i += 2) {
                    const uint32_t(&row)[8] = words[m][0].low, (&row_8)[8] = words[m][1].low;
                    const int at = 4 * half + i;
                    const uint32_t rows[4] = {row[at], row_8[at], row[at + 1], row_8[at + 1]};
                    const uint32_t columns[2] = {x[i], x[i + 1]};
                    mma_m16n8k32_e4m3(of_codes[m], rows, columns);
                }
        }
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float scales[2] = {scale_at<FP8>(words[m][0], 0, 0),
                                     scale_at<FP8>(words[m][1], 0, 0)};
            add_scaled(sums[m][n], of_codes[m], scales);
        }
    }
}

/* The same of group j, which is group `at` in words. */
template <class T, int F, int M, int N, class X, class Sum>
__device__ __forceinline__ void multiply_group(tile_sums<M, N> &sums,
                                               const chunk_words<F> (&words)[M][2], int at, int j,
                                               X &&x_of, Sum &&sum_of) {
    using form = form_of<F>;
    uint32_t codes[M][2][4];
    float scales[M][num_scales<F>][2], mins[M][num_scales<F>][2];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            unpack_group<F, T>(codes[m][i], words[m][i], at);
#pragma unroll
            for (int s = 0; s < num_scales<F>; s++) {
                scales[m][s][i] = scale_at<F>(words[m][i], at, s);
                if constexpr (form::has_min)
                    mins[m][s][i] = min_at<F>(words[m][i], at, s);
            }
        }
#pragma unroll
    for (int n = 0; n < N; n++) {
        uint32_t x[4];
        x_of(n, j, x);
#pragma unroll
        for (int s = 0; s < num_scales<F>; s++) {
            float2 of_x;
#pragma unroll
            for (int m = 0; m < M; m++) {
                float of_codes[4] = {};
#pragma unroll
                for (int half = s; half < s + halves<F>; half++)
                    multiply_half<T>(of_codes, codes[m][0], codes[m][1], x, half);
                add_scaled(sums[m][n], of_codes, scales[m][s]);
                if constexpr (form::has_min) {
                    if (m == 0)
                        of_x = sum_of(n, j, s, x);
                    add_mins(sums[m][n], of_x, mins[m][s]);
                }
            }
        }
    }
}

template <class T, int F, int M, int N, class X, class Sum>
__device__ __forceinline__ void multiply_chunk(tile_sums<M, N> &sums, chunk_words<F> (&words)[M][2],
                                               X &&x_of, Sum &&sum_of) {
    /* With two scales for each group it would take too many registers, unrolled as a whole. */
    constexpr int rounds = num_scales<F> == 2 && (N > 4 || form_of<F>::has_min) ? 2 : 1;
#pragma unroll 1
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int at = 0; at < num_groups / rounds; at++)
            multiply_group<T>(sums, words, at, round * num_groups / rounds + at, x_of, sum_of);
        if constexpr (rounds > 1)
#pragma unroll
            for (int m = 0; m < M; m++)
                take_second_half<F>(words[m][0]), take_second_half<F>(words[m][1]);
    }
}

/* Of the rows first, first + step and so on of x, those that there are. No load waits for
 * another. */
template <class Out, int K>
__device__ __forceinline__ void store_as(const packed_product_launch &a, int first, int step,
                                         int row, float (&values)[K]) {
    const int64_t at = (int64_t)first * a.out_stride + row;
    const int64_t after = (int64_t)step * a.out_stride;
    if (a.addend != nullptr)
#pragma unroll
        for (int k = 0; k < K; k++)
            if (first + k * step < a.num_rows)
                values[k] += to_float(static_cast<const Out *>(a.addend)[at + k * after]);
#pragma unroll
    for (int k = 0; k < K; k++)
        if (first + k * step < a.num_rows)
            static_cast<Out *>(a.out)[at + k * after] = from_float<Out>(values[k]);
}

/* The sum for a row of x, whose codes have a scale with FP8. */
template <int F>
__device__ __forceinline__ float scaled_by_x(const packed_product_launch &a, int row_of_x,
                                             float sum) {
    return F == FP8 && row_of_x < a.num_rows ? sum * a.x_scales[row_of_x] : sum;
}

template <int F, class T, int K>
__device__ __forceinline__ void store(const packed_product_launch &a, int first, int step, int row,
                                      float (&sums)[K]) {
    const float bias = a.bias != nullptr ? a.bias[row] : 0.0f;
#pragma unroll
    for (int k = 0; k < K; k++)
        sums[k] = scaled_by_x<F>(a, first + k * step, sums[k]) * a.scale + bias;
    if (a.float_out)
        store_as<float>(a, first, step, row, sums);
    else
        store_as<T>(a, first, step, row, sums);
}

/* --- Narrow --- */

/* Where the lane's codes of groups 2 half and 2 half + 1 are in a chunk of codes. */
__device__ __forceinline__ int column_of_codes(int half) {
    return lane_of() % 4 * (PACKED_CHUNK / 4) + half * 16;
}

/* The lane's elements of x at these columns of a row, those of its codes of a group, with FP8 of
 * two groups; `load` reads them. */
template <int F, class T, class Load>
__device__ __forceinline__ void load_x(uint32_t (&out)[4], const T *group, Load &&load) {
    if constexpr (form_of<F>::group == 16) {
        const uint2 first = load(reinterpret_cast<const uint2 *>(group));
        const uint2 second = load(reinterpret_cast<const uint2 *>(group + column_at<F>(0, 0, 1)));
        out[0] = first.x, out[1] = first.y, out[2] = second.x, out[3] = second.y;
    } else {
        const uint4 pairs = load(reinterpret_cast<const uint4 *>(group));
        out[0] = pairs.x, out[1] = pairs.y, out[2] = pairs.z, out[3] = pairs.w;
    }
}

/* Past the end of a row the weights are zeros, and any element of the row will do. With FP8 rows
 * are whole chunks. */
template <int F> __device__ __forceinline__ int column_of_x(int cols, int chunk, int j) {
    if constexpr (F == FP8)
        return chunk * PACKED_CHUNK + column_of_codes(j);
    const int first = chunk * PACKED_CHUNK + j * group_columns;
    const int own = column_at<F>(0, lane_of() % 4, 0);
    if constexpr (F == PLAIN)
        return first + own < cols ? first + own : 0;
    return min(first, cols - group_columns) + own;
}

template <int M, int N> struct partial_sums { float of[num_warps][M * N * 4][WARP_SIZE]; };

/* Of all warps, in their order. */
template <int M, int N>
__device__ __forceinline__ float sum_of(const partial_sums<M, N> &partial, int row, int column) {
    const int lane = row % 8 * 4 + column % 8 / 2;
    const int at = (row / 16 * N + column / 8) * 4 + row % 16 / 8 * 2 + column % 2;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < num_warps; warp++)
        sum += partial.of[warp][at][lane];
    return sum;
}

/* The block's tile: rows first_row on of the weights by 8 N rows of x, of which the lane gives
 * those of its columns. */
template <int F, class T, int M, int N>
__device__ __forceinline__ void multiply_narrow_tile(const packed_rows &a, int first_row,
                                                     const x_element<F, T> *(&rows_of_x)[N],
                                                     partial_sums<M, N> &partial) {
    const int num_chunks = num_chunks_of(a.cols);
    tile_sums<M, N> sums = {};
    tile_words<F, M> words, next;
    if (warp_of() < num_chunks)
        load_tiles<F, M>(words, a, first_row, warp_of());
    wait_for_earlier_work();
    let_next_begin();
    for (int chunk = warp_of(); chunk < num_chunks; chunk += num_warps) {
        if (chunk + num_warps < num_chunks)
            load_tiles<F, M>(next, a, first_row, chunk + num_warps);
        multiply_chunk<T>(
            sums, words,
            [&](int n, int j, uint32_t(&out)[4]) {
                load_x<F>(out, rows_of_x[n] + column_of_x<F>(a.cols, chunk, j),
                          [](const auto *p) { return load_global(p); });
            },
            [](int, int, int s, const uint32_t(&x)[4]) { return sum_x<F, T>(x, s); });
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                words[m][i] = next[m][i];
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                partial.of[warp_of()][(m * N + n) * 4 + c][lane_of()] = sums[m][n][c];
    __syncthreads();
}

constexpr int narrow_blocks(int tiles) { /* on a multiprocessor, for which there are registers */
    return tiles == 1 ? 5 : 2;
}

/* Rounded to T, as where it would be stored. */
template <class T>
__device__ __forceinline__ float gate_or_up(const packed_product_launch &a, int row, float sum) {
    return to_float(from_float<T>(sum + (a.bias != nullptr ? a.bias[row] : 0.0f)));
}

template <class T>
__device__ __forceinline__ void store_gated(const packed_product_launch &a, int row_of_x, int row,
                                            float gate, float up) {
    const int width = a.rows / 2;
    gate = gate_or_up<T>(a, row, gate), up = gate_or_up<T>(a, row + width, up);
    const float value = a.activation == ACTIVATION_SILU
                            ? activate_and_multiply<ACTIVATION_SILU>(gate, up)
                        : a.activation == ACTIVATION_GELU_TANH
                            ? activate_and_multiply<ACTIVATION_GELU_TANH>(gate, up)
                            : activate_and_multiply<ACTIVATION_CLAMPED_SWIGLU>(gate, up);
    static_cast<T *>(a.out)[(int64_t)row_of_x * width + row] = from_float<T>(value);
}

/* A block has 16 rows of the weights, GATED: 8 gates and their ups. Neighbouring threads store
 * neighbouring rows. */
template <int F, class T, bool GATED>
__global__ void __launch_bounds__(num_threads, narrow_blocks(1))
    packed_narrow_kernel(const __grid_constant__ packed_product_launch a) {
    __shared__ partial_sums<1, 1> partial;
    constexpr int block_rows = GATED ? 8 : 16;
    const int first_row = (int)blockIdx.x * block_rows, end = GATED ? a.rows / 2 : a.rows;
    /* Past the last row it again. */
    const x_element<F, T> *rows_of_x[1] = {static_cast<const x_element<F, T> *>(a.x) +
                                           (int64_t)min(lane_of() / 4, a.num_rows - 1) * a.cols};
    multiply_narrow_tile<F, T, 1, 1>({a.planes, 0, a.rows, a.cols, GATED ? end : 8}, first_row,
                                     rows_of_x, partial);
    const int row = (int)threadIdx.x % block_rows, column = (int)threadIdx.x / block_rows;
    if (first_row + row >= end || column >= a.num_rows)
        return;
    if constexpr (GATED)
        store_gated<T>(a, column, first_row + row,
                       scaled_by_x<F>(a, column, sum_of(partial, row, column)),
                       scaled_by_x<F>(a, column, sum_of(partial, row + 8, column)));
    else {
        float sum[1] = {sum_of(partial, row, column)};
        store<F, T>(a, column, 1, first_row + row, sum);
    }
}

/* --- Wide --- */

constexpr int wide_stages = 2;
constexpr int wide_threads = PACKED_WIDE_ROWS / 16 * WARP_SIZE;
constexpr int widest_n = PACKED_WIDE_X / 8;
template <int N> constexpr int stage_elements = N * 8 * PACKED_CHUNK;
constexpr int tile_stride = PACKED_WIDE_ROWS + 4; /* of results: rows of x 4 banks apart */
constexpr int larger_of(int a, int b) {
    return a > b ? a : b;
}
/* Of x's stages and, where there are mins, of the sums of x; then of a tile's results. */
template <int F, int N>
constexpr int
    wide_bytes = larger_of(wide_stages *stage_elements<N> *(F == FP8 ? 1 : 2) +
                               (form_of<F>::has_min ? num_groups * num_scales<F> * N * 8 * 4 : 0),
                           N * 8 * tile_stride * 4);
static_assert(widest_n <= wide_threads / WARP_SIZE, "a warp sums up the rows of each tile of x");

/* A chunk's units of 16 bytes of a row of x, 16 or with codes 8: of neighbouring rows the same
 * units lie on different banks, of which a row has all. Lanes read units one after the other, or
 * with codes every second. */
template <class E> __device__ __forceinline__ int unit_offset(int row, int column) {
    constexpr int unit = 16 / sizeof(E), turn = sizeof(E) == 1 ? 1 : 4;
    return row * PACKED_CHUNK + ((column / unit) ^ (row & 1) * turn) * unit + column % unit;
}

template <class E, int NUM_ROWS>
__device__ __forceinline__ void fetch_x(const packed_product_launch &a, E *stage, int first_x,
                                        int chunk) {
    constexpr int unit = 16 / sizeof(E), units = PACKED_CHUNK / unit;
    const E *x = static_cast<const E *>(a.x);
#pragma unroll
    for (int i = 0; i < NUM_ROWS * units / wide_threads; i++) {
        const int row = ((int)threadIdx.x + i * wide_threads) / units;
        const int column = (int)threadIdx.x % units * unit;
        const int at = chunk * PACKED_CHUNK + column;
        const bool valid = first_x + row < a.num_rows && at < a.cols;
        copy_async_16(stage + unit_offset<E>(row, column),
                      valid ? x + (int64_t)(first_x + row) * a.cols + at : x, valid);
    }
    copy_async_commit();
}

template <int F, class E>
__device__ __forceinline__ void load_staged_x(uint32_t (&out)[4], const E *stage, int n, int j) {
    const int row = n * 8 + lane_of() / 4;
    const int column = F == FP8 ? column_of_codes(j) : column_at<F>(j, lane_of() % 4, 0);
    load_x<F>(out, stage + unit_offset<E>(row, column), [](const auto *p) { return *p; });
}

/* sum_x of a chunk in shared memory, [scales of the chunk][8 N]: warp n has those of tile n. */
template <int F, class T, int N>
__device__ __forceinline__ void sum_staged_x(float *sums, const T *stage) {
    if (warp_of() >= N)
        return;
#pragma unroll
    for (int j = 0; j < num_groups; j++) {
        uint32_t x[4];
        load_staged_x<F>(x, stage, warp_of(), j);
#pragma unroll
        for (int s = 0; s < num_scales<F>; s++, sums += 8 * N) {
            const float2 sum = sum_x<F, T>(x, s);
            if (lane_of() < 4)
                *reinterpret_cast<float2 *>(sums + 8 * warp_of() + 2 * lane_of()) = sum;
        }
    }
}

/* The next chunk of the split; after its last one that of the next split, if the block has all.
 * num_chunks: there is none. */
template <bool SPLIT> __device__ __forceinline__ int chunk_after(int chunk, int num_chunks) {
    if (chunk + num_splits < num_chunks)
        return chunk + num_splits;
    return SPLIT || chunk % num_splits == num_splits - 1 ? num_chunks : chunk % num_splits + 1;
}

/* Of a lane, with their number. */
template <int N, class Action> __device__ __forceinline__ void for_each_sum(Action &&action) {
#pragma unroll
    for (int i = 0; i < N * 4; i++)
        action(i / 4, i % 4, i);
}

/* sums += split; split = 0. */
template <int N>
__device__ __forceinline__ void end_split(tile_sums<1, N> &sums, tile_sums<1, N> &split) {
    for_each_sum<N>([&](int n, int c, int) {
        sums[0][n][c] += split[0][n][c];
        split[0][n][c] = 0;
    });
}

/* The blocks of a tile leave their splits; the last to do so adds them up in order. Returns whether
 * the block is the last. */
template <int N>
__device__ __forceinline__ bool merge_splits(const packed_product_launch &a,
                                             tile_sums<1, N> &split) {
    constexpr int count = N * 4 * wide_threads;
    __shared__ bool is_last;
    const int tile = (int)(blockIdx.y * gridDim.x + blockIdx.x);
    float *partial = a.splits.sums + (int64_t)tile * num_splits * count + threadIdx.x;
    for_each_sum<N>([&](int n, int c, int i) {
        partial[(int)blockIdx.z * count + i * wide_threads] = split[0][n][c];
    });
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence(); /* the block's sums are visible before the count is */
        is_last = atomicAdd(a.splits.counts + tile, 1) + 1 == num_splits;
        if (is_last)
            a.splits.counts[tile] = 0;
        __threadfence(); /* and the others' to this block, if it is the last */
    }
    __syncthreads();
    if (!is_last)
        return false;
    for_each_sum<N>([&](int n, int c, int i) {
        float sum = 0;
#pragma unroll
        for (int of = 0; of < num_splits; of++)
            sum += partial[of * count + i * wide_threads];
        split[0][n][c] = sum;
    });
    return true;
}

/* Through shared memory, so that neighbouring threads store neighbouring rows of the weights. */
template <int F, class T, int N>
__device__ __forceinline__ void store_tile(const packed_product_launch &a, float *tile,
                                           const tile_sums<1, N> &sums, int first_x) {
    constexpr int step = wide_threads / PACKED_WIDE_ROWS, batch = 8;
    __syncthreads(); /* nobody reads x any more */
    for_each_sum<N>([&](int n, int c, int) {
        const int row = warp_of() * 16 + c / 2 * 8 + lane_of() / 4;
        tile[(n * 8 + lane_of() % 4 * 2 + c % 2) * tile_stride + row] = sums[0][n][c];
    });
    __syncthreads();
    const int column = (int)threadIdx.x % PACKED_WIDE_ROWS;
    const int row = (int)blockIdx.x * PACKED_WIDE_ROWS + column;
    if (row >= a.rows)
        return;
#pragma unroll 1
    for (int first = (int)threadIdx.x / PACKED_WIDE_ROWS; first < N * 8; first += batch * step) {
        float values[batch];
#pragma unroll
        for (int k = 0; k < batch; k++)
            values[k] = tile[(first + k * step) * tile_stride + column];
        store<F, T>(a, first_x + first, step, row, values);
    }
}

template <int F, class T, int N, bool SPLIT>
__global__ void __launch_bounds__(wide_threads, 1)
    packed_wide_kernel(const __grid_constant__ packed_product_launch a) {
    using element = x_element<F, T>;
    DYNAMIC_SHARED(element, shared);
    float *sums_of_x = reinterpret_cast<float *>(shared + wide_stages * stage_elements<N>);
    const int first_row = (int)blockIdx.x * PACKED_WIDE_ROWS + warp_of() * 16;
    const int first_x = (int)blockIdx.y * N * 8, num_chunks = num_chunks_of(a.cols);
    const packed_rows rows = {a.planes, 0, a.rows, a.cols, 8};
    tile_sums<1, N> sums = {}, split = {};
    tile_words<F, 1> words, next;
    int chunk = SPLIT ? (int)blockIdx.z : 0;
    if (chunk < num_chunks)
        load_tiles<F, 1>(words, rows, first_row, chunk);
    wait_for_earlier_work();
    let_next_begin();
    if (chunk < num_chunks)
        fetch_x<element, N * 8>(a, shared, first_x, chunk);
    for (int i = 0; chunk < num_chunks; i++) {
        copy_async_wait<0>();
        __syncthreads(); /* the chunk is there, and nobody reads the one before it any more */
        const int following = chunk_after<SPLIT>(chunk, num_chunks);
        if (following < num_chunks) {
            fetch_x<element, N * 8>(a, shared + (i + 1) % wide_stages * stage_elements<N>, first_x,
                                    following);
            load_tiles<F, 1>(next, rows, first_row, following);
        }
        const element *stage = shared + i % wide_stages * stage_elements<N>;
        if constexpr (form_of<F>::has_min) {
            sum_staged_x<F, T, N>(sums_of_x, stage);
            __syncthreads();
        }
        multiply_chunk<T>(
            split, words,
            [&](int n, int j, uint32_t(&out)[4]) { load_staged_x<F>(out, stage, n, j); },
            [&](int n, int j, int s, const uint32_t(&)[4]) {
                return *reinterpret_cast<const float2 *>(
                    sums_of_x + (j * num_scales<F> + s) * 8 * N + 8 * n + lane_of() % 4 * 2);
            });
        if (!SPLIT && chunk + num_splits >= num_chunks)
            end_split<N>(sums, split);
        words[0][0] = next[0][0];
        words[0][1] = next[0][1];
        chunk = following;
    }
    if (SPLIT && !merge_splits<N>(a, split))
        return;
    store_tile<F, T, N>(a, reinterpret_cast<float *>(shared), SPLIT ? split : sums, first_x);
}

/* --- Launching --- */

inline unsigned tiles_of(int n, int tile) {
    return (unsigned)((n + tile - 1) / tile);
}

template <int F, class T>
void multiply_narrow(cudaStream_t stream, const packed_product_launch &a) {
    if (a.gated)
        LAUNCH_EARLY(a.begins_early, (packed_narrow_kernel<F, T, true>), tiles_of(a.rows / 2, 8),
                     num_threads, 0, stream, a);
    else
        LAUNCH_EARLY(a.begins_early, (packed_narrow_kernel<F, T, false>), tiles_of(a.rows, 16),
                     num_threads, 0, stream, a);
}

/* Split where there are too few tiles for the device. */
template <int F, class T, int N>
void multiply_wide(cudaStream_t stream, const packed_product_launch &a) {
    const unsigned x = tiles_of(a.rows, PACKED_WIDE_ROWS), y = tiles_of(a.num_rows, N * 8);
    if (x * y <= (unsigned)a.splits.max_tiles)
        LAUNCH_EARLY(a.begins_early, (packed_wide_kernel<F, T, N, true>), dim3(x, y, num_splits),
                     wide_threads, (wide_bytes<F, N>), stream, a);
    else
        LAUNCH_EARLY(a.begins_early, (packed_wide_kernel<F, T, N, false>), dim3(x, y), wide_threads,
                     (wide_bytes<F, N>), stream, a);
}

template <int F, class T> void multiply_as(cudaStream_t stream, const packed_product_launch &a) {
    if (a.num_rows <= PACKED_NARROW_ROWS)
        multiply_narrow<F, T>(stream, a);
    else if (a.num_rows <= 32)
        multiply_wide<F, T, 4>(stream, a);
    else
        multiply_wide<F, T, widest_n>(stream, a);
}

template <int F> void multiply_form(cudaStream_t stream, const packed_product_launch &a) {
    if (a.bf16)
        multiply_as<F, __nv_bfloat16>(stream, a);
    else
        multiply_as<F, __half>(stream, a);
}

/* Launches the product of a form if it is one of FIRST and the NUM - 1 after it. */
template <int FIRST, int... I>
void multiply_one_of(cudaStream_t stream, int form, const packed_product_launch &a,
                     std::integer_sequence<int, I...>) {
    ((form == FIRST + I ? multiply_form<FIRST + I>(stream, a) : void()), ...);
}
template <int FIRST, int NUM>
void multiply_forms(cudaStream_t stream, int form, const packed_product_launch &a) {
    multiply_one_of<FIRST>(stream, form, a, std::make_integer_sequence<int, NUM>());
}

} // namespace

#endif
