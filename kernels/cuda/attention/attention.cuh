/* The attention kernel, for one type T of activations, one type KV of the cache (T's own, or a
 * quantised one), and one head_dim D that rows are padded to with zeros; attention_D.cu holds the
 * types of one D. attention_wgmma.cu has wide tiles of its own for GPUs with wgmma.
 *
 * A block of 4 warps processes one item after the other. K and V pass through shared memory in
 * tiles of 64 tokens, of which warp w always fetches the 16 tokens from 16 w on: a group that lies
 * within one block of the cache, found by one look-up. What a warp computes depends on the kind of
 * tile, one per kernel:
 *   wide    64 query rows: warp w has rows 16 w .. 16 w + 15 and sees all tokens of the tile
 *   narrow  16 query rows: every warp has them all and sees its own 16 tokens only, so that warps
 *           do not wait for one another; their results are merged at the end, in warp order
 * Rows are those of one sequence, or of several that share the item's range (attention_prefix.h),
 * which differ only in where queries come from and results go. K of the next tile is fetched as
 * soon as the scores are done, V as soon as it was used, so both are being fetched most of the
 * time. Scores and sums are in float, computed by mma; weights are rounded to T for the second
 * product, as they are in its operand's registers already.
 *
 * Softmax is in base 2 and online. A row's scores are kept as `raw` with one factor for all: weight
 * = 2^((raw - maximum) factor). A tile that a row does not see changes none of its bits: its
 * weights are 0 and its correction 2^0 = 1. Tokens after the range's end, and those of its first
 * tile that no row's window reaches, are zeros in shared memory: the cache may hold NaN or another
 * sequence's data there, and 0 x NaN is NaN. A sink joins a row's sum when all of its context was
 * seen.
 *
 * Shared memory is described in attention_tile.cuh; the merge of a narrow tile overlays it. Without
 * padding two blocks of D = 128 fit into the 100 KiB of sm_86 and sm_89. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_CUH

#include "kernels/cuda/attention/attention_tile.cuh"

namespace attention {

constexpr float log2_e = 1.4426950408889634f;

/* A narrow tile's results of each warp, while they are merged. */
template <int D> struct warp_results {
    static constexpr int stride = D + 8; /* floats; rows start 8 banks apart */
    static constexpr int floats = num_warps * ATTENTION_NARROW_ROWS * stride;
    static constexpr int total_floats = floats + num_warps * ATTENTION_NARROW_ROWS * 2;
};

template <kv_type KV, int D> constexpr size_t shared_bytes() {
    static_assert(warp_results<D>::total_floats * sizeof(float) <= tile_bytes<KV, D>(),
                  "the merge overlays the tiles");
    return tile_bytes<KV, D>();
}

/* A thread's share of 16 rows: rows lane / 4 and lane / 4 + 8, and of D the columns
 * 8 i + 2 (lane % 4) and the next, as mma leaves them. */
template <int D> struct row_state {
    float out[D / 8][4];
    float max[2]; /* raw; -infinity: nothing seen */
    float sum[2]; /* of this thread's tokens until sum_of_quad */
};

/* scores[n] of 16 rows with the tokens first_token + 8 n .. 8 n + 7 of the tile. */
template <class T, kv_type KV, int D, int N>
__device__ __forceinline__ void score(const tile_context<T, KV, D> &c, int first_row,
                                      int first_token, float (&scores)[N][4]) {
    using tile = shared_tile<D>;
#pragma unroll
    for (int n = 0; n < N; n++)
        scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0;
#pragma unroll(N == 2 ? D / 16 : 4)
    for (int d = 0; d < D / 16; d++) {
        uint32_t q[4];
        ldmatrix_x4(q, c.q() + tile::matrix_offset(first_row, c.lane() & 15, 2 * d, c.lane() >> 4));
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t k[4];
            ldmatrix_x4(k, c.k() + tile::matrix_offset(first_token + 8 * n,
                                                       (c.lane() >> 4) * 8 + (c.lane() & 7), 2 * d,
                                                       c.lane() >> 3 & 1));
            uint32_t low[2] = {k[0], k[1]}, high[2] = {k[2], k[3]};
            mma_m16n8k16<T>(scores[n], q, low);
            mma_m16n8k16<T>(scores[n + 1], q, high);
        }
    }
}

