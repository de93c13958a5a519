/* Errors of a chat's fields, and the names of those that are ignored, in the words of the endpoint
 * whose body became the chat. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_ERROR_NAMES_H
#define QUIRE_SERVER_API_CHAT_CHAT_ERROR_NAMES_H

#include "config/json/api_error.h"

#include <cjson/cJSON.h>

struct chat_error_name {
    const char *chat, *here; /* chat NULL: the end of a list */
};

/* Lists; of several names that fit, the first one is used. */
struct chat_error_names {
    const struct chat_error_name *tool_members; /* within a path of tools or tool_choice:
                                                   {".function", ""} */
    const struct chat_error_name *fields;       /* at the beginning of a path */
    const struct chat_error_name *words;        /* elsewhere in a message */
};

void chat_error_rename(struct api_error *err, const struct chat_error_names *names);
/* Renames the keywords of schemas among the comma-separated names of what is ignored, as the param
 * of an error would be. `after`, which may be NULL, renames each further, by the client's body. */
void chat_error_rename_ignored(struct byte_buffer *ignored, const struct chat_error_names *names,
                               void (*after)(const cJSON *body, struct api_error *err),
                               const cJSON *body);

#endif
