/* Everything that one rank computes with: backend, its share of the weights and of the adapters'
 * slots, workspace, the KV cache of its heads and layers, and its host block pool; and a draft
 * model with its own of all these, if there is one. rank_load and rank_allocate allocate the
 * memory; a step allocates no device memory. A rank is opened, used and closed by one thread, or by
 * several one after another (rank_executor.h). The ranks of an executor are opened, and run their
 * steps, together (backend.h). */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_H
#define QUIRE_ENGINE_EXECUTOR_RANK_H

#include "config/base/clock.h"
#include "engine/executor/executor.h"
#include "engine/executor/rank_draft.h"
#include "models/llama.h"
#include "models/lora/lora_slots.h"
#include "models/weights/weights.h"

#include <stdatomic.h>
#include <stdint.h>

/* Records since when a device has owed its rank an answer. The rank's thread reports when it makes
 * a call for work that the device does in bounded time, and when the call has returned. Another
 * thread checks whether that was too long ago. A kernel that never ends blocks the call forever,
 * whichever it is: a wait, a launch into a full queue, a release of memory. Only the end of the
 * process can end it. */
struct rank_watch {
    int64_t timeout_ns;          /* 0: none */
    _Atomic int64_t deadline_ns; /* INT64_MAX: nothing is owed */
};

static inline void rank_watch_init(struct rank_watch *watch, int64_t timeout_ns) {
    watch->timeout_ns = timeout_ns;
    atomic_init(&watch->deadline_ns, INT64_MAX);
}

/* Called alternately by the rank's thread. Both accept NULL: nobody watches. */
static inline void rank_watch_begin(struct rank_watch *watch) {
    if (watch != NULL && watch->timeout_ns > 0)
        atomic_store(&watch->deadline_ns, clock_now_ns() + watch->timeout_ns);
}

static inline void rank_watch_end(struct rank_watch *watch) {
    if (watch != NULL)
        atomic_store(&watch->deadline_ns, INT64_MAX);
}

/* Returns the time from which the device is late. INT64_MAX: nothing that it owes now can make it
 * late. Any thread. */
static inline int64_t rank_watch_deadline(const struct rank_watch *watch) {
    return atomic_load(&watch->deadline_ns);
}

/* What the ranks of one executor start from (rank_setup.h). */
struct rank_setup {
    const struct model *model;
    const struct executor_config *config;
    const char *device; /* the requested one; never "auto" if there are several ranks */
    int32_t num_ranks;  /* of the model */
    int32_t num_stages; /* into which the ranks are divided, the same number in each */
    int32_t first_rank; /* of those in this process */
    int32_t num_local;  /* in this process */
    /* By stage. NULL: the stage has one rank, or is in other processes. */
    struct backend_group *groups[BACKEND_MAX_RANKS];
    struct backend_pipeline *pipeline; /* NULL: one stage */
    struct weights_reader *reader;
    struct weights_reader *draft_reader; /* NULL: there is no draft model */
    struct rank_watch *watches;          /* [num_local]; NULL: nobody watches */
    char why_cpu[512];
};

struct rank {
    const struct model *model;
    int32_t index;                     /* among those in this process */
    struct executor_config config;     /* once the backend is open, every format is chosen */
    struct backend_group *group;       /* NULL: the stage has one rank */
    struct backend_pipeline *pipeline; /* NULL: there is one stage */
    int32_t stage;
    struct model_shard shard;
    struct serving_limits limits; /* the numbers of blocks are set once these are allocated */
    char why_cpu[512];            /* see executor_info */
    struct rank_watch *watch;     /* NULL: nobody watches, or the device is not a GPU */
    struct weights_options weights_options;
    struct backend *backend;
    struct weights *weights;
    struct lora_slots *lora; /* NULL: no room for adapters */
    struct llama *llama;
    struct kv_cache cache;
    struct buffer host_pool; /* empty: none */
    struct rank_draft draft;
    int64_t swap_block_ns;
    bool records_steps; /* once the backend is open */
    int64_t recording_ns;
    struct tuning_report tuning;
    struct executor_memory memory;
    char place[EXECUTOR_PLACE_BYTES]; /* see executor_info */
    size_t free_bytes, total_bytes;   /* of the device, with everything except the pools in place */
    size_t planned_bytes;             /* the part of it that is only planned */
    struct error failure;             /* of writing an adapter, until rank_wait returns it */
};

/* Opens the backend of rank `index` among those in this process, and plans the memory of the rest
 * from the model's headers, for the longest sequences if their length is open. num_threads: of this
 * rank. Returns errors like executor_create; there is nothing to close then. */
int rank_open(const struct rank_setup *setup, int32_t index, int32_t num_threads, struct rank *out,
              struct error *err);
/* Plans the memory for sequences of this length, before the weights are loaded. */
int rank_plan_length(struct rank *rank, int32_t max_model_len, struct error *err);
/* Loads the weights and allocates the workspace. The draft model, if there is one, is read by
 * draft_reader. On failure the rank must still be closed. The other ranks do not learn of it: they
 * wait in weights_reader_read. */
int rank_load(struct rank *rank, struct weights_reader *reader, struct weights_reader *draft_reader,
              struct error *err);
