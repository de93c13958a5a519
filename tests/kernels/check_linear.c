/* The matrix product and embed of the CPU backend, on every instruction-set level this machine has,
 * against the definition in double precision:
 *   - near equality with the product of the activations as the level rounds them (32-blocks of
 *     signed bytes for quantised weights, not at all for plain ones);
 *   - within the bound of that rounding of cpu-ref, which rounds nothing;
 *   - bit equality over levels, thread counts and batches;
 *   - nothing written outside the output. */
#include "kernels/backend.h"
#include "tests/kernels/kernel_fixture.h"
#include "tests/kernels/random_weights.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK 32
#define MAX_PARTS 3
#define GUARD 64
#define CANARY 12345.0f

static uint32_t next_random(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static int random_in(uint32_t *seed, int low, int high) {
    return low + (int)(next_random(seed) % (uint32_t)(high - low + 1));
}

static float random_float(uint32_t *seed) {
    return (float)next_random(seed) / 0x1p23f - 1.0f;
}

static void *allocate(size_t bytes) {
    void *p = malloc(bytes);
    assert_non_null(p);
    return p;
}

struct weights {
    struct matrix_part parts[MAX_PARTS];
    int num_parts;
    int32_t rows;
    int32_t cols;
    void *data[MAX_PARTS];
    float *values;   /* [rows, cols] */
    float *bias;     /* [rows] */
    bool *quantised; /* [rows] */
};

static void weights_add_part(struct weights *w, enum dtype dtype, int32_t rows, uint32_t *seed) {
    size_t row_bytes = dtype_row_bytes(dtype, (size_t)w->cols);
    uint64_t row_seed = next_random(seed);
    uint8_t *data = allocate(row_bytes * (size_t)rows);
    w->values = realloc(w->values, (size_t)(w->rows + rows) * (size_t)w->cols * sizeof(float));
    w->quantised = realloc(w->quantised, (size_t)(w->rows + rows) * sizeof(bool));
    w->bias = realloc(w->bias, (size_t)(w->rows + rows) * sizeof(float));
    for (int32_t r = 0; r < rows; r++) {
        random_weights_row(&row_seed, dtype, data + (size_t)r * row_bytes, (size_t)w->cols);
        dtype_to_f32(dtype, data + (size_t)r * row_bytes,
                     w->values + (size_t)(w->rows + r) * (size_t)w->cols, (size_t)w->cols);
        w->quantised[w->rows + r] = dtype_is_quantised(dtype);
        w->bias[w->rows + r] = 0.0f;
    }
    w->parts[w->num_parts] = (struct matrix_part){.dtype = dtype, .rows = rows, .data = data};
    w->data[w->num_parts++] = data;
    w->rows += rows;
}

/* Only now, because adding a part may move what a part points to. */
static void weights_add_bias(struct weights *w, int part, uint32_t *seed) {
    float *bias = w->bias;
    for (int p = 0; p < part; p++)
        bias += w->parts[p].rows;
    for (int32_t r = 0; r < w->parts[part].rows; r++)
        bias[r] = 4.0f * random_float(seed);
    w->parts[part].bias = bias;
}

static void weights_finish(struct weights *w) {
    for (int i = 0; i < w->num_parts; i++)
        free(w->data[i]);
    free(w->values);
    free(w->bias);
    free(w->quantised);
}

static struct matrix *create(struct backend *b, const struct weights *w) {
    struct matrix *matrix = NULL;
    struct error err = {0};
    int status = b->ops->matrix_create(b, w->parts, w->num_parts, w->cols, &matrix, &err);
    if (status != 0)
        print_message("# %s\n", err.message);
    assert_int_equal(status, 0);
    return matrix;
}

/* The product into exactly sized memory with canaries on both sides. Returns [num_rows, w->rows];
 * the caller frees. `initial` may be NULL: then the output starts as NaN. */
static float *product(struct backend *b, const struct matrix *matrix, const struct weights *w,
                      const float *x, int32_t num_rows, const float *initial) {
    size_t count = (size_t)num_rows * (size_t)w->rows;
    float *guarded = allocate((count + 2 * GUARD) * sizeof(float));
    float *out = allocate(count * sizeof(float));
    for (size_t i = 0; i < count + 2 * GUARD; i++)
        guarded[i] = i < GUARD || i >= GUARD + count ? CANARY
                     : initial != NULL               ? initial[i - GUARD]
                                                     : NAN;
    struct linear_args args = {.x = x,
                               .weight = matrix,
                               .out = guarded + GUARD,
                               .num_rows = num_rows,
                               .scale = 1.0F,
                               .accumulate = initial != NULL,
                               .float_out = true};
    b->ops->linear(b, &args);
    assert_int_equal(b->ops->synchronize(b, NULL), 0);
    for (size_t i = 0; i < GUARD; i++)
        assert_true(guarded[i] == CANARY && guarded[GUARD + count + i] == CANARY);
    memcpy(out, guarded + GUARD, count * sizeof(float));
    free(guarded);
    return out;
}

/* One row as the product with quantised weights sees it; returns in `out_steps` half of the scale
 * of each element's block, which bounds the rounding error. */
static void round_activations(const float *x, int32_t cols, float *out, float *out_steps) {
    for (int32_t k = 0; k < cols; k += BLOCK) {
        float amax = 0.0f;
        for (int i = 0; i < BLOCK; i++)
            amax = fmaxf(amax, fabsf(x[k + i]));
        float scale = amax / 127.0f, inverse = amax > 0.0f ? 127.0f / amax : 0.0f;
        for (int i = 0; i < BLOCK; i++) {
            out[k + i] = scale * rintf(x[k + i] * inverse);
            out_steps[k + i] = scale / 2;
        }
    }
}

static void check_against_definition(const struct weights *w, const float *x, int32_t num_rows,
                                     const float *initial, const float *got, const float *oracle) {
    size_t cols = (size_t)w->cols;
    float *rounded = allocate(cols * sizeof(float)), *steps = allocate(cols * sizeof(float));
    for (int32_t m = 0; m < num_rows; m++) {
        const float *row = x + (size_t)m * cols;
        if (w->cols % BLOCK == 0)
            round_activations(row, w->cols, rounded, steps);
        for (int32_t n = 0; n < w->rows; n++) {
            size_t at = (size_t)m * (size_t)w->rows + (size_t)n;
            const float *weight = w->values + (size_t)n * cols;
            const float *seen = w->quantised[n] ? rounded : row;
            double sum = (initial != NULL ? initial[at] : 0.0) + w->bias[n], bound = 0.0;
            double magnitude =
                (initial != NULL ? fabs((double)initial[at]) : 0.0) + fabs((double)w->bias[n]);
            for (size_t k = 0; k < cols; k++) {
                sum += (double)seen[k] * weight[k];
                magnitude += fabs((double)row[k] * weight[k]);
                if (w->quantised[n])
                    bound += fabs((double)weight[k]) * steps[k];
            }
            assert_true(fabs(got[at] - sum) <= 1e-5 * magnitude);
            assert_true(fabs(got[at] - oracle[at]) <= 1e-5 * magnitude + 1.001 * bound);
        }
    }
    free(rounded);
    free(steps);
}

static void check_row_alone(struct backend *b, const struct matrix *matrix, const struct weights *w,
                            const float *x, int32_t row, const float *initial,
                            const float *expected) {
    const float *row_initial = initial == NULL ? NULL : initial + (size_t)row * (size_t)w->rows;
    float *alone = product(b, matrix, w, x + (size_t)row * (size_t)w->cols, 1, row_initial);
    assert_memory_equal(alone, expected + (size_t)row * (size_t)w->rows,
                        (size_t)w->rows * sizeof(float));
    free(alone);
}

static void check_case(const struct kernel_fixture *f, const struct weights *w, const float *x,
                       int32_t num_rows, const float *initial) {
    size_t bytes = (size_t)num_rows * (size_t)w->rows * sizeof(float);
    struct matrix *oracle_matrix = create(f->oracle, w);
    float *oracle = product(f->oracle, oracle_matrix, w, x, num_rows, initial), *first = NULL;
    for (int i = 0; i < f->num_backends; i++) {
        struct backend *b = f->backends[i];
        struct matrix *matrix = create(b, w);
        float *got = product(b, matrix, w, x, num_rows, initial);
        if (first == NULL) {
            check_against_definition(w, x, num_rows, initial, got, oracle);
            first = got;
        } else {
            assert_memory_equal(got, first, bytes);
            free(got);
        }
        check_row_alone(b, matrix, w, x, num_rows - 1, initial, first);
        check_row_alone(b, matrix, w, x, num_rows / 2, initial, first);
        b->ops->matrix_destroy(b, matrix);
    }
    f->oracle->ops->matrix_destroy(f->oracle, oracle_matrix);
    free(oracle);
    free(first);
}

static float *random_floats(size_t count, float scale, uint32_t *seed) {
    float *x = allocate(count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        x[i] = scale * random_float(seed);
    return x;
}

static void run_random(const struct kernel_fixture *f, struct weights *w, int32_t num_rows,
                       bool accumulate, uint32_t *seed) {
    float *x = random_floats((size_t)num_rows * (size_t)w->cols, 3.0f, seed);
    float *initial =
        accumulate ? random_floats((size_t)num_rows * (size_t)w->rows, 1.0f, seed) : NULL;
    check_case(f, w, x, num_rows, initial);
    free(x);
    free(initial);
    weights_finish(w);
}

/* A few blocks, at most max_steps of 32 elements unless one has more. */
static int32_t random_cols(enum dtype dtype, int max_steps, uint32_t *seed) {
    int step = dtype_block_elements(dtype) > BLOCK ? dtype_block_elements(dtype) : BLOCK;
    return step * random_in(seed, 1, step > BLOCK ? 2 : max_steps);
}

static enum dtype random_dtype(int32_t cols, uint32_t *seed) {
    uint64_t dtype_seed = next_random(seed);
    return random_weights_dtype(&dtype_seed, cols);
}

/* Every row count up to 33 meets every dtype. */
static void test_every_dtype_and_row_count(void **state) {
    uint32_t seed = 1;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        for (int32_t num_rows = 1; num_rows <= 33; num_rows++) {
            struct weights w = {.cols = random_cols((enum dtype)dtype, 5, &seed)};
            weights_add_part(&w, (enum dtype)dtype, random_in(&seed, 1, 90), &seed);
            run_random(*state, &w, num_rows, num_rows % 3 == 0, &seed);
        }
    }
}

static void test_mixed_parts(void **state) {
    uint32_t seed = 2;
    for (int repeat = 0; repeat < 40; repeat++) {
        struct weights w = {.cols = repeat % 2 ? 256 : 32 * random_in(&seed, 1, 8)};
        int num_parts = random_in(&seed, 2, MAX_PARTS);
        for (int p = 0; p < num_parts; p++)
            weights_add_part(&w, random_dtype(w.cols, &seed), random_in(&seed, 1, 70), &seed);
        run_random(*state, &w, random_in(&seed, 1, 33), repeat % 2 == 0, &seed);
    }
}

/* Some parts have a bias, others none. */
static void test_bias(void **state) {
    uint32_t seed = 9;
    for (int repeat = 0; repeat < 40; repeat++) {
        struct weights w = {.cols = repeat % 2 ? 512 : 32 * random_in(&seed, 1, 5)};
        int num_parts = random_in(&seed, 1, MAX_PARTS);
        for (int p = 0; p < num_parts; p++)
            weights_add_part(&w, random_dtype(w.cols, &seed), random_in(&seed, 1, 70), &seed);
        weights_add_bias(&w, repeat % num_parts, &seed);
        if (repeat % 4 == 3)
            weights_add_bias(&w, 0, &seed);
        run_random(*state, &w, random_in(&seed, 1, 33), repeat % 2 == 0, &seed);
    }
}

/* Plain types take any K. */
static void test_odd_depths(void **state) {
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    uint32_t seed = 3;
    for (int repeat = 0; repeat < 30; repeat++) {
        struct weights w = {.cols = random_in(&seed, 1, 100)};
        weights_add_part(&w, dtypes[repeat % 3], random_in(&seed, 1, 50), &seed);
        run_random(*state, &w, random_in(&seed, 1, 14), false, &seed);
    }
}

static void test_model_shapes(void **state) {
    static const struct {
        enum dtype dtype;
        int32_t rows, cols, num_rows;
    } shapes[] = {
        {DTYPE_Q4_1, 576, 1536, 13}, {DTYPE_Q8_0, 192, 576, 33}, {DTYPE_Q4_0, 960, 576, 7},
        {DTYPE_BF16, 96, 1536, 9},   {DTYPE_F32, 64, 1536, 5},   {DTYPE_Q4_K, 320, 2048, 14},
        {DTYPE_Q6_K, 96, 8192, 5},   {DTYPE_Q3_K, 64, 4096, 12}, {DTYPE_IQ4_NL, 96, 576, 11},
    };
    uint32_t seed = 4;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct weights w = {.cols = shapes[i].cols};
        weights_add_part(&w, shapes[i].dtype, shapes[i].rows, &seed);
        run_random(*state, &w, shapes[i].num_rows, i % 2 == 1, &seed);
    }
}

