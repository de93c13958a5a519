/* Private to chat_template/: a map with the order of its keys, as Python's dict. A key is a string,
 * a number, a truth value or none; 1, 1.0 and true are the same key. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_MAPPING_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_MAPPING_H

#include "models/chat_template/template_data.h"

struct template_entry {
    struct template_value key, item;
};

struct template_mapping {
    struct template_entry *entries; /* in the order of their first coming */
    size_t length, capacity;
    uint32_t *slots; /* index + 1 into entries, 0: free; NULL while there are few */
    size_t num_slots;
};

/* An empty one of kind TEMPLATE_MAP or TEMPLATE_NAMESPACE; false without memory. */
bool template_mapping_create(struct template_arena *arena, enum template_kind kind,
                             struct template_value *out);
bool template_mapping_is_key(const struct template_value *value);
/* NULL: not there. */
struct template_value *template_mapping_find(const struct template_arena *arena,
                                             const struct template_mapping *map,
                                             const struct template_value *key);
struct template_value *template_mapping_find_text(const struct template_arena *arena,
                                                  const struct template_mapping *map,
                                                  struct text key);
/* Keeps the key that is there. False without memory. */
bool template_mapping_set(struct template_arena *arena, struct template_mapping *map,
                          const struct template_value *key, struct template_value item);
/* All entries of `from` into `to`. */
bool template_mapping_update(struct template_arena *arena, struct template_mapping *to,
                             const struct template_mapping *from);

#endif
