#include "engine/request/request.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "engine/grammar/machine/grammar.h"

#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Larger than a request with its parameters. */
#define MAX_RECORD_BYTES 8192

/* A request and copies of its arrays lie in one block: a first pass counts its bytes, a second one
 * fills it. */
struct block {
    char *data; /* NULL: the first pass */
    size_t bytes;
};

/* Returns the copy; NULL for no bytes, or in the first pass. */
static void *copy_bytes(struct block *block, const void *items, size_t bytes) {
    size_t aligned =
        (block->bytes + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
    CHECK(checked_add(aligned, bytes, &block->bytes));
    if (block->data == NULL || bytes == 0)
        return NULL;
    return memcpy(block->data + aligned, items, bytes);
}

static struct stop_string *copy_texts(struct block *block, const struct stop_string *from,
                                      int32_t count) {
    struct stop_string *texts = copy_bytes(block, from, (size_t)count * sizeof(*texts));
    for (int32_t i = 0; i < count; i++) {
        const char *data = copy_bytes(block, from[i].data, from[i].length);
        if (texts != NULL)
            texts[i].data = data;
    }
    return texts;
}

static void copy_arrays(struct block *block, const struct sampling_params *from,
                        struct sampling_params *to) {
    to->stop_strings = copy_texts(block, from->stop_strings, from->num_stop_strings);
    to->dry_breakers = copy_texts(block, from->dry_breakers, from->num_dry_breakers);
    struct token_run *runs =
        copy_bytes(block, from->bad_runs, (size_t)from->num_bad_runs * sizeof(*runs));
    for (int32_t i = 0; i < from->num_bad_runs; i++) {
        const struct token_run *run = &from->bad_runs[i];
        const int32_t *tokens =
            copy_bytes(block, run->tokens, (size_t)run->count * sizeof(int32_t));
        if (runs != NULL)
            runs[i].tokens = tokens;
    }
    to->bad_runs = runs;
    to->stop_tokens =
        copy_bytes(block, from->stop_tokens, (size_t)from->num_stop_tokens * sizeof(int32_t));
    to->biases = copy_bytes(block, from->biases, (size_t)from->num_biases * sizeof(*from->biases));
    to->allowed_tokens =
        copy_bytes(block, from->allowed_tokens, (size_t)from->num_allowed_tokens * sizeof(int32_t));
    to->logprob_tokens =
        copy_bytes(block, from->logprob_tokens, (size_t)from->num_logprob_tokens * sizeof(int32_t));
}

struct request *request_create(const int32_t *prompt, int32_t num_prompt_tokens,
                               const struct sampling_params *params) {
    CHECK(num_prompt_tokens >= 1);
    CHECK(params->num_choices >= 1);
    CHECK(params->pooling == POOLING_NONE ||
          (params->num_choices == 1 && params->max_tokens == 0 && params->num_prompt_logprobs < 0));
    CHECK(params->max_tokens >= 0 && params->num_biases <= MAX_LOGIT_BIASES);
    CHECK(params->num_stop_strings <= MAX_STOP_STRINGS);
    CHECK(params->num_dry_breakers <= MAX_DRY_BREAKERS);
    CHECK(params->num_logprob_tokens <= MAX_LOGPROB_TOKENS);
    CHECK(params->num_stop_tokens <= MAX_STOP_TOKENS && params->num_bad_runs <= MAX_BAD_RUNS);
    for (int32_t i = 0; i < params->num_bad_runs; i++)
        CHECK(params->bad_runs[i].count >= 1 && params->bad_runs[i].count <= MAX_BAD_RUN_TOKENS);
    const size_t prompt_bytes = (size_t)num_prompt_tokens * sizeof(*prompt);
    struct sampling_params copied = *params;
    struct block block = {.bytes = sizeof(struct request)};
    copy_arrays(&block, params, &copied);
    copy_bytes(&block, prompt, prompt_bytes);
    block.data = malloc(block.bytes);
    if (block.data == NULL)
        return NULL;
    struct request *request = (struct request *)block.data;
    block.bytes = sizeof(struct request);
    copy_arrays(&block, params, &copied);
    *request = (struct request){
        .params = copied,
        .prompt = copy_bytes(&block, prompt, prompt_bytes),
        .num_prompt_tokens = num_prompt_tokens,
        .weight = 1,
    };
    atomic_init(&request->cancelled, false);
    atomic_init(&request->references, 1);
    atomic_init(&request->ready_listed, false);
    token_stream_init(&request->stream);
    if (params->grammar != NULL)
        grammar_ref(params->grammar);
    if (token_stream_reserve(&request->stream, params->num_choices) != 0) {
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

void request_set_owner(struct request *request, const uint8_t owner[static REQUEST_OWNER_BYTES]) {
    memcpy(request->owner, owner, REQUEST_OWNER_BYTES);
    request->has_owner = true;
}

void request_set_adapter(struct request *request, struct adapter *adapter) {
    CHECK(request->adapter == NULL);
    request->adapter = adapter_ref(adapter);
}

void request_set_share(struct request *request, int32_t share, int32_t weight) {
    CHECK(share >= 0 && weight >= 1 && weight <= REQUEST_MAX_WEIGHT);
    request->share = share;
    request->weight = weight;
}

size_t request_max_bytes(void) {
    return MAX_RECORD_BYTES + TOKEN_STREAM_STALL_BYTES;
}

bool request_has_signal(struct request *request, enum request_signal signal) {
    if (signal == REQUEST_CANCELLED)
        return atomic_load(&request->cancelled);
    return token_stream_pending_bytes(&request->stream) > TOKEN_STREAM_STALL_BYTES;
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
    grammar_unref(request->params.grammar);
    adapter_unref(request->adapter);
    free(request->cache_salt);
    free(request); /* its arrays are in the same block */
}
