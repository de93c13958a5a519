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
    assert_int_equal(s->counts.num_items, 0); /* nobody needs counts */
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
    params.settings.presence_penalty = 1;
    struct sequence_group *group = fixture_group(1, 0, 4, &params, 100, 4);
    assert_int_equal(group->sequences[0].counts.num_items, 0);
    assert_int_equal(sequence_append(&group->sequences[0], 3), 0);
    assert_int_equal(group->sequences[0].counts.num_items, 1);
    sequence_group_destroy(group);
    params.settings.repetition_penalty = 1.1f;
    group = fixture_group(1, 0, 4, &params, 100, 4);
    assert_int_equal(group->sequences[0].counts.num_items, 0); /* it may wait for long */
    assert_int_equal(sequence_append(&group->sequences[0], 9), -1);
    assert_int_equal(sequence_count_prompt(&group->sequences[0]), 0);
    assert_int_equal(sequence_append(&group->sequences[0], 9), 0);
    assert_int_equal(sequence_count_prompt(&group->sequences[0]), 0);
    assert_int_equal(group->sequences[0].counts.num_items, 5);
    sequence_group_destroy(group);
}

static void test_list_order(void **state) {
    struct sequence_group *late = make(3, 0, 1), *early = make(1, 0, 2), *urgent = make(4, -1, 1);
    struct group_list list = {0};
    group_list_insert(&list, late);
    group_list_insert(&list, early);
    group_list_insert(&list, urgent);
    assert_int_equal(list.count, 3);
    assert_ptr_equal(list.first, urgent);
    assert_ptr_equal(list.first->list_next, early);
    assert_ptr_equal(list.last, late);
    group_list_remove(&list, early);
    assert_ptr_equal(urgent->list_next, late);
    assert_ptr_equal(late->list_previous, urgent);
    group_list_remove(&list, urgent);
    group_list_remove(&list, late);
    assert_null(list.first);
    assert_null(list.last);
    assert_int_equal(list.count, 0);
    sequence_group_destroy(late);
    sequence_group_destroy(early);
    sequence_group_destroy(urgent);
}

/* The first that has not finished leads; as many fork from it as may run. */
static void test_who_joins_the_leader(void **state) {
    struct sequence_group *group = make(1, 0, 4);
    struct sequence *s = group->sequences;
    assert_ptr_equal(sequence_group_leader(group), &s[0]);
    s[0].status = SEQUENCE_RUNNING;
    group->max_running = 3;
    for (int i = 1; i < 3; i++)
        assert_int_equal(sequence_group_add_table(group), 0);
    assert_ptr_equal(sequence_group_next_fork(group, -1), &s[1]);
    assert_ptr_equal(sequence_group_next_fork(group, 1), &s[2]);
    assert_null(sequence_group_next_fork(group, 2));
    assert_int_equal(sequence_append(&s[2], 20), 0); /* drew before it lost its blocks */
    assert_null(sequence_group_next_fork(group, 1)); /* s[2] keeps its table */
    assert_int_equal(sequence_group_add_table(group), 0);
    assert_ptr_equal(sequence_group_next_fork(group, 1), &s[3]);
    s[0].in_flight.num_samples = 1; /* what it computes next is no longer the prompt */
    assert_null(sequence_group_next_fork(group, -1));
    s[0].in_flight.num_samples = 0;
    s[0].status = SEQUENCE_FINISHED;
    sequence_group_note_finished(group, &s[0]);
    assert_ptr_equal(sequence_group_leader(group), &s[1]);
    s[1].status = SEQUENCE_RUNNING;
    assert_int_equal(sequence_append(&s[1], 20), 0);
    assert_null(sequence_group_next_fork(group, -1)); /* the prompt's logits are gone */
    sequence_group_destroy(group);
}

/* Tables go from those that end to those that wait. */
/* Makes the group's first sequence one that a step in flight samples a token for. */
static struct sequence *put_in_flight(struct sequence_group *group) {
    struct sequence *s = &group->sequences[0];
    s->status = SEQUENCE_RUNNING;
    s->in_flight = (struct sequence_in_flight){.num_tokens = 4, .num_samples = 1};
    group->num_in_flight = 1;
    group->max_running = 1;
    return s;
}