/* Called by all ranks once each has loaded: a GPU runs its largest steps, in which ranks wait for
 * one another. Then it is known what is left for the pools. Fails like rank_load. */
int rank_try(struct rank *rank, struct error *err);
/* Allocates both pools in the sizes of rank->limits. On failure the rank must still be closed. */
int rank_allocate(struct rank *rank, struct error *err);
/* Gives back everything that rank_allocate allocated, even if that was only a part. It may be
 * allocated again. */
void rank_release(struct rank *rank);
void rank_close(struct rank *rank); /* accepts a zeroed one */

static inline bool rank_has_draft(const struct rank *rank) {
    return rank->draft.model != NULL;
}

/* Returns the bytes of a block of both pools, with the draft model's part. */
size_t rank_block_bytes(const struct rank *rank);
/* Writes those of each of its pools, whose number it returns. */
int rank_pool_block_bytes(const struct rank *rank, size_t out[static HOST_POOLS_PER_RANK]);
/* Adds its host pools, once they are allocated. */
void rank_add_host_pools(struct rank *rank, struct host_pools *out);

/* The parts of a step, in this order. rank_begin writes the batch's pieces of adapters, moves its
 * blocks and computes the last hidden states, without reading a late input (batch.h); for a batch
 * without tokens it only writes and moves. For one with draft requests it first computes these,
 * which waits for the device: no other step may then be begun and not waited for.
 * rank_sample does the rest. rank_wait waits until the result of the oldest step that was sampled
 * is complete; it returns 0, or -1 with ERROR_DEVICE, after which nothing works any more. */
void rank_begin(struct rank *rank, const struct batch *batch, struct step_result *result);
void rank_sample(struct rank *rank, const struct batch *batch, struct step_result *result);
int rank_wait(struct rank *rank, struct error *err);
/* Returns whether the first two only enqueue. Then one step, but not two, is begun and sampled
 * before the step before it is waited for. Otherwise they compute, and rank_wait finds the step
 * done. */
bool rank_is_asynchronous(const struct rank *rank);
/* Returns what was sent to and received from other ranks. Called by the rank's thread. */
struct backend_group_traffic rank_traffic(const struct rank *rank);
/* Returns whether rank_wait would return at once. Only for an asynchronous rank. */
bool rank_is_done(const struct rank *rank);

/* --- rank_backend.c: the rank's device, and what is chosen with it --- */

/* Opens the backend of rank_open. On failure the rank must still be closed. */
int rank_open_backend(const struct rank_setup *setup, int32_t index, int32_t num_threads,
                      struct rank *rank, struct error *err);
/* Replaces the backend's own reason for a shortage, which does not know the options. */
int rank_explain(struct error *why, const char *part, const char *remedy, struct error *err);

/* --- rank_moves.c: what a rank moves before it computes a step --- */

/* Writes the batch's pieces of adapters. A failure is kept, and returned by rank_wait. */
void rank_write_adapters(struct rank *rank, const struct batch *batch);

/* Enqueues the batch's swap_out, swap_in and copies on the backend, in that order; the lists stay
 * valid until the step was waited for. host_pool is memory of the backend's host_alloc; it may be
 * NULL when nothing is swapped. */
void rank_moves_enqueue(struct backend *b, struct kv_cache *cache, void *host_pool,
                        const struct batch *batch);

/* Returns the nanoseconds to move one block to the host pool or back, at least 1: the mean over the
 * first blocks of both pools, a few MiB, there and back, in the best of a few rounds. What these
 * blocks hold is lost. Both pools have at least one block. */
int rank_moves_measure(struct backend *b, struct kv_cache *cache, void *host_pool,
                       int32_t num_host_blocks, int64_t *out_ns, struct error *err);

/* --- dry_run.c --- */

/* Runs steps of all sizes once, before the KV block pool is allocated. Everything that the device's
 * libraries allocate on first use is then allocated, so that memory_info tells what is left for the
 * pool, and no request waits for it. At the same time the algorithms of matrix products are timed,
 * if the device has several (kernels/tuning.h). */

/* Algorithms are timed for at most DRY_RUN_TUNING_SECONDS, by the device's clock. */
#define DRY_RUN_TUNING_SECONDS 2.0

struct dry_run_model {
    struct llama *llama;
    struct kv_cache *cache;
    const struct serving_limits *limits;
    bool has_adapters;
};

/* Runs steps of each model, of 1, 2, 3, 4, 6, 8, 12, ... tokens, over at most max_num_seqs
 * sequences, and finally one of max_num_batched_tokens. So the sizes of decode steps, which wait
 * for products most, are timed first. Each sequence samples a token with every feature of sampling
 * on and has its hidden states summed; with has_adapters, all use that of slot 0. The first is
 * max_model_len long. All of them live in block 0 of the cache, which each step copies to block 1:
 * the results are meaningless. limits->num_blocks is not read. The watch sees each step; NULL:
 * none. *out_tuning reports what was timed. */
int dry_run(struct backend *b, const struct dry_run_model *models, int32_t num_models,
            struct rank_watch *watch, struct tuning_report *out_tuning, struct error *err);

#endif
