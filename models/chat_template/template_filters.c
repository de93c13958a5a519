/* Filters of one value, and the tests. Those of items are in template_item_filters.c. */
#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_run.h"
#include "models/chat_template/template_strings.h"
#include "models/chat_template/template_type.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- Any value --- */

TEMPLATE_BODY(fall_back) {
    const struct template_value *value = call->self;
    bool replaced = value->kind == TEMPLATE_UNDEFINED ||
                    (template_call_get_flag(call, 1, false) && !template_type_is_true(value));
    *out = !replaced                                 ? *value
           : call->given[0].kind == TEMPLATE_MISSING ? template_value_server("")
                                                     : call->given[0];
    return 0;
}

TEMPLATE_BODY(length) {
    int64_t num = template_type_length(call->self);
    if (num < 0)
        return template_run_fail(run, "object of type '%s' has no len()",
                                 template_type_name(call->self));
    *out = template_value_int(num);
    return 0;
}

TEMPLATE_BODY(string) {
    return template_repr_string(run, call->self, out);
}

TEMPLATE_BODY(safe) {
    if (template_repr_string(run, call->self, out) != 0)
        return -1;
    out->is_markup = true;
    return 0;
}

/* --- Strings --- */

TEMPLATE_BODY(change_case) {
    struct template_value string;
    return template_repr_string(run, call->self, &string) != 0
               ? -1
               : template_strings_change_case(run, &string,
                                              (enum template_strings_case)call->variant, out);
}

TEMPLATE_BODY(trim) {
    struct template_value string, chars;
    if (template_repr_string(run, call->self, &string) != 0)
        return -1;
    if (call->given[0].kind == TEMPLATE_MISSING || call->given[0].kind == TEMPLATE_NONE)
        return template_strings_strip(run, &string, NULL, TEMPLATE_STRIP_BOTH, out);
    if (template_call_get_string(run, call, 0, "", &chars) != 0)
        return -1;
    struct text text = template_string_text(&chars);
    return template_strings_strip(run, &string, &text, TEMPLATE_STRIP_BOTH, out);
}

TEMPLATE_BODY(replace) {
    struct template_value string, old, by;
    int64_t most = -1;
    if (template_repr_string(run, call->self, &string) != 0 ||
        template_repr_string(run, &call->given[0], &old) != 0 ||
        template_repr_string(run, &call->given[1], &by) != 0 ||
        (call->given[2].kind != TEMPLATE_NONE &&
         template_call_get_int(run, call, 2, -1, &most) != 0))
        return -1;
    string.is_markup = false; /* Jinja takes str() of it */
    return template_strings_replace(run, &string, template_string_text(&old), &by, most, out);
}

TEMPLATE_BODY(read_indention) {
    struct template_value space = template_value_server(" ");
    struct template_builder builder = {.arena = run->arena};
    int64_t width;
    if (call->given[0].kind == TEMPLATE_STRING) {
        *out = call->given[0];
        return 0;
    }
    if (template_call_get_int(run, call, 0, 4, &width) != 0)
        return -1;
    template_builder_add_repeated(&builder, &space, width > 0 ? (size_t)width : 0);
    return template_run_finish(run, &builder, out);
}

/* A newline is first added after the text, so that an empty last line counts. */
static int lines_to_indent(struct template_run *run, const struct template_value *value,
                           struct template_value *out) {
    struct template_builder builder = {.arena = run->arena};
    struct template_value text;
    if (template_repr_str(run, value, &builder) != 0)
        return -1;
    template_builder_add_server(&builder, "\n");
    return template_run_finish(run, &builder, &text) != 0
               ? -1
               : template_strings_lines(run, &text, false, out);
}

TEMPLATE_BODY(indent) {
    bool is_markup = template_value_is_string(call->self) && call->self->is_markup;
    struct template_builder builder = {.arena = run->arena, .is_markup = is_markup};
    struct template_value indention, lines;
    bool first = template_call_get_flag(call, 1, false);
    bool blank = template_call_get_flag(call, 2, false);
    if (read_indention(run, call, &indention) != 0 || lines_to_indent(run, call->self, &lines) != 0)
        return -1;
    for (size_t i = 0; i < lines.sequence->length; i++) {
        const struct template_value *line = &lines.sequence->items[i];
        if (i > 0)
            template_builder_add_server(&builder, "\n");
        if (i == 0 ? first : blank || line->string.length > 0)
            template_builder_add_string(&builder, &indention);
        template_builder_add_string(&builder, line);
    }
    return template_run_finish(run, &builder, out);
}

