#include "server/api/tools/tool_fields.h"

#include "config/json/json_field.h"
#include "server/output/tool_call.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 64

const char *tool_fields_name(const cJSON *tool) {
    return json_given_member(json_given_member(tool, "function"), "name")->valuestring;
}

static bool is_text(const cJSON *item, const char *value) {
    return cJSON_IsString(item) && strcmp(item->valuestring, value) == 0;
}

static int check_name(const cJSON *name, const char *path, struct api_error *err) {
    if (cJSON_IsString(name) &&
        tool_call_name_is_valid(name->valuestring, strlen(name->valuestring)))
        return 0;
    return json_refuse(name, path, "1 to 128 of the characters a-z, A-Z, 0-9, _, -, ., : and /",
                       err);
}

static int check_function(const cJSON *function, int index, struct api_error *err) {
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "tools[%d].function", index);
    if (!cJSON_IsObject(function))
        return json_refuse(function, path, "an object", err);
    snprintf(path, sizeof(path), "tools[%d].function.name", index);
    if (check_name(json_given_member(function, "name"), path, err) != 0)
        return -1;
    const cJSON *description = json_given_member(function, "description");
    snprintf(path, sizeof(path), "tools[%d].function.description", index);
    if (description != NULL && !cJSON_IsString(description))
        return json_refuse(description, path, "a string", err);
    const cJSON *parameters = json_given_member(function, "parameters");
    snprintf(path, sizeof(path), "tools[%d].function.parameters", index);
    if (parameters != NULL && !cJSON_IsObject(parameters))
        return json_refuse(parameters, path, "an object, a JSON schema", err);
    const cJSON *strict = json_given_member(function, "strict");
    snprintf(path, sizeof(path), "tools[%d].function.strict", index);
    if (strict != NULL && !cJSON_IsBool(strict))
        return json_refuse(strict, path, "true or false", err);
    return 0;
}

static int check_tool(const cJSON *tool, int index, struct api_error *err) {
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "tools[%d]", index);
    if (!cJSON_IsObject(tool))
        return json_refuse(tool, path, "an object", err);
    const cJSON *type = json_given_member(tool, "type");
    snprintf(path, sizeof(path), "tools[%d].type", index);
    if (!is_text(type, "function"))
        return json_refuse(type, path, "\"function\" or \"custom\", the kinds of tools there are",
                           err);
    return check_function(json_given_member(tool, "function"), index, err);
}

/* Returns the tool of that name among the first `count`. */
static const cJSON *find_tool(const cJSON *tools, int32_t count, const char *name) {
    const cJSON *tool = tools->child;
    for (int32_t i = 0; i < count; i++, tool = tool->next)
        if (strcmp(tool_fields_name(tool), name) == 0)
            return tool;
    return NULL;
}

static int read_tools(const cJSON *tools, struct tool_fields *fields, struct api_error *err) {
    if (tools == NULL)
        return 0;
    if (!cJSON_IsArray(tools))
        return json_refuse(tools, "tools", "an array", err);
    const cJSON *tool;
    cJSON_ArrayForEach(tool, tools) {
        if (fields->num_tools == TOOL_FIELDS_MAX_TOOLS)
            return bad_request(err, "array_above_max_length", "tools",
                               "tools has too many entries: at most %d are allowed",
                               TOOL_FIELDS_MAX_TOOLS);
        if (check_tool(tool, fields->num_tools, err) != 0)
            return -1;
        const char *name = tool_fields_name(tool);
        if (find_tool(tools, fields->num_tools, name) != NULL) {
            char path[PATH_BYTES];
            snprintf(path, sizeof(path), "tools[%d].function.name", (int)fields->num_tools);
            return bad_request(err, "duplicate_name", path,
                               "%s is \"%s\" as another tool's: names must be distinct", path,
                               name);
        }
        fields->num_tools++;
    }
    fields->tools = fields->num_tools > 0 ? tools : NULL;
    return 0;
}

/* Returns the tool that {"type":"function","function":{"name":...}} at `path` names; NULL with
 * *err. */
static const cJSON *find_named(const cJSON *item, const char *path,
                               const struct tool_fields *fields, struct api_error *err) {
    char at[PATH_BYTES];
    const cJSON *function = json_given_member(item, "function");
    const cJSON *name = json_given_member(function, "name");
    snprintf(at, sizeof(at), "%.40s.function", path);
    if (!cJSON_IsObject(function)) {
        json_refuse(function, at, "an object", err);
        return NULL;
    }
    snprintf(at, sizeof(at), "%.40s.function.name", path);
    if (check_name(name, at, err) != 0)
        return NULL;
    const cJSON *tool = find_tool(fields->tools, fields->num_tools, name->valuestring);
    if (tool == NULL)
        bad_request(err, "unknown_tool", at, "%s is \"%s\", which is not in tools", at,
                    name->valuestring);
    return tool;
}

static int read_named(const cJSON *choice, struct tool_fields *fields, struct api_error *err) {
    const cJSON *tool = find_named(choice, "tool_choice", fields, err);
    if (tool == NULL)
        return -1;
    fields->choice = TOOL_CHOICE_NAMED;
    fields->named = json_given_member(tool, "function");
    return 0;
}

/* --- allowed_tools: the template is shown all tools, so that the prompt stays the same --- */

