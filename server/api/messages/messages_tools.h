/* The tools of POST /v1/messages, and the choice of them. */
#ifndef QUIRE_SERVER_API_MESSAGES_MESSAGES_TOOLS_H
#define QUIRE_SERVER_API_MESSAGES_MESSAGES_TOOLS_H

#include "server/api/conversation/conversation.h"

/* Adds tools, and reads tool_choice. Tools with an input_schema of their own are functions; those
 * that Anthropic defines, or runs, are refused by their type. Returns -1 and *err on failure. */
int messages_tools_read(const cJSON *body, struct conversation *out, struct api_error *err);

#endif
