/* Block moves beside the forward passes of two steps in flight, against one call at a time: the
 * same bits in both pools, in what attention gave, and in what was downloaded. Random steps first,
 * then what these do not have: transfers, new memory, moves within a step, recordings. A device
 * that moves blocks in a stream of its own shows a missing event here in one order or another of
 * the simulator's streams. */
#include "kernels/kv_type.h"
#include "tests/kernels/kernel_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    BLOCK_SIZE = 16,
    BLOCKS = 10,
    HOST_BLOCKS = 5,
    SEQS = 2,
    TABLE = 2, /* blocks of a sequence */
    HEAD_DIM = 64,
    QKV_WIDTH = 3 * HEAD_DIM,
    ROWS = 50, /* of steps, at most */
    NUM_SEEDS = 8,
    RECORDED_BYTES = 1 << 16,
};

static struct kernel_fixture fixture;

struct parts {
    struct backend *backend;
    struct kv_cache cache;
    struct buffer host_pool;
    void *qkv;      /* [ROWS][SEQS, QKV_WIDTH]: of step i, row i */
    void *attended; /* [ROWS][SEQS, HEAD_DIM] */
    char *downloaded;
    uint64_t seed; /* of random steps */
    bool one_at_a_time;
    bool is_step_in_flight;
    bool is_recording;
};

/* What a step reads of the host. */
struct step {
    int32_t swapped_out, out_to, in_from, swapped_in, copied, copied_to; /* a block each */
    int32_t num_out, num_in, num_copies;                                 /* 0 or 1 */
    int32_t num_seqs; /* a token each, the last of its context */
    int32_t token_ids[SEQS], query_start[SEQS + 1], positions[SEQS], slots[SEQS];
    int32_t context_lens[SEQS], tables[SEQS][TABLE];
};

/* --- Parts ------------------------------------------------------------------------------------ */

static size_t block_bytes(const struct parts *p) {
    return kv_block_bytes(&p->cache.layout);
}

static size_t row_bytes(const struct parts *p, size_t width) {
    return SEQS * dtype_row_bytes(p->backend->activation_dtype, width);
}

/* Numbers of the pool's type, so that attention gives numbers too. */
static void fill_random(const struct parts *p, void *memory, size_t bytes, uint64_t seed) {
    size_t count = bytes / sizeof(uint16_t);
    float *values = kernel_fixture_random_floats(&seed, count);
    dtype_from_f32(p->cache.layout.type == KV_BF16 ? DTYPE_BF16 : DTYPE_F16, values, memory, count);
    free(values);
}

static void upload_random(struct parts *p, void *data, size_t bytes, uint64_t seed) {
    void *memory = kernel_fixture_memory(bytes);
    fill_random(p, memory, bytes, seed);
    p->backend->ops->upload(p->backend, data, memory, bytes);
    free(memory);
}

/* Everything as it was at first. */
static void fill(struct parts *p) {
    upload_random(p, p->cache.buffer.data, p->cache.buffer.bytes, 1);
    upload_random(p, p->attended, ROWS * row_bytes(p, HEAD_DIM), 2);
    kernel_fixture_synchronize(p->backend);
    fill_random(p, p->host_pool.data, p->host_pool.bytes, 3);
    memset(p->downloaded, 0, p->cache.buffer.bytes);
}

static void parts_init(struct parts *p, struct backend *b) {
    uint64_t seed = 4;
    size_t rows = (size_t)ROWS * SEQS;
    float *values = kernel_fixture_random_floats(&seed, rows * QKV_WIDTH);
    *p = (struct parts){
        .backend = b,
        .cache = {.layout = {.num_layers = 1,
                             .num_kv_heads = 1,
                             .head_dim = HEAD_DIM,
                             .block_size = BLOCK_SIZE,
                             .type = fixture.dtype == DTYPE_BF16 ? KV_BF16 : KV_F16},
                  .num_blocks = BLOCKS},
        .qkv = kernel_fixture_put(b, b->activation_dtype, values, rows * QKV_WIDTH),
        .attended = kernel_fixture_put(b, b->activation_dtype, NULL, rows * HEAD_DIM)};
    free(values);
    p->downloaded = kernel_fixture_memory(BLOCKS * block_bytes(p));
    assert_int_equal(b->ops->buffer_alloc(b, BLOCKS * block_bytes(p), &p->cache.buffer, NULL), 0);
    assert_int_equal(b->ops->host_alloc(b, HOST_BLOCKS * block_bytes(p), &p->host_pool, NULL), 0);
}

