#include "server/api/conversation/tool_grammar_arguments.h"

#include "server/api/conversation/tool_grammar.h"
#include "engine/grammar/read/json_schema.h"
#include "engine/grammar/build/free_text.h"
#include "config/json/json_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 192

struct arguments_builder {
    const struct argument_form *form;
    struct grammar_builder *builder;
    const cJSON *schema; /* of all arguments */
    const char *path;
    bool is_strict;
    struct api_error *err;
};

static grammar_node literal(const struct arguments_builder *arguments, const char *text) {
    return grammar_literal(arguments->builder, text, strlen(text));
}

static int refuse(const struct arguments_builder *arguments, const char *path, const char *what) {
    return bad_request(arguments->err, "unsupported_json_schema", path,
                       "%s: %s cannot be forced in the form of this model's tool calls", path,
                       what);
}

/* Returns the first of the keywords, which end with NULL, that a schema has; NULL if it has
 * none. */
static const char *given_keyword(const cJSON *schema, const char *const *keywords) {
    while (*keywords != NULL && json_given_member(schema, *keywords) == NULL)
        keywords++;
    return *keywords;
}

/* Refuses keywords about the arguments as a whole: they are written one by one. */
static int check_schema(const struct arguments_builder *arguments) {
    static const char *const keywords[] = {"anyOf",
                                           "oneOf",
                                           "allOf",
                                           "not",
                                           "if",
                                           "$ref",
                                           "$dynamicRef",
                                           "enum",
                                           "const",
                                           "dependentRequired",
                                           "dependentSchemas",
                                           "dependencies",
                                           "minProperties",
                                           "maxProperties",
                                           "propertyNames",
                                           NULL};
    const cJSON *name;
    char path[PATH_BYTES];
    const char *keyword = given_keyword(arguments->schema, keywords);
    if (keyword != NULL) {
        snprintf(path, sizeof(path), "%.120s.%s", arguments->path, keyword);
        return refuse(arguments, path, keyword);
    }
    const cJSON *properties = json_given_member(arguments->schema, "properties");
    cJSON_ArrayForEach(name, json_given_member(arguments->schema, "required")) {
        if (cJSON_IsString(name) && json_member(properties, name->valuestring) != NULL)
            continue;
        snprintf(path, sizeof(path), "%.120s.required", arguments->path);
        return refuse(arguments, path, "a required argument without properties");
    }
    return 0;
}

static bool is_required(const struct arguments_builder *arguments, const char *key) {
    const cJSON *name;
    cJSON_ArrayForEach(name, json_given_member(arguments->schema, "required")) {
        if (cJSON_IsString(name) && strcmp(name->valuestring, key) == 0)
            return true;
    }
    return false;
}

/* Returns the strings that a schema lists, in a form that writes strings without quotes, or
 * GRAMMAR_FAILED. */
static grammar_node listed_strings(const struct arguments_builder *arguments, const cJSON *list) {
    int count = cJSON_GetArraySize(list), num_nodes = 0;
    const cJSON *item;
    grammar_node *nodes = malloc((size_t)count * sizeof(*nodes));
    if (nodes == NULL)
        return GRAMMAR_FAILED;
    cJSON_ArrayForEach(item, list) nodes[num_nodes++] =
        literal(arguments, cJSON_IsString(item) ? item->valuestring : "null");
    grammar_node node = grammar_alternatives(arguments->builder, nodes, num_nodes);
    free(nodes);
    return node;
}

/* Makes a string and its end. */
static int string_value(const struct arguments_builder *arguments, const cJSON *schema,
                        const char *path, grammar_node *out) {
    static const char *const keywords[] = {"pattern", "minLength", "maxLength", "format",
                                           "anyOf",   "oneOf",     "allOf",     "not",
                                           "$ref",    "if",        NULL};
    const cJSON *list = json_given_member(schema, "enum");
    const cJSON *constant = json_given_member(schema, "const");
    bool is_nullable = tool_types_of_schema(schema) == PARAMETER_NULLABLE_STRING;
    grammar_node end[] = {literal(arguments, arguments->form->feed),
                          literal(arguments, arguments->form->value_end)};
    bool has_choice = is_nullable && (json_given_member(schema, "anyOf") != NULL ||
                                      json_given_member(schema, "oneOf") != NULL);
    const char *keyword = has_choice ? NULL : given_keyword(schema, keywords);
    if (keyword != NULL)
        return refuse(arguments, path, keyword);
    if (constant != NULL || cJSON_GetArraySize(list) > 0) {
        grammar_node items[] = {constant != NULL ? literal(arguments, constant->valuestring)
                                                 : listed_strings(arguments, list),
                                end[0], end[1]};
        *out = grammar_sequence(arguments->builder, items, 3);
        return 0;
    }
    *out = text_until_node(arguments->builder, arguments->form->value_end);
    return 0;
}

