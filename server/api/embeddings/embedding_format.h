/* The JSON of an embedding; and base64, in which an embedding may be written. */
#ifndef QUIRE_SERVER_API_EMBEDDINGS_EMBEDDING_FORMAT_H
#define QUIRE_SERVER_API_EMBEDDINGS_EMBEDDING_FORMAT_H

#include "config/base/byte_buffer.h"

#include <stdbool.h>
#include <stdint.h>

enum embedding_encoding {
    EMBEDDING_FLOAT,  /* an array of numbers, each the shortest that reads back as the same float */
    EMBEDDING_BASE64, /* a string: the floats, little-endian, in base64 */
};

/* Scales a vector to a Euclidean length of 1; a vector of length 0 stays as it is. Sums are
 * computed in double and in order, so the same vector gives the same bits. out may be vector. */
void embedding_normalise(const float *vector, int32_t num_dimensions, float *out);

/* Writes {"object":"embedding","index":...,"embedding":...}. */
void embedding_format(int32_t index, const float *vector, int32_t num_dimensions,
                      enum embedding_encoding encoding, struct byte_buffer *out);

/* Writes only the array of numbers. */
void embedding_format_numbers(const float *vector, int32_t num_dimensions, struct byte_buffer *out);

/* Appends bytes as base64 text (RFC 4648, section 4), with padding and without line breaks. */
void embedding_format_base64(struct byte_buffer *out, const unsigned char *data, size_t length);

#endif
