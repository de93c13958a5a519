/* How many blocks several ranks get of the memory that they have in common: the least that any of
 * them has found free counts, less what all of them still have to take. What is free is what a test
 * says: backend_open and backend_host_free_bytes are replaced. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/executor.h"

#include <string.h>

#define MODEL_PATH GOLDEN_DIR "/tiny-f32.gguf"

enum { NUM_RANKS = 2, BLOCK_SIZE = 16, MAX_SEQS = 32, GIB = 1 << 30 };
enum { BLOCK_BYTES = 8192, NUM_BLOCKS = 50 }; /* of both ranks; fewer than MAX_SEQS can need */
enum { SEQ_BLOCKS = 4, OTHER_BLOCKS = NUM_BLOCKS - SEQ_BLOCKS };

/* --- Memory at hand --- */

static struct {
    struct backend_ops ops[NUM_RANKS];
    size_t free_bytes[NUM_RANKS]; /* as each finds it */
    size_t host_free_bytes;
} machine;

static void tell_memory(struct backend *b, size_t *out_free, size_t *out_total) {
    *out_free = machine.free_bytes[b->ops - machine.ops];
    *out_total = 4 * (size_t)GIB;
}

struct backend *__real_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err);
struct backend *__wrap_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err);

struct backend *__wrap_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err) {
    struct backend *b = __real_backend_open(name, config, err);
    if (b == NULL)
        return NULL;
    machine.ops[config->rank] = *b->ops;
    machine.ops[config->rank].memory_info = tell_memory;
    b->ops = &machine.ops[config->rank];
    return b;
}

size_t __wrap_backend_host_free_bytes(void);

size_t __wrap_backend_host_free_bytes(void) {
    return machine.host_free_bytes;
}

/* --- Executors --- */

static struct executor_config config_of(const struct model *model) {
    return (struct executor_config){
        .device = "cpu-ref",
        .dtype = DTYPE_AUTO,
        .kv_type = KV_AUTO,
        .quantization = DTYPE_NONE,
        .num_ranks = NUM_RANKS,
        .num_threads = 1,
        .limits = {.max_num_seqs = MAX_SEQS,
                   .max_num_batched_tokens = MAX_SEQS,
                   .max_model_len = SEQ_BLOCKS * BLOCK_SIZE,
                   .block_size = BLOCK_SIZE,
                   .vocab_size = model->config.vocab_size,
                   .hidden_size = model->config.hidden_size},
    };
}

static struct executor_info plan(const struct model *model, const struct executor_config *config) {
    struct executor_info info;
    struct error err = {0};
    if (executor_plan(model, config, &info, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(info.memory.kv_bytes, (size_t)info.limits.num_blocks * BLOCK_BYTES);
    return info;
}

static int32_t num_blocks_created(const struct model *model, const struct executor_config *config) {
    struct executor_info info;
    struct executor *executor;
    struct error err = {0};
    if (executor_create(model, config, &info, &executor, &err) != 0)
        fail_msg("%s", err.message);
    executor->ops->destroy(executor);
    return info.limits.num_blocks;
}

static void assert_plan_refused(const struct model *model, const struct executor_config *config,
                                enum error_code code, const char *piece) {
    struct executor_info info;
    struct error err = {0};
    assert_int_equal(executor_plan(model, config, &info, &err), -1);
    assert_int_equal(err.code, code);
    if (strstr(err.message, piece) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", err.message, piece);
}

static int reset(void **state) {
    for (int32_t r = 0; r < NUM_RANKS; r++)
        machine.free_bytes[r] = GIB;
    machine.host_free_bytes = GIB;
    return 0;
}

/* --- Tests --- */

/* One sequence and a quarter of what is left is for blocks. */
static void test_planned(void **state) {
    const struct executor_config config = config_of(*state);
    const struct executor_memory memory = plan(*state, &config).memory;
    size_t planned_bytes = memory.weight_bytes + memory.workspace_bytes;
    for (int32_t r = 0; r < NUM_RANKS; r++) {
        reset(state);
        machine.free_bytes[r] = planned_bytes + 4 * OTHER_BLOCKS * BLOCK_BYTES;
        assert_int_equal(plan(*state, &config).limits.num_blocks, NUM_BLOCKS);
        machine.free_bytes[r]--;
        assert_int_equal(plan(*state, &config).limits.num_blocks, NUM_BLOCKS - 1);
        machine.free_bytes[r] = planned_bytes - 1;
        assert_plan_refused(*state, &config, ERROR_MEMORY, "out of memory for the weights: ");
    }
}

/* Nothing is left to be taken then. */
static void test_created(void **state) {
    const struct executor_config config = config_of(*state);
    for (int32_t r = 0; r < NUM_RANKS; r++) {
        reset(state);
        machine.free_bytes[r] = 4 * OTHER_BLOCKS * BLOCK_BYTES;
        assert_int_equal(num_blocks_created(*state, &config), NUM_BLOCKS);
        machine.free_bytes[r]--;
        assert_int_equal(num_blocks_created(*state, &config), NUM_BLOCKS - 1);
    }
}

static void count_load(void *context, size_t bytes_read, size_t num_bytes) {
    ++*(int *)context;
}

/* The length that is open takes the blocks that there are; one that is asked for and has no room is
 * refused before weights are read. */
static void test_length(void **state) {
    struct executor_config config = config_of(*state);
    struct executor_info info;
    struct executor *executor;
    struct error err = {0};
    int num_reports = 0;
    config.progress = (struct weights_progress){count_load, &num_reports};
    config.kv_memory_bytes = 3 * BLOCK_BYTES;
    assert_int_equal(executor_create(*state, &config, &info, &executor, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_int_equal(num_reports, 0);
    config.most_model_len = 4 * BLOCK_SIZE;
    config.limits.max_model_len = 0;
    assert_int_equal(plan(*state, &config).limits.max_model_len, 3 * BLOCK_SIZE);
    assert_int_equal(executor_create(*state, &config, &info, &executor, &err), 0);
    executor->ops->destroy(executor);
    assert_true(num_reports > 0);
    assert_int_equal(info.limits.max_model_len, 3 * BLOCK_SIZE);
    assert_int_equal(info.most_model_len, 4 * BLOCK_SIZE);
    config.kv_memory_bytes = 5 * BLOCK_BYTES;
    assert_int_equal(plan(*state, &config).limits.max_model_len, 4 * BLOCK_SIZE);
    config.kv_memory_bytes = BLOCK_BYTES - 1;
    assert_plan_refused(*state, &config, ERROR_CONFIG, "--kv-cache-memory-bytes");
}

/* The host pool has what the KV cache leaves. */
static void test_swap_space(void **state) {
    struct executor_config config = config_of(*state);
    config.kv_memory_bytes = NUM_BLOCKS * BLOCK_BYTES;
    config.swap_bytes = 3 * BLOCK_BYTES;
    machine.host_free_bytes = config.kv_memory_bytes + config.swap_bytes;
    const struct executor_info info = plan(*state, &config);
    assert_int_equal(info.limits.num_blocks, NUM_BLOCKS);
    assert_int_equal(info.limits.num_host_blocks, 3);
    machine.host_free_bytes--;
    assert_plan_refused(*state, &config, ERROR_CONFIG, "--swap-space");
}

static int open_model(void **state) {
    return model_open(MODEL_PATH, (struct model **)state, NULL);
}

static int close_model(void **state) {
    model_close(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_planned, reset),
        cmocka_unit_test_setup(test_created, reset),
        cmocka_unit_test_setup(test_length, reset),
        cmocka_unit_test_setup(test_swap_space, reset),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