/* From products with codes to products with K. */
template <class T, kv_type KV, int D, int N>
__device__ __forceinline__ void scale_scores(const tile_context<T, KV, D> &c, int first_token,
                                             float (&scores)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        const float *scales = c.scales(KV_PART_K, first_token / kv_group + n / 2);
        float2 scale = *reinterpret_cast<const float2 *>(scales + n % 2 * 8 + 2 * (c.lane() & 3));
        scores[n][0] *= scale.x * kv_code_unit<KV>;
        scores[n][1] *= scale.y * kv_code_unit<KV>;
        scores[n][2] *= scale.x * kv_code_unit<KV>;
        scores[n][3] *= scale.y * kv_code_unit<KV>;
    }
}

/* Adds the keys' missing biases to this thread's scores of 16 rows; token: the first of them. A
 * query (x, y) and a bias (a, b), turned by (cos, sin), meet in (x a + y b) cos + (y a - x b)
 * sin. */
template <class T, kv_type KV, int D, int N>
__device__ __forceinline__ void add_key_bias(tile_context<T, KV, D> c, int first_row, int begin,
                                             float (&scores)[N][4]) {
    c.thread = opaque(c.thread); /* so that none of this is computed without biases */
    const int token = begin + 2 * (c.lane() & 3);
    const key_biases &turning = c.a.key_biases;
    const key_bias &bias = turning.heads[c.item->kv_head];
#pragma unroll 1
    for (int i = bias.num_pairs - 1; i >= 0; i--) {
        const int pair = bias.pairs[i], x = turning.interleaved ? 2 * pair : pair;
        const int half = turning.rotary_dim / 2, y = x + (turning.interleaved ? 1 : half);
        float2 terms[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = first_row + (c.lane() >> 2) + 8 * r;
            const float qx = to_float(c.q()[shared_tile<D>::offset(row, x / 8) + x % 8]);
            const float qy = to_float(c.q()[shared_tile<D>::offset(row, y / 8) + y % 8]);
            terms[r] = make_float2(qx * bias.values[i][0] + qy * bias.values[i][1],
                                   qy * bias.values[i][0] - qx * bias.values[i][1]);
        }
        const float *cosines = turning.rope_columns + ((int64_t)pair * turning.stride + token);
        const float *sines = cosines + (int64_t)half * turning.stride;
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float2 cosine = __ldg(reinterpret_cast<const float2 *>(cosines + 8 * n));
            const float2 sine = __ldg(reinterpret_cast<const float2 *>(sines + 8 * n));
            scores[n][0] += terms[0].x * cosine.x + terms[0].y * sine.x;
            scores[n][1] += terms[0].x * cosine.y + terms[0].y * sine.y;
            scores[n][2] += terms[1].x * cosine.x + terms[1].y * sine.x;
            scores[n][3] += terms[1].x * cosine.y + terms[1].y * sine.y;
        }
    }
}

/* From products to raw scores: tanh where there is a cap, -infinity where the row does not see the
 * token. tanh(x) = 1 - 2 / (e^2x + 1), to 1e-6; a division
 * would cost registers. */
template <int N>
__device__ __forceinline__ void cap_scores(float (&scores)[N][4], float scale_over_cap) {
    float factor = 2 * log2_e * scale_over_cap;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float root = rsqrtf(exp2_fast(scores[n][i] * factor) + 1);
            scores[n][i] = 1 - 2 * root * root;
        }
}
template <int N>
__device__ __forceinline__ void mask_scores(float (&scores)[N][4], int token, int kv_end,
                                            int position_low, int position_high, int window) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int t = token + 8 * n + (i & 1), position = i < 2 ? position_low : position_high;
            if (t >= kv_end || t > position || t <= position - window)
                scores[n][i] = -INFINITY;
        }
}

