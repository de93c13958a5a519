#include "server/api/messages/messages_input.h"

#include "config/base/byte_buffer.h"
#include "server/api/chat/chat_translation.h"
#include "config/json/json_field.h"
#include "server/output/output_parser.h"

#include <stdio.h>
#include <string.h>

#define MAX_PATH 64
#define ERROR_TEXT "Error:" /* before the content of a tool_result that is an error */

struct reader {
    cJSON *chat, *messages;       /* the chat's, as made so far */
    struct byte_buffer reasoning; /* of the last message, which has not got it yet */
    struct api_error *err;
};

static int add_text(struct reader *reader, cJSON *object, const char *name, const char *text) {
    return chat_translation_add_text(object, name, text, reader->err);
}

/* Returns the member of that name, added as `made` if it is not there yet. */
static cJSON *take_member(struct reader *reader, cJSON *object, const char *name, cJSON *made) {
    if (chat_translation_add(object, name, made, reader->err) != 0)
        return NULL;
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static cJSON *array_of(struct reader *reader, cJSON *object, const char *name) {
    cJSON *array = cJSON_GetObjectItemCaseSensitive(object, name);
    return array != NULL ? array : take_member(reader, object, name, cJSON_CreateArray());
}

/* --- The chat's messages --- */

static cJSON *last_message(const struct reader *reader) {
    cJSON *child = reader->messages->child;
    return child != NULL ? child->prev : NULL; /* cJSON: the first one's prev is the last */
}

static bool has_role(const cJSON *message, const char *role) {
    const cJSON *given = json_member(message, "role");
    return cJSON_IsString(given) && strcmp(given->valuestring, role) == 0;
}

/* Gives the last message its reasoning, and content if it has none. */
static int end_message(struct reader *reader) {
    cJSON *message = last_message(reader);
    struct byte_buffer *reasoning = &reader->reasoning;
    if (reasoning->length > 0) {
        byte_buffer_append(reasoning, "", 1);
        cJSON *text = reasoning->failed ? NULL : cJSON_CreateString(reasoning->data);
        byte_buffer_clear(reasoning);
        if (chat_translation_add(message, "reasoning_content", text, reader->err) != 0)
            return -1;
    }
    if (message == NULL || json_member(message, "content") != NULL)
        return 0;
    if (json_member(message, "tool_calls") != NULL)
        return chat_translation_add(message, "content", cJSON_CreateNull(), reader->err);
    return add_text(reader, message, "content", "");
}

static cJSON *begin_message(struct reader *reader, const char *role) {
    if (end_message(reader) != 0)
        return NULL;
    cJSON *message = chat_translation_append(reader->messages, cJSON_CreateObject(), reader->err);
    return message != NULL && add_text(reader, message, "role", role) == 0 ? message : NULL;
}

/* Returns the message that what a turn of this role says next belongs to. */
static cJSON *message_of(struct reader *reader, const char *role) {
    cJSON *last = last_message(reader);
    bool is_turn = strcmp(role, "system") != 0;
    return last != NULL && is_turn && has_role(last, role) ? last : begin_message(reader, role);
}

static int add_part(struct reader *reader, cJSON *parts, const char *text) {
    cJSON *part = chat_translation_append(parts, cJSON_CreateObject(), reader->err);
    if (part == NULL || add_text(reader, part, "type", "text") != 0)
        return -1;
    return add_text(reader, part, "text", text);
}

static int add_content(struct reader *reader, cJSON *message, const char *text) {
    cJSON *parts = message != NULL ? array_of(reader, message, "content") : NULL;
    return parts != NULL ? add_part(reader, parts, text) : -1;
}

/* --- Blocks --- */

struct block {
    const cJSON *json;
    const char *path, *type;
};

static int take_text(struct reader *reader, const struct block *block, const char *name,
                     const char **out) {
    char path[MAX_PATH];
    const cJSON *text = json_member(block->json, name);
    snprintf(path, sizeof(path), "%.46s.%.16s", block->path, name);
    if (!cJSON_IsString(text))
        return json_refuse(text, path, "a string", reader->err);
    *out = text->valuestring;
    return 0;
}

static int pass_on(struct reader *reader, const struct block *block, const char *prefix,
                   const char *const *known, size_t num_known) {
    return chat_translation_pass_on(reader->chat, block->json, prefix, known, num_known,
                                    reader->err);
}

static int read_type(struct reader *reader, struct block *block) {
    char path[MAX_PATH];
    const cJSON *type = json_member(block->json, "type");
    snprintf(path, sizeof(path), "%.56s.type", block->path);
    if (!cJSON_IsObject(block->json))
        return json_refuse(block->json, block->path, "a content block, an object with a type",
                           reader->err);
    if (!cJSON_IsString(type))
        return json_refuse(type, path, "the type of a content block", reader->err);
    block->type = type->valuestring;
    return 0;
}

static bool is_type(const struct block *block, const char *type) {
    return strcmp(block->type, type) == 0;
}

static int refuse_type(struct reader *reader, const struct block *block, const char *allowed) {
    char path[MAX_PATH];
    snprintf(path, sizeof(path), "%.56s.type", block->path);
    return bad_request(reader->err, "unsupported_content", path,
                       "%s is \"%.40s\": this server takes %s here", path, block->type, allowed);
}

static int read_text(struct reader *reader, const struct block *block, const char *prefix,
                     const char **out) {
    static const char *const known[] = {"type", "text"};
    if (take_text(reader, block, "text", out) != 0)
        return -1;
    return pass_on(reader, block, prefix, known, sizeof(known) / sizeof(known[0]));
}

static int read_texts(struct reader *reader, const cJSON *content, const char *path,
                      const char *prefix, cJSON *parts) {
    int index = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, content) {
        char inner[MAX_PATH];
        const char *text = NULL;
        snprintf(inner, sizeof(inner), "%.50s[%d]", path, index++);
        struct block block = {.json = item, .path = inner};
        if (read_type(reader, &block) != 0)
            return -1;
        if (!is_type(&block, "text"))
            return refuse_type(reader, &block, "text only");
        if (read_text(reader, &block, prefix, &text) != 0 || add_part(reader, parts, text) != 0)
            return -1;
    }
    return 0;
}

