/* Every quantised type against the values of the gguf package (scripts/golden/make_quant_blocks.py
 * says what the file holds), bit for bit; those of other checkpoints against their definition. */
#include "kernels/quant_block.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct record {
    char name[8];
    int32_t num_blocks, block_bytes, block_elements;
};

static const char *blocks_path;

static enum dtype dtype_of(const char *name) {
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        if (strcmp(dtype_name((enum dtype)dtype), name) == 0)
            return (enum dtype)dtype;
    fail_msg("no type is called %s", name);
    return DTYPE_NONE;
}

static void *read_exactly(FILE *file, size_t bytes, size_t offset) {
    char *memory = malloc(bytes + offset);
    assert_non_null(memory);
    assert_int_equal(fread(memory + offset, 1, bytes, file), bytes);
    return memory;
}

static void check_unpacked(enum dtype dtype, const uint8_t *blocks, const float *values, int n) {
    size_t block_elements = (size_t)dtype_block_elements(dtype);
    float out[DTYPE_MAX_BLOCK_ELEMENTS];
    for (int b = 0; b < n; b++) {
        const uint8_t *bytes = blocks + (size_t)b * dtype_block_bytes(dtype);
        uint8_t packed[1 + 256];
        struct quant_block block;
        quant_block_unpack(dtype, bytes, &block);
        if (dtype_can_quantise(dtype)) {
            quant_block_pack(dtype, &block, packed + 1);
            assert_memory_equal(packed + 1, bytes, dtype_block_bytes(dtype));
        }
        for (size_t i = 0; i < block_elements; i++)
            assert_true(block.codes[i] < 1 << quant_forms[dtype].code_bits);
        quant_block_to_f32(dtype, &block, out);
        assert_memory_equal(out, values + (size_t)b * block_elements,
                            block_elements * sizeof(float));
    }
}

/* The blocks lie at an odd address. */
static enum dtype check_record(FILE *file, const struct record *record) {
    enum dtype dtype = dtype_of(record->name);
    size_t n = (size_t)record->num_blocks * (size_t)record->block_elements;
    assert_int_equal(dtype_block_bytes(dtype), record->block_bytes);
    assert_int_equal(dtype_block_elements(dtype), record->block_elements);
    uint8_t *blocks = read_exactly(file, dtype_row_bytes(dtype, n), 1);
    float *values = read_exactly(file, n * sizeof(float), 0);
    float *out = malloc(n * sizeof(float));
    assert_non_null(out);
    dtype_to_f32(dtype, blocks + 1, out, n);
    assert_memory_equal(out, values, n * sizeof(float));
    check_unpacked(dtype, blocks + 1, values, record->num_blocks);
    free(out);
    free(values);
    free(blocks);
    return dtype;
}

/* The types that are blocks of codes with one factor and one zero point, or of E4M3. */
static bool is_of_gguf(enum dtype dtype) {
    return !quant_forms[dtype].has_zero && !quant_forms[dtype].is_e4m3;
}

static float factor_at(enum dtype dtype, const uint8_t *block) {
    uint16_t half;
    float single;
    memcpy(&half, block, sizeof(half));
    memcpy(&single, block, sizeof(single));
    return quant_forms[dtype].factor == QUANT_SCALE_F32 ? single : f16_to_f32(half);
}

static float defined_value(enum dtype dtype, const uint8_t *block, int i) {
    const struct quant_form *form = &quant_forms[dtype];
    const uint8_t *rest = block + (form->factor == QUANT_SCALE_F32 ? 4 : 2);
    float d = factor_at(dtype, block);
    if (form->is_e4m3)
        return d * ((rest[i] & 127) < 127 ? e4m3_to_f32(rest[i]) : rest[i] > 127 ? -480 : 480);
    int byte = form->code_bits == 8 ? i : i / 32 * 16 + i % 16;
    int code = form->code_bits == 8 ? rest[1 + byte] : rest[1 + byte] >> (i % 32 / 16 * 4) & 15;
    return d * (float)(code - rest[0]);
}

static void test_values_of_checkpoints(void **state) {
    uint8_t block[256];
    float out[DTYPE_MAX_BLOCK_ELEMENTS];
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        if (!dtype_is_quantised((enum dtype)dtype) || is_of_gguf((enum dtype)dtype))
            continue;
        for (int first = 0; first < 256; first += 7) {
            for (int i = 0; i < 256; i++)
                block[i] = (uint8_t)(first + 37 * i);
            const float d = 0.0123f * (float)(first - 100);
            uint16_t half = f16_from_f32(d);
            bool is_single = quant_forms[dtype].factor == QUANT_SCALE_F32;
            memcpy(block, is_single ? (const void *)&d : &half, is_single ? 4 : 2);
            dtype_to_f32((enum dtype)dtype, block, out, (size_t)quant_forms[dtype].block_elements);
            for (int i = 0; i < quant_forms[dtype].block_elements; i++)
                assert_true(out[i] == defined_value((enum dtype)dtype, block, i));
        }
    }
}

static void test_values_of_every_type(void **state) {
    FILE *file = fopen(blocks_path, "rb");
    assert_non_null(file);
    bool seen[DTYPE_COUNT] = {false};
    struct record record;
    while (fread(&record, sizeof(record), 1, file) == 1)
        seen[check_record(file, &record)] = true;
    assert_true(feof(file));
    fclose(file);
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        assert_int_equal(seen[dtype],
                         dtype_is_quantised((enum dtype)dtype) && is_of_gguf((enum dtype)dtype));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values_of_every_type),
                                       cmocka_unit_test(test_values_of_checkpoints)};
    if (argc != 2)
        return 2;
    blocks_path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
