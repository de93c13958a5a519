#include "server/api/completion_format.h"

#include "server/json/json_write.h"

void completion_format_begin(const struct completion_head *head, struct byte_buffer *out) {
    byte_buffer_append_text(out, "{\"id\":");
    json_write_text(out, head->id);
    byte_buffer_append_text(out, ",\"object\":\"text_completion\",\"created\":");
    json_write_int(out, head->created);
    byte_buffer_append_text(out, ",\"model\":");
    json_write_text(out, head->model);
    byte_buffer_append_text(out, ",\"choices\":[");
}

static void write_finish(const struct completion_finish *finish, struct byte_buffer *out) {
    byte_buffer_append_text(out, ",\"finish_reason\":");
    switch (finish->reason) {
    case FINISH_STOP:
        byte_buffer_append_text(out, "\"stop\"");
        break;
    case FINISH_LENGTH:
        byte_buffer_append_text(out, "\"length\"");
        break;
    default:
        byte_buffer_append_text(out, "null");
    }
    byte_buffer_append_text(out, ",\"stop_reason\":");
    if (finish->reason == FINISH_STOP && finish->stop_string.data != NULL)
        json_write_string(out, finish->stop_string.data, finish->stop_string.length);
    else if (finish->reason == FINISH_STOP && finish->stop_token >= 0)
        json_write_int(out, finish->stop_token);
    else
        byte_buffer_append_text(out, "null");
}

void completion_format_choice(int32_t index, const struct byte_buffer *text,
                              const struct logprob_list *logprobs,
                              const struct completion_finish *finish, struct byte_buffer *out) {
    byte_buffer_append_text(out, "{\"index\":");
    json_write_int(out, index);
    byte_buffer_append_text(out, ",\"text\":");
    json_write_string(out, text->data, text->length);
    byte_buffer_append_text(out, ",\"logprobs\":");
    if (logprobs != NULL)
        logprob_list_format(logprobs, out);
    else
        byte_buffer_append_text(out, "null");
    write_finish(finish, out);
    byte_buffer_append(out, "}", 1);
}

void completion_format_end_no_usage(const struct completion_head *head, struct byte_buffer *out) {
    byte_buffer_append_text(out, "],\"system_fingerprint\":");
    json_write_text(out, head->system_fingerprint);
    byte_buffer_append(out, "}", 1);
}

void completion_format_end_null_usage(const struct completion_head *head, struct byte_buffer *out) {
    byte_buffer_append_text(out, "],\"system_fingerprint\":");
    json_write_text(out, head->system_fingerprint);
    byte_buffer_append_text(out, ",\"usage\":null}");
}

void completion_format_end(const struct completion_head *head, const struct completion_usage *usage,
                           struct byte_buffer *out) {
    byte_buffer_append_text(out, "],\"system_fingerprint\":");
    json_write_text(out, head->system_fingerprint);
    byte_buffer_append_text(out, ",\"usage\":{\"prompt_tokens\":");
    json_write_int(out, usage->prompt_tokens);
    byte_buffer_append_text(out, ",\"completion_tokens\":");
    json_write_int(out, usage->completion_tokens);
    byte_buffer_append_text(out, ",\"total_tokens\":");
    json_write_int(out, usage->prompt_tokens + usage->completion_tokens);
    byte_buffer_append_text(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    json_write_int(out, usage->cached_tokens);
    byte_buffer_append_text(out, "}}}");
}
