/* An executor of several ranks: what they hold together, that moved blocks are moved on each of
 * them, where they run, and that whichever fails, and when, all end. backend_open is replaced by
 * one whose ranks fail on request, and the machine has the NUMA nodes that a test says. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/executor/executor.h"
#include "engine/executor/numa_nodes.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_PATH GOLDEN_DIR "/tiny-f32.gguf"
#define MAX_RANKS 3

enum { BLOCK_SIZE = 16, NUM_BLOCKS = 12, VOCAB = 320, MAX_TOKENS = 24, MIB = 1 << 20 };

/* --- Ranks that fail --- */

enum failure {
    NO_FAILURE,
    FAIL_THREAD,
    FAIL_OPEN,
    FAIL_MATRIX,
    FAIL_BUFFER,
    FAIL_POOL,
    FAIL_HOST,
    FAIL_WAIT
};

static struct {
    enum failure failure;
    int32_t rank;        /* that fails */
    atomic_int num_left; /* calls before the one that fails */
    cpu_set_t cpus[MAX_RANKS];
    int num_threads[MAX_RANKS];
    int32_t num_nodes;
    cpu_set_t node_cpus[MAX_RANKS];
} stage;

/* What stands behind each of them. */
static const struct backend_ops *original;

static bool fails(enum failure failure) {
    return stage.failure == failure && atomic_fetch_sub(&stage.num_left, 1) <= 0;
}

static int refuse(struct error *err) {
    return error_set(err, ERROR_DEVICE, "rank %d was told to fail", stage.rank);
}

static int failing_matrix_create(struct backend *b, const struct matrix_part *parts, int num_parts,
                                 int32_t cols, enum matrix_use use, struct matrix **out,
                                 struct error *err) {
    return fails(FAIL_MATRIX) ? refuse(err)
                              : original->matrix_create(b, parts, num_parts, cols, use, out, err);
}

/* The pool is larger than any other buffer of this model. */
static int failing_buffer_alloc(struct backend *b, size_t bytes, struct buffer *out,
                                struct error *err) {
    if (fails(FAIL_BUFFER) || (bytes > MIB && fails(FAIL_POOL)))
        return refuse(err);
    return original->buffer_alloc(b, bytes, out, err);
}

static int failing_host_alloc(struct backend *b, size_t bytes, struct buffer *out,
                              struct error *err) {
    return fails(FAIL_HOST) ? refuse(err) : original->host_alloc(b, bytes, out, err);
}

static int failing_step_wait(struct backend *b, struct error *err) {
    return fails(FAIL_WAIT) ? refuse(err) : original->step_wait(b, err);
}

struct backend *__real_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err);
struct backend *__wrap_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err);

struct backend *__wrap_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err) {
    static struct backend_ops failing;
    if (config->stage == 0) {
        sched_getaffinity(0, sizeof(stage.cpus[0]), &stage.cpus[config->rank]);
        stage.num_threads[config->rank] = config->num_threads;
    }
    int32_t number = config->rank + config->stage; /* of ranks, or of stages of one */
    if (number == stage.rank && fails(FAIL_OPEN)) {
        refuse(err);
        return NULL;
    }
    struct backend *b = __real_backend_open(name, config, err);
    if (b == NULL || number != stage.rank)
        return b;
    original = b->ops;
    failing = *original;
    failing.matrix_create = failing_matrix_create;
    failing.buffer_alloc = failing_buffer_alloc;
    failing.host_alloc = failing_host_alloc;
    failing.step_wait = failing_step_wait;
    b->ops = &failing;
    return b;
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *argument), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *argument), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *argument), void *argument) {
    return fails(FAIL_THREAD) ? EAGAIN : __real_pthread_create(thread, attributes, start, argument);
}

void __wrap_numa_nodes_read(const char *dir, const cpu_set_t *allowed, struct numa_nodes *out);

void __wrap_numa_nodes_read(const char *dir, const cpu_set_t *allowed, struct numa_nodes *out) {
    out->count = stage.num_nodes;
    memcpy(out->cpus, stage.node_cpus, sizeof(stage.node_cpus));
}

