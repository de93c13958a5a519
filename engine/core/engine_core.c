/* A group lives from engine_core_add until the last event of its last sequence is in the stream. A
 * sequence ends in one place, engine_core_end_choice or the finish of a sampled token; either way
 * its blocks are free at once, or as soon as no step in flight uses them. When memory is too short
 * even for the last event, the group stays, and every step tries again. */
#include "engine/core/engine_core.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "config/base/log.h"
#include "config/base/numbers.h"
#include "engine/core/core_stats.h"
#include "engine/core/engine_core_private.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_NS INT64_C(100000000)

static void link_group(struct engine_core *core, struct sequence_group *group) {
    group->previous = core->last_group;
    *(core->last_group != NULL ? &core->last_group->next : &core->first_group) = group;
    core->last_group = group;
}

static void unlink_group(struct engine_core *core, struct sequence_group *group) {
    *(group->previous != NULL ? &group->previous->next : &core->first_group) = group->next;
    *(group->next != NULL ? &group->next->previous : &core->last_group) = group->previous;
}

int32_t engine_core_num_steps(const struct engine_core_config *config) {
    return config->async_scheduling ? EXECUTOR_MAX_STEPS : 1;
}

static struct batch_capacity capacity_of(const struct engine_core_config *config,
                                         const struct tokenizer *tokenizer) {
    struct batch_capacity capacity = step_batch_capacity(config->schedule.kv.limits, tokenizer);
    adapter_slots_add_capacity(config->model, &config->lora, &capacity);
    if (config->has_draft_model)
        capacity.num_draft_tokens = config->schedule.kv.limits->max_num_batched_tokens;
    return capacity;
}

/* Uses the memory of an executor that provides its own for steps. */
static int init_step(struct engine_core *core, struct step *step) {
    const struct batch_capacity capacity = capacity_of(&core->config, core->tokenizer);
    void *memory;
    if (core->executor->ops->step_memory(core->executor, &capacity, &memory) != 0)
        return -1;
    return step_init(step, core->config.schedule.kv.limits, &capacity, memory);
}

static int init_steps(struct engine_core *core) {
    core->num_steps = engine_core_num_steps(&core->config);
    for (int32_t i = 0; i < core->num_steps; i++)
        if (init_step(core, &core->steps[i]) != 0)
            return -1;
    return 0;
}

static struct scheduler_config scheduler_config_of(const struct engine_core_config *config) {
    struct scheduler_config schedule = config->schedule;
    schedule.num_steps_abreast = config->num_stages > 1 ? engine_core_num_steps(config) : 1;
    return schedule;
}

size_t engine_core_bytes(const struct engine_core_config *config,
                         const struct tokenizer *tokenizer) {
    const struct scheduler_config scheduler = scheduler_config_of(config);
    const struct batch_capacity capacity = capacity_of(config, tokenizer);
    return scheduler_bytes(&scheduler) + batch_builder_bytes(config->schedule.kv.limits) +
           step_output_bytes(config->schedule.kv.limits) +
           (size_t)engine_core_num_steps(config) *
               step_bytes(config->schedule.kv.limits, &capacity);
}

static void begin_speculation(struct engine_core *core) {
    core->speculation = (struct speculation){.drafter = core->config.drafter,
                                             .has_model = core->config.has_draft_model,
                                             .has_mtp = core->config.schedule.has_mtp,
                                             .limits = core->config.schedule.kv.limits,
                                             .tokenizer = core->tokenizer,
                                             .vocabulary = core->config.vocabulary};
    speculation_init(&core->speculation);
}

static bool ask_request(void *context, struct request *request, enum request_signal signal) {
    return request_has_signal(request, signal);
}

