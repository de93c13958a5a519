#include "engine/batch/sampler.h"

#include "engine/sampling_params.h"
#include "engine/sequence/sequence_group.h"

#include <math.h>
#include <string.h>

uint64_t sampler_choice_seed(uint64_t seed, int32_t choice) {
    return seed + (uint64_t)choice * UINT64_C(0x9e3779b97f4a7c15);
}

struct sample_row sampler_draw_row(const struct sequence *sequence) {
    const struct sampling_params *params = sequence_params(sequence);
    const struct sequence_group *group = sequence->group;
    return (struct sample_row){
        .target = SAMPLE_NO_TARGET,
        .num_logprobs = group->beams != NULL ? group->num_candidates : params->num_logprobs,
        .seed = sampler_choice_seed(params->seed, sequence->choice),
        .position = (uint64_t)sequence->num_tokens,
        .settings = params->settings,
        .mask = SAMPLE_NO_MASK,
    };
}

struct sample_row sampler_score_row(const struct sequence *sequence, int32_t target) {
    return (struct sample_row){
        .target = target,
        .num_logprobs = sequence_params(sequence)->num_prompt_logprobs,
        .settings = SAMPLING_SETTINGS_NEUTRAL,
        .mask = SAMPLE_NO_MASK,
    };
}

int32_t sampler_max_biases(const struct tokenizer *tokenizer) {
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

/* Whether the next token could be the run's last. As in vLLM, a run does not begin in the prompt.
 */
static bool is_before_last(const struct sequence *sequence, const struct token_run *run) {
    int32_t num_generated = sequence_num_generated(sequence), num_before = run->count - 1;
    if (num_before == 0 || num_generated < num_before)
        return num_before == 0;
    const int32_t *latest = sequence->output + (num_generated - num_before);
    return memcmp(latest, run->tokens, (size_t)num_before * sizeof(*latest)) == 0;
}

int32_t sampler_fill_biases(const struct sequence *sequence, const struct tokenizer *tokenizer,
                            struct token_bias *out) {
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
