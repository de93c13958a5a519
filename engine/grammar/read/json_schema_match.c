/* Whether a given value, of an enum or const, matches a schema. */
#include "engine/grammar/read/json_schema_private.h"

#include "config/base/utf8.h"
#include "config/json/json_field.h"
#include "config/json/json_integer.h"

#include <math.h>
#include <string.h>

#define MAX_NESTING 128

/* A keyword of a schema, and a value that it may hold for. */
struct check {
    struct schema_context *c;
    const struct schema_literal *of;
    const cJSON *item, *value;
    int nesting;
};

static int match(struct schema_context *c, const struct schema_literal *of, const cJSON *schema,
                 const cJSON *value, int nesting, bool *out);

static int decline(const struct check *k) {
    return schema_decline(k->c, k->of->path, "%s is not supported with enum or const",
                          k->item->string);
}

/* --- Equality --- */

static bool numbers_equal(const cJSON *a, const cJSON *b) {
    const char *x = json_integer_digits(a), *y = json_integer_digits(b);
    return a->valuedouble == b->valuedouble &&
           (x == NULL || y == NULL ? x == y : strcmp(x, y) == 0);
}

static bool members_equal(struct schema_context *c, const cJSON *a, const cJSON *b) {
    const cJSON *item, *other;
    if (cJSON_GetArraySize(a) != cJSON_GetArraySize(b))
        return false;
    cJSON_ArrayForEach(item, a) {
        if (schema_find(c, b, item->string, &other) != 0 || other == NULL ||
            !schema_values_equal(c, item, other))
            return false;
    }
    return true;
}

/* JSON_MAX_DEPTH bounds the recursion. */
bool schema_values_equal(struct schema_context *c, const cJSON *a, const cJSON *b) {
    *c->work -= SCHEMA_STEP_WORK;
    if (schema_type_of(a) != schema_type_of(b))
        return false;
    if (cJSON_IsNumber(a))
        return numbers_equal(a, b);
    if (cJSON_IsString(a))
        return strcmp(a->valuestring, b->valuestring) == 0;
    if (cJSON_IsObject(a))
        return members_equal(c, a, b);
    if (!cJSON_IsArray(a))
        return cJSON_IsTrue(a) == cJSON_IsTrue(b);
    for (a = a->child, b = b->child; a != NULL && b != NULL; a = a->next, b = b->next)
        if (!schema_values_equal(c, a, b))
            return false;
    return a == NULL && b == NULL;
}

static int check_enum(const struct check *k, bool *out) {
    const cJSON *item;
    *out = false;
    cJSON_ArrayForEach(item, k->item) *out = *out || schema_values_equal(k->c, item, k->value);
    return schema_add_steps(k->c, 0);
}

static int check_const(const struct check *k, bool *out) {
    *out = schema_values_equal(k->c, k->item, k->value);
    return schema_add_steps(k->c, 0);
}

/* --- Schemas of the same value --- */

static int within(const struct check *k, const cJSON *schema, const cJSON *value, bool *out) {
    return match(k->c, k->of, schema, value, k->nesting + 1, out);
}

static int check_type(const struct check *k, bool *out) {
    unsigned types;
    bool only_integers;
    if (schema_read_types(k->c, k->of->path, k->item, &types, &only_integers) != 0)
        return -1;
    *out = (types >> schema_type_of(k->value) & 1u) != 0;
    if (*out && only_integers && cJSON_IsNumber(k->value))
        *out = k->value->valuedouble == floor(k->value->valuedouble);
    return 0;
}

static int check_ref(const struct check *k, bool *out) {
    struct schema_literal target;
    if (schema_resolve(k->c, k->of->path, k->item, &target) != 0)
        return -1;
    return match(k->c, &target, target.schema, k->value, k->nesting + 1, out);
}

/* Counts the schemas of a list that the value matches. */
static int count_matches(const struct check *k, int *count, int *of) {
    const cJSON *item;
    *count = *of = 0;
    cJSON_ArrayForEach(item, k->item) {
        bool matches;
        if (within(k, item, k->value, &matches) != 0)
            return -1;
        *count += matches;
        ++*of;
    }
    return 0;
}

static int check_list(const struct check *k, bool *out) {
    int count, of;
    if (count_matches(k, &count, &of) != 0)
        return -1;
    *out = strcmp(k->item->string, "allOf") == 0   ? count == of
           : strcmp(k->item->string, "anyOf") == 0 ? count > 0
                                                   : count == 1;
    return 0;
}

static int check_not(const struct check *k, bool *out) {
    bool matches;
    int result = within(k, k->item, k->value, &matches);
    *out = !matches;
    return result;
}