static int reset(void **state) {
    memset(&stage, 0, sizeof(stage));
    return 0;
}

static int open_model(void **state) {
    return model_open(MODEL_PATH, (struct model **)state, NULL);
}

static int close_model(void **state) {
    model_close(*state);
    return 0;
}

static struct executor_config config_for(int32_t num_ranks) {
    return (struct executor_config){
        .device = "cpu-ref",
        .dtype = DTYPE_AUTO,
        .kv_type = KV_AUTO,
        .quantization = DTYPE_NONE,
        .num_ranks = num_ranks,
        .num_threads = 1,
        .kv_memory_bytes = 4 * (size_t)MIB,
        .swap_bytes = MIB,
        .limits = {.max_num_seqs = 2,
                   .max_num_batched_tokens = MAX_TOKENS,
                   .max_model_len = 4 * BLOCK_SIZE,
                   .block_size = BLOCK_SIZE,
                   .vocab_size = VOCAB,
                   .hidden_size = 64},
    };
}

static struct executor_config config_for_stages(int32_t num_stages) {
    struct executor_config config = config_for(1);
    config.num_stages = num_stages;
    return config;
}

/* --- What they hold --- */

static void assert_sums(const struct executor_info *info, int32_t num_ranks) {
    struct executor_memory sum = {0};
    assert_int_equal(info->num_ranks, num_ranks);
    for (int32_t r = 0; r < num_ranks; r++) {
        const struct executor_memory *memory = &info->rank_memory[r];
        assert_true(memory->weight_bytes > 0 && memory->workspace_bytes > 0);
        assert_int_equal(memory->kv_bytes % (size_t)info->limits.num_blocks, 0);
        assert_int_equal(memory->swap_bytes / (size_t)info->limits.num_host_blocks,
                         memory->kv_bytes / (size_t)info->limits.num_blocks);
        sum.weight_bytes += memory->weight_bytes;
        sum.workspace_bytes += memory->workspace_bytes;
        sum.kv_bytes += memory->kv_bytes;
        sum.swap_bytes += memory->swap_bytes;
    }
    assert_int_equal(sum.weight_bytes, info->memory.weight_bytes);
    assert_int_equal(sum.workspace_bytes, info->memory.workspace_bytes);
    assert_int_equal(sum.kv_bytes, info->memory.kv_bytes);
    assert_int_equal(sum.swap_bytes, info->memory.swap_bytes);
    size_t block_bytes = sum.kv_bytes / (size_t)info->limits.num_blocks;
    assert_in_range(sum.kv_bytes, 4 * MIB - block_bytes + 1, 4 * MIB);
    assert_in_range(sum.swap_bytes, MIB - block_bytes + 1, MIB);
}

static void test_memory(void **state) {
    for (int32_t num_ranks = 1; num_ranks <= MAX_RANKS; num_ranks++) {
        const struct executor_config config = config_for(num_ranks);
        struct executor_info info, planned;
        struct executor *executor = NULL;
        assert_int_equal(executor_plan(*state, &config, &planned, NULL), 0);
        assert_sums(&planned, num_ranks);
        assert_int_equal(executor_create(*state, &config, &info, &executor, NULL), 0);
        assert_sums(&info, num_ranks);
        assert_memory_equal(info.rank_memory, planned.rank_memory,
                            offsetof(struct executor_memory, overhead_bytes));
        assert_int_equal(info.limits.num_blocks, planned.limits.num_blocks);
        assert_true(info.swap_block_ns > 0);
        /* Two ranks have a KV head each; of three the first two have the same one. */
        assert_int_equal(info.memory.kv_bytes / (size_t)info.limits.num_blocks,
                         num_ranks == 3 ? 3 * 4096 : 8192);
        executor->ops->destroy(executor);
    }
}