static int read_allowed_tool(const cJSON *item, struct tool_fields *fields, struct api_error *err) {
    char path[PATH_BYTES], at[PATH_BYTES];
    if (fields->num_allowed == TOOL_FIELDS_MAX_TOOLS)
        return bad_request(err, "array_above_max_length", "tool_choice.allowed_tools.tools",
                           "tool_choice.allowed_tools.tools has too many entries: at most %d are "
                           "allowed",
                           TOOL_FIELDS_MAX_TOOLS);
    snprintf(path, sizeof(path), "tool_choice.allowed_tools.tools[%d]", (int)fields->num_allowed);
    if (!cJSON_IsObject(item))
        return json_refuse(item, path, "an object", err);
    const cJSON *type = json_given_member(item, "type");
    snprintf(at, sizeof(at), "%.40s.type", path);
    if (!is_text(type, "function"))
        return json_refuse(type, at, "\"function\" or \"custom\", the kinds of tools there are",
                           err);
    const cJSON *tool = find_named(item, path, fields, err);
    if (tool == NULL)
        return -1;
    fields->allowed[fields->num_allowed++] = tool_fields_name(tool);
    return 0;
}

static int read_allowed(const cJSON *choice, struct tool_fields *fields, struct api_error *err) {
    const cJSON *allowed = json_given_member(choice, "allowed_tools");
    const cJSON *mode = json_given_member(allowed, "mode");
    const cJSON *tools = json_given_member(allowed, "tools"), *item;
    if (!cJSON_IsObject(allowed))
        return json_refuse(allowed, "tool_choice.allowed_tools", "an object with mode and tools",
                           err);
    if (!is_text(mode, "auto") && !is_text(mode, "required"))
        return json_refuse(mode, "tool_choice.allowed_tools.mode", "\"auto\" or \"required\"", err);
    if (!cJSON_IsArray(tools) || tools->child == NULL)
        return json_refuse(tools, "tool_choice.allowed_tools.tools",
                           "an array of one or more tools", err);
    cJSON_ArrayForEach(item, tools) {
        if (read_allowed_tool(item, fields, err) != 0)
            return -1;
    }
    fields->choice = is_text(mode, "auto") ? TOOL_CHOICE_AUTO : TOOL_CHOICE_REQUIRED;
    return 0;
}

bool tool_fields_allow(const struct tool_fields *fields, const cJSON *tool) {
    if (fields->choice == TOOL_CHOICE_NAMED)
        return json_given_member(tool, "function") == fields->named;
    for (int32_t i = 0; i < fields->num_allowed; i++)
        if (strcmp(fields->allowed[i], tool_fields_name(tool)) == 0)
            return true;
    return fields->num_allowed == 0;
}

/* --- tool_choice --- */

static int read_object(const cJSON *choice, struct tool_fields *fields, struct api_error *err) {
    const cJSON *type = json_given_member(choice, "type");
    if (is_text(type, "allowed_tools"))
        return read_allowed(choice, fields, err);
    bool is_named = type == NULL && json_given_member(choice, "function") != NULL; /* TGI's form */
    if (is_text(type, "function") || is_named)
        return read_named(choice, fields, err);
    return json_refuse(type, "tool_choice.type", "\"function\", \"custom\" or \"allowed_tools\"",
                       err);
}

static int read_choice(const cJSON *body, struct tool_fields *fields, struct api_error *err) {
    const cJSON *choice = json_given_member(body, "tool_choice");
    fields->choice = fields->tools != NULL ? TOOL_CHOICE_AUTO : TOOL_CHOICE_NONE;
    if (choice == NULL)
        return 0;
    if (is_text(choice, "none")) {
        fields->choice = TOOL_CHOICE_NONE;
        return 0;
    }
    bool is_auto = is_text(choice, "auto"), is_required = is_text(choice, "required");
    if (!is_auto && !is_required && !cJSON_IsObject(choice))
        return json_refuse(choice, "tool_choice",
                           "\"none\", \"auto\", \"required\" or an object that names functions",
                           err);
    if (is_auto && fields->tools == NULL && json_given_member(body, "tools") != NULL)
        return 0; /* none of no tools */
    if (fields->tools == NULL)
        return bad_request(err, "missing_required_parameter", "tools",
                           "tool_choice needs tools, and there are none");
    if (cJSON_IsObject(choice))
        return read_object(choice, fields, err);
    fields->choice = is_auto ? TOOL_CHOICE_AUTO : TOOL_CHOICE_REQUIRED;
    return 0;
}

static int read_parallel(const cJSON *parallel, struct tool_fields *fields, struct api_error *err) {
    fields->allows_parallel = !cJSON_IsFalse(parallel);
    if (parallel != NULL && !cJSON_IsBool(parallel))
        return json_refuse(parallel, "parallel_tool_calls", "true or false", err);
    return 0;
}

int tool_fields_read(const cJSON *body, struct tool_fields *out, struct api_error *err) {
    struct tool_fields fields = {.allows_parallel = true};
    if (read_tools(json_given_member(body, "tools"), &fields, err) != 0 ||
        read_choice(body, &fields, err) != 0 ||
        read_parallel(json_given_member(body, "parallel_tool_calls"), &fields, err) != 0)
        return -1;
    *out = fields;
    return 0;
}
