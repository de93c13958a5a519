#include "server/api/api_call_format.h"

#include "server/json/json_write.h"

void api_call_format_head(const struct api_call_head *head, const char *object,
                          struct byte_buffer *out) {
    byte_buffer_append_text(out, "{\"id\":");
    json_write_text(out, head->id);
    byte_buffer_append_text(out, ",\"object\":");
    json_write_text(out, object);
    byte_buffer_append_text(out, ",\"created\":");
    json_write_int(out, head->created);
    byte_buffer_append_text(out, ",\"model\":");
    json_write_text(out, head->model);
}

static const char *reason_word(const struct api_call_finish *finish, const char *instead) {
    switch (finish->reason) {
    case FINISH_STOP:
        return instead != NULL ? instead : "stop";
    case FINISH_LENGTH:
        return "length";
    default:
        return NULL;
    }
}

void api_call_format_finish(const struct api_call_finish *finish, const char *reason,
                            struct byte_buffer *out) {
    byte_buffer_append_text(out, ",\"finish_reason\":");
    json_write_text(out, reason_word(finish, reason));
    byte_buffer_append_text(out, ",\"stop_reason\":");
    if (finish->reason == FINISH_STOP && finish->stop_string.data != NULL)
        json_write_string(out, finish->stop_string.data, finish->stop_string.length);
    else if (finish->reason == FINISH_STOP && finish->stop_token >= 0)
        json_write_int(out, finish->stop_token);
    else
        byte_buffer_append_text(out, "null");
}

void api_call_format_fingerprint(const struct api_call_head *head, struct byte_buffer *out) {
    byte_buffer_append_text(out, ",\"system_fingerprint\":");
    json_write_text(out, head->system_fingerprint);
}

void api_call_format_usage(const struct api_call_usage *usage, struct byte_buffer *out) {
    if (usage == NULL) {
        byte_buffer_append_text(out, "null");
        return;
    }
    byte_buffer_append_text(out, "{\"prompt_tokens\":");
    json_write_int(out, usage->prompt_tokens);
    byte_buffer_append_text(out, ",\"completion_tokens\":");
    json_write_int(out, usage->completion_tokens);
    byte_buffer_append_text(out, ",\"total_tokens\":");
    json_write_int(out, usage->prompt_tokens + usage->completion_tokens);
    byte_buffer_append_text(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    json_write_int(out, usage->cached_tokens);
    byte_buffer_append(out, "}", 1);
    if (usage->reasoning_tokens > 0) {
        byte_buffer_append_text(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":");
        json_write_int(out, usage->reasoning_tokens);
        byte_buffer_append(out, "}", 1);
    }
    byte_buffer_append(out, "}", 1);
}

void api_call_format_list(const char *name, const struct byte_buffer *entries,
                          struct byte_buffer *out) {
    byte_buffer_printf(out, ",\"%s\":%s", name, entries != NULL ? "[" : "null");
    if (entries == NULL)
        return;
    byte_buffer_append(out, entries->data, entries->length);
    byte_buffer_append(out, "]", 1);
}

static void add_id(int32_t id, struct byte_buffer *entries) {
    if (entries->length > 0)
        byte_buffer_append(entries, ",", 1);
    json_write_int(entries, id);
}

void api_call_add_token_ids(const struct token_record *tokens, int32_t num_tokens,
                            struct byte_buffer *entries) {
    for (int32_t i = 0; i < num_tokens; i++)
        add_id(tokens[i].token, entries);
}

void api_call_add_prompt_ids(const struct request *request, struct byte_buffer *entries) {
    for (int32_t i = 0; i < request->num_prompt_tokens; i++)
        add_id(request->prompt[i], entries);
}