/* Each of the two layers, and both ends of the model, have a stage of their own. */
static void test_memory_of_stages(void **state) {
    const struct executor_config config = config_for_stages(2), whole = config_for(1);
    struct executor_info info, planned, one;
    struct executor *executor = NULL;
    assert_int_equal(executor_plan(*state, &whole, &one, NULL), 0);
    assert_int_equal(executor_plan(*state, &config, &planned, NULL), 0);
    assert_sums(&planned, 2);
    assert_int_equal(executor_create(*state, &config, &info, &executor, NULL), 0);
    assert_sums(&info, 2);
    assert_int_equal(info.num_stages, 2);
    assert_memory_equal(info.rank_memory, planned.rank_memory,
                        offsetof(struct executor_memory, overhead_bytes));
    assert_int_equal(info.limits.num_blocks, one.limits.num_blocks);
    assert_int_equal(info.rank_memory[0].kv_bytes, info.rank_memory[1].kv_bytes);
    /* but for what both have: the embedding, which is the head, and the table of rotary embeddings
     */
    size_t both = (VOCAB * 64 + 4 * BLOCK_SIZE * 16) * sizeof(float);
    assert_int_equal(info.memory.weight_bytes, one.memory.weight_bytes + both);
    assert_true(info.rank_memory[0].workspace_bytes < info.rank_memory[1].workspace_bytes);
    executor->ops->destroy(executor);
}

static void assert_refused(void *const *state, const struct executor_config *config,
                           enum error_code code, const char *piece) {
    struct executor_info info;
    struct executor *executor = NULL;
    struct error err = {0};
    assert_int_equal(executor_create(*state, config, &info, &executor, &err), -1);
    assert_int_equal(err.code, code);
    if (strstr(err.message, piece) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", err.message, piece);
    assert_null(executor);
}

static void test_refused(void **state) {
    struct executor_config config = config_for(5); /* of 4 query heads */
    assert_refused(state, &config, ERROR_CONFIG, "tensor-parallel-size: 5");
    config = config_for(BACKEND_MAX_RANKS + 1);
    assert_refused(state, &config, ERROR_CONFIG, "tensor-parallel-size: 9 ranks: must be 1 to 8");
    config = config_for(2);
    config.device = "cuda";
    assert_refused(state, &config, ERROR_CONFIG, "tensor-parallel-size: the module libquire-cuda");
    config = config_for_stages(3); /* of 2 layers */
    assert_refused(state, &config, ERROR_CONFIG, "pipeline-parallel-size: 3");
    config = config_for_stages(2);
    config.device = "cuda";
    assert_refused(state, &config, ERROR_CONFIG,
                   "pipeline-parallel-size: the module libquire-cuda");
    config = config_for(2);
    config.kv_memory_bytes = 1000; /* of both together */
    assert_refused(state, &config, ERROR_CONFIG, "--kv-cache-memory-bytes");
    config.kv_memory_bytes = 4 * 8192;
    config.swap_bytes = 8191;
    assert_refused(state, &config, ERROR_CONFIG, "--swap-space");
}

/* Where several ranks may choose and have no GPU each, they are on the CPU. */
static void test_auto_is_the_cpu(void **state) {
    struct executor_config config = config_for(2);
    struct executor_info info;
    config.device = "auto";
    assert_int_equal(executor_plan(*state, &config, &info, NULL), 0);
    assert_string_equal(info.device, "cpu");
    assert_string_equal(info.why_cpu, "the module libquire-cuda.so is not installed");
    assert_memory_equal(info.description, "2 ranks, each ", strlen("2 ranks, each "));
}

/* --- Where they run --- */

static int core_at(const cpu_set_t *set, int index) {
    int core = -1;
    for (int found = -1; found < index;)
        found += CPU_ISSET((size_t)++core, set) != 0;
    return core;
}

static struct executor_info create_and_destroy(void *const *state,
                                               const struct executor_config *config) {
    struct executor_info info = {0};
    struct executor *executor;
    struct error err = {0};
    if (executor_create(*state, config, &info, &executor, &err) != 0)
        fail_msg("%s", err.message);
    executor->ops->destroy(executor);
    return info;
}

/* Bound to nodes only where there are enough; on a machine of one core both nodes have that. */
static void test_nodes(void **state) {
    struct executor_config config = config_for(2);
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    config.num_threads = 0;
    for (int32_t nodes = 1; nodes <= 2; nodes++) {
        stage.num_nodes = nodes;
        for (int32_t i = 0; i < nodes; i++) {
            CPU_ZERO(&stage.node_cpus[i]);
            CPU_SET((size_t)core_at(&before, i % CPU_COUNT(&before)), &stage.node_cpus[i]);
        }
        const struct executor_info info = create_and_destroy(state, &config);
        for (int32_t r = 0; r < 2; r++) {
            const cpu_set_t *expected = nodes == 2 ? &stage.node_cpus[r] : &before;
            char place[64];
            assert_true(CPU_EQUAL(&stage.cpus[r], expected));
            snprintf(place, sizeof(place), "cores %d, 1 thread",
                     core_at(&stage.node_cpus[r % nodes], 0));
            if (nodes == 2)
                assert_string_equal(info.rank_places[r], place);
            else
                assert_null(strstr(info.rank_places[r], "cores"));
        }
    }
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    assert_int_equal(stage.num_threads[0], 1); /* all of its node */
    assert_int_equal(stage.num_threads[1], 1);
}

static void test_threads_are_shared_out(void **state) {
    static const int expected[][3] = {{5, 2, 3}, {2, 1, 1}, {1, 1, 1}};
    struct executor_config config = config_for(2);
    for (int32_t nodes = 0; nodes <= 2; nodes += 2)
        for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
            stage.num_nodes = nodes;
            for (int32_t node = 0; node < nodes; node++)
                sched_getaffinity(0, sizeof(cpu_set_t), &stage.node_cpus[node]);
            config.num_threads = expected[i][0];
            create_and_destroy(state, &config);
            assert_int_equal(stage.num_threads[0], expected[i][1]);
            assert_int_equal(stage.num_threads[1], expected[i][2]);
        }
}

