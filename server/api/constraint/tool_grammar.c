/* Each family's tool calls as its models were trained to write them (server/output/tool_*.c), so
 * that the forced text is a likely one. */
#include "server/api/constraint/tool_grammar.h"

#include "server/api/constraint/json_schema.h"
#include "server/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 64
#define MAX_TOOL_CALLS 16 /* small models would call until their tokens are used up */

struct form {
    const struct tool_grammar_config *config;
    struct grammar_builder *builder;
    enum tool_call_format format;
    bool has_args_token; /* Mistral's newer form */
    struct api_error *err;
};

enum tool_call_format tool_grammar_format(enum tool_call_format format) {
    return format == TOOL_CALL_FORMAT_NONE ? TOOL_CALL_FORMAT_HERMES : format;
}

static grammar_node literal(const struct form *form, const char *text) {
    return grammar_literal(form->builder, text, strlen(text));
}

/* Returns -1 when the vocabulary has no such control token. */
static int32_t find_control_token(const struct tokenizer *tokenizer, const char *name) {
    for (int32_t token = 0; token < tokenizer_vocab_size(tokenizer); token++) {
        struct text piece = tokenizer_piece(tokenizer, token);
        if (tokenizer_is_special(tokenizer, token) && piece.length == strlen(name) &&
            memcmp(piece.data, name, piece.length) == 0)
            return token;
    }
    return -1;
}

/* Returns a marker: one control token where it is one, else its text. */
static grammar_node marker(const struct form *form, const char *name) {
    int32_t token = find_control_token(form->config->tokenizer, name);
    return token >= 0 ? grammar_token(form->builder, token) : literal(form, name);
}

/* {"name": "f", "arguments": {...}} */
static grammar_node tool_call_object(const struct form *form, const char *name, const char *key,
                                     grammar_node arguments) {
    grammar_node items[] = {literal(form, "{\"name\": \""),
                            literal(form, name),
                            literal(form, "\", \""),
                            literal(form, key),
                            literal(form, "\": "),
                            arguments,
                            literal(form, "}")};
    return grammar_sequence(form->builder, items, 7);
}

/* Returns one call as it stands in a row of them. */
static grammar_node tool_call(const struct form *form, const char *name, grammar_node arguments) {
    if (form->format == TOOL_CALL_FORMAT_LLAMA3_JSON)
        return tool_call_object(form, name, "parameters", arguments);
    grammar_node object = tool_call_object(form, name, "arguments", arguments);
    if (form->format == TOOL_CALL_FORMAT_HERMES) {
        grammar_node items[] = {literal(form, "<tool_call>\n"), object,
                                literal(form, "\n</tool_call>")};
        return grammar_sequence(form->builder, items, 3);
    }
    if (!form->has_args_token)
        return object;
    grammar_node items[] = {marker(form, "[TOOL_CALLS]"), literal(form, name),
                            marker(form, "[ARGS]"), arguments};
    return grammar_sequence(form->builder, items, 4);
}

static const char *separator(const struct form *form) {
    switch (form->format) {
    case TOOL_CALL_FORMAT_LLAMA3_JSON:
        return "; ";
    case TOOL_CALL_FORMAT_MISTRAL:
        return form->has_args_token ? "" : ", ";
    default:
        return "\n";
    }
}

/* Returns the calls as the whole answer. */
static grammar_node answer(const struct form *form, grammar_node calls) {
    if (form->format != TOOL_CALL_FORMAT_MISTRAL || form->has_args_token)
        return calls;
    grammar_node items[] = {marker(form, "[TOOL_CALLS]"),
                            grammar_repeat(form->builder, literal(form, " "), 0, 1),
                            literal(form, "["), calls, literal(form, "]")};
    return grammar_sequence(form->builder, items, 5);
}

/* Arguments are an object: a schema that names no type gets that one. *out is to be deleted. */
static int object_schema(const struct form *form, const cJSON *parameters, const char *path,
                         cJSON **out) {
    const cJSON *type = json_given_member(parameters, "type");
    if (type != NULL && (!cJSON_IsString(type) || strcmp(type->valuestring, "object") != 0)) {
        char type_path[PATH_BYTES + 8];
        snprintf(type_path, sizeof(type_path), "%s.type", path);
        return json_refuse(type, type_path, "\"object\"", form->err);
    }
    cJSON *schema = cJSON_Duplicate(parameters, true);
    if (schema != NULL && type == NULL) {
        cJSON_DeleteItemFromObjectCaseSensitive(schema, "type"); /* null */
        if (cJSON_AddStringToObject(schema, "type", "object") == NULL) {
            cJSON_Delete(schema);
            schema = NULL;
        }
    }
    *out = schema;
    return schema != NULL ? 0 : api_error_set_memory(form->err);
}

