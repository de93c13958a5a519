/* Random models with the rules written out (beam_rules.h) beside the search, cases by hand, and
 * memory that runs out. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/sequence/beam_search.h"
#include "tests/unit/engine/sequence/beam_rules.h"
#include "tests/unit/failing_allocations.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUM_SEEDS 6000

/* --- Random problems --- */

/* splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). */
static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

struct problem {
    uint64_t seed;
    int32_t vocab;
    double sharpness, end_bias;
    int32_t end_tokens[RULES_MAX_ENDS];
    struct beam_params params;
};

static int32_t draw(uint64_t *state, int32_t below) {
    *state = mix(*state);
    return (int32_t)((*state >> 33) % (uint64_t)below);
}

static struct problem *random_problem(uint64_t seed) {
    static const double penalties[] = {-1.0, 0.0, 0.5, 1.0, 2.0};
    static const double biases[] = {-2.0, 0.0, 1.0, 2.5};
    struct problem *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    uint64_t r = mix(seed);
    p->seed = seed;
    p->vocab = 11 + draw(&r, RULES_MAX_VOCAB - 10);
    p->sharpness = 0.2 + 3.0 * draw(&r, 8) / 8.0;
    p->end_bias = biases[draw(&r, 4)];
    p->params = (struct beam_params){.width = 1 + draw(&r, RULES_MAX_WIDTH),
                                     .max_tokens = 1 + draw(&r, 12),
                                     .min_tokens = draw(&r, 2) * draw(&r, 6),
                                     .length_penalty = penalties[draw(&r, 5)],
                                     .early_stopping = (enum early_stopping)draw(&r, 3),
                                     .num_logprobs = draw(&r, 14) - 1,
                                     .end_tokens = p->end_tokens,
                                     .num_end_tokens = draw(&r, RULES_MAX_ENDS + 1)};
    int32_t first = draw(&r, p->vocab);
    for (int32_t i = 0; i < p->params.num_end_tokens; i++)
        p->end_tokens[i] = (first + i * 3) % p->vocab;
    return p;
}

static bool is_end(const struct beam_params *params, int32_t token) {
    for (int32_t i = 0; i < params->num_end_tokens; i++)
        if (params->end_tokens[i] == token)
            return true;
    return false;
}

static void random_model(const void *data, const int32_t *tokens, int32_t num_tokens,
                         float *out_logprobs) {
    const struct problem *p = data;
    uint64_t history = mix(p->seed + UINT64_C(0xABCDEF));
    for (int32_t i = 0; i < num_tokens; i++)
        history = mix(history ^ (uint64_t)(tokens[i] + 1));
    double logits[RULES_MAX_VOCAB], sum = 0.0;
    for (int32_t t = 0; t < p->vocab; t++) {
        double uniform = (double)(mix(history + (uint64_t)t) >> 11) * 0x1p-53;
        logits[t] = p->sharpness * log(uniform / (1.0 - uniform) + 1e-9) +
                    (is_end(&p->params, t) ? p->end_bias : 0.0);
        sum += exp(logits[t]);
    }
    for (int32_t t = 0; t < p->vocab; t++)
        out_logprobs[t] = (float)(logits[t] - log(sum));
}

/* --- A search and the tokens of its slots --- */

/* Makes the row that the sampler would for these log probabilities. */
static struct sample_output make_row(const float *logprobs, int32_t vocab, int32_t num_top) {
    struct sample_output row = {.num_top = num_top < vocab ? num_top : vocab};
    for (int32_t t = 0; t < vocab; t++) {
        int32_t place = 0;
        for (int32_t other = 0; other < vocab; other++)
            place += logprobs[other] > logprobs[t] || (logprobs[other] == logprobs[t] && other < t);
        if (place < row.num_top) {
            row.top_tokens[place] = t;
            row.top_logprobs[place] = logprobs[t];
        }
    }
    return row;
}

struct driver {
    const struct problem *problem;
    struct beam_search *search;
    struct rules_sequence slots[RULES_MAX_WIDTH];
    bool runs[RULES_MAX_WIDTH];
};

