/* dtype.h describes the layouts read here. Minima that a type subtracts become added ones by the
 * sign of m, which changes no value. Loops are of constant length, for the compiler to vectorise.
 */
#include "kernels/quant_block.h"

#include "config/base/check.h"
#include "kernels/quant_grids.h"

#include <string.h>

#define F16_SIGN 0x8000
#define ALL_BYTES UINT64_C(0x0101010101010101) /* times a byte: in all eight */

static uint16_t load_u16(const uint8_t *src) {
    return (uint16_t)(src[0] | src[1] << 8);
}

/* Bytes of 2 * n codes: the first n in the low nibbles, the others in the high ones. */
static inline void unpack_nibbles(const uint8_t *restrict src, uint8_t *restrict codes, int n) {
    for (int i = 0; i < n; i++) {
        codes[i] = src[i] & 15;
        codes[n + i] = src[i] >> 4;
    }
}

/* The 256 2-bit codes that Q2_K, Q3_K and Q6_K have in 64 bytes. */
static void unpack_pairs(const uint8_t *restrict src, uint8_t *restrict codes) {
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < 32; i++)
                codes[128 * h + 32 * j + i] = (src[32 * h + i] >> 2 * j) & 3;
}

/* Adds to 256 codes the bit of value 1 << shift that Q3_K and Q5_K keep apart in 32 bytes. */
static inline void add_high_bits(const uint8_t *restrict src, uint8_t *restrict codes, int shift) {
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++)
            codes[32 * j + i] |= (uint8_t)(((src[i] >> j) & 1) << shift);
}

/* The same for Q5_0 and Q5_1, in 32 bits: the product has bit i of four where byte i has bit 0. */
static void add_fifth_bits(const uint8_t *src, uint8_t *codes) {
    for (int i = 0; i < 8; i++) {
        uint32_t four = src[i / 2] >> 4 * (i % 2) & 15, word;
        memcpy(&word, codes + 4 * i, sizeof(word));
        word |= (four * 0x00204081 & 0x01010101) << 4;
        memcpy(codes + 4 * i, &word, sizeof(word));
    }
}

static void set_ones(struct quant_block *out) {
    memset(out->scales, 1, sizeof(out->scales));
    out->mins[0] = 1;
}

static uint32_t load_u32(const uint8_t *src) {
    return load_u16(src) | (uint32_t)load_u16(src + 2) << 16;
}

/* Nibble i of consecutive bytes, the low ones first. */
static int nibble(const uint8_t *src, int i) {
    return src[i / 2] >> 4 * (i % 2) & 15;
}

/* Q4_0, IQ4_NL */
static void unpack_q4_0(const uint8_t *src, struct quant_block *out) {
    out->d = load_u16(src);
    set_ones(out);
    unpack_nibbles(src + 2, out->codes, 16);
}

static void unpack_mxfp4(const uint8_t *src, struct quant_block *out) {
    out->d = src[0];
    set_ones(out);
    unpack_nibbles(src + 1, out->codes, 16);
}

static void unpack_q4_1(const uint8_t *src, struct quant_block *out) {
    out->d = load_u16(src);
    out->m = load_u16(src + 2);
    set_ones(out);
    unpack_nibbles(src + 4, out->codes, 16);
}

static void unpack_q5_0(const uint8_t *src, struct quant_block *out) {
    out->d = load_u16(src);
    set_ones(out);
    unpack_nibbles(src + 6, out->codes, 16);
    add_fifth_bits(src + 2, out->codes);
}

static void unpack_q5_1(const uint8_t *src, struct quant_block *out) {
    out->d = load_u16(src);
    out->m = load_u16(src + 2);
    set_ones(out);
    unpack_nibbles(src + 8, out->codes, 16);
    add_fifth_bits(src + 4, out->codes);
}

/* Signed codes become unsigned ones with a zero point of 128. */
static void unpack_q8_0(const uint8_t *src, struct quant_block *out) {
    out->d = load_u16(src);
    set_ones(out);
    memcpy(out->codes, src + 2, 32);
    for (int i = 0; i < 32; i++)
        out->codes[i] ^= 0x80;
}

