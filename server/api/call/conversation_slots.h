/* The last conversation of each slot: the tokens of the last request that named it (id_slot), the
 * prompt and what was generated, and whose prefixes these are. Administrators save it by name in
 * the store of KV blocks, and restore it in any slot, after a restart too. What is kept is text of
 * users: as long as the server runs in memory, and in a file if it was saved. Any thread. */
#ifndef QUIRE_SERVER_API_CALL_CONVERSATION_SLOTS_H
#define QUIRE_SERVER_API_CALL_CONVERSATION_SLOTS_H

#include "config/base/byte_buffer.h"
#include "engine/engine.h"
#include "engine/kv/kv_store.h"
#include "server/api/call/api_context.h"

struct conversation_slots;

/* Slots are numbered from 0. The engine and the store outlive them. NULL when memory is short. */
struct conversation_slots *conversation_slots_create(int32_t num_slots, const struct engine *engine,
                                                     struct kv_store *store);
void conversation_slots_destroy(struct conversation_slots *slots); /* accepts NULL */
/* Returns what they may keep in memory. */
size_t conversation_slots_max_bytes(const struct serving_limits *limits);
int32_t conversation_slots_count(const struct conversation_slots *slots);
/* Returns the bytes of a block in the store. */
size_t conversation_slots_block_bytes(const struct conversation_slots *slots);

/* Puts a request's prompt and the generated tokens after it into a slot; when memory is short, or
 * all slots have as much as they may, the slot is empty afterwards. */
void conversation_slots_set(struct conversation_slots *slots, int32_t slot,
                            const struct request *request, const int32_t *generated,
                            int32_t num_generated);
/* Empties a slot. Returns how many tokens it had. */
int32_t conversation_slots_clear(struct conversation_slots *slots, int32_t slot);

/* Saves a slot's conversation under a name (kv_saved_is_name), so that its blocks stay in the
 * store. *out: a request that computes those which are missing, of no tokens. On failure returns -1
 * and fills *err: 400 for an empty slot, 503 when there is no room or another process owns the
 * store. */
int conversation_slots_save(struct conversation_slots *slots, const struct api_context *context,
                            int32_t slot, const char *name, struct request **out,
                            struct api_error *err);
/* Puts what was saved into a slot. *out: a request that loads it. 404: nothing was saved by that
 * name. */
int conversation_slots_restore(struct conversation_slots *slots, const struct api_context *context,
                               int32_t slot, const char *name, struct request **out,
                               struct api_error *err);
/* Removes what was saved by that name. */
int conversation_slots_erase(struct conversation_slots *slots, const char *name,
                             struct api_error *err);

#endif
