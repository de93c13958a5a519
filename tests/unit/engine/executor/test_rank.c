/* Loading a rank on a GPU that is not there: backend_open is replaced, and "cuda" is the scalar
 * backend with memory of its own, of any size, that fails on request. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/rank.h"
#include "engine/executor/rank_setup.h"

#include <stdlib.h>
#include <string.h>

#define MODEL_PATH GOLDEN_DIR "/tiny-f32.gguf"
#define MIB ((size_t)1 << 20)
#define KIB ((size_t)1 << 10)
#define OPEN_BYTES (100 * KIB) /* the GPU's own workspace, taken at open */
#define STEP_BYTES (50 * KIB)  /* what its libraries take in the first step */

#define MAX_STEPS 64

static struct {
    bool is_absent;
    bool pins_nothing; /* host_alloc fails */
    uint32_t more_kv_types;
    size_t total_bytes;
    size_t used_bytes;
    int fail_at_synchronize; /* the n-th and all after it fail; 0: none */
    int num_synchronized;
    int num_steps;
    int32_t length; /* of the longest sequence; 0: 256 */
    int32_t step_tokens[MAX_STEPS];
    int32_t most_tokens, most_seqs, most_rows;
    struct backend_config config;
    const struct backend_ops *scalar;
    struct backend_ops ops;
    bool is_tuning;
    int num_tunings, num_tuned_steps; /* ended; begun meanwhile */
    double tuning_budget;
} gpu;

static int gpu_tuning_begin(struct backend *b, double budget_seconds, struct error *err) {
    assert_false(gpu.is_tuning);
    gpu.is_tuning = true;
    gpu.tuning_budget = budget_seconds;
    return 0;
}

static void gpu_tuning_end(struct backend *b, struct tuning_report *out) {
    assert_true(gpu.is_tuning);
    gpu.is_tuning = false;
    gpu.num_tunings++;
    *out = (struct tuning_report){.num_timed = 5, .num_changed = 2, .seconds = 0.5};
}

static const struct tuning_ops gpu_tuning = {.begin = gpu_tuning_begin, .end = gpu_tuning_end};

static int gpu_alloc(struct backend *b, size_t bytes, struct buffer *out, struct error *err) {
    if (bytes > gpu.total_bytes - gpu.used_bytes)
        return error_set(err, ERROR_MEMORY, "the GPU is full");
    if (gpu.scalar->buffer_alloc(b, bytes, out, err) != 0)
        return -1;
    gpu.used_bytes += bytes;
    return 0;
}

static int gpu_host_alloc(struct backend *b, size_t bytes, struct buffer *out, struct error *err) {
    if (gpu.pins_nothing)
        return error_set(err, ERROR_MEMORY, "cannot pin");
    return gpu.scalar->host_alloc(b, bytes, out, err);
}

static void gpu_free(struct backend *b, struct buffer *buffer) {
    gpu.used_bytes -= buffer->bytes;
    gpu.scalar->buffer_free(b, buffer);
}

static size_t gpu_matrix_bytes(const struct backend *b, const struct matrix_part *parts,
                               int num_parts, int32_t cols, enum matrix_use use) {
    size_t bytes = 0;
    for (int i = 0; i < num_parts; i++)
        bytes += (size_t)parts[i].rows * (size_t)cols * sizeof(float);
    return bytes;
}

static int gpu_matrix_create(struct backend *b, const struct matrix_part *parts, int num_parts,
                             int32_t cols, enum matrix_use use, struct matrix **out,
                             struct error *err) {
    gpu.used_bytes += gpu_matrix_bytes(b, parts, num_parts, cols, use);
    assert_true(gpu.used_bytes <= gpu.total_bytes);
    return gpu.scalar->matrix_create(b, parts, num_parts, cols, use, out, err);
}

static void gpu_memory_info(struct backend *b, size_t *out_free, size_t *out_total) {
    *out_free = gpu.total_bytes - gpu.used_bytes;
    *out_total = gpu.total_bytes;
}

static int gpu_synchronize(struct backend *b, struct error *err) {
    gpu.num_synchronized++;
    if (gpu.fail_at_synchronize > 0 && gpu.num_synchronized >= gpu.fail_at_synchronize)
        return error_set(err, ERROR_DEVICE, "gpu.cu:7: launch: illegal address");
    return 0;
}

