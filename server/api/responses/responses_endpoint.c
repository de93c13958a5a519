/* /v1/responses. The body becomes a conversation (responses_body.h), the only choice a list of
 * items (responses_output.h). A stream's events are made while output is added, and sent
 * afterwards. A finished response is kept as the client got it (response_store.h). */
#include "server/api/call/endpoints.h"

#include "config/base/log.h"
#include "server/api/call/api_call_type.h"
#include "server/api/conversation/chat_parts.h"
#include "server/api/call/logprob_format.h"
#include "server/api/responses/response_store.h"
#include "server/api/responses/responses_body.h"
#include "server/api/responses/responses_output.h"
#include "server/api/responses/stored_items.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"
#include "server/api/conversation/chat_prompt.h"

/* Bytes of the request that are kept until its end and, in a stream, sent three times. */
#define MAX_ECHO_BYTES (1 << 20)

struct responses_api_call {
    struct api_call base; /* first: see api_call_type.h */
    struct chat_parts parts;
    struct responses_output output;
    bool has_logprobs;
    int32_t num_logprobs;         /* in the form that logprob_format_chat takes */
    bool shows_ids;               /* return_tokens_as_token_ids */
    struct byte_buffer echo;      /* members of the object that repeat the request */
    struct byte_buffer scores;    /* logprobs that no item has got yet */
    struct byte_buffer events;    /* of a stream, not sent yet */
    struct response_store *store; /* NULL: this response is not kept */
    int32_t tenant;
    bool has_begun;                /* the engine has generated something */
    struct stored_items *previous; /* of the response that it continues, held in the store */
    struct byte_buffer items;      /* if it is kept: the items that it adds */
};

/* --- From a body to a request --- */

/* The request in two forms: as it came, and as a conversation. */
struct responses_bodies {
    const cJSON *json;
    struct responses_conversation continued;
    struct conversation conversation;
};

/* Collects what the response is made from, and holds what it continues. */
static void keep_input(const struct api_context *context, struct responses_bodies *bodies,
                       struct responses_api_call *call) {
    struct responses_conversation *continued = &bodies->continued;
    call->base.is_background = continued->is_background;
    if (!continued->is_kept)
        return;
    call->store = context->responses;
    call->tenant = context->tenant;
    call->previous = continued->items;
    continued->items = NULL;
    size_t length = stored_items_length(call->previous);
    call->items.max_length =
        length < RESPONSE_STORE_MAX_ITEM_BYTES ? RESPONSE_STORE_MAX_ITEM_BYTES - length : 1;
    responses_conversation_add_input(json_member(bodies->json, "input"), &call->items);
}

static int fill(const struct api_context *context, void *parsed, struct api_call *base,
                struct api_error *err) {
    struct responses_api_call *call = (struct responses_api_call *)base;
    struct responses_bodies *bodies = parsed;
    struct conversation *conversation = &bodies->conversation;
    struct chat_generation generation;
    if (api_call_set_id(base, conversation->sampling.request_id, err) != 0 ||
        api_call_set_size(base, 1, 1, err) != 0)
        return -1;
    api_call_set_ignored_params(base, &conversation->ignored);
    base->is_stream = conversation->sampling.stream;
    base->timeout_ms = conversation->sampling.timeout_ms;
    call->has_logprobs = conversation->logprobs;
    call->num_logprobs = conversation->sampling.lists.num_logprob_tokens > 0
                             ? LOGPROBS_LISTED
                             : conversation_num_logprobs(conversation);
    call->shows_ids = conversation->sampling.return_tokens_as_token_ids;
    keep_input(context, bodies, call);
    responses_body_echo(bodies->json, call->store != NULL,
                        conversation->sampling.settings.temperature,
                        conversation->sampling.settings.top_p, &call->echo);
    responses_tools_list(bodies->json, &call->output.namespaced);
    if (call->echo.failed || base->ignored.failed || call->output.namespaced.failed)
        return api_error_set_memory(err);
    if (call->echo.length > MAX_ECHO_BYTES)
        return bad_request(
            err, "out_of_range", NULL,
            "tools, text, metadata and other fields that the answer repeats have %zu "
            "bytes as JSON: at most %d are allowed",
            call->echo.length, MAX_ECHO_BYTES);
    if (chat_generation_create(context, conversation, &generation, err) != 0)
        return -1;
    base->prompts[0].request = generation.request;
    return chat_parts_init(&call->parts, &generation, err);
}

