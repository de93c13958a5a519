#include "models/chat_template/template_value.h"

#include "models/chat_template/template_data.h"

#include <stdlib.h>
#include <string.h>

/* --- Constructors ------------------------------------------------------------------------------
 */

static struct template_value *boxed(struct template_arena *arena, struct template_value value) {
    struct template_value *box = template_arena_alloc(arena, sizeof(*box));
    if (box != NULL)
        *box = value;
    return box;
}

struct template_value *template_none(struct template_arena *arena) {
    return boxed(arena, template_data_none());
}

struct template_value *template_bool(struct template_arena *arena, bool value) {
    return boxed(arena, template_data_bool(value));
}

struct template_value *template_int(struct template_arena *arena, int64_t value) {
    return boxed(arena, template_data_int(value));
}

struct template_value *template_float(struct template_arena *arena, double value) {
    return boxed(arena, template_data_float(value));
}

struct template_value *template_large_int(struct template_arena *arena, const char *digits) {
    struct template_value value = template_data_float(strtod(digits, NULL));
    size_t bytes = strlen(digits) + 1;
    char *copy = template_arena_alloc_text(arena, bytes);
    if (copy == NULL)
        return NULL;
    memcpy(copy, digits, bytes);
    value.digits = copy;
    return boxed(arena, value);
}

static bool copy_string(struct template_arena *arena, struct text text, enum template_origin origin,
                        struct template_value *out) {
    char *copy = template_arena_alloc_text(arena, text.length);
    if (copy == NULL)
        return false;
    if (text.length > 0)
        memcpy(copy, text.data, text.length);
    *out = template_data_text((struct text){copy, text.length}, origin);
    return true;
}

struct template_value *template_string(struct template_arena *arena, const char *data,
                                       size_t length, enum template_origin origin) {
    struct template_value string;
    if (!copy_string(arena, (struct text){data, length}, origin, &string))
        return NULL;
    return boxed(arena, string);
}

struct template_value *template_list(struct template_arena *arena) {
    struct template_value list;
    return template_data_sequence(arena, TEMPLATE_LIST, &list) ? boxed(arena, list) : NULL;
}

struct template_value *template_map(struct template_arena *arena) {
    struct template_value map;
    return template_data_map(arena, TEMPLATE_MAP, &map) ? boxed(arena, map) : NULL;
}

struct template_value *template_list_append(struct template_arena *arena,
                                            struct template_value *list,
                                            struct template_value *item) {
    if (list == NULL || item == NULL || list->kind != TEMPLATE_LIST)
        return NULL;
    return template_data_append(arena, list->sequence, *item) ? list : NULL;
}

struct template_value *template_map_set(struct template_arena *arena, struct template_value *map,
                                        struct text key, enum template_origin key_origin,
                                        struct template_value *item) {
    struct template_value name;
    if (map == NULL || item == NULL || map->kind != TEMPLATE_MAP ||
        !copy_string(arena, key, key_origin, &name))
        return NULL;
    return template_data_map_set(arena, map->mapping, &name, *item) ? map : NULL;
}

/* --- Readers -----------------------------------------------------------------------------------
 */

/* Walks the keys: without the arena there is no hash. For maps whose keys are few. */
struct template_value *template_map_get(const struct template_value *map, const char *key) {
    size_t length = strlen(key);
    if (map == NULL || map->kind != TEMPLATE_MAP)
        return NULL;
    for (size_t i = 0; i < map->mapping->length; i++) {
        struct template_entry *entry = &map->mapping->entries[i];
        if (entry->key.kind == TEMPLATE_STRING && entry->key.string.length == length &&
            memcmp(entry->key.string.data, key, length) == 0)
            return &entry->item;
    }
    return NULL;
}

size_t template_list_length(const struct template_value *list) {
    return list != NULL && list->kind == TEMPLATE_LIST ? list->sequence->length : 0;
}

struct template_value *template_list_item(const struct template_value *list, size_t index) {
    return index < template_list_length(list) ? &list->sequence->items[index] : NULL;
}

struct text template_string_text(const struct template_value *string) {
    if (string == NULL || string->kind != TEMPLATE_STRING)
        return (struct text){0};
    return (struct text){string->string.data, string->string.length};
}
