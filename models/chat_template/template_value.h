/* The values a chat template computes with, like Jinja's: a request's messages are converted to
 * them before a template sees them, and its expressions evaluate to them.
 *
 * All values of one rendering live in one arena and are freed with it. Values are immutable once
 * they were passed to chat_template_render. One thread at a time.
 *
 * A string records for each byte whether it comes from a client: bytes that leave the rendering
 * with that mark can never become a control token (chat_template.h). */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_VALUE_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_VALUE_H

#include "config/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The memory of one rendering, or of one parsed template: bounded, freed as a whole. After the
 * first failure every further allocation fails too. */
struct template_arena;

/* Creates an arena of at most max_bytes. NULL when memory is short. */
struct template_arena *template_arena_create(size_t max_bytes);
void template_arena_destroy(struct template_arena *arena); /* accepts NULL */
/* Returns whether an allocation failed because of max_bytes. */
bool template_arena_is_full(const struct template_arena *arena);

/* The origin of a byte of a prompt. Every string keeps it for each of its bytes, through slicing,
 * concatenation, case changes and escaping. */
enum template_origin {
    TEMPLATE_ORIGIN_SERVER, /* the template's, or ours: a role, a bos token */
    TEMPLATE_ORIGIN_CLIENT, /* content, names, arguments, tool descriptions, ... */
};

struct template_value;

/* Beyond the arena's bound every constructor returns NULL, and so does one that is given NULL for a
 * value, so that a tree is checked once at its end. */
struct template_value *template_none(struct template_arena *arena);
struct template_value *template_bool(struct template_arena *arena, bool value);
struct template_value *template_int(struct template_arena *arena, int64_t value);
struct template_value *template_float(struct template_arena *arena, double value);
/* An integer beyond 64 bits: printed with its digits, computed with as the nearest float. Copies
 * the digits, which may have a sign. */
struct template_value *template_large_int(struct template_arena *arena, const char *digits);
/* Copies the bytes, which are valid UTF-8. */
struct template_value *template_string(struct template_arena *arena, const char *data,
                                       size_t length, enum template_origin origin);
struct template_value *template_list(struct template_arena *arena);
struct template_value *template_map(struct template_arena *arena);
/* Return the list or map, or NULL. A key that is there already gets the new value; keys keep the
 * order in which they first came. Keys are copied. */
struct template_value *template_list_append(struct template_arena *arena,
                                            struct template_value *list,
                                            struct template_value *item);
struct template_value *template_map_set(struct template_arena *arena, struct template_value *map,
                                        struct text key, enum template_origin key_origin,
                                        struct template_value *item);
/* Returns NULL when it is not a map or lacks the key. */
struct template_value *template_map_get(const struct template_value *map, const char *key);
size_t template_list_length(const struct template_value *list);
struct template_value *template_list_item(const struct template_value *list, size_t index);
/* Returns the bytes of a string; data is NULL when it is not a string. */
struct text template_string_text(const struct template_value *string);

#endif
