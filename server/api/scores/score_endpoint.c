/* /v1/score, /v1/rerank and /v2/rerank.
 *
 * If the model is a classifier, each pair is a prompt, whose last hidden state gives the score.
 * Otherwise each text is a prompt whose embedding is computed as in
 * /v1/embeddings; the score of a pair is the cosine of the angle between its two embeddings. A
 * score is computed as soon as both are ready, and a document's JSON is written when the body is
 * read, so that a long list does not hold up the I/O thread at the end. */
#include "server/api/call/endpoints.h"

#include "config/base/check.h"
#include "server/api/call/api_call_format.h"
#include "server/api/call/api_call_type.h"
#include "server/api/embeddings/embedding_format.h"
#include "server/api/scores/score_body.h"
#include "server/api/scores/score_model.h"
#include "config/json/json_write.h"

#include <stdlib.h>
#include <string.h>

/* Numbers in the embeddings that one API call may hold until their pairs are complete: 32 MiB. */
#define MAX_NUMBERS (8 << 20)

struct score {
    float value;
    int32_t index;
    bool is_known;
    struct byte_buffer document; /* of a rerank: {"text": ...}; empty if it is not returned */
};

struct score_api_call {
    struct api_call base; /* first: see api_call_type.h */
    bool is_rerank;
    const struct classifier *classifier; /* NULL: scores are similarities */
    bool use_activation;
    int32_t num_first, num_scores; /* texts of the first list; of the second */
    int32_t num_returned;
    int32_t num_dimensions;
    int32_t num_held; /* embeddings */
    float **vectors;  /* [num_first + num_scores] of length 1; NULL: not ready, or not needed */
    struct score *scores;
};

/* --- From a body to requests --- */

static int add_to_total(const struct api_context *context, const struct request *request,
                        const char *name, int64_t *num_tokens, struct api_error *err) {
    *num_tokens += request->num_prompt_tokens;
    if (*num_tokens <= context->max_prompt_tokens)
        return 0;
    return bad_request(err, "out_of_range", name,
                       "the texts of one call may have %lld tokens together, and these have more; "
                       "send them in several calls",
                       (long long)context->max_prompt_tokens);
}

static int add_texts(const struct api_context *context, const struct score_body *body,
                     const struct prompt_list *list, int32_t first, struct api_call *call,
                     int64_t *num_tokens, struct api_error *err) {
    const cJSON *item = list->first;
    for (int32_t i = 0; i < list->num_prompts; i++, item = item->next) {
        char path[PROMPT_PATH_BYTES];
        struct request **made = &call->prompts[first + i].request;
        prompt_list_path(list, i, path);
        if (embedding_request_create(context, &body->settings, score_body_text(item), path, made,
                                     err) != 0)
            return -1;
        if (add_to_total(context, *made, list->name, num_tokens, err) != 0)
            return -1;
    }
    return 0;
}

static int add_pairs(const struct api_context *context, const struct score_body *body,
                     struct api_call *call, int64_t *num_tokens, struct api_error *err) {
    const cJSON *first = body->first.first, *second = body->second.first;
    for (int32_t i = 0; i < body->second.num_prompts; i++, second = second->next) {
        char path[PROMPT_PATH_BYTES];
        struct prompt_tokens tokens;
        struct request **made = &call->prompts[i].request;
        prompt_list_path(&body->second, i, path);
        if (score_model_encode(context, score_body_text(first)->valuestring,
                               score_body_text(second)->valuestring, body->instruction,
                               body->settings.flags, &body->settings.truncation, path, &tokens,
                               err) != 0 ||
            embedding_request_of_tokens(context, &body->settings, &tokens, made, err) != 0 ||
            add_to_total(context, *made, body->second.name, num_tokens, err) != 0)
            return -1;
        if (body->first.num_prompts > 1)
            first = first->next;
    }
    return 0;
}

static int add_documents(const struct score_body *body, struct score_api_call *call,
                         struct api_error *err) {
    const cJSON *item = body->second.first;
    for (int32_t i = 0; i < call->num_scores; i++, item = item->next) {
        struct byte_buffer *out = &call->scores[i].document;
        call->scores[i].index = i;
        if (!call->is_rerank || !body->return_documents)
            continue;
        json_write_begin_object(out);
        json_write_text_member(out, "text", score_body_text(item)->valuestring);
        json_write_end_object(out);
        if (out->failed)
            return api_error_set_memory(err);
    }
    return 0;
}

