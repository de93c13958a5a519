/* The JSON of chat.completion and chat.completion.chunk objects. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_FORMAT_H
#define QUIRE_SERVER_API_CHAT_CHAT_FORMAT_H

#include "server/api/call/api_call_type.h"
#include "server/api/conversation/chat_choice.h"

#include <stdbool.h>
#include <stdint.h>

/* A choice and how it is shown. */
struct chat_choice_view {
    int32_t index;
    const struct chat_choice *choice;
    const struct api_call_finish *finish;
    const char *finish_reason; /* instead of "stop", or NULL */
    bool is_function_form;     /* its only tool call is written as function_call */
    bool has_logprobs, has_token_ids;
    bool may_reason; /* a message without reasoning has it as null */
};

/* Writes {"index","message":{...},"logprobs","finish_reason","stop_reason","token_ids"}. */
void chat_format_choice(const struct chat_choice_view *view, struct byte_buffer *out);
/* Writes the same with the delta since the last one. The name and id of a tool call are in its
 * first delta only, because clients append what they get twice. */
void chat_format_delta(const struct chat_choice_view *view, struct byte_buffer *out);
/* Writes the first delta of a choice: its role, and content "". */
void chat_format_role(int32_t index, struct byte_buffer *out);

#endif
