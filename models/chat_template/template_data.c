/* In a map few keys are compared one after the other; from MIN_HASHED on there is a table of open
 * addressing, at most half full, over the entries. The entries know nothing of the table, so that
 * keys keep their order. */
#include "models/chat_template/template_data.h"

#include <string.h>

enum { MIN_CAPACITY = 4, MIN_HASHED = 16 };

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

/* --- Maps --------------------------------------------------------------------------------------
 */

bool template_data_map(struct template_arena *arena, enum template_kind kind,
                       struct template_value *out) {
    struct template_mapping *map = template_arena_alloc(arena, sizeof(*map));
    if (map == NULL)
        return false;
    *map = (struct template_mapping){0};
    *out = (struct template_value){.kind = (uint8_t)kind, .mapping = map};
    return true;
}

bool template_data_is_key(const struct template_value *value) {
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

struct template_value *template_data_map_find(const struct template_arena *arena,
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

struct template_value *template_data_map_find_text(const struct template_arena *arena,
                                                   const struct template_mapping *map,
                                                   struct text key) {
    struct template_value string = template_data_text(key, TEMPLATE_ORIGIN_SERVER);
    return template_data_map_find(arena, map, &string);
}

static bool rehash(struct template_arena *arena, struct template_mapping *map) {
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
static bool grow(struct template_arena *arena, struct template_mapping *map) {
    size_t capacity = map->capacity == 0 ? MIN_CAPACITY : map->capacity * 2;
    struct template_entry *entries = template_arena_alloc_items(arena, capacity, sizeof(*entries));
    if (entries == NULL || capacity > UINT32_MAX / 2)
        return false;
    if (map->length > 0)
        memcpy(entries, map->entries, map->length * sizeof(*entries));
    map->entries = entries;
    map->capacity = capacity;
    return capacity < MIN_HASHED || rehash(arena, map);
}

bool template_data_map_set(struct template_arena *arena, struct template_mapping *map,
                           const struct template_value *key, struct template_value item) {
    struct template_value *there = template_data_map_find(arena, map, key);
    if (there != NULL) {
        *there = item;
        return true;
    }
    if (map->length == map->capacity && !grow(arena, map))
        return false;
    map->entries[map->length++] = (struct template_entry){*key, item};
    if (map->slots != NULL)
        *find_slot(template_arena_seed(arena), map, key) = (uint32_t)map->length;
    return true;
}

bool template_data_map_update(struct template_arena *arena, struct template_mapping *to,
                              const struct template_mapping *from) {
    for (size_t i = 0; i < from->length; i++)
        if (!template_data_map_set(arena, to, &from->entries[i].key, from->entries[i].item))
            return false;
    return true;
}
