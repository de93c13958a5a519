/* What the core counts as the gap before a step and as the parts of its time, on a clock that goes
 * on only where a part of a step is. The linker puts the functions below in front of the core's. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/core/engine_core.h"
#include "tests/sim/fake_executor.h"
#include "tests/sim/fake_tokenizer.h"

#include <math.h>
#include <string.h>

#define MAX_STEPS 200
#define NUM_PROMPT_TOKENS 5
#define NUM_TOKENS 6 /* of each request, in as many steps */
#define LONG_NS INT64_C(10000000000)

/* How long each part takes, in nanoseconds. */
enum {
    LOOP_NS = 3,
    PLAN_NS = 20,
    BUILD_NS = 100,
    LATE_INPUTS_NS = 500,
    SUBMIT_NS = 3000,
    SUPPLY_NS = 40000,
    WAIT_NS = 100000,
    COMMIT_NS = 5000000,
    HOST_NS = LOOP_NS + PLAN_NS + BUILD_NS + SUBMIT_NS + COMMIT_NS, /* between two waits */
};

struct fixture {
    struct executor executor; /* the core's: takes its time, then calls the fake one */
    struct executor_ops ops;
    struct fake_executor fake;
    struct serving_limits limits;
    struct engine_core core;
    struct request *request;
    uint64_t num_requests;
    bool is_unread;    /* the request's reader is behind */
    uint64_t loses_at; /* the call in which the ranks are lost; 0: never */
};

static int64_t now_ns;

/* --- Where time goes by --- */

void __real_scheduler_plan(struct scheduler *scheduler, struct step_plan *plan);
void __wrap_scheduler_plan(struct scheduler *scheduler, struct step_plan *plan);
void __real_batch_builder_build(struct batch_builder *builder, struct step *step,
                                struct block_manager *blocks);
void __wrap_batch_builder_build(struct batch_builder *builder, struct step *step,
                                struct block_manager *blocks);
void __real_batch_builder_supply(struct batch_builder *builder, struct step *step);
void __wrap_batch_builder_supply(struct batch_builder *builder, struct step *step);

void __wrap_scheduler_plan(struct scheduler *scheduler, struct step_plan *plan) {
    __real_scheduler_plan(scheduler, plan);
    if (plan->num_entries > 0)
        now_ns += PLAN_NS;
}

void __wrap_batch_builder_build(struct batch_builder *builder, struct step *step,
                                struct block_manager *blocks) {
    now_ns += BUILD_NS;
    __real_batch_builder_build(builder, step, blocks);
}

void __wrap_batch_builder_supply(struct batch_builder *builder, struct step *step) {
    now_ns += LATE_INPUTS_NS;
    __real_batch_builder_supply(builder, step);
}

static struct fixture *self(struct executor *executor) {
    return (struct fixture *)executor;
}

static void submit(struct executor *executor, const struct batch *batch,
                   struct step_result *result) {
    struct fake_executor *fake = &self(executor)->fake;
    now_ns += SUBMIT_NS;
    fake->base.ops->submit(&fake->base, batch, result);
}

static void supply(struct executor *executor) {
    struct fake_executor *fake = &self(executor)->fake;
    now_ns += SUPPLY_NS;
    fake->base.ops->supply(&fake->base);
}

static int wait(struct executor *executor, struct error *err) {
    struct fake_executor *fake = &self(executor)->fake;
    now_ns += WAIT_NS;
    return fake->base.ops->wait(&fake->base, err);
}

static int restart(struct executor *executor, struct error *err) {
    struct fake_executor *fake = &self(executor)->fake;
    now_ns += LONG_NS;
    return fake->base.ops->restart(&fake->base, err);
}

static void destroy(struct executor *executor) {
}

static void note_collected(void *context, const struct step *step, const struct error *failure) {
    now_ns += COMMIT_NS;
}

/* --- The core --- */

static int64_t read_clock(void *context) {
    return now_ns;
}

static bool has_signal(void *context, struct request *request, enum request_signal signal) {
    return signal == REQUEST_UNREAD && ((struct fixture *)context)->is_unread;
}

static bool loses_ranks(void *context, const struct batch *batch) {
    struct fixture *f = context;
    return batch != NULL && f->fake.num_calls == f->loses_at;
}

static void on_news(void *context, struct request *request) {
}

