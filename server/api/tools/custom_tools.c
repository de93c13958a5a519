#include "server/api/tools/custom_tools.h"

#include "server/api/tools/tool_fields.h"
#include "config/json/json_field.h"
#include "config/json/json_write.h"
#include "server/output/tool_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 64

static bool is_text(const cJSON *item, const char *value) {
    return cJSON_IsString(item) && strcmp(item->valuestring, value) == 0;
}

static bool is_custom(const cJSON *item) {
    return is_text(json_given_member(item, "type"), "custom");
}

/* Reads ready-made JSON into the place of a member of its parent; takes the text over. */
static int replace(cJSON *parent, cJSON *item, struct byte_buffer *json, struct api_error *err) {
    byte_buffer_append(json, "", 1);
    cJSON *made = json->failed ? NULL : cJSON_Parse(json->data);
    byte_buffer_finish(json);
    if (made == NULL)
        return api_error_set_memory(err);
    if (item->string != NULL) {
        made->string = strdup(item->string);
        if (made->string == NULL) {
            cJSON_Delete(made);
            return api_error_set_memory(err);
        }
    }
    cJSON_ReplaceItemViaPointer(parent, item, made);
    return 0;
}

/* --- Tools --- */

/* What the input has to match; NULL: any text. Of the body's tree. */
struct input_format {
    const char *regex, *lark; /* one of them */
};

static int read_grammar(const cJSON *format, const char *path, struct input_format *out,
                        struct api_error *err) {
    char at[PATH_BYTES];
    const cJSON *grammar = json_given_member(format, "grammar"),
                *syntax = json_given_member(grammar, "syntax"),
                *definition = json_given_member(grammar, "definition");
    snprintf(at, sizeof(at), "%.32s.grammar", path);
    if (!cJSON_IsObject(grammar))
        return json_refuse(grammar, at, "an object with syntax and definition", err);
    snprintf(at, sizeof(at), "%.32s.grammar.syntax", path);
    if (!is_text(syntax, "regex") && !is_text(syntax, "lark"))
        return json_refuse(syntax, at, "\"regex\" or \"lark\"", err);
    snprintf(at, sizeof(at), "%.32s.grammar.definition", path);
    if (!cJSON_IsString(definition))
        return json_refuse(definition, at, "a string, the regular expression or grammar", err);
    *(is_text(syntax, "regex") ? &out->regex : &out->lark) = definition->valuestring;
    return 0;
}

static int read_format(const cJSON *custom, const char *path, struct input_format *out,
                       struct api_error *err) {
    char at[PATH_BYTES], inner[PATH_BYTES];
    const cJSON *format = json_given_member(custom, "format"),
                *type = json_given_member(format, "type");
    *out = (struct input_format){0};
    snprintf(at, sizeof(at), "%.24s.format", path);
    if (format == NULL)
        return 0;
    if (!cJSON_IsObject(format))
        return json_refuse(format, at, "an object", err);
    if (is_text(type, "text"))
        return 0;
    snprintf(inner, sizeof(inner), "%.32s.type", at);
    if (!is_text(type, "grammar"))
        return json_refuse(type, inner, "\"text\" or \"grammar\"", err);
    return read_grammar(format, at, out, err);
}

/* The whole input matches: anchors around the definition say the same. */
static void write_pattern(const char *regex, struct byte_buffer *out) {
    struct byte_buffer pattern = {0};
    regex += regex[0] == '^';
    size_t length = strlen(regex), num_backslashes = 0;
    bool has_end = length > 0 && regex[length - 1] == '$';
    while (has_end && num_backslashes + 1 < length && regex[length - 2 - num_backslashes] == '\\')
        num_backslashes++;
    length -= has_end && num_backslashes % 2 == 0;
    byte_buffer_append_text(&pattern, "^(?:");
    byte_buffer_append(&pattern, regex, length);
    byte_buffer_append_text(&pattern, ")$");
    json_write_string_member(out, "pattern", &pattern);
    out->failed = out->failed || pattern.failed;
    byte_buffer_finish(&pattern);
}

