/* A tier below the host pool that keeps full blocks by content, as kv_store.h does in files. A
 * struct of functions, so that tests have one without a disk. Blocks go there from host blocks and
 * come back to host blocks; a job begins at once and ends later.
 *
 * Called by the engine's thread. No function waits. The tier reads or writes a host block's memory
 * from the start of its job until next_done has reported it. */
#ifndef QUIRE_ENGINE_KV_KV_TIER_H
#define QUIRE_ENGINE_KV_KV_TIER_H

#include "engine/kv/prefix_cache.h"

struct kv_tier_done {
    int32_t host_block;
    bool is_read;
    bool is_ok;          /* the block is there now; otherwise it is not, and a read found nothing */
    int32_t num_drafted; /* of a read: as it was written */
    int64_t ns;          /* that the job took, without the time it waited for others */
};

struct kv_tier {
    /* Returns whether a read of that content can begin. */
    bool (*has)(void *context, const struct block_content *content);
    /* Has a read of that content be tried, because another process says that it has written it.
     * Called only for tables with num_expected. */
    void (*expect)(void *context, const struct block_content *content);
    /* Returns whether it takes any writes at present: it may belong to another process. */
    bool (*takes_writes)(void *context);
    /* Begin a job. Copies what it needs of the content. Return false if none begins: the tier is
     * busy, does not take writes, has that content, or does not have it. num_drafted: see struct
     * block; it is kept with the block. */
    bool (*write)(void *context, const struct block_content *content, int32_t num_drafted,
                  int32_t host_block);
    bool (*read)(void *context, const struct block_content *content, int32_t host_block);
    /* Reports a job that has ended; false: there is none. */
    bool (*next_done)(void *context, struct kv_tier_done *out);
    /* Returns for how long a read has been running that has not ended yet; 0: none runs. */
    int64_t (*reading_ns)(void *context);
    /* Waits until every job has ended, or been dropped; all are then reported by next_done. Drops
     * reads that have not begun, and writes that have not after some seconds. */
    void (*drain)(void *context);
    void *context;
};

#endif