static void feed(struct driver *d) {
    const struct problem *p = d->problem;
    for (int32_t i = p->params.width - 1; i >= 0; i--) {
        if (!d->runs[i])
            continue;
        assert_false(beam_search_is_ready(d->search));
        float logprobs[RULES_MAX_VOCAB];
        random_model(p, d->slots[i].tokens, d->slots[i].num_tokens, logprobs);
        struct sample_output row =
            make_row(logprobs, p->vocab, beam_search_num_candidates(&p->params));
        beam_search_set_row(d->search, i, &row);
    }
    assert_true(beam_search_is_ready(d->search));
}

static void apply(struct driver *d, const struct beam_move *moves) {
    struct rules_sequence before[RULES_MAX_WIDTH];
    memcpy(before, d->slots, sizeof(before));
    for (int32_t i = 0; i < d->problem->params.width; i++) {
        int32_t from = moves[i].from;
        assert_true(from < 0 || (d->runs[from] && moves[from].from == from));
    }
    for (int32_t i = 0; i < d->problem->params.width; i++) {
        d->runs[i] = moves[i].from >= 0;
        if (!d->runs[i])
            continue;
        d->slots[i] = before[moves[i].from];
        d->slots[i].tokens[d->slots[i].num_tokens++] = moves[i].token;
    }
}

/* Runs to the end; returns the steps taken, or -1 when memory ran out. */
static int32_t drive(struct driver *d, const struct problem *problem) {
    *d = (struct driver){.problem = problem, .runs = {true}};
    d->search = beam_search_create(&problem->params);
    if (d->search == NULL)
        return -1;
    struct beam_move moves[RULES_MAX_WIDTH];
    for (int32_t steps = 1;; steps++) {
        feed(d);
        int result = beam_search_advance(d->search, moves);
        if (result != 0)
            return result < 0 ? -1 : steps;
        apply(d, moves);
    }
}

static void check_records(const struct problem *p, const struct beam_hypothesis *found) {
    int32_t tokens[RULES_MAX_TOKENS], num_top = 0;
    for (int32_t i = 0; i < found->num_tokens; i++) {
        const struct token_record *record = &found->tokens[i];
        float logprobs[RULES_MAX_VOCAB];
        random_model(p, tokens, i, logprobs);
        struct sample_output row = make_row(logprobs, p->vocab, p->vocab);
        tokens[i] = record->token;
        assert_true(record->logprob == logprobs[record->token]);
        assert_int_equal(row.top_tokens[record->rank - 1], record->token);
        assert_int_equal(record->first_top, num_top);
        assert_int_equal(record->num_top,
                         p->params.num_logprobs < p->vocab ? p->params.num_logprobs : p->vocab);
        for (int32_t k = 0; k < record->num_top; k++, num_top++) {
            assert_int_equal(found->top[num_top].token, row.top_tokens[k]);
            assert_true(found->top[num_top].logprob == row.top_logprobs[k]);
        }
    }
    assert_int_equal(found->num_top, num_top);
}

static void check_no_records(const struct beam_hypothesis *found) {
    assert_int_equal(found->num_top, 0);
    for (int32_t i = 0; i < found->num_tokens; i++) {
        assert_true(isnan(found->tokens[i].logprob));
        assert_int_equal(found->tokens[i].rank, 0);
        assert_int_equal(found->tokens[i].num_top, 0);
    }
}

static void check_hypothesis(const struct problem *p, const struct beam_hypothesis *found,
                             const struct rules_sequence *expected) {
    assert_true(expected->finished);
    assert_int_equal(found->num_tokens, expected->num_tokens);
    for (int32_t i = 0; i < found->num_tokens; i++)
        assert_int_equal(found->tokens[i].token, expected->tokens[i]);
    assert_int_equal(found->ended, expected->ended);
    assert_true(fabs(found->score - expected->score) <= 1e-9 * (1.0 + fabs(expected->score)));
    if (p->params.num_logprobs >= 0)
        check_records(p, found);
    else
        check_no_records(found);
}

static void check_against_rules(const struct problem *p, struct beam_search *search) {
    struct rules_sequence expected[RULES_MAX_WIDTH];
    beam_rules_run(&p->params, p->vocab, random_model, p, expected);
    assert_int_equal(beam_search_num_hypotheses(search), p->params.width);
    for (int32_t i = 0; i < p->params.width; i++) {
        struct beam_hypothesis found;
        assert_int_equal(beam_search_hypothesis(search, i, &found), 0);
        check_hypothesis(p, &found, &expected[i]);
    }
}