int engine_core_init(struct engine_core *core, const struct engine_core_config *config,
                     struct executor *executor, const struct tokenizer *tokenizer,
                     struct error *err) {
    const struct serving_limits *limits = config->schedule.kv.limits;
    const struct scheduler_config scheduler_config = scheduler_config_of(config);
    memset(core, 0, sizeof(*core));
    core->config = *config;
    core->executor = executor;
    core->tokenizer = tokenizer;
    begin_speculation(core);
    core->timer = (struct step_timer){.clock = config->stopwatch, .context = config->context};
    if (core->config.has_signal == NULL)
        core->config.has_signal = ask_request;
    adapter_slots_init(&core->adapters, config->model, &config->lora);
    engine_stats_init(&core->stats);
    core->stats.num_speculative_tokens = limits->num_speculative_tokens;
    if (init_steps(core) != 0 || scheduler_init(&core->scheduler, &scheduler_config) != 0 ||
        batch_builder_init(&core->builder, limits, tokenizer, config->vocabulary) != 0 ||
        step_output_init(&core->output, tokenizer, limits) != 0) {
        engine_core_finish(core);
        return error_set(err, ERROR_MEMORY, "no memory for the arrays of a step of %d tokens",
                         limits->max_num_batched_tokens);
    }
    core->mask_jobs = (struct mask_jobs){
        .workers = config->mask_workers, .taken = config->masks_found, .context = config->context};
    if (config->mask_workers != NULL)
        core->builder.mask_budget = config->mask_budget;
    core_stats_gauges(&core->stats, &core->scheduler);
    return 0;
}

/* Groups that engine_core_abort left had no memory for their last event; nobody reads it now. */
void engine_core_finish(struct engine_core *core) {
    struct sequence_group *group;
    while ((group = core->first_group) != NULL) {
        unlink_group(core, group);
        sequence_group_destroy(group);
    }
    mask_jobs_stop(&core->mask_jobs);
    adapter_slots_finish(&core->adapters);
    scheduler_finish(&core->scheduler);
    batch_builder_finish(&core->builder);
    step_output_finish(&core->output);
    for (int32_t i = 0; i < EXECUTOR_MAX_STEPS; i++)
        step_finish(&core->steps[i]);
    memset(core, 0, sizeof(*core));
}

/* --- How a group begins --- */

/* Ends a request that never became a group, for instance because no memory is left to run it. Its
 * stream has room for these events since request_create. */
