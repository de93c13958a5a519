/* For any machine: a register is a GNU C vector of four floats or integers, struct vf is four of
 * them. Uses no instruction beyond the base set. With SIMD_NEON, some functions come from
 * simd_neon_template.h. */
#ifndef QUIRE_KERNELS_CPU_SIMD_SIMD_PORTABLE_H
#define QUIRE_KERNELS_CPU_SIMD_SIMD_PORTABLE_H

#include "kernels/cpu/simd/simd_base.h"

#include <math.h>

typedef float float4 __attribute__((vector_size(16)));
typedef int32_t int4 __attribute__((vector_size(16)));
typedef uint32_t uint4 __attribute__((vector_size(16)));

#define RF_LANES 4
typedef float4 rf;
typedef int4 ri;

struct vf {
    rf v[4];
};

#define VF_EACH(expression)                                                                        \
    struct vf r;                                                                                   \
    UNROLL for (int i = 0; i < 4; i++) r.v[i] = (expression);                                      \
    return r

#ifdef SIMD_NEON
#include "kernels/cpu/simd/simd_neon_template.h"
#endif

/* --- One register: RF_LANES floats (rf) or 32-bit integers (ri) --- */

SIMD_INLINE rf rf_set1(float x) {
    return (rf){x, x, x, x};
}

/* Loads are of any alignment. */
SIMD_INLINE rf rf_load(const void *p) {
    rf r;
    memcpy(&r, p, sizeof(r));
    return r;
}

#ifndef SIMD_NEON
/* Half precision by bits: exponent and mantissa scaled by 2^112, which also normalises denormals;
 * infinities and NaN get the exponent 255. */
SIMD_INLINE rf rf_load_f16(const void *p) {
    uint16_t bits[4];
    memcpy(bits, p, sizeof(bits));
    uint4 h = {bits[0], bits[1], bits[2], bits[3]};
    uint4 sign = (h & 0x8000u) << 16, rest = h & 0x7fffu;
    uint4 number = (uint4)((float4)(rest << 13) * 0x1p112f);
    uint4 special = (uint4)(rest >= 0x7c00u) & 0x7f800000u;
    return (float4)(sign | number | special);
}
#endif

SIMD_INLINE rf rf_load_bf16(const void *p) {
    uint16_t bits[4];
    memcpy(bits, p, sizeof(bits));
    uint4 h = {bits[0], bits[1], bits[2], bits[3]};
    return (float4)(h << 16);
}

/* The first n of them only, 1 <= n <= RF_LANES; zeros above. */
SIMD_INLINE rf rf_load_part(const float *p, int n) {
    rf r = rf_set1(0);
    memcpy(&r, p, (size_t)n * sizeof(float));
    return r;
}

SIMD_INLINE void rf_store_part(float *p, rf a, int n) {
    memcpy(p, &a, (size_t)n * sizeof(float));
}

SIMD_INLINE rf rf_from_int(ri a) {
    return __builtin_convertvector(a, rf);
}

/* The floats whose bits these are. */
SIMD_INLINE rf rf_from_bits(ri a) {
    return (rf)a;
}

SIMD_INLINE rf rf_add(rf a, rf b) {
    return a + b;
}

SIMD_INLINE rf rf_mul(rf a, rf b) {
    return a * b;
}

#ifndef SIMD_NEON
/* a * b + c, rounded once on every level, unlike vf_fma. */
SIMD_INLINE rf rf_fma(rf a, rf b, rf c) {
    for (int i = 0; i < RF_LANES; i++)
        c[i] = fmaf(a[i], b[i], c[i]);
    return c;
}
#endif

SIMD_INLINE ri ri_set1(int32_t x) {
    return (ri){x, x, x, x};
}

SIMD_INLINE ri ri_load(const void *p) {
    ri r;
    memcpy(&r, p, sizeof(r));
    return r;
}

/* RF_LANES signed bytes, widened. */
SIMD_INLINE ri ri_load_bytes(const void *p) {
    int8_t bytes[RF_LANES];
    memcpy(bytes, p, sizeof(bytes));
    return (ri){bytes[0], bytes[1], bytes[2], bytes[3]};
}

