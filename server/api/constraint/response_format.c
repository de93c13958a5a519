#include "server/api/constraint/response_format.h"

#include "engine/grammar/read/json_schema.h"
#include "server/api/constraint/output_form.h"
#include "config/json/json_field.h"
#include "config/json/json_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATH 64

static int unsupported(const char *path, struct api_error *err) {
    return bad_request(err, "unsupported_value", path,
                       "%s is not supported: json, regex, choice and grammar are", path);
}

/* --- OpenAI's response_format --- */

static int read_schema(const cJSON *format, const char *path, bool is_strict,
                       struct grammar_builder *builder, const char *whitespace, grammar_node *out,
                       struct api_error *err) {
    char schema_path[MAX_PATH];
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(format, "schema");
    snprintf(schema_path, sizeof(schema_path), "%.50s.schema", path);
    if (!json_is_given(schema))
        return json_refuse(schema, schema_path, "a JSON schema", err);
    return json_schema_node(builder, schema, schema_path, is_strict, whitespace, out, err);
}

static int read_json_schema(const cJSON *format, const char *path, struct grammar_builder *builder,
                            const char *whitespace, grammar_node *out, struct api_error *err) {
    char field_path[MAX_PATH];
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
    return read_schema(format, path, cJSON_IsTrue(strict), builder, whitespace, out, err);
}

static int read_nested_schema(const cJSON *format, const char *path,
                              struct grammar_builder *builder, const char *whitespace,
                              grammar_node *out, struct api_error *err) {
    char nested_path[MAX_PATH];
    const cJSON *inner = cJSON_GetObjectItemCaseSensitive(format, "json_schema");
    snprintf(nested_path, sizeof(nested_path), "%.45s.json_schema", path);
    if (!cJSON_IsObject(inner))
        return json_refuse(inner, nested_path, "an object", err);
    return read_json_schema(inner, nested_path, builder, whitespace, out, err);
}

static bool is_json_schema(const cJSON *format) {
    const char *type = cJSON_GetStringValue(json_member(format, "type"));
    return type != NULL && strcmp(type, "json_schema") == 0;
}

static int read_response_format(const cJSON *format, const struct body_names *names,
                                struct grammar_builder *builder, const char *whitespace,
                                grammar_node *out, struct api_error *err) {
    const char *path = names->format;
    static const char allowed[] =
        "\"text\", \"json_object\", \"json_schema\" or \"structural_tag\"";
    char type_path[MAX_PATH];
    if (!cJSON_IsObject(format))
        return json_refuse(format, path, "an object", err);
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(format, "type");
    const char *name = cJSON_IsString(type) ? type->valuestring : "";
    if (is_json_schema(format) && names->has_schema_alone)
        return read_schema(format, path, false, builder, whitespace, out, err);
    if (is_json_schema(format))
        return names->has_flat_format
                   ? read_json_schema(format, path, builder, whitespace, out, err)
                   : read_nested_schema(format, path, builder, whitespace, out, err);
    if (strcmp(name, "structural_tag") == 0)
        return output_form_structural_tag(format, path, builder, whitespace, out, err);
    bool is_object = strcmp(name, "json_object") == 0;
    if (is_object && json_is_given(cJSON_GetObjectItemCaseSensitive(format, "schema")))
        return read_json_schema(format, path, builder, whitespace, out, err);
    snprintf(type_path, sizeof(type_path), "%.50s.type", path);
    if (!is_object && strcmp(name, "text") != 0)
        return json_refuse(type, type_path, allowed, err);
    *out = is_object ? json_schema_any_object(builder, whitespace) : (grammar_node)OUTPUT_FORM_NONE;
    return 0;
}

/* --- All of them --- */

struct form {
    const char *name;
    output_form_reader read;
};

static const struct form fields[] = {
    {"json_schema", output_form_json},      {"regex", output_form_regex},
    {"ebnf", output_form_optional_grammar}, {"grammar", output_form_optional_grammar},
    {"guided_json", output_form_json},      {"guided_regex", output_form_regex},
    {"guided_choice", output_form_choice},  {"guided_grammar", output_form_grammar},
};
static const struct form structured_forms[] = {
    {"json", output_form_json},       {"regex", output_form_regex},
    {"choice", output_form_choice},   {"json_object", output_form_object},
    {"grammar", output_form_grammar}, {"structural_tag", output_form_structural_tag},
};

