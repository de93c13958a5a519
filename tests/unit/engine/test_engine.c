/* The engine's thread and its front end, on the fake executor: submitted, read and cancelled from
 * several threads. Every stream is compared with the oracle. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/engine.h"
#include "tests/sim/fake_executor.h"
#include "tests/sim/fake_tokenizer.h"
#include "tests/sim/random_request.h"
#include "tests/sim/stream_checker.h"

#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_MODEL_LEN 96
#define NUM_CLIENTS 3
#define REQUESTS_PER_CLIENT 40

struct fixture {
    struct serving_limits limits;
    struct fake_executor executor;
    struct engine *engine;
    sem_t woken;
};

static void wake(void *context) {
    sem_post(context);
}

static struct engine_config base_config(struct fixture *f) {
    f->limits = (struct serving_limits){
        .max_num_seqs = 8,
        .max_num_batched_tokens = 32,
        .max_model_len = MAX_MODEL_LEN,
        .block_size = 4,
        .num_blocks = 40,
        .vocab_size = FAKE_VOCAB_SIZE,
        .hidden_size = FAKE_HIDDEN_SIZE,
    };
    return (struct engine_config){
        .core.schedule.kv.limits = &f->limits,
        .max_queued_requests = 1000,
        .max_queued_tokens = 100000,
        .core.stall_timeout_ns = 60000 * CLOCK_NS_PER_MS,
        .wake = wake,
        .wake_context = &f->woken,
    };
}

static void start(struct fixture *f, const struct engine_config *config, int32_t delay_us,
                  uint64_t fail_at_call) {
    struct error err = {0};
    sem_init(&f->woken, 0, 0);
    fake_executor_init(&f->executor, f->limits.num_blocks, f->limits.block_size,
                       f->limits.max_num_batched_tokens);
    f->executor.delay_us = delay_us;
    f->executor.fail_at_call = fail_at_call;
    if (engine_create(config, &f->executor.base, fake_tokenizer(), &f->engine, &err) != 0)
        fail_msg("%s", err.message);
}

static void stop(struct fixture *f) {
    engine_destroy(f->engine);
    assert_string_equal(f->executor.violation, "");
    fake_executor_finish(&f->executor);
    sem_destroy(&f->woken);
}

static struct request *plain_request(int32_t num_prompt_tokens, int32_t max_tokens) {
    int32_t prompt[256];
    assert_true(num_prompt_tokens <= 256);
    for (int32_t i = 0; i < num_prompt_tokens; i++)
        prompt[i] = FAKE_FIRST_PLAIN + i % 7;
    struct sampling_params params = {
        .num_choices = 1,
        .max_tokens = max_tokens,
        .settings.top_p = 1,
        .settings.repetition_penalty = 1,
        .seed = 5,
        .num_logprobs = -1,
        .num_prompt_logprobs = -1,
        .ignore_eos = true,
        .skip_special_tokens = true,
    };
    struct request *request = request_create(prompt, num_prompt_tokens, &params);
    assert_non_null(request);
    return request;
}

/* Reads whatever is ready; requests carry their checker in `user`. Returns how many have ended. */
static int read_ready(struct fixture *f) {
    struct request *ready[4];
    int num_ready, num_done = 0;
    do {
        num_ready = engine_take_ready(f->engine, ready, 4);
        for (int i = 0; i < num_ready; i++) {
            struct stream_checker *checker = ready[i]->user;
            bool was_done = stream_checker_is_done(checker);
            if (!stream_checker_read(checker))
                fail_msg("%s", checker->violation);
            num_done += !was_done && stream_checker_is_done(checker);
            request_unref(ready[i]);
        }
        engine_resume_reading(f->engine);
    } while (num_ready == 4);
    return num_done;
}

static void read_until_done(struct fixture *f, int count) {
    while (count > 0) {
        sem_wait(&f->woken);
        count -= read_ready(f);
    }
}

static void watch(struct stream_checker *checker, struct request *request) {
    stream_checker_init(checker, request, MAX_MODEL_LEN, NULL);
    request->user = checker;
}

/* is_idle turns true with the publication of the last step, which may follow the last event. */
static struct engine_stats idle_stats(struct fixture *f) {
    struct engine_stats stats;
    while (!engine_is_idle(f->engine))
        usleep(100);
    engine_get_stats(f->engine, &stats);
    assert_int_equal(stats.num_used_blocks, 0);
    assert_int_equal(stats.num_running, 0);
    assert_int_equal(stats.num_waiting, 0);
    return stats;
}

struct client {
    struct fixture *fixture;
    struct stream_checker *checkers; /* [REQUESTS_PER_CLIENT] */
    struct random random;
};

