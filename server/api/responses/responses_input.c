#include "server/api/responses/responses_body.h"

#include "config/base/log.h"
#include "config/json/json_field.h"

#include <string.h>

#define MAX_ITEMS 4096

struct reader {
    struct conversation *out;
    const char *reasoning; /* of items whose message has not come yet; NULL: none */
    int num_left_out;      /* items */
    struct api_error *err;
};

static bool is_one_of(const char *text, const char *const *names, size_t count) {
    size_t i = 0;
    while (i < count && strcmp(text, names[i]) != 0)
        i++;
    return i < count;
}

#define IS_ONE_OF(text, names) is_one_of(text, names, sizeof(names) / sizeof((names)[0]))

/* --- Content --- */

/* Returns the text of a part; NULL and *err on failure. */
static const char *part_text(const cJSON *part, const struct json_path *path,
                             struct api_error *err) {
    static const char *const types[] = {"input_text", "output_text", "text", "reasoning_text",
                                        "summary_text"};
    const struct json_path *type_path = JSON_MEMBER_PATH(path, "type");
    const cJSON *type = json_member(part, "type"), *text = json_member(part, "text");
    if (!cJSON_IsObject(part)) {
        json_refuse_at(part, path, "an object", err);
        return NULL;
    }
    if (!cJSON_IsString(type)) {
        json_refuse_at(type, type_path, "\"input_text\" or \"output_text\"", err);
        return NULL;
    }
    if (strcmp(type->valuestring, "refusal") == 0) {
        text = json_member(part, "refusal");
    } else if (!IS_ONE_OF(type->valuestring, types)) {
        bad_request_at(err, "unsupported_content", type_path,
                       " is \"%.32s\": this server takes text only", type->valuestring);
        return NULL;
    }
    if (!cJSON_IsString(text)) {
        json_refuse_at(text, JSON_MEMBER_PATH(path, "text"), "a string", err);
        return NULL;
    }
    return text->valuestring;
}

static int check_content(const cJSON *content, const struct json_path *path,
                         struct api_error *err) {
    return cJSON_IsString(content) || cJSON_IsArray(content)
               ? 0
               : json_refuse_at(content, path, "a string or an array of parts", err);
}

static int read_content(struct reader *reader, const cJSON *content, const struct json_path *path,
                        struct message *out) {
    const cJSON *part;
    int index = 0;
    if (check_content(content, path, reader->err) != 0)
        return -1;
    if (cJSON_IsString(content))
        return message_add_part(out, content->valuestring, reader->err);
    out->has_content = true;
    cJSON_ArrayForEach(part, content) {
        const char *text = part_text(part, JSON_ITEM_PATH(path, index++), reader->err);
        if (text == NULL || message_add_part(out, text, reader->err) != 0)
            return -1;
    }
    return 0;
}

/* --- Messages --- */

static struct message *begin_message(struct reader *reader, const char *role) {
    bool is_answer = strcmp(role, "assistant") == 0;
    if (reader->reasoning != NULL && !is_answer && /* a turn that was cut off, or had no text */
        begin_message(reader, "assistant") == NULL)
        return NULL;
    struct message *message = conversation_add_message(reader->out, role, reader->err);
    if (message == NULL)
        return NULL;
    message->reasoning = reader->reasoning;
    reader->reasoning = NULL;
    return message;
}

static int read_message(struct reader *reader, const cJSON *item, const struct json_path *path) {
    const char *role = message_role_name(item, path, reader->err);
    struct message *message = role != NULL ? begin_message(reader, role) : NULL;
    return message != NULL ? read_content(reader, json_member(item, "content"),
                                          JSON_MEMBER_PATH(path, "content"), message)
                           : -1;
}

static int read_text(struct reader *reader, const char *text) {
    struct message *message = begin_message(reader, "user");
    return message != NULL ? message_add_part(message, text, reader->err) : -1;
}

/* --- Tool calls and their results --- */

static int take_text(const cJSON *item, const struct json_path *path, const char *name,
                     const char **out, struct api_error *err) {
    const cJSON *text = json_member(item, name);
    *out = cJSON_GetStringValue(text);
    return *out != NULL ? 0 : json_refuse_at(text, JSON_MEMBER_PATH(path, name), "a string", err);
}

/* Takes the name by which the model knows the tool, with its namespace. */
static int take_name(struct reader *reader, const cJSON *item, const struct json_path *path,
                     bool is_custom, const char **out) {
    const char *given = NULL;
    if (take_text(item, path, "name", &given, reader->err) != 0)
        return -1;
    const cJSON *name = responses_tools_name(reader->out, item, reader->err);
    if (name == NULL)
        return -1;
    *out = name->valuestring;
    return name->valuestring[0] != '\0'
               ? 0
               : json_refuse_at(name, JSON_MEMBER_PATH(path, "name"),
                                is_custom ? "the name of a custom tool" : "the name of a function",
                                reader->err);
}

/* Returns the message that the tool call joins. */
static struct message *message_of_calls(struct reader *reader) {
    struct message *last = conversation_last(reader->out);
    return last != NULL && last->role == MESSAGE_ASSISTANT && reader->reasoning == NULL
               ? last
               : begin_message(reader, "assistant");
}

