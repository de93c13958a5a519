#include "server/api/call/api_call_type.h"

#include "config/base/random_id.h"
#include "server/api/call/conversation_slots.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int fill_id(struct api_call *call, struct api_error *err) {
    if (random_id(call->operations->id_prefix, RANDOM_ID_MAX_DIGITS, call->head.id,
                  sizeof(call->head.id)) == 0)
        return 0;
    return api_error_set(err, 500, "server_error", NULL, NULL, "No random bytes for an id");
}

/* An adapter's requests, which live as long as the call, know its name. */
static void set_model_name(struct api_call *call) {
    const struct request *first = call->num_prompts > 0 ? call->prompts[0].request : NULL;
    if (first != NULL && first->adapter != NULL)
        call->head.model = first->adapter->name;
}

/* Refuses tokens of a model that has none to give. */
static int check_generation(const struct api_context *context, const struct api_call *call,
                            struct api_error *err) {
    for (int32_t i = 0; context->refuses_generation && i < call->num_prompts; i++)
        if (call->prompts[i].request->params.pooling == POOLING_NONE)
            return bad_request(err, "unsupported_model", "model",
                               "this model does not generate text: it is served for %s",
                               context->scores != NULL ? "scores, classes and embeddings"
                                                       : "embeddings");
    return 0;
}

int api_call_create(const struct api_call_operations *operations, const struct api_context *context,
                    void *body, struct api_call **out, struct api_error *err) {
    struct api_call *call = calloc(1, operations->size);
    if (call == NULL)
        return api_error_set_memory(err);
    call->operations = operations;
    call->tokenizer = context->tokenizer;
    call->head.created = (int64_t)time(NULL);
    call->head.model = context->model_names[0];
    call->head.system_fingerprint = context->system_fingerprint;
    if (fill_id(call, err) != 0 || operations->fill(context, body, call, err) != 0 ||
        check_generation(context, call, err) != 0) {
        api_call_destroy(call);
        return -1;
    }
    set_model_name(call);
    *out = call;
    return 0;
}

int api_call_set_id(struct api_call *call, const char *request_id, struct api_error *err) {
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-";
    if (request_id == NULL)
        return 0;
    size_t length = strlen(request_id);
    if (length == 0 || length > MAX_REQUEST_ID_BYTES || strspn(request_id, allowed) < length)
        return bad_request(err, "out_of_range", "request_id",
                           "request_id must be 1 to %d characters of A-Z a-z 0-9 . _ : -",
                           MAX_REQUEST_ID_BYTES);
    snprintf(call->head.id, sizeof(call->head.id), "%s%s", call->operations->id_prefix, request_id);
    return 0;
}

int api_call_set_size(struct api_call *call, int32_t num_prompts, int32_t num_choices,
                      struct api_error *err) {
    call->num_prompts = num_prompts;
    call->num_choices = num_choices;
    call->num_unfinished = num_prompts * num_choices;
    call->prompts = calloc((size_t)num_prompts, sizeof(*call->prompts));
    call->choices = calloc((size_t)call->num_unfinished, sizeof(*call->choices));
    call->ranks = calloc((size_t)num_choices, sizeof(*call->ranks));
    bool has_memory = call->prompts != NULL && call->choices != NULL && call->ranks != NULL;
    return has_memory ? 0 : api_error_set_memory(err);
}

int api_call_set_scope(const struct api_context *context, struct request *request,
                       const char *model, int64_t priority, const char *cache_salt,
                       struct api_error *err) {
    size_t length = cache_salt != NULL ? strlen(cache_salt) : 0;
    if (cache_salt != NULL && (length == 0 || length > MAX_CACHE_SALT_BYTES))
        return bad_request(err, "out_of_range", "cache_salt",
                           "cache_salt has %zu bytes: a text of 1 to %d bytes is allowed", length,
                           MAX_CACHE_SALT_BYTES);
    request->priority = (int32_t)priority;
    if (api_context_set_model(context, model, request, err) != 0)
        return -1;
    if (request_set_cache_scope(request, request->tenant, cache_salt, length) != 0)
        return api_error_set_memory(err);
    return 0;
}