static void test_random_models(void **state) {
    int32_t num_early[3] = {0}, num_full[3] = {0}; /* stopped before max_tokens, and at it */
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        struct problem *p = random_problem(seed);
        struct driver d;
        int32_t steps = drive(&d, p);
        assert_in_range(steps, 1, p->params.max_tokens);
        check_against_rules(p, d.search);
        (steps < p->params.max_tokens ? num_early : num_full)[p->params.early_stopping]++;
        beam_search_destroy(d.search);
        free(p);
    }
    for (int i = 0; i < 3; i++) {
        assert_true(num_early[i] > NUM_SEEDS / 50);
        assert_true(num_full[i] > NUM_SEEDS / 50);
    }
}

static void test_short_memory(void **state) {
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct problem *p = random_problem(seed);
        long allowed = 0;
        int32_t steps;
        do {
            struct driver d;
            allocations_left = allowed++;
            steps = drive(&d, p);
            struct beam_hypothesis found;
            if (steps > 0 && beam_search_hypothesis(d.search, 0, &found) != 0)
                steps = -1;
            allocations_left = -1;
            if (steps > 0)
                check_against_rules(p, d.search);
            beam_search_destroy(d.search);
        } while (steps < 0);
        assert_true(allowed > 3);
        free(p);
    }
}

/* --- By hand --- */

struct entry {
    int32_t token;
    float logprob;
};

static void set_row(struct beam_search *search, int32_t slot, const struct entry *entries,
                    int32_t count) {
    struct sample_output row = {.num_top = count};
    for (int32_t i = 0; i < count; i++) {
        row.top_tokens[i] = entries[i].token;
        row.top_logprobs[i] = entries[i].logprob;
    }
    beam_search_set_row(search, slot, &row);
}

#define SET_ROW(search, slot, ...)                                                                 \
    set_row(search, slot, (const struct entry[]){__VA_ARGS__},                                     \
            (int32_t)(sizeof((const struct entry[]){__VA_ARGS__}) / sizeof(struct entry)))

static void check_move(struct beam_move move, int32_t from, int32_t token) {
    assert_int_equal(move.from, from);
    assert_int_equal(move.token, token);
}

static void check_found(struct beam_search *search, int32_t rank, const int32_t *tokens,
                        int32_t num_tokens, double score, bool ended) {
    struct beam_hypothesis found;
    assert_int_equal(beam_search_hypothesis(search, rank, &found), 0);
    assert_int_equal(found.num_tokens, num_tokens);
    for (int32_t i = 0; i < num_tokens; i++)
        assert_int_equal(found.tokens[i].token, tokens[i]);
    assert_true(fabs(found.score - score) < 1e-6);
    assert_int_equal(found.ended, ended);
}

static const int32_t end_token[] = {0};

static struct beam_params hand_params(int32_t width, int32_t max_tokens) {
    return (struct beam_params){.width = width,
                                .max_tokens = max_tokens,
                                .length_penalty = 1.0,
                                .num_logprobs = -1,
                                .end_tokens = end_token,
                                .num_end_tokens = 1};
}

/* An end that is not among the best `width` is no result; at max_tokens the best is one as it
 * is. */
static void test_one_beam(void **state) {
    struct beam_params params = hand_params(1, 2);
    assert_int_equal(beam_search_num_candidates(&params), 2);
    struct beam_search *search = beam_search_create(&params);
    struct beam_move move;
    SET_ROW(search, 0, {5, -0.5F}, {0, -0.75F});
    assert_int_equal(beam_search_advance(search, &move), 0);
    check_move(move, 0, 5);
    SET_ROW(search, 0, {6, -0.25F}, {0, -1.0F});
    assert_int_equal(beam_search_advance(search, &move), 1);
    assert_false(beam_search_is_ready(search));
    assert_int_equal(beam_search_num_hypotheses(search), 1);
    check_found(search, 0, (const int32_t[]){5, 6}, 2, -0.375, false);
    beam_search_destroy(search);
}

