#include "engine/batch/sampling_inputs.h"

#include "engine/grammar/grammar.h"
#include "engine/sampling_params.h"
#include "engine/sequence/sequence_group.h"

#include <math.h>
#include <string.h>

uint64_t sampling_inputs_choice_seed(uint64_t seed, int32_t choice) {
    return seed + (uint64_t)choice * UINT64_C(0x9e3779b97f4a7c15);
}

struct sample_row sampling_inputs_sample_row(const struct sequence *sequence) {
    const struct sampling_params *params = sequence_params(sequence);
    const struct sequence_group *group = sequence->group;
    return (struct sample_row){
        .target = SAMPLE_NO_TARGET,
        .num_logprobs = group->beams != NULL ? group->num_candidates : params->num_logprobs,
        .seed = sampling_inputs_choice_seed(params->seed, sequence->choice),
        .position = (uint64_t)sequence->num_tokens,
        .settings = params->settings,
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

/* --- Biases ------------------------------------------------------------------------------------
 */

int32_t sampling_inputs_max_biases(const struct tokenizer *tokenizer) {
    int num_eos;
    tokenizer_eos_tokens(tokenizer, &num_eos);
    return MAX_LOGIT_BIASES + MAX_STOP_TOKENS + MAX_BAD_RUNS + num_eos;
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

/* Returns whether the next token could be the run's last. As in vLLM, a run does not begin in the
 * prompt. */
static bool is_before_last(const struct sequence *sequence, const struct token_run *run) {
    int32_t num_generated = sequence_num_generated(sequence), num_before = run->count - 1;
    if (num_before == 0 || num_generated < num_before)
        return num_before == 0;
    const int32_t *latest = sequence->output + (num_generated - num_before);
    return memcmp(latest, run->tokens, (size_t)num_before * sizeof(*latest)) == 0;
}

int32_t sampling_inputs_fill_biases(const struct sequence *sequence,
                                    const struct tokenizer *tokenizer, struct token_bias *out) {
    const struct sampling_params *params = sequence_params(sequence);
    int32_t count = params->num_biases;
    if (count > 0)
        memcpy(out, params->biases, (size_t)count * sizeof(*out));
    if (sequence_num_generated(sequence) < params->min_tokens)
        count = ban_ends(params, tokenizer, out, count);
    for (int32_t i = 0; i < params->num_bad_runs; i++)
        if (is_before_last(sequence, &params->bad_runs[i]))
            count = ban(out, count, params->bad_runs[i].tokens[params->bad_runs[i].count - 1]);
    return count;
}

/* --- Masks -------------------------------------------------------------------------------------
 */

static bool fill_grammar(struct sequence *sequence, const struct grammar_vocabulary *vocabulary,
                         uint32_t *mask) {
    if (sequence->grammar == NULL)
        sequence->grammar = grammar_state_create(sequence_params(sequence)->grammar, vocabulary);
    return sequence->grammar != NULL && grammar_state_mask(sequence->grammar, mask) == 0;
}

static void fill_allowed(const int32_t *tokens, int32_t count, int32_t num_words, uint32_t *mask) {
    memset(mask, 0, (size_t)num_words * sizeof(*mask));
    for (int32_t i = 0; i < count; i++)
        mask[tokens[i] / 32] |= UINT32_C(1) << (tokens[i] % 32);
}

/* Removes from the mask what `other` lacks, if anything is left then. */
static void intersect(uint32_t *mask, const uint32_t *other, int32_t num_words) {
    uint32_t common = 0;
    for (int32_t i = 0; i < num_words; i++)
        common |= mask[i] & other[i];
    for (int32_t i = 0; common != 0 && i < num_words; i++)
        mask[i] &= other[i];
}

bool sampling_inputs_fill_mask(struct sequence *sequence,
                               const struct grammar_vocabulary *vocabulary, int32_t vocab_size,
                               uint32_t *scratch, uint32_t *mask) {
    const struct sampling_params *params = sequence_params(sequence);
    int32_t num_words = SAMPLE_MASK_WORDS(vocab_size);
    bool has_grammar = params->grammar != NULL && fill_grammar(sequence, vocabulary, mask);
    int32_t forced = thinking_state_forced(&sequence->thinking, &params->thinking);
    const int32_t *allowed = forced >= 0 ? &forced : params->allowed_tokens;
    int32_t num_allowed = forced >= 0 ? 1 : params->num_allowed_tokens;
    if (num_allowed == 0)
        return has_grammar;
    fill_allowed(allowed, num_allowed, num_words, has_grammar ? scratch : mask);
    if (has_grammar)
        intersect(mask, scratch, num_words);
    return true;
}

static bool bans_allowed(const struct token_bias *bias, const uint32_t *mask) {
    bool is_allowed = (mask[bias->token / 32] >> (bias->token % 32) & 1) != 0;
    return is_allowed && bias->bias == -INFINITY;
}

int32_t sampling_inputs_drop_bans(const uint32_t *mask, int32_t vocab_size,
                                  struct token_bias *biases, int32_t num_biases) {
    int32_t num_left = 0, kept = 0;
    for (int32_t i = 0; i < num_biases; i++)
        num_left -= bans_allowed(&biases[i], mask);
    for (int32_t i = 0; i < SAMPLE_MASK_WORDS(vocab_size); i++)
        num_left += __builtin_popcount(mask[i]);
    if (num_left > 0)
        return num_biases;
    for (int32_t i = 0; i < num_biases; i++)
        if (!bans_allowed(&biases[i], mask))
            biases[kept++] = biases[i];
    return kept;
}
