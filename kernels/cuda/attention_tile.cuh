/* How queries, K and V get into shared memory for the attention kernel (attention.cuh): fetched
 * asynchronously, to be read by ldmatrix, 8 rows at a time at the same 16-byte column. These must
 * fall on 8 different groups of banks: columns are exchanged by the row's last three bits where D /
 * 8 is a power of two, else (D = 96) rows are padded to an odd number of columns.
 *
 *   plain type      Q | K | V                               tiles of 64 rows of T
 *   quantised type  Q | K or V | codes of K with scales | codes of V with scales
 *
 * Codes are fetched as they are and unpacked when they are needed, into one tile that K and V take
 * turns in: what is under way takes half the bytes, so that both can be, within the same shared
 * memory. Tensor cores multiply no int8 or E4M3 by T.
 *   K is the codes themselves, exact in bf16 and f16; its scales multiply the scores in float.
 *   V is code times scale, rounded to T as a plain cache would have it. Its scales in the weights
 *     would cost no rounding in bf16, but leave the range of f16 behind where V is small.
 * Tokens outside the range have scale 0, and every code is finite: so they are zeros, as with a
 * plain type, whatever the cache or, where nothing was fetched, shared memory holds. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_TILE_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_TILE_CUH

#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/kv_codes.cuh"

namespace attention {

constexpr int num_warps = 4;
constexpr int num_threads = num_warps * WARP_SIZE;
constexpr int kv_group = 16; /* tokens a warp fetches */

static_assert(num_warps * kv_group == ATTENTION_KV_TILE, "each warp fetches one group of a tile");
static_assert(num_warps * 16 == ATTENTION_WIDE_ROWS, "each warp has 16 rows of a wide tile");

template <int D> struct shared_tile {
    static constexpr int chunks = D / 8; /* of 16 bytes, in a row */
    static constexpr bool exchanged = (chunks & (chunks - 1)) == 0;
    static constexpr int stride = exchanged ? chunks : chunks + 1; /* in chunks */
    static constexpr int rows = 64;
    static constexpr int elements = rows * stride * 8;

    static __device__ __forceinline__ int offset(int row, int chunk) {
        return (row * stride + (exchanged ? chunk ^ (row & 7) : chunk)) * 8;
    }
    /* offset(first_row + row, chunk + 1 bit) for a multiple of 8, a row below 16, and an even
     * chunk; the last two parts are the same for all chunks that differ by 8. */
    static __device__ __forceinline__ int matrix_offset(int first_row, int row, int chunk,
                                                        int bit) {
        int column = exchanged ? (chunk & 7) ^ (bit ^ (row & 7)) : (chunk & 7) + bit;
        return (first_row * stride + (chunk & ~7)) * 8 + (row * stride + column) * 8;
    }
};

template <kv_type KV> constexpr bool has_codes = KV == KV_INT8 || KV == KV_E4M3;

template <int D> constexpr int group_bytes = kv_group *(D + (int)sizeof(float)); /* codes, scales */

template <kv_type KV, int D> constexpr size_t tile_bytes() {
    constexpr size_t tile = (size_t)shared_tile<D>::elements * 2;
    return has_codes<KV> ? 2 * tile + 2 * (size_t)num_warps * group_bytes<D> : 3 * tile;
}

/* Holds what all threads know of the item that is worked on, and the thread's number. Registers are
 * short in the loop over the context: what only its beginning and end need is read again from
 * memory. */