__device__ __forceinline__ float max_of_quad(float x) {
    x = fmaxf(x, __shfl_xor_sync(FULL_MASK, x, 1));
    return fmaxf(x, __shfl_xor_sync(FULL_MASK, x, 2));
}
__device__ __forceinline__ float sum_of_quad(float x) {
    x += __shfl_xor_sync(FULL_MASK, x, 1);
    return x + __shfl_xor_sync(FULL_MASK, x, 2);
}

/* Returns the max that 2^((raw - max) factor) subtracts: 0 until something was seen, since infinity
 * minus infinity is NaN. */
__device__ __forceinline__ float reference_of(float max) {
    return max == -INFINITY ? 0.0f : max;
}

/* Turns raw scores into weights, and rescales the sums so far to the new maximum. */
template <int D, int N>
__device__ __forceinline__ void weigh(float (&scores)[N][4], row_state<D> &state, float factor) {
    float corrections[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float max = state.max[r];
#pragma unroll
        for (int n = 0; n < N; n++)
            max = fmaxf(max, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
        max = max_of_quad(max);
        float reference = reference_of(max);
        corrections[r] = exp2_fast((state.max[r] - reference) * factor);
        state.max[r] = max;
        state.sum[r] *= corrections[r];
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                scores[n][i] = exp2_fast((scores[n][i] - reference) * factor);
                state.sum[r] += scores[n][i];
            }
    }
    /* After a while, hardly any row gets a new maximum. */
    if (__ballot_sync(FULL_MASK, corrections[0] != 1 || corrections[1] != 1) == 0)
        return;
#pragma unroll
    for (int d = 0; d < D / 8; d++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            state.out[d][i] *= corrections[i / 2];
}

/* state.out += weights x V, tokens first_token .. first_token + 8 N - 1 of the tile. */
template <class T, kv_type KV, int D, int N>
__device__ __forceinline__ void accumulate(const tile_context<T, KV, D> &c, int first_token,
                                           const float (&weights)[N][4], row_state<D> &state) {
    using tile = shared_tile<D>;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        uint32_t p[4] = {pack2<T>(weights[n][0], weights[n][1]),
                         pack2<T>(weights[n][2], weights[n][3]),
                         pack2<T>(weights[n + 1][0], weights[n + 1][1]),
                         pack2<T>(weights[n + 1][2], weights[n + 1][3])};
#pragma unroll
        for (int d = 0; d < D / 8; d += 2) {
            uint32_t v[4];
            ldmatrix_x4_trans(v, c.v() + tile::matrix_offset(first_token + 8 * n, c.lane() & 15, d,
                                                             c.lane() >> 4));
            uint32_t low[2] = {v[0], v[1]}, high[2] = {v[2], v[3]};
            mma_m16n8k16<T>(state.out[d], p, low);
            mma_m16n8k16<T>(state.out[d + 1], p, high);
        }
    }
}

template <int D> __device__ __forceinline__ void clear(row_state<D> &state) {
#pragma unroll
    for (int d = 0; d < D / 8; d++)
        state.out[d][0] = state.out[d][1] = state.out[d][2] = state.out[d][3] = 0;
    state.max[0] = state.max[1] = -INFINITY;
    state.sum[0] = state.sum[1] = 0;
}

/* Positions of a warp's 16 rows; a warp without rows sees nothing. */
struct row_positions {
    int first, last;
};

template <class T, kv_type KV, int D>
__device__ __forceinline__ row_positions positions_of(const tile_context<T, KV, D> &c,
                                                      int first_row) {
    return {c.position(first_row), first_row < c.item->num_rows ? c.position(first_row + 15) : -1};
}

/* From products to weights: 16 rows with the tokens from `begin` on, of which those from `end` on
 * do not count. */
template <class T, kv_type KV, int D, int N>
__device__ __forceinline__ void weigh_tile(const tile_context<T, KV, D> &c, int first_row,
                                           row_positions rows, int window, int begin, int end,
                                           float (&scores)[N][4], row_state<D> &state) {
    if (has_codes<KV> && c.a.key_biases.heads != nullptr)
        add_key_bias(c, first_row, begin, scores);
    if (c.a.soft_cap > 0)
        cap_scores(scores, c.a.scale / c.a.soft_cap);
    if (end > rows.first + 1 || end < begin + 8 * N || begin <= rows.last - window)
        mask_scores(scores, begin + 2 * (c.lane() & 3), end,
                    c.position(first_row + (c.lane() >> 2)),
                    c.position(first_row + (c.lane() >> 2) + 8), window);
    weigh(scores, state, c.a.factor);
}

