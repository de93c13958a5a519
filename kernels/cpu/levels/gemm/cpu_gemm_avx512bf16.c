/* BF16 and E4M3 weights in pairs along K, times activations rounded to BF16: vdpbf16ps adds two
 * products to each of 16 sums, the odd element's first, each as a fused multiply-add that rounds to
 * nearest even and takes denormals for zeros (Intel, Software Developer's Manual, volume 2,
 * VDPBF16PS). How fast it is differs from processor to processor: half as fast as float on some, so
 * that the level is on trial. */
#include "kernels/cpu/levels/gemm/cpu_gemm_tile_template.h"

#define BLOCK_PAIRS (PANEL_BLOCK / 2)
#define PAIRS_ROW_BYTES (4 * PANEL_COLUMNS) /* of a panel: a pair for every column */

SIMD_INLINE rf add_pairs(rf sum, ri weights, const uint16_t *x) {
    int32_t pair;
    memcpy(&pair, x, sizeof(pair));
    return _mm512_dpbf16_ps(sum, (__m512bh)weights, (__m512bh)ri_set1(pair));
}

SIMD_INLINE void pairs_tile(enum dtype dtype, const struct gemm_job *job, int32_t strip,
                            int32_t row, int num_rows, int num_strips) {
    size_t depth = cpu_panel_pairs_depth((size_t)job->depth);
    const uint16_t *x = (const uint16_t *)job->activations + (size_t)row * depth;
    size_t ahead = bytes_ahead(job, strip, num_strips);
    const uint8_t *weights[MAX_STRIPS];
    rf sums[MAX_SUMS];
    UNROLL
    for (int s = 0; s < num_strips; s++)
        weights[s] = panel_of(job, strip + s);
    UNROLL
    for (int i = 0; i < num_rows * num_strips; i++)
        sums[i] = rf_set1(0);
    for (size_t k = 0; k < depth; k += PANEL_BLOCK, x += num_rows * PANEL_BLOCK) {
        UNROLL
        for (int i = 0; i < BLOCK_PAIRS; i++) {
            UNROLL
            for (int s = 0; s < num_strips; s++) {
                prefetch(weights[s] + ahead, PAIRS_ROW_BYTES);
                ri w = ri_load(weights[s]);
                weights[s] += PAIRS_ROW_BYTES;
                UNROLL
                for (int r = 0; r < num_rows; r++)
                    sums[r * num_strips + s] =
                        add_pairs(sums[r * num_strips + s], w, x + r * PANEL_BLOCK + 2 * i);
            }
        }
    }
    store_tile(job, strip, row, sums, num_rows, num_strips);
}

/* Bytes of E4M3 as BF16, exactly: the first pair of a column's four in the first and third lane of
 * each quarter and so on. `first` has the columns 4 i and 4 i + 1, `second` 4 i + 2 and 4 i + 3.
 * The numbers below 2^-6, of exponent 0, come from a table. */
SIMD_INLINE void widen_e4m3(ri codes, ri *first, ri *second) {
    const ri small_high = ri_load_table(
        (const uint8_t[16]){0, 59, 59, 59, 60, 60, 60, 60, 0, 59, 59, 59, 60, 60, 60, 60});
    const ri small_low = ri_load_table(
        (const uint8_t[16]){0, 0, 128, 192, 0, 32, 64, 96, 0, 0, 128, 192, 0, 32, 64, 96});
    const ri index = ri_and(codes, _mm512_set1_epi8(7));
    __mmask64 is_small = _mm512_testn_epi8_mask(codes, _mm512_set1_epi8(0x78));
    ri high = ri_and(_mm512_srli_epi16(codes, 4), _mm512_set1_epi8(7));
    ri low = ri_and(_mm512_slli_epi16(codes, 4), _mm512_set1_epi8((char)0xf0));
    high = _mm512_add_epi8(high, _mm512_set1_epi8(60));
    high = _mm512_mask_shuffle_epi8(high, is_small, small_high, index);
    low = _mm512_mask_shuffle_epi8(low, is_small, small_low, index);
    high = ri_or(high, ri_and(codes, _mm512_set1_epi8((char)0x80)));
    *first = _mm512_unpacklo_epi8(low, high);
    *second = _mm512_unpackhi_epi8(low, high);
}

/* The sums of one row and strip, two lanes per column, as widen_e4m3 has them. */
struct pair_sums {
    rf first, second;
};

SIMD_INLINE rf add_lanes(struct pair_sums sums) {
    return rf_add(_mm512_shuffle_ps(sums.first, sums.second, _MM_SHUFFLE(2, 0, 2, 0)),
                  _mm512_shuffle_ps(sums.first, sums.second, _MM_SHUFFLE(3, 1, 3, 1)));
}

