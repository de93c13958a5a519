/* Builds GGUF images in memory for tests, field by field, so that a test can also write what no
 * honest tool would. Out of memory aborts. */
#ifndef QUIRE_TESTS_UNIT_MODELS_GGUF_WRITER_H
#define QUIRE_TESTS_UNIT_MODELS_GGUF_WRITER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum gguf_value_type {
    GGUF_UINT8,
    GGUF_INT8,
    GGUF_UINT16,
    GGUF_INT16,
    GGUF_UINT32,
    GGUF_INT32,
    GGUF_FLOAT32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_UINT64,
    GGUF_INT64,
    GGUF_FLOAT64,
};

enum gguf_tensor_type {
    GGUF_TENSOR_F32 = 0,
    GGUF_TENSOR_Q4_0 = 2,
    GGUF_TENSOR_Q8_0 = 8,
    GGUF_TENSOR_Q8_K = 15,
};

struct gguf_writer {
    uint8_t *data;
    size_t bytes;
};

static inline void gguf_put(struct gguf_writer *w, const void *src, size_t bytes) {
    uint8_t *grown = realloc(w->data, w->bytes + bytes + 1);
    if (grown == NULL)
        abort();
    if (bytes > 0)
        memcpy(grown + w->bytes, src, bytes);
    w->data = grown;
    w->bytes += bytes;
}

static inline void gguf_finish(struct gguf_writer *w) {
    free(w->data);
    *w = (struct gguf_writer){0};
}

static inline void gguf_put_u32(struct gguf_writer *w, uint32_t value) {
    gguf_put(w, &value, sizeof(value));
}

static inline void gguf_put_u64(struct gguf_writer *w, uint64_t value) {
    gguf_put(w, &value, sizeof(value));
}

static inline void gguf_put_string(struct gguf_writer *w, const char *text) {
    gguf_put_u64(w, strlen(text));
    gguf_put(w, text, strlen(text));
}

static inline void gguf_put_header(struct gguf_writer *w, uint32_t version, uint64_t num_tensors,
                                   uint64_t num_metadata) {
    gguf_put(w, "GGUF", 4);
    gguf_put_u32(w, version);
    gguf_put_u64(w, num_tensors);
    gguf_put_u64(w, num_metadata);
}

static inline void gguf_put_key(struct gguf_writer *w, const char *key, uint32_t type) {
    gguf_put_string(w, key);
    gguf_put_u32(w, type);
}

static inline void gguf_put_key_u32(struct gguf_writer *w, const char *key, uint32_t value) {
    gguf_put_key(w, key, GGUF_UINT32);
    gguf_put_u32(w, value);
}

static inline void gguf_put_key_u64(struct gguf_writer *w, const char *key, uint64_t value) {
    gguf_put_key(w, key, GGUF_UINT64);
    gguf_put_u64(w, value);
}

static inline void gguf_put_key_f32(struct gguf_writer *w, const char *key, float value) {
    gguf_put_key(w, key, GGUF_FLOAT32);
    gguf_put(w, &value, sizeof(value));
}

static inline void gguf_put_key_string(struct gguf_writer *w, const char *key, const char *value) {
    gguf_put_key(w, key, GGUF_STRING);
    gguf_put_string(w, value);
}

static inline void gguf_put_key_array(struct gguf_writer *w, const char *key, uint32_t type,
                                      uint64_t count) {
    gguf_put_key(w, key, GGUF_ARRAY);
    gguf_put_u32(w, type);
    gguf_put_u64(w, count);
}

/* dims: innermost first, as the file has them. */
static inline void gguf_put_tensor(struct gguf_writer *w, const char *name, uint32_t num_dims,
                                   const uint64_t *dims, uint32_t type, uint64_t offset) {
    gguf_put_string(w, name);
    gguf_put_u32(w, num_dims);
    for (uint32_t i = 0; i < num_dims; i++)
        gguf_put_u64(w, dims[i]);
    gguf_put_u32(w, type);
    gguf_put_u64(w, offset);
}

static inline void gguf_put_zeros(struct gguf_writer *w, size_t count) {
    uint8_t *zeros = calloc(1, count + 1);
    if (zeros == NULL)
        abort();
    gguf_put(w, zeros, count);
    free(zeros);
}

static inline void gguf_pad(struct gguf_writer *w, size_t alignment) {
    while (w->bytes % alignment != 0)
        gguf_put_zeros(w, 1);
}

#endif