/* Whether a tile needs so many registers that values derived from the thread's number are
 * recomputed for each tile; otherwise registers would be spilled. */
template <kv_type KV, int D>
constexpr bool is_short_of_registers = D == 256 || (D == 128 && has_codes<KV>);

/* Processes all of the item's range for this warp's 16 rows, or only this warp's tokens of it. */
template <bool WIDE, class T, kv_type KV, int D>
__device__ __forceinline__ void attend(tile_context<T, KV, D> c, row_state<D> &state) {
    constexpr int num_tokens = WIDE ? ATTENTION_KV_TILE : kv_group; /* seen of a tile */
    const int first_row = WIDE ? c.warp() * 16 : 0;
    const int first_token = WIDE ? 0 : c.warp() * kv_group; /* likewise */
    const int kv_end = c.item->kv_end;
    const int window = c.a.window > 0 ? c.a.window : INT32_MAX;
    const row_positions rows = positions_of(c, first_row);
    clear(state);

    /* Only the item's first tile can have earlier tokens. */
    const int first_seen = max(c.position(0) - window + 1, 0);
    const kv_source source = source_of(c);
    int tile = c.item->kv_begin;
    int group = tile + c.warp() * kv_group; /* the first of the tokens this warp fetches */
    uint32_t block = find_block(c, source, group, group < kv_end && group + kv_group > first_seen);
    fetch_group(c, source, block, group, KV_PART_K, first_seen - group, kv_end - group);
    fetch_queries<WIDE ? ATTENTION_WIDE_ROWS : ATTENTION_NARROW_ROWS>(c);
    copy_async_commit();
    fetch_group(c, source, block, group, KV_PART_V, first_seen - group, kv_end - group);
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads(); /* the queries, which all warps fetched */
    for (; tile < kv_end; tile += ATTENTION_KV_TILE) {
        if (is_short_of_registers<KV, D>)
            c.thread = opaque(c.thread);
        const int begin = tile + first_token, end = min(begin + num_tokens, kv_end);
        const bool sees = begin < end && begin <= rows.last && end > rows.first - window + 1;
        float scores[num_tokens / 8][4];
        group += ATTENTION_KV_TILE;
        block = find_block(c, source, group, group < kv_end);
        copy_async_wait<1>();
        if constexpr (has_codes<KV>)
            unpack_group(c, KV_PART_K);
        sync_tile<WIDE>();
        if (sees) {
            score(c, first_row, first_token, scores);
            if constexpr (has_codes<KV>)
                scale_scores(c, first_token, scores);
        }
        sync_tile<WIDE>();
        if (tile + ATTENTION_KV_TILE < kv_end)
            fetch_group(c, source, block, group, KV_PART_K, 0, kv_end - group);
        copy_async_commit();
        if (sees)
            weigh_tile(c, first_row, rows, window, begin, end, scores, state);
        copy_async_wait<1>();
        if constexpr (has_codes<KV>)
            unpack_group(c, KV_PART_V);
        sync_tile<WIDE>();
        if (sees)
            accumulate(c, first_token, scores, state);
        sync_tile<WIDE>();
        if (tile + ATTENTION_KV_TILE < kv_end)
            fetch_group(c, source, block, group, KV_PART_V, 0, kv_end - group);
        copy_async_commit();
    }
    copy_async_wait<0>();
#pragma unroll
    for (int r = 0; r < 2; r++)
        state.sum[r] = sum_of_quad(state.sum[r]);
}

/* Returns the factor of the sums of the tile's row r, whose whole context was seen. A sink that
 * outweighs all tokens leaves zeros. */
template <class T, kv_type KV, int D>
__device__ __forceinline__ float norm_of(const tile_context<T, KV, D> &c, int r, float max,
                                         float sum) {
    if (c.a.sinks != nullptr)
        sum += exp2_fast(c.a.sinks[c.head_of(c.packed_row(r))] * log2_e -
                         reference_of(max) * c.a.factor);
    return 1 / sum;
}

