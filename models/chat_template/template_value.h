/* The values a chat template computes with, as Jinja has them: what a request's messages become
 * before a template sees them, and what its expressions evaluate to.
 *
 * All values of one rendering live in one arena and end with it. Values are immutable once they
 * were handed to chat_template_render. One thread at a time.
 *
 * A string knows of each byte whether it is text of a client: bytes that come out of the rendering
 * with that mark can never become a control token (chat_template.h). */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_VALUE_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_VALUE_H

#include "config/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The memory of one rendering, or of one parsed template: bounded, given back at once. After a
 * first failure every further allocation fails too. */
struct template_arena;

/* Holds at most max_bytes. NULL when memory is short. */
struct template_arena *template_arena_create(size_t max_bytes);
void template_arena_destroy(struct template_arena *arena); /* accepts NULL */
/* Returns whether an allocation failed because of max_bytes. */
bool template_arena_is_full(const struct template_arena *arena);

/* Whose words a byte of a prompt is. Every string keeps this for each of its bytes, and whatever is
 * cut out of it, put together with others, changed in case or escaped keeps it as well. */
enum template_origin {
    TEMPLATE_ORIGIN_SERVER, /* the template's, or ours: a role, a bos token */
    TEMPLATE_ORIGIN_CLIENT, /* content, names, arguments, tool descriptions, ... */
};

struct template_value;

/* Beyond the arena's bound every constructor returns NULL, and so does each that is given NULL for
 * a value, so that a tree is checked once at its end. */
struct template_value *template_none(struct template_arena *arena);
struct template_value *template_bool(struct template_arena *arena, bool value);
struct template_value *template_int(struct template_arena *arena, int64_t value);
struct template_value *template_float(struct template_arena *arena, double value);
/* An integer beyond 64 bits: written with its digits, computed with as the nearest float. Copies
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
/* NULL when it is no map or has no such key. */
struct template_value *template_map_get(const struct template_value *map, const char *key);
size_t template_list_length(const struct template_value *list);
struct template_value *template_list_item(const struct template_value *list, size_t index);
/* Returns the bytes of a string; data NULL when it is none. */
struct text template_string_text(const struct template_value *string);

#endif
