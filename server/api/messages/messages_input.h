/* The input of POST /v1/messages: system, and messages of content blocks, as messages of a chat. */
#ifndef QUIRE_SERVER_API_MESSAGES_MESSAGES_INPUT_H
#define QUIRE_SERVER_API_MESSAGES_MESSAGES_INPUT_H

#include "config/json/api_error.h"

#include <cjson/cJSON.h>

/* Adds `messages` to the chat, and continue_final_message where the last one is the assistant's.
 * Neighbours of one role are one message. Of an assistant's blocks text is its content, thinking
 * its reasoning and tool_use its tool calls; of a user's each tool_result is a message of a tool.
 * Blocks of other kinds are refused. What the blocks have beside is passed on as
 * "messages[].content[].x". The messages refer into the body. Returns -1 and *err on failure. */
int messages_input_read(const cJSON *body, cJSON *chat, struct api_error *err);

#endif