static void start(struct fixture *f, bool async_scheduling) {
    struct error err = {0};
    now_ns = 1;
    memset(f, 0, sizeof(*f));
    f->limits = (struct serving_limits){.max_num_seqs = 4,
                                        .max_num_batched_tokens = 16,
                                        .max_model_len = 160,
                                        .block_size = 4,
                                        .num_blocks = 60,
                                        .vocab_size = FAKE_VOCAB_SIZE,
                                        .hidden_size = FAKE_HIDDEN_SIZE};
    fake_executor_init(&f->fake, f->limits.num_blocks, f->limits.block_size,
                       f->limits.max_num_batched_tokens);
    f->fake.loses_ranks = loses_ranks;
    f->fake.context = f;
    f->ops = (struct executor_ops){.submit = submit,
                                   .supply = supply,
                                   .wait = wait,
                                   .destroy = destroy,
                                   .step_memory = executor_takes_any_memory,
                                   .check = executor_keeps_ranks,
                                   .restart = restart,
                                   .sleep = executor_cannot_sleep,
                                   .wake = executor_cannot_start_again,
                                   .rank_stats = executor_has_no_stats,
                                   .host_pools = executor_shares_no_host_pools};
    f->executor.ops = &f->ops;
    const struct engine_core_config config = {
        .schedule.kv.limits = &f->limits,
        .schedule.kv.num_tenants = 1,
        .async_scheduling = async_scheduling,
        .stall_timeout_ns = INT64_MAX / 4,
        .clock = read_clock,
        .stopwatch = read_clock,
        .has_signal = has_signal,
        .collected = note_collected,
        .notify = on_news,
        .context = f,
    };
    assert_int_equal(engine_core_init(&f->core, &config, &f->executor, fake_tokenizer(), &err), 0);
}

static void stop(struct fixture *f) {
    assert_true(engine_core_is_idle(&f->core));
    assert_string_equal(f->fake.violation, "");
    engine_core_finish(&f->core);
    request_unref(f->request);
    fake_executor_finish(&f->fake);
}

static void add_request(struct fixture *f, float repetition_penalty) {
    const int32_t prompt[NUM_PROMPT_TOKENS] = {FAKE_FIRST_PLAIN, FAKE_FIRST_PLAIN + 1,
                                               FAKE_FIRST_PLAIN, FAKE_FIRST_PLAIN,
                                               FAKE_FIRST_PLAIN + 1};
    const struct sampling_params params = {
        .num_choices = 1,
        .max_tokens = NUM_TOKENS,
        .settings.top_p = 1,
        .settings.repetition_penalty = repetition_penalty,
        .seed = 42,
        .num_logprobs = -1,
        .num_prompt_logprobs = -1,
        .ignore_eos = true,
        .skip_special_tokens = true,
    };
    request_unref(f->request);
    f->request = request_create(prompt, NUM_PROMPT_TOKENS, &params);
    assert_non_null(f->request);
    f->request->id = ++f->num_requests;
    engine_core_add(&f->core, f->request);
}

static bool run_step(struct fixture *f) {
    bool ran = engine_core_step(&f->core);
    now_ns += LOOP_NS;
    return ran;
}

static void run(struct fixture *f) {
    for (int i = 0; i < MAX_STEPS && !engine_core_is_idle(&f->core); i++)
        run_step(f);
    assert_true(engine_core_is_idle(&f->core));
}

static int64_t sum_ns(const struct histogram *histogram) {
    return llround(histogram->sum * 1e9);
}

static int64_t part_ns(const struct fixture *f, enum step_part part) {
    return sum_ns(&f->core.stats.step_host[part]);
}

/* All observations are of so many steps, of which so many had no gap. */
static void assert_steps(const struct fixture *f, uint64_t num_steps, uint64_t num_without_gap) {
    const struct engine_stats *stats = &f->core.stats;
    assert_int_equal(stats->step, num_steps);
    assert_int_equal(stats->step_gap.total, num_steps);
    assert_int_equal(stats->step_gap.counts[0], num_without_gap);
    for (int i = 0; i < NUM_STEP_PARTS; i++)
        assert_int_equal(stats->step_host[i].total, num_steps);
}

/* Each of NUM_TOKENS steps takes in each part but the loop what the fixture makes it take. */
static void assert_parts(const struct fixture *f) {
    assert_int_equal(part_ns(f, STEP_PART_SCHEDULE), NUM_TOKENS * PLAN_NS);
    assert_int_equal(part_ns(f, STEP_PART_BUILD), NUM_TOKENS * BUILD_NS);
    assert_int_equal(part_ns(f, STEP_PART_LAUNCH), NUM_TOKENS * SUBMIT_NS);
    assert_int_equal(part_ns(f, STEP_PART_WAIT), NUM_TOKENS * WAIT_NS);
    assert_int_equal(part_ns(f, STEP_PART_COMMIT), NUM_TOKENS * COMMIT_NS);
}

