#include "server/base64.h"

#include <stdint.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Up to three bytes as four characters. */
static void write_group(const unsigned char *data, size_t count, char out[4]) {
    uint32_t bits = (uint32_t)data[0] << 16;
    if (count > 1)
        bits |= (uint32_t)data[1] << 8;
    if (count > 2)
        bits |= data[2];
    for (size_t i = 0; i < 4; i++)
        out[i] = i <= count ? alphabet[bits >> (18 - 6 * i) & 63] : '=';
}

void base64_write(struct byte_buffer *out, const unsigned char *data, size_t length) {
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