/* Stores the results of a wide tile: each warp has complete rows. */
template <class T, kv_type KV, int D>
__device__ __forceinline__ void store_wide(const tile_context<T, KV, D> &c,
                                           const row_state<D> &state) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = c.warp() * 16 + (c.lane() >> 2) + 8 * r;
        if (row >= c.item->num_rows)
            continue;
        int column = 2 * (c.lane() & 3);
        if (c.run_of(0).num_parts == 0) {
            T *out = c.out_row(row);
            float norm = norm_of(c, row, state.max[r], state.sum[r]);
#pragma unroll
            for (int d = 0; d < D / 8; d++)
                if (8 * d < c.a.head_dim)
                    *reinterpret_cast<uint32_t *>(out + 8 * d + column) =
                        pack2<T>(state.out[d][2 * r] * norm, state.out[d][2 * r + 1] * norm);
        } else {
            int part_row = c.part_row(c.item->part, row);
            float *out = c.part_out(part_row);
#pragma unroll
            for (int d = 0; d < D / 8; d++)
                *reinterpret_cast<float2 *>(out + 8 * d + column) =
                    make_float2(state.out[d][2 * r], state.out[d][2 * r + 1]);
            if ((c.lane() & 3) == 0)
                *reinterpret_cast<float2 *>(c.part_state(part_row)) =
                    make_float2(state.max[r], state.sum[r]);
        }
    }
}

__device__ __forceinline__ float max_of_warp(float x) {
#pragma unroll
    for (int step = WARP_SIZE / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(FULL_MASK, x, step));
    return x;
}

/* The partial results of a row, one source after the other. */
struct row_parts {
    const float *states; /* maximum and sum of the first */
    const float *outs;   /* its row */
    int num;
    int state_stride, out_stride; /* from a source to the next */

    __device__ __forceinline__ float2 state(int i) const {
        return i < num ? *reinterpret_cast<const float2 *>(states + i * state_stride)
                       : make_float2(-INFINITY, 0);
    }
};

/* Adds up the sources of one row in order, each rescaled to the common maximum. A warp has the row,
 * a lane four columns of each 128. Calls store(column, four sums, maximum, sum) for every four
 * columns. Loads do not wait for each other. */
template <class Store>
__device__ __forceinline__ void merge_row(int lane, const row_parts &parts, float factor,
                                          int head_dim, Store store) {
    const float2 first_state = parts.state(lane);
    float max = first_state.x;
    for (int i = lane + WARP_SIZE; i < parts.num; i += WARP_SIZE)
        max = fmaxf(max, parts.state(i).x);
    max = max_of_warp(max);
    for (int column = 4 * lane; column - 4 * lane < head_dim; column += 4 * WARP_SIZE) {
        const float *out = parts.outs + min(column, head_dim - 4);
        float4 total = make_float4(0, 0, 0, 0);
        float sum = 0;
        for (int first = 0; first < parts.num; first += WARP_SIZE) {
            const float2 state = first == 0 ? first_state : parts.state(first + lane);
            const float own_weight = exp2_fast((state.x - reference_of(max)) * factor);
            const int end = min(WARP_SIZE, parts.num - first);
#pragma unroll 4
            for (int i = 0; i < end; i++, out += parts.out_stride) {
                float4 x = *reinterpret_cast<const float4 *>(out);
                float weight = __shfl_sync(FULL_MASK, own_weight, i);
                sum += __shfl_sync(FULL_MASK, state.y, i) * weight;
                total.x += x.x * weight;
                total.y += x.y * weight;
                total.z += x.z * weight;
                total.w += x.w * weight;
            }
        }
        if (column < head_dim)
            store(column, total, max, sum);
    }
}

template <class T> __device__ __forceinline__ void store_4(T *out, float4 x, float norm) {
    *reinterpret_cast<uint2 *>(out) =
        make_uint2(pack2<T>(x.x * norm, x.y * norm), pack2<T>(x.z * norm, x.w * norm));
}

