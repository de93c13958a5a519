#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/draft/ngram_drafter.h"

#include <stdbool.h>
#include <string.h>

#define MAX_TOKENS 200
#define MAX_DRAFTS 16
#define NUM_RANDOM 20000

/* Proposes for tokens[0..count), of which the first num_prompt are the prompt. */
static int32_t propose(int32_t lookup_max, int32_t lookup_min, const int32_t *tokens, int32_t count,
                       int32_t num_prompt, int32_t max_tokens, int32_t *out) {
    struct drafter *drafter;
    struct error err;
    const struct token_view view = {
        tokens, num_prompt, count > num_prompt ? tokens + num_prompt : NULL, count - num_prompt};
    assert_int_equal(ngram_drafter_create(lookup_max, lookup_min, &drafter, &err), 0);
    int32_t num_drafts = drafter->ops->propose(drafter, &view, max_tokens, out);
    drafter->ops->destroy(drafter);
    return num_drafts;
}

#define TOKENS(...) ((const int32_t[]){__VA_ARGS__})

#define ASSERT_DRAFTS(lookup_max, lookup_min, tokens, num_prompt, drafts)                          \
    do {                                                                                           \
        int32_t out_[MAX_DRAFTS], num_ = (int32_t)(sizeof(drafts) / sizeof(int32_t));              \
        int32_t count_ = (int32_t)(sizeof(tokens) / sizeof(int32_t));                              \
        assert_int_equal(propose(lookup_max, lookup_min, tokens, count_, num_prompt, num_, out_),  \
                         num_);                                                                    \
        assert_memory_equal(out_, drafts, sizeof(drafts));                                         \
    } while (0)

static void assert_no_drafts(int32_t lookup_min, const int32_t *tokens, int32_t count,
                             int32_t num_prompt) {
    int32_t out = 77;
    assert_int_equal(propose(4, lookup_min, tokens, count, num_prompt, 1, &out), 0);
    assert_int_equal(out, 77);
}

static void what_followed_is_proposed(void **state) {
    ASSERT_DRAFTS(3, 2, TOKENS(1, 2, 3, 4, 2, 3), 6, TOKENS(4, 2, 3));
    ASSERT_DRAFTS(3, 2, TOKENS(1, 2, 3, 4, 5, 6, 7, 2, 3), 9, TOKENS(4, 5));
}

static void the_longest_occurrence_wins(void **state) {
    /* 3 stands nearer, but 2 3 further back. */
    ASSERT_DRAFTS(4, 1, TOKENS(2, 3, 40, 9, 3, 50, 2, 3), 8, TOKENS(40));
    /* Of lookup_max tokens, further back ones are not compared. */
    ASSERT_DRAFTS(1, 1, TOKENS(2, 3, 40, 9, 3, 50, 2, 3), 8, TOKENS(50));
}

static void the_most_recent_of_equal_ones_wins(void **state) {
    ASSERT_DRAFTS(2, 1, TOKENS(2, 3, 40, 2, 3, 50, 2, 3), 8, TOKENS(50));
}

static void matches_reach_across_the_border(void **state) {
    for (int32_t num_prompt = 0; num_prompt <= 9; num_prompt++)
        ASSERT_DRAFTS(3, 3, TOKENS(5, 1, 2, 3, 4, 9, 1, 2, 3), num_prompt, TOKENS(4, 9));
}

static void a_repeated_end_is_continued(void **state) {
    ASSERT_DRAFTS(4, 1, TOKENS(7, 7), 1, TOKENS(7, 7, 7, 7));
    ASSERT_DRAFTS(4, 2, TOKENS(1, 2, 3, 1, 2, 3, 1, 2), 8, TOKENS(3, 1, 2, 3, 1, 2, 3));
}

