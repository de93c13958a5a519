#include "kernels/cuda/packed/packed_layout.h"

#include "config/base/numbers.h"
#include "kernels/quant_block.h"

#include <string.h>

#define ALIGNMENT 256
#define LANES 4      /* of a chunk; as many as it has groups of 32 columns */
#define LANE_CODES 8 /* of a lane in such a group */

size_t packed_row_bytes(const struct packed_form *form, int plane, int32_t cols) {
    size_t num_chunks = ((size_t)cols + PACKED_CHUNK - 1) / PACKED_CHUNK;
    return num_chunks * (size_t)packed_pair_bytes(form, plane) / 2;
}

size_t packed_planes_init(const struct packed_form *form, char *memory, int32_t num_rows,
                          int32_t cols, struct packed_planes *out) {
    size_t bytes = 0;
    for (int plane = 0; plane < PACKED_NUM_PLANES; plane++) {
        size_t of_plane = (size_t)num_rows * packed_row_bytes(form, plane, cols);
        bool is_there = memory != NULL && of_plane > 0;
        out->at[plane] = is_there ? (uint8_t *)memory + bytes : NULL;
        bytes += (of_plane + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return bytes;
}

/* --- Packing --- */

/* Codes of neighbouring columns of a lane: those of even e in the lower half of a word, those of
 * odd e in the upper one. */
static uint32_t pack_neighbours(const uint8_t *codes, int first_bit, int num_bits) {
    const uint32_t mask = (1U << num_bits) - 1;
    uint32_t word = 0;
    for (int i = 0; i < LANE_CODES / 2; i++)
        word |= (codes[2 * i] >> first_bit & mask) << num_bits * i |
                (codes[2 * i + 1] >> first_bit & mask) << (16 + num_bits * i);
    return word;
}

/* Packs some bits, at most 4, of a chunk's codes into its bytes of a plane. */
static void pack_bits(const uint8_t *codes, int first_bit, int num_bits, uint8_t *out) {
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t words[4] = {0};
        for (int j = 0; j < LANES; j++) {
            const uint8_t *own = codes + LANES * LANE_CODES * j + LANE_CODES * lane;
            words[j * num_bits / 4] |= pack_neighbours(own, first_bit, num_bits)
                                       << j * num_bits % 4 * 4;
        }
        memcpy(out + 4 * num_bits * lane, words, 4 * (size_t)num_bits);
    }
}

static void pack_bytes(const uint8_t *codes, uint8_t flipped, uint8_t *out) {
    for (int lane = 0; lane < LANES; lane++)
        for (int j = 0; j < LANES; j++)
            for (int e = 0; e < LANE_CODES; e++)
                *out++ = codes[LANES * LANE_CODES * j + LANE_CODES * lane + e] ^ flipped;
}

/* Orders the codes of each 32 columns by lanes, where scales are for 16. */
static void order_by_lanes(uint8_t *codes) {
    uint8_t ordered[PACKED_CHUNK];
    for (int i = 0; i < PACKED_CHUNK; i++) {
        const int lane = i % 32 / LANE_CODES, e = i % LANE_CODES;
        ordered[i] = codes[i / 32 * 32 + e / 4 * 16 + lane * 4 + e % 4];
    }
    memcpy(codes, ordered, sizeof(ordered));
}

static void pack_chunk(const struct packed_form *form, uint8_t *codes, uint8_t *low,
                       uint8_t *high) {
    if (form->group == 16)
        order_by_lanes(codes);
    if (form->low_bits == 8)
        pack_bytes(codes, (uint8_t)form->zero, low);
    else if (form->low_bits == 4)
        pack_bits(codes, 0, 4, low);
    else
        pack_bits(codes, 0, 2, low);
    if (form->high_bits == 1)
        pack_bits(codes, form->low_bits, 1, high);
    else if (form->high_bits == 2)
        pack_bits(codes, form->low_bits, 2, high);
}

/* Of block i of a row. */
static void put_factors(const struct packed_form *form, const struct quant_block *block,
                        const struct packed_planes *row, size_t i) {
    const size_t bytes = (size_t)packed_factor_bytes(form->factor);
    const size_t num_groups = form->group > 0 ? (size_t)(form->block / form->group) : 0;
    uint8_t *factors = row->at[PACKED_FACTORS] + i * bytes * (form->has_min ? 2 : 1);
    memcpy(factors, &block->d, bytes);
    if (form->has_min)
        memcpy(factors + bytes, &block->m, bytes);
    if (form->has_zero)
        row->at[PACKED_ZEROS][i] = block->zero;
    for (size_t g = 0; g < num_groups; g++) {
        const int scale = block->scales[g] + (form->has_min ? 0 : 128);
        const int min = form->has_min ? block->mins[g] : 0;
        row->at[PACKED_SCALES][i * num_groups + g] =
            (uint8_t)(form->has_nibbles ? scale | min << 4 : scale);
        if (form->has_min && !form->has_nibbles)
            row->at[PACKED_MINS][i * num_groups + g] = (uint8_t)min;
    }
}

/* Returns where a row's planes are, which it clears. */
static struct packed_planes clear_row(const struct packed_form *form,
                                      const struct packed_planes *planes, int32_t cols,
                                      int32_t row) {
    struct packed_planes out = {{NULL}};
    for (int plane = 0; plane < PACKED_NUM_PLANES; plane++) {
        size_t bytes = packed_row_bytes(form, plane, cols);
        if (bytes == 0)
            continue;
        out.at[plane] = planes->at[plane] + (size_t)row * bytes;
        memset(out.at[plane], 0, bytes);
    }
    return out;
}

void packed_row_pack(const struct packed_form *form, const uint8_t *src, int32_t cols,
                     const struct packed_planes *planes, int32_t row) {
    const struct packed_planes own = clear_row(form, planes, cols, row);
    const size_t low_bytes = PACKED_CHUNK / 8 * (size_t)form->low_bits;
    const size_t high_bytes = PACKED_CHUNK / 8 * (size_t)form->high_bits;
    const size_t num_chunks = ((size_t)cols + PACKED_CHUNK - 1) / PACKED_CHUNK;
    size_t block_index = 0;
    for (size_t chunk = 0; chunk < num_chunks; chunk += 2) {
        uint8_t codes[2 * PACKED_CHUNK + DTYPE_MAX_BLOCK_ELEMENTS] = {0};
        const int32_t left = cols - (int32_t)chunk * PACKED_CHUNK;
        for (int32_t i = 0; i < min_int32(left, 2 * PACKED_CHUNK); i += form->block) {
            struct quant_block block;
            quant_block_unpack(form->dtype, src, &block);
            src += dtype_block_bytes(form->dtype);
            memcpy(codes + i, block.codes, (size_t)form->block);
            put_factors(form, &block, &own, block_index++);
        }
        for (size_t i = chunk; i < chunk + 2 && i < num_chunks; i++)
            pack_chunk(form, codes + (i - chunk) * PACKED_CHUNK, own.at[PACKED_LOW] + i * low_bytes,
                       high_bytes > 0 ? own.at[PACKED_HIGH] + i * high_bytes : NULL);
    }
}
