/* OpenAI's old form of tools, functions and function_call, as a chat with tools. */
#ifndef QUIRE_SERVER_API_CHAT_FUNCTION_FORM_H
#define QUIRE_SERVER_API_CHAT_FUNCTION_FORM_H

#include "config/json/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

/* Rewrites a body in place: functions becomes tools, function_call tool_choice, parallel_tool_calls
 * false; in messages an assistant's function_call becomes its one tool call, and the role function
 * tool, for the call before it. *out_is_used: the body has functions or function_call, and its
 * answer has calls in the old form. -1 and *err, 400 with the path as param, for what is not of
 * that form or stands beside its successor; 503 when memory is short. The body is then to be freed
 * only. */
int function_form_translate(cJSON *body, bool *out_is_used, struct api_error *err);

/* Puts an error about tools into the words of such a body. */
void function_form_rename_error(struct api_error *err);
/* And the names of what is ignored. */
void function_form_rename_ignored(struct byte_buffer *ignored);

#endif
