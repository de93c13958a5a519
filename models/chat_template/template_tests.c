/* Defines the tests, which may follow `is`. */
#include "models/chat_template/template_arithmetic.h"
#include "models/chat_template/template_call.h"
#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_compare.h"
#include "models/chat_template/template_library.h"
#include "models/chat_template/template_repr.h"
#include "models/chat_template/template_type.h"

enum { IS_EQUAL, IS_UNEQUAL, IS_LESS, IS_LESS_OR_EQUAL, IS_GREATER, IS_GREATER_OR_EQUAL };

static int answer(bool holds, struct template_value *out) {
    *out = template_data_bool(holds);
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
                              template_data_is_sequence(value))
TEST_OF_KIND(is_callable, value->kind == TEMPLATE_UNDEFINED ||
                              (value->kind >= TEMPLATE_FUNCTION && value->kind <= TEMPLATE_MACRO))

static int has_remainder(struct template_run *run, const struct template_value *value, int64_t by,
                         int64_t remainder, struct template_value *out) {
    struct template_value divisor = template_data_int(by), rest, wanted;
    bool same;
    if (template_arithmetic_apply(run, '%', value, &divisor, &rest) != 0)
        return -1;
    wanted = template_data_int(remainder);
    return template_compare_equal(run, &rest, &wanted, &same) != 0 ? -1 : answer(same, out);
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
    return template_compare_equal(run, call->self, &call->given[0], &same) != 0
               ? -1
               : answer(same == (call->variant == IS_EQUAL), out);
}

TEMPLATE_BODY(is_ordered) {
    static const char *const names[] = {[IS_LESS] = "<",
                                        [IS_LESS_OR_EQUAL] = "<=",
                                        [IS_GREATER] = ">",
                                        [IS_GREATER_OR_EQUAL] = ">="};
    int order;
    if (template_compare_order(run, call->self, &call->given[0], names[call->variant], &order) != 0)
        return -1;
    return answer(call->variant == IS_LESS            ? order < 0
                  : call->variant == IS_LESS_OR_EQUAL ? order <= 0
                  : call->variant == IS_GREATER       ? order > 0
                                                      : order >= 0,
                  out);
}

TEMPLATE_BODY(is_in) {
    bool holds;
    return template_compare_contains(run, &call->given[0], call->self, &holds) != 0
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
