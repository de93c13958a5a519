/* The grouped product: rows of x with the weights of the experts that were chosen for them.
 *
 * The own choices lie in order of their experts. A block multiplies up to ROWS choices of one
 * expert by COLUMNS rows of its weight. Which ones it finds in choices.first; a grid has as many
 * blocks as the choices can make tiles, each expert's last one being a part, and those without work
 * end at once. Neighbouring blocks have the same columns of consecutive tiles, so those of one
 * expert read the same weights at about the same time.
 *
 * x and the weight pass through shared memory in slices of DEPTH elements of their rows, STAGES of
 * them in flight or in use. Tensor cores add up each product in ascending order of k, 16 at a time,
 * in float: a choice's bits depend neither on the others nor on the kind of tile, so that every
 * product is batch invariant.
 *   narrow  for few choices per expert, where the weights' bytes are what counts: many small
 *           blocks with many slices in flight
 *   wide    for many, where tensor cores are */
#include "kernels/cuda/experts/expert_tiles.cuh"

namespace {

template <int ROWS, int COLUMNS, int DEPTH, int STAGES, int ROW_WARPS, int COLUMN_WARPS>
struct tile_shape {
    static constexpr int rows = ROWS, columns = COLUMNS, depth = DEPTH, stages = STAGES;
    static constexpr int column_warps = COLUMN_WARPS;
    static constexpr int threads = ROW_WARPS * COLUMN_WARPS * WARP_SIZE;
    static constexpr int warp_rows = ROWS / ROW_WARPS, warp_columns = COLUMNS / COLUMN_WARPS;
    static constexpr int row_tiles = warp_rows / 16, column_tiles = warp_columns / 8; /* of mma */
    static constexpr int chunks = DEPTH / 8;          /* of 16 bytes, in a row of a slice */
    static constexpr int row_step = threads / chunks; /* between the rows a thread fetches */
    static constexpr int slice = (ROWS + COLUMNS) * DEPTH;
    static constexpr int shared_bytes = STAGES * slice * 2;
    static_assert(ROWS % row_step == 0 && COLUMNS % row_step == 0, "threads fetch whole rows");
    static_assert(shared_bytes <= 48 << 10, "more must be asked for");

