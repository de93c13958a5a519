/* Appends JSON to a byte buffer, value by value, without white space. The result is valid JSON in
 * valid UTF-8, whatever bytes are put in, as long as containers are ended and keys have values.
 *
 * Callers never write a comma: a value or a key is preceded by one unless the buffer is empty or
 * its last byte opens a container, ends a key, or is white space. So members and items are written
 * one after the other, by whoever has them, also after ready-made JSON; and values in a separate
 * buffer are items (or members) that json_write_items puts into a container later. The buffer must
 * not be consumed in between. When memory is short, the buffer's `failed` is set. */
#ifndef QUIRE_CONFIG_JSON_JSON_WRITE_H
#define QUIRE_CONFIG_JSON_JSON_WRITE_H

#include "config/base/byte_buffer.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

void json_write_begin_object(struct byte_buffer *out);
void json_write_end_object(struct byte_buffer *out);
void json_write_begin_array(struct byte_buffer *out);
void json_write_end_array(struct byte_buffer *out);
/* Writes the key of the next value. */
void json_write_key(struct byte_buffer *out, const char *name);
/* Makes the string that was written last the key of the next value. */
void json_write_end_key(struct byte_buffer *out);

/* Writes a quoted string. Quotes, backslashes and control characters are escaped; each byte that is
 * not part of a valid UTF-8 character becomes U+FFFD. */
void json_write_string(struct byte_buffer *out, const char *data, size_t length);
/* Writes NUL-terminated text in the same way; NULL as null. */
void json_write_text(struct byte_buffer *out, const char *text);
/* Write the quotes of a string whose content, printable ASCII that needs no escape, the caller
 * appends between these two calls. */
void json_write_begin_string(struct byte_buffer *out);
void json_write_end_string(struct byte_buffer *out);
/* Writes the shortest decimal that reads back as the same float. Infinities and NaN, which JSON
 * does not have, become -9999.0 (as in vLLM; they only occur as the logprob of an impossible
 * token). */
void json_write_float(struct byte_buffer *out, float value);
void json_write_int(struct byte_buffer *out, int64_t value);
void json_write_bool(struct byte_buffer *out, bool value);
void json_write_null(struct byte_buffer *out);
/* Writes a tree of json_parse with every digit of its numbers; NULL as null. Equal numbers are
 * written alike (1 and 1.0: a schema's value, a cache's key). */
void json_write_tree(struct byte_buffer *out, const cJSON *tree);
/* Writes the same with 1.0, -0.0 and 1e5 as they were sent, for readers that tell them from
 * integers. */
void json_write_tree_as_sent(struct byte_buffer *out, const cJSON *tree);
/* Writes ready-made JSON: a value, or items with commas between them. */
void json_write_raw(struct byte_buffer *out, const char *json);
/* Writes the same from a buffer; nothing if it is empty. */
void json_write_items(struct byte_buffer *out, const struct byte_buffer *items);

/* Write a key and its value. items: NULL is written as null, others as an array. */
void json_write_text_member(struct byte_buffer *out, const char *name, const char *text);
void json_write_string_member(struct byte_buffer *out, const char *name,
                              const struct byte_buffer *text);
void json_write_int_member(struct byte_buffer *out, const char *name, int64_t value);
void json_write_raw_member(struct byte_buffer *out, const char *name, const char *json);
void json_write_array_member(struct byte_buffer *out, const char *name,
                             const struct byte_buffer *items);

#endif
