#include "tests/sim/simulation.h"

#include "config/base/check.h"
#include "engine/draft/ngram_drafter.h"
#include "tests/sim/fake_lora.h"
#include "tests/sim/fake_tokenizer.h"
#include "tests/sim/invariants.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

void simulation_fail(struct simulation *sim, const char *what, int64_t detail) {
    if (!sim->broken)
        printf("seed=%llu%s stages=%d drafts=%d step=%lld: %s (%lld)\n",
               (unsigned long long)sim->seed, sim->variant.async_scheduling ? " async" : "",
               (int)sim->variant.num_stages, (int)sim->variant.drafts, (long long)sim->now, what,
               (long long)detail);
    sim->broken = true;
}

static int64_t read_clock(void *context) {
    struct simulation *sim = context;
    recorder_note_clock(sim->recorder, sim->now + 1);
    return sim->now + 1;
}

/* Goes on by itself, unlike the clock, since nothing may follow from it. */
static int64_t read_stopwatch(void *context) {
    return ++((struct simulation *)context)->stopwatch_ns;
}

static bool has_signal(void *context, struct request *request, enum request_signal signal) {
    struct simulation *sim = context;
    bool is_set = request_has_signal(request, signal);
    if (is_set)
        recorder_note_signal(sim->recorder, request, signal);
    return is_set;
}

static void note_collected(void *context, const struct step *step, const struct error *failure) {
    recorder_note_collected(((struct simulation *)context)->recorder, step, failure);
}

static void on_news(void *context, struct request *request) {
    ((struct simulation *)context)->notified++;
}

static void note_answer(void *context, enum executor_answer answer, const struct error *err) {
    recorder_note_answer(((struct simulation *)context)->recorder, answer, err);
}

static void note_masks(void *context, uint64_t job) {
    recorder_note_masks(((struct simulation *)context)->recorder, job);
}

static uint64_t scope_of(void *context, const struct batch *batch, int32_t seq) {
    const struct step *step =
        (const struct step *)((const char *)batch - offsetof(struct step, batch));
    const struct sequence *sequence = step->plan.entries[seq].sequence;
    return ((const struct simulated_request *)sequence->group->request->user)->scope;
}

static uint64_t adapter_of(void *context, const struct batch *batch, int32_t seq) {
    const struct step *step =
        (const struct step *)((const char *)batch - offsetof(struct step, batch));
    const struct adapter *adapter = step->plan.entries[seq].sequence->request->adapter;
    return adapter != NULL ? fake_lora_number(adapter) : 0;
}

static struct simulation *watching(struct executor *executor) {
    return (struct simulation *)((char *)executor - offsetof(struct simulation, watched));
}

/* Returns a step in flight; -1: the last one. */
static const struct step *step_in_flight(const struct engine_core *core, int32_t index) {
    int32_t place = index >= 0 ? index : core->num_in_flight + index;
    return &core->steps[(core->first_in_flight + place) % core->num_steps];
}

/* Compares the group in front with the first one of the plan. */
static void watch_front(struct simulation *sim) {
    const struct sequence_group *first = sim->core.scheduler.running.first;
    while (first != NULL && first->stalled)
        first = first->list_next;
    for (const struct sequence_group *g = sim->core.first_group; g != NULL; g = g->next)
        if (g->request->id == sim->front && first != NULL && first != g)
            sim->front_was_passed |= sequence_group_before(first, g);
}

static void submit_watched(struct executor *executor, const struct batch *batch,
                           struct step_result *result) {
    struct simulation *sim = watching(executor);
    const struct step *step = step_in_flight(&sim->core, -1);
    EXPECT(sim, &step->batch == batch && &step->result == result, sim->core.num_in_flight);
    for (int32_t i = 0; i < step->plan.num_entries; i++) {
        const struct sequence_group *group = step->plan.entries[i].sequence->group;
        sim->ran[sim->num_ran++] = group->request->id;
        sim->num_adapter_hits += group->request->adapter != NULL && group->num_cached_tokens > 0;
    }
    sim->num_ahead += sim->core.num_in_flight > 1;
    watch_front(sim);
    invariants_check_batch(sim, batch);
    int32_t taken = flight_watch_submit(&sim->flights, &sim->core, step);
    if (taken >= 0)
        simulation_fail(sim, "a block in flight was handed out", taken);
    sim->executor.base.ops->submit(&sim->executor.base, batch, result);
}