static void *run_client(void *argument) {
    struct client *client = argument;
    struct engine *engine = client->fixture->engine;
    for (int i = 0; i < REQUESTS_PER_CLIENT; i++) {
        struct request *request = client->checkers[i].request;
        enum submit_result result = engine_submit(engine, request);
        if (result != SUBMIT_OK)
            abort();
        if (random_once_in(&client->random, 4)) {
            usleep((useconds_t)random_range(&client->random, 0, 300));
            engine_cancel(engine, request);
        }
    }
    return NULL;
}

static void test_many_threads(void **state) {
    static struct stream_checker checkers[NUM_CLIENTS][REQUESTS_PER_CLIENT];
    struct fixture f;
    struct engine_config config = base_config(&f);
    struct request_shape shape = {.max_prompt_tokens = 40,
                                  .max_output_tokens = 40,
                                  .max_choices = 4,
                                  .min_logprobs = -1,
                                  .max_logprobs = 3};
    struct client clients[NUM_CLIENTS];
    pthread_t threads[NUM_CLIENTS];
    start(&f, &config, 0, 0);
    for (int c = 0; c < NUM_CLIENTS; c++) {
        clients[c] = (struct client){&f, checkers[c], random_from((uint64_t)c + 1)};
        for (int i = 0; i < REQUESTS_PER_CLIENT; i++)
            watch(&checkers[c][i], random_request(&clients[c].random, &shape));
    }
    for (int c = 0; c < NUM_CLIENTS; c++)
        pthread_create(&threads[c], NULL, run_client, &clients[c]);
    read_until_done(&f, NUM_CLIENTS * REQUESTS_PER_CLIENT);
    for (int c = 0; c < NUM_CLIENTS; c++)
        pthread_join(threads[c], NULL);
    struct engine_stats stats = idle_stats(&f);
    assert_int_equal(stats.step_gap.total, stats.step);
    assert_true(stats.step_host[STEP_PART_WAIT].sum > 0);
    uint64_t finished = 0, choices = 0;
    for (int reason = 0; reason <= FINISH_ERROR; reason++)
        finished += stats.finished[reason];
    stop(&f);
    for (int c = 0; c < NUM_CLIENTS; c++) {
        for (int i = 0; i < REQUESTS_PER_CLIENT; i++) {
            choices += (uint64_t)checkers[c][i].request->params.num_choices;
            stream_checker_finish(&checkers[c][i]);
        }
    }
    assert_true(finished == choices);
}

static void test_destroy_with_work_in_flight(void **state) {
    struct stream_checker checkers[20];
    struct fixture f;
    struct engine_config config = base_config(&f);
    start(&f, &config, 200, 0);
    for (int i = 0; i < 20; i++) {
        watch(&checkers[i], plain_request(10 + i, 60));
        assert_int_equal(engine_submit(f.engine, checkers[i].request), SUBMIT_OK);
    }
    sem_wait(&f.woken); /* some are running now, others wait */
    stop(&f);
    for (int i = 0; i < 20; i++) {
        assert_true(stream_checker_read(&checkers[i]));
        assert_true(stream_checker_is_done(&checkers[i]));
        stream_checker_finish(&checkers[i]);
    }
}

static void test_drain(void **state) {
    struct stream_checker checkers[5];
    struct fixture f;
    struct engine_config config = base_config(&f);
    start(&f, &config, 100, 0);
    for (int i = 0; i < 5; i++) {
        watch(&checkers[i], plain_request(10, 20));
        assert_int_equal(engine_submit(f.engine, checkers[i].request), SUBMIT_OK);
    }
    assert_false(engine_is_idle(f.engine));
    engine_stop_accepting(f.engine);
    struct request *late = plain_request(3, 3);
    assert_int_equal(engine_submit(f.engine, late), SUBMIT_STOPPING);
    request_unref(late);
    read_until_done(&f, 5);
    assert_true(idle_stats(&f).finished[FINISH_LENGTH] == 5);
    stop(&f);
    for (int i = 0; i < 5; i++)
        stream_checker_finish(&checkers[i]);
}

