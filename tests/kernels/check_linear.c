/* The matrix product and `embed` against the oracle: every type of weights, ragged numbers of rows,
 * several parts, biases, products added in place, float results. Rows have the same bits alone and
 * in company where the backend promises it, on the CPU on every level and number of threads.
 *
 * The CPU rounds the activations of quantised weights (32-blocks of signed bytes), so its products
 * are compared twice: nearly equal to the product of the activations as they are rounded, and
 * within the bound of that rounding of cpu-ref, which rounds nothing. Likewise those of BF16 and
 * FP8 weights where a level rounds activations to BF16 before them.
 *
 * A device with `fp8-activations` is compared with the oracle's product of activations that were
 * rounded here to E4M3 by its definition. */
#include "kernels/cuda/packed/packed_layout.h"
#include "tests/kernels/kernel_fixture.h"
#include "tests/kernels/random_weights.h"
#include "tests/kernels/weights_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK 32
#define MAX_ROWS 401
#define FEW_ROWS 64

static struct kernel_fixture fixture;

/* One row as the CPU's product with quantised weights sees it; returns in `out_steps` half of the
 * scale of each element's block, which bounds the rounding error. */
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

/* Likewise before BF16 weights. */
static void round_to_bf16(const float *x, int32_t cols, float *out, float *out_steps) {
    for (int32_t k = 0; k < cols; k++) {
        out[k] = bf16_to_f32(bf16_from_f32(x[k]));
        out_steps[k] = 0x1p-8f * fabsf(x[k]);
    }
}

/* One row as a device's product with weights of E4M3 sees it, if it rounds activations. */
static void round_to_e4m3(const float *x, int32_t cols, float *out) {
    float amax = 0.0f;
    for (int32_t k = 0; k < cols; k++)
        amax = fmaxf(amax, fabsf(x[k]));
    const float scale = amax / 448.0f;
    for (int32_t k = 0; k < cols; k++) {
        const float quotient = scale > 0 ? x[k] / scale : 0.0f;
        const int exponent = quotient != 0 && ilogbf(quotient) > -6 ? ilogbf(quotient) : -6;
        const float step = ldexpf(1, exponent - 3);
        out[k] = scale * fminf(fmaxf(step * rintf(quotient / step), -448.0f), 448.0f);
    }
}

/* One row as a product sees it; steps are zeros where nothing is rounded. */
struct seen_row {
    float *x, *steps;
};

static struct seen_row see_row(const float *row, int32_t cols, enum dtype weights,
                               const struct backend *b) {
    size_t bytes = (size_t)cols * sizeof(float);
    struct seen_row seen = {kernel_fixture_memory(bytes), kernel_fixture_memory(bytes)};
    memcpy(seen.x, row, bytes);
    memset(seen.steps, 0, bytes);
    if (*kernel_fixture_bf16_products(b, weights) != '\0')
        round_to_bf16(row, cols, seen.x, seen.steps);
    else if (dtype_is_quantised(weights) && weights != DTYPE_E4M3_128)
        round_activations(row, cols, seen.x, seen.steps);
    return seen;
}

static void forget_row(struct seen_row *seen) {
    free(seen->x);
    free(seen->steps);
}

/* What the product of a row with weight row r of part p gives. */
struct definition {
    double sum;       /* of the activations as the CPU sees them */
    double magnitude; /* sum of the terms' magnitudes */
    double bound;     /* of what rounding the activations can change */
};

static struct definition define_product(const struct weights *w, int p, int32_t r, const float *row,
                                        const struct seen_row *seen, float initial) {
    size_t cols = (size_t)w->cols;
    const float *weight = w->values[p] + (size_t)r * cols;
    struct definition d = {.sum = (double)initial + w->biases[p][r],
                           .magnitude = fabs((double)initial) + fabs((double)w->biases[p][r])};
    for (size_t k = 0; k < cols; k++) {
        d.sum += (double)seen->x[k] * weight[k];
        d.magnitude += fabs((double)row[k] * weight[k]);
        d.bound += fabs((double)weight[k]) * seen->steps[k];
    }
    return d;
}

static void assert_defined(const struct backend *b, const struct weights *w, const float *x,
                           int32_t num_rows, const float *initial, const float *actual,
                           const float *oracle) {
    size_t at = 0;
    for (int32_t m = 0; m < num_rows; m++) {
        const float *row = x + (size_t)m * (size_t)w->cols;
        for (int p = 0; p < w->num_parts; p++) {
            struct seen_row seen = see_row(row, w->cols, w->parts[p].dtype, b);
            for (int32_t r = 0; r < w->parts[p].rows; r++, at++) {
                struct definition d =
                    define_product(w, p, r, row, &seen, initial != NULL ? initial[at] : 0);
                assert_true(fabs(actual[at] - d.sum) <= 1e-5 * d.magnitude);
                assert_true(fabs(actual[at] - oracle[at]) <= 1e-5 * d.magnitude + 1.001 * d.bound);
            }
            forget_row(&seen);
        }
    }
}

