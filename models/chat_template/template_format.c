#include "models/chat_template/template_format.h"

#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_repr.h"
#include "models/chat_template/template_strings.h"
#include "models/chat_template/template_type.h"

#include <math.h>
#include <stdio.h>

enum { MAX_WIDTH = 10000, MAX_PRECISION = 100, NUMBER_BYTES = 512 };

/* Describes how one value is written. */
struct format {
    char type;  /* 's', 'r', 'd' or 'f'; 0: as str() */
    char align; /* '<', '>' or '^'; 0: as the type has it */
    bool zero;  /* filled with zeros behind the sign */
    int64_t width;
    int64_t precision;          /* -1: none */
    struct template_value fill; /* one character */
};

/* The format, the place in it, and the result so far. */
struct formatter {
    struct template_run *run;
    struct template_builder builder;
    const struct template_value *format;
    struct text text; /* of the format */
    size_t at, num_used;
};

static struct formatter formatter_of(struct template_run *run,
                                     const struct template_value *format) {
    return (struct formatter){.run = run,
                              .builder = {.arena = run->arena, .is_markup = format->is_markup},
                              .format = format,
                              .text = template_string_text(format)};
}

static struct format plain_format(void) {
    return (struct format){.precision = -1, .fill = template_data_server(" ")};
}

static char peek(const struct formatter *f) {
    return f->at < f->text.length ? f->text.data[f->at] : '\0';
}

static int64_t read_number(struct formatter *f) {
    int64_t number = 0;
    for (; peek(f) >= '0' && peek(f) <= '9'; f->at++)
        number = number > MAX_WIDTH ? number : number * 10 + (peek(f) - '0');
    return number;
}

/* --- One value ---------------------------------------------------------------------------------
 */

/* Fills up to the width. */
static void add_aligned(struct formatter *f, const struct format *format, char align,
                        const struct template_value *string) {
    size_t length = template_characters_count(template_string_text(string));
    size_t width = (size_t)format->width, missing = width > length ? width - length : 0;
    size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    template_builder_add_repeated(&f->builder, &format->fill, before);
    template_builder_add_string(&f->builder, string);
    template_builder_add_repeated(&f->builder, &format->fill, missing - before);
}

static int add_text(struct formatter *f, const struct template_value *value,
                    const struct format *format) {
    struct template_builder own = {.arena = f->run->arena};
    struct template_value string;
    if ((format->type == 'r' ? template_repr_repr(f->run, value, &own)
                             : template_repr_str(f->run, value, &own)) != 0 ||
        template_run_finish(f->run, &own, &string) != 0)
        return -1;
    if (format->precision >= 0)
        string = template_data_part(
            string, 0,
            template_characters_offset(template_string_text(&string), (size_t)format->precision));
    add_aligned(f, format, format->align != 0 ? format->align : '<', &string);
    return 0;
}

static int add_number(struct formatter *f, const struct template_value *value,
                      const struct format *format) {
    char digits[NUMBER_BYTES];
    int64_t integer;
    double number;
    bool negative;
    int length = 0;
    if (format->type == 'f') {
        if (!template_type_number(value, &number))
            return template_run_fail(f->run, "%%f format: must be real number, not %s",
                                     template_type_name(value));
        negative = signbit(number) != 0 && !isnan(number);
        length = snprintf(digits, sizeof(digits), "%s%.*f", negative ? "-" : "",
                          format->precision < 0 ? 6 : (int)format->precision, fabs(number));
    } else {
        if (value->kind == TEMPLATE_FLOAT && fabs(value->real) <= 9e18)
            integer = (int64_t)value->real;
        else if (!template_type_int(value, &integer))
            return template_run_fail(f->run, "%%d format: a real number is required, not %s",
                                     template_type_name(value));
        uint64_t size = integer < 0 ? -(uint64_t)integer : (uint64_t)integer;
        negative = integer < 0;
        length = snprintf(digits, sizeof(digits), "%s%.*lu", negative ? "-" : "",
                          format->precision > 0 ? (int)format->precision : 1, (unsigned long)size);
    }
    struct template_value string =
        template_data_text((struct text){digits, (size_t)length}, TEMPLATE_ORIGIN_SERVER);
    if (format->zero && format->align == 0) {
        struct template_value sign = template_data_part(string, 0, negative);
        struct template_value zero = template_data_server("0");
        size_t width = (size_t)format->width, own = (size_t)length;
        template_builder_add_string(&f->builder, &sign);
        template_builder_add_repeated(&f->builder, &zero, width > own ? width - own : 0);
        template_builder_add_part(&f->builder, &string, negative, own);
        return 0;
    }
    add_aligned(f, format, format->align != 0 ? format->align : '>', &string);
    return 0;
}

