#include "server/api/chat/chat_format.h"

#include "server/api/call/api_call_format.h"
#include "config/json/json_write.h"

/* Writes reasoning under vLLM's name and under the older name, which others still use. */
static void write_reasoning(const struct byte_buffer *reasoning, struct byte_buffer *out) {
    json_write_string_member(out, "reasoning", reasoning);
    json_write_string_member(out, "reasoning_content", reasoning);
}

static const char *kind_of(const struct chat_tool_call *call) {
    return call->is_custom ? "custom" : "function";
}

/* Writes what is new of a tool call's function or custom tool. */
static void write_function(const char *key, const struct chat_tool_call *call,
                           struct byte_buffer *out) {
    json_write_key(out, key);
    json_write_begin_object(out);
    if (!call->is_begun)
        json_write_string_member(out, "name", &call->name);
    json_write_string_member(out, call->is_custom ? "input" : "arguments", &call->arguments);
    json_write_end_object(out);
}

static void write_tool_call(const struct chat_tool_call *call, struct byte_buffer *out) {
    if (!call->is_begun) {
        json_write_text_member(out, "id", call->id);
        json_write_text_member(out, "type", kind_of(call));
    }
    write_function(kind_of(call), call, out);
}

static void write_tool_calls(const struct chat_choice *choice, struct byte_buffer *out) {
    json_write_key(out, "tool_calls");
    json_write_begin_array(out);
    for (int32_t i = 0; i < choice->num_tool_calls; i++) {
        json_write_begin_object(out);
        write_tool_call(&choice->tool_calls[i], out);
        json_write_end_object(out);
    }
    json_write_end_array(out);
}

static void write_message(const struct chat_choice_view *view, struct byte_buffer *out) {
    const struct chat_choice *choice = view->choice;
    bool says_else = choice->num_tool_calls > 0 || choice->reasoning.length > 0;
    json_write_begin_object(out);
    json_write_text_member(out, "role", "assistant");
    if (choice->content.length == 0 && says_else)
        json_write_raw_member(out, "content", "null");
    else
        json_write_string_member(out, "content", &choice->content);
    json_write_raw_member(out, "refusal", "null");
    if (choice->reasoning.length > 0) {
        write_reasoning(&choice->reasoning, out);
    } else if (view->may_reason) {
        json_write_raw_member(out, "reasoning", "null");
        json_write_raw_member(out, "reasoning_content", "null");
    }
    if (choice->num_tool_calls > 0 && view->is_function_form)
        write_function("function_call", &choice->tool_calls[0], out);
    else if (choice->num_tool_calls > 0)
        write_tool_calls(choice, out);
    json_write_end_object(out);
}

static void write_logprobs(const struct chat_choice_view *view, struct byte_buffer *out) {
    json_write_key(out, "logprobs");
    if (!view->has_logprobs) {
        json_write_null(out);
        return;
    }
    json_write_begin_object(out);
    json_write_array_member(out, "content", &view->choice->logprobs);
    json_write_raw_member(out, "refusal", "null");
    json_write_end_object(out);
}

static void begin_choice(int32_t index, const char *key, struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_int_member(out, "index", index);
    json_write_key(out, key);
}

static void end_choice(const struct chat_choice_view *view, struct byte_buffer *out) {
    write_logprobs(view, out);
    api_call_format_finish(view->finish, view->finish_reason, out);
    json_write_array_member(out, "token_ids",
                            view->has_token_ids ? &view->choice->token_ids : NULL);
    json_write_end_object(out);
}

void chat_format_choice(const struct chat_choice_view *view, struct byte_buffer *out) {
    begin_choice(view->index, "message", out);
    write_message(view, out);
    end_choice(view, out);
}

static bool has_output(const struct chat_tool_call *call) {
    return !call->is_begun || call->arguments.length > 0;
}

static void write_tool_call_delta(const struct chat_tool_call *call, int32_t index,
                                  struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_int_member(out, "index", index);
    write_tool_call(call, out);
    json_write_end_object(out);
}

static void write_tool_call_deltas(const struct chat_choice *choice, struct byte_buffer *out) {
    bool is_begun = false;
    for (int32_t i = 0; i < choice->num_tool_calls; i++) {
        if (!has_output(&choice->tool_calls[i]))
            continue;
        if (!is_begun) {
            json_write_key(out, "tool_calls");
            json_write_begin_array(out);
        }
        is_begun = true;
        write_tool_call_delta(&choice->tool_calls[i], i, out);
    }
    if (is_begun)
        json_write_end_array(out);
}

void chat_format_delta(const struct chat_choice_view *view, struct byte_buffer *out) {
    const struct chat_choice *choice = view->choice;
    begin_choice(view->index, "delta", out);
    json_write_begin_object(out);
    if (choice->reasoning.length > 0)
        write_reasoning(&choice->reasoning, out);
    if (choice->content.length > 0)
        json_write_string_member(out, "content", &choice->content);
    if (!view->is_function_form)
        write_tool_call_deltas(choice, out);
    else if (choice->num_tool_calls > 0 && has_output(&choice->tool_calls[0]))
        write_function("function_call", &choice->tool_calls[0], out);
    json_write_end_object(out);
    end_choice(view, out);
}

void chat_format_role(int32_t index, struct byte_buffer *out) {
    begin_choice(index, "delta", out);
    json_write_begin_object(out);
    json_write_text_member(out, "role", "assistant");
    json_write_text_member(out, "content", "");
    json_write_end_object(out);
    json_write_raw_member(out, "logprobs", "null");
    json_write_raw_member(out, "finish_reason", "null");
    json_write_end_object(out);
}
