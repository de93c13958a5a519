/* Masks that are found in parts and by jobs are those that are found at once, wherever the search
 * was interrupted, and also where it was given up after MAX_MASK_WORK or the store was swept
 * meanwhile. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/grammar/machine/grammar_machine.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include <string.h>

static struct tokenizer tokenizer;
static struct grammar_vocabulary *vocabulary;

static const char *const patterns[] = {
    "(?:(?:a|[a-z ]|.){1,40}(?:b|[a-z ]|.){1,40}){1,40}",
    "(?:.{0,30}a.{0,30})|(?:.{0,20}b.{0,40})|(?:.{5,40}c.{0,3})",
    "(?:ab|abc|[a-c]{1,3}){0,200}!",
    "a?b?",
};
#define NUM_PATTERNS (sizeof(patterns) / sizeof(patterns[0]))

static uint64_t random_state;

static uint32_t draw(uint32_t below) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

static int set_up(void **state) {
    static const char *const more[] = {"ab", "abc", "b ", " a", "cab", "aaa", "bab!"};
    fixture_init_bytes(&tokenizer);
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
        fixture_add(&tokenizer, more[i], strlen(more[i]));
    struct error err;
    return grammar_vocabulary_create(&tokenizer, &vocabulary, &err);
}

static int tear_down(void **state) {
    grammar_vocabulary_destroy(vocabulary);
    return 0;
}

static struct grammar *build(const char *pattern, size_t cache_bytes) {
    struct grammar *grammar = fixture_regex(pattern);
    grammar->cache_bytes = cache_bytes;
    return grammar;
}

/* Runs the job to its end, in slices of any size. */
static void run_job(struct grammar *grammar) {
    struct grammar_job *job = grammar_job_begin(grammar);
    assert_true(grammar_is_busy(grammar) && grammar_has_job(grammar));
    while (!grammar_job_run(job, 1 + draw(5000)))
        ;
    grammar_job_end(job);
    assert_false(grammar_is_busy(grammar) || grammar_has_job(grammar));
}

/* Asks for the mask with a budget of any size, and has a job find it if that is not enough. */
static void find_mask(struct grammar_state *state, uint32_t *mask, int *num_jobs) {
    int64_t given = draw(3) == 0 ? 0 : draw(20000), budget = given;
    int status = grammar_state_try_mask(state, &budget, mask);
    assert_true(budget <= given);
    if (status > 0) {
        run_job(state->grammar);
        budget = 0;
        status = grammar_state_try_mask(state, &budget, mask);
        *num_jobs += 1;
    }
    assert_int_equal(status, 0);
    assert_false(grammar_is_busy(state->grammar));
}

static int32_t draw_allowed(const uint32_t *mask) {
    int32_t token;
    do
        token = (int32_t)draw((uint32_t)tokenizer.num_tokens);
    while ((mask[token / 32] >> (token % 32) & 1) == 0);
    return token;
}

static void check_text(const char *pattern, size_t cache_bytes, int *num_jobs) {
    struct grammar *grammar = build(pattern, cache_bytes), *other = build(pattern, cache_bytes);
    struct grammar_state *at_once = grammar_state_create(grammar, vocabulary);
    struct grammar_state *in_parts = grammar_state_create(other, vocabulary);
    for (int i = 0; i < 40 && !grammar_state_is_final(at_once); i++) {
        uint32_t expected[FIXTURE_WORDS], found[FIXTURE_WORDS];
        assert_int_equal(grammar_state_mask(at_once, expected), 0);
        find_mask(in_parts, found, num_jobs);
        size_t bytes = ((size_t)tokenizer.num_tokens + 31) / 32 * sizeof(*found);
        assert_memory_equal(found, expected, bytes);
        int32_t token = draw_allowed(expected);
        assert_int_equal(grammar_state_accept(at_once, token), 0);
        assert_int_equal(grammar_state_accept(in_parts, token), 0);
        assert_int_equal(grammar->machine->work, other->machine->work);
    }
    grammar_state_destroy(at_once);
    grammar_state_destroy(in_parts);
    grammar_unref(grammar);
    grammar_unref(other);
}

static void test_parts(void **unused) {
    int num_jobs = 0;
    for (random_state = 1; random_state <= 12; random_state++) {
        uint64_t seed = random_state;
        for (size_t i = 0; i < NUM_PATTERNS; i++)
            check_text(patterns[i], draw(2) == 0 ? 0 : draw(200000), &num_jobs);
        random_state = seed;
    }
    assert_true(num_jobs > 100);
}

/* What many states want is found by one job; each keeps its mask although the store is swept for
 * the others. */
static void test_many_states(void **unused) {
    struct grammar *grammar = build(patterns[1], 0);
    struct grammar_state *states[8];
    uint32_t mask[FIXTURE_WORDS];
    for (int i = 0; i < 8; i++) {
        states[i] = grammar_state_create(grammar, vocabulary);
        for (int k = 0; k < i / 2; k++)
            assert_int_equal(grammar_state_accept(states[i], 'x'), 0);
    }
    for (int i = 0; i < 8; i++) {
        int64_t budget = 100;
        assert_int_equal(grammar_state_try_mask(states[i], &budget, mask), 1);
    }
    run_job(grammar);
    for (int i = 0; i < 8; i++) {
        int64_t budget = 0;
        assert_int_equal(grammar_state_try_mask(states[i], &budget, mask), 0);
        assert_true((mask['a' / 32] >> ('a' % 32) & 1) != 0);
        grammar_state_destroy(states[i]);
    }
    grammar_unref(grammar);
}