/* Four elements of K: one word of every column. */
SIMD_INLINE void add_word(const uint8_t *const *codes, const uint16_t *x, int num_rows,
                          int num_strips, struct pair_sums *sums) {
    UNROLL
    for (int s = 0; s < num_strips; s++) {
        ri first, second;
        widen_e4m3(ri_load(codes[s]), &first, &second);
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            struct pair_sums *sum = &sums[r * num_strips + s];
            int64_t four;
            memcpy(&four, x + r * PANEL_BLOCK, sizeof(four));
            __m512bh row = (__m512bh)_mm512_set1_epi64(four);
            sum->first = _mm512_dpbf16_ps(sum->first, (__m512bh)first, row);
            sum->second = _mm512_dpbf16_ps(sum->second, (__m512bh)second, row);
        }
    }
}

/* Codes that share a factor are summed before it is applied. */
SIMD_INLINE void e4m3_pairs_tile(enum dtype dtype, const struct gemm_job *job, int32_t strip,
                                 int32_t row, int num_rows, int num_strips) {
    const size_t block_elements = (size_t)quant_forms[dtype].block_elements;
    size_t depth = (size_t)job->depth, ahead = bytes_ahead(job, strip, num_strips);
    const uint16_t *x = (const uint16_t *)job->activations + (size_t)row * depth;
    const uint8_t *codes[MAX_STRIPS], *factors[MAX_STRIPS];
    rf totals[MAX_SUMS];
    UNROLL
    for (int s = 0; s < num_strips; s++) {
        codes[s] = panel_of(job, strip + s);
        factors[s] = codes[s] + depth * PANEL_COLUMNS;
    }
    UNROLL
    for (int i = 0; i < num_rows * num_strips; i++)
        totals[i] = rf_set1(0);
    for (size_t k = 0; k < depth; k += block_elements) {
        struct pair_sums sums[MAX_SUMS] = {0};
        for (size_t i = 0; i < block_elements; i += PANEL_BLOCK, x += num_rows * PANEL_BLOCK) {
            UNROLL
            for (int word = 0; word < PANEL_BLOCK / 4; word++) {
                add_word(codes, x + 4 * word, num_rows, num_strips, sums);
                UNROLL
                for (int s = 0; s < num_strips; s++) {
                    prefetch(codes[s] + ahead, PAIRS_ROW_BYTES);
                    codes[s] += PAIRS_ROW_BYTES;
                }
            }
        }
        UNROLL
        for (int i = 0; i < num_rows * num_strips; i++)
            totals[i] = rf_fma(rf_load(factors[i % num_strips]), add_lanes(sums[i]), totals[i]);
        UNROLL
        for (int s = 0; s < num_strips; s++)
            factors[s] += PAIRS_ROW_BYTES;
    }
    store_tile(job, strip, row, totals, num_rows, num_strips);
}

#define FOR_E4M3_TILES(X, type)                                                                    \
    X(type, 8, 1)                                                                                  \
    X(type, 7, 1)                                                                                  \
    X(type, 6, 1)                                                                                  \
    X(type, 5, 1)                                                                                  \
    X(type, 4, 2)                                                                                  \
    X(type, 3, 2)                                                                                  \
    X(type, 2, 4)                                                                                  \
    X(type, 1, 4)
#define DEFINE_E4M3_TILES(type, rows, strips) DEFINE_TILES_##strips(e4m3_pairs, type, rows)
#define DEFINE_PAIRS_TILES(type, rows, strips) DEFINE_TILES_##strips(pairs, type, rows)

static const struct cpu_row_packing pair_rows = {
    .tile_rows = {FOR_FLOAT_TILES_512(TILE_NUM_ROWS, )},
    .row_bytes = cpu_gemm_pair_row_bytes,
    .pack = cpu_gemm_pack_pairs,
};

static const struct cpu_row_packing e4m3_rows = {
    .tile_rows = {FOR_E4M3_TILES(TILE_NUM_ROWS, )},
    .row_bytes = cpu_gemm_pair_row_bytes,
    .pack = cpu_gemm_pack_pairs,
};

DEFINE_FORMAT(E4M3_128, DEFINE_E4M3_TILES, FOR_E4M3_TILES, cpu_panel_blocks, e4m3_rows, "vdpbf16ps")
DEFINE_FORMAT(BF16, DEFINE_PAIRS_TILES, FOR_FLOAT_TILES_512, cpu_panel_pairs, pair_rows,
              "vdpbf16ps")

void cpu_gemm_add_avx512bf16(struct cpu_kernels *kernels) {
    kernels->formats[DTYPE_BF16] = &BF16_format;
    kernels->formats[DTYPE_E4M3_128] = &E4M3_128_format;
}