static void unpack_i4(const uint8_t *src, struct quant_block *out, int num_elements) {
    out->d = load_u16(src);
    out->zero = src[2];
    for (int i = 0; i < num_elements; i += 32)
        unpack_nibbles(src + 3 + i / 2, out->codes + i, 16);
}

static void unpack_i4_32(const uint8_t *src, struct quant_block *out) {
    unpack_i4(src, out, 32);
}

static void unpack_i4_64(const uint8_t *src, struct quant_block *out) {
    unpack_i4(src, out, 64);
}

static void unpack_i4_128(const uint8_t *src, struct quant_block *out) {
    unpack_i4(src, out, 128);
}

static void unpack_i8_32(const uint8_t *src, struct quant_block *out) {
    out->d = load_u16(src);
    out->zero = src[2];
    memcpy(out->codes, src + 3, 32);
}

static void unpack_i8_128(const uint8_t *src, struct quant_block *out) {
    memcpy(&out->d, src, sizeof(out->d));
    out->zero = src[4];
    memcpy(out->codes, src + 5, 128);
}

static void unpack_e4m3_128(const uint8_t *src, struct quant_block *out) {
    memcpy(&out->d, src, sizeof(out->d));
    memcpy(out->codes, src + 4, 128);
}

static void unpack_q2_k(const uint8_t *src, struct quant_block *out) {
    for (int g = 0; g < 16; g++) {
        out->scales[g] = (int8_t)(src[g] & 15);
        out->mins[g] = src[g] >> 4;
    }
    unpack_pairs(src + 16, out->codes);
    out->d = load_u16(src + 80);
    out->m = load_u16(src + 82) ^ F16_SIGN;
}

static void unpack_q3_k(const uint8_t *src, struct quant_block *out) {
    const uint8_t *scales = src + 96;
    unpack_pairs(src + 32, out->codes);
    add_high_bits(src, out->codes, 2);
    for (int g = 0; g < 16; g++) {
        int low = (scales[g % 8] >> (g < 8 ? 0 : 4)) & 15;
        int high = (scales[8 + g % 4] >> 2 * (g / 4)) & 3;
        out->scales[g] = (int8_t)((low | high << 4) - 32);
    }
    out->d = load_u16(src + 108);
}

/* Unpacks the factors that Q4_K and Q5_K begin with. */
static void unpack_k_header(const uint8_t *src, struct quant_block *out) {
    const uint8_t *packed = src + 4;
    out->d = load_u16(src);
    out->m = load_u16(src + 2) ^ F16_SIGN;
    for (int g = 0; g < 4; g++) {
        out->scales[g] = (int8_t)(packed[g] & 63);
        out->mins[g] = packed[g + 4] & 63;
        out->scales[g + 4] = (int8_t)((packed[g + 8] & 15) | (packed[g] >> 6) << 4);
        out->mins[g + 4] = (uint8_t)(packed[g + 8] >> 4 | (packed[g + 4] >> 6) << 4);
    }
}

static void unpack_q4_k(const uint8_t *src, struct quant_block *out) {
    unpack_k_header(src, out);
    for (int p = 0; p < 4; p++)
        unpack_nibbles(src + 16 + 32 * p, out->codes + 64 * p, 32);
}

static void unpack_q5_k(const uint8_t *src, struct quant_block *out) {
    unpack_k_header(src, out);
    for (int p = 0; p < 4; p++)
        unpack_nibbles(src + 48 + 32 * p, out->codes + 64 * p, 32);
    add_high_bits(src + 16, out->codes, 4);
}

static void unpack_q6_k(const uint8_t *src, struct quant_block *out) {
    uint8_t low[DTYPE_MAX_BLOCK_ELEMENTS];
    unpack_pairs(src + 128, out->codes);
    for (int h = 0; h < 2; h++)
        unpack_nibbles(src + 64 * h, low + 128 * h, 64);
    for (int i = 0; i < DTYPE_MAX_BLOCK_ELEMENTS; i++)
        low[i] |= (uint8_t)(out->codes[i] << 4);
    memcpy(out->codes, low, sizeof(low));
    memcpy(out->scales, src + 192, 16);
    out->d = load_u16(src + 208);
}