static void write_function(const cJSON *custom, const struct input_format *format,
                           struct byte_buffer *out) {
    const cJSON *description = json_given_member(custom, "description");
    json_write_begin_object(out);
    json_write_text_member(out, "type", "function");
    json_write_key(out, "function");
    json_write_begin_object(out);
    json_write_text_member(out, "name", json_member(custom, "name")->valuestring);
    if (description != NULL)
        json_write_text_member(out, "description", description->valuestring);
    json_write_key(out, "parameters");
    json_write_begin_object(out);
    json_write_text_member(out, "type", "object");
    json_write_key(out, "properties");
    json_write_begin_object(out);
    json_write_key(out, "input");
    json_write_begin_object(out);
    json_write_text_member(out, "type", "string");
    if (format->regex != NULL)
        write_pattern(format->regex, out);
    json_write_end_object(out);
    json_write_end_object(out);
    json_write_raw_member(out, "required", "[\"input\"]");
    json_write_raw_member(out, "additionalProperties", "false");
    json_write_end_object(out);
    if (format->regex != NULL || format->lark != NULL)
        json_write_raw_member(out, "strict", "true");
    if (format->lark != NULL)
        json_write_text_member(out, CUSTOM_TOOLS_GRAMMAR, format->lark);
    json_write_end_object(out);
    json_write_end_object(out);
}

static int convert_tool(cJSON *tools, cJSON *tool, int index, struct byte_buffer *names,
                        struct api_error *err) {
    char path[PATH_BYTES], at[PATH_BYTES];
    const cJSON *custom = json_given_member(tool, "custom");
    const cJSON *name = json_given_member(custom, "name"),
                *description = json_given_member(custom, "description");
    struct input_format input;
    snprintf(path, sizeof(path), "tools[%d].custom", index);
    if (!cJSON_IsObject(custom))
        return json_refuse(custom, path, "an object", err);
    snprintf(at, sizeof(at), "%.40s.name", path);
    if (!cJSON_IsString(name) ||
        !tool_call_name_is_valid(name->valuestring, strlen(name->valuestring)))
        return json_refuse(name, at, "1 to 128 of the characters a-z, A-Z, 0-9, _, -, ., : and /",
                           err);
    snprintf(at, sizeof(at), "%.40s.description", path);
    if (description != NULL && !cJSON_IsString(description))
        return json_refuse(description, at, "a string", err);
    if (read_format(custom, path, &input, err) != 0)
        return -1;
    struct byte_buffer json = {0};
    write_function(custom, &input, &json);
    byte_buffer_append(names, name->valuestring, strlen(name->valuestring) + 1);
    return replace(tools, tool, &json, err);
}

static int convert_tools(cJSON *body, struct byte_buffer *names, struct api_error *err) {
    cJSON *tools = cJSON_GetObjectItemCaseSensitive(body, "tools");
    int index = 0;
    for (cJSON *tool = cJSON_IsArray(tools) ? tools->child : NULL, *next;
         tool != NULL && index < TOOL_FIELDS_MAX_TOOLS; tool = next, index++) {
        next = tool->next;
        cJSON_DeleteItemFromObjectCaseSensitive(cJSON_GetObjectItemCaseSensitive(tool, "function"),
                                                CUSTOM_TOOLS_GRAMMAR);
        if (is_custom(tool) && convert_tool(tools, tool, index, names, err) != 0)
            return -1;
    }
    return names->failed ? api_error_set_memory(err) : 0;
}

/* --- tool_choice --- */

static int count_names(const struct byte_buffer *names) {
    int count = 0;
    for (size_t i = 0; i < names->length; i++)
        count += names->data[i] == '\0';
    return count;
}

/* Makes {"type":"function","function":{"name"}} of the same with "custom". */
static int convert_named(cJSON *parent, cJSON *item, const char *path,
                         const struct byte_buffer *names, struct api_error *err) {
    char at[PATH_BYTES];
    const cJSON *custom = json_given_member(item, "custom"),
                *name = json_given_member(custom, "name");
    snprintf(at, sizeof(at), "%.40s.custom", path);
    if (!cJSON_IsObject(custom))
        return json_refuse(custom, at, "an object", err);
    snprintf(at, sizeof(at), "%.40s.custom.name", path);
    if (!cJSON_IsString(name))
        return json_refuse(name, at, "the name of a custom tool", err);
    if (!custom_tools_have(names->data, count_names(names), name->valuestring,
                           strlen(name->valuestring)))
        return bad_request(err, "unknown_tool", at,
                           "%s is \"%.128s\", which is not a custom tool in tools", at,
                           name->valuestring);
    struct byte_buffer json = {0};
    json_write_begin_object(&json);
    json_write_text_member(&json, "type", "function");
    json_write_key(&json, "function");
    json_write_begin_object(&json);
    json_write_text_member(&json, "name", name->valuestring);
    json_write_end_object(&json);
    json_write_end_object(&json);
    return replace(parent, item, &json, err);
}