static void supply_watched(struct executor *executor) {
    struct simulation *sim = watching(executor);
    sim->executor.base.ops->supply(&sim->executor.base);
}

static int check_watched(struct executor *executor, struct error *err) {
    struct simulation *sim = watching(executor);
    return sim->executor.base.ops->check(&sim->executor.base, err);
}

static int restart_watched(struct executor *executor, struct error *err) {
    struct simulation *sim = watching(executor);
    return sim->executor.base.ops->restart(&sim->executor.base, err);
}

static bool computes_poison(const struct simulation *sim, const struct batch *batch) {
    const struct step *step =
        (const struct step *)((const char *)batch - offsetof(struct step, batch));
    for (int32_t i = 0; i < step->plan.num_entries; i++)
        if (step->plan.entries[i].sequence->group->request->user == sim->poisoned &&
            batch->inputs.context_lens[i] > sim->poison_at)
            return true;
    return false;
}

/* Nobody is blamed who is not poisoned, and three losses in a row would be the end. */
static bool loses_ranks(void *context, const struct batch *batch) {
    struct simulation *sim = context;
    const struct engine_core *core = &sim->core;
    if (batch != NULL && sim->poisoned != NULL && computes_poison(sim, batch))
        return true;
    return core->scheduler.alone == NULL && core->num_losses == 0 &&
           random_once_in(&sim->loss_random, batch != NULL ? 15 : 100);
}

/* Returns how many of the entry's drafts are verified: their own rows have their masks. */
static int32_t count_verified(const struct step *step, const struct planned_sequence *entry) {
    const struct step_row *rows = step->rows + entry->first_row + entry->num_scores;
    int32_t count = 0;
    while (count < entry->num_drafts && !rows[count].lacks_mask && !rows[count + 1].lacks_mask)
        count++;
    return count;
}

/* Returns how many of the entry's drafts are what was sampled in their place. */
static int32_t count_accepted(const struct step *step, const struct planned_sequence *entry) {
    const int32_t *drafts = step_drafts(step, entry);
    const struct sample_output *rows = step->result.rows + entry->first_row + entry->num_scores;
    int32_t count = 0, most = count_verified(step, entry);
    while (count < most && drafts[count] == rows[count].token)
        count++;
    return count;
}

static void count_drafts(struct simulation *sim, const struct step *step,
                         const struct planned_sequence *entry) {
    struct draft_counts *counts = &sim->drafts;
    int32_t window = sim->limits.window;
    const struct sequence *sequence = entry->sequence;
    const struct simulated_request *request = sequence->group->request->user;
    const struct oracle_choice *oracle = &request->checker.choices[sequence->choice].oracle;
    uint64_t num_drafts = (uint64_t)entry->num_drafts;
    int32_t num_accepted = count_accepted(step, entry);
    bool ends = sequence_num_generated(sequence) + num_accepted >= oracle->num_tokens;
    bool is_alone = sequence->group->num_sequences == 1;
    EXPECT(sim, sim->variant.drafts != DRAFTS_WRONG || num_accepted == 0, num_accepted);
    EXPECT(sim,
           sim->variant.drafts != DRAFTS_RIGHT || !is_alone || ends ||
               num_accepted == count_verified(step, entry),
           num_accepted);
    counts->tokens += num_drafts;
    counts->of_model += entry->first_draft >= 0 ? num_drafts : 0;
    counts->of_model_accepted += entry->first_draft >= 0 ? (uint64_t)num_accepted : 0;
    counts->accepted += (uint64_t)num_accepted;
    counts->rejected += num_drafts - (uint64_t)num_accepted;
    counts->ended += ends;
    counts->masked += sequence_params(sequence)->grammar != NULL ? num_drafts : 0;
    counts->penalised += sequence_has_penalty(sequence) ? num_drafts : 0;
    counts->after_preemption += request->was_preempted ? num_drafts : 0;
    counts->in_windows += window > 0 && entry->begin >= window ? num_drafts : 0;
}

