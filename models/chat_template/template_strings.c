#include "models/chat_template/template_strings.h"

#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_type.h"

#include <math.h>
#include <stdio.h>

static bool is_stripped(struct text character, const struct text *chars, int32_t c) {
    if (chars == NULL)
        return template_characters_is_space(c);
    return memmem(chars->data, chars->length, character.data, character.length) != NULL;
}

int template_strings_strip(struct template_run *run, const struct template_value *string,
                           const struct text *chars, enum template_strip sides,
                           struct template_value *out) {
    struct text text = template_string_text(string);
    size_t begin = 0, end = text.length;
    while ((sides & TEMPLATE_STRIP_LEFT) != 0 && begin < end) {
        size_t next = begin;
        int32_t c = template_characters_next(text, &next);
        if (!is_stripped((struct text){text.data + begin, next - begin}, chars, c))
            break;
        begin = next;
    }
    while ((sides & TEMPLATE_STRIP_RIGHT) != 0 && end > begin) {
        size_t before = template_characters_before(text, end), next = before;
        int32_t c = template_characters_next(text, &next);
        if (!is_stripped((struct text){text.data + before, end - before}, chars, c))
            break;
        end = before;
    }
    *out = template_value_part(*string, begin, end);
    size_t num_read = (text.length - (end - begin)) * (chars != NULL ? chars->length : 1);
    return template_run_charge_text(run, num_read);
}

static const char *find_last(struct text text, struct text part) {
    for (size_t at = text.length; part.length <= text.length && at-- > 0;)
        if (text.length - at >= part.length && memcmp(text.data + at, part.data, part.length) == 0)
            return text.data + at;
    return NULL;
}

int64_t template_strings_find(struct text text, struct text part, bool from_end) {
    if (part.length == 0)
        return from_end ? (int64_t)text.length : 0;
    const char *found =
        from_end ? find_last(text, part) : memmem(text.data, text.length, part.data, part.length);
    return found == NULL ? -1 : found - text.data;
}

int template_strings_replace(struct template_run *run, const struct template_value *string,
                             struct text old, const struct template_value *by, int64_t most,
                             struct template_value *out) {
    struct template_builder builder = {.arena = run->arena, .is_markup = string->is_markup};
    struct text text = template_string_text(string);
    struct template_value escaped;
    size_t begin = 0, at = 0;
    if (string->is_markup) {
        if (template_strings_escape(run, by, &escaped) != 0)
            return -1;
        by = &escaped;
    }
    for (int64_t count = 0; most < 0 || count < most; count++) {
        if (template_run_charge(run, 1) != 0 ||
            template_run_charge_text(run, by->string.length) != 0)
            return -1;
        if (old.length == 0) { /* before each character, and at the end */
            size_t next = at;
            if (count > 0 && at == text.length)
                break;
            if (count > 0)
                template_characters_next(text, &next);
            at = next;
        } else {
            const char *found = memmem(text.data + at, text.length - at, old.data, old.length);
            if (found == NULL)
                break;
            at = (size_t)(found - text.data);
        }
        template_builder_add_part(&builder, string, begin, at);
        template_builder_add_string(&builder, by);
        at += old.length;
        begin = at;
    }
    template_builder_add_part(&builder, string, begin, text.length);
    return template_run_finish(run, &builder, out);
}

int template_strings_join(struct template_run *run, const struct template_value *separator,
                          const struct template_sequence *items, struct template_value *out) {
    struct template_builder builder = {.arena = run->arena};
    for (size_t i = 0; i < items->length; i++) {
        if (template_run_charge(run, 1) != 0 ||
            template_run_charge_text(run, separator->string.length) != 0)
            return -1;
        if (i > 0)
            template_builder_add_string(&builder, separator);
        if (template_repr_str(run, &items->items[i], &builder) != 0)
            return -1;
    }
    return template_run_finish(run, &builder, out);
}

