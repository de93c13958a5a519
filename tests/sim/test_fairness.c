/* Shares that all want more than the server has, on the fake executor: each must be served by its
 * weight, whatever it sends. What is served is counted here from the batches: tokens of prompts and
 * outputs that are computed for the first time. Fairness is Jain's index of it by weight (Jain,
 * Chiu and Hawe, DEC-TR-301, 1984): 1 when all are served alike, 1/n when one is served alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/core/engine_core.h"
#include "tests/sim/fake_executor.h"
#include "tests/sim/random_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SHARES 64

/* What a share sends. */
struct load {
    int32_t weight;
    int32_t num_prompt_tokens; /* of the longest; the shortest has half */
    int32_t max_tokens;
    int32_t num_choices;
    int32_t beam_width;
    int32_t priority;
    double per_step; /* requests that arrive in a step */
};

struct server {
    struct serving_limits limits;
    struct fake_executor executor;
    struct executor watched;
    struct engine_core core;
    struct random random;
    int64_t now;
    uint64_t next_id;
    struct token_buffer taken; /* streams are read at once */
    int32_t num_shares;
    int64_t served[MAX_SHARES];      /* tokens */
    int64_t last_served[MAX_SHARES]; /* step */
};

static int64_t read_clock(void *context) {
    return ((struct server *)context)->now + 1;
}

static void on_news(void *context, struct request *request) {
    token_stream_take(&request->stream, &((struct server *)context)->taken);
}

static struct server *serving(struct executor *executor) {
    return (struct server *)((char *)executor - offsetof(struct server, watched));
}

/* One step is in flight at a time: what is planned follows what is committed. */
static void submit(struct executor *executor, const struct batch *batch,
                   struct step_result *result) {
    struct server *server = serving(executor);
    const struct step *step = &server->core.steps[server->core.first_in_flight];
    for (int32_t i = 0; i < step->plan.num_entries; i++) {
        const struct planned_sequence *entry = &step->plan.entries[i];
        const struct sequence *s = entry->sequence;
        int32_t share = s->request->share;
        int32_t begin = entry->begin > s->max_computed ? entry->begin : s->max_computed;
        int32_t num_new = entry->begin + entry->num_tokens - begin;
        server->served[share] += num_new > 0 ? num_new : 0;
        server->last_served[share] = server->now;
    }
    server->executor.base.ops->submit(&server->executor.base, batch, result);
}

static void supply(struct executor *executor) {
    struct server *server = serving(executor);
    server->executor.base.ops->supply(&server->executor.base);
}

static int wait(struct executor *executor, struct error *err) {
    struct server *server = serving(executor);
    return server->executor.base.ops->wait(&server->executor.base, err);
}

static void destroy(struct executor *executor) {
}

static void start(struct server *server, int32_t num_shares, int32_t num_blocks) {
    static const struct executor_ops ops = {
        .submit = submit, .supply = supply, .wait = wait, .destroy = destroy, EXECUTOR_RUNS_STEPS};
    struct error err = {0};
    memset(server, 0, sizeof(*server));
    server->limits = (struct serving_limits){
        .max_num_seqs = 16,
        .max_num_batched_tokens = 64,
        .max_model_len = 512,
        .block_size = 4,
        .num_blocks = num_blocks,
        .num_host_blocks = num_blocks / 4,
        .vocab_size = FAKE_VOCAB_SIZE,
        .hidden_size = FAKE_HIDDEN_SIZE,
    };
    server->num_shares = num_shares;
    server->random = random_from(7);
    server->watched.ops = &ops;
    fake_executor_init(&server->executor, num_blocks, 4, 64);
    fake_executor_add_host(&server->executor, num_blocks / 4);
    const struct engine_core_config config = {
        .schedule.kv.limits = &server->limits,
        .schedule.swap_block_ns = 1,
        .schedule.kv.caching = true,
        .schedule.kv.num_tenants = 1,
        .schedule.num_shares = num_shares,
        .stall_timeout_ns = INT64_MAX / 2,
        .clock = read_clock,
        .notify = on_news,
        .context = server,
    };
    assert_int_equal(
        engine_core_init(&server->core, &config, &server->watched, fake_tokenizer(), &err), 0);
}

