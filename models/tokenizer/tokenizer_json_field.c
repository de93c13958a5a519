#include "models/tokenizer/tokenizer_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int tokenizer_json_refuse(struct tokenizer_json *json, const char *format, ...) {
    char message[384];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    for (char *c = message; *c != '\0'; c++) /* texts of the file: one line of ASCII */
        *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
    return error_set(json->err, ERROR_MODEL, "%s: %s", json->path, message);
}

int tokenizer_json_no_memory(struct tokenizer_json *json) {
    return error_set(json->err, ERROR_MEMORY, "%s: no memory for the tokenizer", json->path);
}

bool tokenizer_json_copy(struct tokenizer_json *json, const char *text, struct text *out) {
    size_t length = strlen(text);
    char *copy = tokenizer_spec_alloc(json->spec, length + 1);
    if (copy == NULL)
        return false;
    memcpy(copy, text, length);
    *out = (struct text){copy, length};
    return true;
}

const cJSON *json_field(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNull(item) ? NULL : item;
}

int json_field_bool(struct tokenizer_json *json, const cJSON *object, const char *where,
                    const char *key, bool otherwise, bool *out) {
    const cJSON *item = json_field(object, key);
    if (item != NULL && !cJSON_IsBool(item))
        return tokenizer_json_refuse(json, "%s.%s is neither true nor false", where, key);
    *out = item != NULL ? cJSON_IsTrue(item) : otherwise;
    return 0;
}

int json_field_text(struct tokenizer_json *json, const cJSON *object, const char *where,
                    const char *key, const char **out) {
    const cJSON *item = json_field(object, key);
    if (!cJSON_IsString(item))
        return tokenizer_json_refuse(json, "%s.%s is %s", where, key,
                                     item == NULL ? "missing" : "not a string");
    *out = item->valuestring;
    return 0;
}

int json_field_index(struct tokenizer_json *json, const cJSON *object, const char *where,
                     const char *key, int32_t limit, int32_t *out) {
    const cJSON *item = json_field(object, key);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble < limit) ||
        item->valuedouble != (int32_t)item->valuedouble)
        return tokenizer_json_refuse(json, "%s.%s is %s, 0 to %d are allowed", where, key,
                                     item == NULL ? "missing" : "no such integer", limit - 1);
    *out = (int32_t)item->valuedouble;
    return 0;
}

int json_field_choice(struct tokenizer_json *json, const cJSON *object, const char *where,
                      const char *key, const char *const *names, int count, int *out) {
    const char *name;
    if (json_field_text(json, object, where, key, &name) != 0)
        return -1;
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = i;
            return 0;
        }
    }
    char known[256] = "";
    for (int i = 0, used = 0; i < count && used < (int)sizeof(known); i++)
        used +=
            snprintf(known + used, sizeof(known) - (size_t)used, "%s%s", i ? ", " : "", names[i]);
    return tokenizer_json_refuse(json, "%s.%s is \"%.64s\", supported are %s", where, key, name,
                                 known);
}

int json_field_array(struct tokenizer_json *json, const cJSON *object, const char *where,
                     const char *key, const cJSON **out) {
    const cJSON *item = json_field(object, key);
    if (!cJSON_IsArray(item))
        return tokenizer_json_refuse(json, "%s.%s is %s", where, key,
                                     item == NULL ? "missing" : "not a list");
    *out = item;
    return 0;
}

const char *tokenizer_json_named(const cJSON *config, const char *key) {
    const cJSON *item = json_field(config, key);
    if (cJSON_IsObject(item))
        item = json_field(item, "content");
    return cJSON_IsString(item) ? item->valuestring : NULL;
}
