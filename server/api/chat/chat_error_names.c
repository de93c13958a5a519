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

/* Members that were passed on have the client's names already. */
static bool is_keyword(const char *path) {
    int index, length = 0;
    return strncmp(path, "response_format.", strlen("response_format.")) == 0 ||
           (sscanf(path, "tools[%d].%n", &index, &length) == 1 && length > 0);
}

void chat_error_rename_ignored(struct byte_buffer *ignored, const struct chat_error_names *names,
                               void (*after)(const cJSON *body, struct api_error *err),
                               const cJSON *body) {
    struct byte_buffer renamed = {.failed = ignored->failed};
    for (size_t at = 0; at < ignored->length;) {
        struct api_error name = {0};
        const char *comma = memchr(ignored->data + at, ',', ignored->length - at);
        size_t end = comma != NULL ? (size_t)(comma - ignored->data) : ignored->length;
        snprintf(name.param, sizeof(name.param), "%.*s", (int)(end - at), ignored->data + at);
        bool is_one = is_keyword(name.param);
        if (is_one)
            chat_error_rename(&name, names);
        if (is_one && after != NULL)
            after(body, &name);
        byte_buffer_append_text(&renamed, at > 0 ? "," : "");
        byte_buffer_append(&renamed, is_one ? name.param : ignored->data + at,
                           is_one ? strlen(name.param) : end - at);
        at = end + 1;
    }
    byte_buffer_finish(ignored);
    *ignored = renamed;
}
