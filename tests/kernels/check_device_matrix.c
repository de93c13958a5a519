/* Matrices of a device whose rows are brought in pieces: the bits of one created at once. And the
 * scales of `embed` and `linear`, against the oracle. */
#include "tests/kernels/device_fixture.h"
#include "tests/kernels/random_weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_PARTS 3
#define MAX_STEP_TOKENS 100
#define NUM_X 9
#define COLS 256 /* of every type */

static struct device_fixture fixture;

static void *allocate(size_t bytes) {
    void *p = malloc(bytes);
    assert_non_null(p);
    return p;
}

/* One matrix as the file would hold it, and as the oracle is to see it. */
struct weights {
    int32_t rows;
    int num_parts;
    struct matrix_part device_parts[MAX_PARTS], oracle_parts[MAX_PARTS];
    char *data[MAX_PARTS];
    float *values[MAX_PARTS]; /* rounded */
    float *biases[MAX_PARTS];
};

static void weights_add_part(struct weights *w, enum dtype dtype, int32_t rows, bool biased,
                             uint64_t *seed) {
    size_t n = (size_t)rows * COLS;
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

static void weights_init(struct weights *w, int variant, uint64_t *seed) {
    *w = (struct weights){0};
    for (int p = 0; p < 1 + variant % MAX_PARTS; p++)
        weights_add_part(w, (enum dtype)((variant + p * 5) % DTYPE_COUNT),
                         kernel_fixture_random_in(seed, 1, 70), (variant + p) % 3 == 0, seed);
}

static void weights_finish(struct weights *w) {
    for (int p = 0; p < w->num_parts; p++) {
        free(w->data[p]);
        free(w->values[p]);
        free(w->biases[p]);
    }
}

static struct matrix *create(struct backend *b, const struct matrix_part *parts, int num_parts) {
    struct matrix *matrix = NULL;
    struct error err = {0};
    if (b->ops->matrix_create(b, parts, num_parts, COLS, &matrix, &err) != 0)
        fail_msg("%s", err.message);
    return matrix;
}

/* Pieces of a ragged number of rows, from memory that is gone after the call; the second half of a
 * part first. */
static void fill_part(struct matrix *matrix, const struct matrix_part *part, int32_t first_row,
                      uint64_t *seed) {
    struct backend *b = fixture.device;
    size_t row_bytes = dtype_row_bytes(part->dtype, COLS);
    int32_t middle = part->rows / 2;
    for (int32_t done = 0, n; done < part->rows; done += n) {
        int32_t at = done < part->rows - middle ? middle + done : done - (part->rows - middle);
        int32_t end = at < middle ? middle : part->rows;
        n = kernel_fixture_random_in(seed, 1, 19);
        n = n < end - at ? n : end - at;
        char *copy = allocate((size_t)n * row_bytes);
        memcpy(copy, (const char *)part->data + (size_t)at * row_bytes, (size_t)n * row_bytes);
        assert_int_equal(b->ops->matrix_fill(b, matrix, first_row + at, n, copy, NULL), 0);
        free(copy);
    }
}

static struct matrix *create_in_pieces(const struct weights *w, uint64_t *seed) {
    struct matrix_part parts[MAX_PARTS];
    int at_once = kernel_fixture_random_in(seed, 1, MAX_PARTS); /* may be none */
    for (int p = 0; p < w->num_parts; p++) {
        parts[p] = w->device_parts[p];
        if (p != at_once)
            parts[p].data = NULL;
    }
    struct matrix *matrix = create(fixture.device, parts, w->num_parts);
    int32_t first_row = 0;
    for (int p = 0; p < w->num_parts; first_row += w->device_parts[p++].rows)
        if (parts[p].data == NULL)
            fill_part(matrix, &w->device_parts[p], first_row, seed);
    return matrix;
}

/* On the device; [NUM_X, rows] of the activations' type, or of float. */
static void multiply(const struct matrix *matrix, const struct weights *w, const float *x,
                     float scale, const float *initial, bool float_out, float *out) {
    struct device_fixture *f = &fixture;
    enum dtype out_dtype = float_out ? DTYPE_F32 : f->dtype;
    size_t n = NUM_X * (size_t)w->rows;
    void *device_x = device_fixture_put(f, f->dtype, x, NUM_X * COLS);
    void *device_out = device_fixture_put(f, out_dtype, initial, n);
    f->device->ops->linear(f->device, &(struct linear_args){.x = device_x,
                                                            .weight = matrix,
                                                            .out = device_out,
                                                            .num_rows = NUM_X,
                                                            .scale = scale,
                                                            .accumulate = initial != NULL,
                                                            .float_out = float_out});
    device_fixture_get(f, out_dtype, device_out, out, n);
    device_fixture_free(f, device_x);
    device_fixture_free(f, device_out);
}

static void run_embed(struct device_fixture *f, const void *args) {
    f->device->ops->embed(f->device, args);
}

/* Rows of the device's table; [num_tokens, COLS]. */
static void embed(const struct matrix *table, const struct step_inputs *step, float scale,
                  float *out) {
    struct device_fixture *f = &fixture;
    size_t n = (size_t)step->num_tokens * COLS;
    struct embed_args args = {table, device_fixture_put(f, f->dtype, NULL, n), scale};
    f->device->ops->step_begin(f->device, step);
    device_fixture_run(f, run_embed, &args, args.out, dtype_row_bytes(f->dtype, n));
    device_fixture_get(f, f->dtype, args.out, out, n);
    device_fixture_free(f, args.out);
}

/* Nothing but token ids. */
static struct step_inputs step_of(const int32_t *tokens, int32_t num_tokens) {
    static const int32_t zeros[MAX_STEP_TOKENS + 1];
    return (struct step_inputs){.num_tokens = num_tokens,
                                .num_seqs = 1,
                                .max_blocks_per_seq = 1,
                                .token_ids = tokens,
                                .positions = zeros,
                                .slot_mapping = zeros,
                                .query_start = zeros,
                                .context_lens = zeros,
                                .block_tables = zeros};
}

/* Each third row, and the last. */
static struct step_inputs step_over(const struct weights *w, int32_t *tokens) {
    int32_t n = 0;
    for (int32_t row = 0; row < w->rows; row += 3)
        tokens[n++] = row;
    tokens[n++] = w->rows - 1;
    return step_of(tokens, n);
}

static void assert_same(float *actual, float *expected, size_t n) {
    assert_memory_equal(actual, expected, n * sizeof(float));
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
}

static void test_fill_in_pieces(void **state) {
    uint64_t seed = 1;
    int32_t tokens[MAX_STEP_TOKENS];
    for (int variant = 0; variant < 2 * DTYPE_COUNT; variant++) {
        struct weights w;
        weights_init(&w, variant, &seed);
        struct matrix *matrices[2] = {create(fixture.device, w.device_parts, w.num_parts),
                                      create_in_pieces(&w, &seed)};
        float *x = kernel_fixture_random_floats(&seed, NUM_X * COLS), *products[2], *rows[2];
        struct step_inputs step = step_over(&w, tokens);
        size_t num_products = NUM_X * (size_t)w.rows, num_rows = (size_t)step.num_tokens * COLS;
        for (int i = 0; i < 2; i++) {
            products[i] = kernel_fixture_guarded(num_products);
            rows[i] = kernel_fixture_guarded(num_rows);
            multiply(matrices[i], &w, x, 1, NULL, true, products[i]);
            embed(matrices[i], &step, 1, rows[i]);
            fixture.device->ops->matrix_destroy(fixture.device, matrices[i]);
        }
        assert_same(products[1], products[0], num_products);
        assert_same(rows[1], rows[0], num_rows);
        free(x);
        weights_finish(&w);
    }
}

/* More at a time than is converted at a time, and than is staged. */
static void test_fill_of_large_pieces(void **state) {
    enum { ROWS = 40000, FIRST = 12345, TOKENS = 7 };
    static const int32_t tokens[TOKENS] = {0, 1, FIRST - 1, FIRST, FIRST + 1, ROWS / 2, ROWS - 1};
    struct backend *b = fixture.device;
    uint64_t seed = 2;
    uint16_t *data = allocate((size_t)ROWS * COLS * sizeof(*data));
    for (size_t i = 0; i < (size_t)ROWS * COLS; i++)
        data[i] = bf16_from_f32((float)(kernel_fixture_random(&seed) % 512) - 256);
    /* The bits are small numbers in either type, of which one is converted. */
    for (int dtype = DTYPE_F16; dtype <= DTYPE_BF16; dtype++) {
        struct matrix_part part = {.dtype = (enum dtype)dtype, .rows = ROWS};
        struct matrix *matrix = create(b, &part, 1);
        assert_int_equal(
            b->ops->matrix_fill(b, matrix, FIRST, ROWS - FIRST, data + FIRST * COLS, NULL), 0);
        assert_int_equal(b->ops->matrix_fill(b, matrix, 0, FIRST, data, NULL), 0);
        struct step_inputs step = step_of(tokens, TOKENS);
        float *out = kernel_fixture_guarded(TOKENS * COLS), row[COLS];
        embed(matrix, &step, 1, out);
        for (int t = 0; t < TOKENS; t++) {
            dtype_to_f32((enum dtype)dtype, data + (size_t)tokens[t] * COLS, row, COLS);
            device_fixture_round(&fixture, row, COLS);
            assert_memory_equal(out + t * COLS, row, sizeof(row));
        }
        kernel_fixture_guarded_free(out);
        b->ops->matrix_destroy(b, matrix);
    }
    free(data);
}

/* A matrix that was refused a piece is destroyed like any other. */
static void test_fill_too_large_for_f16(void **state) {
    struct backend *b = fixture.device;
    struct error err = {0};
    float values[COLS] = {[11] = -65536.0f};
    struct matrix_part part = {.dtype = DTYPE_F32, .rows = 2};
    struct matrix *matrix = create(b, &part, 1);
    int status = b->ops->matrix_fill(b, matrix, 1, 1, values, &err);
    assert_int_equal(status, fixture.dtype == DTYPE_F16 ? -1 : 0);
    if (status != 0)
        assert_int_equal(err.code, ERROR_MODEL);
    b->ops->matrix_destroy(b, matrix);
    assert_int_equal(b->ops->synchronize(b, NULL), 0);
}

static void check_linear_scale(const struct weights *w, float scale, bool accumulate,
                               bool float_out, uint64_t *seed) {
    struct device_fixture *f = &fixture;
    size_t n = NUM_X * (size_t)w->rows;
    float *x = kernel_fixture_random_floats(seed, NUM_X * COLS);
    float *initial = accumulate ? kernel_fixture_random_floats(seed, n) : NULL;
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    device_fixture_round(f, x, NUM_X * COLS);
    if (accumulate) {
        device_fixture_round(f, initial, n);
        memcpy(expected, initial, n * sizeof(float));
    }
    struct matrix *oracle = create(f->oracle, w->oracle_parts, w->num_parts);
    struct matrix *matrix = create(f->device, w->device_parts, w->num_parts);
    f->oracle->ops->linear(f->oracle, &(struct linear_args){.x = x,
                                                            .weight = oracle,
                                                            .out = expected,
                                                            .num_rows = NUM_X,
                                                            .scale = scale,
                                                            .accumulate = accumulate,
                                                            .float_out = true});
    multiply(matrix, w, x, scale, initial, float_out, actual);
    device_fixture_assert_close(actual, expected, n, float_out ? 1e-5 : f->tolerance, "linear");
    f->device->ops->matrix_destroy(f->device, matrix);
    f->oracle->ops->matrix_destroy(f->oracle, oracle);
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
    free(initial);
    free(x);
}

static void test_linear_scale(void **state) {
    static const float scales[] = {-0.5f, 0.22f, 12, 1.0f / 3};
    uint64_t seed = 3;
    for (int variant = 0; variant < 16; variant++) {
        struct weights w;
        weights_init(&w, variant, &seed);
        check_linear_scale(&w, scales[variant % 4], variant & 1, variant & 2, &seed);
        weights_finish(&w);
    }
}

/* The product with the scale is rounded once. */
static void check_embed_scale(const struct weights *w, float scale) {
    struct device_fixture *f = &fixture;
    int32_t tokens[MAX_STEP_TOKENS];
    struct step_inputs step = step_over(w, tokens);
    size_t n = (size_t)step.num_tokens * COLS;
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    struct matrix *oracle = create(f->oracle, w->oracle_parts, w->num_parts);
    struct matrix *table = create(f->device, w->device_parts, w->num_parts);
    f->oracle->ops->step_begin(f->oracle, &step);
    f->oracle->ops->embed(f->oracle,
                          &(struct embed_args){.table = oracle, .out = expected, .scale = scale});
    device_fixture_round(f, expected, n);
    embed(table, &step, scale, actual);
    assert_same(actual, expected, n);
    f->device->ops->matrix_destroy(f->device, table);
    f->oracle->ops->matrix_destroy(f->oracle, oracle);
}

static void test_embed_scale(void **state) {
    uint64_t seed = 4;
    for (int variant = 0; variant < 8; variant++) {
        struct weights w;
        weights_init(&w, variant, &seed);
        check_embed_scale(&w, variant % 2 ? 12 : 33.9411f);
        weights_finish(&w);
    }
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
        cmocka_unit_test(test_fill_in_pieces),
        cmocka_unit_test(test_fill_of_large_pieces),
        cmocka_unit_test(test_fill_too_large_for_f16),
        cmocka_unit_test(test_linear_scale),
        cmocka_unit_test(test_embed_scale),
    };
    device_fixture_open(&fixture, argc, argv, &config);
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    device_fixture_close(&fixture);
    return status;
}
