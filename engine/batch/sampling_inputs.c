#include "engine/batch/sampling_inputs.h"

#include "config/base/check.h"
#include "engine/batch/dry_penalty.h"
#include "engine/grammar/machine/grammar.h"
#include "engine/request/sampling_params.h"
#include "engine/sequence/sequence_group.h"

#include <math.h>
#include <string.h>

/* Choice 0 has the request's own seed, so that n = 1 samples what the first of several choices
 * samples. */
static uint64_t choice_seed(uint64_t seed, int32_t choice) {
    return seed + (uint64_t)choice * UINT64_C(0x9e3779b97f4a7c15);
}

/* Returns how many tokens come after the sequence's. */
static int32_t num_after(const struct sampling_position *at) {
    int32_t count = at->position - at->sequence->num_tokens;
    CHECK(count >= 0 && at->position <= at->sequence->max_tokens);
    CHECK(at->drafts != NULL || count <= 1);
    return count;
}

static bool is_known(const struct sampling_position *at) {
    return at->drafts != NULL || num_after(at) == 0;
}

struct sample_row sampling_inputs_sample_row(const struct sampling_position *at) {
    const struct sequence *sequence = at->sequence;
    const struct sampling_params *params = sequence_params(sequence);
    const struct sequence_group *group = sequence->group;
    return (struct sample_row){
        .target = SAMPLE_NO_TARGET,
        .num_logprobs = group->beams != NULL ? group->num_candidates : params->num_logprobs,
        .seed = choice_seed(params->seed, sequence->choice),
        .position = (uint64_t)at->position,
        .settings = params->settings,
        .mirostat_mu = sequence->mirostat_mu,
        .mask = SAMPLE_NO_MASK,
    };
}

struct sample_row sampling_inputs_score_row(const struct sequence *sequence, int32_t target) {
    return (struct sample_row){
        .target = target,
        .num_logprobs = sequence_params(sequence)->num_prompt_logprobs,
        .settings = SAMPLING_SETTINGS_NEUTRAL,
        .mask = SAMPLE_NO_MASK,
    };
}

int32_t sampling_inputs_fill_counts(const struct sampling_position *at, struct token_count *out) {
    struct sequence *sequence = at->sequence;
    if (!sequence_has_penalty(sequence))
        return 0;
    CHECK(is_known(at));
    if (sequence_count_prompt(sequence) != 0)
        return 0;
    return token_counts_fill(&sequence->counts, at->drafts, num_after(at), out);
}

/* --- Biases --- */

int32_t sampling_inputs_max_biases(const struct tokenizer *tokenizer) {
    int num_eos;
    tokenizer_eos_tokens(tokenizer, &num_eos);
    return MAX_LOGIT_BIASES + MAX_STOP_TOKENS + MAX_BAD_RUNS + num_eos + DRY_MAX_TOKENS;
}

static int32_t ban(struct token_bias *biases, int32_t num_biases, int32_t token) {
    for (int32_t i = 0; i < num_biases; i++) {
        if (biases[i].token == token) {
            biases[i].bias = -INFINITY;
            return num_biases;
        }
    }
    biases[num_biases] = (struct token_bias){.token = token, .bias = -INFINITY};
    return num_biases + 1;
}

static int32_t ban_ends(const struct sampling_params *params, const struct tokenizer *tokenizer,
                        struct token_bias *out, int32_t count) {
    int num_eos;
    const int32_t *eos = tokenizer_eos_tokens(tokenizer, &num_eos);
    for (int i = 0; i < num_eos && !params->ignore_eos; i++)
        count = ban(out, count, eos[i]);
    for (int32_t i = 0; i < params->num_stop_tokens; i++)
        count = ban(out, count, params->stop_tokens[i]);
    return count;
}

/* Adds to the biases, and appends those of tokens that have none yet. */
static int32_t add_dry(const struct sampling_position *at, const struct tokenizer *tokenizer,
                       struct dry_scratch *scratch, struct token_bias *biases, int32_t num_biases) {
    struct token_bias penalties[DRY_MAX_TOKENS];
    if (!dry_penalty_is_used(sequence_params(at->sequence)))
        return num_biases;
    CHECK(is_known(at));
    int32_t num_before = num_biases;
    int32_t count =
        dry_penalty_find(at->sequence, at->drafts, num_after(at), tokenizer, scratch, penalties);
    for (int32_t i = 0; i < count; i++) {
        int32_t same = 0;
        while (same < num_before && biases[same].token != penalties[i].token)
            same++;
        if (same < num_before)
            biases[same].bias += penalties[i].bias;
        else
            biases[num_biases++] = penalties[i];
    }
    return num_biases;
}

