/* The input of POST /v1/responses: a text or a list of items, as messages of a chat. */
#include "server/api/responses/responses_body.h"

#include "config/base/log.h"
#include "server/api/call/api_call_type.h"
#include "server/api/chat/chat_messages.h"
#include "server/api/chat/chat_translation.h"
#include "server/api/responses/responses_tools.h"
#include "config/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define MAX_ITEMS 4096
#define MAX_PATH 64

struct reader {
    cJSON *messages;
    cJSON *reasoning; /* owned: of items whose message is yet to come; NULL: none */
    int num_left_out; /* items */
    struct api_error *err;
};

static int refuse_content(struct reader *reader, const char *path, const char *type) {
    return bad_request(reader->err, "unsupported_content", path,
                       "%s is \"%.32s\": this server takes text only", path, type);
}

static int add(struct reader *reader, cJSON *object, const char *name, cJSON *member) {
    return chat_translation_add(object, name, member, reader->err);
}

static cJSON *append(struct reader *reader, cJSON *array, cJSON *item) {
    return chat_translation_append(array, item, reader->err);
}

/* --- Content --- */

static bool is_text_part(const char *type) {
    return strcmp(type, "input_text") == 0 || strcmp(type, "output_text") == 0 ||
           strcmp(type, "text") == 0 || strcmp(type, "reasoning_text") == 0 ||
           strcmp(type, "summary_text") == 0;
}

static int add_part(struct reader *reader, const cJSON *part, const char *path, cJSON *parts) {
    char inner[MAX_PATH + 16];
    const cJSON *type = json_member(part, "type"), *text = json_member(part, "text");
    snprintf(inner, sizeof(inner), "%s.type", path);
    if (!cJSON_IsObject(part))
        return json_refuse(part, path, "an object", reader->err);
    if (!cJSON_IsString(type))
        return json_refuse(type, inner, "\"input_text\" or \"output_text\"", reader->err);
    if (strcmp(type->valuestring, "refusal") == 0)
        text = json_member(part, "refusal");
    else if (!is_text_part(type->valuestring))
        return refuse_content(reader, inner, type->valuestring);
    snprintf(inner, sizeof(inner), "%s.text", path);
    if (!cJSON_IsString(text))
        return json_refuse(text, inner, "a string", reader->err);
    cJSON *made = append(reader, parts, cJSON_CreateObject());
    if (made == NULL || add(reader, made, "type", cJSON_CreateStringReference("text")) != 0)
        return -1;
    return add(reader, made, "text", cJSON_CreateStringReference(text->valuestring));
}

/* Makes a string, or parts in the chat's form; NULL on failure. */
static cJSON *make_content(struct reader *reader, const cJSON *content, const char *path) {
    bool is_text = cJSON_IsString(content);
    if (!is_text && !cJSON_IsArray(content)) {
        json_refuse(content, path, "a string or an array of parts", reader->err);
        return NULL;
    }
    cJSON *parts =
        is_text ? cJSON_CreateStringReference(content->valuestring) : cJSON_CreateArray();
    if (parts == NULL)
        api_error_set_memory(reader->err);
    if (is_text || parts == NULL)
        return parts;
    int index = 0;
    const cJSON *part;
    cJSON_ArrayForEach(part, content) {
        char inner[MAX_PATH];
        snprintf(inner, sizeof(inner), "%.40s[%d]", path, index++);
        if (add_part(reader, part, inner, parts) != 0) {
            cJSON_Delete(parts);
            return NULL;
        }
    }
    return parts;
}

static int add_content(struct reader *reader, cJSON *message, const char *name,
                       const cJSON *content, const char *path) {
    cJSON *made = make_content(reader, content, path);
    return made != NULL ? add(reader, message, name, made) : -1;
}

/* --- Messages --- */

static cJSON *last_message(const struct reader *reader) {
    cJSON *child = reader->messages->child;
    return child != NULL ? child->prev : NULL; /* cJSON: the first one's prev is the last */
}

static bool is_assistant(const cJSON *message) {
    const cJSON *role = json_member(message, "role");
    return cJSON_IsString(role) && strcmp(role->valuestring, "assistant") == 0;
}

static cJSON *begin_message(struct reader *reader, const char *role) {
    bool is_answer = strcmp(role, "assistant") == 0;
    if (reader->reasoning != NULL && !is_answer) { /* a turn that was cut off, or said nothing */
        cJSON *silent = begin_message(reader, "assistant");
        if (silent == NULL || add(reader, silent, "content", cJSON_CreateNull()) != 0)
            return NULL;
    }
    cJSON *message = append(reader, reader->messages, cJSON_CreateObject());
    if (message == NULL || add(reader, message, "role", cJSON_CreateStringReference(role)) != 0)
        return NULL;
    if (reader->reasoning != NULL) {
        cJSON *reasoning = reader->reasoning;
        reader->reasoning = NULL;
        if (add(reader, message, "reasoning_content", reasoning) != 0)
            return NULL;
    }
    return message;
}

