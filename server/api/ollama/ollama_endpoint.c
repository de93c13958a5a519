/* /api/chat and /api/generate. The body becomes a conversation (ollama_body.h), or a text that no
 * template makes. A stream is one JSON object a line; a tool call is written once it is complete.
 */
#include "server/api/call/endpoints.h"

#include "config/base/random_id.h"
#include "config/json/json_write.h"
#include "server/api/call/api_call_format.h"
#include "server/api/call/logprob_format.h"
#include "server/api/completions/fim_prompt.h"
#include "server/api/conversation/chat_parts.h"
#include "server/api/ollama/ollama_body.h"
#include "server/api/ollama/ollama_format.h"

#include <stdlib.h>
#include <time.h>

#define CALL_ID_DIGITS 8

struct ollama_api_call {
    struct api_call base; /* first: see api_call_type.h */
    struct chat_parts parts;
    bool is_chat;
    const char *done_reason; /* of a request that only loads the model; NULL: it generates */
    int32_t num_logprobs;    /* as requested; -1: none */
    /* Output that is not written yet. */
    struct byte_buffer content, thinking;
    struct byte_buffer tool_calls, logprobs; /* items */
    /* The tool call that is not complete yet. */
    bool has_open_call;
    struct byte_buffer name, arguments;
    int32_t num_tool_calls;
};

/* --- From a body to a request --- */

static int read_prompt(const struct api_context *context, struct ollama_body *body,
                       struct prompt_tokens *out, struct api_error *err) {
    struct sampling_body *sampling = &body->conversation.sampling;
    const struct prompt_limits limits = sampling_body_prompt_limits(sampling);
    const struct prompt_tokens none = {0};
    struct prompt_tokens suffix = {0};
    int32_t begin = 0, end = 0;
    if (body->suffix == NULL)
        return prompt_read_tokens(context, body->prompt, "prompt", prompt_text_flags(true, true),
                                  &limits, out, err);
    if (fim_prompt_check(context, "suffix", false, err) != 0 ||
        fim_prompt_add_ends(context, &sampling->lists, err) != 0 ||
        fim_prompt_read_suffix(context, body->suffix, "suffix", prompt_text_flags(false, false),
                               &limits, &suffix, err) != 0)
        return -1;
    const struct fim_prompt fim = {.item = body->prompt,
                                   .path = "prompt",
                                   .suffix = &suffix,
                                   .between = &none,
                                   .in_front = &none,
                                   .flags = prompt_text_flags(true, false)};
    int result = fim_prompt_tokens(context, &fim, &limits, out, &begin, &end, err);
    free(suffix.ids);
    return result;
}

static int generate_from_text(const struct api_context *context, struct ollama_body *body,
                              struct chat_generation *out, struct api_error *err) {
    struct prompt_tokens tokens;
    if (read_prompt(context, body, &tokens, err) != 0)
        return -1;
    int result = chat_generation_create_plain(context, &body->conversation, &tokens, out, err);
    free(tokens.ids);
    return result;
}

/* Loading the model is generating one token, upon which a server that sleeps wakes up. */
static int generate_one(const struct api_context *context, struct ollama_body *body,
                        struct chat_generation *out, struct api_error *err) {
    int32_t bos = tokenizer_bos(context->tokenizer), id = bos >= 0 ? bos : 0;
    const struct prompt_tokens tokens = {.ids = &id, .count = 1};
    body->conversation.sampling.max_tokens = 1;
    return chat_generation_create_plain(context, &body->conversation, &tokens, out, err);
}

static int generate(const struct api_context *context, struct ollama_body *body,
                    struct chat_generation *out, struct api_error *err) {
    if (body->done_reason != NULL)
        return generate_one(context, body, out, err);
    return body->prompt != NULL ? generate_from_text(context, body, out, err)
                                : chat_generation_create(context, &body->conversation, out, err);
}

