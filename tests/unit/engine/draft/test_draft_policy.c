#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/draft/draft_policy.h"

#include <math.h>

static bool is_near(double value, double expected, double tolerance) {
    return fabs(value - expected) <= tolerance;
}

static struct draft_acceptance acceptance_after(int num_right, int num_wrong) {
    struct draft_acceptance acceptance;
    draft_acceptance_init(&acceptance);
    for (int i = 0; i < num_right; i++)
        draft_acceptance_add(&acceptance, true);
    for (int i = 0; i < num_wrong; i++)
        draft_acceptance_add(&acceptance, false);
    return acceptance;
}

static void acceptance_starts_low_and_follows_the_text(void **state) {
    float first = acceptance_after(0, 0).rate;
    assert_true(first > 0 && first <= 0.1f);
    assert_true(acceptance_after(8, 0).rate > 2.0f / 3);
    assert_true(acceptance_after(1000, 0).rate > 0.99f && acceptance_after(1000, 0).rate <= 1);
    assert_true(acceptance_after(1000, 8).rate < 0.4f);
    assert_true(acceptance_after(1000, 1000).rate >= 0 && acceptance_after(0, 1000).rate < 0.01f);
}

static void acceptance_is_the_share_of_right_drafts(void **state) {
    struct draft_acceptance acceptance;
    double sum = 0;
    draft_acceptance_init(&acceptance);
    for (int i = 0; i < 4000; i++) {
        draft_acceptance_add(&acceptance, i % 4 != 0);
        sum += i >= 2000 ? acceptance.rate : 0;
    }
    assert_true(is_near(sum / 2000, 0.75, 0.01));
}

static void cost_is_read_off_the_steps(void **state) {
    static const int32_t tokens[] = {1, 1, 4, 1, 512, 2, 1, 1};
    struct draft_cost cost = {0};
    for (int i = 0; i < 8; i++)
        draft_cost_add(&cost, tokens[i], 9000 + 1000 * (int64_t)tokens[i]);
    assert_true(is_near(draft_cost_share(&cost, 1), 0.1, 1e-4));
    assert_true(is_near(draft_cost_share(&cost, 9), 0.5, 1e-4));
    assert_true(is_near(draft_cost_share(&cost, 81), 0.9, 1e-4));
}

static void cost_is_followed_when_it_changes(void **state) {
    struct draft_cost cost = {0};
    for (int i = 0; i < 1000; i++)
        draft_cost_add(&cost, 1 + i % 3, 9000 + 1000 * (int64_t)(1 + i % 3));
    for (int i = 0; i < 600; i++)
        draft_cost_add(&cost, 1 + i % 3, 5000 + 5000 * (int64_t)(1 + i % 3));
    assert_true(is_near(draft_cost_share(&cost, 1), 0.5, 0.01));
}

/* Times that are off by up to a tenth, either way. */
static void noise_averages_out(void **state) {
    struct draft_cost cost = {0};
    uint64_t random = 15;
    for (int i = 0; i < 3000; i++) {
        int32_t tokens = 1 + i % 9;
        random = random * 6364136223846793005u + 1442695040888963407u;
        double noise = 0.9 + 0.2 * (double)(random >> 33) / (double)(1u << 31);
        draft_cost_add(&cost, tokens, (int64_t)(noise * (80000 + 20000 * tokens)));
        if (i > 64)
            assert_true(is_near(draft_cost_share(&cost, 1), 0.2, 0.1));
    }
}

static void little_is_known_of_equal_steps(void **state) {
    struct draft_cost cost = {0};
    float unknown = draft_cost_share(&cost, 1);
    assert_true(unknown > 0 && unknown < acceptance_after(0, 0).rate);
    for (int i = 0; i < 1000; i++)
        draft_cost_add(&cost, 7, 10000 + 900 * (i % 3 - 1));
    assert_true(draft_cost_share(&cost, 7) == unknown);
    /* What was known is not lost to noise, and forgotten only by and by. */
    for (int i = 0; i < 64; i++)
        draft_cost_add(&cost, 1 + i % 2, 3000 + 1000 * (int64_t)(1 + i % 2));
    assert_true(is_near(draft_cost_share(&cost, 1), 0.25, 0.05));
    for (int i = 0; i < 200; i++)
        draft_cost_add(&cost, 1, 4000 + 200 * (i % 2 == 0 ? 1 : -1));
    assert_true(is_near(draft_cost_share(&cost, 1), 0.25, 0.05));
    for (int i = 0; i < 200000; i++)
        draft_cost_add(&cost, 1, 4000 + 200 * (i % 2 == 0 ? 1 : -1));
    assert_true(is_near(draft_cost_share(&cost, 1), unknown, 1e-3));
}

