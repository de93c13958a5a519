/* Codes move as words of four elements. A panel is filled block by block over its columns, so that
 * what is written stays in the first cache. */
#include "kernels/cpu/levels/cpu_panel.h"

#include "kernels/cpu/simd/simd_base.h"
#include "kernels/quant_block.h"

#include <string.h>

#define WORDS (PANEL_BLOCK / 4)
#define ROW_BYTES (4 * PANEL_COLUMNS) /* of a plane: a word or part of one for every column */
#define NIBBLES 0x0f0f0f0fu
#define PAIRS 0x03030303u
#define SINGLES 0x01010101u

static void store_word(uint8_t *dst, uint32_t word) {
    memcpy(dst, &word, sizeof(word));
}

static uint32_t load_word(const uint8_t *src) {
    uint32_t word;
    memcpy(&word, src, sizeof(word));
    return word;
}

/* One 32-block of one column. */
static void pack_codes(int code_bits, const uint8_t *codes, uint8_t *dst) {
    uint32_t w[WORDS];
    memcpy(w, codes, sizeof(w));
    if (code_bits == 8) {
        UNROLL
        for (int i = 0; i < WORDS; i++)
            store_word(dst + i * ROW_BYTES, w[i]);
        return;
    }
    if (cpu_panel_has_nibbles(code_bits)) {
        UNROLL
        for (int i = 0; i < WORDS; i += 2, dst += ROW_BYTES)
            store_word(dst, (w[i] & NIBBLES) | (w[i + 1] & NIBBLES) << 4);
    }
    if (cpu_panel_has_pairs(code_bits)) {
        int shift = cpu_panel_pairs_shift(code_bits);
        UNROLL
        for (int i = 0; i < WORDS; i += 4, dst += ROW_BYTES)
            store_word(dst, (w[i] >> shift & PAIRS) | (w[i + 1] >> shift & PAIRS) << 2 |
                                (w[i + 2] >> shift & PAIRS) << 4 |
                                (w[i + 3] >> shift & PAIRS) << 6);
    }
    if (cpu_panel_has_singles(code_bits)) {
        int shift = cpu_panel_singles_shift(code_bits);
        uint32_t row = 0;
        UNROLL
        for (int i = 0; i < WORDS; i++)
            row |= (w[i] >> shift & SINGLES) << i;
        store_word(dst, row);
    }
}

static void unpack_codes(int code_bits, const uint8_t *src, uint8_t *codes) {
    uint32_t w[WORDS] = {0};
    if (code_bits == 8)
        for (int i = 0; i < WORDS; i++, src += ROW_BYTES)
            w[i] = load_word(src);
    if (cpu_panel_has_nibbles(code_bits))
        for (int i = 0; i < WORDS; i++)
            w[i] = load_word(src + i / 2 * ROW_BYTES) >> 4 * (i % 2) & NIBBLES;
    if (cpu_panel_has_nibbles(code_bits))
        src += WORDS / 2 * ROW_BYTES;
    if (cpu_panel_has_pairs(code_bits)) {
        for (int i = 0; i < WORDS; i++)
            w[i] |= (load_word(src + i / 4 * ROW_BYTES) >> 2 * (i % 4) & PAIRS)
                    << cpu_panel_pairs_shift(code_bits);
        src += WORDS / 4 * ROW_BYTES;
    }
    if (cpu_panel_has_singles(code_bits))
        for (int i = 0; i < WORDS; i++)
            w[i] |= (load_word(src) >> i & SINGLES) << cpu_panel_singles_shift(code_bits);
    memcpy(codes, w, sizeof(w));
}

static void pack_record(const struct quant_form *form, const struct quant_block *block,
                        uint8_t *record, size_t column) {
    size_t bytes = quant_scale_bytes(form->factor);
    memcpy(record + bytes * column, &block->d, bytes);
    if (form->has_min)
        memcpy(record + bytes * (PANEL_COLUMNS + column), &block->m, bytes);
    if (form->has_zero)
        record[bytes * PANEL_COLUMNS + column] = block->zero;
    if (form->scale_bits == 0)
        return;
    int num_groups = form->block_elements / form->group_elements;
    uint8_t *scales = record + cpu_panel_factor_bytes(form) + column;
    for (int g = 0; g < num_groups; g++, scales += cpu_panel_group_bytes(form)) {
        scales[0] = (uint8_t)block->scales[g];
        if (form->has_min && form->scale_bits == 4)
            scales[0] |= (uint8_t)(block->mins[g] << 4);
        else if (form->has_min)
            scales[PANEL_COLUMNS] = block->mins[g];
    }
}