static int check_if(const struct check *k, bool *out) {
    bool matches;
    *out = true;
    if (within(k, k->item, k->value, &matches) != 0)
        return -1;
    const cJSON *branch = json_member(k->of->schema, matches ? "then" : "else");
    return branch != NULL ? within(k, branch, k->value, out) : 0;
}

/* --- Numbers and strings --- */

static int check_bound(const struct check *k, bool *out) {
    const char *key = k->item->string;
    double value = k->value->valuedouble, bound = k->item->valuedouble;
    bool is_low = strstr(key, "inimum") != NULL, is_exclusive = strncmp(key, "exclusive", 9) == 0;
    if (!is_exclusive)
        is_exclusive = cJSON_IsTrue(
            json_member(k->of->schema, is_low ? "exclusiveMinimum" : "exclusiveMaximum"));
    *out = (is_low ? value > bound : value < bound) || (!is_exclusive && value == bound);
    return 0;
}

static int check_multiple(const struct check *k, bool *out) {
    double quotient = k->value->valuedouble / k->item->valuedouble;
    *out = fabs(quotient - nearbyint(quotient)) < 1e-9 * fmax(1, fabs(quotient));
    return 0;
}

static size_t count_characters(const char *text) {
    size_t count = 0;
    for (; *text != '\0'; text++)
        count += !utf8_continues(*text);
    return count;
}

static int check_pattern(const struct check *k, bool *out) {
    const struct text_automaton *automaton;
    const char *key = k->item->string, *text = k->value->valuestring;
    *out = true;
    if (strcmp(key, "format") == 0 && cJSON_IsString(k->item) &&
        schema_format_is_annotation(k->item->valuestring, false))
        return 0;
    if (schema_pattern_automaton(k->c, k->of->path, key, k->item, &automaton) != 0)
        return -1;
    *out = text_automaton_accepts(automaton, (struct text){text, strlen(text)});
    return schema_add_steps(k->c, strlen(text));
}

/* --- Counts: minLength, maxItems ... --- */

static int check_count(const struct check *k, bool *out) {
    const char *key = k->item->string;
    size_t count = cJSON_IsString(k->value) ? count_characters(k->value->valuestring)
                                            : (size_t)cJSON_GetArraySize(k->value);
    double bound = k->item->valuedouble;
    *out = strncmp(key, "min", 3) == 0 ? (double)count >= bound : (double)count <= bound;
    return schema_add_steps(k->c, count);
}

/* --- Arrays --- */

static const cJSON *prefix_of(const cJSON *schema) {
    const cJSON *prefix = json_member(schema, "prefixItems"), *items = json_member(schema, "items");
    return prefix == NULL && cJSON_IsArray(items) ? items : prefix;
}

static int check_prefix(const struct check *k, bool *out) {
    const cJSON *schema = k->item->child, *item = k->value->child;
    *out = true;
    for (; schema != NULL && item != NULL && *out; schema = schema->next, item = item->next)
        if (within(k, schema, item, out) != 0)
            return -1;
    return 0;
}

/* Items after the prefix. */
static int check_items(const struct check *k, bool *out) {
    if (cJSON_IsArray(k->item))
        return check_prefix(k, out);
    const cJSON *item = k->value->child, *prefix = prefix_of(k->of->schema);
    bool is_additional = strcmp(k->item->string, "additionalItems") == 0;
    *out = true;
    if (is_additional && !cJSON_IsArray(json_member(k->of->schema, "items")))
        return 0;
    for (int i = cJSON_GetArraySize(prefix); i > 0 && item != NULL; i--)
        item = item->next;
    for (; item != NULL && *out; item = item->next)
        if (within(k, k->item, item, out) != 0)
            return -1;
    return 0;
}

static int check_contains(const struct check *k, bool *out) {
    const cJSON *min = json_member(k->of->schema, "minContains"),
                *max = json_member(k->of->schema, "maxContains"), *item;
    double count = 0;
    cJSON_ArrayForEach(item, k->value) {
        bool matches;
        if (within(k, k->item, item, &matches) != 0)
            return -1;
        count += matches;
    }
    *out = count >= (cJSON_IsNumber(min) ? min->valuedouble : 1) &&
           (!cJSON_IsNumber(max) || count <= max->valuedouble);
    return 0;
}

static int check_unique(const struct check *k, bool *out) {
    *out = true;
    for (const cJSON *a = k->value->child; a != NULL && cJSON_IsTrue(k->item); a = a->next) {
        for (const cJSON *b = a->next; b != NULL; b = b->next)
            *out = *out && !schema_values_equal(k->c, a, b);
        if (schema_add_steps(k->c, 1) != 0)
            return -1;
    }
    return 0;
}

