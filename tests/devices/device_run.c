#include "tests/devices/device_run.h"

#include "config/base/check.h"
#include "engine/draft/ngram_drafter.h"
#include "engine/grammar/machine/grammar.h"
#include "tests/sim/fake_mask_workers.h"
#include "tests/devices/known_request.h"
#include "tests/devices/run_notes.h"

#include <stddef.h>
#include <stdio.h>

enum {
    MAX_REQUESTS = 9,
    MAX_SEQS = 8,
    MAX_STEP_TOKENS = 40,
    MAX_MODEL_LEN = 96,
    BLOCK_SIZE = 16,
    SEQUENCE_BLOCKS = MAX_MODEL_LEN / BLOCK_SIZE,
    MAX_BLOCKS = SEQUENCE_BLOCKS + 3, /* for eight sequences: some must give way */
    MAX_HOST_BLOCKS = MAX_SEQS * SEQUENCE_BLOCKS,
    MAX_DRAFTS = 4,
    POOL_BYTES = 1 << 20, /* more blocks than any run uses, also of floats */
    MAX_TICKS = 10000
};

/* --- The device --- */

int run_device_open(struct run_device *device, const char *model_path, const char *name,
                    struct error *err) {
    *device = (struct run_device){0};
    if (model_open(model_path, &device->model, err) != 0 ||
        tokenizer_open(device->model, &device->tokenizer, err) != 0 ||
        grammar_vocabulary_create(device->tokenizer, &device->vocabulary, err) != 0)
        return -1;
    const struct model_config *model = &device->model->config;
    const struct executor_config config = {
        .device = name,
        .dtype = DTYPE_AUTO,
        .kv_type = KV_AUTO,
        .quantization = DTYPE_NONE,
        .batch_invariant = true, /* equal rows have equal tokens, wherever they are computed */
        .gpu_memory_utilization = 0.9,
        .num_threads = 1,
        .kv_memory_bytes = POOL_BYTES,
        .swap_bytes = POOL_BYTES,
        .limits = {.max_num_seqs = MAX_SEQS,
                   .max_num_batched_tokens = MAX_STEP_TOKENS,
                   .max_model_len = MAX_MODEL_LEN,
                   .num_speculative_tokens = MAX_DRAFTS,
                   .block_size = BLOCK_SIZE,
                   .vocab_size = model->vocab_size,
                   .hidden_size = model->hidden_size,
                   .window = model_window(model)},
    };
    if (executor_create(device->model, &config, &device->info, &device->executor, err) != 0)
        return -1;
    int32_t sizes[RECORDED_STEPS_MAX_SIZES];
    int32_t count = device->info.num_recorded > 0 ? recorded_steps_sizes(MAX_SEQS, sizes) : 0;
    CHECK(count == device->info.num_recorded);
    device->recorded.count = count;
    for (int32_t i = 0; i < count; i++)
        device->recorded.steps[i].num_rows = sizes[i];
    return 0;
}

void run_device_close(struct run_device *device) {
    if (device->executor != NULL)
        device->executor->ops->destroy(device->executor);
    grammar_vocabulary_destroy(device->vocabulary);
    tokenizer_close(device->tokenizer);
    model_close(device->model);
}

/* --- One seed's load --- */

struct run_request {
    struct noted_request noted;
    bool is_submitted;
    int64_t arrival, cancel_at; /* ticks; -1: never */
    int32_t num_open;           /* choices */
};

struct device_run {
    struct run_device *device;
    struct executor watched; /* notes what the device's is given */
    struct event_log *log;
    struct run_totals *totals;
    struct serving_limits limits;
    struct engine_core_config config;
    struct engine_core core;
    struct drafter *drafter; /* or NULL */
    struct fake_mask_workers mask_workers;
    int64_t now;
    struct run_request requests[MAX_REQUESTS];
    int32_t num_requests;
    struct token_buffer buffer;
    bool failed;
};

static void fail(struct device_run *run, const char *why) {
    printf("step %lld: %s\n", (long long)run->now, why);
    run->failed = true;
}

static void on_collected(void *context, const struct step *step, const struct error *failure) {
    struct device_run *run = context;
    run->totals->steps++;
    run->totals->replayed += recorded_steps_find(&run->device->recorded, &step->batch) != NULL;
    if (failure->code != ERROR_NONE)
        fail(run, failure->message);
    note_collected(run->log, run->now, step);
}

/* --- The watched executor --- */

static struct device_run *watching(struct executor *executor) {
    return (struct device_run *)((char *)executor - offsetof(struct device_run, watched));
}

