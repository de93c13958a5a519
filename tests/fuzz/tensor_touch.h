/* Reads everything a tensor_file gives out, so that a sanitizer sees what lies outside. */
#ifndef QUIRE_TESTS_FUZZ_TENSOR_TOUCH_H
#define QUIRE_TESTS_FUZZ_TENSOR_TOUCH_H

#include "models/files/tensor_file.h"

#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink;

static inline void touch(const void *data, size_t bytes) {
    const uint8_t *at = data;
    if (bytes > 0)
        sink += (uint64_t)at[0] + at[bytes - 1];
}

/* Any bytes are values of a type. */
static inline void touch_values(const struct tensor_file *file, const struct tensor_info *tensor) {
    uint8_t block[DTYPE_MAX_BLOCK_ELEMENTS];
    float values[DTYPE_MAX_BLOCK_ELEMENTS];
    size_t bytes = dtype_block_bytes(tensor->dtype);
    if (tensor_read(file, tensor, 0, bytes, block, NULL) != 0)
        abort();
    dtype_to_f32(tensor->dtype, block, values, (size_t)dtype_block_elements(tensor->dtype));
    touch(values, sizeof(values[0]));
}

static inline void touch_tensors(const struct tensor_file *file) {
    uint8_t piece[4096];
    for (size_t i = 0; i < tensor_file_num_tensors(file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(file, i);
        touch(tensor->name.data, tensor->name.length);
        if (tensor->unsupported == NULL && tensor->bytes > 0)
            touch_values(file, tensor);
        for (size_t at = 0; at < tensor->bytes; at += sizeof(piece)) {
            size_t left = tensor->bytes - at;
            size_t bytes = left < sizeof(piece) ? left : sizeof(piece);
            if (tensor_read(file, tensor, at, bytes, piece, NULL) != 0)
                abort();
            touch(piece, bytes);
        }
    }
}

/* A refusal is one line that begins with the name of the file. */
static inline void check_refusal(const struct error *err, const char *name) {
    size_t length = strlen(name);
    if (strchr(err->message, '\n') != NULL || strncmp(err->message, name, length) != 0 ||
        err->message[length] != ':')
        abort();
}

#endif
