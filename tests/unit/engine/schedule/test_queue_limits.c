#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/schedule/queue_limits.h"
#include "tests/unit/engine/sequence_fixture.h"

static struct queue_limits limits_of(int32_t num_shares) {
    struct queue_limits limits = {
        .max_requests = 1024, .max_tokens = 100000, .num_shares = num_shares};
    assert_int_equal(queue_limits_init(&limits), 0);
    return limits;
}

static struct request *request_of(int32_t share, int32_t num_prompt_tokens, int32_t num_choices) {
    struct sampling_params params = fixture_params(8);
    static int32_t prompt[200000];
    params.num_choices = num_choices;
    struct request *request = request_create(prompt, num_prompt_tokens, &params);
    assert_non_null(request);
    request_set_share(request, share, 1);
    return request;
}

/* Returns how many of `most` such requests are let in. */
static int fill(struct queue_limits *limits, int32_t share, int32_t num_prompt_tokens, int most) {
    struct request *request = request_of(share, num_prompt_tokens, 1);
    int count = 0;
    while (count < most && queue_limits_take(limits, request))
        count++;
    request_unref(request);
    return count;
}

static void test_one_share_fills_the_queue(void **state) {
    for (int32_t num_shares = 1; num_shares <= 4096; num_shares += 4095) {
        struct queue_limits limits = limits_of(num_shares);
        assert_int_equal(fill(&limits, 0, 3, 5000), 1024);
        assert_true(queue_limits_is_full(&limits) == (num_shares == 1));
        queue_limits_finish(&limits);
    }
}

/* After a call of 1,024 prompts. */
static void test_others_are_let_in(void **state) {
    struct queue_limits limits = limits_of(4096);
    assert_int_equal(fill(&limits, 0, 90, 1024), 1024);
    for (int32_t share = 1; share <= 100; share++)
        assert_true(fill(&limits, share, 90, 5) >= (share < 50 ? 5 : 1));
    queue_limits_finish(&limits);
}

static void test_greedy_shares_get_equal_parts(void **state) {
    struct queue_limits limits = limits_of(8);
    struct request *requests[7];
    int count[7] = {0};
    for (int32_t i = 0; i < 7; i++)
        requests[i] = request_of(i, 3, 1);
    for (int round = 0; round < 3000; round++)
        for (int32_t i = 0; i < 7; i++)
            count[i] += queue_limits_take(&limits, requests[i]);
    for (int32_t i = 0; i < 7; i++) {
        assert_in_range(count[i], 2048 / 8 - 1, 2048 / 8 + 1);
        request_unref(requests[i]);
    }
    assert_int_equal(fill(&limits, 7, 3, 50), 50);
    queue_limits_finish(&limits);
}

static void test_tokens_and_choices(void **state) {
    struct queue_limits limits = limits_of(4);
    limits.max_choices = 100;
    struct request *huge = request_of(0, 200000, 120), *small = request_of(0, 10, 1);
    struct request *wide = request_of(1, 10, 60), *other = request_of(2, 10, 20);
    assert_true(queue_limits_take(&limits, huge)); /* alone, whatever its size */
    assert_false(queue_limits_take(&limits, small));
    assert_false(queue_limits_take(&limits, other)); /* nothing is left of the tokens */
    queue_limits_leave(&limits, huge);
    assert_false(queue_limits_take(&limits, small)); /* its choices are left */
    assert_true(queue_limits_take(&limits, wide));
    assert_true(queue_limits_take(&limits, other));
    assert_false(queue_limits_take(&limits, other)); /* none is left of the choices */
    queue_limits_end_choices(&limits, huge, 120);
    assert_true(queue_limits_take(&limits, other));
    queue_limits_leave(&limits, wide);
    queue_limits_end_choices(&limits, wide, 60);
    for (int i = 0; i < 2; i++) {
        queue_limits_leave(&limits, other);
        queue_limits_end_choices(&limits, other, 20);
    }
    assert_true(limits.all.requests == 0 && limits.all.tokens == 0 && limits.all.choices == 0);
    struct request *requests[] = {huge, small, wide, other};
    for (int i = 0; i < 4; i++)
        request_unref(requests[i]);
    queue_limits_finish(&limits);
}

/* Choices alone fill the queue too, once the last room for them is gone. */
static void test_choices_fill_the_queue(void **state) {
    struct queue_limits limits = limits_of(1);
    limits.max_choices = 8;
    struct request *request = request_of(0, 3, 4);
    for (int i = 0; i < 2; i++) {
        assert_false(queue_limits_is_full(&limits));
        assert_true(queue_limits_take(&limits, request));
    }
    assert_true(queue_limits_is_full(&limits));
    assert_false(queue_limits_take(&limits, request));
    queue_limits_end_choices(&limits, request, 1);
    assert_false(queue_limits_is_full(&limits));
    request_unref(request);
    queue_limits_finish(&limits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_share_fills_the_queue),
        cmocka_unit_test(test_others_are_let_in),
        cmocka_unit_test(test_greedy_shares_get_equal_parts),
        cmocka_unit_test(test_tokens_and_choices),
        cmocka_unit_test(test_choices_fill_the_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
