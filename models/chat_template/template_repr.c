/* str() and repr() of Python. */
#include "models/chat_template/template_repr.h"

#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_type.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Writes the digits of %e with an exponent where Python has one: below 1e-4 and from 1e16 on. */
static size_t write_digits(const char *scientific, char out[TEMPLATE_FLOAT_BYTES]) {
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

size_t template_repr_float(double value, char out[TEMPLATE_FLOAT_BYTES]) {
    char scientific[TEMPLATE_FLOAT_BYTES];
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
    char number[TEMPLATE_FLOAT_BYTES];
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
        length = template_repr_float(value->real, number);
        break;
    default:
        return false;
    }
    template_builder_add(builder, (struct text){number, length}, TEMPLATE_ORIGIN_SERVER);
    return true;
}

/* --- Strings -----------------------------------------------------------------------------------
 */

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

/* --- Collections -------------------------------------------------------------------------------
 */

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
