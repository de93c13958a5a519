/* Goals are found by the schemas that they consist of, once references and allOf are resolved. */
#include "engine/grammar/read/json_schema_private.h"

#include "config/json/json_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LITERALS 512 /* of a goal */
#define MAX_REF_STEPS 64

/* --- The types that a goal means --- */

/* What a goal says about types: whether it does so, and else the types that its keywords are
 * about. */
struct type_hints {
    bool is_typed;
    unsigned types;
};

static int find_hints(struct schema_context *c, const struct schema_literal *literal, int nesting,
                      struct type_hints *out);

static int find_hints_of_list(struct schema_context *c, const struct schema_literal *of,
                              const cJSON *schemas, bool all, int nesting, struct type_hints *out) {
    const cJSON *item;
    bool are_typed = true;
    cJSON_ArrayForEach(item, schemas) {
        struct type_hints own = {false, 0};
        struct schema_literal child = *of;
        child.schema = item;
        if (find_hints(c, &child, nesting + 1, &own) != 0)
            return -1;
        are_typed = are_typed && own.is_typed;
        out->is_typed = out->is_typed || (all && own.is_typed);
        out->types |= own.types;
    }
    out->is_typed = out->is_typed || (!all && schemas->child != NULL && are_typed);
    return 0;
}

static unsigned hinted_types(const cJSON *schema) {
    static const struct {
        const char *key;
        enum json_type type;
    } hints[] = {{"properties", OBJECT},
                 {"required", OBJECT},
                 {"additionalProperties", OBJECT},
                 {"patternProperties", OBJECT},
                 {"minProperties", OBJECT},
                 {"maxProperties", OBJECT},
                 {"propertyNames", OBJECT},
                 {"items", ARRAY},
                 {"prefixItems", ARRAY},
                 {"minItems", ARRAY},
                 {"maxItems", ARRAY},
                 {"contains", ARRAY},
                 {"uniqueItems", ARRAY},
                 {"pattern", STRING},
                 {"minLength", STRING},
                 {"maxLength", STRING},
                 {"format", STRING},
                 {"minimum", NUMBER},
                 {"maximum", NUMBER},
                 {"exclusiveMinimum", NUMBER},
                 {"exclusiveMaximum", NUMBER},
                 {"multipleOf", NUMBER}};
    unsigned types = 0;
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
        if (json_member(schema, hints[i].key) != NULL)
            types |= 1u << hints[i].type;
    return types;
}

static int find_hints(struct schema_context *c, const struct schema_literal *literal, int nesting,
                      struct type_hints *out) {
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    const cJSON *schema = literal->schema, *ref = json_member(schema, "$ref");
    if (nesting > MAX_REF_STEPS || literal->negated || schema_add_steps(c, 8) != 0)
        return literal->negated || nesting > MAX_REF_STEPS ? 0 : -1;
    out->is_typed = out->is_typed || json_member(schema, "type") != NULL ||
                    json_member(schema, "enum") != NULL || json_member(schema, "const") != NULL;
    out->types |= hinted_types(schema);
    if (ref != NULL) {
        struct schema_literal target;
        if (schema_resolve(c, literal->path, ref, &target) != 0 ||
            find_hints(c, &target, nesting + 1, out) != 0)
            return -1;
    }
    for (int i = 0; i < 3; i++) {
        const cJSON *list = json_member(schema, lists[i]);
        if (cJSON_IsArray(list) && find_hints_of_list(c, literal, list, i == 0, nesting, out) != 0)
            return -1;
    }
    return 0;
}

int schema_meant_types(struct schema_context *c, const struct schema_goal *goal, unsigned *out) {
    struct type_hints hints = {false, 0};
    for (int i = 0; i < goal->count; i++)
        if (find_hints(c, &goal->literals[i], 0, &hints) != 0)
            return -1;
    *out = hints.is_typed || hints.types == 0 ? SCHEMA_ALL_TYPES : hints.types;
    return 0;
}

/* --- What a goal consists of --- */

/* A goal as it is put together. */
struct literal_list {
    struct schema_literal literals[MAX_LITERALS];
    int count;
};

/* What says nothing is left out, and so is what is in the list. */
static int add_literal(struct schema_context *c, struct schema_literal literal,
                       struct literal_list *list) {
    if (cJSON_IsBool(literal.schema) && cJSON_IsTrue(literal.schema) != literal.negated)
        return 0;
    if (!literal.negated && cJSON_IsObject(literal.schema) &&
        schema_says_only(c, literal.schema, ""))
        return 0;
    if (schema_add_steps(c, (size_t)list->count) != 0)
        return -1;
    for (int i = 0; i < list->count; i++)
        if (list->literals[i].schema == literal.schema &&
            list->literals[i].negated == literal.negated)
            return 0;
    if (list->count == MAX_LITERALS)
        return schema_decline(c, literal.path, "too many schemas must match one value");
    list->literals[list->count++] = literal;
    return 0;
}

