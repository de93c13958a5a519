#include "server/api/constraint/response_format.h"

#include "engine/grammar/grammar_regex.h"
#include "server/api/constraint/json_schema.h"
#include "server/json/json_field.h"
#include "server/json/json_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATH 64

/* Makes a grammar of a field's value. */
typedef int (*form_reader)(const cJSON *value, const char *path, const struct response_frame *frame,
                           struct grammar **out, struct api_error *err);

static int no_memory(struct api_error *err) {
    return api_error_set_memory(err);
}

static int unsupported(const char *path, struct api_error *err) {
    return api_error_set(err, 400, "invalid_request_error", "unsupported_value", path,
                         "%s is not supported: json, regex and choice are", path);
}

/* Puts the form into its frame. */
static int finish(struct grammar_builder *builder, grammar_node form, const char *path,
                  const struct response_frame *frame, struct grammar **out, struct api_error *err) {
    if (frame != NULL && frame->put(frame->context, builder, form, &form, err) != 0)
        return -1;
    return json_schema_build(builder, form, path, out, err);
}

/* --- Forms --- */

static int read_schema(const cJSON *schema, const char *path, bool strict,
                       const struct response_frame *frame, struct grammar **out,
                       struct api_error *err) {
    struct grammar_builder *builder = grammar_builder_create();
    grammar_node node = GRAMMAR_FAILED;
    if (builder == NULL)
        return no_memory(err);
    int result = json_schema_node(builder, schema, path, strict, &node, err);
    if (result == 0)
        result = finish(builder, node, path, frame, out, err);
    grammar_builder_destroy(builder);
    return result;
}

static int read_any_object(const char *path, const struct response_frame *frame,
                           struct grammar **out, struct api_error *err) {
    struct grammar_builder *builder = grammar_builder_create();
    if (builder == NULL)
        return no_memory(err);
    int result = finish(builder, json_schema_any_object(builder), path, frame, out, err);
    grammar_builder_destroy(builder);
    return result;
}

/* Reads a schema, or the text of one. */
static int read_json(const cJSON *value, const char *path, const struct response_frame *frame,
                     struct grammar **out, struct api_error *err) {
    if (!cJSON_IsString(value))
        return read_schema(value, path, false, frame, out, err);
    cJSON *schema = json_parse(value->valuestring, strlen(value->valuestring), err);
    if (schema == NULL) {
        snprintf(err->param, sizeof(err->param), "%s", err->status == 400 ? path : "");
        return -1;
    }
    int result = read_schema(schema, path, false, frame, out, err);
    cJSON_Delete(schema);
    return result;
}

static int read_regex(const cJSON *value, const char *path, const struct response_frame *frame,
                      struct grammar **out, struct api_error *err) {
    struct error error = {0};
    grammar_node node = GRAMMAR_FAILED;
    if (!cJSON_IsString(value))
        return json_refuse(value, path, "a string", err);
    struct grammar_builder *builder = grammar_builder_create();
    if (builder == NULL)
        return no_memory(err);
    int result = grammar_regex(builder, value->valuestring, REGEX_TEXT, &node, &error);
    if (result == 0)
        result = finish(builder, node, path, frame, out, err);
    else if (error.code == ERROR_MEMORY)
        no_memory(err);
    else
        api_error_set(err, 400, "invalid_request_error", "invalid_regex", path,
                      "%s is not a regular expression that is supported: %s", path, error.message);
    grammar_builder_destroy(builder);
    return result;
}