template <class T, kv_type KV, int D> struct tile_context {
    const attention_launch &a;
    const attention_item *item;
    T *shared;
    int thread; /* of the block */

    __device__ __forceinline__ int lane() const {
        return thread % WARP_SIZE;
    }
    __device__ __forceinline__ int warp() const {
        return thread / WARP_SIZE;
    }

    __device__ __forceinline__ T *q() const {
        return shared;
    }
    __device__ __forceinline__ T *k() const {
        return shared + shared_tile<D>::elements;
    }
    __device__ __forceinline__ T *v() const {
        return shared + (has_codes<KV> ? 1 : 2) * shared_tile<D>::elements;
    }
    /* Of one group of tokens: [kv_group][head_dim] codes, one row behind the other; behind the room
     * for them [kv_group] scales. */
    __device__ __forceinline__ unsigned char *codes(kv_part part, int group) const {
        return reinterpret_cast<unsigned char *>(shared + 2 * shared_tile<D>::elements) +
               (part * num_warps + group) * group_bytes<D>;
    }
    __device__ __forceinline__ float *scales(kv_part part, int group) const {
        return reinterpret_cast<float *>(codes(part, group) + kv_group * D);
    }
    /* Position of the tile's row r; rows behind the last are taken as the last. */
    __device__ __forceinline__ int position(int r) const {
        return (item->first_row + min(r, item->num_rows - 1) % item->run_rows) / a.group;
    }
    __device__ __forceinline__ int run_index(int i) const {
        return item->first_run + i * a.num_kv_heads;
    }
    /* The run of the tile's row r. */
    __device__ __forceinline__ const attention_run &run_of(int r) const {
        return a.runs[run_index(r / item->run_rows)];
    }
    /* First element of the tile's row r in [T, heads * head_dim] whose rows have `stride`. */
    __device__ __forceinline__ int64_t row_offset(int r, int64_t stride) const {
        int row = run_of(r).first_row + r % item->run_rows;
        return row / a.group * stride +
               (int64_t)(item->kv_head * a.group + row % a.group) * a.head_dim;
    }
    __device__ __forceinline__ T *out_row(int r) const {
        return static_cast<T *>(a.out) + row_offset(r, (int64_t)a.num_q_heads * a.head_dim);
    }
    /* The row of partial results of `part` for the tile's row r. */
    __device__ __forceinline__ int part_row(int part, int r) const {
        return run_of(r).first_part_row + part * item->run_rows + r % item->run_rows;
    }
    __device__ __forceinline__ float *part_out(int part_row) const {
        return a.part_out + (int64_t)part_row * D;
    }
    __device__ __forceinline__ float *part_state(int part_row) const {
        return a.part_state + (int64_t)part_row * 2;
    }
};

template <int ROWS, class T, kv_type KV, int D>
__device__ __forceinline__ void fetch_queries(const tile_context<T, KV, D> &c) {
    constexpr int chunks = shared_tile<D>::chunks;
    int64_t stride = (int64_t)(c.a.num_q_heads + 2 * c.a.num_kv_heads) * c.a.head_dim;
    const T *qkv = static_cast<const T *>(c.a.qkv);
#pragma unroll 1
    for (int i = c.thread; i < ROWS * chunks; i += num_threads) {
        int row = i / chunks, chunk = i % chunks;
        bool valid = row < c.item->num_rows && chunk * 8 < c.a.head_dim;
        const T *from = valid ? qkv + c.row_offset(row, stride) + chunk * 8 : qkv;
        copy_async_16(c.q() + shared_tile<D>::offset(row, chunk), from, valid);
    }
}

/* The cache's block that holds this warp's group, whose first token is `token`; any where none of
 * its tokens are in kv_begin .. kv_end - 1. */
template <class T, kv_type KV, int D>
__device__ __forceinline__ int32_t find_block(const tile_context<T, KV, D> &c, int sequence,
                                              int token, int kv_begin, int kv_end) {
    if (token >= kv_end || token + kv_group <= kv_begin)
        return 0;
    return __ldg(c.a.block_tables + (int64_t)sequence * c.a.max_blocks_per_seq +
                 token / c.a.block_size);
}

/* This warp's group, from `token` on, into its 16 rows of a tile in shared memory; zeros outside
 * the range and behind head_dim. */
