/* Whatever a batch says lies in its arena, at no address of its own: an executor that is sent
 * copies of the bytes, and runs them while the originals are overwritten, answers what one does
 * that reads the originals. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/core/engine_core.h"
#include "tests/sim/fake_executor.h"
#include "tests/sim/fake_lora.h"
#include "tests/unit/engine/sequence_fixture.h"

#include <stdlib.h>
#include <string.h>

#define NUM_REQUESTS 4
#define MAX_TOKENS 12
#define NUM_SLOTS 2

static const struct serving_limits limits = {.max_num_seqs = 8,
                                             .max_num_batched_tokens = 24,
                                             .max_model_len = 64,
                                             .block_size = 4,
                                             .num_blocks = 40,
                                             .num_host_blocks = 8,
                                             .vocab_size = FAKE_VOCAB_SIZE,
                                             .hidden_size = FAKE_HIDDEN_SIZE};

/* What the fake executor reads: the originals; the bytes of all of their memory; or just what their
 * batch has, in memory of just that size. */
enum way { ORIGINALS, COPIES, EXTENTS };

/* Runs one step at a time on the fake executor. */
struct remote {
    struct executor base;
    struct fake_executor fake;
    enum way way;
    void *step_memory; /* of the only step; NULL: not requested */
    struct step *step;
    uint64_t num_steps;
};

static void submit(struct executor *executor, const struct batch *batch,
                   struct step_result *result) {
    struct remote *remote = (struct remote *)executor;
    remote->step = (struct step *)((char *)batch - offsetof(struct step, batch));
    remote->num_steps++;
}

static int run(struct remote *remote, const struct batch *batch, struct step_result *result,
               struct error *err) {
    const struct executor_ops *ops = remote->fake.base.ops;
    ops->submit(&remote->fake.base, batch, result);
    return ops->wait(&remote->fake.base, err);
}

#define ASSERT_SAME(member, count)                                                                 \
    assert_memory_equal(from->member, copy.member, (size_t)(count) * sizeof(*copy.member))

/* A copy that has just what ranks other than the first read, in memory of just that size. */
static void check_small_copy(const struct batch_arena *from) {
    struct batch_capacity shape = batch_arena_shape(from);
    size_t bytes = batch_arena_bytes(&shape);
    const struct batch_counts *counts = from->counts;
    struct batch_arena copy;
    batch_arena_bind(&copy, &shape, aligned_alloc(64, bytes));
    batch_arena_copy(from, &shape, &copy);
    ASSERT_SAME(counts, 1);
    ASSERT_SAME(token_ids, counts->num_tokens);
    ASSERT_SAME(token_rows, counts->has_token_rows ? counts->num_tokens : 0);
    ASSERT_SAME(positions, counts->num_tokens);
    ASSERT_SAME(slot_mapping, counts->num_tokens);
    ASSERT_SAME(query_start, counts->num_seqs + 1);
    ASSERT_SAME(context_lens, counts->num_seqs);
    ASSERT_SAME(block_tables, counts->num_seqs * counts->max_blocks_per_seq);
    ASSERT_SAME(swap_out_to, counts->num_swap_out);
    ASSERT_SAME(swap_in_from, counts->num_swap_in);
    ASSERT_SAME(copy_to, counts->num_copies);
    ASSERT_SAME(logit_rows, counts->num_sample_rows);
    ASSERT_SAME(adapter_slots, counts->has_adapters ? counts->num_seqs : 0);
    ASSERT_SAME(adapter_writes, counts->num_adapter_writes);
    ASSERT_SAME(adapter_data, counts->adapter_bytes);
    free(copy.memory);
}

static struct batch_capacity capacity_of_step(void) {
    const struct lora_shape shape = fake_lora_shape(NUM_SLOTS);
    struct batch_capacity capacity = step_batch_capacity(&limits, fake_tokenizer());
    adapter_slots_add_capacity(NULL, &shape, &capacity);
    return capacity;
}

