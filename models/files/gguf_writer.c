#include "models/files/gguf_writer.h"

#include "models/files/gguf.h"

#include <string.h>

/* Value types of the format. */
enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };

enum { GGUF_VERSION = 3 };

static void append_u32(struct byte_buffer *buffer, uint32_t value) {
    byte_buffer_append(buffer, &value, sizeof(value));
}

static void append_u64(struct byte_buffer *buffer, uint64_t value) {
    byte_buffer_append(buffer, &value, sizeof(value));
}

static void append_string(struct byte_buffer *buffer, struct text text) {
    append_u64(buffer, text.length);
    byte_buffer_append(buffer, text.data, text.length);
}

static void begin_entry(struct gguf_writer *w, const char *key, uint32_t type) {
    append_string(&w->metadata, (struct text){key, strlen(key)});
    append_u32(&w->metadata, type);
    w->num_metadata++;
}

static void add_value(struct gguf_writer *w, const char *key, uint32_t type, const void *value,
                      size_t bytes) {
    begin_entry(w, key, type);
    byte_buffer_append(&w->metadata, value, bytes);
}

static void begin_array(struct gguf_writer *w, const char *key, uint32_t type, size_t count) {
    begin_entry(w, key, GGUF_ARRAY);
    append_u32(&w->metadata, type);
    append_u64(&w->metadata, count);
}

void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value) {
    add_value(w, key, GGUF_U32, &value, sizeof(value));
}

void gguf_writer_i32(struct gguf_writer *w, const char *key, int32_t value) {
    add_value(w, key, GGUF_I32, &value, sizeof(value));
}

void gguf_writer_f32(struct gguf_writer *w, const char *key, float value) {
    add_value(w, key, GGUF_F32, &value, sizeof(value));
}

void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value) {
    uint8_t byte = value;
    add_value(w, key, GGUF_BOOL, &byte, 1);
}

void gguf_writer_string(struct gguf_writer *w, const char *key, struct text value) {
    begin_entry(w, key, GGUF_STRING);
    append_string(&w->metadata, value);
}

void gguf_writer_strings(struct gguf_writer *w, const char *key, const struct text *values,
                         size_t count) {
    begin_array(w, key, GGUF_STRING, count);
    for (size_t i = 0; i < count; i++)
        append_string(&w->metadata, values[i]);
}

void gguf_writer_i32s(struct gguf_writer *w, const char *key, const int32_t *values, size_t count) {
    begin_array(w, key, GGUF_I32, count);
    byte_buffer_append(&w->metadata, values, count * sizeof(*values));
}

void gguf_writer_f32s(struct gguf_writer *w, const char *key, const float *values, size_t count) {
    begin_array(w, key, GGUF_F32, count);
    byte_buffer_append(&w->metadata, values, count * sizeof(*values));
}

void gguf_writer_bools(struct gguf_writer *w, const char *key, const uint8_t *values,
                       size_t count) {
    begin_array(w, key, GGUF_BOOL, count);
    byte_buffer_append(&w->metadata, values, count);
}

void gguf_writer_copy(struct gguf_writer *w, const struct metadata *entry) {
    append_string(&w->metadata, entry->key);
    byte_buffer_append(&w->metadata, entry->raw.data, entry->raw.length);
    w->num_metadata++;
}

static uint64_t padded(uint64_t bytes) {
    return (bytes + GGUF_WRITER_ALIGNMENT - 1) / GGUF_WRITER_ALIGNMENT * GGUF_WRITER_ALIGNMENT;
}

/* The file lists the innermost dimension first, struct tensor_info the outermost. */
uint64_t gguf_writer_tensor(struct gguf_writer *w, const struct tensor_info *tensor) {
    uint64_t offset = w->data_bytes;
    append_string(&w->tensors, tensor->name);
    append_u32(&w->tensors, (uint32_t)tensor->num_dims);
    for (int i = tensor->num_dims - 1; i >= 0; i--)
        append_u64(&w->tensors, (uint64_t)tensor->shape[i]);
    append_u32(&w->tensors, gguf_type_number(tensor->dtype));
    append_u64(&w->tensors, offset);
    w->num_tensors++;
    w->data_bytes += padded(tensor->bytes);
    return offset;
}

int gguf_writer_end(const struct gguf_writer *w, struct byte_buffer *out, struct error *err) {
    static const char zeros[GGUF_WRITER_ALIGNMENT];
    byte_buffer_append(out, "GGUF", 4);
    append_u32(out, GGUF_VERSION);
    append_u64(out, w->num_tensors);
    append_u64(out, w->num_metadata);
    byte_buffer_append(out, w->metadata.data, w->metadata.length);
    byte_buffer_append(out, w->tensors.data, w->tensors.length);
    byte_buffer_append(out, zeros, (size_t)(padded(out->length) - out->length));
    if (out->failed || w->metadata.failed || w->tensors.failed)
        return error_set(err, ERROR_MEMORY, "no memory for the header of a GGUF file");
    return 0;
}

void gguf_writer_finish(struct gguf_writer *w) {
    byte_buffer_finish(&w->metadata);
    byte_buffer_finish(&w->tensors);
}
