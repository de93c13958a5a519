/* Which algorithm of cuBLASLt a product takes when they are timed at start (kernels/tuning.h), on
 * the simulator, where each takes what it is told to and may be wrong or refused. Of what is chosen
 * the algorithm is known by making it wrong afterwards. */
#include "tests/kernels/product_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* BUCKET_ROWS ends the bucket of SAME_ROWS. Of each product NUM_TIMED algorithms run once, and then
 * in NUM_TURNS turns that are timed. */
enum { BUCKET_ROWS = 96, SAME_ROWS = 68, MORE_ROWS = 128, NUM_TIMED = 8, NUM_TURNS = 5 };
#define BUDGET 10.0

/* The algorithm that the simulator's heuristic names in that place for BUCKET_ROWS. */
static int named(int index) {
    int order = BUCKET_ROWS / 3 + index;
    return 4 * ((order + 1) % 3) + order % 4;
}

static void begin(struct product_fixture *f, double budget) {
    struct error err = {0};
    if (f->b->ops->tuning->begin(f->b, budget, &err) != 0)
        fail_msg("%s", err.message);
}

static struct tuning_report end(struct product_fixture *f) {
    struct tuning_report report;
    f->b->ops->tuning->end(f->b, &report);
    return report;
}

__attribute__((format(printf, 1, 2))) static void set(const char *format, ...) {
    char spelling[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(spelling, sizeof(spelling), format, arguments);
    va_end(arguments);
    product_fixture_set(spelling);
}

/* Without another call of the heuristic. */
static void assert_takes(struct product_fixture *f, int32_t num_rows, int algorithm) {
    float row[PRODUCT_FIXTURE_OUT];
    struct cudasim_product_calls before = product_fixture_count();
    for (int id = 0; id < CUDASIM_NUM_ALGORITHMS; id++) {
        set("wrong:%d", id);
        if (product_fixture_is_right(f, num_rows, row) == (id == algorithm))
            fail_msg("%d rows: algorithm %d is %staken", num_rows, id,
                     id == algorithm ? "not " : "");
    }
    set("%s", "");
    struct cudasim_product_calls after = product_fixture_count();
    assert_int_equal(after.heuristics, before.heuristics);
    assert_int_equal(after.products, before.products + CUDASIM_NUM_ALGORITHMS);
}

static struct tuning_report tune(struct product_fixture *f, double budget) {
    float row[PRODUCT_FIXTURE_OUT];
    begin(f, budget);
    product_fixture_multiply(f, BUCKET_ROWS, row);
    return end(f);
}

static void assert_counts(const struct tuning_report *report, int32_t num_timed,
                          int32_t num_changed, int32_t num_left) {
    assert_int_equal(report->num_timed, num_timed);
    assert_int_equal(report->num_changed, num_changed);
    assert_int_equal(report->num_left, num_left);
}

static void test_the_fastest_is_taken(void **state) {
    for (int i = 0; i < NUM_TIMED; i++) {
        struct product_fixture *f = product_fixture_open(false);
        set("takes:%d:100,takes:%d:150", named(i), named((i + 3) % NUM_TIMED));
        struct tuning_report report = tune(f, BUDGET);
        assert_counts(&report, 1, i > 0, 0);
        assert_true(report.seconds >
                    1e-6 * CUDASIM_PRODUCT_MICROSECONDS * NUM_TURNS * (NUM_TIMED - 1));
        assert_takes(f, BUCKET_ROWS, named(i));
        assert_takes(f, SAME_ROWS, named(i));
        product_fixture_close(f);
    }
}

/* What runs differ by is no reason to give up what every other start takes. */
static void test_a_little_faster_is_not_enough(void **state) {
    struct product_fixture *f = product_fixture_open(false);
    set("takes:%d:995000,takes:all:1000000", named(4));
    struct tuning_report report = tune(f, 1000);
    assert_counts(&report, 1, 0, 0);
    assert_takes(f, BUCKET_ROWS, named(0));
    product_fixture_close(f);
}

static void test_a_wrong_one_is_not_taken(void **state) {
    struct product_fixture *f = product_fixture_open(false);
    set("takes:%d:50,wrong:%d,takes:%d:100", named(2), named(2), named(5));
    struct tuning_report report = tune(f, BUDGET);
    assert_counts(&report, 1, 1, 0);
    assert_takes(f, BUCKET_ROWS, named(5));
    product_fixture_close(f);
}

static void test_a_refused_one_is_not_taken(void **state) {
    struct product_fixture *f = product_fixture_open(false);
    set("takes:%d:50,refuse:%d:1-600,takes:%d:100", named(2), named(2), named(5));
    tune(f, BUDGET);
    assert_takes(f, BUCKET_ROWS, named(5));
    product_fixture_close(f);
    f = product_fixture_open(false);
    set("refuse:%d:1-600,takes:%d:100", named(0), named(1));
    struct tuning_report report = tune(f, BUDGET);
    assert_counts(&report, 1, 1, 0);
    assert_takes(f, BUCKET_ROWS, named(1));
    product_fixture_close(f);
}

/* By shape of the weights and bucket of rows. */
static void test_each_product_is_timed_once(void **state) {
    struct product_fixture *f = product_fixture_open(false);
    const struct matrix_part part = {
        .dtype = DTYPE_F32, .rows = PRODUCT_FIXTURE_OUT, .data = f->weights};
    struct matrix *first = f->matrix, *second;
    float row[PRODUCT_FIXTURE_OUT];
    assert_int_equal(f->b->ops->matrix_create(f->b, &part, 1, PRODUCT_FIXTURE_COLS, MATRIX_LINEAR,
                                              &second, NULL),
                     0);
    set("%s", "takes:all:50000"); /* long beside what a busy machine adds */
    begin(f, BUDGET);
    product_fixture_multiply(f, BUCKET_ROWS, row);
    struct cudasim_product_calls before = product_fixture_count();
    product_fixture_multiply(f, SAME_ROWS, row);
    f->matrix = second;
    product_fixture_multiply(f, BUCKET_ROWS, row);
    struct cudasim_product_calls after = product_fixture_count();
    assert_int_equal(after.products, before.products + 2);
    product_fixture_multiply(f, 1, row);
    struct tuning_report report = end(f);
    assert_counts(&report, 2, 0, 0);
    f->matrix = first;
    f->b->ops->matrix_destroy(f->b, second);
    product_fixture_close(f);
}

/* Nothing is timed once it has ended. */
static void test_a_choice_is_for_good(void **state) {
    struct product_fixture *f = product_fixture_open(false);
    float row[PRODUCT_FIXTURE_OUT];
    set("takes:%d:100", named(3));
    tune(f, BUDGET);
    set("takes:%d:10", named(4));
    struct cudasim_product_calls before = product_fixture_count();
    product_fixture_multiply(f, BUCKET_ROWS, row);
    product_fixture_multiply(f, MORE_ROWS, row);
    assert_int_equal(product_fixture_count().products, before.products + 2);
    assert_takes(f, BUCKET_ROWS, named(3));
    product_fixture_close(f);
}

/* The budget ends within the first product, whose fastest is then not known. */
static void test_the_budget_bounds_it(void **state) {
    struct product_fixture *f = product_fixture_open(false);
    float row[PRODUCT_FIXTURE_OUT];
    set("takes:%d:50000,takes:all:100000", named(3));
    struct cudasim_product_calls before = product_fixture_count();
    begin(f, 1.0);
    product_fixture_multiply(f, BUCKET_ROWS, row);
    assert_int_equal(product_fixture_count().products, before.products + 3 * NUM_TIMED + 1);
    before = product_fixture_count();
    product_fixture_multiply(f, MORE_ROWS, row);
    assert_int_equal(product_fixture_count().products, before.products + 1);
    struct tuning_report report = end(f);
    assert_counts(&report, 0, 0, 2);
    assert_true(report.seconds >= 1.0 && report.seconds < 1.0 + 0.1 * NUM_TIMED);
    assert_takes(f, BUCKET_ROWS, named(0));
    product_fixture_close(f);
}

/* The first for a few rows, the second for some more: it is taken if those of cuBLASLt take long,
 * and not if it takes longer, as in the simulator it does. */
static void test_our_own_is_timed_too(void **state) {
    static const int32_t rows[] = {4, 64};
    for (int i = 0; i < 2; i++)
        for (int is_slow = 0; is_slow < 2; is_slow++) {
            struct product_fixture *f = product_fixture_open(false);
            float row[PRODUCT_FIXTURE_OUT];
            set("takes:all:%d", is_slow ? 200000 : 1);
            begin(f, 1000);
            product_fixture_multiply(f, rows[i], row);
            struct tuning_report report = end(f);
            assert_int_equal(report.num_timed, 1);
            struct cudasim_product_calls before = product_fixture_count();
            product_fixture_multiply(f, rows[i], row);
            assert_int_equal(product_fixture_count().products, before.products + !is_slow);
            product_fixture_close(f);
        }
}

/* Kernels are loaded by their first run, which takes longer than all that are timed. */
static void test_loading_is_not_charged(void **state) {
    struct product_fixture *f = product_fixture_open(false);
    set("takes:%d:100,first:all:5000000", named(3));
    struct tuning_report report = tune(f, BUDGET);
    assert_counts(&report, 1, 1, 0);
    assert_true(report.seconds < 5);
    assert_takes(f, BUCKET_ROWS, named(3));
    product_fixture_close(f);
}

static void test_batch_invariant_products_are_not_timed(void **state) {
    struct product_fixture *f = product_fixture_open(true);
    float row[PRODUCT_FIXTURE_OUT];
    char numerics[sizeof(f->b->numerics)];
    strcpy(numerics, f->b->numerics);
    set("takes:1:10,takes:2:20,takes:3:30");
    struct cudasim_product_calls before = product_fixture_count();
    begin(f, BUDGET);
    product_fixture_multiply(f, BUCKET_ROWS, row);
    assert_int_equal(product_fixture_count().products, before.products);
    struct tuning_report report = end(f);
    assert_counts(&report, 0, 0, 0);
    assert_true(report.seconds == 0);
    assert_string_equal(f->b->numerics, numerics);
    product_fixture_close(f);
}

/* Equal choices are named alike, and where there is none but the library's, nothing is named. */
static void test_numerics_name_what_is_taken(void **state) {
    static const int taken[] = {0, 2, 2, 5};
    char numerics[4][sizeof(((struct backend *)NULL)->numerics)];
    for (int i = 0; i < 4; i++) {
        struct product_fixture *f = product_fixture_open(false);
        set("takes:%d:100", named(taken[i]));
        tune(f, BUDGET);
        strcpy(numerics[i], f->b->numerics);
        product_fixture_close(f);
    }
    assert_null(strstr(numerics[0], "products"));
    assert_non_null(strstr(numerics[1], ", products "));
    assert_string_equal(numerics[1], numerics[2]);
    assert_string_not_equal(numerics[1], numerics[3]);
}

/* A residual is added once. */
static void test_what_is_added_to_is_left_alone(void **state) {
    struct product_fixture *f = product_fixture_open(false);
    static float start[BUCKET_ROWS * PRODUCT_FIXTURE_OUT], out[BUCKET_ROWS * PRODUCT_FIXTURE_OUT];
    struct linear_args args = {.x = f->x.data,
                               .weight = f->matrix,
                               .out = f->out.data,
                               .num_rows = BUCKET_ROWS,
                               .scale = 1,
                               .accumulate = true,
                               .float_out = true};
    begin(f, BUDGET);
    product_fixture_enqueue(f, BUCKET_ROWS);
    f->b->ops->download(f->b, start, f->out.data, sizeof(start));
    f->b->ops->linear(f->b, &args);
    f->b->ops->download(f->b, out, f->out.data, sizeof(out));
    assert_int_equal(f->b->ops->synchronize(f->b, NULL), 0);
    struct tuning_report report = end(f);
    assert_counts(&report, 2, 0, 0);
    for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); i++)
        assert_true(fabsf(out[i] - 2 * start[i]) < 1e-4F);
    product_fixture_close(f);
}

