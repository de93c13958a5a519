#include "server/api/chat/chat_body.h"

#include "config/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define MAX_NAMES 16 /* that are told apart; further ones are not listed */

static bool is_empty(const cJSON *item) {
    if (cJSON_IsString(item))
        return item->valuestring[0] == '\0';
    return cJSON_IsNull(item) || cJSON_IsFalse(item) ||
           ((cJSON_IsArray(item) || cJSON_IsObject(item)) && item->child == NULL);
}

/* --- Content --- */

static int read_part(const cJSON *part, const struct json_path *path, struct message *out,
                     struct api_error *err) {
    static const char *const text_types[] = {"text", "input_text", "output_text", "refusal"};
    const struct json_path *type_path = JSON_MEMBER_PATH(path, "type");
    if (cJSON_IsString(part))
        return message_add_part(out, part->valuestring, err);
    if (!cJSON_IsObject(part))
        return json_refuse_at(part, path, "an object with type and text", err);
    const cJSON *type = json_given_member(part, "type");
    if (!cJSON_IsString(type))
        return json_refuse_at(type, type_path, "\"text\"", err);
    int kind = 0;
    while (kind < 4 && strcmp(type->valuestring, text_types[kind]) != 0)
        kind++;
    if (kind == 4)
        return bad_request_at(err, "unsupported_content", type_path,
                              " is \"%.40s\": this server takes text only", type->valuestring);
    const char *name = kind == 3 ? "refusal" : "text";
    const cJSON *text = json_given_member(part, name);
    if (!cJSON_IsString(text))
        return json_refuse_at(text, JSON_MEMBER_PATH(path, name), "a string", err);
    return message_add_part(out, text->valuestring, err);
}

static int read_content(const cJSON *content, const struct json_path *path, struct message *out,
                        struct api_error *err) {
    const cJSON *part;
    int index = 0;
    if (cJSON_IsString(content))
        return message_add_part(out, content->valuestring, err);
    if (!cJSON_IsArray(content))
        return json_refuse_at(content, path, "a string or an array of text parts", err);
    out->has_content = true;
    cJSON_ArrayForEach(part, content) {
        if (read_part(part, JSON_ITEM_PATH(path, index++), out, err) != 0)
            return -1;
    }
    return 0;
}

/* --- Tool calls --- */

static int read_function(const cJSON *function, const struct json_path *path,
                         struct message_call *out, struct api_error *err) {
    const cJSON *name = json_given_member(function, "name"),
                *arguments = json_given_member(function, "arguments");
    if (!cJSON_IsString(name) || name->valuestring[0] == '\0')
        return json_refuse_at(name, JSON_MEMBER_PATH(path, "name"), "the name of a function", err);
    if (arguments != NULL && !cJSON_IsString(arguments) && !cJSON_IsObject(arguments))
        return json_refuse_at(arguments, JSON_MEMBER_PATH(path, "arguments"),
                              "a string, the text of a JSON object", err);
    out->name = name->valuestring;
    out->text = cJSON_GetStringValue(arguments);
    out->object = cJSON_IsObject(arguments) ? arguments : NULL;
    return 0;
}

static int read_custom(const cJSON *custom, const struct json_path *path, struct message_call *out,
                       struct api_error *err) {
    const cJSON *name = json_given_member(custom, "name"),
                *input = json_given_member(custom, "input");
    if (!cJSON_IsString(name) || name->valuestring[0] == '\0')
        return json_refuse_at(name, JSON_MEMBER_PATH(path, "name"), "the name of a custom tool",
                              err);
    if (!cJSON_IsString(input))
        return json_refuse_at(input, JSON_MEMBER_PATH(path, "input"), "a string", err);
    out->is_custom = true;
    out->name = name->valuestring;
    out->text = input->valuestring;
    return 0;
}

static int read_call(const cJSON *call, const struct json_path *path, struct message *message,
                     struct api_error *err) {
    const cJSON *id = json_given_member(call, "id"), *type = json_given_member(call, "type");
    const char *kind = cJSON_IsString(type) ? type->valuestring : "function";
    bool is_custom = strcmp(kind, "custom") == 0;
    if (!cJSON_IsObject(call))
        return json_refuse_at(call, path, "an object", err);
    if (id != NULL && !cJSON_IsString(id))
        return json_refuse_at(id, JSON_MEMBER_PATH(path, "id"), "a string", err);
    if ((type != NULL && !cJSON_IsString(type)) || (!is_custom && strcmp(kind, "function") != 0))
        return json_refuse_at(type, JSON_MEMBER_PATH(path, "type"), "\"function\" or \"custom\"",
                              err);
    const cJSON *called = json_given_member(call, kind);
    const struct json_path *called_path = JSON_MEMBER_PATH(path, kind);
    if (!cJSON_IsObject(called))
        return json_refuse_at(called, called_path, "an object", err);
    struct message_call *made = message_add_call(message, err);
    if (made == NULL)
        return -1;
    made->id = cJSON_GetStringValue(id);
    return is_custom ? read_custom(called, called_path, made, err)
                     : read_function(called, called_path, made, err);
}

