/* Goals in disjunctive normal form. For values of one type a schema is a formula over the keywords
 * of that type; "and" multiplies cases, "or" adds them, and a negation is carried down to the
 * keywords (De Morgan). */
#include "engine/grammar/read/json_schema_private.h"

#include "config/json/json_field.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- Formulas in disjunctive normal form --- */

int schema_set_cases(struct schema_context *c, bool value, struct schema_cases *out) {
    out->count = value;
    out->items = value ? schema_allocate(c, sizeof(*out->items)) : NULL;
    if (value && out->items == NULL)
        return -1;
    if (value)
        out->items[0] = (struct schema_case){NULL, 0};
    return 0;
}

static int one_fact(struct schema_context *c, struct schema_fact fact, struct schema_cases *out) {
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

#define MAX_NESTING 64 /* of schemas that say something of the same value */

/* --- Types and values --- */

static const char *const type_names[NUM_TYPES] = {"null",   "boolean", "number",
                                                  "string", "array",   "object"};

enum json_type schema_type_of(const cJSON *value) {
    return cJSON_IsNull(value)     ? NULL_TYPE
           : cJSON_IsBool(value)   ? BOOLEAN
           : cJSON_IsString(value) ? STRING
           : cJSON_IsArray(value)  ? ARRAY
           : cJSON_IsObject(value) ? OBJECT
                                   : NUMBER;
}

static int add_type(struct schema_context *c, const char *path, const cJSON *name, unsigned *types,
                    bool *has_integer) {
    for (int i = 0; cJSON_IsString(name) && i < NUM_TYPES; i++) {
        if (strcmp(name->valuestring, type_names[i]) == 0) {
            *types |= 1u << i;
            return 0;
        }
    }
    if (cJSON_IsString(name) && strcmp(name->valuestring, "integer") == 0) {
        *has_integer = true;
        return 0;
    }
    return schema_refuse(c, path,
                         "type must be one or more of null, boolean, integer, number, "
                         "string, array and object");
}

int schema_read_types(struct schema_context *c, const char *path, const cJSON *type, unsigned *out,
                      bool *out_integers) {
    const cJSON *item;
    bool has_integer = false;
    *out = 0;
    if (cJSON_IsArray(type) && type->child != NULL) {
        cJSON_ArrayForEach(item, type) {
            if (add_type(c, path, item, out, &has_integer) != 0)
                return -1;
        }
    } else if (add_type(c, path, type, out, &has_integer) != 0) {
        return -1;
    }
    *out_integers = has_integer && (*out & 1u << NUMBER) == 0;
    *out |= has_integer ? 1u << NUMBER : 0;
    return 0;
}

int schema_expand_value(const struct schema_expansion *e, bool value) {
    return schema_set_cases(e->c, value, e->out);
}

int schema_expand_true(const struct schema_expansion *e) {
    return schema_expand_value(e, !e->of->negated);
}

static int keep_fact(const struct schema_expansion *e) {
    return one_fact(e->c, (struct schema_fact){FACT_KEYWORD, *e->of, e->item, NULL, 0}, e->out);
}

static int decline_negation(const struct schema_expansion *e) {
    return schema_decline(e->c, e->of->path,
                          "%s is not supported within not, if, or a oneOf whose schemas overlap",
                          e->item->string);
}

int schema_expand_within(const struct schema_expansion *e, const cJSON *schema, const char *label,
                         bool negated, struct schema_cases *out) {
    struct schema_literal literal;
    if (schema_child(e->c, e->of, schema, label, &literal) != 0)
        return -1;
    literal.negated = negated;
    return schema_expand(e->c, &literal, e->type, e->nesting + 1, out);
}

static int check_is(const struct schema_expansion *e, bool is_right, const char *what) {
    return is_right ? 0 : schema_refuse(e->c, e->of->path, "%s must be %s", e->item->string, what);
}

static int expand_type(const struct schema_expansion *e) {
    unsigned types;
    bool only_integers;
    if (schema_read_types(e->c, e->of->path, e->item, &types, &only_integers) != 0)
        return -1;
    if (e->type == NUMBER && only_integers)
        return keep_fact(e);
    return schema_expand_value(e, ((types >> e->type & 1u) != 0) != e->of->negated);
}

static int expand_enum(const struct schema_expansion *e) {
    const cJSON *value;
    bool any = false;
    if (!cJSON_IsArray(e->item) || e->item->child == NULL)
        return schema_refuse(e->c, e->of->path, "enum must be an array that is not empty");
    cJSON_ArrayForEach(value, e->item) any = any || schema_type_of(value) == e->type;
    return any ? keep_fact(e) : schema_expand_value(e, e->of->negated);
}

static int expand_const(const struct schema_expansion *e) {
    return schema_type_of(e->item) == e->type ? keep_fact(e)
                                              : schema_expand_value(e, e->of->negated);
}

/* --- Keywords that are facts --- */

static int expand_fact(const struct schema_expansion *e) {
    return keep_fact(e);
}

/* Nothing is written for its opposite. A schema that holds always says nothing, unless that others
 * may come. */
static int expand_positive_fact(const struct schema_expansion *e) {
    bool is_true = cJSON_IsTrue(e->item) || (cJSON_IsObject(e->item) && e->item->child == NULL);
    bool opens = strncmp(e->item->string, "additional", 10) == 0 ||
                 strncmp(e->item->string, "unevaluated", 11) == 0;
    if (is_true && (e->of->negated || !opens))
        return schema_expand_true(e);
    return e->of->negated ? decline_negation(e) : keep_fact(e);
}

static int expand_unique(const struct schema_expansion *e) {
    if (check_is(e, cJSON_IsBool(e->item), "a boolean") != 0)
        return -1;
    if (cJSON_IsFalse(e->item))
        return schema_expand_true(e);
    return e->of->negated ? decline_negation(e) : keep_fact(e);
}

static int expand_prefix(const struct schema_expansion *e) {
    int index = 0;
    const cJSON *item;
    if (check_is(e, cJSON_IsArray(e->item), "an array of schemas") != 0)
        return -1;
    if (!e->of->negated)
        return keep_fact(e);
    if (schema_expand_value(e, false) != 0)
        return -1;
    cJSON_ArrayForEach(item, e->item) {
        struct schema_cases own;
        struct schema_fact fact = {FACT_ITEM, *e->of, item, e->item->string, index++};
        fact.of.negated = false;
        if (one_fact(e->c, fact, &own) != 0 || schema_or_cases(e->c, e->out, &own) != 0)
            return -1;
    }
    return 0;
}

static int expand_items(const struct schema_expansion *e) {
    bool has_prefix = cJSON_HasObjectItem(e->of->schema, "prefixItems");
    if (cJSON_IsArray(e->item)) /* as in drafts before 2020-12 */
        return expand_prefix(e);
    return e->of->negated && has_prefix && !cJSON_IsTrue(e->item) ? decline_negation(e)
                                                                  : keep_fact(e);
}

/* Only together with an array of items. */
static int expand_additional_items(const struct schema_expansion *e) {
    bool counts = cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(e->of->schema, "items"));
    return counts ? expand_positive_fact(e) : schema_expand_true(e);
}

