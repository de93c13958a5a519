#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "tests/unit/engine/sequence_fixture.h"

static struct sequence_group *make(uint64_t id, int32_t priority, int32_t choices) {
    struct sampling_params params = fixture_params(10);
    params.num_choices = choices;
    return fixture_group(id, priority, 4, &params, 100, 4);
}

static void test_tokens(void **state) {
    struct sequence_group *group = make(1, 0, 1);
    struct sequence *s = &group->sequences[0];
    assert_int_equal(sequence_num_pending(s), 4);
    assert_int_equal(sequence_append(s, 20), 0);
    assert_int_equal(sequence_append(s, 21), 0);
    assert_int_equal(sequence_token(s, 3), 6);
    assert_int_equal(sequence_token(s, 4), 20);
    assert_int_equal(sequence_token(s, 5), 21);
    assert_int_equal(sequence_num_generated(s), 2);
    assert_int_equal(sequence_num_pending(s), 6);
    assert_int_equal(s->counts.num_items, 0); /* nobody asked for counts */
    sequence_group_destroy(group);
}

static void test_limits(void **state) {
    struct sampling_params params = fixture_params(10);
    struct sequence_group *group = fixture_group(1, 0, 4, &params, 100, 4);
    assert_int_equal(sequence_token_limit(group->request, 100), 14);
    assert_int_equal(sequence_token_limit(group->request, 9), 9);
    assert_int_equal(sequence_kv_limit(group->request, 100), 13);
    assert_int_equal(group->sequences[0].table.max_blocks, 4);
    sequence_group_destroy(group);
    params.max_tokens = INT32_MAX;
    group = fixture_group(1, 0, 4, &params, 100, 4);
    assert_int_equal(group->sequences[0].max_tokens, 100);
    sequence_group_destroy(group);
    params.max_tokens = 0;
    group = fixture_group(1, 0, 4, &params, 100, 4);
    assert_int_equal(sequence_kv_limit(group->request, 100), 4);
    sequence_group_destroy(group);
}

static void test_counts_follow_the_penalties(void **state) {
    struct sampling_params params = fixture_params(10);
    params.presence_penalty = 1;
    struct sequence_group *group = fixture_group(1, 0, 4, &params, 100, 4);
    assert_int_equal(group->sequences[0].counts.num_items, 0);
    assert_int_equal(sequence_append(&group->sequences[0], 3), 0);
    assert_int_equal(group->sequences[0].counts.num_items, 1);
    sequence_group_destroy(group);
    params.repetition_penalty = 1.1f;
    group = fixture_group(1, 0, 4, &params, 100, 4);
    assert_int_equal(group->sequences[0].counts.num_items, 4);
    sequence_group_destroy(group);
}

static void test_list_order(void **state) {
    struct sequence_group *late = make(3, 0, 1), *early = make(1, 0, 2), *urgent = make(4, -1, 1);
    struct sequence_list list = {0};
    sequence_list_insert(&list, &late->sequences[0]);
    sequence_list_insert(&list, &early->sequences[1]);
    sequence_list_insert(&list, &urgent->sequences[0]);
    sequence_list_insert(&list, &early->sequences[0]);
    assert_int_equal(list.count, 4);
    assert_ptr_equal(list.first, &urgent->sequences[0]);
    assert_ptr_equal(list.first->next, &early->sequences[0]);
    assert_ptr_equal(list.first->next->next, &early->sequences[1]);
    assert_ptr_equal(list.last, &late->sequences[0]);
    sequence_list_remove(&list, &early->sequences[1]);
    assert_ptr_equal(early->sequences[0].next, list.last);
    assert_ptr_equal(list.last->previous, &early->sequences[0]);
    sequence_list_remove(&list, &urgent->sequences[0]);
    sequence_list_remove(&list, &late->sequences[0]);
    sequence_list_remove(&list, &early->sequences[0]);
    assert_null(list.first);
    assert_null(list.last);
    assert_int_equal(list.count, 0);
    sequence_group_destroy(late);
    sequence_group_destroy(early);
    sequence_group_destroy(urgent);
}

static void test_siblings_wait_for_the_scores(void **state) {
    struct sampling_params params = fixture_params(10);
    params.num_choices = 2;
    params.num_prompt_logprobs = 0;
    struct sequence_group *group = fixture_group(1, 0, 4, &params, 100, 4);
    assert_true(sequence_can_run(&group->sequences[0]));
    assert_false(sequence_can_run(&group->sequences[1]));
    group->num_scored = 4;
    assert_true(sequence_can_run(&group->sequences[1]));
    group->stalled = true;
    assert_false(sequence_can_run(&group->sequences[0]));
    sequence_group_destroy(group);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_counts_follow_the_penalties),
        cmocka_unit_test(test_list_order),
        cmocka_unit_test(test_siblings_wait_for_the_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
