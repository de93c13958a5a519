/* The inputs of sampling after drafts against those of a sequence that was given the drafts, for
 * random requests: a sequence that does not change beside one of the same request that grows. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/batch/dry_penalty.h"
#include "engine/batch/sampling_inputs.h"
#include "engine/grammar/machine/grammar.h"
#include "engine/sequence/sequence_group.h"
#include "tests/sim/fake_tokenizer.h"
#include "tests/sim/random_request.h"
#include "tests/unit/failing_allocations.h"

#include <stdlib.h>

#define NUM_SEEDS 40000
#define MAX_DRAFTS 16
#define MAX_BIASES                                                                                 \
    (MAX_LOGIT_BIASES + MAX_STOP_TOKENS + MAX_BAD_RUNS + FAKE_NUM_EOS + DRY_MAX_TOKENS)

static struct grammar_vocabulary *vocabulary;
static struct dry_scratch dry;

static struct sequence_group *start(uint64_t seed) {
    static const struct request_shape shape = {.max_prompt_tokens = 8,
                                               .max_output_tokens = 30,
                                               .max_choices = 1,
                                               .min_logprobs = -1,
                                               .max_logprobs = 5,
                                               .grammars = true};
    static const struct serving_limits limits = {.max_model_len = 40, .block_size = 4};
    const struct group_shape of_group = {.limits = &limits};
    struct random random = random_from(seed);
    struct request *request = random_request(&random, &shape);
    struct sequence_group *group = sequence_group_create(request, &of_group);
    assert_non_null(group);
    request_unref(request);
    return group;
}

struct inputs {
    struct sample_row row;
    struct token_count counts[FAKE_VOCAB_SIZE];
    struct token_bias biases[MAX_BIASES];
    int32_t num_counts, num_biases;
    bool has_mask;
    uint32_t mask;
};

static void fill(struct sequence *sequence, int32_t num_more, const int32_t *more,
                 struct inputs *out) {
    const struct sampling_position at = {sequence, sequence->num_tokens + num_more, more};
    uint32_t scratch;
    out->row = sampling_inputs_sample_row(&at);
    out->num_counts = sampling_inputs_fill_counts(&at, out->counts);
    out->num_biases = sampling_inputs_fill_biases(&at, fake_tokenizer(), &dry, out->biases);
    int64_t budget = INT64_MAX;
    out->has_mask = sampling_inputs_fill_mask(&at, fake_tokenizer(), vocabulary, &budget, &scratch,
                                              &out->mask) == SAMPLING_MASK_FILLED;
}

static void assert_equal(const struct inputs *found, const struct inputs *expected) {
    assert_true(found->row.position == expected->row.position);
    assert_true(found->row.seed == expected->row.seed);
    assert_int_equal(found->row.target, expected->row.target);
    assert_int_equal(found->row.num_logprobs, expected->row.num_logprobs);
    assert_memory_equal(&found->row.settings, &expected->row.settings, sizeof(found->row.settings));
    assert_int_equal(found->num_counts, expected->num_counts);
    for (int32_t i = 0; i < expected->num_counts; i++) {
        assert_int_equal(found->counts[i].token, expected->counts[i].token);
        assert_int_equal(found->counts[i].output_count, expected->counts[i].output_count);
    }
    assert_int_equal(found->num_biases, expected->num_biases);
    for (int32_t i = 0; i < expected->num_biases; i++) {
        assert_int_equal(found->biases[i].token, expected->biases[i].token);
        assert_true(found->biases[i].bias == expected->biases[i].bias);
    }
    assert_int_equal(found->has_mask, expected->has_mask);
    if (expected->has_mask)
        assert_int_equal(found->mask, expected->mask);
}

/* As the core does with a sampled token. */
static bool append(struct sequence *sequence, int32_t token) {
    if (sequence_append(sequence, token) != 0)
        return false;
    thinking_state_add(&sequence->thinking, &sequence_params(sequence)->thinking,
                       tokenizer_piece(fake_tokenizer(), token));
    return true;
}

static bool allows(const struct inputs *inputs, int32_t token) {
    return !inputs->has_mask || (inputs->mask >> token & 1) != 0;
}