static int add_value(struct formatter *f, const struct template_value *given,
                     const struct format *format) {
    struct template_value value = *given;
    if (format->width > MAX_WIDTH || format->precision > MAX_PRECISION)
        return template_run_fail(f->run, "a format's width is at most %d and its precision %d",
                                 MAX_WIDTH, MAX_PRECISION);
    if (f->format->is_markup && value.kind == TEMPLATE_STRING &&
        template_strings_escape(f->run, &value, &value) != 0)
        return -1;
    switch (format->type) {
    case 'd':
    case 'f':
        return add_number(f, &value, format);
    case 0:
    case 's':
    case 'r':
        return add_text(f, &value, format);
    default:
        return template_run_fail(f->run, "unsupported format character '%c'",
                                 format->type > 0x20 && format->type < 0x7f ? format->type : '?');
    }
}

/* --- format % values ---------------------------------------------------------------------------
 */

static int take_value(struct formatter *f, const struct template_value *values,
                      struct template_value *out) {
    bool is_tuple = values->kind == TEMPLATE_TUPLE;
    if (f->num_used >= (is_tuple ? values->sequence->length : 1))
        return template_run_fail(f->run, "not enough arguments for format string");
    *out = is_tuple ? values->sequence->items[f->num_used] : *values;
    f->num_used++;
    return 0;
}

/* Takes the value of %(name)s, at its bracket. */
static int take_named(struct formatter *f, const struct template_value *values,
                      struct template_value *out) {
    size_t begin = f->at + 1;
    while (f->at < f->text.length && peek(f) != ')')
        f->at++;
    if (f->at == f->text.length)
        return template_run_fail(f->run, "incomplete format key");
    if (values->kind != TEMPLATE_MAP)
        return template_run_fail(f->run, "format requires a mapping");
    struct text name = {f->text.data + begin, f->at - begin};
    const struct template_value *value =
        template_data_map_find_text(f->run->arena, values->mapping, name);
    if (value == NULL)
        return template_run_fail(f->run, "the format's key is not among its values");
    f->at++;
    *out = *value;
    return 0;
}

/* One conversion, behind its percent sign. */
static int convert(struct formatter *f, const struct template_value *values) {
    struct format format = plain_format();
    struct template_value value = {.kind = TEMPLATE_MISSING};
    if (peek(f) == '(' && take_named(f, values, &value) != 0)
        return -1;
    for (; peek(f) == '-' || peek(f) == '0'; f->at++) {
        format.zero |= peek(f) == '0';
        format.align = peek(f) == '-' ? '<' : format.align;
    }
    format.width = read_number(f);
    if (peek(f) == '.') {
        f->at++;
        format.precision = read_number(f);
    }
    if (peek(f) == '\0')
        return template_run_fail(f->run, "incomplete format");
    format.type = f->text.data[f->at++];
    if (format.type == '%') {
        template_builder_add_part(&f->builder, f->format, f->at - 1, f->at);
        return 0;
    }
    if (value.kind == TEMPLATE_MISSING && take_value(f, values, &value) != 0)
        return -1;
    if (format.type == 'i')
        format.type = 'd';
    if (format.align == 0 && (format.type == 's' || format.type == 'r'))
        format.align = '>';
    return add_value(f, &value, &format);
}

int template_format_percent(struct template_run *run, const struct template_value *format,
                            const struct template_value *values, struct template_value *out) {
    struct formatter f = formatter_of(run, format);
    while (f.at < f.text.length) {
        const char *sign = memchr(f.text.data + f.at, '%', f.text.length - f.at);
        size_t end = sign == NULL ? f.text.length : (size_t)(sign - f.text.data);
        template_builder_add_part(&f.builder, format, f.at, end);
        f.at = end + 1;
        if (sign != NULL && (template_run_charge(run, 1) != 0 || convert(&f, values) != 0))
            return -1;
    }
    size_t given = values->kind == TEMPLATE_TUPLE ? values->sequence->length : 1;
    bool may_be_unused = values->kind == TEMPLATE_MAP ||
                         (template_data_is_sequence(values) && values->kind != TEMPLATE_TUPLE);
    if (f.num_used < given && !may_be_unused)
        return template_run_fail(run, "not all arguments converted during string formatting");
    return template_run_finish(run, &f.builder, out);
}

/* --- format.format(...) ------------------------------------------------------------------------
 */