/* Only the results come back. */
static int run_copy(struct remote *remote, struct error *err) {
    const struct batch_capacity capacity = capacity_of_step();
    size_t bytes = step_memory_bytes(&capacity), arena_bytes = batch_arena_bytes(&capacity);
    size_t results = step_result_offset(&capacity);
    char *original = remote->step->arena.memory, *sent = aligned_alloc(64, bytes);
    char *kept = malloc(arena_bytes);
    struct batch_arena arena;
    struct step_result result;
    check_small_copy(&remote->step->arena);
    memcpy(kept, original, arena_bytes);
    memcpy(sent, original, arena_bytes);
    memset(original, 0xa5, bytes);
    step_memory_bind(&capacity, sent, &arena, &result);
    const struct batch batch = batch_arena_view(&arena);
    int status = run(remote, &batch, &result, err);
    memcpy(original, kept, arena_bytes);
    memcpy(original + results, sent + results, bytes - results);
    remote->step->result.num_sample_rows = result.num_sample_rows;
    free(kept);
    free(sent);
    return status;
}

static int run_extent(struct remote *remote, struct error *err) {
    const struct batch_capacity capacity = capacity_of_step();
    const struct batch_capacity extent = batch_arena_extent(&remote->step->arena, &capacity);
    size_t arena_bytes = batch_arena_bytes(&capacity);
    char *original = remote->step->arena.memory, *kept = malloc(arena_bytes);
    void *sent = aligned_alloc(64, step_memory_bytes(&extent));
    struct batch_arena arena;
    struct step_result result;
    step_memory_bind(&extent, sent, &arena, &result);
    batch_arena_copy(&remote->step->arena, &extent, &arena);
    memcpy(kept, original, arena_bytes);
    memset(original, 0xa5, step_memory_bytes(&capacity));
    const struct batch batch = batch_arena_view(&arena);
    int status = run(remote, &batch, &result, err);
    memcpy(original, kept, arena_bytes);
    step_result_copy(&result, &extent, &remote->step->result);
    assert_int_equal(remote->step->result.num_sample_rows, result.num_sample_rows);
    free(kept);
    free(sent);
    return status;
}

static int wait(struct executor *executor, struct error *err) {
    struct remote *remote = (struct remote *)executor;
    if (remote->way == ORIGINALS)
        return run(remote, &remote->step->batch, &remote->step->result, err);
    return remote->way == COPIES ? run_copy(remote, err) : run_extent(remote, err);
}

static void supply(struct executor *executor) {
    fail_msg("no batch has late inputs");
}

static void destroy(struct executor *executor) {
}

static int step_memory(struct executor *executor, const struct batch_capacity *capacity,
                       void **out) {
    struct remote *remote = (struct remote *)executor;
    assert_null(remote->step_memory);
    *out = remote->step_memory = aligned_alloc(64, step_memory_bytes(capacity));
    return *out != NULL ? 0 : -1;
}

static int64_t read_clock(void *context) {
    return 1;
}

static void ignore(void *context, struct request *request) {
}

/* Every feature that brings an array of the batch with it. */
static struct sampling_params params_of(int index, struct token_bias *bias) {
    static const int32_t listed[] = {7, 9, 11};
    struct sampling_params params = fixture_params(MAX_TOKENS);
    params.seed = (uint64_t)index;
    *bias = (struct token_bias){.token = 5, .bias = 1.5f};
    if (index % 2 == 0) {
        params.settings.repetition_penalty = 1.5f;
        params.num_biases = 1;
        params.biases = bias;
        params.num_choices = 2;
    }
    if (index == 1) {
        params.num_prompt_logprobs = 2;
        params.num_logprobs = 0;
        params.num_logprob_tokens = 3;
        params.logprob_tokens = listed;
    }
    if (index == 3) {
        params.num_allowed_tokens = 3;
        params.allowed_tokens = listed;
    }
    return params;
}

static struct adapter *load(struct engine_core *core, int32_t slot) {
    struct adapter *adapter = fake_lora_adapter("a", (uint64_t)slot + 1);
    engine_core_load_adapter(core, slot, adapter, false);
    adapter_unref(adapter); /* the core has one */
    return adapter;
}