static int add_choices(struct grammar_builder *builder, const cJSON *choices, const char *path,
                       grammar_node *out, struct api_error *err) {
    int count = cJSON_GetArraySize(choices), num_nodes = 0;
    grammar_node *nodes = malloc((size_t)count * sizeof(*nodes));
    const cJSON *item;
    if (nodes == NULL)
        return no_memory(err);
    cJSON_ArrayForEach(item, choices) {
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

static int read_choice(const cJSON *value, const char *path, const struct response_frame *frame,
                       struct grammar **out, struct api_error *err) {
    grammar_node node = GRAMMAR_FAILED;
    if (!cJSON_IsArray(value) || value->child == NULL)
        return json_refuse(value, path, "an array of strings that is not empty", err);
    if (cJSON_GetArraySize(value) > RESPONSE_FORMAT_MAX_CHOICES)
        return api_error_set(err, 400, "invalid_request_error", "out_of_range", path,
                             "%s must have at most %d strings", path, RESPONSE_FORMAT_MAX_CHOICES);
    struct grammar_builder *builder = grammar_builder_create();
    if (builder == NULL)
        return no_memory(err);
    int result = add_choices(builder, value, path, &node, err);
    if (result == 0)
        result = finish(builder, node, path, frame, out, err);
    grammar_builder_destroy(builder);
    return result;
}

static int read_object_flag(const cJSON *value, const char *path,
                            const struct response_frame *frame, struct grammar **out,
                            struct api_error *err) {
    if (!cJSON_IsTrue(value))
        return json_refuse(value, path, "true, or left out", err);
    return read_any_object(path, frame, out, err);
}

static int refuse_form(const cJSON *value, const char *path, const struct response_frame *frame,
                       struct grammar **out, struct api_error *err) {
    return unsupported(path, err);
}

/* --- OpenAI's response_format --- */

static int read_json_schema(const cJSON *format, const char *path,
                            const struct response_frame *frame, struct grammar **out,
                            struct api_error *err) {
    char schema_path[MAX_PATH], field_path[MAX_PATH];
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(format, "schema");
    const cJSON *strict = cJSON_GetObjectItemCaseSensitive(format, "strict");
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(format, "name");
    if (json_is_given(strict) && !cJSON_IsBool(strict)) {
        snprintf(field_path, sizeof(field_path), "%.50s.strict", path);
        return json_refuse(strict, field_path, "true or false", err);
    }
    if (json_is_given(name) && !cJSON_IsString(name)) {
        snprintf(field_path, sizeof(field_path), "%.50s.name", path);
        return json_refuse(name, field_path, "a string", err);
    }
    snprintf(schema_path, sizeof(schema_path), "%.50s.schema", path);
    if (!json_is_given(schema))
        return json_refuse(schema, schema_path, "a JSON schema", err);
    return read_schema(schema, schema_path, cJSON_IsTrue(strict), frame, out, err);
}

int response_format_read_one(const cJSON *format, bool nested, const char *path,
                             const struct response_frame *frame, struct grammar **out,
                             struct api_error *err) {
    static const char allowed[] = "\"text\", \"json_object\" or \"json_schema\"";
    char type_path[MAX_PATH], nested_path[MAX_PATH];
    if (!cJSON_IsObject(format))
        return json_refuse(format, path, "an object", err);
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(format, "type");
    const char *name = cJSON_IsString(type) ? type->valuestring : "";
    if (strcmp(name, "text") == 0) {
        *out = NULL;
        return 0;
    }
    if (strcmp(name, "json_object") == 0) {
        const cJSON *schema = cJSON_GetObjectItemCaseSensitive(format, "schema");
        return json_is_given(schema) ? read_json_schema(format, path, frame, out, err)
                                     : read_any_object(path, frame, out, err);
    }
    if (strcmp(name, "json_schema") == 0 && !nested)
        return read_json_schema(format, path, frame, out, err);
    snprintf(type_path, sizeof(type_path), "%.50s.type", path);
    if (strcmp(name, "json_schema") != 0)
        return json_refuse(type, type_path, allowed, err);
    const cJSON *inner = cJSON_GetObjectItemCaseSensitive(format, "json_schema");
    snprintf(nested_path, sizeof(nested_path), "%.45s.json_schema", path);
    if (!cJSON_IsObject(inner))
        return json_refuse(inner, nested_path, "an object", err);
    return read_json_schema(inner, nested_path, frame, out, err);
}

static int read_response_format(const cJSON *value, const char *path,
                                const struct response_frame *frame, struct grammar **out,
                                struct api_error *err) {
    return response_format_read_one(value, true, path, frame, out, err);
}

/* --- All of them --- */

struct form {
    const char *name;
    form_reader read;
};

/* Returns the one of the forms that is given. */
static int read_only_one(const cJSON *object, const struct form *forms, int num_forms,
                         const char *prefix, int *inout_count, const struct response_frame *frame,
                         struct grammar **out, struct api_error *err) {
    for (int i = 0; i < num_forms; i++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, forms[i].name);
        char path[MAX_PATH];
        struct grammar *grammar = NULL;
        if (!json_is_given(value))
            continue;
        snprintf(path, sizeof(path), "%s%s", prefix, forms[i].name);
        if (forms[i].read(value, path, frame, &grammar, err) != 0)
            return -1;
        if (grammar == NULL)
            continue;
        if (++*inout_count > 1) {
            grammar_unref(grammar);
            return api_error_set(err, 400, "invalid_request_error", "unsupported_value", path,
                                 "%s is not allowed beside another form of the output", path);
        }
        *out = grammar;
    }
    return 0;
}

/* Refuses fields that would change the whitespace and the objects of a form. */
static int check_structured(const cJSON *object, struct api_error *err) {
    static const struct {
        const char *name, *path;
    } options[] = {
        {"disable_any_whitespace", "structured_outputs.disable_any_whitespace"},
        {"disable_additional_properties", "structured_outputs.disable_additional_properties"},
        {"whitespace_pattern", "structured_outputs.whitespace_pattern"},
    };
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        const cJSON *option = cJSON_GetObjectItemCaseSensitive(object, options[i].name);
        if (json_is_given(option) && !cJSON_IsFalse(option))
            return unsupported(options[i].path, err);
    }
    return 0;
}