static int expand_contains(const struct schema_expansion *e) {
    bool is_counted = cJSON_HasObjectItem(e->of->schema, "minContains") ||
                      cJSON_HasObjectItem(e->of->schema, "maxContains");
    return e->of->negated && is_counted ? decline_negation(e) : keep_fact(e);
}

/* In draft 4 a boolean, which is read together with its bound. */
static int expand_exclusive(const struct schema_expansion *e) {
    return cJSON_IsBool(e->item) ? schema_expand_true(e) : keep_fact(e);
}

/* Formats that are not JSON Schema's, such as int32, say nothing of a text. */
static int expand_format(const struct schema_expansion *e) {
    if (check_is(e, cJSON_IsString(e->item), "a string") != 0)
        return -1;
    const char *name = e->item->valuestring;
    if (schema_format_pattern(name) != NULL)
        return keep_fact(e);
    if (schema_format_is_annotation(name, e->c->strict) ||
        schema_ignores(e->c, e->of->path, "format"))
        return schema_expand_true(e);
    return schema_decline(e->c, e->of->path, "format is not supported with the value %.40s", name);
}

static int expand_pattern(const struct schema_expansion *e) {
    bool is_ignored = false;
    if (grammar_builder_ignored(e->c->builder) != NULL && cJSON_IsString(e->item) &&
        schema_pattern_is_unknown(e->c, e->item->valuestring, &is_ignored) != 0)
        return -1;
    return is_ignored && schema_ignores(e->c, e->of->path, "pattern") ? schema_expand_true(e)
                                                                      : keep_fact(e);
}

