#include "models/chat_template/template_type.h"

#include "models/chat_template/template_characters.h"
#include "models/chat_template/template_parser.h"
#include "models/chat_template/template_run.h"
#include "models/chat_template/template_strings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- Attributes, items and slices ---
 * Finds what `.` and `[]` name, in the order of Jinja's sandbox: an attribute looks for Python's
 * methods first and for a key then, an item the other way round. */

static bool find_number(const struct template_loop *loop, struct text name, int64_t *out) {
    int64_t index = (int64_t)loop->index, length = (int64_t)loop->items.length;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"index", index + 1},
                   {"index0", index},
                   {"revindex", length - index},
                   {"revindex0", length - index - 1},
                   {"length", length},
                   {"depth", 1},
                   {"depth0", 0}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (text_is(name, numbers[i].name)) {
            *out = numbers[i].value;
            return true;
        }
    return false;
}

static struct template_value undefined_of(const struct template_value *value, struct text name) {
    struct template_value undefined = template_value_undefined(name);
    undefined.origin = value->kind;
    return undefined;
}

static bool is_internal(struct text name) {
    return name.length > 4 && memcmp(name.data, "__", 2) == 0 && text_ends_with(name, "__");
}

/* Returns 1 if Python's type has a method of that name, also one that templates may not use. */
static int find_method(struct template_run *run, const struct template_value *value,
                       struct text name, struct template_value *out) {
    const struct template_function *function =
        template_builtins_method(run->builtins, value->kind, name);
    if (function != NULL) {
        struct template_method *method = template_arena_alloc(run->arena, sizeof(*method));
        if (method == NULL)
            return template_run_fail_memory(run);
        *method = (struct template_method){*value, function};
        *out = (struct template_value){.kind = TEMPLATE_METHOD, .method = method};
        return 1;
    }
    if (!template_builtins_is_refused(run->builtins, value->kind, name) && !is_internal(name))
        return 0;
    *out = undefined_of(value, name);
    out->is_unsafe = true;
    return 1;
}

static bool find_in_loop(const struct template_loop *loop, struct text name,
                         struct template_value *out) {
    const struct template_sequence *items = &loop->items;
    bool is_first = loop->index == 0, is_last = loop->index + 1 == items->length;
    int64_t number;
    if (find_number(loop, name, &number))
        *out = template_value_int(number);
    else if (text_is(name, "first"))
        *out = template_value_bool(is_first);
    else if (text_is(name, "last"))
        *out = template_value_bool(is_last);
    else if (text_is(name, "previtem"))
        *out = is_first ? template_value_undefined(name) : items->items[loop->index - 1];
    else if (text_is(name, "nextitem"))
        *out = is_last ? template_value_undefined(name) : items->items[loop->index + 1];
    else
        return false;
    return true;
}

int template_operator_attribute(struct template_run *run, const struct template_value *value,
                                struct text name, struct template_value *out) {
    struct template_value from = *value;
    if (template_type_check_defined(run, &from) != 0)
        return -1;
    if (from.kind == TEMPLATE_LOOP && find_in_loop(from.loop, name, out))
        return 0;
    if (from.kind == TEMPLATE_MACRO)
        return template_run_fail(run, "macros have no attributes");
    int found = find_method(run, &from, name, out);
    if (found != 0)
        return found < 0 ? -1 : 0;
    const struct template_value *item = NULL;
    if (from.kind == TEMPLATE_MAP || from.kind == TEMPLATE_NAMESPACE)
        item = template_value_map_find_text(run->arena, from.mapping, name);
    *out = item != NULL ? *item : undefined_of(&from, name);
    return 0;
}

/* --- Items --- */

static int undefined_element(struct template_run *run, const struct template_value *value,
                             const struct template_value *key, struct template_value *out) {
    struct template_value name;
    struct template_builder builder = {.arena = run->arena};
    if (key->kind > TEMPLATE_STRING || key->kind == TEMPLATE_UNDEFINED)
        name = template_value_server("?");
    else if (template_repr_str(run, key, &builder) != 0 ||
             template_run_finish(run, &builder, &name) != 0)
        return -1;
    *out = undefined_of(value, template_string_text(&name));
    return 0;
}

static bool character_at(const struct template_value *string, int64_t index,
                         struct template_value *out) {
    struct text text = template_string_text(string);
    if (index < 0)
        index += (int64_t)template_characters_count(text);
    if (index < 0)
        return false;
    size_t begin = template_characters_offset(text, (size_t)index), end = begin;
    if (begin == text.length)
        return false;
    template_characters_next(text, &end);
    *out = template_value_part(*string, begin, end);
    return true;
}

