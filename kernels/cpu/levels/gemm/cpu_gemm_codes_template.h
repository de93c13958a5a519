/* Extracts the codes of weights from a panel's planes (cpu_panel.h), written once over a level's
 * registers. Included by cpu_gemm_LEVEL.c before the level's dot product. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_CODES_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_CODES_TEMPLATE_H

#include "kernels/cpu/levels/cpu_gemm_format.h"
#include "kernels/cpu/simd/simd.h"

#define PLANE_ROW_BYTES (4 * PANEL_COLUMNS)

/* Moves the bits of word i of a plane, `width` each, to `shift` in every byte; others become zero.
 */
SIMD_INLINE ri plane_bits(const uint8_t *row, int i, int width, int shift) {
    ri v = ri_load(row);
    int at = i * width;
    if (at > shift)
        v = ri_shr(v, at - shift);
    else if (at < shift)
        v = ri_shl(v, shift - at);
    return ri_and(v, ri_set1(((1 << width) - 1) * 0x01010101 << shift));
}

/* levels[byte] + 128 of every byte, which is below 16. */
SIMD_INLINE ri level_codes(const int8_t *levels, ri v) {
    return ri_lookup(ri_xor(ri_load_table(levels), ri_set1((int32_t)0x80808080)), v);
}

/* Word i of a 32-block: for each column four unsigned codes. `codes` points to the strip's part of
 * the block's first row. */
SIMD_INLINE ri word_codes(const struct quant_form *form, const uint8_t *codes, int i) {
    const int bits = form->code_bits;
    ri out = ri_set1(0);
    if (bits == 8)
        return ri_load(codes + i * PLANE_ROW_BYTES);
    if (cpu_panel_has_nibbles(bits)) {
        out = plane_bits(codes + i / 2 * PLANE_ROW_BYTES, i % 2, 4, 0);
        codes += 4 * PLANE_ROW_BYTES;
    }
    if (cpu_panel_has_pairs(bits)) {
        ri pairs =
            plane_bits(codes + i / 4 * PLANE_ROW_BYTES, i % 4, 2, cpu_panel_pairs_shift(bits));
        out = cpu_panel_has_nibbles(bits) ? ri_or(out, pairs) : pairs;
        codes += 2 * PLANE_ROW_BYTES;
    }
    if (cpu_panel_has_singles(bits))
        out = ri_or(out, plane_bits(codes, i, 1, cpu_panel_singles_shift(bits)));
    return form->levels != NULL ? level_codes(form->levels, out) : out;
}

#endif