/* Makes a value that is JSON, and its end. References are to the schema of all arguments. */
static int json_value(const struct arguments_builder *arguments, const cJSON *schema,
                      const char *path, grammar_node *out) {
    static const char *const shared[] = {"$defs", "definitions"};
    cJSON *copy = cJSON_Duplicate(schema, true);
    bool is_complete = copy != NULL;
    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]) && cJSON_IsObject(copy); i++) {
        const cJSON *definitions = json_given_member(arguments->schema, shared[i]);
        if (definitions == NULL || json_member(copy, shared[i]) != NULL)
            continue;
        cJSON *shared_copy = cJSON_Duplicate(definitions, true);
        is_complete = is_complete && shared_copy != NULL &&
                      cJSON_AddItemToObject(copy, shared[i], shared_copy);
    }
    if (!is_complete) {
        cJSON_Delete(copy);
        return api_error_set_memory(arguments->err);
    }
    grammar_node node = GRAMMAR_FAILED;
    int status = json_schema_node(arguments->builder, copy, path, arguments->is_strict, NULL, &node,
                                  arguments->err);
    cJSON_Delete(copy);
    grammar_node items[] = {node, literal(arguments, arguments->form->feed),
                            literal(arguments, arguments->form->value_end)};
    if (status == 0)
        *out = grammar_sequence(arguments->builder, items, 3);
    return status;
}

/* Returns whether a schema only says boolean. */
static bool is_boolean(const cJSON *schema) {
    static const char *const keywords[] = {"enum", "const", "anyOf", "oneOf", "allOf",
                                           "not",  "$ref",  "if",    NULL};
    const cJSON *type = json_given_member(schema, "type");
    return cJSON_IsString(type) && strcmp(type->valuestring, "boolean") == 0 &&
           given_keyword(schema, keywords) == NULL;
}

/* Makes a Python literal. JSON is one except for its words, which the reader of calls accepts
 * (python_literal.h); a value that can only be a boolean gets Python's words. */
static int python_value(const struct arguments_builder *arguments, const cJSON *schema,
                        const char *path, grammar_node *out) {
    if (!is_boolean(schema))
        return json_value(arguments, schema, path, out);
    grammar_node words[] = {literal(arguments, "True"), literal(arguments, "False")};
    *out = grammar_alternatives(arguments->builder, words, 2);
    return 0;
}

static int value_of(const struct arguments_builder *arguments, const cJSON *schema,
                    const char *path, grammar_node *out) {
    if (arguments->form->is_python)
        return python_value(arguments, schema, path, out);
    return tool_types_of_schema(schema) != PARAMETER_ANY
               ? string_value(arguments, schema, path, out)
               : json_value(arguments, schema, path, out);
}

static int argument(const struct arguments_builder *arguments, const cJSON *property,
                    grammar_node *out) {
    const struct argument_form *form = arguments->form;
    char path[PATH_BYTES];
    grammar_node value = GRAMMAR_FAILED;
    snprintf(path, sizeof(path), "%.60s.properties.%.100s", arguments->path, property->string);
    if (property->string[0] == '\0' ||
        strcspn(property->string, form->not_in_keys) != strlen(property->string))
        return refuse(arguments, path, "an argument of this name");
    int status = value_of(arguments, property, path, &value);
    grammar_node items[] = {literal(arguments, form->key_begin),
                            literal(arguments, property->string), literal(arguments, form->key_end),
                            value, literal(arguments, form->behind)};
    if (status == 0)
        *out = grammar_sequence(arguments->builder, items, 5);
    return status;
}

/* Puts an argument in front of those that may follow: `first` is their form if no argument comes
 * before them, `next` if one does. */
static void prepend(const struct arguments_builder *arguments, grammar_node one, bool is_needed,
                    grammar_node *first, grammar_node *next) {
    struct grammar_builder *builder = arguments->builder;
    grammar_node with[] = {one, *next};
    grammar_node choices[] = {grammar_sequence(builder, with, 2), *first};
    grammar_node again[] = {literal(arguments, arguments->form->separator), one};
    grammar_node rest[] = {
        grammar_repeat(builder, grammar_sequence(builder, again, 2), is_needed ? 1 : 0, 1), *next};
    *first = is_needed ? choices[0] : grammar_alternatives(builder, choices, 2);
    *next = grammar_sequence(builder, rest, 2);
}

int tool_grammar_arguments(const struct argument_form *form, struct grammar_builder *builder,
                           const cJSON *schema, const char *path, bool is_strict, grammar_node *out,
                           struct api_error *err) {
    const struct arguments_builder arguments = {form, builder, schema, path, is_strict, err};
    const cJSON *properties = json_given_member(schema, "properties");
    grammar_node first = literal(&arguments, ""), next = first;
    if (check_schema(&arguments) != 0)
        return -1;
    for (int i = cJSON_GetArraySize(properties); i-- > 0;) {
        const cJSON *property = cJSON_GetArrayItem(properties, i);
        grammar_node one = GRAMMAR_FAILED;
        if (argument(&arguments, property, &one) != 0)
            return -1;
        prepend(&arguments, one, is_required(&arguments, property->string), &first, &next);
    }
    *out = first;
    return 0;
}
