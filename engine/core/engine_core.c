/* A group lives from engine_core_add until the last event of its last sequence is in the stream. A
 * sequence ends in one place, core_groups_end_choice or the finish of a drawn token; either way
 * its blocks are free at once. When memory is too short even for the last event, the group stays,
 * and every step tries again. */
#include "engine/core/engine_core.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "engine/core/core_groups.h"
#include "engine/core/core_stats.h"
#include "engine/core/step_commit.h"

#include <stdlib.h>
#include <string.h>

#define LARGE_STEP 32 /* tokens */

static struct scheduler_config scheduler_config_of(const struct engine_core_config *config) {
    return (struct scheduler_config){
        .limits = config->limits,
        .swap_block_ns = config->swap_block_ns,
        .num_tenants = config->num_tenants,
        .prefix_caching = config->prefix_caching,
        .secret = config->secret,
    };
}

/* Pages that no step needs are never touched. */
static float *alloc_listed(const struct serving_limits *limits) {
    size_t bytes;
    bool fits = checked_mul(logprob_lists_max_of_step(limits), sizeof(float), &bytes);
    return fits ? malloc(bytes) : NULL;
}

int engine_core_init(struct engine_core *core, const struct engine_core_config *config,
                     struct executor *executor, const struct tokenizer *tokenizer,
                     struct error *err) {
    const struct serving_limits *limits = config->limits;
    const struct scheduler_config scheduler_config = scheduler_config_of(config);
    memset(core, 0, sizeof(*core));
    core->config = *config;
    core->executor = executor;
    core->tokenizer = tokenizer;
    core->result.rows = calloc((size_t)batch_builder_max_rows(limits), sizeof(*core->result.rows));
    core->result.hidden_sums =
        calloc((size_t)limits->max_num_seqs, ((size_t)limits->hidden_size + 1) * sizeof(float));
    core->result.listed_logprobs = alloc_listed(limits);
    core->drawn = calloc((size_t)limits->max_num_seqs, sizeof(struct sequence *));
    engine_stats_init(&core->stats);
    if (core->result.rows == NULL || core->result.hidden_sums == NULL || core->drawn == NULL ||
        core->result.listed_logprobs == NULL ||
        scheduler_init(&core->scheduler, &scheduler_config) != 0 ||
        batch_builder_init(&core->builder, limits, tokenizer, config->vocabulary) != 0 ||
        step_output_init(&core->output, tokenizer, limits) != 0) {
        engine_core_finish(core);
        return error_set(err, ERROR_MEMORY, "no memory for the arrays of a step of %d tokens",
                         limits->max_num_batched_tokens);
    }
    core_stats_gauges(&core->stats, &core->scheduler);
    return 0;
}

bool engine_core_is_idle(const struct engine_core *core) {
    return core->first_group == NULL;
}

/* What engine_core_abort left had no memory for its last event; nobody reads it now. */
void engine_core_finish(struct engine_core *core) {
    struct sequence_group *group;
    while ((group = core->first_group) != NULL) {
        core_groups_unlink(core, group);
        sequence_group_destroy(group);
    }
    scheduler_finish(&core->scheduler);
    batch_builder_finish(&core->builder);
    step_output_finish(&core->output);
    free(core->result.rows);
    free(core->result.hidden_sums);
    free(core->result.listed_logprobs);
    free(core->drawn);
    memset(core, 0, sizeof(*core));
}

/* A request that never became a group, for instance because no memory is left to run it. Its stream
 * has room for these events since request_create. */
static void refuse(struct engine_core *core, struct request *request) {
    for (int32_t i = 0; i < request->params.num_choices; i++) {
        struct token_event event = {
            .kind = TOKEN_EVENT_TEXT,
            .choice = i,
            .finish = FINISH_ERROR,
            .stop_token = -1,
            .stop_string = -1,
        };
        CHECK(token_stream_push(&request->stream, &event) == 0);
        core->stats.finished[FINISH_ERROR]++;
    }
    core->config.notify(core->config.context, request);
}

static struct sequence_group *create_group(struct engine_core *core, struct request *request) {
    const struct engine_core_config *config = &core->config;
    struct group_shape shape = {
        .limits = config->limits,
        .root = block_key_root(&config->secret, request->tenant, request->cache_salt,
                               request->cache_salt_bytes),
    };
    shape.end_tokens = tokenizer_eos_tokens(core->tokenizer, &shape.num_end_tokens);
    return sequence_group_create(request, &shape);
}

static int32_t max_logprobs(const struct engine_core *core) {
    int32_t max = core->config.limits->max_logprobs;
    return max > SAMPLE_MAX_LOGPROBS ? max : SAMPLE_MAX_LOGPROBS;
}

