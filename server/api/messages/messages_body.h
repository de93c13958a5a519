/* The body of POST /v1/messages as a conversation. After the types of Anthropic's Python SDK
 * (types/message_create_params.py and what it refers to, 2.14.0). */
#ifndef QUIRE_SERVER_API_MESSAGES_MESSAGES_BODY_H
#define QUIRE_SERVER_API_MESSAGES_MESSAGES_BODY_H

#include "server/api/call/api_context.h"
#include "server/api/conversation/conversation.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#define MESSAGES_MAX_USER_ID_BYTES 512

/* Reads the body. On success *out refers into it, so the body must outlive it;
 * conversation_finish. counts_only: the answer is a number of tokens, and max_tokens may be
 * missing. On failure -1 and *err, nothing to free. */
int messages_body_read(const struct api_context *context, const cJSON *body, bool counts_only,
                       struct conversation *out, struct api_error *err);

/* Returns whether the thinking is to be left out of its blocks (thinking.display "omitted"). */
bool messages_body_omits_thinking(const cJSON *body);

#endif