static int flatten(struct schema_context *c, struct schema_literal literal, int steps,
                   struct literal_list *list);

static int flatten_all(struct schema_context *c, const struct schema_literal *of,
                       const cJSON *schemas, int steps, struct literal_list *list) {
    const cJSON *item;
    int index = 0;
    cJSON_ArrayForEach(item, schemas) {
        struct schema_literal child;
        char label[32];
        snprintf(label, sizeof(label), "allOf[%d]", index++);
        if (schema_child(c, of, item, label, &child) != 0 || flatten(c, child, steps, list) != 0)
            return -1;
    }
    return 0;
}

/* References, and schemas that are nothing but an allOf or a not, give way to what they name. */
static int flatten(struct schema_context *c, struct schema_literal literal, int steps,
                   struct literal_list *list) {
    const cJSON *schema = literal.schema, *ref = json_member(schema, "$ref");
    const cJSON *all_of = json_member(schema, "allOf"), *opposite = json_member(schema, "not");
    bool negated = literal.negated;
    if (steps == MAX_REF_STEPS)
        return schema_decline_depth(c, literal.path);
    if (ref != NULL && (c->ignores_ref_siblings || schema_says_only(c, schema, "$ref"))) {
        if (schema_resolve(c, literal.path, ref, &literal) != 0)
            return -1;
        literal.negated = negated;
        return flatten(c, literal, steps + 1, list);
    }
    if (cJSON_IsArray(all_of) && all_of->child != NULL && !negated &&
        schema_says_only(c, schema, "allOf"))
        return flatten_all(c, &literal, all_of, steps + 1, list);
    if (opposite != NULL && schema_says_only(c, schema, "not")) {
        struct schema_literal child;
        if (schema_child(c, &literal, opposite, "not", &child) != 0)
            return -1;
        child.negated = !negated;
        return flatten(c, child, steps + 1, list);
    }
    return add_literal(c, literal, list);
}

/* --- The table of goals --- */

static bool is_same_goal(const struct schema_goal *a, const struct schema_goal *b) {
    if (a->count != b->count)
        return false;
    for (int i = 0; i < a->count; i++)
        if (a->literals[i].schema != b->literals[i].schema ||
            a->literals[i].negated != b->literals[i].negated)
            return false;
    return true;
}

static size_t hash_goal(const struct schema_goal *goal) {
    uint64_t hash = 1469598103934665603u;
    for (int i = 0; i < goal->count; i++)
        hash =
            (hash ^ ((uint64_t)(uintptr_t)goal->literals[i].schema + goal->literals[i].negated)) *
            1099511628211u;
    return (size_t)(hash ^ hash >> 29) % SCHEMA_GOAL_SLOTS;
}

static struct schema_entry *add_entry(struct schema_context *c, const struct schema_goal *goal,
                                      struct schema_entry **list) {
    size_t bytes = (size_t)goal->count * sizeof(*goal->literals);
    const char *path = goal->count > 0 ? goal->literals[0].path : c->path;
    if (++c->num_goals > SCHEMA_MAX_GOALS) {
        schema_decline(c, path, "the schema has too many parts");
        return NULL;
    }
    if (schema_count_one(c, path, "schemas") != 0)
        return NULL;
    struct schema_entry *entry = schema_allocate(c, sizeof(*entry));
    struct schema_literal *literals = entry != NULL ? schema_allocate(c, bytes + 1) : NULL;
    if (literals == NULL)
        return NULL;
    if (bytes > 0)
        memcpy(literals, goal->literals, bytes);
    *entry = (struct schema_entry){.next = *list,
                                   .goal = {literals, goal->count},
                                   .node = GRAMMAR_FAILED,
                                   .rule = GRAMMAR_FAILED};
    return *list = entry;
}

struct schema_entry *schema_find_entry(struct schema_context *c, const struct schema_goal *goal) {
    struct literal_list *list = malloc(sizeof(*list));
    struct schema_entry *entry = NULL;
    if (list == NULL ||
        (c->goals == NULL &&
         (c->goals = schema_allocate(c, SCHEMA_GOAL_SLOTS * sizeof(*c->goals))) == NULL)) {
        free(list);
        api_error_set_memory(c->err);
        return NULL;
    }
    if (c->num_goals == 0)
        memset(c->goals, 0, SCHEMA_GOAL_SLOTS * sizeof(*c->goals));
    list->count = 0;
    int result = 0;
    for (int i = 0; i < goal->count && result == 0; i++)
        result = flatten(c, goal->literals[i], 0, list);
    if (result == 0) {
        const struct schema_goal flat = {list->literals, list->count};
        struct schema_entry **slot = &c->goals[hash_goal(&flat)];
        for (entry = *slot; entry != NULL && !is_same_goal(&entry->goal, &flat);)
            entry = entry->next;
        if (entry == NULL)
            entry = add_entry(c, &flat, slot);
    }
    free(list);
    return entry;
}
