/* Filters over lists and other values with items. What is a generator in Jinja is a
 * TEMPLATE_ITERATOR here: it was filled at once, but is walked once. */
#include "models/chat_template/template_run.h"
#include "models/chat_template/template_strings.h"
#include "models/chat_template/template_type.h"

static int take_items(struct template_run *run, const struct template_value *value,
                      struct template_sequence *out) {
    return template_type_items(run, value, out) != 0 ? -1 : template_run_charge(run, out->length);
}

static int give_items(struct template_run *run, enum template_kind kind,
                      const struct template_value *items, size_t num, struct template_value *out) {
    return template_value_items(run->arena, kind, items, num, out) ? 0
                                                                   : template_run_fail_memory(run);
}

static int add_item(struct template_run *run, struct template_sequence *to,
                    struct template_value item) {
    return template_value_append(run->arena, to, item) ? 0 : template_run_fail_memory(run);
}

static bool is_given(const struct template_value *value) {
    return value->kind != TEMPLATE_MISSING && value->kind != TEMPLATE_NONE;
}

/* Puts a string into lower case, so that letters' case does not matter. */
static int fold_case(struct template_run *run, struct template_value *value) {
    return value->kind == TEMPLATE_STRING
               ? template_strings_change_case(run, value, TEMPLATE_STRINGS_LOWER, value)
               : 0;
}

/* --- One of the items --- */

static struct template_value undefined_item(const char *why) {
    return template_value_undefined((struct text){why, strlen(why)});
}

/* Takes one item of an iterator alone. */
TEMPLATE_BODY(first) {
    struct template_value self = *call->self;
    struct template_sequence items;
    size_t taken = self.kind == TEMPLATE_ITERATOR ? self.sequence->taken : 0;
    if (template_type_items(run, &self, &items) != 0)
        return -1;
    if (self.kind == TEMPLATE_ITERATOR && items.length > 0)
        self.sequence->taken = taken + 1;
    *out = items.length > 0 ? items.items[0] : undefined_item("No first item, sequence was empty");
    return 0;
}

TEMPLATE_BODY(last) {
    struct template_sequence items;
    if (call->self->kind == TEMPLATE_ITERATOR)
        return template_run_fail(run, "'generator' object is not reversible");
    if (template_type_items(run, call->self, &items) != 0)
        return -1;
    *out = items.length > 0 ? items.items[items.length - 1]
                            : undefined_item("No last item, sequence was empty");
    return 0;
}

/* Gives the key to compare an item by: an attribute or itself, with or without its letters' case.
 */
static int key_of(struct template_run *run, const struct template_value *item,
                  const struct template_value *attribute, bool case_sensitive,
                  struct template_value *out) {
    *out = *item;
    if (is_given(attribute) && template_operator_path(run, item, attribute, out) != 0)
        return -1;
    return case_sensitive ? 0 : fold_case(run, out);
}

TEMPLATE_BODY(extreme) {
    bool largest = call->variant;
    struct template_sequence items;
    struct template_value best, key;
    bool case_sensitive = template_call_get_flag(call, 0, false);
    int order;
    *out = undefined_item("No aggregated item, sequence was empty");
    if (take_items(run, call->self, &items) != 0)
        return -1;
    for (size_t i = 0; i < items.length; i++) {
        if (key_of(run, &items.items[i], &call->given[1], case_sensitive, &key) != 0 ||
            (i > 0 && template_type_order(run, &key, &best, largest ? ">" : "<", &order) != 0))
            return -1;
        if (i > 0 && (largest ? order <= 0 : order >= 0))
            continue;
        best = key;
        *out = items.items[i];
    }
    return 0;
}

TEMPLATE_BODY(join) {
    struct template_sequence items;
    struct template_value separator = template_value_server("");
    if ((call->given[0].kind != TEMPLATE_MISSING &&
         template_repr_string(run, &call->given[0], &separator) != 0) ||
        template_type_items(run, call->self, &items) != 0)
        return -1;
    if (!is_given(&call->given[1]))
        return template_strings_join(run, &separator, &items, out);
    struct template_sequence picked = {0};
    for (size_t i = 0; i < items.length; i++) {
        struct template_value item;
        if (template_operator_path(run, &items.items[i], &call->given[1], &item) != 0 ||
            add_item(run, &picked, item) != 0)
            return -1;
    }
    return template_strings_join(run, &separator, &picked, out);
}

/* --- All of the items --- */

TEMPLATE_BODY(list) {
    struct template_sequence items;
    return take_items(run, call->self, &items) != 0
               ? -1
               : give_items(run, TEMPLATE_LIST, items.items, items.length, out);
}

TEMPLATE_BODY(reverse) {
    struct template_sequence items, turned = {0};
    const struct template_value step[3] = {template_value_none(), template_value_none(),
                                           template_value_int(-1)};
    if (call->self->kind == TEMPLATE_STRING)
        return template_operator_slice(run, call->self, step, out);
    if (take_items(run, call->self, &items) != 0)
        return -1;
    for (size_t i = items.length; i > 0; i--)
        if (add_item(run, &turned, items.items[i - 1]) != 0)
            return -1;
    return give_items(run, TEMPLATE_ITERATOR, turned.items, turned.length, out);
}