static int fill(const struct api_context *context, void *parsed, struct api_call *base,
                struct api_error *err) {
    struct ollama_api_call *call = (struct ollama_api_call *)base;
    struct ollama_body *body = parsed;
    struct conversation *conversation = &body->conversation;
    struct chat_generation generation;
    if (api_call_set_id(base, conversation->sampling.request_id, err) != 0 ||
        api_call_set_size(base, 1, 1, err) != 0)
        return -1;
    api_call_set_ignored_params(base, &conversation->ignored);
    base->is_stream = conversation->sampling.stream && body->done_reason == NULL;
    base->timeout_ms = conversation->sampling.timeout_ms;
    call->is_chat = body->is_chat;
    call->done_reason = body->done_reason;
    call->num_logprobs = conversation_num_logprobs(conversation);
    if (base->ignored.failed)
        return api_error_set_memory(err);
    if (generate(context, body, &generation, err) != 0)
        return -1;
    base->prompts[0].request = generation.request;
    return chat_parts_init(&call->parts, &generation, err);
}

static void finish(struct api_call *base) {
    struct ollama_api_call *call = (struct ollama_api_call *)base;
    chat_parts_finish(&call->parts);
    byte_buffer_finish(&call->content);
    byte_buffer_finish(&call->thinking);
    byte_buffer_finish(&call->tool_calls);
    byte_buffer_finish(&call->logprobs);
    byte_buffer_finish(&call->name);
    byte_buffer_finish(&call->arguments);
}

static size_t held_bytes(const struct api_call *base) {
    const struct ollama_api_call *call = (const struct ollama_api_call *)base;
    return call->content.capacity + call->thinking.capacity + call->tool_calls.capacity +
           call->logprobs.capacity + call->name.capacity + call->arguments.capacity;
}

/* --- From events to parts of the message --- */

static int end_tool_call(struct ollama_api_call *call) {
    struct byte_buffer *out = &call->tool_calls;
    char id[32];
    if (!call->has_open_call)
        return 0;
    if (random_id("call_", CALL_ID_DIGITS, id, sizeof(id)) != 0)
        return -1;
    json_write_begin_object(out);
    json_write_text_member(out, "id", id);
    json_write_key(out, "function");
    json_write_begin_object(out);
    json_write_int_member(out, "index", call->num_tool_calls++);
    json_write_string_member(out, "name", &call->name);
    json_write_key(out, "arguments");
    api_call_format_arguments(&call->arguments, out);
    json_write_end_object(out);
    json_write_end_object(out);
    call->has_open_call = false;
    byte_buffer_clear(&call->name);
    byte_buffer_clear(&call->arguments);
    return out->failed ? -1 : 0;
}

static int add_part(struct ollama_api_call *call, const struct output_part *part) {
    if (part->kind != OUTPUT_PART_TOOL_ARGUMENTS && end_tool_call(call) != 0)
        return -1;
    struct byte_buffer *target = part->kind == OUTPUT_PART_REASONING        ? &call->thinking
                                 : part->kind == OUTPUT_PART_TOOL_CALL      ? &call->name
                                 : part->kind == OUTPUT_PART_TOOL_ARGUMENTS ? &call->arguments
                                                                            : &call->content;
    call->has_open_call |= part->kind == OUTPUT_PART_TOOL_CALL;
    byte_buffer_append(target, part->text, part->length);
    return target->failed ? -1 : 0;
}

static int add(struct api_call *base, int32_t index, const struct token_event *event) {
    struct ollama_api_call *call = (struct ollama_api_call *)base;
    struct output_part part;
    if (chat_parts_push(&call->parts, event) != 0)
        return -1;
    while (chat_parts_next(&call->parts, &part))
        if (add_part(call, &part) != 0)
            return -1;
    if (event->finish != FINISH_NONE && end_tool_call(call) != 0)
        return -1;
    if (call->num_logprobs >= 0)
        logprob_format_chat(base->tokenizer, event, call->num_logprobs, LOGPROB_NAMES,
                            &call->logprobs);
    return call->logprobs.failed ? -1 : 0;
}

/* --- From parts to bytes --- */

