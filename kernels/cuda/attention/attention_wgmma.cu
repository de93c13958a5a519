/* The attention of wide tiles for compute capability 9.0: that of attention.cuh, item by item, but
 * multiplied by wgmma. A block is one warpgroup, whose 64 rows meet all tokens of a tile in one
 * product, so that K and V are read from shared memory once and not by each warp.
 *
 *   S = Q K^T  Q in registers, or where these do not suffice in shared memory; K as it lies
 *   O += P V   P in registers, where the scores were; V transposed
 *
 * K and V come by cp.async, as blocks of the cache are scattered and short; each thread's
 * fence_async_proxy and a barrier let wgmma read them. Shared memory in order:
 *
 *   plain, D <= 128  K of odd tiles, Q before | K of even | V of even | V of odd    one barrier a
 *                    tile, after which both of the next are fetched
 *   plain, D = 256   Q | K | V                  V is fetched during the scores, K during the sums
 *   quantised        as in attention_tile.cuh   both codes are fetched during the sums
 *
 * A warp has a part in every product. Where its rows see nothing of a tile, it is masked. */
#include "kernels/cuda/attention/attention.cuh"

namespace attention {

constexpr size_t swizzle_alignment = 1024; /* of shared memory and each tile */

template <kv_type KV, int D> constexpr bool has_two_stages = !has_codes<KV> && D <= 128;
/* Whether Q stays in registers. */
template <kv_type KV, int D> constexpr bool keeps_queries = !is_short_of_registers<KV, D>;

template <kv_type KV, int D> constexpr size_t wgmma_shared_bytes() {
    constexpr size_t tile = (size_t)shared_tile<D>::elements * 2;
    constexpr size_t bytes = has_two_stages<KV, D> ? 4 * tile : tile_bytes<KV, D>();
    static_assert(tile % swizzle_alignment == 0, "tiles begin where the swizzle's pattern does");
    return (bytes + swizzle_alignment - 1) / swizzle_alignment * swizzle_alignment;
}

/* Of a tile, transposed or not. */
template <int D, class T> __device__ __forceinline__ uint64_t descriptor_of(const T *tile) {
    using layout = shared_tile<D>;
    return matrix_descriptor(tile, layout::row_elements * 2, layout::panel_elements * 2,
                             layout::row_elements * 2 * 8);
}
/* How much further columns 16 d on are. */
template <int D> __device__ __forceinline__ uint64_t column_step(int d) {
    using layout = shared_tile<D>;
    return (uint64_t)(2 * d / layout::panel_chunks * (layout::panel_elements / 8) +
                      2 * d % layout::panel_chunks);
}
/* And rows 16 n on. */
template <int D> __device__ __forceinline__ uint64_t row_step(int n) {
    return (uint64_t)(16 * n * shared_tile<D>::row_elements / 8);
}

template <class T, kv_type KV, int D>
__device__ __forceinline__ void load_queries(const tile_context<T, KV, D> &c,
                                             uint32_t (&q)[D / 16][4]) {
#pragma unroll
    for (int d = 0; d < D / 16; d++)
        ldmatrix_x4(q[d], c.q() + shared_tile<D>::matrix_offset(c.warp() * 16, c.lane() & 15, 2 * d,
                                                                c.lane() >> 4));
}

template <class T, kv_type KV, int D>
__device__ __forceinline__ void score_wgmma(const tile_context<T, KV, D> &c,
                                            const uint32_t (&q)[D / 16][4], const T *keys,
                                            float (&scores)[ATTENTION_KV_TILE / 8][4]) {
    const uint64_t k = descriptor_of<D>(keys);
    wgmma_fence(scores);
#pragma unroll
    for (int d = 0; d < D / 16; d++)
        if constexpr (keeps_queries<KV, D>)
            wgmma_m64k16<T, false>(scores, q[d], k + column_step<D>(d), d > 0);
        else
            wgmma_m64k16<T, false>(scores, descriptor_of<D>(c.q()) + column_step<D>(d),
                                   k + column_step<D>(d), d > 0);
    wgmma_commit();
    wgmma_wait<0>(scores);
}

template <class T, int D>
__device__ __forceinline__ void accumulate_wgmma(const float (&weights)[ATTENTION_KV_TILE / 8][4],
                                                 const T *values, row_state<D> &state) {
    constexpr int columns = D <= 128 ? D : 128; /* of one product */
    const uint64_t v = descriptor_of<D>(values);
    uint32_t p[ATTENTION_KV_TILE / 16][4];
#pragma unroll
    for (int n = 0; n < ATTENTION_KV_TILE / 8; n++) {
        /* Opaque, so that they are written before the fence. */
        p[n / 2][n % 2 * 2] = opaque(pack2<T>(weights[n][0], weights[n][1]));
        p[n / 2][n % 2 * 2 + 1] = opaque(pack2<T>(weights[n][2], weights[n][3]));
    }
    wgmma_fence(state.out);
#pragma unroll
    for (int n = 0; n < ATTENTION_KV_TILE / 16; n++)
#pragma unroll
        for (int d = 0; d < D; d += columns)
            wgmma_m64k16<T, true>(reinterpret_cast<float(&)[columns / 8][4]>(state.out[d / 8]),
                                  p[n], v + row_step<D>(n) + column_step<D>(d / 16), true);
    wgmma_commit();
    wgmma_wait<0>(state.out);
#pragma unroll
    for (int n = 0; n < ATTENTION_KV_TILE / 16; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[n][i] = opaque(p[n][i]); /* until here its registers are read */
}

/* What all threads stored to shared memory is there for their products. */
__device__ __forceinline__ void open_to_wgmma() {
    fence_async_proxy();
    __syncthreads();
}

template <class T, kv_type KV, int D>
__device__ __forceinline__ void attend_wgmma(tile_context<T, KV, D> c, row_state<D> &state) {
    constexpr bool two_stages = has_two_stages<KV, D>, codes = has_codes<KV>;
    const int first_row = c.warp() * 16;
    const int kv_end = c.item->kv_end;
    const int window = c.a.window > 0 ? c.a.window : INT32_MAX;
    const row_positions rows = positions_of(c, first_row);
    clear(state);

    /* Only the item's first tile can have earlier tokens. */
    const int first_seen = max(c.position(0) - window + 1, 0);
    const kv_source source = source_of(c);
    int begin = c.item->kv_begin;
    int group = begin + c.warp() * kv_group; /* the first of the tokens this warp fetches */
    uint32_t block = find_block(c, source, group, group < kv_end && group + kv_group > first_seen);
    fetch_group(c, source, block, group, KV_PART_K, first_seen - group, kv_end - group);
    fetch_group(c, source, block, group, KV_PART_V, first_seen - group, kv_end - group);
    fetch_queries<ATTENTION_WIDE_ROWS>(c);
    copy_async_commit();
    copy_async_wait<0>();
    uint32_t q[D / 16][4];
    if constexpr (keeps_queries<KV, D>) {
        __syncthreads();
        load_queries(c, q);
    }
    int odd = 0; /* an odd tile: elements between the places of it and of an even one */
    for (; begin < kv_end; begin += ATTENTION_KV_TILE) {
        if (is_short_of_registers<KV, D>)
            c.thread = opaque(c.thread);
        const bool has_next = begin + ATTENTION_KV_TILE < kv_end;
        const uint32_t next =
            find_block(c, source, group + ATTENTION_KV_TILE, group + ATTENTION_KV_TILE < kv_end);
        copy_async_wait<codes ? 1 : 0>(); /* V's codes are still on their way */
        if constexpr (codes) {
            __syncthreads();
            unpack_group(c, KV_PART_K);
        }
        open_to_wgmma();
        if constexpr (!two_stages && !codes) {
            if (begin > c.item->kv_begin)
                fetch_group(c, source, block, group, KV_PART_V, 0, kv_end - group);
            copy_async_commit();
        }
        block = next;
        group += ATTENTION_KV_TILE;
        if constexpr (two_stages) {
            const int other = shared_tile<D>::elements - odd;
            if (has_next) {
                fetch_rows(c, source, block, group, KV_PART_K, c.k() - other, 0, kv_end - group);
                fetch_rows(c, source, block, group, KV_PART_V, c.v() + other, 0, kv_end - group);
            }
            copy_async_commit();
        }
        float scores[ATTENTION_KV_TILE / 8][4];
        score_wgmma(c, q, c.k() - odd, scores);
        if constexpr (codes)
            scale_scores(c, 0, scores);
        weigh_tile(c, first_row, rows, window, begin, min(begin + ATTENTION_KV_TILE, kv_end),
                   scores, state);
        if constexpr (!two_stages) {
            copy_async_wait<0>();
            if constexpr (codes) {
                __syncthreads();
                unpack_group(c, KV_PART_V);
            }
            open_to_wgmma();
            if (has_next)
                fetch_group(c, source, block, group, KV_PART_K, 0, kv_end - group);
            copy_async_commit();
            if (codes && has_next)
                fetch_group(c, source, block, group, KV_PART_V, 0, kv_end - group);
            copy_async_commit();
        }
        accumulate_wgmma(scores, c.v() + odd, state);
        if constexpr (two_stages)
            odd = shared_tile<D>::elements - odd;
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
        state.sum[r] = sum_of_quad(state.sum[r]);
}

template <class T, kv_type KV, int D, int BLOCKS>
__global__ void __launch_bounds__(num_threads, BLOCKS)
    wgmma_attention_kernel(const __grid_constant__ attention_launch a) {
    DYNAMIC_SHARED_AT(swizzle_alignment, T, shared);
    let_next_begin();
    for (const attention_item *item = a.items + a.block_items[blockIdx.x];
         item < a.items + a.block_items[blockIdx.x + 1]; item++) {
        const tile_context<T, KV, D> c = {a, item, shared, threadIdx.x};
        row_state<D> state;
        __syncthreads(); /* the item before is done with shared memory */
        attend_wgmma(c, state);
        store_item<true>(c, state);
    }
}

template <int D, int BLOCKS> struct wgmma_kernels {
    template <class T, kv_type KV>
    static constexpr auto kernel = wgmma_attention_kernel<T, KV, D, BLOCKS>;
    template <kv_type KV> static constexpr size_t bytes = wgmma_shared_bytes<KV, D>();
};

template <class Kernels>
static cudaError_t launch_wgmma(cudaStream_t stream, bool bf16, kv_type type,
                                const attention_launch &args) {
    return use_kernel<Kernels>(bf16, type, [&](auto *wgmma_attention_kernel, size_t bytes) {
        LAUNCH(wgmma_attention_kernel, (unsigned)args.num_blocks, num_threads, bytes, stream, args);
        return cudaGetLastError();
    });
}

} // namespace attention

/* The launchers of one padded head_dim, and how many blocks a multiprocessor has registers for. */
#define WGMMA_ATTENTION_DEFINE(head_dim, blocks)                                                   \
    cudaError_t launch_wgmma_attention_##head_dim##_prepare(bool bf16, enum kv_type type,          \
                                                            int *out_blocks) {                     \
        return attention::prepare<attention::wgmma_kernels<head_dim, blocks>>(bf16, type,          \
                                                                              out_blocks);         \
    }                                                                                              \
    cudaError_t launch_wgmma_attention_##head_dim(                                                 \
        cudaStream_t stream, bool bf16, enum kv_type type, const struct attention_launch *args) {  \
        return attention::launch_wgmma<attention::wgmma_kernels<head_dim, blocks>>(stream, bf16,   \
                                                                                   type, *args);   \
    }

WGMMA_ATTENTION_DEFINE(64, 4)
WGMMA_ATTENTION_DEFINE(96, 3)
WGMMA_ATTENTION_DEFINE(128, 3)
WGMMA_ATTENTION_DEFINE(256, 2)