static void parts_finish(struct parts *p) {
    struct backend *b = p->backend;
    b->ops->host_free(b, &p->host_pool);
    b->ops->buffer_free(b, &p->cache.buffer);
    free(p->downloaded);
    kernel_fixture_free(b, p->attended);
    kernel_fixture_free(b, p->qkv);
}

/* --- What is enqueued ------------------------------------------------------------------------- */

/* After each call. */
static void may_wait(struct parts *p) {
    if (p->one_at_a_time && !p->is_recording)
        kernel_fixture_synchronize(p->backend);
}

static void swap(struct parts *p, enum swap_direction direction, const int32_t *device_blocks,
                 const int32_t *host_blocks, int32_t num_blocks) {
    struct backend *b = p->backend;
    b->ops->swap_blocks(b, &(struct swap_blocks_args){.cache = &p->cache,
                                                      .host_pool = p->host_pool.data,
                                                      .direction = direction,
                                                      .device_blocks = device_blocks,
                                                      .host_blocks = host_blocks,
                                                      .num_blocks = num_blocks});
    may_wait(p);
}

static void copy(struct parts *p, const int32_t *from, const int32_t *to, int32_t num_blocks) {
    struct backend *b = p->backend;
    b->ops->copy_blocks(b,
                        &(struct copy_blocks_args){
                            .cache = &p->cache, .src = from, .dst = to, .num_blocks = num_blocks});
    may_wait(p);
}

