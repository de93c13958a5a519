/* Merge sort from the bottom up, over pairs of key and item. */
#include "models/chat_template/template_sort.h"

#include "models/chat_template/template_case.h"

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
            template_truth_order(run, &from[right].key, &from[left].key, "<", &order) != 0)
            return -1;
        bool takes_right = left == middle || (right < end && (reverse ? order > 0 : order < 0));
        to[i] = from[takes_right ? right++ : left++];
    }
    return 0;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

int template_sort_items(struct template_run *run, struct template_value *items,
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

int template_sort_fold(struct template_run *run, struct template_value *value) {
    if (value->kind != TEMPLATE_STRING)
        return 0;
    return template_case_lower(run, value, value);
}