static bool is_rounded_for(const struct weights *w, int p) {
    return fixture.fp8_activations && w->is_packed && w->parts[p].dtype == DTYPE_E4M3_128;
}

/* The oracle's results are `oracle`; puts those of rounded activations in place of the parts' that
 * a device computes with such. */
static void use_rounded(const struct matrix *matrix, const struct weights *w, const float *x,
                        const struct linear_args *args, const float *initial, float *oracle) {
    const size_t rows = (size_t)w->rows, cols = (size_t)w->cols, n = (size_t)args->num_rows;
    float *rounded = kernel_fixture_memory(n * cols * sizeof(float));
    for (size_t m = 0; m < n; m++)
        round_to_e4m3(x + m * cols, w->cols, rounded + m * cols);
    float *other = weights_multiply(&fixture, fixture.oracle, matrix, w, rounded, args, initial);
    size_t first = 0;
    for (int p = 0; p < w->num_parts; first += (size_t)w->parts[p++].rows)
        for (size_t m = 0; m < n && is_rounded_for(w, p); m++)
            memcpy(oracle + m * rows + first, other + m * rows + first,
                   (size_t)w->parts[p].rows * sizeof(float));
    kernel_fixture_guarded_free(other);
    free(rounded);
}

/* A device's float result is off by the order of summation and by what tensor cores cut off at each
 * step along K: a bias, which grows with the number of steps (kernels/cudasim/tensor_core.h). For
 * many rows a device may first round quantised weights to the type of the activations, unless rows
 * have the same bits in any number. Of products of E4M3 13 bits are kept: each of the 8 steps of a
 * chunk of 128 may cut off up to 17 times 2^-13 of its largest term, of random terms altogether
 * some 2^-10.7 of the sum. */
static double device_tolerance(const struct weights *w, const struct linear_args *args) {
    bool rounds_weights = false, rounds_x = false;
    for (int p = 0; p < w->num_parts; p++)
        rounds_x |= is_rounded_for(w, p);
    if (rounds_x)
        return fmax(fixture.tolerance, 0x1p-9);
    for (int p = 0; p < w->num_parts; p++)
        rounds_weights |= dtype_is_quantised(w->parts[p].dtype) && !fixture.bits_equal &&
                          args->num_rows > FEW_ROWS;
    return args->float_out && !rounds_weights ? 1e-5 * fmax(1, w->cols / 2048.0)
                                              : fixture.tolerance;
}

static void assert_product(const struct backend *b, const struct weights *w, const float *x,
                           const struct linear_args *args, const float *initial,
                           const float *actual, const float *oracle) {
    size_t n = (size_t)args->num_rows * (size_t)w->rows;
    if (fixture.dtype == DTYPE_F32)
        assert_defined(b, w, x, args->num_rows, initial, actual, oracle);
    else
        kernel_fixture_assert_close_by(actual, oracle, n, device_tolerance(w, args), "linear");
}

static void check_row_alone(struct backend *b, const struct matrix *matrix, const struct weights *w,
                            const float *x, struct linear_args args, int32_t row,
                            const float *initial, const float *together) {
    size_t rows = (size_t)w->rows, first = (size_t)row * rows;
    args.num_rows = 1;
    float *alone = weights_multiply(&fixture, b, matrix, w, x + (size_t)row * (size_t)w->cols,
                                    &args, initial != NULL ? initial + first : NULL);
    assert_memory_equal(alone, together + first, rows * sizeof(float));
    kernel_fixture_guarded_free(alone);
}

static bool has_same_bits(const struct weights *w, const struct backend *a,
                          const struct backend *b) {
    for (int p = 0; p < w->num_parts; p++)
        if (strcmp(kernel_fixture_bf16_products(a, w->parts[p].dtype),
                   kernel_fixture_bf16_products(b, w->parts[p].dtype)) != 0)
            return false;
    return true;
}

/* Number of the first backend whose products with these weights have the bits of backend i's. */
static int first_with_bits(const struct weights *w, int i) {
    int first = 0;
    while (!has_same_bits(w, fixture.backends[first], fixture.backends[i]))
        first++;
    return first;
}

