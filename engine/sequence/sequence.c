#include "engine/sequence/sequence.h"

#include "config/base/array.h"
#include "config/base/check.h"
#include "config/base/numbers.h"
#include "engine/grammar/machine/grammar.h"
#include "engine/sequence/sequence_group.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RECORD_BYTES 4096 /* larger than a sequence, its group and its detokenizer */

int32_t sequence_token_limit(const struct request *request, int32_t max_model_len) {
    int64_t most = (int64_t)request->num_prompt_tokens + request->params.max_tokens;
    return most < max_model_len ? (int32_t)most : max_model_len;
}

int32_t sequence_kv_limit(const struct request *request, int32_t max_model_len) {
    int32_t most = sequence_token_limit(request, max_model_len);
    return most > request->num_prompt_tokens ? most - 1 : most;
}

const struct sampling_params *sequence_params(const struct sequence *sequence) {
    return &sequence->request->params;
}

int32_t sequence_num_prompt(const struct sequence *sequence) {
    return sequence->request->num_prompt_tokens;
}

int32_t sequence_token(const struct sequence *sequence, int32_t position) {
    const struct request *request = sequence->request;
    CHECK(position >= 0 && position < sequence->num_tokens);
    return position < request->num_prompt_tokens
               ? request->prompt[position]
               : sequence->output[position - request->num_prompt_tokens];
}

struct token_view sequence_tokens(const struct sequence *sequence) {
    const struct request *request = sequence->request;
    return (struct token_view){
        .prompt = request->prompt,
        .num_prompt = request->num_prompt_tokens,
        .output = sequence->output,
        .num_output = sequence_num_generated(sequence),
    };
}

int32_t sequence_num_generated(const struct sequence *sequence) {
    return sequence->num_tokens - sequence_num_prompt(sequence);
}

int32_t sequence_num_tokens_ahead(const struct sequence *sequence) {
    return sequence->num_tokens + sequence->in_flight.num_samples;
}

int32_t sequence_num_computed_ahead(const struct sequence *sequence) {
    return sequence->num_computed + sequence->in_flight.num_tokens;
}

int32_t sequence_num_pending(const struct sequence *sequence) {
    int32_t num_tokens = sequence_num_tokens_ahead(sequence);
    bool ends = sequence->in_flight.num_samples > 0 && num_tokens >= sequence->max_tokens;
    const struct handover *handover = &sequence->group->handover;
    int32_t num_pending = num_tokens - ends - sequence_num_computed_ahead(sequence);
    if (!handover->is_awaited)
        return num_pending;
    return min_int32(num_pending, handover->num_tokens - sequence_num_computed_ahead(sequence));
}

int32_t sequence_common_tokens(const struct sequence *a, const struct sequence *b) {
    int32_t num_prompt = sequence_num_prompt(a);
    int32_t most = a->num_tokens < b->num_tokens ? a->num_tokens : b->num_tokens;
    int32_t common = num_prompt;
    while (common < most && a->output[common - num_prompt] == b->output[common - num_prompt])
        common++;
    return common;
}

static bool reserve_output(struct sequence *sequence, int32_t count) {
    return array_reserve(&sequence->output, &sequence->output_capacity, (size_t)count,
                         sizeof(*sequence->output));
}

static bool accepts(struct sequence *sequence, int32_t token) {
    return sequence_params(sequence)->grammar == NULL ||
           (sequence->grammar != NULL && grammar_state_accept(sequence->grammar, token) == 0);
}

static bool needs_prompt_counted(const struct sequence *sequence) {
    return sequence_params(sequence)->settings.repetition_penalty != 1.0F &&
           !sequence->has_counted_prompt;
}

bool sequence_has_penalty(const struct sequence *sequence) {
    const struct sampling_settings *by = &sequence_params(sequence)->settings;
    return by->repetition_penalty != 1.0F || by->frequency_penalty != 0.0F ||
           by->presence_penalty != 0.0F;
}

bool sequence_has_mirostat(const struct sequence *sequence) {
    const struct sampling_settings *by = &sequence_params(sequence)->settings;
    return by->mirostat != 0 && by->temperature > 0;
}

int sequence_count_prompt(struct sequence *sequence) {
    const struct request *request = sequence->request;
    if (!needs_prompt_counted(sequence))
        return 0;
    for (int32_t i = 0; i < request->num_prompt_tokens; i++)
        if (token_counts_add(&sequence->counts, request->prompt[i], 0) != 0)
            return -1;
    sequence->has_counted_prompt = true;
    return 0;
}

