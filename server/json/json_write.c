#include "server/json/json_write.h"

#include "config/base/utf8.h"
#include "server/json/json_integer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    byte_buffer_append(out, "\"", 1);
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
    byte_buffer_append(out, "\"", 1);
}

void json_write_text(struct byte_buffer *out, const char *text) {
    if (text == NULL)
        byte_buffer_append_text(out, "null");
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
    byte_buffer_append_text(out, text);
    /* Some clients read "1" as an integer where a float is typed. */
    if (strpbrk(text, ".e") == NULL)
        byte_buffer_append_text(out, ".0");
}

void json_write_int(struct byte_buffer *out, int64_t value) {
    byte_buffer_printf(out, "%" PRId64, value);
}

static void write_number(struct byte_buffer *out, const cJSON *item) {
    const char *digits = json_integer_digits(item);
    char text[64];
    bool is_short = digits != NULL || cJSON_PrintPreallocated((cJSON *)item, text, sizeof(text), 0);
    byte_buffer_append_text(out, digits != NULL ? digits : text);
    out->failed = out->failed || !is_short;
}

/* As deep as json_parse lets a body be. */
void json_write_tree(struct byte_buffer *out, const cJSON *tree) {
    bool is_object = cJSON_IsObject(tree);
    if (cJSON_IsString(tree)) {
        json_write_text(out, tree->valuestring);
    } else if (cJSON_IsNumber(tree)) {
        write_number(out, tree);
    } else if (!is_object && !cJSON_IsArray(tree)) {
        const char *word = cJSON_IsTrue(tree) ? "true" : cJSON_IsFalse(tree) ? "false" : "null";
        byte_buffer_append_text(out, word);
    } else {
        const cJSON *item;
        byte_buffer_append_text(out, is_object ? "{" : "[");
        cJSON_ArrayForEach(item, tree) {
            byte_buffer_append_text(out, item == tree->child ? "" : ",");
            if (is_object)
                json_write_text(out, item->string);
            byte_buffer_append_text(out, is_object ? ":" : "");
            json_write_tree(out, item);
        }
        byte_buffer_append_text(out, is_object ? "}" : "]");
    }
}