static void nothing_is_proposed_without_an_earlier_occurrence(void **state) {
    assert_no_drafts(1, TOKENS(1), 1, 1);
    assert_no_drafts(1, TOKENS(1), 1, 0);
    assert_no_drafts(1, TOKENS(1, 2, 3), 3, 2);
    /* 3 alone is too short. */
    assert_no_drafts(2, TOKENS(3, 1, 3), 3, 3);
    int32_t out;
    assert_int_equal(propose(1, 1, TOKENS(1, 1), 2, 2, 0, &out), 0);
}

/* Compares the history's end with what stands before, from the longest n-gram and the most recent
 * place on. */
static int32_t search_all(int32_t lookup_max, int32_t lookup_min, const int32_t *tokens,
                          int32_t count, int32_t max_tokens, int32_t *out) {
    for (int32_t n = lookup_max; n >= lookup_min; n--)
        for (int32_t first = count - n - 1; first >= 0; first--) {
            if (memcmp(tokens + first, tokens + count - n, (size_t)n * sizeof(*tokens)) != 0)
                continue;
            int32_t longer[MAX_TOKENS + MAX_DRAFTS];
            memcpy(longer, tokens, (size_t)count * sizeof(*tokens));
            for (int32_t i = 0; i < max_tokens; i++)
                out[i] = longer[count + i] = longer[first + n + i];
            return max_tokens;
        }
    return 0;
}

static uint64_t next_random(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return *random >> 33;
}

static int32_t random_to(uint64_t *random, int32_t most) {
    return (int32_t)(next_random(random) % (uint64_t)(most + 1));
}

/* Half of them repeat earlier passages, so that long matches occur too. */
static void fill_history(uint64_t *random, int32_t alphabet, int32_t *tokens, int32_t count) {
    bool repeats = random_to(random, 1) == 1;
    for (int32_t i = 0, from = 0; i < count; i++, from++) {
        if (i > 0 && random_to(random, 11) == 0)
            from = random_to(random, i - 1);
        tokens[i] = repeats && i > 0 ? tokens[from] : random_to(random, alphabet);
        if (random_to(random, 15) == 0)
            tokens[i] = random_to(random, alphabet);
    }
}

static void random_histories_agree_with_a_plain_search(void **state) {
    uint64_t random = 15;
    int32_t num_found = 0, num_none = 0;
    for (int i = 0; i < NUM_RANDOM; i++) {
        int32_t tokens[MAX_TOKENS], drafts[MAX_DRAFTS], expected[MAX_DRAFTS];
        int32_t count = 1 + random_to(&random, MAX_TOKENS - 1);
        int32_t num_prompt = random_to(&random, count);
        int32_t lookup_max = 1 + random_to(&random, NGRAM_MAX_LOOKUP - 1);
        int32_t lookup_min = 1 + random_to(&random, lookup_max - 1);
        int32_t max_tokens = 1 + random_to(&random, MAX_DRAFTS - 1);
        fill_history(&random, 1 + random_to(&random, 60), tokens, count);
        int32_t num_expected =
            search_all(lookup_max, lookup_min, tokens, count, max_tokens, expected);
        int32_t num_drafts =
            propose(lookup_max, lookup_min, tokens, count, num_prompt, max_tokens, drafts);
        assert_int_equal(num_drafts, num_expected);
        assert_memory_equal(drafts, expected, (size_t)num_drafts * sizeof(*drafts));
        num_found += num_drafts > 0;
        num_none += num_drafts == 0;
    }
    assert_true(num_found > NUM_RANDOM / 4 && num_none > NUM_RANDOM / 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_followed_is_proposed),
        cmocka_unit_test(the_longest_occurrence_wins),
        cmocka_unit_test(the_most_recent_of_equal_ones_wins),
        cmocka_unit_test(matches_reach_across_the_border),
        cmocka_unit_test(a_repeated_end_is_continued),
        cmocka_unit_test(nothing_is_proposed_without_an_earlier_occurrence),
        cmocka_unit_test(random_histories_agree_with_a_plain_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