/* More rows than are taken in one pass, packed by several threads. */
static void test_many_rows(void **state) {
    static const int32_t counts[] = {191, 192, 193, 401};
    uint32_t seed = 5;
    for (int i = 0; i < 4; i++) {
        struct weights w = {.cols = 128};
        weights_add_part(&w, i % 2 ? DTYPE_Q4_1 : DTYPE_F16, 20, &seed);
        weights_add_part(&w, DTYPE_Q8_0, 3, &seed);
        run_random(*state, &w, counts[i], i >= 2, &seed);
    }
}

/* Every byte of a block but its factors alike, among them those with every code, scale and minimum
 * at an end of its range, and every activation at an end of its own: where 16-bit sums would
 * overflow. `d` is the first factor's f16; the second, where there is one, keeps its random value.
 */
static void check_extreme(const struct kernel_fixture *f, enum dtype dtype, uint8_t pattern,
                          uint16_t d) {
    uint32_t seed = 6;
    struct weights w = {.cols = 512};
    weights_add_part(&w, dtype, 17, &seed);
    size_t block_bytes = dtype_block_bytes(dtype);
    size_t num_blocks = dtype_row_bytes(dtype, 17 * 512) / block_bytes;
    uint8_t *data = w.data[0];
    for (size_t b = 0; b < num_blocks; b++)
        random_weights_fill_block(dtype, data + b * block_bytes, pattern, d);
    dtype_to_f32(dtype, data, w.values, 17 * 512);
    float x[5 * 512];
    for (int i = 0; i < 5 * 512; i++)
        x[i] = i / 512 % 2 ? -2.5f : 2.5f;
    check_case(f, &w, x, 5, NULL);
    weights_finish(&w);
}

