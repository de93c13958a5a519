/* Goals in disjunctive normal form. For values of one type a schema is a formula over the keywords
 * of that type; "and" multiplies cases, "or" adds them, and a negation is carried down to the
 * keywords (De Morgan). */
#include "server/api/constraint/json_schema_private.h"

#include "server/json/json_field.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_NESTING 64 /* of schemas that say something of the same value */

/* --- Formulas --- */

static int set_cases(struct schema_context *c, bool value, struct schema_cases *out) {
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
    if (copy == NULL || facts == NULL || set_cases(c, true, out) != 0)
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

static int or_cases(struct schema_context *c, struct schema_cases *into,
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

/* Facts that both have are in it once: keywords by what they are of. */
static bool is_same_fact(const struct schema_fact *a, const struct schema_fact *b) {
    return a->kind == b->kind && a->item == b->item && a->of.negated == b->of.negated &&
           a->index == b->index && a->name == b->name;
}

static int join(struct schema_context *c, const struct schema_case *a, const struct schema_case *b,
                struct schema_case *out) {
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

static int and_cases(struct schema_context *c, enum json_type type, struct schema_cases *into,
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
            if (join(c, &into->items[i], &more->items[k], joined) != 0 ||
                (count > 1 && schema_case_is_empty(c, type, joined, &is_empty) != 0))
                return -1;
            row.count += !is_empty;
        }
        if (or_cases(c, &product, &row) != 0)
            return -1;
    }
    *into = product;
    return 0;
}

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

/* A keyword of a schema as it is expanded for a type. */
struct expansion {
    struct schema_context *c;
    const struct schema_literal *of;
    const cJSON *item;
    enum json_type type;
    int nesting;
    struct schema_cases *out;
};

static int expand(struct schema_context *c, const struct schema_literal *literal,
                  enum json_type type, int nesting, struct schema_cases *out);

static int set(const struct expansion *e, bool value) {
    return set_cases(e->c, value, e->out);
}

/* What holds for all values: false where the schema is negated. */
static int set_true(const struct expansion *e) {
    return set(e, !e->of->negated);
}

static int keep_fact(const struct expansion *e) {
    return one_fact(e->c, (struct schema_fact){FACT_KEYWORD, *e->of, e->item, NULL, 0}, e->out);
}

static int expand_type(const struct expansion *e) {
    unsigned types;
    bool only_integers;
    if (schema_read_types(e->c, e->of->path, e->item, &types, &only_integers) != 0)
        return -1;
    if (e->type == NUMBER && only_integers)
        return keep_fact(e);
    return set(e, ((types >> e->type & 1u) != 0) != e->of->negated);
}

static int expand_enum(const struct expansion *e) {
    const cJSON *value;
    bool any = false;
    if (!cJSON_IsArray(e->item) || e->item->child == NULL)
        return schema_refuse(e->c, e->of->path, "enum must be an array that is not empty");
    cJSON_ArrayForEach(value, e->item) any = any || schema_type_of(value) == e->type;
    return any ? keep_fact(e) : set(e, e->of->negated);
}

static int expand_const(const struct expansion *e) {
    return schema_type_of(e->item) == e->type ? keep_fact(e) : set(e, e->of->negated);
}

/* --- Schemas made of others --- */

static int decline_negation(const struct expansion *e) {
    return schema_decline(e->c, e->of->path,
                          "%s is not supported within not, if, or a oneOf whose schemas overlap",
                          e->item->string);
}

/* One schema within the keyword's, possibly the opposite of it. */
static int expand_within(const struct expansion *e, const cJSON *schema, const char *label,
                         bool negated, struct schema_cases *out) {
    struct schema_literal literal;
    if (schema_child(e->c, e->of, schema, label, &literal) != 0)
        return -1;
    literal.negated = negated;
    return expand(e->c, &literal, e->type, e->nesting + 1, out);
}

static int expand_ref(const struct expansion *e) {
    struct schema_literal target;
    if (schema_resolve(e->c, e->of->path, e->item, &target) != 0)
        return -1;
    target.negated = e->of->negated;
    target.depth = e->of->depth;
    return expand(e->c, &target, e->type, e->nesting + 1, e->out);
}

static int expand_not(const struct expansion *e) {
    return expand_within(e, e->item, "not", !e->of->negated, e->out);
}

static int check_branches(const struct expansion *e) {
    if (!cJSON_IsArray(e->item) || e->item->child == NULL)
        return schema_refuse(e->c, e->of->path, "%s must be an array that is not empty",
                             e->item->string);
    if (cJSON_GetArraySize(e->item) > JSON_SCHEMA_MAX_BRANCHES)
        return schema_decline(e->c, e->of->path, "%s has more than %d schemas", e->item->string,
                              JSON_SCHEMA_MAX_BRANCHES);
    return 0;
}

/* allOf and anyOf: one is the other's opposite. */
static int expand_list(const struct expansion *e, bool is_all) {
    const cJSON *branch;
    int index = 0;
    bool ands = is_all != e->of->negated;
    if (check_branches(e) != 0 || set(e, ands) != 0)
        return -1;
    cJSON_ArrayForEach(branch, e->item) {
        char label[32];
        struct schema_cases cases;
        snprintf(label, sizeof(label), "%s[%d]", e->item->string, index++);
        if (expand_within(e, branch, label, e->of->negated, &cases) != 0 ||
            (ands ? and_cases(e->c, e->type, e->out, &cases) : or_cases(e->c, e->out, &cases)) != 0)
            return -1;
    }
    return 0;
}

static int expand_all_of(const struct expansion *e) {
    return expand_list(e, true);
}

static int expand_any_of(const struct expansion *e) {
    return expand_list(e, false);
}

static int cases_are_disjoint(struct schema_context *c, enum json_type type,
                              const struct schema_cases *a, const struct schema_cases *b,
                              bool *out) {
    *out = true;
    for (int i = 0; i < a->count && *out; i++) {
        for (int k = 0; k < b->count && *out; k++) {
            struct schema_case both;
            if (join(c, &a->items[i], &b->items[k], &both) != 0 ||
                schema_case_is_empty(c, type, &both, out) != 0)
                return -1;
        }
    }
    return 0;
}

/* The branches of a oneOf, each for itself. */
struct branches {
    int count;
    const cJSON *schemas[JSON_SCHEMA_MAX_BRANCHES];
    struct schema_cases cases[JSON_SCHEMA_MAX_BRANCHES];
};

static void branch_label(char *label, size_t bytes, int index) {
    snprintf(label, bytes, "oneOf[%d]", index);
}

static int read_branches(const struct expansion *e, struct branches *out) {
    const cJSON *branch;
    out->count = 0;
    if (check_branches(e) != 0)
        return -1;
    cJSON_ArrayForEach(branch, e->item) {
        char label[32];
        branch_label(label, sizeof(label), out->count);
        out->schemas[out->count] = branch;
        if (expand_within(e, branch, label, false, &out->cases[out->count]) != 0)
            return -1;
        out->count++;
    }
    return 0;
}

/* Branch i, and none of those that it shares values with. */
static int only_branch(const struct expansion *e, const struct branches *b, int i,
                       struct schema_cases *out) {
    *out = b->cases[i];
    for (int k = 0; k < b->count; k++) {
        bool is_disjoint = true;
        if (k == i)
            continue;
        if (cases_are_disjoint(e->c, e->type, &b->cases[i], &b->cases[k], &is_disjoint) != 0)
            return -1;
        if (is_disjoint)
            continue;
        char label[32];
        struct schema_cases opposite;
        branch_label(label, sizeof(label), k);
        if (expand_within(e, b->schemas[k], label, true, &opposite) != 0 ||
            and_cases(e->c, e->type, out, &opposite) != 0)
            return -1;
    }
    return 0;
}

/* Not exactly one: none, or two. */
static int not_one(const struct expansion *e, const struct branches *b) {
    if (set(e, true) != 0)
        return -1;
    for (int i = 0; i < b->count; i++) {
        char label[32];
        struct schema_cases opposite;
        branch_label(label, sizeof(label), i);
        if (expand_within(e, b->schemas[i], label, true, &opposite) != 0 ||
            and_cases(e->c, e->type, e->out, &opposite) != 0)
            return -1;
    }
    for (int i = 0; i < b->count; i++) {
        for (int k = i + 1; k < b->count; k++) {
            struct schema_cases both = b->cases[i];
            if (and_cases(e->c, e->type, &both, &b->cases[k]) != 0 ||
                or_cases(e->c, e->out, &both) != 0)
                return -1;
        }
    }
    return 0;
}

static int expand_one_of(const struct expansion *e) {
    struct branches *b = schema_allocate(e->c, sizeof(*b));
    if (b == NULL || read_branches(e, b) != 0)
        return -1;
    if (e->of->negated)
        return not_one(e, b);
    if (set(e, false) != 0)
        return -1;
    for (int i = 0; i < b->count; i++) {
        struct schema_cases only;
        if (only_branch(e, b, i, &only) != 0 || or_cases(e->c, e->out, &only) != 0)
            return -1;
    }
    return 0;
}

int schema_branches_are_disjoint(struct schema_context *c, const struct schema_literal *of,
                                 const cJSON *branches, bool *out) {
    struct branches *b = schema_allocate(c, sizeof(*b));
    if (b == NULL)
        return -1;
    *out = true;
    for (int type = 0; type < NUM_TYPES && *out; type++) {
        const struct expansion e = {c, of, branches, (enum json_type)type, 0, NULL};
        if (read_branches(&e, b) != 0)
            return -1;
        for (int i = 0; i < b->count && *out; i++)
            for (int k = i + 1; k < b->count && *out; k++)
                if (cases_are_disjoint(c, e.type, &b->cases[i], &b->cases[k], out) != 0)
                    return -1;
    }
    return 0;
}

/* (if and then) or (not if and else), also of the opposite. An absent one holds always. */
static int expand_if(const struct expansion *e) {
    static const char *const keys[] = {"then", "else"};
    struct schema_cases sides[2];
    if (cJSON_GetObjectItemCaseSensitive(e->of->schema, "then") == NULL &&
        cJSON_GetObjectItemCaseSensitive(e->of->schema, "else") == NULL)
        return set_true(e);
    for (int i = 0; i < 2; i++) {
        const cJSON *branch = cJSON_GetObjectItemCaseSensitive(e->of->schema, keys[i]);
        struct schema_cases own;
        if (expand_within(e, e->item, "if", i == 1, &sides[i]) != 0)
            return -1;
        if ((branch != NULL ? expand_within(e, branch, keys[i], e->of->negated, &own)
                            : set_cases(e->c, !e->of->negated, &own)) != 0 ||
            and_cases(e->c, e->type, &sides[i], &own) != 0)
            return -1;
    }
    *e->out = sides[0];
    return or_cases(e->c, e->out, &sides[1]);
}

/* --- Keywords of objects --- */

static int check_is(const struct expansion *e, bool is_right, const char *what) {
    return is_right ? 0 : schema_refuse(e->c, e->of->path, "%s must be %s", e->item->string, what);
}

/* Adds to the cases that there is, or is not, a property of this name. */
static int add_name(const struct expansion *e, const cJSON *name, enum fact_kind kind, bool ands,
                    struct schema_cases *into) {
    struct schema_cases own;
    struct schema_fact fact = {kind, *e->of, e->item, NULL, 0};
    if (check_is(e, cJSON_IsString(name), "an array of strings") != 0)
        return -1;
    fact.name = name->valuestring;
    if (one_fact(e->c, fact, &own) != 0)
        return -1;
    return ands ? and_cases(e->c, e->type, into, &own) : or_cases(e->c, into, &own);
}

static int expand_required(const struct expansion *e) {
    const cJSON *name;
    if (check_is(e, cJSON_IsArray(e->item), "an array of strings") != 0)
        return -1;
    cJSON_ArrayForEach(name, e->item) {
        if (check_is(e, cJSON_IsString(name), "an array of strings") != 0)
            return -1;
    }
    if (!e->of->negated)
        return e->item->child != NULL ? keep_fact(e) : set(e, true);
    if (set(e, false) != 0)
        return -1;
    cJSON_ArrayForEach(name, e->item) {
        if (add_name(e, name, FACT_FORBIDDEN, false, e->out) != 0)
            return -1;
    }
    return 0;
}

static int expand_properties(const struct expansion *e) {
    const cJSON *property;
    if (check_is(e, cJSON_IsObject(e->item), "an object of schemas") != 0)
        return -1;
    if (!e->of->negated)
        return keep_fact(e);
    if (set(e, false) != 0)
        return -1;
    cJSON_ArrayForEach(property, e->item) {
        struct schema_cases own;
        struct schema_fact fact = {FACT_PROPERTY, *e->of, property, property->string, 0};
        fact.of.negated = false;
        if (one_fact(e->c, fact, &own) != 0 || or_cases(e->c, e->out, &own) != 0)
            return -1;
    }
    return 0;
}

/* The names that one property asks for, all of them; or the opposite, that one is not there. */
static int expand_names(const struct expansion *e, const cJSON *names, bool negated,
                        struct schema_cases *out) {
    const cJSON *name;
    if (set_cases(e->c, !negated, out) != 0)
        return -1;
    cJSON_ArrayForEach(name, names) {
        if (add_name(e, name, negated ? FACT_FORBIDDEN : FACT_REQUIRED, !negated, out) != 0)
            return -1;
    }
    return 0;
}

/* What a property that is there asks for: names, or a schema of the whole object. */
static int expand_dependency(const struct expansion *e, const cJSON *dependency,
                             struct schema_cases *out) {
    char label[96];
    if (cJSON_IsArray(dependency))
        return expand_names(e, dependency, e->of->negated, out);
    snprintf(label, sizeof(label), "%s.%s", e->item->string, dependency->string);
    return expand_within(e, dependency, label, e->of->negated, out);
}

static int expand_dependencies(const struct expansion *e) {
    const cJSON *dependency;
    bool negated = e->of->negated;
    if (check_is(e, cJSON_IsObject(e->item), "an object") != 0 || set(e, !negated) != 0)
        return -1;
    cJSON_ArrayForEach(dependency, e->item) {
        struct schema_fact fact = {negated ? FACT_REQUIRED : FACT_FORBIDDEN, *e->of, e->item,
                                   dependency->string, 0};
        struct schema_cases own, asked;
        if (one_fact(e->c, fact, &own) != 0 || expand_dependency(e, dependency, &asked) != 0)
            return -1;
        int result =
            negated ? and_cases(e->c, e->type, &own, &asked) : or_cases(e->c, &own, &asked);
        if (result == 0)
            result =
                negated ? or_cases(e->c, e->out, &own) : and_cases(e->c, e->type, e->out, &own);
        if (result != 0)
            return -1;
    }
    return 0;
}

/* --- Keywords that are facts --- */

static int expand_fact(const struct expansion *e) {
    return keep_fact(e);
}

/* Nothing is written for its opposite. A schema that holds always says nothing, unless that others
 * may come. */
static int expand_positive_fact(const struct expansion *e) {
    bool is_true = cJSON_IsTrue(e->item) || (cJSON_IsObject(e->item) && e->item->child == NULL);
    bool opens = strncmp(e->item->string, "additional", 10) == 0 ||
                 strncmp(e->item->string, "unevaluated", 11) == 0;
    if (is_true && (e->of->negated || !opens))
        return set_true(e);
    return e->of->negated ? decline_negation(e) : keep_fact(e);
}

static int expand_unique(const struct expansion *e) {
    if (check_is(e, cJSON_IsBool(e->item), "a boolean") != 0)
        return -1;
    if (cJSON_IsFalse(e->item))
        return set_true(e);
    return e->of->negated ? decline_negation(e) : keep_fact(e);
}

static int expand_prefix(const struct expansion *e) {
    int index = 0;
    const cJSON *item;
    if (check_is(e, cJSON_IsArray(e->item), "an array of schemas") != 0)
        return -1;
    if (!e->of->negated)
        return keep_fact(e);
    if (set(e, false) != 0)
        return -1;
    cJSON_ArrayForEach(item, e->item) {
        struct schema_cases own;
        struct schema_fact fact = {FACT_ITEM, *e->of, item, e->item->string, index++};
        fact.of.negated = false;
        if (one_fact(e->c, fact, &own) != 0 || or_cases(e->c, e->out, &own) != 0)
            return -1;
    }
    return 0;
}

static int expand_items(const struct expansion *e) {
    bool has_prefix = cJSON_HasObjectItem(e->of->schema, "prefixItems");
    if (cJSON_IsArray(e->item)) /* as in drafts before 2020-12 */
        return expand_prefix(e);
    return e->of->negated && has_prefix && !cJSON_IsTrue(e->item) ? decline_negation(e)
                                                                  : keep_fact(e);
}

/* Beside an array of items only. */
static int expand_additional_items(const struct expansion *e) {
    bool counts = cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(e->of->schema, "items"));
    return counts ? expand_positive_fact(e) : set_true(e);
}

