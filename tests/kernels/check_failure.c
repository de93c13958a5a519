/* A device that fails while it works, which only the simulator does on demand: the first failure is
 * kept, later calls do nothing and come back, and every wait says what failed and where.
 * So it is whichever kernel fails. */
#include "kernels/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WIDTH = 64, ROWS = 3, BLOCKS = 2 };
enum { NUM_KERNELS = 16 }; /* of call_ops: one of each op, five of sample */

static struct backend *open_failing(const char *kernels_before) {
    assert_int_equal(setenv("QUIRE_CUDASIM_FAIL_AFTER", kernels_before, 1), 0);
    struct backend_config config = {.limits.max_num_batched_tokens = 8,
                                    .limits.max_num_seqs = 2,
                                    .limits.max_model_len = BLOCKS,
                                    .limits.block_size = 1,
                                    .limits.max_logit_rows = 2,
                                    .limits.vocab_size = 100,
                                    .head_dim = 64,
                                    .num_q_heads = 1,
                                    .num_kv_heads = 1,
                                    .activation_dtype = DTYPE_BF16};
    struct error err = {0};
    struct backend *b = backend_open("cuda-sim", &config, &err);
    if (b == NULL)
        fail_msg("%s", err.message);
    return b;
}

/* By `wait`, the function of CUDA that came upon it. */
static void assert_failed(struct backend *b, const char *wait) {
    struct error err = {0}, of_step = {0};
    char beginning[64];
    snprintf(beginning, sizeof(beginning), "%s failed at kernels/cuda/step/cuda_", wait);
    assert_int_equal(b->ops->synchronize(b, &err), -1);
    assert_int_equal(err.code, ERROR_DEVICE);
    assert_non_null(strstr(err.message, beginning));
    b->ops->step_end(b);
    assert_int_equal(b->ops->step_wait(b, &of_step), -1);
    assert_int_equal(of_step.code, ERROR_DEVICE);
    assert_string_equal(of_step.message, err.message);
    assert_non_null(strstr(err.message, ".c:"));
    assert_non_null(strstr(err.message, "cudaErrorIllegalAddress"));
}

/* What an op may be given; memory that exists before the failure. */
struct things {
    struct buffer a, b, weight, host;
    struct matrix *matrix; /* [WIDTH, WIDTH] */
    struct kv_cache cache;
};

static void take(struct backend *b, size_t bytes, struct buffer *out) {
    struct error err = {0};
    if (b->ops->buffer_alloc(b, bytes, out, &err) != 0)
        fail_msg("%s", err.message);
}

static int create_matrix(struct backend *b, struct matrix **out, struct error *err) {
    static const float values[WIDTH * WIDTH];
    struct matrix_part part = {.dtype = DTYPE_F32, .rows = WIDTH, .data = values};
    return b->ops->matrix_create(b, &part, 1, WIDTH, MATRIX_LINEAR, out, err);
}

static void things_init(struct backend *b, struct things *t) {
    t->cache = (struct kv_cache){.layout = {.num_layers = 1,
                                            .num_kv_heads = 1,
                                            .head_dim = WIDTH,
                                            .block_size = 16,
                                            .type = KV_BF16},
                                 .num_blocks = BLOCKS};
    size_t pool_bytes = BLOCKS * kv_block_bytes(&t->cache.layout);
    take(b, 4096, &t->a);
    take(b, 4096, &t->b);
    take(b, 4096, &t->weight);
    take(b, pool_bytes, &t->cache.buffer);
    assert_int_equal(b->ops->host_alloc(b, pool_bytes, &t->host, NULL), 0);
    assert_int_equal(create_matrix(b, &t->matrix, NULL), 0);
}

static void things_finish(struct backend *b, struct things *t) {
    b->ops->matrix_destroy(b, t->matrix);
    b->ops->host_free(b, &t->host);
    b->ops->buffer_free(b, &t->cache.buffer);
    b->ops->buffer_free(b, &t->weight);
    b->ops->buffer_free(b, &t->b);
    b->ops->buffer_free(b, &t->a);
}

