/* Pieces of JSON text appended to a byte buffer. What comes out is always valid JSON in valid
 * UTF-8, whatever the bytes put in. */
#ifndef QUIRE_SERVER_JSON_WRITE_H
#define QUIRE_SERVER_JSON_WRITE_H

#include "config/base/byte_buffer.h"

#include <cjson/cJSON.h>
#include <stdint.h>

/* A quoted string. Quotes, backslashes and control characters are escaped; each byte that is not
 * part of a valid UTF-8 character becomes U+FFFD. */
void json_write_string(struct byte_buffer *out, const char *data, size_t length);
/* The same for NUL-terminated text; NULL is written as null. */
void json_write_text(struct byte_buffer *out, const char *text);
/* The shortest decimal that reads back as the same float. Infinities and NaN, which JSON does not
 * have, become -9999.0 (as in vLLM; they only come up as the logprob of an impossible token). */
void json_write_float(struct byte_buffer *out, float value);
void json_write_int(struct byte_buffer *out, int64_t value);
/* A tree of json_parse, without white space and with every digit of its integers; NULL is written
 * as null. */
void json_write_tree(struct byte_buffer *out, const cJSON *tree);

#endif