static void check_rows(const struct weights *w, const float *x, int32_t num_rows,
                       const float *initial, bool float_out) {
    const struct linear_args args = {.num_rows = num_rows, .scale = 1, .float_out = float_out};
    struct matrix *oracle_matrix = weights_create(&fixture, fixture.oracle, w);
    float *oracle = weights_multiply(&fixture, fixture.oracle, oracle_matrix, w, x, &args, initial);
    if (fixture.fp8_activations)
        use_rounded(oracle_matrix, w, x, &args, initial, oracle);
    float *results[FIXTURE_MAX_BACKENDS] = {NULL}; /* the first of its bits keeps its own */
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        struct matrix *matrix = weights_create(&fixture, b, w);
        float *actual = weights_multiply(&fixture, b, matrix, w, x, &args, initial);
        int first = first_with_bits(w, i);
        if (first == i) {
            assert_product(b, w, x, &args, initial, actual, oracle);
            results[i] = actual;
        } else {
            assert_memory_equal(actual, results[first],
                                (size_t)num_rows * (size_t)w->rows * sizeof(float));
            kernel_fixture_guarded_free(actual);
        }
        if (fixture.bits_equal) {
            check_row_alone(b, matrix, w, x, args, num_rows - 1, initial, results[first]);
            check_row_alone(b, matrix, w, x, args, num_rows / 2, initial, results[first]);
        }
        b->ops->matrix_destroy(b, matrix);
    }
    fixture.oracle->ops->matrix_destroy(fixture.oracle, oracle_matrix);
    kernel_fixture_guarded_free(oracle);
    for (int i = 0; i < fixture.num_backends; i++)
        if (results[i] != NULL)
            kernel_fixture_guarded_free(results[i]);
}

static void check_random(struct weights *w, int32_t num_rows, bool accumulate, bool float_out,
                         uint64_t *seed) {
    size_t num_in = (size_t)num_rows * (size_t)w->cols, n = (size_t)num_rows * (size_t)w->rows;
    float *x = kernel_fixture_random_floats(seed, num_in);
    for (size_t i = 0; i < num_in; i++)
        x[i] *= 1.7f;
    kernel_fixture_round(&fixture, x, num_in);
    float *initial = accumulate ? kernel_fixture_rounded_floats(&fixture, seed, n) : NULL;
    check_rows(w, x, num_rows, initial, float_out);
    free(x);
    free(initial);
    weights_finish(w);
}

/* With other weights than these `fp8-activations` changes nothing. */
static bool is_of_interest(enum dtype dtype) {
    return !fixture.fp8_activations || dtype == DTYPE_E4M3_128;
}

/* Every row count up to 33 meets every dtype, and some of those after it; with the variable all up
 * to 130, beyond the widest tile of a device. */
static void test_every_dtype_and_row_count(void **state) {
    const bool takes_all = getenv("QUIRE_CHECK_ALL_ROWS") != NULL;
    uint64_t seed = 1;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        for (int32_t num_rows = 1;
             is_of_interest((enum dtype)dtype) && num_rows <= (takes_all ? 130 : 100);
             num_rows += takes_all || num_rows < 33 ? 1
                         : num_rows == 33           ? 31
                                                    : 36) {
            struct weights w = {.cols = weights_random_cols((enum dtype)dtype, 5, &seed)};
            weights_add_part(&fixture, &w, (enum dtype)dtype,
                             kernel_fixture_random_in(&seed, 1, 90), false, &seed);
            check_random(&w, num_rows, num_rows % 3 == 0, num_rows % 2 == 0, &seed);
        }
}

static void test_mixed_parts(void **state) {
    uint64_t seed = 2;
    for (int variant = 0; variant < 40; variant++) {
        struct weights w = {.cols = variant % 2 ? 256 : 32 * kernel_fixture_random_in(&seed, 1, 8)};
        int num_parts = kernel_fixture_random_in(&seed, 2, WEIGHTS_MAX_PARTS);
        for (int p = 0; p < num_parts; p++)
            weights_add_part(&fixture, &w, random_weights_dtype(&seed, w.cols),
                             kernel_fixture_random_in(&seed, 1, 70), false, &seed);
        check_random(&w, kernel_fixture_random_in(&seed, 1, 33), variant % 2 == 0, variant & 2,
                     &seed);
    }
}

/* Some parts have a bias, others none. */
static void test_parts_and_biases(void **state) {
    uint64_t seed = 9;
    for (int variant = 0; variant < 40; variant++) {
        struct weights w = {.cols = variant % 4 ? 32 * kernel_fixture_random_in(&seed, 1, 8) : 512};
        for (int p = 0; p < 1 + variant % WEIGHTS_MAX_PARTS; p++)
            weights_add_part(&fixture, &w, random_weights_dtype(&seed, w.cols),
                             kernel_fixture_random_in(&seed, 1, 70), (variant + p) % 3 != 0, &seed);
        check_random(&w, kernel_fixture_random_in(&seed, 1, 100), variant & 1, variant & 2, &seed);
    }
}

