#include "server/api/messages/messages_body.h"

#include "config/json/json_field.h"

#include <string.h>

#define ERROR_TEXT "Error:" /* before the content of a tool_result that is an error */
#define BLOCKS "messages[].content[]"

struct reader {
    struct conversation *out;
    struct byte_buffer reasoning; /* of the last message, not added to it yet */
    struct api_error *err;
};

/* --- Messages, while they are made --- */

/* Adds its reasoning to the last message, and empty content if it has none. */
static int end_message(struct reader *reader) {
    struct message *message = conversation_last(reader->out);
    if (message != NULL && reader->reasoning.length > 0) {
        message->reasoning = conversation_own_text(reader->out, &reader->reasoning, reader->err);
        if (message->reasoning == NULL)
            return -1;
    }
    return message == NULL || message->has_content || message->num_calls > 0
               ? 0
               : message_add_part(message, "", reader->err);
}

static struct message *begin_message(struct reader *reader, const char *role) {
    return end_message(reader) == 0 ? conversation_add_message(reader->out, role, reader->err)
                                    : NULL;
}

/* Returns the message to which the next block of a turn of this role belongs. */
static struct message *message_of(struct reader *reader, const char *role) {
    struct message *last = conversation_last(reader->out);
    bool is_turn = strcmp(role, "system") != 0;
    return last != NULL && is_turn && strcmp(last->role_name, role) == 0
               ? last
               : begin_message(reader, role);
}

static int add_content(struct reader *reader, struct message *message, const char *text) {
    return message != NULL ? message_add_part(message, text, reader->err) : -1;
}

/* --- Blocks --- */

struct block {
    const cJSON *json;
    const struct json_path *path;
    const char *type;
};

static int take_text(struct reader *reader, const struct block *block, const char *name,
                     const char **out) {
    const cJSON *text = json_member(block->json, name);
    *out = cJSON_GetStringValue(text);
    return *out != NULL
               ? 0
               : json_refuse_at(text, JSON_MEMBER_PATH(block->path, name), "a string", reader->err);
}

static int read_type(struct reader *reader, struct block *block) {
    const cJSON *type = json_member(block->json, "type");
    if (!cJSON_IsObject(block->json))
        return json_refuse_at(block->json, block->path, "a content block, an object with a type",
                              reader->err);
    if (!cJSON_IsString(type))
        return json_refuse_at(type, JSON_MEMBER_PATH(block->path, "type"),
                              "the type of a content block", reader->err);
    block->type = type->valuestring;
    return 0;
}

static bool is_type(const struct block *block, const char *type) {
    return strcmp(block->type, type) == 0;
}

static int refuse_type(struct reader *reader, const struct block *block, const char *allowed) {
    return bad_request_at(reader->err, "unsupported_content", JSON_MEMBER_PATH(block->path, "type"),
                          " is \"%.40s\": this server takes %s here", block->type, allowed);
}

static int read_text(struct reader *reader, const struct block *block, const char *prefix,
                     const char **out) {
    static const char *const known[] = {"type", "text"};
    CONVERSATION_IGNORE(reader->out, block->json, prefix, known);
    return take_text(reader, block, "text", out);
}

/* Reads a text, or a list of texts. */
static int read_content(struct reader *reader, const cJSON *content, const struct json_path *path,
                        const char *prefix, struct message *out) {
    const cJSON *item;
    int index = 0;
    if (cJSON_IsString(content))
        return add_content(reader, out, content->valuestring);
    if (!cJSON_IsArray(content))
        return json_refuse_at(content, path, "a string or an array of text blocks", reader->err);
    out->has_content = true;
    cJSON_ArrayForEach(item, content) {
        struct block block = {.json = item, .path = JSON_ITEM_PATH(path, index++)};
        const char *text = NULL;
        if (read_type(reader, &block) != 0)
            return -1;
        if (!is_type(&block, "text"))
            return refuse_type(reader, &block, "text only");
        if (read_text(reader, &block, prefix, &text) != 0 || add_content(reader, out, text) != 0)
            return -1;
    }
    return 0;
}

