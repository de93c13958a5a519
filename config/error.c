#include "config/error.h"

#include <stdarg.h>
#include <stdio.h>

int error_set(struct error *err, enum error_code code, const char *format, ...) {
    if (err == NULL)
        return -1;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof(err->message), format, args);
    va_end(args);
    err->code = code;
    return -1;
}