static void finish(struct api_call *base) {
    struct responses_api_call *call = (struct responses_api_call *)base;
    chat_parts_finish(&call->parts);
    responses_output_finish(&call->output);
    byte_buffer_finish(&call->echo);
    byte_buffer_finish(&call->scores);
    byte_buffer_finish(&call->events);
    byte_buffer_finish(&call->items);
    response_store_release_items(call->store, call->previous);
}

static size_t held_bytes(const struct api_call *base) {
    const struct responses_api_call *call = (const struct responses_api_call *)base;
    return responses_output_bytes(&call->output) + call->echo.capacity + call->scores.capacity +
           call->events.capacity + call->items.capacity;
}

/* --- From events to items --- */

static int add_parts(struct responses_api_call *call, struct byte_buffer *events) {
    struct output_part part;
    while (chat_parts_next(&call->parts, &part)) {
        bool is_content = part.kind == OUTPUT_PART_CONTENT;
        if (responses_output_add(&call->output, &part, is_content ? &call->scores : NULL, events) !=
            0)
            return -1;
        byte_buffer_clear(&call->scores);
    }
    return 0;
}

/* --- From items to bytes --- */

static bool is_cut(const struct responses_api_call *call) {
    enum finish_reason reason = call->base.choices[0].finish.reason;
    return reason == FINISH_LENGTH || reason == FINISH_DEADLINE ||
           output_parser_is_broken(call->parts.parser);
}

/* Returns whether the last item is shorter than it should have become. */
static bool is_unfinished(const struct responses_api_call *call) {
    return is_cut(call) || call->base.has_error || call->base.is_cancelled;
}

static const char *final_status(const struct responses_api_call *call) {
    if (call->base.is_cancelled)
        return "cancelled";
    if (call->base.has_error)
        return "failed";
    return is_cut(call) ? "incomplete" : "completed";
}

static void write_usage(const struct responses_api_call *call, struct byte_buffer *out) {
    struct api_call_usage usage = api_call_total_usage(&call->base);
    json_write_key(out, "usage");
    json_write_begin_object(out);
    json_write_int_member(out, "input_tokens", usage.prompt_tokens);
    json_write_key(out, "input_tokens_details");
    json_write_begin_object(out);
    json_write_int_member(out, "cached_tokens", usage.cached_tokens);
    json_write_end_object(out);
    json_write_int_member(out, "output_tokens", usage.completion_tokens);
    json_write_key(out, "output_tokens_details");
    json_write_begin_object(out);
    json_write_int_member(out, "reasoning_tokens", call->parts.num_reasoning_tokens);
    json_write_end_object(out);
    json_write_int_member(out, "total_tokens", usage.prompt_tokens + usage.completion_tokens);
    json_write_end_object(out);
}

/* Of OpenAI's reasons this is the closest one to a deadline, which stop_reason names, and to a
 * broken tool call. */
static void write_incomplete_details(const struct responses_api_call *call, bool is_end,
                                     struct byte_buffer *out) {
    const char *details = "null";
    if (is_end && call->base.choices[0].finish.reason == FINISH_DEADLINE)
        details = "{\"reason\":\"max_output_tokens\",\"stop_reason\":\"deadline\"}";
    else if (is_end && is_cut(call))
        details = "{\"reason\":\"max_output_tokens\"}";
    json_write_raw_member(out, "incomplete_details", details);
}

