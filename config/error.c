#include "config/error.h"

#include <stdarg.h>
#include <stdio.h>

/* Names from files and requests are part of messages, and a line of a log must not be forged by one. */
static void keep_one_line(char *message) {
    for (; *message != '\0'; message++) {
        if ((unsigned char)*message < ' ' || *message == 0x7f)
            *message = '?';
    }
}

int error_set(struct error *err, enum error_code code, const char *format, ...) {
    if (err == NULL)
        return -1;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof(err->message), format, args);
    va_end(args);
    keep_one_line(err->message);
    err->code = code;
    return -1;
}
