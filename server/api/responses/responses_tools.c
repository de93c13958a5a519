#include "server/api/responses/responses_body.h"

#include "config/base/log.h"
#include "config/json/json_field.h"
#include "server/api/conversation/tools.h"

#include <stdio.h>
#include <string.h>

#define SEPARATOR "__" /* as in the names of MCP's tools */

struct reader {
    struct conversation *out;
    unsigned absent;          /* one bit for each kind that was left out */
    struct byte_buffer kinds; /* the same kinds as a list for the log, in order */
    struct api_error *err;
};

/* --- Namespaces --- */

static const char *separator_after(const char *space) {
    size_t length = strlen(space), n = strlen(SEPARATOR);
    return length >= n && strcmp(space + length - n, SEPARATOR) == 0 ? "" : SEPARATOR;
}

static const cJSON *join(struct conversation *conversation, const char *space, const char *name,
                         struct api_error *err) {
    struct byte_buffer text = {0};
    byte_buffer_printf(&text, "%s%s%s", space, separator_after(space), name);
    cJSON *made = text.failed ? NULL : cJSON_CreateString(text.data);
    byte_buffer_finish(&text);
    return conversation_own(conversation, made, err);
}

const cJSON *responses_tools_name(struct conversation *conversation, const cJSON *item,
                                  struct api_error *err) {
    const cJSON *space = json_given_member(item, "namespace"), *name = json_member(item, "name");
    return cJSON_IsString(space) && space->valuestring[0] != '\0'
               ? join(conversation, space->valuestring, name->valuestring, err)
               : name;
}

void responses_tools_list(const cJSON *body, struct byte_buffer *names) {
    const cJSON *given, *tool;
    cJSON_ArrayForEach(given, json_given_member(body, "tools")) {
        if (!json_is_text(json_member(given, "type"), "namespace"))
            continue;
        cJSON_ArrayForEach(tool, json_member(given, "tools")) {
            const char *space = json_member(given, "name")->valuestring,
                       *name = json_member(tool, "name")->valuestring;
            byte_buffer_append(names, space, strlen(space) + 1);
            byte_buffer_append(names, name, strlen(name) + 1);
        }
    }
}

bool responses_tools_find(const struct byte_buffer *names, struct text function,
                          const char **out_namespace, const char **out_name) {
    for (size_t at = 0; at < names->length;) {
        const char *space = names->data + at, *name = space + strlen(space) + 1;
        const char *separator = separator_after(space);
        size_t head = strlen(space), middle = strlen(separator), tail = strlen(name);
        at += head + 1 + tail + 1;
        if (function.length != head + middle + tail || memcmp(function.data, space, head) != 0 ||
            memcmp(function.data + head, separator, middle) != 0 ||
            memcmp(function.data + head + middle, name, tail) != 0)
            continue;
        *out_namespace = space;
        *out_name = name;
        return true;
    }
    return false;
}

/* --- Tools that run elsewhere --- */

/* Tools that agents send with every request, whether the model supports them or not. */
static const char *const absent[] = {
    "web_search",       "web_search_2025_08_26",         "local_shell", "web_search_preview",
    "image_generation", "web_search_preview_2025_03_11", "tool_search",
};
#define NUM_ABSENT (sizeof(absent) / sizeof(absent[0]))

/* Returns the number of the tool's kind among these, NUM_ABSENT if it is none of them. */
static size_t find_absent(const cJSON *tool) {
    const cJSON *type = json_member(tool, "type");
    size_t i = 0;
    while (i < NUM_ABSENT && !json_is_text(type, absent[i]))
        i++;
    return i;
}

/* Makes the tool be listed as ignored. */
static void leave_out(struct reader *reader, size_t kind) {
    char name[64];
    snprintf(name, sizeof(name), "tools.%s", absent[kind]);
    conversation_ignore(reader->out, name);
    if ((reader->absent >> kind & 1) == 0)
        byte_buffer_printf(&reader->kinds, "%s%s", reader->absent != 0 ? ", " : "", absent[kind]);
    reader->absent |= 1u << kind;
}

/* --- Tools --- */

static void ignore_members(struct reader *reader, const cJSON *tool, bool is_custom) {
    static const char *const of_function[] = {"type", "name", "description", "parameters",
                                              "strict"},
                             *const of_custom[] = {"type", "name", "description", "format"},
                             *const of_grammar[] = {"type", "syntax", "definition"};
    const cJSON *format = json_member(tool, "format");
    if (!is_custom) {
        CONVERSATION_IGNORE(reader->out, tool, "tools[]", of_function);
        return;
    }
    if (cJSON_IsObject(format) && json_is_text(json_member(format, "type"), "grammar"))
        CONVERSATION_IGNORE(reader->out, format, "tools[].format", of_grammar);
    CONVERSATION_IGNORE(reader->out, tool, "tools[]", of_custom);
}

