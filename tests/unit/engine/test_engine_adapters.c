/* Adapters on the engine's thread, with the fake executor, which sees that each sequence is
 * computed with its own, wholly written (tests/sim/fake_forward.c): loaded and unloaded beside
 * streams, of which every token is compared with the oracle, and across sleep and lost ranks. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/engine.h"
#include "tests/sim/fake_executor.h"
#include "tests/sim/fake_lora.h"
#include "tests/sim/fake_tokenizer.h"
#include "tests/sim/stream_checker.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_MODEL_LEN 400
#define NUM_SLOTS 3

struct fixture {
    struct serving_limits limits;
    struct fake_executor executor;
    struct executor_ops ops; /* its own, and sleep */
    struct engine *engine;
    sem_t woken;
    atomic_bool loses_ranks; /* with the next step */
};

static void wake(void *context) {
    sem_post(context);
}

static uint64_t adapter_of(void *context, const struct batch *batch, int32_t seq) {
    const struct step *step =
        (const struct step *)((const char *)batch - offsetof(struct step, batch));
    const struct adapter *adapter = step->plan.entries[seq].sequence->request->adapter;
    return adapter != NULL ? fake_lora_number(adapter) : 0;
}

static bool loses_ranks(void *context, const struct batch *batch) {
    struct fixture *f = context;
    return batch != NULL && atomic_exchange(&f->loses_ranks, false);
}

static void fall_asleep(struct executor *executor, bool discards_weights) {
    fake_executor_drop_adapters((struct fake_executor *)executor);
}

static int wake_up(struct executor *executor, struct error *err) {
    return 0;
}

static void start(struct fixture *f, int64_t sleep_idle_ms, int32_t delay_us) {
    struct error err = {0};
    *f = (struct fixture){
        .limits = {.max_num_seqs = 8,
                   .max_num_batched_tokens = 32,
                   .max_model_len = MAX_MODEL_LEN,
                   .block_size = 4,
                   .num_blocks = 500,
                   .vocab_size = FAKE_VOCAB_SIZE,
                   .hidden_size = FAKE_HIDDEN_SIZE},
    };
    const struct engine_config config = {
        .core = {.schedule.kv = {.limits = &f->limits, .caching = true},
                 .lora = fake_lora_shape(NUM_SLOTS),
                 .async_scheduling = true,
                 .stall_timeout_ns = 60000 * CLOCK_NS_PER_MS},
        .max_queued_requests = 1000,
        .max_queued_tokens = 100000,
        .sleep_idle_ms = sleep_idle_ms,
        .wake = wake,
        .wake_context = &f->woken,
    };
    sem_init(&f->woken, 0, 0);
    fake_executor_init(&f->executor, f->limits.num_blocks, f->limits.block_size,
                       f->limits.max_num_batched_tokens);
    f->executor.adapter_of = adapter_of;
    f->executor.loses_ranks = loses_ranks;
    f->executor.context = f;
    f->executor.delay_us = delay_us;
    f->ops = *f->executor.base.ops;
    f->ops.sleep = fall_asleep;
    f->ops.wake = wake_up;
    f->executor.base.ops = &f->ops;
    f->executor.base.can_sleep = true;
    if (engine_create(&config, &f->executor.base, fake_tokenizer(), &f->engine, &err) != 0)
        fail_msg("%s", err.message);
}

/* Nothing is left of any adapter. */
static void stop(struct fixture *f) {
    engine_destroy(f->engine);
    assert_string_equal(f->executor.violation, "");
    fake_executor_finish(&f->executor);
    sem_destroy(&f->woken);
    assert_int_equal(fake_lora_num_open(), 0);
}

static enum adapter_state state_of(const struct adapter *adapter) {
    return atomic_load(&adapter->state);
}

/* Every change is told. */
static void await_state(struct fixture *f, const struct adapter *adapter,
                        enum adapter_state state) {
    while (state_of(adapter) != state)
        sem_wait(&f->woken);
}

static struct adapter *load(struct fixture *f, uint64_t number) {
    struct adapter *adapter = fake_lora_adapter("adapter", number);
    assert_int_equal(engine_load_adapter(f->engine, adapter), 0);
    return adapter;
}

static struct adapter *load_wholly(struct fixture *f, uint64_t number) {
    struct adapter *adapter = load(f, number);
    await_state(f, adapter, ADAPTER_READY);
    return adapter;
}

