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

/* --- Its parts --- */

/* Adds system and the messages, which are lists of content blocks; the last one is continued where
 * it is the assistant's. Neighbours of one role are one message. Of an assistant's blocks text is
 * its content, thinking its reasoning and tool_use its calls; of a user's each tool_result is a
 * message of a tool. Blocks of other kinds are refused. What the blocks have besides is named as
 * ignored ("messages[].content[].x"). Returns -1 and *err on failure. */
int messages_input_read(const cJSON *body, struct conversation *out, struct api_error *err);

/* Adds tools, and reads tool_choice. Tools with an input_schema of their own are functions; those
 * that Anthropic defines, or runs, are refused by their type. Returns -1 and *err on failure. */
int messages_tools_read(const cJSON *body, struct conversation *out, struct api_error *err);

/* Returns whether the thinking is to be left out of its blocks (thinking.display "omitted"). */
bool messages_body_omits_thinking(const cJSON *body);

#endif
