/* Each reader takes an item and the path that names it in messages, and returns -1 with *err for
 * what is refused. A value that the arena could not take is NULL, and so is all that is made of it:
 * that is looked at once per message. */
#include "server/api/chat_messages.h"

#include "server/api/chat_value.h"
#include "server/byte_buffer.h"
#include "server/json/json_field.h"
#include "server/json/json_parse.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 64
#define MAX_TOOL_CALLS 128

struct reader {
    struct template_arena *arena;
    const struct chat_message_form *form;
    struct api_error *err;
};

int chat_messages_fail_arena(const struct template_arena *arena, struct api_error *err) {
    if (template_arena_is_full(arena))
        return api_error_set(err, 400, "invalid_request_error", "out_of_range", "messages",
                             "messages and tools together are too large for the chat template");
    return api_error_set(err, 500, "server_error", NULL, NULL,
                         "Not enough memory to read the messages");
}

static const cJSON *member(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNull(item) ? NULL : item;
}

static bool is_one_of(const char *text, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return true;
    return false;
}

#define IS_ONE_OF(text, names) is_one_of(text, names, sizeof(names) / sizeof((names)[0]))

/* --- Content --- */

static int refuse_content(const struct reader *reader, const char *path, const char *type) {
    char at[PATH_BYTES];
    snprintf(at, sizeof(at), "%.40s.type", path);
    return api_error_set(reader->err, 400, "invalid_request_error", "unsupported_content", at,
                         "%s is \"%.40s\": this server takes text only", at, type);
}

/* The text of one part; NULL with *err. */
static const char *part_text(const struct reader *reader, const cJSON *part, const char *path) {
    static const char *const text_types[] = {"text", "input_text", "output_text"};
    char at[PATH_BYTES];
    if (cJSON_IsString(part))
        return part->valuestring;
    if (!cJSON_IsObject(part)) {
        json_refuse(part, path, "an object with type and text", reader->err);
        return NULL;
    }
    const cJSON *type = member(part, "type");
    snprintf(at, sizeof(at), "%.40s.type", path);
    if (!cJSON_IsString(type)) {
        json_refuse(type, at, "\"text\"", reader->err);
        return NULL;
    }
    bool is_refusal = strcmp(type->valuestring, "refusal") == 0;
    if (!is_refusal && !IS_ONE_OF(type->valuestring, text_types)) {
        refuse_content(reader, path, type->valuestring);
        return NULL;
    }
    const char *name = is_refusal ? "refusal" : "text";
    const cJSON *text = member(part, name);
    snprintf(at, sizeof(at), "%.40s.%s", path, name);
    if (!cJSON_IsString(text)) {
        json_refuse(text, at, "a string", reader->err);
        return NULL;
    }
    return text->valuestring;
}

static int join_parts(const struct reader *reader, const cJSON *parts, const char *path,
                      struct byte_buffer *out) {
    int index = 0;
    const cJSON *part;
    cJSON_ArrayForEach(part, parts) {
        char at[PATH_BYTES];
        snprintf(at, sizeof(at), "%.40s[%d]", path, index);
        const char *text = part_text(reader, part, at);
        if (text == NULL)
            return -1;
        if (index++ > 0)
            byte_buffer_append(out, "\n", 1);
        byte_buffer_append_text(out, text);
    }
    return 0;
}

static int join_content(const struct reader *reader, const cJSON *content, const char *path,
                        const char *suffix, struct byte_buffer *out) {
    if (cJSON_IsString(content))
        byte_buffer_append_text(out, content->valuestring);
    else if (cJSON_IsArray(content)) {
        if (join_parts(reader, content, path, out) != 0)
            return -1;
    } else
        return json_refuse(content, path, "a string or an array of text parts", reader->err);
    byte_buffer_append_text(out, suffix);
    return out->failed ? chat_messages_fail_arena(reader->arena, reader->err) : 0;
}

/* content of the message that is at path; suffix: for the last one, else empty. */
static int set_content(const struct reader *reader, const cJSON *message, const char *path,
                       bool may_be_null, const char *suffix, struct template_value **map) {
    const cJSON *content = member(message, "content");
    struct template_arena *arena = reader->arena;
    if (content == NULL && may_be_null && suffix[0] == '\0') {
        chat_value_set(arena, map, "content",
                       reader->form->has_null_content ? template_none(arena)
                                                      : chat_value_text(arena, ""));
        return 0;
    }
    char at[PATH_BYTES];
    struct byte_buffer text = {0};
    snprintf(at, sizeof(at), "%.40s.content", path);
    int result = join_content(reader, content, at, suffix, &text);
    if (result == 0)
        chat_value_set(arena, map, "content",
                       template_string(arena, text.length > 0 ? text.data : "", text.length,
                                       TEMPLATE_ORIGIN_CLIENT));
    byte_buffer_finish(&text);
    return result;
}