static bool item_at(const struct template_value *value, int64_t index, struct template_value *out) {
    int64_t length = (int64_t)value->sequence->length;
    if (index < 0)
        index += length;
    if (index < 0 || index >= length)
        return false;
    *out = value->sequence->items[index];
    return true;
}

static bool is_indexed(const struct template_value *value) {
    return value->kind >= TEMPLATE_LIST && value->kind <= TEMPLATE_RANGE;
}

int template_operator_item(struct template_run *run, const struct template_value *value,
                           const struct template_value *key, struct template_value *out) {
    struct template_value from = *value;
    int64_t index;
    if (template_type_check_defined(run, &from) != 0)
        return -1;
    if (from.kind == TEMPLATE_MAP && template_value_is_key(key)) {
        const struct template_value *item = template_value_map_find(run->arena, from.mapping, key);
        if (item != NULL) {
            *out = *item;
            return 0;
        }
    }
    if (template_type_int(key, &index)) {
        if (from.kind == TEMPLATE_STRING) {
            if (template_run_charge(run, from.string.length / 16) != 0)
                return -1;
            if (character_at(&from, index, out))
                return 0;
        } else if (is_indexed(&from) && item_at(&from, index, out)) {
            return 0;
        }
    }
    if (key->kind != TEMPLATE_STRING)
        return undefined_element(run, &from, key, out);
    struct text name = template_string_text(key);
    return from.kind == TEMPLATE_MAP
               ? (find_method(run, &from, name, out) != 0 ? 0
                                                          : (*out = undefined_of(&from, name), 0))
               : template_operator_attribute(run, &from, name, out);
}

static bool is_index(struct text part, int64_t *out) {
    *out = 0;
    for (size_t i = 0; i < part.length; i++) {
        if (part.data[i] < '0' || part.data[i] > '9' || i > 9)
            return false;
        *out = *out * 10 + (part.data[i] - '0');
    }
    return part.length > 0;
}

int template_operator_path(struct template_run *run, const struct template_value *value,
                           const struct template_value *path, struct template_value *out) {
    struct template_value at = *value;
    if (path->kind != TEMPLATE_STRING)
        return template_operator_item(run, &at, path, out);
    struct text rest = template_string_text(path);
    for (bool more = true; more;) {
        const char *dot = rest.length > 0 ? memchr(rest.data, '.', rest.length) : NULL;
        struct text part = {rest.data, dot != NULL ? (size_t)(dot - rest.data) : rest.length};
        int64_t index;
        struct template_value key = is_index(part, &index)
                                        ? template_value_int(index)
                                        : template_value_text(part, TEMPLATE_ORIGIN_SERVER);
        if (template_operator_item(run, &at, &key, &at) != 0)
            return -1;
        more = dot != NULL;
        if (more)
            rest = (struct text){dot + 1, rest.length - part.length - 1};
    }
    *out = at;
    return 0;
}

/* --- Slices --- */

/* Python's slice.indices: which of `length` items, and how many they are. */
struct range {
    int64_t start, step, num;
};

static int64_t clamp(int64_t bound, int64_t length, int64_t low, int64_t high) {
    if (bound < 0)
        bound = bound < -length ? low : bound + length;
    return bound > high ? high : bound < low ? low : bound;
}

static int make_range(struct template_run *run, const struct template_value bounds[3],
                      int64_t length, struct range *out) {
    int64_t given[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++)
        if (bounds[i].kind != TEMPLATE_NONE && !template_type_int(&bounds[i], &given[i])) {
            if (template_type_check_defined(run, &bounds[i]) != 0)
                return -1;
            return template_run_fail(run, "slice indices must be integers or None, not %s",
                                     template_type_name(&bounds[i]));
        }
    int64_t step = given[2];
    if (step == 0)
        return template_run_fail(run, "slice step cannot be zero");
    if (step < -length - 1 || step > length + 1) /* takes at most one item in any case */
        step = step < 0 ? -length - 1 : length + 1;
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
    int64_t start = bounds[0].kind == TEMPLATE_NONE ? (step < 0 ? high : 0)
                                                    : clamp(given[0], length, low, high);
    int64_t stop = bounds[1].kind == TEMPLATE_NONE ? (step < 0 ? -1 : high)
                                                   : clamp(given[1], length, low, high);
    int64_t distance = step < 0 ? start - stop : stop - start, size = step < 0 ? -step : step;
    *out = (struct range){start, step, distance > 0 ? (distance + size - 1) / size : 0};
    return 0;
}