template <class T, kv_type KV, int D>
__device__ __forceinline__ void fetch_rows(const tile_context<T, KV, D> &c, const char *from,
                                           kv_part part, int token, int kv_begin, int kv_end) {
    constexpr int chunks = shared_tile<D>::chunks;
    T *rows = part == KV_PART_K ? c.k() : c.v();
#pragma unroll 1
    for (int i = c.lane(); i < kv_group * chunks; i += WARP_SIZE) {
        int row = i / chunks, chunk = i % chunks;
        bool valid = token + row >= kv_begin && token + row < kv_end && chunk * 8 < c.a.head_dim;
        copy_async_16(rows + shared_tile<D>::offset(c.warp() * kv_group + row, chunk),
                      valid ? from + row * c.a.strides.token + chunk * 16 : from, valid);
    }
}

/* Its codes as they lie, up to the range's end, and its scales. */
template <class T, kv_type KV, int D>
__device__ __forceinline__ void fetch_codes(const tile_context<T, KV, D> &c, const char *from,
                                            const char *scales, kv_part part, int token,
                                            int kv_begin, int kv_end) {
    int bytes = min(kv_group, kv_end - token) * c.a.head_dim;
    unsigned char *codes = c.codes(part, c.warp());
#pragma unroll 1
    for (int i = c.lane() * 16; i < bytes; i += WARP_SIZE * 16)
        copy_async_16(codes + i, from + i, true);
    int row = c.lane();
    if (row < kv_group)
        copy_async_4(c.scales(part, c.warp()) + row, scales + row * sizeof(float),
                     token + row >= kv_begin && token + row < kv_end);
}

template <class T, kv_type KV, int D>
__device__ __forceinline__ void fetch_group(const tile_context<T, KV, D> &c, int kv_head,
                                            kv_part part, int32_t block, int token, int kv_begin,
                                            int kv_end) {
    const char *plane = c.a.cache + kv_strides_plane(&c.a.strides, block, part, kv_head);
    const size_t first = (size_t)(token % c.a.block_size);
    const char *from = plane + first * c.a.strides.token;
    if constexpr (has_codes<KV>)
        fetch_codes(c, from, plane + c.a.strides.scales + first * sizeof(float), part, token,
                    kv_begin, kv_end);
    else
        fetch_rows(c, from, part, token, kv_begin, kv_end);
}

/* The codes that this warp fetched become its rows of the tile; zeros behind head_dim. */
template <class T, kv_type KV, int D>
__device__ __forceinline__ void unpack_group(const tile_context<T, KV, D> &c, kv_part part) {
    constexpr int chunks = shared_tile<D>::chunks;
    const unsigned char *codes = c.codes(part, c.warp());
    T *rows = part == KV_PART_K ? c.k() : c.v();
    __syncwarp(); /* each lane has waited for what it fetched */
#pragma unroll 4
    for (int i = c.lane(); i < kv_group * chunks; i += WARP_SIZE) {
        int row = i / chunks, chunk = i % chunks, tile_row = c.warp() * kv_group + row;
        float x[8] = {};
        if (chunk * 8 < c.a.head_dim) {
            unpack_codes<KV>(
                x, *reinterpret_cast<const uint2 *>(codes + row * c.a.head_dim + chunk * 8));
            if (part == KV_PART_V) {
                float scale = c.scales(KV_PART_V, c.warp())[row] * kv_code_unit<KV>;
#pragma unroll
                for (int k = 0; k < 8; k++)
                    x[k] *= scale;
            }
        }
        *reinterpret_cast<uint4 *>(rows + shared_tile<D>::offset(tile_row, chunk)) = make_uint4(
            pack2<T>(x[0], x[1]), pack2<T>(x[2], x[3]), pack2<T>(x[4], x[5]), pack2<T>(x[6], x[7]));
    }
}

/* Threads that fetched a tile, together with those that read it. */
template <bool WIDE> __device__ __forceinline__ void sync_tile() {
    if (WIDE)
        __syncthreads();
    else
        __syncwarp();
}

} // namespace attention

#endif