static int wait_watched(struct executor *executor, struct error *err) {
    struct simulation *sim = watching(executor);
    const struct step *step = step_in_flight(&sim->core, 0);
    for (int32_t i = 0; i < step->batch.num_sample_rows; i++) {
        sim->num_dead_rows += step->rows[i].sequence->status == SEQUENCE_FINISHED;
        sim->num_unmasked += step->rows[i].lacks_mask;
    }
    invariants_check_capacity(sim, &step->batch);
    flight_watch_collect(&sim->flights);
    int status = sim->executor.base.ops->wait(&sim->executor.base, err);
    for (int32_t i = 0; i < step->plan.num_entries && status == 0; i++) {
        const struct planned_sequence *entry = &step->plan.entries[i];
        if (entry->num_drafts > 0 && entry->sequence->status != SEQUENCE_FINISHED)
            count_drafts(sim, step, entry);
    }
    return status;
}

/* The kind of requests. */
enum load {
    LOAD_ANY,
    LOAD_HEAVY,        /* much to read: readers that lag are noticed */
    LOAD_LONG_OUTPUTS, /* of short prompts: they outgrow the pool */
    LOAD_MIXED,        /* long prompts arrive slowly while long outputs grow */
    LOAD_SHARED,       /* prompts that begin alike: the cache is full of them */
};

static enum load draw_load(struct random *random) {
    static const enum load loads[] = {LOAD_ANY,          LOAD_ANY,   LOAD_HEAVY, LOAD_LONG_OUTPUTS,
                                      LOAD_LONG_OUTPUTS, LOAD_MIXED, LOAD_SHARED};
    return loads[random_range(random, 0, 6)];
}

/* Of one that has a window, some have layers that see everything. */
static void draw_groups(struct simulation *sim) {
    struct random *random = &sim->random;
    struct serving_limits *limits = &sim->limits;
    if (!random_once_in(random, 3))
        return;
    limits->window = random_range(random, 2, 40);
    if (random_once_in(random, 3))
        return;
    limits->num_groups = random_range(random, 2, 4);
    limits->num_full_groups = random_range(random, 1, limits->num_groups - 1);
}

/* Pools from one block up: most are tight, some hold everything. */
static void draw_memory(struct simulation *sim, enum load load) {
    struct random *random = &sim->random;
    struct engine_core_config *config = &sim->config;
    struct serving_limits *limits = &sim->limits;
    draw_groups(sim);
    int32_t one = (int32_t)serving_limits_blocks_for(limits, limits->max_model_len, 1);
    limits->num_blocks =
        random_once_in(random, 4)
            ? random_range(random, 1, one)
            : one + random_range(random, 0, one * (random_once_in(random, 3) ? 6 : 1));
    if (load == LOAD_MIXED)
        limits->num_blocks = one + random_range(random, 0, one / 2);
    if (!random_once_in(random, 3))
        limits->num_host_blocks = random_range(random, 1, 2 * limits->num_blocks);
    static const int64_t costs[] = {0, 0, 1, INT64_C(1000000000)};
    config->schedule.swap_block_ns = costs[random_range(random, 0, 3)];
    static const int64_t times[] = {0, 1, 3, -1}; /* of a step of a tick, or of none */
    config->schedule.max_step_ns = times[sim->seed % 4];
    config->schedule.kv.caching = !random_once_in(random, 4);
    config->schedule.kv.num_tenants = random_range(random, 1, 3);
    for (int i = 0; i < BLOCK_KEY_SECRET_BYTES; i++)
        config->schedule.kv.secret.bytes[i] = (unsigned char)random_range(random, 0, 255);
}