static int slice_string(struct template_run *run, const struct template_value *string,
                        const struct template_value bounds[3], struct template_value *out) {
    struct text text = template_string_text(string);
    struct template_value value = *string;
    struct template_sequence characters;
    struct range range;
    if (template_run_charge_text(run, text.length) != 0 ||
        make_range(run, bounds, template_type_length(string), &range) != 0)
        return -1;
    if (range.step == 1 || range.num == 0) {
        size_t begin = range.num == 0 && range.step != 1
                           ? 0
                           : template_characters_offset(text, (size_t)range.start);
        struct text behind = {text.data + begin, text.length - begin};
        size_t bytes = template_characters_offset(behind, (size_t)range.num);
        *out = template_value_part(value, begin, begin + bytes);
        return 0;
    }
    struct template_builder builder = {.arena = run->arena, .is_markup = value.is_markup};
    if (template_type_items(run, &value, &characters) != 0)
        return -1;
    for (int64_t i = 0; i < range.num; i++)
        template_builder_add_string(&builder, &characters.items[range.start + i * range.step]);
    return template_run_finish(run, &builder, out);
}

/* Without a step the items stay where they are. */
static int slice_sequence(struct template_run *run, const struct template_value *value,
                          const struct template_value bounds[3], struct template_value *out) {
    struct template_value made;
    struct range range;
    struct template_value *items = value->sequence->items;
    if (make_range(run, bounds, (int64_t)value->sequence->length, &range) != 0)
        return -1;
    bool copies = range.step != 1 && range.num > 0;
    if (template_run_charge(run, copies ? (size_t)range.num / 8 : 0) != 0)
        return -1;
    if (!template_value_sequence(run->arena, value->kind, &made) ||
        (copies && !template_value_reserve(run->arena, made.sequence, (size_t)range.num)))
        return template_run_fail_memory(run);
    for (int64_t i = 0; copies && i < range.num; i++)
        made.sequence->items[i] = items[range.start + i * range.step];
    if (!copies && range.num > 0)
        *made.sequence =
            (struct template_sequence){.items = items + range.start, .capacity = (size_t)range.num};
    made.sequence->length = (size_t)range.num;
    *out = made;
    return 0;
}

int template_operator_slice(struct template_run *run, const struct template_value *value,
                            const struct template_value bounds[3], struct template_value *out) {
    if (template_type_check_defined(run, value) != 0)
        return -1;
    if (value->kind == TEMPLATE_STRING)
        return slice_string(run, value, bounds, out);
    if (is_indexed(value))
        return slice_sequence(run, value, bounds, out);
    return template_run_fail(run, "'%s' object cannot be sliced", template_type_name(value));
}

/* --- Arithmetic ---
 * Numbers are Python's, but for the size of integers: a result beyond 64 bits is an error. */

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
        *out = template_value_int(integer);
        return 0;
    }
    *out = template_value_float(apply_floats(op, x, y));
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

/* In place if nothing follows a yet: a text that grows in a loop is not copied each time. */
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

/* In the memory of a, if no other list continues after it yet: a list that grows in a loop is not
 * copied each time. */
static int add_lists(struct template_run *run, const struct template_value *a,
                     const struct template_value *b, struct template_value *out) {
    const struct template_sequence *left = a->sequence, *right = b->sequence;
    struct template_value made;
    size_t num = left->length + right->length;
    bool in_place = left->used != NULL && *left->used == left->length && num <= left->capacity;
    if (template_run_charge(run, (in_place ? right->length : num) / 8) != 0)
        return -1;
    if (!template_value_sequence(run->arena, a->kind, &made))
        return template_run_fail_memory(run);
    if (in_place)
        *made.sequence = *left;
    else if (!template_value_reserve(run->arena, made.sequence, num * 2))
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
    if (!template_value_sequence(run->arena, value->kind, &made) ||
        !template_value_reserve(run->arena, made.sequence, total))
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

int template_operator_apply(struct template_run *run, int op, const struct template_value *a,
                            const struct template_value *b, struct template_value *out) {
    double x, y;
    int64_t times;
    if (op == '%' && a->kind == TEMPLATE_STRING)
        return template_strings_format_percent(run, a, b, out);
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

int template_operator_sign(struct template_run *run, bool negative,
                           const struct template_value *value, struct template_value *out) {
    int64_t integer;
    if (template_type_check_defined(run, value) != 0)
        return -1;
    if (value->kind == TEMPLATE_FLOAT) {
        *out = template_value_float(negative ? -value->real : value->real);
        return 0;
    }
    if (!template_type_int(value, &integer))
        return template_run_fail(run, "bad operand type for unary %c: '%s'", negative ? '-' : '+',
                                 template_type_name(value));
    if (negative && __builtin_sub_overflow((int64_t)0, integer, &integer))
        return template_run_fail(run, "a number exceeds 64 bits");
    *out = template_value_int(integer);
    return 0;
}
