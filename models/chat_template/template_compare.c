#include "models/chat_template/template_compare.h"

#include "models/chat_template/template_type.h"

/* --- Equality ----------------------------------------------------------------------------------
 */

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
            template_data_map_find(run->arena, b, &a->entries[i].key);
        *out = other != NULL;
        if (*out && equal(run, &a->entries[i].item, other, depth, out) != 0)
            return -1;
    }
    return 0;
}

static bool texts_equal(const struct template_value *a, const struct template_value *b) {
    return a->string.length == b->string.length &&
           memcmp(a->string.data, b->string.data, a->string.length) == 0;
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
        *out = texts_equal(a, b);
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

int template_compare_equal(struct template_run *run, const struct template_value *a,
                           const struct template_value *b, bool *out) {
    return equal(run, a, b, 0, out);
}

/* --- Order -------------------------------------------------------------------------------------
 */

static int order_texts(const struct template_value *a, const struct template_value *b) {
    size_t shorter = a->string.length < b->string.length ? a->string.length : b->string.length;
    int order = memcmp(a->string.data, b->string.data, shorter);
    if (order != 0)
        return order;
    return (a->string.length > b->string.length) - (a->string.length < b->string.length);
}

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
        *out = order_texts(a, b);
        return template_run_charge_text(run, a->string.length + 64);
    }
    if (a->kind == b->kind && (a->kind == TEMPLATE_LIST || a->kind == TEMPLATE_TUPLE))
        return order_sequences(run, a->sequence, b->sequence, op, depth + 1, out);
    return template_run_fail(run, "'%s' not supported between instances of '%s' and '%s'", op,
                             template_type_name(a), template_type_name(b));
}

int template_compare_order(struct template_run *run, const struct template_value *a,
                           const struct template_value *b, const char *op, int *out) {
    return order(run, a, b, op, 0, out);
}

/* --- Membership --------------------------------------------------------------------------------
 */

int template_compare_contains(struct template_run *run, const struct template_value *container,
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
        if (!template_data_is_key(item) && item->kind != TEMPLATE_UNDEFINED)
            return template_run_fail(run, "unhashable type: '%s'", template_type_name(item));
        *out = item->kind != TEMPLATE_UNDEFINED &&
               template_data_map_find(run->arena, container->mapping, item) != NULL;
        return 0;
    }
    if (template_type_items(run, container, &items) != 0)
        return -1;
    *out = false;
    for (size_t i = 0; !*out && i < items.length; i++)
        if (template_compare_equal(run, &items.items[i], item, out) != 0)
            return -1;
    return 0;
}

/* --- Sorting -----------------------------------------------------------------------------------
 */

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
            template_compare_order(run, &from[right].key, &from[left].key, "<", &order) != 0)
            return -1;
        bool takes_right = left == middle || (right < end && (reverse ? order > 0 : order < 0));
        to[i] = from[takes_right ? right++ : left++];
    }
    return 0;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

int template_compare_sort(struct template_run *run, struct template_value *items,
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
