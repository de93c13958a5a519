/* The ranks that are other processes, on one machine or several (kernels/transport.h), as rank 0's
 * executor has them. Each step's arena goes to them, they compute their shares of it
 * (rank_process_run_remote), and all meet in the collective ops. The result comes back from the
 * first rank of the last stage, where that is not rank 0.
 *
 * A rank that ends, hangs or is cut off is noticed within the transport's timeout: by those that
 * wait for it in a step, and by both sides while there is none, since rank 0 asks every rank now
 * and then whether it is there. What returns a status then says -1 with ERROR_DEVICE. No step is
 * submitted or waited for any more, and each process is to leave by _exit(2); whatever started them
 * starts them again, all together.
 *
 * By the engine's thread, but for remote_ranks_stats. */
#ifndef QUIRE_ENGINE_EXECUTOR_REMOTE_RANKS_H
#define QUIRE_ENGINE_EXECUTOR_REMOTE_RANKS_H

#include "config/base/error.h"
#include "engine/stats/engine_stats.h"
#include "models/batch.h"

#include <stdbool.h>
#include <stdint.h>

struct transport;
struct remote_ranks;

/* Nothing is sent yet. per_stage: ranks of a stage. Does not take the transport. NULL when memory
 * is short. */
struct remote_ranks *remote_ranks_create(struct transport *transport, int32_t per_stage);
/* Tells them that nothing else comes; they have started, and no step is submitted. */
void remote_ranks_dismiss(struct remote_ranks *remote);
void remote_ranks_destroy(struct remote_ranks *remote); /* accepts NULL */

/* See executor_ops. ERROR_MEMORY when it is short; with ERROR_DEVICE *out is stored. */
int remote_ranks_step_memory(struct remote_ranks *remote, const struct batch_capacity *capacity,
                             void **out, struct error *err);
int remote_ranks_submit(struct remote_ranks *remote, const struct batch *batch,
                        struct step_result *result, struct error *err);
/* Waits for the oldest step, whose batch this is, once this process's own rank has done it. */
int remote_ranks_wait(struct remote_ranks *remote, const struct batch *batch, struct error *err);
int remote_ranks_check(struct remote_ranks *remote, struct error *err);
/* Writes what each has done, a second old while steps run. Returns their number. Any thread. */
int32_t remote_ranks_stats(struct remote_ranks *remote, struct rank_stats *out);

/* --- What they are told --- */

#define STEP_ALIGNMENT 64 /* of a step's memory: batch_arena_bind */

/* On the transport's channel of steps: each message is this head, and for a step its arena
 * (models/batch.h), of the capacity that the head says. */
enum step_message_kind {
    STEP_MEMORY,  /* before the first step: no step's capacity is beyond this one */
    STEP_COMPUTE, /* an arena follows, of what ranks read that do not sample */
    STEP_SAMPLE,  /* an arena follows, of all that the batch has; answered with the result, laid out
                     as after it in the memory of a step of that capacity */
    STEP_PING,
    STEP_QUIT,
};

struct step_message {
    enum step_message_kind kind;
    bool wants_stats; /* answered, once the step is computed, with the struct rank_stats of the
                         rank: so it is there. Always of a ping */
    struct batch_capacity capacity;
};

#endif
