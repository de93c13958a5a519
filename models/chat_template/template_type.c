#include "models/chat_template/template_type.h"

#include "models/chat_template/template_characters.h"

const char *template_type_name(const struct template_value *value) {
    static const char *const names[] = {
        [TEMPLATE_MISSING] = "missing",  [TEMPLATE_UNDEFINED] = "Undefined",
        [TEMPLATE_NONE] = "NoneType",    [TEMPLATE_BOOL] = "bool",
        [TEMPLATE_INT] = "int",          [TEMPLATE_FLOAT] = "float",
        [TEMPLATE_STRING] = "str",       [TEMPLATE_LIST] = "list",
        [TEMPLATE_TUPLE] = "tuple",      [TEMPLATE_RANGE] = "range",
        [TEMPLATE_VIEW] = "dict view",   [TEMPLATE_ITERATOR] = "generator",
        [TEMPLATE_MAP] = "dict",         [TEMPLATE_NAMESPACE] = "Namespace",
        [TEMPLATE_LOOP] = "LoopContext", [TEMPLATE_FUNCTION] = "function",
        [TEMPLATE_METHOD] = "method",    [TEMPLATE_MACRO] = "Macro",
    };
    return names[value->kind];
}

bool template_type_is_true(const struct template_value *value) {
    switch (value->kind) {
    case TEMPLATE_MISSING:
    case TEMPLATE_UNDEFINED:
    case TEMPLATE_NONE:
        return false;
    case TEMPLATE_BOOL:
        return value->boolean;
    case TEMPLATE_INT:
        return value->integer != 0;
    case TEMPLATE_FLOAT:
        return value->real != 0;
    case TEMPLATE_STRING:
        return value->string.length > 0;
    case TEMPLATE_LIST:
    case TEMPLATE_TUPLE:
    case TEMPLATE_RANGE:
    case TEMPLATE_VIEW:
        return value->sequence->length > 0;
    case TEMPLATE_MAP:
        return value->mapping->length > 0;
    default:
        return true;
    }
}

bool template_type_int(const struct template_value *value, int64_t *out) {
    if (value->kind != TEMPLATE_INT && value->kind != TEMPLATE_BOOL)
        return false;
    *out = value->kind == TEMPLATE_INT ? value->integer : value->boolean;
    return true;
}

bool template_type_number(const struct template_value *value, double *out) {
    int64_t integer;
    if (value->kind == TEMPLATE_FLOAT)
        *out = value->real;
    else if (template_type_int(value, &integer))
        *out = (double)integer;
    else
        return false;
    return true;
}

static const char *type_or_none(uint8_t kind) {
    struct template_value value = {.kind = kind};
    return kind == TEMPLATE_NONE ? "None" : template_type_name(&value);
}

int template_type_check_defined(struct template_run *run, const struct template_value *value) {
    int length = value->string.length < 200 ? (int)value->string.length : 200;
    if (value->kind != TEMPLATE_UNDEFINED)
        return 0;
    if (value->is_unsafe)
        return template_run_fail(run, "access to attribute '%.*s' of '%s' object is unsafe", length,
                                 value->string.data, type_or_none(value->origin));
    if (value->origin == TEMPLATE_MISSING)
        return template_run_fail(run, "'%.*s' is undefined", length, value->string.data);
    return template_run_fail(run, "'%s%s' has no attribute '%.*s'", type_or_none(value->origin),
                             value->origin == TEMPLATE_NONE ? "" : " object", length,
                             value->string.data);
}

/* --- Items and length --- */

static int characters(struct template_run *run, const struct template_value *string,
                      struct template_sequence *out) {
    struct text text = template_string_text(string);
    size_t num = template_characters_count(text);
    *out = (struct template_sequence){0};
    if (template_run_charge(run, num / 8) != 0)
        return -1;
    if (!template_value_reserve(run->arena, out, num))
        return template_run_fail_memory(run);
    for (size_t begin = 0, end = 0; end < text.length; begin = end) {
        template_characters_next(text, &end);
        struct template_value character = template_value_part(*string, begin, end);
        character.is_markup = false;
        if (!template_value_append(run->arena, out, character))
            return template_run_fail_memory(run);
    }
    return 0;
}

static int keys(struct template_run *run, const struct template_mapping *map,
                struct template_sequence *out) {
    *out = (struct template_sequence){0};
    if (template_run_charge(run, map->length / 8) != 0)
        return -1;
    if (!template_value_reserve(run->arena, out, map->length))
        return template_run_fail_memory(run);
    for (size_t i = 0; i < map->length; i++)
        out->items[i] = map->entries[i].key;
    out->length = map->length;
    return 0;
}