static void refuse(struct engine_core *core, struct request *request) {
    if (core->config.queue != NULL) {
        queue_limits_leave(core->config.queue, request);
        queue_limits_end_choices(core->config.queue, request, request->params.num_choices);
    }
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

/* Tenants have other numbers after a restart, so blocks that outlive it belong to the API key. */
static struct block_key root_of(const struct engine_core *core, const struct request *request) {
    const struct block_manager_config *kv = &core->config.schedule.kv;
    bool is_owned = kv->store != NULL && request->has_owner;
    struct block_key root = block_key_root(&kv->secret, is_owned ? 0 : request->tenant,
                                           request->cache_salt, request->cache_salt_bytes);
    if (is_owned)
        root = block_key_root_of(&kv->secret, &root, request->owner, sizeof(request->owner));
    if (request->adapter == NULL)
        return root;
    return block_key_root_of(&kv->secret, &root, lora_adapter_digest(request->adapter->lora),
                             CONTENT_HASH_BYTES);
}

int32_t engine_core_list_keys(const struct engine_core *core, const struct request *request,
                              struct block_key *out) {
    int32_t block_size = core->config.schedule.kv.limits->block_size;
    int32_t num_blocks = request->num_prompt_tokens / block_size;
    struct block_key key = root_of(core, request);
    for (int32_t i = 0; i < num_blocks; i++) {
        key = block_key_next(&core->config.schedule.kv.secret, &key,
                             request->prompt + (size_t)i * (size_t)block_size, block_size);
        out[i] = key;
    }
    return num_blocks;
}

static struct sequence_group *create_group(struct engine_core *core, struct request *request) {
    const struct engine_core_config *config = &core->config;
    const struct adapter *adapter = request->adapter;
    struct group_shape shape = {
        .limits = config->schedule.kv.limits,
        .root = root_of(core, request),
    };
    if (adapter != NULL)
        shape.adapter =
            (struct block_adapter){adapter_slots_id(&core->adapters, adapter), adapter->name};
    shape.end_tokens = tokenizer_eos_tokens(core->tokenizer, &shape.num_end_tokens);
    return sequence_group_create(request, &shape);
}

static int32_t max_logprobs(const struct engine_core *core) {
    int32_t max = core->config.schedule.kv.limits->max_logprobs;
    return max > SAMPLE_MAX_LOGPROBS ? max : SAMPLE_MAX_LOGPROBS;
}

static void check_request(const struct engine_core *core, const struct request *request) {
    const struct serving_limits *limits = core->config.schedule.kv.limits;
    const struct kv_demand demand = kv_demand_of(request, limits);
    CHECK(kv_demand_fits(&demand, limits));
    CHECK(request->params.num_logprobs <= max_logprobs(core) &&
          request->params.num_prompt_logprobs <= max_logprobs(core));
    CHECK(request->tenant >= 0);
    CHECK(request->share >= 0 && request->share < max_int32(core->config.schedule.num_shares, 1));
    CHECK(request->weight >= 1 && request->weight <= REQUEST_MAX_WEIGHT);
    CHECK(request->params.grammar == NULL || core->config.vocabulary != NULL);
    CHECK(request->params.pooling == POOLING_NONE ||
          core->config.schedule.kv.limits->hidden_size > 0);
    CHECK(core->last_group == NULL || core->last_group->request->id < request->id);
}

/* Notes what a new group is to hand over (engine_core_handover.c), and what another server has
 * stored for it. */
static void begin_handover(const struct engine_core *core, struct sequence_group *group) {
    const struct block_manager_config *kv = &core->config.schedule.kv;
    const struct request *request = group->request;
    struct handover *handover = &group->handover;
    int32_t block_size = kv->limits->block_size;
    int32_t num_full = (request->num_prompt_tokens - 1) / block_size;
    if (kv->store == NULL || !kv->caching || request->params.pooling != POOLING_NONE)
        return;
    if (request->hands_over)
        handover->num_tokens = num_full * block_size;
    handover->is_awaited = handover->num_tokens > 0;
    int32_t num_expected =
        min_int32(request->num_handed_over, sequence_group_reusable(&group->sequences[0])) /
        block_size;
    handover->num_expected = num_expected * block_size;
    group->sequences[0].table.num_expected = num_expected;
}

void engine_core_add(struct engine_core *core, struct request *request) {
    check_request(core, request);
    struct sequence_group *group = core->failed ? NULL : create_group(core, request);
    if (group == NULL) {
        refuse(core, request);
        return;
    }
    link_group(core, group);
    begin_handover(core, group);
    adapter_slots_take(&core->adapters, request->adapter);
    scheduler_add(&core->scheduler, group);
    log_debug("request %llu: waits, %d tokens of prompt, %d sequence%s",
              (unsigned long long)request->id, request->num_prompt_tokens, group->num_sequences,
              group->num_sequences == 1 ? "" : "s");
}

/* --- How a group ends --- */

void engine_core_notify(struct engine_core *core, const struct sequence_group *group) {
    core->config.notify(core->config.context, group->request);
}

void engine_core_note_stall(struct engine_core *core, int64_t deadline_ns) {
    engine_core_note_deadline(core, deadline_ns);
    core->num_stalled++;
}

void engine_core_note_deadline(struct engine_core *core, int64_t deadline_ns) {
    if (core->first_deadline_ns == 0 || deadline_ns < core->first_deadline_ns)
        core->first_deadline_ns = deadline_ns;
}

void engine_core_leave_queue(struct engine_core *core, struct sequence_group *group) {
    if (group->started)
        return;
    group->started = true;
    if (core->config.queue != NULL)
        queue_limits_leave(core->config.queue, group->request);
}

/* Until then steps in flight may use the adapter's slot. */
static void destroy_group(struct engine_core *core, struct sequence_group *group) {
    adapter_slots_release(&core->adapters, group->request->adapter);
    sequence_group_destroy(group);
}

static void log_taken_over(struct engine_core *core, const struct sequence *sequence,
                           int64_t now_ns) {
    const struct sequence_group *group = sequence->group;
    int32_t num_expected = group->handover.num_expected, num_found = group->num_cached_tokens;
    bool is_answered = sequence->finish == FINISH_STOP || sequence->finish == FINISH_LENGTH;
    if (sequence->choice == 0 && is_answered && num_found < num_expected &&
        engine_core_may_log(&core->taken_over_logged_ns, now_ns))
        log_warning("request %llu: %d of %d tokens that another server has handed over were not in "
                    "the store, and were computed",
                    (unsigned long long)group->request->id, num_expected - num_found, num_expected);
}

void engine_core_retire(struct engine_core *core, struct sequence *sequence) {
    scheduler_remove(&core->scheduler, sequence);
    log_debug("request %llu: choice %d ends after %d tokens, %s",
              (unsigned long long)sequence->request->id, sequence->choice,
              sequence_num_generated(sequence), token_stream_finish_name(sequence->finish));
    int64_t now_ns = core->config.clock(core->config.context);
    core_stats_finished(&core->stats, sequence, now_ns);
    log_taken_over(core, sequence, now_ns);
}

void engine_core_close(struct engine_core *core, struct sequence *sequence) {
    struct sequence_group *group = sequence->group;
    CHECK(sequence->end_pushed && sequence->status == SEQUENCE_FINISHED);
    sequence_release(sequence);
    if (core->config.queue != NULL)
        queue_limits_end_choices(core->config.queue, group->request, 1);
    if (--group->num_open > 0)
        return;
    engine_core_leave_queue(core, group);
    if (core->scheduler.alone == group)
        scheduler_run_alone(&core->scheduler, NULL);
    unlink_group(core, group);
    if (group->num_in_flight == 0)
        destroy_group(core, group);
}

void engine_core_leave_flight(struct engine_core *core, struct sequence_group *group) {
    CHECK(group->num_in_flight > 0);
    if (--group->num_in_flight == 0 && group->num_open == 0)
        destroy_group(core, group);
}

void engine_core_push_end(struct engine_core *core, struct sequence *sequence) {
    if (step_output_end(&core->output, sequence) != 0) {
        engine_core_note_stall(core, core->config.clock(core->config.context) + RETRY_NS);
        return;
    }
    engine_core_notify(core, sequence->group);
    engine_core_close(core, sequence);
}

void engine_core_end_choice(struct engine_core *core, struct sequence *sequence,
                            enum finish_reason reason) {
    sequence->finish = reason;
    engine_core_retire(core, sequence);
    if (sequence->group->beams != NULL) /* beam search has streamed no token yet */
        sequence->num_tokens = sequence_num_prompt(sequence);
    engine_core_push_end(core, sequence);
}

void engine_core_end_group(struct engine_core *core, struct sequence_group *group,
                           enum finish_reason reason) {
    int32_t left = group->num_open;
    for (int32_t i = sequence_group_num_choices(group); i < group->num_sequences; i++)
        if (group->sequences[i].status != SEQUENCE_FINISHED)
            scheduler_remove(&core->scheduler, &group->sequences[i]);
    for (int32_t i = 0; left > 0; i++) {
        struct sequence *sequence = &group->sequences[i];
        if (sequence->end_pushed)
            continue;
        left--;
        if (sequence->status == SEQUENCE_FINISHED)
            engine_core_push_end(core, sequence);
        else
            engine_core_end_choice(core, sequence, reason);
    }
}

void engine_core_flush_cache(struct engine_core *core) {
    scheduler_flush_cache(&core->scheduler);
}

void engine_core_load_adapter(struct engine_core *core, int32_t slot, struct adapter *adapter,
                              bool is_ready) {
    adapter_slots_load(&core->adapters, slot, adapter, is_ready);
}

void engine_core_unload_adapter(struct engine_core *core, int32_t slot) {
    adapter_slots_unload(&core->adapters, slot);
}

void engine_core_rewrite_adapters(struct engine_core *core) {
    adapter_slots_forget(&core->adapters);
}

bool engine_core_renew(struct engine_core *core) {
    bool is_sound = !core->failed && !core->is_lost && core->mask_jobs.num_running == 0;
    if (!is_sound || !engine_core_is_idle(core) || !scheduler_renew(&core->scheduler))
        return false;
    begin_speculation(core);
    adapter_slots_forget(&core->adapters);
    core->last_collected_ns = 0;
    core->last_commit_ns = 0;
    core->has_suspects = false;
    core->num_losses = 0;
    core->lost_since_ns = 0;
    core->mask_jobs.last_id = 0;
    return true;
}

bool engine_core_is_idle(const struct engine_core *core) {
    return core->first_group == NULL && core->num_in_flight == 0;
}
