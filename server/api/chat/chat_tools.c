#include "server/api/chat/chat_body.h"

#include "config/json/json_field.h"
#include "server/api/conversation/tools.h"

#include <string.h>

#define SCHEMA_NAME "parameters"

/* --- tools --- */

static int read_tool(const cJSON *tool, const struct json_path *path, struct conversation *out,
                     struct api_error *err) {
    const cJSON *type = json_given_member(tool, "type");
    bool is_custom = json_is_text(type, "custom");
    if (!cJSON_IsObject(tool))
        return json_refuse_at(tool, path, "an object", err);
    if (!is_custom && !json_is_text(type, "function"))
        return json_refuse_at(type, JSON_MEMBER_PATH(path, "type"), "\"function\" or \"custom\"",
                              err);
    const struct tool_source source = {
        .object = json_given_member(tool, type->valuestring),
        .path = JSON_MEMBER_PATH(path, type->valuestring),
        .schema_name = SCHEMA_NAME,
        .shown = tool,
    };
    return is_custom ? tools_add_custom(out, &source, err) : tools_add_function(out, &source, err);
}

static int read_tools(const cJSON *tools, struct conversation *out, struct api_error *err) {
    const struct json_path *path = JSON_MEMBER_PATH(NULL, "tools");
    const cJSON *tool;
    int index = 0;
    if (tools != NULL && !cJSON_IsArray(tools))
        return json_refuse_at(tools, path, "an array", err);
    cJSON_ArrayForEach(tool, tools) {
        if (read_tool(tool, JSON_ITEM_PATH(path, index++), out, err) != 0)
            return -1;
    }
    return 0;
}

/* --- tool_choice --- */

/* Reads the name in {"type":"function","function":{"name":...}}, or in the same form of
 * "custom". */
static int read_named(const cJSON *item, const struct json_path *path, bool is_custom,
                      bool is_listed, struct conversation *out, struct api_error *err) {
    const char *kind = is_custom ? "custom" : "function";
    const cJSON *inner = json_given_member(item, kind);
    const struct json_path *inner_path = JSON_MEMBER_PATH(path, kind);
    if (!cJSON_IsObject(inner))
        return json_refuse_at(inner, inner_path, "an object", err);
    return (is_listed ? tools_allow : tools_choose)(out, json_given_member(inner, "name"),
                                                    JSON_MEMBER_PATH(inner_path, "name"), is_custom,
                                                    err);
}

static int read_allowed_tool(const cJSON *item, const struct json_path *path,
                             struct conversation *out, struct api_error *err) {
    const cJSON *type = json_given_member(item, "type");
    bool is_custom = json_is_text(type, "custom");
    if (!cJSON_IsObject(item))
        return json_refuse_at(item, path, "an object", err);
    if (!is_custom && !json_is_text(type, "function"))
        return json_refuse_at(type, JSON_MEMBER_PATH(path, "type"), "\"function\" or \"custom\"",
                              err);
    return read_named(item, path, is_custom, true, out, err);
}

/* The template still gets all tools, so that the prompt stays the same. */
static int read_allowed(const cJSON *choice, const struct json_path *choice_path,
                        struct conversation *out, struct api_error *err) {
    const cJSON *allowed = json_given_member(choice, "allowed_tools");
    const cJSON *mode = json_given_member(allowed, "mode");
    const cJSON *tools = json_given_member(allowed, "tools"), *item;
    const struct json_path *path = JSON_MEMBER_PATH(choice_path, "allowed_tools"),
                           *tools_path = JSON_MEMBER_PATH(path, "tools");
    int index = 0;
    if (!cJSON_IsObject(allowed))
        return json_refuse_at(allowed, path, "an object with mode and tools", err);
    if (!json_is_text(mode, "auto") && !json_is_text(mode, "required"))
        return json_refuse_at(mode, JSON_MEMBER_PATH(path, "mode"), "\"auto\" or \"required\"",
                              err);
    if (!cJSON_IsArray(tools) || tools->child == NULL)
        return json_refuse_at(tools, tools_path, "an array of one or more tools", err);
    cJSON_ArrayForEach(item, tools) {
        if (index == CONVERSATION_MAX_TOOLS)
            return bad_request_at(err, "array_above_max_length", tools_path,
                                  " has too many entries: at most %d are allowed",
                                  CONVERSATION_MAX_TOOLS);
        if (read_allowed_tool(item, JSON_ITEM_PATH(tools_path, index++), out, err) != 0)
            return -1;
    }
    out->tool_choice = json_is_text(mode, "auto") ? TOOL_CHOICE_AUTO : TOOL_CHOICE_REQUIRED;
    return 0;
}

static int read_object(const cJSON *choice, const struct json_path *path, struct conversation *out,
                       struct api_error *err) {
    const cJSON *type = json_given_member(choice, "type");
    if (json_is_text(type, "allowed_tools"))
        return read_allowed(choice, path, out, err);
    bool is_named = type == NULL && json_given_member(choice, "function") != NULL; /* TGI's form */
    bool is_custom = json_is_text(type, "custom");
    if (is_custom || json_is_text(type, "function") || is_named)
        return read_named(choice, path, is_custom, false, out, err);
    return json_refuse_at(type, JSON_MEMBER_PATH(path, "type"),
                          "\"function\", \"custom\" or \"allowed_tools\"", err);
}

