/* The tools of POST /v1/responses as those of a chat. Tools in a namespace, as Codex sends those of
 * an MCP server, become functions whose names begin with it, the first with its description; what
 * this server cannot run (web search, image generation, ...) is left out and named as ignored. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_TOOLS_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_TOOLS_H

#include "config/base/byte_buffer.h"
#include "config/base/text.h"
#include "config/json/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

/* Adds the body's tools and tool_choice to the chat, which then refers into the body. On failure -1
 * and *err: a 400 with the path in this body, or 503. */
int responses_tools_read(const cJSON *body, cJSON *chat, struct api_error *err);

/* Renames an error of that chat: its tools have other places in the body where some are left out or
 * in a namespace. */
void responses_tools_rename_error(const cJSON *body, struct api_error *err);

/* Makes the name of the function that a tool, or the call of one, has in the chat: its namespace
 * and name in one, or the name alone where `item` has no namespace. A new text; NULL: memory is
 * short. */
cJSON *responses_tools_name(const cJSON *item, const char *name);

/* Appends the namespace and the name of each tool that has one, each with its NUL, of a body that
 * was read. */
void responses_tools_list(const cJSON *body, struct byte_buffer *names);
/* Finds the tool of such a list whose function has this name; false: it is in no namespace. */
bool responses_tools_find(const struct byte_buffer *names, struct text function,
                          const char **out_namespace, const char **out_name);

#endif
