/* What the core knows, for the files that it is made of: engine_core.c, step_commit.c,
 * core_groups.c. Others read it and change nothing. */
#ifndef QUIRE_ENGINE_CORE_ENGINE_CORE_STATE_H
#define QUIRE_ENGINE_CORE_ENGINE_CORE_STATE_H

#include "engine/batch/batch_builder.h"
#include "engine/engine_stats.h"
#include "engine/executor.h"
#include "engine/schedule/scheduler.h"
#include "engine/core/step_output.h"

struct engine_core_config {
    const struct serving_limits *limits; /* outlive the core */
    int64_t swap_block_ns;               /* to move one block to the host, or back */
    int32_t num_tenants;                 /* >= 1; of a request: tenant < num_tenants */
    bool prefix_caching;
    struct block_key_secret secret;              /* of the keys of cached prefixes */
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
    struct sequence **drawn; /* [max_num_seqs], of one group, while a step is committed */
    struct engine_stats stats;
    struct sequence_group *first_group, *last_group; /* live groups, by arrival */
    int32_t num_queued_requests;                     /* live groups that never ran */
    int64_t num_queued_tokens;                       /* their prompts */
    int64_t num_choices;                             /* of live groups, but for those that ended */
    int32_t num_stalled;                             /* groups, as of the last step */
    int64_t stall_deadline_ns;                       /* when the first of them is aborted */
    bool failed;        /* the executor failed: nothing runs any more */
    struct error error; /* why */
};

#endif
