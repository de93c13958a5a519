/* What block moves and steps do not wait for, by the simulator's record of what ran when: in
 * reverse order a move runs before the step ahead of it unless it has to wait, in forward order
 * after the step behind it unless that has to. */
#include "kernels/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <cupti.h>
#include <dlfcn.h>

enum { BLOCK_SIZE = 16, BLOCKS = 8, HEAD_DIM = 64, BUFFER_BYTES = 1 << 16 };

static const int32_t numbers[BLOCKS] = {0, 1, 2, 3, 4, 5, 6, 7};

/* --- The record --- */

/* Of the module, which has a simulator of its own. */
static struct simulator {
    __typeof__(&cuptiActivityRegisterCallbacks) register_callbacks;
    __typeof__(&cuptiActivityEnable) enable;
    __typeof__(&cuptiActivityFlushAll) flush;
    __typeof__(&cuptiActivityGetNextRecord) next_record;
    int (*set_order)(const char *spelling);
} simulator;

/* Places in the order in which work ran, 0: it did not. */
static struct {
    int num_records;
    int move, step;
    uint32_t move_stream, step_stream;
} ran;

static void give_buffer(uint8_t **buffer, size_t *size, size_t *max_records) {
    *buffer = malloc(BUFFER_BYTES);
    *size = BUFFER_BYTES;
    *max_records = 0;
}

static void read_record(const CUpti_Activity *record) {
    ran.num_records++;
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy6 *moved = (const void *)record;
        ran.move = ran.num_records;
        ran.move_stream = moved->streamId;
    } else {
        const CUpti_ActivityKernel10 *kernel = (const void *)record;
        if (strstr(kernel->name, "rope_store") == NULL)
            return;
        ran.step = ran.num_records;
        ran.step_stream = kernel->streamId;
    }
}

static void take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                        size_t valid) {
    (void)context, (void)stream, (void)size;
    CUpti_Activity *record = NULL;
    while (simulator.next_record(buffer, valid, &record) == CUPTI_SUCCESS)
        read_record(record);
    free(buffer);
}

static void *look_up(void *module, const char *name) {
    void *found = dlsym(module, name);
    assert_non_null(found);
    return found;
}

