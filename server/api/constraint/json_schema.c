#include "server/api/constraint/json_schema_private.h"

#include "config/base/array.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Errors and fields --- */

static const char unsupported[] = "unsupported_json_schema", too_deep[] = "schema_too_deep";

bool json_schema_is_unsupported(const struct api_error *err) {
    return err->code == unsupported || err->code == too_deep;
}

static int refuse(struct schema_context *c, const char *code, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

static int refuse(struct schema_context *c, const char *code, const char *format, va_list args) {
    char text[256];
    vsnprintf(text, sizeof(text), format, args);
    return api_error_set(c->err, 400, "invalid_request_error", code, c->path, "%.200s: %s", c->path,
                         text);
}

int schema_refuse(struct schema_context *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int result = refuse(c, "invalid_json_schema", format, args);
    va_end(args);
    return result;
}

int schema_decline(struct schema_context *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int result = refuse(c, unsupported, format, args);
    va_end(args);
    return result;
}

int schema_unsupported(struct schema_context *c, const char *key, const char *why) {
    if (!c->strict)
        return 0;
    return schema_decline(c, "%s is not supported%s%s", key, why[0] != '\0' ? " " : "", why);
}

int schema_add_steps(struct schema_context *c, size_t steps) {
    c->num_steps += steps;
    if (c->num_steps > SCHEMA_MAX_STEPS)
        return schema_decline(c, "too many names must be looked up in the schema");
    return 0;
}

int schema_number(struct schema_context *c, const cJSON *schema, const char *key, bool *out_has,
                  double *out) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(schema, key);
    *out_has = cJSON_IsNumber(item);
    if (*out_has)
        *out = item->valuedouble;
    else if (item != NULL && !cJSON_IsNull(item))
        return schema_refuse(c, "%s must be a number", key);
    return 0;
}

int schema_count(struct schema_context *c, const cJSON *schema, const char *key, int missing,
                 int max, int *out) {
    bool has;
    double value;
    if (schema_number(c, schema, key, &has, &value) != 0)
        return -1;
    if (has && (value != floor(value) || value < 0))
        return schema_refuse(c, "%s must be an integer from 0 to %d", key, max);
    if (has && value > max)
        return schema_decline(c, "%s must be an integer from 0 to %d", key, max);
    *out = has ? (int)value : missing;
    return 0;
}

/* --- Keywords --- */

static const char *const keywords[] = {
    /* what is read */
    "type", "enum", "const", "properties", "required", "additionalProperties", "items",
    "prefixItems", "additionalItems", "minItems", "maxItems", "minLength", "maxLength", "pattern",
    "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "anyOf", "oneOf",
    "allOf", "$ref",
    /* what says nothing about the value */
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "$schema", "$id", "$comment", "$defs", "definitions", "discriminator"};

static bool is_known(const char *key) {
    for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++)
        if (strcmp(keywords[i], key) == 0)
            return true;
    return false;
}

static int check_keywords(struct schema_context *c, const cJSON *schema) {
    const cJSON *item;
    cJSON_ArrayForEach(item, schema) {
        char key[72];
        snprintf(key, sizeof(key), "the keyword %.48s", item->string);
        if (!is_known(item->string) && schema_unsupported(c, key, "") != 0)
            return -1;
    }
    return 0;
}

/* --- Types --- */

enum json_type { NULL_TYPE, BOOLEAN, INTEGER, NUMBER, STRING, ARRAY, OBJECT, NUM_TYPES };

static const char *const type_names[NUM_TYPES] = {"null",   "boolean", "integer", "number",
                                                  "string", "array",   "object"};

static int type_of_name(struct schema_context *c, const cJSON *name, unsigned *out) {
    for (int i = 0; cJSON_IsString(name) && i < NUM_TYPES; i++) {
        if (strcmp(name->valuestring, type_names[i]) == 0) {
            *out |= 1u << i;
            return 0;
        }
    }
    return schema_refuse(c, "type must be one or more of null, boolean, integer, number, string, "
                            "array and object");
}