static int read_choice(const cJSON *body, struct conversation *out, struct api_error *err) {
    const cJSON *choice = json_given_member(body, "tool_choice");
    const struct json_path *path = JSON_MEMBER_PATH(NULL, "tool_choice");
    bool is_auto = json_is_text(choice, "auto"), is_required = json_is_text(choice, "required");
    if (choice == NULL)
        return 0;
    if (json_is_text(choice, "none"))
        return tools_set_choice(out, TOOL_CHOICE_NONE, err);
    if (!is_auto && !is_required && !cJSON_IsObject(choice))
        return json_refuse_at(choice, path,
                              "\"none\", \"auto\", \"required\" or an object that names functions",
                              err);
    if (is_auto && json_given_member(body, "tools") != NULL)
        return 0; /* none of no tools */
    if (tools_set_choice(out, is_required ? TOOL_CHOICE_REQUIRED : TOOL_CHOICE_AUTO, err) != 0)
        return -1;
    return cJSON_IsObject(choice) ? read_object(choice, path, out, err) : 0;
}

/* --- functions and function_call --- */

/* Refuses fields of the new form, which would repeat or contradict those of the old one. */
static int check_alone(const cJSON *body, const char *old, struct api_error *err) {
    static const char *const replacing[] = {"tools", "tool_choice", "parallel_tool_calls"};
    for (size_t i = 0; i < sizeof(replacing) / sizeof(replacing[0]); i++)
        if (json_given_member(body, replacing[i]) != NULL)
            return bad_request(err, "unsupported_value", old,
                               "%s is not allowed with %s: use one form or the other", old,
                               replacing[i]);
    return 0;
}

/* Returns the function as an element of tools; NULL when memory is short. */
static cJSON *wrap(const cJSON *function) {
    cJSON *tool = cJSON_CreateObject(), *inner = cJSON_CreateObjectReference(function->child);
    bool has_type = tool != NULL && cJSON_AddStringToObject(tool, "type", "function") != NULL;
    if (has_type && inner != NULL && cJSON_AddItemToObject(tool, "function", inner))
        return tool;
    cJSON_Delete(inner);
    cJSON_Delete(tool);
    return NULL;
}

static int read_functions(const cJSON *functions, struct conversation *out, struct api_error *err) {
    const struct json_path *path = JSON_MEMBER_PATH(NULL, "functions");
    const cJSON *function;
    int index = 0;
    if (functions != NULL && !cJSON_IsArray(functions))
        return json_refuse_at(functions, path, "an array", err);
    cJSON_ArrayForEach(function, functions) {
        const struct json_path *place = JSON_ITEM_PATH(path, index++);
        if (!cJSON_IsObject(function))
            return json_refuse_at(function, place, "an object", err);
        const struct tool_source source = {.object = function,
                                           .path = place,
                                           .schema_name = SCHEMA_NAME,
                                           .shown = conversation_own(out, wrap(function), err)};
        if (source.shown == NULL || tools_add_function(out, &source, err) != 0)
            return -1;
    }
    return 0;
}

static int read_function_call(const cJSON *body, struct conversation *out, struct api_error *err) {
    const cJSON *choice = json_given_member(body, "function_call");
    const struct json_path *path = JSON_MEMBER_PATH(NULL, "function_call");
    bool is_auto = json_is_text(choice, "auto"), is_none = json_is_text(choice, "none");
    if (choice == NULL || (is_auto && json_given_member(body, "functions") != NULL))
        return 0;
    if (!is_auto && !is_none && !cJSON_IsObject(choice))
        return json_refuse_at(choice, path, "\"none\", \"auto\" or an object with a name", err);
    if (tools_set_choice(out, is_none ? TOOL_CHOICE_NONE : TOOL_CHOICE_AUTO, err) != 0)
        return -1;
    return cJSON_IsObject(choice) ? tools_choose(out, json_given_member(choice, "name"),
                                                 JSON_MEMBER_PATH(path, "name"), false, err)
                                  : 0;
}

/* --- All fields --- */

static int read_old_form(const cJSON *body, const cJSON *functions, struct conversation *out,
                         struct api_error *err) {
    static const struct conversation_names names = {CHAT_BODY_NAMES, .tools = "functions",
                                                    .tool_choice = "function_call"};
    out->names = &names;
    out->has_functions = true;
    out->allows_parallel = false;
    if (check_alone(body, functions != NULL ? "functions" : "function_call", err) != 0 ||
        read_functions(functions, out, err) != 0)
        return -1;
    tools_set_default(out);
    return read_function_call(body, out, err);
}

int chat_tools_read(const cJSON *body, struct conversation *out, struct api_error *err) {
    const cJSON *functions = json_given_member(body, "functions");
    if (functions != NULL || json_given_member(body, "function_call") != NULL)
        return read_old_form(body, functions, out, err);
    if (read_tools(json_given_member(body, "tools"), out, err) != 0)
        return -1;
    tools_set_default(out);
    return read_choice(body, out, err) == 0 ? tools_read_parallel(body, out, err) : -1;
}
