/* Members of a chat's messages that no template is given. */
#ifndef QUIRE_SERVER_API_CHAT_MESSAGE_MEMBERS_H
#define QUIRE_SERVER_API_CHAT_MESSAGE_MEMBERS_H

#include "config/base/byte_buffer.h"
#include "config/json/api_error.h"

#include <cjson/cJSON.h>

/* Returns -1 and *err (400, param the path) for a member that would change the answer if it was
 * ignored: of other servers' (prefix, tools), sound, and a function_call that function_form.h has
 * not translated. `path` names the message. */
int message_members_check(const cJSON *message, const char *path, struct api_error *err);

/* Appends the names of the others that nobody reads here ("messages[].foo", "messages[].content[].
 * foo"), each once, comma-separated; empty values request nothing and are not named. Takes whatever
 * a body has as its messages. */
void message_members_list_unknown(const cJSON *messages, struct byte_buffer *names);

#endif