/* Plain types take any K on the CPU, any multiple of 8 on a device. */
static void test_odd_depths(void **state) {
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    uint64_t seed = 3;
    for (int repeat = 0; repeat < 30; repeat++) {
        bool any = fixture.dtype == DTYPE_F32;
        struct weights w = {.cols = any ? kernel_fixture_random_in(&seed, 1, 100)
                                        : 8 * kernel_fixture_random_in(&seed, 1, 12)};
        weights_add_part(&fixture, &w, dtypes[repeat % 3], kernel_fixture_random_in(&seed, 1, 50),
                         false, &seed);
        check_random(&w, kernel_fixture_random_in(&seed, 1, 14), false, true, &seed);
    }
    for (int32_t cols = 8; cols <= 72; cols += 8) {
        struct weights w = {.cols = cols};
        weights_add_part(&fixture, &w, fixture.dtype, 2 * cols + 1, cols % 16 == 0, &seed);
        check_random(&w, cols / 8, cols % 3 == 0, false, &seed);
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
    uint64_t seed = 4;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct weights w = {.cols = shapes[i].cols};
        weights_add_part(&fixture, &w, shapes[i].dtype, shapes[i].rows, false, &seed);
        check_random(&w, shapes[i].num_rows, i % 2 == 1, true, &seed);
    }
}

/* Matrices that a device converts in several chunks. */
static void test_large_matrices(void **state) {
    uint64_t seed = 10;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        bool large_block = dtype_block_elements((enum dtype)dtype) > 32;
        struct weights w = {.cols = large_block ? 1280 : 1056};
        weights_add_part(&fixture, &w, (enum dtype)dtype, 131, dtype % 2 == 0, &seed);
        check_random(&w, 2, false, true, &seed);
    }
}

/* More rows than are taken in one pass, packed by several threads. */
static void test_many_rows(void **state) {
    static const int32_t counts[] = {191, 192, 193, MAX_ROWS};
    uint64_t seed = 5;
    for (int i = 0; i < 4; i++) {
        struct weights w = {.cols = 128};
        weights_add_part(&fixture, &w, i % 2 ? DTYPE_Q4_1 : DTYPE_F16, 20, false, &seed);
        weights_add_part(&fixture, &w, DTYPE_Q8_0, 3, false, &seed);
        check_random(&w, counts[i], i >= 2, true, &seed);
    }
}

/* Of weights that a GPU's cache does not hold at once: the simulator's has 256 KiB. */
static void test_many_rows_of_weights(void **state) {
    static const enum dtype types[] = {DTYPE_Q4_K, DTYPE_Q8_0, DTYPE_E4M3_128};
    uint64_t seed = 23;
    for (int i = 0; i < 6; i++) {
        struct weights w = {.cols = 256};
        weights_add_part(&fixture, &w, types[i / 2], 300, i / 2 == 1, &seed);
        weights_add_part(&fixture, &w, DTYPE_Q6_K, 12, i / 2 == 1, &seed);
        check_random(&w, 131 + i, i / 2 == 2, i % 2, &seed);
    }
}

static void check_scaled_rows(int32_t rows, int32_t num_rows, bool biased, bool float_out,
                              uint64_t *seed) {
    struct weights w = {.cols = 128 * kernel_fixture_random_in(seed, 1, 5)};
    weights_add_part(&fixture, &w, DTYPE_E4M3_128, rows, biased, seed);
    const size_t n = (size_t)rows * (size_t)w.cols, block_bytes = dtype_block_bytes(DTYPE_E4M3_128);
    for (size_t row = 0; row < (size_t)rows; row++) { /* a row's first scale becomes that of all */
        char *first = w.data[0] + row * dtype_row_bytes(DTYPE_E4M3_128, (size_t)w.cols);
        for (int32_t block = 1; block < w.cols / 128; block++)
            memcpy(first + (size_t)block * block_bytes, first, sizeof(float));
    }
    dtype_to_f32(DTYPE_E4M3_128, w.data[0], w.values[0], n);
    check_random(&w, num_rows, num_rows % 2 == 0, float_out, seed);
}

/* Of many rows, where cuBLASLt may multiply codes as they are, and the numbers of rows where it
 * does not; also the numbers of rows of weights that it does not take. */
static void test_scaled_rows(void **state) {
    static const int32_t counts[] = {64, 65, 100, 129}, rows[] = {8, 16, 50, 300};
    uint64_t seed = 41;
    const uint64_t before = kernel_fixture_products(fixture.backends[0]);
    if (!fixture.fp8_activations)
        return;
    for (int i = 0; i < 4 * 4 * 4; i++)
        check_scaled_rows(rows[i % 4], counts[i / 4 % 4], i / 16 % 2, i / 32, &seed);
    const uint64_t products = kernel_fixture_products(fixture.backends[0]) - before;
    /* For counts above 64 with rows of whole 16 bytes and no bias of floats; some are refused. */
    if (fixture.is_simulated && fixture.bits_equal)
        assert_int_equal(products, 0);
    else if (fixture.is_simulated)
        assert_in_range(products, 3 * (2 + 2 + 3), 2 * 3 * (2 + 2 + 3));
}