/* Two beams; the second ends in the second step, and both continuations come from the first. */
static void first_steps(struct beam_search *search, struct beam_move *moves) {
    SET_ROW(search, 0, {4, -0.5F}, {7, -1.0F}, {0, -2.0F});
    assert_int_equal(beam_search_advance(search, moves), 0);
    check_move(moves[0], 0, 4);
    check_move(moves[1], 0, 7);
    SET_ROW(search, 0, {4, -0.75F}, {5, -1.25F}, {6, -3.0F});
    assert_false(beam_search_is_ready(search));
    SET_ROW(search, 1, {0, -0.125F}, {9, -2.0F}, {8, -3.0F});
    assert_true(beam_search_is_ready(search));
}

/* The sum of the end (-1.125) is the best of all: -0.5625 a token. */
static void test_a_lane_that_ends_is_overwritten(void **state) {
    struct beam_params params = hand_params(2, 9);
    struct beam_search *search = beam_search_create(&params);
    struct beam_move moves[2];
    first_steps(search, moves);
    assert_int_equal(beam_search_advance(search, moves), 0);
    check_move(moves[0], 0, 4);
    check_move(moves[1], 0, 5);
    beam_search_destroy(search);
}

/* Third step: 4,4,0 ends with -1.75 in all, and two are finished. The best that runs on has
 * -2.5. */
static int third_step(enum early_stopping early_stopping, double length_penalty) {
    struct beam_params params = hand_params(2, 9);
    params.early_stopping = early_stopping;
    params.length_penalty = length_penalty;
    struct beam_search *search = beam_search_create(&params);
    struct beam_move moves[2];
    first_steps(search, moves);
    assert_int_equal(beam_search_advance(search, moves), 0);
    SET_ROW(search, 0, {0, -0.5F}, {3, -1.25F}, {2, -4.0F});
    SET_ROW(search, 1, {6, -1.0F}, {9, -4.0F}, {8, -5.0F});
    int result = beam_search_advance(search, moves);
    if (result == 1) {
        bool long_first = -1.75 / pow(3, length_penalty) > -1.125 / pow(2, length_penalty);
        check_found(search, long_first, (const int32_t[]){7, 0}, 2, -1.125 / pow(2, length_penalty),
                    true);
        check_found(search, !long_first, (const int32_t[]){4, 4, 0}, 3,
                    -1.75 / pow(3, length_penalty), true);
    }
    beam_search_destroy(search);
    return result;
}

static void test_early_stopping(void **state) {
    assert_int_equal(third_step(EARLY_STOPPING_TRUE, 1.0), 1);
    /* -2.5 / 3 is below -1.75 / 3 and -1.125 / 2. */
    assert_int_equal(third_step(EARLY_STOPPING_FALSE, 1.0), 1);
    /* -2.5 / 9 is above. */
    assert_int_equal(third_step(EARLY_STOPPING_NEVER, 1.0), 0);
    assert_int_equal(third_step(EARLY_STOPPING_NEVER, 0.0), 1);
    assert_int_equal(third_step(EARLY_STOPPING_NEVER, -1.0), 1);
    /* -2.5 / 27 is above -1.125 / 8. */
    assert_int_equal(third_step(EARLY_STOPPING_FALSE, 3.0), 0);
    assert_int_equal(third_step(EARLY_STOPPING_TRUE, 3.0), 1);
}

static void test_equal_sums(void **state) {
    struct beam_params params = hand_params(3, 9);
    struct beam_search *search = beam_search_create(&params);
    struct beam_move moves[3];
    SET_ROW(search, 0, {4, -1.0F}, {7, -1.0F}, {9, -1.0F}, {10, -1.0F});
    assert_int_equal(beam_search_advance(search, moves), 0);
    check_move(moves[0], 0, 4);
    check_move(moves[1], 0, 7);
    check_move(moves[2], 0, 9);
    SET_ROW(search, 0, {2, -2.0F}, {3, -2.0F}, {4, -2.0F}, {5, -2.0F});
    SET_ROW(search, 1, {1, -1.0F}, {3, -2.0F}, {4, -2.0F}, {5, -2.0F});
    SET_ROW(search, 2, {1, -2.0F}, {3, -2.0F}, {4, -2.0F}, {5, -2.0F});
    assert_int_equal(beam_search_advance(search, moves), 0);
    check_move(moves[0], 0, 2);
    check_move(moves[1], 1, 1);
    check_move(moves[2], 0, 3);
    beam_search_destroy(search);
}

