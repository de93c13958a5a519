/* The engine without its thread: everything between the inbox and the token streams. One call of
 * engine_core_step drops what was cancelled, plans, runs the executor and hands out the results. It
 * has no thread and no clock of its own, so a seeded simulation drives exactly the code the server
 * runs. Used by one thread. */
#ifndef QUIRE_ENGINE_ENGINE_CORE_H
#define QUIRE_ENGINE_ENGINE_CORE_H

#include "engine/batch_builder.h"
#include "engine/engine_stats.h"
#include "engine/executor.h"
#include "engine/scheduler.h"
#include "engine/step_output.h"

struct engine_core_config {
    struct batch_limits limits;
    int32_t num_host_blocks; /* of the pool that blocks are swapped out to; may be 0 */
    int64_t swap_block_ns;   /* to move one block there, or back */
    int32_t num_tenants;     /* >= 1; of a request: tenant < num_tenants */
    bool prefix_caching;
    struct block_key_secret secret; /* of the keys of cached prefixes */
    int32_t window;                 /* every layer sees only so many tokens back; 0: some see all */
    const struct grammar_vocabulary *vocabulary; /* outlives the core; NULL: no request has a
                                                    grammar */
    int64_t stall_timeout_ns;
    int64_t (*clock)(void *context); /* nanoseconds, never 0, never falling */
    /* The request has events to read; called for each push. */
    void (*notify)(void *context, struct request *request);
    void *context;
};

struct engine_core {
    struct engine_core_config config;
    struct executor *executor;
    const struct tokenizer *tokenizer;
    struct scheduler scheduler;
    struct batch_builder builder;
    struct step_output output;
    struct step_result result;
    struct engine_stats stats;
    struct sequence_group *first_group, *last_group; /* live groups, by arrival */
    int32_t num_queued_requests;                     /* live groups that never ran */
    int64_t num_queued_tokens;                       /* their prompts */
    int32_t num_stalled;                             /* groups, as of the last step */
    int64_t stall_deadline_ns;                       /* when the first of them is aborted */
    bool failed;        /* the executor failed: nothing runs any more */
    struct error error; /* why */
};

/* The executor and the tokenizer outlive the core. */
int engine_core_init(struct engine_core *core, const struct engine_core_config *config,
                     struct executor *executor, const struct tokenizer *tokenizer,
                     struct error *err);
/* engine_core_abort first, unless the core is idle. Accepts a zeroed core. */
void engine_core_finish(struct engine_core *core);

/* What a request may take of the core's pool and seats (kv_demand.h says what one does take). */
struct kv_capacity engine_core_capacity(const struct batch_limits *limits);
/* Takes its own reference. The request fits the capacity, and its id rises from call to call. Ends
 * it at once with FINISH_ERROR when memory is short or the core has failed. */
void engine_core_add(struct engine_core *core, struct request *request);
/* True when a step was run; false when there was nothing that could run. */
bool engine_core_step(struct engine_core *core);
/* Ends everything that is left. */
void engine_core_abort(struct engine_core *core, enum finish_reason reason);
bool engine_core_is_idle(const struct engine_core *core);

#endif
