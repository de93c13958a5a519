/* Fetches queries, K and V into shared memory for the attention kernels (attention.cuh,
 * attention_wgmma.cu). They are fetched asynchronously and read by ldmatrix, 8 rows at a time at
 * the same 16-byte column, or by wgmma. A tile is cut into panels of 64 columns (D = 96: 32), so
 * that rows of a panel have 128 (64) bytes; their 16-byte columns are exchanged by bits of the
 * row, the 128-byte (64-byte) swizzle of wgmma's descriptors, and 8 rows of one column fall on 8
 * different groups of banks.
 *
 *   plain type      Q | K | V                               tiles of 64 rows of T
 *   quantised type  Q | K or V | codes of K with scales | codes of V with scales
 *
 * Codes are fetched unchanged and unpacked when needed, into one tile that K and V use in turn:
 * data being fetched takes half the bytes, so that both can be in flight within the same shared
 * memory. Tensor cores multiply no int8 or E4M3 by T.
 *   K is the codes themselves, exact in bf16 and f16; its scales multiply the scores in float. V is
 *   code times scale, rounded to T as a plain cache would store it. Applying its scales to the
 *   weights instead would cost no rounding in bf16, but would exceed the range of f16 where V is
 *   small. Tokens outside the range have scale 0, and every code is finite: so they are zeros, as
 *   with a plain type, regardless of what the cache or (if nothing was fetched) shared memory
 *   holds. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_TILE_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_TILE_CUH

#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/device/kv_codes.cuh"

namespace attention {

constexpr int num_warps = 4;
constexpr int num_threads = num_warps * WARP_SIZE;
constexpr int kv_group = 16; /* tokens a warp fetches */

static_assert(num_warps * kv_group == ATTENTION_KV_TILE, "each warp fetches one group of a tile");
static_assert(num_warps * 16 == ATTENTION_WIDE_ROWS, "each warp has 16 rows of a wide tile");

template <int D> struct shared_tile {
    static constexpr int chunks = D / 8; /* of 16 bytes, in a row */
    static constexpr int panel_chunks = D % 64 == 0 ? 8 : 4;
    static constexpr int rows = 64;
    static constexpr int row_elements = panel_chunks * 8; /* of a panel */
    static constexpr int panel_elements = rows * row_elements;
    static constexpr int elements = rows * D;

    static __device__ __forceinline__ int exchange(int row) {
        return panel_chunks == 8 ? row & 7 : (row >> 1) & 3;
    }
    static __device__ __forceinline__ int offset(int row, int chunk) {
        const int panel = chunks == panel_chunks ? 0 : chunk / panel_chunks;
        return (row * panel_chunks + ((chunk & (panel_chunks - 1)) ^ exchange(row))) * 8 +
               panel * panel_elements;
    }
    /* offset(first_row + row, chunk + 1 bit) for a multiple of 8, a row below 16, and an even
     * chunk; the last two parts are the same for the same chunk of each panel. */
    static __device__ __forceinline__ int matrix_offset(int first_row, int row, int chunk,
                                                        int bit) {
        return chunk / panel_chunks * panel_elements + first_row * row_elements +
               row * row_elements + ((chunk % panel_chunks) ^ (bit ^ exchange(row))) * 8;
    }
};

/* Maps a warp's lanes to a group of 16 rows: each has every row_step-th row from first_row on and
 * one chunk of every panel, so that the compiler knows the distances. Eight consecutive lanes fall
 * on different banks. */
template <int D> struct lane_map {
    using tile = shared_tile<D>;
    static constexpr int chunk_step = tile::panel_chunks;
    static constexpr int row_step = WARP_SIZE / chunk_step;
    static constexpr int num_rows = kv_group / row_step;
    static constexpr int num_chunks = tile::chunks / chunk_step;

    static __device__ __forceinline__ int first_chunk(uint32_t lane) {
        return (int)(lane % chunk_step);
    }
    static __device__ __forceinline__ int first_row(uint32_t lane) {
        return (int)(lane / chunk_step);
    }
    /* Offset in the tile of the lane's i-th row and j-th chunk; `first` is that of its first. */
    static __device__ __forceinline__ int offset(int first, int i, int j) {
        return (first ^ tile::exchange(i * row_step) * 8) + i * row_step * tile::row_elements +
               j * tile::panel_elements;
    }
};

template <kv_type KV> constexpr bool has_codes = KV == KV_INT8 || KV == KV_E4M3;

template <int D> constexpr int group_bytes = kv_group *(D + (int)sizeof(float)); /* codes, scales */

