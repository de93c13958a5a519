#include "engine/grammar/read/json_schema_hints.h"

#include "config/json/json_field.h"

#define MAX_REF_STEPS 64

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