static void unpack_record(const struct quant_form *form, const uint8_t *record, size_t column,
                          struct quant_block *out) {
    size_t bytes = quant_scale_bytes(form->factor);
    out->d = out->m = 0;
    memcpy(&out->d, record + bytes * column, bytes);
    if (form->has_min)
        memcpy(&out->m, record + bytes * (PANEL_COLUMNS + column), bytes);
    if (form->has_zero)
        out->zero = record[bytes * PANEL_COLUMNS + column];
    int num_groups = form->block_elements / form->group_elements;
    const uint8_t *scales = record + cpu_panel_factor_bytes(form) + column;
    for (int g = 0; g < num_groups; g++, scales += cpu_panel_group_bytes(form)) {
        out->scales[g] = 1;
        out->mins[g] = 1;
        if (form->scale_bits == 4) {
            out->scales[g] = (int8_t)(scales[0] & 15);
            out->mins[g] = scales[0] >> 4;
        } else if (form->scale_bits == 8) {
            memcpy(&out->scales[g], scales, 1);
            out->mins[g] = form->has_min ? scales[PANEL_COLUMNS] : 0;
        }
    }
}

static void pack_blocks(enum dtype dtype, const uint8_t *src, size_t row_bytes, size_t depth,
                        uint8_t *panel, size_t first_column, size_t num_columns) {
    const struct quant_form *form = &quant_forms[dtype];
    size_t code_bytes = cpu_panel_code_bytes(form), block_bytes = dtype_block_bytes(dtype);
    size_t num_blocks = depth / (size_t)form->block_elements;
    uint8_t *codes = panel, *record = panel + depth / PANEL_BLOCK * code_bytes;
    for (size_t b = 0; b < num_blocks; b++, src += block_bytes) {
        for (size_t c = 0; c < num_columns; c++) {
            struct quant_block block;
            size_t column = first_column + c;
            quant_block_unpack(dtype, src + c * row_bytes, &block);
            for (size_t i = 0; i < (size_t)form->block_elements / PANEL_BLOCK; i++)
                pack_codes(form->code_bits, block.codes + i * PANEL_BLOCK,
                           codes + i * code_bytes + 4 * column);
            pack_record(form, &block, record, column);
        }
        codes += (size_t)form->block_elements / PANEL_BLOCK * code_bytes;
        record += cpu_panel_record_bytes(form);
    }
}

static void unpack_blocks(enum dtype dtype, const uint8_t *panel, size_t depth, size_t column,
                          float *out) {
    const struct quant_form *form = &quant_forms[dtype];
    size_t code_bytes = cpu_panel_code_bytes(form), block_elements = (size_t)form->block_elements;
    const uint8_t *codes = panel + 4 * column;
    const uint8_t *record = panel + depth / PANEL_BLOCK * code_bytes;
    for (size_t k = 0; k < depth; k += block_elements) {
        struct quant_block block;
        for (size_t i = 0; i < block_elements; i += PANEL_BLOCK, codes += code_bytes)
            unpack_codes(form->code_bits, codes, block.codes + i);
        unpack_record(form, record, column, &block);
        quant_block_to_f32(dtype, &block, out + k);
        record += cpu_panel_record_bytes(form);
    }
}

static void pack_halves(const uint8_t *src, size_t row_bytes, size_t depth, uint8_t *dst,
                        size_t num_columns) {
    for (size_t k = 0; k < depth; k++, src += 2, dst += 2 * PANEL_COLUMNS)
        for (size_t c = 0; c < num_columns; c++)
            memcpy(dst + 2 * c, src + c * row_bytes, 2);
}

static void pack_floats(const uint8_t *src, size_t row_bytes, size_t depth, uint8_t *dst,
                        size_t num_columns) {
    for (size_t k = 0; k < depth; k++, src += 4, dst += 4 * PANEL_COLUMNS)
        for (size_t c = 0; c < num_columns; c++)
            memcpy(dst + 4 * c, src + c * row_bytes, 4);
}