/* Of activations for whose codes there is not room at once. */
static void test_long_rows(void **state) {
    uint64_t seed = 37;
    struct weights w = {.cols = 1024 * 128};
    if (!fixture.fp8_activations)
        return;
    weights_add_part(&fixture, &w, DTYPE_E4M3_128, 3, true, &seed);
    weights_add_part(&fixture, &w, DTYPE_Q8_0, 1, true, &seed);
    check_random(&w, 70, true, true, &seed);
}

/* Bit for bit what linear and act_mul leave. */
static void check_gated(struct backend *b, const struct weights *w, const float *x,
                        int32_t num_rows, enum activation activation) {
    const int32_t width = w->rows / 2;
    const size_t n = (size_t)num_rows * (size_t)width;
    struct matrix *matrix = weights_create(&fixture, b, w);
    void *device_x = kernel_fixture_put(b, fixture.dtype, x, (size_t)num_rows * (size_t)w->cols);
    void *both = kernel_fixture_put(b, fixture.dtype, NULL, 2 * n);
    void *out = kernel_fixture_put(b, fixture.dtype, NULL, n);
    const struct linear_args apart = {
        .x = device_x, .weight = matrix, .out = both, .num_rows = num_rows, .scale = 1};
    struct linear_args fused = apart;
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    b->ops->linear(b, &apart);
    b->ops->act_mul(b, &(struct act_mul_args){.gate_up = both,
                                              .out = out,
                                              .num_rows = num_rows,
                                              .width = width,
                                              .activation = activation});
    kernel_fixture_synchronize(b);
    kernel_fixture_get(b, fixture.dtype, out, expected, n);
    fused.out = out;
    const bool is_done = b->ops->linear_gated(b, &fused, activation);
    assert_int_equal(is_done, num_rows <= 8 &&
                                  (w->num_parts == 1 || w->parts[0].dtype == w->parts[1].dtype));
    kernel_fixture_synchronize(b);
    kernel_fixture_get(b, fixture.dtype, out, actual, n);
    assert_memory_equal(actual, expected, n * sizeof(float));
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
    kernel_fixture_free(b, out);
    kernel_fixture_free(b, both);
    kernel_fixture_free(b, device_x);
    b->ops->matrix_destroy(b, matrix);
}

static void test_gated(void **state) {
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_I4_32,
                                       DTYPE_E4M3_128};
    struct backend *b = fixture.backends[0];
    uint64_t seed = 29;
    for (int i = 0; i < 5 * 10 && b->ops->linear_gated != NULL; i++) {
        const enum dtype type = types[i / 10];
        const int32_t num_rows = i % 10 + 1, width = 7 + 6 * (i % 5);
        struct weights w = {.cols = 256};
        weights_add_part(&fixture, &w, type, width, i % 3 == 0, &seed);
        weights_add_part(&fixture, &w, i % 7 == 6 ? DTYPE_Q6_K : type, width, i % 3 == 0, &seed);
        float *x = kernel_fixture_rounded_floats(&fixture, &seed, (size_t)num_rows * 256);
        if (i % 7 != 6 || type != DTYPE_BF16) /* widened together otherwise */
            check_gated(b, &w, x, num_rows, (enum activation)(i % 3));
        free(x);
        weights_finish(&w);
    }
}

/* What a product of up to 64 rows reads of a row of weights: all of it once, but that both chunks
 * of a block of 256 read its factors. */
static size_t bytes_to_read(enum dtype dtype, int32_t cols) {
    const int index = packed_form_index(dtype);
    if (index < 0)
        return dtype_row_bytes(dtype, (size_t)cols);
    const struct packed_form *form = &packed_forms[index];
    size_t bytes = 0;
    for (int plane = 0; plane < PACKED_NUM_PLANES; plane++)
        bytes += (size_t)packed_pair_bytes(form, plane);
    if (form->block > PACKED_CHUNK)
        bytes += (size_t)packed_pair_bytes(form, PACKED_FACTORS);
    return bytes * (size_t)(cols / (2 * PACKED_CHUNK));
}