static void test_extreme_codes(void **state) {
    static const uint8_t patterns[] = {0x00, 0xff, 0x80, 0x7f};
    for (int dtype = DTYPE_Q4_0; dtype < DTYPE_COUNT; dtype++)
        for (int p = 0; p < 4; p++)
            check_extreme(*state, (enum dtype)dtype, patterns[p], f16_from_f32(0.01f));
}

/* Factors that are zero, subnormal in f16, negative or the largest. */
static void test_extreme_factors(void **state) {
    static const uint16_t factors[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff};
    for (int dtype = DTYPE_Q4_0; dtype < DTYPE_COUNT; dtype++)
        for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++)
            check_extreme(*state, (enum dtype)dtype, 0x5a, factors[i]);
}

/* Zero and tiny rows give (nearly) zero; a NaN spoils its own row only. */
static void test_special_activations(void **state) {
    const struct kernel_fixture *f = *state;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        uint32_t seed = 7;
        struct weights w = {.cols = dtype_block_elements((enum dtype)dtype) > BLOCK ? 512 : 96};
        int cols = w.cols;
        weights_add_part(&w, (enum dtype)dtype, 21, &seed);
        float *x = random_floats((size_t)(4 * cols), 1.0f, &seed);
        for (int k = 0; k < cols; k++) {
            x[k] = 0.0f;
            x[cols + k] = 1e-39f;
        }
        x[2 * cols + 40] = NAN;
        for (int i = 0; i < f->num_backends; i++) {
            struct backend *b = f->backends[i];
            struct matrix *matrix = create(b, &w);
            float *got = product(b, matrix, &w, x, 4, NULL);
            for (int n = 0; n < 21; n++) {
                assert_true(got[n] == 0.0f);
                assert_true(fabsf(got[21 + n]) < 1e-36f);
                assert_true(isnan(got[2 * 21 + n]));
                assert_true(isfinite(got[3 * 21 + n]));
            }
            free(got);
            b->ops->matrix_destroy(b, matrix);
        }
        free(x);
        weights_finish(&w);
    }
}

