#include "engine/request.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "engine/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

/* Larger than a request with its parameters. */
#define MAX_RECORD_BYTES 8192

/* Copies count items; NULL for none. *out is untouched when memory is short. */
static bool copy_items(const void *items, int32_t count, size_t item_bytes, void **out) {
    void *copy = NULL;
    if (count > 0) {
        size_t bytes;
        if (!checked_mul((size_t)count, item_bytes, &bytes))
            return false;
        copy = malloc(bytes);
        if (copy == NULL)
            return false;
        memcpy(copy, items, bytes);
    }
    *out = copy;
    return true;
}

/* Makes one allocation: the array, then the bytes of all strings. */
static bool copy_stop_strings(const struct sampling_params *params,
                              const struct stop_string **out) {
    int count = params->num_stop_strings;
    if (count <= 0) {
        *out = NULL;
        return true;
    }
    size_t bytes = (size_t)count * sizeof(struct stop_string);
    for (int i = 0; i < count; i++)
        if (!checked_add(bytes, params->stop_strings[i].length, &bytes))
            return false;
    struct stop_string *copy = malloc(bytes);
    if (copy == NULL)
        return false;
    char *text = (char *)(copy + count);
    for (int i = 0; i < count; i++) {
        size_t length = params->stop_strings[i].length;
        memcpy(text, params->stop_strings[i].data, length);
        copy[i] = (struct stop_string){.data = text, .length = length};
        text += length;
    }
    *out = copy;
    return true;
}

/* Makes one allocation: the array, then the tokens of all runs. */
static bool copy_bad_runs(const struct sampling_params *params, const struct token_run **out) {
    int count = params->num_bad_runs;
    if (count <= 0) {
        *out = NULL;
        return true;
    }
    size_t bytes = (size_t)count * sizeof(struct token_run);
    for (int i = 0; i < count; i++)
        if (!checked_add(bytes, (size_t)params->bad_runs[i].count * sizeof(int32_t), &bytes))
            return false;
    struct token_run *copy = malloc(bytes);
    if (copy == NULL)
        return false;
    int32_t *tokens = (int32_t *)(copy + count);
    for (int i = 0; i < count; i++) {
        int32_t length = params->bad_runs[i].count;
        memcpy(tokens, params->bad_runs[i].tokens, (size_t)length * sizeof(int32_t));
        copy[i] = (struct token_run){.tokens = tokens, .count = length};
        tokens += length;
    }
    *out = copy;
    return true;
}

static bool copy_params(struct request *request, const struct sampling_params *params) {
    request->params = *params;
    request->params.stop_strings = NULL;
    request->params.stop_tokens = NULL;
    request->params.biases = NULL;
    request->params.allowed_tokens = NULL;
    request->params.bad_runs = NULL;
    request->params.logprob_tokens = NULL;
    if (params->grammar != NULL)
        grammar_ref(params->grammar);
    void *stop_tokens = NULL, *biases = NULL, *allowed = NULL, *logprobs = NULL;
    bool ok = copy_stop_strings(params, &request->params.stop_strings) &&
              copy_bad_runs(params, &request->params.bad_runs);
    ok = ok &&
         copy_items(params->stop_tokens, params->num_stop_tokens, sizeof(int32_t), &stop_tokens);
    request->params.stop_tokens = stop_tokens;
    ok = ok && copy_items(params->biases, params->num_biases, sizeof(struct token_bias), &biases);
    request->params.biases = biases;
    ok = ok &&
         copy_items(params->allowed_tokens, params->num_allowed_tokens, sizeof(int32_t), &allowed);
    request->params.allowed_tokens = allowed;
    ok = ok &&
         copy_items(params->logprob_tokens, params->num_logprob_tokens, sizeof(int32_t), &logprobs);
    request->params.logprob_tokens = logprobs;
    return ok;
}

struct request *request_create(const int32_t *prompt, int32_t num_prompt_tokens,
                               const struct sampling_params *params) {
    CHECK(num_prompt_tokens >= 1);
    CHECK(params->num_choices >= 1);
    CHECK(params->pooling == POOLING_NONE ||
          (params->num_choices == 1 && params->max_tokens == 0 && params->num_prompt_logprobs < 0));
    CHECK(params->max_tokens >= 0 && params->num_biases <= MAX_LOGIT_BIASES);
    CHECK(params->num_stop_strings <= MAX_STOP_STRINGS);
    CHECK(params->num_logprob_tokens <= MAX_LOGPROB_TOKENS);
    CHECK(params->num_stop_tokens <= MAX_STOP_TOKENS && params->num_bad_runs <= MAX_BAD_RUNS);
    for (int32_t i = 0; i < params->num_bad_runs; i++)
        CHECK(params->bad_runs[i].count >= 1 && params->bad_runs[i].count <= MAX_BAD_RUN_TOKENS);
    struct request *request = calloc(1, sizeof(*request));
    if (request == NULL)
        return NULL;
    atomic_init(&request->cancelled, false);
    atomic_init(&request->references, 1);
    atomic_init(&request->ready_listed, false);
    token_stream_init(&request->stream);
    void *tokens = NULL;
    bool ok = copy_params(request, params) &&
              copy_items(prompt, num_prompt_tokens, sizeof(int32_t), &tokens) &&
              token_stream_reserve(&request->stream, params->num_choices) == 0;
    request->prompt = tokens;
    request->num_prompt_tokens = num_prompt_tokens;
    if (!ok) {
        request_unref(request);
        return NULL;
    }
    return request;
}

int request_set_cache_scope(struct request *request, int32_t tenant, const char *salt,
                            size_t salt_bytes) {
    char *copy = NULL;
    CHECK(tenant >= 0);
    if (salt_bytes > 0) {
        copy = malloc(salt_bytes);
        if (copy == NULL)
            return -1;
        memcpy(copy, salt, salt_bytes);
    }
    free(request->cache_salt);
    request->tenant = tenant;
    request->cache_salt = copy;
    request->cache_salt_bytes = salt_bytes;
    return 0;
}

size_t request_max_bytes(void) {
    return MAX_RECORD_BYTES + TOKEN_STREAM_STALL_BYTES;
}

struct request *request_ref(struct request *request) {
    atomic_fetch_add_explicit(&request->references, 1, memory_order_relaxed);
    return request;
}

void request_unref(struct request *request) {
    if (request == NULL)
        return;
    int before = atomic_fetch_sub_explicit(&request->references, 1, memory_order_acq_rel);
    CHECK(before >= 1);
    if (before > 1)
        return;
    token_stream_finish(&request->stream);
    free((void *)request->params.stop_strings);
    free((void *)request->params.stop_tokens);
    free((void *)request->params.biases);
    free((void *)request->params.allowed_tokens);
    free((void *)request->params.bad_runs);
    free((void *)request->params.logprob_tokens);
    grammar_unref(request->params.grammar);
    free(request->cache_salt);
    free(request->prompt);
    free(request);
}