/* Pairs of key and value. */
static int pairs_of(struct template_run *run, const struct template_mapping *map,
                    struct template_sequence *out) {
    *out = (struct template_sequence){0};
    for (size_t i = 0; i < map->length; i++) {
        struct template_value pair[2] = {map->entries[i].key, map->entries[i].item}, tuple;
        if (template_run_charge(run, 1) != 0 ||
            give_items(run, TEMPLATE_TUPLE, pair, 2, &tuple) != 0 || add_item(run, out, tuple) != 0)
            return -1;
    }
    return 0;
}

TEMPLATE_BODY(items) {
    struct template_sequence pairs = {0};
    if (call->self->kind != TEMPLATE_MAP && call->self->kind != TEMPLATE_UNDEFINED)
        return template_run_fail(run, "Can only get item pairs from a mapping.");
    if (call->self->kind == TEMPLATE_MAP && pairs_of(run, call->self->mapping, &pairs) != 0)
        return -1;
    return give_items(run, TEMPLATE_ITERATOR, pairs.items, pairs.length, out);
}

TEMPLATE_BODY(dictsort) {
    struct template_sequence pairs, keys = {0};
    struct template_value by;
    bool case_sensitive = template_call_get_flag(call, 0, false);
    bool reversed = template_call_get_flag(call, 2, false);
    if (call->self->kind != TEMPLATE_MAP)
        return template_run_fail(run, "dictsort: '%s' is not a mapping",
                                 template_type_name(call->self));
    if (template_call_get_string(run, call, 1, "key", &by) != 0 ||
        pairs_of(run, call->self->mapping, &pairs) != 0)
        return -1;
    size_t index = text_is(template_string_text(&by), "value");
    for (size_t i = 0; i < pairs.length; i++) {
        struct template_value key = pairs.items[i].sequence->items[index];
        if ((!case_sensitive && fold_case(run, &key) != 0) || add_item(run, &keys, key) != 0)
            return -1;
    }
    return template_type_sort(run, pairs.items, keys.items, pairs.length, reversed) != 0
               ? -1
               : give_items(run, TEMPLATE_LIST, pairs.items, pairs.length, out);
}

/* Sorts copies of the items by their keys. */
static int sorted(struct template_run *run, const struct template_value *value,
                  const struct template_value *attribute, bool case_sensitive, bool reversed,
                  struct template_sequence *out_items, struct template_sequence *out_keys) {
    struct template_sequence items, copies = {0}, keys = {0};
    if (take_items(run, value, &items) != 0)
        return -1;
    for (size_t i = 0; i < items.length; i++) {
        struct template_value key;
        if (key_of(run, &items.items[i], attribute, case_sensitive, &key) != 0 ||
            add_item(run, &keys, key) != 0 || add_item(run, &copies, items.items[i]) != 0)
            return -1;
    }
    *out_items = copies;
    *out_keys = keys;
    return template_type_sort(run, copies.items, keys.items, copies.length, reversed);
}

TEMPLATE_BODY(sort) {
    struct template_sequence items, keys;
    if (sorted(run, call->self, &call->given[2], template_call_get_flag(call, 1, false),
               template_call_get_flag(call, 0, false), &items, &keys) != 0)
        return -1;
    return give_items(run, TEMPLATE_LIST, items.items, items.length, out);
}

TEMPLATE_BODY(unique) {
    struct template_sequence items, kept = {0};
    struct template_value seen, key;
    bool case_sensitive = template_call_get_flag(call, 0, false);
    if (take_items(run, call->self, &items) != 0)
        return -1;
    if (!template_value_map(run->arena, TEMPLATE_MAP, &seen))
        return template_run_fail_memory(run);
    for (size_t i = 0; i < items.length; i++) {
        if (key_of(run, &items.items[i], &call->given[1], case_sensitive, &key) != 0)
            return -1;
        if (key.kind == TEMPLATE_UNDEFINED)
            key = template_value_none();
        if (!template_value_is_key(&key))
            return template_run_fail(run, "unhashable type: '%s'", template_type_name(&key));
        if (template_value_map_find(run->arena, seen.mapping, &key) != NULL)
            continue;
        if (!template_value_map_set(run->arena, seen.mapping, &key, key))
            return template_run_fail_memory(run);
        if (add_item(run, &kept, items.items[i]) != 0)
            return -1;
    }
    return give_items(run, TEMPLATE_ITERATOR, kept.items, kept.length, out);
}

/* --- Items put through something --- */

static const struct template_value *keyword(struct template_run *run,
                                            const struct template_call *call, const char *name) {
    const struct template_mapping *keywords = call->arguments->keywords;
    return keywords == NULL ? NULL
                            : template_value_map_find_text(run->arena, keywords,
                                                           (struct text){name, strlen(name)});
}