/* --- Tool calls --- */

/* A map where it is the text of an object; as it is where it is some other text. */
static struct template_value *arguments_value(const struct reader *reader, const cJSON *arguments) {
    if (arguments == NULL)
        return template_map(reader->arena);
    if (cJSON_IsObject(arguments))
        return chat_value_of(reader->arena, arguments);
    const char *text = arguments->valuestring;
    struct api_error why;
    if (text[0] == '\0')
        return template_map(reader->arena);
    cJSON *json = json_parse(text, strlen(text), &why);
    if (json == NULL)
        return why.status == 400 ? chat_value_text(reader->arena, text) : NULL;
    struct template_value *value = chat_value_of(reader->arena, json);
    cJSON_Delete(json);
    return value;
}

static int read_function(const struct reader *reader, const cJSON *function, const char *path,
                         struct template_value **out) {
    char at[PATH_BYTES];
    const cJSON *name = member(function, "name"), *arguments = member(function, "arguments");
    if (!cJSON_IsObject(function))
        return json_refuse(function, path, "an object", reader->err);
    snprintf(at, sizeof(at), "%.40s.name", path);
    if (!cJSON_IsString(name) || name->valuestring[0] == '\0')
        return json_refuse(name, at, "the name of a function", reader->err);
    snprintf(at, sizeof(at), "%.40s.arguments", path);
    if (arguments != NULL && !cJSON_IsString(arguments) && !cJSON_IsObject(arguments))
        return json_refuse(arguments, at, "a string, the text of a JSON object", reader->err);
    struct template_value *map = template_map(reader->arena);
    chat_value_set(reader->arena, &map, "name", chat_value_text(reader->arena, name->valuestring));
    chat_value_set(reader->arena, &map, "arguments", arguments_value(reader, arguments));
    *out = map;
    return 0;
}

static int read_tool_call(const struct reader *reader, const cJSON *call, const char *path,
                          struct template_value **out) {
    char at[PATH_BYTES];
    const cJSON *id = member(call, "id"), *type = member(call, "type");
    if (!cJSON_IsObject(call))
        return json_refuse(call, path, "an object", reader->err);
    snprintf(at, sizeof(at), "%.40s.id", path);
    if (id != NULL && !cJSON_IsString(id))
        return json_refuse(id, at, "a string", reader->err);
    snprintf(at, sizeof(at), "%.40s.type", path);
    if (type != NULL && (!cJSON_IsString(type) || strcmp(type->valuestring, "function") != 0))
        return json_refuse(type, at, "\"function\"", reader->err);
    snprintf(at, sizeof(at), "%.40s.function", path);
    struct template_value *function = NULL, *map = template_map(reader->arena);
    if (read_function(reader, member(call, "function"), at, &function) != 0)
        return -1;
    if (id != NULL)
        chat_value_set(reader->arena, &map, "id", chat_value_text(reader->arena, id->valuestring));
    chat_value_set(
        reader->arena, &map, "type",
        template_string(reader->arena, "function", strlen("function"), TEMPLATE_ORIGIN_SERVER));
    chat_value_set(reader->arena, &map, "function", function);
    *out = map;
    return 0;
}

/* An empty list is left out: templates take its presence for a call. */
static int set_tool_calls(const struct reader *reader, const cJSON *message, const char *path,
                          struct template_value **map) {
    const cJSON *calls = member(message, "tool_calls");
    char at[PATH_BYTES];
    snprintf(at, sizeof(at), "%.40s.tool_calls", path);
    if (calls == NULL)
        return 0;
    if (!cJSON_IsArray(calls))
        return json_refuse(calls, at, "an array", reader->err);
    if (calls->child == NULL)
        return 0;
    if (cJSON_GetArraySize(calls) > MAX_TOOL_CALLS)
        return api_error_set(reader->err, 400, "invalid_request_error", "array_above_max_length",
                             at, "%s has too many entries: at most %d are allowed", at,
                             MAX_TOOL_CALLS);
    struct template_value *list = template_list(reader->arena);
    int index = 0;
    const cJSON *call;
    cJSON_ArrayForEach(call, calls) {
        struct template_value *value = NULL;
        snprintf(at, sizeof(at), "%.40s.tool_calls[%d]", path, index++);
        if (read_tool_call(reader, call, at, &value) != 0)
            return -1;
        list = template_list_append(reader->arena, list, value);
    }
    chat_value_set(reader->arena, map, "tool_calls", list);
    return 0;
}

/* --- Messages --- */

