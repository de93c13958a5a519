/* Matrices whose rows are brought in chunks: bit for bit the matrix created at once. And the scales
 * of `embed` and `linear`, against what the definition makes of the unscaled op (CPU) and against
 * the oracle. */
#include "tests/kernels/kernel_fixture.h"
#include "tests/kernels/random_weights.h"
#include "tests/kernels/weights_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_PART_ROWS 70
#define MAX_ROWS (WEIGHTS_MAX_PARTS * MAX_PART_ROWS)
#define MAX_CHUNK_ROWS 21
#define NUM_X 9  /* rows of x */
#define COLS 256 /* of every type */

static struct kernel_fixture fixture;

/* Half of them with rows that every type can have. */
static void init_weights(struct weights *w, int variant, uint64_t *seed) {
    *w = (struct weights){.cols = variant % 2 ? COLS : 32 * kernel_fixture_random_in(seed, 1, 4)};
    for (int p = 0; p < 1 + variant % WEIGHTS_MAX_PARTS; p++) {
        enum dtype dtype = w->cols == COLS ? (enum dtype)((variant / 2 + p * 5) % DTYPE_COUNT)
                                           : random_weights_dtype(seed, w->cols);
        weights_add_part(&fixture, w, dtype, kernel_fixture_random_in(seed, 1, MAX_PART_ROWS),
                         (variant + p) % 3 == 0, seed);
    }
}

/* A backend of the list, or the oracle before the first. */
static struct backend *backend_at(int i) {
    return i < 0 ? fixture.oracle : fixture.backends[i];
}

static float *multiply(struct backend *b, const struct matrix *matrix, const struct weights *w,
                       const float *x, float scale, const float *initial, bool float_out) {
    const struct linear_args args = {.num_rows = NUM_X, .scale = scale, .float_out = float_out};
    return weights_multiply(&fixture, b, matrix, w, x, &args, initial);
}

/* All rows, in reverse. */
static float *embed(struct backend *b, const struct matrix *matrix, const struct weights *w,
                    float scale) {
    int32_t tokens[MAX_ROWS];
    for (int32_t t = 0; t < w->rows; t++)
        tokens[t] = w->rows - 1 - t;
    return weights_embed(&fixture, b, matrix, w, 0, tokens, w->rows, scale);
}

static void assert_same(float *actual, float *expected, size_t n) {
    assert_memory_equal(actual, expected, n * sizeof(float));
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
}

struct chunk {
    int part;
    int32_t first, rows; /* within the part */
};

/* Cuts the parts without data into ragged chunks, shuffled. Returns their number. */
static int cut(const struct weights *w, const bool *is_filled, struct chunk *out, uint64_t *seed) {
    int n = 0;
    for (int p = 0; p < w->num_parts; p++)
        for (int32_t first = 0; is_filled[p] && first < w->parts[p].rows; first += out[n++].rows) {
            int32_t rows = kernel_fixture_random_in(seed, 1, MAX_CHUNK_ROWS);
            int32_t left = w->parts[p].rows - first;
            out[n] = (struct chunk){p, first, rows < left ? rows : left};
        }
    for (int i = n - 1; i > 0; i--) {
        int j = kernel_fixture_random_in(seed, 0, i);
        struct chunk other = out[i];
        out[i] = out[j], out[j] = other;
    }
    return n;
}

/* From memory that holds the chunk alone and is gone after the call. */
static void fill(struct backend *b, struct matrix *matrix, const struct weights *w,
                 const struct chunk *chunk) {
    size_t row_bytes = dtype_row_bytes(w->parts[chunk->part].dtype, (size_t)w->cols);
    size_t bytes = (size_t)chunk->rows * row_bytes;
    char *copy = kernel_fixture_memory(bytes);
    memcpy(copy, w->data[chunk->part] + (size_t)chunk->first * row_bytes, bytes);
    int32_t first_row = chunk->first;
    for (int p = 0; p < chunk->part; p++)
        first_row += w->parts[p].rows;
    assert_int_equal(b->ops->matrix_fill(b, matrix, first_row, chunk->rows, copy, NULL), 0);
    free(copy);
}