template <kv_type KV, int D> constexpr size_t tile_bytes() {
    constexpr size_t tile = (size_t)shared_tile<D>::elements * 2;
    return has_codes<KV> ? 2 * tile + 2 * (size_t)num_warps * group_bytes<D> : 3 * tile;
}

/* What all threads know about the current item, and the thread's number. Registers are scarce in
 * the loop over the context: what only its beginning and end need is read again from memory. */
template <class T, kv_type KV, int D> struct tile_context {
    const attention_launch &a;
    const attention_item *item;
    T *shared;
    uint32_t thread; /* of the block */

    __device__ __forceinline__ int lane() const {
        return (int)(thread % WARP_SIZE);
    }
    __device__ __forceinline__ int warp() const {
        return (int)(thread / WARP_SIZE);
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
    /* One group of tokens: [kv_group][head_dim] codes, contiguous rows; after the room for them
     * [kv_group] scales. */
    __device__ __forceinline__ unsigned char *codes(kv_part part, int group) const {
        return reinterpret_cast<unsigned char *>(shared + 2 * shared_tile<D>::elements) +
               (part * num_warps + group) * group_bytes<D>;
    }
    __device__ __forceinline__ float *scales(kv_part part, int group) const {
        return reinterpret_cast<float *>(codes(part, group) + kv_group * D);
    }
    /* Returns the position of the tile's row r; rows after the last count as the last. */
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
    /* The step's packed row that is the tile's row r, and a packed row's query head. */
    __device__ __forceinline__ int packed_row(int r) const {
        return run_of(r).first_row + r % item->run_rows;
    }
    __device__ __forceinline__ int head_of(int packed_row) const {
        return item->kv_head * a.group + packed_row % a.group;
    }
    /* First element of the tile's row r in [T, heads * head_dim] whose rows have `stride`. */
    __device__ __forceinline__ int64_t row_offset(int r, int64_t stride) const {
        int row = packed_row(r);
        return row / a.group * stride + (int64_t)head_of(row) * a.head_dim;
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
    for (uint32_t i = c.thread; i < ROWS * chunks; i += num_threads) {
        int row = (int)(i / chunks), chunk = (int)(i % chunks);
        bool valid = row < c.item->num_rows && chunk * 8 < c.a.head_dim;
        const T *from = valid ? qkv + c.row_offset(row, stride) + chunk * 8 : qkv;
        copy_async_16(c.q() + shared_tile<D>::offset(row, chunk), from, valid);
    }
}

/* Location of the blocks of an item's sequence and KV head. */
struct kv_source {
    int32_t entry;  /* of the block tables: the sequence's first block */
    uint32_t plane; /* of K, in a block */
};

template <class T, kv_type KV, int D>
__device__ __forceinline__ kv_source source_of(const tile_context<T, KV, D> &c) {
    const kv_layer_strides &s = c.a.strides;
    return {c.item->sequence * c.a.max_blocks_per_seq,
            (uint32_t)(s.first[KV_PART_K] + (size_t)c.item->kv_head * s.head)};
}

/* Returns the block with the group of 16 tokens from `token` on; any block if none of them
 * is_read. */
template <class T, kv_type KV, int D>
__device__ __forceinline__ uint32_t find_block(const tile_context<T, KV, D> &c,
                                               const kv_source &source, int token, bool is_read) {
    const int32_t entry = source.entry + (token >> c.a.block_shift);
    return is_read ? (uint32_t)__ldg(c.a.block_tables + entry) : 0;
}

template <class T, kv_type KV, int D>
__device__ __forceinline__ const char *
plane_of(const tile_context<T, KV, D> &c, const kv_source &source, uint32_t block, kv_part part) {
    const kv_layer_strides &s = c.a.strides;
    uint32_t after_k = (uint32_t)(s.first[KV_PART_V] - s.first[KV_PART_K]);
    return c.a.cache + (uint64_t)block * (uint32_t)s.block +
           (source.plane + (part == KV_PART_V ? after_k : 0));
}

template <class T, kv_type KV, int D>
__device__ __forceinline__ uint32_t token_in_block(const tile_context<T, KV, D> &c, int token) {
    return (uint32_t)token & ((1u << c.a.block_shift) - 1);
}

/* Fetches this warp's group into its 16 rows of `tile` in shared memory: rows begin .. end - 1 of
 * it, with zeros in the others and after head_dim. Invalid rows are not read at all. */
template <class T, kv_type KV, int D>
__device__ __forceinline__ void fetch_rows(const tile_context<T, KV, D> &c, const kv_source &source,
                                           uint32_t block, int token, kv_part part, T *tile,
                                           int begin, int end) {
    using map = lane_map<D>;
    const int row = map::first_row(c.lane()), chunk = map::first_chunk(c.lane());
    const int first = shared_tile<D>::offset(c.warp() * kv_group + row, chunk);
    const uint32_t stride = (uint32_t)c.a.strides.token;
    const char *from =
        plane_of(c, source, block, part) + ((token_in_block(c, token) + row) * stride + chunk * 16);
    begin -= row;
    end -= row;
#pragma unroll
    for (int i = 0; i < map::num_rows; i++, from += map::row_step * stride)
#pragma unroll
        for (int j = 0; j < map::num_chunks; j++) {
            bool valid = i * map::row_step >= begin && i * map::row_step < end &&
                         (chunk + j * map::chunk_step) * 8 < c.a.head_dim;
            copy_async_16(tile + map::offset(first, i, j), from + j * map::chunk_step * 16, valid);
        }
}

/* The same for its codes, unchanged, from the first row on, and for its scales. */
template <class T, kv_type KV, int D>
__device__ __forceinline__ void fetch_codes(const tile_context<T, KV, D> &c,
                                            const kv_source &source, uint32_t block, int token,
                                            kv_part part, int begin, int end) {
    constexpr int copy_bytes = WARP_SIZE * 16;
    const int at = c.lane() * 16, num_bytes = min(kv_group, end) * c.a.head_dim;
    const char *plane = plane_of(c, source, block, part);
    const uint32_t first = token_in_block(c, token);
    const char *from = plane + (first * (uint32_t)c.a.strides.token + at);
    unsigned char *codes = c.codes(part, c.warp()) + at;
#pragma unroll
    for (int i = 0; i < kv_group * D; i += copy_bytes)
        copy_async_16(codes + i, from + i, at + i < num_bytes);
    if (c.lane() < kv_group)
        copy_async_4(c.scales(part, c.warp()) + c.lane(),
                     plane + ((uint32_t)c.a.strides.scales + (first + c.lane()) * 4),
                     c.lane() >= begin && c.lane() < end);
}

template <class T, kv_type KV, int D>
__device__ __forceinline__ void fetch_group(const tile_context<T, KV, D> &c,
                                            const kv_source &source, uint32_t block, int token,
                                            kv_part part, T *tile, int begin, int end) {
    if constexpr (has_codes<KV>)
        fetch_codes(c, source, block, token, part, begin, end);
    else
        fetch_rows(c, source, block, token, part, tile, begin, end);
}
template <class T, kv_type KV, int D>
__device__ __forceinline__ void fetch_group(const tile_context<T, KV, D> &c,
                                            const kv_source &source, uint32_t block, int token,
                                            kv_part part, int begin, int end) {
    fetch_group(c, source, block, token, part, part == KV_PART_K ? c.k() : c.v(), begin, end);
}

/* Unpacks the codes that this warp fetched into its rows of the tile. After head_dim come arbitrary
 * bytes as finite numbers: the queries have zeros there, and nobody reads the sums. */
template <class T, kv_type KV, int D>
__device__ __forceinline__ void unpack_group(const tile_context<T, KV, D> &c, kv_part part) {
    using map = lane_map<D>;
    const int row = map::first_row(c.lane()), chunk = map::first_chunk(c.lane());
    const int first = shared_tile<D>::offset(c.warp() * kv_group + row, chunk);
    const unsigned char *codes = c.codes(part, c.warp()) + row * c.a.head_dim + chunk * 8;
    const float *scales = c.scales(part, c.warp()) + row;
    T *tile = part == KV_PART_K ? c.k() : c.v();
    __syncwarp(); /* each lane has waited for what it fetched */
#pragma unroll
    for (int i = 0; i < map::num_rows; i++, codes += map::row_step * c.a.head_dim) {
        const float scale = part == KV_PART_V ? scales[i * map::row_step] * kv_code_unit<KV> : 1;
#pragma unroll
        for (int j = 0; j < map::num_chunks; j++) {
            uint2 eight = *reinterpret_cast<const uint2 *>(codes + j * map::chunk_step * 8);
            *reinterpret_cast<uint4 *>(tile + map::offset(first, i, j)) =
                part == KV_PART_K ? unpack_codes<KV, T>(eight) : unpack_scaled<KV, T>(eight, scale);
        }
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
