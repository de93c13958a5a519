#include "engine/grammar/read/json_schema_cases.h"

#include <string.h>

int schema_set_cases(struct schema_context *c, bool value, struct schema_cases *out) {
    out->count = value;
    out->items = value ? schema_allocate(c, sizeof(*out->items)) : NULL;
    if (value && out->items == NULL)
        return -1;
    if (value)
        out->items[0] = (struct schema_case){NULL, 0};
    return 0;
}

int schema_one_fact(struct schema_context *c, struct schema_fact fact, struct schema_cases *out) {
    struct schema_fact *copy = schema_allocate(c, sizeof(*copy));
    const struct schema_fact **facts = schema_allocate(c, sizeof(*facts));
    if (copy == NULL || facts == NULL || schema_set_cases(c, true, out) != 0)
        return -1;
    *copy = fact;
    facts[0] = copy;
    out->items[0] = (struct schema_case){facts, 1};
    return 0;
}

static int check_count(struct schema_context *c, size_t count) {
    if (count > SCHEMA_MAX_CASES)
        return schema_decline(c, c->path, "the schema has too many combinations of alternatives");
    return schema_add_steps(c, count);
}

int schema_or_cases(struct schema_context *c, struct schema_cases *into,
                    const struct schema_cases *more) {
    size_t count = (size_t)into->count + (size_t)more->count;
    if (more->count == 0)
        return 0;
    if (check_count(c, count) != 0)
        return -1;
    struct schema_case *items = schema_allocate(c, count * sizeof(*items));
    if (items == NULL)
        return -1;
    if (into->count > 0)
        memcpy(items, into->items, (size_t)into->count * sizeof(*items));
    memcpy(items + into->count, more->items, (size_t)more->count * sizeof(*items));
    *into = (struct schema_cases){items, (int)count};
    return 0;
}

static bool is_same_fact(const struct schema_fact *a, const struct schema_fact *b) {
    return a->kind == b->kind && a->item == b->item && a->of.negated == b->of.negated &&
           a->index == b->index && a->name == b->name;
}

int schema_join_cases(struct schema_context *c, const struct schema_case *a,
                      const struct schema_case *b, struct schema_case *out) {
    size_t count = (size_t)a->count + (size_t)b->count;
    const struct schema_fact **facts = schema_allocate(c, (count + 1) * sizeof(*facts));
    if (facts == NULL || schema_add_steps(c, count) != 0)
        return -1;
    if (a->count > 0)
        memcpy(facts, a->facts, (size_t)a->count * sizeof(*facts));
    int joined = a->count;
    for (int i = 0; i < b->count; i++) {
        bool is_new = true;
        for (int k = 0; k < a->count && is_new; k++)
            is_new = !is_same_fact(a->facts[k], b->facts[i]);
        if (is_new)
            facts[joined++] = b->facts[i];
    }
    *out = (struct schema_case){facts, joined};
    return 0;
}

int schema_and_cases(struct schema_context *c, enum json_type type, struct schema_cases *into,
                     const struct schema_cases *more) {
    size_t count = (size_t)into->count * (size_t)more->count;
    bool is_true = more->count == 1 && more->items[0].count == 0;
    if (is_true)
        return 0;
    if (count > 1 && schema_add_steps(c, count) != 0)
        return -1;
    if (into->count == 1 && into->items[0].count == 0) {
        *into = *more;
        return 0;
    }
    struct schema_cases product = {NULL, 0};
    for (int i = 0; i < into->count; i++) {
        struct schema_cases row = {schema_allocate(c, (size_t)more->count * sizeof(*row.items)), 0};
        if (row.items == NULL)
            return -1;
        for (int k = 0; k < more->count; k++) {
            struct schema_case *joined = &row.items[row.count];
            bool is_empty = false;
            if (schema_join_cases(c, &into->items[i], &more->items[k], joined) != 0 ||
                (count > 1 && schema_case_is_empty(c, type, joined, &is_empty) != 0))
                return -1;
            row.count += !is_empty;
        }
        if (schema_or_cases(c, &product, &row) != 0)
            return -1;
    }
    *into = product;
    return 0;
}
