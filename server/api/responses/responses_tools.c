#include "server/api/responses/responses_tools.h"

#include "config/base/log.h"
#include "server/api/chat/chat_translation.h"
#include "config/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define MAX_TOOLS 128
#define PATH_BYTES 64
#define SEPARATOR "__" /* as the names of MCP's tools have it */

struct reader {
    cJSON *chat, *tools; /* as made so far */
    struct api_error *err;
};

static int add(struct reader *reader, cJSON *object, const char *name, cJSON *member) {
    return chat_translation_add(object, name, member, reader->err);
}

static int refer(struct reader *reader, cJSON *object, const char *name, const cJSON *member) {
    return chat_translation_refer(object, name, member, reader->err);
}

static cJSON *add_object(struct reader *reader, cJSON *object, const char *name) {
    return add(reader, object, name, cJSON_CreateObject()) == 0
               ? cJSON_GetObjectItemCaseSensitive(object, name)
               : NULL;
}

static bool is_text(const cJSON *item, const char *value) {
    return cJSON_IsString(item) && strcmp(item->valuestring, value) == 0;
}

#define PASS_ON(reader, object, prefix, known)                                                     \
    CHAT_TRANSLATION_PASS_ON((reader)->chat, object, prefix, known, (reader)->err)

/* --- Namespaces --- */

static const char *separator_after(const char *space) {
    size_t length = strlen(space), n = strlen(SEPARATOR);
    return length >= n && strcmp(space + length - n, SEPARATOR) == 0 ? "" : SEPARATOR;
}

static cJSON *join(const char *space, const char *name) {
    struct byte_buffer text = {0};
    byte_buffer_printf(&text, "%s%s%s", space, separator_after(space), name);
    cJSON *made = text.failed ? NULL : cJSON_CreateString(text.data);
    byte_buffer_finish(&text);
    return made;
}

cJSON *responses_tools_name(const cJSON *item, const char *name) {
    const cJSON *space = json_given_member(item, "namespace");
    return cJSON_IsString(space) && space->valuestring[0] != '\0'
               ? join(space->valuestring, name)
               : cJSON_CreateStringReference(name);
}