static void pack_elements(enum dtype dtype, const uint8_t *src, size_t row_bytes, size_t depth,
                          uint8_t *panel, size_t first_column, size_t num_columns) {
    if (dtype_block_bytes(dtype) == 2)
        pack_halves(src, row_bytes, depth, panel + 2 * first_column, num_columns);
    else
        pack_floats(src, row_bytes, depth, panel + 4 * first_column, num_columns);
}

static void unpack_elements(enum dtype dtype, const uint8_t *panel, size_t depth, size_t column,
                            float *out) {
    size_t item_bytes = dtype_block_bytes(dtype);
    for (size_t k = 0; k < depth; k++)
        dtype_to_f32(dtype, panel + (k * PANEL_COLUMNS + column) * item_bytes, out + k, 1);
}

static void pack_pairs(enum dtype dtype, const uint8_t *src, size_t row_bytes, size_t depth,
                       uint8_t *panel, size_t first_column, size_t num_columns) {
    for (size_t k = 0; k < depth; k += 2) {
        size_t bytes = k + 1 < depth ? 4 : 2;
        uint8_t *row = panel + k * 2 * PANEL_COLUMNS + first_column * 4;
        for (size_t c = 0; c < num_columns; c++)
            memcpy(row + 4 * c, src + c * row_bytes + 2 * k, bytes);
    }
}

static void unpack_pairs(enum dtype dtype, const uint8_t *panel, size_t depth, size_t column,
                         float *out) {
    for (size_t k = 0; k < depth; k++)
        dtype_to_f32(dtype, panel + (k / 2 * PANEL_COLUMNS + column) * 4 + k % 2 * 2, out + k, 1);
}

static void pack_file_blocks(enum dtype dtype, const uint8_t *src, size_t row_bytes, size_t depth,
                             uint8_t *panel, size_t first_column, size_t num_columns) {
    size_t bytes = dtype_block_bytes(dtype);
    for (size_t at = 0; at < dtype_row_bytes(dtype, depth); at += bytes)
        for (size_t c = 0; c < num_columns; c++)
            memcpy(panel + at * PANEL_COLUMNS + (first_column + c) * bytes,
                   src + c * row_bytes + at, bytes);
}

static void unpack_file_blocks(enum dtype dtype, const uint8_t *panel, size_t depth, size_t column,
                               float *out) {
    size_t bytes = dtype_block_bytes(dtype), elements = (size_t)dtype_block_elements(dtype);
    for (size_t k = 0; k < depth; k += elements, panel += PANEL_COLUMNS * bytes)
        dtype_to_f32(dtype, panel + column * bytes, out + k, elements);
}

void cpu_panel_decode(enum dtype dtype, const uint8_t *blocks, struct cpu_panel_decoded *out) {
    int num_groups = DTYPE_MAX_BLOCK_ELEMENTS / quant_forms[dtype].group_elements;
    for (size_t c = 0; c < PANEL_COLUMNS; c++, blocks += dtype_block_bytes(dtype)) {
        struct quant_block block;
        quant_block_unpack(dtype, blocks, &block);
        float factor = quant_block_factor(dtype, &block);
        for (int g = 0; g < num_groups; g++)
            out->factors[g][c] = factor * (float)block.scales[g];
        for (int i = 0; i < DTYPE_MAX_BLOCK_ELEMENTS; i += 4)
            memcpy(out->codes + i * PANEL_COLUMNS + 4 * c, block.codes + i, 4);
    }
}

static size_t pairs_column_bytes(enum dtype dtype, size_t depth) {
    return dtype_row_bytes(dtype, cpu_panel_pairs_depth(depth));
}

static size_t blocks_column_bytes(enum dtype dtype, size_t depth) {
    const struct quant_form *form = &quant_forms[dtype];
    size_t per_block = (size_t)form->block_elements / PANEL_BLOCK * cpu_panel_code_bytes(form) +
                       cpu_panel_record_bytes(form);
    return depth / (size_t)form->block_elements * (per_block / PANEL_COLUMNS);
}

const struct cpu_panel_layout cpu_panel_elements = {dtype_row_bytes, pack_elements,
                                                    unpack_elements};
const struct cpu_panel_layout cpu_panel_pairs = {pairs_column_bytes, pack_pairs, unpack_pairs};
const struct cpu_panel_layout cpu_panel_blocks = {blocks_column_bytes, pack_blocks, unpack_blocks};
const struct cpu_panel_layout cpu_panel_file_blocks = {dtype_row_bytes, pack_file_blocks,
                                                       unpack_file_blocks};
