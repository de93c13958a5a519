#include "config/base/byte_buffer.h"

#include "config/base/array.h"
#include "config/base/checked.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `more` bytes after the existing ones. */
static bool grow(struct byte_buffer *buffer, size_t more) {
    size_t needed;
    if (buffer->failed || !checked_add(buffer->length, more, &needed)) {
        buffer->failed = true;
        return false;
    }
    buffer->is_full = buffer->max_length != 0 && needed > buffer->max_length;
    buffer->failed = buffer->is_full || !array_reserve(&buffer->data, &buffer->capacity, needed, 1);
    return !buffer->failed;
}

void byte_buffer_reserve(struct byte_buffer *buffer, size_t capacity) {
    if (buffer->failed || capacity <= buffer->capacity)
        return;
    char *data = realloc(buffer->data, capacity);
    buffer->failed = data == NULL;
    if (data == NULL)
        return;
    buffer->data = data;
    buffer->capacity = capacity;
}

void byte_buffer_append(struct byte_buffer *buffer, const void *data, size_t length) {
    if (length == 0 || !grow(buffer, length))
        return;
    memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
}

void byte_buffer_append_text(struct byte_buffer *buffer, const char *text) {
    byte_buffer_append(buffer, text, strlen(text));
}

void byte_buffer_printf(struct byte_buffer *buffer, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    /* vsnprintf also writes a NUL, which is not counted. */
    if (length < 0)
        buffer->failed = true;
    else if (grow(buffer, (size_t)length + 1)) {
        vsnprintf(buffer->data + buffer->length, (size_t)length + 1, format, again);
        buffer->length += (size_t)length;
    }
    va_end(again);
}

void byte_buffer_consume(struct byte_buffer *buffer, size_t length) {
    if (length >= buffer->length) {
        buffer->length = 0;
        return;
    }
    if (length == 0)
        return;
    memmove(buffer->data, buffer->data + length, buffer->length - length);
    buffer->length -= length;
}

void byte_buffer_clear(struct byte_buffer *buffer) {
    buffer->length = 0;
    buffer->failed = buffer->is_full = false;
}

void byte_buffer_finish(struct byte_buffer *buffer) {
    free(buffer->data);
    *buffer = (struct byte_buffer){0};
}
