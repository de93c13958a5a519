/* A group lives from engine_core_add until the last event of its last sequence is in the stream. A
 * sequence ends in one place, end_sequence or the finish of a drawn token; either way its blocks
 * are free at once. When memory is too short even for the last event, the group stays, and every
 * step tries again. */
#include "engine/engine_core.h"

#include "config/check.h"
#include "config/checked.h"
#include "engine/core_stats.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_NS INT64_C(100000000)

int engine_core_init(struct engine_core *core, const struct engine_core_config *config,
                     struct executor *executor, const struct tokenizer *tokenizer,
                     struct error *err) {
    const struct batch_limits *limits = &config->limits;
    struct scheduler_config scheduler_config = {
        .max_num_seqs = limits->max_num_seqs,
        .max_num_batched_tokens = limits->max_num_batched_tokens,
        .block_size = limits->block_size,
    };
    memset(core, 0, sizeof(*core));
    core->config = *config;
    core->executor = executor;
    core->tokenizer = tokenizer;
    core->result.rows = calloc((size_t)limits->max_num_batched_tokens, sizeof(*core->result.rows));
    core->result.pool_sums =
        calloc((size_t)limits->max_num_seqs, ((size_t)limits->hidden_size + 1) * sizeof(float));
    engine_stats_init(&core->stats);
    if (core->result.rows == NULL || core->result.pool_sums == NULL ||
        scheduler_init(&core->scheduler, &scheduler_config, limits->num_blocks) != 0 ||
        batch_builder_init(&core->builder, limits, tokenizer, config->vocabulary) != 0 ||
        step_output_init(&core->output, tokenizer, limits->max_num_batched_tokens) != 0) {
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

bool engine_core_fits(const struct batch_limits *limits, const struct request *request) {
    int32_t needed = request->num_prompt_tokens;
    if (request->params.max_tokens > 0 && needed < INT32_MAX)
        needed++;
    if (needed > limits->max_model_len)
        return false;
    int32_t kv_limit = sequence_kv_limit(request, limits->max_model_len);
    return block_table_blocks_for(kv_limit, limits->block_size) <= limits->num_blocks;
}

static void notify(struct engine_core *core, const struct sequence_group *group) {
    core->config.notify(core->config.context, group->request);
}

static void link_group(struct engine_core *core, struct sequence_group *group) {
    group->previous = core->last_group;
    *(core->last_group != NULL ? &core->last_group->next : &core->first_group) = group;
    core->last_group = group;
}

static void unlink_group(struct engine_core *core, struct sequence_group *group) {
    *(group->previous != NULL ? &group->previous->next : &core->first_group) = group->next;
    *(group->next != NULL ? &group->next->previous : &core->last_group) = group->previous;
}

/* What engine_core_abort left had no memory for its last event; nobody reads it now. */
void engine_core_finish(struct engine_core *core) {
    struct sequence_group *group;
    while ((group = core->first_group) != NULL) {
        unlink_group(core, group);
        sequence_group_destroy(group);
    }
    scheduler_finish(&core->scheduler);
    batch_builder_finish(&core->builder);
    step_output_finish(&core->output);
    free(core->result.rows);
    free(core->result.pool_sums);
    memset(core, 0, sizeof(*core));
}

static void leave_queue(struct engine_core *core, struct sequence_group *group) {
    if (group->started)
        return;
    group->started = true;
    core->num_queued_requests--;
    core->num_queued_tokens -= group->request->num_prompt_tokens;
}

/* After a sequence's last event was pushed. Frees the group with its last one. */
static void close_sequence(struct engine_core *core, struct sequence *sequence) {
    struct sequence_group *group = sequence->group;
    CHECK(sequence->end_pushed && sequence->status == SEQUENCE_FINISHED);
    if (--group->num_open > 0)
        return;
    leave_queue(core, group);
    unlink_group(core, group);
    sequence_group_destroy(group);
}

static void retire(struct engine_core *core, struct sequence *sequence) {
    scheduler_remove(&core->scheduler, sequence);
    core_stats_finished(&core->stats, sequence, core->config.clock(core->config.context));
}

/* The step at deadline_ns is the latest that something must be done about a group. */
static void note_stall(struct engine_core *core, int64_t deadline_ns) {
    if (core->num_stalled == 0 || deadline_ns < core->stall_deadline_ns)
        core->stall_deadline_ns = deadline_ns;
    core->num_stalled++;
}

static void push_end(struct engine_core *core, struct sequence *sequence) {
    if (step_output_end(&core->output, sequence) != 0) {
        note_stall(core, core->config.clock(core->config.context) + RETRY_NS);
        return;
    }
    notify(core, sequence->group);
    close_sequence(core, sequence);
}

/* Ends a sequence from outside. May free its group. */
static void end_sequence(struct engine_core *core, struct sequence *sequence,
                         enum finish_reason reason) {
    sequence->finish = reason;
    retire(core, sequence);
    push_end(core, sequence);
}

/* Ends what has not ended; pushes last events that found no memory before. May free the group. */
static void end_group(struct engine_core *core, struct sequence_group *group,
                      enum finish_reason reason) {
    int32_t left = group->num_open;
    for (int32_t i = 0; left > 0; i++) {
        struct sequence *sequence = &group->sequences[i];
        if (sequence->end_pushed)
            continue;
        left--;
        if (sequence->status == SEQUENCE_FINISHED)
            push_end(core, sequence);
        else
            end_sequence(core, sequence, reason);
    }
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

void engine_core_add(struct engine_core *core, struct request *request) {
    const struct batch_limits *limits = &core->config.limits;
    CHECK(engine_core_fits(limits, request));
    CHECK(request->params.grammar == NULL || core->config.vocabulary != NULL);
    CHECK(request->params.pooling == POOLING_NONE || limits->hidden_size > 0);
    CHECK(core->last_group == NULL || core->last_group->request->id < request->id);
    struct sequence_group *group =
        core->failed ? NULL
                     : sequence_group_create(request, limits->max_model_len, limits->block_size);
    if (group == NULL) {
        refuse(core, request);
        return;
    }
    link_group(core, group);
    core->num_queued_requests++;
    core->num_queued_tokens += request->num_prompt_tokens;
    for (int32_t i = 0; i < request->params.num_choices; i++)
        scheduler_add(&core->scheduler, &group->sequences[i]);
}

void engine_core_abort(struct engine_core *core, enum finish_reason reason) {
    struct sequence_group *group = core->first_group, *next;
    for (; group != NULL; group = next) {
        next = group->next;
        end_group(core, group, reason);
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
    note_stall(core, deadline_ns);
    return true;
}

static bool has_unpushed_end(const struct sequence_group *group) {
    for (int32_t i = 0; i < group->request->params.num_choices; i++)
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
            end_group(core, group, FINISH_ERROR);
        else if (atomic_load(&group->request->cancelled) || !update_stall(core, group, now_ns))
            end_group(core, group, FINISH_ABORT);
    }
}

/* Memory is too short for the sequence to go on. While its siblings wait for the scores that choice
 * 0 can no longer give, they end with it; none of them is in this step. */
static void end_failed(struct engine_core *core, struct sequence *sequence) {
    if (sequence->choice == 0 && sequence_group_is_scoring(sequence->group))
        end_group(core, sequence->group, FINISH_ERROR);
    else
        end_sequence(core, sequence, FINISH_ERROR);
}

static void commit(struct engine_core *core, const struct planned_sequence *entry,
                   const struct sample_row *rows, const struct sample_output *outputs,
                   int32_t num_rows, int64_t now_ns) {
    struct sequence *sequence = entry->sequence;
    bool draws = num_rows > 0 && rows[num_rows - 1].target == SAMPLE_NO_TARGET;
    bool scores = sequence->choice == 0 && sequence_group_is_scoring(sequence->group);
    core_stats_computed(&core->stats, entry);
    scheduler_commit(&core->scheduler, entry);
    int status = 0;
    if (scores)
        status = step_output_scores(&core->output, sequence, outputs, num_rows - draws);
    if (status == 0 && draws)
        status = step_output_token(&core->output, sequence, &outputs[num_rows - 1]);
    if (status != 0) {
        end_failed(core, sequence);
        return;
    }
    if (draws)
        core_stats_token(&core->stats, sequence, now_ns);
    if (scores || draws)
        notify(core, sequence->group);
    if (sequence->finish != FINISH_NONE) {
        retire(core, sequence);
        close_sequence(core, sequence);
    } else if (sequence_num_pending(sequence) == 0) {
        end_sequence(core, sequence, FINISH_LENGTH); /* max_tokens is 0: the prompt is done */
    }
}

/* Of a sequence that is pooled; `sum` is NULL in the steps that have nothing to add. */
static void commit_pool(struct engine_core *core, const struct planned_sequence *entry,
                        float *sum) {
    struct sequence *sequence = entry->sequence;
    int32_t hidden_size = core->config.limits.hidden_size;
    core_stats_computed(&core->stats, entry);
    scheduler_commit(&core->scheduler, entry);
    bool is_complete = sequence_num_pending(sequence) == 0;
    int status = 0;
    if (is_complete)
        status = step_output_embedding(&core->output, sequence, sum, hidden_size);
    else if (sum != NULL)
        status = sequence_keep_pool(sequence, sum, hidden_size);
    if (status != 0) {
        end_failed(core, sequence);
    } else if (is_complete) {
        notify(core, sequence->group);
        retire(core, sequence);
        close_sequence(core, sequence);
    }
}

/* What the step left of the entry's pool; NULL: it has none. */
static float *pool_sum(const struct engine_core *core, int32_t entry) {
    const int32_t *start = core->builder.pool_start + entry;
    size_t offset = (size_t)start[0] * (size_t)core->config.limits.hidden_size;
    return start[1] > start[0] ? core->result.pool_sums + offset : NULL;
}

/* Entries of one group follow each other in any order; a group is freed with its last sequence, and
 * none of its entries can come after that. */
static void commit_all(struct engine_core *core, const struct step_plan *plan,
                       const struct batch *batch) {
    int64_t now_ns = core->config.clock(core->config.context);
    const int32_t *row_start = core->builder.row_start;
    CHECK(core->result.num_rows == batch->num_rows);
    core_stats_step(&core->stats, &core->scheduler, now_ns);
    for (int32_t i = 0; i < plan->num_entries; i++) {
        const struct planned_sequence *entry = &plan->entries[i];
        if (sequence_params(entry->sequence)->pooling != POOLING_NONE)
            commit_pool(core, entry, pool_sum(core, i));
        else
            commit(core, entry, batch->sample_rows + row_start[i], core->result.rows + row_start[i],
                   row_start[i + 1] - row_start[i], now_ns);
    }
}

static void begin_step(struct engine_core *core, const struct step_plan *plan, int64_t now_ns) {
    for (int32_t i = 0; i < plan->num_entries; i++) {
        leave_queue(core, plan->entries[i].sequence->group);
        core_stats_scheduled(&core->stats, &plan->entries[i], now_ns);
    }
}

bool engine_core_step(struct engine_core *core) {
    int64_t now_ns = core->config.clock(core->config.context);
    sweep_groups(core, now_ns);
    const struct step_plan *plan = scheduler_plan(&core->scheduler);
    bool runs = plan->num_entries > 0 && !core->failed;
    if (runs) {
        begin_step(core, plan, now_ns);
        const struct batch *batch = batch_builder_build(&core->builder, plan);
        core->result.num_rows = batch->num_rows;
        core->failed =
            core->executor->ops->run(core->executor, batch, &core->result, &core->error) != 0;
        if (core->failed)
            engine_core_abort(core, FINISH_ERROR);
        else
            commit_all(core, plan, batch);
    }
    core_stats_gauges(&core->stats, &core->scheduler);
    return runs;
}