/* For ri_lookup: 16 bytes, repeated to fill the register. */
SIMD_INLINE ri ri_load_table(const void *p) {
    return ri_load(p);
}

SIMD_INLINE ri ri_add(ri a, ri b) {
    return (ri)((uint4)a + (uint4)b);
}

SIMD_INLINE ri ri_and(ri a, ri b) {
    return a & b;
}

SIMD_INLINE ri ri_or(ri a, ri b) {
    return a | b;
}

SIMD_INLINE ri ri_xor(ri a, ri b) {
    return a ^ b;
}

SIMD_INLINE ri ri_shl(ri a, int n) {
    return (ri)((uint4)a << n);
}

SIMD_INLINE ri ri_shr(ri a, int n) {
    return (ri)((uint4)a >> n);
}

#ifndef SIMD_NEON
/* Replaces each byte of `indices`, which is below 16, by that entry of the table. */
SIMD_INLINE ri ri_lookup(ri table, ri indices) {
    uint8_t bytes[sizeof(ri)], from[sizeof(ri)];
    memcpy(from, &table, sizeof(from));
    memcpy(bytes, &indices, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = from[bytes[i]];
    return ri_load(bytes);
}
#endif

/* --- Sixteen floats --- */

/* Rows, columns (of 16) and token groups (of 16) of the attention tiles kept in registers. */
enum { VF_ROW_TILE = 2, VF_COLUMN_TILE = 1, VF_GROUP_TILE = 1 };

SIMD_INLINE float4 float4_select(int4 mask, float4 yes, float4 no) {
    return (float4)((mask & (int4)yes) | (~mask & (int4)no));
}

SIMD_INLINE struct vf vf_set1(float x) {
    VF_EACH(rf_set1(x));
}

SIMD_INLINE struct vf vf_load(const float *p) {
    struct vf r;
    memcpy(&r, p, sizeof(r));
    return r;
}

SIMD_INLINE void vf_store(float *p, struct vf a) {
    memcpy(p, &a, sizeof(a));
}

SIMD_INLINE struct vf vf_add(struct vf a, struct vf b) {
    VF_EACH(a.v[i] + b.v[i]);
}

SIMD_INLINE struct vf vf_sub(struct vf a, struct vf b) {
    VF_EACH(a.v[i] - b.v[i]);
}

SIMD_INLINE struct vf vf_mul(struct vf a, struct vf b) {
    VF_EACH(a.v[i] * b.v[i]);
}

SIMD_INLINE struct vf vf_div(struct vf a, struct vf b) {
    VF_EACH(a.v[i] / b.v[i]);
}

#ifndef SIMD_NEON
/* a * b + c, rounded once where the machine can. */
SIMD_INLINE struct vf vf_fma(struct vf a, struct vf b, struct vf c) {
    VF_EACH(a.v[i] * b.v[i] + c.v[i]);
}
#endif

/* Return b, both of them, for a NaN in a and a number in b. */
SIMD_INLINE struct vf vf_max(struct vf a, struct vf b) {
    VF_EACH(float4_select(a.v[i] > b.v[i], a.v[i], b.v[i]));
}

SIMD_INLINE struct vf vf_min(struct vf a, struct vf b) {
    VF_EACH(float4_select(a.v[i] < b.v[i], a.v[i], b.v[i]));
}

/* The bits of a plus (the bits of b shifted left by 23): adds b's low bits to a's exponent. */
SIMD_INLINE struct vf vf_add_exponent(struct vf a, struct vf b) {
    VF_EACH((float4)((uint4)a.v[i] + ((uint4)b.v[i] << 23)));
}

/* Lanes below n from a, the others from b. */
SIMD_INLINE struct vf vf_first(int n, struct vf a, struct vf b) {
    struct vf r = b;
    for (int i = 0; i < n && i < 16; i++)
        r.v[i / 4][i % 4] = a.v[i / 4][i % 4];
    return r;
}

/* Lanes where a > b from `yes`, the others from `no`. */
SIMD_INLINE struct vf vf_select_gt(struct vf a, struct vf b, struct vf yes, struct vf no) {
    VF_EACH(float4_select(a.v[i] > b.v[i], yes.v[i], no.v[i]));
}

#ifndef SIMD_NEON
/* Bit i: lane i of a > (>=) lane i of b. */
SIMD_INLINE unsigned vf_mask_gt(struct vf a, struct vf b) {
    unsigned mask = 0;
    for (int i = 0; i < 16; i++)
        mask |= (unsigned)(a.v[i / 4][i % 4] > b.v[i / 4][i % 4]) << i;
    return mask;
}

SIMD_INLINE unsigned vf_mask_ge(struct vf a, struct vf b) {
    unsigned mask = 0;
    for (int i = 0; i < 16; i++)
        mask |= (unsigned)(a.v[i / 4][i % 4] >= b.v[i / 4][i % 4]) << i;
    return mask;
}
#endif

SIMD_INLINE float vf_reduce_add(struct vf a) {
    float4 s = (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]);
    return (s[0] + s[2]) + (s[1] + s[3]);
}