static const char *done_reason(const struct ollama_api_call *call) {
    if (call->done_reason != NULL)
        return call->done_reason;
    return call->base.choices[0].finish.reason == FINISH_STOP ? "stop" : "length";
}

static void write_output(const struct ollama_api_call *call, struct byte_buffer *out) {
    if (call->is_chat) {
        json_write_key(out, "message");
        json_write_begin_object(out);
        json_write_text_member(out, "role", "assistant");
    }
    json_write_string_member(out, call->is_chat ? "content" : "response", &call->content);
    if (call->thinking.length > 0)
        json_write_string_member(out, "thinking", &call->thinking);
    if (call->tool_calls.length > 0)
        json_write_array_member(out, "tool_calls", &call->tool_calls);
    if (call->is_chat)
        json_write_end_object(out);
}

/* Writes what was added since the last time. is_end: also how it ended and how long it took. */
static void write_answer(struct ollama_api_call *call, bool is_end, struct byte_buffer *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    json_write_begin_object(out);
    json_write_text_member(out, "model", call->base.head.model);
    ollama_format_time("created_at", now.tv_sec, now.tv_nsec, out);
    write_output(call, out);
    if (call->logprobs.length > 0)
        json_write_array_member(out, "logprobs", &call->logprobs);
    json_write_key(out, "done");
    json_write_bool(out, is_end);
    if (is_end)
        json_write_text_member(out, "done_reason", done_reason(call));
    if (is_end && call->done_reason == NULL)
        ollama_format_counts(&call->base, out);
    json_write_end_object(out);
    byte_buffer_clear(&call->content);
    byte_buffer_clear(&call->thinking);
    byte_buffer_clear(&call->tool_calls);
    byte_buffer_clear(&call->logprobs);
}

static void write_line(struct ollama_api_call *call, bool is_end, struct byte_buffer *out) {
    write_answer(call, is_end, out);
    byte_buffer_append(out, "\n", 1);
}

static void write_update(struct api_call *base, int32_t index, struct byte_buffer *out) {
    struct ollama_api_call *call = (struct ollama_api_call *)base;
    if (call->content.length > 0 || call->thinking.length > 0 || call->tool_calls.length > 0 ||
        call->logprobs.length > 0)
        write_line(call, false, out);
}

static void write_end(struct api_call *base, struct byte_buffer *out) {
    write_line((struct ollama_api_call *)base, true, out);
}

static void write_error(struct api_call *base, struct byte_buffer *out) {
    ollama_format_error(&base->error, NULL, out);
    byte_buffer_append(out, "\n", 1);
}

/* The token of a request that only loads the model is not part of its answer. */
static void write_body(struct api_call *base, struct byte_buffer *out) {
    struct ollama_api_call *call = (struct ollama_api_call *)base;
    if (call->done_reason != NULL) {
        byte_buffer_clear(&call->content);
        byte_buffer_clear(&call->logprobs);
    }
    write_answer(call, true, out);
}

static const struct api_call_operations operations = {
    .size = sizeof(struct ollama_api_call),
    .id_prefix = "ollama-",
    .fill = fill,
    .add = add,
    .write_update = write_update,
    .write_end = write_end,
    .write_error = write_error,
    .write_body = write_body,
    .held_bytes = held_bytes,
    .finish = finish,
};

static int parse(const struct api_context *context, const char *text, size_t length, bool is_chat,
                 struct api_call **out, struct api_error *err) {
    struct ollama_body body;
    if (ollama_body_parse(context, text, length, is_chat, &body, err) != 0)
        return -1;
    int result = api_call_create(&operations, context, &body, out, err);
    if (result != 0)
        ollama_body_name_option(body.conversation.body, err);
    ollama_body_finish(&body);
    return result;
}

int ollama_endpoint_parse_chat(const struct api_context *context, const char *text, size_t length,
                               struct api_call **out, struct api_error *err) {
    return parse(context, text, length, true, out, err);
}

int ollama_endpoint_parse_generate(const struct api_context *context, const char *text,
                                   size_t length, struct api_call **out, struct api_error *err) {
    return parse(context, text, length, false, out, err);
}
