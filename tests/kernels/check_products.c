/* Which algorithm of cuBLASLt a product takes when some refuse, on the simulator, where algorithms
 * refuse on demand (cudasim/products.h): further ones are tried, what was found is kept, nothing is
 * asked again while the server runs, and where none is left the error says for what.
 * Batch-invariant products have the same bits for every number of rows. */
#include "kernels/backend.h"
#include "kernels/cudasim/include/cudasim/products.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* OTHER_ROWS and BUCKET_ROWS are of one bucket; the algorithms are those that the simulator names
 * first for them. */
enum { OUT = 24, COLS = 72, MOST_ROWS = 600, OTHER_ROWS = 65, BUCKET_ROWS = 96 };
enum { FIRST_FOR_OTHER = 5, FIRST_FOR_BUCKET = 0 };

typedef int (*set_products_function)(const char *spelling);
typedef struct cudasim_product_calls (*count_products_function)(void);
static set_products_function set_products;
static count_products_function count_products;

struct things {
    struct backend *b;
    struct matrix *matrix;
    struct buffer x, out;
    float weights[OUT * COLS];
    float values[MOST_ROWS * COLS];
};

static float value_of(size_t i) {
    return bf16_to_f32(bf16_from_f32(sinf((float)i * 1.7f)));
}

static void upload_x(struct things *t) {
    static uint16_t halves[MOST_ROWS * COLS];
    for (size_t i = 0; i < MOST_ROWS * COLS; i++) {
        t->values[i] = value_of(3 * i + 1);
        halves[i] = bf16_from_f32(t->values[i]);
    }
    t->b->ops->upload(t->b, t->x.data, halves, sizeof(halves));
}

static struct things *open_things(bool batch_invariant) {
    struct things *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    struct backend_config config = {.limits.max_num_batched_tokens = MOST_ROWS,
                                    .limits.max_num_seqs = 2,
                                    .limits.max_model_len = 2,
                                    .limits.block_size = 1,
                                    .limits.max_logit_rows = 2,
                                    .limits.vocab_size = 100,
                                    .batch_invariant = batch_invariant,
                                    .activation_dtype = DTYPE_BF16};
    struct error err = {0};
    t->b = backend_open("cuda-sim", &config, &err);
    if (t->b == NULL)
        fail_msg("%s", err.message);
    void *module = dlopen("libquire-cuda-sim.so", RTLD_LAZY | RTLD_NOLOAD);
    assert_non_null(module);
    set_products = (set_products_function)dlsym(module, "cudasim_set_products");
    count_products = (count_products_function)dlsym(module, "cudasim_count_products");
    assert_true(set_products != NULL && count_products != NULL);
    for (size_t i = 0; i < OUT * COLS; i++)
        t->weights[i] = value_of(i);
    const struct matrix_part part = {.dtype = DTYPE_F32, .rows = OUT, .data = t->weights};
    if (t->b->ops->matrix_create(t->b, &part, 1, COLS, &t->matrix, &err) != 0 ||
        t->b->ops->buffer_alloc(t->b, sizeof(uint16_t) * MOST_ROWS * COLS, &t->x, &err) != 0 ||
        t->b->ops->buffer_alloc(t->b, sizeof(float) * MOST_ROWS * OUT, &t->out, &err) != 0)
        fail_msg("%s", err.message);
    upload_x(t);
    return t;
}

static void close_things(struct things *t) {
    t->b->ops->buffer_free(t->b, &t->out);
    t->b->ops->buffer_free(t->b, &t->x);
    t->b->ops->matrix_destroy(t->b, t->matrix);
    backend_close(t->b);
    free(t);
    assert_int_equal(set_products(""), 0);
}

static void enqueue(struct things *t, int32_t num_rows) {
    t->b->ops->linear(t->b, &(struct linear_args){.x = t->x.data,
                                                  .weight = t->matrix,
                                                  .out = t->out.data,
                                                  .num_rows = num_rows,
                                                  .scale = 1,
                                                  .float_out = true});
}