/* Jinja's map, select and reject treat every false value as no items, above all none. */
static int take_items_if_true(struct template_run *run, const struct template_value *value,
                              struct template_sequence *out) {
    *out = (struct template_sequence){0};
    return template_type_is_true(value) ? take_items(run, value, out) : 0;
}

/* Returns the name in the arguments at `index`, and the arguments after it. */
static int name_and_rest(struct template_run *run, const struct template_call *call, size_t index,
                         struct text *out_name, struct template_arguments *out_rest) {
    const struct template_arguments *all = call->arguments;
    if (all->num <= index || all->items[index].kind != TEMPLATE_STRING)
        return template_run_fail(run, "a filter's or test's name is expected");
    *out_name = template_string_text(&all->items[index]);
    *out_rest =
        (struct template_arguments){all->items + index + 1, all->num - index - 1, all->keywords};
    return 0;
}

static int map_item(struct template_run *run, const struct template_call *call,
                    const struct template_value *item, struct template_value *out) {
    const struct template_value *attribute = keyword(run, call, "attribute");
    struct template_arguments rest;
    struct text name;
    if (attribute == NULL || call->arguments->num > 0)
        return name_and_rest(run, call, 0, &name, &rest) != 0
                   ? -1
                   : template_call_filter(run, name, item, &rest, out);
    if (template_operator_path(run, item, attribute, out) != 0)
        return -1;
    const struct template_value *fallback = keyword(run, call, "default");
    if (out->kind == TEMPLATE_UNDEFINED && fallback != NULL)
        *out = *fallback;
    return 0;
}

TEMPLATE_BODY(map) {
    struct template_sequence items, mapped = {0};
    if (take_items_if_true(run, call->self, &items) != 0)
        return -1;
    for (size_t i = 0; i < items.length; i++) {
        struct template_value item;
        if (map_item(run, call, &items.items[i], &item) != 0 || add_item(run, &mapped, item) != 0)
            return -1;
    }
    return give_items(run, TEMPLATE_ITERATOR, mapped.items, mapped.length, out);
}

/* Variants of select, reject, selectattr and rejectattr. */
enum { BY_ATTRIBUTE = 1, FAILING = 2 };

/* Tests the item, or its attribute that the first argument names. */
static int passes(struct template_run *run, const struct template_call *call, bool by_attribute,
                  const struct template_value *item, bool *out) {
    struct template_value value = *item;
    struct template_arguments rest;
    struct text name;
    size_t first = by_attribute;
    if (by_attribute &&
        (call->arguments->num == 0 ||
         template_operator_path(run, item, &call->arguments->items[0], &value) != 0))
        return call->arguments->num == 0 ? template_run_fail(run, "Missing parameter for attribute")
                                         : -1;
    if (call->arguments->num == first) {
        *out = template_type_is_true(&value);
        return 0;
    }
    return name_and_rest(run, call, first, &name, &rest) != 0
               ? -1
               : template_call_test(run, name, &value, &rest, out);
}

TEMPLATE_BODY(pick) {
    bool by_attribute = (call->variant & BY_ATTRIBUTE) != 0;
    bool wanted = (call->variant & FAILING) == 0;
    struct template_sequence items, kept = {0};
    if (take_items_if_true(run, call->self, &items) != 0)
        return -1;
    for (size_t i = 0; i < items.length; i++) {
        bool holds;
        if (passes(run, call, by_attribute, &items.items[i], &holds) != 0 ||
            (holds == wanted && add_item(run, &kept, items.items[i]) != 0))
            return -1;
    }
    return give_items(run, TEMPLATE_ITERATOR, kept.items, kept.length, out);
}

const struct template_function template_item_filters[] = {
    {"first", first, "", 0},
    {"last", last, "", 0},
    {"min", extreme, "case_sensitive attribute", 0, false},
    {"max", extreme, "case_sensitive attribute", 0, true},
    {"join", join, "d attribute", 0},
    {"list", list, "", 0},
    {"reverse", reverse, "", 0},
    {"items", items, "", 0},
    {"dictsort", dictsort, "case_sensitive by reverse", 0},
    {"sort", sort, "reverse case_sensitive attribute", 0},
    {"unique", unique, "case_sensitive attribute", 0},
    {"map", map, NULL, 0, 0, TEMPLATE_APPLIES_FILTER, 0},
    {"select", pick, NULL, 0, 0, TEMPLATE_APPLIES_TEST, 0},
    {"reject", pick, NULL, 0, FAILING, TEMPLATE_APPLIES_TEST, 0},
    {"selectattr", pick, NULL, 0, BY_ATTRIBUTE, TEMPLATE_APPLIES_TEST, 1},
    {"rejectattr", pick, NULL, 0, BY_ATTRIBUTE | FAILING, TEMPLATE_APPLIES_TEST, 1},
    {NULL, NULL, NULL, 0},
};