static int expand_null(const struct schema_expansion *e) {
    return schema_expand_true(e);
}

static int decline_keyword(const struct schema_expansion *e) {
    return schema_decline(e->c, e->of->path, "the keyword %.48s is not supported", e->item->string);
}

/* --- Keywords of objects that speak of single properties --- */

/* Adds to the cases that there is, or is not, a property of this name. */
static int add_name(const struct schema_expansion *e, const cJSON *name, enum fact_kind kind,
                    bool ands, struct schema_cases *into) {
    struct schema_cases own;
    struct schema_fact fact = {kind, *e->of, e->item, NULL, 0};
    if (check_is(e, cJSON_IsString(name), "an array of strings") != 0)
        return -1;
    fact.name = name->valuestring;
    if (one_fact(e->c, fact, &own) != 0)
        return -1;
    return ands ? schema_and_cases(e->c, e->type, into, &own) : schema_or_cases(e->c, into, &own);
}

static int expand_required(const struct schema_expansion *e) {
    const cJSON *name;
    if (check_is(e, cJSON_IsArray(e->item), "an array of strings") != 0)
        return -1;
    cJSON_ArrayForEach(name, e->item) {
        if (check_is(e, cJSON_IsString(name), "an array of strings") != 0)
            return -1;
    }
    if (!e->of->negated)
        return e->item->child != NULL ? keep_fact(e) : schema_expand_value(e, true);
    if (schema_expand_value(e, false) != 0)
        return -1;
    cJSON_ArrayForEach(name, e->item) {
        if (add_name(e, name, FACT_FORBIDDEN, false, e->out) != 0)
            return -1;
    }
    return 0;
}

static int expand_properties(const struct schema_expansion *e) {
    const cJSON *property;
    if (check_is(e, cJSON_IsObject(e->item), "an object of schemas") != 0)
        return -1;
    if (!e->of->negated)
        return keep_fact(e);
    if (schema_expand_value(e, false) != 0)
        return -1;
    cJSON_ArrayForEach(property, e->item) {
        struct schema_cases own;
        struct schema_fact fact = {FACT_PROPERTY, *e->of, property, property->string, 0};
        fact.of.negated = false;
        if (one_fact(e->c, fact, &own) != 0 || schema_or_cases(e->c, e->out, &own) != 0)
            return -1;
    }
    return 0;
}

/* The names that one property asks for, all of them; or the opposite, that one is not there. */
static int expand_names(const struct schema_expansion *e, const cJSON *names, bool negated,
                        struct schema_cases *out) {
    const cJSON *name;
    if (schema_set_cases(e->c, !negated, out) != 0)
        return -1;
    cJSON_ArrayForEach(name, names) {
        if (add_name(e, name, negated ? FACT_FORBIDDEN : FACT_REQUIRED, !negated, out) != 0)
            return -1;
    }
    return 0;
}

/* What a property that is there asks for: names, or a schema of the whole object. */
static int expand_dependency(const struct schema_expansion *e, const cJSON *dependency,
                             struct schema_cases *out) {
    char label[96];
    if (cJSON_IsArray(dependency))
        return expand_names(e, dependency, e->of->negated, out);
    snprintf(label, sizeof(label), "%s.%s", e->item->string, dependency->string);
    return schema_expand_within(e, dependency, label, e->of->negated, out);
}