/* Finds the value of a field: of a position, of a name, or the next one. */
static int find_field(struct formatter *f, const struct template_arguments *arguments,
                      struct template_value *out) {
    size_t begin = f->at;
    int64_t index = read_number(f);
    while (peek(f) != '\0' && peek(f) != ':' && peek(f) != '}') {
        index = -1;
        f->at++;
    }
    struct text name = {f->text.data + begin, f->at - begin};
    if (name.length == 0)
        index = (int64_t)f->num_used++;
    if (index >= 0) {
        if ((size_t)index >= arguments->num)
            return template_run_fail(f->run, "format(): index %lld out of range for its arguments",
                                     (long long)index);
        *out = arguments->items[index];
        return 0;
    }
    const struct template_value *value =
        arguments->keywords == NULL
            ? NULL
            : template_data_map_find_text(f->run->arena, arguments->keywords, name);
    if (value == NULL)
        return template_run_fail(f->run, "format() lacks the argument its text names");
    *out = *value;
    return 0;
}

static bool is_align(const struct formatter *f, size_t at) {
    return at < f->text.length && f->text.data[at] != '\0' &&
           strchr("<>^", f->text.data[at]) != NULL;
}

/* The fill keeps whose word it is. */
static void read_specification(struct formatter *f, struct format *format) {
    size_t behind = f->at;
    bool has_fill = false;
    if (peek(f) != '\0' && peek(f) != '}')
        template_characters_next(f->text, &behind);
    if (is_align(f, behind)) {
        has_fill = true;
        format->fill = template_data_part(*f->format, f->at, behind);
        f->at = behind;
    }
    if (is_align(f, f->at))
        format->align = f->text.data[f->at++];
    format->zero = peek(f) == '0';
    if (format->zero && format->align != 0 && !has_fill)
        format->fill = template_data_server("0");
    format->width = read_number(f);
    if (peek(f) == '.') {
        f->at++;
        format->precision = read_number(f);
    }
    if (peek(f) != '}' && f->at < f->text.length)
        format->type = f->text.data[f->at++];
}

/* Checks that the specification fits the value, and gives it the type that Python takes where none
 * is given. */
static int complete_format(struct template_run *run, const struct template_value *value,
                           struct format *format) {
    bool is_integer = value->kind == TEMPLATE_INT || value->kind == TEMPLATE_BOOL;
    bool is_float = value->kind == TEMPLATE_FLOAT;
    if (value->kind != TEMPLATE_STRING && !is_float && !is_integer)
        return template_run_fail(run, "unsupported format string passed to %s.__format__",
                                 template_type_name(value));
    bool fits = value->kind == TEMPLATE_STRING ? format->type == 0 || format->type == 's'
                : format->type == 'd' || format->type == 0
                    ? (is_integer || format->type == 0) && format->precision < 0
                    : format->type == 'f';
    bool has_digits = is_integer || format->type == 'f';
    if (!fits || (format->zero && format->align == 0 && !has_digits))
        return template_run_fail(run, "a format does not fit a value of type '%s'",
                                 template_type_name(value));
    if (format->type == 0 && is_integer)
        format->type = 'd';
    else if (format->type == 0 && is_float && format->align == 0)
        format->align = '>';
    return 0;
}

/* One field, behind its opening brace. */
static int replace_field(struct formatter *f, const struct template_arguments *arguments) {
    struct format format = plain_format();
    struct template_value value;
    if (find_field(f, arguments, &value) != 0)
        return -1;
    bool is_specified = false;
    if (peek(f) == ':') {
        size_t begin = ++f->at;
        read_specification(f, &format);
        is_specified = f->at > begin;
    }
    if (peek(f) != '}')
        return template_run_fail(f->run, "format(): a field is not understood");
    f->at++;
    if (is_specified && complete_format(f->run, &value, &format) != 0)
        return -1;
    return add_value(f, &value, &format);
}

int template_format_braces(struct template_run *run, const struct template_value *format,
                           const struct template_arguments *arguments, struct template_value *out) {
    struct formatter f = formatter_of(run, format);
    while (f.at < f.text.length) {
        size_t end = f.at;
        while (end < f.text.length && f.text.data[end] != '{' && f.text.data[end] != '}')
            end++;
        template_builder_add_part(&f.builder, format, f.at, end);
        if (end == f.text.length)
            break;
        char brace = f.text.data[end];
        f.at = end + 1;
        if (peek(&f) == brace) {
            template_builder_add_part(&f.builder, format, end, end + 1);
            f.at++;
        } else if (brace == '}') {
            return template_run_fail(run, "single '}' encountered in format string");
        } else if (template_run_charge(run, 1) != 0 || replace_field(&f, arguments) != 0) {
            return -1;
        }
    }
    return template_run_finish(run, &f.builder, out);
}
