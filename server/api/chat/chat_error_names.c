#include "server/api/chat/chat_error_names.h"

#include <stdio.h>
#include <string.h>

/* Writes `here` in the place of `length` bytes at `at`, cut where the text has no room. */
static void replace(char *text, size_t capacity, size_t at, size_t length, const char *here) {
    char rest[sizeof(((struct api_error *)0)->message)];
    snprintf(rest, sizeof(rest), "%s", text + at + length);
    snprintf(text + at, capacity - at, "%s%s", here, rest);
}

/* Replaces a part of the path; most messages begin with it. */
static void replace_in_path(struct api_error *err, size_t at, size_t length, const char *here) {
    if (strncmp(err->message, err->param, strlen(err->param)) == 0)
        replace(err->message, sizeof(err->message), at, length, here);
    replace(err->param, sizeof(err->param), at, length, here);
}

/* Stops at the first: behind it there may be names of a client's schema. */
static void rename_tool_member(struct api_error *err, const struct chat_error_name *name) {
    for (; strncmp(err->param, "tool", 4) == 0 && name->chat != NULL; name++) {
        size_t length = strlen(name->chat);
        const char *found = strstr(err->param, name->chat);
        if (found == NULL || (found[length] != '.' && found[length] != '\0'))
            continue;
        replace_in_path(err, (size_t)(found - err->param), length, name->here);
        return;
    }
}

static void rename_words(struct api_error *err, const struct chat_error_name *name) {
    for (; name->chat != NULL; name++) {
        const char *found = strstr(err->message, name->chat);
        if (found != NULL)
            replace(err->message, sizeof(err->message), (size_t)(found - err->message),
                    strlen(name->chat), name->here);
    }
}

static void rename_field(struct api_error *err, const struct chat_error_name *name) {
    while (name->chat != NULL && strncmp(err->param, name->chat, strlen(name->chat)) != 0)
        name++;
    if (name->chat != NULL)
        replace_in_path(err, 0, strlen(name->chat), name->here);
}

void chat_error_rename(struct api_error *err, const struct chat_error_names *names) {
    rename_tool_member(err, names->tool_members);
    rename_field(err, names->fields);
    rename_words(err, names->words);
}
