#include "server/api/chat/chat_translation.h"

#include "config/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define MAX_PATH 80

/* Members of a chat's body. Each path that is passed on is searched for among them, and the header
 * that names what is ignored holds fewer. */
#define MAX_MEMBERS 1024

int chat_translation_add(cJSON *object, const char *name, cJSON *member, struct api_error *err) {
    if (member != NULL && cJSON_AddItemToObject(object, name, member))
        return 0;
    cJSON_Delete(member);
    return api_error_set_memory(err);
}

int chat_translation_add_text(cJSON *object, const char *name, const char *text,
                              struct api_error *err) {
    return chat_translation_add(object, name, cJSON_CreateStringReference(text), err);
}

/* cJSON_AddItemReferenceToObject loses the reference when memory for the name is short (1.7.15). */
cJSON *chat_translation_reference(const cJSON *item) {
    if (cJSON_IsString(item))
        return cJSON_CreateStringReference(item->valuestring);
    if (cJSON_IsObject(item))
        return cJSON_CreateObjectReference(item->child);
    if (cJSON_IsArray(item))
        return cJSON_CreateArrayReference(item->child);
    if (cJSON_IsNumber(item))
        return cJSON_Duplicate(item, false);
    if (cJSON_IsNull(item))
        return cJSON_CreateNull();
    return cJSON_CreateBool(cJSON_IsTrue(item));
}

int chat_translation_refer(cJSON *object, const char *name, const cJSON *member,
                           struct api_error *err) {
    if (!json_is_given(member))
        return 0;
    return chat_translation_add(object, name, chat_translation_reference(member), err);
}

cJSON *chat_translation_append(cJSON *array, cJSON *item, struct api_error *err) {
    if (item != NULL && cJSON_AddItemToArray(array, item))
        return item;
    cJSON_Delete(item);
    api_error_set_memory(err);
    return NULL;
}

bool chat_translation_has(const char *const *names, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static int pass_on_one(cJSON *chat, const cJSON *item, const char *prefix, struct api_error *err) {
    char path[MAX_PATH];
    snprintf(path, sizeof(path), "%.32s.%.40s", prefix, item->string);
    if (json_member(chat, path) != NULL)
        return 0;
    if (cJSON_GetArraySize(chat) >= MAX_MEMBERS)
        return bad_request(err, "unknown_parameter", path,
                           "%s is not known here, and there are more than %d like it", path,
                           MAX_MEMBERS);
    return chat_translation_refer(chat, path, item, err);
}

int chat_translation_pass_on(cJSON *chat, const cJSON *object, const char *prefix,
                             const char *const *known, size_t num_known, struct api_error *err) {
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        if (!chat_translation_has(known, num_known, item->string) && json_is_given(item) &&
            pass_on_one(chat, item, prefix, err) != 0)
            return -1;
    }
    return 0;
}
