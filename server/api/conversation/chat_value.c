#include "server/api/conversation/chat_value.h"

#include "config/json/json_integer.h"

#include <string.h>

struct template_value *chat_value_text(struct template_arena *arena, const char *text) {
    if (text == NULL)
        return NULL;
    return template_string(arena, text, strlen(text), TEMPLATE_ORIGIN_CLIENT);
}

void chat_value_set(struct template_arena *arena, struct template_value **map, const char *key,
                    struct template_value *value) {
    struct text name = {.data = key, .length = strlen(key)};
    *map = template_map_set(arena, *map, name, TEMPLATE_ORIGIN_SERVER, value);
}

/* Converts a number in the way Python reads it: to an integer of any size, or a float. */
static struct template_value *number_value(struct template_arena *arena, const cJSON *item) {
    int64_t whole;
    if (!json_integer_is_written(item))
        return template_float(arena, item->valuedouble);
    return json_integer_read(item, &whole) ? template_int(arena, whole)
                                           : template_large_int(arena, json_integer_digits(item));
}

static struct template_value *list_value(struct template_arena *arena, const cJSON *array) {
    struct template_value *list = template_list(arena);
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        if (list == NULL)
            return NULL;
        list = template_list_append(arena, list, chat_value_of(arena, item));
    }
    return list;
}

static struct template_value *map_value(struct template_arena *arena, const cJSON *object) {
    struct template_value *map = template_map(arena);
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        if (map == NULL)
            return NULL;
        struct text key = {.data = item->string, .length = strlen(item->string)};
        map = template_map_set(arena, map, key, TEMPLATE_ORIGIN_CLIENT, chat_value_of(arena, item));
    }
    return map;
}

/* Recurses at most as deep as json_parse lets a body be nested. */
struct template_value *chat_value_of(struct template_arena *arena, const cJSON *json) {
    if (cJSON_IsObject(json))
        return map_value(arena, json);
    if (cJSON_IsArray(json))
        return list_value(arena, json);
    if (cJSON_IsString(json))
        return chat_value_text(arena, json->valuestring);
    if (cJSON_IsNumber(json))
        return number_value(arena, json);
    if (cJSON_IsBool(json))
        return template_bool(arena, cJSON_IsTrue(json));
    return template_none(arena);
}

static struct template_value *token_value(struct template_arena *arena,
                                          const struct tokenizer *tokenizer, int32_t token) {
    struct text piece = tokenizer_piece(tokenizer, token);
    return template_string(arena, piece.data, piece.length, TEMPLATE_ORIGIN_SERVER);
}

void chat_value_set_tokens(struct template_arena *arena, struct template_value **map,
                           const struct tokenizer *tokenizer) {
    static const char list_name[] = "additional_special_tokens";
    int32_t bos = tokenizer_bos(tokenizer);
    int num_eos;
    size_t count;
    const int32_t *eos = tokenizer_eos_tokens(tokenizer, &num_eos);
    const struct named_token *named = tokenizer_named_tokens(tokenizer, &count);
    struct template_value *list = NULL;
    for (size_t i = 0; i < count; i++) {
        struct template_value *value = token_value(arena, tokenizer, named[i].id);
        if (strcmp(named[i].name, list_name) != 0)
            chat_value_set(arena, map, named[i].name, value);
        else
            list = template_list_append(arena, list != NULL ? list : template_list(arena), value);
    }
    if (list != NULL)
        chat_value_set(arena, map, list_name, list);
    if (bos >= 0)
        chat_value_set(arena, map, "bos_token", token_value(arena, tokenizer, bos));
    if (num_eos > 0)
        chat_value_set(arena, map, "eos_token", token_value(arena, tokenizer, eos[0]));
}