/* --- Steps --- */

struct step {
    struct batch batch;
    struct step_result result;
    int32_t tokens[MAX_TOKENS], positions[MAX_TOKENS], slots[MAX_TOKENS];
    int32_t query_start[2], context_len, last, table[2];
    struct sample_row row;
    struct sample_output output;
};

/* The last of `count` tokens from `position` on, in blocks of the table, after the moves. */
static void submit_step(struct executor *executor, struct step *s, const struct batch *moves,
                        const int32_t table[2], int32_t position, int32_t count) {
    memset(s, 0, sizeof(*s));
    memcpy(s->table, table, sizeof(s->table));
    for (int32_t i = 0; i < count; i++) {
        s->positions[i] = position + i;
        s->tokens[i] = s->positions[i] * 11 % 300 + 3;
        s->slots[i] =
            table[s->positions[i] / BLOCK_SIZE] * BLOCK_SIZE + s->positions[i] % BLOCK_SIZE;
    }
    s->query_start[1] = count;
    s->context_len = position + count;
    s->last = count - 1;
    s->row = (struct sample_row){.target = SAMPLE_NO_TARGET,
                                 .num_logprobs = 5,
                                 .settings = SAMPLING_SETTINGS_NEUTRAL,
                                 .mask = SAMPLE_NO_MASK};
    s->batch = *moves;
    s->batch.inputs = (struct step_inputs){.num_tokens = count,
                                           .num_seqs = 1,
                                           .max_blocks_per_seq = 2,
                                           .token_ids = s->tokens,
                                           .positions = s->positions,
                                           .slot_mapping = s->slots,
                                           .query_start = s->query_start,
                                           .context_lens = &s->context_len,
                                           .block_tables = s->table};
    s->batch.num_sample_rows = 1;
    s->batch.logit_rows = &s->last;
    s->batch.sample_rows = &s->row;
    s->result = (struct step_result){.rows = &s->output};
    executor->ops->submit(executor, &s->batch, &s->result);
}

