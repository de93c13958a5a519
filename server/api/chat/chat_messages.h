/* The messages of a chat, from OpenAI's JSON to the values a chat template reads. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_MESSAGES_H
#define QUIRE_SERVER_API_CHAT_CHAT_MESSAGES_H

#include "models/chat_template/template_value.h"
#include "config/json/api_error.h"
#include "server/api/chat/chat_form.h"

#include <cjson/cJSON.h>

#define CHAT_MESSAGES_MAX 2048

/* A list of maps, as Transformers and vLLM hand them to templates: role; content, the text of its
 * parts with a line feed between two, or an assistant's refusal; name; tool_calls, each with its
 * arguments as a map; reasoning_content, and the same as reasoning; tool_call_id: all of that in
 * the template's form. OpenAI's roles are the server's words; everything else is the client's,
 * other roles, which go to the template as they are, too. Other members of a message are left out.
 *
 * -1 and *err: 400 with the path as param for a message that is none, code unsupported_content for
 * content that is not text; 503 when memory is short. */
int chat_messages_read(const cJSON *messages, const struct chat_message_form *form,
                       struct template_arena *arena, struct template_value **out,
                       struct api_error *err);

/* Returns the role of a message; NULL and *err (400) when it is no name of 1 to 64 characters. */
const char *chat_messages_role(const cJSON *message, const char *path, struct api_error *err);

/* Fills *err for an arena that cannot take more: 400 when it is full, 503 when memory is short. */
int chat_messages_fail_arena(const struct template_arena *arena, struct api_error *err);

#endif