/* Few tokens a step, and a pool for one long prompt: others grow into what was promised to it. */
static void slow_down(struct simulation *sim) {
    struct random *random = &sim->random;
    struct serving_limits *limits = &sim->limits;
    limits->block_size = random_range(random, 2, 4);
    limits->max_num_seqs = random_range(random, 5, 9);
    limits->max_num_batched_tokens = limits->max_num_seqs + random_range(random, 0, 2);
    limits->max_model_len = random_range(random, 60, 160);
}

static void share_prefixes(struct simulation *sim) {
    struct random *random = &sim->random;
    struct serving_limits *limits = &sim->limits;
    limits->block_size = random_range(random, 1, 4);
    limits->max_model_len = random_range(random, 40, 160);
}

static void draw_server(struct simulation *sim, enum load load) {
    struct random *random = &sim->random;
    struct serving_limits *limits = &sim->limits;
    limits->block_size = 1 << random_range(random, 0, 4);
    limits->max_num_seqs = random_range(random, 1, SIMULATION_MAX_SEQS);
    limits->max_num_batched_tokens =
        limits->max_num_seqs + random_range(random, 0, random_once_in(random, 2) ? 8 : 100);
    limits->max_model_len = random_range(random, 20, 160);
    limits->vocab_size = FAKE_VOCAB_SIZE;
    limits->hidden_size = FAKE_HIDDEN_SIZE;
    if (random_once_in(random, 6))
        limits->max_logprobs = FAKE_VOCAB_SIZE;
    if (load == LOAD_MIXED)
        slow_down(sim);
    if (load == LOAD_SHARED)
        share_prefixes(sim);
    draw_memory(sim, load);
    if (load == LOAD_SHARED)
        sim->config.schedule.kv.caching = true;
    sim->config.schedule.kv.limits = limits;
    sim->config.async_scheduling = sim->variant.async_scheduling;
    sim->config.num_stages = sim->variant.num_stages;
    sim->config.vocabulary = sim->vocabulary;
    sim->config.stall_timeout_ns = SIMULATION_TICKS_TO_STALL_OUT;
    sim->config.clock = read_clock;
    sim->config.stopwatch = read_stopwatch;
    sim->config.has_signal = has_signal;
    sim->config.collected = note_collected;
    sim->config.answered = note_answer;
    sim->config.notify = on_news;
    sim->config.context = sim;
}

/* Without a cache nobody shares with anybody else. */
static uint64_t find_scope(const struct simulation *sim, int32_t index) {
    const struct request *request = sim->requests[index].checker.request;
    if (!sim->config.schedule.kv.caching)
        return (uint64_t)index;
    uint64_t scope = fake_model_hash(0, request->tenant);
    for (size_t i = 0; i < request->cache_salt_bytes; i++)
        scope = fake_model_hash(scope, request->cache_salt[i]);
    return scope;
}

static struct request_shape draw_shape(struct simulation *sim, enum load load) {
    struct random *random = &sim->random;
    const struct serving_limits *limits = &sim->limits;
    int32_t max_model_len = limits->max_model_len;
    bool short_prompts = load == LOAD_HEAVY || load == LOAD_LONG_OUTPUTS;
    return (struct request_shape){
        .max_prompt_tokens = short_prompts || (load != LOAD_SHARED && random_once_in(random, 2))
                                 ? 10
                                 : max_model_len,
        .max_output_tokens =
            load != LOAD_LONG_OUTPUTS && random_once_in(random, 2) ? 20 : max_model_len,
        .long_outputs = load == LOAD_LONG_OUTPUTS,
        .max_choices = random_once_in(random, 4) ? SIMULATION_MAX_CHOICES : 4,
        .min_logprobs = load == LOAD_HEAVY ? SAMPLE_MAX_LOGPROBS : -1,
        .max_logprobs = limits->max_logprobs > 0 ? limits->max_logprobs
                        : load == LOAD_HEAVY     ? SAMPLE_MAX_LOGPROBS
                                                 : 5,
        .grammars = true,
        .max_beam_width = load == LOAD_MIXED ? 3 : 6,
        .many_beams = load == LOAD_MIXED,
        .num_texts = load == LOAD_SHARED ? 1 : random_range(random, 0, 3),
        .text_seed = random_next(random),
        .num_tenants = sim->config.schedule.kv.num_tenants,
    };
}

