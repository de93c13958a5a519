/* A string of bytes that grows. A zeroed struct is empty; its owner calls byte_buffer_finish.
 * Appending never half-succeeds: when memory is short, or max_length would be passed, the bytes are
 * unchanged, `failed` is set, and later appends do nothing, so that a chain of appends is checked
 * once at its end. */
#ifndef QUIRE_CONFIG_BASE_BYTE_BUFFER_H
#define QUIRE_CONFIG_BASE_BYTE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct byte_buffer {
    char *data;
    size_t length, capacity;
    size_t max_length; /* appending beyond it fails; 0: no bound */
    bool failed;
    bool is_full; /* it failed because of max_length */
};

void byte_buffer_append(struct byte_buffer *buffer, const void *data, size_t length);
void byte_buffer_append_text(struct byte_buffer *buffer, const char *text);
void byte_buffer_printf(struct byte_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Makes room for capacity bytes in all, and no more. */
void byte_buffer_reserve(struct byte_buffer *buffer, size_t capacity);
/* Drops the first length bytes. */
void byte_buffer_consume(struct byte_buffer *buffer, size_t length);
void byte_buffer_clear(struct byte_buffer *buffer);  /* keeps the memory */
void byte_buffer_finish(struct byte_buffer *buffer); /* frees; leaves it empty */

#endif