static void unpack_iq4_xs(const uint8_t *src, struct quant_block *out) {
    out->d = load_u16(src);
    for (int g = 0; g < 8; g++) {
        int high = load_u16(src + 2) >> 2 * g & 3;
        out->scales[g] = (int8_t)((nibble(src + 4, g) | high << 4) - 32);
        unpack_nibbles(src + 8 + 16 * g, out->codes + 32 * g, 16);
    }
}

static void unpack_tq2_0(const uint8_t *src, struct quant_block *out) {
    out->d = load_u16(src + 64);
    set_ones(out);
    unpack_pairs(src, out->codes);
}

/* num_codes codes -1 to 1, counted from 128, of each of num_bytes bytes. */
static inline void unpack_trits(const uint8_t *restrict src, uint8_t *restrict codes, int num_bytes,
                                int num_codes) {
    for (int j = 0, power = 1; j < num_codes; j++, power *= 3)
        for (int i = 0; i < num_bytes; i++)
            codes[num_bytes * j + i] = (uint8_t)(127 + ((src[i] * power & 255) * 3 >> 8));
}

static void unpack_tq1_0(const uint8_t *src, struct quant_block *out) {
    out->d = load_u16(src + 52);
    set_ones(out);
    unpack_trits(src, out->codes, 32, 5);
    unpack_trits(src + 32, out->codes + 160, 16, 5);
    unpack_trits(src + 48, out->codes + 240, 4, 4);
}

/* Stores the codes of eight elements, counted from 128: `values` of at most 63, negative where
 * `signs` has a bit. No byte carries into the next. */
static inline void store_signed(uint8_t *codes, uint64_t values, uint8_t signs) {
    uint64_t word = 128 * ALL_BYTES + values - 2 * (values & sign_masks[signs]);
    memcpy(codes, &word, sizeof(word));
}

/* 2 s + 1 of 4-bit s. */
static void unpack_odd_scales(const uint8_t *src, int num_groups, struct quant_block *out) {
    for (int i = 0; i < num_groups / 2; i++) {
        out->scales[2 * i] = (int8_t)(2 * (src[i] & 15) + 1);
        out->scales[2 * i + 1] = (int8_t)(2 * (src[i] >> 4) + 1);
    }
}

static void unpack_iq2_xxs(const uint8_t *src, struct quant_block *out) {
    out->d = load_u16(src);
    for (int g = 0; g < 8; g++) {
        const uint8_t *points = src + 2 + 8 * g;
        uint32_t rest = load_u32(points + 4);
        out->scales[g] = (int8_t)(2 * (rest >> 28) + 1);
        for (int i = 0; i < 4; i++)
            store_signed(out->codes + 32 * g + 8 * i, grid_iq2_xxs[points[i]],
                         even_signs[rest >> 7 * i & 127]);
    }
}

static void unpack_iq2_xs(const uint8_t *src, struct quant_block *out) {
    out->d = load_u16(src);
    unpack_odd_scales(src + 66, 16, out);
    for (int i = 0; i < 32; i++) {
        uint16_t word = load_u16(src + 2 + 2 * i);
        store_signed(out->codes + 8 * i, grid_iq2_xs[word & 511], even_signs[word >> 9]);
    }
}

static void unpack_iq2_s(const uint8_t *src, struct quant_block *out) {
    const uint8_t *points = src + 2, *signs = src + 34, *high = src + 66;
    out->d = load_u16(src);
    unpack_odd_scales(src + 74, 16, out);
    for (int g = 0; g < 8; g++) {
        unsigned bits = high[g];
        for (int i = 4 * g; i < 4 * g + 4; i++, bits >>= 2)
            store_signed(out->codes + 8 * i, grid_iq2_s[points[i] | (bits & 3) << 8], signs[i]);
    }
}

