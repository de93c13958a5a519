#include "models/chat_template/template_format.h"

#include "models/chat_template/template_attribute.h"
#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_repr.h"
#include "models/chat_template/template_strings.h"
#include "models/chat_template/template_type.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_WIDTH = 10000, MAX_PRECISION = 100, NUMBER_BYTES = 512 };

static void add_fill(struct template_builder *builder, const struct template_format *format,
                     size_t num) {
    struct text space = {" ", 1};
    struct template_value fill =
        template_data_text(format->fill.length > 0 ? format->fill : space, TEMPLATE_ORIGIN_SERVER);
    template_builder_add_repeated(builder, &fill, num);
}

/* The string, filled up to the width; numbers go to the right, all else to the left. */
static void add_aligned(struct template_builder *builder, const struct template_format *format,
                        const struct template_value *string, char usual) {
    size_t length = template_characters_count(template_string_text(string));
    size_t width = (size_t)format->width, missing = width > length ? width - length : 0;
    char align = format->align != 0 ? format->align : usual;
    size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    add_fill(builder, format, before);
    template_builder_add_string(builder, string);
    add_fill(builder, format, missing - before);
}

static int format_text(struct template_run *run, const struct template_value *value,
                       const struct template_format *format, struct template_builder *builder) {
    struct template_builder own = {.arena = run->arena};
    struct template_value string;
    if ((format->type == 'r' ? template_repr_repr(run, value, &own)
                             : template_repr_str(run, value, &own)) != 0 ||
        template_run_finish(run, &own, &string) != 0)
        return -1;
    if (format->precision >= 0)
        string = template_data_part(
            string, 0,
            template_characters_offset(template_string_text(&string), (size_t)format->precision));
    add_aligned(builder, format, &string, '<');
    return 0;
}

/* Commas between thousands of the digits at the front of text, which has the room. */
static size_t group_digits(char *text, size_t length) {
    size_t digits = strspn(text, "0123456789");
    for (size_t at = digits; at > 3;) {
        at -= 3;
        memmove(text + at + 1, text + at, length - at + 1);
        text[at] = ',';
        length++;
    }
    return length;
}

/* Digits without a sign, to be put behind it. */
static void add_number(struct template_builder *builder, const struct template_format *format,
                       bool negative, char *digits, size_t length) {
    char sign = negative ? '-' : format->sign, signed_digits[NUMBER_BYTES * 2];
    if (format->grouped)
        length = group_digits(digits, length);
    size_t own = length + (sign != 0), width = (size_t)format->width;
    struct template_value string;
    if ((format->zero && format->align == 0) || format->align == '=') {
        struct template_format zeros = *format;
        if (format->align == 0)
            zeros.fill = (struct text){"0", 1};
        template_builder_add(builder, (struct text){&sign, sign != 0}, TEMPLATE_ORIGIN_SERVER);
        add_fill(builder, &zeros, width > own ? width - own : 0);
        template_builder_add(builder, (struct text){digits, length}, TEMPLATE_ORIGIN_SERVER);
        return;
    }
    signed_digits[0] = sign;
    memcpy(signed_digits + (sign != 0), digits, length);
    string = template_data_text((struct text){signed_digits, own}, TEMPLATE_ORIGIN_SERVER);
    add_aligned(builder, format, &string, '>');
}

static int format_integer(struct template_run *run, const struct template_value *value,
                          const struct template_format *format, struct template_builder *builder) {
    char digits[NUMBER_BYTES];
    int64_t integer;
    bool takes_float = format->type == 'd' || format->type == 'i' || format->type == 'u';
    if (takes_float && value->kind == TEMPLATE_FLOAT && fabs(value->real) <= 9e18)
        integer = (int64_t)value->real;
    else if (!template_type_int(value, &integer))
        return template_run_fail(run, "%%%c format: a real number is required, not %s",
                                 format->type, template_type_name(value));
    uint64_t size = integer < 0 ? -(uint64_t)integer : (uint64_t)integer;
    int least = format->precision > 0 ? (int)format->precision : 1, length;
    const char *prefix = !format->alternate    ? ""
                         : format->type == 'x' ? "0x"
                         : format->type == 'X' ? "0X"
                         : format->type == 'o' ? "0o"
                                               : "";
    if (format->type == 'x')
        length = snprintf(digits, sizeof(digits), "%s%.*lx", prefix, least, (unsigned long)size);
    else if (format->type == 'X')
        length = snprintf(digits, sizeof(digits), "%s%.*lX", prefix, least, (unsigned long)size);
    else if (format->type == 'o')
        length = snprintf(digits, sizeof(digits), "%s%.*lo", prefix, least, (unsigned long)size);
    else
        length = snprintf(digits, sizeof(digits), "%.*lu", least, (unsigned long)size);
    add_number(builder, format, integer < 0, digits, (size_t)length);
    return 0;
}

