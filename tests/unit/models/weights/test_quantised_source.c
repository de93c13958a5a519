/* The tensors of quantised checkpoints whose shapes, types or contents do not fit, in files made in
 * memory. What well-formed ones compute is compared in tests/golden. */
#include "kernels/quant_form.h"
#include "models/weights/tensor_source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_TENSORS 4
#define ROWS 16
#define COLS 128
#define FILE_BYTES 65536

struct spec {
    const char *suffix, *type, *shape; /* shape: "64, 16" */
    size_t bytes;
};

static const struct spec gptq[MAX_TENSORS] = {{"qweight", "I32", "16, 16", 1024},
                                              {"scales", "F16", "4, 16", 128},
                                              {"qzeros", "I32", "4, 2", 32},
                                              {"g_idx", "I32", "128", 512}};
static const struct spec awq[MAX_TENSORS] = {{"qweight", "I32", "128, 2", 1024},
                                             {"scales", "F16", "4, 16", 128},
                                             {"qzeros", "I32", "4, 2", 32}};
static const struct spec packed[MAX_TENSORS] = {{"weight_packed", "I32", "16, 16", 1024},
                                                {"weight_scale", "BF16", "16, 4", 128},
                                                {"weight_zero_point", "I32", "2, 4", 32}};
static const struct spec int8[MAX_TENSORS] = {{"weight", "I8", "16, 128", 2048},
                                              {"weight_scale", "BF16", "16, 1", 32}};
static const struct spec fp8[MAX_TENSORS] = {{"weight", "F8_E4M3", "16, 128", 2048},
                                             {"weight_scale_inv", "F32", "1, 1", 4}};

static const struct quantization_config of_gptq = {QUANTIZATION_GPTQ, "gptq", 4, 32, true, true};
static const struct quantization_config of_awq = {QUANTIZATION_AWQ, "awq", 4, 32};
static const struct quantization_config of_packed = {QUANTIZATION_COMPRESSED, "compressed", 4, 32};
static const struct quantization_config of_int8 = {QUANTIZATION_COMPRESSED, "compressed", 8};
static const struct quantization_config of_fp8 = {QUANTIZATION_FP8, "fp8", .block_rows = 128,
                                                  .block_cols = 128};

struct fixture {
    uint8_t bytes[FILE_BYTES];
    size_t data_begin, num_bytes;
    struct model model;
    struct tensor_source source;
    uint8_t rows[ROWS * COLS * 4];
};

static void write_file(struct fixture *f, const struct spec *specs, const char *stem) {
    char header[2048] = "{";
    size_t used = 1, at = 0;
    for (int i = 0; i < MAX_TENSORS && specs[i].suffix != NULL; at += specs[i++].bytes)
        used += (size_t)snprintf(header + used, sizeof(header) - used,
                                 "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":"
                                 "[%zu,%zu]}",
                                 i > 0 ? "," : "", stem, specs[i].suffix, specs[i].type,
                                 specs[i].shape, at, at + specs[i].bytes);
    header[used++] = '}';
    uint64_t length = used;
    memset(f->bytes, 0, sizeof(f->bytes));
    memcpy(f->bytes, &length, sizeof(length));
    memcpy(f->bytes + 8, header, used);
    f->data_begin = 8 + used;
    f->num_bytes = f->data_begin + at;
}

static bool open_source(struct fixture *f, const struct spec *specs,
                        const struct quantization_config *quantization, struct tensor_place place,
                        const char *stem) {
    struct error err = {0};
    write_file(f, specs, stem);
    f->model = (struct model){.config = {.naming = TENSOR_NAMING_HF,
                                         .tensor_prefix = "model.",
                                         .quantization = *quantization}};
    if (tensor_file_open_memory(f->bytes, f->num_bytes, "file", &f->model.file, &err) != 0)
        fail_msg("%s", err.message);
    return tensor_source_find(&f->model, place, &f->source);
}

static bool open_down(struct fixture *f, const struct spec *specs,
                      const struct quantization_config *quantization) {
    return open_source(f, specs, quantization, (struct tensor_place){TENSOR_DOWN, 0, 0},
                       "model.layers.0.mlp.down_proj.");
}

/* The specs with one tensor's type or shape changed; NULL: as it is. The file has the bytes that
 * these take. */
static void assert_wrong(const struct spec *specs, const struct quantization_config *quantization,
                         int which, const char *type, const char *shape, size_t bytes,
                         const char *reason) {
    static struct fixture f;
    struct spec changed[MAX_TENSORS];
    memcpy(changed, specs, sizeof(changed));
    changed[which].type = type != NULL ? type : specs[which].type;
    changed[which].shape = shape != NULL ? shape : specs[which].shape;
    changed[which].bytes = bytes;
    assert_true(open_down(&f, changed, quantization));
    assert_non_null(f.source.wrong);
    if (strstr(f.source.wrong, reason) == NULL)
        fail_msg("'%s' instead of '%s'", f.source.wrong, reason);
    assert_non_null(f.source.tensors[f.source.wrong_tensor]);
    tensor_file_close(f.model.file);
}