static void call_norm(struct backend *b, const struct things *t) {
    b->ops->norm(b, &(struct norm_args){.x = t->a.data,
                                        .weight = t->weight.data,
                                        .out = t->b.data,
                                        .num_rows = ROWS,
                                        .row_stride = WIDTH,
                                        .width = WIDTH,
                                        .epsilon = 1e-5f});
}

static void call_sample(struct backend *b, const struct things *t, struct sample_output *out) {
    static const uint32_t mask[SAMPLE_MASK_WORDS(100)] = {1};
    static const struct token_bias bias = {.token = 0, .bias = 1};
    static const struct token_count count = {.token = 0, .output_count = 1};
    static const struct sample_row row = {.target = SAMPLE_NO_TARGET,
                                          .num_logprobs = 1,
                                          .settings.temperature = 1,
                                          .settings.top_p = 1,
                                          .settings.repetition_penalty = 1.1f,
                                          .num_biases = 1,
                                          .num_counts = 1,
                                          .mask = 0};
    b->ops->sample(b, &(struct sample_args){.logits = t->a.data,
                                            .num_sample_rows = 1,
                                            .vocab_size = 100,
                                            .rows = &row,
                                            .counts = &count,
                                            .biases = &bias,
                                            .masks = mask,
                                            .out = out});
}

/* Every op that a step calls; `out` is filled by the wait for it, if that succeeds. */
static void call_ops(struct backend *b, struct things *t, struct sample_output *out) {
    static const int32_t one[2] = {0, 1}, other[2] = {1, 0};
    struct step_inputs step = {.num_tokens = 1,
                               .num_seqs = 1,
                               .max_blocks_per_seq = 1,
                               .token_ids = one,
                               .positions = one,
                               .slot_mapping = one,
                               .query_start = one,
                               .context_lens = one + 1,
                               .block_tables = one};
    b->ops->step_begin(b, &step);
    b->ops->embed(b, &(struct embed_args){.table = t->matrix, .out = t->a.data, .scale = 1});
    call_norm(b, t);
    b->ops->linear(
        b, &(struct linear_args){
               .x = t->a.data, .weight = t->matrix, .out = t->b.data, .num_rows = 1, .scale = 1});
    b->ops->rope_store_kv(b, &(struct rope_store_args){.qkv = t->a.data,
                                                       .rope_table = t->weight.data,
                                                       .cache = &t->cache,
                                                       .num_q_heads = 1,
                                                       .rotary_dim = WIDTH});
    b->ops->paged_attention(
        b,
        &(struct attention_args){
            .qkv = t->a.data, .out = t->b.data, .cache = &t->cache, .num_q_heads = 1, .scale = 1});
    b->ops->act_mul(b, &(struct act_mul_args){
                           .gate_up = t->a.data, .out = t->b.data, .num_rows = 1, .width = WIDTH});
    b->ops->soft_cap(
        b, &(struct soft_cap_args){.x = t->weight.data, .num_rows = 1, .width = 8, .cap = 30});
    b->ops->gather_rows(
        b, &(struct gather_rows_args){
               .x = t->a.data, .rows = other, .out = t->b.data, .num_rows = 2, .width = WIDTH});
    b->ops->add_rows(b, &(struct add_rows_args){.x = t->a.data,
                                                .spans = &(struct row_span){0, 1},
                                                .sums = t->weight.data,
                                                .num_spans = 1,
                                                .width = 8});
    b->ops->copy_blocks(b, &(struct copy_blocks_args){
                               .cache = &t->cache, .src = one, .dst = other, .num_blocks = 1});
    b->ops->swap_blocks(b, &(struct swap_blocks_args){.cache = &t->cache,
                                                      .host_pool = t->host.data,
                                                      .device_blocks = one,
                                                      .host_blocks = other,
                                                      .num_blocks = 2});
    call_sample(b, t, out);
}