static void test_refusals(void **state) {
    struct fixture f;
    struct engine_config config = base_config(&f);
    struct engine_stats stats;
    config.max_queued_requests = 3;
    config.max_queued_tokens = 50;
    f.limits.num_blocks = 20; /* 80 tokens */
    f.limits.max_num_seqs = 1;
    start(&f, &config, 2000, 0);
    struct request *no_room_to_answer = plain_request(MAX_MODEL_LEN, 1);
    struct request *over_pool = plain_request(70, 12);
    struct request *fits_pool = plain_request(70, 11); /* the last token is never stored */
    assert_int_equal(engine_submit(f.engine, no_room_to_answer), SUBMIT_TOO_LARGE);
    assert_int_equal(engine_submit(f.engine, over_pool), SUBMIT_TOO_LARGE);
    assert_int_equal(engine_submit(f.engine, fits_pool), SUBMIT_OK); /* alone, whatever its size */
    engine_get_stats(f.engine, &stats);
    assert_true(stats.has_work);
    sem_wait(&f.woken); /* it runs: the queue is empty */
    struct request *queued[4];
    for (int i = 0; i < 4; i++)
        queued[i] = plain_request(20, 5);
    assert_false(engine_queue_is_full(f.engine));
    assert_int_equal(engine_submit(f.engine, queued[0]), SUBMIT_OK);
    assert_int_equal(engine_submit(f.engine, queued[1]), SUBMIT_OK);
    assert_int_equal(engine_submit(f.engine, queued[2]), SUBMIT_QUEUE_FULL); /* tokens */
    struct request *small = plain_request(1, 1);
    assert_false(engine_queue_is_full(f.engine)); /* one of few tokens is taken */
    assert_int_equal(engine_submit(f.engine, small), SUBMIT_OK);
    assert_int_equal(engine_submit(f.engine, queued[3]), SUBMIT_QUEUE_FULL); /* requests */
    assert_true(engine_queue_is_full(f.engine));
    stop(&f);
    for (int i = 0; i < 4; i++)
        request_unref(queued[i]);
    request_unref(no_room_to_answer);
    request_unref(over_pool);
    request_unref(fits_pool);
    request_unref(small);
}

/* Ten choices at once; more are let in alone. */
static void test_choices_are_bounded(void **state) {
    struct stream_checker checkers[2];
    struct fixture f;
    struct engine_config config = base_config(&f);
    config.max_choices = 10;
    start(&f, &config, 1000, 0);
    struct request *many = plain_request(10, 20);
    many->params.num_choices = 12;
    watch(&checkers[0], many);
    struct request *one = plain_request(3, 3);
    watch(&checkers[1], one);
    assert_int_equal(engine_submit(f.engine, many), SUBMIT_OK);
    assert_int_equal(engine_submit(f.engine, one), SUBMIT_QUEUE_FULL);
    read_until_done(&f, 1);
    idle_stats(&f);
    assert_int_equal(engine_submit(f.engine, one), SUBMIT_OK);
    read_until_done(&f, 1);
    stop(&f);
    for (int i = 0; i < 2; i++)
        stream_checker_finish(&checkers[i]);
}

/* One request of six choices, so that all of them are in flight whenever the failure comes. */
static void test_device_failure(void **state) {
    struct stream_checker checker;
    struct fixture f;
    struct engine_config config = base_config(&f);
    start(&f, &config, 100, 20);
    struct request *request = plain_request(10, 80);
    request->params.num_choices = 6;
    watch(&checker, request);
    assert_int_equal(engine_submit(f.engine, request), SUBMIT_OK);
    read_until_done(&f, 1);
    assert_true(engine_has_failed(f.engine));
    assert_int_equal(engine_failure(f.engine).code, ERROR_DEVICE);
    assert_non_null(strstr(engine_failure(f.engine).message, "scripted"));
    struct request *late = plain_request(3, 3);
    assert_int_equal(engine_submit(f.engine, late), SUBMIT_FAILED);
    request_unref(late);
    assert_true(idle_stats(&f).finished[FINISH_ERROR] == 6);
    stop(&f);
    for (int i = 0; i < 6; i++)
        assert_int_equal(checker.choices[i].finish, FINISH_ERROR);
    stream_checker_finish(&checker);
}

/* --- Sleep --- */

/* The fake executor's ops, with sleep and wake; guarded by nothing but the order of calls. */
static struct {
    struct executor_ops ops;
    const struct executor_ops *original;
    sem_t may_sleep, may_wake;
    atomic_int num_asleep, num_waking_failures;
    atomic_bool is_asleep, discards_weights, was_used_asleep;
} sleeper;

static void sleep_when_allowed(struct executor *executor, bool discards_weights) {
    sem_wait(&sleeper.may_sleep);
    if (atomic_load(&sleeper.is_asleep) &&
        (!discards_weights || atomic_load(&sleeper.discards_weights)))
        atomic_store(&sleeper.was_used_asleep, true);
    atomic_fetch_add(&sleeper.num_asleep, 1);
    atomic_store(&sleeper.discards_weights, discards_weights);
    atomic_store(&sleeper.is_asleep, true);
}

