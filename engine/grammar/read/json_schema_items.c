#include "engine/grammar/read/json_schema_items.h"

#include "config/json/json_field.h"

#include <stdio.h>
#include <string.h>

/* --- Facts --- */

static int array_size(const cJSON *array) {
    return cJSON_IsArray(array) ? cJSON_GetArraySize(array) : 0;
}

static int prefix_size(const cJSON *schema) {
    const cJSON *prefix = json_member(schema, "prefixItems"), *items = json_member(schema, "items");
    return array_size(prefix == NULL && cJSON_IsArray(items) ? items : prefix);
}

static int too_many(struct schema_context *c, const struct schema_fact *fact) {
    return schema_decline(c, fact->of.path, "too many schemas must match one array");
}

static void bound(struct array *a, int min, int max) {
    a->min = min > a->min ? min : a->min;
    a->max = max >= 0 && (a->max < 0 || max < a->max) ? max : a->max;
}

/* The opposite of minItems is a maxItems, of which none is below 0. */
static int read_size(struct schema_context *c, const struct schema_fact *fact, struct array *a) {
    int size;
    bool is_min = strcmp(fact->item->string, "minItems") == 0;
    if (schema_count(c, fact, GRAMMAR_MAX_REPEAT - 1, &size) != 0)
        return -1;
    if (!fact->of.negated)
        bound(a, is_min ? size : 0, is_min ? -1 : size);
    else if (!is_min)
        bound(a, size + 1, -1);
    else if (size > 0)
        bound(a, 0, size - 1);
    else
        bound(a, 1, 0);
    return 0;
}

static int read_prefix(struct schema_context *c, const struct schema_fact *fact, struct array *a) {
    int size = array_size(fact->item);
    if (a->num_prefixes == ARRAY_MAX_LITERALS)
        return too_many(c, fact);
    if (size > ARRAY_MAX_PREFIX)
        return schema_decline(c, fact->of.path, "%s has more than %d items", fact->item->string,
                              ARRAY_MAX_PREFIX);
    a->prefixes[a->num_prefixes++] = fact;
    a->num_places = size > a->num_places ? size : a->num_places;
    a->is_closed = true;
    return 0;
}

static int add_rest(struct schema_context *c, const struct schema_fact *fact, int from,
                    struct array *a) {
    if (a->num_rests == ARRAY_MAX_LITERALS)
        return too_many(c, fact);
    struct rest *rest = &a->rests[a->num_rests++];
    rest->from = from;
    a->num_places = from > a->num_places ? from : a->num_places;
    a->is_opened = true;
    return schema_child(c, &fact->of, fact->item, fact->item->string, &rest->literal);
}

/* Some item matches the schema, or a number of them. */
static int read_contains(struct schema_context *c, const struct schema_fact *fact,
                         struct array *a) {
    static const char *const keys[] = {"minContains", "maxContains"};
    int *const values[] = {&a->min_contained, &a->max_contained};
    if (a->contains != NULL)
        return schema_decline(c, fact->of.path, "%s is not supported twice for one array",
                              fact->item->string);
    a->contains = fact;
    a->min_contained = 1;
    a->max_contained = -1;
    if (schema_child(c, &fact->of, fact->item, fact->item->string, &a->contained) != 0)
        return -1;
    a->contained.negated = strcmp(fact->item->string, "items") == 0;
    for (int i = 0; i < 2 && !a->contained.negated; i++) {
        struct schema_fact bound_fact = *fact;
        bound_fact.item = json_member(fact->of.schema, keys[i]);
        if (bound_fact.item != NULL &&
            schema_count(c, &bound_fact, GRAMMAR_MAX_REPEAT - 1, values[i]) != 0)
            return -1;
    }
    return 0;
}

/* The opposite of contains: every item fails the schema. */
static int read_no_contains(struct schema_context *c, const struct schema_fact *fact,
                            struct array *a) {
    bool was_opened = a->is_opened;
    if (add_rest(c, fact, 0, a) != 0)
        return -1;
    a->rests[a->num_rests - 1].literal.negated = true;
    a->is_opened = was_opened;
    return 0;
}

/* --- unevaluatedItems --- */

/* What stands beside unevaluatedItems, and within allOf and $ref: how many items it evaluates. -1:
 * all. Whatever depends on the value is not supported. */
static int count_evaluated(struct schema_context *c, const struct schema_fact *fact,
                           const struct schema_literal *of, bool is_own, int nesting, int *out) {
    static const char *const others[] = {"anyOf", "oneOf", "if", "contains", "dependentSchemas"};
    const cJSON *schema = of->schema, *ref = json_member(schema, "$ref"), *item;
    const cJSON *items = json_member(schema, "items");
    int size = prefix_size(schema);
    if (nesting > 32)
        return schema_decline_depth(c, of->path);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (json_member(schema, others[i]) != NULL)
            return schema_decline(c, fact->of.path, "unevaluatedItems is not supported beside %s",
                                  others[i]);
    bool is_all = (items != NULL && !cJSON_IsArray(items)) ||
                  (cJSON_IsArray(items) && json_member(schema, "additionalItems") != NULL) ||
                  (!is_own && json_member(schema, "unevaluatedItems") != NULL);
    if (is_all || *out < 0)
        *out = -1;
    else
        *out = size > *out ? size : *out;
    if (ref != NULL) {
        struct schema_literal target;
        if (schema_resolve(c, of->path, ref, &target) != 0 ||
            count_evaluated(c, fact, &target, false, nesting + 1, out) != 0)
            return -1;
    }
    cJSON_ArrayForEach(item, json_member(schema, "allOf")) {
        struct schema_literal own = *of;
        own.schema = item;
        if (count_evaluated(c, fact, &own, false, nesting + 1, out) != 0)
            return -1;
    }
    return schema_add_steps(c, 4);
}