static void stop(struct server *server) {
    assert_string_equal(server->executor.violation, "");
    engine_core_abort(&server->core, FINISH_ABORT);
    engine_core_finish(&server->core);
    fake_executor_finish(&server->executor);
    token_buffer_finish(&server->taken);
}

static void send(struct server *server, int32_t share, const struct load *load) {
    int32_t prompt[512];
    int32_t num_tokens =
        random_range(&server->random, (load->num_prompt_tokens + 1) / 2, load->num_prompt_tokens);
    for (int32_t i = 0; i < num_tokens; i++)
        prompt[i] = random_range(&server->random, FAKE_FIRST_PLAIN, FAKE_VOCAB_SIZE - 1);
    const struct sampling_params params = {
        .num_choices = load->num_choices,
        .beam_width = load->beam_width,
        .length_penalty = 1,
        .max_tokens = load->max_tokens,
        .min_tokens = load->max_tokens,
        .settings.top_p = 1,
        .settings.temperature = 1,
        .settings.repetition_penalty = 1,
        .seed = random_next(&server->random),
        .num_logprobs = -1,
        .num_prompt_logprobs = -1,
    };
    struct request *request = request_create(prompt, num_tokens, &params);
    assert_non_null(request);
    request_set_share(request, share, load->weight);
    request->priority = load->priority;
    request->id = ++server->next_id;
    request->arrival_ns = server->now;
    engine_core_add(&server->core, request);
    request_unref(request);
}

/* What arrives fills a queue of which each share has its part: more is refused. */
static void arrive(struct server *server, const struct load *loads, double *due) {
    for (int32_t i = 0; i < server->num_shares; i++)
        for (due[i] += loads[i].per_step; due[i] >= 1; due[i]--)
            if (server->core.scheduler.waiting.shares[i].waiting.count < 10)
                send(server, i, &loads[i]);
}

/* Returns the longest time, in steps, in which a share that had something to run computed nothing.
 */
static int64_t run(struct server *server, const struct load *loads, int64_t num_steps) {
    double due[MAX_SHARES] = {0};
    int64_t longest = 0;
    for (int64_t end = server->now + num_steps; server->now < end; server->now++) {
        arrive(server, loads, due);
        assert_true(engine_core_step(&server->core));
        for (int32_t i = 0; i < server->num_shares; i++)
            if (server->now - server->last_served[i] > longest)
                longest = server->now - server->last_served[i];
    }
    return longest;
}

static double jain(const struct server *server, const struct load *loads, double *least) {
    double sum = 0, squares = 0;
    *least = 1e300;
    for (int32_t i = 0; i < server->num_shares; i++) {
        double x = (double)server->served[i] / loads[i].weight;
        sum += x;
        squares += x * x;
        *least = x < *least ? x : *least;
    }
    *least /= sum / server->num_shares;
    return sum * sum / (server->num_shares * squares);
}

/* Runs the loads and checks what they got after a tenth of the time, in which queues fill. */
static void check(const char *name, const struct load *loads, int32_t num_shares,
                  int32_t num_blocks, double least_index) {
    static struct server server;
    int64_t num_steps = 4000 + num_shares * 300;
    double least;
    start(&server, num_shares, num_blocks);
    run(&server, loads, num_steps / 10);
    memset(server.served, 0, sizeof(server.served));
    int64_t longest = run(&server, loads, num_steps);
    double index = jain(&server, loads, &least);
    print_message(
        "# %s: Jain's index %.4f, the least served share has %.2f of the mean, longest wait "
        "of a share %lld steps, %llu preemptions\n",
        name, index, least, (long long)longest, (unsigned long long)server.core.stats.preemptions);
    assert_true(index >= least_index);
    assert_true(least >= 0.5);
    stop(&server);
}

/* The server has room for a sixth of a request of these a step: one share alone sends more than it
 * can take. */
static void test_nine_to_one(void **state) {
    const struct load loads[] = {
        {.weight = 1, .num_prompt_tokens = 40, .max_tokens = 60, .num_choices = 1, .per_step = 9},
        {.weight = 1, .num_prompt_tokens = 40, .max_tokens = 60, .num_choices = 1, .per_step = 1}};
    check("9:1 in arrivals", loads, 2, 2000, 0.99);
}