static int wake_when_allowed(struct executor *executor, struct error *err) {
    sem_wait(&sleeper.may_wake);
    if (!atomic_load(&sleeper.is_asleep))
        atomic_store(&sleeper.was_used_asleep, true);
    if (atomic_fetch_sub(&sleeper.num_waking_failures, 1) > 0)
        return error_set(err, ERROR_MEMORY, "scripted");
    atomic_store(&sleeper.is_asleep, false);
    return 0;
}

static void submit_awake(struct executor *executor, const struct batch *batch,
                         struct step_result *result) {
    if (atomic_load(&sleeper.is_asleep))
        atomic_store(&sleeper.was_used_asleep, true);
    sleeper.original->submit(executor, batch, result);
}

/* num_allowed: times it may sleep, and wake, without a post of the test's. */
static void start_sleeper(struct fixture *f, struct engine_config *config, bool prefix_caching,
                          int64_t sleep_idle_ms, unsigned num_allowed) {
    struct error err = {0};
    *config = base_config(f);
    config->core.schedule.kv.caching = prefix_caching;
    config->sleep_idle_ms = sleep_idle_ms;
    sem_init(&f->woken, 0, 0);
    fake_executor_init(&f->executor, f->limits.num_blocks, f->limits.block_size,
                       f->limits.max_num_batched_tokens);
    memset(&sleeper, 0, sizeof(sleeper));
    sem_init(&sleeper.may_sleep, 0, num_allowed);
    sem_init(&sleeper.may_wake, 0, num_allowed);
    sleeper.original = f->executor.base.ops;
    sleeper.ops = *sleeper.original;
    sleeper.ops.submit = submit_awake;
    sleeper.ops.sleep = sleep_when_allowed;
    sleeper.ops.wake = wake_when_allowed;
    f->executor.base.ops = &sleeper.ops;
    f->executor.base.can_sleep = true;
    f->executor.delay_us = 100;
    if (engine_create(config, &f->executor.base, fake_tokenizer(), &f->engine, &err) != 0)
        fail_msg("%s", err.message);
}

static void stop_sleeper(struct fixture *f) {
    stop(f);
    assert_false(atomic_load(&sleeper.was_used_asleep));
    sem_destroy(&sleeper.may_sleep);
    sem_destroy(&sleeper.may_wake);
}

static bool sleep_engine(struct fixture *f, bool discards_weights) {
    struct engine_rest_view view;
    return engine_sleep(f->engine, discards_weights, &view);
}

static void wake_engine(struct fixture *f) {
    struct engine_rest_view view;
    engine_wake(f->engine, &view);
}

/* Every change is told. */
static void await_rest(struct fixture *f, enum engine_rest rest) {
    while (engine_get_rest(f->engine).rest != rest)
        sem_wait(&f->woken);
}

static void answer_one(struct fixture *f, int32_t num_prompt_tokens) {
    struct stream_checker checker;
    watch(&checker, plain_request(num_prompt_tokens, 20));
    assert_int_equal(engine_submit(f->engine, checker.request), SUBMIT_OK);
    read_until_done(f, 1);
    stream_checker_finish(&checker);
}

static void test_sleep(void **state) {
    struct stream_checker running, early;
    struct fixture f;
    struct engine_config config;
    start_sleeper(&f, &config, false, 0, 0);
    watch(&running, plain_request(10, 60));
    assert_int_equal(engine_submit(f.engine, running.request), SUBMIT_OK);
    sleep_engine(&f, true);
    struct request *late = plain_request(3, 3);
    assert_int_equal(engine_submit(f.engine, late), SUBMIT_ASLEEP);
    read_until_done(&f, 1); /* what was taken ends first */
    assert_int_equal(atomic_load(&sleeper.num_asleep), 0);
    assert_int_equal(engine_get_rest(f.engine).rest, ENGINE_FALLING_ASLEEP);
    sem_post(&sleeper.may_sleep);
    await_rest(&f, ENGINE_ASLEEP);
    assert_true(atomic_load(&sleeper.is_asleep) && atomic_load(&sleeper.discards_weights));
    assert_int_equal(engine_submit(f.engine, late), SUBMIT_ASLEEP);
    sleep_engine(&f, true); /* nothing happens */
    struct engine_stats stats = idle_stats(&f);
    assert_true(stats.rest == ENGINE_ASLEEP && stats.discards_weights && !stats.has_work);
    wake_engine(&f);
    watch(&early, plain_request(5, 10)); /* runs once it is awake */
    assert_int_equal(engine_submit(f.engine, early.request), SUBMIT_OK);
    engine_get_stats(f.engine, &stats);
    assert_true(stats.rest == ENGINE_WAKING && !stats.has_work);
    sem_post(&sleeper.may_wake);
    read_until_done(&f, 1);
    assert_int_equal(engine_get_rest(f.engine).rest, ENGINE_AWAKE);
    request_unref(late);
    stop_sleeper(&f);
    assert_int_equal(early.choices[0].finish, FINISH_LENGTH);
    stream_checker_finish(&running);
    stream_checker_finish(&early);
}

