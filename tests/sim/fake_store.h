/* A store below the host pool without a disk or a thread: each job ends some ticks after it began,
 * drawn at random. It is often busy, fails, hangs, and forgets blocks. What it keeps is what the
 * fake executor's host pool has in a block at the end of a write. */
#ifndef QUIRE_TESTS_SIM_FAKE_STORE_H
#define QUIRE_TESTS_SIM_FAKE_STORE_H

#include "engine/kv/kv_tier.h"
#include "tests/sim/fake_executor.h"
#include "tests/sim/random.h"

#define FAKE_STORE_BLOCKS 512
#define FAKE_STORE_JOBS 8

/* Content, or the content that a job writes or reads. */
struct fake_stored {
    struct block_key key, previous;
    int32_t group;
    int32_t num_drafted;
    int32_t *tokens;                     /* [block_size]; NULL: the place is free */
    struct shadow_slot *slots, *drafted; /* [block_size]; slots NULL: it cannot be read */
};

struct fake_store_job {
    int64_t ends_at; /* tick */
    bool is_read;
    int32_t host_block;
    struct fake_stored content; /* of a read a copy, of a write without slots */
};

struct fake_store {
    struct kv_tier tier;
    struct random random;
    struct fake_executor *executor;
    const int64_t *now; /* the tick */
    struct fake_stored blocks[FAKE_STORE_BLOCKS];
    struct fake_store_job jobs[FAKE_STORE_JOBS];
    int32_t num_jobs;
    bool is_read_only;
    int64_t hangs_from; /* a tick: reads that begin then do not end until the store is drained */
    uint64_t num_written, num_read, num_failed, num_expected;
};

void fake_store_init(struct fake_store *store, struct fake_executor *executor, uint64_t seed,
                     const int64_t *now);
/* Accepts a zeroed one. */
void fake_store_finish(struct fake_store *store);

#endif