static inline uint64_t two_points(const uint32_t *grid, unsigned first, unsigned second) {
    return grid[first] | (uint64_t)grid[second] << 32;
}

static void unpack_iq3_xxs(const uint8_t *src, struct quant_block *out) {
    out->d = load_u16(src);
    for (int g = 0; g < 8; g++) {
        const uint8_t *points = src + 2 + 8 * g;
        uint32_t rest = load_u32(src + 66 + 4 * g);
        out->scales[g] = (int8_t)(2 * (rest >> 28) + 1);
        for (int i = 0; i < 4; i++)
            store_signed(out->codes + 32 * g + 8 * i,
                         two_points(grid_iq3_xxs, points[2 * i], points[2 * i + 1]),
                         even_signs[rest >> 7 * i & 127]);
    }
}

static void unpack_iq3_s(const uint8_t *src, struct quant_block *out) {
    const uint8_t *points = src + 2, *high = src + 66, *signs = src + 74;
    out->d = load_u16(src);
    unpack_odd_scales(src + 106, 8, out);
    for (int g = 0; g < 8; g++) {
        unsigned bits = high[g];
        for (int i = 4 * g; i < 4 * g + 4; i++, bits >>= 2)
            store_signed(out->codes + 8 * i,
                         two_points(grid_iq3_s, points[2 * i] | (bits & 1) << 8,
                                    points[2 * i + 1] | (bits & 2) << 7),
                         signs[i]);
    }
}

/* Eight codes of eighths: a point's, which count from 128, and one more or less. */
static inline void store_iq1(uint8_t *codes, unsigned point, unsigned is_less) {
    uint64_t word = grid_iq1[point] + ALL_BYTES - 2 * ALL_BYTES * is_less;
    memcpy(codes, &word, sizeof(word));
}

static void unpack_iq1_s(const uint8_t *src, struct quant_block *out) {
    out->d = load_u16(src);
    for (int g = 0; g < 8; g++) {
        const uint8_t *points = src + 2 + 4 * g;
        unsigned rest = load_u16(src + 34 + 2 * g);
        out->scales[g] = (int8_t)(2 * (rest >> 12 & 7) + 1);
        for (int i = 0; i < 4; i++)
            store_iq1(out->codes + 32 * g + 8 * i, points[i] | (rest >> 3 * i & 7) << 8,
                      rest >> 15);
    }
}

static void unpack_iq1_m(const uint8_t *src, struct quant_block *out) {
    const uint8_t *high = src + 32, *scales = src + 48;
    out->d = 0;
    for (int i = 0; i < 4; i++) {
        unsigned bits = load_u16(scales + 2 * i);
        out->d |= (bits >> 12) << 4 * i;
        for (int g = 0; g < 4; g++)
            out->scales[4 * i + g] = (int8_t)(2 * (bits >> 3 * g & 7) + 1);
    }
    for (int i = 0; i < 32; i += 2) {
        unsigned bits = high[i / 2];
        store_iq1(out->codes + 8 * i, src[i] | (bits & 7) << 8, bits >> 3 & 1);
        store_iq1(out->codes + 8 * i + 8, src[i + 1] | (bits & 0x70) << 4, bits >> 7);
    }
}

typedef void unpack_function(const uint8_t *src, struct quant_block *out);