/* A member that is a string where it is there. */
static int set_text(const struct reader *reader, const cJSON *message, const char *path,
                    const char *name, const char *key, struct template_value **map) {
    const cJSON *text = member(message, name);
    char at[PATH_BYTES];
    snprintf(at, sizeof(at), "%.40s.%s", path, name);
    if (text == NULL)
        return 0;
    if (!cJSON_IsString(text))
        return json_refuse(text, at, "a string", reader->err);
    chat_value_set(reader->arena, map, key, chat_value_text(reader->arena, text->valuestring));
    return 0;
}

/* Templates call it reasoning_content; answers, which come back as messages, have both. */
static int set_reasoning(const struct reader *reader, const cJSON *message, const char *path,
                         struct template_value **map) {
    const char *name = member(message, "reasoning") != NULL ? "reasoning" : "reasoning_content";
    if (set_text(reader, message, path, name, "reasoning_content", map) != 0)
        return -1;
    return set_text(reader, message, path, name, "reasoning", map);
}

/* What only an assistant says. */
static int set_assistant(const struct reader *reader, const cJSON *message, const char *path,
                         struct template_value **map) {
    char at[PATH_BYTES];
    snprintf(at, sizeof(at), "%.40s.function_call", path);
    if (member(message, "function_call") != NULL)
        return api_error_set(reader->err, 400, "invalid_request_error", "unsupported_parameter", at,
                             "%s is not supported: use tool_calls", at);
    snprintf(at, sizeof(at), "%.40s.audio", path);
    if (member(message, "audio") != NULL)
        return api_error_set(reader->err, 400, "invalid_request_error", "unsupported_content", at,
                             "%s: this server takes text only", at);
    if (set_reasoning(reader, message, path, map) != 0)
        return -1;
    return set_tool_calls(reader, message, path, map);
}

/* The role a template is told; NULL with *err. */
static const char *read_role(const struct reader *reader, const cJSON *message, const char *path) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    const cJSON *role = member(message, "role");
    char at[PATH_BYTES];
    snprintf(at, sizeof(at), "%.40s.role", path);
    if (!cJSON_IsString(role) || !IS_ONE_OF(role->valuestring, roles)) {
        bool is_function = cJSON_IsString(role) && strcmp(role->valuestring, "function") == 0;
        json_refuse(role, at,
                    is_function ? "\"tool\" for what a function answered"
                                : "one of system, developer, user, assistant and tool",
                    reader->err);
        return NULL;
    }
    bool is_developer = strcmp(role->valuestring, "developer") == 0;
    return is_developer && !reader->form->has_developer ? "system" : role->valuestring;
}

static int read_message(const struct reader *reader, const cJSON *message, const char *path,
                        const char *suffix, struct template_value **out) {
    if (!cJSON_IsObject(message))
        return json_refuse(message, path, "an object with role and content", reader->err);
    const char *role = read_role(reader, message, path);
    if (role == NULL)
        return -1;
    struct template_value *map = template_map(reader->arena);
    bool is_assistant = strcmp(role, "assistant") == 0;
    chat_value_set(reader->arena, &map, "role",
                   template_string(reader->arena, role, strlen(role), TEMPLATE_ORIGIN_SERVER));
    if (set_content(reader, message, path, is_assistant, suffix, &map) != 0 ||
        set_text(reader, message, path, "name", "name", &map) != 0 ||
        (is_assistant && set_assistant(reader, message, path, &map) != 0) ||
        (strcmp(role, "tool") == 0 &&
         set_text(reader, message, path, "tool_call_id", "tool_call_id", &map) != 0))
        return -1;
    *out = map;
    return map != NULL ? 0 : chat_messages_fail_arena(reader->arena, reader->err);
}

int chat_messages_read(const cJSON *messages, const struct chat_message_form *form,
                       struct template_arena *arena, struct template_value **out,
                       struct api_error *err) {
    const struct reader reader = {.arena = arena, .form = form, .err = err};
    if (!cJSON_IsArray(messages) || messages->child == NULL)
        return json_refuse(messages, "messages", "an array of one message or more", err);
    struct template_value *list = template_list(arena);
    int index = 0;
    const cJSON *message;
    cJSON_ArrayForEach(message, messages) {
        if (index == CHAT_MESSAGES_MAX)
            return api_error_set(
                err, 400, "invalid_request_error", "array_above_max_length", "messages",
                "messages has too many entries: at most %d are allowed", CHAT_MESSAGES_MAX);
        struct template_value *value = NULL;
        char path[PATH_BYTES];
        bool is_last = message->next == NULL && form->final_suffix != NULL;
        snprintf(path, sizeof(path), "messages[%d]", index++);
        if (read_message(&reader, message, path, is_last ? form->final_suffix : "", &value) != 0)
            return -1;
        list = template_list_append(arena, list, value);
    }
    if (list == NULL)
        return chat_messages_fail_arena(arena, err);
    *out = list;
    return 0;
}
