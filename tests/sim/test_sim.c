/* Seeded simulation of everything between the inbox and the token streams: engine_core on the fake
 * executor, with a counter for a clock. Each seed draws a server (pool from barely one sequence up,
 * seats, budget, block size), requests of all kinds, when they arrive, are cancelled and are read,
 * and sometimes a device that fails. After every step the invariants of check_state must hold;
 * every stream must be what the oracle says.
 *
 *   test_sim [--seeds N] [--first-seed S]
 *
 * A failure prints the seed and the step; the same seed replays it. */
#include "config/check.h"
#include "engine/engine_core.h"
#include "engine/grammar/grammar.h"
#include "tests/sim/fake_executor.h"
#include "tests/sim/fake_tokenizer.h"
#include "tests/sim/random_request.h"
#include "tests/sim/stream_checker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REQUESTS 24
#define TICKS_TO_STALL_OUT 40

enum reader_kind { READER_PROMPT, READER_LAZY, READER_ABSENT };

struct simulated_request {
    struct stream_checker checker;
    int64_t arrival;
    int64_t cancel_at; /* -1: never */
    int64_t cancelled_at;
    enum reader_kind reader;
    bool submitted;
};

struct totals {
    uint64_t steps, preemptions, stalls, aborted, failed, finished;
};

struct simulation {
    uint64_t seed;
    int64_t now;
    struct random random;
    struct engine_core_config config;
    struct engine_core core;
    struct fake_executor executor;
    struct grammar_vocabulary *vocabulary;
    struct simulated_request requests[MAX_REQUESTS];
    int32_t num_requests;
    uint64_t next_id;
    uint64_t notified; /* pushes the core told us about */
    bool broken;
};

static void fail(struct simulation *sim, const char *what, int64_t detail) {
    if (!sim->broken)
        printf("seed=%llu step=%lld: %s (%lld)\n", (unsigned long long)sim->seed,
               (long long)sim->now, what, (long long)detail);
    sim->broken = true;
}

#define EXPECT(sim, condition, detail)                                                             \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail(sim, #condition, detail);                                                         \
    } while (0)

static int64_t read_clock(void *context) {
    return ((struct simulation *)context)->now + 1;
}

static void on_news(void *context, struct request *request) {
    ((struct simulation *)context)->notified++;
}

static void draw_server(struct simulation *sim) {
    struct random *random = &sim->random;
    struct batch_limits *limits = &sim->config.limits;
    limits->block_size = 1 << random_range(random, 0, 4);
    limits->max_num_seqs = random_range(random, 1, 12);
    limits->max_num_batched_tokens =
        limits->max_num_seqs + random_range(random, 0, random_once_in(random, 2) ? 8 : 100);
    limits->max_model_len = random_range(random, 20, 160);
    limits->hidden_size = FAKE_HIDDEN_SIZE;
    int32_t one = block_table_blocks_for(limits->max_model_len, limits->block_size);
    limits->num_blocks = one + random_range(random, 0, one * (random_once_in(random, 3) ? 6 : 1));
    sim->config.stall_timeout_ns = TICKS_TO_STALL_OUT;
    sim->config.clock = read_clock;
    sim->config.notify = on_news;
    sim->config.context = sim;
}

static void draw_requests(struct simulation *sim) {
    struct random *random = &sim->random;
    int32_t max_model_len = sim->config.limits.max_model_len;
    bool heavy = random_once_in(random, 5); /* much to read: readers that lag are noticed */
    struct request_shape shape = {
        .max_prompt_tokens = heavy || random_once_in(random, 2) ? 10 : max_model_len,
        .max_output_tokens = random_once_in(random, 2) ? 20 : max_model_len,
        .max_choices = heavy ? 8 : 4,
        .min_logprobs = heavy ? SAMPLE_MAX_LOGPROBS : -1,
        .max_logprobs = heavy ? SAMPLE_MAX_LOGPROBS : 5,
        .grammars = true,
        .num_texts = random_range(random, 0, 3),
        .text_seed = random_next(random),
        .num_tenants = 1,
    };
    sim->num_requests = random_range(random, 1, heavy ? 6 : MAX_REQUESTS);
    int32_t spread = random_range(random, 0, 200);
    for (int32_t i = 0; i < sim->num_requests; i++) {
        struct simulated_request *request = &sim->requests[i];
        stream_checker_init(&request->checker, random_request(random, &shape), max_model_len,
                            sim->vocabulary);
        request->arrival = random_range(random, 0, spread);
        request->cancel_at =
            random_once_in(random, 5) ? request->arrival + random_range(random, 0, 60) : -1;
        request->cancelled_at = -1;
        request->reader = random_once_in(random, heavy ? 2 : 8)
                              ? (enum reader_kind)random_range(random, READER_LAZY, READER_ABSENT)
                              : READER_PROMPT;
    }
}

