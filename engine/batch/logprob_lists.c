#include "engine/batch/logprob_lists.h"

#include "config/base/check.h"
#include "engine/request/token_stream.h"

#include <string.h>

static bool has_vocabulary(const struct serving_limits *limits) {
    return limits->max_logprobs > SAMPLE_MAX_LOGPROBS;
}

static size_t vocabulary_size(const struct serving_limits *limits) {
    return has_vocabulary(limits) ? (size_t)limits->vocab_size : 0;
}

size_t logprob_lists_max_of_row(const struct serving_limits *limits) {
    size_t vocabulary = vocabulary_size(limits);
    return vocabulary > MAX_LOGPROB_TOKENS ? vocabulary : MAX_LOGPROB_TOKENS;
}

size_t logprob_lists_max_of_step(const struct serving_limits *limits) {
    return (size_t)serving_limits_max_sampled(limits) * logprob_lists_max_of_row(limits) +
           (size_t)limits->max_num_batched_tokens * vocabulary_size(limits);
}

size_t logprob_lists_event_bytes(const struct serving_limits *limits) {
    return 2 * logprob_lists_max_of_step(limits) * sizeof(struct top_logprob);
}

size_t logprob_lists_max_tokens(const struct serving_limits *limits) {
    return (size_t)limits->max_num_seqs * MAX_LOGPROB_TOKENS + vocabulary_size(limits);
}

void logprob_lists_init(struct logprob_lists *lists, const struct serving_limits *limits,
                        int32_t *tokens) {
    *lists = (struct logprob_lists){.limits = limits, .tokens = tokens};
    for (size_t i = 0; i < vocabulary_size(limits); i++)
        tokens[i] = (int32_t)i;
    logprob_lists_clear(lists);
}

void logprob_lists_clear(struct logprob_lists *lists) {
    lists->num_tokens = (int32_t)vocabulary_size(lists->limits);
    lists->num_logprobs = 0;
    lists->latest = NULL;
}

/* Returns the place of a request's tokens, which the rows of a sequence share. */
static int32_t add_tokens(struct logprob_lists *lists, const int32_t *tokens, int32_t num_tokens) {
    CHECK(num_tokens <= MAX_LOGPROB_TOKENS);
    if (tokens != lists->latest) {
        memcpy(lists->tokens + lists->num_tokens, tokens, (size_t)num_tokens * sizeof(*tokens));
        lists->num_tokens += num_tokens;
        lists->latest = tokens;
    }
    return lists->num_tokens - num_tokens;
}

void logprob_lists_add(struct logprob_lists *lists, const int32_t *tokens, int32_t num_tokens,
                       struct sample_row *row) {
    if (num_tokens > 0) {
        row->first_listed = add_tokens(lists, tokens, num_tokens);
        row->num_listed = num_tokens;
    } else if (row->num_logprobs > SAMPLE_MAX_LOGPROBS) {
        CHECK(has_vocabulary(lists->limits));
        row->first_listed = 0;
        row->num_listed = lists->limits->vocab_size;
        row->num_ranked = row->num_logprobs <= row->num_listed / 2 ? row->num_logprobs : 0;
    }
    if (row->num_listed == 0)
        return;
    row->num_logprobs = 0;
    row->first_listed_logprob = lists->num_logprobs;
    lists->num_logprobs += row->num_listed;
}
