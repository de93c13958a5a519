#include "server/api/embeddings/embedding_format.h"

#include "config/json/json_write.h"

#include <math.h>
#include <string.h>

/* Floats that are converted to bytes at a time; a multiple of 3, so that no group of base64 is
 * split. */
#define CHUNK 48

void embedding_normalise(const float *vector, int32_t num_dimensions, float *out) {
    double squares = 0.0;
    for (int32_t i = 0; i < num_dimensions; i++)
        squares += (double)vector[i] * (double)vector[i];
    double scale = squares > 0.0 ? 1.0 / sqrt(squares) : 1.0;
    for (int32_t i = 0; i < num_dimensions; i++)
        out[i] = (float)((double)vector[i] * scale);
}

void embedding_format_numbers(const float *vector, int32_t num_dimensions,
                              struct byte_buffer *out) {
    json_write_begin_array(out);
    for (int32_t i = 0; i < num_dimensions; i++)
        json_write_float(out, vector[i]);
    json_write_end_array(out);
}

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Writes up to three bytes as four characters. */
static void write_group(const unsigned char *data, size_t count, char out[4]) {
    uint32_t bits = (uint32_t)data[0] << 16;
    if (count > 1)
        bits |= (uint32_t)data[1] << 8;
    if (count > 2)
        bits |= data[2];
    for (size_t i = 0; i < 4; i++)
        out[i] = i <= count ? alphabet[bits >> (18 - 6 * i) & 63] : '=';
}

void embedding_format_base64(struct byte_buffer *out, const unsigned char *data, size_t length) {
    char text[256];
    size_t filled = 0;
    for (size_t i = 0; i < length; i += 3) {
        write_group(data + i, length - i < 3 ? length - i : 3, text + filled);
        filled += 4;
        if (filled == sizeof(text)) {
            byte_buffer_append(out, text, filled);
            filled = 0;
        }
    }
    byte_buffer_append(out, text, filled);
}

static void write_base64(const float *vector, int32_t num_dimensions, struct byte_buffer *out) {
    unsigned char bytes[4 * CHUNK];
    json_write_begin_string(out);
    for (int32_t first = 0; first < num_dimensions; first += CHUNK) {
        int32_t left = num_dimensions - first, count = left < CHUNK ? left : CHUNK;
        for (int32_t i = 0; i < count; i++) {
            uint32_t bits;
            memcpy(&bits, &vector[first + i], sizeof(bits));
            for (int32_t k = 0; k < 4; k++)
                bytes[4 * i + k] = (unsigned char)(bits >> (8 * k));
        }
        embedding_format_base64(out, bytes, (size_t)4 * (size_t)count);
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
        embedding_format_numbers(vector, num_dimensions, out);
    json_write_end_object(out);
}
