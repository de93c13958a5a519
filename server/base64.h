/* Bytes as base64 text (RFC 4648, section 4). */
#ifndef QUIRE_SERVER_BASE64_H
#define QUIRE_SERVER_BASE64_H

#include "config/base/byte_buffer.h"

/* Appends the text, with padding and without line breaks. */
void base64_write(struct byte_buffer *out, const unsigned char *data, size_t length);

#endif
