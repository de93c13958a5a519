/* The matrix product and embed of a device against the oracle, which gets the same weights after
 * they were rounded to what the device keeps: every type of weights, ragged numbers of rows,
 * several parts, biases, products added in place, float results. Opened as batch-invariant, a row
 * has the same bits alone and in company. */
#include "tests/kernels/device_fixture.h"
#include "tests/kernels/random_weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_PARTS 3
#define MAX_STEP_TOKENS 100

static struct device_fixture fixture;

static const int32_t row_counts[] = {1, 2, 3, 7, 8, 9, 16, 17, 33, 64, MAX_STEP_TOKENS};
#define NUM_ROW_COUNTS (sizeof(row_counts) / sizeof(row_counts[0]))

static void *allocate(size_t bytes) {
    void *p = malloc(bytes);
    assert_non_null(p);
    return p;
}

static void synchronize(void) {
    struct error err = {0};
    if (fixture.device->ops->synchronize(fixture.device, &err) != 0)
        fail_msg("%s", err.message);
}

/* One matrix as the file would hold it, and as the oracle is to see it. */
struct weights {
    int32_t rows, cols;
    int num_parts;
    struct matrix_part device_parts[MAX_PARTS];
    struct matrix_part oracle_parts[MAX_PARTS];
    void *data[MAX_PARTS];
    float *values[MAX_PARTS]; /* rounded */
    float *biases[MAX_PARTS]; /* NULL: none */
};

static void weights_add_part(struct weights *w, enum dtype dtype, int32_t rows, bool biased,
                             uint64_t *seed) {
    size_t n = (size_t)rows * (size_t)w->cols;
    int p = w->num_parts++;
    w->values[p] = allocate(n * sizeof(float));
    w->data[p] = allocate(dtype_row_bytes(dtype, n));
    w->biases[p] = biased ? kernel_fixture_random_floats(seed, (size_t)rows) : NULL;
    random_weights_row(seed, dtype, w->data[p], n);
    dtype_to_f32(dtype, w->data[p], w->values[p], n);
    device_fixture_round(&fixture, w->values[p], n);
    w->device_parts[p] = (struct matrix_part){dtype, rows, w->data[p], w->biases[p]};
    w->oracle_parts[p] = (struct matrix_part){DTYPE_F32, rows, w->values[p], w->biases[p]};
    w->rows += rows;
}

static void weights_finish(struct weights *w) {
    for (int p = 0; p < w->num_parts; p++) {
        free(w->data[p]);
        free(w->values[p]);
        free(w->biases[p]);
    }
}

static struct matrix *create(struct backend *b, const struct matrix_part *parts, int num_parts,
                             int32_t cols) {
    struct matrix *matrix = NULL;
    struct error err = {0};
    if (b->ops->matrix_create(b, parts, num_parts, cols, &matrix, &err) != 0)
        fail_msg("%s", err.message);
    return matrix;
}

/* A product on the device, its result [num_rows, rows] in `out`. `initial` NULL: the output starts
 * as NaN and is overwritten, else the product is added. */
static void multiply(const struct matrix *matrix, const struct weights *w, const float *x,
                     int32_t num_rows, const float *initial, bool float_out, float *out) {
    struct device_fixture *f = &fixture;
    size_t n = (size_t)num_rows * (size_t)w->rows;
    enum dtype out_dtype = float_out ? DTYPE_F32 : f->dtype;
    void *device_x = device_fixture_put(f, f->dtype, x, (size_t)num_rows * (size_t)w->cols);
    void *device_out = device_fixture_put(f, out_dtype, initial, n);
    f->device->ops->linear(f->device, &(struct linear_args){.x = device_x,
                                                            .weight = matrix,
                                                            .out = device_out,
                                                            .num_rows = num_rows,
                                                            .scale = 1.0F,
                                                            .accumulate = initial != NULL,
                                                            .float_out = float_out});
    synchronize();
    device_fixture_get(f, out_dtype, device_out, out, n);
    device_fixture_free(f, device_x);
    device_fixture_free(f, device_out);
}

