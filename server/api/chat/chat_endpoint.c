/* /v1/chat/completions. Adds what chats need to an API call: one prompt, rendered by the model's
 * template, whose choices are parsed into reasoning, content and tool calls. */
#include "server/api/call/endpoints.h"

#include "server/api/call/api_call_format.h"
#include "server/api/call/api_call_type.h"
#include "server/api/chat/chat_format.h"
#include "server/api/conversation/chat_generation.h"
#include "server/api/chat/chat_body.h"
#include "server/api/call/logprob_format.h"
#include "config/json/json_write.h"
#include "server/api/conversation/chat_model.h"

#include <stdlib.h>
#include <string.h>

struct chat_api_call {
    struct api_call base; /* first: see api_call_type.h */
    bool include_usage, continuous_usage, return_token_ids, shows_ids, has_timings;
    int32_t num_logprobs, num_prompt_logprobs; /* as requested; -1: none */
    bool lists_logprobs;                       /* of the tokens that the request names */
    int32_t num_returned;                      /* n */
    enum tool_choice tool_choice;
    bool has_functions;               /* tool calls are written in the old form (chat_body.h) */
    struct byte_buffer prompt_scores; /* prompt_logprobs only */
    struct byte_buffer prompt_ids;    /* return_token_ids only */
    bool may_reason;                  /* the model's reasoning is parsed */
    bool has_prompt_sent; /* the chunk of a stream that has the prompt's own fields was sent */
    struct chat_choice *choices; /* [num_choices] */
    char *names;                 /* of the choices (chat_generation.h) */
};

/* --- From a body to a request --- */

/* Begins a choice with the last message, if the body has echo and the choice continues that
 * message. */
static void echo_final(const struct conversation *conversation, struct chat_choice *choice) {
    const struct message *last = conversation_last(conversation);
    if (conversation->echo && last->role == MESSAGE_ASSISTANT && last->num_parts == 1)
        byte_buffer_append_text(&choice->content, last->parts[0]);
}

static int init_choices(const struct conversation *conversation,
                        const struct chat_choice_config *config, struct chat_api_call *call,
                        struct api_error *err) {
    for (int32_t i = 0; i < call->base.num_choices; i++) {
        chat_choice_init(&call->choices[i], config);
        echo_final(conversation, &call->choices[i]);
        if (call->choices[i].content.failed)
            return api_error_set_memory(err);
    }
    return 0;
}

static int fill(const struct api_context *context, void *parsed, struct api_call *base,
                struct api_error *err) {
    struct chat_api_call *call = (struct chat_api_call *)base;
    struct conversation *conversation = parsed;
    const struct sampling_body *sampling = &conversation->sampling;
    struct chat_generation generation;
    int32_t num_choices = sampling_body_num_choices(sampling);
    api_call_set_ignored_params(base, &conversation->ignored);
    base->is_stream = sampling->stream;
    base->timeout_ms = sampling->timeout_ms;
    call->include_usage = sampling->include_usage;
    call->continuous_usage = sampling->continuous_usage_stats;
    call->return_token_ids = sampling->return_token_ids;
    call->has_timings = conversation->timings_per_token;
    call->shows_ids = sampling->return_tokens_as_token_ids;
    call->num_logprobs = conversation_num_logprobs(conversation);
    call->lists_logprobs = sampling->lists.num_logprob_tokens > 0;
    call->num_prompt_logprobs = (int32_t)sampling->prompt_logprobs;
    call->num_returned = (int32_t)sampling->n;
    call->tool_choice = conversation->tool_choice;
    call->has_functions = conversation->has_functions;
    call->may_reason = context->chat != NULL && context->chat->reasoning != REASONING_FORMAT_NONE;
    if (api_call_set_id(base, sampling->request_id, err) != 0 ||
        api_call_set_size(base, 1, num_choices, err) != 0 ||
        api_call_set_slot(context, base, sampling->id_slot, err) != 0)
        return -1;
    call->choices = calloc((size_t)num_choices, sizeof(*call->choices));
    if (call->choices == NULL || base->ignored.failed)
        return api_error_set_memory(err);
    if (chat_generation_create(context, conversation, &generation, err) != 0)
        return -1;
    base->prompts[0].request = generation.request;
    api_call_set_transfer(context, base, &sampling->transfer);
    generation.request->reports_progress = conversation->return_progress && sampling->stream;
    call->names = generation.names;
    if (call->return_token_ids)
        api_call_add_prompt_ids(generation.request, &call->prompt_ids);
    if (call->prompt_ids.failed)
        return api_error_set_memory(err);
    return init_choices(conversation, &generation.config, call, err);
}

