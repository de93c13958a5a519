/* One block per row (norm), or blocks side by side along it (the others). All are bound by memory:
 * what counts is 16-byte accesses and enough of them in flight. */
#include "kernels/cuda/device/activation.cuh"
#include "kernels/cuda/device/block_sum.cuh"
#include "kernels/cuda/ops/elementwise_launch.h"
#include "kernels/cuda/device/vector_access.cuh"

#define ROW_BLOCK 256

/* The mean of the block's row, of which this thread reads the elements `first` and `step` apart. */
template <int N, class T>
__device__ float row_mean(const T *x, int32_t width, int32_t first, int32_t step) {
    float sum = 0.0f;
    for (int32_t i = first; i < width; i += step) {
        float v[N];
        load_floats(v, x + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum += v[k];
    }
    float mean = block_sum(sum) / (float)width;
    __syncthreads(); /* before the next sum of the block */
    return mean;
}

template <class T, int N> __global__ void __launch_bounds__(1024) norm_kernel(const norm_launch a) {
    let_next_begin();
    wait_for_earlier_work();
    size_t at = (size_t)blockIdx.x * a.row_stride;
    const T *x = static_cast<const T *>(a.x) + at;
    T *out = static_cast<T *>(a.out) + at;
    int32_t step = (int32_t)blockDim.x * N, first = (int32_t)threadIdx.x * N;
    float mean = a.center ? row_mean<N>(x, a.width, first, step) : 0.0f;
    float squares = 0.0f;
    for (int32_t i = first; i < a.width; i += step) {
        float v[N];
        load_floats(v, x + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            squares += (v[k] - mean) * (v[k] - mean);
    }
    float scale = rsqrtf(block_sum(squares) / (float)a.width + a.epsilon);
    for (int32_t i = first; i < a.width; i += step) {
        float v[N], weight[N], added[N];
        load_floats(v, x + i);
        load_floats(weight, a.weight + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = (v[k] - mean) * scale * weight[k];
        if (a.bias != nullptr) {
            load_floats(added, a.bias + i);
#pragma unroll
            for (int k = 0; k < N; k++)
                v[k] += added[k];
        }
        if (a.accumulate) {
            load_floats(added, out + i);
#pragma unroll
            for (int k = 0; k < N; k++)
                v[k] += added[k];
        }
        store_floats(out + i, v);
    }
}

/* A block's size follows from the width alone, so a row's bits do not depend on others. */
template <class T, int N> static void norm_rows(cudaStream_t stream, const norm_launch &a) {
    int32_t warps = (a.width / N + WARP_SIZE - 1) / WARP_SIZE;
    int32_t block = (warps > MAX_WARPS ? MAX_WARPS : warps) * WARP_SIZE;
    LAUNCH_EARLY(a.begins_early, (norm_kernel<T, N>), (unsigned)a.num_rows, block, 0, stream, a);
}

template <class T> static void norm(cudaStream_t stream, const norm_launch &a) {
    if (a.width % 8 == 0 && a.row_stride % 8 == 0 && is_aligned_16(a.x) && is_aligned_16(a.out) &&
        is_aligned_16(a.weight) && is_aligned_16(a.bias))
        norm_rows<T, 8>(stream, a);
    else
        norm_rows<T, 1>(stream, a);
}

cudaError_t launch_norm(cudaStream_t stream, const struct norm_launch *args) {
    if (args->bf16)
        norm<__nv_bfloat16>(stream, *args);
    else
        norm<__half>(stream, *args);
    return cudaGetLastError();
}

template <activation A, class T, int N>
__global__ void act_mul_kernel(const T *gate_up, T *out, int32_t width) {
    let_next_begin();
    int32_t i = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x) * N;
    if (i >= width)
        return;
    const T *gate_row = gate_up + (size_t)blockIdx.x * 2 * width;
    float gate[N], up[N];
    load_floats(gate, gate_row + i);
    load_floats(up, gate_row + width + i);
#pragma unroll
    for (int k = 0; k < N; k++)
        gate[k] = activate_and_multiply<A>(gate[k], up[k]);
    store_floats(out + (size_t)blockIdx.x * width + i, gate);
}

/* Rows along x, which has room for 2^31; chunks of a row along y, of which there are few. */
static dim3 row_grid(int32_t num_rows, int32_t width, int n) {
    return dim3((unsigned)num_rows, (unsigned)((width / n + ROW_BLOCK - 1) / ROW_BLOCK));
}

template <activation A, class T>
static void act_mul_rows(cudaStream_t stream, const act_mul_args &args) {
    const T *from = static_cast<const T *>(args.gate_up);
    T *to = static_cast<T *>(args.out);
    if (args.width % 8 == 0 && is_aligned_16(from) && is_aligned_16(to))
        LAUNCH((act_mul_kernel<A, T, 8>), row_grid(args.num_rows, args.width, 8), ROW_BLOCK, 0,
               stream, from, to, args.width);
    else
        LAUNCH((act_mul_kernel<A, T, 1>), row_grid(args.num_rows, args.width, 1), ROW_BLOCK, 0,
               stream, from, to, args.width);
}

template <class T> static void act_mul(cudaStream_t stream, const act_mul_args &args) {
    if (args.activation == ACTIVATION_SILU)
        act_mul_rows<ACTIVATION_SILU, T>(stream, args);
    else if (args.activation == ACTIVATION_GELU_TANH)
        act_mul_rows<ACTIVATION_GELU_TANH, T>(stream, args);
    else
        act_mul_rows<ACTIVATION_CLAMPED_SWIGLU, T>(stream, args);
}

cudaError_t launch_act_mul(cudaStream_t stream, bool bf16, const struct act_mul_args *args) {
    if (bf16)
        act_mul<__nv_bfloat16>(stream, *args);
    else
        act_mul<__half>(stream, *args);
    return cudaGetLastError();
}

template <int N> __global__ void soft_cap_kernel(float *x, int64_t n, float cap) {
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (i >= n)
        return;
    float v[N];
    load_floats(v, x + i);
#pragma unroll
    for (int k = 0; k < N; k++)
        v[k] = cap * tanhf(v[k] / cap);
    store_floats(x + i, v);
}

cudaError_t launch_soft_cap(cudaStream_t stream, float *x, int64_t n, float cap) {
    if (n % 4 == 0 && is_aligned_16(x))
        LAUNCH(soft_cap_kernel<4>, (unsigned)((n / 4 + ROW_BLOCK - 1) / ROW_BLOCK), ROW_BLOCK, 0,
               stream, x, n, cap);
    else
        LAUNCH(soft_cap_kernel<1>, (unsigned)((n + ROW_BLOCK - 1) / ROW_BLOCK), ROW_BLOCK, 0,
               stream, x, n, cap);
    return cudaGetLastError();
}

template <class T, int N> __global__ void embed_kernel(const embed_launch a) {
    int32_t i = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x) * N;
    if (i >= a.width)
        return;
    int32_t sampled = a.token_rows != nullptr ? a.token_rows[blockIdx.x] : -1;
    int32_t token = sampled >= 0 ? a.sampled_tokens[sampled] : a.token_ids[blockIdx.x];
    int32_t row = token - a.first_row;
    float v[N] = {};
    if (row >= 0 && row < a.num_rows)
        load_floats(v, static_cast<const T *>(a.table) + (size_t)row * a.width + i);
#pragma unroll
    for (int k = 0; k < N; k++)
        v[k] *= a.scale;
    store_floats(static_cast<T *>(a.out) + (size_t)blockIdx.x * a.width + i, v);
}

template <class T, int N>
static void embed_by(cudaStream_t stream, const struct embed_launch *args) {
    LAUNCH((embed_kernel<T, N>), row_grid(args->num_tokens, args->width, N), ROW_BLOCK, 0, stream,
           *args);
}

template <class T> static void embed(cudaStream_t stream, const struct embed_launch *args) {
    if (args->width % 8 == 0 && is_aligned_16(args->table) && is_aligned_16(args->out))
        embed_by<T, 8>(stream, args);
    else
        embed_by<T, 1>(stream, args);
}

cudaError_t launch_embed(cudaStream_t stream, const struct embed_launch *args) {
    if (args->bf16)
        embed<__nv_bfloat16>(stream, args);
    else
        embed<__half>(stream, args);
    return cudaGetLastError();
}

/* Copies row rows[r] to row r, or with `scatters` row r to row rows[r]. */
template <int N, bool scatters>
__global__ void copy_rows_kernel(const uint16_t *x, const int32_t *rows, uint16_t *out,
                                 int32_t width) {
    int32_t i = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x) * N;
    size_t row = blockIdx.x, listed = (size_t)rows[row];
    if (i < width)
        copy_elements<N>(out + (scatters ? listed : row) * width + i,
                         x + (scatters ? row : listed) * width + i);
}