/* Returns how many of its tokens were found in the cache. */
static uint64_t prefix_hits_of(struct fixture *f, struct request *request) {
    struct request *ready[4];
    uint64_t before = idle_stats(f).prefix_hits;
    assert_int_equal(engine_submit(f->engine, request), SUBMIT_OK);
    uint64_t hits = idle_stats(f).prefix_hits - before;
    for (int i = engine_take_ready(f->engine, ready, 4); i > 0; i--)
        request_unref(ready[i - 1]);
    request_unref(request);
    return hits;
}

static void test_the_cache_is_empty_after_sleep(void **state) {
    struct fixture f;
    struct engine_config config;
    start_sleeper(&f, &config, true, 0, 0);
    assert_int_equal(prefix_hits_of(&f, plain_request(40, 5)), 0);
    assert_true(prefix_hits_of(&f, plain_request(40, 5)) > 0);
    sem_post(&sleeper.may_sleep);
    sleep_engine(&f, false);
    await_rest(&f, ENGINE_ASLEEP);
    assert_int_equal(idle_stats(&f).num_known_blocks, 0);
    wake_engine(&f);
    sem_post(&sleeper.may_wake);
    await_rest(&f, ENGINE_AWAKE);
    assert_int_equal(prefix_hits_of(&f, plain_request(40, 5)), 0);
    stop_sleeper(&f);
}

/* Before it has begun, and while the executor gives its memory back. */
static void test_a_sleep_is_called_off(void **state) {
    struct stream_checker checker;
    struct fixture f;
    struct engine_config config;
    start_sleeper(&f, &config, false, 0, 0);
    watch(&checker, plain_request(10, 60));
    assert_int_equal(engine_submit(f.engine, checker.request), SUBMIT_OK);
    sleep_engine(&f, false);
    wake_engine(&f);
    assert_int_equal(engine_get_rest(f.engine).rest, ENGINE_AWAKE);
    read_until_done(&f, 1);
    assert_int_equal(atomic_load(&sleeper.num_asleep), 0);
    stream_checker_finish(&checker);
    sleep_engine(&f, false);
    idle_stats(&f);
    usleep(20000); /* it stands in the executor's sleep now, most likely */
    wake_engine(&f);
    sem_post(&sleeper.may_sleep);
    sem_post(&sleeper.may_wake);
    answer_one(&f, 10);
    stop_sleeper(&f);
}

static void test_it_cannot_wake(void **state) {
    struct stream_checker checker;
    struct fixture f;
    struct engine_config config;
    start_sleeper(&f, &config, false, 0, 0);
    sem_post(&sleeper.may_sleep);
    sleep_engine(&f, true);
    await_rest(&f, ENGINE_ASLEEP);
    atomic_store(&sleeper.num_waking_failures, 1);
    wake_engine(&f);
    watch(&checker, plain_request(10, 20));
    assert_int_equal(engine_submit(f.engine, checker.request), SUBMIT_OK);
    sem_post(&sleeper.may_wake);
    read_until_done(&f, 1);
    await_rest(&f, ENGINE_ASLEEP);
    assert_int_equal(checker.choices[0].finish, FINISH_ASLEEP);
    assert_false(engine_has_failed(f.engine));
    stream_checker_finish(&checker);
    wake_engine(&f);
    sem_post(&sleeper.may_wake);
    await_rest(&f, ENGINE_AWAKE);
    answer_one(&f, 10);
    sem_post(&sleeper.may_sleep);
    sleep_engine(&f, false);
    await_rest(&f, ENGINE_ASLEEP);
    stop_sleeper(&f); /* asleep */
}

static void test_weights_go_later(void **state) {
    struct fixture f;
    struct engine_config config;
    start_sleeper(&f, &config, false, 0, 0);
    sem_post(&sleeper.may_sleep);
    sleep_engine(&f, false);
    await_rest(&f, ENGINE_ASLEEP);
    assert_false(atomic_load(&sleeper.discards_weights));
    sleep_engine(&f, true);
    assert_int_equal(engine_get_rest(f.engine).rest, ENGINE_FALLING_ASLEEP);
    sem_post(&sleeper.may_sleep);
    await_rest(&f, ENGINE_ASLEEP);
    assert_true(atomic_load(&sleeper.discards_weights));
    sleep_engine(&f, false); /* nothing happens */
    assert_int_equal(engine_get_rest(f.engine).rest, ENGINE_ASLEEP);
    assert_true(idle_stats(&f).discards_weights);
    wake_engine(&f);
    sem_post(&sleeper.may_wake);
    answer_one(&f, 10);
    assert_int_equal(atomic_load(&sleeper.num_asleep), 2);
    stop_sleeper(&f);
}