static int check_size(const struct score_api_call *call, const char *name, struct api_error *err) {
    int32_t count = call->num_first + call->num_scores, most = MAX_NUMBERS / call->num_dimensions;
    if (count <= most || count == 2)
        return 0;
    return bad_request(err, "array_above_max_length", name,
                       "a call must have at most %d texts with embeddings of %d numbers, not %d",
                       (int)most, (int)call->num_dimensions, (int)count);
}

static int fill_any(const struct api_context *context, struct score_body *body,
                    struct score_api_call *call, struct api_error *err) {
    struct api_call *base = &call->base;
    int64_t num_tokens = 0;
    api_call_set_ignored_params(base, &body->ignored);
    base->timeout_ms = body->timeout_ms;
    call->num_first = body->first.num_prompts;
    call->num_scores = body->second.num_prompts;
    call->num_dimensions = context->limits->hidden_size;
    call->classifier = context->scores != NULL ? context->scores->classifier : NULL;
    call->use_activation = body->use_activation;
    call->num_returned =
        body->top_n > 0 && body->top_n < call->num_scores ? (int32_t)body->top_n : call->num_scores;
    int32_t num_texts = call->num_first + call->num_scores;
    int32_t num_prompts = call->classifier != NULL ? call->num_scores : num_texts;
    if ((call->classifier == NULL && check_size(call, body->second.name, err) != 0) ||
        api_call_set_id(base, body->request_id, err) != 0 ||
        api_call_set_size(base, num_prompts, 1, err) != 0)
        return -1;
    call->vectors = calloc((size_t)num_texts, sizeof(*call->vectors));
    call->scores = calloc((size_t)call->num_scores, sizeof(*call->scores));
    if (call->vectors == NULL || call->scores == NULL || base->ignored.failed)
        return api_error_set_memory(err);
    if (add_documents(body, call, err) != 0)
        return -1;
    if (call->classifier != NULL)
        return add_pairs(context, body, base, &num_tokens, err);
    if (add_texts(context, body, &body->first, 0, base, &num_tokens, err) != 0)
        return -1;
    return add_texts(context, body, &body->second, call->num_first, base, &num_tokens, err);
}

static int fill_score(const struct api_context *context, void *parsed, struct api_call *base,
                      struct api_error *err) {
    return fill_any(context, parsed, (struct score_api_call *)base, err);
}

static int fill_rerank(const struct api_context *context, void *parsed, struct api_call *base,
                       struct api_error *err) {
    struct score_api_call *call = (struct score_api_call *)base;
    call->is_rerank = true;
    return fill_any(context, parsed, call, err);
}

static void drop_vector(struct score_api_call *call, int32_t prompt) {
    call->num_held -= call->vectors[prompt] != NULL;
    free(call->vectors[prompt]);
    call->vectors[prompt] = NULL;
}

static void finish(struct api_call *base) {
    struct score_api_call *call = (struct score_api_call *)base;
    for (int32_t i = 0; call->vectors != NULL && i < call->num_first + call->num_scores; i++)
        drop_vector(call, i);
    for (int32_t i = 0; call->scores != NULL && i < call->num_scores; i++)
        byte_buffer_finish(&call->scores[i].document);
    free(call->vectors);
    free(call->scores);
}

static size_t held_bytes(const struct api_call *base) {
    const struct score_api_call *call = (const struct score_api_call *)base;
    size_t bytes = (size_t)call->num_held * (size_t)call->num_dimensions * sizeof(float);
    for (int32_t i = 0; i < call->num_scores; i++)
        bytes += call->scores[i].document.capacity;
    return bytes;
}

/* --- From hidden states to scores --- */

static float cosine(const float *a, const float *b, int32_t num_dimensions) {
    double sum = 0.0;
    for (int32_t i = 0; i < num_dimensions; i++)
        sum += (double)a[i] * (double)b[i];
    return sum > 1.0 ? 1.0f : sum < -1.0 ? -1.0f : (float)sum;
}

/* Computes a score whose two embeddings are ready, and frees embeddings that no other score
 * needs. */
static void compute(struct score_api_call *call, int32_t index) {
    int32_t first = call->num_first > 1 ? index : 0, second = call->num_first + index;
    struct score *score = &call->scores[index];
    if (score->is_known || call->vectors[first] == NULL || call->vectors[second] == NULL)
        return;
    score->value = cosine(call->vectors[first], call->vectors[second], call->num_dimensions);
    score->is_known = true;
    drop_vector(call, second);
    if (call->num_first > 1)
        drop_vector(call, first);
}

