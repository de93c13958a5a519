/* The body of POST /v1/responses as a conversation. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_BODY_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_BODY_H

#include "config/base/text.h"
#include "server/api/call/api_context.h"
#include "server/api/conversation/conversation.h"
#include "server/api/responses/responses_conversation.h"

#include <cjson/cJSON.h>

/* Reads the body, after the items that it continues. What needs other stored objects (conversation,
 * prompt) or another kind of input than text is refused. On success *out refers into body and
 * `continued`, which must outlive it; conversation_finish. On failure -1 and *err, nothing to
 * free. */
int responses_body_read(const struct api_context *context, const cJSON *body,
                        const struct responses_conversation *continued, struct conversation *out,
                        struct api_error *err);

/* --- Its parts --- */

/* Adds the messages of `input`, a text or a list of items. A call joins the assistant's message
 * before it; reasoning goes to the message after it. Items of tools that are not run here are left
 * out. -1 and *err. */
int responses_input_read(const cJSON *input, struct conversation *out, struct api_error *err);
/* Returns -1 and *err when the input has more items than are allowed. */
int responses_input_check_size(const cJSON *input, struct api_error *err);

/* Adds tools, and reads tool_choice and parallel_tool_calls. Tools in a namespace, as Codex sends
 * those of an MCP server, become tools whose names begin with it, the first with its description;
 * what this server cannot run (web search, image generation, ...) is left out and named as ignored.
 * -1 and *err. */
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

/* Appends what the answer repeats of its request, as members of the answer's object: instructions,
 * tools, tool_choice, text, temperature, ... with what was taken where nothing was given. */
void responses_body_echo(const cJSON *body, bool is_kept, float temperature, float top_p,
                         struct byte_buffer *out);

#endif
