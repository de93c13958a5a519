#include "server/api/conversation/conversation.h"

#include "config/base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROLE_BYTES 64

struct conversation conversation_defaults(const struct api_context *context,
                                          const struct conversation_names *names) {
    return (struct conversation){
        .names = names,
        .allows_parallel = true,
        .add_generation_prompt = true,
        .sampling = sampling_body_defaults(context, names->body, SAMPLING_TO_THE_END),
        .thinking_token_budget = -1,
        .include_reasoning = true,
    };
}

void conversation_finish(struct conversation *conversation) {
    for (int i = 0; i < conversation->num_messages; i++) {
        free(conversation->messages[i].parts);
        free(conversation->messages[i].calls);
    }
    free(conversation->messages);
    free(conversation->tools);
    sampling_body_finish(&conversation->sampling);
    byte_buffer_finish(&conversation->ignored);
    cJSON_Delete(conversation->owned);
    *conversation = (struct conversation){0};
}

/* --- Ownership --- */

const cJSON *conversation_own(struct conversation *conversation, cJSON *tree,
                              struct api_error *err) {
    if (conversation->owned == NULL)
        conversation->owned = cJSON_CreateArray();
    if (tree != NULL && conversation->owned != NULL &&
        cJSON_AddItemToArray(conversation->owned, tree))
        return tree;
    cJSON_Delete(tree);
    api_error_set_memory(err);
    return NULL;
}

const char *conversation_own_text(struct conversation *conversation, struct byte_buffer *text,
                                  struct api_error *err) {
    byte_buffer_append(text, "", 1);
    cJSON *made = text->failed ? NULL : cJSON_CreateString(text->data);
    byte_buffer_finish(text);
    const cJSON *owned = conversation_own(conversation, made, err);
    return owned != NULL ? owned->valuestring : NULL;
}

/* --- Messages --- */

static enum message_role role_of(const char *name) {
    static const char *const names[] = {
        [MESSAGE_SYSTEM] = "system", [MESSAGE_DEVELOPER] = "developer",
        [MESSAGE_USER] = "user",     [MESSAGE_ASSISTANT] = "assistant",
        [MESSAGE_TOOL] = "tool",
    };
    int role = 0;
    while (role < MESSAGE_OTHER && strcmp(name, names[role]) != 0)
        role++;
    return (enum message_role)role;
}

struct message *conversation_add_message(struct conversation *conversation, const char *role,
                                         struct api_error *err) {
    const char *field = conversation->names->messages;
    if (conversation->num_messages == CONVERSATION_MAX_MESSAGES) {
        bad_request(err, "array_above_max_length", field,
                    "%s has too many entries: at most %d are allowed", field,
                    CONVERSATION_MAX_MESSAGES);
        return NULL;
    }
    if (!array_reserve(&conversation->messages, &conversation->messages_capacity,
                       (size_t)conversation->num_messages + 1, sizeof(*conversation->messages))) {
        api_error_set_memory(err);
        return NULL;
    }
    struct message *message = &conversation->messages[conversation->num_messages++];
    *message = (struct message){.role = role_of(role), .role_name = role};
    return message;
}

struct message *conversation_last(const struct conversation *conversation) {
    int count = conversation->num_messages;
    return count > 0 ? &conversation->messages[count - 1] : NULL;
}

void conversation_drop_last(struct conversation *conversation) {
    free(conversation->messages[--conversation->num_messages].parts);
}

int message_add_part(struct message *message, const char *text, struct api_error *err) {
    if (!array_reserve(&message->parts, &message->parts_capacity, (size_t)message->num_parts + 1,
                       sizeof(*message->parts)))
        return api_error_set_memory(err);
    message->parts[message->num_parts++] = text;
    message->has_content = true;
    return 0;
}

struct message_call *message_add_call(struct message *message, struct api_error *err) {
    if (!array_reserve(&message->calls, &message->calls_capacity, (size_t)message->num_calls + 1,
                       sizeof(*message->calls))) {
        api_error_set_memory(err);
        return NULL;
    }
    struct message_call *call = &message->calls[message->num_calls++];
    *call = (struct message_call){0};
    return call;
}

const char *message_role_name(const cJSON *message, const struct json_path *path,
                              struct api_error *err) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const cJSON *role = json_given_member(message, "role");
    size_t length = cJSON_IsString(role) ? strspn(role->valuestring, allowed) : 0;
    if (length > 0 && length <= MAX_ROLE_BYTES && role->valuestring[length] == '\0')
        return role->valuestring;
    json_refuse_at(role, JSON_MEMBER_PATH(path, "role"),
                   "system, developer, user, assistant, tool or another role of the model's chat "
                   "template: 1 to 64 of the characters a-z, A-Z, 0-9, _ and -",
                   err);
    return NULL;
}

/* --- Ignored members --- */

static bool is_listed(const struct byte_buffer *names, const char *name, size_t length) {
    for (size_t at = 0; at < names->length;) {
        const char *comma = memchr(names->data + at, ',', names->length - at);
        size_t end = comma != NULL ? (size_t)(comma - names->data) : names->length;
        if (end - at == length && memcmp(names->data + at, name, length) == 0)
            return true;
        at = end + 1;
    }
    return false;
}

/* Appends a name to the ignored ones. Returns false when the list is cut: further names would be
 * left out. */
static bool ignore(struct conversation *conversation, const char *name, const char *prefix) {
    struct byte_buffer written = {0};
    bool goes_on = true;
    json_fields_append_name(name, prefix, &written);
    if (written.failed)
        conversation->ignored.failed = true;
    else if (!is_listed(&conversation->ignored, written.data, written.length))
        goes_on = json_fields_append_name(name, prefix, &conversation->ignored);
    byte_buffer_finish(&written);
    return goes_on;
}

void conversation_ignore(struct conversation *conversation, const char *name) {
    ignore(conversation, name, "");
}

void conversation_ignore_members(struct conversation *conversation, const cJSON *object,
                                 const char *prefix, const char *const *known, size_t num_known) {
    char begin[JSON_PATH_BYTES];
    const cJSON *member;
    snprintf(begin, sizeof(begin), "%s.", prefix);
    cJSON_ArrayForEach(member, object) {
        size_t i = 0;
        while (i < num_known && strcmp(known[i], member->string) != 0)
            i++;
        if (i == num_known && json_is_given(member) && !ignore(conversation, member->string, begin))
            return;
    }
}

/* --- Derived values --- */

int32_t conversation_num_logprobs(const struct conversation *conversation) {
    return conversation->logprobs ? (int32_t)conversation->top_logprobs : -1;
}

bool conversation_forces_calls(const struct conversation *conversation) {
    return conversation->tool_choice == TOOL_CHOICE_REQUIRED ||
           conversation->tool_choice == TOOL_CHOICE_NAMED;
}