static int add_embedding(struct api_call *base, int32_t index, const struct token_event *event) {
    struct score_api_call *call = (struct score_api_call *)base;
    CHECK(event->kind == TOKEN_EVENT_EMBEDDING && event->num_dimensions == call->num_dimensions);
    if (call->classifier != NULL) {
        classifier_scores(call->classifier, event->embedding, call->use_activation,
                          &call->scores[index].value);
        call->scores[index].is_known = true;
        return 0;
    }
    float *vector = calloc((size_t)call->num_dimensions, sizeof(*vector));
    if (vector == NULL)
        return -1;
    embedding_normalise(event->embedding, call->num_dimensions, vector);
    call->vectors[index] = vector;
    call->num_held++;
    bool is_of_all = call->num_first == 1 && index == 0;
    int32_t only = index < call->num_first ? index : index - call->num_first;
    for (int32_t i = is_of_all ? 0 : only; i < (is_of_all ? call->num_scores : only + 1); i++)
        compute(call, i);
    return 0;
}

/* The best come first; equal ones are in the order of the request. */
static int compare(const void *left, const void *right) {
    const struct score *a = left, *b = right;
    if (a->value != b->value)
        return a->value > b->value ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* --- From scores to bytes --- */

/* Writes what the numbers are if they are not those of a classifier, which clients of other servers
 * expect. */
static void write_end(const struct score_api_call *call, struct byte_buffer *out) {
    const struct api_call_usage usage = api_call_total_usage(&call->base);
    json_write_text_member(out, "model", call->base.head.model);
    if (call->classifier == NULL)
        json_write_text_member(out, "similarity", "cosine");
    json_write_key(out, "usage");
    json_write_begin_object(out);
    json_write_int_member(out, "prompt_tokens", usage.prompt_tokens);
    json_write_int_member(out, "total_tokens", usage.prompt_tokens);
    json_write_end_object(out);
    json_write_end_object(out);
}

static void write_score(const struct score *score, const char *object, const char *name,
                        struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_int_member(out, "index", score->index);
    if (object != NULL)
        json_write_text_member(out, "object", object);
    if (score->document.length > 0) {
        json_write_key(out, "document");
        json_write_items(out, &score->document);
    }
    json_write_key(out, name);
    json_write_float(out, score->value);
    json_write_end_object(out);
}

static void write_scores(struct api_call *base, struct byte_buffer *out) {
    const struct score_api_call *call = (const struct score_api_call *)base;
    json_write_begin_object(out);
    json_write_text_member(out, "id", base->head.id);
    json_write_text_member(out, "object", "list");
    json_write_int_member(out, "created", base->head.created);
    json_write_key(out, "data");
    json_write_begin_array(out);
    for (int32_t i = 0; i < call->num_scores; i++)
        write_score(&call->scores[i], "score", "score", out);
    json_write_end_array(out);
    write_end(call, out);
}

static void write_ranks(struct api_call *base, struct byte_buffer *out) {
    struct score_api_call *call = (struct score_api_call *)base;
    qsort(call->scores, (size_t)call->num_scores, sizeof(*call->scores), compare);
    json_write_begin_object(out);
    json_write_text_member(out, "id", base->head.id);
    json_write_text_member(out, "object", "list");
    json_write_key(out, "results");
    json_write_begin_array(out);
    for (int32_t i = 0; i < call->num_returned; i++)
        write_score(&call->scores[i], NULL, "relevance_score", out);
    json_write_end_array(out);
    write_end(call, out);
}

static const struct api_call_operations score_operations = {
    .size = sizeof(struct score_api_call),
    .id_prefix = "score-",
    .fill = fill_score,
    .add = add_embedding,
    .write_body = write_scores,
    .held_bytes = held_bytes,
    .finish = finish,
};

static const struct api_call_operations rerank_operations = {
    .size = sizeof(struct score_api_call),
    .id_prefix = "rerank-",
    .fill = fill_rerank,
    .add = add_embedding,
    .write_body = write_ranks,
    .held_bytes = held_bytes,
    .finish = finish,
};

static int parse(const struct api_context *context, const char *text, size_t length, bool is_rerank,
                 struct api_call **out, struct api_error *err) {
    struct score_body body;
    enum score_form form = is_rerank ? SCORE_OF_RANKS : SCORE_OF_PAIRS;
    if (score_body_parse(context, text, length, form, &body, err) != 0)
        return -1;
    int result = api_call_create(is_rerank ? &rerank_operations : &score_operations, context, &body,
                                 out, err);
    score_body_finish(&body);
    return result;
}

int score_endpoint_parse(const struct api_context *context, const char *text, size_t length,
                         struct api_call **out, struct api_error *err) {
    return parse(context, text, length, false, out, err);
}

int score_endpoint_parse_rerank(const struct api_context *context, const char *text, size_t length,
                                struct api_call **out, struct api_error *err) {
    return parse(context, text, length, true, out, err);
}