static struct matrix *create_in_chunks(struct backend *b, const struct weights *w, uint64_t seed) {
    struct matrix_part parts[WEIGHTS_MAX_PARTS];
    struct chunk chunks[MAX_ROWS];
    bool is_filled[WEIGHTS_MAX_PARTS];
    int always = kernel_fixture_random_in(&seed, 0, w->num_parts - 1);
    for (int p = 0; p < w->num_parts; p++) {
        is_filled[p] = p == always || kernel_fixture_random_in(&seed, 0, 2) > 0;
        parts[p] = w->parts[p];
        if (is_filled[p])
            parts[p].data = NULL;
    }
    struct matrix *matrix = kernel_fixture_matrix(b, parts, w->num_parts, w->cols, MATRIX_LINEAR);
    int num_chunks = cut(w, is_filled, chunks, &seed);
    for (int i = 0; i < num_chunks; i++)
        fill(b, matrix, w, &chunks[i]);
    return matrix;
}

static void check_fill(struct backend *b, const struct weights *w, const float *x, uint64_t seed) {
    struct matrix *whole = kernel_fixture_matrix(b, w->parts, w->num_parts, w->cols, MATRIX_LINEAR);
    struct matrix *chunks = create_in_chunks(b, w, seed);
    assert_same(multiply(b, chunks, w, x, 1, NULL, true), multiply(b, whole, w, x, 1, NULL, true),
                NUM_X * (size_t)w->rows);
    assert_same(embed(b, chunks, w, 1), embed(b, whole, w, 1), (size_t)w->rows * (size_t)w->cols);
    b->ops->matrix_destroy(b, chunks);
    b->ops->matrix_destroy(b, whole);
}

static void test_fill_in_chunks(void **state) {
    uint64_t seed = 1;
    for (int variant = 0; variant < 4 * DTYPE_COUNT; variant++) {
        struct weights w;
        init_weights(&w, variant, &seed);
        float *x = kernel_fixture_rounded_floats(&fixture, &seed, NUM_X * (size_t)w.cols);
        for (int i = -1; i < fixture.num_backends; i++)
            check_fill(backend_at(i), &w, x, seed);
        free(x);
        weights_finish(&w);
    }
}

/* A matrix over a copy of another's packed bytes gives its bits, without their parts' data. */
static void check_mapped(struct backend *b, const struct weights *w, const float *x) {
    const struct packing_ops *packing = b->ops->packing;
    struct matrix_part parts[WEIGHTS_MAX_PARTS];
    struct matrix *whole = kernel_fixture_matrix(b, w->parts, w->num_parts, w->cols, MATRIX_LINEAR);
    struct matrix *mapped;
    struct packed_bytes packed = packing->bytes_of(whole);
    struct error err = {0};
    size_t padded = (packed.bytes / PACKED_ALIGNMENT + 1) * PACKED_ALIGNMENT;
    packed.data = memcpy(aligned_alloc(PACKED_ALIGNMENT, padded), packed.data, packed.bytes);
    for (int p = 0; p < w->num_parts; p++) {
        parts[p] = w->parts[p];
        parts[p].data = NULL;
    }
    assert_int_equal(packing->matrix_map(b, parts, w->num_parts, w->cols, packed, &mapped, &err),
                     0);
    assert_same(multiply(b, mapped, w, x, 1, NULL, true), multiply(b, whole, w, x, 1, NULL, true),
                NUM_X * (size_t)w->rows);
    assert_same(embed(b, mapped, w, 1), embed(b, whole, w, 1), (size_t)w->rows * (size_t)w->cols);
    b->ops->matrix_destroy(b, mapped);
    b->ops->matrix_destroy(b, whole);
    packed.bytes--;
    assert_int_equal(packing->matrix_map(b, parts, w->num_parts, w->cols, packed, &mapped, &err),
                     -1);
    assert_int_equal(err.code, ERROR_MODEL);
    free(packed.data);
}

static void test_mapped(void **state) {
    uint64_t seed = 4;
    for (int variant = 0; variant < 2 * DTYPE_COUNT; variant++) {
        struct weights w;
        init_weights(&w, variant, &seed);
        float *x = kernel_fixture_rounded_floats(&fixture, &seed, NUM_X * (size_t)w.cols);
        for (int i = 0; i < fixture.num_backends; i++)
            if (backend_at(i)->ops->packing != NULL)
                check_mapped(backend_at(i), &w, x);
        free(x);
        weights_finish(&w);
    }
}

/* More at a time than a device converts at a time, and than is staged: rows that repeat, so that
 * none of what is dealt to threads equals what comes before or after it. */