static void test_failure_stays(void **state) {
    struct backend *b = open_failing("2");
    struct things t;
    things_init(b, &t);
    call_norm(b, &t);
    call_norm(b, &t);
    assert_int_equal(b->ops->synchronize(b, NULL), 0);
    call_norm(b, &t);
    assert_failed(b, "cudaStreamSynchronize");
    for (int i = 0; i < 2; i++) {
        struct sample_output out = {.token = -7};
        call_ops(b, &t, &out);
        assert_failed(b, "cudaStreamSynchronize");
        assert_int_equal(out.token, -7);
        char bytes[64] = {0};
        b->ops->upload(b, t.a.data, bytes, sizeof(bytes));
        b->ops->download(b, bytes, t.a.data, sizeof(bytes));
        assert_failed(b, "cudaStreamSynchronize");
    }
    size_t free_bytes = 1, total_bytes = 1;
    b->ops->memory_info(b, &free_bytes, &total_bytes);
    assert_int_equal(free_bytes, 0);
    struct buffer none = {0};
    struct error err = {0};
    assert_int_equal(b->ops->buffer_alloc(b, 16, &none, &err), -1);
    assert_int_equal(err.code, ERROR_DEVICE);
    assert_null(none.data);
    struct matrix *matrix = NULL;
    assert_int_equal(create_matrix(b, &matrix, &err), -1);
    assert_null(matrix);
    static const float row[WIDTH];
    assert_int_equal(b->ops->matrix_fill(b, t.matrix, 1, 1, row, &err), -1);
    assert_int_equal(err.code, ERROR_DEVICE);
    things_finish(b, &t);
    backend_close(b);
}

enum { CAME_THROUGH = 40, FAILED_IN_ORDER = 41 };

/* The ops, recorded and replayed. */
static struct recording *replay_ops(struct backend *b, struct things *t,
                                    struct sample_output *out) {
    struct recording *recording = NULL;
    assert_int_equal(b->ops->recording->begin(b, 1 << 20, NULL), 0);
    call_ops(b, t, out);
    assert_int_equal(b->ops->recording->end(b, &recording, NULL), 0);
    b->ops->recording->replay(b, recording);
    return recording;
}

static void assert_records_nothing(struct backend *b) {
    struct error err = {0};
    assert_int_equal(b->ops->recording->begin(b, 1 << 20, &err), -1);
    assert_int_equal(err.code, ERROR_DEVICE);
}

/* For a process of its own: the simulator reads its settings once. */
static int run_step(const char *kernels_before, bool is_recorded) {
    struct backend *b = open_failing(kernels_before);
    struct things t;
    struct sample_output out = {.token = -7};
    struct recording *recording = NULL;
    things_init(b, &t);
    if (is_recorded)
        recording = replay_ops(b, &t, &out);
    else
        call_ops(b, &t, &out);
    b->ops->step_end(b);
    bool failed = b->ops->step_wait(b, NULL) != 0;
    if (failed)
        assert_failed(b, "cudaEventSynchronize");
    if (failed && is_recorded) {
        b->ops->recording->replay(b, recording);
        assert_failed(b, "cudaEventSynchronize");
        assert_records_nothing(b);
    }
    assert_int_equal(out.token, failed ? -7 : 0);
    b->ops->recording->free(b, recording);
    things_finish(b, &t);
    backend_close(b);
    return failed ? FAILED_IN_ORDER : CAME_THROUGH;
}

/* Whichever kernel or product of a step is the first to fail, that is reported, and everything can
 * be given back. */
static void assert_any_kernel_may_fail(bool is_recorded) {
    int num_kernels = 0, status = 0;
    for (;; num_kernels++) {
        char kernels_before[16];
        snprintf(kernels_before, sizeof(kernels_before), "%d", num_kernels);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            _exit(run_step(kernels_before, is_recorded));
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != FAILED_IN_ORDER)
            break;
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), CAME_THROUGH);
    assert_int_equal(num_kernels, NUM_KERNELS);
}

static void test_any_kernel_may_fail(void **state) {
    assert_any_kernel_may_fail(false);
}

static void test_any_replayed_kernel_may_fail(void **state) {
    assert_any_kernel_may_fail(true);
}

/* The last is the first for which this process has a device. */
int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_kernel_may_fail),
                                       cmocka_unit_test(test_any_replayed_kernel_may_fail),
                                       cmocka_unit_test(test_failure_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
