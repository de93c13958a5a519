/* Writes the JSON that the answers of completions and chats have in common. */
#ifndef QUIRE_SERVER_API_CALL_API_CALL_FORMAT_H
#define QUIRE_SERVER_API_CALL_API_CALL_FORMAT_H

#include "server/api/call/api_call_type.h"

/* Begins an answer, up to the first of its choices:
 * {"id":...,"object":...,"created":...,"model":...,"choices":[ */
void api_call_format_begin(const struct api_call_head *head, const char *object,
                           struct byte_buffer *out);
/* Ends the choices: ],"system_fingerprint":... */
void api_call_format_end_choices(const struct api_call_head *head, struct byte_buffer *out);
/* Write members of an object: "finish_reason" and "stop_reason" in OpenAI's and vLLM's terms, where
 * reason is the one to write instead of "stop" ("tool_calls"), or NULL; and "usage", NULL as
 * null. */
void api_call_format_finish(const struct api_call_finish *finish, const char *reason,
                            struct byte_buffer *out);
void api_call_format_usage(const struct api_call_usage *usage, struct byte_buffer *out);
/* Writes "kv_transfer_params" of a call that hands its prompts over, of the longest of them;
 * otherwise nothing. */
void api_call_format_transfer(const struct api_call *call, struct byte_buffer *out);
/* Writes llama.cpp's member "timings" of num_choices choices: how long their prompts and their
 * tokens have taken so far. */
void api_call_format_timings(const struct api_call *call, int32_t first_choice, int32_t num_choices,
                             struct byte_buffer *out);

/* Writes llama.cpp's member "prompt_progress" of a prompt. */
void api_call_format_progress(const struct api_call *call, int32_t prompt,
                              const struct token_event *event, struct byte_buffer *out);

/* Writes the arguments of a tool call, which are a text, as an object: {} if they were cut off and
 * are not one. */
void api_call_format_arguments(const struct byte_buffer *text, struct byte_buffer *out);

/* Append token ids as items of an array. */
void api_call_add_token_ids(const struct token_record *tokens, int32_t num_tokens,
                            struct byte_buffer *items);
void api_call_add_prompt_ids(const struct request *request, struct byte_buffer *items);

#endif
