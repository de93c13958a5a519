/* The inverse of quant_block.c: dtype.h describes the layouts written here. */
#include "kernels/quant_block.h"

#include "config/base/check.h"

#include <string.h>

#define F16_SIGN 0x8000

static void store_u16(uint8_t *dst, uint16_t value) {
    dst[0] = (uint8_t)value;
    dst[1] = (uint8_t)(value >> 8);
}

/* Writes 2 * n codes' low nibbles: the first n low, the others high. */
static void pack_nibbles(const uint8_t *codes, uint8_t *dst, int n) {
    for (int i = 0; i < n; i++)
        dst[i] = (uint8_t)((codes[i] & 15) | codes[n + i] << 4);
}

/* Writes bits `shift` and `shift` + 1 of 256 codes to 64 bytes. */
static void pack_pairs(const uint8_t *codes, int shift, uint8_t *dst) {
    memset(dst, 0, 64);
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < 32; i++)
                dst[32 * h + i] |= (uint8_t)(((codes[128 * h + 32 * j + i] >> shift) & 3) << 2 * j);
}

/* Writes bit `shift` of 256 codes to 32 bytes. */
static void pack_high_bits(const uint8_t *codes, int shift, uint8_t *dst) {
    memset(dst, 0, 32);
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++)
            dst[i] |= (uint8_t)(((codes[32 * j + i] >> shift) & 1) << j);
}

/* Writes bit 4 of 32 codes. */
static void pack_fifth_bits(const uint8_t *codes, uint8_t *dst) {
    memset(dst, 0, 4);
    for (int i = 0; i < 32; i++)
        dst[i / 8] |= (uint8_t)(((codes[i] >> 4) & 1) << i % 8);
}

static void pack_q4_0(const struct quant_block *block, uint8_t *dst) {
    store_u16(dst, (uint16_t)block->d);
    pack_nibbles(block->codes, dst + 2, 16);
}

static void pack_q4_1(const struct quant_block *block, uint8_t *dst) {
    store_u16(dst, (uint16_t)block->d);
    store_u16(dst + 2, (uint16_t)block->m);
    pack_nibbles(block->codes, dst + 4, 16);
}

static void pack_q5_0(const struct quant_block *block, uint8_t *dst) {
    store_u16(dst, (uint16_t)block->d);
    pack_fifth_bits(block->codes, dst + 2);
    pack_nibbles(block->codes, dst + 6, 16);
}

static void pack_q5_1(const struct quant_block *block, uint8_t *dst) {
    store_u16(dst, (uint16_t)block->d);
    store_u16(dst + 2, (uint16_t)block->m);
    pack_fifth_bits(block->codes, dst + 4);
    pack_nibbles(block->codes, dst + 8, 16);
}

static void pack_q8_0(const struct quant_block *block, uint8_t *dst) {
    store_u16(dst, (uint16_t)block->d);
    for (int i = 0; i < 32; i++)
        dst[2 + i] = block->codes[i] ^ 0x80;
}

static void pack_q2_k(const struct quant_block *block, uint8_t *dst) {
    for (int g = 0; g < 16; g++)
        dst[g] = (uint8_t)(block->scales[g] | block->mins[g] << 4);
    pack_pairs(block->codes, 0, dst + 16);
    store_u16(dst + 80, (uint16_t)block->d);
    store_u16(dst + 82, (uint16_t)(block->m ^ F16_SIGN));
}

static void pack_q3_k(const struct quant_block *block, uint8_t *dst) {
    uint8_t *scales = dst + 96;
    pack_high_bits(block->codes, 2, dst);
    pack_pairs(block->codes, 0, dst + 32);
    memset(scales, 0, 12);
    for (int g = 0; g < 16; g++) {
        int scale = block->scales[g] + 32;
        scales[g % 8] |= (uint8_t)((scale & 15) << (g < 8 ? 0 : 4));
        scales[8 + g % 4] |= (uint8_t)((scale >> 4) << 2 * (g / 4));
    }
    store_u16(dst + 108, (uint16_t)block->d);
}

/* Writes the factors that Q4_K and Q5_K begin with. */
static void pack_k_header(const struct quant_block *block, uint8_t *dst) {
    uint8_t *packed = dst + 4;
    store_u16(dst, (uint16_t)block->d);
    store_u16(dst + 2, (uint16_t)(block->m ^ F16_SIGN));
    for (int g = 0; g < 4; g++) {
        int scale = block->scales[g + 4], min = block->mins[g + 4];
        packed[g] = (uint8_t)(block->scales[g] | (scale >> 4) << 6);
        packed[g + 4] = (uint8_t)(block->mins[g] | (min >> 4) << 6);
        packed[g + 8] = (uint8_t)((scale & 15) | (min & 15) << 4);
    }
}

static void pack_q4_k(const struct quant_block *block, uint8_t *dst) {
    pack_k_header(block, dst);
    for (int p = 0; p < 4; p++)
        pack_nibbles(block->codes + 64 * p, dst + 16 + 32 * p, 32);
}

static void pack_q5_k(const struct quant_block *block, uint8_t *dst) {
    pack_k_header(block, dst);
    pack_high_bits(block->codes, 4, dst + 16);
    for (int p = 0; p < 4; p++)
        pack_nibbles(block->codes + 64 * p, dst + 48 + 32 * p, 32);
}

static void pack_q6_k(const struct quant_block *block, uint8_t *dst) {
    for (int h = 0; h < 2; h++)
        pack_nibbles(block->codes + 128 * h, dst + 64 * h, 64);
    pack_pairs(block->codes, 4, dst + 128);
    memcpy(dst + 192, block->scales, 16);
    store_u16(dst + 208, (uint16_t)block->d);
}

typedef void pack_function(const struct quant_block *block, uint8_t *dst);

static pack_function *const pack_functions[DTYPE_COUNT] = {
    [DTYPE_Q4_0] = pack_q4_0, [DTYPE_Q4_1] = pack_q4_1, [DTYPE_Q8_0] = pack_q8_0,
    [DTYPE_Q5_0] = pack_q5_0, [DTYPE_Q5_1] = pack_q5_1, [DTYPE_Q2_K] = pack_q2_k,
    [DTYPE_Q3_K] = pack_q3_k, [DTYPE_Q4_K] = pack_q4_k, [DTYPE_Q5_K] = pack_q5_k,
    [DTYPE_Q6_K] = pack_q6_k,
};

void quant_block_pack(enum dtype dtype, const struct quant_block *block, uint8_t *dst) {
    CHECK((unsigned)dtype < DTYPE_COUNT && pack_functions[dtype] != NULL);
    pack_functions[dtype](block, dst);
}