void responses_tools_list(const cJSON *body, struct byte_buffer *names) {
    const cJSON *given, *tool;
    cJSON_ArrayForEach(given, json_given_member(body, "tools")) {
        if (!is_text(json_member(given, "type"), "namespace"))
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

/* --- Tools that are run elsewhere --- */

/* What agents send with every request, whether its model has it or not. */
static const char *const absent[] = {
    "web_search",       "web_search_2025_08_26",         "local_shell", "web_search_preview",
    "image_generation", "web_search_preview_2025_03_11", "tool_search",
};

static bool is_absent(const cJSON *tool) {
    const cJSON *type = json_member(tool, "type");
    return cJSON_IsString(type) && CHAT_TRANSLATION_HAS(absent, type->valuestring);
}

/* Has the tool named as ignored. */
static int leave_out(struct reader *reader, const cJSON *tool) {
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "tools.%.48s", json_member(tool, "type")->valuestring);
    return json_member(reader->chat, path) != NULL
               ? 0
               : add(reader, reader->chat, path, cJSON_CreateTrue());
}

static void log_absent(const struct reader *reader) {
    const cJSON *member;
    struct byte_buffer kinds = {0};
    cJSON_ArrayForEach(member, reader->chat) {
        if (strncmp(member->string, "tools.", strlen("tools.")) == 0)
            byte_buffer_printf(&kinds, "%s%s", kinds.length > 0 ? ", " : "",
                               member->string + strlen("tools."));
    }
    if (kinds.length > 0 && !kinds.failed)
        log_info("tools that are not run here are left out of a request: %s", kinds.data);
    byte_buffer_finish(&kinds);
}

/* --- Tools --- */

/* The grammar's members stand in the format itself here, in an object in the chat. */
static int read_format(struct reader *reader, const cJSON *format, cJSON *custom) {
    static const char *const members[] = {"type", "syntax", "definition"};
    if (!cJSON_IsObject(format) || !is_text(json_member(format, "type"), "grammar"))
        return refer(reader, custom, "format", format);
    cJSON *made = add_object(reader, custom, "format");
    if (made == NULL || refer(reader, made, members[0], json_member(format, members[0])) != 0)
        return -1;
    cJSON *grammar = add_object(reader, made, "grammar");
    if (grammar == NULL)
        return -1;
    for (size_t i = 1; i < sizeof(members) / sizeof(members[0]); i++)
        if (refer(reader, grammar, members[i], json_member(format, members[i])) != 0)
            return -1;
    return PASS_ON(reader, format, "tools[].format", members);
}

static int read_custom(struct reader *reader, const cJSON *tool, cJSON *custom) {
    static const char *const members[] = {"type", "name", "description", "format"};
    if (refer(reader, custom, members[2], json_member(tool, members[2])) != 0 ||
        read_format(reader, json_member(tool, members[3]), custom) != 0)
        return -1;
    return PASS_ON(reader, tool, "tools[]", members);
}

static int read_function(struct reader *reader, const cJSON *tool, cJSON *function) {
    static const char *const members[] = {"type", "name", "description", "parameters", "strict"};
    for (size_t i = 2; i < sizeof(members) / sizeof(members[0]); i++)
        if (refer(reader, function, members[i], json_member(tool, members[i])) != 0)
            return -1;
    return PASS_ON(reader, tool, "tools[]", members);
}

/* space: the namespace it is in; NULL: none. */
static int read_callable(struct reader *reader, const cJSON *tool, const char *path,
                         const char *space) {
    char inner[PATH_BYTES];
    const cJSON *type = json_member(tool, "type"), *name = json_member(tool, "name");
    bool is_custom = is_text(type, "custom");
    snprintf(inner, sizeof(inner), "%.48s.type", path);
    if (!is_custom && !is_text(type, "function"))
        return json_refuse(type, inner,
                           "\"function\", \"custom\" or \"namespace\", the kinds of tools here",
                           reader->err);
    snprintf(inner, sizeof(inner), "%.48s.name", path);
    if (space != NULL && !cJSON_IsString(name))
        return json_refuse(name, inner, "a string", reader->err);
    cJSON *made = chat_translation_append(reader->tools, cJSON_CreateObject(), reader->err);
    if (made == NULL || refer(reader, made, "type", type) != 0)
        return -1;
    cJSON *called = add_object(reader, made, type->valuestring);
    if (called == NULL)
        return -1;
    if (space != NULL ? add(reader, called, "name", join(space, name->valuestring)) != 0
                      : refer(reader, called, "name", name) != 0)
        return -1;
    return is_custom ? read_custom(reader, tool, called) : read_function(reader, tool, called);
}

/* Puts what a namespace says of itself in front of what its first tool does, once for all. */
static int describe(struct reader *reader, const cJSON *space, const cJSON *tool) {
    const cJSON *about = json_given_member(space, "description");
    cJSON *called =
        tool != NULL
            ? cJSON_GetObjectItemCaseSensitive(tool, json_member(tool, "type")->valuestring)
            : NULL;
    const cJSON *own = json_given_member(called, "description");
    if (about == NULL || about->valuestring[0] == '\0' || called == NULL ||
        (own != NULL && !cJSON_IsString(own)))
        return 0;
    struct byte_buffer text = {0};
    byte_buffer_printf(&text, "%s: %s%s%s", json_member(space, "name")->valuestring,
                       about->valuestring, own != NULL ? "\n\n" : "",
                       own != NULL ? own->valuestring : "");
    cJSON *made = text.failed ? NULL : cJSON_CreateString(text.data);
    byte_buffer_finish(&text);
    cJSON_DeleteItemFromObjectCaseSensitive(called, "description");
    return add(reader, called, "description", made);
}

static int read_namespace(struct reader *reader, const cJSON *given, const char *path) {
    static const char *const members[] = {"type", "name", "description", "tools"};
    char inner[PATH_BYTES];
    const cJSON *about = json_given_member(given, "description");
    const cJSON *name = json_member(given, "name"), *tools = json_member(given, "tools"), *tool;
    snprintf(inner, sizeof(inner), "%.48s.name", path);
    if (!cJSON_IsString(name) || name->valuestring[0] == '\0')
        return json_refuse(name, inner, "a string of one or more characters", reader->err);
    snprintf(inner, sizeof(inner), "%.48s.description", path);
    if (about != NULL && !cJSON_IsString(about))
        return json_refuse(about, inner, "a string", reader->err);
    snprintf(inner, sizeof(inner), "%.48s.tools", path);
    if (!cJSON_IsArray(tools) || cJSON_GetArraySize(tools) > MAX_TOOLS)
        return json_refuse(tools, inner, "an array of at most 128 tools", reader->err);
    int index = 0, first = cJSON_GetArraySize(reader->tools);
    cJSON_ArrayForEach(tool, tools) {
        snprintf(inner, sizeof(inner), "%.32s.tools[%d]", path, index++);
        if (!cJSON_IsObject(tool))
            return json_refuse(tool, inner, "an object", reader->err);
        if (read_callable(reader, tool, inner, name->valuestring) != 0)
            return -1;
    }
    return describe(reader, given, cJSON_GetArrayItem(reader->tools, first)) == 0
               ? PASS_ON(reader, given, "tools[]", members)
               : -1;
}

static int read_tool(struct reader *reader, const cJSON *tool, const char *path) {
    if (!cJSON_IsObject(tool))
        return json_refuse(tool, path, "an object", reader->err);
    if (is_absent(tool))
        return leave_out(reader, tool);
    if (is_text(json_member(tool, "type"), "namespace"))
        return read_namespace(reader, tool, path);
    return read_callable(reader, tool, path, NULL);
}

static int read_tools(struct reader *reader, const cJSON *given) {
    int index = 0;
    const cJSON *tool;
    if (!json_is_given(given))
        return 0;
    if (!cJSON_IsArray(given) || cJSON_GetArraySize(given) > MAX_TOOLS)
        return json_refuse(given, "tools", "an array of at most 128 tools", reader->err);
    reader->tools = cJSON_AddArrayToObject(reader->chat, "tools");
    if (reader->tools == NULL)
        return api_error_set_memory(reader->err);
    cJSON_ArrayForEach(tool, given) {
        char path[32];
        snprintf(path, sizeof(path), "tools[%d]", index++);
        if (read_tool(reader, tool, path) != 0)
            return -1;
    }
    log_absent(reader);
    return 0;
}

/* Writes the path of the chat's tool of this number in the body; false: the body has fewer. */
static bool find_path(const cJSON *body, int number, char *out, size_t capacity) {
    int index = 0;
    const cJSON *tool;
    cJSON_ArrayForEach(tool, json_member(body, "tools")) {
        bool is_space = is_text(json_member(tool, "type"), "namespace");
        int count = is_absent(tool) ? 0
                    : is_space      ? cJSON_GetArraySize(json_member(tool, "tools"))
                                    : 1;
        if (number < count) {
            int length = snprintf(out, capacity, "tools[%d]", index);
            if (is_space)
                snprintf(out + length, capacity - (size_t)length, ".tools[%d]", number);
            return true;
        }
        number -= count;
        index++;
    }
    return false;
}

void responses_tools_rename_error(const cJSON *body, struct api_error *err) {
    int number, length = 0;
    char path[PATH_BYTES], text[sizeof(err->message)];
    if (sscanf(err->param, "tools[%d]%n", &number, &length) != 1 || length == 0 ||
        !find_path(body, number, path, sizeof(path)) ||
        (strlen(path) == (size_t)length && memcmp(path, err->param, (size_t)length) == 0))
        return;
    bool is_first = strncmp(err->message, err->param, (size_t)length) == 0;
    snprintf(text, sizeof(text), "%.23s%.480s", path, err->message + length);
    if (is_first)
        memcpy(err->message, text, sizeof(text));
    snprintf(text, sizeof(text), "%.23s%.40s", path, err->param + length);
    memcpy(err->param, text, sizeof(err->param));
}

/* --- tool_choice --- */

/* Converts {"type":"function","name":...}, or the same of "custom", to the chat's form. */
static int read_named(struct reader *reader, const cJSON *choice, cJSON *made) {
    const cJSON *type = json_member(choice, "type"), *name = json_member(choice, "name");
    if (refer(reader, made, "type", type) != 0)
        return -1;
    cJSON *called = add_object(reader, made, is_text(type, "custom") ? "custom" : "function");
    if (called == NULL)
        return -1;
    return cJSON_IsString(name)
               ? add(reader, called, "name", responses_tools_name(choice, name->valuestring))
               : refer(reader, called, "name", name);
}

static int read_allowed(struct reader *reader, const cJSON *choice, cJSON *made) {
    const cJSON *tools = json_member(choice, "tools"), *tool;
    if (refer(reader, made, "type", json_member(choice, "type")) != 0)
        return -1;
    cJSON *allowed = add_object(reader, made, "allowed_tools");
    if (allowed == NULL || refer(reader, allowed, "mode", json_member(choice, "mode")) != 0)
        return -1;
    if (!cJSON_IsArray(tools))
        return refer(reader, allowed, "tools", tools);
    if (add(reader, allowed, "tools", cJSON_CreateArray()) != 0)
        return -1;
    cJSON *list = cJSON_GetObjectItemCaseSensitive(allowed, "tools");
    cJSON_ArrayForEach(tool, tools) {
        bool is_object = cJSON_IsObject(tool);
        if (is_object && is_absent(tool))
            continue;
        cJSON *item = chat_translation_append(
            list, is_object ? cJSON_CreateObject() : chat_translation_reference(tool), reader->err);
        if (item == NULL || (is_object && read_named(reader, tool, item) != 0))
            return -1;
    }
    return 0;
}

static int read_choice(struct reader *reader, const cJSON *choice) {
    if (is_text(choice, "auto"))
        return 0; /* the default, also where there are no tools */
    if (!cJSON_IsObject(choice))
        return refer(reader, reader->chat, "tool_choice", choice);
    const cJSON *type = json_member(choice, "type");
    bool is_allowed = is_text(type, "allowed_tools");
    if (!is_allowed && !is_text(type, "function") && !is_text(type, "custom"))
        return json_refuse(type, "tool_choice.type",
                           "\"function\", \"custom\" or \"allowed_tools\"", reader->err);
    cJSON *made = add_object(reader, reader->chat, "tool_choice");
    if (made == NULL)
        return -1;
    return is_allowed ? read_allowed(reader, choice, made) : read_named(reader, choice, made);
}

int responses_tools_read(const cJSON *body, cJSON *chat, struct api_error *err) {
    struct reader reader = {.chat = chat, .err = err};
    return read_tools(&reader, json_member(body, "tools")) == 0
               ? read_choice(&reader, json_member(body, "tool_choice"))
               : -1;
}