/* Wherever a search pauses, another state of the grammar may move on, and have the store swept. */
static void test_swept_while_paused(void **unused) {
    uint32_t expected[FIXTURE_WORDS], found[FIXTURE_WORDS];
    size_t bytes = ((size_t)tokenizer.num_tokens + 31) / 32 * sizeof(*found);
    const char *pattern = "(?:abc|cx{90})!";
    int num_paused = 0;
    for (int64_t given = 1; given < 1000; given++) {
        struct grammar *grammar = build(pattern, 0), *other = build(pattern, 1 << 20);
        struct grammar_state *searched = grammar_state_create(grammar, vocabulary);
        struct grammar_state *moving = grammar_state_create(grammar, vocabulary);
        struct grammar_state *at_once = grammar_state_create(other, vocabulary);
        int64_t budget = given;
        assert_int_equal(grammar_state_mask(at_once, expected), 0);
        if (grammar_state_try_mask(searched, &budget, found) > 0) {
            num_paused++;
            for (int i = 0; i < 60; i++)
                assert_int_equal(grammar_state_accept(moving, i == 0 ? 'c' : 'x'), 0);
            run_job(grammar);
            budget = 0;
            assert_int_equal(grammar_state_try_mask(searched, &budget, found), 0);
        }
        assert_memory_equal(found, expected, bytes);
        grammar_state_destroy(searched);
        grammar_state_destroy(moving);
        grammar_state_destroy(at_once);
        grammar_unref(grammar);
        grammar_unref(other);
    }
    assert_true(num_paused > 20);
}

/* A state that is destroyed while a job has its grammar is not searched for any more. */
static void test_destroyed(void **unused) {
    struct grammar *grammar = build(patterns[0], 100000);
    struct grammar_state *lost = grammar_state_create(grammar, vocabulary);
    struct grammar_state *kept = grammar_state_create(grammar, vocabulary);
    uint32_t mask[FIXTURE_WORDS];
    int64_t budget = 10;
    assert_int_equal(grammar_state_accept(kept, 'x'), 0);
    assert_int_equal(grammar_state_try_mask(lost, &budget, mask), 1);
    budget = 10;
    assert_int_equal(grammar_state_try_mask(kept, &budget, mask), 1);
    struct grammar_job *job = grammar_job_begin(grammar);
    assert_false(grammar_job_run(job, 10));
    grammar_state_destroy(lost);
    while (!grammar_job_run(job, 1000))
        ;
    grammar_job_end(job);
    budget = 0;
    assert_int_equal(grammar_state_try_mask(kept, &budget, mask), 0);
    grammar_state_destroy(kept);
    grammar_unref(grammar);
}

/* The last reference may be the job's. */
static void test_all_destroyed(void **unused) {
    struct grammar *grammar = build(patterns[0], 100000);
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    uint32_t mask[FIXTURE_WORDS];
    int64_t budget = 10;
    assert_int_equal(grammar_state_try_mask(state, &budget, mask), 1);
    struct grammar_job *job = grammar_job_begin(grammar);
    assert_false(grammar_job_run(job, 10));
    grammar_state_destroy(state);
    grammar_unref(grammar);
    assert_true(grammar_job_run(job, 10));
    grammar_job_end(job);
}

/* A state that moves on or ends instead wants nothing any more. */
static void test_given_up(void **unused) {
    struct grammar *grammar = build(patterns[0], 100000);
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    uint32_t mask[FIXTURE_WORDS];
    int64_t budget = 10;
    assert_int_equal(grammar_state_try_mask(state, &budget, mask), 1);
    assert_true(grammar_is_busy(grammar));
    assert_int_equal(grammar_state_accept(state, 'a'), 0);
    assert_false(grammar_is_busy(grammar));
    budget = 10;
    assert_int_equal(grammar_state_try_mask(state, &budget, mask), 1);
    grammar_state_destroy(state);
    assert_false(grammar_is_busy(grammar));
    grammar_unref(grammar);
}

/* After a mask that was dear, none is tried with less. */
static void test_dear(void **unused) {
    struct grammar *grammar = build(patterns[0], 1 << 20);
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    uint32_t mask[FIXTURE_WORDS];
    int64_t budget = 1 << 20;
    assert_int_equal(grammar_state_try_mask(state, &budget, mask), 0);
    int64_t less = (1 << 20) - budget - 1;
    assert_true(less > 100);
    assert_int_equal(grammar_state_accept(state, 'a'), 0);
    budget = less;
    assert_int_equal(grammar_state_try_mask(state, &budget, mask), 1);
    assert_int_equal(budget, less);
    grammar_state_destroy(state);
    grammar_unref(grammar);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_many_states),
        cmocka_unit_test(test_destroyed),
        cmocka_unit_test(test_all_destroyed),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_dear),
        cmocka_unit_test(test_swept_while_paused),
    };
    return cmocka_run_group_tests_name("grammar_job", tests, set_up, tear_down);
}