#define NUM_FIELDS ((int)(sizeof(fields) / sizeof(fields[0])))
#define NUM_STRUCTURED_FORMS ((int)(sizeof(structured_forms) / sizeof(structured_forms[0])))

/* The form that has been found so far. */
struct found_form {
    struct grammar_builder *builder;
    const char *whitespace; /* of JSON */
    grammar_node node;      /* OUTPUT_FORM_NONE: none */
    char path[MAX_PATH];
    int count; /* number of forms that were given */
};

static int take_node(struct found_form *found, grammar_node node, const char *path,
                     struct api_error *err) {
    if (node == OUTPUT_FORM_NONE)
        return 0;
    if (++found->count > 1)
        return bad_request(err, "unsupported_value", path,
                           "%s is not allowed together with another output format", path);
    found->node = node;
    snprintf(found->path, sizeof(found->path), "%s", path);
    return 0;
}

static int read_named_format(const cJSON *body, const struct body_names *names,
                             struct found_form *found, struct api_error *err) {
    const cJSON *format = json_member_at(body, names->format);
    grammar_node node = GRAMMAR_FAILED;
    if (!json_is_given(format))
        return 0;
    return read_response_format(format, names, found->builder, found->whitespace, &node, err) != 0
               ? -1
               : take_node(found, node, names->format, err);
}

/* Reads the form that is given; more than one is refused. */
static int read_only_one(const cJSON *object, const struct form *forms, int num_forms,
                         const char *prefix, struct found_form *found, struct api_error *err) {
    for (int i = 0; i < num_forms; i++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, forms[i].name);
        char path[MAX_PATH];
        grammar_node node = GRAMMAR_FAILED;
        if (!json_is_given(value))
            continue;
        snprintf(path, sizeof(path), "%s%s", prefix, forms[i].name);
        if (forms[i].read(value, path, found->builder, found->whitespace, &node, err) != 0 ||
            take_node(found, node, path, err) != 0)
            return -1;
    }
    return 0;
}

/* Refuses a field that would change the objects in a form. */
static int check_structured(const cJSON *object, struct api_error *err) {
    const cJSON *option = json_given_member(object, "disable_additional_properties");
    if (option != NULL && !cJSON_IsFalse(option))
        return unsupported("structured_outputs.disable_additional_properties", err);
    return 0;
}

static int read_structured(const cJSON *body, struct found_form *found, struct api_error *err) {
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(body, "structured_outputs");
    int before = found->count;
    if (!json_is_given(object))
        return 0;
    if (!cJSON_IsObject(object))
        return json_refuse(object, "structured_outputs", "an object", err);
    if (check_structured(object, err) != 0 ||
        read_only_one(object, structured_forms, NUM_STRUCTURED_FORMS, "structured_outputs.", found,
                      err) != 0)
        return -1;
    if (found->count == before)
        return json_refuse(object, "structured_outputs",
                           "an object with json, regex, choice, grammar or structural_tag", err);
    return 0;
}

/* Puts the form into its frame. */
static int build(struct found_form *found, const struct response_frame *frame, struct grammar **out,
                 struct api_error *err) {
    if (found->node == OUTPUT_FORM_NONE) {
        *out = NULL;
        return 0;
    }
    if (frame != NULL &&
        frame->put(frame->context, found->builder, found->node, &found->node, err) != 0)
        return -1;
    return json_schema_build(found->builder, found->node, found->path, out, err);
}

static int read_forms(const cJSON *body, const struct body_names *names, const char *whitespace,
                      const struct response_frame *frame, struct byte_buffer *ignored,
                      struct grammar **out, struct api_error *err) {
    struct found_form found = {
        .builder = grammar_builder_create(), .whitespace = whitespace, .node = OUTPUT_FORM_NONE};
    if (found.builder == NULL)
        return api_error_set_memory(err);
    grammar_builder_ignore(found.builder, ignored);
    int result = read_named_format(body, names, &found, err);
    if (result == 0)
        result = read_only_one(body, fields, NUM_FIELDS, "", &found, err);
    if (result == 0)
        result = read_structured(body, &found, err);
    if (result == 0)
        result = build(&found, frame, out, err);
    grammar_builder_destroy(found.builder);
    return result;
}