/* Returns whether the next token could be the run's last, as far as the tokens before it are known.
 * As in vLLM, a run does not begin in the prompt. */
static bool may_be_before_last(const struct sequence *sequence, const int32_t *drafts,
                               int32_t num_drafts, const struct token_run *run) {
    int32_t num_output = sequence_num_generated(sequence);
    int32_t num_known = num_output + (drafts != NULL ? num_drafts : 0);
    int32_t first = num_output + num_drafts - (run->count - 1);
    if (first < 0)
        return false;
    for (int32_t i = first; i < num_known; i++) {
        int32_t token = i < num_output ? sequence->output[i] : drafts[i - num_output];
        if (token != run->tokens[i - first])
            return false;
    }
    return true;
}

int32_t sampling_inputs_fill_biases(const struct sampling_position *at,
                                    const struct tokenizer *tokenizer, struct dry_scratch *scratch,
                                    struct token_bias *out) {
    const struct sampling_params *params = sequence_params(at->sequence);
    int32_t count = params->num_biases;
    if (count > 0)
        memcpy(out, params->biases, (size_t)count * sizeof(*out));
    if (at->position - sequence_num_prompt(at->sequence) < params->min_tokens)
        count = ban_ends(params, tokenizer, out, count);
    for (int32_t i = 0; i < params->num_bad_runs; i++) {
        const struct token_run *run = &params->bad_runs[i];
        if (!may_be_before_last(at->sequence, at->drafts, num_after(at), run))
            continue;
        CHECK(is_known(at) || run->count == 1);
        count = ban(out, count, run->tokens[run->count - 1]);
    }
    return add_dry(at, tokenizer, scratch, out, count);
}

/* --- Masks --- */

/* Returns the state of the grammar after the sequence's tokens; NULL when memory is short. */
static struct grammar_state *ensure_grammar(struct sequence *sequence,
                                            const struct grammar_vocabulary *vocabulary) {
    if (sequence->grammar == NULL)
        sequence->grammar = grammar_state_create(sequence_params(sequence)->grammar, vocabulary);
    return sequence->grammar;
}

/* Returns a copy of that state, for drafts to change; NULL when memory is short. */
static struct grammar_state *copy_grammar(struct sequence *sequence,
                                          const struct grammar_vocabulary *vocabulary) {
    const struct grammar_state *state = ensure_grammar(sequence, vocabulary);
    return state != NULL ? grammar_state_clone(state) : NULL;
}

struct token_list {
    const int32_t *tokens;
    int32_t count; /* 0: all may be sampled */
};

static void fill_allowed(const struct token_list *allowed, int32_t num_words, uint32_t *mask) {
    memset(mask, 0, (size_t)num_words * sizeof(*mask));
    for (int32_t i = 0; i < allowed->count; i++)
        mask[allowed->tokens[i] / 32] |= UINT32_C(1) << (allowed->tokens[i] % 32);
}

/* Returns what grammar_state_try_mask does, which is not asked about a token that is forced. */
static int try_mask(struct grammar_state *state, const struct forced_tokens *forced,
                    const struct tokenizer *tokenizer, int64_t *budget, uint32_t *mask) {
    if (forced->count == 0)
        return grammar_state_try_mask(state, budget, mask);
    const struct token_list only = {forced->tokens, 1};
    fill_allowed(&only, SAMPLE_MASK_WORDS(tokenizer_vocab_size(tokenizer)), mask);
    return 0;
}

/* -1 when the grammar does not take the draft. */
static int accept_draft(struct grammar_state *state, const struct sampling_params *params,
                        struct forced_tokens *forced, int32_t draft) {
    if (grammar_state_accept(state, draft) != 0)
        return -1;
    if (forced_tokens_apply(params))
        forced_tokens_note(forced, state, draft);
    return 0;
}