#define IDLE_MS 5

/* It sleeps once, with its weights, however long that takes, and not while something runs. */
static void test_it_falls_asleep_by_itself(void **state) {
    struct stream_checker checker;
    struct fixture f;
    struct engine_config config;
    start_sleeper(&f, &config, false, IDLE_MS, 0);
    f.executor.delay_us = 2000 * IDLE_MS;
    answer_one(&f, 10);
    assert_int_equal(atomic_load(&sleeper.num_asleep), 0);
    sem_post(&sleeper.may_sleep);
    await_rest(&f, ENGINE_ASLEEP);
    struct engine_stats stats = idle_stats(&f);
    assert_true(stats.is_idle_sleep && !stats.discards_weights && !stats.has_work);
    assert_true(stats.idle.num_sleeps == 1 && stats.idle.num_wakes == 0);
    assert_false(engine_is_put_to_sleep(f.engine));
    watch(&checker, plain_request(10, 5));
    assert_int_equal(engine_submit(f.engine, checker.request), SUBMIT_OK);
    engine_get_stats(f.engine, &stats);
    assert_true(stats.rest == ENGINE_WAKING && stats.is_idle_sleep);
    sem_post(&sleeper.may_wake);
    read_until_done(&f, 1);
    engine_get_stats(f.engine, &stats);
    assert_int_equal(checker.choices[0].finish, FINISH_LENGTH);
    assert_true(stats.idle.num_wakes == 1 && stats.idle.wake_seconds > 0 &&
                stats.idle.num_wake_failures == 0);
    stream_checker_finish(&checker);
    sem_post(&sleeper.may_sleep);
    await_rest(&f, ENGINE_ASLEEP);
    stop_sleeper(&f);
}

/* The time before a request does not count. */
static void test_idleness_begins_with_the_last_request(void **state) {
    struct fixture f;
    struct engine_config config;
    start_sleeper(&f, &config, false, 100, 0);
    sem_post(&sleeper.may_sleep);
    sem_post(&sleeper.may_wake); /* on a machine that was busy meanwhile */
    sem_post(&sleeper.may_sleep);
    usleep(60000);
    int64_t begin_ns = clock_now_ns();
    answer_one(&f, 10);
    await_rest(&f, ENGINE_ASLEEP);
    assert_true(clock_now_ns() - begin_ns >= 100 * CLOCK_NS_PER_MS);
    stop_sleeper(&f);
}

/* Requests come about when it is due; each is answered. */
static void test_requests_race_with_falling_asleep(void **state) {
    struct fixture f;
    struct engine_config config;
    start_sleeper(&f, &config, false, 1, 0);
    f.executor.delay_us = 10;
    for (int i = 0; i < 400; i++) {
        sem_post(&sleeper.may_sleep);
        sem_post(&sleeper.may_wake);
        usleep((useconds_t)(i * 7 % 1600));
        answer_one(&f, 5);
    }
    struct engine_stats stats;
    engine_get_stats(f.engine, &stats);
    assert_true(stats.idle.num_sleeps > 0 && stats.idle.num_sleeps - stats.idle.num_wakes <= 1);
    sem_post(&sleeper.may_sleep);
    stop_sleeper(&f);
}

/* Who puts it to sleep while it sleeps by itself has it sleep on. */
static void test_its_own_sleep_is_taken_over(void **state) {
    struct fixture f;
    struct engine_config config;
    start_sleeper(&f, &config, false, IDLE_MS, 0);
    sem_post(&sleeper.may_sleep);
    await_rest(&f, ENGINE_ASLEEP);
    sleep_engine(&f, false);
    struct request *refused = plain_request(3, 3);
    assert_true(engine_is_put_to_sleep(f.engine));
    assert_int_equal(engine_submit(f.engine, refused), SUBMIT_ASLEEP);
    assert_false(idle_stats(&f).is_idle_sleep);
    assert_int_equal(atomic_load(&sleeper.num_asleep), 1);
    request_unref(refused);
    wake_engine(&f);
    sem_post(&sleeper.may_wake);
    answer_one(&f, 10);
    sem_post(&sleeper.may_sleep);
    await_rest(&f, ENGINE_ASLEEP);
    assert_true(idle_stats(&f).is_idle_sleep);
    stop_sleeper(&f);
}