static void check_weights_read(struct backend *b, enum dtype dtype, int32_t num_rows) {
    enum { ROWS = 128, COLS = 512 };
    uint64_t seed = 31;
    struct weights w = {.cols = COLS};
    weights_add_part(&fixture, &w, dtype, ROWS, false, &seed);
    struct matrix *matrix = weights_create(&fixture, b, &w);
    float *x = kernel_fixture_rounded_floats(&fixture, &seed, (size_t)num_rows * COLS);
    const struct linear_args args = {
        .x = kernel_fixture_put(b, fixture.dtype, x, (size_t)num_rows * COLS),
        .weight = matrix,
        .out = kernel_fixture_put(b, fixture.dtype, NULL, (size_t)num_rows * ROWS),
        .num_rows = num_rows,
        .scale = 1};
    kernel_fixture_count_reads(b);
    b->ops->linear(b, &args);
    kernel_fixture_synchronize(b);
    uint64_t num_read = kernel_fixture_bytes_read(b, "packed_", NULL, 0);
    if (num_read != ROWS * bytes_to_read(dtype, COLS))
        fail_msg("%s: %d rows read %llu bytes of weights instead of %zu", dtype_name(dtype),
                 num_rows, (unsigned long long)num_read, ROWS * bytes_to_read(dtype, COLS));
    kernel_fixture_free(b, args.out);
    kernel_fixture_free(b, (void *)(uintptr_t)args.x);
    free(x);
    b->ops->matrix_destroy(b, matrix);
    weights_finish(&w);
}

/* Our own products, of which batch-invariant takes no others. */
static void test_weights_are_read_once(void **state) {
    static const int32_t row_counts[] = {1, 8, 32, 64};
    if (!fixture.is_simulated || !fixture.bits_equal)
        return; /* nothing counts there */
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        for (size_t i = 0; i < sizeof(row_counts) / sizeof(row_counts[0]); i++)
            if (dtype == (int)fixture.dtype || packed_form_index((enum dtype)dtype) >= 0)
                check_weights_read(fixture.backends[0], (enum dtype)dtype, row_counts[i]);
}

/* Products of one matrix one after the other, so that what is kept of one is used by the next. */
static void test_one_matrix_many_times(void **state) {
    uint64_t seed = 11;
    struct weights w = {.cols = 64};
    weights_add_part(&fixture, &w, DTYPE_Q8_0, 48, true, &seed);
    struct matrix *oracle_matrix = weights_create(&fixture, fixture.oracle, &w);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        struct matrix *matrix = weights_create(&fixture, b, &w);
        for (int32_t num_rows = 1; num_rows <= 100; num_rows += num_rows < 10 ? 1 : 9) {
            const struct linear_args args = {
                .num_rows = num_rows, .scale = 1, .float_out = num_rows % 2};
            float *x = kernel_fixture_rounded_floats(&fixture, &seed, (size_t)num_rows * 64);
            float *oracle =
                weights_multiply(&fixture, fixture.oracle, oracle_matrix, &w, x, &args, NULL);
            float *actual = weights_multiply(&fixture, b, matrix, &w, x, &args, NULL);
            assert_product(b, &w, x, &args, NULL, actual, oracle);
            kernel_fixture_guarded_free(actual);
            kernel_fixture_guarded_free(oracle);
            free(x);
        }
        b->ops->matrix_destroy(b, matrix);
    }
    fixture.oracle->ops->matrix_destroy(fixture.oracle, oracle_matrix);
    weights_finish(&w);
}

/* Every byte of a block but its factors alike, among them those with every code, scale and minimum
 * at an end of its range, and every activation at an end of its own: where 16-bit sums would
 * overflow. `d` is the first factor's f16; the second, where there is one, keeps its random value.
 */
static void check_extreme(enum dtype dtype, uint8_t pattern, uint16_t d) {
    enum { ROWS = 17, COLS = 512, NUM_X = 5 };
    uint64_t seed = 6;
    struct weights w = {.cols = COLS};
    weights_add_part(&fixture, &w, dtype, ROWS, false, &seed);
    size_t block_bytes = dtype_block_bytes(dtype);
    size_t num_blocks = dtype_row_bytes(dtype, ROWS * COLS) / block_bytes;
    for (size_t b = 0; b < num_blocks; b++)
        random_weights_fill_block(dtype, w.data[0] + b * block_bytes, pattern, d);
    dtype_to_f32(dtype, w.data[0], w.values[0], ROWS * COLS);
    float x[NUM_X * COLS];
    for (int i = 0; i < NUM_X * COLS; i++)
        x[i] = i / COLS % 2 ? -2.5f : 2.5f;
    check_rows(&w, x, NUM_X, NULL, true);
    weights_finish(&w);
}

/* A device computes with none of these codes. */
static void test_extreme_codes(void **state) {
    static const uint8_t patterns[] = {0x00, 0xff, 0x80, 0x7f};
    if (fixture.dtype != DTYPE_F32)
        skip();
    for (int dtype = DTYPE_Q4_0; dtype < DTYPE_COUNT; dtype++)
        for (int p = 0; p < 4; p++)
            check_extreme((enum dtype)dtype, patterns[p], f16_from_f32(0.01f));
}

