#include "models/chat_template/template_value.h"

#include "config/base/checked.h"
#include "models/chat_template/template_value_private.h"

#include <stdlib.h>
#include <string.h>

/* Capacities: the first one of lists and maps, a map's that gets a table, strings' up to which they
 * are doubled. */
enum { MIN_CAPACITY = 4, MIN_HASHED = 16, MIN_STRING_BYTES = 64, LARGE_STRING_BYTES = 1 << 18 };

/* --- Sequences --- */

bool template_value_sequence(struct template_arena *arena, enum template_kind kind,
                             struct template_value *out) {
    struct template_sequence *sequence = template_arena_alloc(arena, sizeof(*sequence));
    if (sequence == NULL)
        return false;
    *sequence = (struct template_sequence){0};
    *out = (struct template_value){.kind = (uint8_t)kind, .sequence = sequence};
    return true;
}

bool template_value_reserve(struct template_arena *arena, struct template_sequence *sequence,
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

bool template_value_append(struct template_arena *arena, struct template_sequence *sequence,
                           struct template_value item) {
    if (sequence->length == sequence->capacity &&
        !template_value_reserve(arena, sequence,
                                sequence->capacity == 0 ? MIN_CAPACITY : sequence->capacity * 2))
        return false;
    sequence->items[sequence->length++] = item;
    *sequence->used = sequence->length;
    return true;
}

bool template_value_items(struct template_arena *arena, enum template_kind kind,
                          const struct template_value *items, size_t num,
                          struct template_value *out) {
    struct template_value made;
    if (!template_value_sequence(arena, kind, &made) ||
        !template_value_reserve(arena, made.sequence, num))
        return false;
    if (num > 0)
        memcpy(made.sequence->items, items, num * sizeof(*items));
    made.sequence->length = num;
    *out = made;
    return true;
}

/* --- Maps --- */

/* In a map few keys are compared one after the other; from MIN_HASHED on there is a table of open
 * addressing, at most half full, over the entries. The entries know nothing of the table, so that
 * keys keep their order. */

bool template_value_map(struct template_arena *arena, enum template_kind kind,
                        struct template_value *out) {
    struct template_mapping *map = template_arena_alloc(arena, sizeof(*map));
    if (map == NULL)
        return false;
    *map = (struct template_mapping){0};
    *out = (struct template_value){.kind = (uint8_t)kind, .mapping = map};
    return true;
}

bool template_value_is_key(const struct template_value *value) {
    return value->kind >= TEMPLATE_NONE && value->kind <= TEMPLATE_STRING;
}

/* Gives a number or truth value as a float: the same for keys that are the same. */
static double key_number(const struct template_value *key) {
    if (key->kind == TEMPLATE_FLOAT)
        return key->real;
    return key->kind == TEMPLATE_INT ? (double)key->integer : key->boolean ? 1.0 : 0.0;
}

static bool keys_are_equal(const struct template_value *a, const struct template_value *b) {
    if (a->kind == TEMPLATE_STRING || b->kind == TEMPLATE_STRING)
        return a->kind == b->kind && a->string.length == b->string.length &&
               memcmp(a->string.data, b->string.data, a->string.length) == 0;
    if (a->kind == TEMPLATE_NONE || b->kind == TEMPLATE_NONE)
        return a->kind == b->kind;
    if (a->kind == TEMPLATE_INT && b->kind == TEMPLATE_INT)
        return a->integer == b->integer;
    return key_number(a) == key_number(b);
}

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static size_t hash_key(uint64_t seed, const struct template_value *key) {
    uint64_t hash = seed + key->kind, word = 0;
    if (key->kind == TEMPLATE_STRING) {
        const char *data = key->string.data;
        size_t length = key->string.length;
        hash = seed + length;
        for (; length >= sizeof(word); data += sizeof(word), length -= sizeof(word)) {
            memcpy(&word, data, sizeof(word));
            hash = mix(hash, word);
        }
        word = 0;
        if (length > 0)
            memcpy(&word, data, length);
        hash = mix(hash, word);
    } else if (key->kind != TEMPLATE_NONE) {
        double number = key_number(key) + 0.0; /* -0.0 is 0.0 */
        memcpy(&word, &number, sizeof(word));
        hash = mix(seed, word);
    }
    return (size_t)mix(hash, seed);
}

static uint32_t *find_slot(uint64_t seed, const struct template_mapping *map,
                           const struct template_value *key) {
    size_t mask = map->num_slots - 1, slot = hash_key(seed, key) & mask;
    while (map->slots[slot] != 0 && !keys_are_equal(&map->entries[map->slots[slot] - 1].key, key))
        slot = (slot + 1) & mask;
    return &map->slots[slot];
}

struct template_value *template_value_map_find(const struct template_arena *arena,
                                               const struct template_mapping *map,
                                               const struct template_value *key) {
    if (map->slots != NULL) {
        uint32_t index = *find_slot(template_arena_seed(arena), map, key);
        return index == 0 ? NULL : &map->entries[index - 1].item;
    }
    for (size_t i = 0; i < map->length; i++)
        if (keys_are_equal(&map->entries[i].key, key))
            return &map->entries[i].item;
    return NULL;
}

struct template_value *template_value_map_find_text(const struct template_arena *arena,
                                                    const struct template_mapping *map,
                                                    struct text key) {
    struct template_value string = template_value_text(key, TEMPLATE_ORIGIN_SERVER);
    return template_value_map_find(arena, map, &string);
}

static bool rehash_map(struct template_arena *arena, struct template_mapping *map) {
    size_t num_slots = map->capacity * 2;
    uint32_t *slots = template_arena_alloc_items(arena, num_slots, sizeof(*slots));
    if (slots == NULL)
        return false;
    memset(slots, 0, num_slots * sizeof(*slots));
    map->slots = slots;
    map->num_slots = num_slots;
    for (size_t i = 0; i < map->length; i++)
        *find_slot(template_arena_seed(arena), map, &map->entries[i].key) = (uint32_t)i + 1;
    return true;
}

/* Capacities are powers of two. */
static bool grow_map(struct template_arena *arena, struct template_mapping *map) {
    size_t capacity = map->capacity == 0 ? MIN_CAPACITY : map->capacity * 2;
    struct template_entry *entries = template_arena_alloc_items(arena, capacity, sizeof(*entries));
    if (entries == NULL || capacity > UINT32_MAX / 2)
        return false;
    if (map->length > 0)
        memcpy(entries, map->entries, map->length * sizeof(*entries));
    map->entries = entries;
    map->capacity = capacity;
    return capacity < MIN_HASHED || rehash_map(arena, map);
}

bool template_value_map_set(struct template_arena *arena, struct template_mapping *map,
                            const struct template_value *key, struct template_value item) {
    struct template_value *there = template_value_map_find(arena, map, key);
    if (there != NULL) {
        *there = item;
        return true;
    }
    if (map->length == map->capacity && !grow_map(arena, map))
        return false;
    map->entries[map->length++] = (struct template_entry){*key, item};
    if (map->slots != NULL)
        *find_slot(template_arena_seed(arena), map, key) = (uint32_t)map->length;
    return true;
}

bool template_value_map_update(struct template_arena *arena, struct template_mapping *to,
                               const struct template_mapping *from) {
    for (size_t i = 0; i < from->length; i++)
        if (!template_value_map_set(arena, to, &from->entries[i].key, from->entries[i].item))
            return false;
    return true;
}

/* --- Strings that grow --- */

/* Bytes and marks lie in one piece, [capacity] each. */
static bool resize_string(struct template_builder *builder, size_t capacity, bool has_marks) {
    size_t had = builder->capacity, least = had < capacity ? had : capacity, bytes;
    bool had_marks = builder->marks != NULL;
    if (!checked_mul(capacity, has_marks ? 2 : 1, &bytes))
        bytes = SIZE_MAX;
    if (had_marks && capacity < had)
        memmove(builder->data + capacity, builder->marks, least);
    char *data =
        template_arena_resize_text(builder->arena, builder->data, had_marks ? had * 2 : had, bytes);
    if (data == NULL)
        return false;
    if (had_marks && capacity > had)
        memmove(data + capacity, data + had, builder->length);
    else if (!had_marks && has_marks)
        memset(data + capacity, builder->origin, builder->length);
    builder->data = data;
    builder->capacity = capacity;
    builder->marks = has_marks ? (uint8_t *)data + capacity : NULL;
    return true;
}

static bool reserve_bytes(struct template_builder *builder, size_t bytes) {
    size_t needed, had = builder->capacity;
    size_t usual = had < MIN_STRING_BYTES     ? MIN_STRING_BYTES
                   : had < LARGE_STRING_BYTES ? had * 2
                                              : had / 4 * 5;
    if (!checked_add(builder->length, bytes, &needed))
        needed = SIZE_MAX;
    if (needed <= builder->capacity)
        return true;
    return resize_string(builder, needed > usual ? needed : usual, builder->marks != NULL);
}

void template_builder_reserve(struct template_builder *builder, size_t bytes) {
    if (!template_arena_failed(builder->arena))
        reserve_bytes(builder, bytes);
}

void template_builder_add(struct template_builder *builder, struct text text,
                          enum template_origin origin) {
    if (text.length == 0 || template_arena_failed(builder->arena) ||
        !reserve_bytes(builder, text.length))
        return;
    if (builder->length == 0 && builder->marks == NULL)
        builder->origin = origin;
    if (origin != builder->origin && builder->marks == NULL &&
        !resize_string(builder, builder->capacity, true))
        return;
    memcpy(builder->data + builder->length, text.data, text.length);
    if (builder->marks != NULL)
        memset(builder->marks + builder->length, origin, text.length);
    builder->length += text.length;
}

void template_builder_add_server(struct template_builder *builder, const char *literal) {
    template_builder_add(builder, (struct text){literal, strlen(literal)}, TEMPLATE_ORIGIN_SERVER);
}

void template_builder_add_string(struct template_builder *builder,
                                 const struct template_value *string) {
    struct text text = {string->string.data, string->string.length};
    const uint8_t *marks = string->string.marks;
    if (marks == NULL) {
        template_builder_add(builder, text, string->origin);
        return;
    }
    if (text.length == 0 || template_arena_failed(builder->arena) ||
        !reserve_bytes(builder, text.length))
        return;
    if (builder->marks == NULL && !resize_string(builder, builder->capacity, true))
        return;
    memcpy(builder->data + builder->length, text.data, text.length);
    memcpy(builder->marks + builder->length, marks, text.length);
    builder->length += text.length;
}

void template_builder_add_part(struct template_builder *builder,
                               const struct template_value *string, size_t begin, size_t end) {
    struct template_value part = template_value_part(*string, begin, end);
    template_builder_add_string(builder, &part);
}

void template_builder_add_repeated(struct template_builder *builder,
                                   const struct template_value *string, size_t times) {
    size_t bytes;
    if (string->string.length == 0)
        return;
    if (!checked_mul(string->string.length, times, &bytes))
        bytes = SIZE_MAX;
    if (!reserve_bytes(builder, bytes))
        return;
    for (size_t i = 0; i < times; i++)
        template_builder_add_string(builder, string);
}

bool template_builder_finish(struct template_builder *builder, struct template_value *out) {
    if (template_arena_failed(builder->arena))
        return false;
    if (builder->data != NULL && !resize_string(builder, builder->length, builder->marks != NULL))
        return false;
    *out = (struct template_value){
        .kind = TEMPLATE_STRING,
        .origin = (uint8_t)builder->origin,
        .is_markup = builder->is_markup,
        .string = {builder->data != NULL ? builder->data : "", builder->length, builder->marks}};
    return true;
}

/* --- What the server makes requests' values with --- */

static struct template_value *boxed(struct template_arena *arena, struct template_value value) {
    struct template_value *box = template_arena_alloc(arena, sizeof(*box));
    if (box != NULL)
        *box = value;
    return box;
}

struct template_value *template_none(struct template_arena *arena) {
    return boxed(arena, template_value_none());
}

struct template_value *template_bool(struct template_arena *arena, bool value) {
    return boxed(arena, template_value_bool(value));
}

struct template_value *template_int(struct template_arena *arena, int64_t value) {
    return boxed(arena, template_value_int(value));
}

struct template_value *template_float(struct template_arena *arena, double value) {
    return boxed(arena, template_value_float(value));
}

struct template_value *template_large_int(struct template_arena *arena, const char *digits) {
    struct template_value value = template_value_float(strtod(digits, NULL));
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
    *out = template_value_text((struct text){copy, text.length}, origin);
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
    return template_value_sequence(arena, TEMPLATE_LIST, &list) ? boxed(arena, list) : NULL;
}

struct template_value *template_map(struct template_arena *arena) {
    struct template_value map;
    return template_value_map(arena, TEMPLATE_MAP, &map) ? boxed(arena, map) : NULL;
}

struct template_value *template_list_append(struct template_arena *arena,
                                            struct template_value *list,
                                            struct template_value *item) {
    if (list == NULL || item == NULL || list->kind != TEMPLATE_LIST)
        return NULL;
    return template_value_append(arena, list->sequence, *item) ? list : NULL;
}

struct template_value *template_map_set(struct template_arena *arena, struct template_value *map,
                                        struct text key, enum template_origin key_origin,
                                        struct template_value *item) {
    struct template_value name;
    if (map == NULL || item == NULL || map->kind != TEMPLATE_MAP ||
        !copy_string(arena, key, key_origin, &name))
        return NULL;
    return template_value_map_set(arena, map->mapping, &name, *item) ? map : NULL;
}

/* --- What it reads of them --- */

/* Searches the keys linearly: without the arena there is no hash. For maps with few keys. */
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