static void test_embed(void **state) {
    const struct kernel_fixture *f = *state;
    uint32_t seed = 8;
    for (int repeat = 0; repeat < 3 * DTYPE_COUNT; repeat++) {
        struct weights w = {.cols = random_cols((enum dtype)(repeat % DTYPE_COUNT), 20, &seed)};
        weights_add_part(&w, (enum dtype)(repeat % DTYPE_COUNT), random_in(&seed, 1, 60), &seed);
        weights_add_part(&w, random_dtype(w.cols, &seed), random_in(&seed, 1, 60), &seed);
        int32_t tokens[50];
        int num_tokens = random_in(&seed, 1, 50);
        for (int t = 0; t < num_tokens; t++)
            tokens[t] = random_in(&seed, 0, w.rows - 1);
        struct step_inputs step = {.num_tokens = num_tokens, .token_ids = tokens};
        size_t row_bytes = (size_t)w.cols * sizeof(float);
        float *out = allocate((size_t)num_tokens * row_bytes);
        for (int i = 0; i < f->num_backends; i++) {
            struct backend *b = f->backends[i];
            struct matrix *matrix = create(b, &w);
            b->ops->step_begin(b, &step);
            b->ops->embed(b, &(struct embed_args){.table = matrix, .out = out, .scale = 1.0F});
            for (int t = 0; t < num_tokens; t++)
                assert_memory_equal(out + (size_t)t * (size_t)w.cols,
                                    w.values + (size_t)tokens[t] * (size_t)w.cols, row_bytes);
            b->ops->matrix_destroy(b, matrix);
        }
        free(out);
        weights_finish(&w);
    }
}

