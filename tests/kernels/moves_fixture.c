#include "tests/kernels/moves_fixture.h"

#include "kernels/kv_type.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct kernel_fixture moves_fixture;

/* --- Parts --- */

static size_t block_bytes(const struct moves_parts *p) {
    return kv_block_bytes(&p->cache.layout);
}

static size_t row_bytes(const struct moves_parts *p, size_t width) {
    return MOVES_SEQS * dtype_row_bytes(p->backend->activation_dtype, width);
}

/* Numbers of the pool's type, so that attention gives moves_numbers too. */
static void fill_random(const struct moves_parts *p, void *memory, size_t bytes, uint64_t seed) {
    size_t count = bytes / sizeof(uint16_t);
    float *values = kernel_fixture_random_floats(&seed, count);
    dtype_from_f32(p->cache.layout.type == KV_BF16 ? DTYPE_BF16 : DTYPE_F16, values, memory, count);
    free(values);
}

void moves_upload_random(struct moves_parts *p, void *data, size_t bytes, uint64_t seed) {
    void *memory = kernel_fixture_memory(bytes);
    fill_random(p, memory, bytes, seed);
    p->backend->ops->upload(p->backend, data, memory, bytes);
    free(memory);
}

/* Everything as it was at first. */
static void fill(struct moves_parts *p) {
    moves_upload_random(p, p->cache.buffer.data, p->cache.buffer.bytes, 1);
    moves_upload_random(p, p->attended, MOVES_ROWS * row_bytes(p, MOVES_HEAD_DIM), 2);
    kernel_fixture_synchronize(p->backend);
    fill_random(p, p->host_pool.data, p->host_pool.bytes, 3);
    memset(p->downloaded, 0, p->cache.buffer.bytes);
}

void moves_parts_init(struct moves_parts *p, struct backend *b) {
    uint64_t seed = 4;
    size_t rows = (size_t)MOVES_ROWS * MOVES_SEQS;
    float *values = kernel_fixture_random_floats(&seed, rows * MOVES_QKV_WIDTH);
    *p = (struct moves_parts){
        .backend = b,
        .cache = {.layout = {.num_layers = 1,
                             .num_kv_heads = 1,
                             .head_dim = MOVES_HEAD_DIM,
                             .block_size = MOVES_BLOCK_SIZE,
                             .type = moves_fixture.dtype == DTYPE_BF16 ? KV_BF16 : KV_F16},
                  .num_blocks = MOVES_BLOCKS},
        .qkv = kernel_fixture_put(b, b->activation_dtype, values, rows * MOVES_QKV_WIDTH),
        .attended = kernel_fixture_put(b, b->activation_dtype, NULL, rows * MOVES_HEAD_DIM)};
    free(values);
    p->downloaded = kernel_fixture_memory(MOVES_BLOCKS * block_bytes(p));
    assert_int_equal(b->ops->buffer_alloc(b, MOVES_BLOCKS * block_bytes(p), &p->cache.buffer, NULL),
                     0);
    assert_int_equal(b->ops->host_alloc(b, MOVES_HOST_BLOCKS * block_bytes(p), &p->host_pool, NULL),
                     0);
}

void moves_parts_finish(struct moves_parts *p) {
    struct backend *b = p->backend;
    b->ops->host_free(b, &p->host_pool);
    b->ops->buffer_free(b, &p->cache.buffer);
    free(p->downloaded);
    kernel_fixture_free(b, p->attended);
    kernel_fixture_free(b, p->qkv);
}

/* --- What is enqueued --- */

void moves_may_wait(struct moves_parts *p) {
    if (p->one_at_a_time && !p->is_recording)
        kernel_fixture_synchronize(p->backend);
}

void moves_swap(struct moves_parts *p, enum swap_direction direction, const int32_t *device_blocks,
                const int32_t *host_blocks, int32_t num_blocks) {
    struct backend *b = p->backend;
    b->ops->swap_blocks(b, &(struct swap_blocks_args){.cache = &p->cache,
                                                      .host_pool = p->host_pool.data,
                                                      .direction = direction,
                                                      .device_blocks = device_blocks,
                                                      .host_blocks = host_blocks,
                                                      .num_blocks = num_blocks});
    moves_may_wait(p);
}

void moves_copy(struct moves_parts *p, const int32_t *from, const int32_t *to, int32_t num_blocks) {
    struct backend *b = p->backend;
    b->ops->copy_blocks(b,
                        &(struct copy_blocks_args){
                            .cache = &p->cache, .src = from, .dst = to, .num_blocks = num_blocks});
    moves_may_wait(p);
}

