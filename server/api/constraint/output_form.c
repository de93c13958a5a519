#include "server/api/constraint/output_form.h"

#include "engine/grammar/read/grammar_regex.h"
#include "engine/grammar/read/grammar_text.h"
#include "engine/grammar/read/json_schema.h"
#include "config/json/json_field.h"
#include "config/json/json_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int output_form_json(const cJSON *value, const char *path, struct grammar_builder *builder,
                     const char *whitespace, grammar_node *out, struct api_error *err) {
    if (!cJSON_IsString(value))
        return json_schema_node(builder, value, path, false, whitespace, out, err);
    cJSON *schema = json_parse(value->valuestring, strlen(value->valuestring), err);
    if (schema == NULL) {
        snprintf(err->param, sizeof(err->param), "%s", err->status == 400 ? path : "");
        return -1;
    }
    int result = json_schema_node(builder, schema, path, false, whitespace, out, err);
    cJSON_Delete(schema);
    return result;
}

int output_form_regex(const cJSON *value, const char *path, struct grammar_builder *builder,
                      const char *whitespace, grammar_node *out, struct api_error *err) {
    struct error error = {0};
    if (!cJSON_IsString(value))
        return json_refuse(value, path, "a string", err);
    if (grammar_regex(builder, value->valuestring, REGEX_TEXT, out, &error) == 0)
        return 0;
    if (error.code == ERROR_MEMORY)
        return api_error_set_memory(err);
    return bad_request(err, "invalid_regex", path, "%s is not a supported regular expression: %s",
                       path, error.message);
}

static int read_grammar(const cJSON *value, const char *path, struct grammar_builder *builder,
                        int (*read)(struct grammar_builder *builder, const char *text,
                                    grammar_node *out, struct error *err),
                        grammar_node *out, struct api_error *err) {
    struct error error = {0};
    if (!cJSON_IsString(value))
        return json_refuse(value, path, "a string", err);
    if (read(builder, value->valuestring, out, &error) == 0)
        return 0;
    if (error.code == ERROR_MEMORY)
        return api_error_set_memory(err);
    return bad_request(err, "invalid_grammar", path, "%s is not a supported grammar: %s", path,
                       error.message);
}

int output_form_grammar(const cJSON *value, const char *path, struct grammar_builder *builder,
                        const char *whitespace, grammar_node *out, struct api_error *err) {
    return read_grammar(value, path, builder, grammar_text, out, err);
}

int output_form_json_grammar(const cJSON *value, const char *path, struct grammar_builder *builder,
                             const char *whitespace, grammar_node *out, struct api_error *err) {
    return read_grammar(value, path, builder, grammar_text_json, out, err);
}

int output_form_optional_grammar(const cJSON *value, const char *path,
                                 struct grammar_builder *builder, const char *whitespace,
                                 grammar_node *out, struct api_error *err) {
    *out = OUTPUT_FORM_NONE;
    if (cJSON_IsString(value) && value->valuestring[0] == '\0')
        return 0;
    return output_form_grammar(value, path, builder, whitespace, out, err);
}

int output_form_choice(const cJSON *value, const char *path, struct grammar_builder *builder,
                       const char *whitespace, grammar_node *out, struct api_error *err) {
    int count = cJSON_GetArraySize(value), num_nodes = 0;
    if (!cJSON_IsArray(value) || count == 0)
        return json_refuse(value, path, "an array of strings that is not empty", err);
    if (count > OUTPUT_FORM_MAX_CHOICES)
        return bad_request(err, "out_of_range", path, "%s must have at most %d strings", path,
                           OUTPUT_FORM_MAX_CHOICES);
    grammar_node *nodes = malloc((size_t)count * sizeof(*nodes));
    const cJSON *item;
    if (nodes == NULL)
        return api_error_set_memory(err);
    cJSON_ArrayForEach(item, value) {
        if (!cJSON_IsString(item)) {
            free(nodes);
            return json_refuse(item, path, "an array of strings", err);
        }
        nodes[num_nodes++] = grammar_literal(builder, item->valuestring, strlen(item->valuestring));
    }
    *out = grammar_alternatives(builder, nodes, num_nodes);
    free(nodes);
    return 0;
}

int output_form_object(const cJSON *value, const char *path, struct grammar_builder *builder,
                       const char *whitespace, grammar_node *out, struct api_error *err) {
    if (!cJSON_IsTrue(value))
        return json_refuse(value, path, "true, or left out", err);
    *out = json_schema_any_object(builder, whitespace);
    return 0;
}
