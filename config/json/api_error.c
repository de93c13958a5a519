#include "config/json/api_error.h"

#include "config/json/json_write.h"

#include <stdarg.h>
#include <stdio.h>

static void set(struct api_error *err, int status, const char *type, const char *code,
                const char *param, const char *format, va_list args) {
    err->status = status;
    err->type = type;
    err->code = code;
    snprintf(err->param, sizeof(err->param), "%s", param != NULL ? param : "");
    vsnprintf(err->message, sizeof(err->message), format, args);
}

int api_error_set(struct api_error *err, int status, const char *type, const char *code,
                  const char *param, const char *format, ...) {
    va_list args;
    va_start(args, format);
    set(err, status, type, code, param, format, args);
    va_end(args);
    return -1;
}

int bad_request(struct api_error *err, const char *code, const char *param, const char *format,
                ...) {
    va_list args;
    va_start(args, format);
    set(err, 400, "invalid_request_error", code, param, format, args);
    va_end(args);
    return -1;
}

int api_error_set_memory(struct api_error *err) {
    return api_error_set(err, 503, "server_error", "overloaded", NULL,
                         "the system has no memory for this request now; try again");
}

void api_error_format(const struct api_error *err, struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_key(out, "error");
    json_write_begin_object(out);
    json_write_text_member(out, "message", err->message);
    json_write_text_member(out, "type", err->type);
    json_write_text_member(out, "param", err->param[0] != '\0' ? err->param : NULL);
    json_write_text_member(out, "code", err->code);
    json_write_end_object(out);
    json_write_end_object(out);
}
