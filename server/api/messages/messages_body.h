/* The body of POST /v1/messages as that of a chat: the same request in the words of
 * /v1/chat/completions, so that everything behind it is shared. After the types of Anthropic's
 * Python SDK (types/message_create_params.py and what it refers to, 2.14.0). */
#ifndef QUIRE_SERVER_API_MESSAGES_MESSAGES_BODY_H
#define QUIRE_SERVER_API_MESSAGES_MESSAGES_BODY_H

#include "server/api/call/api_context.h"
#include "server/api/chat/chat_body.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#define MESSAGES_MAX_USER_ID_BYTES 512

/* Reads the body as a chat's; the errors name this body's fields. On success *out refers into body,
 * which must outlive it. counts_only: the answer is a number of tokens, and max_tokens may be
 * missing. On failure -1 and *err, nothing to free. */
int messages_body_read(const struct api_context *context, const cJSON *body, bool counts_only,
                       struct chat_body *out, struct api_error *err);

/* Renames an error of a chat that was made of what this has read. */
void messages_body_rename_error(struct api_error *err);

/* The part of it that makes the tree. system and messages become messages; tools, tool_choice,
 * stop_sequences, thinking and output_config get the chat's names and shapes; fields the chat does
 * not know either are passed on, so that they are named as ignored, or refused. A last message of
 * the assistant is continued. NULL and *err on failure: 400 with the path in this body as param, or
 * 503 when memory is short. cJSON_Delete frees the result, which refers into body. */
cJSON *messages_body_to_chat(const struct api_context *context, const cJSON *body, bool counts_only,
                             struct api_error *err);

/* Returns whether the thinking is to be left out of its blocks (thinking.display "omitted"). */
bool messages_body_omits_thinking(const cJSON *body);

#endif
