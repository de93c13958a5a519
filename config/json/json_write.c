#include "config/json/json_write.h"

#include "config/base/utf8.h"
#include "config/json/json_integer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the comma that is due before a value or a key. */
static void separate(struct byte_buffer *out) {
    if (out->length > 0 && strchr("{[:, \n", out->data[out->length - 1]) == NULL)
        byte_buffer_append(out, ",", 1);
}

void json_write_begin_object(struct byte_buffer *out) {
    separate(out);
    byte_buffer_append(out, "{", 1);
}

void json_write_end_object(struct byte_buffer *out) {
    byte_buffer_append(out, "}", 1);
}

void json_write_begin_array(struct byte_buffer *out) {
    separate(out);
    byte_buffer_append(out, "[", 1);
}

void json_write_end_array(struct byte_buffer *out) {
    byte_buffer_append(out, "]", 1);
}

void json_write_key(struct byte_buffer *out, const char *name) {
    json_write_text(out, name);
    json_write_end_key(out);
}

void json_write_end_key(struct byte_buffer *out) {
    byte_buffer_append(out, ":", 1);
}

void json_write_begin_string(struct byte_buffer *out) {
    separate(out);
    byte_buffer_append(out, "\"", 1);
}

void json_write_end_string(struct byte_buffer *out) {
    byte_buffer_append(out, "\"", 1);
}

static bool is_plain(unsigned char byte) {
    return byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\';
}

static void write_escape(struct byte_buffer *out, unsigned char byte) {
    static const char short_names[] = "\"\\\b\f\n\r\t";
    static const char short_letters[] = "\"\\bfnrt";
    const char *found = byte != 0 ? strchr(short_names, byte) : NULL;
    if (found != NULL) {
        char escape[2] = {'\\', short_letters[found - short_names]};
        byte_buffer_append(out, escape, sizeof(escape));
    } else {
        byte_buffer_printf(out, "\\u%04x", byte);
    }
}

void json_write_string(struct byte_buffer *out, const char *data, size_t length) {
    json_write_begin_string(out);
    size_t i = 0;
    while (i < length) {
        size_t run = 0;
        while (i + run < length && is_plain((unsigned char)data[i + run]))
            run++;
        byte_buffer_append(out, data + i, run);
        i += run;
        if (i == length)
            break;
        size_t count = utf8_char_bytes(data + i, length - i);
        if (count > 1)
            byte_buffer_append(out, data + i, count);
        else if (count == 1)
            write_escape(out, (unsigned char)data[i]);
        else
            byte_buffer_append_text(out, UTF8_REPLACEMENT);
        i += count == 0 ? 1 : count;
    }
    json_write_end_string(out);
}

void json_write_text(struct byte_buffer *out, const char *text) {
    if (text == NULL)
        json_write_null(out);
    else
        json_write_string(out, text, strlen(text));
}

void json_write_float(struct byte_buffer *out, float value) {
    if (!isfinite(value))
        value = -9999.0f;
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    json_write_raw(out, text);
    /* Some clients read "1" as an integer where the type is float. */
    if (strpbrk(text, ".e") == NULL)
        byte_buffer_append_text(out, ".0");
}

void json_write_int(struct byte_buffer *out, int64_t value) {
    separate(out);
    byte_buffer_printf(out, "%" PRId64, value);
}

void json_write_bool(struct byte_buffer *out, bool value) {
    json_write_raw(out, value ? "true" : "false");
}

void json_write_null(struct byte_buffer *out) {
    json_write_raw(out, "null");
}

static void write_number(struct byte_buffer *out, const cJSON *item, bool as_sent) {
    char text[JSON_NUMBER_BYTES];
    json_integer_print(item, text, sizeof(text));
    json_write_raw(out, as_sent && item->valuestring != NULL ? item->valuestring : text);
}

/* Recurses at most as deep as json_parse lets a body be nested. */
static void write_tree(struct byte_buffer *out, const cJSON *tree, bool as_sent) {
    const cJSON *item;
    if (cJSON_IsString(tree)) {
        json_write_text(out, tree->valuestring);
    } else if (cJSON_IsNumber(tree)) {
        write_number(out, tree, as_sent);
    } else if (cJSON_IsObject(tree)) {
        json_write_begin_object(out);
        cJSON_ArrayForEach(item, tree) {
            json_write_key(out, item->string);
            write_tree(out, item, as_sent);
        }
        json_write_end_object(out);
    } else if (cJSON_IsArray(tree)) {
        json_write_begin_array(out);
        cJSON_ArrayForEach(item, tree) write_tree(out, item, as_sent);
        json_write_end_array(out);
    } else {
        json_write_raw(out, cJSON_IsTrue(tree) ? "true" : cJSON_IsFalse(tree) ? "false" : "null");
    }
}

void json_write_tree(struct byte_buffer *out, const cJSON *tree) {
    write_tree(out, tree, false);
}

void json_write_tree_as_sent(struct byte_buffer *out, const cJSON *tree) {
    write_tree(out, tree, true);
}

void json_write_raw(struct byte_buffer *out, const char *json) {
    separate(out);
    byte_buffer_append_text(out, json);
}

void json_write_items(struct byte_buffer *out, const struct byte_buffer *items) {
    if (items->length == 0)
        return;
    separate(out);
    byte_buffer_append(out, items->data, items->length);
}

void json_write_text_member(struct byte_buffer *out, const char *name, const char *text) {
    json_write_key(out, name);
    json_write_text(out, text);
}

void json_write_string_member(struct byte_buffer *out, const char *name,
                              const struct byte_buffer *text) {
    json_write_key(out, name);
    json_write_string(out, text->data, text->length);
}

void json_write_int_member(struct byte_buffer *out, const char *name, int64_t value) {
    json_write_key(out, name);
    json_write_int(out, value);
}

void json_write_raw_member(struct byte_buffer *out, const char *name, const char *json) {
    json_write_key(out, name);
    json_write_raw(out, json);
}

void json_write_array_member(struct byte_buffer *out, const char *name,
                             const struct byte_buffer *items) {
    json_write_key(out, name);
    if (items == NULL) {
        json_write_null(out);
        return;
    }
    json_write_begin_array(out);
    json_write_items(out, items);
    json_write_end_array(out);
}
