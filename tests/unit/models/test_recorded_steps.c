/* Sizes of recorded steps, and which step is replayed by which. */
#include "models/recorded_steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { MAX_ROWS = 300 };

static void test_sizes(void **state) {
    int32_t sizes[RECORDED_STEPS_MAX_SIZES];
    static const int32_t expected[] = {1,   2,   4,   8,   16,  24,  32,  40,  48,
                                       56,  64,  80,  96,  112, 128, 144, 160, 176,
                                       192, 208, 224, 240, 256, 288, 300};
    assert_int_equal(recorded_steps_sizes(MAX_ROWS, sizes), 25);
    assert_memory_equal(sizes, expected, sizeof(expected));
    assert_int_equal(recorded_steps_sizes(0, sizes), 0);
    assert_int_equal(recorded_steps_sizes(1, sizes), 1);
    assert_int_equal(recorded_steps_sizes(3, sizes), 3);
    assert_int_equal(sizes[2], 3);
    assert_int_equal(recorded_steps_sizes(1 << 30, sizes), RECORDED_STEPS_MAX_SIZES);
    assert_int_equal(sizes[RECORDED_STEPS_MAX_SIZES - 1], RECORDED_STEPS_MAX_ROWS);
}

static int32_t logit_rows[MAX_ROWS + 1];

static struct batch batch_of(int32_t num_seqs) {
    for (int32_t i = 0; i <= MAX_ROWS; i++)
        logit_rows[i] = i;
    return (struct batch){.inputs = {.num_tokens = num_seqs, .num_seqs = num_seqs},
                          .num_sample_rows = num_seqs,
                          .logit_rows = logit_rows};
}

static struct recorded_steps steps_of(int32_t max_rows) {
    int32_t sizes[RECORDED_STEPS_MAX_SIZES];
    struct recorded_steps steps = {.count = recorded_steps_sizes(max_rows, sizes)};
    for (int32_t i = 0; i < steps.count; i++)
        steps.steps[i].num_rows = sizes[i];
    return steps;
}

static void test_smallest_that_holds_it(void **state) {
    const struct recorded_steps steps = steps_of(MAX_ROWS), none = {0};
    for (int32_t n = 1, i = 0; n <= MAX_ROWS; n++) {
        const struct batch batch = batch_of(n);
        i += steps.steps[i].num_rows < n;
        assert_ptr_equal(recorded_steps_find(&steps, &batch), &steps.steps[i]);
        assert_null(recorded_steps_find(&none, &batch));
    }
    const struct batch more = batch_of(MAX_ROWS + 1), nothing = batch_of(0);
    assert_null(recorded_steps_find(&steps, &more));
    assert_null(recorded_steps_find(&steps, &nothing));
}

/* One of them is enough, in the last of the rows. */
static void test_what_is_not_recorded(void **state) {
    const struct recorded_steps steps = steps_of(8);
    struct batch batch = batch_of(5);
    assert_non_null(recorded_steps_find(&steps, &batch));
    batch.inputs.num_tokens = 6; /* a prompt's */
    assert_null(recorded_steps_find(&steps, &batch));
    batch = batch_of(5), batch.num_sample_rows = 4; /* a chunk that samples nothing yet */
    assert_null(recorded_steps_find(&steps, &batch));
    batch = batch_of(5), batch.num_hidden_sums = 1;
    assert_null(recorded_steps_find(&steps, &batch));
    batch = batch_of(5), logit_rows[4] = 3;
    assert_null(recorded_steps_find(&steps, &batch));
}

/* How tokens are chosen is no part of what was recorded, and may not be known yet. */
static void test_late_inputs(void **state) {
    const struct recorded_steps steps = steps_of(8);
    struct batch batch = batch_of(5);
    batch.has_late_inputs = true;
    batch.sample_rows = NULL;
    assert_non_null(recorded_steps_find(&steps, &batch));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_smallest_that_holds_it),
        cmocka_unit_test(test_what_is_not_recorded), cmocka_unit_test(test_late_inputs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