/* Without `type`, the keywords imply it; none at all means any. */
static unsigned implied_types(const cJSON *schema) {
    static const struct {
        const char *key;
        enum json_type type;
    } hints[] = {
        {"properties", OBJECT}, {"required", OBJECT},         {"additionalProperties", OBJECT},
        {"items", ARRAY},       {"prefixItems", ARRAY},       {"minItems", ARRAY},
        {"maxItems", ARRAY},    {"pattern", STRING},          {"minLength", STRING},
        {"maxLength", STRING},  {"format", STRING},           {"minimum", NUMBER},
        {"maximum", NUMBER},    {"exclusiveMinimum", NUMBER}, {"exclusiveMaximum", NUMBER}};
    unsigned types = 0;
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
        if (cJSON_GetObjectItemCaseSensitive(schema, hints[i].key) != NULL)
            types |= 1u << hints[i].type;
    return types;
}

/* A set of types; 0: any. */
static int read_types(struct schema_context *c, const cJSON *schema, unsigned *out) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(schema, "type"), *item;
    unsigned types = 0;
    if (cJSON_IsArray(type) && type->child != NULL) {
        cJSON_ArrayForEach(item, type) if (type_of_name(c, item, &types) != 0) return -1;
    } else if (type != NULL && type_of_name(c, type, &types) != 0) {
        return -1;
    }
    if ((types & 1u << NUMBER) != 0)
        types &= ~(1u << INTEGER);
    *out = type != NULL ? types : implied_types(schema);
    return 0;
}

static bool has_type(const cJSON *value, unsigned types) {
    unsigned own = cJSON_IsNull(value)     ? 1u << NULL_TYPE
                   : cJSON_IsBool(value)   ? 1u << BOOLEAN
                   : cJSON_IsString(value) ? 1u << STRING
                   : cJSON_IsArray(value)  ? 1u << ARRAY
                   : cJSON_IsObject(value) ? 1u << OBJECT
                                           : 1u << NUMBER;
    if (cJSON_IsNumber(value) && value->valuedouble == floor(value->valuedouble))
        own |= 1u << INTEGER;
    return types == 0 || (own & types) != 0;
}

static int node_of_type(struct schema_context *c, const cJSON *schema, enum json_type type,
                        grammar_node *out) {
    switch (type) {
    case NULL_TYPE:
        *out = schema_text(c, "null");
        return 0;
    case BOOLEAN: {
        grammar_node items[] = {schema_text(c, "true"), schema_text(c, "false")};
        *out = grammar_alternatives(c->builder, items, 2);
        return 0;
    }
    case INTEGER:
        return schema_integer(c, schema, out);
    case NUMBER:
        return schema_real(c, schema, out);
    case STRING:
        return schema_string(c, schema, out);
    case ARRAY:
        return schema_array(c, schema, out);
    case OBJECT:
    case NUM_TYPES:
        break;
    }
    return schema_object(c, schema, out);
}

static int node_of_types(struct schema_context *c, const cJSON *schema, grammar_node *out) {
    unsigned types;
    grammar_node items[NUM_TYPES];
    int count = 0;
    if (read_types(c, schema, &types) != 0)
        return -1;
    if (types == 0) {
        *out = schema_any_value(c);
        return 0;
    }
    for (int type = 0; type < NUM_TYPES; type++)
        if ((types & 1u << type) != 0 &&
            node_of_type(c, schema, (enum json_type)type, &items[count++]) != 0)
            return -1;
    *out = count == 1 ? items[0] : grammar_alternatives(c->builder, items, count);
    return 0;
}

/* --- Given values, alternatives, references --- */