static void begin(struct simulation *sim, uint64_t seed) {
    memset(sim, 0, sizeof(*sim));
    sim->seed = seed;
    sim->random = random_from(seed);
    struct error err;
    CHECK(grammar_vocabulary_create(fake_tokenizer(), &sim->vocabulary, &err) == 0);
    sim->config.vocabulary = sim->vocabulary;
    draw_server(sim);
    draw_requests(sim);
    const struct batch_limits *limits = &sim->config.limits;
    fake_executor_init(&sim->executor, limits->num_blocks, limits->block_size,
                       limits->max_num_batched_tokens);
    sim->executor.max_num_seqs = limits->max_num_seqs;
    if (random_once_in(&sim->random, 12))
        sim->executor.fail_at_call = (uint64_t)random_range(&sim->random, 1, 100);
    CHECK(engine_core_init(&sim->core, &sim->config, &sim->executor.base, fake_tokenizer(), &err) ==
          0);
}

/* (a), (b), (c): every block is free or in exactly one table, and counted so. */
static void check_blocks(struct simulation *sim) {
    const struct block_pool *pool = &sim->core.scheduler.pool;
    static int32_t owners[4096];
    CHECK(pool->num_blocks <= 4096);
    memset(owners, 0, (size_t)pool->num_blocks * sizeof(*owners));
    int32_t num_owned = 0;
    for (const struct sequence_group *g = sim->core.first_group; g != NULL; g = g->next) {
        for (int32_t i = 0; i < g->request->params.num_choices; i++) {
            const struct block_table *table = &g->sequences[i].table;
            for (int32_t b = 0; b < table->num_blocks; b++)
                owners[table->blocks[b]]++;
            num_owned += table->num_blocks;
        }
    }
    for (int32_t b = 0; b < pool->num_blocks; b++) {
        EXPECT(sim, owners[b] <= 1, b);
        EXPECT(sim, pool->blocks[b].references == owners[b], b);
    }
    int32_t num_free = 0;
    for (int32_t b = pool->first_free; b >= 0 && num_free <= pool->num_blocks; num_free++) {
        EXPECT(sim, owners[b] == 0, b);
        b = pool->blocks[b].next_free;
    }
    EXPECT(sim, num_owned == pool->num_used, num_owned);
    EXPECT(sim, num_free + num_owned == pool->num_blocks, num_free);
}

/* A sequence holds blocks for exactly the tokens that are computed, and only while it runs. */
static void check_sequences(struct simulation *sim) {
    const struct engine_core *core = &sim->core;
    int32_t num_running = 0, num_waiting = 0;
    int64_t num_held = 0;
    for (const struct sequence_group *g = core->first_group; g != NULL; g = g->next) {
        for (int32_t i = 0; i < g->request->params.num_choices; i++) {
            const struct sequence *s = &g->sequences[i];
            bool runs = s->status == SEQUENCE_RUNNING;
            int32_t needed =
                block_table_blocks_for(s->num_computed, core->config.limits.block_size);
            EXPECT(sim, s->table.num_blocks == (runs ? needed : 0), s->num_computed);
            EXPECT(sim, s->num_planned == 0, s->num_planned);
            EXPECT(sim, s->status != SEQUENCE_FINISHED || s->finish != FINISH_NONE, i);
            num_running += runs;
            num_waiting += s->status == SEQUENCE_WAITING;
            num_held += runs ? s->num_computed : 0;
        }
    }
    EXPECT(sim, num_running == core->scheduler.running.count, num_running);
    EXPECT(sim, num_waiting == core->scheduler.waiting.count, num_waiting);
    EXPECT(sim, num_running <= core->config.limits.max_num_seqs, num_running);
    EXPECT(sim, num_running == core->stats.num_running, num_running);
    EXPECT(sim, num_held == core->stats.num_held_tokens, num_held);
    EXPECT(sim, core->scheduler.pool.num_used == core->stats.num_used_blocks, num_held);
}

