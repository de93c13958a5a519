#include "server/api/api_call_format.h"

#include "server/json/json_write.h"

#include <string.h>

void api_call_format_begin(const struct api_call_head *head, const char *object,
                           struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_text_member(out, "id", head->id);
    json_write_text_member(out, "object", object);
    json_write_int_member(out, "created", head->created);
    json_write_text_member(out, "model", head->model);
    json_write_key(out, "choices");
    json_write_begin_array(out);
}

void api_call_format_end_choices(const struct api_call_head *head, struct byte_buffer *out) {
    json_write_end_array(out);
    json_write_text_member(out, "system_fingerprint", head->system_fingerprint);
}

static const char *reason_word(const struct api_call_finish *finish, const char *instead) {
    switch (finish->reason) {
    case FINISH_STOP:
        return instead != NULL ? instead : "stop";
    case FINISH_LENGTH:
    case FINISH_DEADLINE: /* OpenAI has no word for it, and clients check the word */
        return "length";
    default:
        return NULL;
    }
}

void api_call_format_finish(const struct api_call_finish *finish, const char *reason,
                            struct byte_buffer *out) {
    json_write_text_member(out, "finish_reason", reason_word(finish, reason));
    json_write_key(out, "stop_reason");
    if (finish->reason == FINISH_STOP && finish->stop_string.data != NULL)
        json_write_string(out, finish->stop_string.data, finish->stop_string.length);
    else if (finish->reason == FINISH_STOP && finish->stop_token >= 0)
        json_write_int(out, finish->stop_token);
    else if (finish->reason == FINISH_DEADLINE)
        json_write_string(out, "deadline", strlen("deadline"));
    else
        json_write_null(out);
}

void api_call_format_usage(const struct api_call_usage *usage, struct byte_buffer *out) {
    json_write_key(out, "usage");
    if (usage == NULL) {
        json_write_null(out);
        return;
    }
    json_write_begin_object(out);
    json_write_int_member(out, "prompt_tokens", usage->prompt_tokens);
    json_write_int_member(out, "completion_tokens", usage->completion_tokens);
    json_write_int_member(out, "total_tokens", usage->prompt_tokens + usage->completion_tokens);
    json_write_key(out, "prompt_tokens_details");
    json_write_begin_object(out);
    json_write_int_member(out, "cached_tokens", usage->cached_tokens);
    json_write_end_object(out);
    if (usage->reasoning_tokens > 0) {
        json_write_key(out, "completion_tokens_details");
        json_write_begin_object(out);
        json_write_int_member(out, "reasoning_tokens", usage->reasoning_tokens);
        json_write_end_object(out);
    }
    json_write_end_object(out);
}

void api_call_add_token_ids(const struct token_record *tokens, int32_t num_tokens,
                            struct byte_buffer *items) {
    for (int32_t i = 0; i < num_tokens; i++)
        json_write_int(items, tokens[i].token);
}

void api_call_add_prompt_ids(const struct request *request, struct byte_buffer *items) {
    for (int32_t i = 0; i < request->num_prompt_tokens; i++)
        json_write_int(items, request->prompt[i]);
}