int template_type_items(struct template_run *run, const struct template_value *value,
                        struct template_sequence *out) {
    switch (value->kind) {
    case TEMPLATE_UNDEFINED:
        *out = (struct template_sequence){0};
        return 0;
    case TEMPLATE_STRING:
        return characters(run, value, out);
    case TEMPLATE_LIST:
    case TEMPLATE_TUPLE:
    case TEMPLATE_RANGE:
    case TEMPLATE_VIEW:
        *out = *value->sequence;
        return 0;
    case TEMPLATE_ITERATOR:
        *out = *value->sequence;
        if (out->length > 0)
            out->items += out->taken;
        out->length -= out->taken;
        value->sequence->taken = value->sequence->length;
        return 0;
    case TEMPLATE_MAP:
        return keys(run, value->mapping, out);
    default:
        return template_run_fail(run, "'%s' object is not iterable", template_type_name(value));
    }
}

int64_t template_type_length(const struct template_value *value) {
    switch (value->kind) {
    case TEMPLATE_UNDEFINED:
        return 0;
    case TEMPLATE_STRING:
        return (int64_t)template_characters_count(
            (struct text){value->string.data, value->string.length});
    case TEMPLATE_LIST:
    case TEMPLATE_TUPLE:
    case TEMPLATE_RANGE:
    case TEMPLATE_VIEW:
        return (int64_t)value->sequence->length;
    case TEMPLATE_MAP:
        return (int64_t)value->mapping->length;
    default:
        return -1;
    }
}

/* --- Equality --- */

static int equal(struct template_run *run, const struct template_value *a,
                 const struct template_value *b, int depth, bool *out);

static int sequences_equal(struct template_run *run, const struct template_sequence *a,
                           const struct template_sequence *b, int depth, bool *out) {
    *out = a->length == b->length;
    for (size_t i = 0; *out && i < a->length; i++)
        if (equal(run, &a->items[i], &b->items[i], depth, out) != 0)
            return -1;
    return 0;
}

static int maps_equal(struct template_run *run, const struct template_mapping *a,
                      const struct template_mapping *b, int depth, bool *out) {
    *out = a->length == b->length;
    for (size_t i = 0; *out && i < a->length; i++) {
        const struct template_value *other =
            template_value_map_find(run->arena, b, &a->entries[i].key);
        *out = other != NULL;
        if (*out && equal(run, &a->entries[i].item, other, depth, out) != 0)
            return -1;
    }
    return 0;
}

static int equal(struct template_run *run, const struct template_value *a,
                 const struct template_value *b, int depth, bool *out) {
    double x, y;
    if (depth > TEMPLATE_MAX_VALUE_DEPTH)
        return template_run_fail(run, "values nest too deep to compare them");
    if (template_run_charge(run, 1) != 0)
        return -1;
    *out = false;
    if (a->kind == TEMPLATE_INT && b->kind == TEMPLATE_INT) {
        *out = a->integer == b->integer;
        return 0;
    }
    if (template_type_number(a, &x) && template_type_number(b, &y)) {
        *out = x == y;
        return 0;
    }
    if (a->kind != b->kind)
        return 0;
    switch (a->kind) {
    case TEMPLATE_UNDEFINED:
    case TEMPLATE_NONE:
        *out = true;
        return 0;
    case TEMPLATE_STRING:
        *out = a->string.length == b->string.length &&
               memcmp(a->string.data, b->string.data, a->string.length) == 0;
        return template_run_charge_text(run, a->string.length);
    case TEMPLATE_LIST:
    case TEMPLATE_TUPLE:
    case TEMPLATE_RANGE:
        return sequences_equal(run, a->sequence, b->sequence, depth + 1, out);
    case TEMPLATE_MAP:
        return maps_equal(run, a->mapping, b->mapping, depth + 1, out);
    default: /* the same object; the pointers share their place */
        *out = a->mapping == b->mapping;
        return 0;
    }
}

int template_type_equal(struct template_run *run, const struct template_value *a,
                        const struct template_value *b, bool *out) {
    return equal(run, a, b, 0, out);
}

/* --- Order --- */

static int order(struct template_run *run, const struct template_value *a,
                 const struct template_value *b, const char *op, int depth, int *out);

static int order_sequences(struct template_run *run, const struct template_sequence *a,
                           const struct template_sequence *b, const char *op, int depth, int *out) {
    for (size_t i = 0; i < a->length && i < b->length; i++) {
        bool same;
        if (equal(run, &a->items[i], &b->items[i], depth, &same) != 0)
            return -1;
        if (!same)
            return order(run, &a->items[i], &b->items[i], op, depth, out);
    }
    *out = (a->length > b->length) - (a->length < b->length);
    return 0;
}