/* Stores the results of a narrow tile: those of the four warps, merged through shared memory. */
template <class T, kv_type KV, int D>
__device__ __forceinline__ void store_narrow(const tile_context<T, KV, D> &c,
                                             const row_state<D> &state) {
    using results = warp_results<D>;
    constexpr int rows = ATTENTION_NARROW_ROWS;
    float *outs = reinterpret_cast<float *>(c.shared), *states = outs + results::floats;
    __syncthreads(); /* nobody reads a tile any more */
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = c.warp() * rows + (c.lane() >> 2) + 8 * r;
#pragma unroll
        for (int d = 0; d < D / 8; d++)
            *reinterpret_cast<float2 *>(outs + row * results::stride + 8 * d + 2 * (c.lane() & 3)) =
                make_float2(state.out[d][2 * r], state.out[d][2 * r + 1]);
        if ((c.lane() & 3) == 0)
            *reinterpret_cast<float2 *>(states + 2 * row) = make_float2(state.max[r], state.sum[r]);
    }
    __syncthreads();
    const bool is_whole = c.run_of(0).num_parts == 0;
    for (int row = c.warp(); row < c.item->num_rows; row += num_warps) {
        const row_parts parts = {states + 2 * row, outs + row * results::stride, num_warps,
                                 2 * rows, rows * results::stride};
        merge_row(c.lane(), parts, c.a.factor, c.a.head_dim,
                  [&](int column, float4 x, float max, float sum) {
                      if (is_whole) {
                          store_4(c.out_row(row) + column, x, norm_of(c, row, max, sum));
                          return;
                      }
                      int part_row = c.part_row(c.item->part, row);
                      *reinterpret_cast<float4 *>(c.part_out(part_row) + column) = x;
                      if (column == 0)
                          *reinterpret_cast<float2 *>(c.part_state(part_row)) =
                              make_float2(max, sum);
                  });
    }
}

/* Counts this part of each of the item's runs; the block with a run's last part merges its
 * parts. */
template <class T, kv_type KV, int D>
__device__ __forceinline__ void finish_part(const tile_context<T, KV, D> &c) {
    int32_t *is_last = reinterpret_cast<int32_t *>(c.shared);
    const int i = (int)c.thread;
    __syncthreads();
    if (i < c.item->num_rows / c.item->run_rows) {
        const int run = c.run_index(i);
        __threadfence(); /* the block's results are visible before the count is */
        is_last[i] = atomicAdd(c.a.part_counts + run, 1) + 1 == c.a.runs[run].num_parts;
        __threadfence(); /* and the others' to this block, if it is the last */
        if (is_last[i])
            c.a.part_counts[run] = 0; /* for the next launch */
    }
    __syncthreads();
    for (int row = c.warp(); row < c.item->num_rows; row += num_warps) {
        if (!is_last[row / c.item->run_rows])
            continue;
        const int first = c.part_row(0, row), run_rows = c.item->run_rows;
        const row_parts parts = {c.part_state(first), c.part_out(first), c.run_of(row).num_parts,
                                 2 * run_rows, run_rows * D};
        merge_row(c.lane(), parts, c.a.factor, c.a.head_dim,
                  [&](int column, float4 x, float max, float sum) {
                      store_4(c.out_row(row) + column, x, norm_of(c, row, max, sum));
                  });
    }
}

template <bool WIDE, class T, kv_type KV, int D>
__device__ __forceinline__ void store_item(tile_context<T, KV, D> c, const row_state<D> &state) {
    c.thread = opaque(c.thread); /* what follows from it is not kept during the loop */
    if (WIDE)
        store_wide(c, state);
    else
        store_narrow(c, state);
    if (c.run_of(0).num_parts > 0) {
        __syncthreads(); /* nobody reads a tile any more */
        finish_part(c);
    }
}

template <bool WIDE, class T, kv_type KV, int D, int BLOCKS>
__global__ void __launch_bounds__(num_threads, BLOCKS)
    attention_kernel(const __grid_constant__ attention_launch a) {
    DYNAMIC_SHARED(T, shared);
    let_next_begin();
    /* Reads the list's end again, to save a register. */
    for (const attention_item *item = a.items + a.block_items[blockIdx.x];
         item < a.items + a.block_items[blockIdx.x + 1]; item++) {
        const tile_context<T, KV, D> c = {a, item, shared, threadIdx.x};
        row_state<D> state;
        __syncthreads(); /* the item before is done with shared memory */
        attend<WIDE>(c, state);
        store_item<WIDE>(c, state);
    }
}

