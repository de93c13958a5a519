/* Private to chat_template/: the memory of one rendering, or of one parsed template. Bounded, given
 * back at once. After a first failure every further allocation fails too. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_ARENA_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_ARENA_H

#include "models/chat_template/template_value.h"

/* Bytes for any type, or NULL. */
void *template_arena_alloc(struct template_arena *arena, size_t bytes);
/* The same for num items of item_bytes each. */
void *template_arena_alloc_items(struct template_arena *arena, size_t num, size_t item_bytes);
/* Bytes for text: without a type's alignment. */
char *template_arena_alloc_text(struct template_arena *arena, size_t bytes);
/* Makes the text that ends at `end` longer where it is; false when something lies behind it. */
bool template_arena_extend_text(struct template_arena *arena, const char *end, size_t bytes);
/* Gives back the last bytes of the text that ends at `end`, if nothing lies behind it. */
void template_arena_shrink_text(struct template_arena *arena, const char *end, size_t bytes);
/* Whether an allocation failed, for want of memory or because the arena is full. */
bool template_arena_failed(const struct template_arena *arena);
size_t template_arena_max_bytes(const struct template_arena *arena);
/* Seeds hashes, so that keys that collide cannot be prepared. */
uint64_t template_arena_seed(const struct template_arena *arena);

#endif