static void check_request(const struct engine_core *core, const struct request *request) {
    const struct serving_limits *limits = core->config.limits;
    const struct kv_demand demand = kv_demand_of(request, limits);
    CHECK(kv_demand_fits(&demand, limits));
    CHECK(request->params.num_logprobs <= max_logprobs(core) &&
          request->params.num_prompt_logprobs <= max_logprobs(core));
    CHECK(request->tenant >= 0 && request->tenant < core->config.num_tenants);
    CHECK(request->params.grammar == NULL || core->config.vocabulary != NULL);
    CHECK(request->params.pooling == POOLING_NONE || core->config.limits->hidden_size > 0);
    CHECK(core->last_group == NULL || core->last_group->request->id < request->id);
}

void engine_core_add(struct engine_core *core, struct request *request) {
    check_request(core, request);
    struct sequence_group *group = core->failed ? NULL : create_group(core, request);
    if (group == NULL) {
        refuse(core, request);
        return;
    }
    core_groups_link(core, group);
    core->num_queued_requests++;
    core->num_choices += request->params.num_choices;
    core->num_queued_tokens += request->num_prompt_tokens;
    scheduler_add(&core->scheduler, group);
}

void engine_core_abort(struct engine_core *core, enum finish_reason reason) {
    struct sequence_group *group = core->first_group, *next;
    for (; group != NULL; group = next) {
        next = group->next;
        core_groups_end(core, group, reason);
    }
    core_stats_gauges(&core->stats, &core->scheduler);
}

/* Returns false when the group was stalled for too long. */
static bool update_stall(struct engine_core *core, struct sequence_group *group, int64_t now_ns) {
    size_t pending = group->started ? token_stream_pending_bytes(&group->request->stream) : 0;
    if (pending <= TOKEN_STREAM_STALL_BYTES) {
        group->stalled = false;
        return true;
    }
    if (!group->stalled) {
        group->stalled = true;
        group->stalled_since_ns = now_ns;
    }
    int64_t deadline_ns = group->stalled_since_ns + core->config.stall_timeout_ns;
    if (now_ns >= deadline_ns)
        return false;
    core_groups_note_stall(core, deadline_ns);
    return true;
}

static bool has_unpushed_end(const struct sequence_group *group) {
    for (int32_t i = 0; i < sequence_group_num_choices(group); i++)
        if (group->sequences[i].status == SEQUENCE_FINISHED && !group->sequences[i].end_pushed)
            return true;
    return false;
}

static void sweep_groups(struct engine_core *core, int64_t now_ns) {
    core->num_stalled = 0;
    struct sequence_group *group = core->first_group, *next;
    for (; group != NULL; group = next) {
        next = group->next;
        if (has_unpushed_end(group))
            core_groups_end(core, group, FINISH_ERROR);
        else if (atomic_load(&group->request->cancelled) || !update_stall(core, group, now_ns))
            core_groups_end(core, group, FINISH_ABORT);
    }
}

static void begin_step(struct engine_core *core, const struct step_plan *plan, int64_t now_ns) {
    for (int32_t i = 0; i < plan->num_entries; i++) {
        core_groups_leave_queue(core, plan->entries[i].sequence->group);
        core_stats_scheduled(&core->stats, &plan->entries[i], now_ns);
    }
}

/* What a token takes when many are computed at once, as in recomputation; fewer cost more each. */
static void note_cost(struct scheduler *scheduler, int64_t step_ns) {
    if (scheduler->plan.num_tokens == 0)
        return;
    double token_ns = (double)step_ns / scheduler->plan.num_tokens;
    if (scheduler->token_ns == 0)
        scheduler->token_ns = token_ns;
    else if (scheduler->plan.num_tokens >= LARGE_STEP || token_ns < scheduler->token_ns)
        scheduler->token_ns += (token_ns - scheduler->token_ns) / 8;
}

static void run_step(struct engine_core *core, const struct step_plan *plan, int64_t now_ns) {
    begin_step(core, plan, now_ns);
    const struct batch *batch = batch_builder_build(&core->builder, plan, &core->scheduler.blocks);
    core->result.num_sample_rows = batch->num_sample_rows;
    core->failed =
        core->executor->ops->run(core->executor, batch, &core->result, &core->error) != 0;
    scheduler_end_step(&core->scheduler);
    if (core->failed) {
        engine_core_abort(core, FINISH_ERROR);
        return;
    }
    int64_t end_ns = core->config.clock(core->config.context);
    note_cost(&core->scheduler, end_ns - now_ns);
    core_stats_step(&core->stats, &core->scheduler, end_ns);
    step_commit(core, plan, batch, end_ns);
}

bool engine_core_step(struct engine_core *core) {
    int64_t now_ns = core->config.clock(core->config.context);
    sweep_groups(core, now_ns);
    const struct step_plan *plan = scheduler_plan(&core->scheduler);
    bool runs = !core->failed &&
                (plan->num_entries > 0 || block_manager_has_moves(&core->scheduler.blocks));
    if (runs)
        run_step(core, plan, now_ns);
    core_stats_gauges(&core->stats, &core->scheduler);
    return runs;
}