static int read_thinking(struct reader *reader, const struct block *block) {
    static const char *const known[] = {"type", "thinking", "signature"};
    const char *text = NULL, *signature = NULL;
    if (take_text(reader, block, "thinking", &text) != 0 ||
        take_text(reader, block, "signature", &signature) != 0 ||
        message_of(reader, "assistant") == NULL)
        return -1;
    if (reader->reasoning.length > 0 && text[0] != '\0')
        byte_buffer_append(&reader->reasoning, "\n", 1);
    byte_buffer_append_text(&reader->reasoning, text);
    CONVERSATION_IGNORE(reader->out, block->json, BLOCKS, known);
    return reader->reasoning.failed ? api_error_set_memory(reader->err) : 0;
}

/* Encrypted reasoning cannot be read here: its data is listed as ignored. */
static int read_redacted(struct reader *reader, const struct block *block) {
    static const char *const known[] = {"type"};
    const char *data = NULL;
    CONVERSATION_IGNORE(reader->out, block->json, BLOCKS, known);
    return take_text(reader, block, "data", &data);
}

static int read_tool_use(struct reader *reader, const struct block *block) {
    static const char *const known[] = {"type", "id", "name", "input"};
    const cJSON *input = json_member(block->json, "input");
    struct message_call read = {.object = input};
    if (take_text(reader, block, "id", &read.id) != 0 ||
        take_text(reader, block, "name", &read.name) != 0)
        return -1;
    if (read.name[0] == '\0')
        return json_refuse_at(json_member(block->json, "name"),
                              JSON_MEMBER_PATH(block->path, "name"), "the name of a tool",
                              reader->err);
    if (!cJSON_IsObject(input))
        return json_refuse_at(input, JSON_MEMBER_PATH(block->path, "input"), "an object",
                              reader->err);
    struct message *message = message_of(reader, "assistant");
    if (message == NULL)
        return -1;
    if (message->num_calls == MESSAGE_MAX_CALLS)
        return bad_request_at(reader->err, "array_above_max_length", block->path,
                              " is one tool_use too many: at most %d are allowed in a turn",
                              MESSAGE_MAX_CALLS);
    struct message_call *call = message_add_call(message, reader->err);
    if (call == NULL)
        return -1;
    *call = read;
    CONVERSATION_IGNORE(reader->out, block->json, BLOCKS, known);
    return 0;
}

static int read_tool_result(struct reader *reader, const struct block *block) {
    static const char *const known[] = {"type", "tool_use_id", "content", "is_error"};
    const char *id = NULL;
    const cJSON *content = json_given_member(block->json, "content"),
                *is_error = json_given_member(block->json, "is_error");
    if (is_error != NULL && !cJSON_IsBool(is_error))
        return json_refuse_at(is_error, JSON_MEMBER_PATH(block->path, "is_error"), "true or false",
                              reader->err);
    if (take_text(reader, block, "tool_use_id", &id) != 0)
        return -1;
    struct message *message = begin_message(reader, "tool");
    if (message == NULL)
        return -1;
    message->tool_call_id = id;
    if (cJSON_IsTrue(is_error) && add_content(reader, message, ERROR_TEXT) != 0)
        return -1;
    CONVERSATION_IGNORE(reader->out, block->json, BLOCKS, known);
    return content == NULL ? 0
                           : read_content(reader, content, JSON_MEMBER_PATH(block->path, "content"),
                                          BLOCKS ".content[]", message);
}

static int read_assistant_block(struct reader *reader, const struct block *block) {
    if (is_type(block, "tool_use"))
        return read_tool_use(reader, block);
    if (is_type(block, "thinking"))
        return read_thinking(reader, block);
    if (is_type(block, "redacted_thinking"))
        return read_redacted(reader, block);
    return refuse_type(reader, block, "text, thinking, redacted_thinking and tool_use");
}

static int read_block(struct reader *reader, const char *role, struct block *block) {
    const char *text = NULL;
    if (read_type(reader, block) != 0)
        return -1;
    if (is_type(block, "text"))
        return read_text(reader, block, BLOCKS, &text) == 0
                   ? add_content(reader, message_of(reader, role), text)
                   : -1;
    if (strcmp(role, "assistant") == 0)
        return read_assistant_block(reader, block);
    if (strcmp(role, "user") == 0 && is_type(block, "tool_result"))
        return read_tool_result(reader, block);
    return refuse_type(reader, block,
                       strcmp(role, "user") == 0 ? "text and tool_result" : "text only");
}

/* --- Messages --- */