static void unload_wholly(struct fixture *f, struct adapter *adapter) {
    engine_unload_adapter(f->engine, adapter);
    await_state(f, adapter, ADAPTER_GONE);
    adapter_unref(adapter);
}

static struct request *request_of(struct adapter *adapter, int32_t num_prompt_tokens,
                                  int32_t max_tokens) {
    int32_t prompt[64];
    for (int32_t i = 0; i < num_prompt_tokens; i++)
        prompt[i] = FAKE_FIRST_PLAIN + i % 7;
    const struct sampling_params params = {
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
    if (adapter != NULL)
        request_set_adapter(request, adapter);
    return request;
}

static void submit(struct fixture *f, struct stream_checker *checker, struct adapter *adapter,
                   int32_t num_prompt_tokens, int32_t max_tokens) {
    struct request *request = request_of(adapter, num_prompt_tokens, max_tokens);
    stream_checker_init(checker, request, MAX_MODEL_LEN, NULL);
    checker->caching = true;
    request->user = checker;
    assert_int_equal(engine_submit(f->engine, request), SUBMIT_OK);
}

static void read_ready(struct fixture *f) {
    struct request *ready[4];
    int count;
    do {
        count = engine_take_ready(f->engine, ready, 4);
        for (int i = 0; i < count; i++) {
            struct stream_checker *checker = ready[i]->user;
            if (!stream_checker_read(checker))
                fail_msg("%s", checker->violation);
            request_unref(ready[i]);
        }
    } while (count == 4);
}

static void read_to_end(struct fixture *f, struct stream_checker *checker) {
    for (read_ready(f); !stream_checker_is_done(checker); read_ready(f))
        sem_wait(&f->woken);
}

static void assert_refused(struct fixture *f, struct adapter *adapter) {
    struct request *request = request_of(adapter, 3, 3);
    assert_int_equal(engine_submit(f->engine, request), SUBMIT_NO_ADAPTER);
    request_unref(request);
}

static void an_idle_engine_loads_one(void **state) {
    struct stream_checker checker;
    struct fixture f;
    start(&f, 0, 0);
    struct adapter *adapter = fake_lora_adapter("a", 7);
    assert_refused(&f, adapter);
    assert_int_equal(engine_load_adapter(f.engine, adapter), 0);
    await_state(&f, adapter, ADAPTER_READY);
    submit(&f, &checker, adapter, 10, 20);
    read_to_end(&f, &checker);
    assert_int_equal(checker.choices[0].finish, FINISH_LENGTH);
    stream_checker_finish(&checker);
    engine_unload_adapter(f.engine, adapter);
    await_state(&f, adapter, ADAPTER_GONE);
    assert_refused(&f, adapter);
    assert_int_equal(atomic_load(&adapter->num_submitted), 1);
    engine_unload_adapter(f.engine, adapter); /* nothing happens */
    adapter_unref(adapter);
    stop(&f);
}

static void slots_are_counted(void **state) {
    struct adapter *adapters[NUM_SLOTS], *more = fake_lora_adapter("more", 9);
    struct fixture f;
    start(&f, 0, 0);
    for (int i = 0; i < NUM_SLOTS; i++)
        adapters[i] = load(&f, (uint64_t)i + 1);
    assert_int_equal(engine_load_adapter(f.engine, more), -1);
    assert_int_equal(state_of(more), ADAPTER_NEW);
    await_state(&f, adapters[1], ADAPTER_READY);
    unload_wholly(&f, adapters[1]);
    assert_int_equal(engine_load_adapter(f.engine, more), 0); /* at once */
    await_state(&f, more, ADAPTER_READY);
    assert_int_equal(more->slot, 1);
    adapter_unref(more);
    adapter_unref(adapters[0]);
    adapter_unref(adapters[2]);
    stop(&f);
}

/* Its requests end as if nothing were; others are refused; the slot is free afterwards. */
static void one_in_use_is_unloaded(void **state) {
    struct stream_checker running, other;
    struct fixture f;
    start(&f, 0, 200);
    struct adapter *adapter = load_wholly(&f, 1);
    submit(&f, &running, adapter, 10, 200);
    submit(&f, &other, NULL, 10, 300);
    while (atomic_load(&adapter->num_running) == 0)
        usleep(100);
    engine_unload_adapter(f.engine, adapter);
    assert_int_equal(state_of(adapter), ADAPTER_UNLOADING);
    assert_refused(&f, adapter);
    read_to_end(&f, &running);
    assert_int_equal(running.choices[0].finish, FINISH_LENGTH);
    await_state(&f, adapter, ADAPTER_GONE);
    assert_int_equal(atomic_load(&adapter->num_running), 0);
    read_to_end(&f, &other);
    stream_checker_finish(&running);
    stream_checker_finish(&other);
    adapter_unref(adapter);
    stop(&f);
}

static void a_cancelled_request_frees_it(void **state) {
    struct stream_checker checker;
    struct fixture f;
    start(&f, 0, 500);
    struct adapter *adapter = load_wholly(&f, 1), *loading = load(&f, 2);
    submit(&f, &checker, adapter, 10, 300);
    engine_unload_adapter(f.engine, adapter);
    engine_cancel(f.engine, checker.request);
    await_state(&f, adapter, ADAPTER_GONE);
    read_to_end(&f, &checker);
    assert_int_equal(checker.choices[0].finish, FINISH_ABORT);
    await_state(&f, loading, ADAPTER_READY);
    stream_checker_finish(&checker);
    adapter_unref(adapter);
    adapter_unref(loading);
    stop(&f);
}

/* Requests of several adapters, and without one, run all the time. */
static void a_thousand_come_and_go_beside_streams(void **state) {
    enum { STREAMS = 4 };
    struct stream_checker checkers[STREAMS];
    struct adapter *kept[2];
    struct fixture f;
    int num_streams = 0, num_loading = 0;
    start(&f, 0, 0);
    kept[0] = load_wholly(&f, 1);
    kept[1] = load_wholly(&f, 2);
    for (int i = 0; i < STREAMS; i++)
        submit(&f, &checkers[i], i < 2 ? kept[i] : NULL, 5 + i, 380);
    for (int i = 0; i < 1000; i++) {
        struct adapter *adapter = fake_lora_adapter("passing", 3 + (uint64_t)i);
        struct stream_checker own;
        assert_int_equal(engine_load_adapter(f.engine, adapter), 0);
        bool is_used = i % 3 == 0;
        if (is_used || i % 3 == 1)
            await_state(&f, adapter, ADAPTER_READY);
        num_loading += state_of(adapter) == ADAPTER_LOADING;
        if (is_used)
            submit(&f, &own, adapter, 6, i % 30);
        unload_wholly(&f, adapter_ref(adapter));
        if (is_used) {
            read_to_end(&f, &own);
            stream_checker_finish(&own);
        }
        adapter_unref(adapter);
        read_ready(&f);
        for (int s = 0; s < STREAMS; s++) {
            if (!stream_checker_is_done(&checkers[s]))
                continue;
            assert_int_equal(checkers[s].choices[0].finish, FINISH_LENGTH);
            stream_checker_finish(&checkers[s]);
            submit(&f, &checkers[s], s < 2 ? kept[s] : NULL, 5 + s, 380);
            num_streams++;
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        read_to_end(&f, &checkers[i]);
        stream_checker_finish(&checkers[i]);
    }
    print_message("# %d streams ended beside, %d unloaded while loading, %llu pieces in steps with "
                  "tokens\n",
                  num_streams, num_loading,
                  (unsigned long long)(f.executor.num_written - f.executor.num_written_idle));
    assert_true(f.executor.num_written > f.executor.num_written_idle);
    unload_wholly(&f, kept[0]);
    unload_wholly(&f, kept[1]);
    stop(&f);
}

static uint64_t prefix_hits_of(struct fixture *f, struct adapter *adapter) {
    struct stream_checker checker;
    struct engine_stats before, after;
    engine_get_stats(f->engine, &before);
    submit(f, &checker, adapter, 33, 4);
    read_to_end(f, &checker);
    while (!engine_is_idle(f->engine))
        usleep(100);
    engine_get_stats(f->engine, &after);
    stream_checker_finish(&checker);
    return after.prefix_hits - before.prefix_hits;
}

/* The same numbers are found again, whichever slot they are in. */
static void prefixes_are_found_within_an_adapter_only(void **state) {
    struct fixture f;
    start(&f, 0, 0);
    struct adapter *one = load_wholly(&f, 1), *two = load_wholly(&f, 2), *again = load(&f, 1);
    await_state(&f, again, ADAPTER_READY);
    assert_int_equal(prefix_hits_of(&f, NULL), 0);
    assert_int_equal(prefix_hits_of(&f, one), 0);
    assert_int_equal(prefix_hits_of(&f, two), 0);
    assert_int_equal(prefix_hits_of(&f, NULL), 32);
    assert_int_equal(prefix_hits_of(&f, one), 32);
    assert_int_equal(prefix_hits_of(&f, two), 32);
    assert_int_equal(prefix_hits_of(&f, again), 32);
    unload_wholly(&f, one);
    unload_wholly(&f, two);
    unload_wholly(&f, again);
    stop(&f);
}

/* Those that requests use run on with it; the one that was loading begins again. */
static void lost_ranks_get_it_again(void **state) {
    struct stream_checker checkers[2];
    struct fixture f;
    start(&f, 0, 100);
    struct adapter *adapter = load_wholly(&f, 1);
    submit(&f, &checkers[0], adapter, 10, 300);
    submit(&f, &checkers[1], NULL, 10, 300);
    while (atomic_load(&adapter->num_running) == 0)
        usleep(100);
    struct adapter *loading = load(&f, 2);
    atomic_store(&f.loses_ranks, true);
    for (int i = 0; i < 2; i++) {
        read_to_end(&f, &checkers[i]);
        assert_int_equal(checkers[i].choices[0].finish, FINISH_LENGTH);
        stream_checker_finish(&checkers[i]);
    }
    await_state(&f, loading, ADAPTER_READY);
    assert_int_equal(f.executor.num_losses, 1);
    unload_wholly(&f, adapter);
    unload_wholly(&f, loading);
    stop(&f);
}

static void await_rest(struct fixture *f, enum engine_rest rest) {
    while (engine_get_rest(f->engine).rest != rest)
        sem_wait(&f->woken);
}

/* What is loaded or unloaded meanwhile is so afterwards. */
static void sleep_keeps_them(void **state) {
    struct engine_rest_view view;
    struct stream_checker checker;
    struct fixture f;
    start(&f, 0, 0);
    struct adapter *kept = load_wholly(&f, 1), *unloaded = load_wholly(&f, 2);
    assert_true(engine_sleep(f.engine, true, &view));
    await_rest(&f, ENGINE_ASLEEP);
    struct adapter *loaded = load(&f, 3);
    engine_unload_adapter(f.engine, unloaded);
    usleep(20000);
    assert_int_equal(engine_get_rest(f.engine).rest, ENGINE_ASLEEP);
    assert_int_equal(state_of(loaded), ADAPTER_LOADING);
    engine_wake(f.engine, &view);
    await_state(&f, loaded, ADAPTER_READY);
    await_state(&f, unloaded, ADAPTER_GONE);
    submit(&f, &checker, kept, 10, 20);
    read_to_end(&f, &checker);
    stream_checker_finish(&checker);
    adapter_unref(unloaded);
    unload_wholly(&f, kept);
    unload_wholly(&f, loaded);
    stop(&f);
}

static void loading_wakes_one_that_sleeps_by_itself(void **state) {
    struct fixture f;
    start(&f, 30, 0);
    await_rest(&f, ENGINE_ASLEEP);
    struct adapter *adapter = load_wholly(&f, 1);
    adapter_unref(adapter);
    stop(&f);
}

static void the_engine_ends_with_one_that_is_loading(void **state) {
    struct fixture f;
    start(&f, 0, 2000);
    adapter_unref(load(&f, 1));
    stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_engine_loads_one),
        cmocka_unit_test(slots_are_counted),
        cmocka_unit_test(one_in_use_is_unloaded),
        cmocka_unit_test(a_cancelled_request_frees_it),
        cmocka_unit_test(a_thousand_come_and_go_beside_streams),
        cmocka_unit_test(prefixes_are_found_within_an_adapter_only),
        cmocka_unit_test(lost_ranks_get_it_again),
        cmocka_unit_test(sleep_keeps_them),
        cmocka_unit_test(loading_wakes_one_that_sleeps_by_itself),
        cmocka_unit_test(the_engine_ends_with_one_that_is_loading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
