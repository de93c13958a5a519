#include "server/api/messages/messages_body.h"

#include "config/json/json_field.h"
#include "server/api/conversation/tools.h"

#include <string.h>

#define SCHEMA_NAME "input_schema"

/* --- tools --- */

static int read_tool(const cJSON *tool, const struct json_path *path, struct conversation *out,
                     struct api_error *err) {
    static const char *const known[] = {"type", "name", "description", SCHEMA_NAME, "strict"};
    const struct json_path *type_path = JSON_MEMBER_PATH(path, "type");
    const cJSON *type = json_given_member(tool, "type"), *schema = json_member(tool, SCHEMA_NAME);
    if (!cJSON_IsObject(tool))
        return json_refuse_at(tool, path, "an object", err);
    if (type != NULL && !cJSON_IsString(type))
        return json_refuse_at(type, type_path, "\"custom\"", err);
    if (type != NULL && strcmp(type->valuestring, "custom") != 0)
        return bad_request_at(err, "unsupported_value", type_path,
                              " is \"%.40s\": this server runs no tools and knows none by name; "
                              "only tools with an input_schema (\"custom\") are taken",
                              type->valuestring);
    if (!cJSON_IsObject(schema))
        return json_refuse_at(schema, JSON_MEMBER_PATH(path, SCHEMA_NAME),
                              "an object, a JSON schema", err);
    CONVERSATION_IGNORE(out, tool, "tools[]", known);
    const struct tool_source source = {.object = tool, .path = path, .schema_name = SCHEMA_NAME};
    return tools_add_function(out, &source, err);
}

static int read_tools(const cJSON *tools, struct conversation *out, struct api_error *err) {
    const struct json_path *path = JSON_MEMBER_PATH(NULL, "tools");
    const cJSON *tool;
    int index = 0;
    if (tools != NULL &&
        (!cJSON_IsArray(tools) || cJSON_GetArraySize(tools) > CONVERSATION_MAX_TOOLS))
        return json_refuse_at(tools, path, "an array of at most 128 tools", err);
    cJSON_ArrayForEach(tool, tools) {
        if (read_tool(tool, JSON_ITEM_PATH(path, index++), out, err) != 0)
            return -1;
    }
    return 0;
}

/* --- tool_choice --- */

static int read_parallel(const cJSON *choice, const struct json_path *path,
                         struct conversation *out, struct api_error *err) {
    static const char name[] = "disable_parallel_tool_use";
    const cJSON *is_disabled = json_given_member(choice, name);
    if (is_disabled != NULL && !cJSON_IsBool(is_disabled))
        return json_refuse_at(is_disabled, JSON_MEMBER_PATH(path, name), "true or false", err);
    out->allows_parallel = !cJSON_IsTrue(is_disabled);
    return 0;
}

static int read_choice(const cJSON *choice, struct conversation *out, struct api_error *err) {
    static const char *const known[] = {"type", "name", "disable_parallel_tool_use"};
    const struct json_path *path = JSON_MEMBER_PATH(NULL, "tool_choice");
    const cJSON *type = json_member(choice, "type");
    const char *word = cJSON_IsString(type) ? type->valuestring : "";
    tools_set_default(out);
    if (choice == NULL)
        return 0;
    if (!cJSON_IsObject(choice))
        return json_refuse_at(choice, path, "an object with a type", err);
    if (read_parallel(choice, path, out, err) != 0)
        return -1;
    CONVERSATION_IGNORE(out, choice, "tool_choice", known);
    if (strcmp(word, "auto") == 0)
        return 0; /* the default, also if there are no tools */
    if (strcmp(word, "none") == 0)
        return tools_set_choice(out, TOOL_CHOICE_NONE, err);
    if (strcmp(word, "any") != 0 && strcmp(word, "tool") != 0)
        return json_refuse_at(type, JSON_MEMBER_PATH(path, "type"),
                              "\"auto\", \"any\", \"tool\" or \"none\"", err);
    if (tools_set_choice(out, TOOL_CHOICE_REQUIRED, err) != 0)
        return -1;
    return strcmp(word, "any") == 0 ? 0
                                    : tools_choose(out, json_given_member(choice, "name"),
                                                   JSON_MEMBER_PATH(path, "name"), false, err);
}

int messages_tools_read(const cJSON *body, struct conversation *out, struct api_error *err) {
    return read_tools(json_given_member(body, "tools"), out, err) == 0
               ? read_choice(json_given_member(body, "tool_choice"), out, err)
               : -1;
}