static void gpu_step_begin(struct backend *b, const struct step_inputs *inputs) {
    if (gpu.num_steps == 0)
        gpu.used_bytes += STEP_BYTES;
    assert_in_range(gpu.num_steps, 0, MAX_STEPS - 1);
    gpu.step_tokens[gpu.num_steps++] = inputs->num_tokens;
    gpu.num_tuned_steps += gpu.is_tuning;
    gpu.most_tokens = inputs->num_tokens > gpu.most_tokens ? inputs->num_tokens : gpu.most_tokens;
    gpu.most_seqs = inputs->num_seqs > gpu.most_seqs ? inputs->num_seqs : gpu.most_seqs;
    for (int32_t i = 0; i < inputs->num_tokens; i++)
        assert_in_range(inputs->slot_mapping[i], 0, 15); /* its cache has one block */
    assert_int_equal(inputs->context_lens[0], gpu.length > 0 ? gpu.length : 256);
    gpu.scalar->step_begin(b, inputs);
}

static void gpu_sample(struct backend *b, const struct sample_args *args) {
    if (args->num_sample_rows > gpu.most_rows)
        gpu.most_rows = args->num_sample_rows;
    gpu.scalar->sample(b, args);
}

struct backend *__real_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err);
struct backend *__wrap_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err);

struct backend *__wrap_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err) {
    if (strcmp(name, "cuda") != 0)
        return __real_backend_open("cpu-ref", config, err);
    if (gpu.is_absent || gpu.total_bytes < OPEN_BYTES) {
        error_set(err, gpu.is_absent ? ERROR_DEVICE : ERROR_MEMORY, "no GPU is left");
        return NULL;
    }
    struct backend *b = __real_backend_open("cpu-ref", config, err);
    assert_non_null(b);
    gpu.config = *config;
    gpu.used_bytes = OPEN_BYTES;
    gpu.scalar = b->ops;
    gpu.ops = *b->ops;
    gpu.ops.buffer_alloc = gpu_alloc;
    gpu.ops.buffer_free = gpu_free;
    gpu.ops.host_alloc = gpu_host_alloc;
    gpu.ops.matrix_bytes = gpu_matrix_bytes;
    gpu.ops.matrix_create = gpu_matrix_create;
    gpu.ops.memory_info = gpu_memory_info;
    gpu.ops.synchronize = gpu_synchronize;
    gpu.ops.step_begin = gpu_step_begin;
    gpu.ops.sample = gpu_sample;
    gpu.ops.tuning = &gpu_tuning;
    b->ops = &gpu.ops;
    b->kv_types = KV_TYPE_BIT(KV_F32) | gpu.more_kv_types;
    b->has_dedicated_memory = true;
    b->workspace_bytes = OPEN_BYTES;
    b->head_rows_step = 9; /* which the vocabulary is no multiple of */
    b->name = "cuda";
    return b;
}

static int open_model(void **state) {
    return model_open(MODEL_PATH, (struct model **)state, NULL);
}

static int close_model(void **state) {
    model_close(*state);
    return 0;
}

static int insert_gpu(void **state) {
    memset(&gpu, 0, sizeof(gpu));
    gpu.total_bytes = 8 * MIB;
    return 0;
}

static struct executor_info info; /* of the rank loaded last */

static struct executor_config config_for(const char *device) {
    return (struct executor_config){
        .device = device,
        .dtype = DTYPE_AUTO,
        .quantization = DTYPE_NONE,
        .gpu_memory_utilization = 0.75,
        .num_threads = 1,
        .kv_type = KV_AUTO,
        .limits = {.max_num_seqs = 3,
                   .max_num_batched_tokens = 40,
                   .max_model_len = 256,
                   .block_size = 16,
                   .vocab_size = 320,
                   .hidden_size = 64},
    };
}

