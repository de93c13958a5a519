/* The engine without its thread: everything between the inbox and the token streams. One call of
 * engine_core_step ends cancelled requests, plans and submits a step, and distributes the results
 * of one. The core has neither a thread nor a clock, so that a seeded simulation runs exactly the
 * code of the server. Used by one thread. */
#ifndef QUIRE_ENGINE_CORE_ENGINE_CORE_H
#define QUIRE_ENGINE_CORE_ENGINE_CORE_H

#include "engine/batch/batch_builder.h"
#include "engine/core/adapter_slots.h"
#include "engine/core/mask_workers.h"
#include "engine/core/speculation.h"
#include "engine/core/step_output.h"
#include "engine/core/core_stats.h"
#include "engine/stats/engine_stats.h"
#include "engine/executor/executor.h"
#include "engine/schedule/queue_limits.h"
#include "engine/schedule/scheduler.h"

/* What an executor that can lose its ranks was asked to do. */
enum executor_answer { EXECUTOR_CHECKED, EXECUTOR_RESTARTED };

struct engine_core_config {
    /* What it refers to outlives the core, which does not end the steps of kv.events.
     * num_steps_abreast is not read, since it follows from the next two fields. */
    struct scheduler_config schedule;
    struct lora_shape lora;           /* room for adapters, as in executor_info */
    const struct model_config *model; /* outlives the core; read only if there is room */
    int32_t num_stages;               /* of the executor (executor_info); 0 means 1 */
    bool async_scheduling;            /* two steps in flight instead of one */
    struct drafter *drafter; /* outlives the core, whose thread alone calls it; NULL: none. It
                                proposes at most limits->num_speculative_tokens */
    bool has_draft_model;    /* the executor has one, which drafts where that pays more */
    const struct grammar_vocabulary *vocabulary; /* outlives the core; NULL: no request has a
                                                    grammar */
    struct mask_workers *mask_workers; /* find masks that take long; outlive the core, which stops
                                          them. NULL: no mask takes long */
    int64_t mask_budget;               /* with mask_workers: maximum cost of a step's masks */
    /* Called for each job whose result a step takes (grammar_job.id); may be NULL. */
    void (*masks_found)(void *context, uint64_t job);
    struct queue_limits *queue; /* outlives the core, which gives back what was taken from it for a
                                   request before engine_core_add; NULL: nothing was taken */
    int64_t stall_timeout_ns;
    int64_t (*clock)(void *context); /* nanoseconds, never 0, never falling */
    /* Like clock, for measuring steps only: no decision depends on it. NULL: steps are not
     * measured. */
    int64_t (*stopwatch)(void *context);
    /* Returns whether the signal is set. Called only in engine_core_step, like the clock, and
     * before anything is planned. NULL: request_has_signal. */
    bool (*has_signal)(void *context, struct request *request, enum request_signal signal);
    /* Reports a step that was waited for, before any of it is committed. failure: why it has no
     * results, or ERROR_NONE. May be NULL. */
    void (*collected)(void *context, const struct step *step, const struct error *failure);
    /* Reports a failed check, and the outcome of a restart. May be NULL. */
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
    struct adapter_slots adapters;
    struct step steps[EXECUTOR_MAX_STEPS]; /* a ring of num_steps */
    int32_t num_steps;
    int32_t first_in_flight, num_in_flight; /* submitted and not yet committed */
    int64_t last_collected_ns;
    int64_t last_commit_ns; /* 0: nothing has run since, or nothing could */
    struct step_timer timer;
    struct engine_stats stats;
    struct sequence_group *first_group, *last_group; /* live groups, by arrival */
    int32_t num_stalled;                             /* groups, as of the last step */
    int32_t num_storing; /* groups, as of the last step, that wait for the store */
    int64_t handed_over_logged_ns, taken_over_logged_ns; /* 0: never */
    int64_t first_deadline_ns; /* when the next group ends if nothing else happens; 0: never */
    bool is_lost;          /* the executor lost its ranks: nothing runs before they are restarted */
    int64_t lost_since_ns; /* if is_lost: when the ranks last did something */
    bool has_suspects;     /* some group may be a suspect */
    int32_t num_losses; /* losses of ranks since the last completed step that no request is blamed
                           for */
    bool failed;        /* the executor failed: nothing runs any more */
    struct error error; /* why */
};

/* Returns how many steps may be in flight. */
int32_t engine_core_num_steps(const struct engine_core_config *config);

/* The executor and the tokenizer outlive the core. */
int engine_core_init(struct engine_core *core, const struct engine_core_config *config,
                     struct executor *executor, const struct tokenizer *tokenizer,
                     struct error *err);
/* Returns the bytes that engine_core_init allocates; groups allocate more while they live. */
size_t engine_core_bytes(const struct engine_core_config *config,
                         const struct tokenizer *tokenizer);
/* Called after engine_core_abort, unless the core is idle. Accepts a zeroed core. */
void engine_core_finish(struct engine_core *core);

/* Gives a free slot to an adapter: the steps from now on write it, those that nothing else runs in
 * included, and set its state (adapter_slots.h). */
void engine_core_load_adapter(struct engine_core *core, int32_t slot, struct adapter *adapter,
                              bool is_ready);
/* Lets its requests end, then frees the slot; at once if there are none. */
void engine_core_unload_adapter(struct engine_core *core, int32_t slot);
/* Called when the executor has lost what it was given of the adapters: all are written again before
 * anything else runs. */
void engine_core_rewrite_adapters(struct engine_core *core);
/* Takes its own reference. The request fits the limits (kv_demand.h), and ids increase from call to
 * call. Ends the request at once with FINISH_ERROR when memory is short or the core has failed. */
void engine_core_add(struct engine_core *core, struct request *request);
/* Writes the keys of the full blocks of its prompt, under which the prefix cache and the store have
 * them; returns their number. Any thread. */
int32_t engine_core_list_keys(const struct engine_core *core, const struct request *request,
                              struct block_key *out);
/* Takes the masks that workers have found, submits as many steps as may be in flight, and applies
 * the results of the oldest. Returns false when nothing could run: then nothing is in flight, and
 * any remaining work waits for readers (num_stalled) or masks (mask_jobs.num_running).
 *
 * When the executor has lost its ranks, is_lost is set, and the next call begins by restarting
 * them. Every group then recomputes what its blocks held, as after a preemption; readers of a
 * stream see only a pause. */
bool engine_core_step(struct engine_core *core);
/* Empties the prefix cache before the next step. */
void engine_core_flush_cache(struct engine_core *core);
/* Resets an idle core, so that what it does next depends only on what enters it next: it forgets
 * prefixes, and the costs of steps and shares; adapters are written again. Counters continue.
 * Returns false and changes nothing while the core is not idle, once it has failed, or when memory
 * is short. */
bool engine_core_renew(struct engine_core *core);
/* Notes why a wait for the executor or a check of it failed; or that it hangs and was not woken. */
void engine_core_note_failure(struct engine_core *core, const struct error *err);
/* Ends everything that is left. */
void engine_core_abort(struct engine_core *core, enum finish_reason reason);
bool engine_core_is_idle(const struct engine_core *core);

#endif
