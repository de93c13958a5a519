/* The tools of POST /v1/messages, and the choice of them, as a chat's. */
#ifndef QUIRE_SERVER_API_MESSAGES_MESSAGES_TOOLS_H
#define QUIRE_SERVER_API_MESSAGES_MESSAGES_TOOLS_H

#include "config/json/api_error.h"

#include <cjson/cJSON.h>

/* Adds tools, tool_choice and parallel_tool_calls to the chat. Tools with an input_schema of their
 * own become functions; those that Anthropic defines, or runs, are refused by their type. Returns
 * -1 and *err on failure. */
int messages_tools_read(const cJSON *body, cJSON *chat, struct api_error *err);

#endif