static int read_message(struct reader *reader, const cJSON *item, const char *path) {
    char inner[MAX_PATH];
    const char *role = chat_messages_role(item, path, reader->err);
    cJSON *message = role != NULL ? begin_message(reader, role) : NULL;
    if (message == NULL)
        return -1;
    snprintf(inner, sizeof(inner), "%s.content", path);
    return add_content(reader, message, "content", json_member(item, "content"), inner);
}

static int check_text(struct reader *reader, const cJSON *item, const char *path, const char *name,
                      const char **out) {
    char inner[MAX_PATH];
    const cJSON *text = json_member(item, name);
    snprintf(inner, sizeof(inner), "%s.%s", path, name);
    if (!cJSON_IsString(text))
        return json_refuse(text, inner, "a string", reader->err);
    *out = text->valuestring;
    return 0;
}

/* Returns the array of tool calls of the message that the call joins. */
static cJSON *tool_calls_of(struct reader *reader) {
    cJSON *message = last_message(reader);
    if (message == NULL || !is_assistant(message) || reader->reasoning != NULL) {
        message = begin_message(reader, "assistant");
        if (message == NULL || add(reader, message, "content", cJSON_CreateNull()) != 0)
            return NULL;
    }
    cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
    if (calls != NULL)
        return calls;
    if (add(reader, message, "tool_calls", cJSON_CreateArray()) != 0)
        return NULL;
    return cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
}

/* kind: "function", whose text is its `arguments`, or "custom", whose text is its `input`. */
static int read_call(struct reader *reader, const cJSON *item, const char *path, const char *kind,
                     const char *text_name) {
    const char *id = NULL, *name = NULL, *text = NULL;
    if (check_text(reader, item, path, "call_id", &id) != 0 ||
        check_text(reader, item, path, "name", &name) != 0 ||
        check_text(reader, item, path, text_name, &text) != 0)
        return -1;
    cJSON *calls = tool_calls_of(reader);
    cJSON *call = calls != NULL ? append(reader, calls, cJSON_CreateObject()) : NULL;
    if (call == NULL || add(reader, call, "id", cJSON_CreateStringReference(id)) != 0 ||
        add(reader, call, "type", cJSON_CreateStringReference(kind)) != 0 ||
        add(reader, call, kind, cJSON_CreateObject()) != 0)
        return -1;
    cJSON *called = cJSON_GetObjectItemCaseSensitive(call, kind);
    if (add(reader, called, "name", responses_tools_name(item, name)) != 0)
        return -1;
    return add(reader, called, text_name, cJSON_CreateStringReference(text));
}

static int read_function_output(struct reader *reader, const cJSON *item, const char *path) {
    const char *id = NULL;
    char inner[MAX_PATH];
    if (check_text(reader, item, path, "call_id", &id) != 0)
        return -1;
    cJSON *message = begin_message(reader, "tool");
    if (message == NULL ||
        add(reader, message, "tool_call_id", cJSON_CreateStringReference(id)) != 0)
        return -1;
    snprintf(inner, sizeof(inner), "%s.output", path);
    return add_content(reader, message, "content", json_member(item, "output"), inner);
}

/* Joins what make_content made to one string; NULL when memory is short. */
static cJSON *join_parts(const cJSON *content) {
    if (cJSON_IsString(content))
        return cJSON_CreateString(content->valuestring);
    struct byte_buffer text = {0};
    const cJSON *part;
    cJSON_ArrayForEach(part, content) {
        if (text.length > 0)
            byte_buffer_append(&text, "\n", 1);
        byte_buffer_append_text(&text, json_member(part, "text")->valuestring);
    }
    byte_buffer_append(&text, "", 1);
    cJSON *joined = text.failed ? NULL : cJSON_CreateString(text.data);
    byte_buffer_finish(&text);
    return joined;
}

/* Reads the text of its content, or else of its summary; encrypted reasoning cannot be read
 * here. */