static int expand_contains(const struct expansion *e) {
    bool is_counted = cJSON_HasObjectItem(e->of->schema, "minContains") ||
                      cJSON_HasObjectItem(e->of->schema, "maxContains");
    return e->of->negated && is_counted ? decline_negation(e) : keep_fact(e);
}

/* In draft 4 a boolean, which is read with the bound beside it. */
static int expand_exclusive(const struct expansion *e) {
    return cJSON_IsBool(e->item) ? set_true(e) : keep_fact(e);
}

/* Formats that are not JSON Schema's, such as int32, say nothing of a text. */
static int expand_format(const struct expansion *e) {
    if (check_is(e, cJSON_IsString(e->item), "a string") != 0)
        return -1;
    const char *name = e->item->valuestring;
    if (schema_format_pattern(name) != NULL)
        return keep_fact(e);
    if (schema_format_is_annotation(name, e->c->strict))
        return set_true(e);
    return schema_decline(e->c, e->of->path, "format is not supported with the value %.40s", name);
}

static int expand_null(const struct expansion *e) {
    return set_true(e);
}

static int decline_keyword(const struct expansion *e) {
    return schema_decline(e->c, e->of->path, "the keyword %.48s is not supported", e->item->string);
}

#define ANY_TYPE NUM_TYPES