int api_call_set_slot(const struct api_context *context, struct api_call *call, int64_t slot,
                      struct api_error *err) {
    int32_t num_slots = context->slots != NULL ? conversation_slots_count(context->slots) : 0;
    if (context->slots == NULL || slot < 0)
        return 0;
    if (slot >= num_slots)
        return bad_request(err, "out_of_range", "id_slot",
                           "id_slot is %lld: -1 to %d are allowed (--max-num-seqs)",
                           (long long)slot, (int)num_slots - 1);
    call->slots = context->slots;
    call->slot = (int32_t)slot;
    return 0;
}

void api_call_set_transfer(const struct api_context *context, struct api_call *call,
                           const struct kv_transfer *transfer) {
    for (int32_t i = 0; i < call->num_prompts; i++)
        kv_transfer_set(transfer, call->prompts[i].request);
    if (transfer->hands_over)
        call->handed_over_to = context->kv_store_name;
}

void api_call_set_ignored_params(struct api_call *call, struct byte_buffer *names) {
    if (names->length > 0)
        byte_buffer_append(names, "", 1);
    call->ignored = *names;
    *names = (struct byte_buffer){0};
}

static struct api_call_usage prompt_usage(const struct api_call *call) {
    struct api_call_usage usage = {0};
    for (int32_t i = 0; i < call->num_prompts; i++) {
        usage.prompt_tokens += call->prompts[i].request->num_prompt_tokens;
        usage.cached_tokens += call->prompts[i].num_cached_tokens;
    }
    return usage;
}

struct api_call_usage api_call_sent_usage(const struct api_call *call) {
    struct api_call_usage usage = prompt_usage(call);
    for (int32_t i = 0; i < call->num_prompts * call->num_choices; i++)
        usage.completion_tokens += call->choices[i].num_sent;
    return usage;
}

struct api_call_usage api_call_total_usage(const struct api_call *call) {
    struct api_call_usage usage = prompt_usage(call);
    for (int32_t i = 0; i < call->num_prompts * call->num_choices; i++)
        usage.completion_tokens += call->choices[i].num_generated;
    return usage;
}

static double mean_logprob(const struct api_call_choice *choice) {
    double mean = choice->num_generated > 0 ? choice->sum_logprobs / choice->num_generated : 0.0;
    return isnan(mean) ? -INFINITY : mean;
}

static int compare_ranks(const void *left, const void *right) {
    const struct api_call_rank *a = left, *b = right;
    if (a->mean_logprob != b->mean_logprob)
        return a->mean_logprob > b->mean_logprob ? -1 : 1;
    return a->choice - b->choice;
}

const struct api_call_rank *api_call_rank_choices(const struct api_call *call, int32_t prompt) {
    const struct api_call_choice *choices = call->choices + prompt * call->num_choices;
    for (int32_t i = 0; i < call->num_choices; i++)
        call->ranks[i] = (struct api_call_rank){mean_logprob(&choices[i]), i};
    qsort(call->ranks, (size_t)call->num_choices, sizeof(*call->ranks), compare_ranks);
    return call->ranks;
}

void api_call_begin_frame(struct byte_buffer *out) {
    byte_buffer_append_text(out, "data: ");
}

void api_call_end_frame(struct byte_buffer *out) {
    byte_buffer_append_text(out, "\n\n");
}

void api_call_write_done(struct byte_buffer *out) {
    byte_buffer_append_text(out, "data: [DONE]\n\n");
}

void api_call_write_error(struct api_call *call, struct byte_buffer *out) {
    api_call_begin_frame(out);
    api_error_format(&call->error, out);
    api_call_end_frame(out);
    api_call_write_done(out);
}