static int read_calls(const cJSON *calls, const struct json_path *path, struct message *message,
                      struct api_error *err) {
    const cJSON *call;
    int index = 0;
    if (calls != NULL && !cJSON_IsArray(calls))
        return json_refuse_at(calls, path, "an array", err);
    if (cJSON_GetArraySize(calls) > MESSAGE_MAX_CALLS)
        return bad_request_at(err, "array_above_max_length", path,
                              " has too many entries: at most %d are allowed", MESSAGE_MAX_CALLS);
    cJSON_ArrayForEach(call, calls) {
        if (read_call(call, JSON_ITEM_PATH(path, index++), message, err) != 0)
            return -1;
    }
    return 0;
}

/* --- Messages --- */

struct reader {
    struct conversation *out;
    const char *call_id; /* of the last function_call; NULL: there was none */
    struct api_error *err;
};

/* Reads a member that must be a string if it is given. */
static int read_text(const cJSON *message, const struct json_path *path, const char *name,
                     const char **out, struct api_error *err) {
    const cJSON *text = json_given_member(message, name);
    if (text != NULL && !cJSON_IsString(text))
        return json_refuse_at(text, JSON_MEMBER_PATH(path, name), "a string", err);
    *out = cJSON_GetStringValue(text);
    return 0;
}

static int check_members(const cJSON *message, const struct json_path *path, bool is_assistant,
                         struct api_error *err) {
    static const struct {
        const char *name, *code, *why;
    } refused[] = {
        {"audio", "unsupported_content", ": this server takes text only"},
        {"function_call", "unsupported_parameter", ": only an assistant's message has one"},
        {"partial", "unsupported_parameter", " is not supported: use continue_final_message"},
        {"prefix", "unsupported_parameter", " is not supported: use continue_final_message"},
        {"tools", "unsupported_parameter", " is not supported: tools is a field of the body"},
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const cJSON *member = json_given_member(message, refused[i].name);
        bool is_read = is_assistant && strcmp(refused[i].name, "function_call") == 0;
        if (member != NULL && !is_read && !is_empty(member))
            return bad_request_at(err, refused[i].code, JSON_MEMBER_PATH(path, refused[i].name),
                                  "%s", refused[i].why);
    }
    return 0;
}

/* Makes a tool call id. Templates may need ids; Mistral's expect nine letters and digits. */
static const char *make_call_id(struct reader *reader) {
    struct byte_buffer id = {0};
    byte_buffer_printf(&id, "call%05d", reader->out->num_messages - 1);
    return conversation_own_text(reader->out, &id, reader->err);
}

/* Reads an assistant's tool call in the old form. */
static int read_function_call(struct reader *reader, const cJSON *message,
                              const struct json_path *message_path, struct message *out) {
    const cJSON *called = json_member(message, "function_call"),
                *calls = json_given_member(message, "tool_calls");
    const struct json_path *path = JSON_MEMBER_PATH(message_path, "function_call");
    if (!cJSON_IsObject(called))
        return json_refuse_at(called, path, "an object with name and arguments", reader->err);
    if (calls != NULL && (!cJSON_IsArray(calls) || calls->child != NULL))
        return bad_request_at(reader->err, "unsupported_value", path,
                              " is not allowed with tool_calls: use one form or the other");
    struct message_call *made = message_add_call(out, reader->err);
    if (made == NULL || read_function(called, path, made, reader->err) != 0)
        return -1;
    reader->call_id = made->id = make_call_id(reader);
    return made->id != NULL ? 0 : -1;
}

/* Reads what only an assistant's message has. Answers that come back as messages have reasoning. */
static int read_assistant(struct reader *reader, const cJSON *message, const struct json_path *path,
                          struct message *out) {
    const char *name =
        json_given_member(message, "reasoning") != NULL ? "reasoning" : "reasoning_content";
    if (read_text(message, path, name, &out->reasoning, reader->err) != 0)
        return -1;
    if (json_given_member(message, "function_call") != NULL)
        return read_function_call(reader, message, path, out);
    return read_calls(json_given_member(message, "tool_calls"),
                      JSON_MEMBER_PATH(path, "tool_calls"), out, reader->err);
}