static void test_one_to_three(void **state) {
    const struct load loads[] = {
        {.weight = 1, .num_prompt_tokens = 40, .max_tokens = 60, .num_choices = 1, .per_step = 9},
        {.weight = 3, .num_prompt_tokens = 40, .max_tokens = 60, .num_choices = 1, .per_step = 1}};
    check("weights 1:3", loads, 2, 2000, 0.99);
}

static void test_priorities_stay_inside(void **state) {
    const struct load loads[] = {{.weight = 1,
                                  .num_prompt_tokens = 40,
                                  .max_tokens = 60,
                                  .num_choices = 1,
                                  .per_step = 5,
                                  .priority = -1000},
                                 {.weight = 1,
                                  .num_prompt_tokens = 40,
                                  .max_tokens = 60,
                                  .num_choices = 1,
                                  .per_step = 5,
                                  .priority = 1000}};
    check("priorities -1000 and 1000", loads, 2, 2000, 0.99);
}

/* Short and long, many choices and beams, and few or many requests of each. */
static void mix(struct load *loads, int32_t num_shares, bool by_weight) {
    for (int32_t i = 0; i < num_shares; i++) {
        const struct load kinds[] = {
            {.num_prompt_tokens = 8, .max_tokens = 8, .num_choices = 1},
            {.num_prompt_tokens = 300, .max_tokens = 4, .num_choices = 1},
            {.num_prompt_tokens = 8, .max_tokens = 200, .num_choices = 1},
            {.num_prompt_tokens = 40, .max_tokens = 20, .num_choices = 40},
            {.num_prompt_tokens = 20, .max_tokens = 20, .num_choices = 1, .beam_width = 6},
        };
        loads[i] = kinds[i % 5];
        loads[i].weight = by_weight ? 1 + i % 4 : 1;
        loads[i].per_step = i % 2 == 0 ? 0.2 : 2;
        loads[i].priority = i % 3;
    }
}

static void test_fifty_kinds_of_greed(void **state) {
    struct load loads[50];
    mix(loads, 50, false);
    check("50 shares", loads, 50, 2000, 0.95);
    mix(loads, 50, true);
    check("50 shares of weights 1 to 4", loads, 50, 2000, 0.95);
}

/* A share has all running slots for requests that take hundreds of steps when others come: they are
 * served soon all the same, and what gave way is finished. */
static void test_slots_are_taken_back(void **state) {
    static struct server server;
    const struct load longs = {
        .weight = 1, .num_prompt_tokens = 40, .max_tokens = 400, .num_choices = 1};
    const struct load shorts = {
        .weight = 1, .num_prompt_tokens = 40, .max_tokens = 40, .num_choices = 1};
    for (int32_t num_blocks = 500; num_blocks <= 4000; num_blocks += 3500) {
        start(&server, 3, num_blocks);
        for (int32_t i = 0; i < 16; i++)
            send(&server, 0, &longs);
        for (; server.now < 60; server.now++)
            assert_true(engine_core_step(&server.core));
        send(&server, 1, &shorts);
        send(&server, 2, &shorts);
        int64_t came = server.now, last = 0;
        for (; !engine_core_is_idle(&server.core); server.now++) {
            assert_true(engine_core_step(&server.core));
            if (last == 0 && server.last_served[1] > 0 && server.last_served[2] > 0)
                last = server.now;
        }
        print_message("# %d blocks: the last of two shares is served after %lld steps, %llu "
                      "preemptions\n",
                      num_blocks, (long long)(last - came),
                      (unsigned long long)server.core.stats.preemptions);
        assert_in_range(last - came, 0, 2);
        assert_in_range(server.core.stats.preemptions, 1, num_blocks < 1000 ? 100 : 2);
        assert_int_equal(server.core.stats.finished[FINISH_LENGTH], 18);
        stop(&server);
    }
}

