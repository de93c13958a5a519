/* Every quantised type against the values of the gguf package (scripts/golden/make_quant_blocks.py
 * says what the file holds), bit for bit. */
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
        struct quant_block block;
        quant_block_unpack(dtype, blocks + (size_t)b * dtype_block_bytes(dtype), &block);
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
        assert_int_equal(seen[dtype], dtype_is_quantised((enum dtype)dtype));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values_of_every_type)};
    if (argc != 2)
        return 2;
    blocks_path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
