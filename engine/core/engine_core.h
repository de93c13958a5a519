/* The engine without its thread: everything between the inbox and the token streams. One call of
 * engine_core_step ends what was cancelled, plans, submits and hands out the results of a step. It
 * has no thread and no clock of its own, so a seeded simulation drives exactly the code the server
 * runs. Used by one thread. */
#ifndef QUIRE_ENGINE_CORE_ENGINE_CORE_H
#define QUIRE_ENGINE_CORE_ENGINE_CORE_H

#include "engine/batch/batch_builder.h"
#include "engine/core/mask_workers.h"
#include "engine/core/speculation.h"
#include "engine/core/step_output.h"
#include "engine/core/core_stats.h"
#include "engine/stats/engine_stats.h"
#include "engine/executor/executor.h"
#include "engine/schedule/queue_limits.h"
#include "engine/schedule/scheduler.h"

/* What an executor that may lose its ranks was asked. */
enum executor_answer { EXECUTOR_CHECKED, EXECUTOR_RESTARTED };

struct engine_core_config {
    /* What it refers to outlives the core, which does not end the steps of kv.events. Its
     * num_steps_abreast is not read: it follows from the next two. */
    struct scheduler_config schedule;
    int32_t num_stages;      /* of the executor (executor_info); 0 means 1 */
    bool async_scheduling;   /* two steps in flight instead of one */
    struct drafter *drafter; /* outlives the core, whose thread alone calls it; NULL: none. It
                                proposes limits->num_speculative_tokens at most */
    const struct grammar_vocabulary *vocabulary; /* outlives the core; NULL: no request has a
                                                    grammar */
    struct mask_workers *mask_workers;           /* outlive the core, but are stopped by it. They
                                                    find masks that take long; NULL: none does */
    int64_t mask_budget;                         /* with them: what the masks of a step may cost */
    /* Learns of the jobs of which a step takes note (grammar_job.id); NULL: nobody does. */
    void (*masks_found)(void *context, uint64_t job);
    struct queue_limits *queue; /* outlives the core, which gives back what was taken of it for a
                                   request before engine_core_add; NULL: nothing was */
    int64_t stall_timeout_ns;
    int64_t (*clock)(void *context); /* nanoseconds, never 0, never falling */
    /* Likewise, to measure steps with; nothing follows from what it says. NULL: they are not
     * measured. */
    int64_t (*stopwatch)(void *context);
    /* Says whether the signal is set; asked in engine_core_step only, as the clock is, before
     * anything is planned. NULL: request_has_signal. */
    bool (*has_signal)(void *context, struct request *request, enum request_signal signal);
    /* Reports a step that was waited for, before anything of it is committed; failure: why it has
     * no results, or ERROR_NONE. NULL: nobody asks. */
    void (*collected)(void *context, const struct step *step, const struct error *failure);
    /* Reports a check that failed, and how a restart went. NULL: nobody asks. */
    void (*answered)(void *context, enum executor_answer answer, const struct error *err);
    /* Reports that the request has events to read; called for each push. */
    void (*notify)(void *context, struct request *request);
    void *context;
};

/* Read by others, written by the core alone. */
struct engine_core {
    struct engine_core_config config;
    struct executor *executor;
    const struct tokenizer *tokenizer;
    struct scheduler scheduler;
    struct batch_builder builder;
    struct step_output output;
    struct speculation speculation;
    struct mask_jobs mask_jobs;
    struct step steps[EXECUTOR_MAX_STEPS]; /* a ring of num_steps */
    int32_t num_steps;
    int32_t first_in_flight, num_in_flight; /* submitted, and not committed */
    int64_t last_collected_ns;
    struct step_timer timer;
    struct engine_stats stats;
    struct sequence_group *first_group, *last_group; /* live groups, by arrival */
    int32_t num_stalled;                             /* groups, as of the last step */
    int64_t first_deadline_ns; /* when the next group ends if nothing else happens; 0: never */
    bool is_lost;          /* the executor lost its ranks: nothing runs before they are restarted */
    int64_t lost_since_ns; /* then: when they last did something */
    bool has_suspects;     /* some group may be one */
    int32_t num_losses;    /* of ranks, since a step was done, that no request is blamed for */
    bool failed;           /* the executor failed: nothing runs any more */
    struct error error;    /* why */
};

/* Returns how many steps may be in flight. */
int32_t engine_core_num_steps(const struct engine_core_config *config);

/* The executor and the tokenizer outlive the core. */
int engine_core_init(struct engine_core *core, const struct engine_core_config *config,
                     struct executor *executor, const struct tokenizer *tokenizer,
                     struct error *err);
/* Returns what engine_core_init allocates; groups add to it while they live. */
size_t engine_core_bytes(const struct engine_core_config *config,
                         const struct tokenizer *tokenizer);
/* Comes after engine_core_abort, unless the core is idle. Accepts a zeroed core. */
void engine_core_finish(struct engine_core *core);

/* Takes its own reference. The request fits the limits (kv_demand.h), and its id rises from call to
 * call. Ends it at once with FINISH_ERROR when memory is short or the core has failed. */
void engine_core_add(struct engine_core *core, struct request *request);
/* Takes note of the masks that workers have found, submits as many steps as may be in flight, and
 * applies the results of the oldest. Returns false when there was nothing that could run: nothing
 * is in flight then, and if anything is left to do it waits for readers (num_stalled) or masks
 * (mask_jobs.num_running).
 *
 * When the executor has lost its ranks, is_lost is set, and the next call begins by restarting
 * them: every group then computes again what its blocks held, as after a preemption, and nobody
 * who reads a stream sees more than a pause. */
bool engine_core_step(struct engine_core *core);
/* Makes the prefix cache forget all it knows, before the next step. */
void engine_core_flush_cache(struct engine_core *core);
/* Makes an idle core as good as new, so that what it does next follows from what enters it next
 * alone: it forgets prefixes, and what steps and shares have cost. Counters go on. Returns false,
 * and nothing has changed, while it is not idle, once it has failed, or when memory is
 * short. */
bool engine_core_renew(struct engine_core *core);
/* Notes why a wait, or a look at the executor, failed; or that it hangs, and was not woken. */
void engine_core_note_failure(struct engine_core *core, const struct error *err);
/* Ends everything that is left. */
void engine_core_abort(struct engine_core *core, enum finish_reason reason);
bool engine_core_is_idle(const struct engine_core *core);

#endif