/* --- Objects --- */

static int check_properties(const struct check *k, bool *out) {
    const cJSON *property;
    *out = true;
    cJSON_ArrayForEach(property, k->value) {
        const cJSON *schema;
        if (schema_find(k->c, k->item, property->string, &schema) != 0 ||
            (schema != NULL && *out && within(k, schema, property, out) != 0))
            return -1;
    }
    return 0;
}

static int check_required(const struct check *k, bool *out) {
    const cJSON *name;
    *out = true;
    cJSON_ArrayForEach(name, k->item) {
        const cJSON *found = NULL;
        if (cJSON_IsString(name) && schema_find(k->c, k->value, name->valuestring, &found) != 0)
            return -1;
        *out = *out && found != NULL;
    }
    return 0;
}

static int name_matches(const struct check *k, const cJSON *pattern, const char *name, bool *out) {
    const struct text_automaton *automaton;
    if (schema_pattern_automaton(k->c, k->of->path, "patternProperties", pattern, &automaton) != 0)
        return -1;
    *out = text_automaton_accepts(automaton, (struct text){name, strlen(name)});
    return schema_add_steps(k->c, strlen(name));
}

/* patternProperties; *out_any: whether a pattern is the name's. */
static int check_patterns(const struct check *k, const cJSON *patterns, const cJSON *property,
                          bool *out, bool *out_any) {
    const cJSON *pattern;
    *out = true;
    *out_any = false;
    cJSON_ArrayForEach(pattern, patterns) {
        bool is_named;
        if (name_matches(k, pattern, property->string, &is_named) != 0)
            return -1;
        *out_any = *out_any || is_named;
        if (is_named && *out && within(k, pattern, property, out) != 0)
            return -1;
    }
    return 0;
}

static int check_pattern_properties(const struct check *k, bool *out) {
    const cJSON *property;
    *out = true;
    cJSON_ArrayForEach(property, k->value) {
        bool matches, any;
        if (check_patterns(k, k->item, property, &matches, &any) != 0)
            return -1;
        *out = *out && matches;
    }
    return 0;
}

static int check_additional(const struct check *k, bool *out) {
    const cJSON *property, *named, *patterns = json_member(k->of->schema, "patternProperties");
    *out = true;
    cJSON_ArrayForEach(property, k->value) {
        bool ignored, is_patterned;
        if (schema_find(k->c, json_member(k->of->schema, "properties"), property->string, &named) !=
                0 ||
            check_patterns(k, patterns, property, &ignored, &is_patterned) != 0)
            return -1;
        if (named == NULL && !is_patterned && *out && within(k, k->item, property, out) != 0)
            return -1;
    }
    return 0;
}

static int check_names(const struct check *k, bool *out) {
    const cJSON *property;
    *out = true;
    cJSON_ArrayForEach(property, k->value) {
        const cJSON name = {.type = cJSON_String, .valuestring = property->string};
        if (*out && within(k, k->item, &name, out) != 0)
            return -1;
    }
    return 0;
}

static int check_dependencies(const struct check *k, bool *out) {
    const cJSON *dependency;
    *out = true;
    cJSON_ArrayForEach(dependency, k->item) {
        const cJSON *found;
        const struct check names = {k->c, k->of, dependency, k->value, k->nesting};
        bool holds = true;
        if (schema_find(k->c, k->value, dependency->string, &found) != 0)
            return -1;
        if (found != NULL &&
            (cJSON_IsArray(dependency) ? check_required(&names, &holds)
                                       : within(k, dependency, k->value, &holds)) != 0)
            return -1;
        *out = *out && holds;
    }
    return 0;
}

static int check_unevaluated(const struct check *k, bool *out) {
    *out = true;
    return cJSON_IsTrue(k->item) || k->value->child == NULL ? 0 : decline(k);
}

/* --- Keywords --- */

