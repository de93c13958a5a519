/* The ranks that are other processes, on one machine or several (kernels/transport.h), seen from
 * rank 0's executor. Whatever that is called to do with a step, they are told to do with theirs
 * (rank_process_run_remote): each is sent the step's arena, computes its share, and all meet in the
 * collective ops. The result comes back from the first rank of the last stage, unless that is
 * rank 0.
 *
 * A rank that ends, hangs or is cut off is noticed within the transport's timeout: during a step by
 * those that wait for it, and between steps by both sides, because rank 0 asks every rank regularly
 * whether it is still there. The functions that return a status then return -1 with ERROR_DEVICE.
 * After that no step is submitted or waited for, and each process must leave with _exit(2);
 * whatever started them starts them again, all together.
 *
 * Engine thread only, except remote_ranks_stats. */
#ifndef QUIRE_ENGINE_EXECUTOR_REMOTE_RANKS_H
#define QUIRE_ENGINE_EXECUTOR_REMOTE_RANKS_H

#include "config/base/error.h"
#include "engine/stats/engine_stats.h"
#include "models/batch.h"

#include <stdbool.h>
#include <stdint.h>

struct transport;
struct remote_ranks;

/* Sends nothing yet. per_stage: ranks of a stage. Does not take ownership of the transport. Returns
 * NULL when memory is short. */
struct remote_ranks *remote_ranks_create(struct transport *transport, int32_t per_stage);
/* Tells the ranks that nothing else follows; they have started, and no step is submitted. */
void remote_ranks_dismiss(struct remote_ranks *remote);
void remote_ranks_destroy(struct remote_ranks *remote); /* accepts NULL */

/* See executor_ops. ERROR_MEMORY when memory is short; with ERROR_DEVICE *out is stored. */
int remote_ranks_step_memory(struct remote_ranks *remote, const struct batch_capacity *capacity,
                             void **out, struct error *err);
int remote_ranks_submit(struct remote_ranks *remote, const struct batch *batch,
                        struct step_result *result, struct error *err);
/* Sends the late inputs of the step submitted last, whose batch this is. */
int remote_ranks_supply(struct remote_ranks *remote, const struct batch *batch, struct error *err);
/* Wait for the oldest step, whose batch this is: the first tells the others to, before this
 * process waits for its own rank, and the second waits for the others after that. */
int remote_ranks_begin_wait(struct remote_ranks *remote, const struct batch *batch,
                            struct error *err);
int remote_ranks_wait(struct remote_ranks *remote, const struct batch *batch, struct error *err);
int remote_ranks_check(struct remote_ranks *remote, struct error *err);
/* Writes the statistics of each rank, up to a second old while steps run. Returns the number of
 * ranks. Any thread. */
int32_t remote_ranks_stats(struct remote_ranks *remote, struct rank_stats *out);

/* --- What they are told --- */

#define STEP_ALIGNMENT 64 /* of a step's memory: batch_arena_bind */

/* The messages on the transport's channel of steps. Each is this head, followed for a step by its
 * arena (models/batch.h), of the capacity that the head gives. */
enum step_message_kind {
    STEP_MEMORY,  /* before the first step: no step exceeds this capacity */
    STEP_COMPUTE, /* followed by an arena with what ranks that do not sample read */
    STEP_SAMPLE,  /* followed by an arena with the whole batch */
    STEP_SUPPLY,  /* for a step with late inputs, followed by its sample rows: the other late inputs
                     are only for the rank that samples */
    STEP_WAIT,    /* for the oldest step; after STEP_SAMPLE answered with the result, in the layout
                     that it has after the arena in the memory of a step of that capacity */
    STEP_PING,
    STEP_QUIT,
};

struct step_message {
    enum step_message_kind kind;
    bool wants_stats; /* of STEP_WAIT: the rank answers with its struct rank_stats once the step is
                         computed, which shows that it is still there. Always set for a ping */
    struct batch_capacity capacity;
};

#endif