/* Reads a text, or a list of texts. */
static int read_content(struct reader *reader, const cJSON *content, const char *path,
                        const char *prefix, cJSON *parts) {
    if (cJSON_IsString(content))
        return add_part(reader, parts, content->valuestring);
    if (!cJSON_IsArray(content))
        return json_refuse(content, path, "a string or an array of text blocks", reader->err);
    return read_texts(reader, content, path, prefix, parts);
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
    if (reader->reasoning.failed)
        return api_error_set_memory(reader->err);
    return pass_on(reader, block, "messages[].content[]", known, sizeof(known) / sizeof(known[0]));
}

/* What is encrypted there cannot be read here: its data is named as ignored. */
static int read_redacted(struct reader *reader, const struct block *block) {
    static const char *const known[] = {"type"};
    const char *data = NULL;
    if (take_text(reader, block, "data", &data) != 0)
        return -1;
    return pass_on(reader, block, "messages[].content[]", known, 1);
}

static int add_call(struct reader *reader, cJSON *calls, const char *id, const char *name,
                    const cJSON *input) {
    cJSON *call = chat_translation_append(calls, cJSON_CreateObject(), reader->err);
    if (call == NULL || add_text(reader, call, "id", id) != 0 ||
        add_text(reader, call, "type", "function") != 0)
        return -1;
    cJSON *function = take_member(reader, call, "function", cJSON_CreateObject());
    if (function == NULL || add_text(reader, function, "name", name) != 0)
        return -1;
    return chat_translation_refer(function, "arguments", input, reader->err);
}

static int read_tool_use(struct reader *reader, const struct block *block) {
    static const char *const known[] = {"type", "id", "name", "input"};
    const char *id = NULL, *name = NULL;
    char path[MAX_PATH];
    const cJSON *input = json_member(block->json, "input");
    snprintf(path, sizeof(path), "%.56s.input", block->path);
    if (take_text(reader, block, "id", &id) != 0 || take_text(reader, block, "name", &name) != 0)
        return -1;
    if (!cJSON_IsObject(input))
        return json_refuse(input, path, "an object", reader->err);
    cJSON *message = message_of(reader, "assistant");
    cJSON *calls = message != NULL ? array_of(reader, message, "tool_calls") : NULL;
    if (calls == NULL)
        return -1;
    if (cJSON_GetArraySize(calls) == OUTPUT_MAX_TOOL_CALLS)
        return bad_request(reader->err, "array_above_max_length", block->path,
                           "%s is one tool_use too many: at most %d are allowed in a turn",
                           block->path, OUTPUT_MAX_TOOL_CALLS);
    if (add_call(reader, calls, id, name, input) != 0)
        return -1;
    return pass_on(reader, block, "messages[].content[]", known, sizeof(known) / sizeof(known[0]));
}

static int read_tool_result(struct reader *reader, const struct block *block) {
    static const char *const known[] = {"type", "tool_use_id", "content", "is_error"};
    const char *id = NULL;
    char path[MAX_PATH];
    const cJSON *content = json_given_member(block->json, "content");
    const cJSON *is_error = json_given_member(block->json, "is_error");
    snprintf(path, sizeof(path), "%.52s.is_error", block->path);
    if (is_error != NULL && !cJSON_IsBool(is_error))
        return json_refuse(is_error, path, "true or false", reader->err);
    if (take_text(reader, block, "tool_use_id", &id) != 0)
        return -1;
    cJSON *message = begin_message(reader, "tool");
    if (message == NULL || add_text(reader, message, "tool_call_id", id) != 0 ||
        (cJSON_IsTrue(is_error) && add_content(reader, message, ERROR_TEXT) != 0))
        return -1;
    snprintf(path, sizeof(path), "%.52s.content", block->path);
    cJSON *parts = content != NULL ? array_of(reader, message, "content") : NULL;
    if (content != NULL &&
        (parts == NULL ||
         read_content(reader, content, path, "messages[].content[].content[]", parts) != 0))
        return -1;
    return pass_on(reader, block, "messages[].content[]", known, sizeof(known) / sizeof(known[0]));
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
        return read_text(reader, block, "messages[].content[]", &text) == 0
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
                       const char *path) {
    int index = 0;
    const cJSON *item;
    if (content->child == NULL)
        return message_of(reader, role) != NULL ? 0 : -1;
    cJSON_ArrayForEach(item, content) {
        char inner[MAX_PATH];
        snprintf(inner, sizeof(inner), "%.48s[%d]", path, index++);
        struct block block = {.json = item, .path = inner};
        if (read_block(reader, role, &block) != 0)
            return -1;
    }
    return 0;
}

