#include "config/json/json_path.h"

#include "config/json/json_field.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Returns the length of the text so far, which may be more than there is room for. */
static size_t append(const struct json_path *path, char out[JSON_PATH_BYTES]) {
    size_t at = path->parent != NULL ? append(path->parent, out) : 0;
    size_t room = at < JSON_PATH_BYTES ? JSON_PATH_BYTES - at : 0;
    char *end = out + (JSON_PATH_BYTES - room);
    int length = path->name == NULL ? snprintf(end, room, "[%d]", path->index)
                                    : snprintf(end, room, "%s%s", at > 0 ? "." : "", path->name);
    return at + (size_t)length;
}

void json_path_text(const struct json_path *path, char out[JSON_PATH_BYTES]) {
    if (append(path, out) >= JSON_PATH_BYTES)
        memcpy(out + JSON_PATH_BYTES - sizeof("..."), "...", sizeof("..."));
}

int json_refuse_at(const cJSON *item, const struct json_path *path, const char *allowed,
                   struct api_error *err) {
    char text[JSON_PATH_BYTES];
    json_path_text(path, text);
    return json_refuse(item, text, allowed, err);
}

int bad_request_at(struct api_error *err, const char *code, const struct json_path *path,
                   const char *format, ...) {
    char text[JSON_PATH_BYTES], rest[sizeof(err->message)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rest, sizeof(rest), format, arguments);
    va_end(arguments);
    json_path_text(path, text);
    return bad_request(err, code, text, "%s%s", text, rest);
}
