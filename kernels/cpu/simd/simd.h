/* The vector types and functions that the kernel templates (*_template.h) are written with, taken
 * from the file that matches the compiler flags of the including unit:
 *
 *   struct vf   16 floats on every level, in as many registers as that takes: rows, attention and
 *               sampling, whose layouts and order of sums are then the same everywhere
 *   rf, ri      one register, RF_LANES (4, 8 or 16) floats or 32-bit integers: the matrix product,
 *               whose tiles must fit the registers; types that intrinsics take as they are
 *
 * What is documented in simd_portable.h holds for all levels. */
#ifndef QUIRE_KERNELS_CPU_SIMD_SIMD_H
#define QUIRE_KERNELS_CPU_SIMD_SIMD_H

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include "kernels/cpu/simd/simd_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "kernels/cpu/simd/simd_avx2.h"
#else
#include "kernels/cpu/simd/simd_portable.h"
#endif

/* e^x within 2 units in the last place for x in [-87, 88], from products and sums only (no fused
 * ones), so that the bits are the same on every level. x = n ln 2 + r, e^r by its Taylor series to
 * degree 7, |r| <= 0.347. */
SIMD_INLINE struct vf vf_exp_bounded(struct vf x) {
    const struct vf rounder = vf_set1(0x1.8p23f);
    struct vf shifted = vf_add(vf_mul(x, vf_set1(0x1.715476p0f)), rounder);
    struct vf n = vf_sub(shifted, rounder);
    struct vf r = vf_sub(x, vf_mul(n, vf_set1(0x1.62ep-1f))); /* 12 bits of ln 2: exact */
    r = vf_sub(r, vf_mul(n, vf_set1(0x1.0bfbe8p-15f)));
    struct vf p = vf_set1(1.0f / 5040);
    p = vf_add(vf_mul(p, r), vf_set1(1.0f / 720));
    p = vf_add(vf_mul(p, r), vf_set1(1.0f / 120));
    p = vf_add(vf_mul(p, r), vf_set1(1.0f / 24));
    p = vf_add(vf_mul(p, r), vf_set1(1.0f / 6));
    p = vf_add(vf_mul(p, r), vf_set1(0.5f));
    p = vf_add(vf_mul(p, vf_mul(r, r)), r);
    return vf_add_exponent(vf_add(p, vf_set1(1)), shifted);
}

/* The same of any x. Below -87 it stays at e^-87 (1.6e-38), above 88 at e^88; a NaN gives one of
 * them. */
SIMD_INLINE struct vf vf_exp(struct vf x) {
    return vf_exp_bounded(vf_min(vf_max(x, vf_set1(-87)), vf_set1(88)));
}

/* tanh x within 3 units in the last place, the same bits on every level; a NaN stays one. From
 * 0.625 on (1 - e^-2|x|) / (1 + e^-2|x|), which loses no precision there; below, Lambert's
 * continued fraction x / (1 + x^2 / (3 + x^2 / (5 + x^2 / (7 + x^2 / 9)))), multiplied out. */
SIMD_INLINE struct vf vf_tanh(struct vf x) {
    const struct vf zero = vf_set1(0), one = vf_set1(1);
    struct vf negative = vf_sub(zero, x);
    struct vf size = vf_select_gt(x, zero, x, negative), square = vf_mul(x, x);
    struct vf e = vf_exp(vf_mul(size, vf_set1(-2)));
    struct vf large = vf_div(vf_sub(one, e), vf_add(one, e));
    large = vf_select_gt(x, zero, large, vf_sub(zero, large));
    struct vf p = vf_add(vf_mul(vf_add(square, vf_set1(105)), square), vf_set1(945));
    struct vf q = vf_mul(vf_add(vf_mul(square, vf_set1(15)), vf_set1(420)), square);
    struct vf small = vf_div(vf_mul(x, p), vf_add(q, vf_set1(945)));
    return vf_select_gt(size, vf_set1(0.625f), large, small);
}

#endif