/* Each request tries again. */
static void test_requests_cannot_wake_it(void **state) {
    struct stream_checker checker;
    struct fixture f;
    struct engine_config config;
    start_sleeper(&f, &config, false, IDLE_MS, 0);
    sem_post(&sleeper.may_sleep);
    await_rest(&f, ENGINE_ASLEEP);
    atomic_store(&sleeper.num_waking_failures, 2);
    for (int i = 0; i < 3; i++) {
        watch(&checker, plain_request(10, 5));
        assert_int_equal(engine_submit(f.engine, checker.request), SUBMIT_OK);
        sem_post(&sleeper.may_wake);
        read_until_done(&f, 1);
        await_rest(&f, i < 2 ? ENGINE_ASLEEP : ENGINE_AWAKE);
        assert_int_equal(checker.choices[0].finish, i < 2 ? FINISH_ASLEEP : FINISH_LENGTH);
        stream_checker_finish(&checker);
    }
    struct engine_stats stats;
    engine_get_stats(f.engine, &stats);
    assert_true(stats.idle.num_wake_failures == 2 && stats.idle.num_wakes == 1);
    assert_int_equal(stats.finished[FINISH_ASLEEP], 2);
    sem_post(&sleeper.may_sleep);
    stop_sleeper(&f);
}

/* It is told to sleep the moment that it is awake, before its thread has gone on. */
static void test_it_sleeps_right_after_waking(void **state) {
    struct fixture f;
    struct engine_config config;
    start_sleeper(&f, &config, false, 0, SEM_VALUE_MAX);
    for (int i = 0; i < 3000; i++) {
        assert_true(sleep_engine(&f, i % 3 == 0));
        while (engine_get_rest(f.engine).rest != ENGINE_ASLEEP)
            continue;
        assert_true(atomic_load(&sleeper.is_asleep));
        wake_engine(&f);
        while (engine_get_rest(f.engine).rest != ENGINE_AWAKE)
            continue;
        assert_false(atomic_load(&sleeper.is_asleep));
    }
    assert_true(engine_get_rest(f.engine).num_slept == 3000);
    answer_one(&f, 10);
    stop_sleeper(&f);
}

#define ORDERS 4000

struct controller {
    struct fixture *fixture;
    uint64_t seed;
};

/* Whatever it is doing. */
static void *sleep_and_wake_at_random(void *argument) {
    const struct controller *controller = argument;
    struct random random = random_from(controller->seed);
    for (int i = 0; i < ORDERS; i++) {
        int32_t chosen = random_range(&random, 0, 3);
        if (chosen < 2)
            sleep_engine(controller->fixture, chosen == 1);
        else
            wake_engine(controller->fixture);
        if (random_range(&random, 0, 3) == 0)
            usleep((useconds_t)random_range(&random, 0, 60));
    }
    return NULL;
}

/* Requests beside: each that is taken ends, and by itself where the executor wakes. */
static void test_sleep_and_wake_in_every_order(void **state) {
    struct controller controllers[] = {{NULL, 1}, {NULL, 2}, {NULL, 3}};
    pthread_t threads[3];
    struct fixture f;
    struct engine_config config;
    int num_taken = 0, num_refused = 0, num_asleep = 0;
    start_sleeper(&f, &config, false, 1, SEM_VALUE_MAX);
    f.executor.delay_us = 10;
    for (int i = 0; i < 3; i++) {
        controllers[i].fixture = &f;
        pthread_create(&threads[i], NULL, sleep_and_wake_at_random, &controllers[i]);
    }
    for (int i = 0; i < 400; i++) {
        struct stream_checker checker;
        struct request *request = plain_request(5, 4);
        watch(&checker, request);
        atomic_store(&sleeper.num_waking_failures, i % 5 == 0);
        if (engine_submit(f.engine, request) == SUBMIT_OK) {
            while (!stream_checker_is_done(&checker)) {
                wake_engine(&f); /* somebody may have put it to sleep before it began */
                usleep(50);
                read_ready(&f);
            }
            num_taken++;
            num_asleep += checker.choices[0].finish == FINISH_ASLEEP;
            assert_true(checker.choices[0].finish == FINISH_ASLEEP ||
                        checker.choices[0].finish == FINISH_LENGTH);
        } else {
            num_refused++;
            usleep(100);
        }
        stream_checker_finish(&checker);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&sleeper.num_waking_failures, 0);
    wake_engine(&f);
    answer_one(&f, 10);
    struct engine_rest_view view = engine_get_rest(f.engine);
    print_message("# %d taken (%d not woken), %d refused, slept %llu times\n", num_taken,
                  num_asleep, num_refused, (unsigned long long)view.num_slept);
    assert_true(num_taken > 0 && num_refused > 0 && view.num_slept > 0);
    stop_sleeper(&f);
}