static int convert_choice(cJSON *body, const struct byte_buffer *names, struct api_error *err) {
    cJSON *choice = cJSON_GetObjectItemCaseSensitive(body, "tool_choice");
    if (is_custom(choice))
        return convert_named(body, choice, "tool_choice", names, err);
    cJSON *tools = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(choice, "allowed_tools"), "tools");
    int index = 0;
    for (cJSON *item = cJSON_IsArray(tools) ? tools->child : NULL, *next;
         item != NULL && index < TOOL_FIELDS_MAX_TOOLS; item = next, index++) {
        char path[PATH_BYTES];
        next = item->next;
        snprintf(path, sizeof(path), "tool_choice.allowed_tools.tools[%d]", index);
        if (is_custom(item) && convert_named(tools, item, path, names, err) != 0)
            return -1;
    }
    return 0;
}

/* --- Messages --- */

static int convert_call(cJSON *calls, cJSON *call, const char *path, struct api_error *err) {
    char at[PATH_BYTES + 16];
    const cJSON *custom = json_given_member(call, "custom"), *id = json_given_member(call, "id");
    const cJSON *name = json_given_member(custom, "name"),
                *input = json_given_member(custom, "input");
    snprintf(at, sizeof(at), "%s.custom", path);
    if (!cJSON_IsObject(custom))
        return json_refuse(custom, at, "an object", err);
    snprintf(at, sizeof(at), "%s.custom.name", path);
    if (!cJSON_IsString(name) || name->valuestring[0] == '\0')
        return json_refuse(name, at, "the name of a custom tool", err);
    snprintf(at, sizeof(at), "%s.custom.input", path);
    if (!cJSON_IsString(input))
        return json_refuse(input, at, "a string", err);
    snprintf(at, sizeof(at), "%s.id", path);
    if (id != NULL && !cJSON_IsString(id))
        return json_refuse(id, at, "a string", err);
    struct byte_buffer json = {0}, arguments = {0};
    byte_buffer_append_text(&arguments, "{\"input\": "); /* spaced as models write it */
    json_write_text(&arguments, input->valuestring);
    json_write_end_object(&arguments);
    json_write_begin_object(&json);
    if (id != NULL)
        json_write_text_member(&json, "id", id->valuestring);
    json_write_text_member(&json, "type", "function");
    json_write_key(&json, "function");
    json_write_begin_object(&json);
    json_write_text_member(&json, "name", name->valuestring);
    json_write_string_member(&json, "arguments", &arguments);
    json_write_end_object(&json);
    json_write_end_object(&json);
    json.failed = json.failed || arguments.failed;
    byte_buffer_finish(&arguments);
    return replace(calls, call, &json, err);
}

static int convert_messages(cJSON *body, struct api_error *err) {
    cJSON *messages = cJSON_GetObjectItemCaseSensitive(body, "messages"), *message;
    int index = 0;
    if (!cJSON_IsArray(messages))
        return 0;
    cJSON_ArrayForEach(message, messages) {
        cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
        int call_index = 0;
        for (cJSON *call = cJSON_IsArray(calls) ? calls->child : NULL, *next; call != NULL;
             call = next, call_index++) {
            char path[PATH_BYTES];
            next = call->next;
            snprintf(path, sizeof(path), "messages[%d].tool_calls[%d]", index, call_index);
            if (is_custom(call) && convert_call(calls, call, path, err) != 0)
                return -1;
        }
        index++;
    }
    return 0;
}

/* --- All of it: more tools than may be are left for others to refuse --- */

int custom_tools_convert(cJSON *body, struct byte_buffer *names, struct api_error *err) {
    if (convert_tools(body, names, err) != 0 || convert_choice(body, names, err) != 0)
        return -1;
    return convert_messages(body, err);
}

bool custom_tools_have(const char *names, int num_names, const char *name, size_t length) {
    for (int i = 0; i < num_names; i++, names += strlen(names) + 1)
        if (strlen(names) == length && memcmp(names, name, length) == 0)
            return true;
    return false;
}

void custom_tools_rename_error(const struct byte_buffer *names, const cJSON *body,
                               struct api_error *err) {
    static const char schema[] = ".function.parameters";
    int index = 0, end = 0;
    if (sscanf(err->param, "tools[%d]%n", &index, &end) != 1 ||
        strncmp(err->param + end, schema, strlen(schema)) != 0)
        return;
    const cJSON *tool = cJSON_GetArrayItem(json_member(body, "tools"), index);
    const cJSON *name = json_member(json_member(tool, "function"), "name");
    if (!cJSON_IsString(name) || !custom_tools_have(names->data, count_names(names),
                                                    name->valuestring, strlen(name->valuestring)))
        return;
    char why[sizeof(err->message)];
    snprintf(why, sizeof(why), "%s", err->message);
    snprintf(err->param, sizeof(err->param), "tools[%d].custom.format.grammar.definition", index);
    snprintf(err->message, sizeof(err->message), "%s cannot be kept: %.380s", err->param, why);
}
