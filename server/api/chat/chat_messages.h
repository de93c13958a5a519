/* The messages of a chat, from OpenAI's JSON to the values a chat template reads. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_MESSAGES_H
#define QUIRE_SERVER_API_CHAT_CHAT_MESSAGES_H

#include "models/chat_template/template_value.h"
#include "server/api/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#define CHAT_MESSAGES_MAX 2048

/* The form in which a template takes messages. */
struct chat_message_form {
    bool has_developer;       /* it knows the role developer; otherwise that becomes system */
    bool has_null_content;    /* null content is not empty content; otherwise it becomes that */
    const char *final_suffix; /* appended to the content of the last message; NULL: nothing */
    /* It knows no tools: tool calls become text of the assistant in hermes' form, and a tool's
     * answer becomes a user's. */
    bool writes_tools;
    /* For writes_tools: put behind the system message that comes first, or else before the first
     * text of a user; NULL: nothing. */
    const char *tool_text;
};

/* A list of maps, as Transformers and vLLM hand them to templates: role; content, the text of its
 * parts with a line feed between two, or an assistant's refusal; name; tool_calls, each with its
 * arguments as a map where they are the text of a JSON object; reasoning_content, and the same as
 * reasoning; tool_call_id. OpenAI's roles are the server's words; everything else is the client's,
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