static const struct {
    const char *name;
    enum json_type type; /* of the values that it is about; NUM_TYPES: of all */
    int (*holds)(const struct check *k, bool *out);
} checks[] = {
    {"type", NUM_TYPES, check_type},
    {"enum", NUM_TYPES, check_enum},
    {"const", NUM_TYPES, check_const},
    {"$ref", NUM_TYPES, check_ref},
    {"$dynamicRef", NUM_TYPES, check_ref},
    {"$recursiveRef", NUM_TYPES, check_ref},
    {"allOf", NUM_TYPES, check_list},
    {"anyOf", NUM_TYPES, check_list},
    {"oneOf", NUM_TYPES, check_list},
    {"not", NUM_TYPES, check_not},
    {"if", NUM_TYPES, check_if},
    {"minimum", NUMBER, check_bound},
    {"maximum", NUMBER, check_bound},
    {"exclusiveMinimum", NUMBER, check_bound},
    {"exclusiveMaximum", NUMBER, check_bound},
    {"multipleOf", NUMBER, check_multiple},
    {"minLength", STRING, check_count},
    {"maxLength", STRING, check_count},
    {"pattern", STRING, check_pattern},
    {"format", STRING, check_pattern},
    {"items", ARRAY, check_items},
    {"prefixItems", ARRAY, check_prefix},
    {"additionalItems", ARRAY, check_items},
    {"minItems", ARRAY, check_count},
    {"maxItems", ARRAY, check_count},
    {"uniqueItems", ARRAY, check_unique},
    {"contains", ARRAY, check_contains},
    {"unevaluatedItems", ARRAY, check_unevaluated},
    {"properties", OBJECT, check_properties},
    {"required", OBJECT, check_required},
    {"additionalProperties", OBJECT, check_additional},
    {"patternProperties", OBJECT, check_pattern_properties},
    {"propertyNames", OBJECT, check_names},
    {"minProperties", OBJECT, check_count},
    {"maxProperties", OBJECT, check_count},
    {"dependentRequired", OBJECT, check_dependencies},
    {"dependentSchemas", OBJECT, check_dependencies},
    {"dependencies", OBJECT, check_dependencies},
    {"unevaluatedProperties", OBJECT, check_unevaluated},
};

/* Keywords that are not in the table, and values that the keyword is not about, match. An
 * exclusiveMinimum that is a boolean belongs to the minimum. */
static int keyword_holds(const struct check *k, bool *out) {
    *out = true;
    if (k->item == k->c->choice && k->value == k->c->chosen)
        return 0;
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        if (strcmp(checks[i].name, k->item->string) != 0)
            continue;
        bool is_about = checks[i].type == NUM_TYPES || checks[i].type == schema_type_of(k->value);
        bool is_flag = checks[i].type == NUMBER && !cJSON_IsNumber(k->item);
        bool is_unset = cJSON_IsNull(k->item) && checks[i].holds != check_const;
        return is_about && !is_flag && !is_unset ? checks[i].holds(k, out) : 0;
    }
    return 0;
}

static int match(struct schema_context *c, const struct schema_literal *of, const cJSON *schema,
                 const cJSON *value, int nesting, bool *out) {
    struct schema_literal own = *of;
    bool has_ref = c->ignores_ref_siblings && json_member(schema, "$ref") != NULL;
    const cJSON *item;
    own.schema = schema;
    *out = !cJSON_IsFalse(schema);
    if (schema_add_steps(c, 4) != 0)
        return -1;
    if (nesting > MAX_NESTING)
        return schema_decline_depth(c, of->path);
    if (!cJSON_IsObject(schema))
        return 0;
    cJSON_ArrayForEach(item, schema) {
        const struct check k = {c, &own, item, value, nesting};
        if (has_ref && strcmp(item->string, "$ref") != 0)
            continue;
        if (*out && keyword_holds(&k, out) != 0)
            return -1;
    }
    return 0;
}

int schema_value_matches(struct schema_context *c, const struct schema_literal *literal,
                         const cJSON *value, bool *out) {
    if (match(c, literal, literal->schema, value, 0, out) != 0)
        return -1;
    *out = *out != literal->negated;
    return 0;
}

static int index_fails(struct schema_context *c, const struct schema_fact *fact, const cJSON *value,
                       bool *out) {
    const cJSON *item = cJSON_IsArray(value) ? cJSON_GetArrayItem(value, fact->index) : NULL;
    *out = false;
    if (item == NULL)
        return 0;
    int result = match(c, &fact->of, fact->item, item, 0, out);
    *out = !*out;
    return result;
}

int schema_fact_holds(struct schema_context *c, const struct schema_fact *fact, const cJSON *value,
                      bool *out) {
    const struct check k = {c, &fact->of, fact->item, value, 0};
    const cJSON *property = NULL;
    int result = 0;
    switch (fact->kind) {
    case FACT_KEYWORD:
        result = keyword_holds(&k, out);
        *out = *out != fact->of.negated;
        return result;
    case FACT_ITEM:
        return index_fails(c, fact, value, out);
    case FACT_REQUIRED:
    case FACT_FORBIDDEN:
    case FACT_PROPERTY:
        break;
    }
    if (schema_find(c, value, fact->name, &property) != 0)
        return -1;
    *out = (property != NULL) == (fact->kind != FACT_FORBIDDEN);
    if (fact->kind == FACT_PROPERTY && property != NULL) {
        result = match(c, &fact->of, fact->item, property, 0, out);
        *out = !*out;
    }
    return result;
}
