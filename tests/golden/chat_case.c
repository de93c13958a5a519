#include "tests/golden/chat_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES ((size_t)64 << 20)
#define MAX_FILE (4 << 20)

char *chat_case_read(const char *folder, const char *name, size_t *out_length) {
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    char *data = malloc(MAX_FILE);
    if (file == NULL || data == NULL) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    *out_length = fread(data, 1, MAX_FILE - 1, file);
    data[*out_length] = '\0';
    fclose(file);
    return data;
}

struct chat_template *chat_case_compile(const char *source, size_t length, struct error *err) {
    struct chat_template *chat = NULL;
    return chat_template_create(source, length, &chat, err) == 0 ? chat : NULL;
}

static bool is_ours(const char *key) {
    return key != NULL && (strcmp(key, "role") == 0 || strcmp(key, "bos_token") == 0 ||
                           strcmp(key, "eos_token") == 0);
}

static struct template_value *number(struct template_arena *arena, double value) {
    return value == floor(value) && fabs(value) < 9007199254740992.0
               ? template_int(arena, (int64_t)value)
               : template_float(arena, value);
}

static struct template_value *children(struct template_arena *arena, const cJSON *item) {
    bool is_map = cJSON_IsObject(item);
    struct template_value *value = is_map ? template_map(arena) : template_list(arena);
    const cJSON *child;
    cJSON_ArrayForEach(child, item) {
        struct template_value *part = chat_case_value(arena, child);
        if (!is_map) {
            value = template_list_append(arena, value, part);
            continue;
        }
        struct text key = {child->string, strlen(child->string)};
        value = template_map_set(arena, value, key, TEMPLATE_ORIGIN_CLIENT, part);
    }
    return value;
}

struct template_value *chat_case_value(struct template_arena *arena, const cJSON *item) {
    if (cJSON_IsObject(item) || cJSON_IsArray(item))
        return children(arena, item);
    if (cJSON_IsString(item))
        return template_string(arena, item->valuestring, strlen(item->valuestring),
                               is_ours(item->string) ? TEMPLATE_ORIGIN_SERVER
                                                     : TEMPLATE_ORIGIN_CLIENT);
    if (cJSON_IsBool(item))
        return template_bool(arena, cJSON_IsTrue(item));
    return cJSON_IsNumber(item) ? number(arena, item->valuedouble) : template_none(arena);
}

struct chat_case chat_case_render(const struct chat_template *chat, const cJSON *variables,
                                  int64_t now) {
    struct chat_case result = {.arena = template_arena_create(ARENA_BYTES), .status = -1};
    struct template_value *values = chat_case_value(result.arena, variables);
    if (values == NULL) {
        fprintf(stderr, "no memory for the variables\n");
        exit(1);
    }
    result.status =
        chat_template_render(chat, result.arena, values, now, &result.text, &result.err);
    return result;
}

bool chat_case_spans_are_sound(const struct chat_text *text) {
    size_t end = 0;
    for (size_t i = 0; i < text->num_client_spans; i++) {
        struct text_span span = text->client_spans[i];
        if (span.begin >= span.end || (i > 0 && span.begin < end) || span.end > text->length)
            return false;
        end = span.end;
    }
    return true;
}
