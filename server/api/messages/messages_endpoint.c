/* /v1/messages. The body becomes a conversation (messages_body.h), the only choice a list of
 * content blocks (messages_output.h). A stream's events are made while output is added, and sent
 * afterwards. */
#include "server/api/call/endpoints.h"

#include "server/api/call/api_call_type.h"
#include "server/api/conversation/chat_generation.h"
#include "server/api/conversation/chat_parts.h"
#include "server/api/messages/messages_body.h"
#include "server/api/messages/messages_error.h"
#include "server/api/messages/messages_output.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"
#include "server/api/conversation/chat_prompt.h"

struct messages_api_call {
    struct api_call base; /* first: see api_call_type.h */
    struct chat_parts parts;
    struct messages_output output;
    int64_t max_tokens;        /* as requested; the context may have room for less */
    struct byte_buffer events; /* of a stream, not sent yet */
    bool has_begun;            /* the events include message_start */
};

/* --- From a body to a request --- */

/* The request in two forms: as it came, and as a conversation. */
struct messages_bodies {
    const cJSON *json;
    struct conversation conversation;
};

static int fill(const struct api_context *context, void *parsed, struct api_call *base,
                struct api_error *err) {
    struct messages_api_call *call = (struct messages_api_call *)base;
    struct messages_bodies *bodies = parsed;
    struct conversation *conversation = &bodies->conversation;
    struct chat_generation generation;
    if (api_call_set_id(base, conversation->sampling.request_id, err) != 0 ||
        api_call_set_size(base, 1, 1, err) != 0)
        return -1;
    api_call_set_ignored_params(base, &conversation->ignored);
    base->is_stream = conversation->sampling.stream;
    base->timeout_ms = conversation->sampling.timeout_ms;
    call->max_tokens = conversation->sampling.max_tokens;
    call->output.omits_thinking = messages_body_omits_thinking(bodies->json);
    if (base->ignored.failed)
        return api_error_set_memory(err);
    if (chat_generation_create(context, conversation, &generation, err) != 0)
        return -1;
    base->prompts[0].request = generation.request;
    return chat_parts_init(&call->parts, &generation, err);
}

static void finish(struct api_call *base) {
    struct messages_api_call *call = (struct messages_api_call *)base;
    chat_parts_finish(&call->parts);
    messages_output_finish(&call->output);
    byte_buffer_finish(&call->events);
}

static size_t held_bytes(const struct api_call *base) {
    const struct messages_api_call *call = (const struct messages_api_call *)base;
    return messages_output_bytes(&call->output) + call->events.capacity;
}

/* --- What the answer has in addition to its blocks --- */

static const char *stop_reason(const struct messages_api_call *call) {
    const struct api_call_finish *finish = &call->base.choices[0].finish;
    bool is_context_full = call->base.prompts[0].request->params.max_tokens < call->max_tokens;
    if (finish->reason == FINISH_LENGTH && is_context_full)
        return "model_context_window_exceeded";
    if (finish->reason == FINISH_LENGTH || finish->reason == FINISH_DEADLINE)
        return "max_tokens";
    if (finish->stop_string.data != NULL)
        return "stop_sequence";
    bool is_broken = output_parser_is_broken(call->parts.parser);
    return call->output.num_tool_uses > 0 && !is_broken ? "tool_use" : "end_turn";
}

/* is_end: false writes both members as null. */
static void write_stop(const struct messages_api_call *call, bool is_end, struct byte_buffer *out) {
    const struct text *stop = &call->base.choices[0].finish.stop_string;
    json_write_text_member(out, "stop_reason", is_end ? stop_reason(call) : NULL);
    json_write_key(out, "stop_sequence");
    if (is_end && stop->data != NULL)
        json_write_string(out, stop->data, stop->length);
    else
        json_write_null(out);
}

/* As in Anthropic's API, cached tokens are not counted as input_tokens. Nothing is written to a
 * cache on demand. */
static void write_usage(const struct messages_api_call *call, struct byte_buffer *out) {
    struct api_call_usage usage = api_call_total_usage(&call->base);
    json_write_key(out, "usage");
    json_write_begin_object(out);
    json_write_int_member(out, "input_tokens", usage.prompt_tokens - usage.cached_tokens);
    json_write_int_member(out, "cache_creation_input_tokens", 0);
    json_write_int_member(out, "cache_read_input_tokens", usage.cached_tokens);
    json_write_int_member(out, "output_tokens", usage.completion_tokens);
    json_write_key(out, "output_tokens_details");
    json_write_begin_object(out);
    json_write_int_member(out, "thinking_tokens", call->parts.num_reasoning_tokens);
    json_write_end_object(out);
    json_write_end_object(out);
}

