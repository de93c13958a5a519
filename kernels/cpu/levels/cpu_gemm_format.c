/* Rows packed in ways that need no instructions of a level. */
#include "kernels/cpu/levels/cpu_gemm_format.h"

size_t cpu_gemm_float_row_bytes(size_t depth) {
    return (depth + FLOAT_RUN - 1) / FLOAT_RUN * FLOAT_RUN * sizeof(float);
}

size_t cpu_gemm_block_row_bytes(size_t depth) {
    return depth / PANEL_BLOCK * sizeof(struct gemm_block);
}

size_t cpu_gemm_pair_row_bytes(size_t depth) {
    return cpu_panel_pairs_depth(depth) * sizeof(uint16_t);
}

void cpu_gemm_pack_pairs(const float *x, int32_t depth, void *tile, int32_t row,
                         int32_t tile_rows) {
    uint16_t *out = (uint16_t *)tile + (size_t)row * PANEL_BLOCK;
    for (int32_t k = 0; k < depth; k += PANEL_BLOCK, out += (size_t)tile_rows * PANEL_BLOCK) {
        size_t left = (size_t)(depth - k), n = left < PANEL_BLOCK ? left : PANEL_BLOCK;
        dtype_from_f32(DTYPE_BF16, x + k, out, n);
        memset(out + n, 0, (PANEL_BLOCK - n) * sizeof(*out));
    }
}
