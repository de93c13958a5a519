/* The memory of one rendering, or of one parsed template: bounded, given back at once. After a first
 * failure every further allocation fails too. One thread at a time. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_ARENA_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct template_arena;

/* Holds at most max_bytes. NULL when memory is short. */
struct template_arena *template_arena_create(size_t max_bytes);
void template_arena_destroy(struct template_arena *arena); /* accepts NULL */
/* Returns whether an allocation failed because of max_bytes. */
bool template_arena_is_full(const struct template_arena *arena);

/* --- For chat_template/ alone --- */

/* Gives bytes for any type, or NULL. */
void *template_arena_alloc(struct template_arena *arena, size_t bytes);
/* The same for num items of item_bytes each. */
void *template_arena_alloc_items(struct template_arena *arena, size_t num, size_t item_bytes);
/* Gives bytes for text: without a type's alignment. */
char *template_arena_alloc_text(struct template_arena *arena, size_t bytes);
/* Makes the text that ends at `end` longer where it is; false when something lies behind it. */
bool template_arena_extend_text(struct template_arena *arena, const char *end, size_t bytes);
/* Gives the text of `had` bytes another size: it may move, so nothing else may point into it, and
 * from then on it is resized here only. data is NULL for had 0. NULL without memory. */
char *template_arena_resize_text(struct template_arena *arena, char *data, size_t had,
                                 size_t bytes);
/* Returns whether an allocation failed, for want of memory or because the arena is full. */
bool template_arena_failed(const struct template_arena *arena);
size_t template_arena_max_bytes(const struct template_arena *arena);
/* Seeds hashes, so that keys that collide cannot be prepared. */
uint64_t template_arena_seed(const struct template_arena *arena);

#endif
