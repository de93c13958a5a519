/* /v1/embeddings: every input is a prompt with one choice. Its embedding is written as JSON as soon
 * as it is ready, so that a long list does not hold up the I/O thread at the end, where the parts
 * are only joined. */
#include "server/api/call/endpoints.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "server/api/call/api_call_type.h"
#include "server/api/embeddings/embedding_body.h"
#include "server/api/embeddings/embedding_request.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"

#include <stdlib.h>

/* Numbers that one API call may produce. Each takes about 12 bytes of JSON, which are held until
 * the end. */
#define MAX_NUMBERS (8 << 20)

struct embedding_api_call {
    struct api_call base; /* first: see api_call_type.h */
    enum embedding_encoding encoding;
    enum embedding_form form;
    bool normalize;
    int32_t num_dimensions;         /* that are written: the first ones of the model's */
    float *vector;                  /* [num_dimensions]; the one that is being written */
    struct byte_buffer *embeddings; /* [num_prompts] */
};

static int add_inputs(const struct api_context *context, const struct embedding_body *body,
                      struct api_call *call, struct api_error *err) {
    const struct embedding_settings settings = {
        .pooling = body->pooling,
        .flags = prompt_text_flags(body->add_special_tokens, body->parse_special),
        .truncation = body->truncation,
        .priority = body->priority,
        .cache_salt = body->cache_salt,
        .model = body->model,
    };
    const cJSON *item = body->inputs.first;
    int64_t num_tokens = 0;
    for (int32_t i = 0; i < call->num_prompts; i++, item = item->next) {
        char path[PROMPT_PATH_BYTES];
        prompt_list_path(&body->inputs, i, path);
        if (embedding_request_create(context, &settings, item, path, &call->prompts[i].request,
                                     err) != 0)
            return -1;
        num_tokens += call->prompts[i].request->num_prompt_tokens;
        if (prompt_list_check_total(context, &body->inputs, num_tokens, err) != 0)
            return -1;
    }
    return 0;
}

static int check_size(int32_t num_dimensions, int32_t num_inputs, struct api_error *err) {
    int32_t most = MAX_NUMBERS / num_dimensions;
    if (num_inputs <= most || num_inputs == 1)
        return 0;
    return bad_request(err, "array_above_max_length", "input",
                       "input must have at most %d entries with embeddings of %d numbers, not %d",
                       (int)most, (int)num_dimensions, (int)num_inputs);
}

static int fill(const struct api_context *context, void *parsed, struct api_call *base,
                struct api_error *err) {
    struct embedding_api_call *call = (struct embedding_api_call *)base;
    struct embedding_body *body = parsed;
    int32_t num_inputs = body->inputs.num_prompts;
    api_call_set_ignored_params(base, &body->ignored);
    base->timeout_ms = body->timeout_ms;
    call->encoding = body->encoding;
    call->form = body->form;
    call->normalize = body->normalize;
    call->num_dimensions = (int32_t)body->dimensions;
    if (check_size(call->num_dimensions, num_inputs, err) != 0 ||
        api_call_set_size(base, num_inputs, 1, err) != 0)
        return -1;
    call->vector = calloc((size_t)call->num_dimensions, sizeof(*call->vector));
    call->embeddings = calloc((size_t)num_inputs, sizeof(*call->embeddings));
    if (call->vector == NULL || call->embeddings == NULL || base->ignored.failed)
        return api_error_set_memory(err);
    return add_inputs(context, body, base, err);
}

static void finish(struct api_call *base) {
    struct embedding_api_call *call = (struct embedding_api_call *)base;
    for (int32_t i = 0; call->embeddings != NULL && i < base->num_prompts; i++)
        byte_buffer_finish(&call->embeddings[i]);
    free(call->embeddings);
    free(call->vector);
}

