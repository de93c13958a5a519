#include "server/api/completions/completion_format.h"

#include "server/api/api_call_format.h"
#include "server/json/json_write.h"

void completion_format_begin(const struct api_call_head *head, struct byte_buffer *out) {
    api_call_format_head(head, "text_completion", out);
    byte_buffer_append_text(out, ",\"choices\":[");
}

void completion_format_choice(const struct completion_choice *choice, struct byte_buffer *out) {
    byte_buffer_append_text(out, "{\"index\":");
    json_write_int(out, choice->index);
    byte_buffer_append_text(out, ",\"text\":");
    json_write_string(out, choice->text->data, choice->text->length);
    byte_buffer_append_text(out, ",\"logprobs\":");
    if (choice->logprobs != NULL)
        logprob_list_format(choice->logprobs, out);
    else
        byte_buffer_append_text(out, "null");
    api_call_format_finish(choice->finish, NULL, out);
    if (choice->prompt_logprobs != NULL || !choice->is_chunk)
        api_call_format_list("prompt_logprobs", choice->prompt_logprobs, out);
    api_call_format_list("token_ids", choice->token_ids, out);
    api_call_format_list("prompt_token_ids", choice->prompt_token_ids, out);
    byte_buffer_append(out, "}", 1);
}

void completion_format_end(const struct api_call_head *head, struct byte_buffer *out) {
    byte_buffer_append_text(out, "]");
    api_call_format_fingerprint(head, out);
    byte_buffer_append(out, "}", 1);
}

void completion_format_end_usage(const struct api_call_head *head,
                                 const struct api_call_usage *usage, struct byte_buffer *out) {
    byte_buffer_append_text(out, "]");
    api_call_format_fingerprint(head, out);
    byte_buffer_append_text(out, ",\"usage\":");
    api_call_format_usage(usage, out);
    byte_buffer_append(out, "}", 1);
}