/* --- Keys of the cache --- */

void response_format_append_key(const cJSON *value, const char *name, struct byte_buffer *key) {
    byte_buffer_append(key, name, strlen(name) + 1);
    json_write_tree(key, value); /* with every digit: different numbers make a different grammar */
    byte_buffer_append(key, "", 1);
}

static bool append_given(const cJSON *value, const char *name, struct byte_buffer *key) {
    if (!json_is_given(value))
        return false;
    response_format_append_key(value, name, key);
    return true;
}

/* Appends the body's forms, and returns whether it has any. */
static bool append_forms(const cJSON *body, const struct body_names *names,
                         struct byte_buffer *key) {
    bool has_any = append_given(json_member_at(body, names->format), names->format, key);
    for (int i = 0; i < NUM_FIELDS; i++)
        has_any |= append_given(json_member(body, fields[i].name), fields[i].name, key);
    has_any |= append_given(json_member(body, "structured_outputs"), "structured_outputs", key);
    append_given(json_member(body, "guided_whitespace_pattern"), "guided_whitespace_pattern", key);
    return has_any;
}

int response_format_read(const cJSON *body, const struct body_names *names,
                         const struct response_frame *frame, struct grammar_cache *cache,
                         struct byte_buffer *ignored, struct grammar **out, struct api_error *err) {
    struct byte_buffer key = {0};
    struct grammar *grammar = NULL;
    const char *whitespace;
    int result = 0;
    if (json_schema_whitespace(body, &whitespace, err) != 0)
        return -1;
    if (!append_forms(body, names, &key)) {
        byte_buffer_finish(&key);
        *out = NULL;
        return 0;
    }
    if (frame != NULL)
        frame->append_key(frame->context, &key);
    struct text text = {key.data, key.length};
    if (cache != NULL && !key.failed)
        grammar = grammar_cache_find(cache, text);
    if (grammar == NULL) {
        size_t num_before = ignored != NULL ? ignored->length : 0;
        result = read_forms(body, names, whitespace, frame, ignored, &grammar, err);
        bool is_whole = ignored == NULL || ignored->length == num_before;
        if (result == 0 && grammar != NULL && cache != NULL && !key.failed && is_whole)
            grammar_cache_add(cache, text, grammar);
    }
    byte_buffer_finish(&key);
    if (result == 0)
        *out = grammar;
    return result;
}

static const struct json_field format_fields[] = {
    JSON_OTHER(type),   JSON_OTHER(json_schema), JSON_OTHER(schema),
    JSON_OTHER(name),   JSON_OTHER(description), JSON_OTHER(strict),
    JSON_OTHER(format), JSON_OTHER(structures),  JSON_OTHER(triggers),
};
static const struct json_field flat_fields[] = {
    JSON_OTHER(type),        JSON_OTHER(schema), JSON_OTHER(name),
    JSON_OTHER(description), JSON_OTHER(strict),
};
static const struct json_field lone_fields[] = {
    JSON_OTHER(type),
    JSON_OTHER(schema),
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
                         struct byte_buffer *out) {
    if (cJSON_IsObject(object))
        json_fields_list_unknown(object, &table, 1, NULL, prefix, out);
}

void response_format_list_unknown(const cJSON *body, const struct body_names *names,
                                  struct byte_buffer *out) {
    const cJSON *format = json_member_at(body, names->format);
    bool is_flat = names->has_flat_format && is_json_schema(format);
    const struct json_table flat =
        names->has_schema_alone ? JSON_TABLE(lone_fields) : JSON_TABLE(flat_fields);
    char prefix[MAX_PATH];
    snprintf(prefix, sizeof(prefix), "%.45s.", names->format);
    list_unknown(format, is_flat ? flat : JSON_TABLE(format_fields), prefix, out);
    snprintf(prefix, sizeof(prefix), "%.45s.json_schema.", names->format);
    list_unknown(is_flat ? NULL : json_member(format, "json_schema"), JSON_TABLE(schema_fields),
                 prefix, out);
    list_unknown(json_member(body, "structured_outputs"), JSON_TABLE(structured_fields),
                 "structured_outputs.", out);
}