static size_t held_bytes(const struct api_call *base) {
    const struct embedding_api_call *call = (const struct embedding_api_call *)base;
    size_t bytes = 0;
    for (int32_t i = 0; i < base->num_prompts; i++)
        bytes += call->embeddings[i].capacity;
    return bytes;
}

static int add_embedding(struct api_call *base, int32_t index, const struct token_event *event) {
    struct embedding_api_call *call = (struct embedding_api_call *)base;
    struct byte_buffer *out = &call->embeddings[index];
    const float *vector = event->embedding;
    CHECK(event->kind == TOKEN_EVENT_EMBEDDING && event->num_dimensions >= call->num_dimensions);
    if (call->normalize) {
        embedding_normalise(vector, call->num_dimensions, call->vector);
        vector = call->vector;
    }
    if (call->form == EMBEDDING_OPENAI)
        embedding_format(index, vector, call->num_dimensions, call->encoding, out);
    else
        embedding_format_numbers(vector, call->num_dimensions, out);
    return out->failed ? -1 : 0;
}

/* Frees every part as soon as it is written. */
static void write_items(struct embedding_api_call *call, struct byte_buffer *out) {
    for (int32_t i = 0; i < call->base.num_prompts; i++) {
        json_write_items(out, &call->embeddings[i]);
        byte_buffer_finish(&call->embeddings[i]);
    }
}

static void write_list(struct embedding_api_call *call, const char *name, struct byte_buffer *out) {
    json_write_key(out, name);
    json_write_begin_array(out);
    write_items(call, out);
    json_write_end_array(out);
}

static void write_openai(struct embedding_api_call *call, struct byte_buffer *out) {
    int64_t num_tokens = api_call_total_usage(&call->base).prompt_tokens;
    json_write_text_member(out, "object", "list");
    write_list(call, "data", out);
    json_write_text_member(out, "model", call->base.head.model);
    json_write_key(out, "usage");
    json_write_begin_object(out);
    json_write_int_member(out, "prompt_tokens", num_tokens);
    json_write_int_member(out, "total_tokens", num_tokens);
    json_write_end_object(out);
}

static void write_ollama(struct embedding_api_call *call, struct byte_buffer *out) {
    int64_t arrival_ns = call->base.prompts[0].request->arrival_ns;
    json_write_text_member(out, "model", call->base.head.model);
    write_list(call, "embeddings", out);
    json_write_int_member(out, "total_duration", clock_now_ns() - arrival_ns);
    json_write_int_member(out, "load_duration", 0);
    json_write_int_member(out, "prompt_eval_count",
                          api_call_total_usage(&call->base).prompt_tokens);
}

static void write_body(struct api_call *base, struct byte_buffer *out) {
    struct embedding_api_call *call = (struct embedding_api_call *)base;
    json_write_begin_object(out);
    if (call->form == EMBEDDING_OPENAI) {
        write_openai(call, out);
    } else if (call->form == EMBEDDING_OLLAMA) {
        write_ollama(call, out);
    } else {
        json_write_key(out, "embedding");
        write_items(call, out);
    }
    json_write_end_object(out);
}

static const struct api_call_operations operations = {
    .size = sizeof(struct embedding_api_call),
    .id_prefix = "embd-",
    .fill = fill,
    .add = add_embedding,
    .write_body = write_body,
    .held_bytes = held_bytes,
    .finish = finish,
};

int embedding_call_create(const struct api_context *context, cJSON *json, enum embedding_form form,
                          struct api_call **out, struct api_error *err) {
    struct embedding_body body;
    if (embedding_body_read(context, json, form, &body, err) != 0)
        return -1;
    int result = api_call_create(&operations, context, &body, out, err);
    embedding_body_finish(&body);
    return result;
}

int embedding_endpoint_parse(const struct api_context *context, const char *text, size_t length,
                             struct api_call **out, struct api_error *err) {
    cJSON *json = json_parse(text, length, err);
    return json != NULL ? embedding_call_create(context, json, EMBEDDING_OPENAI, out, err) : -1;
}