/* Most are allowed, and of a bad run or a marker where there is one. */
static int32_t choose_token(struct random *random, const struct sequence *sequence,
                            const struct inputs *inputs) {
    const struct sampling_params *params = sequence_params(sequence);
    int32_t token = random_range(random, 0, FAKE_VOCAB_SIZE - 1);
    if (params->num_bad_runs > 0 && !random_once_in(random, 3)) {
        const struct token_run *run =
            &params->bad_runs[random_range(random, 0, params->num_bad_runs - 1)];
        token = run->tokens[random_range(random, 0, run->count - 1)];
    } else if (params->thinking.num_end_tokens > 0 && !random_once_in(random, 3)) {
        token = FAKE_FIRST_PLAIN + random_range(random, 0, 5);
    }
    while (!allows(inputs, token) && !random_once_in(random, 100))
        token = random_range(random, 0, FAKE_VOCAB_SIZE - 1);
    return token;
}

static bool is_end(const struct sampling_params *params, int32_t token) {
    bool ends = !params->ignore_eos && token < FAKE_NUM_EOS;
    for (int32_t i = 0; i < params->num_stop_tokens; i++)
        ends |= params->stop_tokens[i] == token;
    return ends;
}

/* What occurred, so that it is known that everything did. */
enum occurrence {
    COUNTS,
    NEW_COUNTS,
    MIN_TOKENS,
    BAD_RUNS,
    FORCED,
    GRAMMARS,
    REFUSED,
    CUT,
    AHEAD,
    NOT_AHEAD,
    AHEAD_OF_RUNS,
    AHEAD_OF_BUDGETS,
    NUM_OCCURRENCES,
};
static int seen[NUM_OCCURRENCES];

static void note(const struct sequence *sequence, const struct inputs *first,
                 const struct inputs *later, int32_t num_drafts) {
    const struct sampling_params *params = sequence_params(sequence);
    bool ends_minimum = sequence_num_generated(sequence) < params->min_tokens &&
                        sequence_num_generated(sequence) + num_drafts >= params->min_tokens;
    seen[COUNTS] += later->num_counts > 0;
    seen[NEW_COUNTS] += later->num_counts > first->num_counts;
    seen[MIN_TOKENS] += ends_minimum && later->num_biases < first->num_biases;
    seen[BAD_RUNS] += params->num_bad_runs > 0 && later->num_biases > first->num_biases;
    seen[FORCED] += params->thinking.num_end_tokens > 0 && later->has_mask && !first->has_mask;
    seen[GRAMMARS] += params->grammar != NULL && later->mask != first->mask;
}

struct drafts {
    int32_t tokens[MAX_DRAFTS];
    int32_t count;
    int32_t num_possible; /* before the first that cannot be sampled */
};

/* Returns whether a mask may come from elsewhere than the grammar. */
static bool has_list(const struct sampling_params *params) {
    return params->num_allowed_tokens > 0 || params->thinking.num_end_tokens > 0;
}

/* Compares up to a draft that the grammar refuses. */
static void compare_drafts(struct random *random, struct sequence *sequence, struct sequence *grown,
                           struct drafts *drafts) {
    struct inputs first, found, expected;
    int32_t most = sequence->max_tokens - sequence->num_tokens;
    most = random_range(random, 0, most < MAX_DRAFTS ? most : MAX_DRAFTS);
    bool goes_on = true, is_possible = true;
    fill(sequence, 0, NULL, &first);
    for (*drafts = (struct drafts){0}; goes_on && drafts->count < most; drafts->count++) {
        fill(sequence, drafts->count, drafts->tokens, &found);
        fill(grown, 0, NULL, &expected);
        assert_equal(&found, &expected);
        note(sequence, &first, &expected, drafts->count);
        int32_t token = choose_token(random, sequence, &expected);
        drafts->tokens[drafts->count] = token;
        goes_on = append(grown, token);
        is_possible = is_possible && allows(&expected, token);
        drafts->num_possible += is_possible;
        is_possible = is_possible && !is_end(sequence_params(sequence), token) &&
                      !sequence_is_complete(grown);
    }
    fill(sequence, drafts->count, drafts->tokens, &found);
    fill(grown, 0, NULL, &expected);
    if (goes_on)
        assert_equal(&found, &expected);
    else
        assert_true(!found.has_mask || has_list(sequence_params(sequence)));
    seen[REFUSED] += !goes_on;
    fill(sequence, 0, NULL, &found);
    assert_equal(&found, &first);
}

