/* Which block of the KV cache each slot of the store holds, found by content, and which one leaves
 * when there is no free slot: the least recently used of those without a known continuation, so
 * that a chain leaves from its end.
 *
 * A slot is free, being WRITTEN, or READY. Engine thread only, except for the stamps. */
#ifndef QUIRE_ENGINE_KV_KV_STORE_INDEX_H
#define QUIRE_ENGINE_KV_KV_STORE_INDEX_H

#include "engine/kv/prefix_cache.h"

#include <stdatomic.h>

struct kv_store_index;

/* Returns NULL when memory is short. All is allocated here. */
struct kv_store_index *kv_store_index_create(int32_t num_slots, int32_t block_size);
/* Accepts NULL. */
void kv_store_index_destroy(struct kv_store_index *index);

/* While an index is made from a file: makes a free slot READY. False when another slot has the
 * block's key. Its tokens may be NULL: then any are found. kv_store_index_begin is called after the
 * last. */
bool kv_store_index_load(struct kv_store_index *index, int32_t slot,
                         const struct block_content *content, uint64_t stamp);
void kv_store_index_begin(struct kv_store_index *index);

/* Returns the READY slot with this content, or -1. The tenant is not compared. */
int32_t kv_store_index_find(const struct kv_store_index *index,
                            const struct block_content *content);
/* Counts as a use. */
void kv_store_index_touch(struct kv_store_index *index, int32_t slot);
/* A pinned slot does not leave. */
void kv_store_index_pin(struct kv_store_index *index, int32_t slot);
void kv_store_index_unpin(struct kv_store_index *index, int32_t slot);
/* Returns a slot for a new block, which is now WRITTEN. Sets *evicted when another block left for
 * it, and *left, without tokens, to that. -1: the key is known, or no block can leave. */
int32_t kv_store_index_take(struct kv_store_index *index, const struct block_content *content,
                            bool *evicted, struct block_content *left);
/* Has a block leave, and its slot for good. Returns false when none can. */
bool kv_store_index_shrink(struct kv_store_index *index, struct block_content *left);
/* Makes a WRITTEN slot READY. */
void kv_store_index_written(struct kv_store_index *index, int32_t slot);
/* Makes a slot free: at once, or, if it is pinned, when it no longer is. It is not found any more.
 */
void kv_store_index_drop(struct kv_store_index *index, int32_t slot);
/* Has the block with that key not leave, whether it is known now or comes later, until unkeep was
 * called as often. False: as many keys as kv_store_index_max_kept of the slots are kept. */
bool kv_store_index_keep(struct kv_store_index *index, const struct block_key *key, int32_t group);
/* Does nothing for a key that is not kept. */
void kv_store_index_unkeep(struct kv_store_index *index, const struct block_key *key,
                           int32_t group);
int32_t kv_store_index_max_kept(int32_t num_slots);
/* Makes all slots free, without regard to pins. What is to be kept stays so. */
void kv_store_index_clear(struct kv_store_index *index);

int32_t kv_store_index_num_known(const struct kv_store_index *index); /* not free */
int32_t kv_store_index_num_kept(const struct kv_store_index *index);  /* keys */
int32_t kv_store_index_num_slots(const struct kv_store_index *index);
/* The last use of each slot, larger is later; that of all slots. Any thread. */
const _Atomic uint64_t *kv_store_index_stamps(const struct kv_store_index *index);
uint64_t kv_store_index_last_stamp(const struct kv_store_index *index);
/* Returns the memory of an index. */
size_t kv_store_index_bytes(int32_t num_slots, int32_t block_size);

#endif