static int arguments(const struct form *form, const cJSON *function, const char *path,
                     grammar_node *out) {
    const cJSON *parameters = json_given_member(function, "parameters");
    bool is_strict = cJSON_IsTrue(json_given_member(function, "strict"));
    if (parameters == NULL) {
        *out = literal(form, "{}");
        return 0;
    }
    cJSON *schema;
    if (object_schema(form, parameters, path, &schema) != 0)
        return -1;
    int status = json_schema_node(form->builder, schema, path, is_strict, NULL, out, form->err);
    cJSON_Delete(schema);
    return status;
}

static int function_call(const struct form *form, const cJSON *tool, int index, grammar_node *out) {
    char path[PATH_BYTES];
    grammar_node node;
    snprintf(path, sizeof(path), "tools[%d].function.parameters", index);
    if (arguments(form, json_given_member(tool, "function"), path, &node) != 0)
        return -1;
    *out = tool_call(form, tool_fields_name(tool), node);
    return 0;
}

static int check_tool(const struct form *form, const cJSON *tool, int index) {
    char path[PATH_BYTES];
    grammar_node node;
    snprintf(path, sizeof(path), "tools[%d].function.parameters", index);
    if (arguments(form, json_given_member(tool, "function"), path, &node) == 0)
        return 0;
    return json_schema_is_unsupported(form->err) ? 0 : -1;
}

int tool_grammar_check(const struct tool_fields *fields, struct api_error *err) {
    struct form form = {.builder = grammar_builder_create(), .err = err};
    const cJSON *tool;
    int index = 0, result = 0;
    if (form.builder == NULL)
        return api_error_set_memory(err);
    cJSON_ArrayForEach(tool, fields->tools) {
        if (result == 0)
            result = check_tool(&form, tool, index++);
    }
    grammar_builder_destroy(form.builder);
    return result;
}

/* Makes one call of any tool, or of the named one. */
static int one_tool_call(const struct form *form, grammar_node *out) {
    const struct tool_fields *fields = form->config->fields;
    grammar_node calls[TOOL_FIELDS_MAX_TOOLS];
    int count = 0, index = 0;
    const cJSON *tool;
    cJSON_ArrayForEach(tool, fields->tools) {
        if (tool_fields_allow(fields, tool) &&
            function_call(form, tool, index, &calls[count++]) != 0)
            return -1;
        index++;
    }
    *out = grammar_alternatives(form->builder, calls, count);
    return 0;
}

static grammar_node row_of_tool_calls(const struct form *form, grammar_node one) {
    const struct tool_fields *fields = form->config->fields;
    if (fields->choice == TOOL_CHOICE_NAMED || !fields->allows_parallel)
        return one;
    grammar_node next[] = {literal(form, separator(form)), one};
    grammar_node items[] = {one,
                            grammar_repeat(form->builder, grammar_sequence(form->builder, next, 2),
                                           0, MAX_TOOL_CALLS - 1)};
    return grammar_sequence(form->builder, items, 2);
}

bool tool_grammar_is_forced(const struct tool_fields *fields) {
    return fields->choice == TOOL_CHOICE_REQUIRED || fields->choice == TOOL_CHOICE_NAMED;
}

int tool_grammar_calls(const struct tool_grammar_config *config, struct grammar_builder *builder,
                       grammar_node *out, struct api_error *err) {
    struct form form = {.config = config,
                        .builder = builder,
                        .format = tool_grammar_format(config->model.tools),
                        .err = err};
    grammar_node one;
    form.has_args_token = form.format == TOOL_CALL_FORMAT_MISTRAL &&
                          find_control_token(config->tokenizer, "[ARGS]") >= 0;
    if (one_tool_call(&form, &one) != 0)
        return -1;
    *out = answer(&form, row_of_tool_calls(&form, one));
    return 0;
}