static int read_message(struct reader *reader, const cJSON *message, const char *path) {
    static const char *const known[] = {"role", "content"}, *const roles[] = {"user", "assistant",
                                                                              "system"};
    char inner[MAX_PATH];
    const cJSON *role = json_member(message, "role"), *content = json_member(message, "content");
    if (!cJSON_IsObject(message))
        return json_refuse(message, path, "an object with role and content", reader->err);
    snprintf(inner, sizeof(inner), "%s.role", path);
    if (!cJSON_IsString(role) || !CHAT_TRANSLATION_HAS(roles, role->valuestring))
        return json_refuse(role, inner, "\"user\", \"assistant\" or \"system\"", reader->err);
    snprintf(inner, sizeof(inner), "%s.content", path);
    if (CHAT_TRANSLATION_PASS_ON(reader->chat, message, "messages[]", known, reader->err) != 0)
        return -1;
    if (cJSON_IsString(content))
        return add_content(reader, message_of(reader, role->valuestring), content->valuestring);
    if (!cJSON_IsArray(content))
        return json_refuse(content, inner, "a string or an array of content blocks", reader->err);
    return read_blocks(reader, role->valuestring, content, inner);
}

/* Takes Claude Code's billing line out of the system prompt: it is another one in every request, so
 * that no prompt would begin as the one before it. */
static int leave_out_billing(struct reader *reader, cJSON *parts) {
    static const char prefix[] = "x-anthropic-billing-header:";
    for (cJSON *part = parts->child, *next; part != NULL; part = next) {
        next = part->next;
        const char *text = json_member(part, "text")->valuestring;
        if (strncmp(text, prefix, sizeof(prefix) - 1) != 0)
            continue;
        const char *rest = text + strcspn(text, "\n");
        if (*rest == '\0')
            cJSON_Delete(cJSON_DetachItemViaPointer(parts, part));
        else if (!cJSON_ReplaceItemInObjectCaseSensitive(part, "text",
                                                         cJSON_CreateStringReference(rest + 1)))
            return api_error_set_memory(reader->err);
    }
    return 0;
}

static int read_system(struct reader *reader, const cJSON *system) {
    if (!json_is_given(system))
        return 0;
    cJSON *message = begin_message(reader, "system");
    cJSON *parts = message != NULL ? array_of(reader, message, "content") : NULL;
    if (parts == NULL || read_content(reader, system, "system", "system[]", parts) != 0)
        return -1;
    bool is_empty = parts->child == NULL;
    if (leave_out_billing(reader, parts) != 0)
        return -1;
    if (parts->child == NULL && !is_empty)
        cJSON_Delete(cJSON_DetachItemViaPointer(reader->messages, message));
    return 0;
}

static int read_messages(struct reader *reader, const cJSON *given) {
    int index = 0;
    const cJSON *message;
    if (!cJSON_IsArray(given) || given->child == NULL)
        return json_refuse(given, "messages", "an array of one message or more", reader->err);
    cJSON_ArrayForEach(message, given) {
        char path[32];
        snprintf(path, sizeof(path), "messages[%d]", index++);
        if (read_message(reader, message, path) != 0)
            return -1;
    }
    return 0;
}

/* The answer continues what the assistant has said last; a call that has no result cannot be. */
static int read_end(struct reader *reader) {
    const cJSON *last = last_message(reader);
    if (end_message(reader) != 0)
        return -1;
    if (!has_role(last, "assistant"))
        return 0;
    if (json_member(last, "tool_calls") != NULL)
        return bad_request(reader->err, "unsupported_value", "messages",
                           "messages must not end with a tool_use: its tool_result is missing");
    return chat_translation_add(reader->chat, "continue_final_message", cJSON_CreateTrue(),
                                reader->err);
}

int messages_input_read(const cJSON *body, cJSON *chat, struct api_error *err) {
    struct reader reader = {.chat = chat, .err = err};
    reader.messages = take_member(&reader, chat, "messages", cJSON_CreateArray());
    int result = -1;
    if (reader.messages != NULL && read_system(&reader, json_member(body, "system")) == 0 &&
        read_messages(&reader, json_member(body, "messages")) == 0)
        result = read_end(&reader);
    byte_buffer_finish(&reader.reasoning);
    return result;
}