static struct sample_output run_step(struct executor *executor, const struct batch *moves,
                                     const int32_t table[2], int32_t position, int32_t count) {
    struct step step;
    struct error err = {0};
    submit_step(executor, &step, moves, table, position, count);
    if (executor->ops->wait(executor, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(step.result.num_sample_rows, 1);
    return step.output;
}

/* A sequence continues from blocks that were swapped out, in again elsewhere, and copied, on every
 * rank. Returns what it samples. */
static struct sample_output run_moves(void *const *state, struct executor_config config,
                                      enum kv_type type) {
    static const struct batch nothing = {0};
    static const int32_t first[] = {0, 1}, host[] = {4, 2}, back[] = {6, 9}, one = 9, two = 3;
    static const struct batch out = {.swap_out = {.count = 2, .from = first, .to = host}};
    static const struct batch in = {.swap_in = {.count = 2, .from = host, .to = back},
                                    .copies = {.count = 1, .from = &one, .to = &two}};
    struct executor_info info;
    struct executor *executor;
    struct step_result none = {.num_sample_rows = 7};
    config.kv_type = type;
    assert_int_equal(executor_create(*state, &config, &info, &executor, NULL), 0);
    run_step(executor, &nothing, first, 0, 20);
    executor->ops->submit(executor, &out, &none);
    assert_int_equal(executor->ops->wait(executor, NULL), 0);
    assert_int_equal(none.num_sample_rows, 0);
    struct sample_output plain = run_step(executor, &nothing, first, 20, 1);
    run_step(executor, &nothing, (const int32_t[]){1, 0}, 0, 21); /* overwrites it */
    struct sample_output moved = run_step(executor, &in, (const int32_t[]){6, 3}, 20, 1);
    assert_memory_equal(&moved, &plain, sizeof(plain));
    executor->ops->destroy(executor);
    return plain;
}

/* What several ranks compute is what one does but for rounding, which may tip codes of a quantised
 * cache; what several stages do is the same. */
static void test_moved_blocks_are_read(void **state) {
    static const struct {
        enum kv_type type;
        double tolerance;
    } types[] = {{KV_F32, 1e-4}, {KV_INT8, 1e-2}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct sample_output one = run_moves(state, config_for(1), types[i].type);
        struct sample_output staged = run_moves(state, config_for_stages(2), types[i].type);
        assert_memory_equal(&staged, &one, sizeof(one));
        for (int32_t num_ranks = 2; num_ranks <= MAX_RANKS; num_ranks++) {
            struct sample_output several = run_moves(state, config_for(num_ranks), types[i].type);
            assert_int_equal(several.token, one.token);
            for (int k = 0; k < 5; k++)
                assert_true(fabs((double)several.top_logprobs[k] - one.top_logprobs[k]) <=
                            types[i].tolerance * (1 + fabs((double)one.top_logprobs[k])));
        }
    }
}

/* What each rank has done: no less with every step, and no more than the time that has passed. */
static void test_stats(void **state) {
    static const struct batch nothing = {0};
    for (int32_t num_ranks = 1; num_ranks <= MAX_RANKS; num_ranks++) {
        const struct executor_config config = config_for(num_ranks);
        struct rank_stats before[BACKEND_MAX_RANKS], after[BACKEND_MAX_RANKS];
        struct executor_info info;
        struct executor *executor;
        int64_t communication_ns = 0, start_ns = clock_now_ns();
        assert_int_equal(executor_create(*state, &config, &info, &executor, NULL), 0);
        assert_int_equal(executor->ops->rank_stats(executor, before), num_ranks);
        for (int32_t r = 0; r < num_ranks; r++)
            assert_int_equal(before[r].compute_ns, 0);
        run_step(executor, &nothing, (const int32_t[]){0, 1}, 0, 20);
        assert_int_equal(executor->ops->rank_stats(executor, after), num_ranks);
        for (int32_t r = 0; r < num_ranks; r++) {
            assert_true(after[r].compute_ns > 0 && after[r].communication_ns >= 0);
            assert_true(after[r].compute_ns + after[r].communication_ns <=
                        clock_now_ns() - start_ns);
            assert_int_equal(after[r].bytes_sent, 0);
            communication_ns += after[r].communication_ns;
        }
        assert_true((communication_ns > 0) == (num_ranks > 1));
        executor->ops->destroy(executor);
    }
}

/* --- Failures --- */

/* Each rank of two and three, and each of two stages, at its first calls and later ones: the cause
 * is reported, all threads end, and nothing is left behind, which the address sanitizer sees. */
static void test_a_rank_fails_to_start(void **state) {
    static const struct {
        enum failure failure;
        int num_calls; /* before it */
    } cases[] = {{FAIL_OPEN, 0},   {FAIL_MATRIX, 0}, {FAIL_MATRIX, 3}, {FAIL_BUFFER, 0},
                 {FAIL_BUFFER, 5}, {FAIL_POOL, 0},   {FAIL_HOST, 0}};
    const struct executor_config configs[] = {config_for_stages(2), config_for(2), config_for(3)};
    for (int32_t c = 0; c < 3; c++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
            for (stage.rank = 0; stage.rank < (c == 2 ? 3 : 2); stage.rank++) {
                const struct executor_config config = configs[c];
                char cause[64];
                stage.failure = cases[i].failure;
                atomic_store(&stage.num_left, cases[i].num_calls);
                snprintf(cause, sizeof(cause), "rank %d was told to fail", stage.rank);
                assert_refused(state, &config,
                               stage.failure == FAIL_OPEN ? ERROR_CONFIG : ERROR_DEVICE, cause);
                assert_true(atomic_load(&stage.num_left) < 0);
            }
}

/* Those that have one wait for the weights of those that do not. */
static void test_a_rank_has_no_thread(void **state) {
    for (int32_t num_ranks = 1; num_ranks <= MAX_RANKS; num_ranks++)
        for (int32_t rank = 0; rank < num_ranks; rank++) {
            const struct executor_config config = config_for(num_ranks);
            char cause[64];
            stage.failure = FAIL_THREAD;
            atomic_store(&stage.num_left, rank);
            snprintf(cause, sizeof(cause), "cannot start the thread of rank %d", rank);
            assert_refused(state, &config, ERROR_IO, cause);
        }
}

static void test_a_plan_fails(void **state) {
    const struct executor_config config = config_for(3);
    struct executor_info info;
    stage.failure = FAIL_OPEN;
    stage.rank = 1;
    assert_int_equal(executor_plan(*state, &config, &info, NULL), -1);
}

/* The others may be waiting in a step for the one that fails, or have begun one whose late inputs
 * are supplied only when the failure is known. */
static void test_a_rank_fails_in_a_step(void **state) {
    static const struct batch plain = {0}, late = {.has_late_inputs = true};
    static const int32_t table[] = {0, 1};
    for (int round = 0; round < 80; round++) {
        int32_t num_ranks = 2 + round % 2;
        bool is_late = round >= 30 && round < 60, is_staged = round >= 60;
        if (is_staged)
            num_ranks = 2;
        const struct executor_config config =
            is_staged ? config_for_stages(num_ranks) : config_for(num_ranks);
        struct executor_info info;
        struct executor *executor;
        struct step steps[4];
        struct error err = {0};
        stage.failure = FAIL_WAIT;
        stage.rank = round / 2 % num_ranks;
        atomic_store(&stage.num_left, 1 + round % 2);
        assert_int_equal(executor_create(*state, &config, &info, &executor, NULL), 0);
        int num_good = 0, status = 0;
        submit_step(executor, &steps[0], &plain, table, 0, 12);
        for (int i = 1; i < 4; i++) {
            submit_step(executor, &steps[i], is_late ? &late : &plain, table, 11 + i, 1);
            status = executor->ops->wait(executor, &err);
            num_good += status == 0;
            if (is_late)
                executor->ops->supply(executor);
        }
        assert_int_equal(executor->ops->wait(executor, &err), -1);
        assert_int_equal(status, -1);
        assert_int_equal(err.code, ERROR_DEVICE);
        assert_true(num_good <= 1 + round % 2);
        executor->ops->destroy(executor);
    }
}

/* --- Sleep --- */

static void assert_same_answer(struct executor *executor, const struct sample_output *expected) {
    static const struct batch nothing = {0};
    struct sample_output now = run_step(executor, &nothing, (const int32_t[]){2, 5}, 0, 20);
    assert_memory_equal(&now, expected, sizeof(now));
}

/* Of one to three ranks and of two stages, at both levels, again and again; also destroyed asleep.
 */
static void test_sleep(void **state) {
    static const struct batch nothing = {0};
    const struct executor_config configs[] = {config_for(1), config_for(2), config_for(3),
                                              config_for_stages(2)};
    for (size_t c = 0; c < sizeof(configs) / sizeof(configs[0]); c++) {
        struct executor_info info;
        struct executor *executor;
        struct error err = {0};
        assert_int_equal(executor_create(*state, &configs[c], &info, &executor, NULL), 0);
        struct sample_output expected =
            run_step(executor, &nothing, (const int32_t[]){0, 1}, 0, 20);
        for (int i = 0; i < 6; i++) {
            executor->ops->sleep(executor, i % 3 == 1);
            if (executor->ops->wake(executor, &err) != 0)
                fail_msg("%s", err.message);
            assert_same_answer(executor, &expected);
        }
        executor->ops->sleep(executor, c % 2 == 0);
        executor->ops->destroy(executor);
    }
}

/* A rank that cannot have its memory back, whichever part it is: all sleep on, and wake later. */
static void test_a_rank_cannot_wake(void **state) {
    static const struct batch nothing = {0};
    static const struct {
        enum failure failure;
        bool discards_weights;
    } cases[] = {{FAIL_POOL, false},  {FAIL_HOST, false}, {FAIL_POOL, true},  {FAIL_OPEN, true},
                 {FAIL_MATRIX, true}, {FAIL_HOST, true},  {FAIL_THREAD, true}};
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        const struct executor_config config = config_for(2);
        struct executor_info info;
        struct executor *executor;
        struct error err = {0};
        stage.rank = (int32_t)(i % 2);
        assert_int_equal(executor_create(*state, &config, &info, &executor, NULL), 0);
        struct sample_output expected =
            run_step(executor, &nothing, (const int32_t[]){0, 1}, 0, 20);
        executor->ops->sleep(executor, cases[i / 2].discards_weights);
        stage.failure = cases[i / 2].failure;
        atomic_store(&stage.num_left, 0);
        assert_int_equal(executor->ops->wake(executor, &err), -1);
        assert_true(err.message[0] != '\0' && !executor_has_hung(executor));
        stage.failure = NO_FAILURE;
        assert_int_equal(executor->ops->wake(executor, &err), 0);
        assert_same_answer(executor, &expected);
        executor->ops->destroy(executor);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_memory, reset),
        cmocka_unit_test_setup(test_memory_of_stages, reset),
        cmocka_unit_test_setup(test_refused, reset),
        cmocka_unit_test_setup(test_auto_is_the_cpu, reset),
        cmocka_unit_test_setup(test_nodes, reset),
        cmocka_unit_test_setup(test_threads_are_shared_out, reset),
        cmocka_unit_test_setup(test_moved_blocks_are_read, reset),
        cmocka_unit_test_setup(test_stats, reset),
        cmocka_unit_test_setup(test_a_rank_fails_to_start, reset),
        cmocka_unit_test_setup(test_a_rank_has_no_thread, reset),
        cmocka_unit_test_setup(test_a_plan_fails, reset),
        cmocka_unit_test_setup(test_a_rank_fails_in_a_step, reset),
        cmocka_unit_test_setup(test_sleep, reset),
        cmocka_unit_test_setup(test_a_rank_cannot_wake, reset),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
