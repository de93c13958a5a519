#include "server/api/chat/message_members.h"

#include "server/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 64
#define MAX_NAMES 16 /* more are not told apart */

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

static bool asks_for_nothing(const cJSON *item) {
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
        {"function_call", "unsupported_parameter", " is not supported: use tool_calls"},
        {"partial", "unsupported_parameter", " is not supported: use continue_final_message"},
        {"prefix", "unsupported_parameter", " is not supported: use continue_final_message"},
        {"tools", "unsupported_parameter", " is not supported: tools stand beside the messages"},
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const cJSON *member = json_given_member(message, refused[i].name);
        char at[PATH_BYTES];
        if (member == NULL || asks_for_nothing(member))
            continue;
        snprintf(at, sizeof(at), "%.40s.%s", path, refused[i].name);
        return api_error_set(err, 400, "invalid_request_error", refused[i].code, at, "%s%s", at,
                             refused[i].why);
    }
    return 0;
}

/* Names that were told, so that a long chat tells each once. */
struct told {
    const char *names[MAX_NAMES];
    int count;
};

static bool is_told(struct told *told, const char *name) {
    for (int i = 0; i < told->count; i++)
        if (strcmp(told->names[i], name) == 0)
            return true;
    if (told->count == MAX_NAMES)
        return true;
    told->names[told->count++] = name;
    return false;
}

static void list_members(const cJSON *object, struct json_table table, const char *prefix,
                         struct told *told, struct byte_buffer *names) {
    const cJSON *member;
    if (!cJSON_IsObject(object))
        return;
    cJSON_ArrayForEach(member, object) {
        if (json_fields_know(&table, 1, member->string) || asks_for_nothing(member) ||
            is_told(told, member->string))
            continue;
        json_fields_append_name(member->string, prefix, names);
    }
}

void message_members_list_unknown(const cJSON *messages, struct byte_buffer *names) {
    struct told told = {0}, told_of_parts = {0};
    const cJSON *message, *part;
    if (!cJSON_IsArray(messages))
        return;
    cJSON_ArrayForEach(message, messages) {
        const cJSON *content = json_given_member(message, "content");
        list_members(message, JSON_TABLE(message_fields), "messages[].", &told, names);
        if (!cJSON_IsArray(content))
            continue;
        cJSON_ArrayForEach(part, content) {
            list_members(part, JSON_TABLE(part_fields), "messages[].content[].", &told_of_parts,
                         names);
        }
    }
}
