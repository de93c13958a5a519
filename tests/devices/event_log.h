/* What happened in a run, line by line, to be compared with another run's. */
#ifndef QUIRE_TESTS_DEVICES_EVENT_LOG_H
#define QUIRE_TESTS_DEVICES_EVENT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed log is empty. */
struct event_log {
    char *text; /* NUL-terminated, or NULL */
    size_t bytes, capacity;
    uint64_t num_lines;
};

/* Appends to the line. */
__attribute__((format(printf, 2, 3))) void event_log_add(struct event_log *log, const char *format,
                                                         ...);
void event_log_end_line(struct event_log *log);
void event_log_clear(struct event_log *log); /* keeps the memory */
void event_log_finish(struct event_log *log);

/* Returns whether both say the same; else prints the last line they have in common and the first of
 * each in which they differ. */
bool event_log_compare(const struct event_log *a, const struct event_log *b);

#endif