/* (g): what was cancelled before the step holds nothing after it, and has ended. */
static void check_cancelled(struct simulation *sim) {
    for (const struct sequence_group *g = sim->core.first_group; g != NULL; g = g->next)
        EXPECT(sim, !atomic_load(&g->request->cancelled), (int64_t)g->request->id);
}

static void check_state(struct simulation *sim) {
    check_blocks(sim);
    check_sequences(sim);
    check_cancelled(sim);
    EXPECT(sim, sim->executor.violation[0] == '\0', 0);
    if (sim->executor.violation[0] != '\0')
        fail(sim, sim->executor.violation, 0);
    EXPECT(sim, sim->core.scheduler.plan.num_tokens <= sim->config.limits.max_num_batched_tokens,
           sim->core.scheduler.plan.num_tokens);
    if (engine_core_is_idle(&sim->core))
        EXPECT(sim, sim->core.scheduler.pool.num_used == 0, sim->core.scheduler.pool.num_used);
}

static void submit_and_cancel(struct simulation *sim) {
    for (int32_t i = 0; i < sim->num_requests; i++) {
        struct simulated_request *r = &sim->requests[i];
        struct request *request = r->checker.request;
        if (!r->submitted && sim->now >= r->arrival) {
            r->submitted = true;
            if (!engine_core_fits(&sim->config.limits, request)) {
                r->checker.num_finished = request->params.num_choices;
                continue;
            }
            request->id = ++sim->next_id;
            request->arrival_ns = sim->now;
            engine_core_add(&sim->core, request);
        }
        if (r->cancel_at >= 0 && sim->now >= r->cancel_at)
            atomic_store(&request->cancelled, true);
    }
}

static void read_stream(struct simulation *sim, struct simulated_request *request) {
    if (!stream_checker_read(&request->checker))
        fail(sim, request->checker.violation, (int64_t)request->checker.request->id);
}

static void read_streams(struct simulation *sim) {
    for (int32_t i = 0; i < sim->num_requests; i++) {
        struct simulated_request *request = &sim->requests[i];
        if (request->reader == READER_PROMPT ||
            (request->reader == READER_LAZY && random_once_in(&sim->random, 30)))
            read_stream(sim, request);
    }
}

/* The first sequence in order that can run must move on, or end, unless a more urgent one waits to
 * be seated: liveness (h). */
struct front {
    const struct sequence *sequence;
    uint64_t request_id;
    int32_t choice;
    int32_t num_computed;
};

static struct front find_front(const struct simulation *sim) {
    const struct sequence *s = sim->core.scheduler.running.first;
    while (s != NULL && !sequence_can_run(s))
        s = s->next;
    const struct sequence *waiting = sim->core.scheduler.waiting.first;
    if (s == NULL || (waiting != NULL && sequence_before(waiting, s)))
        return (struct front){NULL, 0, 0, 0};
    return (struct front){s, s->group->request->id, s->choice, s->num_computed};
}

static void check_progress(struct simulation *sim, const struct front *front) {
    if (front->sequence == NULL || sim->core.num_stalled > 0)
        return;
    for (const struct sequence_group *g = sim->core.first_group; g != NULL; g = g->next) {
        if (g->request->id != front->request_id)
            continue;
        const struct sequence *s = &g->sequences[front->choice];
        EXPECT(sim, s->status == SEQUENCE_FINISHED || s->num_computed > front->num_computed,
               (int64_t)front->request_id);
    }
}

static bool is_over(const struct simulation *sim) {
    for (int32_t i = 0; i < sim->num_requests; i++)
        if (!sim->requests[i].submitted)
            return false;
    return engine_core_is_idle(&sim->core);
}

/* More steps than any fair schedule needs. */
static int64_t step_limit(const struct simulation *sim) {
    int64_t limit = 1000;
    for (int32_t i = 0; i < sim->num_requests; i++)
        limit += (int64_t)sim->requests[i].checker.request->params.num_choices * 2 *
                     sim->config.limits.max_model_len +
                 3 * TICKS_TO_STALL_OUT;
    return limit;
}

