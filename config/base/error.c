#include "config/base/error.h"

#include "config/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *err, enum error_code code, const char *format, ...) {
    if (err == NULL)
        return -1;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof(err->message), format, args);
    va_end(args);
    /* names from files and requests are part of messages: none forges a line, or moves a cursor */
    utf8_hide_controls(err->message, strlen(err->message));
    err->code = code;
    return -1;
}