const int32_t moves_numbers[MOVES_BLOCKS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

void moves_swap_one(struct moves_parts *p, enum swap_direction direction, int32_t device_block,
                    int32_t host_block) {
    moves_swap(p, direction, &moves_numbers[device_block], &moves_numbers[host_block], 1);
}

void moves_begin_step(struct moves_parts *p, const struct moves_step *s) {
    struct backend *b = p->backend;
    b->ops->step_begin(b, &(struct step_inputs){.num_tokens = s->num_seqs,
                                                .num_seqs = s->num_seqs,
                                                .max_blocks_per_seq = MOVES_TABLE,
                                                .token_ids = s->token_ids,
                                                .positions = s->positions,
                                                .slot_mapping = s->slots,
                                                .query_start = s->query_start,
                                                .context_lens = s->context_lens,
                                                .block_tables = s->tables[0]});
}

void moves_store(struct moves_parts *p, int row) {
    struct backend *b = p->backend;
    b->ops->rope_store_kv(b,
                          &(struct rope_store_args){
                              .qkv = (char *)p->qkv + (size_t)row * row_bytes(p, MOVES_QKV_WIDTH),
                              .cache = &p->cache,
                              .num_q_heads = 1});
}

void moves_attend(struct moves_parts *p, int row) {
    struct backend *b = p->backend;
    b->ops->paged_attention(
        b, &(struct attention_args){
               .qkv = (char *)p->qkv + (size_t)row * row_bytes(p, MOVES_QKV_WIDTH),
               .out = (char *)p->attended + (size_t)row * row_bytes(p, MOVES_HEAD_DIM),
               .cache = &p->cache,
               .num_q_heads = 1,
               .scale = 0.125f});
}

void moves_end_step(struct moves_parts *p) {
    struct error err = {0};
    p->backend->ops->step_end(p->backend);
    if (p->is_step_in_flight && p->backend->ops->step_wait(p->backend, &err) != 0)
        fail_msg("%s", err.message);
    p->is_step_in_flight = !p->one_at_a_time;
    moves_may_wait(p);
}

/* --- What comes of it --- */

struct outcome {
    char *pool, *host_pool, *attended, *downloaded;
};

static struct outcome read_outcome(const struct moves_parts *p) {
    struct backend *b = p->backend;
    size_t bytes = p->cache.buffer.bytes, attended = MOVES_ROWS * row_bytes(p, MOVES_HEAD_DIM);
    const struct outcome o = {
        .pool = kernel_fixture_memory(bytes),
        .host_pool = kernel_fixture_memory(p->host_pool.bytes),
        .attended = kernel_fixture_memory(attended),
        .downloaded = kernel_fixture_memory(bytes),
    };
    memcpy(o.host_pool, p->host_pool.data, p->host_pool.bytes);
    memcpy(o.downloaded, p->downloaded, bytes);
    kernel_fixture_download(b, o.pool, p->cache.buffer.data, bytes);
    kernel_fixture_download(b, o.attended, p->attended, attended);
    return o;
}

static void free_outcome(const struct outcome *o) {
    free(o->pool);
    free(o->host_pool);
    free(o->attended);
    free(o->downloaded);
}

static void assert_same(const struct moves_parts *p, const struct outcome *actual,
                        const struct outcome *expected) {
    assert_memory_equal(actual->downloaded, expected->downloaded, p->cache.buffer.bytes);
    assert_memory_equal(actual->attended, expected->attended,
                        MOVES_ROWS * row_bytes(p, MOVES_HEAD_DIM));
    assert_memory_equal(actual->host_pool, expected->host_pool, p->host_pool.bytes);
    assert_memory_equal(actual->pool, expected->pool, p->cache.buffer.bytes);
}

static struct outcome run(struct moves_parts *p, void (*script)(struct moves_parts *p),
                          bool one_at_a_time) {
    fill(p);
    p->one_at_a_time = one_at_a_time;
    p->is_step_in_flight = false;
    moves_swap_one(p, SWAP_OUT, 0, 0); /* the script's first move has no transfer to wait for */
    kernel_fixture_synchronize(p->backend);
    script(p);
    kernel_fixture_synchronize(p->backend);
    return read_outcome(p);
}

void moves_assert_order_is_kept(struct moves_parts *p, void (*script)(struct moves_parts *p)) {
    struct outcome expected = run(p, script, true), actual = run(p, script, false);
    assert_same(p, &actual, &expected);
    free_outcome(&actual);
    free_outcome(&expected);
}

void moves_check_all(void (*script)(struct moves_parts *p)) {
    for (int i = 0; i < moves_fixture.num_backends; i++) {
        struct moves_parts parts;
        if (!kernel_fixture_is_new_level(&moves_fixture, i))
            continue;
        moves_parts_init(&parts, moves_fixture.backends[i]);
        moves_assert_order_is_kept(&parts, script);
        moves_parts_finish(&parts);
    }
}

struct moves_step moves_step_in(int32_t block) {
    return (struct moves_step){.num_seqs = 1,
                               .query_start = {0, 1},
                               .slots = {block * MOVES_BLOCK_SIZE},
                               .context_lens = {1},
                               .tables = {{block, block}}};
}

void moves_fixture_open(int argc, char **argv) {
    static const struct backend_config config = {.limits.max_num_batched_tokens = 8,
                                                 .limits.max_num_seqs = MOVES_SEQS,
                                                 .limits.max_model_len =
                                                     MOVES_TABLE * MOVES_BLOCK_SIZE,
                                                 .limits.block_size = MOVES_BLOCK_SIZE,
                                                 .limits.max_logit_rows = 8,
                                                 .limits.vocab_size = 100,
                                                 .head_dim = MOVES_HEAD_DIM,
                                                 .num_q_heads = 1,
                                                 .num_kv_heads = 1};
    kernel_fixture_open(&moves_fixture, argc, argv, &config);
}