static int expand_dependencies(const struct schema_expansion *e) {
    const cJSON *dependency;
    bool negated = e->of->negated;
    if (check_is(e, cJSON_IsObject(e->item), "an object") != 0 ||
        schema_expand_value(e, !negated) != 0)
        return -1;
    cJSON_ArrayForEach(dependency, e->item) {
        struct schema_fact fact = {negated ? FACT_REQUIRED : FACT_FORBIDDEN, *e->of, e->item,
                                   dependency->string, 0};
        struct schema_cases own, asked;
        if (one_fact(e->c, fact, &own) != 0 || expand_dependency(e, dependency, &asked) != 0)
            return -1;
        int result = negated ? schema_and_cases(e->c, e->type, &own, &asked)
                             : schema_or_cases(e->c, &own, &asked);
        if (result == 0)
            result = negated ? schema_or_cases(e->c, e->out, &own)
                             : schema_and_cases(e->c, e->type, e->out, &own);
        if (result != 0)
            return -1;
    }
    return 0;
}

/* --- All keywords --- */

#define ANY_TYPE NUM_TYPES

static const struct keyword {
    const char *name;
    enum json_type type; /* of the values that it is about */
    int (*expand)(const struct schema_expansion *e);
} keywords[] = {
    {"type", ANY_TYPE, expand_type},
    {"enum", ANY_TYPE, expand_enum},
    {"const", ANY_TYPE, expand_const},
    {"$ref", ANY_TYPE, schema_expand_ref},
    {"$dynamicRef", ANY_TYPE, schema_expand_ref},
    {"$recursiveRef", ANY_TYPE, schema_expand_ref},
    {"allOf", ANY_TYPE, schema_expand_all_of},
    {"anyOf", ANY_TYPE, schema_expand_any_of},
    {"oneOf", ANY_TYPE, schema_expand_one_of},
    {"not", ANY_TYPE, schema_expand_not},
    {"if", ANY_TYPE, schema_expand_if},
    {"minimum", NUMBER, expand_fact},
    {"maximum", NUMBER, expand_fact},
    {"exclusiveMinimum", NUMBER, expand_exclusive},
    {"exclusiveMaximum", NUMBER, expand_exclusive},
    {"multipleOf", NUMBER, expand_fact},
    {"minLength", STRING, expand_fact},
    {"maxLength", STRING, expand_fact},
    {"pattern", STRING, expand_pattern},
    {"format", STRING, expand_format},
    {"items", ARRAY, expand_items},
    {"prefixItems", ARRAY, expand_prefix},
    {"additionalItems", ARRAY, expand_additional_items},
    {"minItems", ARRAY, expand_fact},
    {"maxItems", ARRAY, expand_fact},
    {"uniqueItems", ARRAY, expand_unique},
    {"contains", ARRAY, expand_contains},
    {"unevaluatedItems", ARRAY, expand_positive_fact},
    {"properties", OBJECT, expand_properties},
    {"required", OBJECT, expand_required},
    {"additionalProperties", OBJECT, expand_positive_fact},
    {"patternProperties", OBJECT, expand_positive_fact},
    {"propertyNames", OBJECT, expand_positive_fact},
    {"minProperties", OBJECT, expand_fact},
    {"maxProperties", OBJECT, expand_fact},
    {"dependentRequired", OBJECT, expand_dependencies},
    {"dependentSchemas", OBJECT, expand_dependencies},
    {"dependencies", OBJECT, expand_dependencies},
    {"unevaluatedProperties", OBJECT, expand_positive_fact},
    /* read with another */
    {"then", ANY_TYPE, expand_null},
    {"else", ANY_TYPE, expand_null},
    {"minContains", ARRAY, expand_null},
    {"maxContains", ARRAY, expand_null},
};

/* Keywords that say nothing about the value. */
static const char *const annotations[] = {"title",
                                          "description",
                                          "default",
                                          "examples",
                                          "example",
                                          "deprecated",
                                          "readOnly",
                                          "writeOnly",
                                          "$schema",
                                          "$id",
                                          "id",
                                          "$comment",
                                          "$defs",
                                          "definitions",
                                          "discriminator",
                                          "$anchor",
                                          "$dynamicAnchor",
                                          "$recursiveAnchor",
                                          "$vocabulary",
                                          "nullable",
                                          "contentEncoding",
                                          "contentMediaType",
                                          "contentSchema"};

