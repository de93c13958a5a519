/* An error that a client receives: an HTTP status and OpenAI's error object
 * {"error":{"message","type","param","code"}}. Messages name the field, the value and what is
 * allowed. They never contain pointers, file paths or more than a short, escaped piece of the
 * input. */
#ifndef QUIRE_CONFIG_JSON_API_ERROR_H
#define QUIRE_CONFIG_JSON_API_ERROR_H

#include "config/base/byte_buffer.h"

struct api_error {
    int status;       /* 400, 401, 404, 405, 413, 429, 500, 503 ... */
    const char *type; /* static: "invalid_request_error", "authentication_error", ... */
    const char *code; /* static, or NULL */
    char param[256];  /* dotted path of the field; empty: null */
    char message[512];
};

/* Fills *err and returns -1. param may be NULL. */
int api_error_set(struct api_error *err, int status, const char *type, const char *code,
                  const char *param, const char *format, ...) __attribute__((format(printf, 6, 7)));

/* Does the same for a 400 of OpenAI's type invalid_request_error. */
int bad_request(struct api_error *err, const char *code, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Fills *err when there is no memory for the request: a 503, because there may be some later. */
int api_error_set_memory(struct api_error *err);

/* Appends the JSON object. */
void api_error_format(const struct api_error *err, struct byte_buffer *out);

#endif