static void check_large_chunks(enum dtype dtype) {
    enum { ROWS = 40000, PERIOD = 997, FIRST = 12345, TOKENS = 256 };
    struct backend *b = fixture.backends[0];
    const struct weights shape = {.rows = ROWS, .cols = COLS};
    struct matrix_part part = {.dtype = dtype, .rows = ROWS};
    size_t row_bytes = dtype_row_bytes(dtype, COLS);
    uint64_t seed = 2 + (uint64_t)dtype;
    int32_t tokens[TOKENS] = {FIRST - 1, FIRST};
    char *data = kernel_fixture_memory(ROWS * row_bytes);
    for (size_t row = 0; row < ROWS; row++)
        if (row < PERIOD)
            random_weights_row(&seed, dtype, data + row * row_bytes, COLS);
        else
            memcpy(data + row * row_bytes, data + (row - PERIOD) * row_bytes, row_bytes);
    for (int t = 2; t < TOKENS; t++)
        tokens[t] = (t - 2) * (ROWS - 1) / (TOKENS - 3);
    struct matrix *matrix = kernel_fixture_matrix(b, &part, 1, COLS, MATRIX_LINEAR);
    assert_int_equal(
        b->ops->matrix_fill(b, matrix, FIRST, ROWS - FIRST, data + FIRST * row_bytes, NULL), 0);
    assert_int_equal(b->ops->matrix_fill(b, matrix, 0, FIRST, data, NULL), 0);
    float *out = weights_embed(&fixture, b, matrix, &shape, 0, tokens, TOKENS, 1), row[COLS];
    for (int t = 0; t < TOKENS; t++) {
        dtype_to_f32(dtype, data + (size_t)tokens[t] * row_bytes, row, COLS);
        kernel_fixture_round(&fixture, row, COLS);
        assert_memory_equal(out + t * COLS, row, sizeof(row));
    }
    kernel_fixture_guarded_free(out);
    b->ops->matrix_destroy(b, matrix);
    free(data);
}

static void test_fill_of_large_chunks(void **state) {
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++)
        check_large_chunks(dtype);
}

/* A matrix that was refused a chunk is destroyed like any other. Several threads come upon one. */
static void test_fill_too_large_for_f16(void **state) {
    enum { ROWS = 100 };
    struct backend *b = fixture.backends[0];
    struct error err = {0};
    static float values[ROWS * COLS];
    struct matrix_part part = {.dtype = DTYPE_F32, .rows = ROWS + 1};
    struct matrix *matrix = kernel_fixture_matrix(b, &part, 1, COLS, MATRIX_LINEAR);
    for (int row = 0; row < ROWS; row += 7)
        values[row * COLS + 11] = -65536.0f;
    int status = b->ops->matrix_fill(b, matrix, 1, ROWS, values, &err);
    assert_int_equal(status, fixture.dtype == DTYPE_F16 ? -1 : 0);
    if (status != 0)
        assert_int_equal(err.code, ERROR_MODEL);
    b->ops->matrix_destroy(b, matrix);
    kernel_fixture_synchronize(b);
}

/* The bits that the definition gives from the CPU's unscaled product without a bias. */
static float *scale_product(const struct weights *w, float *product, float scale,
                            const float *initial) {
    float *at = product;
    for (int m = 0; m < NUM_X; m++)
        for (int p = 0; p < w->num_parts; p++)
            for (int32_t r = 0; r < w->parts[p].rows; r++, at++) {
                *at = *at * scale;
                *at = w->biases[p][r] + *at;
                *at = initial != NULL ? initial[at - product] + *at : *at;
            }
    return product;
}

static void assert_scaled(struct backend *b, const struct weights *w, const float *x, float scale,
                          const float *initial, const float *actual) {
    struct weights unbiased = *w;
    for (int p = 0; p < w->num_parts; p++)
        unbiased.parts[p].bias = NULL;
    struct matrix *plain = weights_create(&fixture, b, &unbiased);
    float *expected = scale_product(w, multiply(b, plain, w, x, 1, NULL, true), scale, initial);
    assert_memory_equal(actual, expected, NUM_X * (size_t)w->rows * sizeof(float));
    kernel_fixture_guarded_free(expected);
    b->ops->matrix_destroy(b, plain);
}