static void finish(struct api_call *base) {
    struct chat_api_call *call = (struct chat_api_call *)base;
    for (int32_t i = 0; call->choices != NULL && i < base->num_choices; i++)
        chat_choice_finish(&call->choices[i]);
    byte_buffer_finish(&call->prompt_scores);
    byte_buffer_finish(&call->prompt_ids);
    free(call->choices);
    free(call->names);
}

/* --- From events to the answer --- */

static int add_scores(struct api_call *base, int32_t index, const struct token_event *event) {
    struct chat_api_call *call = (struct chat_api_call *)base;
    (void)index;
    if (call->num_prompt_logprobs >= 0)
        logprob_format_prompt(base->tokenizer, event, call->num_prompt_logprobs,
                              &call->prompt_scores);
    return call->prompt_scores.failed ? -1 : 0;
}

static int add_text(struct api_call *base, int32_t index, const struct token_event *event) {
    struct chat_api_call *call = (struct chat_api_call *)base;
    struct chat_choice *choice = &call->choices[index];
    if (call->return_token_ids)
        api_call_add_token_ids(event->tokens, event->num_tokens, &choice->token_ids);
    if (call->num_logprobs >= 0)
        logprob_format_chat(
            base->tokenizer, event, call->lists_logprobs ? LOGPROBS_LISTED : call->num_logprobs,
            call->shows_ids ? LOGPROB_IDS_AS_NAMES : LOGPROB_NAMES, &choice->logprobs);
    if (choice->token_ids.failed || choice->logprobs.failed)
        return -1;
    return chat_choice_add(choice, event);
}

/* --- From the answer to bytes --- */

static struct api_call_usage total_usage(const struct chat_api_call *call) {
    struct api_call_usage usage = api_call_total_usage(&call->base);
    for (int32_t i = 0; i < call->base.num_choices; i++)
        usage.reasoning_tokens += call->choices[i].num_reasoning_tokens;
    return usage;
}

static struct api_call_usage sent_usage(const struct chat_api_call *call) {
    struct api_call_usage usage = api_call_sent_usage(&call->base);
    for (int32_t i = 0; i < call->base.num_choices; i++) {
        int32_t num_sent = call->base.choices[i].num_sent,
                num_reasoning = call->choices[i].num_reasoning_tokens;
        usage.reasoning_tokens += num_reasoning < num_sent ? num_reasoning : num_sent;
    }
    return usage;
}

static size_t held_bytes(const struct api_call *base) {
    const struct chat_api_call *call = (const struct chat_api_call *)base;
    size_t bytes = call->prompt_scores.capacity + call->prompt_ids.capacity;
    for (int32_t i = 0; i < base->num_choices; i++)
        bytes += chat_choice_bytes(&call->choices[i]);
    return bytes;
}

/* Returns choice number `index` in the form in which it is written as number `shown` of the answer.
 * As in OpenAI's API, a tool call that was named in the request is not a finish reason, nor is an
 * incomplete one. */
static struct chat_choice_view view_of(const struct chat_api_call *call, int32_t index,
                                       int32_t shown) {
    const struct chat_choice *choice = &call->choices[index];
    bool has_tool_calls = choice->num_tool_calls > 0 && !choice->has_broken_call &&
                          call->tool_choice != TOOL_CHOICE_NAMED;
    const char *reason = call->has_functions ? "function_call" : "tool_calls";
    return (struct chat_choice_view){
        .index = shown,
        .choice = choice,
        .finish = &call->base.choices[index].finish,
        .finish_reason = has_tool_calls ? reason : NULL,
        .is_function_form = call->has_functions,
        .has_logprobs = call->num_logprobs >= 0,
        .has_token_ids = call->return_token_ids,
        .may_reason = call->may_reason,
    };
}

static void begin_chunk(struct chat_api_call *call, struct byte_buffer *out) {
    api_call_begin_frame(out);
    api_call_format_begin(&call->base.head, "chat.completion.chunk", out);
}