/* As executor_create starts its only rank, but on this thread. */
static int load_rank(const struct model *model, const struct executor_config *config,
                     struct executor_info *out_info, struct rank *out, struct error *err) {
    struct rank_setup setup;
    assert_int_equal(rank_setup_init(&setup, model, config, true, NULL), 0);
    int status = rank_open(&setup, 0, config->num_threads, out, err);
    if (status == 0 &&
        (rank_setup_choose_length(&setup, out, err) != 0 ||
         rank_load(out, setup.reader, setup.draft_reader, err) != 0 || rank_try(out, err) != 0 ||
         rank_setup_choose_blocks(out, 1, err) != 0 || rank_allocate(out, err) != 0)) {
        rank_close(out);
        status = -1;
    }
    if (status == 0)
        rank_setup_describe(out, 1, out_info);
    rank_setup_finish(&setup);
    return status;
}

#define PIECES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void assert_refused(void *const *state, const struct executor_config *config,
                           enum error_code code, const char *const *pieces) {
    struct rank rank;
    struct error err = {0};
    assert_int_equal(load_rank(*state, config, &info, &rank, &err), -1);
    for (; *pieces != NULL; pieces++)
        if (strstr(err.message, *pieces) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", err.message, *pieces);
    assert_int_equal(err.code, code);
    assert_null(rank.backend);
}

static void test_a_gpu_is_filled(void **state) {
    struct executor_config config = config_for("cuda");
    struct rank rank;
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    static const int32_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40};
    assert_int_equal(gpu.num_steps, sizeof(sizes) / sizeof(sizes[0]));
    assert_memory_equal(gpu.step_tokens, sizes, sizeof(sizes));
    assert_int_equal(gpu.most_tokens, 40);
    assert_int_equal(gpu.most_seqs, 3);
    assert_int_equal(gpu.most_rows, 3);
    assert_int_equal(serving_limits_max_blocks(&gpu.config.limits), 16);
    assert_int_equal(gpu.config.limits.max_logit_rows, 3);
    assert_int_equal(gpu.config.limits.vocab_size, 320);
    assert_int_equal(gpu.config.head_dim, 16);
    assert_int_equal(gpu.config.num_q_heads, 4);
    assert_int_equal(gpu.config.num_kv_heads, 2);
    assert_int_equal(gpu.config.activation_dtype, DTYPE_BF16);
    assert_true(info.has_dedicated_memory && !info.batch_invariant);
    assert_string_equal(info.device, "cuda");
    assert_string_equal(info.why_cpu, "");
    assert_int_equal(info.memory.overhead_bytes, STEP_BYTES);
    assert_int_equal(info.memory.kv_bytes, (size_t)info.limits.num_blocks * 8192);
    assert_int_equal(info.memory.weight_bytes + info.memory.workspace_bytes + STEP_BYTES +
                         info.memory.kv_bytes,
                     gpu.used_bytes);
    assert_int_equal(info.memory.free_bytes, gpu.total_bytes - gpu.used_bytes);
    assert_in_range(gpu.used_bytes, 6 * MIB - 8191, 6 * MIB);
    rank_close(&rank);
}

/* In the dry run, all of it, and no longer, also when the device fails. */
static void test_products_are_timed_before_the_first_request(void **state) {
    struct executor_config config = config_for("cuda");
    struct rank rank;
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    assert_true(gpu.num_tunings == 1 && gpu.tuning_budget == DRY_RUN_TUNING_SECONDS);
    assert_true(gpu.num_tuned_steps == gpu.num_steps && gpu.num_steps > 0);
    assert_int_equal(info.tuning.num_timed, 5);
    assert_int_equal(info.tuning.num_changed, 2);
    int num_synchronized = gpu.num_synchronized;
    rank_close(&rank);
    for (int i = 1; i <= num_synchronized; i++) {
        insert_gpu(state);
        gpu.fail_at_synchronize = i;
        assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), -1);
        assert_false(gpu.is_tuning);
    }
}

static void test_the_largest_step_is_what_slots_can_hold(void **state) {
    struct executor_config config = config_for("cuda");
    struct rank rank;
    config.limits.max_num_batched_tokens = 2000; /* 3 x 256 at most */
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    assert_int_equal(gpu.most_tokens, 768);
    rank_close(&rank);
}