static int format_float(struct template_run *run, const struct template_value *value,
                        const struct template_format *format, struct template_builder *builder) {
    char digits[NUMBER_BYTES], type = format->type;
    double number;
    int length, places = format->precision < 0 ? 6 : (int)format->precision;
    if (!template_type_number(value, &number))
        return template_run_fail(run, "%%%c format: must be real number, not %s", type,
                                 template_type_name(value));
    double size = fabs(number);
    switch (type == '%' ? 'f' : type) {
    case 'f':
    case 'F':
        length = snprintf(digits, sizeof(digits), "%.*f%s", places, type == '%' ? size * 100 : size,
                          type == '%' ? "%" : "");
        break;
    case 'e':
        length = snprintf(digits, sizeof(digits), "%.*e", places, size);
        break;
    case 'E':
        length = snprintf(digits, sizeof(digits), "%.*E", places, size);
        break;
    case 'G':
        length = snprintf(digits, sizeof(digits), "%.*G", places, size);
        break;
    default:
        length = snprintf(digits, sizeof(digits), "%.*g", places, size);
        break;
    }
    add_number(builder, format, signbit(number) != 0 && !isnan(number), digits, (size_t)length);
    return 0;
}

static int format_character(struct template_run *run, const struct template_value *value,
                            const struct template_format *format,
                            struct template_builder *builder) {
    char bytes[TEMPLATE_MAX_CHARACTER_BYTES];
    int64_t character;
    struct template_value string = *value;
    if (value->kind == TEMPLATE_STRING && template_type_length(value) == 1) {
        add_aligned(builder, format, &string, '<');
        return 0;
    }
    if (!template_type_int(value, &character) || character < 0 || character > 0x10ffff ||
        (character >= 0xd800 && character < 0xe000))
        return template_run_fail(run, "%%c requires int or char");
    string = template_data_text(
        (struct text){bytes, template_characters_encode((int32_t)character, bytes)},
        TEMPLATE_ORIGIN_SERVER);
    add_aligned(builder, format, &string, '<');
    return 0;
}

int template_format_value(struct template_run *run, const struct template_value *value,
                          const struct template_format *format, struct template_builder *builder) {
    if (format->width > MAX_WIDTH || format->precision > MAX_PRECISION)
        return template_run_fail(run, "a format's width is at most %d and its precision %d",
                                 MAX_WIDTH, MAX_PRECISION);
    switch (format->type) {
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        return format_integer(run, value, format, builder);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case '%':
        return format_float(run, value, format, builder);
    case 'c':
        return format_character(run, value, format, builder);
    case 0:
    case 's':
    case 'r':
        return format_text(run, value, format, builder);
    default:
        return template_run_fail(run, "unsupported format character '%c'",
                                 format->type > 0x20 && format->type < 0x7f ? format->type : '?');
    }
}

static size_t read_number(struct text text, size_t at, int64_t *out) {
    *out = 0;
    for (; at < text.length && text.data[at] >= '0' && text.data[at] <= '9'; at++)
        *out = *out > MAX_WIDTH ? *out : *out * 10 + (text.data[at] - '0');
    return at;
}

static char byte_at(struct text text, size_t at) {
    return at < text.length ? text.data[at] : '\0';
}

/* --- format % values ---------------------------------------------------------------------------
 */

struct percent {
    struct text text;
    const struct template_value *format, *values;
    size_t at, num_used;
};

