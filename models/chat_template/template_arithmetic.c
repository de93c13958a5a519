/* Numbers are Python's, but for the size of integers: a result beyond 64 bits is an error. */
#include "models/chat_template/template_arithmetic.h"

#include "models/chat_template/template_format.h"
#include "models/chat_template/template_lexer.h"
#include "models/chat_template/template_strings.h"
#include "models/chat_template/template_type.h"

#include <math.h>

static const char *operator_text(int op) {
    static const char *const names[] = {
        ['+'] = "+", ['-'] = "-", ['*'] = "*", ['/'] = "/", ['%'] = "%"};
    return op == OPERATOR_FLOOR_DIVIDE ? "//" : names[op];
}

/* Division rounds down and the rest has the divisor's sign, where C rounds towards zero. */
static int apply_integers(struct template_run *run, int op, int64_t a, int64_t b, int64_t *out) {
    bool overflows = false;
    int64_t rest = b == -1 || b == 0 ? 0 : a % b; /* b is 0 for + - * alone */
    bool rounds = rest != 0 && (rest < 0) != (b < 0);
    switch (op) {
    case '+':
        overflows = __builtin_add_overflow(a, b, out);
        break;
    case '-':
        overflows = __builtin_sub_overflow(a, b, out);
        break;
    case '*':
        overflows = __builtin_mul_overflow(a, b, out);
        break;
    case OPERATOR_FLOOR_DIVIDE:
        if (b == -1)
            overflows = __builtin_sub_overflow((int64_t)0, a, out);
        else
            *out = a / b - rounds;
        break;
    default:
        *out = rounds ? rest + b : rest;
        break;
    }
    return overflows ? template_run_fail(run, "a number exceeds 64 bits") : 0;
}