static void test_limits_left_to_the_device(void **state) {
    struct executor_config config = config_for("auto");
    struct rank rank;
    config.limits.max_num_seqs = 0;
    config.limits.max_num_batched_tokens = 17;
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    assert_string_equal(info.device, "cuda");
    assert_int_equal(info.limits.max_num_seqs, 17);
    rank_close(&rank);
    gpu.is_absent = true;
    config.limits.max_num_batched_tokens = 0;
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    assert_string_equal(info.device, "cpu-ref");
    assert_string_equal(info.why_cpu, "no GPU is left");
    assert_int_equal(info.limits.max_num_seqs, 64);
    assert_int_equal(info.limits.max_num_batched_tokens, 512);
    assert_int_equal(info.kv_type, KV_F32);
    assert_true(!info.has_dedicated_memory && info.batch_invariant);
    rank_close(&rank);
}

static void test_bytes_asked_for(void **state) {
    struct executor_config config = config_for("cuda");
    struct rank rank;
    config.kv_memory_bytes = MIB;
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    assert_int_equal(info.limits.num_blocks, 128);
    rank_close(&rank);
    config.kv_memory_bytes = 8 * MIB;
    assert_refused(state, &config, ERROR_CONFIG,
                   PIECES("--kv-cache-memory-bytes: 8.0 MiB", "missing"));
}

static void test_each_part_may_not_fit(void **state) {
    struct executor_config config = config_for("cuda");
    gpu.total_bytes = 10 * KIB;
    assert_refused(state, &config, ERROR_MEMORY,
                   PIECES("device's operations", "--max-num-batched-tokens", "--max-num-seqs"));
    struct executor_config any = config_for("auto");
    assert_refused(state, &any, ERROR_MEMORY, PIECES("no GPU is left"));
    gpu.total_bytes = OPEN_BYTES + 100 * KIB;
    assert_refused(state, &config, ERROR_MEMORY,
                   PIECES("for the weights: 0.4 MiB needed, 0.1 MiB free, 0.3 MiB missing"));
    gpu.total_bytes = OPEN_BYTES + 470 * KIB;
    config.limits.max_num_batched_tokens = 2000;
    assert_refused(
        state, &config, ERROR_MEMORY,
        PIECES("for the workspace: 4.2 MiB needed", "missing", "--max-num-batched-tokens"));
    gpu.total_bytes = OPEN_BYTES + 700 * KIB;
    config.limits.max_num_batched_tokens = 40;
    assert_refused(state, &config, ERROR_MEMORY,
                   PIECES("for the KV cache", "--gpu-memory-utilization 0.75", "missing",
                          "--max-model-len 256"));
}

static void assert_same_parts(const struct executor_info *a, const struct executor_info *b) {
    assert_string_equal(a->device, b->device);
    assert_string_equal(a->why_cpu, b->why_cpu);
    assert_int_equal(a->limits.max_num_seqs, b->limits.max_num_seqs);
    assert_int_equal(a->limits.max_num_batched_tokens, b->limits.max_num_batched_tokens);
    assert_int_equal(a->kv_type, b->kv_type);
    assert_int_equal(a->memory.weight_bytes, b->memory.weight_bytes);
    assert_int_equal(a->memory.workspace_bytes, b->memory.workspace_bytes);
    assert_int_equal(a->limits.num_blocks, b->limits.num_blocks);
    assert_int_equal(a->memory.kv_bytes, b->memory.kv_bytes);
    assert_int_equal(a->limits.num_host_blocks, b->limits.num_host_blocks);
    assert_int_equal(a->memory.swap_bytes, b->memory.swap_bytes);
}

static void test_a_plan_is_what_loading_becomes(void **state) {
    struct executor_config config = config_for("auto");
    struct executor_info planned = {0};
    struct rank rank;
    config.kv_memory_bytes = MIB;
    config.swap_bytes = 2 * MIB;
    for (int absent = 0; absent < 2; absent++) {
        gpu.is_absent = absent;
        assert_int_equal(executor_plan(*state, &config, &planned, NULL), 0);
        assert_int_equal(gpu.num_steps, 0);
        assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
        assert_same_parts(&planned, &info);
        if (!absent)
            assert_int_equal(planned.memory.free_bytes, info.memory.free_bytes + STEP_BYTES);
        rank_close(&rank);
        gpu.num_steps = 0;
    }
}

/* A GPU that has no room for the longest sequence: a tenth of the blocks is left to what its first
 * step takes, and once it is loaded the length fits. */
