#include "server/api/embeddings/embedding_format.h"

#include "server/base64.h"
#include "server/json/json_write.h"

#include <math.h>
#include <string.h>

/* Floats that are converted to bytes at a time; a multiple of 3, so that no group of base64 is
 * cut. */
#define PIECE 48

void embedding_normalise(const float *vector, int32_t num_dimensions, float *out) {
    double squares = 0.0;
    for (int32_t i = 0; i < num_dimensions; i++)
        squares += (double)vector[i] * (double)vector[i];
    double scale = squares > 0.0 ? 1.0 / sqrt(squares) : 1.0;
    for (int32_t i = 0; i < num_dimensions; i++)
        out[i] = (float)((double)vector[i] * scale);
}

static void write_numbers(const float *vector, int32_t num_dimensions, struct byte_buffer *out) {
    json_write_begin_array(out);
    for (int32_t i = 0; i < num_dimensions; i++)
        json_write_float(out, vector[i]);
    json_write_end_array(out);
}

static void put_float(float value, unsigned char out[4]) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char)(bits >> (8 * i));
}

static void write_base64(const float *vector, int32_t num_dimensions, struct byte_buffer *out) {
    unsigned char bytes[4 * PIECE];
    json_write_begin_string(out);
    for (int32_t first = 0; first < num_dimensions; first += PIECE) {
        int32_t left = num_dimensions - first, count = left < PIECE ? left : PIECE;
        for (int32_t i = 0; i < count; i++)
            put_float(vector[first + i], bytes + (size_t)4 * (size_t)i);
        base64_write(out, bytes, (size_t)4 * (size_t)count);
    }
    json_write_end_string(out);
}

void embedding_format(int32_t index, const float *vector, int32_t num_dimensions,
                      enum embedding_encoding encoding, struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_text_member(out, "object", "embedding");
    json_write_int_member(out, "index", index);
    json_write_key(out, "embedding");
    if (encoding == EMBEDDING_BASE64)
        write_base64(vector, num_dimensions, out);
    else
        write_numbers(vector, num_dimensions, out);
    json_write_end_object(out);
}