static int32_t cut(struct sequence *sequence, const struct drafts *drafts) {
    return sampling_inputs_cut_drafts(sequence, fake_tokenizer(), vocabulary, drafts->tokens,
                                      drafts->count);
}

/* With a grammar, tokens that are not on a list can be sampled only where it takes none of it. */
static void compare_cut(struct sequence *sequence, const struct drafts *drafts) {
    const struct sampling_params *params = sequence_params(sequence);
    int32_t num_left = cut(sequence, drafts);
    if (params->grammar == NULL || !has_list(params))
        assert_int_equal(num_left, drafts->num_possible);
    assert_in_range(num_left, 0, drafts->num_possible);
    seen[CUT] += num_left < drafts->count;
}

/* Where nothing needs the token that is not known yet, it makes no difference which it is. */
static void compare_ahead(struct sequence *sequence) {
    const struct sampling_params *params = sequence_params(sequence);
    struct inputs ahead, found;
    if (sequence->num_tokens == sequence->max_tokens)
        return;
    if (sampling_inputs_need_tokens(sequence)) {
        seen[NOT_AHEAD]++;
        return;
    }
    fill(sequence, 1, NULL, &ahead);
    for (int32_t token = 0; token < FAKE_VOCAB_SIZE; token++) {
        fill(sequence, 1, &token, &found);
        assert_equal(&found, &ahead);
    }
    seen[AHEAD]++;
    for (int32_t i = 0; i < params->num_bad_runs; i++)
        seen[AHEAD_OF_RUNS] += params->bad_runs[i].count > 1;
    seen[AHEAD_OF_BUDGETS] +=
        params->thinking.num_end_tokens > 0 && sequence->thinking.phase == THINKING_INSIDE;
}

/* Memory that runs out costs the row its mask by the grammar, and nothing else. */
static void compare_short_memory(struct sequence *sequence, const struct drafts *drafts) {
    const struct sampling_params *params = sequence_params(sequence);
    struct inputs first, found, expected;
    if (params->grammar == NULL || drafts->count == 0)
        return;
    fill(sequence, 0, NULL, &first);
    fill(sequence, drafts->count, drafts->tokens, &expected);
    allocations_left = 0;
    int32_t num_left = cut(sequence, drafts);
    fill(sequence, drafts->count, drafts->tokens, &found);
    allocations_left = -1;
    assert_int_equal(num_left, 0);
    assert_true(has_list(params) || !found.has_mask);
    found.has_mask = expected.has_mask;
    found.mask = expected.mask;
    assert_equal(&found, &expected);
    fill(sequence, drafts->count, drafts->tokens, &found);
    assert_equal(&found, &expected);
    fill(sequence, 0, NULL, &found);
    assert_equal(&found, &first);
}

static void compare(uint64_t seed) {
    struct sequence_group *groups[] = {start(seed), start(seed)};
    struct sequence *sequence = &groups[0]->sequences[0], *grown = &groups[1]->sequences[0];
    struct random random = random_from(~seed);
    int32_t most = random_range(&random, 0, sequence->max_tokens - sequence->num_tokens);
    for (int32_t i = 0; i < most; i++) {
        struct inputs inputs;
        fill(sequence, 0, NULL, &inputs);
        fill(grown, 0, NULL, &inputs);
        int32_t token = choose_token(&random, sequence, &inputs);
        assert_int_equal(append(sequence, token), append(grown, token));
    }
    struct drafts drafts;
    if (sequence_params(sequence)->pooling == POOLING_NONE) {
        compare_ahead(sequence);
        compare_drafts(&random, sequence, grown, &drafts);
        compare_cut(sequence, &drafts);
        compare_short_memory(sequence, &drafts);
    }
    sequence_group_destroy(groups[0]);
    sequence_group_destroy(groups[1]);
}

static void test_random_requests(void **state) {
    struct error err;
    assert_int_equal(grammar_vocabulary_create(fake_tokenizer(), &vocabulary, &err), 0);
    for (uint64_t seed = 1; seed <= NUM_SEEDS; seed++)
        compare(seed);
    grammar_vocabulary_destroy(vocabulary);
    for (int i = 0; i < NUM_OCCURRENCES; i++)
        if (seen[i] < 100)
            fail_msg("occurrence %d: only %d times", i, seen[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_requests),
    };
    if (dry_scratch_init(&dry, 40) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dry_scratch_finish(&dry);
    return failed;
}
