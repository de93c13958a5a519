/* engine_memory_bytes against what engines of several sizes take from the heap when they are
 * created. */
#include "engine/engine.h"

#include "engine/batch/logprob_lists.h"
#include "engine/core/engine_core.h"
#include "engine/sequence/sequence.h"

#include "tests/sim/fake_tokenizer.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void wake(void *context) {
}

static struct serving_limits limits;

static struct engine_config config_of(int32_t scale) {
    limits = (struct serving_limits){
        .max_num_seqs = 4 * scale,
        .max_num_batched_tokens = 32 * scale,
        .max_model_len = 128 * scale,
        .block_size = 16,
        .num_blocks = 1000 * scale,
        .num_host_blocks = 500 * scale,
        .vocab_size = FAKE_VOCAB_SIZE,
        .hidden_size = 64,
    };
    return (struct engine_config){
        .core.schedule.kv.limits = &limits,
        .core.schedule.swap_block_ns = 1000,
        .core.schedule.kv.num_tenants = 1,
        .core.schedule.kv.caching = true,
        .max_queued_requests = 10,
        .max_queued_tokens = 1000,
        .wake = wake,
    };
}

/* Zero where the heap does not say, as under the sanitizers. */
static size_t heap_bytes(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void test_engines_stay_below(void **state) {
    static const struct executor_ops ops = {EXECUTOR_RUNS_STEPS};
    struct executor executor = {.ops = &ops};
    for (int32_t scale = 1; scale <= 16; scale *= 4) {
        const struct engine_config config = config_of(scale);
        struct engine *engine;
        struct error err = {0};
        size_t before = heap_bytes();
        if (engine_create(&config, &executor, fake_tokenizer(), &engine, &err) != 0)
            fail_msg("%s", err.message);
        size_t taken = heap_bytes() - before;
        engine_destroy(engine);
        assert_true(taken <= engine_memory_bytes(&config, fake_tokenizer()));
    }
}

static void test_queue_counts(void **state) {
    struct engine_config config = config_of(1);
    size_t bytes = engine_memory_bytes(&config, fake_tokenizer());
    config.max_queued_tokens += 1000000;
    assert_true(engine_memory_bytes(&config, fake_tokenizer()) - bytes >= 4000000);
    bytes = engine_memory_bytes(&config, fake_tokenizer());
    config.max_queued_requests += 100;
    assert_true(engine_memory_bytes(&config, fake_tokenizer()) - bytes >=
                (size_t)100 * TOKEN_STREAM_STALL_BYTES);
    bytes = engine_memory_bytes(&config, fake_tokenizer());
    config.max_choices += 1000;
    assert_true(engine_memory_bytes(&config, fake_tokenizer()) - bytes >=
                1000 * (sizeof(struct sequence) + sizeof(struct token_event)));
    bytes = engine_memory_bytes(&config, fake_tokenizer());
    limits.vocab_size = 50000;
    assert_true(engine_memory_bytes(&config, fake_tokenizer()) > bytes);
}

/* What another step in flight pushes before a reader is found to be behind. */
static void test_steps_in_flight_count(void **state) {
    struct engine_config config = config_of(1);
    const struct engine_core_config one = {.schedule.kv.limits = &limits,
                                           .schedule.kv.num_tenants = 1},
                                    two = {.schedule.kv.limits = &limits,
                                           .schedule.kv.num_tenants = 1,
                                           .async_scheduling = true};
    size_t bytes = engine_memory_bytes(&config, fake_tokenizer());
    size_t of_step =
        engine_core_bytes(&two, fake_tokenizer()) - engine_core_bytes(&one, fake_tokenizer());
    config.core.async_scheduling = true;
    assert_int_equal(engine_memory_bytes(&config, fake_tokenizer()) - bytes,
                     of_step + logprob_lists_event_bytes(&limits));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engines_stay_below),
        cmocka_unit_test(test_queue_counts),
        cmocka_unit_test(test_steps_in_flight_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