/* Who has taken half of the slots from the other takes no more, and nothing goes back at once. */
static void test_slots_settle(void **state) {
    static struct server server;
    const struct load longs = {
        .weight = 1, .num_prompt_tokens = 40, .max_tokens = 400, .num_choices = 1};
    start(&server, 2, 4000);
    for (int32_t share = 0; share < 2; share++) {
        for (int32_t i = 0; i < 32; i++)
            send(&server, share, &longs);
        for (int64_t end = server.now + 200; server.now < end; server.now++)
            assert_true(engine_core_step(&server.core));
    }
    assert_int_equal(server.core.stats.preemptions, 8);
    for (; !engine_core_is_idle(&server.core); server.now++)
        assert_true(engine_core_step(&server.core));
    assert_int_equal(server.core.stats.finished[FINISH_LENGTH], 64);
    assert_in_range(server.core.stats.preemptions, 8, 32);
    stop(&server);
}

/* Returns the most steps that one of 40 short requests of the last share takes to its only token,
 * one after the other. */
static int64_t first_token(struct server *server, const struct load *loads) {
    const struct load newcomer = {
        .weight = 1, .num_prompt_tokens = 12, .max_tokens = 1, .num_choices = 1};
    int32_t share = server->num_shares - 1;
    double due[MAX_SHARES] = {0};
    int64_t most = 0;
    for (int32_t i = 0; i < 40; i++) {
        for (int64_t end = server->now + 7; server->now < end; server->now++) {
            arrive(server, loads, due);
            assert_true(engine_core_step(&server->core));
        }
        send(server, share, &newcomer);
        int64_t came = server->now, served = server->served[share];
        while (server->core.scheduler.waiting.shares[share].num_reserved > 0 ||
               server->served[share] == served) {
            arrive(server, loads, due);
            assert_true(engine_core_step(&server->core));
            server->now++;
        }
        most = server->now - came > most ? server->now - came : most;
    }
    return most;
}

/* Whatever one share sends, another one that comes with a short prompt has its token two steps
 * later. */
static void test_newcomers_are_served_at_once(void **state) {
    static struct server server;
    const struct {
        const char *name;
        struct load load;
        int32_t num_blocks;
    } cases[] = {
        {"long prompts", {.num_prompt_tokens = 500, .max_tokens = 1, .num_choices = 1}, 4000},
        {"streams", {.num_prompt_tokens = 12, .max_tokens = 400, .num_choices = 1}, 4000},
        {"short requests", {.num_prompt_tokens = 2, .max_tokens = 2, .num_choices = 1}, 4000},
        {"long streams", {.num_prompt_tokens = 300, .max_tokens = 200, .num_choices = 1}, 4000},
        {"choices", {.num_prompt_tokens = 40, .max_tokens = 100, .num_choices = 40}, 4000},
        {"beams",
         {.num_prompt_tokens = 40, .max_tokens = 100, .num_choices = 1, .beam_width = 6},
         4000},
        {"streams, short of blocks",
         {.num_prompt_tokens = 12, .max_tokens = 400, .num_choices = 1},
         400},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct load loads[2] = {cases[i].load, {.weight = 1}};
        loads[0].weight = 1;
        loads[0].per_step = 3;
        start(&server, 2, cases[i].num_blocks);
        send(&server, 1,
             &(struct load){
                 .weight = 1, .num_prompt_tokens = 12, .max_tokens = 1, .num_choices = 1});
        int64_t most = first_token(&server, loads);
        print_message("# beside %s: %lld steps, %llu preemptions in %lld\n", cases[i].name,
                      (long long)most, (unsigned long long)server.core.stats.preemptions,
                      (long long)server.now);
        assert_in_range(most, 1, 2);
        stop(&server);
    }
}

/* So few blocks that running groups are preempted all the time. */
static void test_short_of_memory(void **state) {
    struct load loads[50];
    mix(loads, 50, false);
    check("50 shares, short of blocks", loads, 50, 140, 0.95);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nine_to_one),
        cmocka_unit_test(test_one_to_three),
        cmocka_unit_test(test_priorities_stay_inside),
        cmocka_unit_test(test_fifty_kinds_of_greed),
        cmocka_unit_test(test_slots_are_taken_back),
        cmocka_unit_test(test_slots_settle),
        cmocka_unit_test(test_newcomers_are_served_at_once),
        cmocka_unit_test(test_short_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