/* The better beam lies in the second slot: its continuation comes before an equal one of the first
 * slot, as in Transformers. */
static void test_equal_sums_in_slots_of_another_order(void **state) {
    struct beam_params params = hand_params(2, 3);
    struct beam_search *search = beam_search_create(&params);
    struct beam_move moves[2];
    SET_ROW(search, 0, {5, -1.0F}, {6, -1.0F}, {7, -100.0F});
    assert_int_equal(beam_search_advance(search, moves), 0);
    SET_ROW(search, 0, {7, -2.0F}, {4, -100.0F}, {3, -100.0F});
    SET_ROW(search, 1, {8, -1.0F}, {4, -100.0F}, {3, -100.0F});
    assert_int_equal(beam_search_advance(search, moves), 0);
    check_move(moves[0], 0, 7);
    check_move(moves[1], 1, 8);
    SET_ROW(search, 0, {9, -1.0F}, {4, -100.0F}, {3, -100.0F});
    SET_ROW(search, 1, {10, -2.0F}, {4, -100.0F}, {3, -100.0F});
    assert_int_equal(beam_search_advance(search, moves), 1);
    check_found(search, 0, (const int32_t[]){6, 8, 10}, 3, -4.0 / 3, false);
    check_found(search, 1, (const int32_t[]){5, 7, 9}, 3, -4.0 / 3, false);
    beam_search_destroy(search);
}

/* A running beam that could only equal the worst result does not keep the search going. */
static void test_equal_to_the_worst_result(void **state) {
    struct beam_params params = hand_params(1, 9);
    params.length_penalty = 0.0;
    struct beam_search *search = beam_search_create(&params);
    struct beam_move move;
    SET_ROW(search, 0, {0, -0.5F}, {5, -0.5F});
    assert_int_equal(beam_search_advance(search, &move), 1);
    check_found(search, 0, (const int32_t[]){0}, 1, -0.5, true);
    beam_search_destroy(search);
}

/* Of equal results the earlier is first; equally probable tokens have the same rank. */
static void test_equal_results(void **state) {
    struct beam_params params = hand_params(2, 9);
    params.length_penalty = 0.0;
    params.early_stopping = EARLY_STOPPING_TRUE;
    params.num_logprobs = 1;
    struct beam_search *search = beam_search_create(&params);
    struct beam_move moves[2];
    SET_ROW(search, 0, {0, -0.5F}, {5, -0.5F}, {6, -2.0F});
    assert_int_equal(beam_search_advance(search, moves), 0);
    SET_ROW(search, 0, {0, -0.0F}, {5, -4.0F}, {6, -4.0F});
    SET_ROW(search, 1, {2, -3.0F}, {5, -4.0F}, {6, -4.0F});
    assert_int_equal(beam_search_advance(search, moves), 1);
    check_found(search, 0, (const int32_t[]){0}, 1, -0.5, true);
    check_found(search, 1, (const int32_t[]){5, 0}, 2, -0.5, true);
    struct beam_hypothesis found;
    assert_int_equal(beam_search_hypothesis(search, 1, &found), 0);
    assert_int_equal(found.tokens[0].rank, 1);
    assert_int_equal(found.num_top, 2);
    assert_int_equal(found.top[0].token, 0);
    beam_search_destroy(search);
}

/* Two tokens make one beam of width 4 into two, and those into four. */
static void test_fewer_beams_than_width(void **state) {
    struct beam_params params = hand_params(4, 3);
    params.num_end_tokens = 0;
    struct beam_search *search = beam_search_create(&params);
    struct beam_move moves[4];
    SET_ROW(search, 0, {1, -0.25F}, {0, -1.5F});
    assert_int_equal(beam_search_advance(search, moves), 0);
    check_move(moves[0], 0, 1);
    check_move(moves[1], 0, 0);
    check_move(moves[2], -1, -1);
    check_move(moves[3], -1, -1);
    SET_ROW(search, 0, {1, -0.25F}, {0, -1.5F});
    SET_ROW(search, 1, {1, -0.25F}, {0, -1.5F});
    assert_true(beam_search_is_ready(search));
    assert_int_equal(beam_search_advance(search, moves), 0);
    check_move(moves[0], 0, 1);
    check_move(moves[1], 1, 1);
    check_move(moves[2], 0, 0);
    check_move(moves[3], 1, 0);
    beam_search_destroy(search);
}