/* One stream of six choices soon holds too much. */
static struct request *stalling_request(void) {
    struct random random = random_from(1);
    struct request_shape shape = {1, 1, 1, SAMPLE_MAX_LOGPROBS, SAMPLE_MAX_LOGPROBS};
    struct request *request = random_request(&random, &shape);
    request->params.num_choices = 6;
    request->params.max_tokens = 90;
    request->params.num_logprobs = SAMPLE_MAX_LOGPROBS;
    request->params.ignore_eos = true;
    request->params.num_stop_strings = 0;
    request->params.num_stop_tokens = 0;
    return request;
}

/* A reader that goes away for a while: its request stops, keeps what it has, and continues when it
 * is read. Only the reader's call wakes the engine, which sleeps by then. */
static void test_stalled_reader_resumes(void **state) {
    struct stream_checker checker;
    struct fixture f;
    struct engine_config config = base_config(&f);
    f.limits.max_num_batched_tokens = 128;
    start(&f, &config, 0, 0);
    struct request *request = stalling_request();
    watch(&checker, request);
    assert_int_equal(engine_submit(f.engine, request), SUBMIT_OK);
    struct engine_stats before, after;
    while (token_stream_pending_bytes(&request->stream) <= TOKEN_STREAM_STALL_BYTES)
        usleep(100);
    do { /* until it stands still */
        engine_get_stats(f.engine, &before);
        usleep(5000);
        engine_get_stats(f.engine, &after);
    } while (before.step != after.step || after.has_work);
    assert_false(engine_is_idle(f.engine));
    read_until_done(&f, 1);
    idle_stats(&f);
    stop(&f);
    stream_checker_finish(&checker);
}

/* Nobody reads it and nothing else runs: the engine must wake by itself to end it. */
static void test_deadline_of_a_stalled_request(void **state) {
    struct stream_checker checker;
    struct fixture f;
    struct engine_config config = base_config(&f);
    f.limits.max_num_batched_tokens = 128;
    start(&f, &config, 0, 0);
    struct request *request = stalling_request();
    request->deadline_ns = clock_now_ns() + 200 * CLOCK_NS_PER_MS;
    watch(&checker, request);
    assert_int_equal(engine_submit(f.engine, request), SUBMIT_OK);
    struct engine_stats stats = idle_stats(&f);
    assert_true(stats.finished[FINISH_DEADLINE] > 0);
    assert_true(stats.finished[FINISH_DEADLINE] + stats.finished[FINISH_LENGTH] == 6);
    assert_int_equal(read_ready(&f), 1);
    stop(&f);
    stream_checker_finish(&checker);
}

static void test_cancel_frees_blocks(void **state) {
    struct stream_checker checker;
    struct fixture f;
    struct engine_config config = base_config(&f);
    start(&f, &config, 500, 0);
    watch(&checker, plain_request(20, 70));
    assert_int_equal(engine_submit(f.engine, checker.request), SUBMIT_OK);
    sem_wait(&f.woken);
    engine_cancel(f.engine, checker.request);
    idle_stats(&f);
    read_ready(&f);
    assert_int_equal(checker.choices[0].finish, FINISH_ABORT);
    stop(&f);
    stream_checker_finish(&checker);
}

static void test_bad_config(void **state) {
    struct fixture f;
    struct engine_config config = base_config(&f);
    struct engine *engine = NULL;
    struct error err;
    f.limits.max_num_batched_tokens = 7;
    assert_int_equal(engine_create(&config, NULL, fake_tokenizer(), &engine, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, "max-num-batched-tokens is 7"));
    assert_null(engine);
    engine_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_destroy_with_work_in_flight),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_choices_are_bounded),
        cmocka_unit_test(test_device_failure),
        cmocka_unit_test(test_stalled_reader_resumes),
        cmocka_unit_test(test_deadline_of_a_stalled_request),
        cmocka_unit_test(test_cancel_frees_blocks),
        cmocka_unit_test(test_bad_config),
        cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_the_cache_is_empty_after_sleep),
        cmocka_unit_test(test_a_sleep_is_called_off),
        cmocka_unit_test(test_it_cannot_wake),
        cmocka_unit_test(test_weights_go_later),
        cmocka_unit_test(test_it_falls_asleep_by_itself),
        cmocka_unit_test(test_idleness_begins_with_the_last_request),
        cmocka_unit_test(test_requests_race_with_falling_asleep),
        cmocka_unit_test(test_its_own_sleep_is_taken_over),
        cmocka_unit_test(test_requests_cannot_wake_it),
        cmocka_unit_test(test_it_sleeps_right_after_waking),
        cmocka_unit_test(test_sleep_and_wake_in_every_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