static int take_value(struct template_run *run, struct percent *p, struct template_value *out) {
    bool is_tuple = p->values->kind == TEMPLATE_TUPLE;
    if (p->num_used >= (is_tuple ? p->values->sequence->length : 1))
        return template_run_fail(run, "not enough arguments for format string");
    *out = is_tuple ? p->values->sequence->items[p->num_used] : *p->values;
    p->num_used++;
    return 0;
}

/* The name of %(name)s, at its bracket. */
static int take_named(struct template_run *run, struct percent *p, struct template_value *out) {
    size_t begin = p->at + 1;
    while (p->at < p->text.length && p->text.data[p->at] != ')')
        p->at++;
    if (p->at == p->text.length)
        return template_run_fail(run, "incomplete format key");
    if (p->values->kind != TEMPLATE_MAP)
        return template_run_fail(run, "format requires a mapping");
    struct text name = {p->text.data + begin, p->at - begin};
    const struct template_value *value =
        template_mapping_find_text(run->arena, p->values->mapping, name);
    if (value == NULL)
        return template_run_fail(run, "the format's key is not among its values");
    p->at++;
    *out = *value;
    return 0;
}

static int read_count(struct template_run *run, struct percent *p, int64_t *out) {
    struct template_value value;
    if (byte_at(p->text, p->at) != '*') {
        p->at = read_number(p->text, p->at, out);
        return 0;
    }
    p->at++;
    if (take_value(run, p, &value) != 0)
        return -1;
    return template_type_int(&value, out) && *out >= 0 ? 0 : template_run_fail(run, "* wants int");
}

static void read_flags(struct percent *p, struct template_format *format) {
    for (;; p->at++) {
        switch (byte_at(p->text, p->at)) {
        case '-':
            format->align = '<';
            break;
        case '+':
            format->sign = '+';
            break;
        case ' ':
            format->sign = format->sign != 0 ? format->sign : ' ';
            break;
        case '0':
            format->zero = true;
            break;
        case '#':
            format->alternate = true;
            break;
        default:
            return;
        }
    }
}

/* One conversion, behind its percent sign. */
static int convert(struct template_run *run, struct percent *p, struct template_builder *builder) {
    struct template_format format = {.precision = -1};
    struct template_value value = {.kind = TEMPLATE_MISSING};
    if (byte_at(p->text, p->at) == '(' && take_named(run, p, &value) != 0)
        return -1;
    read_flags(p, &format);
    if (read_count(run, p, &format.width) != 0)
        return -1;
    if (byte_at(p->text, p->at) == '.') {
        p->at++;
        if (read_count(run, p, &format.precision) != 0)
            return -1;
    }
    while (byte_at(p->text, p->at) == 'l' || byte_at(p->text, p->at) == 'h')
        p->at++;
    if (p->at == p->text.length)
        return template_run_fail(run, "incomplete format");
    format.type = p->text.data[p->at++];
    if (format.type == '%') {
        template_builder_add_part(builder, p->format, p->at - 1, p->at);
        return 0;
    }
    if (value.kind == TEMPLATE_MISSING && take_value(run, p, &value) != 0)
        return -1;
    if (format.type == 's' || format.type == 'r' || format.type == 'a' || format.type == 'c') {
        format.zero = false;
        format.align = format.align != 0 ? format.align : '>';
    }
    if (p->format->is_markup && value.kind == TEMPLATE_STRING &&
        template_strings_escape(run, &value, &value) != 0)
        return -1;
    return template_format_value(run, &value, &format, builder);
}

int template_format_percent(struct template_run *run, const struct template_value *format,
                            const struct template_value *values, struct template_value *out) {
    struct template_builder builder = {.arena = run->arena};
    struct percent p = {template_string_text(format), format, values, 0, 0};
    while (p.at < p.text.length) {
        const char *sign = memchr(p.text.data + p.at, '%', p.text.length - p.at);
        size_t end = sign == NULL ? p.text.length : (size_t)(sign - p.text.data);
        template_builder_add_part(&builder, format, p.at, end);
        p.at = end + 1;
        if (sign != NULL && (template_run_charge(run, 1) != 0 || convert(run, &p, &builder) != 0))
            return -1;
    }
    size_t given = values->kind == TEMPLATE_TUPLE ? values->sequence->length : 1;
    if (p.num_used < given && values->kind != TEMPLATE_MAP && !template_data_is_sequence(values))
        return template_run_fail(run, "not all arguments converted during string formatting");
    if (p.num_used < given && values->kind == TEMPLATE_TUPLE)
        return template_run_fail(run, "not all arguments converted during string formatting");
    bool is_markup = format->is_markup;
    if (template_run_finish(run, &builder, out) != 0)
        return -1;
    out->is_markup = is_markup;
    return 0;
}