static void test_the_length_that_fits_a_gpu(void **state) {
    struct executor_config config = config_for("cuda");
    struct executor_info planned = {0};
    struct rank rank;
    config.most_model_len = 8192;
    config.limits.max_model_len = 0;
    config.gpu_memory_utilization = 1;
    assert_int_equal(executor_plan(*state, &config, &planned, NULL), 0);
    assert_int_equal(planned.limits.max_model_len, 8192);
    gpu.total_bytes -= (size_t)(planned.limits.num_blocks - 400) * 8192;
    assert_int_equal(executor_plan(*state, &config, &planned, NULL), 0);
    int32_t most = planned.limits.num_blocks - planned.limits.num_blocks / 10;
    assert_in_range(planned.limits.max_model_len, (most - 1) * 16, most * 16);
    gpu.length = planned.limits.max_model_len;
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    assert_int_equal(info.limits.max_model_len, gpu.length);
    rank_close(&rank);
}

/* What the GPU is filled to is known but for what its first step takes. */
static void test_a_plan_fills_the_gpu(void **state) {
    struct executor_config config = config_for("cuda");
    struct executor_info planned = {0};
    struct rank rank;
    struct error err = {0};
    assert_int_equal(executor_plan(*state, &config, &planned, NULL), 0);
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    assert_in_range(planned.limits.num_blocks - info.limits.num_blocks, STEP_BYTES / 8192,
                    STEP_BYTES / 8192 + 1);
    rank_close(&rank);
    gpu.total_bytes = OPEN_BYTES + 100 * KIB;
    assert_int_equal(executor_plan(*state, &config, &planned, &err), -1);
    assert_int_equal(err.code, ERROR_MEMORY);
    assert_non_null(strstr(err.message, "for the weights: 0.4 MiB needed"));
}

/* The draft model is the model itself: it takes as much, and each block twice as much. */
static void test_a_gpu_is_filled_with_a_draft_model(void **state) {
    struct executor_config config = config_for("cuda");
    struct rank rank;
    gpu.total_bytes = 16 * MIB;
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    const struct executor_memory alone = info.memory;
    int num_steps = gpu.num_steps;
    rank_close(&rank);
    insert_gpu(state);
    gpu.total_bytes = 16 * MIB;
    config.draft_model = *state;
    config.swap_bytes = EXECUTOR_SWAP_AUTO;
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    assert_int_equal(gpu.num_steps, 2 * num_steps);
    assert_true(gpu.num_tunings == 1 && gpu.num_tuned_steps == gpu.num_steps);
    assert_int_equal(info.memory.draft_bytes,
                     alone.weight_bytes + alone.workspace_bytes - OPEN_BYTES);
    assert_int_equal(info.memory.overhead_bytes, STEP_BYTES);
    assert_int_equal(info.memory.kv_bytes, (size_t)info.limits.num_blocks * 2 * 8192);
    assert_int_equal(info.memory.swap_bytes, info.memory.kv_bytes);
    assert_int_equal(rank.host_pool.bytes + rank.draft.host_pool.bytes, info.memory.swap_bytes);
    assert_in_range(alone.kv_bytes - info.memory.kv_bytes, info.memory.draft_bytes - 16384,
                    info.memory.draft_bytes + 16384);
    assert_int_equal(info.memory.free_bytes, gpu.total_bytes - gpu.used_bytes);
    rank_close(&rank);
}

static void test_a_draft_model_may_not_fit(void **state) {
    struct executor_config config = config_for("cuda");
    struct rank rank;
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    rank_close(&rank);
    config.draft_model = *state;
    gpu.total_bytes = info.memory.weight_bytes + info.memory.workspace_bytes + 300 * KIB;
    assert_refused(state, &config, ERROR_MEMORY,
                   PIECES("for the draft model: ", "missing; serve a smaller draft model"));
    gpu.total_bytes = 8 * MIB;
    gpu.fail_at_synchronize = 3;
    assert_refused(state, &config, ERROR_DEVICE, PIECES("gpu.cu:7: launch: illegal address"));
}