static int read_blocks(struct reader *reader, const char *role, const cJSON *content,
                       const struct json_path *path) {
    const cJSON *item;
    int index = 0;
    if (content->child == NULL)
        return message_of(reader, role) != NULL ? 0 : -1;
    cJSON_ArrayForEach(item, content) {
        struct block block = {.json = item, .path = JSON_ITEM_PATH(path, index++)};
        if (read_block(reader, role, &block) != 0)
            return -1;
    }
    return 0;
}

static const char *read_role(const cJSON *role, const struct json_path *path,
                             struct api_error *err) {
    static const char *const roles[] = {"user", "assistant", "system"};
    for (size_t i = 0; cJSON_IsString(role) && i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strcmp(role->valuestring, roles[i]) == 0)
            return roles[i];
    json_refuse_at(role, path, "\"user\", \"assistant\" or \"system\"", err);
    return NULL;
}

static int read_message(struct reader *reader, const cJSON *message, const struct json_path *path) {
    static const char *const known[] = {"role", "content"};
    const struct json_path *content_path = JSON_MEMBER_PATH(path, "content");
    const cJSON *content = json_member(message, "content");
    if (!cJSON_IsObject(message))
        return json_refuse_at(message, path, "an object with role and content", reader->err);
    const char *role =
        read_role(json_member(message, "role"), JSON_MEMBER_PATH(path, "role"), reader->err);
    if (role == NULL)
        return -1;
    CONVERSATION_IGNORE(reader->out, message, "messages[]", known);
    if (cJSON_IsString(content))
        return add_content(reader, message_of(reader, role), content->valuestring);
    if (!cJSON_IsArray(content))
        return json_refuse_at(content, content_path, "a string or an array of content blocks",
                              reader->err);
    return read_blocks(reader, role, content, content_path);
}

/* Removes Claude Code's billing line from the system prompt. It differs in every request, so no
 * prompt would begin like the one before it. */
static void leave_out_billing(struct message *message) {
    static const char prefix[] = "x-anthropic-billing-header:";
    int num_left = 0;
    for (int i = 0; i < message->num_parts; i++) {
        const char *text = message->parts[i];
        bool is_billed = strncmp(text, prefix, sizeof(prefix) - 1) == 0;
        const char *end = text + strcspn(text, "\n");
        if (!is_billed || *end != '\0')
            message->parts[num_left++] = is_billed ? end + 1 : text;
    }
    message->num_parts = num_left;
}

static int read_system(struct reader *reader, const cJSON *system) {
    if (!json_is_given(system))
        return 0;
    struct message *message = begin_message(reader, "system");
    if (message == NULL ||
        read_content(reader, system, JSON_MEMBER_PATH(NULL, "system"), "system[]", message) != 0)
        return -1;
    int num_parts = message->num_parts;
    leave_out_billing(message);
    if (message->num_parts == 0 && num_parts > 0)
        conversation_drop_last(reader->out);
    return 0;
}

static int read_messages(struct reader *reader, const cJSON *given) {
    const struct json_path *path = JSON_MEMBER_PATH(NULL, "messages");
    const cJSON *message;
    int index = 0;
    if (!cJSON_IsArray(given) || given->child == NULL)
        return json_refuse_at(given, path, "an array of one message or more", reader->err);
    cJSON_ArrayForEach(message, given) {
        if (read_message(reader, message, JSON_ITEM_PATH(path, index++)) != 0)
            return -1;
    }
    return 0;
}

/* The answer continues the assistant's last message; a tool call without a result cannot be
 * continued. */
static int read_end(struct reader *reader) {
    const struct message *last = conversation_last(reader->out);
    if (last == NULL)
        return bad_request(reader->err, "invalid_type", "messages",
                           "messages must not be empty: all their blocks are left out");
    if (end_message(reader) != 0)
        return -1;
    if (last->role == MESSAGE_ASSISTANT && last->num_calls > 0)
        return bad_request(reader->err, "unsupported_value", "messages",
                           "messages must not end with a tool_use: its tool_result is missing");
    reader->out->continue_final_message = last->role == MESSAGE_ASSISTANT;
    return 0;
}

int messages_input_read(const cJSON *body, struct conversation *out, struct api_error *err) {
    struct reader reader = {.out = out, .err = err};
    int result = -1;
    if (read_system(&reader, json_member(body, "system")) == 0 &&
        read_messages(&reader, json_member(body, "messages")) == 0)
        result = read_end(&reader);
    byte_buffer_finish(&reader.reasoning);
    return result;
}