/* Factors that are zero, subnormal in f16, negative or the largest. */
static void test_extreme_factors(void **state) {
    static const uint16_t factors[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff};
    if (fixture.dtype != DTYPE_F32)
        skip();
    for (int dtype = DTYPE_Q4_0; dtype < DTYPE_COUNT; dtype++)
        for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++)
            check_extreme((enum dtype)dtype, 0x5a, factors[i]);
}

/* Scales that are powers of 2, row by row, but for those whose products leave the normal floats. */
static void test_every_exponent(void **state) {
    enum { FIRST = 20, ROWS = 220, COLS = 64 };
    uint64_t seed = 12;
    if (fixture.dtype != DTYPE_F32)
        skip();
    struct weights w = {.cols = COLS};
    weights_add_part(&fixture, &w, DTYPE_MXFP4, ROWS, false, &seed);
    size_t block_bytes = dtype_block_bytes(DTYPE_MXFP4);
    for (size_t b = 0; b < ROWS * COLS / 32; b++)
        w.data[0][b * block_bytes] = (uint8_t)(FIRST + b / 2);
    dtype_to_f32(DTYPE_MXFP4, w.data[0], w.values[0], ROWS * COLS);
    float *x = kernel_fixture_random_floats(&seed, 2 * COLS);
    check_rows(&w, x, 2, NULL, true);
    free(x);
    weights_finish(&w);
}

/* Zero and tiny rows give (nearly) zero; a NaN spoils its own row only. */
static void test_special_activations(void **state) {
    enum { ROWS = 21 };
    const struct linear_args args = {.num_rows = 4, .scale = 1, .float_out = true};
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        uint64_t seed = 7;
        struct weights w = {.cols = dtype_block_elements((enum dtype)dtype) > BLOCK ? 512 : 96};
        int cols = w.cols;
        weights_add_part(&fixture, &w, (enum dtype)dtype, ROWS, false, &seed);
        float *x = kernel_fixture_rounded_floats(&fixture, &seed, (size_t)(4 * cols));
        for (int k = 0; k < cols; k++) {
            x[k] = 0.0f;
            x[cols + k] = 1e-39f;
        }
        x[2 * cols + 40] = NAN;
        for (int i = 0; i < fixture.num_backends; i++) {
            struct backend *b = fixture.backends[i];
            struct matrix *matrix = weights_create(&fixture, b, &w);
            float *actual = weights_multiply(&fixture, b, matrix, &w, x, &args, NULL);
            for (int n = 0; n < ROWS; n++) {
                assert_true(actual[n] == 0.0f);
                assert_true(fabsf(actual[ROWS + n]) < 1e-36f);
                assert_true(isnan(actual[2 * ROWS + n]));
                assert_true(isfinite(actual[3 * ROWS + n]));
            }
            kernel_fixture_guarded_free(actual);
            b->ops->matrix_destroy(b, matrix);
        }
        free(x);
        weights_finish(&w);
    }
}

/* The bits of the rows, on the oracle too; zeros for tokens before and behind those of the table.
 */
static void test_embed(void **state) {
    uint64_t seed = 8;
    for (int repeat = 0; repeat < 3 * DTYPE_COUNT; repeat++) {
        enum dtype dtype = (enum dtype)(repeat % DTYPE_COUNT);
        struct weights w = {.cols = weights_random_cols(dtype, 20, &seed)};
        weights_add_part(&fixture, &w, dtype, kernel_fixture_random_in(&seed, 1, 61), repeat % 2,
                         &seed);
        weights_add_part(&fixture, &w, repeat % 3 ? random_weights_dtype(&seed, w.cols) : DTYPE_F32,
                         kernel_fixture_random_in(&seed, 1, 60), false, &seed);
        int32_t tokens[100], num_tokens = kernel_fixture_random_in(&seed, 1, 100);
        int32_t first_row = repeat % 2 * 7;
        float *zeros = kernel_fixture_memory((size_t)w.cols * sizeof(float));
        memset(zeros, 0, (size_t)w.cols * sizeof(float));
        for (int32_t t = 0; t < num_tokens; t++)
            tokens[t] = t == 0 ? first_row + w.rows - 1
                               : kernel_fixture_random_in(&seed, 0, w.rows - 1 + 2 * first_row);
        for (int i = -1; i < fixture.num_backends; i++) {
            struct backend *b = i < 0 ? fixture.oracle : fixture.backends[i];
            struct matrix *matrix = weights_create(&fixture, b, &w);
            float *out = weights_embed(&fixture, b, matrix, &w, first_row, tokens, num_tokens, 1);
            for (int32_t t = 0; t < num_tokens; t++) {
                int32_t row = tokens[t] - first_row;
                float *expected = kernel_fixture_memory((size_t)w.cols * sizeof(float));
                memcpy(expected, row >= 0 && row < w.rows ? weights_row(&w, row) : zeros,
                       (size_t)w.cols * sizeof(float));
                if (i >= 0)
                    kernel_fixture_round(&fixture, expected, (size_t)w.cols);
                assert_memory_equal(out + (size_t)t * (size_t)w.cols, expected,
                                    (size_t)w.cols * sizeof(float));
                free(expected);
            }
            kernel_fixture_guarded_free(out);
            b->ops->matrix_destroy(b, matrix);
        }
        free(zeros);
        weights_finish(&w);
    }
}