static unpack_function *const unpack_functions[DTYPE_COUNT] = {
    [DTYPE_Q4_0] = unpack_q4_0,       [DTYPE_Q4_1] = unpack_q4_1,
    [DTYPE_Q8_0] = unpack_q8_0,       [DTYPE_Q5_0] = unpack_q5_0,
    [DTYPE_Q5_1] = unpack_q5_1,       [DTYPE_IQ4_NL] = unpack_q4_0,
    [DTYPE_Q2_K] = unpack_q2_k,       [DTYPE_Q3_K] = unpack_q3_k,
    [DTYPE_Q4_K] = unpack_q4_k,       [DTYPE_Q5_K] = unpack_q5_k,
    [DTYPE_Q6_K] = unpack_q6_k,       [DTYPE_MXFP4] = unpack_mxfp4,
    [DTYPE_I4_32] = unpack_i4_32,     [DTYPE_I4_64] = unpack_i4_64,
    [DTYPE_I4_128] = unpack_i4_128,   [DTYPE_I8_32] = unpack_i8_32,
    [DTYPE_I8_128] = unpack_i8_128,   [DTYPE_E4M3_128] = unpack_e4m3_128,
    [DTYPE_IQ4_XS] = unpack_iq4_xs,   [DTYPE_TQ2_0] = unpack_tq2_0,
    [DTYPE_TQ1_0] = unpack_tq1_0,     [DTYPE_IQ1_S] = unpack_iq1_s,
    [DTYPE_IQ1_M] = unpack_iq1_m,     [DTYPE_IQ2_XXS] = unpack_iq2_xxs,
    [DTYPE_IQ2_XS] = unpack_iq2_xs,   [DTYPE_IQ2_S] = unpack_iq2_s,
    [DTYPE_IQ3_XXS] = unpack_iq3_xxs, [DTYPE_IQ3_S] = unpack_iq3_s,
};

void quant_block_unpack(enum dtype dtype, const uint8_t *src, struct quant_block *out) {
    CHECK((unsigned)dtype < DTYPE_COUNT && unpack_functions[dtype] != NULL);
    unpack_functions[dtype](src, out);
}

static float factor_to_f32(enum quant_scale type, uint32_t bits) {
    float value;
    if (type != QUANT_SCALE_F32)
        return type == QUANT_SCALE_E8M0 ? e8m0_half_to_f32((uint8_t)bits)
                                        : f16_to_f32((uint16_t)bits);
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void levels_to_f32(const int8_t *restrict levels, const uint8_t *restrict codes, float d,
                          float *restrict out) {
    for (int i = 0; i < 16; i++)
        out[i] = d * (float)levels[codes[i]];
}

static void e4m3_to_f32_all(const uint8_t *restrict codes, float d, float *restrict out) {
    for (int i = 0; i < 16; i++)
        out[i] = d * ((codes[i] & 0x7f) != 0x7f ? e4m3_to_f32(codes[i])
                      : codes[i] > 0x7f         ? -480.0f
                                                : 480.0f);
}

/* 16 elements, the smallest group. Without a minimum nothing is added: the sign of a zero stays. */
static void group_to_f32(const uint8_t *restrict codes, int zero, float d, float *restrict out) {
    for (int i = 0; i < 16; i++)
        out[i] = d * (float)(codes[i] - zero);
}

static void add_min(float m, float *out) {
    for (int i = 0; i < 16; i++)
        out[i] += m;
}

float quant_block_factor(enum dtype dtype, const struct quant_block *block) {
    const struct quant_form *form = &quant_forms[dtype];
    return factor_to_f32(form->factor, block->d) / (float)(1 << form->fraction_bits);
}

void quant_block_to_f32(enum dtype dtype, const struct quant_block *block, float *out) {
    CHECK((unsigned)dtype < DTYPE_COUNT && quant_forms[dtype].block_elements > 0);
    const struct quant_form *form = &quant_forms[dtype];
    float d = quant_block_factor(dtype, block);
    float m = form->has_min ? factor_to_f32(form->factor, block->m) : 0.0f;
    int zero = form->has_zero ? block->zero : form->zero;
    for (int i = 0; i < form->block_elements; i += 16) {
        int g = i / form->group_elements;
        float scale = form->scale_bits == 0 ? d : d * (float)block->scales[g];
        if (form->levels != NULL)
            levels_to_f32(form->levels, block->codes + i, scale, out + i);
        else if (form->is_e4m3)
            e4m3_to_f32_all(block->codes + i, scale, out + i);
        else
            group_to_f32(block->codes + i, zero, scale, out + i);
        if (form->has_min)
            add_min(m * (float)block->mins[g], out + i);
    }
}
