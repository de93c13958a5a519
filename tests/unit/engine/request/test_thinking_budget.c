#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/request/thinking_budget.h"

static const struct thinking_budget of_three = {.begin = "<think>",
                                                .end = "</think>",
                                                .max_tokens = 3,
                                                .num_end_tokens = 2,
                                                .end_tokens = {70, 71}};

/* Adds texts up to NULL; returns what is forced next. */
static int32_t add(struct thinking_state *state, const struct thinking_budget *budget,
                   const char *const *texts) {
    for (; *texts != NULL; texts++)
        thinking_state_add(state, budget, (struct text){*texts, strlen(*texts)});
    return thinking_state_forced(state, budget);
}

#define ADD(state, budget, ...) add(state, budget, (const char *const[]){__VA_ARGS__, NULL})

static void test_no_budget(void **state) {
    const struct thinking_budget none = {.begins_inside = true};
    struct thinking_state thinking = thinking_state_begin(&none);
    assert_int_equal(ADD(&thinking, &none, "a", "b"), -1);
}

static void test_the_end_is_forced(void **state) {
    struct thinking_state thinking = thinking_state_begin(&of_three);
    assert_int_equal(ADD(&thinking, &of_three, "\n", "<th", "ink>"), -1);
    assert_int_equal(ADD(&thinking, &of_three, "a", "</thin", ">"), 70);
    assert_int_equal(ADD(&thinking, &of_three, "</"), 71);
    assert_int_equal(ADD(&thinking, &of_three, "think>"), -1);
    assert_int_equal(ADD(&thinking, &of_three, "<think>", "a", "b", "c", "d"), -1); /* over */
}

/* What a token has behind the first marker is thought, but the token was not sampled inside. */
static void test_markers_within_tokens(void **state) {
    struct thinking_state thinking = thinking_state_begin(&of_three);
    assert_int_equal(ADD(&thinking, &of_three, "<think>a", "b", "c"), -1);
    assert_int_equal(ADD(&thinking, &of_three, "<</think>d", "e", "f"), -1);
}

static void test_an_open_prompt(void **state) {
    struct thinking_budget budget = of_three;
    budget.begins_inside = true;
    budget.max_tokens = 0;
    struct thinking_state thinking = thinking_state_begin(&budget);
    assert_int_equal(thinking_state_forced(&thinking, &budget), 70);
    assert_int_equal(ADD(&thinking, &budget, "x"), 71); /* a grammar had its way */
    assert_int_equal(ADD(&thinking, &budget, "y"), 70);
}

static void test_no_thoughts(void **state) {
    struct thinking_state thinking = thinking_state_begin(&of_three);
    assert_int_equal(ADD(&thinking, &of_three, "<thin", "<think>", "a", "b", "c", "d"), -1);
    thinking = thinking_state_begin(&of_three);
    assert_int_equal(ADD(&thinking, &of_three, "a<think>", "a", "b", "c", "d"), -1);
}

/* One token before the budget is used up; until it begins, only one of nothing can be used up. */
static void test_may_force_next(void **state) {
    struct thinking_budget budget = of_three;
    struct thinking_state thinking = thinking_state_begin(&budget);
    assert_false(thinking_state_may_force(&thinking, &budget));
    budget.max_tokens = 0;
    assert_true(thinking_state_may_force(&thinking, &budget));
    budget.num_end_tokens = 0;
    assert_false(thinking_state_may_force(&thinking, &budget));
    budget = of_three;
    ADD(&thinking, &budget, "<think>", "a");
    assert_false(thinking_state_may_force(&thinking, &budget));
    ADD(&thinking, &budget, "b");
    assert_true(thinking_state_may_force(&thinking, &budget));
    ADD(&thinking, &budget, "c");
    assert_true(thinking_state_may_force(&thinking, &budget));
    ADD(&thinking, &budget, "</think>");
    assert_false(thinking_state_may_force(&thinking, &budget));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_budget),
        cmocka_unit_test(test_the_end_is_forced),
        cmocka_unit_test(test_markers_within_tokens),
        cmocka_unit_test(test_an_open_prompt),
        cmocka_unit_test(test_no_thoughts),
        cmocka_unit_test(test_may_force_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