static void draw_request(struct simulation *sim, const struct request_shape *shape, enum load load,
                         int32_t index) {
    struct random *random = &sim->random;
    struct simulated_request *request = &sim->requests[index];
    stream_checker_init(&request->checker, random_request(random, shape), sim->limits.max_model_len,
                        sim->vocabulary);
    request->checker.caching = sim->config.schedule.kv.caching;
    request->checker.request->user = request;
    request->scope = find_scope(sim, index);
    request->cancel_at = random_once_in(random, 5) ? random_range(random, 0, 60) : -1;
    request->reader = random_once_in(random, load == LOAD_HEAVY ? 2 : 8)
                          ? (enum reader_kind)random_range(random, READER_LAZY, READER_ABSENT)
                          : READER_PROMPT;
}

static void draw_requests(struct simulation *sim, enum load load) {
    struct random *random = &sim->random;
    struct request_shape shape = draw_shape(sim, load);
    bool crowded = load == LOAD_LONG_OUTPUTS || load == LOAD_MIXED;
    int32_t spread = random_range(random, 0, crowded ? 20 : 200);
    sim->num_requests = random_range(random, 1, load == LOAD_HEAVY ? 6 : SIMULATION_MAX_REQUESTS);
    for (int32_t i = 0; i < sim->num_requests; i++) {
        struct simulated_request *request = &sim->requests[i];
        if (load == LOAD_MIXED) {
            shape.long_outputs = i % 2 == 1;
            shape.max_prompt_tokens = shape.long_outputs ? 10 : sim->limits.max_model_len;
            shape.max_output_tokens = shape.long_outputs ? sim->limits.max_model_len / 2 : 4;
        }
        draw_request(sim, &shape, load, i);
        if (load == LOAD_MIXED)
            request->checker.request->priority = shape.long_outputs;
        bool late = load == LOAD_MIXED && !shape.long_outputs;
        request->arrival = random_range(random, 0, late ? 400 : spread);
        request->cancel_at += request->cancel_at >= 0 ? request->arrival : 0;
    }
}

/* Of every second seed one share, so that orders with and without others are tried. */
static void draw_shares(struct simulation *sim) {
    struct random random = random_from(sim->seed + 3);
    sim->config.schedule.num_shares = sim->seed % 2 == 0 ? 1 : random_range(&random, 2, 5);
    for (int32_t i = 0; i < sim->num_requests; i++)
        request_set_share(sim->requests[i].checker.request,
                          random_range(&random, 0, sim->config.schedule.num_shares - 1),
                          random_once_in(&random, 2) ? 1 : random_range(&random, 1, 9));
}

static int64_t draw_deadline(struct random *random, const struct simulated_request *request) {
    return random_once_in(random, 5) ? request->arrival + random_range(random, 1, 80) : 0;
}

/* Of every third seed none, so that all else runs to its end. */
static void draw_deadlines(struct simulation *sim) {
    struct random random = random_from(sim->seed + 4);
    for (int32_t i = 0; i < sim->num_requests && sim->seed % 3 != 0; i++) {
        struct request *request = sim->requests[i].checker.request;
        request->deadline_ns = draw_deadline(&random, &sim->requests[i]);
        request->queue_deadline_ns = draw_deadline(&random, &sim->requests[i]);
    }
}

static void begin_losses(struct simulation *sim) {
    sim->loss_random = random_from(sim->seed + 5);
    sim->executor.loses_ranks = loses_ranks;
    if (!random_once_in(&sim->loss_random, 3))
        return;
    sim->poisoned = &sim->requests[random_range(&sim->loss_random, 0, sim->num_requests - 1)];
    sim->poison_at = random_range(&sim->loss_random, 0, sim->limits.max_model_len - 1);
}

static void destroy_nothing(struct executor *executor) {
}

