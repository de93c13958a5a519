/* Private to models/: the beginning of a GGUF file in memory, metadata and then the table of
 * tensors (gguf.h has the format); the tensors' data follows it in the file, in the order in which
 * they were added. A zeroed writer is empty; the owner calls gguf_writer_finish.
 *
 * Adding never half-succeeds and is checked once, by gguf_writer_end. Keys and names are those of
 * the format and within its limits. */
#ifndef QUIRE_MODELS_FILES_GGUF_WRITER_H
#define QUIRE_MODELS_FILES_GGUF_WRITER_H

#include "config/base/byte_buffer.h"
#include "models/files/tensor_file.h"

#define GGUF_WRITER_ALIGNMENT 32

struct gguf_writer {
    struct byte_buffer metadata, tensors;
    uint64_t num_metadata, num_tensors;
    uint64_t data_bytes; /* of the tensors so far, each padded to the alignment */
};

void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_i32(struct gguf_writer *w, const char *key, int32_t value);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float value);
void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_writer_string(struct gguf_writer *w, const char *key, struct text value);
void gguf_writer_strings(struct gguf_writer *w, const char *key, const struct text *values,
                         size_t count);
void gguf_writer_i32s(struct gguf_writer *w, const char *key, const int32_t *values, size_t count);
void gguf_writer_f32s(struct gguf_writer *w, const char *key, const float *values, size_t count);
void gguf_writer_bools(struct gguf_writer *w, const char *key, const uint8_t *values, size_t count);
/* Copies an entry of a GGUF file, with its type. */
void gguf_writer_copy(struct gguf_writer *w, const struct metadata *entry);

/* Adds a tensor with the name, dtype, dimensions and bytes of `tensor`; returns where its data
 * begins, counted from the first byte after the header. */
uint64_t gguf_writer_tensor(struct gguf_writer *w, const struct tensor_info *tensor);

/* Appends everything before the data, padded to the alignment, to *out. ERROR_MEMORY if anything
 * failed. */
int gguf_writer_end(const struct gguf_writer *w, struct byte_buffer *out, struct error *err);
void gguf_writer_finish(struct gguf_writer *w);

#endif
