#include "models/chat_template/template_call.h"
#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_compare.h"
#include "models/chat_template/template_library.h"
#include "models/chat_template/template_repr.h"
#include "models/chat_template/template_type.h"

#include <math.h>
#include <stdio.h>

struct writer {
    struct template_run *run;
    struct template_builder builder;
    bool ascii, sorted, has_indent;
    struct template_value indent, item_separator, key_separator;
};

/* Writes the escape of a character; 0: it stands for itself. */
static int write_escape(const struct writer *w, int32_t c, char out[16]) {
    static const char special[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    const char *found = c > 0 && c < 0x80 ? strchr(special, c) : NULL;
    if (found != NULL)
        return sprintf(out, "\\%c", letters[found - special]);
    if (c >= 0x20 && (c < 0x80 || !w->ascii))
        return 0;
    if (c < 0x10000)
        return sprintf(out, "\\u%04x", (unsigned)c);
    unsigned rest = (unsigned)c - 0x10000;
    return sprintf(out, "\\u%04x\\u%04x", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
}

static int write_string(struct writer *w, const struct template_value *string) {
    struct text text = template_string_text(string);
    char escape[16];
    size_t begin = 0;
    template_builder_add_server(&w->builder, "\"");
    for (size_t at = 0, next = 0; at < text.length; at = next) {
        int length = write_escape(w, template_characters_next(text, &next), escape);
        if (length == 0)
            continue;
        template_builder_add_part(&w->builder, string, begin, at);
        const uint8_t *marks = string->string.marks;
        template_builder_add(&w->builder, (struct text){escape, (size_t)length},
                             marks != NULL ? marks[at] : string->origin);
        begin = next;
    }
    template_builder_add_part(&w->builder, string, begin, text.length);
    template_builder_add_server(&w->builder, "\"");
    return template_run_charge_text(w->run, text.length);
}

/* Gives the text of none, a truth value or a number. */
static const char *scalar_text(const struct template_value *value,
                               char number[TEMPLATE_FLOAT_BYTES]) {
    switch (value->kind) {
    case TEMPLATE_NONE:
        return "null";
    case TEMPLATE_BOOL:
        return value->boolean ? "true" : "false";
    case TEMPLATE_INT:
        snprintf(number, TEMPLATE_FLOAT_BYTES, "%lld", (long long)value->integer);
        return number;
    default:
        break;
    }
    if (value->digits != NULL)
        return value->digits;
    if (isnan(value->real))
        return "NaN";
    if (isinf(value->real))
        return value->real < 0 ? "-Infinity" : "Infinity";
    template_repr_float(value->real, number);
    return number;
}

static void write_newline(struct writer *w, int depth) {
    if (!w->has_indent)
        return;
    template_builder_add_server(&w->builder, "\n");
    template_builder_add_repeated(&w->builder, &w->indent, (size_t)depth);
}

static int write_value(struct writer *w, const struct template_value *value, int depth);

static int write_list(struct writer *w, const struct template_sequence *list, int depth) {
    template_builder_add_server(&w->builder, "[");
    for (size_t i = 0; i < list->length; i++) {
        if (i > 0)
            template_builder_add_string(&w->builder, &w->item_separator);
        write_newline(w, depth + 1);
        if (write_value(w, &list->items[i], depth + 1) != 0)
            return -1;
    }
    if (list->length > 0)
        write_newline(w, depth);
    template_builder_add_server(&w->builder, "]");
    return 0;
}

static int write_key(struct writer *w, const struct template_value *key) {
    char number[TEMPLATE_FLOAT_BYTES];
    if (key->kind == TEMPLATE_STRING)
        return write_string(w, key);
    template_builder_add_server(&w->builder, "\"");
    template_builder_add_server(&w->builder, scalar_text(key, number));
    template_builder_add_server(&w->builder, "\"");
    return 0;
}

/* Gives the map's keys in order. */
static int sort_entries(struct writer *w, const struct template_mapping *map,
                        struct template_sequence *keys) {
    for (size_t i = 0; i < map->length; i++)
        if (!template_data_append(w->run->arena, keys, map->entries[i].key))
            return template_run_fail_memory(w->run);
    return template_compare_sort(w->run, keys->items, keys->items, keys->length, false);
}

static int write_map(struct writer *w, const struct template_mapping *map, int depth) {
    struct template_sequence keys = {0};
    if (w->sorted && sort_entries(w, map, &keys) != 0)
        return -1;
    template_builder_add_server(&w->builder, "{");
    for (size_t i = 0; i < map->length; i++) {
        const struct template_value *key = w->sorted ? &keys.items[i] : &map->entries[i].key;
        const struct template_value *item =
            w->sorted ? template_data_map_find(w->run->arena, map, key) : &map->entries[i].item;
        if (i > 0)
            template_builder_add_string(&w->builder, &w->item_separator);
        write_newline(w, depth + 1);
        if (write_key(w, key) != 0)
            return -1;
        template_builder_add_string(&w->builder, &w->key_separator);
        if (write_value(w, item, depth + 1) != 0)
            return -1;
    }
    if (map->length > 0)
        write_newline(w, depth);
    template_builder_add_server(&w->builder, "}");
    return 0;
}

static int write_value(struct writer *w, const struct template_value *value, int depth) {
    char number[TEMPLATE_FLOAT_BYTES];
    if (depth > TEMPLATE_MAX_VALUE_DEPTH)
        return template_run_fail(w->run, "values nest too deep to write them as JSON");
    if (template_run_charge(w->run, 1) != 0)
        return -1;
    switch (value->kind) {
    case TEMPLATE_NONE:
    case TEMPLATE_BOOL:
    case TEMPLATE_INT:
    case TEMPLATE_FLOAT:
        template_builder_add_server(&w->builder, scalar_text(value, number));
        return 0;
    case TEMPLATE_STRING:
        return write_string(w, value);
    case TEMPLATE_LIST:
    case TEMPLATE_TUPLE:
        return write_list(w, value->sequence, depth);
    case TEMPLATE_MAP:
        return write_map(w, value->mapping, depth);
    default:
        return template_run_fail(w->run, "Object of type %s is not JSON serializable",
                                 template_type_name(value));
    }
}

static int read_indent(struct writer *w, const struct template_value *given) {
    struct template_builder builder = {.arena = w->run->arena};
    struct template_value space = template_data_server(" ");
    int64_t width;
    w->has_indent = given->kind != TEMPLATE_MISSING && given->kind != TEMPLATE_NONE;
    w->indent = *given;
    if (!w->has_indent || given->kind == TEMPLATE_STRING)
        return 0;
    if (!template_type_int(given, &width) || width > 1000)
        return template_run_fail(w->run, "tojson: indent is a string or a number up to 1000");
    template_builder_add_repeated(&builder, &space, width > 0 ? (size_t)width : 0);
    return template_run_finish(w->run, &builder, &w->indent);
}

static int read_separators(struct writer *w, const struct template_value *given) {
    w->item_separator = template_data_server(w->has_indent ? "," : ", ");
    w->key_separator = template_data_server(": ");
    if (given->kind == TEMPLATE_MISSING || given->kind == TEMPLATE_NONE)
        return 0;
    if ((given->kind != TEMPLATE_TUPLE && given->kind != TEMPLATE_LIST) ||
        given->sequence->length != 2 || !template_data_is_string(&given->sequence->items[0]) ||
        !template_data_is_string(&given->sequence->items[1]))
        return template_run_fail(w->run, "tojson: separators are two strings");
    w->item_separator = given->sequence->items[0];
    w->key_separator = given->sequence->items[1];
    return 0;
}

TEMPLATE_BODY(to_json) {
    struct writer w = {.run = run, .builder = {.arena = run->arena}};
    w.ascii = template_call_get_flag(call, 0, false);
    w.sorted = template_call_get_flag(call, 3, false);
    if (read_indent(&w, &call->given[1]) != 0 || read_separators(&w, &call->given[2]) != 0 ||
        write_value(&w, call->self, 0) != 0)
        return -1;
    return template_run_finish(run, &w.builder, out);
}

const struct template_function template_json_filters[] = {
    {"tojson", to_json, "ensure_ascii indent separators sort_keys", 0},
    {NULL, NULL, NULL, 0},
};