static int32_t run_requests(enum way way, int32_t *tokens) {
    static const struct executor_ops ops = {
        .submit = submit,
        .supply = supply,
        .wait = wait,
        .destroy = destroy,
        .step_memory = step_memory,
        .check = executor_keeps_ranks,
        .restart = executor_cannot_start_again,
        .sleep = executor_cannot_sleep,
        .wake = executor_cannot_start_again,
        .rank_stats = executor_has_no_stats,
        .host_pools = executor_shares_no_host_pools,
    };
    static struct engine_core core;
    struct remote remote = {.base = {.ops = &ops}, .way = way};
    const struct engine_core_config config = {.schedule.kv.limits = &limits,
                                              .schedule.kv.num_tenants = 1,
                                              .schedule.kv.caching = true,
                                              .lora = fake_lora_shape(NUM_SLOTS),
                                              .stall_timeout_ns = INT64_MAX / 4,
                                              .clock = read_clock,
                                              .notify = ignore};
    struct error err;
    fake_executor_init(&remote.fake, limits.num_blocks, limits.block_size,
                       limits.max_num_batched_tokens);
    fake_executor_add_host(&remote.fake, limits.num_host_blocks);
    assert_int_equal(engine_core_init(&core, &config, &remote.base, fake_tokenizer(), &err), 0);
    struct adapter *used = load(&core, 1), *other;
    while (engine_core_step(&core))
        ;
    assert_int_equal(atomic_load(&used->state), ADAPTER_READY);
    other = load(&core, 0); /* while the requests run */
    struct request *requests[NUM_REQUESTS];
    for (int i = 0; i < NUM_REQUESTS; i++) {
        static const int32_t prompt[] = {3, 4, 5, 6, 7, 8, 9, 10, 11};
        struct token_bias bias;
        const struct sampling_params params = params_of(i, &bias);
        requests[i] = request_create(prompt, 9 - i, &params);
        requests[i]->id = (uint64_t)i + 1;
        if (i % 2 == 1)
            request_set_adapter(requests[i], used);
        engine_core_add(&core, requests[i]);
    }
    while (engine_core_step(&core))
        ;
    assert_false(core.failed);
    int32_t count = 0;
    for (int i = 0; i < NUM_REQUESTS; i++) {
        struct token_buffer events = {0};
        token_stream_take(&requests[i]->stream, &events);
        struct token_event event;
        while (token_buffer_next(&events, &event))
            for (int32_t t = 0; t < event.num_tokens; t++)
                tokens[count++] = event.tokens[t].token;
        token_buffer_finish(&events);
        request_unref(requests[i]);
    }
    assert_int_equal(atomic_load(&other->state), ADAPTER_READY);
    assert_true(remote.fake.num_adapted > 0 &&
                remote.fake.num_written > remote.fake.num_written_idle);
    assert_true(remote.num_steps > MAX_TOKENS);
    assert_ptr_equal(remote.step->arena.memory, remote.step_memory);
    engine_core_finish(&core);
    free(remote.step_memory);
    fake_executor_finish(&remote.fake);
    return count;
}

static void test_a_copy_means_the_same(void **state) {
    int32_t originals[256], copies[256];
    int32_t count = run_requests(ORIGINALS, originals);
    assert_true(count > NUM_REQUESTS * MAX_TOKENS);
    for (enum way way = COPIES; way <= EXTENTS; way++) {
        assert_int_equal(run_requests(way, copies), count);
        assert_memory_equal(originals, copies, (size_t)count * sizeof(*copies));
    }
}

static void test_a_size_beyond_memory(void **state) {
    struct batch_capacity capacity = step_batch_capacity(&limits, fake_tokenizer());
    struct batch_arena arena = {0};
    capacity.num_counts = SIZE_MAX / 4;
    assert_true(batch_arena_bytes(&capacity) == SIZE_MAX);
    assert_true(step_memory_bytes(&capacity) == SIZE_MAX);
    assert_int_equal(batch_arena_init(&arena, &capacity), -1);
    batch_arena_finish(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_copy_means_the_same),
        cmocka_unit_test(test_a_size_beyond_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