static void test_quantising(void **state) {
    struct executor_config config = config_for("auto");
    struct executor_info plain = {0}, planned = {0};
    struct rank rank;
    gpu.is_absent = true;
    assert_int_equal(executor_plan(*state, &config, &plain, NULL), 0);
    config.quantization = DTYPE_Q8_0;
    assert_int_equal(executor_plan(*state, &config, &planned, NULL), 0);
    assert_true(planned.memory.weight_bytes < plain.memory.weight_bytes * 3 / 4);
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    assert_same_parts(&planned, &info);
    rank_close(&rank);
    gpu.is_absent = false; /* whose backend packs what it is given */
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    assert_int_equal(rank.weights_options.quantization, DTYPE_Q8_0);
    rank_close(&rank);
}

static void test_the_device_fails_while_loading(void **state) {
    struct executor_config config = config_for("cuda");
    struct rank rank;
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    int num_synchronized = gpu.num_synchronized;
    assert_true(num_synchronized >= 3 + gpu.num_steps); /* weights, workspace, cache */
    rank_close(&rank);
    for (int i = 1; i <= num_synchronized; i++) {
        insert_gpu(state);
        gpu.fail_at_synchronize = i;
        assert_refused(state, &config, ERROR_DEVICE, PIECES("gpu.cu:7: launch: illegal address"));
        assert_int_equal(gpu.num_synchronized, i);
    }
}

static void test_what_does_not_suit_a_gpu(void **state) {
    struct executor_config config = config_for("cuda");
    config.kv_type = KV_F16;
    assert_refused(state, &config, ERROR_CONFIG,
                   PIECES("kv-cache-dtype: f16", "cuda", "must be auto or f32"));
    config.kv_type = KV_BF16;
    gpu.more_kv_types = KV_TYPE_BIT(KV_INT8) | KV_TYPE_BIT(KV_E4M3);
    assert_refused(state, &config, ERROR_CONFIG,
                   PIECES("kv-cache-dtype: bf16", "cuda", "must be auto, f32, int8 or fp8"));
    config.kv_type = KV_AUTO;
    config.limits.max_num_seqs = 41;
    assert_refused(state, &config, ERROR_CONFIG,
                   PIECES("max-num-batched-tokens is 40", "max-num-seqs, which is 41"));
    config.limits.max_num_seqs = 3;
    gpu.is_absent = true;
    assert_refused(state, &config, ERROR_CONFIG, PIECES("device cuda: no GPU is left"));
}

static void test_host_pool(void **state) {
    struct executor_config config = config_for("auto");
    struct rank rank;
    config.swap_bytes = 100 * 8192 + 5;
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    assert_int_equal(info.limits.num_host_blocks, 100);
    assert_int_equal(info.memory.swap_bytes, 100 * 8192);
    assert_int_equal(rank.host_pool.bytes, 100 * 8192);
    assert_true(info.swap_block_ns > 0);
    rank_close(&rank);
    config.swap_bytes = EXECUTOR_SWAP_AUTO;
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    assert_int_equal(info.memory.swap_bytes, info.memory.kv_bytes);
    rank_close(&rank);
    config.swap_bytes = (size_t)1 << 60;
    assert_refused(state, &config, ERROR_CONFIG, PIECES("--swap-space: ", "are missing"));
    config.swap_bytes = MIB;
    gpu.pins_nothing = true;
    assert_refused(state, &config, ERROR_MEMORY,
                   PIECES("host pool of KV blocks: cannot pin; lower --swap-space"));
}

static void test_no_host_pool(void **state) {
    struct executor_config config = config_for("auto");
    struct rank rank;
    for (int absent = 0; absent < 2; absent++) {
        gpu.is_absent = absent;
        config.swap_bytes = absent ? EXECUTOR_SWAP_AUTO : 0;
        assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
        assert_int_equal(info.limits.num_host_blocks, 0);
        assert_int_equal(info.memory.swap_bytes, 0);
        assert_int_equal(info.swap_block_ns, 0);
        assert_null(rank.host_pool.data);
        rank_close(&rank);
    }
}

#define MAX_TOKENS 24

static void run_step(struct rank *rank, const struct batch *batch, struct step_result *result) {
    rank_begin(rank, batch, result);
    rank_sample(rank, batch, result);
    assert_int_equal(rank_wait(rank, NULL), 0);
}