static void check_row_alone(const struct matrix *matrix, const struct weights *w, const float *x,
                            int32_t row, const float *initial, bool float_out,
                            const float *together) {
    size_t rows = (size_t)w->rows, first = (size_t)row * rows;
    float *alone = kernel_fixture_guarded(rows);
    multiply(matrix, w, x + (size_t)row * (size_t)w->cols, 1,
             initial == NULL ? NULL : initial + first, float_out, alone);
    assert_memory_equal(alone, together + first, rows * sizeof(float));
    kernel_fixture_guarded_free(alone);
}

/* A float result is off by the order of summation alone. */
static double tolerance_of(bool float_out) {
    return float_out ? 1e-5 : fixture.tolerance;
}

static void check_product(const struct weights *w, int32_t num_rows, bool accumulate,
                          bool float_out, uint64_t *seed) {
    struct device_fixture *f = &fixture;
    size_t num_in = (size_t)num_rows * (size_t)w->cols, n = (size_t)num_rows * (size_t)w->rows;
    float *x = kernel_fixture_random_floats(seed, num_in);
    float *initial = accumulate ? kernel_fixture_random_floats(seed, n) : NULL;
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    device_fixture_round(f, x, num_in);
    if (accumulate) {
        device_fixture_round(f, initial, n);
        memcpy(expected, initial, n * sizeof(float));
    }
    struct matrix *oracle = create(f->oracle, w->oracle_parts, w->num_parts, w->cols);
    struct matrix *matrix = create(f->device, w->device_parts, w->num_parts, w->cols);
    f->oracle->ops->linear(f->oracle, &(struct linear_args){.x = x,
                                                            .weight = oracle,
                                                            .out = expected,
                                                            .num_rows = num_rows,
                                                            .scale = 1.0F,
                                                            .accumulate = accumulate,
                                                            .float_out = float_out});
    multiply(matrix, w, x, num_rows, initial, float_out, actual);
    device_fixture_assert_close(actual, expected, n, tolerance_of(float_out), "linear");
    if (f->batch_invariant) {
        check_row_alone(matrix, w, x, num_rows - 1, initial, float_out, actual);
        check_row_alone(matrix, w, x, num_rows / 2, initial, float_out, actual);
    }
    f->device->ops->matrix_destroy(f->device, matrix);
    f->oracle->ops->matrix_destroy(f->oracle, oracle);
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
    free(initial);
    free(x);
}

/* A few blocks, at most max_steps of 32 elements unless one has more. */
static int32_t random_cols(enum dtype dtype, int max_steps, uint64_t *seed) {
    int32_t step = dtype_block_elements(dtype) > 32 ? dtype_block_elements(dtype) : 32;
    int most = 32 * max_steps / step;
    return step * kernel_fixture_random_in(seed, 1, most > 1 ? most : 1);
}

static void test_every_dtype_and_row_count(void **state) {
    uint64_t seed = 1;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        for (size_t i = 0; i < NUM_ROW_COUNTS; i++) {
            struct weights w = {.cols = random_cols((enum dtype)dtype, 5, &seed)};
            weights_add_part(&w, (enum dtype)dtype, kernel_fixture_random_in(&seed, 1, 90), false,
                             &seed);
            check_product(&w, row_counts[i], i % 3 == 0, i % 2 == 0, &seed);
            weights_finish(&w);
        }
}

static void test_parts_and_biases(void **state) {
    uint64_t seed = 2;
    for (int variant = 0; variant < 32; variant++) {
        struct weights w = {.cols = variant % 4 ? 32 * kernel_fixture_random_in(&seed, 1, 8) : 512};
        int num_parts = 1 + variant % MAX_PARTS;
        for (int p = 0; p < num_parts; p++)
            weights_add_part(&w, random_weights_dtype(&seed, w.cols),
                             kernel_fixture_random_in(&seed, 1, 70), (variant + p) % 3 != 0, &seed);
        check_product(&w, kernel_fixture_random_in(&seed, 1, MAX_STEP_TOKENS), variant & 1,
                      variant & 2, &seed);
        weights_finish(&w);
    }
}