static void test_who_waits_for_a_step_in_flight(void **state) {
    struct sequence_group *group = make(1, 0, 3);
    struct sequence *s = put_in_flight(group);
    assert_true(sequence_group_can_run(s)); /* no other may run */
    assert_int_equal(sequence_num_pending(s), 1);
    group->max_running = 2; /* another forks once the token is known */
    assert_false(sequence_group_can_run(s));
    s->in_flight.num_samples = 0;
    assert_true(sequence_group_can_run(s));
    group->num_forking = 1; /* another is forking */
    assert_false(sequence_group_can_run(s));
    group->num_in_flight = group->num_forking = 0;
    assert_true(sequence_group_can_run(s));
    group->stalled = true;
    assert_false(sequence_group_can_run(s));
    sequence_group_destroy(group);
}

static void test_beams_and_means_wait_for_a_step_in_flight(void **state) {
    struct sampling_params params = fixture_params(10);
    params.beam_width = 2;
    struct sequence_group *beams = fixture_group(1, 0, 4, &params, 100, 4);
    assert_false(sequence_group_can_run(put_in_flight(beams)));
    params = fixture_params(0);
    params.pooling = POOLING_MEAN;
    struct sequence_group *mean = fixture_group(1, 0, 4, &params, 100, 4);
    assert_false(sequence_group_can_run(put_in_flight(mean)));
    params.pooling = POOLING_LAST;
    struct sequence_group *last = fixture_group(1, 0, 4, &params, 100, 4);
    assert_true(sequence_group_can_run(put_in_flight(last)));
    sequence_group_destroy(beams);
    sequence_group_destroy(mean);
    sequence_group_destroy(last);
}

static void test_a_table_is_passed_on(void **state) {
    struct sequence_group *group = make(1, 0, 1000);
    struct sequence *s = group->sequences;
    assert_non_null(s[0].table.blocks);
    assert_null(s[1].table.blocks);
    assert_int_equal(sequence_group_add_table(group), 0);
    const int32_t *first = s[0].table.blocks, *second = s[1].table.blocks;
    s[2].status = SEQUENCE_FINISHED; /* cancelled while it waited */
    sequence_group_note_finished(group, &s[2]);
    s[0].status = SEQUENCE_FINISHED;
    sequence_group_note_finished(group, &s[0]);
    assert_null(s[0].table.blocks);
    assert_ptr_equal(s[1].table.blocks, second);
    assert_ptr_equal(s[3].table.blocks, first);
    assert_int_equal(group->num_unfinished, 998);
    assert_ptr_equal(sequence_group_leader(group), &s[1]);
    sequence_group_destroy(group);
}

static void test_what_may_come_from_the_cache(void **state) {
    struct sampling_params params = fixture_params(10);
    struct sequence_group *group = fixture_group(1, 0, 6, &params, 100, 4);
    assert_int_equal(sequence_group_reusable(&group->sequences[0]),
                     5); /* one is left to sample from */
    sequence_group_destroy(group);
    params.num_prompt_logprobs = 0;
    group = fixture_group(1, 0, 6, &params, 100, 4);
    assert_int_equal(sequence_group_reusable(&group->sequences[0]), 0);
    group->num_scored = 3; /* token 3 is scored by the row of token 2 */
    assert_int_equal(sequence_group_reusable(&group->sequences[0]), 2);
    group->num_scored = 6;
    assert_int_equal(sequence_group_reusable(&group->sequences[0]), 5);
    sequence_group_destroy(group);
    params = fixture_params(0);
    params.pooling = POOLING_MEAN;
    group = fixture_group(1, 0, 6, &params, 100, 4);
    assert_int_equal(sequence_group_reusable(&group->sequences[0]), 0);
    sequence_group_destroy(group);
}

static void test_common_tokens(void **state) {
    struct sequence_group *group = make(1, 0, 2);
    struct sequence *s = group->sequences;
    assert_int_equal(sequence_common_tokens(&s[0], &s[1]), 4);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(sequence_append(&s[0], 10 + i), 0);
        assert_int_equal(sequence_append(&s[1], i < 2 ? 10 + i : 30), 0);
    }
    assert_int_equal(sequence_common_tokens(&s[0], &s[1]), 6);
    assert_int_equal(sequence_copy_output(&s[1], &s[0]), 0);
    assert_int_equal(sequence_common_tokens(&s[0], &s[1]), 7);
    sequence_group_destroy(group);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_counts_follow_the_penalties),
        cmocka_unit_test(test_list_order),
        cmocka_unit_test(test_who_joins_the_leader),
        cmocka_unit_test(test_who_waits_for_a_step_in_flight),
        cmocka_unit_test(test_beams_and_means_wait_for_a_step_in_flight),
        cmocka_unit_test(test_a_table_is_passed_on),
        cmocka_unit_test(test_what_may_come_from_the_cache),
        cmocka_unit_test(test_common_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