#ifndef SIMD_NEON
SIMD_INLINE float vf_reduce_max(struct vf a) {
    float max = a.v[0][0];
    for (int i = 1; i < 16; i++)
        max = max > a.v[i / 4][i % 4] ? max : a.v[i / 4][i % 4];
    return max;
}
#endif

#ifndef SIMD_NEON
/* (a0 a1 ...) (b0 b1 ...) -> evens (a0 a2 .. b0 b2 ..), odds; and back. */
SIMD_INLINE void vf_split_pairs(struct vf a, struct vf b, struct vf *evens, struct vf *odds) {
    for (int i = 0; i < 16; i++) {
        struct vf source = i < 8 ? a : b;
        int e = 2 * (i % 8), o = e + 1;
        evens->v[i / 4][i % 4] = source.v[e / 4][e % 4];
        odds->v[i / 4][i % 4] = source.v[o / 4][o % 4];
    }
}

SIMD_INLINE void vf_join_pairs(struct vf evens, struct vf odds, struct vf *a, struct vf *b) {
    for (int i = 0; i < 16; i++) {
        struct vf *target = i < 8 ? a : b;
        int e = 2 * (i % 8), o = e + 1;
        target->v[e / 4][e % 4] = evens.v[i / 4][i % 4];
        target->v[o / 4][o % 4] = odds.v[i / 4][i % 4];
    }
}
#endif

SIMD_INLINE struct vf vf_load_f16(const uint16_t *p) {
    VF_EACH(rf_load_f16(p + 4 * i));
}

/* 16 pairs: their first elements, their second ones. */
SIMD_INLINE void vf_load_bf16_pairs(const void *p, struct vf *even, struct vf *odd) {
    uint4 pairs[4];
    memcpy(pairs, p, sizeof(pairs));
    for (int i = 0; i < 4; i++) {
        even->v[i] = (float4)(pairs[i] << 16);
        odd->v[i] = (float4)(pairs[i] & 0xffff0000u);
    }
}

/* Eight elements, zeros above. */
SIMD_INLINE struct vf vf_load_half(const float *p) {
    struct vf r = vf_set1(0);
    memcpy(&r, p, 8 * sizeof(float));
    return r;
}

SIMD_INLINE struct vf vf_load_f16_half(const uint16_t *p) {
    float4 zero = {0, 0, 0, 0};
    return (struct vf){{rf_load_f16(p), rf_load_f16(p + 4), zero, zero}};
}

#ifndef SIMD_NEON
/* Round to nearest even. */
SIMD_INLINE void vf_store_f16(uint16_t *p, struct vf a) {
    for (int i = 0; i < 16; i++)
        p[i] = f16_from_f32(a.v[i / 4][i % 4]);
}

SIMD_INLINE void vf_store_bf16(uint16_t *p, struct vf a) {
    for (int i = 0; i < 16; i++)
        p[i] = bf16_from_f32(a.v[i / 4][i % 4]);
}

SIMD_INLINE uint4 uint4_from_bytes(const uint8_t *p) {
    return (uint4){p[0], p[1], p[2], p[3]};
}
#endif

/* Converted like f16, whose exponent is one bit longer and whose bias is 8 larger. */
SIMD_INLINE float4 float4_from_e4m3(const uint8_t *p) {
    uint4 bits = uint4_from_bytes(p);
    uint4 number = (uint4)((float4)((bits & 0x7fu) << 20) * 0x1p112f);
    return (float4)((bits & 0x80u) << 24 | number);
}