static const int32_t numbers[BLOCKS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

static void swap_one(struct parts *p, enum swap_direction direction, int32_t device_block,
                     int32_t host_block) {
    swap(p, direction, &numbers[device_block], &numbers[host_block], 1);
}

static void begin_step(struct parts *p, const struct step *s) {
    struct backend *b = p->backend;
    b->ops->step_begin(b, &(struct step_inputs){.num_tokens = s->num_seqs,
                                                .num_seqs = s->num_seqs,
                                                .max_blocks_per_seq = TABLE,
                                                .token_ids = s->token_ids,
                                                .positions = s->positions,
                                                .slot_mapping = s->slots,
                                                .query_start = s->query_start,
                                                .context_lens = s->context_lens,
                                                .block_tables = s->tables[0]});
}

/* The tokens' k and v are those of this row. */
static void store(struct parts *p, int row) {
    struct backend *b = p->backend;
    b->ops->rope_store_kv(
        b, &(struct rope_store_args){.qkv = (char *)p->qkv + (size_t)row * row_bytes(p, QKV_WIDTH),
                                     .cache = &p->cache,
                                     .num_q_heads = 1});
}

static void attend(struct parts *p, int row) {
    struct backend *b = p->backend;
    b->ops->paged_attention(
        b,
        &(struct attention_args){.qkv = (char *)p->qkv + (size_t)row * row_bytes(p, QKV_WIDTH),
                                 .out = (char *)p->attended + (size_t)row * row_bytes(p, HEAD_DIM),
                                 .cache = &p->cache,
                                 .num_q_heads = 1,
                                 .scale = 0.125f});
}

/* Waits for the step before. */
static void end_step(struct parts *p) {
    struct error err = {0};
    p->backend->ops->step_end(p->backend);
    if (p->is_step_in_flight && p->backend->ops->step_wait(p->backend, &err) != 0)
        fail_msg("%s", err.message);
    p->is_step_in_flight = !p->one_at_a_time;
    may_wait(p);
}

/* --- What comes of it ------------------------------------------------------------------------- */

struct outcome {
    char *pool, *host_pool, *attended, *downloaded;
};

static struct outcome read_outcome(const struct parts *p) {
    struct backend *b = p->backend;
    size_t bytes = p->cache.buffer.bytes, attended = ROWS * row_bytes(p, HEAD_DIM);
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

static void assert_same(const struct parts *p, const struct outcome *actual,
                        const struct outcome *expected) {
    assert_memory_equal(actual->downloaded, expected->downloaded, p->cache.buffer.bytes);
    assert_memory_equal(actual->attended, expected->attended, ROWS * row_bytes(p, HEAD_DIM));
    assert_memory_equal(actual->host_pool, expected->host_pool, p->host_pool.bytes);
    assert_memory_equal(actual->pool, expected->pool, p->cache.buffer.bytes);
}

static struct outcome run(struct parts *p, void (*script)(struct parts *p), bool one_at_a_time) {
    fill(p);
    p->one_at_a_time = one_at_a_time;
    p->is_step_in_flight = false;
    swap_one(p, SWAP_OUT, 0, 0); /* the script's first move has no transfer to wait for */
    kernel_fixture_synchronize(p->backend);
    script(p);
    kernel_fixture_synchronize(p->backend);
    return read_outcome(p);
}

static void assert_order_is_kept(struct parts *p, void (*script)(struct parts *p)) {
    struct outcome expected = run(p, script, true), actual = run(p, script, false);
    assert_same(p, &actual, &expected);
    free_outcome(&actual);
    free_outcome(&expected);
}

static void check_all(void (*script)(struct parts *p)) {
    for (int i = 0; i < fixture.num_backends; i++) {
        struct parts parts;
        if (!kernel_fixture_is_new_level(&fixture, i))
            continue;
        parts_init(&parts, fixture.backends[i]);
        assert_order_is_kept(&parts, script);
        parts_finish(&parts);
    }
}

/* --- Random steps ----------------------------------------------------------------------------- */

/* Distinct blocks. */
static void draw_tables(struct step *s, uint64_t *seed) {
    int32_t *tables = s->tables[0];
    for (int i = 0; i < SEQS * TABLE; i++) {
        bool is_new;
        do {
            tables[i] = kernel_fixture_random_in(seed, 0, BLOCKS - 1);
            is_new = true;
            for (int k = 0; k < i; k++)
                is_new = is_new && tables[k] != tables[i];
        } while (!is_new);
    }
}

static struct step draw_step(uint64_t *seed) {
    struct step s = {
        .swapped_out = kernel_fixture_random_in(seed, 0, BLOCKS - 1),
        .out_to = kernel_fixture_random_in(seed, 0, HOST_BLOCKS - 1),
        .in_from = kernel_fixture_random_in(seed, 0, HOST_BLOCKS - 1),
        .swapped_in = kernel_fixture_random_in(seed, 0, BLOCKS - 1),
        .copied = kernel_fixture_random_in(seed, 0, BLOCKS / 2 - 1),
        .copied_to = kernel_fixture_random_in(seed, BLOCKS / 2, BLOCKS - 1),
        .num_out = kernel_fixture_random_in(seed, 0, 1),
        .num_in = kernel_fixture_random_in(seed, 0, 1),
        .num_copies = kernel_fixture_random_in(seed, 0, 1),
        .num_seqs = kernel_fixture_random_in(seed, 0, SEQS),
    };
    draw_tables(&s, seed);
    for (int i = 0; i < s.num_seqs; i++) {
        int32_t position = kernel_fixture_random_in(seed, 0, TABLE * BLOCK_SIZE - 1);
        s.positions[i] = position;
        s.context_lens[i] = position + 1;
        s.slots[i] = s.tables[i][position / BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE;
        s.query_start[i + 1] = i + 1;
    }
    return s;
}

/* One without sequences only moves. */
static void enqueue_step(struct parts *p, const struct step *s, int row) {
    swap(p, SWAP_OUT, &s->swapped_out, &s->out_to, s->num_out);
    swap(p, SWAP_IN, &s->swapped_in, &s->in_from, s->num_in);
    copy(p, &s->copied, &s->copied_to, s->num_copies);
    if (s->num_seqs > 0) {
        begin_step(p, s);
        store(p, row);
        attend(p, row);
        may_wait(p);
    }
    end_step(p);
}

/* What a step reads is gone once it was waited for. */
static void random_steps(struct parts *p) {
    struct step steps[2];
    uint64_t seed = p->seed;
    for (int i = 0; i < ROWS; i++) {
        steps[i % 2] = draw_step(&seed);
        enqueue_step(p, &steps[i % 2], i);
        memset(&steps[(i + 1) % 2], 0xff, sizeof(steps[0]));
    }
    kernel_fixture_synchronize(p->backend);
}

static void test_random_steps(void **state) {
    for (int i = 0; i < fixture.num_backends; i++) {
        struct parts parts;
        if (!kernel_fixture_is_new_level(&fixture, i))
            continue;
        parts_init(&parts, fixture.backends[i]);
        for (parts.seed = 0; parts.seed < NUM_SEEDS; parts.seed++)
            assert_order_is_kept(&parts, random_steps);
        parts_finish(&parts);
    }
}

/* --- One hazard each -------------------------------------------------------------------------- */

/* What was swapped out is there after the wait for a step that did nothing else. */
static void swap_out_alone(struct parts *p) {
    swap(p, SWAP_OUT, numbers, numbers, 3);
    end_step(p);
    end_step(p); /* and waits for the first */
    memcpy(p->downloaded, p->host_pool.data, p->host_pool.bytes);
}

static void transfers(struct parts *p) {
    struct backend *b = p->backend;
    const struct buffer *pool = &p->cache.buffer;
    upload_random(p, pool->data, pool->bytes, 11);
    may_wait(p);
    swap(p, SWAP_OUT, numbers, numbers, HOST_BLOCKS);
    upload_random(p, pool->data, pool->bytes, 12);
    may_wait(p);
    swap(p, SWAP_IN, numbers + 5, numbers, HOST_BLOCKS);
    b->ops->download(b, p->downloaded, pool->data, pool->bytes);
    may_wait(p);
    swap(p, SWAP_IN, numbers, numbers, HOST_BLOCKS);
}

/* It is zeroed before anything comes to it. */
static void new_memory(struct parts *p) {
    struct backend *b = p->backend;
    struct kv_cache first = p->cache;
    assert_int_equal(b->ops->buffer_alloc(b, first.buffer.bytes, &p->cache.buffer, NULL), 0);
    may_wait(p);
    swap(p, SWAP_IN, numbers, numbers, HOST_BLOCKS);
    b->ops->download(b, p->downloaded, p->cache.buffer.data, p->cache.buffer.bytes);
    kernel_fixture_synchronize(b);
    b->ops->buffer_free(b, &p->cache.buffer);
    p->cache = first;
}

/* Of one sequence of one token. */
static struct step step_in(int32_t block) {
    return (struct step){.num_seqs = 1,
                         .query_start = {0, 1},
                         .slots = {block * BLOCK_SIZE},
                         .context_lens = {1},
                         .tables = {{block, block}}};
}

/* Between the ops that write and read the step's block; the first move is before the step. */
static void moves_within_a_step(struct parts *p) {
    const struct step s = step_in(0);
    swap_one(p, SWAP_IN, 3, 0);
    begin_step(p, &s);
    store(p, 0);
    may_wait(p);
    copy(p, &numbers[3], &numbers[4], 1);
    swap_one(p, SWAP_OUT, 0, 1);
    store(p, 1);
    attend(p, 1);
    may_wait(p);
    swap_one(p, SWAP_IN, 0, 2);
    attend(p, 2);
    may_wait(p);
    end_step(p);
    kernel_fixture_synchronize(p->backend);
}

static void test_swap_out_alone(void **state) {
    check_all(swap_out_alone);
}

static void test_transfers(void **state) {
    check_all(transfers);
}

static void test_new_memory(void **state) {
    check_all(new_memory);
}

static void test_moves_within_a_step(void **state) {
    check_all(moves_within_a_step);
}

/* --- Recordings ------------------------------------------------------------------------------- */

static void begin_recording(struct parts *p) {
    struct error err = {0};
    if (p->backend->ops->recording->begin(p->backend, RECORDED_BYTES, &err) != 0)
        fail_msg("%s", err.message);
    p->is_recording = true;
}

static struct recording *end_recording(struct parts *p) {
    struct error err = {0};
    struct recording *recording = NULL;
    if (p->backend->ops->recording->end(p->backend, &recording, &err) != 0)
        fail_msg("%s", err.message);
    p->is_recording = false;
    return recording;
}

static void replay(struct parts *p, struct recording *recording) {
    p->backend->ops->recording->replay(p->backend, recording);
    may_wait(p);
}

static void free_recording(struct parts *p, struct recording *recording) {
    kernel_fixture_synchronize(p->backend);
    p->is_step_in_flight = false;
    p->backend->ops->recording->free(p->backend, recording);
}

/* Ops are recorded that were called before. */
static void call_first(struct parts *p, const struct step *s) {
    begin_step(p, s);
    store(p, 0);
    end_step(p);
    kernel_fixture_synchronize(p->backend);
    p->is_step_in_flight = false;
}

/* The step is recorded too: nobody knows its blocks when it is replayed. */
static void replays_of_a_step(struct parts *p) {
    const struct step s = step_in(0);
    call_first(p, &s);
    begin_recording(p);
    begin_step(p, &s);
    store(p, 1);
    struct recording *recording = end_recording(p);
    swap_one(p, SWAP_OUT, 0, 0);
    replay(p, recording);
    end_step(p);
    swap_one(p, SWAP_OUT, 0, 1);
    end_step(p);
    free_recording(p, recording);
}

/* In a step, and after its end. */
static void replays_in_a_step(struct parts *p) {
    const struct step s = step_in(0);
    call_first(p, &s);
    begin_step(p, &s);
    may_wait(p);
    begin_recording(p);
    store(p, 1);
    struct recording *recording = end_recording(p);
    end_step(p);
    swap_one(p, SWAP_OUT, 0, 0);
    begin_step(p, &s);
    replay(p, recording);
    end_step(p);
    swap_one(p, SWAP_OUT, 0, 1);
    swap_one(p, SWAP_IN, 0, 3);
    swap_one(p, SWAP_OUT, 0, 4);
    replay(p, recording);
    swap_one(p, SWAP_OUT, 0, 2);
    end_step(p);
    free_recording(p, recording);
}

/* With it the blocks of the step before are forgotten, whose work is not done. */
static void recording_after_a_step(struct parts *p) {
    const struct step s = step_in(0), other = step_in(1);
    call_first(p, &s);
    begin_step(p, &s);
    store(p, 1);
    may_wait(p);
    end_step(p);
    begin_recording(p);
    begin_step(p, &other);
    store(p, 2);
    struct recording *recording = end_recording(p);
    swap_one(p, SWAP_OUT, 0, 0);
    end_step(p);
    free_recording(p, recording);
}

/* Moves that are recorded, behind one that is not and before another; also in a step that has
 * nothing to do with them. */
static void recorded_moves(struct parts *p) {
    const struct step s = step_in(0);
    begin_recording(p);
    copy(p, &numbers[3], &numbers[4], 1);
    struct recording *recording = end_recording(p);
    swap_one(p, SWAP_IN, 3, 1);
    replay(p, recording);
    swap_one(p, SWAP_IN, 3, 2);
    swap_one(p, SWAP_OUT, 4, 3);
    end_step(p);
    swap_one(p, SWAP_IN, 3, 4);
    begin_step(p, &s);
    replay(p, recording);
    end_step(p);
    swap_one(p, SWAP_OUT, 4, 4);
    end_step(p);
    free_recording(p, recording);
}

static void test_replays_of_a_step(void **state) {
    check_all(replays_of_a_step);
}

static void test_replays_in_a_step(void **state) {
    check_all(replays_in_a_step);
}

static void test_recording_after_a_step(void **state) {
    check_all(recording_after_a_step);
}

static void test_recorded_moves(void **state) {
    check_all(recorded_moves);
}

int main(int argc, char **argv) {
    static const struct backend_config config = {.limits.max_num_batched_tokens = 8,
                                                 .limits.max_num_seqs = SEQS,
                                                 .limits.max_model_len = TABLE * BLOCK_SIZE,
                                                 .limits.block_size = BLOCK_SIZE,
                                                 .limits.max_logit_rows = 8,
                                                 .limits.vocab_size = 100,
                                                 .head_dim = HEAD_DIM,
                                                 .num_q_heads = 1,
                                                 .num_kv_heads = 1};
    const struct CMUnitTest of_moves[] = {
        cmocka_unit_test(test_swap_out_alone),      cmocka_unit_test(test_random_steps),
        cmocka_unit_test(test_transfers),           cmocka_unit_test(test_new_memory),
        cmocka_unit_test(test_moves_within_a_step),
    };
    const struct CMUnitTest of_recordings[] = {
        cmocka_unit_test(test_replays_of_a_step),
        cmocka_unit_test(test_replays_in_a_step),
        cmocka_unit_test(test_recording_after_a_step),
        cmocka_unit_test(test_recorded_moves),
    };
    kernel_fixture_open(&fixture, argc, argv, &config);
    int failed = cmocka_run_group_tests_name("moves", of_moves, NULL, NULL);
    if (fixture.backends[0]->ops->recording != NULL)
        failed += cmocka_run_group_tests_name("recordings", of_recordings, NULL, NULL);
    kernel_fixture_close(&fixture);
    return failed;
}
