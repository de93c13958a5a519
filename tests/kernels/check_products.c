/* Which algorithm a product takes, on the simulator, where those of cuBLASLt refuse on demand
 * (cudasim/products.h): further ones are tried, what was found is kept, nothing is asked again
 * while the server runs, and where none is left the error says for what. Products of few rows and
 * batch-invariant ones are our own, and the latter have the same bits for every number of rows. */
#include "tests/kernels/product_fixture.h"

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
enum { OTHER_ROWS = 65, BUCKET_ROWS = 96 };
enum { FIRST_FOR_OTHER = 5, FIRST_FOR_BUCKET = 0 };

/* What a refused product leaves behind names the product and everything in `texts`. */
static void assert_fails(struct product_fixture *f, int32_t num_rows, const char *const texts[3]) {
    struct error err = {0};
    product_fixture_enqueue(f, num_rows);
    assert_int_equal(f->b->ops->synchronize(f->b, &err), -1);
    assert_int_equal(err.code, ERROR_DEVICE);
    assert_non_null(strstr(err.message, "24 x 72"));
    for (int i = 0; i < 3; i++)
        if (strstr(err.message, texts[i]) == NULL)
            fail_msg("\"%s\" is not in: %s", texts[i], err.message);
}

static const int32_t ALL_BUCKETS[] = {
    1, 2, 3, 7, OTHER_ROWS, BUCKET_ROWS, 512, 513, PRODUCT_FIXTURE_MOST_ROWS};
enum { NUM_BUCKETS = sizeof(ALL_BUCKETS) / sizeof(ALL_BUCKETS[0]) };

/* Returns whether the first row has the same bits in every number of rows. */
static bool has_equal_bits(struct product_fixture *f) {
    float first[PRODUCT_FIXTURE_OUT], other[PRODUCT_FIXTURE_OUT];
    bool equal = true;
    product_fixture_multiply(f, PRODUCT_FIXTURE_MOST_ROWS, first);
    for (int i = 0; i < NUM_BUCKETS; i++) {
        product_fixture_multiply(f, ALL_BUCKETS[i], other);
        equal = equal && memcmp(first, other, sizeof(first)) == 0;
    }
    return equal;
}

static void test_invariant_products_are_ours(void **state) {
    struct product_fixture *f = product_fixture_open(true);
    product_fixture_set("hide:all:1-600");
    struct cudasim_product_calls before = product_fixture_count();
    assert_true(has_equal_bits(f));
    struct cudasim_product_calls after = product_fixture_count();
    assert_int_equal(after.heuristics, before.heuristics);
    assert_int_equal(after.products, before.products);
    product_fixture_close(f);
}

/* What cuBLASLt is called for where nothing is timed. */
static void test_few_rows_are_ours(void **state) {
    struct product_fixture *f = product_fixture_open(false);
    float row[PRODUCT_FIXTURE_OUT];
    struct cudasim_product_calls before = product_fixture_count();
    for (int32_t num_rows = 1; num_rows <= 8; num_rows++)
        product_fixture_multiply(f, num_rows, row);
    assert_int_equal(product_fixture_count().products, before.products);
    product_fixture_multiply(f, 12, row);
    assert_int_equal(product_fixture_count().products, before.products + 1);
    product_fixture_set("hide:all:1-64");
    product_fixture_multiply(f, 64, row);
    assert_int_equal(product_fixture_count().products, before.products + 1);
    product_fixture_close(f);
}

/* Two numbers of rows of one bucket refuse what the other takes: from the second round on, only
 * products are called, one each. */
static void test_refusals_are_remembered(void **state) {
    struct product_fixture *f = product_fixture_open(false);
    float row[PRODUCT_FIXTURE_OUT];
    char spelling[64];
    snprintf(spelling, sizeof(spelling), "refuse:%d:%d-%d,refuse:%d:%d-%d", FIRST_FOR_BUCKET,
             OTHER_ROWS, OTHER_ROWS, FIRST_FOR_OTHER, BUCKET_ROWS, BUCKET_ROWS);
    product_fixture_set(spelling);
    struct cudasim_product_calls start = product_fixture_count();
    product_fixture_multiply(f, BUCKET_ROWS, row);
    product_fixture_multiply(f, OTHER_ROWS, row);
    struct cudasim_product_calls before = product_fixture_count();
    assert_int_equal(before.heuristics, start.heuristics + 2);
    assert_int_equal(before.products, start.products + 3);
    for (int round = 0; round < 3; round++) {
        product_fixture_multiply(f, BUCKET_ROWS, row);
        product_fixture_multiply(f, OTHER_ROWS, row);
    }
    struct cudasim_product_calls after = product_fixture_count();
    assert_int_equal(after.heuristics, before.heuristics);
    assert_int_equal(after.products, before.products + 6);
    product_fixture_close(f);
}

/* More refusals than the first allocation holds; each M is refused its bucket's algorithm and what
 * is named first for M itself. */
static void test_many_refusals(void **state) {
    struct product_fixture *f = product_fixture_open(false);
    float row[PRODUCT_FIXTURE_OUT];
    product_fixture_set(
        "refuse:0:1-600,refuse:1:1-600,refuse:4:1-600,refuse:5:1-600,refuse:8:1-600");
    for (int32_t num_rows = OTHER_ROWS; num_rows <= BUCKET_ROWS; num_rows++)
        product_fixture_multiply(f, num_rows, row);
    struct cudasim_product_calls before = product_fixture_count();
    for (int32_t num_rows = OTHER_ROWS; num_rows <= BUCKET_ROWS; num_rows++)
        product_fixture_multiply(f, num_rows, row);
    assert_int_equal(product_fixture_count().heuristics, before.heuristics);
    product_fixture_close(f);
}

static void test_every_algorithm_refused(void **state) {
    struct product_fixture *f = product_fixture_open(false);
    float row[PRODUCT_FIXTURE_OUT];
    product_fixture_set("refuse:all:70-70");
    product_fixture_multiply(f, 71, row);
    assert_fails(f, 70, (const char *const[3]){"every algorithm", "70 rows", "NOT_SUPPORTED"});
    product_fixture_close(f);
    f = product_fixture_open(false);
    product_fixture_set("hide:all:96-96");
    assert_fails(f, 70, (const char *const[3]){"has no algorithm", "96 rows", "weights of"});
    product_fixture_close(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_invariant_products_are_ours),
        cmocka_unit_test(test_few_rows_are_ours),
        cmocka_unit_test(test_refusals_are_remembered),
        cmocka_unit_test(test_many_refusals),
        cmocka_unit_test(test_every_algorithm_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