static void test_bad_matrices_are_refused(void **state) {
    const struct kernel_fixture *f = *state;
    static const struct {
        enum dtype dtype;
        int32_t rows, cols;
    } bad[] = {{DTYPE_Q4_0, 16, 48}, {DTYPE_Q4_K, 16, 128}, {DTYPE_Q8_0, 16, 0},
               {DTYPE_F32, 0, 32},   {DTYPE_F32, -5, 32},   {DTYPE_COUNT, 16, 32}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct matrix_part part = {.dtype = bad[i].dtype, .rows = bad[i].rows, .data = ""};
        for (int j = 0; j < f->num_backends; j++) {
            struct backend *b = f->backends[j];
            struct matrix *matrix = NULL;
            struct error err = {0};
            assert_int_equal(b->ops->matrix_create(b, &part, 1, bad[i].cols, &matrix, &err), -1);
            assert_int_equal(err.code, ERROR_MODEL);
            assert_null(matrix);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_dtype_and_row_count),
        cmocka_unit_test(test_mixed_parts),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_odd_depths),
        cmocka_unit_test(test_model_shapes),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_extreme_codes),
        cmocka_unit_test(test_extreme_factors),
        cmocka_unit_test(test_special_activations),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_bad_matrices_are_refused),
    };
    return cmocka_run_group_tests(tests, kernel_fixture_setup, kernel_fixture_teardown);
}