/* Reads the other members of the result of a tool call in the old form; its content may be null. */
static int read_function_result(const struct reader *reader, const cJSON *message,
                                const struct json_path *path, struct message *out) {
    if (out->name == NULL || out->name[0] == '\0')
        return json_refuse_at(json_given_member(message, "name"), JSON_MEMBER_PATH(path, "name"),
                              "the name of the function that was called", reader->err);
    out->role = MESSAGE_TOOL;
    out->role_name = "tool";
    if (out->tool_call_id == NULL)
        out->tool_call_id = reader->call_id;
    return cJSON_IsNull(json_member(message, "content")) ? message_add_part(out, "", reader->err)
                                                         : 0;
}

static int read_rest(struct reader *reader, const cJSON *message, const struct json_path *path,
                     struct message *out) {
    if (read_text(message, path, "name", &out->name, reader->err) != 0)
        return -1;
    if (out->role == MESSAGE_ASSISTANT)
        return read_assistant(reader, message, path, out);
    if (out->role != MESSAGE_TOOL && out->role != MESSAGE_OTHER)
        return 0;
    if (read_text(message, path, "tool_call_id", &out->tool_call_id, reader->err) != 0)
        return -1;
    return strcmp(out->role_name, "function") == 0
               ? read_function_result(reader, message, path, out)
               : 0;
}

static int read_message(struct reader *reader, const cJSON *message, const struct json_path *path) {
    struct api_error *err = reader->err;
    if (!cJSON_IsObject(message))
        return json_refuse_at(message, path, "an object with role and content", err);
    const char *role = message_role_name(message, path, err);
    struct message *out = role != NULL ? conversation_add_message(reader->out, role, err) : NULL;
    if (out == NULL || check_members(message, path, out->role == MESSAGE_ASSISTANT, err) != 0 ||
        read_rest(reader, message, path, out) != 0)
        return -1;
    const cJSON *content = json_given_member(message, "content"),
                *refusal = json_given_member(message, "refusal");
    if (content == NULL && out->role == MESSAGE_ASSISTANT && cJSON_IsString(refusal))
        content = refusal; /* what the assistant said instead */
    if (content == NULL && (out->role == MESSAGE_ASSISTANT || out->has_content))
        return 0;
    return read_content(content, JSON_MEMBER_PATH(path, "content"), out, err);
}

int chat_messages_read(const cJSON *messages, struct conversation *out, struct api_error *err) {
    struct reader reader = {.out = out, .err = err};
    const struct json_path *path = JSON_MEMBER_PATH(NULL, "messages");
    const cJSON *message;
    int index = 0;
    if (!cJSON_IsArray(messages) || messages->child == NULL)
        return json_refuse_at(messages, path, "an array of one message or more", err);
    cJSON_ArrayForEach(message, messages) {
        if (read_message(&reader, message, JSON_ITEM_PATH(path, index++)) != 0)
            return -1;
    }
    return 0;
}

/* --- Members that are not read --- */

static const struct json_field message_fields[] = {
    JSON_OTHER(role),      JSON_OTHER(content),           JSON_OTHER(refusal),
    JSON_OTHER(name),      JSON_OTHER(tool_calls),        JSON_OTHER(tool_call_id),
    JSON_OTHER(reasoning), JSON_OTHER(reasoning_content), JSON_OTHER(function_call),
};

static const struct json_field part_fields[] = {
    JSON_OTHER(type),
    JSON_OTHER(text),
    JSON_OTHER(refusal),
};

/* Names that are already listed, so that a long chat lists each only once. */
struct name_set {
    const char *names[MAX_NAMES];
    int count;
};

static bool is_listed(struct name_set *listed, const char *name) {
    for (int i = 0; i < listed->count; i++)
        if (strcmp(listed->names[i], name) == 0)
            return true;
    if (listed->count == MAX_NAMES)
        return true;
    listed->names[listed->count++] = name;
    return false;
}

static void list_members(const cJSON *object, struct json_table table, const char *prefix,
                         struct name_set *listed, struct byte_buffer *names) {
    const cJSON *member;
    if (!cJSON_IsObject(object))
        return;
    cJSON_ArrayForEach(member, object) {
        if (json_fields_know(&table, 1, member->string) || is_empty(member) ||
            is_listed(listed, member->string))
            continue;
        json_fields_append_name(member->string, prefix, names);
    }
}

void chat_messages_list_unknown(const cJSON *messages, struct byte_buffer *names) {
    struct name_set listed = {0}, listed_in_parts = {0};
    const cJSON *message, *part;
    if (!cJSON_IsArray(messages))
        return;
    cJSON_ArrayForEach(message, messages) {
        const cJSON *content = json_given_member(message, "content");
        list_members(message, JSON_TABLE(message_fields), "messages[].", &listed, names);
        if (!cJSON_IsArray(content))
            continue;
        cJSON_ArrayForEach(part, content) {
            list_members(part, JSON_TABLE(part_fields), "messages[].content[].", &listed_in_parts,
                         names);
        }
    }
}