static void begin_executor(struct simulation *sim) {
    static const struct executor_ops ops = {
        .submit = submit_watched,
        .supply = supply_watched,
        .wait = wait_watched,
        .destroy = destroy_nothing,
        .step_memory = executor_takes_any_memory,
        .check = check_watched,
        .restart = restart_watched,
        .sleep = executor_cannot_sleep,
        .wake = executor_cannot_start_again,
        .rank_stats = executor_has_no_stats,
        .host_pools = executor_shares_no_host_pools,
    };
    const struct serving_limits *limits = &sim->limits;
    fake_executor_init(&sim->executor, limits->num_blocks, limits->block_size,
                       limits->max_num_batched_tokens);
    fake_executor_add_host(&sim->executor, sim->limits.num_host_blocks);
    sim->executor.max_num_seqs = limits->max_num_seqs;
    sim->executor.window = sim->limits.window;
    sim->executor.num_full_groups = sim->limits.num_full_groups;
    sim->executor.scope_of = scope_of;
    sim->executor.adapter_of = adapter_of;
    sim->executor.context = sim;
    sim->executor.random = random_from(sim->seed + 1);
    sim->executor.timing = (enum fake_timing)random_range(&sim->executor.random, 0, 2);
    if (sim->variant.loses_ranks)
        begin_losses(sim);
    if (random_once_in(&sim->random, 12))
        sim->executor.fail_at_call = (uint64_t)random_range(&sim->random, 1, 100);
    sim->watched.ops = &ops;
}

/* Host blocks, where the seed has none: a store needs some. */
static void begin_tiers(struct simulation *sim) {
    struct random random = random_from(sim->seed + 7);
    struct block_manager_config *kv = &sim->config.schedule.kv;
    if (sim->variant.tiers == TIERS_NONE)
        return;
    if (sim->limits.num_host_blocks == 0)
        sim->limits.num_host_blocks = random_range(&random, 1, 2 * sim->limits.num_blocks);
    kv->keeps_evicted = sim->variant.tiers != TIERS_STORE;
    fake_store_init(&sim->store, &sim->executor, random_next(&random), &sim->now);
    if (sim->variant.tiers != TIERS_HOST)
        kv->store = &sim->store.tier;
    if (random_once_in(&random, 8))
        sim->store.is_read_only = true;
}

/* Of every third seed none. */
static void begin_adapters(struct simulation *sim) {
    sim->adapter_random = random_from(sim->seed + 6);
    if (sim->seed % 3 != 0)
        sim->config.lora = fake_lora_shape(random_range(&sim->adapter_random, 1, 3));
}

/* What a step's masks may cost is little, or nothing. */
static void begin_mask_workers(struct simulation *sim) {
    struct random random = random_from(sim->seed + 4);
    if (!sim->variant.mask_workers)
        return;
    fake_mask_workers_init(&sim->mask_workers, random_next(&random), &sim->now);
    sim->config.mask_workers = &sim->mask_workers.base;
    sim->config.masks_found = note_masks;
    sim->config.mask_budget =
        random_once_in(&random, 3) ? 0 : random_range(&random, 0, 4 * FAKE_VOCAB_SIZE * 8);
}

static void begin_drafter(struct simulation *sim) {
    static const enum fake_drafts kinds[] = {[DRAFTS_RIGHT] = FAKE_DRAFTS_RIGHT,
                                             [DRAFTS_WRONG] = FAKE_DRAFTS_WRONG,
                                             [DRAFTS_MIXED] = FAKE_DRAFTS_MIXED};
    struct random random = random_from(sim->seed + 2);
    struct error err;
    if (sim->variant.drafts == DRAFTS_NONE)
        return;
    sim->limits.num_speculative_tokens = random_range(&random, 1, MAX_SPECULATIVE_TOKENS);
    if (sim->variant.drafts == DRAFTS_MODEL) {
        sim->config.has_draft_model = true;
        sim->config.schedule.has_mtp = random_once_in(&random, 2);
        fake_executor_add_draft_model(&sim->executor, sim->config.schedule.has_mtp);
    }
    if (sim->variant.drafts == DRAFTS_NGRAM || sim->variant.drafts == DRAFTS_MODEL) {
        int32_t most = random_range(&random, 1, 4);
        CHECK(ngram_drafter_create(most, 1, &sim->drafter, &err) == 0);
    } else {
        fake_drafter_init(&sim->fake_drafter, kinds[sim->variant.drafts], random_next(&random));
        for (int32_t i = 0; i < sim->num_requests; i++)
            fake_drafter_add(&sim->fake_drafter, &sim->requests[i].checker);
        sim->drafter = &sim->fake_drafter.base;
    }
    sim->config.drafter = sim->drafter;
}