static void run_steps(struct simulation *sim, struct totals *totals) {
    int64_t limit = step_limit(sim);
    int64_t shutdown = random_once_in(&sim->random, 10) ? random_range(&sim->random, 1, 200) : -1;
    for (; !sim->broken && !is_over(sim); sim->now++) {
        submit_and_cancel(sim);
        if (sim->now == shutdown)
            engine_core_abort(&sim->core, FINISH_ABORT);
        struct front front = find_front(sim);
        bool ran = engine_core_step(&sim->core);
        EXPECT(sim, ran || engine_core_is_idle(&sim->core) || sim->core.num_stalled > 0, 0);
        check_state(sim);
        check_progress(sim, &front);
        read_streams(sim);
        totals->steps += ran;
        totals->stalls += sim->core.num_stalled > 0;
        EXPECT(sim, sim->now < limit, limit);
    }
}

/* (f): each choice ended exactly once, and the counters agree with what was read. */
static void check_outcome(struct simulation *sim, struct totals *totals) {
    uint64_t finished[FINISH_ERROR + 1] = {0}, tokens = 0, choices = 0;
    for (int32_t i = 0; i < sim->num_requests && !sim->broken; i++) {
        struct simulated_request *request = &sim->requests[i];
        read_stream(sim, request);
        EXPECT(sim, stream_checker_is_done(&request->checker), i);
        if (request->checker.request->id == 0)
            continue;
        for (int32_t c = 0; c < request->checker.request->params.num_choices; c++) {
            finished[request->checker.choices[c].finish]++;
            tokens += (uint64_t)request->checker.choices[c].num_tokens;
            choices++;
        }
    }
    const struct engine_stats *stats = &sim->core.stats;
    for (int reason = FINISH_NONE; reason <= FINISH_ERROR; reason++)
        EXPECT(sim, finished[reason] == stats->finished[reason], reason);
    EXPECT(sim, tokens == stats->generation_tokens, (int64_t)tokens);
    EXPECT(sim, finished[FINISH_ERROR] == 0 || sim->executor.fail_at_call > 0, 0);
    EXPECT(sim, stats->time_to_first_token.total <= choices, (int64_t)choices);
    EXPECT(sim, sim->core.num_queued_requests == 0 && sim->core.num_queued_tokens == 0,
           sim->core.num_queued_requests);
    totals->preemptions += stats->preemptions;
    totals->aborted += finished[FINISH_ABORT];
    totals->failed += finished[FINISH_ERROR];
    totals->finished += finished[FINISH_STOP] + finished[FINISH_LENGTH];
}

static bool run_seed(uint64_t seed, struct totals *totals) {
    static struct simulation sim;
    begin(&sim, seed);
    run_steps(&sim, totals);
    if (!sim.broken)
        check_outcome(&sim, totals);
    engine_core_abort(&sim.core, FINISH_ABORT);
    engine_core_finish(&sim.core);
    fake_executor_finish(&sim.executor);
    for (int32_t i = 0; i < sim.num_requests; i++)
        stream_checker_finish(&sim.requests[i].checker);
    grammar_vocabulary_destroy(sim.vocabulary);
    return !sim.broken;
}

static uint64_t option(int argc, char **argv, const char *name, uint64_t fallback) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return strtoull(argv[i + 1], NULL, 10);
    return fallback;
}

int main(int argc, char **argv) {
    uint64_t num_seeds = option(argc, argv, "--seeds", 2000);
    uint64_t first_seed = option(argc, argv, "--first-seed", 1);
    uint64_t num_failed = 0;
    struct totals totals = {0};
    for (uint64_t i = 0; i < num_seeds && num_failed < 10; i++)
        num_failed += !run_seed(first_seed + i, &totals);
    printf("%llu seeds: %llu steps, %llu preemptions, %llu steps with stalled readers, "
           "%llu choices finished, %llu aborted, %llu failed; %llu seeds broken\n",
           (unsigned long long)num_seeds, (unsigned long long)totals.steps,
           (unsigned long long)totals.preemptions, (unsigned long long)totals.stalls,
           (unsigned long long)totals.finished, (unsigned long long)totals.aborted,
           (unsigned long long)totals.failed, (unsigned long long)num_failed);
    return num_failed == 0 ? 0 : 1;
}