/* The last of `count` tokens from `position` on, in blocks of the table, after the moves. */
static struct sample_output step(struct rank *rank, const struct batch *moves,
                                 const int32_t table[2], int32_t position, int32_t count) {
    static const struct sample_row row = {.target = SAMPLE_NO_TARGET,
                                          .num_logprobs = 5,
                                          .settings.top_p = 1,
                                          .settings.repetition_penalty = 1,
                                          .mask = SAMPLE_NO_MASK};
    int32_t tokens[MAX_TOKENS], positions[MAX_TOKENS], slots[MAX_TOKENS];
    const int32_t query_start[] = {0, count}, context_len = position + count, last = count - 1;
    for (int32_t i = 0; i < count; i++) {
        positions[i] = position + i;
        tokens[i] = positions[i] * 11 % 300 + 3;
        slots[i] = table[positions[i] / 16] * 16 + positions[i] % 16;
    }
    struct sample_output output;
    struct batch batch = *moves;
    batch.inputs = (struct step_inputs){.num_tokens = count,
                                        .num_seqs = 1,
                                        .max_blocks_per_seq = 2,
                                        .token_ids = tokens,
                                        .positions = positions,
                                        .slot_mapping = slots,
                                        .query_start = query_start,
                                        .context_lens = &context_len,
                                        .block_tables = table};
    batch.num_sample_rows = 1;
    batch.logit_rows = &last;
    batch.sample_rows = &row;
    struct step_result result = {.rows = &output};
    run_step(rank, &batch, &result);
    assert_int_equal(result.num_sample_rows, 1);
    return output;
}

/* A sequence continues from blocks that were swapped out, in again elsewhere, and copied. */
static void test_moved_blocks_are_read(void **state) {
    static const struct batch nothing = {0};
    static const int32_t first[] = {0, 1}, host[] = {4, 2}, back[] = {6, 9}, one = 9, two = 3;
    static const struct batch out = {.swap_out = {.count = 2, .from = first, .to = host}};
    static const struct batch in = {.swap_in = {.count = 2, .from = host, .to = back},
                                    .copies = {.count = 1, .from = &one, .to = &two}};
    struct executor_config config = config_for("cpu");
    struct rank rank;
    config.swap_bytes = MIB;
    assert_int_equal(load_rank(*state, &config, &info, &rank, NULL), 0);
    step(&rank, &nothing, first, 0, 20);
    struct step_result result = {.num_sample_rows = 7};
    run_step(&rank, &out, &result);
    assert_int_equal(result.num_sample_rows, 0);
    struct sample_output plain = step(&rank, &nothing, first, 20, 1);
    step(&rank, &nothing, (const int32_t[]){1, 0}, 0, 21); /* overwrites what was swapped out */
    struct sample_output moved = step(&rank, &in, (const int32_t[]){6, 3}, 20, 1);
    assert_memory_equal(&moved, &plain, sizeof(plain));
    rank_close(&rank);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_gpu_is_filled, insert_gpu),
        cmocka_unit_test_setup(test_products_are_timed_before_the_first_request, insert_gpu),
        cmocka_unit_test_setup(test_the_largest_step_is_what_slots_can_hold, insert_gpu),
        cmocka_unit_test_setup(test_limits_left_to_the_device, insert_gpu),
        cmocka_unit_test_setup(test_bytes_asked_for, insert_gpu),
        cmocka_unit_test_setup(test_each_part_may_not_fit, insert_gpu),
        cmocka_unit_test_setup(test_the_device_fails_while_loading, insert_gpu),
        cmocka_unit_test_setup(test_what_does_not_suit_a_gpu, insert_gpu),
        cmocka_unit_test_setup(test_a_plan_is_what_loading_becomes, insert_gpu),
        cmocka_unit_test_setup(test_the_length_that_fits_a_gpu, insert_gpu),
        cmocka_unit_test_setup(test_a_plan_fills_the_gpu, insert_gpu),
        cmocka_unit_test_setup(test_a_gpu_is_filled_with_a_draft_model, insert_gpu),
        cmocka_unit_test_setup(test_a_draft_model_may_not_fit, insert_gpu),
        cmocka_unit_test_setup(test_quantising, insert_gpu),
        cmocka_unit_test_setup(test_host_pool, insert_gpu),
        cmocka_unit_test_setup(test_no_host_pool, insert_gpu),
        cmocka_unit_test_setup(test_moved_blocks_are_read, insert_gpu),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
