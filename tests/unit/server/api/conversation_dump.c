#include "tests/unit/server/api/conversation_dump.h"

#include "config/json/json_write.h"

static void dump_call(const struct message_call *call, struct byte_buffer *out) {
    struct byte_buffer text = {0};
    if (call->text != NULL)
        byte_buffer_append_text(&text, call->text);
    else if (call->object != NULL)
        json_write_tree(&text, call->object);
    byte_buffer_printf(out, call->is_custom ? " %s<%.*s>#%s" : " %s(%.*s)#%s", call->name,
                       (int)text.length, text.data, call->id);
    byte_buffer_finish(&text);
}

static void dump_message(const struct message *message, struct byte_buffer *out) {
    byte_buffer_append_text(out, message->role_name);
    for (int i = 0; i < message->num_parts; i++)
        byte_buffer_printf(out, "%c%s", i == 0 ? '[' : '|', message->parts[i]);
    byte_buffer_append_text(out, !message->has_content     ? " null"
                                 : message->num_parts == 0 ? "[]"
                                                           : "]");
    if (message->reasoning != NULL)
        byte_buffer_printf(out, " (%s)", message->reasoning);
    for (int i = 0; i < message->num_calls; i++)
        dump_call(&message->calls[i], out);
    if (message->tool_call_id != NULL)
        byte_buffer_printf(out, " #%s", message->tool_call_id);
    byte_buffer_append_text(out, "\n");
}

static void dump_choice(const struct conversation *conversation, struct byte_buffer *out) {
    static const char *const words[] = {"none", "auto", "required", "named"};
    if (conversation->num_tools == 0 && conversation->tool_choice == TOOL_CHOICE_NONE)
        return;
    byte_buffer_printf(out, "choice %s%s", words[conversation->tool_choice],
                       conversation->allows_parallel ? "" : ", one call");
    for (int i = 0; i < conversation->num_tools; i++)
        if (!conversation->tools[i].is_allowed)
            byte_buffer_printf(out, ", not %s", conversation->tools[i].name);
    byte_buffer_append_text(out, "\n");
}

static void dump_settings(const struct conversation *conversation, struct byte_buffer *out) {
    const struct sampling_body *sampling = &conversation->sampling;
    if (conversation->continue_final_message)
        byte_buffer_append_text(out, "continues\n");
    if (conversation->thinking != THINKING_AS_IS)
        byte_buffer_printf(out, "thinking %s\n",
                           conversation->thinking == THINKING_ON ? "on" : "off");
    if (conversation->thinking_token_budget >= 0)
        byte_buffer_printf(out, "budget %d\n", (int)conversation->thinking_token_budget);
    if (conversation->reasoning_effort != NULL)
        byte_buffer_printf(out, "effort %s\n", conversation->reasoning_effort);
    if (conversation->logprobs)
        byte_buffer_printf(out, "logprobs %d\n", (int)conversation->top_logprobs);
    if (sampling->max_tokens != SAMPLING_TO_THE_END)
        byte_buffer_printf(out, "max %d\n", (int)sampling->max_tokens);
    for (int i = 0; i < sampling->lists.num_stop_strings; i++)
        byte_buffer_printf(out, "stop %s\n", sampling->lists.stop_strings[i].data);
    byte_buffer_append_text(out, sampling->grammar != NULL ? "form\n" : "");
}

void conversation_dump(const struct conversation *conversation, struct byte_buffer *out) {
    for (int i = 0; i < conversation->num_messages; i++)
        dump_message(&conversation->messages[i], out);
    for (int i = 0; i < conversation->num_tools; i++) {
        struct byte_buffer tool = {0};
        json_write_tree(&tool, conversation->tools[i].shown);
        byte_buffer_printf(out, "%s %.*s\n",
                           conversation->tools[i].kind == TOOL_CUSTOM ? "custom" : "function",
                           (int)tool.length, tool.data);
        byte_buffer_finish(&tool);
    }
    dump_choice(conversation, out);
    dump_settings(conversation, out);
    const struct byte_buffer *ignored = &conversation->ignored;
    if (ignored->length > 0)
        byte_buffer_printf(out, "ignored %.*s\n", (int)ignored->length, ignored->data);
    byte_buffer_append(out, "", 1);
}