void simulation_begin(struct simulation *sim, uint64_t seed,
                      const struct simulation_variant *variant) {
    memset(sim, 0, sizeof(*sim));
    sim->seed = seed;
    sim->variant = *variant;
    sim->random = random_from(seed);
    struct error err;
    CHECK(grammar_vocabulary_create(fake_tokenizer(), &sim->vocabulary, &err) == 0);
    enum load load = draw_load(&sim->random);
    draw_server(sim, load);
    draw_requests(sim, load);
    draw_shares(sim);
    draw_deadlines(sim);
    sim->queue = (struct queue_limits){.max_requests = INT64_MAX,
                                       .max_tokens = INT64_MAX,
                                       .num_shares = sim->config.schedule.num_shares};
    CHECK(queue_limits_init(&sim->queue) == 0);
    sim->config.queue = &sim->queue;
    begin_tiers(sim);
    begin_executor(sim);
    begin_drafter(sim);
    begin_mask_workers(sim);
    begin_adapters(sim);
    sim->shutdown_at = random_once_in(&sim->random, 10) ? random_range(&sim->random, 1, 200) : -1;
    CHECK(engine_core_init(&sim->core, &sim->config, &sim->watched, fake_tokenizer(), &err) == 0);
}

void simulation_finish(struct simulation *sim) {
    engine_core_abort(&sim->core, FINISH_ABORT);
    engine_core_finish(&sim->core);
    fake_store_finish(&sim->store);
    fake_executor_finish(&sim->executor);
    queue_limits_finish(&sim->queue);
    if (sim->drafter != NULL)
        sim->drafter->ops->destroy(sim->drafter);
    for (int32_t i = 0; i < sim->num_requests; i++)
        stream_checker_finish(&sim->requests[i].checker);
    grammar_vocabulary_destroy(sim->vocabulary);
    CHECK(fake_lora_num_open() == 0);
}

static bool fits(const struct simulation *sim, const struct request *request) {
    struct kv_demand demand = kv_demand_of(request, &sim->limits);
    return kv_demand_fits(&demand, &sim->limits);
}

static void load_adapter(struct simulation *sim, int32_t slot) {
    char name[8];
    int32_t number = random_range(&sim->adapter_random, 1, 3);
    snprintf(name, sizeof(name), "a%d", (int)number);
    struct adapter *adapter = fake_lora_adapter(name, (uint64_t)number);
    recorder_load(sim->recorder, slot, adapter, false);
    engine_core_load_adapter(&sim->core, slot, adapter, false);
    adapter_unref(adapter);
    sim->num_loads++;
}

static void unload_adapter(struct simulation *sim, int32_t slot) {
    sim->num_unloads_loading += !sim->core.adapters.slots[slot].was_ready;
    sim->num_unloads_used += sim->core.adapters.slots[slot].num_requests > 0;
    recorder_unload(sim->recorder, slot);
    engine_core_unload_adapter(&sim->core, slot);
}

static void change_adapters(struct simulation *sim) {
    struct random *random = &sim->adapter_random;
    const struct adapter_slots *slots = &sim->core.adapters;
    for (int32_t i = 0; i < slots->shape.num_slots; i++) {
        bool is_free = slots->slots[i].adapter == NULL;
        if (is_free && random_once_in(random, 10))
            load_adapter(sim, i);
        else if (!is_free && !slots->slots[i].is_unloading && random_once_in(random, 80))
            unload_adapter(sim, i);
    }
    if (slots->shape.num_slots > 0 && engine_core_is_idle(&sim->core) && !sim->core.is_lost &&
        random_once_in(random, 10)) {
        fake_executor_drop_adapters(&sim->executor);
        recorder_rewrite(sim->recorder);
        engine_core_rewrite_adapters(&sim->core);
    }
}