/* The device is interrupted in the first step with a draft, which then looks as dear as can be. */
static void drafts_are_tried_again_after_a_slow_one(void **state) {
    struct draft_acceptance acceptance = {.rate = 0.5f};
    struct draft_cost cost = {0};
    int num_drafts[3] = {0};
    draft_cost_add(&cost, 1, 1000);
    draft_cost_add(&cost, 2, 90000);
    assert_true(draft_cost_share(&cost, 1) == 1.0f);
    for (int i = 0; i < 3000; i++) {
        int32_t count = draft_policy_num_tokens(&acceptance, draft_cost_share(&cost, 1), 1);
        draft_cost_add(&cost, 1 + count, count == 0 ? 1000 : 1100);
        num_drafts[i / 1000] += count;
    }
    assert_true(num_drafts[0] < 1000 && num_drafts[1] == 1000 && num_drafts[2] == 1000);
}

static void a_share_is_one_whatever_the_times_are(void **state) {
    struct draft_cost falling = {0}, steep = {0}, none = {0};
    for (int i = 0; i < 20; i++) {
        draft_cost_add(&falling, 1 + i % 2, 3000 - 1000 * (i % 2));
        draft_cost_add(&steep, 1 + i % 2, 1000 + 9000 * (i % 2));
        draft_cost_add(&none, 1 + i % 2, 0);
        draft_cost_add(&none, 0, 1000 * i);
    }
    assert_true(draft_cost_share(&falling, 4) == 0.0f);
    assert_true(draft_cost_share(&steep, 4) == 1.0f);
    assert_true(draft_cost_share(&none, 4) == draft_cost_share(&(struct draft_cost){0}, 4));
    draft_cost_add(&none, 1, INT64_MAX);
    draft_cost_add(&none, INT32_MAX, 1);
    float share = draft_cost_share(&none, INT32_MAX);
    assert_true(share >= 0 && share <= 1);
}

static int32_t num_drafts(float rate, float share, int32_t max) {
    return draft_policy_num_tokens(&(struct draft_acceptance){rate}, share, max);
}

static void drafts_are_computed_while_they_pay(void **state) {
    /* The first one, where it is more likely than its share. */
    assert_int_equal(num_drafts(0.5f, 0.5f, 16), 0);
    assert_int_equal(num_drafts(0.5f, 0.49f, 16), 1);
    /* The second adds 1/4 where the first ones made 1.5 / (1 + share) of the time. */
    assert_int_equal(num_drafts(0.5f, 0.21f, 16), 1);
    assert_int_equal(num_drafts(0.5f, 0.19f, 16), 2);
    /* All of them where they cost nothing or are always right, and none without hope. */
    assert_int_equal(num_drafts(0.1f, 0.0f, 16), 16);
    assert_int_equal(num_drafts(1.0f, 0.99f, 16), 16);
    assert_int_equal(num_drafts(1.0f, 1.0f, 16), 0);
    assert_int_equal(num_drafts(0.0f, 0.0f, 16), 0);
    assert_int_equal(num_drafts(0.9f, 0.1f, 3), 3);
    assert_int_equal(num_drafts(0.9f, 0.1f, 0), 0);
}

/* Tokens per ns of a step of num_tokens sequences with that many drafts each. */
static double throughput(double fixed_ns, double token_ns, int32_t num_tokens, double rate,
                         int32_t drafts) {
    double num_yielded = 0;
    for (int32_t i = 0; i <= drafts; i++)
        num_yielded += num_tokens * pow(rate, i);
    return num_yielded / (fixed_ns + token_ns * num_tokens * (1 + drafts));
}

static void no_other_number_of_drafts_yields_more(void **state) {
    const double fixed_ns = 9000, token_ns = 1000;
    int32_t num_of[17] = {0};
    struct draft_cost cost = {0};
    for (int i = 1; i <= 10; i++)
        draft_cost_add(&cost, i, (int64_t)(fixed_ns + token_ns * i));
    for (int32_t num_tokens = 1; num_tokens < 60; num_tokens += 7)
        for (int percent = 3; percent < 100; percent += 5) {
            double rate = percent / 100.0;
            float share = draft_cost_share(&cost, num_tokens);
            int32_t chosen = num_drafts((float)rate, share, 16);
            double of_chosen = throughput(fixed_ns, token_ns, num_tokens, rate, chosen);
            for (int32_t other = 0; other <= 16; other++)
                assert_true(throughput(fixed_ns, token_ns, num_tokens, rate, other) <=
                            of_chosen * (1 + 1e-6));
            num_of[chosen]++;
        }
    assert_true(num_of[0] > 10 && num_of[1] > 10 && num_of[3] > 0 && num_of[16] > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acceptance_starts_low_and_follows_the_text),
        cmocka_unit_test(acceptance_is_the_share_of_right_drafts),
        cmocka_unit_test(cost_is_read_off_the_steps),
        cmocka_unit_test(cost_is_followed_when_it_changes),
        cmocka_unit_test(noise_averages_out),
        cmocka_unit_test(little_is_known_of_equal_steps),
        cmocka_unit_test(drafts_are_tried_again_after_a_slow_one),
        cmocka_unit_test(a_share_is_one_whatever_the_times_are),
        cmocka_unit_test(drafts_are_computed_while_they_pay),
        cmocka_unit_test(no_other_number_of_drafts_yields_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