static int read_call(struct reader *reader, const cJSON *item, const struct json_path *path,
                     bool is_custom) {
    struct api_error *err = reader->err;
    struct message_call read = {.is_custom = is_custom};
    if (take_text(item, path, "call_id", &read.id, err) != 0 ||
        take_name(reader, item, path, is_custom, &read.name) != 0 ||
        take_text(item, path, is_custom ? "input" : "arguments", &read.text, err) != 0)
        return -1;
    struct message *message = message_of_calls(reader);
    if (message == NULL)
        return -1;
    if (message->num_calls == MESSAGE_MAX_CALLS)
        return bad_request_at(err, "array_above_max_length", path,
                              " is one call too many: at most %d are allowed in a turn",
                              MESSAGE_MAX_CALLS);
    struct message_call *call = message_add_call(message, err);
    if (call == NULL)
        return -1;
    *call = read;
    return 0;
}

static int read_call_output(struct reader *reader, const cJSON *item,
                            const struct json_path *path) {
    const char *id = NULL;
    if (take_text(item, path, "call_id", &id, reader->err) != 0)
        return -1;
    struct message *message = begin_message(reader, "tool");
    if (message == NULL)
        return -1;
    message->tool_call_id = id;
    return read_content(reader, json_member(item, "output"), JSON_MEMBER_PATH(path, "output"),
                        message);
}

/* --- Reasoning --- */

/* Reads the text of the content, otherwise that of the summary; encrypted reasoning cannot be read
 * here. */
static int read_reasoning(struct reader *reader, const cJSON *item, const struct json_path *path) {
    const cJSON *content = json_given_member(item, "content"), *part;
    const char *name = content != NULL ? "content" : "summary";
    const struct json_path *content_path = JSON_MEMBER_PATH(path, name);
    struct byte_buffer text = {0};
    int index = 0;
    content = json_given_member(item, name);
    if (content == NULL)
        return 0;
    if (check_content(content, content_path, reader->err) != 0)
        return -1;
    if (cJSON_IsString(content))
        byte_buffer_append_text(&text, content->valuestring);
    cJSON_ArrayForEach(part, content) {
        const char *next = part_text(part, JSON_ITEM_PATH(content_path, index++), reader->err);
        if (next == NULL) {
            byte_buffer_finish(&text);
            return -1;
        }
        byte_buffer_append_text(&text, text.length > 0 ? "\n" : "");
        byte_buffer_append_text(&text, next);
    }
    reader->reasoning = conversation_own_text(reader->out, &text, reader->err);
    return reader->reasoning != NULL ? 0 : -1;
}

/* --- Items --- */

/* Returns whether the item belongs to a tool that runs elsewhere (responses_body.h). */
static bool is_left_out(const cJSON *item) {
    static const char *const types[] = {
        "web_search_call",         "image_generation_call", "local_shell_call",
        "local_shell_call_output", "tool_search_call",      "tool_search_output",
    };
    const cJSON *type = json_member(item, "type");
    return cJSON_IsString(type) && IS_ONE_OF(type->valuestring, types);
}

/* Returns whether the item is the output of such a tool, judged by the call before it. */
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

static int read_item_of(struct reader *reader, const cJSON *item, const char *type,
                        const struct json_path *path) {
    if (strcmp(type, "message") == 0)
        return read_message(reader, item, path);
    if (strcmp(type, "function_call") == 0)
        return read_call(reader, item, path, false);
    if (strcmp(type, "custom_tool_call") == 0)
        return read_call(reader, item, path, true);
    if (strcmp(type, "function_call_output") == 0 || strcmp(type, "custom_tool_call_output") == 0)
        return read_call_output(reader, item, path);
    if (strcmp(type, "reasoning") == 0)
        return read_reasoning(reader, item, path);
    return json_refuse_at(json_member(item, "type"), JSON_MEMBER_PATH(path, "type"),
                          "\"message\", \"function_call\", \"function_call_output\", "
                          "\"custom_tool_call\", \"custom_tool_call_output\" or \"reasoning\"",
                          reader->err);
}

static int read_item(struct reader *reader, const cJSON *item, const struct json_path *path) {
    const cJSON *type = json_given_member(item, "type");
    if (!cJSON_IsObject(item))
        return json_refuse_at(item, path, "an object", reader->err);
    if (type != NULL && !cJSON_IsString(type))
        return json_refuse_at(type, JSON_MEMBER_PATH(path, "type"), "a string", reader->err);
    if (is_left_out(item) || is_orphan(reader, item)) {
        reader->num_left_out++;
        return 0;
    }
    return read_item_of(reader, item, type != NULL ? type->valuestring : "message", path);
}

int responses_input_check_size(const cJSON *input, struct api_error *err) {
    return cJSON_GetArraySize(input) <= MAX_ITEMS
               ? 0
               : bad_request(err, "array_above_max_length", "input",
                             "input has more than %d items, the most allowed", MAX_ITEMS);
}

int responses_input_read(const cJSON *input, struct conversation *out, struct api_error *err) {
    struct reader reader = {.out = out, .err = err};
    const struct json_path *path = JSON_MEMBER_PATH(NULL, "input");
    const cJSON *item;
    int index = 0;
    if (cJSON_IsString(input))
        return read_text(&reader, input->valuestring);
    if (!cJSON_IsArray(input))
        return json_refuse_at(input, path, "a string or an array of items", err);
    if (responses_input_check_size(input, err) != 0)
        return -1;
    cJSON_ArrayForEach(item, input) {
        if (read_item(&reader, item, JSON_ITEM_PATH(path, index++)) != 0)
            return -1;
    }
    if (reader.num_left_out > 0)
        log_info("%d items of tools that are not run here are left out of a request",
                 reader.num_left_out);
    return reader.num_left_out == index ? read_text(&reader, "") : 0;
}
