#include "server/api/tools/tool_grammar.h"

#include "server/api/tools/custom_tools.h"
#include "engine/grammar/read/json_schema.h"
#include "server/api/constraint/output_form.h"
#include "server/api/tools/tool_grammar_form.h"
#include "config/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 64
#define MAX_TOOL_CALLS 16 /* small models would call until their tokens are used up */

struct calls_builder {
    const struct tool_grammar_config *config;
    struct tool_grammar_form form;
    struct api_error *err;
};

enum tool_call_format tool_grammar_format(enum tool_call_format format) {
    return format == TOOL_CALL_FORMAT_NONE ? TOOL_CALL_FORMAT_HERMES : format;
}

/* Arguments are an object: a schema that names no type gets that one. *out is to be deleted. */
static int object_schema(const struct calls_builder *calls, const cJSON *parameters,
                         const char *path, cJSON **out) {
    const cJSON *type = json_given_member(parameters, "type");
    if (type != NULL && (!cJSON_IsString(type) || strcmp(type->valuestring, "object") != 0)) {
        char type_path[PATH_BYTES + 8];
        snprintf(type_path, sizeof(type_path), "%s.type", path);
        return json_refuse(type, type_path, "\"object\"", calls->err);
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
    return schema != NULL ? 0 : api_error_set_memory(calls->err);
}

static int arguments(const struct calls_builder *calls, const cJSON *function, const char *path,
                     grammar_node *out) {
    const cJSON *parameters = json_given_member(function, "parameters");
    bool is_strict = cJSON_IsTrue(json_given_member(function, "strict"));
    if (parameters == NULL) {
        bool is_empty = tool_grammar_argument_form(calls->form.format) != NULL;
        *out = grammar_literal(calls->form.builder, "{}", is_empty ? 0 : 2);
        return 0;
    }
    cJSON *schema;
    if (object_schema(calls, parameters, path, &schema) != 0)
        return -1;
    const struct argument_form *one_by_one = tool_grammar_argument_form(calls->form.format);
    int status =
        one_by_one != NULL
            ? tool_grammar_arguments(one_by_one, calls->form.builder, schema, path, is_strict, out,
                                     calls->err)
            : json_schema_node(calls->form.builder, schema, path, is_strict, NULL, out, calls->err);
    cJSON_Delete(schema);
    return status;
}

/* {"input": "..."}, with a text of the grammar. */
static int custom_input(const struct calls_builder *calls, const cJSON *grammar, int index,
                        grammar_node *out) {
    struct grammar_builder *builder = calls->form.builder;
    char path[PATH_BYTES];
    grammar_node input;
    snprintf(path, sizeof(path), "tools[%d].function.parameters", index);
    if (tool_grammar_argument_form(calls->form.format) != NULL)
        return bad_request(calls->err, "unsupported_json_schema", path,
                           "%s cannot be forced in the form of this model's tool calls", path);
    if (output_form_json_grammar(grammar, path, builder, NULL, &input, calls->err) != 0)
        return -1;
    grammar_node items[] = {
        grammar_literal(builder, "{\"input\":", 9),
        grammar_repeat(builder, grammar_literal(builder, " ", 1), 0, 1),
        grammar_literal(builder, "\"", 1),
        input,
        grammar_literal(builder, "\"}", 2),
    };
    *out = grammar_sequence(builder, items, 5);
    return 0;
}

static int arguments_of(const struct calls_builder *calls, const cJSON *tool, int index,
                        grammar_node *out) {
    const cJSON *function = json_given_member(tool, "function");
    const cJSON *grammar = json_given_member(function, CUSTOM_TOOLS_GRAMMAR);
    char path[PATH_BYTES];
    if (grammar != NULL)
        return custom_input(calls, grammar, index, out);
    snprintf(path, sizeof(path), "tools[%d].function.parameters", index);
    return arguments(calls, function, path, out);
}

static int function_call(const struct calls_builder *calls, const cJSON *tool, int index,
                         grammar_node *out) {
    grammar_node node;
    if (arguments_of(calls, tool, index, &node) != 0)
        return -1;
    *out = tool_grammar_form_call(&calls->form, tool_fields_name(tool), node);
    return 0;
}

static int check_tool(const struct calls_builder *calls, const cJSON *tool, int index) {
    grammar_node node;
    if (arguments_of(calls, tool, index, &node) == 0)
        return 0;
    return json_schema_is_unsupported(calls->err) ? 0 : -1;
}

int tool_grammar_check(const struct tool_fields *fields, struct byte_buffer *ignored,
                       struct api_error *err) {
    struct calls_builder calls = {.form = {.builder = grammar_builder_create()}, .err = err};
    const cJSON *tool;
    int index = 0, result = 0;
    if (calls.form.builder == NULL)
        return api_error_set_memory(err);
    grammar_builder_ignore(calls.form.builder, ignored);
    cJSON_ArrayForEach(tool, fields->tools) {
        if (result == 0 && *grammar_builder_work(calls.form.builder) >= 0)
            result = check_tool(&calls, tool, index++);
    }
    grammar_builder_destroy(calls.form.builder);
    return result;
}

/* Makes one call of any tool, or of the named one. */
static int one_tool_call(const struct calls_builder *calls, grammar_node *out) {
    const struct tool_fields *fields = calls->config->fields;
    grammar_node choices[TOOL_FIELDS_MAX_TOOLS];
    int count = 0, index = 0;
    const cJSON *tool;
    cJSON_ArrayForEach(tool, fields->tools) {
        if (tool_fields_allow(fields, tool) &&
            function_call(calls, tool, index, &choices[count++]) != 0)
            return -1;
        index++;
    }
    *out = grammar_alternatives(calls->form.builder, choices, count);
    return 0;
}

static grammar_node row_of_tool_calls(const struct calls_builder *calls, grammar_node one) {
    const struct tool_fields *fields = calls->config->fields;
    if (fields->choice == TOOL_CHOICE_NAMED || !fields->allows_parallel ||
        !tool_grammar_form_has_rows(&calls->form))
        return one;
    const char *separator = tool_grammar_form_separator(&calls->form);
    grammar_node next[] = {grammar_literal(calls->form.builder, separator, strlen(separator)), one};
    grammar_node items[] = {one, grammar_repeat(calls->form.builder,
                                                grammar_sequence(calls->form.builder, next, 2), 0,
                                                MAX_TOOL_CALLS - 1)};
    return grammar_sequence(calls->form.builder, items, 2);
}

bool tool_grammar_is_forced(const struct tool_fields *fields) {
    return fields->choice == TOOL_CHOICE_REQUIRED || fields->choice == TOOL_CHOICE_NAMED;
}

int tool_grammar_calls(const struct tool_grammar_config *config, struct grammar_builder *builder,
                       grammar_node *out, struct api_error *err) {
    struct calls_builder calls = {.config = config, .err = err};
    grammar_node one;
    tool_grammar_form_init(&calls.form, builder, config->tokenizer,
                           tool_grammar_format(config->model.tools));
    if (one_tool_call(&calls, &one) != 0)
        return -1;
    *out = tool_grammar_form_answer(&calls.form, row_of_tool_calls(&calls, one));
    return 0;
}
