/* The JSON that the answers of completions and chats have in common. */
#ifndef QUIRE_SERVER_API_API_CALL_FORMAT_H
#define QUIRE_SERVER_API_API_CALL_FORMAT_H

#include "server/api/api_call_type.h"

/* {"id":...,"object":...,"created":...,"model":... */
void api_call_format_head(const struct api_call_head *head, const char *object,
                          struct byte_buffer *out);
/* ,"finish_reason":...,"stop_reason":... in OpenAI's and vLLM's words. reason: the word instead
 * of "stop", or NULL ("tool_calls"). */
void api_call_format_finish(const struct api_call_finish *finish, const char *reason,
                            struct byte_buffer *out);
/* ,"system_fingerprint":... */
void api_call_format_fingerprint(const struct api_call_head *head, struct byte_buffer *out);
/* The usage object; NULL: null. */
void api_call_format_usage(const struct api_call_usage *usage, struct byte_buffer *out);
/* ,"NAME":[...] of comma-separated entries; NULL: null. */
void api_call_format_list(const char *name, const struct byte_buffer *entries,
                          struct byte_buffer *out);

/* Appends token ids to such entries. */
void api_call_add_token_ids(const struct token_record *tokens, int32_t num_tokens,
                            struct byte_buffer *entries);
void api_call_add_prompt_ids(const struct request *request, struct byte_buffer *entries);

#endif