static const struct keyword *find_keyword(const char *name) {
    for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++)
        if (strcmp(keywords[i].name, name) == 0)
            return &keywords[i];
    return NULL;
}

static bool is_annotation(const char *name) {
    for (size_t i = 0; i < sizeof(annotations) / sizeof(annotations[0]); i++)
        if (strcmp(annotations[i], name) == 0)
            return true;
    return false;
}

/* JSON schemas ignore what they do not know; strict ones are refused for it. */
static int expand_unknown(const struct schema_expansion *e) {
    if (!e->c->strict || is_annotation(e->item->string) ||
        schema_ignores(e->c, e->of->path, e->item->string))
        return schema_expand_true(e);
    return decline_keyword(e);
}

bool schema_says_only(const struct schema_context *c, const cJSON *schema, const char *key) {
    const cJSON *item;
    cJSON_ArrayForEach(item, schema) {
        bool says =
            find_keyword(item->string) != NULL || (c->strict && !is_annotation(item->string));
        if (says && strcmp(item->string, key) != 0)
            return false;
    }
    return true;
}

/* --- Schemas --- */

/* null is not a valid value of these, but clients write it for what they do not set. */
static bool is_unset(const cJSON *item) {
    return cJSON_IsNull(item) && strcmp(item->string, "const") != 0 &&
           strcmp(item->string, "type") != 0;
}

static int expand_keyword(const struct schema_expansion *e) {
    const struct keyword *keyword = find_keyword(e->item->string);
    if (keyword == NULL)
        return expand_unknown(e);
    if (is_unset(e->item))
        return schema_expand_true(e);
    if (keyword->type != ANY_TYPE && keyword->type != e->type)
        return schema_expand_true(e);
    return keyword->expand(e);
}

static int expand_object(struct schema_context *c, const struct schema_literal *literal,
                         enum json_type type, int nesting, struct schema_cases *out) {
    bool has_ref = c->ignores_ref_siblings && json_member(literal->schema, "$ref") != NULL;
    const cJSON *item;
    if (schema_set_cases(c, !literal->negated, out) != 0)
        return -1;
    cJSON_ArrayForEach(item, literal->schema) {
        struct schema_cases own;
        const struct schema_expansion e = {c, literal, item, type, nesting, &own};
        if (has_ref && strcmp(item->string, "$ref") != 0)
            continue;
        if (out->count == 0 && !literal->negated) /* not of this type, mostly */
            break;
        if (expand_keyword(&e) != 0 ||
            (literal->negated ? schema_or_cases(c, out, &own)
                              : schema_and_cases(c, type, out, &own)) != 0)
            return -1;
    }
    return 0;
}

int schema_expand(struct schema_context *c, const struct schema_literal *literal,
                  enum json_type type, int nesting, struct schema_cases *out) {
    if (schema_add_steps(c, 4) != 0)
        return -1;
    if (nesting > MAX_NESTING || literal->depth > JSON_SCHEMA_MAX_DEPTH)
        return schema_decline_depth(c, literal->path);
    if (cJSON_IsBool(literal->schema))
        return schema_set_cases(c, cJSON_IsTrue(literal->schema) != literal->negated, out);
    if (!cJSON_IsObject(literal->schema))
        return schema_refuse(c, literal->path, "a schema must be an object or a boolean");
    return expand_object(c, literal, type, nesting, out);
}

int schema_expand_goal(struct schema_context *c, const struct schema_goal *goal,
                       enum json_type type, struct schema_cases *out) {
    if (schema_set_cases(c, true, out) != 0)
        return -1;
    for (int i = 0; i < goal->count; i++) {
        struct schema_cases own;
        if (schema_expand(c, &goal->literals[i], type, 0, &own) != 0 ||
            schema_and_cases(c, type, out, &own) != 0)
            return -1;
    }
    return 0;
}

int schema_find(struct schema_context *c, const cJSON *object, const char *name,
                const cJSON **out) {
    size_t steps = 1;
    const cJSON *item = cJSON_IsObject(object) ? object->child : NULL;
    for (; item != NULL && strcmp(item->string, name) != 0; item = item->next)
        steps++;
    *out = item;
    return schema_add_steps(c, steps);
}