TEMPLATE_BODY(escape) {
    struct template_value string;
    return template_repr_string(run, call->self, &string) != 0
               ? -1
               : template_strings_escape(run, &string, out);
}

TEMPLATE_BODY(format) {
    struct template_value string, values;
    if (template_repr_string(run, call->self, &string) != 0)
        return -1;
    if (call->arguments->keywords != NULL)
        values =
            (struct template_value){.kind = TEMPLATE_MAP, .mapping = call->arguments->keywords};
    else if (!template_value_items(run->arena, TEMPLATE_TUPLE, call->arguments->items,
                                   call->arguments->num, &values))
        return template_run_fail_memory(run);
    return template_strings_format_percent(run, &string, &values, out);
}

/* --- Numbers --- */

/* Copies a string's digits without the underscores between them. */
static bool copy_digits(const struct template_value *string, char out[64]) {
    struct text text = template_string_text(string);
    size_t length = 0;
    for (size_t at = 0; at < text.length; at++) {
        char c = text.data[at];
        bool between = at > 0 && at + 1 < text.length;
        if (c == '\0' || length == 63)
            return false;
        if (c != '_' || !between)
            out[length++] = c;
    }
    out[length] = '\0';
    return true;
}

static bool parse_integer(const struct template_value *string, int64_t base, int64_t *out) {
    char digits[64], *end;
    if (base < 0 || base > 36 || base == 1 || !copy_digits(string, digits))
        return false;
    errno = 0;
    long long value = strtoll(digits, &end, (int)base);
    end += strspn(end, " \t\n\r\f\v");
    if (end == digits || *end != '\0' || errno == ERANGE)
        return false;
    *out = value;
    return true;
}

static bool parse_float(const struct template_value *string, double *out) {
    char digits[64], *end;
    if (!copy_digits(string, digits) || strpbrk(digits, "xX(") != NULL)
        return false;
    double value = strtod(digits, &end);
    end += strspn(end, " \t\n\r\f\v");
    if (end == digits || *end != '\0')
        return false;
    *out = value;
    return true;
}

static struct template_value fallback_or(const struct template_call *call,
                                         struct template_value usual) {
    return call->given[0].kind == TEMPLATE_MISSING ? usual : call->given[0];
}

TEMPLATE_BODY(to_int) {
    const struct template_value *value = call->self;
    int64_t integer, base;
    double number = NAN;
    if (template_call_get_int(run, call, 1, 10, &base) != 0)
        return -1;
    if (template_type_int(value, &integer) ||
        (value->kind == TEMPLATE_STRING && parse_integer(value, base, &integer))) {
        *out = template_value_int(integer);
        return 0;
    }
    if (value->kind == TEMPLATE_FLOAT)
        number = value->real;
    else if (value->kind == TEMPLATE_STRING && !parse_float(value, &number))
        number = NAN;
    if (number > -9.2e18 && number < 9.2e18)
        *out = template_value_int((int64_t)number);
    else
        *out = fallback_or(call, template_value_int(0));
    return value->kind == TEMPLATE_UNDEFINED ? template_type_check_defined(run, value) : 0;
}

TEMPLATE_BODY(to_float) {
    double number;
    if (template_type_number(call->self, &number) ||
        (call->self->kind == TEMPLATE_STRING && parse_float(call->self, &number)))
        *out = template_value_float(number);
    else
        *out = fallback_or(call, template_value_float(0.0));
    return call->self->kind == TEMPLATE_UNDEFINED ? template_type_check_defined(run, call->self)
                                                  : 0;
}

TEMPLATE_BODY(absolute) {
    double number;
    if (template_type_check_defined(run, call->self) != 0)
        return -1;
    if (!template_type_number(call->self, &number))
        return template_run_fail(run, "bad operand type for abs(): '%s'",
                                 template_type_name(call->self));
    return template_operator_sign(run, signbit(number) != 0, call->self, out);
}