static void test_min_tokens(void **state) {
    struct beam_params params = hand_params(1, 9);
    params.min_tokens = 1;
    struct beam_search *search = beam_search_create(&params);
    struct beam_move move;
    SET_ROW(search, 0, {0, -0.125F}, {5, -3.0F});
    assert_int_equal(beam_search_advance(search, &move), 0);
    check_move(move, 0, 5);
    SET_ROW(search, 0, {0, -0.125F}, {5, -3.0F});
    assert_int_equal(beam_search_advance(search, &move), 1);
    check_found(search, 0, (const int32_t[]){5, 0}, 2, -1.5625, true);
    beam_search_destroy(search);
}

/* With nothing but end tokens there is nothing to continue with, min_tokens or not. */
static void test_only_end_tokens(void **state) {
    struct beam_params params = hand_params(3, 9);
    params.min_tokens = 4;
    struct beam_search *search = beam_search_create(&params);
    struct beam_move moves[3];
    SET_ROW(search, 0, {0, -0.0F});
    assert_int_equal(beam_search_advance(search, moves), 1);
    assert_int_equal(beam_search_num_hypotheses(search), 1);
    check_found(search, 0, (const int32_t[]){0}, 1, 0.0, true);
    beam_search_destroy(search);
}

/* A row replaces the one before it; one of NaN is no better than any other. */
static void test_a_row_is_replaced(void **state) {
    struct beam_params params = hand_params(2, 2);
    struct beam_search *search = beam_search_create(&params);
    struct beam_move moves[2];
    SET_ROW(search, 0, {1, NAN}, {2, NAN}, {3, NAN});
    SET_ROW(search, 0, {5, -0.5F}, {6, -0.75F}, {0, -2.0F});
    assert_int_equal(beam_search_advance(search, moves), 0);
    check_move(moves[1], 0, 6);
    SET_ROW(search, 0, {1, NAN}, {2, NAN}, {3, NAN});
    SET_ROW(search, 1, {8, -0.5F}, {9, -0.75F}, {0, -2.0F});
    assert_int_equal(beam_search_advance(search, moves), 1);
    check_found(search, 0, (const int32_t[]){6, 8}, 2, -0.625, false);
    check_found(search, 1, (const int32_t[]){6, 9}, 2, -0.75, false);
    beam_search_destroy(search);
    beam_search_destroy(NULL);
}

/* Nothing is better than anything: the search still ends, with as many results. */
static void test_rows_of_nan(void **state) {
    struct beam_params params = hand_params(2, 3);
    params.length_penalty = 2000.0;
    params.num_logprobs = 2;
    struct beam_search *search = beam_search_create(&params);
    struct beam_move moves[2];
    int result = 0;
    for (int32_t step = 0; result == 0; step++) {
        for (int32_t slot = 0; slot < (step == 0 ? 1 : 2); slot++)
            SET_ROW(search, slot, {0, NAN}, {1, NAN}, {2, NAN});
        result = beam_search_advance(search, moves);
    }
    assert_int_equal(result, 1);
    assert_int_equal(beam_search_num_hypotheses(search), 2);
    struct beam_hypothesis found;
    assert_int_equal(beam_search_hypothesis(search, 1, &found), 0);
    assert_int_equal(found.num_tokens, 2);
    assert_true(isinf(found.score));
    beam_search_destroy(search);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_models),
        cmocka_unit_test(test_short_memory),
        cmocka_unit_test(test_one_beam),
        cmocka_unit_test(test_a_lane_that_ends_is_overwritten),
        cmocka_unit_test(test_early_stopping),
        cmocka_unit_test(test_equal_sums),
        cmocka_unit_test(test_equal_sums_in_slots_of_another_order),
        cmocka_unit_test(test_equal_to_the_worst_result),
        cmocka_unit_test(test_equal_results),
        cmocka_unit_test(test_fewer_beams_than_width),
        cmocka_unit_test(test_min_tokens),
        cmocka_unit_test(test_only_end_tokens),
        cmocka_unit_test(test_a_row_is_replaced),
        cmocka_unit_test(test_rows_of_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
