/* Private to models/: bytes that grow. A zeroed one is empty. */
#ifndef QUIRE_MODELS_TOKENIZER_TEXT_BUFFER_H
#define QUIRE_MODELS_TOKENIZER_TEXT_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Returned where the rules of a model's own make more of a text than its budget. */
#define TEXT_TOO_COSTLY (-2)

struct text_buffer {
    char *data;
    size_t length, capacity;
    bool failed; /* memory was short: what was appended since is not there */
};

static inline void text_buffer_append(struct text_buffer *buffer, const char *data, size_t length) {
    if (length > buffer->capacity - buffer->length) {
        size_t capacity = buffer->capacity + buffer->capacity / 2;
        if (length > SIZE_MAX / 2 - buffer->length) {
            buffer->failed = true;
            return;
        }
        if (capacity < buffer->length + length)
            capacity = buffer->length + length;
        char *grown = realloc(buffer->data, capacity < 256 ? 256 : capacity);
        if (grown == NULL) {
            buffer->failed = true;
            return;
        }
        buffer->data = grown;
        buffer->capacity = capacity < 256 ? 256 : capacity;
    }
    if (length > 0)
        memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
}

static inline void text_buffer_clear(struct text_buffer *buffer) {
    buffer->length = 0;
    buffer->failed = false;
}

static inline void text_buffer_finish(struct text_buffer *buffer) {
    free(buffer->data);
    *buffer = (struct text_buffer){0};
}

#endif
