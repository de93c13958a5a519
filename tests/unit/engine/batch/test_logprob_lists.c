#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/batch/logprob_lists.h"

enum { VOCAB_SIZE = 50 };

static const struct serving_limits few = {
    .max_num_seqs = 2, .max_num_batched_tokens = 8, .vocab_size = VOCAB_SIZE, .max_logprobs = 20};

static struct sample_row add(struct logprob_lists *lists, const int32_t *tokens, int32_t num_tokens,
                             int32_t num_logprobs) {
    struct sample_row row = {.num_logprobs = num_logprobs};
    logprob_lists_add(lists, tokens, num_tokens, &row);
    return row;
}

static void expect_list(const struct logprob_lists *lists, const struct sample_row *row,
                        const int32_t *tokens, int32_t num_tokens, int64_t first_logprob) {
    assert_int_equal(row->num_logprobs, 0);
    assert_int_equal(row->num_listed, num_tokens);
    assert_memory_equal(lists->tokens + row->first_listed, tokens,
                        (size_t)num_tokens * sizeof(*tokens));
    assert_true(row->first_listed_logprob == first_logprob);
}

/* Rows that come one after the other list the same tokens once; each has logprobs of its own. */
static void test_rows_share_their_tokens(void **state) {
    static const int32_t some[] = {7, 3, 9}, others[] = {4, 5};
    int32_t room[2 * MAX_LOGPROB_TOKENS];
    struct logprob_lists lists;
    assert_true(logprob_lists_max_tokens(&few) <= sizeof(room) / sizeof(room[0]));
    logprob_lists_init(&lists, &few, room);
    for (int step = 0; step < 2; step++) {
        logprob_lists_clear(&lists);
        struct sample_row first = add(&lists, some, 3, 0), second = add(&lists, some, 3, 0);
        struct sample_row none = add(&lists, NULL, 0, 5);
        struct sample_row third = add(&lists, others, 2, 0), last = add(&lists, some, 3, 0);
        expect_list(&lists, &first, some, 3, 0);
        expect_list(&lists, &second, some, 3, 3);
        expect_list(&lists, &third, others, 2, 6);
        expect_list(&lists, &last, some, 3, 8);
        assert_true(none.num_listed == 0 && none.num_logprobs == 5);
        assert_int_equal(lists.num_tokens, 8);
        assert_true(lists.num_logprobs == 11);
    }
}

static void test_the_whole_vocabulary(void **state) {
    static const int32_t some[] = {7, 3, 9};
    struct serving_limits limits = few;
    int32_t all[VOCAB_SIZE];
    limits.max_logprobs = VOCAB_SIZE;
    for (int32_t i = 0; i < VOCAB_SIZE; i++)
        all[i] = i;
    int32_t room[VOCAB_SIZE + 2 * MAX_LOGPROB_TOKENS];
    struct logprob_lists lists;
    assert_true(logprob_lists_max_tokens(&limits) <= sizeof(room) / sizeof(room[0]));
    logprob_lists_init(&lists, &limits, room);
    struct sample_row first = add(&lists, some, 3, 0), second = add(&lists, NULL, 0, 30);
    struct sample_row third = add(&lists, some, 3, 0), few_best = add(&lists, NULL, 0, 20);
    expect_list(&lists, &first, some, 3, 0);
    expect_list(&lists, &second, all, VOCAB_SIZE, 3);
    expect_list(&lists, &third, some, 3, VOCAB_SIZE + 3);
    assert_int_equal(few_best.num_listed, 0);
    assert_int_equal(lists.num_tokens, VOCAB_SIZE + 3);
}

/* Each row that samples may list tokens: those after drafts too, of which each is computed. */
static void test_rows_after_drafts_have_room(void **state) {
    struct serving_limits limits = few;
    assert_int_equal(logprob_lists_max_of_step(&limits), 2 * MAX_LOGPROB_TOKENS);
    limits.num_speculative_tokens = 3;
    assert_int_equal(logprob_lists_max_of_step(&limits), 8 * MAX_LOGPROB_TOKENS);
    limits.num_speculative_tokens = INT32_MAX;
    assert_int_equal(logprob_lists_max_of_step(&limits), 10 * MAX_LOGPROB_TOKENS);
    assert_int_equal(logprob_lists_max_tokens(&limits), logprob_lists_max_tokens(&few));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_share_their_tokens),
        cmocka_unit_test(test_the_whole_vocabulary),
        cmocka_unit_test(test_rows_after_drafts_have_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