static bool ends_line(int32_t c) {
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

int template_strings_lines(struct template_run *run, const struct template_value *string,
                           bool keep_ends, struct template_value *out) {
    struct text text = template_string_text(string);
    struct template_value made, from = *string;
    if (!template_value_sequence(run->arena, TEMPLATE_LIST, &made))
        return template_run_fail_memory(run);
    for (size_t begin = 0, at = 0; at < text.length; begin = at) {
        size_t end = text.length;
        while (at < text.length && end == text.length) {
            size_t before = at;
            int32_t c = template_characters_next(text, &at);
            if (!ends_line(c))
                continue;
            end = before;
            at += c == '\r' && at < text.length && text.data[at] == '\n';
            break;
        }
        if (!template_value_append(run->arena, made.sequence,
                                   template_value_part(from, begin, keep_ends ? at : end)))
            return template_run_fail_memory(run);
    }
    *out = made;
    return template_run_charge(run, made.sequence->length);
}

int template_strings_escape(struct template_run *run, const struct template_value *string,
                            struct template_value *out) {
    static const char special[] = "&<>'\"";
    static const char *const escapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct template_builder builder = {.arena = run->arena, .is_markup = true};
    struct template_value from = *string;
    size_t begin = 0;
    for (size_t at = 0; !from.is_markup && at < from.string.length; at++) {
        char c = from.string.data[at];
        const char *found = c != '\0' ? strchr(special, c) : NULL;
        if (found == NULL)
            continue;
        template_builder_add_part(&builder, &from, begin, at);
        template_builder_add_server(&builder, escapes[found - special]);
        begin = at + 1;
    }
    template_builder_add_part(&builder, &from, begin, from.string.length);
    return template_run_finish(run, &builder, out) != 0
               ? -1
               : template_run_charge_text(run, from.string.length);
}

/* --- Case --- */

/* Characters in their other case, until they are many or of another origin. */
struct run_of_characters {
    char bytes[256];
    size_t length;
    enum template_origin origin;
};

static void flush(struct run_of_characters *characters, struct template_builder *builder) {
    template_builder_add(builder, (struct text){characters->bytes, characters->length},
                         characters->origin);
    characters->length = 0;
}

static bool has_case(int32_t c) {
    return c >= 0 && (template_characters_is_lower(c) || template_characters_is_upper(c) ||
                      template_characters_is_title(c));
}

/* Returns the case of a character, given the one before it; -1 before the first. */
static enum template_case choose(enum template_strings_case to, int32_t before) {
    switch (to) {
    case TEMPLATE_STRINGS_UPPER:
        return TEMPLATE_CASE_UPPER;
    case TEMPLATE_STRINGS_LOWER:
        return TEMPLATE_CASE_LOWER;
    case TEMPLATE_STRINGS_CAPITALIZE:
        return before < 0 ? TEMPLATE_CASE_TITLE : TEMPLATE_CASE_LOWER;
    case TEMPLATE_STRINGS_TITLE:
        return has_case(before) ? TEMPLATE_CASE_LOWER : TEMPLATE_CASE_TITLE;
    default: /* TEMPLATE_STRINGS_TITLE_WORDS */
        return before < 0 || template_characters_is_space(before) || before == '-' ||
                       before == '(' || before == '{' || before == '[' || before == '<'
                   ? TEMPLATE_CASE_UPPER
                   : TEMPLATE_CASE_LOWER;
    }
}

int template_strings_change_case(struct template_run *run, const struct template_value *string,
                                 enum template_strings_case to, struct template_value *out) {
    struct template_builder builder = {
        .arena = run->arena, .is_markup = string->is_markup && to != TEMPLATE_STRINGS_TITLE_WORDS};
    struct run_of_characters characters = {.origin = string->origin};
    struct text text = template_string_text(string);
    const uint8_t *marks = string->string.marks;
    int32_t before = -1;
    if (template_run_charge(run, text.length / 8) != 0)
        return -1;
    for (size_t at = 0, next = 0; at < text.length; at = next) {
        enum template_origin origin = marks != NULL ? marks[at] : string->origin;
        if (origin != characters.origin ||
            characters.length + TEMPLATE_MAX_CASE_BYTES > sizeof(characters.bytes))
            flush(&characters, &builder);
        int32_t c = template_characters_next(text, &next);
        characters.length +=
            template_characters_map(c, choose(to, before), characters.bytes + characters.length);
        characters.origin = origin;
        before = c;
    }
    flush(&characters, &builder);
    return template_run_finish(run, &builder, out);
}

/* --- Formatting --- */

enum { MAX_WIDTH = 10000, MAX_PRECISION = 100, NUMBER_BYTES = 512 };

/* Describes how one value is written. */
struct format {
    char type;  /* 's', 'r', 'd' or 'f'; 0: as str() */
    char align; /* '<', '>' or '^'; 0: the type's default */
    bool zero;  /* filled with zeros after the sign */
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
    return (struct format){.precision = -1, .fill = template_value_server(" ")};
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

/* --- One value --- */

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
        string = template_value_part(
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
        template_value_text((struct text){digits, (size_t)length}, TEMPLATE_ORIGIN_SERVER);
    if (format->zero && format->align == 0) {
        struct template_value sign = template_value_part(string, 0, negative);
        struct template_value zero = template_value_server("0");
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

/* --- format % values --- */

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
        template_value_map_find_text(f->run->arena, values->mapping, name);
    if (value == NULL)
        return template_run_fail(f->run, "the format's key is not among its values");
    f->at++;
    *out = *value;
    return 0;
}

/* One conversion, after its percent sign. */
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

int template_strings_format_percent(struct template_run *run, const struct template_value *format,
                                    const struct template_value *values,
                                    struct template_value *out) {
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
                         (template_value_is_sequence(values) && values->kind != TEMPLATE_TUPLE);
    if (f.num_used < given && !may_be_unused)
        return template_run_fail(run, "not all arguments converted during string formatting");
    return template_run_finish(run, &f.builder, out);
}

/* --- format.format(...) --- */

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
            : template_value_map_find_text(f->run->arena, arguments->keywords, name);
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
        format->fill = template_value_part(*f->format, f->at, behind);
        f->at = behind;
    }
    if (is_align(f, f->at))
        format->align = f->text.data[f->at++];
    format->zero = peek(f) == '0';
    if (format->zero && format->align != 0 && !has_fill)
        format->fill = template_value_server("0");
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

/* One field, after its opening brace. */
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

int template_strings_format_braces(struct template_run *run, const struct template_value *format,
                                   const struct template_arguments *arguments,
                                   struct template_value *out) {
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
