#include "tests/devices/event_log.h"

#include "config/base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void event_log_add(struct event_log *log, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    CHECK(length >= 0);
    if (log->bytes + (size_t)length + 1 > log->capacity) {
        log->capacity = 2 * (log->bytes + (size_t)length + 1);
        log->text = realloc(log->text, log->capacity);
        CHECK(log->text != NULL);
    }
    vsnprintf(log->text + log->bytes, log->capacity - log->bytes, format, again);
    log->bytes += (size_t)length;
    va_end(again);
    va_end(arguments);
}

void event_log_end_line(struct event_log *log) {
    event_log_add(log, "\n");
    log->num_lines++;
}

void event_log_clear(struct event_log *log) {
    log->bytes = 0;
    log->num_lines = 0;
}

void event_log_finish(struct event_log *log) {
    free(log->text);
    *log = (struct event_log){0};
}

static void print_line(const char *name, const struct event_log *log, size_t begin) {
    const char *line = log->text + begin;
    const char *end = begin < log->bytes ? memchr(line, '\n', log->bytes - begin) : NULL;
    printf("  %s: %.*s\n", name, end != NULL ? (int)(end - line) : 0, line);
}

bool event_log_compare(const struct event_log *a, const struct event_log *b) {
    size_t line = 0, before = 0, common = a->bytes < b->bytes ? a->bytes : b->bytes, i = 0;
    for (; i < common && a->text[i] == b->text[i]; i++)
        if (a->text[i] == '\n') {
            before = line;
            line = i + 1;
        }
    if (i == a->bytes && i == b->bytes)
        return true;
    if (line > 0)
        print_line("both", a, before);
    print_line("one", a, line);
    print_line("other", b, line);
    return false;
}