/* Those of `values` that the schema's type allows. */
static int node_of_values(struct schema_context *c, const cJSON *schema, const cJSON *values,
                          grammar_node *out) {
    unsigned types = 0;
    int count = 0, result = 0;
    const cJSON *item;
    if (!cJSON_IsArray(values) || values->child == NULL)
        return schema_refuse(c, "enum must be an array that is not empty");
    if (cJSON_GetObjectItemCaseSensitive(schema, "type") != NULL &&
        read_types(c, schema, &types) != 0)
        return -1;
    size_t capacity = (size_t)cJSON_GetArraySize(values);
    grammar_node *items = malloc(capacity * sizeof(*items));
    if (items == NULL)
        return api_error_set_memory(c->err);
    cJSON_ArrayForEach(item, values) {
        if (result == 0 && has_type(item, types))
            result = schema_literal(c, item, &items[count++]);
    }
    if (result == 0 && count == 0)
        result = schema_decline(c, "no value of enum has the type");
    if (result == 0)
        *out = grammar_alternatives(c->builder, items, count);
    free(items);
    return result;
}

/* Returns whether a schema says more than its anyOf: that holds for each of the branches. */
static bool says_more(const cJSON *schema) {
    static const char *const own[] = {"type",  "properties", "required", "additionalProperties",
                                      "items", "allOf"};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (cJSON_GetObjectItemCaseSensitive(schema, own[i]) != NULL)
            return true;
    return false;
}

static int node_of_branches(struct schema_context *c, const cJSON *schema, const char *key,
                            const cJSON *branches, grammar_node *out) {
    grammar_node items[JSON_SCHEMA_MAX_BRANCHES];
    int count = 0;
    const cJSON *branch;
    if (!cJSON_IsArray(branches) || branches->child == NULL)
        return schema_refuse(c, "%s must be an array that is not empty", key);
    bool merges = says_more(schema);
    cJSON_ArrayForEach(branch, branches) {
        char label[32];
        snprintf(label, sizeof(label), "%s[%d]", key, count);
        const cJSON *whole = branch;
        if (count == JSON_SCHEMA_MAX_BRANCHES)
            return schema_decline(c, "%s has more than %d schemas", key, JSON_SCHEMA_MAX_BRANCHES);
        if (merges && schema_merge_branch(c, schema, key, branch, &whole) != 0)
            return -1;
        if (schema_child(c, whole, label, &items[count++]) != 0)
            return -1;
    }
    *out = grammar_alternatives(c->builder, items, count);
    return 0;
}

static int node_of_all(struct schema_context *c, const cJSON *schema, const cJSON *all_of,
                       grammar_node *out) {
    const cJSON *merged;
    if (!cJSON_IsArray(all_of) || all_of->child == NULL)
        return schema_refuse(c, "allOf must be an array that is not empty");
    if (schema_merge_all(c, schema, all_of, &merged) != 0)
        return -1;
    return schema_child(c, merged, "allOf", out);
}

/* The rule of what a $ref names; compiled later, so that a schema may refer to itself. */
static int node_of_ref(struct schema_context *c, const cJSON *ref, grammar_node *out) {
    if (!cJSON_IsString(ref))
        return schema_refuse(c, "$ref must be a string");
    const cJSON *target = schema_resolve(c, ref->valuestring);
    if (target == NULL)
        return -1;
    for (int i = 0; i < c->num_refs; i++) {
        if (c->refs[i].target == target) {
            *out = c->refs[i].rule;
            return 0;
        }
    }
    if (c->num_refs == SCHEMA_MAX_REFS)
        return schema_decline(c, "more than %d schemas are referred to", SCHEMA_MAX_REFS);
    if (!array_reserve(&c->refs, &c->refs_capacity, (size_t)c->num_refs + 1, sizeof(*c->refs)))
        return api_error_set_memory(c->err);
    struct schema_ref *entry = &c->refs[c->num_refs++];
    entry->target = target;
    entry->rule = *out = grammar_rule(c->builder);
    snprintf(entry->path, sizeof(entry->path), "%.*s", SCHEMA_MAX_PATH - 1, ref->valuestring);
    return 0;
}

/* --- A schema --- */