static void start_recording(void) {
    void *module = dlopen("libquire-cuda-sim.so", RTLD_LAZY | RTLD_NOLOAD);
    assert_non_null(module);
    simulator = (struct simulator){
        .register_callbacks = look_up(module, "cuptiActivityRegisterCallbacks"),
        .enable = look_up(module, "cuptiActivityEnable"),
        .flush = look_up(module, "cuptiActivityFlushAll"),
        .next_record = look_up(module, "cuptiActivityGetNextRecord"),
        .set_order = look_up(module, "cudasim_set_order"),
    };
    assert_int_equal(simulator.register_callbacks(give_buffer, take_buffer), CUPTI_SUCCESS);
    assert_int_equal(simulator.enable(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_SUCCESS);
    assert_int_equal(simulator.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
}

/* --- Steps and moves --- */

struct parts {
    struct backend *backend;
    struct kv_cache cache;
    struct buffer host_pool, qkv;
};

static void parts_init(struct parts *p) {
    static const struct backend_config config = {.limits.max_num_batched_tokens = 8,
                                                 .limits.max_num_seqs = 2,
                                                 .limits.max_model_len = BLOCK_SIZE,
                                                 .limits.block_size = BLOCK_SIZE,
                                                 .limits.max_logit_rows = 8,
                                                 .limits.vocab_size = 100,
                                                 .activation_dtype = DTYPE_BF16,
                                                 .head_dim = HEAD_DIM,
                                                 .num_q_heads = 1,
                                                 .num_kv_heads = 1};
    const struct kv_layout layout = {.num_layers = 1,
                                     .num_kv_heads = 1,
                                     .head_dim = HEAD_DIM,
                                     .block_size = BLOCK_SIZE,
                                     .type = KV_BF16};
    struct error err = {0};
    struct backend *b = backend_open("cuda-sim", &config, &err);
    if (b == NULL)
        fail_msg("%s", err.message);
    *p = (struct parts){.backend = b, .cache = {.layout = layout, .num_blocks = BLOCKS}};
    size_t bytes = BLOCKS * kv_block_bytes(&layout);
    assert_int_equal(b->ops->buffer_alloc(b, bytes, &p->cache.buffer, NULL), 0);
    assert_int_equal(b->ops->buffer_alloc(b, sizeof(uint16_t) * 3 * HEAD_DIM, &p->qkv, NULL), 0);
    assert_int_equal(b->ops->host_alloc(b, bytes, &p->host_pool, NULL), 0);
    start_recording();
}

static void parts_finish(struct parts *p) {
    struct backend *b = p->backend;
    b->ops->host_free(b, &p->host_pool);
    b->ops->buffer_free(b, &p->qkv);
    b->ops->buffer_free(b, &p->cache.buffer);
    backend_close(b);
}

static void enqueue_move(struct parts *p, enum swap_direction direction, int32_t block) {
    p->backend->ops->swap_blocks(p->backend,
                                 &(struct swap_blocks_args){.cache = &p->cache,
                                                            .host_pool = p->host_pool.data,
                                                            .direction = direction,
                                                            .device_blocks = &numbers[block],
                                                            .host_blocks = &numbers[block],
                                                            .num_blocks = 1});
}

/* Of one token, in block 0. */
static void enqueue_step(struct parts *p) {
    static const int32_t zeros[1], query_start[] = {0, 1}, context_lens[] = {1};
    struct backend *b = p->backend;
    b->ops->step_begin(b, &(struct step_inputs){.num_tokens = 1,
                                                .num_seqs = 1,
                                                .max_blocks_per_seq = 1,
                                                .token_ids = zeros,
                                                .positions = zeros,
                                                .slot_mapping = zeros,
                                                .query_start = query_start,
                                                .context_lens = context_lens,
                                                .block_tables = zeros});
    b->ops->rope_store_kv(
        b, &(struct rope_store_args){.qkv = p->qkv.data, .cache = &p->cache, .num_q_heads = 1});
}

static void wait_for_step(struct parts *p) {
    assert_int_equal(p->backend->ops->step_wait(p->backend, NULL), 0);
}

static void read_order(void) {
    memset(&ran, 0, sizeof(ran));
    assert_int_equal(simulator.flush(0), CUPTI_SUCCESS);
    assert_true(ran.move > 0 && ran.step > 0);
    assert_int_not_equal(ran.move_stream, ran.step_stream);
}

/* --- Tests --- */

/* A move of the next step, given while this one is in flight. */
static bool moves_before_running_step(struct parts *p, enum swap_direction direction,
                                      int32_t block) {
    assert_int_equal(simulator.set_order("reverse"), 0);
    enqueue_step(p);
    p->backend->ops->step_end(p->backend);
    enqueue_move(p, direction, block);
    wait_for_step(p);
    p->backend->ops->step_end(p->backend);
    wait_for_step(p);
    read_order();
    return ran.move < ran.step;
}

static bool moves_before_own_step(struct parts *p, enum swap_direction direction, int32_t block) {
    assert_int_equal(simulator.set_order("forward"), 0);
    enqueue_move(p, direction, block);
    enqueue_step(p);
    p->backend->ops->step_end(p->backend);
    wait_for_step(p);
    read_order();
    return ran.move < ran.step;
}

static void test_moves_do_not_wait(void **state) {
    struct parts *p = *state;
    moves_before_running_step(p, SWAP_IN, 5); /* waits for the new memory to be zeroed */
    for (enum swap_direction direction = SWAP_OUT; direction <= SWAP_IN; direction++) {
        assert_true(moves_before_running_step(p, direction, 5));
        assert_false(moves_before_running_step(p, direction, 0));
    }
}

static void test_steps_do_not_wait(void **state) {
    struct parts *p = *state;
    for (enum swap_direction direction = SWAP_OUT; direction <= SWAP_IN; direction++) {
        assert_false(moves_before_own_step(p, direction, 5));
        assert_true(moves_before_own_step(p, direction, 0));
    }
}

static int set_up(void **state) {
    static struct parts parts;
    parts_init(&parts);
    *state = &parts;
    return 0;
}

static int tear_down(void **state) {
    parts_finish(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_moves_do_not_wait),
                                       cmocka_unit_test(test_steps_do_not_wait)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