/* K need not be a multiple of what the kernels take at a time. */
static void test_short_depths(void **state) {
    uint64_t seed = 3;
    for (int32_t cols = 8; cols <= 72; cols += 8) {
        struct weights w = {.cols = cols};
        weights_add_part(&w, fixture.dtype, 2 * cols + 1, cols % 16 == 0, &seed);
        check_product(&w, cols / 8, cols % 3 == 0, false, &seed);
        weights_finish(&w);
    }
}

/* Matrices that are converted in several pieces. */
static void test_large_matrices(void **state) {
    uint64_t seed = 4;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        bool large_block = dtype_block_elements((enum dtype)dtype) > 32;
        struct weights w = {.cols = large_block ? 1280 : 1056};
        weights_add_part(&w, (enum dtype)dtype, 131, dtype % 2 == 0, &seed);
        check_product(&w, 2, false, true, &seed);
        weights_finish(&w);
    }
}

/* Products of one matrix one after the other, so that what is kept of one is used by the next. */
static void test_one_matrix_many_times(void **state) {
    struct device_fixture *f = &fixture;
    uint64_t seed = 5;
    struct weights w = {.cols = 64};
    weights_add_part(&w, DTYPE_Q8_0, 48, true, &seed);
    struct matrix *oracle = create(f->oracle, w.oracle_parts, 1, w.cols);
    struct matrix *matrix = create(f->device, w.device_parts, 1, w.cols);
    for (int32_t num_rows = 1; num_rows <= MAX_STEP_TOKENS; num_rows += num_rows < 10 ? 1 : 9) {
        size_t num_in = (size_t)num_rows * 64, n = (size_t)num_rows * 48;
        float *x = kernel_fixture_random_floats(&seed, num_in);
        float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
        device_fixture_round(f, x, num_in);
        f->oracle->ops->linear(
            f->oracle,
            &(struct linear_args){
                .x = x, .weight = oracle, .out = expected, .num_rows = num_rows, .scale = 1.0F});
        multiply(matrix, &w, x, num_rows, NULL, num_rows % 2, actual);
        device_fixture_assert_close(actual, expected, n, f->tolerance, "linear");
        kernel_fixture_guarded_free(actual);
        kernel_fixture_guarded_free(expected);
        free(x);
    }
    f->device->ops->matrix_destroy(f->device, matrix);
    f->oracle->ops->matrix_destroy(f->oracle, oracle);
    weights_finish(&w);
}

static void run_embed(struct device_fixture *f, const void *args) {
    f->device->ops->embed(f->device, args);
}

static void check_embed(const struct weights *w, const int32_t *tokens, int32_t num_tokens) {
    struct device_fixture *f = &fixture;
    size_t cols = (size_t)w->cols, n = (size_t)num_tokens * cols;
    static const int32_t zeros[MAX_STEP_TOKENS + 1];
    struct step_inputs step = {.num_tokens = num_tokens,
                               .num_seqs = 1,
                               .max_blocks_per_seq = 1,
                               .token_ids = tokens,
                               .positions = zeros,
                               .slot_mapping = zeros,
                               .query_start = zeros,
                               .context_lens = zeros,
                               .block_tables = zeros};
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    struct matrix *oracle = create(f->oracle, w->oracle_parts, w->num_parts, w->cols);
    f->oracle->ops->step_begin(f->oracle, &step);
    f->oracle->ops->embed(f->oracle,
                          &(struct embed_args){.table = oracle, .out = expected, .scale = 1.0F});
    struct matrix *table = create(f->device, w->device_parts, w->num_parts, w->cols);
    struct embed_args args = {table, device_fixture_put(f, f->dtype, NULL, n), 1.0F};
    f->device->ops->step_begin(f->device, &step);
    device_fixture_run(f, run_embed, &args, args.out, dtype_row_bytes(f->dtype, n));
    device_fixture_get(f, f->dtype, args.out, actual, n);
    assert_memory_equal(actual, expected, n * sizeof(float));
    device_fixture_free(f, args.out);
    f->device->ops->matrix_destroy(f->device, table);
    f->oracle->ops->matrix_destroy(f->oracle, oracle);
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
}