static void take_all_memory(struct backend *b, struct buffer buffers[64], int *out_count) {
    size_t bytes = (size_t)1 << 30;
    struct error err;
    *out_count = 0;
    while (bytes >= 4096 && *out_count < 64)
        if (b->ops->buffer_alloc(b, bytes, &buffers[*out_count], &err) == 0)
            (*out_count)++;
        else
            bytes /= 2;
}

/* The result of MOST_ROWS is larger than the memory that was taken first. */
static void test_a_result_without_memory_is_left(void **state) {
    enum { OUT = 320 };
    struct product_fixture *f = product_fixture_open(false);
    static float weights[OUT * PRODUCT_FIXTURE_COLS];
    const struct matrix_part part = {.dtype = DTYPE_F32, .rows = OUT, .data = weights};
    struct buffer out, all[64];
    struct matrix *wide;
    int count;
    assert_int_equal(
        f->b->ops->matrix_create(f->b, &part, 1, PRODUCT_FIXTURE_COLS, MATRIX_LINEAR, &wide, NULL),
        0);
    assert_int_equal(
        f->b->ops->buffer_alloc(f->b, sizeof(float) * PRODUCT_FIXTURE_MOST_ROWS * OUT, &out, NULL),
        0);
    struct linear_args args = {.x = f->x.data,
                               .weight = wide,
                               .out = out.data,
                               .num_rows = PRODUCT_FIXTURE_MOST_ROWS,
                               .scale = 1,
                               .float_out = true};
    begin(f, BUDGET);
    take_all_memory(f->b, all, &count);
    f->b->ops->linear(f->b, &args);
    for (int i = 0; i < count; i++)
        f->b->ops->buffer_free(f->b, &all[i]);
    args.accumulate = true; /* another kind of result */
    f->b->ops->linear(f->b, &args);
    struct tuning_report report = end(f);
    assert_counts(&report, 1, 0, 1);
    assert_int_equal(f->b->ops->synchronize(f->b, NULL), 0);
    f->b->ops->buffer_free(f->b, &out);
    f->b->ops->matrix_destroy(f->b, wide);
    product_fixture_close(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_fastest_is_taken),
        cmocka_unit_test(test_a_little_faster_is_not_enough),
        cmocka_unit_test(test_a_wrong_one_is_not_taken),
        cmocka_unit_test(test_a_refused_one_is_not_taken),
        cmocka_unit_test(test_each_product_is_timed_once),
        cmocka_unit_test(test_a_choice_is_for_good),
        cmocka_unit_test(test_the_budget_bounds_it),
        cmocka_unit_test(test_our_own_is_timed_too),
        cmocka_unit_test(test_loading_is_not_charged),
        cmocka_unit_test(test_batch_invariant_products_are_not_timed),
        cmocka_unit_test(test_numerics_name_what_is_taken),
        cmocka_unit_test(test_what_is_added_to_is_left_alone),
        cmocka_unit_test(test_a_result_without_memory_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