/* The same after the drafts; -1 also if some of them do not match. */
static int try_grammar(const struct sampling_position *at, const struct tokenizer *tokenizer,
                       const struct grammar_vocabulary *vocabulary, int64_t *budget,
                       uint32_t *mask) {
    CHECK(is_known(at));
    struct forced_tokens forced = at->sequence->forced;
    if (num_after(at) == 0) {
        struct grammar_state *state = ensure_grammar(at->sequence, vocabulary);
        return state != NULL ? try_mask(state, &forced, tokenizer, budget, mask) : -1;
    }
    struct grammar_state *copy = copy_grammar(at->sequence, vocabulary);
    int status = copy != NULL ? 0 : -1;
    for (int32_t i = 0; status == 0 && i < num_after(at); i++)
        status = accept_draft(copy, sequence_params(at->sequence), &forced, at->drafts[i]);
    if (status == 0)
        status = try_mask(copy, &forced, tokenizer, budget, mask);
    grammar_state_destroy(copy);
    return status;
}

/* Lists the tokens that may be sampled but for a grammar. What is forced is written to *forced. */
static struct token_list list_allowed(const struct sampling_params *params,
                                      const struct thinking_state *thinking, int32_t *forced) {
    *forced = thinking_state_forced(thinking, &params->thinking);
    if (*forced >= 0)
        return (struct token_list){forced, 1};
    return (struct token_list){params->allowed_tokens, params->num_allowed_tokens};
}

static struct thinking_state find_thinking(const struct sampling_position *at,
                                           const struct tokenizer *tokenizer) {
    const struct thinking_budget *budget = &sequence_params(at->sequence)->thinking;
    struct thinking_state thinking = at->sequence->thinking;
    CHECK(is_known(at) || !thinking_state_may_force(&thinking, budget));
    for (int32_t i = 0; at->drafts != NULL && i < num_after(at); i++)
        thinking_state_add(&thinking, budget, tokenizer_piece(tokenizer, at->drafts[i]));
    return thinking;
}

/* Removes from the mask what `other` lacks, if anything is left then. */
static void intersect(uint32_t *mask, const uint32_t *other, int32_t num_words) {
    uint32_t common = 0;
    for (int32_t i = 0; i < num_words; i++)
        common |= mask[i] & other[i];
    for (int32_t i = 0; common != 0 && i < num_words; i++)
        mask[i] &= other[i];
}

enum sampling_mask sampling_inputs_fill_mask(const struct sampling_position *at,
                                             const struct tokenizer *tokenizer,
                                             const struct grammar_vocabulary *vocabulary,
                                             int64_t *budget, uint32_t *scratch, uint32_t *mask) {
    const struct sampling_params *params = sequence_params(at->sequence);
    const struct thinking_state thinking = find_thinking(at, tokenizer);
    int32_t num_words = SAMPLE_MASK_WORDS(tokenizer_vocab_size(tokenizer)), forced;
    int status =
        params->grammar != NULL ? try_grammar(at, tokenizer, vocabulary, budget, mask) : -1;
    if (status > 0)
        return SAMPLING_MASK_UNFINISHED;
    bool has_grammar = status == 0;
    struct token_list allowed = list_allowed(params, &thinking, &forced);
    if (allowed.count == 0)
        return has_grammar ? SAMPLING_MASK_FILLED : SAMPLING_MASK_NONE;
    fill_allowed(&allowed, num_words, has_grammar ? scratch : mask);
    if (has_grammar)
        intersect(mask, scratch, num_words);
    return SAMPLING_MASK_FILLED;
}

static bool bans_allowed(const struct token_bias *bias, const uint32_t *mask) {
    bool is_allowed = (mask[bias->token / 32] >> (bias->token % 32) & 1) != 0;
    return is_allowed && bias->bias == -INFINITY;
}

int32_t sampling_inputs_drop_bans(const uint32_t *mask, int32_t vocab_size,
                                  struct token_bias *biases, int32_t num_biases) {
    int32_t num_banned = 0, num_allowed = 0, kept = 0;
    for (int32_t i = 0; i < num_biases; i++)
        num_banned += bans_allowed(&biases[i], mask);
    for (int32_t i = 0; num_allowed <= num_banned && i < SAMPLE_MASK_WORDS(vocab_size); i++)
        num_allowed += __builtin_popcount(mask[i]);
    if (num_allowed > num_banned)
        return num_biases;
    for (int32_t i = 0; i < num_biases; i++)
        if (!bans_allowed(&biases[i], mask))
            biases[kept++] = biases[i];
    return kept;
}

