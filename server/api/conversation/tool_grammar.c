#include "server/api/conversation/tool_grammar.h"

#include "engine/grammar/read/json_schema.h"
#include "server/api/constraint/output_form.h"
#include "server/api/conversation/tool_grammar_form.h"
#include "config/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 64
#define MAX_TOOL_CALLS 16 /* small models would call tools until their tokens are used up */

struct calls_builder {
    const struct tool_grammar_config *config;
    struct tool_grammar_form form;
    struct api_error *err;
};

enum tool_call_format tool_grammar_format(enum tool_call_format format) {
    return format == TOOL_CALL_FORMAT_NONE ? TOOL_CALL_FORMAT_HERMES : format;
}

/* Makes the schema of the arguments, which are an object: one that names no type gets that type.
 * The caller deletes *out. */
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

static int arguments(const struct calls_builder *calls, const struct tool *tool, const char *path,
                     grammar_node *out) {
    const struct argument_form *one_by_one = tool_grammar_argument_form(calls->form.format);
    if (tool->parameters == NULL) {
        *out = grammar_literal(calls->form.builder, "{}", one_by_one != NULL ? 0 : 2);
        return 0;
    }
    cJSON *schema;
    if (object_schema(calls, tool->parameters, path, &schema) != 0)
        return -1;
    int status = one_by_one != NULL
                     ? tool_grammar_arguments(one_by_one, calls->form.builder, schema, path,
                                              tool->is_strict, out, calls->err)
                     : json_schema_node(calls->form.builder, schema, path, tool->is_strict, NULL,
                                        out, calls->err);
    cJSON_Delete(schema);
    return status;
}

/* Makes {"input": "..."}, with a text that matches the grammar. */
static int input_of_grammar(const struct calls_builder *calls, const struct tool *tool,
                            grammar_node *out) {
    struct grammar_builder *builder = calls->form.builder;
    const cJSON grammar = {.type = cJSON_String, .valuestring = (char *)tool->lark};
    grammar_node input;
    if (tool_grammar_argument_form(calls->form.format) != NULL)
        return bad_request(calls->err, "unsupported_json_schema", tool->schema_path,
                           "input cannot be forced in the form of this model's tool calls");
    if (output_form_json_grammar(&grammar, "input", builder, NULL, &input, calls->err) != 0)
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

/* Makes the input of a custom tool. The arguments' schema is ours: an error names what the client
 * wrote. */
static int input_of(const struct calls_builder *calls, const struct tool *tool, grammar_node *out) {
    int status = tool->lark != NULL ? input_of_grammar(calls, tool, out)
                                    : arguments(calls, tool, "schema", out);
    if (status == 0 || calls->err->status != 400)
        return status;
    const struct api_error why = *calls->err;
    return bad_request(calls->err, why.code, tool->schema_path, "%s cannot be enforced: %.380s",
                       tool->schema_path, why.message);
}

static int arguments_of(const struct calls_builder *calls, const struct tool *tool,
                        grammar_node *out) {
    return tool->kind == TOOL_CUSTOM ? input_of(calls, tool, out)
                                     : arguments(calls, tool, tool->schema_path, out);
}

static int function_call(const struct calls_builder *calls, const struct tool *tool,
                         grammar_node *out) {
    grammar_node node;
    if (arguments_of(calls, tool, &node) != 0)
        return -1;
    *out = tool_grammar_form_call(&calls->form, tool->name, node);
    return 0;
}

static int check_tool(const struct calls_builder *calls, const struct tool *tool) {
    grammar_node node;
    if (arguments_of(calls, tool, &node) == 0)
        return 0;
    return json_schema_is_unsupported(calls->err) ? 0 : -1;
}

int tool_grammar_check(const struct conversation *conversation, struct byte_buffer *ignored,
                       struct api_error *err) {
    struct calls_builder calls = {.form = {.builder = grammar_builder_create()}, .err = err};
    int result = 0;
    if (calls.form.builder == NULL)
        return api_error_set_memory(err);
    grammar_builder_ignore(calls.form.builder, ignored);
    for (int i = 0; i < conversation->num_tools && result == 0; i++)
        if (*grammar_builder_work(calls.form.builder) >= 0)
            result = check_tool(&calls, &conversation->tools[i]);
    grammar_builder_destroy(calls.form.builder);
    return result;
}

/* Makes one call of any allowed tool. */
static int one_tool_call(const struct calls_builder *calls, grammar_node *out) {
    const struct conversation *conversation = calls->config->conversation;
    grammar_node choices[CONVERSATION_MAX_TOOLS];
    int count = 0;
    for (int i = 0; i < conversation->num_tools; i++)
        if (conversation->tools[i].is_allowed &&
            function_call(calls, &conversation->tools[i], &choices[count++]) != 0)
            return -1;
    *out = grammar_alternatives(calls->form.builder, choices, count);
    return 0;
}

static grammar_node row_of_tool_calls(const struct calls_builder *calls, grammar_node one) {
    const struct conversation *conversation = calls->config->conversation;
    if (conversation->tool_choice == TOOL_CHOICE_NAMED || !conversation->allows_parallel ||
        !tool_grammar_form_has_rows(&calls->form))
        return one;
    const char *separator = tool_grammar_form_separator(&calls->form);
    grammar_node next[] = {grammar_literal(calls->form.builder, separator, strlen(separator)), one};
    grammar_node items[] = {one, grammar_repeat(calls->form.builder,
                                                grammar_sequence(calls->form.builder, next, 2), 0,
                                                MAX_TOOL_CALLS - 1)};
    return grammar_sequence(calls->form.builder, items, 2);
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
