/* The tool calls of an assistant's message, as a chat template takes them. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_CALLS_H
#define QUIRE_SERVER_API_CHAT_CHAT_CALLS_H

#include "config/base/byte_buffer.h"
#include "models/chat_template/template_value.h"
#include "config/json/api_error.h"
#include "server/api/chat/chat_form.h"

#include <cjson/cJSON.h>

/* Makes the list; *out is NULL for an empty one, whose presence templates take for a tool call, and
 * where the arena could not take it. Arguments are an object in any case: text that is none, and
 * cannot be read as one, becomes {"input": TEXT}, as a custom tool's does. -1 and *err, 400, with
 * the path as param. */
int chat_calls_read(const cJSON *calls, const char *path, const struct chat_message_form *form,
                    struct template_arena *arena, struct template_value **out,
                    struct api_error *err);

/* Writes calls that were read as text, as Qwen's templates do. */
void chat_calls_write(const cJSON *calls, struct byte_buffer *out);

#endif