/* Writes the response object; before its end, without output and usage. */
static void write_response(const struct responses_api_call *call, const char *status, bool is_end,
                           struct byte_buffer *out) {
    const struct api_call_head *head = &call->base.head;
    json_write_begin_object(out);
    json_write_text_member(out, "id", head->id);
    json_write_text_member(out, "object", "response");
    json_write_int_member(out, "created_at", head->created);
    json_write_text_member(out, "status", status);
    json_write_text_member(out, "model", head->model);
    json_write_key(out, "error");
    if (is_end && call->base.has_error) {
        json_write_begin_object(out);
        json_write_text_member(out, "code", call->base.error.code);
        json_write_text_member(out, "message", call->base.error.message);
        json_write_end_object(out);
    } else {
        json_write_null(out);
    }
    write_incomplete_details(call, is_end, out);
    json_write_items(out, &call->echo);
    json_write_key(out, "output");
    if (is_end)
        responses_output_format(&call->output, is_unfinished(call), out);
    else
        json_write_raw(out, "[]");
    if (is_end)
        write_usage(call, out);
    else
        json_write_raw_member(out, "usage", "null");
    json_write_text_member(out, "system_fingerprint", head->system_fingerprint);
    json_write_end_object(out);
}

/* --- What is kept --- */

static bool put(struct responses_api_call *call, struct text object, struct text events) {
    size_t input_bytes = call->items.length;
    for (int32_t i = 0; i < call->output.num_items; i++)
        responses_output_write_line(&call->output, i, is_unfinished(call), &call->items);
    const struct stored_response response = {
        .id = call->base.head.id,
        .tenant = call->tenant,
        .object = object,
        .previous = call->previous,
        .items = {call->items.data, call->items.length},
        .events = events,
        .input_bytes = input_bytes,
        .is_background = call->base.is_background,
    };
    if (!call->items.failed)
        return response_store_put(call->store, &response);
    response_store_refuse(call->store);
    return false;
}

/* Keeps the response that is in `out` from begin to end; if it ran in the background, all of `out`
 * is its events. */
static void keep(struct responses_api_call *call, const struct byte_buffer *out, size_t begin,
                 size_t end) {
    if (call->store == NULL || out->failed)
        return;
    struct text events = {0};
    if (call->base.is_stream && call->base.is_background)
        events = (struct text){out->data, out->length};
    if (!put(call, (struct text){out->data + begin, end - begin}, events))
        log_warning("response %s is not kept: its %zu bytes, its items of %zu and its events of "
                    "%zu have no room in response-store-bytes, or in memory",
                    call->base.head.id, end - begin, call->items.length, events.length);
}

/* Writes the response in its final state, and keeps it. */
static void write_last(struct responses_api_call *call, const char *status,
                       struct byte_buffer *out) {
    size_t begin = out->length;
    write_response(call, status, true, out);
    keep(call, out, begin, out->length);
}

static void write_status(struct responses_api_call *call, const char *type, const char *status,
                         bool is_end, struct byte_buffer *out) {
    responses_event_begin(&call->output, type, out);
    json_write_key(out, "response");
    size_t begin = out->length;
    write_response(call, status, is_end, out);
    size_t end = out->length;
    responses_event_end(out);
    if (is_end)
        keep(call, out, begin, end);
}

static void write_begin(struct api_call *base, struct byte_buffer *out) {
    struct responses_api_call *call = (struct responses_api_call *)base;
    const char *status = base->is_background ? "queued" : "in_progress";
    write_status(call, "response.created", status, false, out);
    if (base->is_background)
        write_status(call, "response.queued", status, false, out);
}

static int add(struct api_call *base, int32_t index, const struct token_event *event) {
    struct responses_api_call *call = (struct responses_api_call *)base;
    struct byte_buffer *events = base->is_stream ? &call->events : NULL;
    bool is_end = event->finish != FINISH_NONE;
    if (events != NULL && !call->has_begun)
        write_status(call, "response.in_progress", "in_progress", false, events);
    call->has_begun = true;
    if (call->has_logprobs)
        logprob_format_chat(base->tokenizer, event, call->num_logprobs,
                            call->shows_ids ? LOGPROB_IDS_AS_NAMES : LOGPROB_NAMES, &call->scores);
    if (chat_parts_push(&call->parts, event) != 0 || add_parts(call, events) != 0)
        return -1;
    if (is_end && responses_output_close(&call->output, is_cut(call), events) != 0)
        return -1;
    return call->scores.failed || call->events.failed ? -1 : 0;
}