static void check_linear_scale(const struct weights *w, float scale, bool accumulate,
                               bool float_out, uint64_t *seed) {
    size_t n = NUM_X * (size_t)w->rows;
    float *x = kernel_fixture_rounded_floats(&fixture, seed, NUM_X * (size_t)w->cols);
    float *initial = accumulate ? kernel_fixture_rounded_floats(&fixture, seed, n) : NULL;
    struct matrix *oracle_matrix = weights_create(&fixture, fixture.oracle, w);
    float *oracle = multiply(fixture.oracle, oracle_matrix, w, x, scale, initial, true);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        struct matrix *matrix = weights_create(&fixture, b, w);
        float *actual = multiply(b, matrix, w, x, scale, initial, float_out);
        if (fixture.dtype == DTYPE_F32)
            assert_scaled(b, w, x, scale, initial, actual);
        else
            kernel_fixture_assert_close_by(actual, oracle, n, float_out ? 1e-5 : fixture.tolerance,
                                           "linear");
        bool rounds = *kernel_fixture_bf16_products(b, w->parts[0].dtype) != '\0';
        double rounding = 0x1p-7 * sqrt((double)w->cols) * fmax(1, fabs(scale));
        double tolerance = rounds ? rounding : 1e-4;
        if (fixture.dtype == DTYPE_F32 && !dtype_is_quantised(w->parts[0].dtype) &&
            w->num_parts == 1)
            kernel_fixture_assert_near(actual, oracle, n, tolerance);
        kernel_fixture_guarded_free(actual);
        b->ops->matrix_destroy(b, matrix);
    }
    fixture.oracle->ops->matrix_destroy(fixture.oracle, oracle_matrix);
    kernel_fixture_guarded_free(oracle);
    free(initial);
    free(x);
}

/* Some parts have a bias; in every third matrix all of them. */
static void test_linear_scale(void **state) {
    static const float scales[] = {1, -0.5f, 0.22f, 12, 1.0f / 3};
    uint64_t seed = 3;
    for (int variant = 0; variant < 40; variant++) {
        struct weights w;
        init_weights(&w, variant, &seed);
        for (int p = 0; variant % 3 == 2 && p < w.num_parts; p++)
            w.parts[p].bias =
                memcpy(w.biases[p], w.values[p], sizeof(float) * (size_t)w.parts[p].rows);
        check_linear_scale(&w, scales[variant % 5], variant & 2, variant & 4, &seed);
        weights_finish(&w);
    }
}

/* The product with the scale is rounded once. */
static void check_embed_scale(const struct weights *w, float scale) {
    size_t n = (size_t)w->rows * (size_t)w->cols;
    for (int i = -1; i < fixture.num_backends; i++) {
        struct backend *b = backend_at(i);
        struct matrix *matrix = weights_create(&fixture, b, w);
        float *expected = kernel_fixture_guarded(n);
        for (int32_t r = 0; r < w->rows; r++)
            for (int32_t k = 0; k < w->cols; k++)
                expected[r * w->cols + k] = weights_row(w, w->rows - 1 - r)[k] * scale;
        if (b != fixture.oracle)
            kernel_fixture_round(&fixture, expected, n);
        assert_same(embed(b, matrix, w, scale), expected, n);
        b->ops->matrix_destroy(b, matrix);
    }
}

static void test_embed_scale(void **state) {
    uint64_t seed = 4;
    for (int variant = 0; variant < 12; variant++) {
        struct weights w;
        init_weights(&w, variant, &seed);
        check_embed_scale(&w, variant / 2 % 2 ? 12 : 33.9411f);
        weights_finish(&w);
    }
}

int main(int argc, char **argv) {
    static const struct backend_config config = {.num_threads = 3, /* of a device */
                                                 .limits.max_num_batched_tokens = 256,
                                                 .limits.max_num_seqs = 64,
                                                 .limits.max_model_len = 4,
                                                 .limits.block_size = 1,
                                                 .limits.max_logit_rows = 4,
                                                 .limits.vocab_size = 64,
                                                 .head_dim = 64,
                                                 .num_q_heads = 1,
                                                 .num_kv_heads = 1};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill_in_chunks),       cmocka_unit_test(test_mapped),
        cmocka_unit_test(test_fill_of_large_chunks), cmocka_unit_test(test_fill_too_large_for_f16),
        cmocka_unit_test(test_linear_scale),         cmocka_unit_test(test_embed_scale),
    };
    kernel_fixture_open(&fixture, argc, argv, &config);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&fixture);
    return failed;
}
