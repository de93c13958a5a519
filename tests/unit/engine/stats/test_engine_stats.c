#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/stats/engine_stats.h"

#include <math.h>

static void test_buckets(void **state) {
    static const double bounds[] = {1, 2, 5};
    struct histogram histogram = {.bounds = bounds, .num_bounds = 3};
    histogram_add(&histogram, 0.5);
    histogram_add(&histogram, 1); /* a bound belongs to its own bucket */
    histogram_add(&histogram, 1.5);
    histogram_add(&histogram, 5);
    histogram_add(&histogram, 5.1);
    assert_int_equal(histogram.counts[0], 2);
    assert_int_equal(histogram.counts[1], 1);
    assert_int_equal(histogram.counts[2], 1);
    assert_int_equal(histogram.counts[3], 1);
    assert_int_equal(histogram.total, 5);
    assert_true(histogram.sum > 13.09 && histogram.sum < 13.11);
}

static void assert_rising(const struct histogram *histogram) {
    assert_true(histogram->num_bounds > 0 && histogram->num_bounds <= HISTOGRAM_MAX_BUCKETS);
    for (int i = 1; i < histogram->num_bounds; i++)
        assert_true(histogram->bounds[i] > histogram->bounds[i - 1]);
    assert_int_equal(histogram->total, 0);
}

static void test_init_sets_every_histogram(void **state) {
    struct engine_stats stats;
    stats.preemptions = 5;
    engine_stats_init(&stats);
    assert_int_equal(stats.preemptions, 0);
    const struct histogram *first = &stats.time_to_first_token;
    for (const struct histogram *h = first; h <= &stats.step_host[NUM_STEP_PARTS - 1]; h++)
        assert_rising(h);
}

/* The first bucket's values lie between 0 and its bound, or are its bound where that is 0. */
static void test_quantiles(void **state) {
    static const double bounds[] = {0, 1, 2, 5};
    struct histogram histogram = {.bounds = bounds, .num_bounds = 4}, earlier = histogram;
    assert_true(isnan(histogram_quantile(&histogram, 0.5)));
    histogram_add(&histogram, 0);
    assert_true(histogram_quantile(&histogram, 0.5) == 0);
    for (int i = 0; i < 4; i++)
        histogram_add(&histogram, 3);
    assert_true(histogram_quantile(&histogram, 0.2) == 0);
    assert_true(histogram_quantile(&histogram, 0.4) == 2.75);
    assert_true(histogram_quantile(&histogram, 1) == 5);
    earlier = histogram;
    histogram_add(&histogram, 1);
    histogram_add(&histogram, 7);
    histogram_subtract(&histogram, &earlier);
    assert_int_equal(histogram.total, 2);
    assert_true(histogram.sum == 8);
    assert_true(histogram_quantile(&histogram, 0.25) == 0.5);
    assert_true(histogram_quantile(&histogram, 0.99) == 5); /* above all bounds: the last one */
}

static void test_names_of_parts(void **state) {
    for (int i = 0; i < NUM_STEP_PARTS; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(step_part_name((enum step_part)i),
                                    step_part_name((enum step_part)k));
    assert_string_equal(step_part_name(STEP_PART_SCHEDULE), "schedule");
}

static void test_drafts(void **state) {
    struct engine_stats stats;
    engine_stats_init(&stats);
    engine_stats_add_draft(&stats, 3, 3);
    engine_stats_add_draft(&stats, MAX_SPECULATIVE_TOKENS, 1);
    engine_stats_add_draft(&stats, 2, 0);
    assert_int_equal(stats.num_drafts, 3);
    assert_int_equal(stats.num_draft_tokens, 5 + MAX_SPECULATIVE_TOKENS);
    assert_int_equal(stats.num_accepted_tokens, 4);
    assert_int_equal(stats.num_accepted_at[0], 2);
    assert_int_equal(stats.num_accepted_at[2], 1);
    assert_int_equal(stats.num_accepted_at[3], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets),   cmocka_unit_test(test_init_sets_every_histogram),
        cmocka_unit_test(test_quantiles), cmocka_unit_test(test_names_of_parts),
        cmocka_unit_test(test_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