template <bool scatters>
static cudaError_t copy_rows(cudaStream_t stream, const void *x, const int32_t *rows, void *out,
                             int32_t num_rows, int32_t width) {
    const uint16_t *from = static_cast<const uint16_t *>(x);
    uint16_t *to = static_cast<uint16_t *>(out);
    if (width % 8 == 0 && is_aligned_16(x) && is_aligned_16(out))
        LAUNCH((copy_rows_kernel<8, scatters>), row_grid(num_rows, width, 8), ROW_BLOCK, 0, stream,
               from, rows, to, width);
    else
        LAUNCH((copy_rows_kernel<1, scatters>), row_grid(num_rows, width, 1), ROW_BLOCK, 0, stream,
               from, rows, to, width);
    return cudaGetLastError();
}

cudaError_t launch_gather_rows(cudaStream_t stream, const void *x, const int32_t *rows, void *out,
                               int32_t num_rows, int32_t width) {
    return copy_rows<false>(stream, x, rows, out, num_rows, width);
}

cudaError_t launch_scatter_rows(cudaStream_t stream, const void *x, const int32_t *rows, void *out,
                                int32_t num_rows, int32_t width) {
    return copy_rows<true>(stream, x, rows, out, num_rows, width);
}

/* A thread has one column: its additions are in the order of the rows, and neighbours read side by
 * side. */
template <class T>
__global__ void add_rows_kernel(const T *x, const int32_t *spans, float *sums, int32_t width) {
    int32_t i = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x);
    if (i >= width)
        return;
    const T *column = x + (size_t)spans[2 * blockIdx.x] * width + i;
    int32_t num_rows = spans[2 * blockIdx.x + 1];
    float *at = sums + (size_t)blockIdx.x * width + i;
    float sum = *at;
#pragma unroll 8
    for (int32_t r = 0; r < num_rows; r++)
        sum += to_float(column[(size_t)r * width]);
    *at = sum;
}

template <class T>
static void add_rows(cudaStream_t stream, const void *x, const int32_t *spans, float *sums,
                     int32_t num_spans, int32_t width) {
    LAUNCH(add_rows_kernel<T>, row_grid(num_spans, width, 1), ROW_BLOCK, 0, stream,
           static_cast<const T *>(x), spans, sums, width);
}

cudaError_t launch_add_rows(cudaStream_t stream, bool bf16, const void *x, const int32_t *spans,
                            float *sums, int32_t num_spans, int32_t width) {
    if (bf16)
        add_rows<__nv_bfloat16>(stream, x, spans, sums, num_spans, width);
    else
        add_rows<__half>(stream, x, spans, sums, num_spans, width);
    return cudaGetLastError();
}