/* The first OUT floats of the product, and checks all of them. */
static void multiply(struct things *t, int32_t num_rows, float first_row[OUT]) {
    static float out[MOST_ROWS * OUT];
    struct error err = {0};
    enqueue(t, num_rows);
    t->b->ops->download(t->b, out, t->out.data, sizeof(float) * (size_t)num_rows * OUT);
    if (t->b->ops->synchronize(t->b, &err) != 0)
        fail_msg("%d rows: %s", num_rows, err.message);
    for (int32_t m = 0; m < num_rows; m++)
        for (int32_t n = 0; n < OUT; n++) {
            double sum = 0;
            for (int32_t k = 0; k < COLS; k++)
                sum += (double)t->values[m * COLS + k] *
                       bf16_to_f32(bf16_from_f32(t->weights[n * COLS + k]));
            assert_true(fabs(out[m * OUT + n] - sum) < 1e-4);
        }
    memcpy(first_row, out, sizeof(float) * OUT);
}

/* What a refused product leaves behind names the product and everything in `texts`. */
static void assert_fails(struct things *t, int32_t num_rows, const char *const texts[3]) {
    struct error err = {0};
    enqueue(t, num_rows);
    assert_int_equal(t->b->ops->synchronize(t->b, &err), -1);
    assert_int_equal(err.code, ERROR_DEVICE);
    assert_non_null(strstr(err.message, "24 x 72"));
    for (int i = 0; i < 3; i++)
        if (strstr(err.message, texts[i]) == NULL)
            fail_msg("\"%s\" is not in: %s", texts[i], err.message);
}

static void set(const char *spelling) {
    assert_int_equal(set_products(spelling), 0);
}

static const int32_t ALL_BUCKETS[] = {1, 2, 3, 7, OTHER_ROWS, BUCKET_ROWS, 512, 513, MOST_ROWS};
enum { NUM_BUCKETS = sizeof(ALL_BUCKETS) / sizeof(ALL_BUCKETS[0]) };

/* Returns whether the first row has the same bits in every number of rows. */
static bool has_equal_bits(struct things *t) {
    float first[OUT], other[OUT];
    bool equal = true;
    multiply(t, MOST_ROWS, first);
    for (int i = 0; i < NUM_BUCKETS; i++) {
        multiply(t, ALL_BUCKETS[i], other);
        equal = equal && memcmp(first, other, sizeof(first)) == 0;
    }
    return equal;
}

/* One refuses a single row, one the first beyond a bucket's end, one a number within a bucket. */
static void test_invariant_products_take_a_further_algorithm(void **state) {
    struct things *t = open_things(true);
    set("refuse:0:1-1,refuse:1:513-513,refuse:3:301-301");
    assert_true(has_equal_bits(t));
    close_things(t);
}

/* None that is named for the largest step is taken for one row. */
static void test_invariant_products_ask_for_smaller_steps_too(void **state) {
    struct things *t = open_things(true);
    set("hide:2:200-600,refuse:0:1-1,refuse:1:1-1,refuse:3:1-1");
    assert_true(has_equal_bits(t));
    close_things(t);
}

static void test_invariant_products_without_an_algorithm(void **state) {
    struct things *t = open_things(true);
    set("refuse:0:7-7,refuse:1:7-7,refuse:2:7-7,refuse:3:600-600");
    assert_fails(t, 3, (const char *const[3]){"1 to 600 rows", " tried", "CUBLAS_STATUS_NOT_SUPP"});
    close_things(t);
    t = open_things(true);
    set("hide:all:1-600");
    assert_fails(t, 3, (const char *const[3]){"batch-invariant", "names none", "in sequence"});
    close_things(t);
}

/* Ends of buckets above the tiles' rows were tried; this one lies between. */
static void test_invariant_product_refused_while_running(void **state) {
    struct things *t = open_things(true);
    float row[OUT];
    set("refuse:all:577-577");
    multiply(t, MOST_ROWS, row);
    assert_fails(t, 577, (const char *const[3]){"batch-invariant", "577 rows", "NOT_SUPPORTED"});
    close_things(t);
}

