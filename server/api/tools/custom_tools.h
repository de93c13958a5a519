/* Custom tools, whose input is a text: templates know functions alone, so each is shown to the
 * model as a function of one string, `input`, that matches the tool's grammar if it has one. */
#ifndef QUIRE_SERVER_API_CHAT_CUSTOM_TOOLS_H
#define QUIRE_SERVER_API_CHAT_CUSTOM_TOOLS_H

#include "config/json/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

/* The member of such a function that has the grammar, in Lark's notation, of its input: no schema
 * says that. Functions that come with one are rid of it. */
#define CUSTOM_TOOLS_GRAMMAR "input_grammar"

/* Makes functions of the custom tools of a chat's body: in tools, tool_choice and the tool calls of
 * messages. Appends the tools' names, each with its NUL. -1 and *err: 400 with the path in the body
 * as it was. What is no custom tool is left as it is, right or wrong. */
int custom_tools_convert(cJSON *body, struct byte_buffer *names, struct api_error *err);

/* Returns whether the name is among num_names ones that are behind each other. */
bool custom_tools_have(const char *names, int num_names, const char *name, size_t length);

/* Renames an error of a chat's body that was converted: the schema of an input is a grammar there.
 */
void custom_tools_rename_error(const struct byte_buffer *names, const cJSON *body,
                               struct api_error *err);

#endif