template <bool WIDE, int D, int BLOCKS> struct mma_kernels {
    template <class T, kv_type KV>
    static constexpr auto kernel = attention_kernel<WIDE, T, KV, D, BLOCKS>;
    template <kv_type KV> static constexpr size_t bytes = shared_bytes<KV, D>();
};

/* Calls use(kernel, bytes of shared memory) for one kind of tile, by the types of the activations
 * and the cache; the cache's plain type is that of the activations. */
template <class Kernels, class Use>
static cudaError_t use_kernel(bool bf16, kv_type type, Use use) {
    using bf = __nv_bfloat16;
    if (type == KV_INT8)
        return use(bf16 ? Kernels::template kernel<bf, KV_INT8>
                        : Kernels::template kernel<__half, KV_INT8>,
                   Kernels::template bytes<KV_INT8>);
    if (type == KV_E4M3)
        return use(bf16 ? Kernels::template kernel<bf, KV_E4M3>
                        : Kernels::template kernel<__half, KV_E4M3>,
                   Kernels::template bytes<KV_E4M3>);
    return use(bf16 ? Kernels::template kernel<bf, KV_BF16>
                    : Kernels::template kernel<__half, KV_F16>,
               Kernels::template bytes<KV_BF16>);
}

/* Occupancy assumes the largest carve-out of shared memory from the L1 cache; unless it is
 * requested, a GPU may choose a smaller one, and part of the grid waits. */
template <class Kernels> static cudaError_t prepare(bool bf16, kv_type type, int *out_blocks) {
    return use_kernel<Kernels>(bf16, type, [&](auto *any_attention_kernel, size_t bytes) {
        cudaError_t status = cudaFuncSetAttribute(
            any_attention_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
        if (status == cudaSuccess)
            status = cudaFuncSetAttribute(any_attention_kernel,
                                          cudaFuncAttributePreferredSharedMemoryCarveout,
                                          cudaSharedmemCarveoutMaxShared);
        if (status != cudaSuccess)
            return status;
        return cudaOccupancyMaxActiveBlocksPerMultiprocessor(out_blocks, any_attention_kernel,
                                                             num_threads, bytes);
    });
}

template <class Kernels>
static cudaError_t launch(cudaStream_t stream, bool bf16, kv_type type,
                          const attention_launch &args) {
    return use_kernel<Kernels>(bf16, type, [&](auto *any_attention_kernel, size_t bytes) {
        LAUNCH(any_attention_kernel, (unsigned)args.num_blocks, num_threads, bytes, stream, args);
        return cudaGetLastError();
    });
}

} // namespace attention

/* The launchers of one padded head_dim. The numbers say how many blocks of each kind of tile a
 * multiprocessor has registers for. */
#define ATTENTION_DEFINE(head_dim, narrow, wide)                                                   \
    cudaError_t launch_attention_##head_dim##_prepare(enum attention_tile tile, bool bf16,         \
                                                      enum kv_type type, int *out_blocks) {        \
        return tile == ATTENTION_WIDE                                                              \
                   ? attention::prepare<attention::mma_kernels<true, head_dim, wide>>(bf16, type,  \
                                                                                      out_blocks)  \
                   : attention::prepare<attention::mma_kernels<false, head_dim, narrow>>(          \
                         bf16, type, out_blocks);                                                  \
    }                                                                                              \
    cudaError_t launch_attention_##head_dim(cudaStream_t stream, enum attention_tile tile,         \
                                            bool bf16, enum kv_type type,                          \
                                            const struct attention_launch *args) {                 \
        return tile == ATTENTION_WIDE                                                              \
                   ? attention::launch<attention::mma_kernels<true, head_dim, wide>>(stream, bf16, \
                                                                                     type, *args)  \
                   : attention::launch<attention::mma_kernels<false, head_dim, narrow>>(           \
                         stream, bf16, type, *args);                                               \
    }

#endif
