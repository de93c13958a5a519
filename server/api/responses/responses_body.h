/* The body of POST /v1/responses as a conversation. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_BODY_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_BODY_H

#include "config/base/text.h"
#include "server/api/call/api_context.h"
#include "server/api/conversation/conversation.h"
#include "server/api/responses/responses_conversation.h"

#include <cjson/cJSON.h>

/* Reads the body, after the items that it continues. Refuses what needs other stored objects
 * (conversation, prompt), and input that is not text. On success *out refers to body and
 * `continued`, which must outlive it; free it with conversation_finish. On failure returns -1 and
 * sets *err; nothing to free. */
int responses_body_read(const struct api_context *context, const cJSON *body,
                        const struct responses_conversation *continued, struct conversation *out,
                        struct api_error *err);

/* --- Its parts --- */

/* Adds the messages of `input`, a text or a list of items. A tool call joins the assistant's
 * message before it; reasoning goes to the message after it. Items of tools that do not run here
 * are left out. Returns -1 and *err on failure. */
int responses_input_read(const cJSON *input, struct conversation *out, struct api_error *err);
/* Returns -1 and sets *err when the input has more items than are allowed. */
int responses_input_check_size(const cJSON *input, struct api_error *err);

/* Adds tools, and reads tool_choice and parallel_tool_calls. Tools in a namespace, such as those of
 * an MCP server that Codex sends, become tools whose names begin with the namespace; the first one
 * gets its description. Tools that this server cannot run (web search, image generation, ...) are
 * left out and listed as ignored. Returns -1 and *err on failure. */
int responses_tools_read(const cJSON *body, struct conversation *out, struct api_error *err);

/* Returns the name, as a string, that a tool or a tool call has in the conversation: namespace and
 * name joined, or only the name if `item` has no namespace. `item` has a name. Returns NULL and
 * sets *err when memory is short. */
const cJSON *responses_tools_name(struct conversation *conversation, const cJSON *item,
                                  struct api_error *err);

/* Appends the namespace and the name, each with its NUL, of every tool that has a namespace in a
 * body that was read. */
void responses_tools_list(const cJSON *body, struct byte_buffer *names);
/* Finds in such a list the tool whose function has this name. Returns false if it is not in a
 * namespace. */
bool responses_tools_find(const struct byte_buffer *names, struct text function,
                          const char **out_namespace, const char **out_name);

/* Appends what the answer repeats of its request, as members of the answer's object: instructions,
 * tools, tool_choice, text, temperature, ... Members that were not given get the value that was
 * used. */
void responses_body_echo(const cJSON *body, bool is_kept, float temperature, float top_p,
                         struct byte_buffer *out);

#endif
