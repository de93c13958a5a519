/* Any bytes as the body of /v1/completions, /v1/chat/completions, /v1/responses, /v1/messages,
 * /v1/embeddings, /api/chat and Ollama's others, /tokenize and /detokenize, and of those that count
 * tokens. A body that is taken
 * is answered with made-up engine events; whatever comes out must be valid JSON. */
#include "config/base/utf8.h"
#include "server/api/call/endpoints.h"
#include "tests/unit/server/api/chat_fixture.h"
#include "tests/unit/server/api/fake_tokenizer.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct api_context context;

/* Once; the model stays until the process ends. */
static void fill_context(void) {
    if (context.chat != NULL)
        return;
    chat_fixture_init(&context, 128);
    context.max_prompts = 8;
    context.max_prompt_tokens = 100;
    static struct serving_limits limits;
    limits = *context.limits;
    limits.hidden_size = 2;
    context.limits = &limits;
    context.pooling = POOLING_LAST;
    context.kv_role = KV_ROLE_BOTH;
    context.kv_store_name = "quire-0";
}

static void require(bool condition) {
    if (!condition)
        abort();
}

/* cJSON, not json_read: a token may be a NUL byte, and \u0000 is fit for output. */
static void require_json(const char *data, size_t length) {
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts(data, length, &end, false);
    require(json != NULL && end == data + length && utf8_valid_prefix(data, length) == length);
    cJSON_Delete(json);
}

/* An error names no server fault and is itself well-formed. */
static void check_error(const struct api_error *err) {
    struct byte_buffer out = {0};
    require(err->status == 400 || err->status == 404);
    api_error_format(err, &out);
    require_json(out.data, out.length);
    byte_buffer_finish(&out);
}

/* Frames may have a line with the event's name before the data; the streams of responses and
 * messages do, and they have no [DONE]. */
static void check_frames(const struct byte_buffer *out) {
    const char *at = out->data, *end = out->data + out->length;
    bool is_named = memcmp(at, "event: ", 7) == 0;
    while (at < end) {
        if (is_named) {
            at = memchr(at, '\n', (size_t)(end - at));
            require(at != NULL);
            at++;
        }
        const char *stop = memmem(at, (size_t)(end - at), "\n\n", 2);
        require(stop != NULL && stop - at >= 6 && memcmp(at, "data: ", 6) == 0);
        if (stop + 2 == end && !is_named)
            require(memcmp(at, "data: [DONE]", 12) == 0);
        else
            require_json(at + 6, (size_t)(stop - at) - 6);
        at = stop + 2;
    }
}

/* Ollama's streams have one object a line. */
static void check_lines(const struct byte_buffer *out) {
    const char *at = out->data, *end = out->data + out->length;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        require(stop != NULL && *at == '{');
        require_json(at, (size_t)(stop - at));
        at = stop + 1;
    }
}

static void push(struct request *request, enum token_event_kind kind, int32_t choice,
                 enum finish_reason finish) {
    struct token_record record = {.token = request->prompt[0], .logprob = NAN, .num_top = 2};
    struct top_logprob top[] = {{0xC3, -0.5f}, {FAKE_WORLD, -INFINITY}};
    bool has_tokens = request->params.num_logprobs >= 0;
    struct token_event event = {.kind = kind,
                                .choice = choice,
                                .text = "\xC3\xA9\"",
                                .text_bytes = kind == TOKEN_EVENT_TEXT ? 3 : 0,
                                .num_tokens = has_tokens,
                                .tokens = &record,
                                .top = top,
                                .num_top = has_tokens ? 2 : 0,
                                .finish = finish,
                                .stop_token = -1,
                                .stop_string = request->params.num_stop_strings - 1,
                                .num_generated = 1};
    require(token_stream_push(&request->stream, &event) == 0);
}

static void push_embedding(struct request *request) {
    static const float vector[2] = {0.1f, -INFINITY};
    const struct token_event event = {.kind = TOKEN_EVENT_EMBEDDING,
                                      .embedding = vector,
                                      .num_dimensions = 2,
                                      .finish = FINISH_STOP,
                                      .stop_token = -1,
                                      .stop_string = -1};
    require(token_stream_push(&request->stream, &event) == 0);
}

static void answer(struct api_call *call) {
    struct byte_buffer out = {0};
    for (int i = 0; i < api_call_num_requests(call); i++) {
        struct request *request = api_call_request(call, i);
        require(request->num_prompt_tokens >= 1 && request->params.max_tokens >= 0);
        require(request->num_prompt_tokens + request->params.max_tokens <=
                context.limits->max_model_len);
        if (request->params.num_prompt_logprobs >= 0)
            push(request, TOKEN_EVENT_PROMPT, 0, FINISH_NONE);
        bool is_pooled = request->params.pooling != POOLING_NONE;
        if (is_pooled)
            push_embedding(request);
        for (int32_t choice = 0; choice < request->params.num_choices && !is_pooled; choice++)
            push(request, TOKEN_EVENT_TEXT, choice, FINISH_STOP);
        api_call_read(call, request, &out);
    }
    require(api_call_is_done(call) && out.length > 0);
    if (api_call_is_stream(call) && out.data[0] == '{')
        check_lines(&out);
    else if (api_call_is_stream(call))
        check_frames(&out);
    else
        require_json(out.data, out.length);
    byte_buffer_finish(&out);
}

static void check_ignored(const char *names_list) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-,[]";
    if (names_list != NULL)
        require(strspn(names_list, allowed) == strlen(names_list) && strlen(names_list) <= 1024);
}

static void try_call(api_call_parse *parse, const char *body, size_t length) {
    struct api_call *call;
    struct api_error err;
    if (parse(&context, body, length, &call, &err) != 0) {
        check_error(&err);
        return;
    }
    check_ignored(api_call_ignored_params(call));
    answer(call);
    api_call_destroy(call);
}

static void try_transform(api_transform *endpoint, const char *body, size_t length) {
    struct byte_buffer out = {0}, ignored = {0};
    struct api_error err;
    if (endpoint(&context, body, length, &out, &ignored, &err) == 0)
        require_json(out.data, out.length);
    else
        check_error(&err);
    byte_buffer_finish(&out);
    byte_buffer_finish(&ignored);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const char *body = (const char *)data;
    fill_context();
    try_call(completion_endpoint_parse, body, bytes);
    try_call(completion_endpoint_parse_infill, body, bytes);
    try_call(chat_endpoint_parse, body, bytes);
    try_call(responses_endpoint_parse, body, bytes);
    try_call(messages_endpoint_parse, body, bytes);
    try_call(embedding_endpoint_parse, body, bytes);
    try_call(score_endpoint_parse, body, bytes);
    try_call(score_endpoint_parse_rerank, body, bytes);
    try_call(classify_endpoint_parse, body, bytes);
    try_call(ollama_endpoint_parse_chat, body, bytes);
    try_call(ollama_endpoint_parse_generate, body, bytes);
    try_call(ollama_embed_parse, body, bytes);
    try_call(ollama_embed_parse_old, body, bytes);
    try_transform(ollama_models_show, body, bytes);
    try_transform(messages_count_tokens, body, bytes);
    try_transform(responses_input_tokens, body, bytes);
    try_transform(tokenize_endpoint_encode, body, bytes);
    try_transform(tokenize_endpoint_decode, body, bytes);
    return 0;
}