/* --- format.format(...) ------------------------------------------------------------------------
 */

struct braces {
    struct text text;
    const struct template_value *format;
    const struct template_arguments *arguments;
    size_t at, num_used;
};

/* The value a field begins with: a position, a name, or the next one. */
static int find_field(struct template_run *run, struct braces *b, struct text name,
                      struct template_value *out) {
    int64_t index = (int64_t)b->num_used;
    if (name.length == 0)
        b->num_used++;
    else if (read_number(name, 0, &index) != name.length) {
        const struct template_value *value =
            b->arguments->keywords == NULL
                ? NULL
                : template_mapping_find_text(run->arena, b->arguments->keywords, name);
        if (value == NULL)
            return template_run_fail(run, "format() lacks the argument its text names");
        *out = *value;
        return 0;
    }
    if ((size_t)index >= b->arguments->num)
        return template_run_fail(run, "format(): index %lld out of range for its arguments",
                                 (long long)index);
    *out = b->arguments->items[index];
    return 0;
}

static bool ends_name(char c) {
    return c == '\0' || c == '.' || c == '[' || c == '!' || c == ':' || c == '}';
}

static int read_path(struct template_run *run, struct braces *b, struct template_value *value) {
    while (byte_at(b->text, b->at) == '.' || byte_at(b->text, b->at) == '[') {
        bool is_item = byte_at(b->text, b->at) == '[';
        size_t begin = ++b->at;
        while (is_item ? byte_at(b->text, b->at) != ']' && b->at < b->text.length
                       : !ends_name(byte_at(b->text, b->at)))
            b->at++;
        struct text name = {b->text.data + begin, b->at - begin};
        struct template_value key = template_data_text(name, TEMPLATE_ORIGIN_SERVER);
        int64_t index;
        if (is_item && name.length > 0 && read_number(name, 0, &index) == name.length)
            key = template_data_int(index);
        b->at += is_item && b->at < b->text.length;
        if ((is_item ? template_attribute_item(run, value, &key, value)
                     : template_attribute_get(run, value, name, value)) != 0)
            return -1;
    }
    return 0;
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static void read_specification(struct braces *b, struct template_format *format) {
    static const char aligns[] = "<>^=";
    size_t behind = b->at;
    if (byte_at(b->text, b->at) != '\0' && byte_at(b->text, b->at) != '}')
        template_characters_next(b->text, &behind);
    if (byte_at(b->text, behind) != '\0' && strchr(aligns, byte_at(b->text, behind)) != NULL) {
        format->fill = (struct text){b->text.data + b->at, behind - b->at};
        b->at = behind;
    }
    if (byte_at(b->text, b->at) != '\0' && strchr(aligns, byte_at(b->text, b->at)) != NULL)
        format->align = b->text.data[b->at++];
    if (byte_at(b->text, b->at) == '+' || byte_at(b->text, b->at) == ' ')
        format->sign = b->text.data[b->at++];
    else
        b->at += byte_at(b->text, b->at) == '-';
    format->alternate = byte_at(b->text, b->at) == '#';
    b->at += format->alternate;
    format->zero = byte_at(b->text, b->at) == '0';
    b->at = read_number(b->text, b->at, &format->width);
    format->grouped = byte_at(b->text, b->at) == ',';
    b->at += format->grouped;
    if (byte_at(b->text, b->at) == '.')
        b->at = read_number(b->text, b->at + 1, &format->precision);
    if (byte_at(b->text, b->at) != '}' && b->at < b->text.length)
        format->type = b->text.data[b->at++];
}

/* !r and !s: what is formatted then is a string. */
static int convert_first(struct template_run *run, char conversion, struct template_value *value) {
    struct template_builder builder = {.arena = run->arena};
    if (conversion != 'r' && conversion != 's')
        return template_run_fail(run, "format(): an unknown conversion");
    if ((conversion == 'r' ? template_repr_repr(run, value, &builder)
                           : template_repr_str(run, value, &builder)) != 0)
        return -1;
    return template_run_finish(run, &builder, value);
}

/* What Python takes for the type that is not given, and which types it allows. */
static int complete_format(struct template_run *run, const struct template_value *value,
                           struct template_format *format) {
    bool is_integer = value->kind == TEMPLATE_INT || value->kind == TEMPLATE_BOOL;
    if (value->kind != TEMPLATE_STRING && value->kind != TEMPLATE_FLOAT && !is_integer)
        return template_run_fail(run, "unsupported format string passed to %s.__format__",
                                 template_type_name(value));
    if (format->type == 'n')
        format->type = is_integer ? 'd' : 'g';
    if (format->zero && format->align != 0 && format->fill.length == 0)
        format->fill = (struct text){"0", 1};
    bool is_whole = format->type != 0 && strchr("dxXoc", format->type) != NULL;
    bool fits = value->kind == TEMPLATE_STRING ? format->type == 0 || format->type == 's'
                : format->type == 's'          ? false
                                               : is_integer || !is_whole;
    if (!fits || (is_integer && format->precision >= 0 && (is_whole || format->type == 0)))
        return template_run_fail(run, "a format does not fit a value of type '%s'",
                                 template_type_name(value));
    if (format->type == 0 && is_integer)
        format->type = 'd';
    else if (format->type == 0 && value->kind == TEMPLATE_FLOAT && format->precision >= 0)
        format->type = 'g';
    else if (format->type == 0 && value->kind == TEMPLATE_FLOAT && format->align == 0)
        format->align = '>';
    return 0;
}

/* One field, behind its opening brace. */
static int replace_field(struct template_run *run, struct braces *b,
                         struct template_builder *builder) {
    struct template_format format = {.precision = -1};
    struct template_value value;
    char conversion = 0;
    size_t begin = b->at;
    while (!ends_name(byte_at(b->text, b->at)))
        b->at++;
    if (find_field(run, b, (struct text){b->text.data + begin, b->at - begin}, &value) != 0 ||
        read_path(run, b, &value) != 0)
        return -1;
    if (b->format->is_markup && value.kind == TEMPLATE_STRING &&
        template_strings_escape(run, &value, &value) != 0)
        return -1;
    if (byte_at(b->text, b->at) == '!') {
        conversion = byte_at(b->text, b->at + 1);
        b->at += 2;
    }
    size_t specification = b->at + 1;
    if (byte_at(b->text, b->at) == ':') {
        b->at++;
        read_specification(b, &format);
    }
    if (byte_at(b->text, b->at) != '}')
        return template_run_fail(run, "format(): a field is not understood");
    b->at++;
    if (conversion != 0 && convert_first(run, conversion, &value) != 0)
        return -1;
    if (b->at - 1 > specification && complete_format(run, &value, &format) != 0)
        return -1;
    return template_format_value(run, &value, &format, builder);
}

int template_format_braces(struct template_run *run, const struct template_value *format,
                           const struct template_arguments *arguments, struct template_value *out) {
    struct template_builder builder = {.arena = run->arena};
    struct braces b = {template_string_text(format), format, arguments, 0, 0};
    while (b.at < b.text.length) {
        size_t end = b.at;
        while (end < b.text.length && b.text.data[end] != '{' && b.text.data[end] != '}')
            end++;
        template_builder_add_part(&builder, format, b.at, end);
        char brace = byte_at(b.text, end);
        b.at = end + 1;
        if (brace == '\0')
            break;
        if (byte_at(b.text, b.at) == brace) {
            template_builder_add_part(&builder, format, end, end + 1);
            b.at++;
        } else if (brace == '}') {
            return template_run_fail(run, "single '}' encountered in format string");
        } else if (template_run_charge(run, 1) != 0 || replace_field(run, &b, &builder) != 0) {
            return -1;
        }
    }
    bool is_markup = format->is_markup;
    if (template_run_finish(run, &builder, out) != 0)
        return -1;
    out->is_markup = is_markup;
    return 0;
}