static void write_update(struct api_call *base, int32_t index, struct byte_buffer *out) {
    struct responses_api_call *call = (struct responses_api_call *)base;
    if (call->events.length == 0)
        return;
    byte_buffer_append(out, call->events.data, call->events.length);
    byte_buffer_clear(&call->events);
}

static void write_end(struct api_call *base, struct byte_buffer *out) {
    struct responses_api_call *call = (struct responses_api_call *)base;
    write_status(call, is_cut(call) ? "response.incomplete" : "response.completed",
                 final_status(call), true, out);
}

static void write_failed(struct api_call *base, struct byte_buffer *out) {
    struct responses_api_call *call = (struct responses_api_call *)base;
    const char *status = final_status(call);
    if (!base->is_stream)
        write_last(call, status, out);
    else if (base->is_cancelled) /* OpenAI has no separate event for it */
        write_status(call, "response.incomplete", status, true, out);
    else
        write_status(call, "response.failed", status, true, out);
}

static void write_body(struct api_call *base, struct byte_buffer *out) {
    struct responses_api_call *call = (struct responses_api_call *)base;
    write_last(call, final_status(call), out);
}

static void write_state(const struct api_call *base, struct byte_buffer *out) {
    const struct responses_api_call *call = (const struct responses_api_call *)base;
    if (base->is_done)
        write_response(call, final_status(call), true, out);
    else
        write_response(call, call->has_begun ? "in_progress" : "queued", false, out);
}

static const struct api_call_operations operations = {
    .size = sizeof(struct responses_api_call),
    .id_prefix = "resp_",
    .fill = fill,
    .add = add,
    .write_update = write_update,
    .write_end = write_end,
    .write_error = write_failed,
    .write_begin = write_begin,
    .write_state = write_state,
    .write_body = write_body,
    .held_bytes = held_bytes,
    .finish = finish,
};

int responses_endpoint_parse(const struct api_context *context, const char *text, size_t length,
                             struct api_call **out, struct api_error *err) {
    cJSON *json = json_parse(text, length, err);
    if (json == NULL)
        return -1;
    struct responses_bodies bodies = {.json = json};
    int result = responses_conversation_read(context, json, &bodies.continued, err);
    if (result == 0)
        result = responses_body_read(context, json, &bodies.continued, &bodies.conversation, err);
    if (result == 0) {
        result = api_call_create(&operations, context, &bodies, out, err);
        conversation_finish(&bodies.conversation);
    }
    responses_conversation_finish(&bodies.continued);
    cJSON_Delete(json);
    return result;
}

/* --- /v1/responses/input_tokens --- */

static int count(const struct api_context *context, struct conversation *conversation,
                 struct byte_buffer *out, struct byte_buffer *ignored, struct api_error *err) {
    int64_t num_tokens = 0;
    if (chat_prompt_count(context, conversation, &num_tokens, err) != 0)
        return -1;
    *ignored = conversation->ignored;
    conversation->ignored = (struct byte_buffer){0};
    json_write_begin_object(out);
    json_write_text_member(out, "object", "response.input_tokens");
    json_write_int_member(out, "input_tokens", num_tokens);
    json_write_end_object(out);
    return 0;
}

int responses_input_tokens(const struct api_context *context, const char *text, size_t length,
                           struct byte_buffer *out, struct byte_buffer *ignored,
                           struct api_error *err) {
    struct conversation conversation;
    cJSON *json = json_parse(text, length, err);
    if (json == NULL)
        return -1;
    struct responses_conversation continued = {0};
    int result = responses_conversation_read(context, json, &continued, err);
    if (result == 0)
        result = responses_body_read(context, json, &continued, &conversation, err);
    if (result == 0) {
        result = count(context, &conversation, out, ignored, err);
        conversation_finish(&conversation);
    }
    responses_conversation_finish(&continued);
    cJSON_Delete(json);
    return result;
}
