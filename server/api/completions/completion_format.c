#include "server/api/completions/completion_format.h"

#include "server/api/api_call_format.h"
#include "server/json/json_write.h"

void completion_format_begin(const struct api_call_head *head, struct byte_buffer *out) {
    api_call_format_begin(head, "text_completion", out);
}

void completion_format_choice(const struct completion_choice *choice, struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_int_member(out, "index", choice->index);
    json_write_string_member(out, "text", choice->text);
    json_write_key(out, "logprobs");
    if (choice->logprobs != NULL)
        logprob_list_format(choice->logprobs, out);
    else
        json_write_null(out);
    api_call_format_finish(choice->finish, NULL, out);
    if (choice->prompt_logprobs != NULL || !choice->is_chunk)
        json_write_array_member(out, "prompt_logprobs", choice->prompt_logprobs);
    json_write_array_member(out, "token_ids", choice->token_ids);
    json_write_array_member(out, "prompt_token_ids", choice->prompt_token_ids);
    json_write_end_object(out);
}

void completion_format_end(const struct api_call_head *head, struct byte_buffer *out) {
    api_call_format_end_choices(head, out);
    json_write_end_object(out);
}

void completion_format_end_usage(const struct api_call_head *head,
                                 const struct api_call_usage *usage, struct byte_buffer *out) {
    api_call_format_end_choices(head, out);
    api_call_format_usage(usage, out);
    json_write_end_object(out);
}