const struct template_function template_filters[] = {
    {"default", fall_back, "default_value boolean", 0},
    {"d", fall_back, "default_value boolean", 0},
    {"length", length, "", 0},
    {"count", length, "", 0},
    {"string", string, "", 0},
    {"safe", safe, "", 0},
    {"from_json", NULL, NULL, 0},
    {"fromjson", NULL, NULL, 0},
    {"upper", change_case, "", 0, TEMPLATE_STRINGS_UPPER},
    {"lower", change_case, "", 0, TEMPLATE_STRINGS_LOWER},
    {"capitalize", change_case, "", 0, TEMPLATE_STRINGS_CAPITALIZE},
    {"title", change_case, "", 0, TEMPLATE_STRINGS_TITLE_WORDS},
    {"trim", trim, "chars", 0},
    {"replace", replace, "old new count", 2},
    {"indent", indent, "width first blank", 0},
    {"escape", escape, "", 0},
    {"e", escape, "", 0},
    {"format", format, NULL, 0},
    {"int", to_int, "default base", 0},
    {"float", to_float, "default", 0},
    {"abs", absolute, "", 0},
    {NULL, NULL, NULL, 0},
};

/* --- Tests, which may follow `is` --- */

enum { IS_EQUAL, IS_UNEQUAL, IS_LESS, IS_LESS_OR_EQUAL, IS_GREATER, IS_GREATER_OR_EQUAL };

static int answer(bool holds, struct template_value *out) {
    *out = template_value_bool(holds);
    return 0;
}

#define TEST_OF_KIND(name, holds)                                                                  \
    static int name(struct template_run *run, const struct template_call *call,                    \
                    struct template_value *out) {                                                  \
        const struct template_value *value = call->self;                                           \
        return answer(holds, out);                                                                 \
    }

TEST_OF_KIND(is_defined, value->kind != TEMPLATE_UNDEFINED)
TEST_OF_KIND(is_undefined, value->kind == TEMPLATE_UNDEFINED)
TEST_OF_KIND(is_none, value->kind == TEMPLATE_NONE)
TEST_OF_KIND(is_boolean, value->kind == TEMPLATE_BOOL)
TEST_OF_KIND(is_true, value->kind == TEMPLATE_BOOL && value->boolean)
TEST_OF_KIND(is_false, value->kind == TEMPLATE_BOOL && !value->boolean)
TEST_OF_KIND(is_integer, value->kind == TEMPLATE_INT ||
                             (value->kind == TEMPLATE_FLOAT && value->digits != NULL))
TEST_OF_KIND(is_float, value->kind == TEMPLATE_FLOAT && value->digits == NULL)
TEST_OF_KIND(is_number, value->kind == TEMPLATE_INT || value->kind == TEMPLATE_FLOAT ||
                            value->kind == TEMPLATE_BOOL)
TEST_OF_KIND(is_string, value->kind == TEMPLATE_STRING)
TEST_OF_KIND(is_mapping, value->kind == TEMPLATE_MAP)
TEST_OF_KIND(is_sequence, value->kind == TEMPLATE_STRING || value->kind == TEMPLATE_MAP ||
                              value->kind == TEMPLATE_UNDEFINED ||
                              (value->kind >= TEMPLATE_LIST && value->kind <= TEMPLATE_RANGE))
TEST_OF_KIND(is_iterable, value->kind == TEMPLATE_STRING || value->kind == TEMPLATE_MAP ||
                              value->kind == TEMPLATE_UNDEFINED || value->kind == TEMPLATE_LOOP ||
                              template_value_is_sequence(value))
TEST_OF_KIND(is_callable, value->kind == TEMPLATE_UNDEFINED ||
                              (value->kind >= TEMPLATE_FUNCTION && value->kind <= TEMPLATE_MACRO))

static int has_remainder(struct template_run *run, const struct template_value *value, int64_t by,
                         int64_t remainder, struct template_value *out) {
    struct template_value divisor = template_value_int(by), rest, wanted;
    bool same;
    if (template_operator_apply(run, '%', value, &divisor, &rest) != 0)
        return -1;
    wanted = template_value_int(remainder);
    return template_type_equal(run, &rest, &wanted, &same) != 0 ? -1 : answer(same, out);
}

TEMPLATE_BODY(is_divisible) {
    int64_t by;
    return template_call_get_int(run, call, 0, 1, &by) != 0
               ? -1
               : has_remainder(run, call->self, by, 0, out);
}