/* Writes the fields of the prompt, which belong to no choice; in chunks they are those of vLLM. */
static void write_prompt(const struct chat_api_call *call, struct byte_buffer *out) {
    bool has_scores = call->num_prompt_logprobs >= 0;
    if (has_scores || !call->base.is_stream)
        json_write_array_member(out, "prompt_logprobs", has_scores ? &call->prompt_scores : NULL);
    json_write_array_member(out, "prompt_token_ids",
                            call->return_token_ids ? &call->prompt_ids : NULL);
}

static void end_chunk(struct chat_api_call *call, struct byte_buffer *out) {
    api_call_format_end_choices(&call->base.head, out);
    if (!call->has_prompt_sent)
        write_prompt(call, out);
    call->has_prompt_sent = true;
    if (call->include_usage) {
        struct api_call_usage usage = sent_usage(call);
        api_call_format_usage(call->continuous_usage ? &usage : NULL, out);
    }
    if (call->has_timings)
        api_call_format_timings(&call->base, 0, call->base.num_choices, out);
    json_write_end_object(out);
    api_call_end_frame(out);
}

/* Writes an update. The role gets a separate chunk, once there is output. */
static void write_update(struct api_call *base, int32_t index, struct byte_buffer *out) {
    struct chat_api_call *call = (struct chat_api_call *)base;
    struct chat_choice *choice = &call->choices[index];
    if (!choice->has_role) {
        choice->has_role = true;
        begin_chunk(call, out);
        chat_format_role(index, out);
        end_chunk(call, out);
    }
    if (!chat_choice_has_output(choice) && !base->choices[index].is_finished)
        return;
    base->choices[index].num_sent = base->choices[index].num_generated;
    struct chat_choice_view view = view_of(call, index, index);
    begin_chunk(call, out);
    chat_format_delta(&view, out);
    end_chunk(call, out);
    chat_choice_clear(choice);
}

static void write_progress(struct api_call *base, int32_t prompt, const struct token_event *event,
                           struct byte_buffer *out) {
    begin_chunk((struct chat_api_call *)base, out);
    api_call_format_end_choices(&base->head, out);
    api_call_format_progress(base, prompt, event, out);
    json_write_end_object(out);
    api_call_end_frame(out);
}

static void write_end(struct api_call *base, struct byte_buffer *out) {
    struct chat_api_call *call = (struct chat_api_call *)base;
    if (call->include_usage) {
        struct api_call_usage usage = total_usage(call);
        begin_chunk(call, out);
        api_call_format_end_choices(&base->head, out);
        api_call_format_usage(&usage, out);
        json_write_end_object(out);
        api_call_end_frame(out);
    }
    api_call_write_done(out);
}

/* Writes the answer: with best_of the best choices first, otherwise all of them in order. */
static void write_body(struct api_call *base, struct byte_buffer *out) {
    struct chat_api_call *call = (struct chat_api_call *)base;
    struct api_call_usage usage = total_usage(call);
    bool selects = call->num_returned < base->num_choices;
    const struct api_call_rank *ranks = selects ? api_call_rank_choices(base, 0) : NULL;
    api_call_format_begin(&base->head, "chat.completion", out);
    for (int32_t i = 0; i < call->num_returned; i++) {
        struct chat_choice_view view = view_of(call, selects ? ranks[i].choice : i, i);
        chat_format_choice(&view, out);
    }
    api_call_format_end_choices(&base->head, out);
    write_prompt(call, out);
    api_call_format_usage(&usage, out);
    api_call_format_transfer(base, out);
    if (call->has_timings)
        api_call_format_timings(base, 0, base->num_choices, out);
    json_write_end_object(out);
}

static const struct api_call_operations operations = {
    .size = sizeof(struct chat_api_call),
    .id_prefix = "chatcmpl-",
    .fill = fill,
    .add_prompt = add_scores,
    .write_progress = write_progress,
    .add = add_text,
    .write_update = write_update,
    .write_end = write_end,
    .write_error = api_call_write_error,
    .write_body = write_body,
    .held_bytes = held_bytes,
    .finish = finish,
};

int chat_endpoint_parse(const struct api_context *context, const char *text, size_t length,
                        struct api_call **out, struct api_error *err) {
    struct conversation conversation;
    if (chat_body_parse(context, text, length, &conversation, err) != 0)
        return -1;
    int result = api_call_create(&operations, context, &conversation, out, err);
    conversation_finish(&conversation);
    return result;
}