/* --- Tokens ahead --- */

/* Returns whether the inputs at each position depend on all tokens before it. */
static bool needs_every_token(const struct sequence *sequence) {
    const struct sampling_params *params = sequence_params(sequence);
    return sequence_has_penalty(sequence) || sequence_has_mirostat(sequence) ||
           dry_penalty_is_used(params) || params->grammar != NULL;
}

bool sampling_inputs_need_tokens(const struct sequence *sequence) {
    const struct sampling_params *params = sequence_params(sequence);
    if (needs_every_token(sequence) ||
        thinking_state_may_force(&sequence->thinking, &params->thinking))
        return true;
    for (int32_t i = 0; i < params->num_bad_runs; i++)
        if (params->bad_runs[i].count > 1 &&
            may_be_before_last(sequence, NULL, 1, &params->bad_runs[i]))
            return true;
    return false;
}

bool sampling_inputs_need_drafts(const struct sequence *sequence) {
    const struct sampling_params *params = sequence_params(sequence);
    if (needs_every_token(sequence) || params->thinking.num_end_tokens > 0)
        return true;
    for (int32_t i = 0; i < params->num_bad_runs; i++)
        if (params->bad_runs[i].count > 1)
            return true;
    return false;
}

static bool contains(const int32_t *tokens, int32_t count, int32_t token) {
    int32_t i = 0;
    while (i < count && tokens[i] != token)
        i++;
    return i < count;
}

static bool is_end(const struct sampling_params *params, const struct tokenizer *tokenizer,
                   int32_t token) {
    return (!params->ignore_eos && tokenizer_is_eos(tokenizer, token)) ||
           contains(params->stop_tokens, params->num_stop_tokens, token);
}

static bool is_allowed(const struct sampling_params *params, const struct thinking_state *thinking,
                       int32_t token) {
    int32_t forced;
    struct token_list allowed = list_allowed(params, thinking, &forced);
    return allowed.count == 0 || contains(allowed.tokens, allowed.count, token);
}

/* Counts the drafts up to an end; `grammar` moves on with them. */
static int32_t count_drafts(const struct sequence *sequence, const struct tokenizer *tokenizer,
                            struct grammar_state *grammar, const int32_t *drafts,
                            int32_t num_drafts) {
    const struct sampling_params *params = sequence_params(sequence);
    struct thinking_state thinking = sequence->thinking;
    struct forced_tokens forced = sequence->forced;
    int32_t count = 0;
    bool ends = false;
    for (; count < num_drafts && !ends; count++) {
        int32_t draft = drafts[count];
        bool is_other = forced.count > 0 && forced.tokens[0] != draft;
        if (is_other || !is_allowed(params, &thinking, draft) ||
            (grammar != NULL && accept_draft(grammar, params, &forced, draft) != 0))
            break;
        thinking_state_add(&thinking, &params->thinking, tokenizer_piece(tokenizer, draft));
        ends = is_end(params, tokenizer, draft) ||
               (grammar != NULL && grammar_state_is_final(grammar));
    }
    return count;
}

int32_t sampling_inputs_max_drafts(const struct sequence *sequence,
                                   const struct serving_limits *limits) {
    int32_t most_each = serving_limits_max_distinct(limits);
    int64_t room = (int64_t)serving_limits_max_counts(limits) / limits->max_num_seqs;
    int32_t count = limits->num_speculative_tokens;
    if (!sequence_has_penalty(sequence))
        return count;
    while (count > 1 &&
           (1 + (int64_t)count) * min_int32(sequence->counts.num_items + count, most_each) > room)
        count--;
    return count;
}

int32_t sampling_inputs_cut_drafts(struct sequence *sequence, const struct tokenizer *tokenizer,
                                   const struct grammar_vocabulary *vocabulary,
                                   const int32_t *drafts, int32_t num_drafts) {
    if (sequence_params(sequence)->grammar == NULL)
        return count_drafts(sequence, tokenizer, NULL, drafts, num_drafts);
    struct grammar_state *copy = copy_grammar(sequence, vocabulary);
    int32_t count = copy != NULL ? count_drafts(sequence, tokenizer, copy, drafts, num_drafts) : 0;
    grammar_state_destroy(copy);
    return count;
}
