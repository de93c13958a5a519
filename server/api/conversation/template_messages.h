/* Converts the messages of a conversation to the values that a chat template reads. */
#ifndef QUIRE_SERVER_API_CONVERSATION_TEMPLATE_MESSAGES_H
#define QUIRE_SERVER_API_CONVERSATION_TEMPLATE_MESSAGES_H

#include "models/chat_template/template_value.h"
#include "config/json/api_error.h"
#include "server/api/conversation/chat_form.h"
#include "server/api/conversation/conversation.h"

/* Makes a list of maps, like those that Transformers and vLLM pass to templates: role; content, the
 * texts of its parts separated by line feeds; name; tool_calls, each with its arguments as a map;
 * reasoning_content, and the same as reasoning and thinking; tool_call_id: all of that in the
 * template's form. Arguments are always an object: text that is not one, and cannot be read as one,
 * becomes {"input": TEXT}, like that of a custom tool. OpenAI's roles count as the server's text.
 * Everything else is the client's, including other roles, which are passed to the template
 * unchanged.
 *
 * On failure returns -1 and fills *err: 400 when the arena is full, or the last message is to be
 * continued (form) and has no content; 503 when memory is short. `field`: what the body calls the
 * messages. */
int template_messages_make(const struct message *messages, int num_messages, const char *field,
                           const struct chat_message_form *form, struct template_arena *arena,
                           struct template_value **out, struct api_error *err);

/* Fills *err for an arena that cannot take more: 400 when it is full, 503 when memory is short. */
int template_messages_fail_arena(const struct template_arena *arena, const char *field,
                                 struct api_error *err);

#endif