static void test_embed(void **state) {
    uint64_t seed = 6;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        struct weights w = {.cols = random_cols((enum dtype)dtype, 20, &seed)};
        int32_t tokens[MAX_STEP_TOKENS];
        int32_t num_tokens = kernel_fixture_random_in(&seed, 1, MAX_STEP_TOKENS);
        weights_add_part(&w, (enum dtype)dtype, 61, true, &seed);
        weights_add_part(&w, DTYPE_F32, 3, false, &seed);
        for (int32_t t = 0; t < num_tokens; t++)
            tokens[t] = t == 0 ? w.rows - 1 : kernel_fixture_random_in(&seed, 0, w.rows - 1);
        check_embed(&w, tokens, num_tokens);
        weights_finish(&w);
    }
}

static void expect_refused(const struct matrix_part *part, int32_t cols, enum error_code code) {
    struct backend *b = fixture.device;
    struct matrix *matrix = NULL;
    struct error err = {0};
    assert_int_equal(b->ops->matrix_create(b, part, 1, cols, &matrix, &err), -1);
    assert_int_equal(err.code, code);
    assert_true(strlen(err.message) > 0);
    assert_null(matrix);
    synchronize();
}

static void test_bad_matrices_are_refused(void **state) {
    static const struct {
        enum dtype dtype;
        int32_t rows, cols;
        enum error_code code;
    } bad[] = {
        {DTYPE_Q4_0, 16, 48, ERROR_MODEL},  {DTYPE_Q8_0, 16, 0, ERROR_MODEL},
        {DTYPE_F32, 0, 32, ERROR_MODEL},    {DTYPE_F32, -5, 32, ERROR_MODEL},
        {DTYPE_COUNT, 16, 32, ERROR_MODEL}, {DTYPE_BF16, 16, 12, ERROR_MODEL},
        {DTYPE_F32, 16, 33, ERROR_MODEL},   {DTYPE_F32, INT32_MAX, 8192, ERROR_MEMORY},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct matrix_part part = {.dtype = bad[i].dtype, .rows = bad[i].rows, .data = ""};
        expect_refused(&part, bad[i].cols, bad[i].code);
    }
}

/* What a file may hold and f16 cannot: a model is not computed with infinities. */
static void test_weights_too_large_for_f16(void **state) {
    float values[2 * 8] = {0};
    values[11] = -65536.0f;
    struct matrix_part part = {.dtype = DTYPE_F32, .rows = 2, .data = values};
    if (fixture.dtype == DTYPE_F16) {
        expect_refused(&part, 8, ERROR_MODEL);
        values[11] = -65504.0f;
    }
    struct matrix *matrix = create(fixture.device, &part, 1, 8);
    fixture.device->ops->matrix_destroy(fixture.device, matrix);
    synchronize();
}

int main(int argc, char **argv) {
    static const struct backend_config config = {
        .max_step_tokens = MAX_STEP_TOKENS,
        .max_step_seqs = 4,
        .max_blocks_per_seq = 4,
        .max_logit_rows = 4,
        .vocab_size = 64,
        .head_dim = 64,
        .num_q_heads = 1,
        .num_kv_heads = 1,
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_dtype_and_row_count),
        cmocka_unit_test(test_parts_and_biases),
        cmocka_unit_test(test_short_depths),
        cmocka_unit_test(test_large_matrices),
        cmocka_unit_test(test_one_matrix_many_times),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_bad_matrices_are_refused),
        cmocka_unit_test(test_weights_too_large_for_f16),
    };
    device_fixture_open(&fixture, argc, argv, &config);
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    device_fixture_close(&fixture);
    return status;
}