/* With Mirostat each token leaves a surprise for the next one, beams compare logprobs; lists of
 * allowed tokens, runs that are banned and budgets of reasoning have a say of their own in what may
 * follow. */
bool forced_tokens_apply(const struct sampling_params *params) {
    return params->grammar != NULL && params->beam_width == 0 && params->settings.mirostat == 0 &&
           params->num_allowed_tokens == 0 && params->num_bad_runs == 0 &&
           params->thinking.num_end_tokens == 0;
}

void forced_tokens_note(struct forced_tokens *forced, struct grammar_state *grammar,
                        int32_t token) {
    bool is_first = forced->count > 0 && forced->tokens[0] == token;
    forced->count = is_first ? forced->count - 1 : 0;
    memmove(forced->tokens, forced->tokens + 1, (size_t)forced->count * sizeof(*forced->tokens));
    if (forced->count == 0)
        forced->count = grammar_state_forced(grammar, forced->tokens, MAX_FORCED_TOKENS);
}

static bool may_jump(const struct sequence *sequence) {
    return sequence->forced.count > 0 && sequence->status == SEQUENCE_RUNNING &&
           sequence->finish == FINISH_NONE && sequence_params(sequence)->num_logprobs < 0;
}

bool sequence_can_jump(const struct sequence *sequence) {
    return may_jump(sequence) && sequence->in_flight.num_tokens == 0;
}

/* The step in flight samples the first one. To leave out the next step pays where it would not
 * sample the last. */
bool sequence_waits_to_jump(const struct sequence *sequence) {
    return may_jump(sequence) && sequence->forced.count > 2 && sequence->in_flight.num_samples > 0;
}

int sequence_append(struct sequence *sequence, int32_t token) {
    CHECK(sequence->num_tokens < sequence->max_tokens);
    int32_t num_generated = sequence_num_generated(sequence);
    if (needs_prompt_counted(sequence) || !reserve_output(sequence, num_generated + 1) ||
        !accepts(sequence, token))
        return -1;
    if (sequence_has_penalty(sequence) && token_counts_add(&sequence->counts, token, 1) != 0)
        return -1;
    sequence->output[num_generated] = token;
    sequence->num_tokens++;
    if (sequence->grammar != NULL && forced_tokens_apply(sequence_params(sequence)))
        forced_tokens_note(&sequence->forced, sequence->grammar, token);
    return 0;
}

int sequence_copy_output(struct sequence *to, const struct sequence *from) {
    int32_t num_generated = sequence_num_generated(from);
    if (!reserve_output(to, num_generated))
        return -1;
    if (num_generated > 0)
        memcpy(to->output, from->output, (size_t)num_generated * sizeof(*to->output));
    to->num_tokens = from->num_tokens;
    return 0;
}

/* The output doubles as it grows. */
size_t sequence_max_bytes(const struct serving_limits *limits) {
    return MAX_RECORD_BYTES + 2 * (size_t)limits->max_model_len * sizeof(int32_t) +
           token_counts_max_bytes(serving_limits_max_distinct(limits)) +
           block_table_bytes(serving_limits_max_blocks(limits), serving_limits_groups(limits)) +
           ((size_t)limits->hidden_size + 1) * sizeof(float) +
           (size_t)limits->num_speculative_tokens * sizeof(int32_t);
}

void sequence_release(struct sequence *sequence) {
    detokenizer_finish(&sequence->detokenizer);
    token_counts_finish(&sequence->counts);
    grammar_state_destroy(sequence->grammar);
    free(sequence->output);
    free(sequence->hidden_sum);
    free(sequence->drafts);
    sequence->forced.count = 0;
    sequence->grammar = NULL;
    sequence->output = NULL;
    sequence->output_capacity = 0;
    sequence->hidden_sum = NULL;
    sequence->drafts = NULL;
    sequence->num_drafts = 0;
    sequence->num_wanted_drafts = 0;
    sequence->wants_model_drafts = false;
}

int sequence_keep_hidden_sum(struct sequence *sequence, const float *sum, int32_t hidden_size) {
    size_t bytes = (size_t)hidden_size * sizeof(*sum);
    if (sequence->hidden_sum == NULL)
        sequence->hidden_sum = malloc(bytes);
    if (sequence->hidden_sum == NULL)
        return -1;
    memcpy(sequence->hidden_sum, sum, bytes);
    return 0;
}

bool sequence_is_complete(const struct sequence *sequence) {
    return sequence->grammar != NULL && grammar_state_is_final(sequence->grammar);
}