static void test_invariant_products_check_nothing_while_running(void **state) {
    struct things *t = open_things(true);
    float row[OUT];
    multiply(t, MOST_ROWS, row);
    struct cudasim_product_calls before = count_products();
    assert_true(before.heuristics > 0 && before.checks > 512);
    has_equal_bits(t);
    struct cudasim_product_calls after = count_products();
    assert_int_equal(after.heuristics, before.heuristics);
    assert_int_equal(after.checks, before.checks);
    assert_int_equal(after.products, before.products + 1 + NUM_BUCKETS);
    close_things(t);
}

/* What the checks of this mode would find on a GPU whose algorithms do so. */
static void test_sums_that_vary_are_seen(void **state) {
    struct things *t = open_things(true);
    set("vary:all");
    assert_false(has_equal_bits(t));
    close_things(t);
}

/* Two numbers of rows of one bucket refuse what the other takes: from the second round on, only
 * products are called, one each. */
static void test_refusals_are_remembered(void **state) {
    struct things *t = open_things(false);
    float row[OUT];
    char spelling[64];
    snprintf(spelling, sizeof(spelling), "refuse:%d:%d-%d,refuse:%d:%d-%d", FIRST_FOR_BUCKET,
             OTHER_ROWS, OTHER_ROWS, FIRST_FOR_OTHER, BUCKET_ROWS, BUCKET_ROWS);
    set(spelling);
    struct cudasim_product_calls start = count_products();
    multiply(t, BUCKET_ROWS, row);
    multiply(t, OTHER_ROWS, row);
    struct cudasim_product_calls before = count_products();
    assert_int_equal(before.heuristics, start.heuristics + 2);
    assert_int_equal(before.products, start.products + 3);
    for (int round = 0; round < 3; round++) {
        multiply(t, BUCKET_ROWS, row);
        multiply(t, OTHER_ROWS, row);
    }
    struct cudasim_product_calls after = count_products();
    assert_int_equal(after.heuristics, before.heuristics);
    assert_int_equal(after.products, before.products + 6);
    close_things(t);
}

/* More refusals than the first allocation holds; each M is refused its bucket's algorithm and what
 * is named first for M itself. */
static void test_many_refusals(void **state) {
    struct things *t = open_things(false);
    float row[OUT];
    set("refuse:0:1-600,refuse:1:1-600,refuse:4:1-600,refuse:5:1-600,refuse:8:1-600");
    for (int32_t num_rows = OTHER_ROWS; num_rows <= BUCKET_ROWS; num_rows++)
        multiply(t, num_rows, row);
    struct cudasim_product_calls before = count_products();
    for (int32_t num_rows = OTHER_ROWS; num_rows <= BUCKET_ROWS; num_rows++)
        multiply(t, num_rows, row);
    assert_int_equal(count_products().heuristics, before.heuristics);
    close_things(t);
}

static void test_every_algorithm_refused(void **state) {
    struct things *t = open_things(false);
    float row[OUT];
    set("refuse:all:5-5");
    multiply(t, 6, row);
    assert_fails(t, 5, (const char *const[3]){"every algorithm", "5 rows", "NOT_SUPPORTED"});
    close_things(t);
    t = open_things(false);
    set("hide:all:6-6");
    assert_fails(t, 5, (const char *const[3]){"has no algorithm", "6 rows", "weights of"});
    close_things(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_invariant_products_take_a_further_algorithm),
        cmocka_unit_test(test_invariant_products_ask_for_smaller_steps_too),
        cmocka_unit_test(test_invariant_products_without_an_algorithm),
        cmocka_unit_test(test_invariant_product_refused_while_running),
        cmocka_unit_test(test_invariant_products_check_nothing_while_running),
        cmocka_unit_test(test_sums_that_vary_are_seen),
        cmocka_unit_test(test_refusals_are_remembered),
        cmocka_unit_test(test_many_refusals),
        cmocka_unit_test(test_every_algorithm_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
