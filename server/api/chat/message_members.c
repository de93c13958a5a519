#include "server/api/chat/message_members.h"

#include "config/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 64
#define MAX_NAMES 16 /* distinguished; the rest is not listed */

static const struct json_field message_fields[] = {
    JSON_OTHER(role),      JSON_OTHER(content),           JSON_OTHER(refusal),
    JSON_OTHER(name),      JSON_OTHER(tool_calls),        JSON_OTHER(tool_call_id),
    JSON_OTHER(reasoning), JSON_OTHER(reasoning_content),
};

static const struct json_field part_fields[] = {
    JSON_OTHER(type),
    JSON_OTHER(text),
    JSON_OTHER(refusal),
};

static bool is_empty(const cJSON *item) {
    if (cJSON_IsString(item))
        return item->valuestring[0] == '\0';
    return cJSON_IsNull(item) || cJSON_IsFalse(item) ||
           ((cJSON_IsArray(item) || cJSON_IsObject(item)) && item->child == NULL);
}

int message_members_check(const cJSON *message, const char *path, struct api_error *err) {
    static const struct {
        const char *name, *code, *why;
    } refused[] = {
        {"audio", "unsupported_content", ": this server takes text only"},
        {"function_call", "unsupported_parameter", ": only an assistant's message has one"},
        {"partial", "unsupported_parameter", " is not supported: use continue_final_message"},
        {"prefix", "unsupported_parameter", " is not supported: use continue_final_message"},
        {"tools", "unsupported_parameter", " is not supported: tools stand beside the messages"},
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const cJSON *member = json_given_member(message, refused[i].name);
        char at[PATH_BYTES];
        if (member == NULL || is_empty(member))
            continue;
        snprintf(at, sizeof(at), "%.40s.%s", path, refused[i].name);
        return bad_request(err, refused[i].code, at, "%s%s", at, refused[i].why);
    }
    return 0;
}

/* Names that are listed already, so that a long chat lists each once. */
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

void message_members_list_unknown(const cJSON *messages, struct byte_buffer *names) {
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