    /* ldmatrix reads a chunk of 8 rows at once: they fall on different banks. */
    static __device__ __forceinline__ int offset(int row, int chunk) {
        return row * DEPTH + (chunk ^ (chunks == 8 ? row & 7 : row >> 1 & 3)) * 8;
    }
};
using narrow_tile = tile_shape<16, 32, 64, 4, 1, 2>;
using wide_tile = tile_shape<64, 128, 32, 4, 2, 2>;

/* What a thread fetches of each slice: its chunk of every row_step-th row. */
template <class T, class S> struct source_rows {
    const T *x[S::rows / S::row_step]; /* nullptr: no such row */
    const T *weight;                   /* of the expert, at the thread's first row */
    int num_columns;                   /* from that row on */
};

template <class T, class S>
__device__ __forceinline__ source_rows<T, S>
find_rows(const expert_product_launch &a, const choice_range &range, int32_t first_column) {
    const int row = (int)threadIdx.x / S::chunks, at = (int)threadIdx.x % S::chunks * 8;
    source_rows<T, S> rows;
#pragma unroll
    for (int i = 0; i < S::rows / S::row_step; i++) {
        const int32_t choice = range.first + row + i * S::row_step;
        rows.x[i] = nullptr;
        if (choice < range.end)
            rows.x[i] = static_cast<const T *>(a.x) +
                        (int64_t)(choice_at(a, choice) / a.row_choices) * a.x_stride + at;
    }
    rows.weight = static_cast<const T *>(a.weight) +
                  ((int64_t)range.expert * a.rows + first_column + row) * a.cols + at;
    rows.num_columns = a.rows - first_column - row;
    return rows;
}

template <class T, class S>
__device__ __forceinline__ void fetch_x(const expert_product_launch &a,
                                        const source_rows<T, S> &rows, int32_t k, T *slice) {
    const int row = (int)threadIdx.x / S::chunks, chunk = (int)threadIdx.x % S::chunks;
#pragma unroll
    for (int i = 0; i < S::rows / S::row_step; i++) {
        const bool valid = rows.x[i] != nullptr && k + chunk * 8 < a.cols;
        copy_async_16(slice + S::offset(row + i * S::row_step, chunk),
                      valid ? rows.x[i] + k : static_cast<const T *>(a.x), valid);
    }
}

/* Weights of type T, row major. */
template <class T, class S>
__device__ __forceinline__ void fetch_weight(const expert_product_launch &a,
                                             const source_rows<T, S> &rows, int32_t k, T *slice) {
    const int row = (int)threadIdx.x / S::chunks, chunk = (int)threadIdx.x % S::chunks;
#pragma unroll
    for (int i = 0; i < S::columns / S::row_step; i++) {
        const bool valid = i * S::row_step < rows.num_columns && k + chunk * 8 < a.cols;
        copy_async_16(slice + S::offset(row + i * S::row_step, chunk),
                      valid ? rows.weight + ((int64_t)(i * S::row_step) * a.cols + k)
                            : static_cast<const T *>(a.weight),
                      valid);
    }
}

template <class S> using tile_sums = float[S::row_tiles][S::column_tiles][4];

/* sums += x times weight, over one slice, for this warp's part of the tile. */
template <class T, class S>
__device__ __forceinline__ void multiply(const T *x, const T *weight, tile_sums<S> &sums) {
    const int lane = (int)(threadIdx.x % WARP_SIZE), warp = (int)(threadIdx.x / WARP_SIZE);
    const int first_row = warp / S::column_warps * S::warp_rows;
    const int first_column = warp % S::column_warps * S::warp_columns;
#pragma unroll
    for (int k = 0; k < S::depth / 16; k++) {
        uint32_t rows[S::row_tiles][4];
#pragma unroll
        for (int r = 0; r < S::row_tiles; r++)
            ldmatrix_x4(rows[r],
                        x + S::offset(first_row + r * 16 + (lane & 15), 2 * k + (lane >> 4)));
#pragma unroll
        for (int c = 0; c < S::column_tiles; c += 2) {
            uint32_t columns[4];
            ldmatrix_x4(columns,
                        weight + S::offset(first_column + c * 8 + (lane >> 4) * 8 + (lane & 7),
                                           2 * k + (lane >> 3 & 1)));
            uint32_t low[2] = {columns[0], columns[1]}, high[2] = {columns[2], columns[3]};
#pragma unroll
            for (int r = 0; r < S::row_tiles; r++) {
                mma_m16n8k16<T>(sums[r][c], rows[r], low);
                mma_m16n8k16<T>(sums[r][c + 1], rows[r], high);
            }
        }
    }
}

template <class T, class S>
__device__ __forceinline__ void multiply_all(const expert_product_launch &a,
                                             const source_rows<T, S> &rows, T *shared,
                                             tile_sums<S> &sums) {
    const int32_t num_slices = (a.cols + S::depth - 1) / S::depth;
    auto fetch = [&](int32_t i) {
        T *slice = shared + i % S::stages * S::slice;
        if (i < num_slices) {
            fetch_x<T, S>(a, rows, i * S::depth, slice);
            fetch_weight<T, S>(a, rows, i * S::depth, slice + S::rows * S::depth);
        }
        copy_async_commit();
    };
    for (int32_t i = 0; i < S::stages - 1; i++)
        fetch(i);
    for (int32_t i = 0; i < num_slices; i++) {
        copy_async_wait<S::stages - 2>();
        __syncthreads(); /* slice i is there, and nobody reads the one before it any more */
        fetch(i + S::stages - 1);
        const T *slice = shared + i % S::stages * S::slice;
        multiply<T, S>(slice, slice + S::rows * S::depth, sums);
    }
    copy_async_wait<0>();
}

/* Two neighbouring columns of a row of `out`, or only the first if it is the last. */
template <class T>
__device__ __forceinline__ void store_pair(const expert_product_launch &a, const float *bias,
                                           int64_t row, int32_t column, float x, float y) {
    T *out = static_cast<T *>(a.out) + row * a.out_stride + column;
    const bool has_second = column + 1 < a.rows;
    if (bias != nullptr) {
        x += bias[column];
        y += has_second ? bias[column + 1] : 0;
    }
    if (a.accumulate) {
        x += to_float(out[0]);
        y += has_second ? to_float(out[1]) : 0;
    }
    if (has_second && a.out_stride % 2 == 0) {
        *reinterpret_cast<uint32_t *>(out) = pack2<T>(x, y);
        return;
    }
    out[0] = from_float<T>(x);
    if (has_second)
        out[1] = from_float<T>(y);
}

template <class T, class S>
__device__ __forceinline__ void store(const expert_product_launch &a, const choice_range &range,
                                      int32_t first_column, const tile_sums<S> &sums) {
    const int lane = (int)(threadIdx.x % WARP_SIZE), warp = (int)(threadIdx.x / WARP_SIZE);
    const float *bias = a.bias != nullptr ? a.bias + (int64_t)range.expert * a.rows : nullptr;
    first_column += warp % S::column_warps * S::warp_columns + 2 * (lane & 3);
#pragma unroll
    for (int r = 0; r < 2 * S::row_tiles; r++) {
        const int32_t choice =
            range.first + warp / S::column_warps * S::warp_rows + r * 8 + (lane >> 2);
        if (choice >= range.end)
            continue;
        const int64_t row = choice_at(a, choice);
#pragma unroll
        for (int c = 0; c < S::column_tiles; c++)
            if (first_column + c * 8 < a.rows)
                store_pair<T>(a, bias, row, first_column + c * 8, sums[r / 2][c][r % 2 * 2],
                              sums[r / 2][c][r % 2 * 2 + 1]);
    }
}

template <class T, class S>
__global__ void __launch_bounds__(S::threads)
    expert_product_kernel(const __grid_constant__ expert_product_launch a) {
    DYNAMIC_SHARED(T, shared);
    const int32_t first_column = (int32_t)blockIdx.y * S::columns;
    const choice_range range = find_tile<S::rows>(a, (int32_t)blockIdx.x);
    if (range.expert < 0)
        return;
    tile_sums<S> sums = {};
    multiply_all<T, S>(a, find_rows<T, S>(a, range, first_column), shared, sums);
    store<T, S>(a, range, first_column, sums);
}

template <class T, class S> void multiply_by(cudaStream_t stream, const expert_product_launch &a) {
    const dim3 grid(max_tiles<S::rows>(a), (unsigned)((a.rows + S::columns - 1) / S::columns));
    LAUNCH((expert_product_kernel<T, S>), grid, S::threads, S::shared_bytes, stream, a);
}

template <class T> void multiply_by_type(cudaStream_t stream, const expert_product_launch &a) {
    if (a.num_choices <= (int64_t)narrow_mean * a.num_own)
        multiply_by<T, narrow_tile>(stream, a);
    else
        multiply_by<T, wide_tile>(stream, a);
}

} // namespace

cudaError_t launch_expert_product(cudaStream_t stream, const struct expert_product_launch *args) {
    if (args->bf16)
        multiply_by_type<__nv_bfloat16>(stream, *args);
    else
        multiply_by_type<__half>(stream, *args);
    return cudaGetLastError();
}
