#include "server/api/chat/chat_format.h"

#include "server/api/api_call_format.h"
#include "server/json/json_write.h"

static void write_buffer(const struct byte_buffer *text, struct byte_buffer *out) {
    json_write_string(out, text->data, text->length);
}

/* vLLM's name and the one it had before, which others still use. */
static void write_reasoning(const struct byte_buffer *reasoning, const char *comma,
                            struct byte_buffer *out) {
    byte_buffer_append_text(out, comma);
    byte_buffer_append_text(out, "\"reasoning\":");
    write_buffer(reasoning, out);
    byte_buffer_append_text(out, ",\"reasoning_content\":");
    write_buffer(reasoning, out);
}

static void write_tool_call(const struct chat_tool_call *call, struct byte_buffer *out) {
    byte_buffer_append_text(out, "\"id\":");
    json_write_text(out, call->id);
    byte_buffer_append_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
    write_buffer(&call->name, out);
    byte_buffer_append_text(out, ",\"arguments\":");
    write_buffer(&call->arguments, out);
    byte_buffer_append(out, "}", 1);
}

static void write_tool_calls(const struct chat_choice *choice, struct byte_buffer *out) {
    byte_buffer_append_text(out, ",\"tool_calls\":[");
    for (int32_t i = 0; i < choice->num_tool_calls; i++) {
        byte_buffer_append_text(out, i > 0 ? ",{" : "{");
        write_tool_call(&choice->tool_calls[i], out);
        byte_buffer_append(out, "}", 1);
    }
    byte_buffer_append(out, "]", 1);
}

static void write_message(const struct chat_choice_view *view, struct byte_buffer *out) {
    const struct chat_choice *choice = view->choice;
    bool says_else = choice->num_tool_calls > 0 || choice->reasoning.length > 0;
    byte_buffer_append_text(out, "{\"role\":\"assistant\",\"content\":");
    if (choice->content.length == 0 && says_else)
        byte_buffer_append_text(out, "null");
    else
        write_buffer(&choice->content, out);
    byte_buffer_append_text(out, ",\"refusal\":null");
    if (choice->reasoning.length > 0)
        write_reasoning(&choice->reasoning, ",", out);
    else if (view->may_reason)
        byte_buffer_append_text(out, ",\"reasoning\":null,\"reasoning_content\":null");
    if (choice->num_tool_calls > 0)
        write_tool_calls(choice, out);
    byte_buffer_append(out, "}", 1);
}

static void write_rest(const struct chat_choice_view *view, struct byte_buffer *out) {
    byte_buffer_append_text(out, ",\"logprobs\":");
    if (view->has_logprobs) {
        byte_buffer_append_text(out, "{\"content\":[");
        byte_buffer_append(out, view->choice->logprobs.data, view->choice->logprobs.length);
        byte_buffer_append_text(out, "],\"refusal\":null}");
    } else {
        byte_buffer_append_text(out, "null");
    }
    api_call_format_finish(view->finish, view->finish_reason, out);
    api_call_format_list("token_ids", view->has_token_ids ? &view->choice->token_ids : NULL, out);
    byte_buffer_append(out, "}", 1);
}

static void begin_choice(int32_t index, const char *what, struct byte_buffer *out) {
    byte_buffer_append_text(out, "{\"index\":");
    json_write_int(out, index);
    byte_buffer_append_text(out, what);
}

void chat_format_choice(const struct chat_choice_view *view, struct byte_buffer *out) {
    begin_choice(view->index, ",\"message\":", out);
    write_message(view, out);
    write_rest(view, out);
}

static bool has_output(const struct chat_tool_call *call) {
    return !call->is_begun || call->arguments.length > 0;
}

static void write_tool_call_delta(const struct chat_tool_call *call, int32_t index,
                                  struct byte_buffer *out) {
    begin_choice(index, ",", out);
    if (call->is_begun) {
        byte_buffer_append_text(out, "\"function\":{\"arguments\":");
        write_buffer(&call->arguments, out);
        byte_buffer_append(out, "}", 1);
    } else {
        write_tool_call(call, out);
    }
    byte_buffer_append(out, "}", 1);
}

static void write_tool_call_deltas(const struct chat_choice *choice, const char *comma,
                                   struct byte_buffer *out) {
    bool is_first = true;
    for (int32_t i = 0; i < choice->num_tool_calls; i++) {
        if (!has_output(&choice->tool_calls[i]))
            continue;
        byte_buffer_append_text(out, is_first ? comma : "");
        byte_buffer_append_text(out, is_first ? "\"tool_calls\":[" : ",");
        write_tool_call_delta(&choice->tool_calls[i], i, out);
        is_first = false;
    }
    byte_buffer_append_text(out, is_first ? "" : "]");
}

void chat_format_delta(const struct chat_choice_view *view, struct byte_buffer *out) {
    const struct chat_choice *choice = view->choice;
    begin_choice(view->index, ",\"delta\":{", out);
    const char *comma = "";
    if (choice->reasoning.length > 0) {
        write_reasoning(&choice->reasoning, comma, out);
        comma = ",";
    }
    if (choice->content.length > 0) {
        byte_buffer_append_text(out, comma);
        byte_buffer_append_text(out, "\"content\":");
        write_buffer(&choice->content, out);
        comma = ",";
    }
    write_tool_call_deltas(choice, comma, out);
    byte_buffer_append(out, "}", 1);
    write_rest(view, out);
}

void chat_format_role(int32_t index, struct byte_buffer *out) {
    begin_choice(index,
                 ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                 "\"finish_reason\":null}",
                 out);
}