/* Half of the requests have one of the adapters that are ready. */
static void choose_adapter(struct simulation *sim, struct simulated_request *r) {
    const struct adapter_slots *slots = &sim->core.adapters;
    if (slots->shape.num_slots == 0 || random_once_in(&sim->adapter_random, 2))
        return;
    int32_t first = random_range(&sim->adapter_random, 0, slots->shape.num_slots - 1);
    for (int32_t i = 0; i < slots->shape.num_slots; i++) {
        const struct adapter_slot *slot = &slots->slots[(first + i) % slots->shape.num_slots];
        if (!slot->was_ready || slot->is_unloading)
            continue;
        EXPECT(sim, atomic_load(&slot->adapter->state) == ADAPTER_READY, i);
        request_set_adapter(r->checker.request, slot->adapter);
        r->scope = fake_model_hash(r->scope, (int32_t)fake_lora_number(slot->adapter));
        return;
    }
}

/* Some prompts are handed over, and some were, or so it is said. */
static void draw_handover(const struct simulation *sim, struct request *request) {
    struct random random = random_from(sim->seed + 8 * request->id);
    if (sim->config.schedule.kv.store == NULL || !random_once_in(&random, 3))
        return;
    request->hands_over = random_once_in(&random, 2);
    if (random_once_in(&random, 2))
        request->num_handed_over = random_once_in(&random, 4)
                                       ? INT32_MAX
                                       : random_range(&random, 0, sim->limits.max_model_len);
}

void simulation_submit(struct simulation *sim) {
    change_adapters(sim);
    for (int32_t i = 0; i < sim->num_requests; i++) {
        struct simulated_request *r = &sim->requests[i];
        struct request *request = r->checker.request;
        if (!r->submitted && sim->now >= r->arrival) {
            r->submitted = true;
            if (!fits(sim, request)) {
                r->checker.num_finished = request->params.num_choices;
                continue;
            }
            choose_adapter(sim, r);
            request->id = ++sim->next_id;
            request->arrival_ns = sim->now;
            draw_handover(sim, request);
            EXPECT(sim, queue_limits_take(&sim->queue, request), i);
            recorder_add(sim->recorder, request);
            engine_core_add(&sim->core, request);
        }
        if (r->cancel_at >= 0 && sim->now >= r->cancel_at)
            atomic_store(&request->cancelled, true);
    }
}

void simulation_read(struct simulation *sim, struct simulated_request *request) {
    if (!stream_checker_read(&request->checker))
        simulation_fail(sim, request->checker.violation, (int64_t)request->checker.request->id);
}

void simulation_read_streams(struct simulation *sim) {
    for (int32_t i = 0; i < sim->num_requests; i++) {
        struct simulated_request *request = &sim->requests[i];
        if (request->reader == READER_PROMPT ||
            (request->reader == READER_LAZY && random_once_in(&sim->random, 30)))
            simulation_read(sim, request);
    }
}

bool simulation_is_over(const struct simulation *sim) {
    for (int32_t i = 0; i < sim->num_requests; i++)
        if (!sim->requests[i].submitted)
            return false;
    return engine_core_is_idle(&sim->core);
}

int64_t simulation_step_limit(const struct simulation *sim) {
    int64_t limit = 1000;
    for (int32_t i = 0; i < sim->num_requests; i++) {
        const struct sampling_params *params = &sim->requests[i].checker.request->params;
        int64_t width = params->beam_width > 0 ? params->beam_width : params->num_choices;
        if (sim->variant.mask_workers)
            width *= 8;
        limit += width * 2 * sim->limits.max_model_len + 3 * SIMULATION_TICKS_TO_STALL_OUT;
    }
    return sim->variant.loses_ranks ? 20 * limit : limit;
}