/* Times 2^-8, which brings them into the range of f16. Not for the codes of NaN. */
SIMD_INLINE struct vf vf_load_e4m3(const uint8_t *p) {
    VF_EACH(float4_from_e4m3(p + 4 * i));
}

SIMD_INLINE struct vf vf_load_e4m3_half(const uint8_t *p) {
    float4 zero = {0, 0, 0, 0};
    return (struct vf){{float4_from_e4m3(p), float4_from_e4m3(p + 4), zero, zero}};
}

#ifndef SIMD_NEON
/* Numbers from -127 to 127, to nearest even: as the low bits of their sum with 1.5 * 2^23. */
SIMD_INLINE void vf_store_int8(int8_t *p, struct vf a) {
    for (int i = 0; i < 16; i++)
        p[i] = (int8_t)((uint4)(a.v[i / 4] + 0x1.8p23f))[i % 4];
}
#endif

/* 64 numbers from 0 to 255, likewise. */
SIMD_INLINE void vf_store_64_uint8(uint8_t *p, const struct vf *a) {
    for (int i = 0; i < 64; i++)
        p[i] = (uint8_t)((uint4)(a[i / 16].v[i / 4 % 4] + 0x1.8p23f))[i % 4];
}

/* The E4M3 value nearest to a number from -448 to 448, the even one of two: for numbers of at least
 * 2^e, a multiple of 2^(e - 3), which is the last bit of 1.5 * 2^(e + 20). */
SIMD_INLINE float4 float4_round_e4m3(float4 a) {
    uint4 exponent = (uint4)a & 0x7f800000u, is_normal = (uint4)(exponent > 0x3c800000u);
    exponent = (exponent & is_normal) | (0x3c800000u & ~is_normal);
    float4 rounder = (float4)(exponent + ((20u << 23) | 0x400000u));
    return (a + rounder) - rounder;
}

SIMD_INLINE struct vf vf_round_e4m3(struct vf a) {
    VF_EACH(float4_round_e4m3(a.v[i]));
}

/* Numbers from -448 to 448, to nearest even. */
SIMD_INLINE void vf_store_e4m3(uint8_t *p, struct vf a) {
    for (int i = 0; i < 16; i++)
        p[i] = e4m3_from_f32(a.v[i / 4][i % 4]);
}

/* --- Sixteen 32-bit integers, or sixteen times four bytes --- */

struct vi {
    ri v[4];
};

SIMD_INLINE struct vi vi_set1(int32_t x) {
    return (struct vi){{ri_set1(x), ri_set1(x), ri_set1(x), ri_set1(x)}};
}

SIMD_INLINE struct vi vi_load(const void *p) {
    struct vi r;
    memcpy(&r, p, sizeof(r));
    return r;
}

/* sums + the products of four unsigned bytes and four signed ones, in each lane. */
SIMD_INLINE struct vi vi_dot(struct vi sums, struct vi bytes, struct vi codes) {
    uint8_t a[64];
    int8_t b[64];
    memcpy(a, &bytes, sizeof(a));
    memcpy(b, &codes, sizeof(b));
    for (int i = 0; i < 16; i++)
        for (int j = 4 * i; j < 4 * i + 4; j++)
            sums.v[i / 4][i % 4] += a[j] * b[j];
    return sums;
}

SIMD_INLINE struct vf vf_from_vi(struct vi a) {
    VF_EACH(rf_from_int(a.v[i]));
}

/* A sum of sampling weights in double. Each is first rounded to a multiple of 2^-34 (by adding and
 * subtracting `rounding`), which makes the sum of up to 2^18 of them exact in any order. */
struct vd {
    double v[16];
};

SIMD_INLINE struct vd vd_zero(void) {
    return (struct vd){{0}};
}

SIMD_INLINE struct vd vd_add_rounded(struct vd sum, struct vf a, double rounding) {
    for (int i = 0; i < 16; i++)
        sum.v[i] += ((double)a.v[i / 4][i % 4] + rounding) - rounding;
    return sum;
}

SIMD_INLINE double vd_reduce_add(struct vd a) {
    double sum = 0;
    for (int i = 0; i < 16; i++)
        sum += a.v[i];
    return sum;
}

#endif