static void test_shapes_and_types(void **state) {
    assert_wrong(gptq, &of_gptq, 0, "F32", NULL, 1024, "not a matrix of type I32");
    assert_wrong(gptq, &of_gptq, 0, NULL, "256", 1024, "not a matrix of type I32");
    assert_wrong(gptq, &of_gptq, 0, NULL, "18, 16", 1152, "not whole groups");
    assert_wrong(gptq, &of_gptq, 1, NULL, "2, 32", 128, "a scale for each row and group");
    assert_wrong(gptq, &of_gptq, 1, "I16", NULL, 128, "not of a float type");
    assert_wrong(gptq, &of_gptq, 2, NULL, "4, 1", 16, "a zero point for each row");
    assert_wrong(gptq, &of_gptq, 2, "F32", NULL, 32, "a zero point for each row");
    assert_wrong(gptq, &of_gptq, 3, NULL, "64", 256, "a group for each column");
    assert_wrong(gptq, &of_gptq, 3, "I64", NULL, 1024, "a group for each column");
    assert_wrong(awq, &of_awq, 0, NULL, "2, 128", 1024, "not whole groups");
    assert_wrong(awq, &of_awq, 2, NULL, "2, 4", 32, "a zero point for each row");
    assert_wrong(packed, &of_packed, 1, NULL, "4, 16", 128, "a scale for each row and group");
    assert_wrong(packed, &of_packed, 2, NULL, "4, 2", 32, "a zero point for each row");
    assert_wrong(int8, &of_int8, 1, NULL, "8, 2", 32, "a scale for each row and group");
    assert_wrong(int8, &of_packed, 0, NULL, NULL, 2048, "num_bits is not 8");
    assert_wrong(fp8, &of_fp8, 0, NULL, "32, 64", 2048, "a multiple of 128 columns");
    assert_wrong(fp8, &of_fp8, 1, NULL, "2, 1", 8, "no tensor, row or block");
    assert_wrong(fp8, &of_fp8, 1, "I32", NULL, 4, "not of a float type");
}

static void test_missing_tensors(void **state) {
    static struct fixture f;
    struct spec few[MAX_TENSORS] = {gptq[0], gptq[1]};
    assert_true(open_down(&f, few, &of_gptq));
    assert_non_null(strstr(f.source.wrong, "zero points is missing"));
    tensor_file_close(f.model.file);
    few[1] = (struct spec){0};
    assert_true(open_down(&f, few, &of_gptq));
    assert_non_null(strstr(f.source.wrong, "scales is missing"));
    tensor_file_close(f.model.file);
    assert_false(open_down(&f, (const struct spec[MAX_TENSORS]){gptq[1]}, &of_gptq));
    tensor_file_close(f.model.file);
}

static uint8_t *data_of(struct fixture *f, int tensor) {
    return f->bytes + f->source.tensors[tensor]->offset;
}

static const char *assemble(struct fixture *f) {
    const uint8_t *raw[TENSOR_SOURCE_MAX_TENSORS] = {NULL};
    for (int i = 0; i < f->source.num_tensors; i++)
        if (f->source.tensors[i] != NULL)
            raw[i] = data_of(f, i);
    assert_null(f->source.wrong);
    assert_int_equal(f->source.rows, ROWS);
    assert_int_equal(f->source.cols, COLS);
    return f->source.assemble(&f->source, raw, 0, ROWS, f->rows);
}

static void set_order(struct fixture *f, uint32_t column_5) {
    for (uint32_t k = 0; k < COLS; k++) {
        uint32_t group = k == 5 ? column_5 : k / 32;
        memcpy(data_of(f, 3) + 4 * k, &group, sizeof(group));
    }
}

static void test_contents(void **state) {
    static struct fixture f;
    assert_true(open_down(&f, gptq, &of_gptq));
    set_order(&f, 0);
    assert_null(assemble(&f));
    set_order(&f, 4);
    assert_non_null(strstr(assemble(&f), "a group that does not exist"));
    set_order(&f, UINT32_MAX);
    assert_non_null(strstr(assemble(&f), "a group that does not exist"));
    set_order(&f, 3);
    assert_non_null(strstr(assemble(&f), "although desc_act is false"));
    set_order(&f, 0);
    memset(data_of(&f, 1) + 6, 0x7c, 2);
    assert_non_null(strstr(assemble(&f), "not a finite number"));
    tensor_file_close(f.model.file);

    assert_true(open_down(&f, fp8, &of_fp8));
    assert_null(assemble(&f));
    data_of(&f, 0)[77] = 0xff;
    assert_non_null(strstr(assemble(&f), "a weight is NaN"));
    tensor_file_close(f.model.file);
}

/* Gate's and up's rows take turns in the file; codes of a byte follow each other. */
static void test_mxfp4(void **state) {
    static struct fixture f;
    static const struct spec specs[MAX_TENSORS] = {{"blocks", "U8", "2, 16, 4, 16", 2048},
                                                   {"scales", "U8", "2, 16, 4", 128}};
    const struct quantization_config config = {QUANTIZATION_MXFP4, "mxfp4", 4};
    const struct tensor_place place = {TENSOR_EXPERT_GATE_UP, 0, TENSOR_ALL_EXPERTS};
    assert_true(open_source(&f, specs, &config, place, "model.layers.0.mlp.experts.gate_up_proj_"));
    assert_int_equal(f.source.num_experts, 2);
    for (int i = 0; i < 2048; i++)
        data_of(&f, 0)[i] = (uint8_t)(i * 31 + i / 7);
    for (int i = 0; i < 128; i++)
        data_of(&f, 1)[i] = (uint8_t)(100 + i);
    assert_null(assemble(&f));
    for (int row = 0; row < ROWS; row++) {
        float values[COLS];
        int stored = row < ROWS / 2 ? 2 * row : 2 * (row - ROWS / 2) + 1;
        dtype_to_f32(DTYPE_MXFP4, f.rows + (size_t)row * (COLS / 32 * 17), values, COLS);
        for (int k = 0; k < COLS; k++) {
            int code = data_of(&f, 0)[stored * 64 + k / 2] >> k % 2 * 4 & 15;
            int exponent = data_of(&f, 1)[stored * 4 + k / 32];
            assert_true(values[k] == ldexpf((float)quant_levels_e2m1[code], exponent - 128));
        }
    }
    tensor_file_close(f.model.file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_and_types),
        cmocka_unit_test(test_missing_tensors),
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_mxfp4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