static int read_unevaluated(struct schema_context *c, const struct schema_fact *fact,
                            struct array *a) {
    int from = 0;
    if (cJSON_IsTrue(fact->item))
        return add_rest(c, fact, 0, a);
    if (count_evaluated(c, fact, &fact->of, true, 0, &from) != 0)
        return -1;
    return from >= 0 ? add_rest(c, fact, from, a) : 0;
}

static int read_keyword(struct schema_context *c, const struct schema_fact *fact, struct array *a) {
    const char *key = fact->item->string;
    if (strcmp(key, "minItems") == 0 || strcmp(key, "maxItems") == 0)
        return read_size(c, fact, a);
    if (strcmp(key, "uniqueItems") == 0) {
        a->is_unique = true;
        return 0;
    }
    if (strcmp(key, "contains") == 0)
        return fact->of.negated ? read_no_contains(c, fact, a) : read_contains(c, fact, a);
    if (strcmp(key, "unevaluatedItems") == 0)
        return read_unevaluated(c, fact, a);
    if (cJSON_IsArray(fact->item))
        return read_prefix(c, fact, a);
    if (strcmp(key, "items") == 0 && fact->of.negated)
        return read_contains(c, fact, a);
    if (strcmp(key, "enum") == 0 || strcmp(key, "const") == 0)
        return schema_decline(c, fact->of.path, "%s with an array is not supported within not",
                              key);
    return add_rest(c, fact, prefix_size(fact->of.schema), a);
}

int schema_read_array(struct schema_context *c, const struct schema_case *one, struct array *a) {
    memset(a, 0, sizeof(*a));
    a->max = -1;
    for (int i = 0; i < one->count; i++) {
        const struct schema_fact *fact = one->facts[i];
        a->path = fact->of.path;
        if (fact->kind != FACT_ITEM) {
            if (read_keyword(c, fact, a) != 0)
                return -1;
            continue;
        }
        if (a->num_fails == ARRAY_MAX_LITERALS || fact->index >= ARRAY_MAX_PREFIX)
            return too_many(c, fact);
        a->fails[a->num_fails++] = fact;
        a->num_places = fact->index >= a->num_places ? fact->index + 1 : a->num_places;
        bound(a, fact->index + 1, -1);
    }
    return 0;
}

/* --- The goal of a place --- */

static int prefix_literal(struct schema_context *c, const struct schema_fact *fact, int place,
                          struct schema_literal *out, int *count) {
    const cJSON *schema = fact->item->child;
    char label[48];
    for (int i = 0; i < place && schema != NULL; i++)
        schema = schema->next;
    if (schema == NULL)
        return 0;
    snprintf(label, sizeof(label), "%s[%d]", fact->item->string, place);
    ++*count;
    return schema_child(c, &fact->of, schema, label, out);
}

static int failing_literal(struct schema_context *c, const struct schema_fact *fact,
                           struct schema_literal *out) {
    char label[48];
    snprintf(label, sizeof(label), "%s[%d]", fact->name, fact->index);
    if (schema_child(c, &fact->of, fact->item, label, out) != 0)
        return -1;
    out->negated = true;
    return 0;
}

static int literals_of_place(struct schema_context *c, const struct array *a, int place,
                             struct schema_literal *literals, int *out_count) {
    int count = 0;
    for (int i = 0; i < a->num_prefixes; i++)
        if (prefix_literal(c, a->prefixes[i], place, &literals[count], &count) != 0)
            return -1;
    for (int i = 0; i < a->num_rests; i++)
        if (place >= a->rests[i].from)
            literals[count++] = a->rests[i].literal;
    for (int i = 0; i < a->num_fails; i++)
        if (a->fails[i]->index == place && failing_literal(c, a->fails[i], &literals[count++]) != 0)
            return -1;
    *out_count = count;
    return schema_add_steps(c, (size_t)(a->num_prefixes * (place + 1) + count));
}

int schema_place_goal(struct schema_context *c, const struct array *a, int place,
                      enum content content, struct place_literals *memory,
                      struct schema_goal *out) {
    struct schema_literal *literals = memory->items;
    int count;
    if (literals_of_place(c, a, place, literals, &count) != 0)
        return -1;
    if (content != ANY_ITEM) {
        literals[count] = a->contained;
        literals[count++].negated = a->contained.negated != (content == NOT_CONTAINED);
    }
    *out = (struct schema_goal){literals, count};
    return 0;
}

int schema_close_array(struct schema_context *c, struct array *a) {
    if (a->is_closed && !a->is_opened)
        bound(a, 0, a->num_places);
    for (int place = 0; place <= a->num_places && (a->max < 0 || place < a->max); place++) {
        struct place_literals literals;
        struct schema_goal goal;
        bool is_empty;
        if (schema_place_goal(c, a, place, ANY_ITEM, &literals, &goal) != 0 ||
            schema_goal_is_empty(c, &goal, &is_empty) != 0)
            return -1;
        if (is_empty)
            bound(a, 0, place);
    }
    return 0;
}
