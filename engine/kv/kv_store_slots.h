/* Reads and writes the records and blocks of the store's files (kv_store_file.h), and the last
 * uses. Each room is used by one thread at a time. */
#ifndef QUIRE_ENGINE_KV_KV_STORE_SLOTS_H
#define QUIRE_ENGINE_KV_KV_STORE_SLOTS_H

#include "engine/kv/kv_store_file.h"
#include "engine/kv/prefix_cache.h"

#include <stdatomic.h>

struct kv_store_visitor {
    void (*found)(void *context, int32_t slot, const struct block_content *content, uint64_t stamp);
    void *context;
};

/* Reads all records in order; the visitor is told of those that name a block. Sets *num_damaged to
 * the number of others that are not cleared. */
int kv_store_slots_load(const struct kv_store_file *file, struct kv_store_room *room,
                        const struct kv_store_visitor *visitor, int32_t *num_damaged,
                        struct error *err);

/* Writes room->block, which is undefined after that, and its record. Owner only. On failure, which
 * leaves errno, the slot has no block. */
int kv_store_slots_write(const struct kv_store_file *file, struct kv_store_room *room, int32_t slot,
                         const struct block_content *content, int32_t num_drafted);

enum kv_store_found {
    KV_STORE_FOUND,
    KV_STORE_GONE,    /* the slot has another block, or none */
    KV_STORE_DAMAGED, /* the block is not what was written, or the disk fails */
};

/* Reads the slot's block into room->block and verifies that it is this content's. */
enum kv_store_found kv_store_slots_read(const struct kv_store_file *file,
                                        struct kv_store_room *room, int32_t slot,
                                        uint64_t generation, const struct block_content *content,
                                        int32_t *num_drafted);

/* Clears all records under a new generation, and gives the blocks' bytes back to the file system.
 * Owner only. */
int kv_store_slots_renew(struct kv_store_file *file, struct kv_store_room *room,
                         uint64_t generation);
/* Writes the last uses. Owner only. */
int kv_store_slots_write_stamps(const struct kv_store_file *file, const _Atomic uint64_t *stamps);

#endif
