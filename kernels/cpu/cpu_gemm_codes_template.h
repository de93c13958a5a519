/* The codes of weights out of a panel's planes (cpu_panel.h), written once over a level's vectors.
 * Included by cpu_gemm_LEVEL.c only, after vint and
 *   vint_load(p)                        any alignment
 *   vint_and, vint_or, vint_shl, vint_shr(v, constant)   shifts of 16-bit items or wider
 *   vint_levels(v)                      quant_levels[byte] + 128 of every byte, which is below 16
 * and before the level's dot product. */
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/cpu/cpu_panel.h"

#define PLANE_ROW_BYTES (4 * PANEL_COLUMNS)

/* Moves the bits of word i of a plane, `width` each, to `shift` in every byte; others become zero.
 */
SIMD_INLINE vint plane_bits(const uint8_t *row, int i, int width, int shift) {
    vint v = vint_load(row);
    int at = i * width;
    if (at > shift)
        v = vint_shr(v, at - shift);
    else if (at < shift)
        v = vint_shl(v, shift - at);
    return vint_and(v, vint_set1(((1 << width) - 1) * 0x01010101 << shift));
}

/* Word i of a 32-block: for each column four unsigned codes. `codes` points to the strip's part of
 * the block's first row. */
SIMD_INLINE vint word_codes(const struct quant_form *form, const uint8_t *codes, int i) {
    const int bits = form->code_bits;
    vint out = vint_zero();
    if (bits == 8)
        return vint_load(codes + i * PLANE_ROW_BYTES);
    if (cpu_panel_has_nibbles(bits)) {
        out = plane_bits(codes + i / 2 * PLANE_ROW_BYTES, i % 2, 4, 0);
        codes += 4 * PLANE_ROW_BYTES;
    }
    if (cpu_panel_has_pairs(bits)) {
        vint pairs =
            plane_bits(codes + i / 4 * PLANE_ROW_BYTES, i % 4, 2, cpu_panel_pairs_shift(bits));
        out = cpu_panel_has_nibbles(bits) ? vint_or(out, pairs) : pairs;
        codes += 2 * PLANE_ROW_BYTES;
    }
    if (cpu_panel_has_singles(bits))
        out = vint_or(out, plane_bits(codes, i, 1, cpu_panel_singles_shift(bits)));
    return form->has_levels ? vint_levels(out) : out;
}
