/* tools, tool_choice and parallel_tool_calls of POST /v1/chat/completions, or functions and
 * function_call, OpenAI's old form of the same. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_TOOLS_H
#define QUIRE_SERVER_API_CHAT_CHAT_TOOLS_H

#include "server/api/conversation/conversation.h"

/* Reads them; absent and null fields are the defaults. In the old form has_functions is set, the
 * names are those of its fields, and there is one call at most. -1 and *err, 400 with the path as
 * param: also for the two forms in one body. */
int chat_tools_read(const cJSON *body, struct conversation *out, struct api_error *err);

#endif
