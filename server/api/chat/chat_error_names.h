/* Errors of a chat's fields in the words of the endpoint whose body became the chat. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_ERROR_NAMES_H
#define QUIRE_SERVER_API_CHAT_CHAT_ERROR_NAMES_H

#include "config/json/api_error.h"

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

#endif
