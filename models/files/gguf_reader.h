/* Private to the GGUF parser: a cursor over the image that never passes its end, and the metadata,
 * which is read with it. Bytes are read from the file before they are touched. */
#ifndef QUIRE_MODELS_FILES_GGUF_READER_H
#define QUIRE_MODELS_FILES_GGUF_READER_H

#include "models/files/tensor_parts.h"

#include <stdbool.h>

struct gguf_reader {
    struct file_image *image;
    size_t position; /* <= image->bytes */
    struct error *err;
};

/* Each fills *out and advances, or returns -1 with "FILE: WHAT ..." in the reader's err. `what`
 * says what was being read, as in "metadata key 3". */
int gguf_reader_u32(struct gguf_reader *r, const char *what, uint32_t *out);
int gguf_reader_u64(struct gguf_reader *r, const char *what, uint64_t *out);
int gguf_reader_string(struct gguf_reader *r, const char *what, struct text *out);
/* Reads a string that names something: 1..max_bytes bytes, no control characters. */
int gguf_reader_name(struct gguf_reader *r, const char *what, size_t max_bytes, struct text *out);

static inline size_t gguf_reader_bytes_left(const struct gguf_reader *r) {
    return r->image->bytes - r->position;
}

/* Returns the bound for a count before memory is allocated for it: the rest of the longest header
 * that a file of this size can have. */
static inline size_t gguf_reader_header_left(const struct gguf_reader *r) {
    size_t left = gguf_reader_bytes_left(r);
    return left < FILE_IMAGE_MAX_BYTES ? left : FILE_IMAGE_MAX_BYTES;
}

/* Makes the next `bytes` readable at r->image->data + r->position, and advances past them; they are
 * known to be inside the file. */
int gguf_reader_take(struct gguf_reader *r, size_t bytes);

/* Reads `count` key-value pairs into table->metadata. */
int gguf_reader_metadata(struct gguf_reader *r, uint64_t count, struct tensor_table *table);

#endif
