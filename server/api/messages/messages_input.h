/* The input of POST /v1/messages: system, and messages of content blocks. */
#ifndef QUIRE_SERVER_API_MESSAGES_MESSAGES_INPUT_H
#define QUIRE_SERVER_API_MESSAGES_MESSAGES_INPUT_H

#include "server/api/conversation/conversation.h"

/* Adds the messages; the last one is continued where it is the assistant's. Neighbours of one role
 * are one message. Of an assistant's blocks text is its content, thinking its reasoning and
 * tool_use its calls; of a user's each tool_result is a message of a tool. Blocks of other kinds
 * are refused. What the blocks have besides is named as ignored ("messages[].content[].x").
 * Returns -1 and *err on failure. */
int messages_input_read(const cJSON *body, struct conversation *out, struct api_error *err);

#endif
