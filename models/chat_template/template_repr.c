/* str(), repr() and json.dumps() of Python. */
#include "models/chat_template/template_strings.h"

#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_run.h"
#include "models/chat_template/template_type.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { FLOAT_BYTES = 40 };

/* Writes the digits of %e with an exponent where Python has one: below 1e-4 and from 1e16 on. */
static size_t write_digits(const char *scientific, char out[FLOAT_BYTES]) {
    char digits[24], *to = out;
    int num = 0, exponent = atoi(strchr(scientific, 'e') + 1);
    const char *from = scientific;
    if (*from == '-')
        *to++ = *from++;
    for (; *from != 'e'; from++)
        if (*from != '.')
            digits[num++] = *from;
    while (num > 1 && digits[num - 1] == '0')
        num--;
    if (exponent < -4 || exponent >= 16) {
        to += sprintf(to, "%c%s%.*s", digits[0], num > 1 ? "." : "", num - 1, digits + 1);
        to += sprintf(to, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return (size_t)(to - out);
    }
    if (exponent < 0)
        return (size_t)(to + sprintf(to, "0.%.*s%.*s", -exponent - 1, "000", num, digits) - out);
    for (int i = 0; i < num || i <= exponent; i++) {
        if (i == exponent + 1)
            *to++ = '.';
        *to++ = i < num ? digits[i] : '0';
    }
    if (num <= exponent + 1)
        to += sprintf(to, ".0");
    *to = '\0';
    return (size_t)(to - out);
}

/* Writes the shortest text that reads back as the same number, as Python writes it, NUL-terminated.
 * Returns its length. */
static size_t write_float(double value, char out[FLOAT_BYTES]) {
    char scientific[FLOAT_BYTES];
    if (isnan(value))
        return (size_t)sprintf(out, "nan");
    if (isinf(value))
        return (size_t)sprintf(out, value < 0 ? "-inf" : "inf");
    for (int places = 0; places <= 16; places++) {
        snprintf(scientific, sizeof(scientific), "%.*e", places, value);
        if (strtod(scientific, NULL) == value)
            break;
    }
    return write_digits(scientific, out);
}

static bool add_scalar(const struct template_value *value, struct template_builder *builder) {
    char number[FLOAT_BYTES];
    size_t length;
    switch (value->kind) {
    case TEMPLATE_NONE:
        template_builder_add_server(builder, "None");
        return true;
    case TEMPLATE_BOOL:
        template_builder_add_server(builder, value->boolean ? "True" : "False");
        return true;
    case TEMPLATE_INT:
        length = (size_t)snprintf(number, sizeof(number), "%lld", (long long)value->integer);
        break;
    case TEMPLATE_FLOAT:
        if (value->digits != NULL) {
            template_builder_add_server(builder, value->digits);
            return true;
        }
        length = write_float(value->real, number);
        break;
    default:
        return false;
    }
    template_builder_add(builder, (struct text){number, length}, TEMPLATE_ORIGIN_SERVER);
    return true;
}

/* --- Strings --- */

/* Writes the escape of a character within quotes; 0: it stands for itself. */
static int write_escape(int32_t c, char quote, char out[12]) {
    if (c == quote || c == '\\')
        return sprintf(out, "\\%c", (char)c);
    if (c == '\n' || c == '\r' || c == '\t')
        return sprintf(out, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    if (template_characters_is_printable(c))
        return 0;
    return sprintf(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
}

static void repr_string(const struct template_value *string, struct template_builder *builder) {
    struct text text = template_string_text(string);
    bool single = text.length > 0 && memchr(text.data, '\'', text.length) != NULL;
    bool has_double = text.length > 0 && memchr(text.data, '"', text.length) != NULL;
    char quote = single && !has_double ? '"' : '\'', escape[12];
    size_t begin = 0;
    template_builder_add(builder, (struct text){&quote, 1}, TEMPLATE_ORIGIN_SERVER);
    for (size_t at = 0, next = 0; at < text.length; at = next) {
        int length = write_escape(template_characters_next(text, &next), quote, escape);
        if (length == 0)
            continue;
        template_builder_add_part(builder, string, begin, at);
        const uint8_t *marks = string->string.marks;
        template_builder_add(builder, (struct text){escape, (size_t)length},
                             marks != NULL ? marks[at] : string->origin);
        begin = next;
    }
    template_builder_add_part(builder, string, begin, text.length);
    template_builder_add(builder, (struct text){&quote, 1}, TEMPLATE_ORIGIN_SERVER);
}

/* --- Collections --- */

static int repr(struct template_run *run, const struct template_value *value, int depth,
                struct template_builder *builder);

static int repr_items(struct template_run *run, const struct template_sequence *sequence,
                      const char *open, const char *close, int depth,
                      struct template_builder *builder) {
    template_builder_add_server(builder, open);
    for (size_t i = 0; i < sequence->length; i++) {
        if (i > 0)
            template_builder_add_server(builder, ", ");
        if (repr(run, &sequence->items[i], depth, builder) != 0)
            return -1;
    }
    template_builder_add_server(builder, close);
    return 0;
}

static int repr_map(struct template_run *run, const struct template_mapping *map, int depth,
                    struct template_builder *builder) {
    template_builder_add_server(builder, "{");
    for (size_t i = 0; i < map->length; i++) {
        if (i > 0)
            template_builder_add_server(builder, ", ");
        if (repr(run, &map->entries[i].key, depth, builder) != 0)
            return -1;
        template_builder_add_server(builder, ": ");
        if (repr(run, &map->entries[i].item, depth, builder) != 0)
            return -1;
    }
    template_builder_add_server(builder, "}");
    return 0;
}

static void repr_range(const struct template_sequence *range, struct template_builder *builder) {
    char text[96];
    size_t length = range->length;
    int64_t start = length > 0 ? range->items[0].integer : 0;
    int64_t step = length > 1 ? range->items[1].integer - start : 1;
    int64_t stop = length > 0 ? range->items[length - 1].integer + step : 0;
    int bytes = snprintf(text, sizeof(text), "range(%lld, %lld", (long long)start, (long long)stop);
    template_builder_add(builder, (struct text){text, (size_t)bytes}, TEMPLATE_ORIGIN_SERVER);
    bytes = snprintf(text, sizeof(text), ", %lld", (long long)step);
    if (step != 1)
        template_builder_add(builder, (struct text){text, (size_t)bytes}, TEMPLATE_ORIGIN_SERVER);
    template_builder_add_server(builder, ")");
}

static int repr(struct template_run *run, const struct template_value *value, int depth,
                struct template_builder *builder) {
    static const char *const views[] = {"dict_keys([", "dict_values([", "dict_items(["};
    if (depth > TEMPLATE_MAX_VALUE_DEPTH)
        return template_run_fail(run, "values nest too deep to write them");
    if (template_run_charge(run, 1) != 0)
        return -1;
    if (add_scalar(value, builder))
        return 0;
    switch (value->kind) {
    case TEMPLATE_UNDEFINED:
        template_builder_add_server(builder, "Undefined");
        return 0;
    case TEMPLATE_STRING:
        template_builder_add_server(builder, value->is_markup ? "Markup(" : "");
        repr_string(value, builder);
        template_builder_add_server(builder, value->is_markup ? ")" : "");
        return template_run_charge_text(run, value->string.length);
    case TEMPLATE_LIST:
        return repr_items(run, value->sequence, "[", "]", depth + 1, builder);
    case TEMPLATE_TUPLE:
        return repr_items(run, value->sequence, "(", value->sequence->length == 1 ? ",)" : ")",
                          depth + 1, builder);
    case TEMPLATE_VIEW:
        return repr_items(run, value->sequence, views[value->origin], "])", depth + 1, builder);
    case TEMPLATE_RANGE:
        repr_range(value->sequence, builder);
        return 0;
    case TEMPLATE_MAP:
        return repr_map(run, value->mapping, depth + 1, builder);
    case TEMPLATE_NAMESPACE:
        template_builder_add_server(builder, "<Namespace ");
        if (repr_map(run, value->mapping, depth + 1, builder) != 0)
            return -1;
        template_builder_add_server(builder, ">");
        return 0;
    default:
        template_builder_add_server(builder, "<");
        template_builder_add_server(builder, template_type_name(value));
        template_builder_add_server(builder, " object>");
        return 0;
    }
}

int template_repr_repr(struct template_run *run, const struct template_value *value,
                       struct template_builder *builder) {
    return repr(run, value, 0, builder);
}

int template_repr_str(struct template_run *run, const struct template_value *value,
                      struct template_builder *builder) {
    if (value->kind == TEMPLATE_STRING) {
        template_builder_add_string(builder, value);
        return template_run_charge_text(run, value->string.length);
    }
    if (value->kind == TEMPLATE_UNDEFINED)
        return 0;
    return repr(run, value, 0, builder);
}

int template_repr_string(struct template_run *run, const struct template_value *value,
                         struct template_value *out) {
    struct template_builder builder = {.arena = run->arena};
    if (value->kind == TEMPLATE_STRING) {
        *out = *value;
        return 0;
    }
    return template_repr_str(run, value, &builder) != 0 ? -1
                                                        : template_run_finish(run, &builder, out);
}

/* --- The filter tojson: as json.dumps() --- */

struct writer {
    struct template_run *run;
    struct template_builder builder;
    bool ascii, sorted, has_indent;
    struct template_value indent, item_separator, key_separator;
};

/* Writes the escape of a character; 0: it stands for itself. */
static int json_escape(const struct writer *w, int32_t c, char out[16]) {
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
        int length = json_escape(w, template_characters_next(text, &next), escape);
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
static const char *scalar_text(const struct template_value *value, char number[FLOAT_BYTES]) {
    switch (value->kind) {
    case TEMPLATE_NONE:
        return "null";
    case TEMPLATE_BOOL:
        return value->boolean ? "true" : "false";
    case TEMPLATE_INT:
        snprintf(number, FLOAT_BYTES, "%lld", (long long)value->integer);
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
    write_float(value->real, number);
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
    char number[FLOAT_BYTES];
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
        if (!template_value_append(w->run->arena, keys, map->entries[i].key))
            return template_run_fail_memory(w->run);
    return template_type_sort(w->run, keys->items, keys->items, keys->length, false);
}

static int write_map(struct writer *w, const struct template_mapping *map, int depth) {
    struct template_sequence keys = {0};
    if (w->sorted && sort_entries(w, map, &keys) != 0)
        return -1;
    template_builder_add_server(&w->builder, "{");
    for (size_t i = 0; i < map->length; i++) {
        const struct template_value *key = w->sorted ? &keys.items[i] : &map->entries[i].key;
        const struct template_value *item =
            w->sorted ? template_value_map_find(w->run->arena, map, key) : &map->entries[i].item;
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
    char number[FLOAT_BYTES];
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
    struct template_value space = template_value_server(" ");
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
    w->item_separator = template_value_server(w->has_indent ? "," : ", ");
    w->key_separator = template_value_server(": ");
    if (given->kind == TEMPLATE_MISSING || given->kind == TEMPLATE_NONE)
        return 0;
    if ((given->kind != TEMPLATE_TUPLE && given->kind != TEMPLATE_LIST) ||
        given->sequence->length != 2 || !template_value_is_string(&given->sequence->items[0]) ||
        !template_value_is_string(&given->sequence->items[1]))
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