static int node_of_object(struct schema_context *c, const cJSON *schema, grammar_node *out) {
    const cJSON *item;
    if (check_keywords(c, schema) != 0)
        return -1;
    if ((item = cJSON_GetObjectItemCaseSensitive(schema, "$ref")) != NULL)
        return node_of_ref(c, item, out);
    if ((item = cJSON_GetObjectItemCaseSensitive(schema, "const")) != NULL)
        return schema_literal(c, item, out);
    if ((item = cJSON_GetObjectItemCaseSensitive(schema, "enum")) != NULL)
        return node_of_values(c, schema, item, out);
    if ((item = cJSON_GetObjectItemCaseSensitive(schema, "anyOf")) != NULL)
        return node_of_branches(c, schema, "anyOf", item, out);
    if ((item = cJSON_GetObjectItemCaseSensitive(schema, "oneOf")) != NULL)
        return node_of_branches(c, schema, "oneOf", item, out);
    if ((item = cJSON_GetObjectItemCaseSensitive(schema, "allOf")) != NULL)
        return node_of_all(c, schema, item, out);
    return node_of_types(c, schema, out);
}

static int any_schema(struct schema_context *c, const cJSON *schema, grammar_node *out) {
    if (++c->num_schemas > JSON_SCHEMA_MAX_SCHEMAS)
        return schema_decline(c, "there are more than %d schemas", JSON_SCHEMA_MAX_SCHEMAS);
    if (c->depth > JSON_SCHEMA_MAX_DEPTH)
        return api_error_set(c->err, 400, "invalid_request_error", too_deep, c->path,
                             "The JSON schema is nested deeper than %d", JSON_SCHEMA_MAX_DEPTH);
    if (cJSON_IsObject(schema))
        return node_of_object(c, schema, out);
    if (cJSON_IsFalse(schema))
        return schema_decline(c, "nothing matches the schema false");
    if (!cJSON_IsTrue(schema))
        return schema_refuse(c, "a schema must be an object or true");
    *out = schema_any_value(c);
    return 0;
}

int schema_child(struct schema_context *c, const cJSON *schema, const char *label,
                 grammar_node *out) {
    size_t length = strlen(c->path);
    snprintf(c->path + length, sizeof(c->path) - length, ".%s", label);
    c->depth++;
    int result = any_schema(c, schema, out);
    c->depth--;
    c->path[length] = '\0';
    return result;
}

/* Compiling what is referred to may refer to more. */
static int define_refs(struct schema_context *c) {
    for (int i = 0; i < c->num_refs; i++) {
        grammar_node body;
        snprintf(c->path, sizeof(c->path), "%s", c->refs[i].path);
        if (any_schema(c, c->refs[i].target, &body) != 0)
            return -1;
        grammar_define(c->builder, c->refs[i].rule, body);
    }
    return 0;
}

int json_schema_node(struct grammar_builder *builder, const cJSON *schema, const char *path,
                     bool strict, grammar_node *out, struct api_error *err) {
    struct schema_context c = {.builder = builder,
                               .root = schema,
                               .strict = strict,
                               .err = err,
                               .pieces = JSON_PIECES_NONE};
    grammar_node node;
    snprintf(c.path, sizeof(c.path), "%s", path);
    int result = any_schema(&c, schema, &node);
    if (result == 0)
        result = define_refs(&c);
    if (result == 0)
        *out = node;
    free(c.refs);
    cJSON_Delete(c.merged);
    return result;
}

grammar_node json_schema_any_object(struct grammar_builder *builder) {
    struct schema_context c = {.builder = builder, .pieces = JSON_PIECES_NONE};
    return schema_any_object(&c);
}

int json_schema_build(struct grammar_builder *builder, grammar_node root, const char *path,
                      struct grammar **out, struct api_error *err) {
    struct error error;
    if (grammar_build(builder, root, out, &error) == 0)
        return 0;
    if (error.code == ERROR_MEMORY)
        return api_error_set_memory(err);
    return api_error_set(err, 400, "invalid_request_error", "invalid_json_schema", path, "%s: %s",
                         path, error.message);
}
