/* Matrices whose rows are brought in pieces, and the scales of `embed` and `linear`: on every level
 * of the CPU backend and on the oracle, bit for bit what the matrix created at once and the
 * unscaled op give. */
#include "tests/kernels/kernel_fixture.h"
#include "tests/kernels/random_weights.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_PARTS 3
#define MAX_PART_ROWS 70
#define MAX_PIECE_ROWS 21
#define NUM_X 7 /* rows of x */

static void *allocate(size_t bytes) {
    void *p = malloc(bytes);
    assert_non_null(p);
    return p;
}

/* A matrix as a file holds it. */
struct weights {
    struct matrix_part parts[MAX_PARTS];
    int num_parts;
    int32_t rows, cols;
    char *data[MAX_PARTS];
    float *bias; /* [rows] */
};

/* Half of them with rows that every type can have. */
static void weights_init(struct weights *w, uint64_t *seed) {
    bool any = kernel_fixture_random_in(seed, 0, 1);
    int32_t cols = any ? 256 : 32 * kernel_fixture_random_in(seed, 1, 4);
    *w = (struct weights){.cols = cols, .num_parts = kernel_fixture_random_in(seed, 1, MAX_PARTS)};
    w->bias = kernel_fixture_random_floats(seed, MAX_PARTS * MAX_PART_ROWS);
    for (int p = 0; p < w->num_parts; p++) {
        enum dtype dtype = random_weights_dtype(seed, cols);
        int32_t rows = kernel_fixture_random_in(seed, 1, MAX_PART_ROWS);
        size_t n = (size_t)rows * (size_t)cols;
        w->data[p] = allocate(dtype_row_bytes(dtype, n));
        random_weights_row(seed, dtype, w->data[p], n);
        w->parts[p] = (struct matrix_part){dtype, rows, w->data[p], NULL};
        w->rows += rows;
    }
}

static void weights_finish(struct weights *w) {
    for (int p = 0; p < w->num_parts; p++)
        free(w->data[p]);
    free(w->bias);
}

static struct matrix *create(struct backend *b, const struct weights *w) {
    struct matrix *matrix = NULL;
    struct error err = {0};
    if (b->ops->matrix_create(b, w->parts, w->num_parts, w->cols, &matrix, &err) != 0)
        fail_msg("%s", err.message);
    return matrix;
}

/* The op of one backend; [num_rows, w->rows]. `initial` NULL: nothing is added to. */
static float *multiply(struct backend *b, const struct matrix *matrix, const struct weights *w,
                       const float *x, float scale, const float *initial) {
    size_t n = NUM_X * (size_t)w->rows;
    float *out = kernel_fixture_guarded(n);
    if (initial != NULL)
        memcpy(out, initial, n * sizeof(float));
    b->ops->linear(b, &(struct linear_args){.x = x,
                                            .weight = matrix,
                                            .out = out,
                                            .num_rows = NUM_X,
                                            .scale = scale,
                                            .accumulate = initial != NULL,
                                            .float_out = true});
    return out;
}

/* All rows, in reverse. */
static float *embed(struct backend *b, const struct matrix *matrix, const struct weights *w,
                    float scale) {
    int32_t tokens[MAX_PARTS * MAX_PART_ROWS];
    for (int32_t t = 0; t < w->rows; t++)
        tokens[t] = w->rows - 1 - t;
    float *out = kernel_fixture_guarded((size_t)w->rows * (size_t)w->cols);
    b->ops->step_begin(b, &(struct step_inputs){.num_tokens = w->rows, .token_ids = tokens});
    b->ops->embed(b, &(struct embed_args){.table = matrix, .out = out, .scale = scale});
    return out;
}

static void assert_same(float *actual, float *expected, size_t n) {
    assert_memory_equal(actual, expected, n * sizeof(float));
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
}

struct piece {
    int part;
    int32_t first, rows; /* within the part */
};

/* Cuts the parts without data into ragged pieces, shuffled. Returns their number. */
static int cut(const struct weights *w, const bool *is_filled, struct piece *out, uint64_t *seed) {
    int n = 0;
    for (int p = 0; p < w->num_parts; p++)
        for (int32_t first = 0; is_filled[p] && first < w->parts[p].rows; first += out[n++].rows) {
            int32_t rows = kernel_fixture_random_in(seed, 1, MAX_PIECE_ROWS);
            int32_t left = w->parts[p].rows - first;
            out[n] = (struct piece){p, first, rows < left ? rows : left};
        }
    for (int i = n - 1; i > 0; i--) {
        int j = kernel_fixture_random_in(seed, 0, i);
        struct piece other = out[i];
        out[i] = out[j], out[j] = other;
    }
    return n;
}

/* From memory that holds the piece alone and is gone after the call. */
static void fill(struct backend *b, struct matrix *matrix, const struct weights *w,
                 const struct piece *piece) {
    size_t row_bytes = dtype_row_bytes(w->parts[piece->part].dtype, (size_t)w->cols);
    size_t bytes = (size_t)piece->rows * row_bytes;
    char *copy = allocate(bytes);
    memcpy(copy, w->data[piece->part] + (size_t)piece->first * row_bytes, bytes);
    int32_t first_row = piece->first;
    for (int p = 0; p < piece->part; p++)
        first_row += w->parts[p].rows;
    assert_int_equal(b->ops->matrix_fill(b, matrix, first_row, piece->rows, copy, NULL), 0);
    free(copy);
}

