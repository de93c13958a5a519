#include "models/chat_template/template_data.h"
#include "models/chat_template/template_mapping.h"

#include <string.h>

enum { MIN_CAPACITY = 4 };

/* --- Sequences ---------------------------------------------------------------------------------
 */

bool template_data_sequence(struct template_arena *arena, enum template_kind kind,
                            struct template_value *out) {
    struct template_sequence *sequence = template_arena_alloc(arena, sizeof(*sequence));
    if (sequence == NULL)
        return false;
    *sequence = (struct template_sequence){0};
    *out = (struct template_value){.kind = (uint8_t)kind, .sequence = sequence};
    return true;
}

bool template_data_reserve(struct template_arena *arena, struct template_sequence *sequence,
                           size_t capacity) {
    if (capacity <= sequence->capacity)
        return true;
    struct template_value *items = template_arena_alloc_items(arena, capacity, sizeof(*items));
    size_t *used = template_arena_alloc(arena, sizeof(*used));
    if (items == NULL || used == NULL)
        return false;
    if (sequence->length > 0)
        memcpy(items, sequence->items, sequence->length * sizeof(*items));
    *used = sequence->length;
    sequence->items = items;
    sequence->capacity = capacity;
    sequence->used = used;
    return true;
}

bool template_data_append(struct template_arena *arena, struct template_sequence *sequence,
                          struct template_value item) {
    if (sequence->length == sequence->capacity &&
        !template_data_reserve(arena, sequence,
                               sequence->capacity == 0 ? MIN_CAPACITY : sequence->capacity * 2))
        return false;
    sequence->items[sequence->length++] = item;
    *sequence->used = sequence->length;
    return true;
}

bool template_data_items(struct template_arena *arena, enum template_kind kind,
                         const struct template_value *items, size_t num,
                         struct template_value *out) {
    struct template_value made;
    if (!template_data_sequence(arena, kind, &made) ||
        !template_data_reserve(arena, made.sequence, num))
        return false;
    if (num > 0)
        memcpy(made.sequence->items, items, num * sizeof(*items));
    made.sequence->length = num;
    *out = made;
    return true;
}

/* --- The makers of requests' values ------------------------------------------------------------
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
    return template_mapping_create(arena, TEMPLATE_MAP, &map) ? boxed(arena, map) : NULL;
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
    return template_mapping_set(arena, map->mapping, &name, *item) ? map : NULL;
}

/* --- Their readers -----------------------------------------------------------------------------
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