/* Writes the message; before its end, without content and stop_reason. */
static void write_message(const struct messages_api_call *call, bool is_end,
                          struct byte_buffer *out) {
    const struct api_call_head *head = &call->base.head;
    json_write_begin_object(out);
    json_write_text_member(out, "id", head->id);
    json_write_text_member(out, "type", "message");
    json_write_text_member(out, "role", "assistant");
    json_write_text_member(out, "model", head->model);
    json_write_key(out, "content");
    if (is_end)
        messages_output_format(&call->output, out);
    else
        json_write_raw(out, "[]");
    write_stop(call, is_end, out);
    write_usage(call, out);
    json_write_end_object(out);
}

/* --- From events to blocks and to bytes --- */

static void write_start(struct messages_api_call *call, struct byte_buffer *events) {
    call->has_begun = true;
    messages_event_begin("message_start", events);
    json_write_key(events, "message");
    write_message(call, false, events);
    messages_event_end(events);
    messages_event_begin("ping", events);
    messages_event_end(events);
}

static int add(struct api_call *base, int32_t index, const struct token_event *event) {
    struct messages_api_call *call = (struct messages_api_call *)base;
    struct byte_buffer *events = base->is_stream ? &call->events : NULL;
    struct output_part part;
    if (events != NULL && !call->has_begun)
        write_start(call, events);
    if (chat_parts_push(&call->parts, event) != 0)
        return -1;
    while (chat_parts_next(&call->parts, &part))
        if (messages_output_add(&call->output, &part, events) != 0)
            return -1;
    if (event->finish != FINISH_NONE)
        messages_output_close(&call->output, events);
    return call->events.failed ? -1 : 0;
}

static void write_update(struct api_call *base, int32_t index, struct byte_buffer *out) {
    struct messages_api_call *call = (struct messages_api_call *)base;
    if (call->events.length == 0)
        return;
    byte_buffer_append(out, call->events.data, call->events.length);
    byte_buffer_clear(&call->events);
}

static void write_end(struct api_call *base, struct byte_buffer *out) {
    const struct messages_api_call *call = (const struct messages_api_call *)base;
    messages_event_begin("message_delta", out);
    json_write_key(out, "delta");
    json_write_begin_object(out);
    write_stop(call, true, out);
    json_write_end_object(out);
    write_usage(call, out);
    messages_event_end(out);
    messages_event_begin("message_stop", out);
    messages_event_end(out);
}

static void write_failed(struct api_call *base, struct byte_buffer *out) {
    byte_buffer_append_text(out, "event: error\ndata: ");
    messages_error_format(&base->error, NULL, out);
    api_call_end_frame(out);
}

static void write_body(struct api_call *base, struct byte_buffer *out) {
    write_message((const struct messages_api_call *)base, true, out);
}

static const struct api_call_operations operations = {
    .size = sizeof(struct messages_api_call),
    .id_prefix = "msg_",
    .fill = fill,
    .add = add,
    .write_update = write_update,
    .write_end = write_end,
    .write_error = write_failed,
    .write_body = write_body,
    .held_bytes = held_bytes,
    .finish = finish,
};

int messages_endpoint_parse(const struct api_context *context, const char *text, size_t length,
                            struct api_call **out, struct api_error *err) {
    cJSON *json = json_parse(text, length, err);
    if (json == NULL)
        return -1;
    struct messages_bodies bodies = {.json = json};
    int result = messages_body_read(context, json, false, &bodies.conversation, err);
    if (result == 0) {
        result = api_call_create(&operations, context, &bodies, out, err);
        conversation_finish(&bodies.conversation);
    }
    cJSON_Delete(json);
    return result;
}

/* --- /v1/messages/count_tokens --- */

static int count(const struct api_context *context, struct conversation *conversation,
                 struct byte_buffer *out, struct byte_buffer *ignored, struct api_error *err) {
    int64_t num_tokens = 0;
    if (chat_prompt_count(context, conversation, &num_tokens, err) != 0)
        return -1;
    *ignored = conversation->ignored;
    conversation->ignored = (struct byte_buffer){0};
    json_write_begin_object(out);
    json_write_int_member(out, "input_tokens", num_tokens);
    json_write_end_object(out);
    return 0;
}

int messages_count_tokens(const struct api_context *context, const char *text, size_t length,
                          struct byte_buffer *out, struct byte_buffer *ignored,
                          struct api_error *err) {
    struct conversation conversation;
    cJSON *json = json_parse(text, length, err);
    if (json == NULL)
        return -1;
    int result = messages_body_read(context, json, true, &conversation, err);
    if (result == 0) {
        result = count(context, &conversation, out, ignored, err);
        conversation_finish(&conversation);
    }
    cJSON_Delete(json);
    return result;
}