static int read_structured(const cJSON *body, int *inout_count, const struct response_frame *frame,
                           struct grammar **out, struct api_error *err) {
    static const struct form forms[] = {
        {"json", read_json},      {"regex", read_regex},
        {"choice", read_choice},  {"json_object", read_object_flag},
        {"grammar", refuse_form}, {"structural_tag", refuse_form},
    };
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(body, "structured_outputs");
    if (!json_is_given(object))
        return 0;
    if (!cJSON_IsObject(object))
        return json_refuse(object, "structured_outputs", "an object", err);
    if (check_structured(object, err) != 0)
        return -1;
    int before = *inout_count;
    if (read_only_one(object, forms, (int)(sizeof(forms) / sizeof(forms[0])), "structured_outputs.",
                      inout_count, frame, out, err) != 0)
        return -1;
    if (*inout_count == before)
        return json_refuse(object, "structured_outputs", "an object with json, regex or choice",
                           err);
    return 0;
}

int response_format_read(const cJSON *body, const struct response_frame *frame,
                         struct grammar **out, struct api_error *err) {
    static const struct form forms[] = {
        {"response_format", read_response_format},
        {"json_schema", read_json},
        {"regex", read_regex},
        {"guided_json", read_json},
        {"guided_regex", read_regex},
        {"guided_choice", read_choice},
        {"guided_grammar", refuse_form},
    };
    struct grammar *grammar = NULL;
    int count = 0;
    if (read_only_one(body, forms, (int)(sizeof(forms) / sizeof(forms[0])), "", &count, frame,
                      &grammar, err) != 0 ||
        read_structured(body, &count, frame, &grammar, err) != 0) {
        grammar_unref(grammar);
        return -1;
    }
    *out = grammar;
    return 0;
}

static const struct json_field format_fields[] = {
    JSON_OTHER(type), JSON_OTHER(json_schema), JSON_OTHER(schema),
    JSON_OTHER(name), JSON_OTHER(description), JSON_OTHER(strict),
};
static const struct json_field schema_fields[] = {
    JSON_OTHER(name),
    JSON_OTHER(description),
    JSON_OTHER(schema),
    JSON_OTHER(strict),
};
static const struct json_field structured_fields[] = {
    JSON_OTHER(json),
    JSON_OTHER(regex),
    JSON_OTHER(choice),
    JSON_OTHER(json_object),
    JSON_OTHER(grammar),
    JSON_OTHER(structural_tag),
    JSON_OTHER(disable_any_whitespace),
    JSON_OTHER(disable_additional_properties),
    JSON_OTHER(whitespace_pattern),
};

static void list_unknown(const cJSON *object, struct json_table table, const char *prefix,
                         struct byte_buffer *names) {
    if (cJSON_IsObject(object))
        json_fields_list_unknown(object, &table, 1, NULL, prefix, names);
}

void response_format_list_unknown(const cJSON *body, struct byte_buffer *names) {
    const cJSON *format = json_member(body, "response_format");
    list_unknown(format, JSON_TABLE(format_fields), "response_format.", names);
    list_unknown(json_member(format, "json_schema"), JSON_TABLE(schema_fields),
                 "response_format.json_schema.", names);
    list_unknown(json_member(body, "structured_outputs"), JSON_TABLE(structured_fields),
                 "structured_outputs.", names);
}