static const struct keyword {
    const char *name;
    enum json_type type; /* of the values that it is about */
    int (*expand)(const struct expansion *e);
} keywords[] = {
    {"type", ANY_TYPE, expand_type},
    {"enum", ANY_TYPE, expand_enum},
    {"const", ANY_TYPE, expand_const},
    {"$ref", ANY_TYPE, expand_ref},
    {"$dynamicRef", ANY_TYPE, expand_ref},
    {"$recursiveRef", ANY_TYPE, expand_ref},
    {"allOf", ANY_TYPE, expand_all_of},
    {"anyOf", ANY_TYPE, expand_any_of},
    {"oneOf", ANY_TYPE, expand_one_of},
    {"not", ANY_TYPE, expand_not},
    {"if", ANY_TYPE, expand_if},
    {"minimum", NUMBER, expand_fact},
    {"maximum", NUMBER, expand_fact},
    {"exclusiveMinimum", NUMBER, expand_exclusive},
    {"exclusiveMaximum", NUMBER, expand_exclusive},
    {"multipleOf", NUMBER, expand_fact},
    {"minLength", STRING, expand_fact},
    {"maxLength", STRING, expand_fact},
    {"pattern", STRING, expand_fact},
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
static int expand_unknown(const struct expansion *e) {
    if (e->c->strict && !is_annotation(e->item->string))
        return decline_keyword(e);
    return set_true(e);
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

/* A null is no value of these, but clients write it for what they do not set. */
static bool is_unset(const cJSON *item) {
    return cJSON_IsNull(item) && strcmp(item->string, "const") != 0 &&
           strcmp(item->string, "type") != 0;
}

static int expand_keyword(const struct expansion *e) {
    const struct keyword *keyword = find_keyword(e->item->string);
    if (keyword == NULL)
        return expand_unknown(e);
    if (is_unset(e->item))
        return set_true(e);
    if (keyword->type != ANY_TYPE && keyword->type != e->type)
        return set_true(e);
    return keyword->expand(e);
}

static int expand_object(struct schema_context *c, const struct schema_literal *literal,
                         enum json_type type, int nesting, struct schema_cases *out) {
    bool has_ref = c->ignores_ref_siblings && json_member(literal->schema, "$ref") != NULL;
    const cJSON *item;
    if (set_cases(c, !literal->negated, out) != 0)
        return -1;
    cJSON_ArrayForEach(item, literal->schema) {
        struct schema_cases own;
        const struct expansion e = {c, literal, item, type, nesting, &own};
        if (has_ref && strcmp(item->string, "$ref") != 0)
            continue;
        if (out->count == 0 && !literal->negated) /* not of this type, mostly */
            break;
        if (expand_keyword(&e) != 0 ||
            (literal->negated ? or_cases(c, out, &own) : and_cases(c, type, out, &own)) != 0)
            return -1;
    }
    return 0;
}

static int expand(struct schema_context *c, const struct schema_literal *literal,
                  enum json_type type, int nesting, struct schema_cases *out) {
    if (schema_add_steps(c, 4) != 0)
        return -1;
    if (nesting > MAX_NESTING || literal->depth > JSON_SCHEMA_MAX_DEPTH)
        return schema_decline_depth(c, literal->path);
    if (cJSON_IsBool(literal->schema))
        return set_cases(c, cJSON_IsTrue(literal->schema) != literal->negated, out);
    if (!cJSON_IsObject(literal->schema))
        return schema_refuse(c, literal->path, "a schema must be an object or a boolean");
    return expand_object(c, literal, type, nesting, out);
}

int schema_expand_goal(struct schema_context *c, const struct schema_goal *goal,
                       enum json_type type, struct schema_cases *out) {
    if (set_cases(c, true, out) != 0)
        return -1;
    for (int i = 0; i < goal->count; i++) {
        struct schema_cases own;
        if (expand(c, &goal->literals[i], type, 0, &own) != 0 || and_cases(c, type, out, &own) != 0)
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
