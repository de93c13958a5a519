/* The messages of POST /v1/chat/completions. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_MESSAGES_H
#define QUIRE_SERVER_API_CHAT_CHAT_MESSAGES_H

#include "server/api/conversation/conversation.h"

/* Adds them to the conversation. An assistant's function_call and the role function, OpenAI's old
 * form of tools, are a call and its result. -1 and *err: 400 with the path as param for a message
 * that is not one, code unsupported_content for content that is not text, and for a member that
 * would change the answer if it was ignored: of other servers' (prefix, tools), sound. */
int chat_messages_read(const cJSON *messages, struct conversation *out, struct api_error *err);

/* Appends the names of members that nobody reads ("messages[].foo", "messages[].content[].foo"),
 * each once, comma-separated; empty values request nothing and are not named. Takes whatever a body
 * has as its messages. */
void chat_messages_list_unknown(const cJSON *messages, struct byte_buffer *names);

#endif