/* Compares the remainder by 2 with the variant. */
TEMPLATE_BODY(is_even_or_odd) {
    return has_remainder(run, call->self, 2, call->variant, out);
}

TEMPLATE_BODY(is_equal) {
    bool same;
    return template_type_equal(run, call->self, &call->given[0], &same) != 0
               ? -1
               : answer(same == (call->variant == IS_EQUAL), out);
}

TEMPLATE_BODY(is_ordered) {
    static const char *const names[] = {[IS_LESS] = "<",
                                        [IS_LESS_OR_EQUAL] = "<=",
                                        [IS_GREATER] = ">",
                                        [IS_GREATER_OR_EQUAL] = ">="};
    int order;
    if (template_type_order(run, call->self, &call->given[0], names[call->variant], &order) != 0)
        return -1;
    return answer(call->variant == IS_LESS            ? order < 0
                  : call->variant == IS_LESS_OR_EQUAL ? order <= 0
                  : call->variant == IS_GREATER       ? order > 0
                                                      : order >= 0,
                  out);
}

TEMPLATE_BODY(is_in) {
    bool holds;
    return template_type_contains(run, &call->given[0], call->self, &holds) != 0
               ? -1
               : answer(holds, out);
}

/* The same object, in Python: the same value of the same type will do. */
TEMPLATE_BODY(is_same) {
    const struct template_value *a = call->self, *b = &call->given[0];
    if (a->kind != b->kind)
        return answer(false, out);
    if (a->kind > TEMPLATE_STRING)
        return answer(a->mapping == b->mapping, out);
    return is_equal(run, call, out);
}

/* Tests for letters of one case, and none of the other. */
TEMPLATE_BODY(has_case) {
    bool upper = call->variant;
    struct template_value string;
    bool found = false, other = false;
    if (template_repr_string(run, call->self, &string) != 0)
        return -1;
    struct text text = template_string_text(&string);
    for (size_t at = 0; at < text.length;) {
        int32_t c = template_characters_next(text, &at);
        bool is_upper = template_characters_is_upper(c), is_lower = template_characters_is_lower(c);
        found |= upper ? is_upper : is_lower;
        other |= (upper ? is_lower : is_upper) || template_characters_is_title(c);
    }
    return answer(found && !other, out);
}

const struct template_function template_tests[] = {
    {"defined", is_defined, "", 0},
    {"undefined", is_undefined, "", 0},
    {"none", is_none, "", 0},
    {"boolean", is_boolean, "", 0},
    {"true", is_true, "", 0},
    {"false", is_false, "", 0},
    {"integer", is_integer, "", 0},
    {"float", is_float, "", 0},
    {"number", is_number, "", 0},
    {"string", is_string, "", 0},
    {"mapping", is_mapping, "", 0},
    {"sequence", is_sequence, "", 0},
    {"iterable", is_iterable, "", 0},
    {"callable", is_callable, "", 0},
    {"odd", is_even_or_odd, "", 0, 1},
    {"even", is_even_or_odd, "", 0, 0},
    {"divisibleby", is_divisible, "num", 1},
    {"equalto", is_equal, "other", 1, IS_EQUAL},
    {"eq", is_equal, "other", 1, IS_EQUAL},
    {"==", is_equal, "other", 1, IS_EQUAL},
    {"ne", is_equal, "other", 1, IS_UNEQUAL},
    {"!=", is_equal, "other", 1, IS_UNEQUAL},
    {"lt", is_ordered, "other", 1, IS_LESS},
    {"<", is_ordered, "other", 1, IS_LESS},
    {"lessthan", is_ordered, "other", 1, IS_LESS},
    {"le", is_ordered, "other", 1, IS_LESS_OR_EQUAL},
    {"<=", is_ordered, "other", 1, IS_LESS_OR_EQUAL},
    {"gt", is_ordered, "other", 1, IS_GREATER},
    {">", is_ordered, "other", 1, IS_GREATER},
    {"greaterthan", is_ordered, "other", 1, IS_GREATER},
    {"ge", is_ordered, "other", 1, IS_GREATER_OR_EQUAL},
    {">=", is_ordered, "other", 1, IS_GREATER_OR_EQUAL},
    {"in", is_in, "seq", 1},
    {"sameas", is_same, "other", 1},
    {"lower", has_case, "", 0, false},
    {"upper", has_case, "", 0, true},
    {NULL, NULL, NULL, 0},
};