static int read_reasoning(struct reader *reader, const cJSON *item, const char *path) {
    const cJSON *content = json_member(item, "content"), *summary = json_member(item, "summary");
    bool has_content = json_is_given(content);
    char inner[MAX_PATH];
    if (!has_content && !json_is_given(summary))
        return 0;
    snprintf(inner, sizeof(inner), "%s.%s", path, has_content ? "content" : "summary");
    cJSON *parts = make_content(reader, has_content ? content : summary, inner);
    if (parts == NULL)
        return -1;
    cJSON_Delete(reader->reasoning);
    reader->reasoning = join_parts(parts);
    cJSON_Delete(parts);
    return reader->reasoning != NULL ? 0 : api_error_set_memory(reader->err);
}

/* Returns whether the item is one of a tool that is run elsewhere (responses_tools.h). */
static bool is_left_out(const cJSON *item) {
    static const char *const types[] = {
        "web_search_call",         "image_generation_call", "local_shell_call",
        "local_shell_call_output", "tool_search_call",      "tool_search_output",
    };
    const cJSON *type = json_member(item, "type");
    return cJSON_IsString(type) && CHAT_TRANSLATION_HAS(types, type->valuestring);
}

/* Returns whether the item is what such a tool has put out, by its call before it. */
static bool is_orphan(const struct reader *reader, const cJSON *item) {
    const cJSON *id = json_member(item, "call_id"), *type = json_member(item, "type");
    bool is_output = cJSON_IsString(type) && strcmp(type->valuestring, "function_call_output") == 0;
    if (reader->num_left_out == 0 || !is_output || !cJSON_IsString(id))
        return false;
    for (const cJSON *call = item->prev; call->next != NULL; call = call->prev) {
        const cJSON *call_id = json_member(call, "call_id");
        if (cJSON_IsString(call_id) && strcmp(call_id->valuestring, id->valuestring) == 0)
            return is_left_out(call);
    }
    return false;
}

static int read_item(struct reader *reader, const cJSON *item, const char *path) {
    char inner[MAX_PATH];
    const cJSON *type = json_member(item, "type");
    snprintf(inner, sizeof(inner), "%s.type", path);
    if (!cJSON_IsObject(item))
        return json_refuse(item, path, "an object", reader->err);
    if (!json_is_given(type))
        return read_message(reader, item, path);
    if (!cJSON_IsString(type))
        return json_refuse(type, inner, "a string", reader->err);
    if (is_left_out(item) || is_orphan(reader, item)) {
        reader->num_left_out++;
        return 0;
    }
    if (strcmp(type->valuestring, "message") == 0)
        return read_message(reader, item, path);
    if (strcmp(type->valuestring, "function_call") == 0)
        return read_call(reader, item, path, "function", "arguments");
    if (strcmp(type->valuestring, "custom_tool_call") == 0)
        return read_call(reader, item, path, "custom", "input");
    if (strcmp(type->valuestring, "function_call_output") == 0 ||
        strcmp(type->valuestring, "custom_tool_call_output") == 0)
        return read_function_output(reader, item, path);
    if (strcmp(type->valuestring, "reasoning") == 0)
        return read_reasoning(reader, item, path);
    return json_refuse(type, inner,
                       "\"message\", \"function_call\", \"function_call_output\", "
                       "\"custom_tool_call\", \"custom_tool_call_output\" or \"reasoning\"",
                       reader->err);
}

int responses_input_check_size(const cJSON *input, struct api_error *err) {
    return cJSON_GetArraySize(input) <= MAX_ITEMS
               ? 0
               : bad_request(err, "array_above_max_length", "input",
                             "input has more than %d items, the most allowed", MAX_ITEMS);
}

static int read_items(struct reader *reader, const cJSON *input) {
    int index = 0;
    const cJSON *item;
    if (responses_input_check_size(input, reader->err) != 0)
        return -1;
    cJSON_ArrayForEach(item, input) {
        char path[32];
        snprintf(path, sizeof(path), "input[%d]", index++);
        if (read_item(reader, item, path) != 0)
            return -1;
    }
    return 0;
}

static int read_text(struct reader *reader, const char *text) {
    cJSON *message = begin_message(reader, "user");
    return message != NULL ? add(reader, message, "content", cJSON_CreateStringReference(text))
                           : -1;
}

int responses_input_read(const cJSON *input, cJSON *messages, struct api_error *err) {
    struct reader reader = {.messages = messages, .err = err};
    if (cJSON_IsString(input))
        return read_text(&reader, input->valuestring);
    if (!cJSON_IsArray(input))
        return json_refuse(input, "input", "a string or an array of items", err);
    int result = read_items(&reader, input);
    if (result == 0 && reader.num_left_out == cJSON_GetArraySize(input))
        result = read_text(&reader, "");
    if (reader.num_left_out > 0)
        log_info("%d items of tools that are not run here are left out of a request",
                 reader.num_left_out);
    cJSON_Delete(reader.reasoning);
    return result;
}