static struct matrix *create_in_pieces(struct backend *b, const struct weights *w, uint64_t seed) {
    struct weights empty = *w;
    struct piece pieces[MAX_PARTS * MAX_PART_ROWS];
    bool is_filled[MAX_PARTS];
    int always = kernel_fixture_random_in(&seed, 0, w->num_parts - 1);
    for (int p = 0; p < w->num_parts; p++) {
        is_filled[p] = p == always || kernel_fixture_random_in(&seed, 0, 2) > 0;
        if (is_filled[p])
            empty.parts[p].data = NULL;
    }
    struct matrix *matrix = create(b, &empty);
    int num_pieces = cut(w, is_filled, pieces, &seed);
    for (int i = 0; i < num_pieces; i++)
        fill(b, matrix, w, &pieces[i]);
    return matrix;
}

static void check_fill(struct backend *b, const struct weights *w, const float *x, uint64_t seed) {
    struct matrix *whole = create(b, w), *pieces = create_in_pieces(b, w, seed);
    assert_same(multiply(b, pieces, w, x, 1, NULL), multiply(b, whole, w, x, 1, NULL),
                NUM_X * (size_t)w->rows);
    assert_same(embed(b, pieces, w, 1), embed(b, whole, w, 1), (size_t)w->rows * (size_t)w->cols);
    b->ops->matrix_destroy(b, pieces);
    b->ops->matrix_destroy(b, whole);
}

static void test_fill_in_pieces(void **state) {
    const struct kernel_fixture *f = *state;
    uint64_t seed = 1;
    for (int repeat = 0; repeat < 30; repeat++) {
        struct weights w;
        weights_init(&w, &seed);
        if (repeat % 3 == 0)
            w.parts[0].bias = w.bias;
        float *x = kernel_fixture_random_floats(&seed, NUM_X * (size_t)w.cols);
        for (int i = 0; i < f->num_backends; i++)
            check_fill(f->backends[i], &w, x, seed);
        check_fill(f->oracle, &w, x, seed);
        free(x);
        weights_finish(&w);
    }
}

/* The bits that the definition gives from the unscaled product without a bias. */
static float *scale_product(const struct weights *w, float *product, float scale,
                            const float *initial) {
    for (size_t i = 0; i < NUM_X * (size_t)w->rows; i++) {
        product[i] = product[i] * scale;
        product[i] = w->bias[i % (size_t)w->rows] + product[i];
        product[i] = initial != NULL ? initial[i] + product[i] : product[i];
    }
    return product;
}

static void check_linear_scale(const struct kernel_fixture *f, const struct weights *w,
                               const float *x, float scale, const float *initial) {
    struct weights biased = *w;
    for (int p = 0, first = 0; p < w->num_parts; first += w->parts[p++].rows)
        biased.parts[p].bias = w->bias + first;
    size_t n = NUM_X * (size_t)w->rows;
    struct matrix *exact = create(f->oracle, &biased);
    float *oracle = multiply(f->oracle, exact, w, x, scale, initial);
    for (int i = 0; i < f->num_backends; i++) {
        struct backend *b = f->backends[i];
        struct matrix *plain = create(b, w), *matrix = create(b, &biased);
        float *expected = scale_product(w, multiply(b, plain, w, x, 1, NULL), scale, initial);
        float *actual = multiply(b, matrix, w, x, scale, initial);
        if (!dtype_is_quantised(w->parts[0].dtype) && w->num_parts == 1)
            kernel_fixture_assert_near(actual, oracle, n, 1e-4);
        assert_same(actual, expected, n);
        b->ops->matrix_destroy(b, matrix);
        b->ops->matrix_destroy(b, plain);
    }
    kernel_fixture_guarded_free(oracle);
    f->oracle->ops->matrix_destroy(f->oracle, exact);
}

static void test_linear_scale(void **state) {
    static const float scales[] = {1, -0.5f, 0.22f, 12, 1.0f / 3};
    uint64_t seed = 2;
    for (int repeat = 0; repeat < 30; repeat++) {
        struct weights w;
        weights_init(&w, &seed);
        float *x = kernel_fixture_random_floats(&seed, NUM_X * (size_t)w.cols);
        float *initial = kernel_fixture_random_floats(&seed, NUM_X * (size_t)w.rows);
        check_linear_scale(*state, &w, x, scales[repeat % 5], repeat % 2 ? initial : NULL);
        free(initial);
        free(x);
        weights_finish(&w);
    }
}

static void check_embed_scale(struct backend *b, const struct weights *w, float scale) {
    size_t n = (size_t)w->rows * (size_t)w->cols;
    struct matrix *matrix = create(b, w);
    float *expected = embed(b, matrix, w, 1);
    for (size_t i = 0; i < n; i++)
        expected[i] *= scale;
    assert_same(embed(b, matrix, w, scale), expected, n);
    b->ops->matrix_destroy(b, matrix);
}

static void test_embed_scale(void **state) {
    const struct kernel_fixture *f = *state;
    uint64_t seed = 3;
    for (int repeat = 0; repeat < 6; repeat++) {
        struct weights w;
        weights_init(&w, &seed);
        for (int i = 0; i < f->num_backends; i++)
            check_embed_scale(f->backends[i], &w, 33.9411f);
        check_embed_scale(f->oracle, &w, 33.9411f);
        weights_finish(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill_in_pieces),
        cmocka_unit_test(test_linear_scale),
        cmocka_unit_test(test_embed_scale),
    };
    return cmocka_run_group_tests(tests, kernel_fixture_setup, kernel_fixture_teardown);
}