static void expect_refused(struct backend *b, const struct matrix_part *part, int32_t cols,
                           enum error_code code) {
    struct matrix *matrix = NULL;
    struct error err = {0};
    assert_int_equal(b->ops->matrix_create(b, part, 1, cols, MATRIX_LINEAR, &matrix, &err), -1);
    assert_int_equal(err.code, code);
    assert_true(strlen(err.message) > 0);
    assert_null(matrix);
    kernel_fixture_synchronize(b);
}

/* The last are what a device cannot hold. */
static void test_bad_matrices_are_refused(void **state) {
    enum { NUM_BAD = 9, NUM_BAD_ON_CPU = 6 };
    static const struct {
        enum dtype dtype;
        int32_t rows, cols;
        enum error_code code;
    } bad[NUM_BAD] = {
        {DTYPE_Q4_0, 16, 48, ERROR_MODEL},          {DTYPE_Q4_K, 16, 128, ERROR_MODEL},
        {DTYPE_Q8_0, 16, 0, ERROR_MODEL},           {DTYPE_F32, 0, 32, ERROR_MODEL},
        {DTYPE_F32, -5, 32, ERROR_MODEL},           {DTYPE_NONE, 16, 32, ERROR_MODEL},
        {DTYPE_BF16, 16, 12, ERROR_MODEL},          {DTYPE_F32, 16, 33, ERROR_MODEL},
        {DTYPE_F32, INT32_MAX, 8192, ERROR_MEMORY},
    };
    for (int i = 0; i < (fixture.dtype == DTYPE_F32 ? NUM_BAD_ON_CPU : NUM_BAD); i++) {
        struct matrix_part part = {.dtype = bad[i].dtype, .rows = bad[i].rows, .data = ""};
        for (int k = 0; k < fixture.num_backends; k++)
            expect_refused(fixture.backends[k], &part, bad[i].cols, bad[i].code);
    }
}

/* What a file may hold and f16 cannot: a model is not computed with infinities. */
static void test_weights_too_large_for_f16(void **state) {
    struct backend *b = fixture.backends[0];
    float values[2 * 8] = {0};
    values[11] = -65536.0f;
    struct matrix_part part = {.dtype = DTYPE_F32, .rows = 2, .data = values};
    if (fixture.dtype == DTYPE_F16) {
        expect_refused(b, &part, 8, ERROR_MODEL);
        values[11] = -65504.0f;
    }
    struct matrix *matrix = kernel_fixture_matrix(b, &part, 1, 8, MATRIX_LINEAR);
    b->ops->matrix_destroy(b, matrix);
    kernel_fixture_synchronize(b);
}

int main(int argc, char **argv) {
    static const struct backend_config config = {.limits.max_num_batched_tokens = MAX_ROWS,
                                                 .limits.max_num_seqs = 64,
                                                 .limits.max_model_len = 4,
                                                 .limits.block_size = 1,
                                                 .limits.max_logit_rows = 4,
                                                 .limits.vocab_size = 64,
                                                 .head_dim = 64,
                                                 .num_q_heads = 1,
                                                 .num_kv_heads = 1};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_dtype_and_row_count),
        cmocka_unit_test(test_mixed_parts),
        cmocka_unit_test(test_parts_and_biases),
        cmocka_unit_test(test_odd_depths),
        cmocka_unit_test(test_model_shapes),
        cmocka_unit_test(test_large_matrices),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_many_rows_of_weights),
        cmocka_unit_test(test_scaled_rows),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_gated),
        cmocka_unit_test(test_weights_are_read_once),
        cmocka_unit_test(test_one_matrix_many_times),
        cmocka_unit_test(test_extreme_codes),
        cmocka_unit_test(test_extreme_factors),
        cmocka_unit_test(test_every_exponent),
        cmocka_unit_test(test_special_activations),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_bad_matrices_are_refused),
        cmocka_unit_test(test_weights_too_large_for_f16),
    };
    kernel_fixture_open(&fixture, argc, argv, &config);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&fixture);
    return failed;
}