static void submit_watched(struct executor *executor, const struct batch *batch,
                           struct step_result *result) {
    struct device_run *run = watching(executor);
    struct executor *real = run->device->executor;
    note_submitted(run->log, run->now,
                   (const struct step *)((const char *)batch - offsetof(struct step, batch)));
    run->totals->ahead += run->core.num_in_flight > 1;
    real->ops->submit(real, batch, result);
}

static void supply_watched(struct executor *executor) {
    struct executor *real = watching(executor)->device->executor;
    watching(executor)->totals->supplied++;
    real->ops->supply(real);
}

static int wait_watched(struct executor *executor, struct error *err) {
    struct executor *real = watching(executor)->device->executor;
    return real->ops->wait(real, err);
}

/* --- Drawing a load --- */

static void draw_limits(struct device_run *run, struct random *random) {
    struct serving_limits *limits = &run->limits;
    *limits = run->device->info.limits;
    CHECK(limits->num_blocks >= MAX_BLOCKS && limits->num_host_blocks >= MAX_HOST_BLOCKS);
    limits->max_num_seqs = random_range(random, random_once_in(random, 4) ? 1 : 4, MAX_SEQS);
    limits->max_num_batched_tokens = random_range(random, limits->max_num_seqs, MAX_STEP_TOKENS);
    limits->num_blocks = random_once_in(random, 4)
                             ? random_range(random, 3, SEQUENCE_BLOCKS)
                             : random_range(random, SEQUENCE_BLOCKS, MAX_BLOCKS);
    limits->num_host_blocks =
        random_once_in(random, 3) ? 0 : random_range(random, 4, MAX_HOST_BLOCKS);
    if (random_once_in(random, 2))
        limits->num_speculative_tokens = 0;
}

static int64_t read_clock(void *context) {
    return ((struct device_run *)context)->now + 1;
}

static void on_news(void *context, struct request *request) {
}

static void draw_config(struct device_run *run, struct random *random) {
    static const int64_t costs[] = {0, 0, 0, INT64_C(1000000000)};
    static const int64_t times[] = {0, 1, 3, -1};
    struct error err;
    int64_t swap_block_ns = costs[random_range(random, 0, 3)];
    int64_t max_step_ns = times[random_range(random, 0, 3)];
    bool caching = !random_once_in(random, 4), async_scheduling = !random_once_in(random, 4);
    run->config = (struct engine_core_config){
        .schedule.kv.limits = &run->limits,
        .schedule.swap_block_ns = swap_block_ns,
        .schedule.max_step_ns = max_step_ns,
        .schedule.kv.num_tenants = 1,
        .schedule.num_shares = 1,
        .schedule.kv.caching = caching,
        .async_scheduling = async_scheduling,
        .vocabulary = run->device->vocabulary,
        .stall_timeout_ns = MAX_TICKS,
        .clock = read_clock,
        .collected = on_collected,
        .notify = on_news,
        .context = run,
    };
    if (random_once_in(random, 2)) {
        fake_mask_workers_init(&run->mask_workers, random_next(random), &run->now);
        run->config.mask_workers = &run->mask_workers.base;
        run->config.mask_budget = random_once_in(random, 3) ? 4096 : 0;
    }
    if (run->limits.num_speculative_tokens > 0) {
        CHECK(ngram_drafter_create(3, 1, &run->drafter, &err) == 0);
        run->config.drafter = run->drafter;
    }
}

/* With drafts the number of tokens of a step follows from what was generated: that is known then.
 * Short prompts with long outputs outgrow the pool. */
static void draw_requests(struct device_run *run, struct random *random) {
    bool outgrows = !random_once_in(random, 3);
    const struct known_request_shape shape = {
        .vocab_size = run->limits.vocab_size,
        .max_prompt_tokens = outgrows ? 36 : 80,
        .min_output_tokens = outgrows ? 20 : 1,
        .max_output_tokens = outgrows ? 45 : 12,
        .max_choices = 4,
        .tokens = run->drafter != NULL || random_once_in(random, 4),
        .text_seed = random_next(random),
    };
    int32_t spread = random_range(random, 0, 10);
    run->num_requests = random_range(random, 2, MAX_REQUESTS);
    for (int32_t i = 0; i < run->num_requests; i++) {
        struct run_request *r = &run->requests[i];
        *r = (struct run_request){.arrival = random_range(random, 0, spread), .cancel_at = -1};
        r->noted.request = known_request(random, &shape, &r->noted.has_known_tokens);
        r->noted.request->user = &r->noted;
        if (random_once_in(random, 12))
            r->cancel_at = r->arrival + random_range(random, 0, 30);
        if (random_once_in(random, 15))
            r->noted.request->deadline_ns = r->arrival + random_range(random, 1, 40);
        if (random_once_in(random, 20))
            r->noted.request->queue_deadline_ns = r->arrival + random_range(random, 1, 20);
    }
}

