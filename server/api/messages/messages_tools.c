#include "server/api/messages/messages_tools.h"

#include "server/api/chat/chat_translation.h"
#include "server/api/tools/tool_fields.h"
#include "config/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define MAX_PATH 48

struct reader {
    const cJSON *body;
    cJSON *chat;
    struct api_error *err;
};

static int add(struct reader *reader, cJSON *object, const char *name, cJSON *member) {
    return chat_translation_add(object, name, member, reader->err);
}

static int refer(struct reader *reader, cJSON *object, const char *name, const cJSON *member) {
    return chat_translation_refer(object, name, member, reader->err);
}

/* --- tools --- */

static int check_tool(struct reader *reader, const cJSON *tool, const char *path) {
    char inner[MAX_PATH];
    const cJSON *type = json_given_member(tool, "type"),
                *schema = json_member(tool, "input_schema");
    if (!cJSON_IsObject(tool))
        return json_refuse(tool, path, "an object", reader->err);
    snprintf(inner, sizeof(inner), "%s.type", path);
    if (type != NULL && !cJSON_IsString(type))
        return json_refuse(type, inner, "\"custom\"", reader->err);
    if (type != NULL && strcmp(type->valuestring, "custom") != 0)
        return bad_request(reader->err, "unsupported_value", inner,
                           "%s is \"%.40s\": this server runs no tools and knows none by name; "
                           "only tools with an input_schema (\"custom\") are taken",
                           inner, type->valuestring);
    snprintf(inner, sizeof(inner), "%s.input_schema", path);
    return cJSON_IsObject(schema)
               ? 0
               : json_refuse(schema, inner, "an object, a JSON schema", reader->err);
}

static int read_tool(struct reader *reader, const cJSON *tool, const char *path, cJSON *tools) {
    static const char *const known[] = {"type", "name", "description", "input_schema", "strict"};
    if (check_tool(reader, tool, path) != 0)
        return -1;
    cJSON *made = chat_translation_append(tools, cJSON_CreateObject(), reader->err);
    if (made == NULL || chat_translation_add_text(made, "type", "function", reader->err) != 0 ||
        add(reader, made, "function", cJSON_CreateObject()) != 0)
        return -1;
    cJSON *function = cJSON_GetObjectItemCaseSensitive(made, "function");
    if (refer(reader, function, "name", json_member(tool, "name")) != 0 ||
        refer(reader, function, "description", json_member(tool, "description")) != 0 ||
        refer(reader, function, "parameters", json_member(tool, "input_schema")) != 0 ||
        refer(reader, function, "strict", json_member(tool, "strict")) != 0)
        return -1;
    return CHAT_TRANSLATION_PASS_ON(reader->chat, tool, "tools[]", known, reader->err);
}

static int read_tools(struct reader *reader) {
    const cJSON *given = json_given_member(reader->body, "tools"), *tool;
    if (given == NULL)
        return 0;
    if (!cJSON_IsArray(given) || cJSON_GetArraySize(given) > TOOL_FIELDS_MAX_TOOLS)
        return json_refuse(given, "tools", "an array of at most 128 tools", reader->err);
    if (add(reader, reader->chat, "tools", cJSON_CreateArray()) != 0)
        return -1;
    cJSON *tools = cJSON_GetObjectItemCaseSensitive(reader->chat, "tools");
    int index = 0;
    cJSON_ArrayForEach(tool, given) {
        char path[MAX_PATH / 2];
        snprintf(path, sizeof(path), "tools[%d]", index++);
        if (read_tool(reader, tool, path, tools) != 0)
            return -1;
    }
    return 0;
}

/* --- tool_choice --- */

static int read_parallel(struct reader *reader, const cJSON *choice) {
    const cJSON *is_disabled = json_given_member(choice, "disable_parallel_tool_use");
    if (is_disabled == NULL)
        return 0;
    if (!cJSON_IsBool(is_disabled))
        return json_refuse(is_disabled, "tool_choice.disable_parallel_tool_use", "true or false",
                           reader->err);
    return add(reader, reader->chat, "parallel_tool_calls",
               cJSON_CreateBool(cJSON_IsFalse(is_disabled)));
}

/* Adds {"type":"function","function":{"name":...}}. */
static int add_named(struct reader *reader, const cJSON *choice) {
    if (add(reader, reader->chat, "tool_choice", cJSON_CreateObject()) != 0)
        return -1;
    cJSON *made = cJSON_GetObjectItemCaseSensitive(reader->chat, "tool_choice");
    if (chat_translation_add_text(made, "type", "function", reader->err) != 0 ||
        add(reader, made, "function", cJSON_CreateObject()) != 0)
        return -1;
    return refer(reader, cJSON_GetObjectItemCaseSensitive(made, "function"), "name",
                 json_member(choice, "name"));
}

static int read_choice(struct reader *reader) {
    static const char *const known[] = {"type", "name", "disable_parallel_tool_use"};
    const cJSON *choice = json_given_member(reader->body, "tool_choice"),
                *type = json_member(choice, "type");
    const char *word = cJSON_IsString(type) ? type->valuestring : "";
    if (choice == NULL)
        return 0;
    if (!cJSON_IsObject(choice))
        return json_refuse(choice, "tool_choice", "an object with a type", reader->err);
    if (read_parallel(reader, choice) != 0 ||
        CHAT_TRANSLATION_PASS_ON(reader->chat, choice, "tool_choice", known, reader->err) != 0)
        return -1;
    if (strcmp(word, "auto") == 0)
        return 0; /* the default, also where there are no tools */
    if (strcmp(word, "any") == 0)
        return chat_translation_add_text(reader->chat, "tool_choice", "required", reader->err);
    if (strcmp(word, "none") == 0)
        return chat_translation_add_text(reader->chat, "tool_choice", "none", reader->err);
    if (strcmp(word, "tool") == 0)
        return add_named(reader, choice);
    return json_refuse(type, "tool_choice.type", "\"auto\", \"any\", \"tool\" or \"none\"",
                       reader->err);
}

int messages_tools_read(const cJSON *body, cJSON *chat, struct api_error *err) {
    struct reader reader = {.body = body, .chat = chat, .err = err};
    return read_tools(&reader) == 0 ? read_choice(&reader) : -1;
}