/* Has the sign of the divisor, as in Python. */
static double float_modulo(double a, double b) {
    double rest = fmod(a, b);
    if (rest == 0)
        return copysign(0.0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

/* Without the remainder the quotient is a whole number, but for rounding. */
static double float_floor_divide(double a, double b) {
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0))
        quotient -= 1;
    if (quotient == 0)
        return copysign(0.0, a / b);
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static double apply_floats(int op, double a, double b) {
    switch (op) {
    case '+':
        return a + b;
    case '-':
        return a - b;
    case '*':
        return a * b;
    case '/':
        return a / b;
    case OPERATOR_FLOOR_DIVIDE:
        return float_floor_divide(a, b);
    default:
        return float_modulo(a, b);
    }
}

static int apply_numbers(struct template_run *run, int op, const struct template_value *a,
                         const struct template_value *b, double x, double y,
                         struct template_value *out) {
    int64_t i, j, integer = 0;
    if (y == 0 && (op == '/' || op == '%' || op == OPERATOR_FLOOR_DIVIDE))
        return template_run_fail(run, "division by zero");
    if (op != '/' && template_type_int(a, &i) && template_type_int(b, &j)) {
        if (apply_integers(run, op, i, j, &integer) != 0)
            return -1;
        *out = template_data_int(integer);
        return 0;
    }
    *out = template_data_float(apply_floats(op, x, y));
    return 0;
}

/* If one of both is Markup, the other is escaped. */
static int add_markup(struct template_run *run, const struct template_value *a,
                      const struct template_value *b, struct template_value *out) {
    struct template_builder builder = {.arena = run->arena, .is_markup = true};
    struct template_value left, right;
    if (template_strings_escape(run, a, &left) != 0 || template_strings_escape(run, b, &right) != 0)
        return -1;
    template_builder_add_string(&builder, &left);
    template_builder_add_string(&builder, &right);
    return template_run_finish(run, &builder, out);
}

/* In place where nothing lies behind a yet: a text that grows in a loop is not copied each time. */
static int add_strings(struct template_run *run, const struct template_value *a,
                       const struct template_value *b, struct template_value *out) {
    size_t length = a->string.length;
    if (a->is_markup || b->is_markup)
        return add_markup(run, a, b, out);
    if (length > 0 && a->string.marks == NULL && b->string.marks == NULL &&
        a->origin == b->origin &&
        template_arena_extend_text(run->arena, a->string.data + length, b->string.length)) {
        memcpy((char *)a->string.data + length, b->string.data, b->string.length);
        size_t both = length + b->string.length;
        *out = *a;
        out->string.length = both;
        return 0;
    }
    struct template_builder builder = {.arena = run->arena};
    template_builder_reserve(&builder, length + b->string.length);
    template_builder_add_string(&builder, a);
    template_builder_add_string(&builder, b);
    return template_run_finish(run, &builder, out);
}

/* In the memory of a, where no other list continues behind it yet: a list that grows in a loop is not
 * copied each time. */
static int add_lists(struct template_run *run, const struct template_value *a,
                     const struct template_value *b, struct template_value *out) {
    const struct template_sequence *left = a->sequence, *right = b->sequence;
    struct template_value made;
    size_t num = left->length + right->length;
    bool in_place = left->used != NULL && *left->used == left->length && num <= left->capacity;
    if (template_run_charge(run, (in_place ? right->length : num) / 8) != 0)
        return -1;
    if (!template_data_sequence(run->arena, a->kind, &made))
        return template_run_fail_memory(run);
    if (in_place)
        *made.sequence = *left;
    else if (!template_data_reserve(run->arena, made.sequence, num * 2))
        return template_run_fail_memory(run);
    for (size_t i = in_place ? left->length : 0; i < num; i++)
        made.sequence->items[i] =
            i < left->length ? left->items[i] : right->items[i - left->length];
    made.sequence->length = num;
    if (num > 0)
        *made.sequence->used = num;
    *out = made;
    return 0;
}

static int repeat(struct template_run *run, const struct template_value *value, int64_t times,
                  struct template_value *out) {
    size_t num = times > 0 ? (size_t)times : 0;
    if (value->kind == TEMPLATE_STRING) {
        struct template_builder builder = {.arena = run->arena, .is_markup = value->is_markup};
        size_t bytes;
        if (__builtin_mul_overflow(num, value->string.length, &bytes))
            bytes = SIZE_MAX;
        if (bytes < template_arena_max_bytes(run->arena) &&
            template_run_charge(run, bytes / 8) != 0)
            return -1;
        template_builder_add_repeated(&builder, value, num);
        return template_run_finish(run, &builder, out);
    }
    struct template_value made;
    size_t length = value->sequence->length, total;
    if (__builtin_mul_overflow(num, length, &total))
        total = SIZE_MAX;
    if (template_run_charge(run, total) != 0)
        return -1;
    if (!template_data_sequence(run->arena, value->kind, &made) ||
        !template_data_reserve(run->arena, made.sequence, total))
        return template_run_fail_memory(run);
    for (size_t i = 0; i < total; i++)
        made.sequence->items[i] = value->sequence->items[i % length];
    made.sequence->length = total;
    *out = made;
    return 0;
}

static bool is_list(const struct template_value *value) {
    return value->kind == TEMPLATE_LIST || value->kind == TEMPLATE_TUPLE;
}

int template_arithmetic_apply(struct template_run *run, int op, const struct template_value *a,
                              const struct template_value *b, struct template_value *out) {
    double x, y;
    int64_t times;
    if (op == '%' && a->kind == TEMPLATE_STRING)
        return template_format_percent(run, a, b, out);
    if (template_type_check_defined(run, a) != 0 || template_type_check_defined(run, b) != 0)
        return -1;
    if (template_type_number(a, &x) && template_type_number(b, &y))
        return apply_numbers(run, op, a, b, x, y, out);
    if (op == '+' && a->kind == TEMPLATE_STRING && b->kind == TEMPLATE_STRING)
        return add_strings(run, a, b, out);
    if (op == '+' && is_list(a) && a->kind == b->kind)
        return add_lists(run, a, b, out);
    if (op == '*' && (is_list(a) || a->kind == TEMPLATE_STRING) && template_type_int(b, &times))
        return repeat(run, a, times, out);
    if (op == '*' && (is_list(b) || b->kind == TEMPLATE_STRING) && template_type_int(a, &times))
        return repeat(run, b, times, out);
    if (op == '+' && a->kind == TEMPLATE_STRING)
        return template_run_fail(run, "can only concatenate str (not \"%s\") to str",
                                 template_type_name(b));
    return template_run_fail(run, "unsupported operand type(s) for %s: '%s' and '%s'",
                             operator_text(op), template_type_name(a), template_type_name(b));
}

int template_arithmetic_sign(struct template_run *run, bool negative,
                             const struct template_value *value, struct template_value *out) {
    int64_t integer;
    if (template_type_check_defined(run, value) != 0)
        return -1;
    if (value->kind == TEMPLATE_FLOAT) {
        *out = template_data_float(negative ? -value->real : value->real);
        return 0;
    }
    if (!template_type_int(value, &integer))
        return template_run_fail(run, "bad operand type for unary %c: '%s'", negative ? '-' : '+',
                                 template_type_name(value));
    if (negative && __builtin_sub_overflow((int64_t)0, integer, &integer))
        return template_run_fail(run, "a number exceeds 64 bits");
    *out = template_data_int(integer);
    return 0;
}