/* --- The tests --- */

static void test_one_step_at_a_time_leaves_gaps(void **state) {
    struct fixture f;
    start(&f, false);
    add_request(&f, 1);
    run(&f);
    assert_steps(&f, NUM_TOKENS, 1);
    assert_int_equal(sum_ns(&f.core.stats.step_gap), (NUM_TOKENS - 1) * HOST_NS);
    assert_int_equal(part_ns(&f, STEP_PART_LOOP), (NUM_TOKENS - 1) * LOOP_NS);
    assert_parts(&f);
    stop(&f);
}

/* The parts are the same, but none of them keeps the device waiting. */
static void test_steps_that_overlap_leave_none(void **state) {
    struct fixture f;
    start(&f, true);
    add_request(&f, 1);
    run(&f);
    assert_steps(&f, NUM_TOKENS, NUM_TOKENS);
    assert_int_equal(sum_ns(&f.core.stats.step_gap), 0);
    assert_parts(&f);
    stop(&f);
}

static void test_late_inputs_are_built_and_launched(void **state) {
    struct fixture f;
    start(&f, true);
    add_request(&f, 1.5f);
    run(&f);
    int64_t num_late = (int64_t)f.fake.num_supplied;
    assert_int_equal(num_late, NUM_TOKENS - 1);
    assert_steps(&f, NUM_TOKENS, NUM_TOKENS);
    assert_int_equal(part_ns(&f, STEP_PART_BUILD),
                     NUM_TOKENS * BUILD_NS + num_late * LATE_INPUTS_NS);
    assert_int_equal(part_ns(&f, STEP_PART_LAUNCH), NUM_TOKENS * SUBMIT_NS + num_late * SUPPLY_NS);
    assert_int_equal(part_ns(&f, STEP_PART_COMMIT), NUM_TOKENS * COMMIT_NS);
    stop(&f);
}

/* With and without a step in between that finds nothing to run. */
static void test_idle_time_is_no_gap(void **state) {
    struct fixture f;
    start(&f, false);
    for (int i = 0; i < 3; i++) {
        add_request(&f, 1);
        run(&f);
        now_ns += LONG_NS;
        if (i == 1)
            assert_false(run_step(&f));
        now_ns += LONG_NS;
    }
    assert_steps(&f, 3 * NUM_TOKENS, 3);
    assert_int_equal(sum_ns(&f.core.stats.step_gap), 3 * (NUM_TOKENS - 1) * HOST_NS);
    assert_int_equal(part_ns(&f, STEP_PART_LOOP), 3 * (NUM_TOKENS - 1) * LOOP_NS);
    assert_int_equal(part_ns(&f, STEP_PART_SCHEDULE), 3 * NUM_TOKENS * PLAN_NS);
    stop(&f);
}

static void test_waiting_for_a_reader_is_no_gap(void **state) {
    struct fixture f;
    start(&f, false);
    add_request(&f, 1);
    assert_true(run_step(&f));
    f.is_unread = true;
    assert_false(run_step(&f));
    now_ns += LONG_NS;
    f.is_unread = false;
    run(&f);
    assert_steps(&f, NUM_TOKENS, 2);
    assert_int_equal(sum_ns(&f.core.stats.step_gap), (NUM_TOKENS - 2) * HOST_NS);
    stop(&f);
}

/* What was in flight is lost, and counts as no step. */
static void test_a_restart_of_the_ranks_is_no_gap(void **state) {
    struct fixture f;
    start(&f, false);
    f.loses_at = 3;
    add_request(&f, 1);
    run(&f);
    assert_int_equal(f.core.stats.rank_restarts, 1);
    assert_steps(&f, NUM_TOKENS, 2);
    assert_int_equal(sum_ns(&f.core.stats.step_gap), (NUM_TOKENS - 2) * HOST_NS);
    assert_int_equal(part_ns(&f, STEP_PART_WAIT), NUM_TOKENS * WAIT_NS);
    stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_step_at_a_time_leaves_gaps),
        cmocka_unit_test(test_steps_that_overlap_leave_none),
        cmocka_unit_test(test_late_inputs_are_built_and_launched),
        cmocka_unit_test(test_idle_time_is_no_gap),
        cmocka_unit_test(test_waiting_for_a_reader_is_no_gap),
        cmocka_unit_test(test_a_restart_of_the_ranks_is_no_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
