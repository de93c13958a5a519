#include "server/api/chat/chat_calls.h"

#include "server/api/chat/chat_value.h"
#include "config/json/json_field.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 64
#define MAX_TOOL_CALLS 128

struct reader {
    struct template_arena *arena;
    const struct chat_message_form *form;
    struct api_error *err;
};

/* --- Arguments --- */

/* Reads them as an object; NULL with why->status 400 when they are none. */
static cJSON *parse_arguments(const char *text, struct api_error *why) {
    if (text[strspn(text, " \t\r\n")] == '\0' || strcmp(text, "null") == 0)
        return json_parse("{}", 2, why);
    cJSON *json = json_parse(text, strlen(text), why);
    return json != NULL || why->status != 400 ? json : json_parse_cut(text, strlen(text), why);
}

static void write_input(struct byte_buffer *out, const char *text) {
    byte_buffer_append_text(out, "{\"input\": ");
    json_write_text(out, text);
    byte_buffer_append_text(out, "}");
}

/* Writes them as they were given where that is whole. */
static void write_arguments(const cJSON *arguments, struct byte_buffer *out) {
    struct api_error why;
    const char *text = cJSON_GetStringValue(arguments);
    if (text == NULL) {
        if (arguments != NULL)
            json_write_tree_as_sent(out, arguments);
        else
            byte_buffer_append_text(out, "{}");
        return;
    }
    cJSON *json = json_parse(text, strlen(text), &why);
    if (json != NULL)
        byte_buffer_append_text(out, text);
    else if ((json = parse_arguments(text, &why)) != NULL)
        json_write_tree_as_sent(out, json);
    else if (why.status == 400)
        write_input(out, text);
    else
        out->failed = true;
    cJSON_Delete(json);
}

static struct template_value *text_value(const struct reader *reader, const cJSON *arguments) {
    struct byte_buffer text = {0};
    write_arguments(arguments, &text);
    struct template_value *value =
        text.failed
            ? NULL
            : template_string(reader->arena, text.data, text.length, TEMPLATE_ORIGIN_CLIENT);
    byte_buffer_finish(&text);
    return value;
}

static struct template_value *arguments_value(const struct reader *reader, const cJSON *arguments) {
    struct api_error why = {0};
    if (reader->form->takes_text_arguments)
        return text_value(reader, arguments);
    if (arguments == NULL)
        return template_map(reader->arena);
    if (cJSON_IsObject(arguments))
        return chat_value_of(reader->arena, arguments);
    const char *text = arguments->valuestring;
    cJSON *json = parse_arguments(text, &why);
    if (json == NULL && why.status != 400)
        return NULL;
    struct template_value *value =
        json != NULL ? chat_value_of(reader->arena, json) : template_map(reader->arena);
    if (json == NULL)
        chat_value_set(reader->arena, &value, "input", chat_value_text(reader->arena, text));
    cJSON_Delete(json);
    return value;
}

/* --- Calls --- */

static int read_function(const struct reader *reader, const cJSON *function, const char *path,
                         struct template_value **out) {
    char at[PATH_BYTES];
    const cJSON *name = json_given_member(function, "name"),
                *arguments = json_given_member(function, "arguments");
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

static int read_call(const struct reader *reader, const cJSON *call, const char *path,
                     struct template_value **out) {
    char at[PATH_BYTES];
    const cJSON *id = json_given_member(call, "id"), *type = json_given_member(call, "type");
    if (!cJSON_IsObject(call))
        return json_refuse(call, path, "an object", reader->err);
    snprintf(at, sizeof(at), "%.40s.id", path);
    if (id != NULL && !cJSON_IsString(id))
        return json_refuse(id, at, "a string", reader->err);
    snprintf(at, sizeof(at), "%.40s.type", path);
    if (type != NULL && (!cJSON_IsString(type) || strcmp(type->valuestring, "function") != 0))
        return json_refuse(type, at, "\"function\" or \"custom\"", reader->err);
    snprintf(at, sizeof(at), "%.40s.function", path);
    struct template_value *function = NULL, *map = template_map(reader->arena);
    if (read_function(reader, json_given_member(call, "function"), at, &function) != 0)
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

int chat_calls_read(const cJSON *calls, const char *path, const struct chat_message_form *form,
                    struct template_arena *arena, struct template_value **out,
                    struct api_error *err) {
    const struct reader reader = {.arena = arena, .form = form, .err = err};
    *out = NULL;
    if (calls == NULL)
        return 0;
    if (!cJSON_IsArray(calls))
        return json_refuse(calls, path, "an array", err);
    if (calls->child == NULL)
        return 0;
    if (cJSON_GetArraySize(calls) > MAX_TOOL_CALLS)
        return bad_request(err, "array_above_max_length", path,
                           "%s has too many entries: at most %d are allowed", path, MAX_TOOL_CALLS);
    struct template_value *list = template_list(arena);
    int index = 0;
    const cJSON *call;
    cJSON_ArrayForEach(call, calls) {
        struct template_value *value = NULL;
        char at[PATH_BYTES];
        snprintf(at, sizeof(at), "%.50s[%d]", path, index++);
        if (read_call(&reader, call, at, &value) != 0)
            return -1;
        list = template_list_append(arena, list, value);
    }
    *out = list;
    return 0;
}

void chat_calls_write(const cJSON *calls, struct byte_buffer *out) {
    const cJSON *call;
    cJSON_ArrayForEach(call, calls) {
        const cJSON *function = json_given_member(call, "function");
        byte_buffer_append_text(out, out->length > 0 ? "\n" : "");
        byte_buffer_append_text(out, "<tool_call>\n{\"name\": ");
        json_write_text(out, json_given_member(function, "name")->valuestring);
        byte_buffer_append_text(out, ", \"arguments\": ");
        write_arguments(json_given_member(function, "arguments"), out);
        byte_buffer_append_text(out, "}\n</tool_call>");
    }
}