/* source: what is known of its namespace, without the tool's object and path. */
static int read_callable(struct reader *reader, const cJSON *tool, const struct json_path *path,
                         struct tool_source source) {
    const cJSON *type = json_member(tool, "type");
    bool is_custom = json_is_text(type, "custom");
    if (!is_custom && !json_is_text(type, "function"))
        return json_refuse_at(type, JSON_MEMBER_PATH(path, "type"),
                              "\"function\", \"custom\" or \"namespace\"", reader->err);
    source.object = tool;
    source.path = path;
    source.schema_name = "parameters";
    source.has_flat_grammar = true;
    ignore_members(reader, tool, is_custom);
    return is_custom ? tools_add_custom(reader->out, &source, reader->err)
                     : tools_add_function(reader->out, &source, reader->err);
}

/* Puts the description of a namespace before that of its first tool, once for all its tools. */
static int describe(struct reader *reader, const cJSON *space, const cJSON *tool,
                    const cJSON **out) {
    const cJSON *about = json_given_member(space, "description"),
                *own = json_given_member(tool, "description");
    if (about == NULL || about->valuestring[0] == '\0' || (own != NULL && !cJSON_IsString(own)))
        return 0;
    struct byte_buffer text = {0};
    byte_buffer_printf(&text, "%s: %s%s%s", json_member(space, "name")->valuestring,
                       about->valuestring, own != NULL ? "\n\n" : "",
                       own != NULL ? own->valuestring : "");
    cJSON *made = text.failed ? NULL : cJSON_CreateString(text.data);
    byte_buffer_finish(&text);
    *out = conversation_own(reader->out, made, reader->err);
    return *out != NULL ? 0 : -1;
}

static int read_tool_of(struct reader *reader, const cJSON *space, const cJSON *tool,
                        const struct json_path *path, bool is_first) {
    const cJSON *name = json_member(tool, "name");
    struct tool_source source = {0};
    if (!cJSON_IsObject(tool))
        return json_refuse_at(tool, path, "an object", reader->err);
    if (!cJSON_IsString(name))
        return json_refuse_at(name, JSON_MEMBER_PATH(path, "name"), "a string", reader->err);
    source.name =
        join(reader->out, json_member(space, "name")->valuestring, name->valuestring, reader->err);
    if (source.name == NULL ||
        (is_first && describe(reader, space, tool, &source.description) != 0))
        return -1;
    return read_callable(reader, tool, path, source);
}

static int read_namespace(struct reader *reader, const cJSON *given, const struct json_path *path) {
    static const char *const members[] = {"type", "name", "description", "tools"};
    const struct json_path *tools_path = JSON_MEMBER_PATH(path, "tools");
    const cJSON *about = json_given_member(given, "description");
    const cJSON *name = json_member(given, "name"), *tools = json_member(given, "tools"), *tool;
    int index = 0;
    if (!cJSON_IsString(name) || name->valuestring[0] == '\0')
        return json_refuse_at(name, JSON_MEMBER_PATH(path, "name"),
                              "a string of one or more characters", reader->err);
    if (about != NULL && !cJSON_IsString(about))
        return json_refuse_at(about, JSON_MEMBER_PATH(path, "description"), "a string",
                              reader->err);
    if (!cJSON_IsArray(tools) || cJSON_GetArraySize(tools) > CONVERSATION_MAX_TOOLS)
        return json_refuse_at(tools, tools_path, "an array of at most 128 tools", reader->err);
    cJSON_ArrayForEach(tool, tools) {
        if (read_tool_of(reader, given, tool, JSON_ITEM_PATH(tools_path, index), index == 0) != 0)
            return -1;
        index++;
    }
    CONVERSATION_IGNORE(reader->out, given, "tools[]", members);
    return 0;
}

static int read_tool(struct reader *reader, const cJSON *tool, const struct json_path *path) {
    size_t kind = find_absent(tool);
    if (!cJSON_IsObject(tool))
        return json_refuse_at(tool, path, "an object", reader->err);
    if (json_is_text(json_member(tool, "type"), "namespace"))
        return read_namespace(reader, tool, path);
    if (kind == NUM_ABSENT)
        return read_callable(reader, tool, path, (struct tool_source){0});
    leave_out(reader, kind);
    return 0;
}

static int read_tools(struct reader *reader, const cJSON *given) {
    const struct json_path *path = JSON_MEMBER_PATH(NULL, "tools");
    const cJSON *tool;
    int index = 0;
    if (given != NULL &&
        (!cJSON_IsArray(given) || cJSON_GetArraySize(given) > CONVERSATION_MAX_TOOLS))
        return json_refuse_at(given, path, "an array of at most 128 tools", reader->err);
    cJSON_ArrayForEach(tool, given) {
        if (read_tool(reader, tool, JSON_ITEM_PATH(path, index++)) != 0)
            return -1;
    }
    if (reader->kinds.length > 0 && !reader->kinds.failed)
        log_info("tools that are not run here are left out of a request: %s", reader->kinds.data);
    return 0;
}

