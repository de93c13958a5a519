/* The tools of POST /v1/responses. Tools in a namespace, as Codex sends those of an MCP server,
 * become tools whose names begin with it, the first with its description; what this server cannot
 * run (web search, image generation, ...) is left out and named as ignored. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_TOOLS_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_TOOLS_H

#include "config/base/text.h"
#include "server/api/conversation/conversation.h"

/* Adds tools and reads tool_choice and parallel_tool_calls. -1 and *err. */
int responses_tools_read(const cJSON *body, struct conversation *out, struct api_error *err);

/* Returns the name, a text, that a tool, or the call of one, has in the conversation: its namespace
 * and name in one, or the name alone where `item` has no namespace. `item` has a name. NULL and
 * *err when memory is short. */
const cJSON *responses_tools_name(struct conversation *conversation, const cJSON *item,
                                  struct api_error *err);

/* Appends the namespace and the name of each tool that has one, each with its NUL, of a body that
 * was read. */
void responses_tools_list(const cJSON *body, struct byte_buffer *names);
/* Finds the tool of such a list whose function has this name; false: it is in no namespace. */
bool responses_tools_find(const struct byte_buffer *names, struct text function,
                          const char **out_namespace, const char **out_name);

#endif
