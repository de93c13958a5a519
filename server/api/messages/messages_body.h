/* The body of POST /v1/messages as a conversation. Follows the types of Anthropic's Python SDK
 * (types/message_create_params.py and what it refers to, 2.14.0). */
#ifndef QUIRE_SERVER_API_MESSAGES_MESSAGES_BODY_H
#define QUIRE_SERVER_API_MESSAGES_MESSAGES_BODY_H

#include "server/api/call/api_context.h"
#include "server/api/conversation/conversation.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#define MESSAGES_MAX_USER_ID_BYTES 512

/* Reads the body. On success *out refers to it, so the body must outlive it; free it with
 * conversation_finish. counts_only: the answer is a number of tokens, and max_tokens may be
 * missing. On failure returns -1 and sets *err; nothing to free. */
int messages_body_read(const struct api_context *context, const cJSON *body, bool counts_only,
                       struct conversation *out, struct api_error *err);

/* --- Its parts --- */

/* Adds system and the messages, which are lists of content blocks; if the last message is the
 * assistant's, it is continued. Adjacent messages of one role become one message. Of an assistant's
 * blocks, text becomes its content, thinking its reasoning and tool_use its tool calls. Of a user's
 * blocks, each tool_result becomes a message of a tool. Blocks of other kinds are refused. Other
 * members of blocks are listed as ignored ("messages[].content[].x"). Returns -1 and sets *err on
 * failure. */
int messages_input_read(const cJSON *body, struct conversation *out, struct api_error *err);

/* Adds tools, and reads tool_choice. Tools that have an input_schema are functions; tools that
 * Anthropic defines, or runs, are refused by their type. Returns -1 and sets *err on failure. */
int messages_tools_read(const cJSON *body, struct conversation *out, struct api_error *err);

/* Returns whether the text of thinking must be left out of its blocks (thinking.display
 * "omitted"). */
bool messages_body_omits_thinking(const cJSON *body);

#endif