/* --- tool_choice --- */

/* Reads {"type":"function","name":...}, or the same form of "custom". */
static int read_named(struct reader *reader, const cJSON *item, const struct json_path *path,
                      bool is_listed) {
    const cJSON *name = json_given_member(item, "name");
    bool is_custom = json_is_text(json_member(item, "type"), "custom");
    if (cJSON_IsString(name) &&
        (name = responses_tools_name(reader->out, item, reader->err)) == NULL)
        return -1;
    return (is_listed ? tools_allow : tools_choose)(
        reader->out, name, JSON_MEMBER_PATH(path, "name"), is_custom, reader->err);
}

static int read_allowed_tool(struct reader *reader, const cJSON *item,
                             const struct json_path *path) {
    const cJSON *type = json_given_member(item, "type");
    if (!cJSON_IsObject(item))
        return json_refuse_at(item, path, "an object", reader->err);
    if (find_absent(item) < NUM_ABSENT)
        return 0;
    if (!json_is_text(type, "function") && !json_is_text(type, "custom"))
        return json_refuse_at(type, JSON_MEMBER_PATH(path, "type"), "\"function\" or \"custom\"",
                              reader->err);
    return read_named(reader, item, path, true);
}

static int read_allowed(struct reader *reader, const cJSON *choice, const struct json_path *path) {
    const cJSON *mode = json_given_member(choice, "mode"),
                *tools = json_given_member(choice, "tools"), *item;
    const struct json_path *tools_path = JSON_MEMBER_PATH(path, "tools");
    int index = 0;
    if (!json_is_text(mode, "auto") && !json_is_text(mode, "required"))
        return json_refuse_at(mode, JSON_MEMBER_PATH(path, "mode"), "\"auto\" or \"required\"",
                              reader->err);
    if (cJSON_GetArraySize(tools) > CONVERSATION_MAX_TOOLS)
        return bad_request_at(reader->err, "array_above_max_length", tools_path,
                              " has too many entries: at most %d are allowed",
                              CONVERSATION_MAX_TOOLS);
    for (item = cJSON_IsArray(tools) ? tools->child : NULL; item != NULL; item = item->next)
        if (read_allowed_tool(reader, item, JSON_ITEM_PATH(tools_path, index++)) != 0)
            return -1;
    if (!reader->out->has_allowed_tools)
        return json_refuse_at(tools, tools_path, "an array of one or more tools", reader->err);
    reader->out->tool_choice = json_is_text(mode, "auto") ? TOOL_CHOICE_AUTO : TOOL_CHOICE_REQUIRED;
    return 0;
}

static int read_object(struct reader *reader, const cJSON *choice, const struct json_path *path) {
    const cJSON *type = json_member(choice, "type");
    bool is_allowed = json_is_text(type, "allowed_tools");
    if (!is_allowed && !json_is_text(type, "function") && !json_is_text(type, "custom"))
        return json_refuse_at(type, JSON_MEMBER_PATH(path, "type"),
                              "\"function\", \"custom\" or \"allowed_tools\"", reader->err);
    if (tools_set_choice(reader->out, TOOL_CHOICE_AUTO, reader->err) != 0)
        return -1;
    return is_allowed ? read_allowed(reader, choice, path)
                      : read_named(reader, choice, path, false);
}

static int read_choice(struct reader *reader, const cJSON *choice) {
    const struct json_path *path = JSON_MEMBER_PATH(NULL, "tool_choice");
    tools_set_default(reader->out);
    if (choice == NULL ||
        json_is_text(choice, "auto")) /* the default, also if there are no tools */
        return 0;
    if (json_is_text(choice, "none"))
        return tools_set_choice(reader->out, TOOL_CHOICE_NONE, reader->err);
    if (json_is_text(choice, "required"))
        return tools_set_choice(reader->out, TOOL_CHOICE_REQUIRED, reader->err);
    if (cJSON_IsObject(choice))
        return read_object(reader, choice, path);
    return json_refuse_at(choice, path,
                          "\"none\", \"auto\", \"required\" or an object that names functions",
                          reader->err);
}

int responses_tools_read(const cJSON *body, struct conversation *out, struct api_error *err) {
    struct reader reader = {.out = out, .err = err};
    int result = read_tools(&reader, json_given_member(body, "tools"));
    byte_buffer_finish(&reader.kinds);
    if (result != 0 || read_choice(&reader, json_given_member(body, "tool_choice")) != 0)
        return -1;
    return tools_read_parallel(body, out, err);
}