/* --- A run --- */

static void destroy_nothing(struct executor *executor) {
}

static void begin(struct device_run *run, uint64_t seed) {
    static const struct executor_ops ops = {
        .submit = submit_watched,
        .supply = supply_watched,
        .wait = wait_watched,
        .destroy = destroy_nothing,
        EXECUTOR_RUNS_STEPS,
    };
    struct random random = random_from(seed);
    struct error err;
    draw_limits(run, &random);
    draw_config(run, &random);
    draw_requests(run, &random);
    run->watched.ops = &ops;
    CHECK(engine_core_init(&run->core, &run->config, &run->watched, run->device->tokenizer, &err) ==
          0);
}

static void submit_arrived(struct device_run *run, uint64_t *next_id) {
    for (int32_t i = 0; i < run->num_requests; i++) {
        struct run_request *r = &run->requests[i];
        if (!r->is_submitted && run->now >= r->arrival) {
            struct kv_demand demand = kv_demand_of(r->noted.request, &run->limits);
            r->is_submitted = true;
            if (!kv_demand_fits(&demand, &run->limits)) {
                run->totals->refused++;
                continue;
            }
            r->num_open = r->noted.request->params.num_choices;
            r->noted.request->id = ++*next_id;
            r->noted.request->arrival_ns = run->now;
            engine_core_add(&run->core, r->noted.request);
        }
        if (r->cancel_at >= 0 && run->now >= r->cancel_at)
            atomic_store(&r->noted.request->cancelled, true);
    }
}

static void read_streams(struct device_run *run) {
    for (int32_t i = 0; i < run->num_requests; i++) {
        struct run_request *r = &run->requests[i];
        struct token_event event;
        token_stream_take(&r->noted.request->stream, &run->buffer);
        while (token_buffer_next(&run->buffer, &event)) {
            note_event(run->log, run->now, &r->noted, &event);
            r->num_open -= event.finish != FINISH_NONE;
            run->totals->finished[event.finish] += event.finish != FINISH_NONE;
        }
    }
}

static bool is_over(const struct device_run *run) {
    for (int32_t i = 0; i < run->num_requests; i++)
        if (!run->requests[i].is_submitted)
            return false;
    return engine_core_is_idle(&run->core);
}

static void check_end(struct device_run *run) {
    const struct block_manager *blocks = &run->core.scheduler.blocks;
    if (blocks->pool.num_used != 0 || blocks->host.num_used != 0)
        fail(run, "a block is lost");
    for (int32_t i = 0; i < run->num_requests; i++)
        if (run->requests[i].num_open != 0)
            fail(run, "a choice did not end once");
}

static void add_totals(const struct device_run *run) {
    const struct engine_stats *stats = &run->core.stats;
    struct run_totals *totals = run->totals;
    totals->swaps += stats->preemptions_swap;
    totals->recomputes += stats->preemptions_recompute;
    totals->swapped_in += stats->swapped_in_blocks;
    totals->copies += stats->copied_blocks;
    totals->hits += stats->prefix_hits;
    totals->drafts_accepted += stats->num_accepted_tokens;
    totals->mask_jobs += stats->mask_jobs;
}

static void finish(struct device_run *run) {
    engine_core_abort(&run->core, FINISH_ABORT);
    engine_core_finish(&run->core);
    for (int32_t i = 0; i < run->num_requests; i++)
        request_unref(run->requests[i].noted.request);
    if (run->drafter != NULL)
        run->drafter->ops->destroy(run->drafter);
    token_buffer_finish(&run->buffer);
}

bool run_device_seed(struct run_device *device, uint64_t seed, struct event_log *log,
                     struct run_totals *totals) {
    static struct device_run run;
    uint64_t next_id = 0;
    run = (struct device_run){.device = device, .log = log, .totals = totals};
    begin(&run, seed);
    for (; !run.failed && !is_over(&run); run.now++) {
        submit_arrived(&run, &next_id);
        engine_core_step(&run.core);
        read_streams(&run);
        if (run.now == MAX_TICKS)
            fail(&run, "the load does not end");
    }
    if (!run.failed)
        check_end(&run);
    add_totals(&run);
    finish(&run);
    return !run.failed;
}