static int order(struct template_run *run, const struct template_value *a,
                 const struct template_value *b, const char *op, int depth, int *out) {
    double x, y;
    if (template_type_check_defined(run, a) != 0 || template_type_check_defined(run, b) != 0)
        return -1;
    if (depth > TEMPLATE_MAX_VALUE_DEPTH)
        return template_run_fail(run, "values nest too deep to compare them");
    if (a->kind == TEMPLATE_INT && b->kind == TEMPLATE_INT) {
        *out = (a->integer > b->integer) - (a->integer < b->integer);
        return template_run_charge(run, 1);
    }
    if (template_type_number(a, &x) && template_type_number(b, &y)) {
        *out = (x > y) - (x < y);
        return template_run_charge(run, 1);
    }
    if (a->kind == b->kind && a->kind == TEMPLATE_STRING) {
        *out = text_compare(template_string_text(a), template_string_text(b));
        return template_run_charge_text(run, a->string.length + 64);
    }
    if (a->kind == b->kind && (a->kind == TEMPLATE_LIST || a->kind == TEMPLATE_TUPLE))
        return order_sequences(run, a->sequence, b->sequence, op, depth + 1, out);
    return template_run_fail(run, "'%s' not supported between instances of '%s' and '%s'", op,
                             template_type_name(a), template_type_name(b));
}

int template_type_order(struct template_run *run, const struct template_value *a,
                        const struct template_value *b, const char *op, int *out) {
    return order(run, a, b, op, 0, out);
}

/* --- Membership --- */

int template_type_contains(struct template_run *run, const struct template_value *container,
                           const struct template_value *item, bool *out) {
    struct template_sequence items;
    if (container->kind == TEMPLATE_STRING) {
        if (item->kind != TEMPLATE_STRING)
            return template_run_fail(run, "'in <string>' requires string as left operand, not %s",
                                     template_type_name(item));
        *out = memmem(container->string.data, container->string.length, item->string.data,
                      item->string.length) != NULL;
        return template_run_charge_text(run, container->string.length);
    }
    if (container->kind == TEMPLATE_MAP) {
        if (!template_value_is_key(item) && item->kind != TEMPLATE_UNDEFINED)
            return template_run_fail(run, "unhashable type: '%s'", template_type_name(item));
        *out = item->kind != TEMPLATE_UNDEFINED &&
               template_value_map_find(run->arena, container->mapping, item) != NULL;
        return 0;
    }
    if (template_type_items(run, container, &items) != 0)
        return -1;
    *out = false;
    for (size_t i = 0; !*out && i < items.length; i++)
        if (template_type_equal(run, &items.items[i], item, out) != 0)
            return -1;
    return 0;
}

/* --- Sorting --- */

struct pair {
    struct template_value key, item;
};

/* Jinja compares lists of keys, in which values without an order may be equal. */
static bool are_undefined(const struct template_value *a, const struct template_value *b) {
    return a->kind == TEMPLATE_UNDEFINED && b->kind == TEMPLATE_UNDEFINED;
}

static int merge(struct template_run *run, const struct pair *from, size_t begin, size_t middle,
                 size_t end, bool reverse, struct pair *to) {
    size_t left = begin, right = middle;
    for (size_t i = begin; i < end; i++) {
        int order = 0;
        if (left < middle && right < end && !are_undefined(&from[left].key, &from[right].key) &&
            template_type_order(run, &from[right].key, &from[left].key, "<", &order) != 0)
            return -1;
        bool takes_right = left == middle || (right < end && (reverse ? order > 0 : order < 0));
        to[i] = from[takes_right ? right++ : left++];
    }
    return 0;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

int template_type_sort(struct template_run *run, struct template_value *items,
                       struct template_value *keys, size_t num, bool reverse) {
    struct pair *from = template_arena_alloc_items(run->arena, num, sizeof(*from));
    struct pair *to = template_arena_alloc_items(run->arena, num, sizeof(*to));
    if (from == NULL || to == NULL)
        return template_run_fail_memory(run);
    for (size_t i = 0; i < num; i++)
        from[i] = (struct pair){keys[i], items[i]};
    for (size_t width = 1; width < num; width *= 2) {
        for (size_t begin = 0; begin < num; begin += 2 * width)
            if (merge(run, from, begin, least(begin + width, num), least(begin + 2 * width, num),
                      reverse, to) != 0)
                return -1;
        struct pair *swapped = from;
        from = to;
        to = swapped;
    }
    for (size_t i = 0; i < num; i++) {
        keys[i] = from[i].key;
        items[i] = from[i].item;
    }
    return 0;
}
