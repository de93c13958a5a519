/* A batch of every op, recorded and replayed, against the same batch enqueued directly: the same
 * bits in everything that the ops write, with the host arrays that they read gone meanwhile. A
 * device that records nothing, as the CPU, says so. */
#include "tests/kernels/kernel_fixture.h"
#include "tests/kernels/sample_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    TOKENS = 20, /* of two sequences */
    FIRST = 13,  /* of them the first one's */
    SEQS = 2,
    WIDTH = 64,
    HEADS = 4,
    KV_HEADS = 2,
    HEAD_DIM = 64,
    Q_WIDTH = HEADS * HEAD_DIM,
    QKV_WIDTH = (HEADS + 2 * KV_HEADS) * HEAD_DIM,
    FFN = 48,
    EXPERTS = 6,
    CHOSEN = 2,
    CHOICES_BYTES = 1024,
    VOCAB = 100,
    ROWS = 3,
    LISTED = 2,
    SUMS = 2,
    BLOCK_SIZE = 16,
    BLOCKS = 6, /* of the pool; the step's are the first four */
    HOST_BYTES = 1 << 20,
};

static struct kernel_fixture fixture;

/* The device's arrays, in one piece of memory. */
enum array {
    HIDDEN,
    NORMED,
    QKV,
    ATTENDED,
    GATE_UP,
    ACTED,
    ROUTER_LOGITS,
    CHOICES,
    EXPERT_GATE_UP,
    EXPERT_ACTED,
    EXPERT_OUT,
    HEAD_ROWS,
    LOGITS,
    SUM_ROWS,
    WEIGHT,
    ROPE
};

static const struct {
    bool is_float; /* else activation_dtype */
    size_t count;
} shapes[] = {[HIDDEN] = {false, TOKENS *WIDTH},
              [NORMED] = {false, TOKENS *WIDTH},
              [QKV] = {false, TOKENS *QKV_WIDTH},
              [ATTENDED] = {false, TOKENS *Q_WIDTH},
              [GATE_UP] = {false, TOKENS * 2 * FFN},
              [ACTED] = {false, TOKENS *FFN},
              [ROUTER_LOGITS] = {true, TOKENS *EXPERTS},
              [CHOICES] = {true, CHOICES_BYTES / sizeof(float)},
              [EXPERT_GATE_UP] = {false, TOKENS *CHOSEN * 2 * FFN},
              [EXPERT_ACTED] = {false, TOKENS *CHOSEN *FFN},
              [EXPERT_OUT] = {false, TOKENS *CHOSEN *WIDTH},
              [HEAD_ROWS] = {false, ROWS *WIDTH},
              [LOGITS] = {true, ROWS *VOCAB},
              [SUM_ROWS] = {true, SUMS *WIDTH},
              [WEIGHT] = {true, WIDTH},
              [ROPE] = {true, TOKENS *HEAD_DIM}};

struct parts {
    struct backend *backend;
    struct matrix *table, *to_qkv, *to_gate_up; /* the table is the head too */
    struct matrix *router, *to_expert_gate_up, *to_expert_out;
    struct buffer arrays;
    char *first_arrays; /* what they hold at first */
    struct kv_cache cache;
    struct buffer host_pool;
};

/* What the ops read of the host. */
struct inputs {
    int32_t token_ids[TOKENS], positions[TOKENS], slots[TOKENS];
    int32_t query_start[SEQS + 1], context_lens[SEQS], tables[SEQS * 2];
    int32_t logit_rows[ROWS];
    struct sample_row rows[ROWS];
    struct token_bias biases[ROWS];
    struct token_count counts[ROWS];
    uint32_t masks[ROWS][SAMPLE_MASK_WORDS(VOCAB)];
    int32_t listed[ROWS * LISTED];
    struct row_span spans[SUMS];
    float sums[SUMS * WIDTH];
    int32_t src[1], dst[1], pool_blocks[2], host_blocks[2];
};

/* What they bring back. */
struct results {
    struct sample_output out[ROWS];
    float listed_logprobs[ROWS * LISTED];
    float sums[SUMS * WIDTH];
};

/* All memory that they write. */
struct state {
    struct results results;
    char *arrays, *pool, *host_pool;
};

static size_t array_offset(const struct parts *p, enum array which) {
    size_t offset = 0;
    for (enum array i = 0; i < which; i++) {
        enum dtype dtype = shapes[i].is_float ? DTYPE_F32 : p->backend->activation_dtype;
        offset += (dtype_row_bytes(dtype, shapes[i].count) + 255) / 256 * 256;
    }
    return offset;
}

static void *array_of(const struct parts *p, enum array which) {
    return (char *)p->arrays.data + array_offset(p, which);
}

/* --- Parts --- */

static struct matrix *random_matrix(struct backend *b, uint64_t *seed, int32_t rows, int32_t cols) {
    float *values = kernel_fixture_random_floats(seed, (size_t)rows * (size_t)cols);
    const struct matrix_part part = {.dtype = DTYPE_F32, .rows = rows, .data = values};
    struct matrix *matrix = kernel_fixture_matrix(b, &part, 1, cols, MATRIX_LINEAR);
    free(values);
    return matrix;
}

static void fill_arrays(struct parts *p, uint64_t *seed) {
    for (enum array i = 0; i <= ROPE; i++) {
        float *values = kernel_fixture_random_floats(seed, shapes[i].count);
        enum dtype dtype = shapes[i].is_float ? DTYPE_F32 : p->backend->activation_dtype;
        dtype_from_f32(dtype, values, p->first_arrays + array_offset(p, i), shapes[i].count);
        free(values);
    }
}

static void parts_init(struct parts *p, struct backend *b) {
    uint64_t seed = 5;
    *p =
        (struct parts){.backend = b,
                       .table = random_matrix(b, &seed, VOCAB, WIDTH),
                       .to_qkv = random_matrix(b, &seed, QKV_WIDTH, WIDTH),
                       .to_gate_up = random_matrix(b, &seed, 2 * FFN, WIDTH),
                       .router = random_matrix(b, &seed, EXPERTS, WIDTH),
                       .to_expert_gate_up = random_matrix(b, &seed, EXPERTS * 2 * FFN, WIDTH),
                       .to_expert_out = random_matrix(b, &seed, EXPERTS * WIDTH, FFN),
                       .cache = {.layout = {.num_layers = 1,
                                            .num_kv_heads = KV_HEADS,
                                            .head_dim = HEAD_DIM,
                                            .block_size = BLOCK_SIZE,
                                            .type = fixture.dtype == DTYPE_BF16 ? KV_BF16 : KV_F16},
                                 .num_blocks = BLOCKS}};
    assert_true(expert_choices_bytes(TOKENS, CHOSEN, EXPERTS) <= CHOICES_BYTES);
    size_t bytes = array_offset(p, ROPE + 1), pool = BLOCKS * kv_block_bytes(&p->cache.layout);
    assert_int_equal(b->ops->buffer_alloc(b, bytes, &p->arrays, NULL), 0);
    assert_int_equal(b->ops->buffer_alloc(b, pool, &p->cache.buffer, NULL), 0);
    assert_int_equal(b->ops->host_alloc(b, pool, &p->host_pool, NULL), 0);
    p->first_arrays = kernel_fixture_memory(bytes);
    fill_arrays(p, &seed);
}

static void parts_finish(struct parts *p) {
    struct backend *b = p->backend;
    free(p->first_arrays);
    b->ops->host_free(b, &p->host_pool);
    b->ops->buffer_free(b, &p->cache.buffer);
    b->ops->buffer_free(b, &p->arrays);
    b->ops->matrix_destroy(b, p->to_expert_out);
    b->ops->matrix_destroy(b, p->to_expert_gate_up);
    b->ops->matrix_destroy(b, p->router);
    b->ops->matrix_destroy(b, p->to_gate_up);
    b->ops->matrix_destroy(b, p->to_qkv);
    b->ops->matrix_destroy(b, p->table);
}

/* Everything that the ops write, as it was at first; the pools are zeros. */
static void put_back(struct parts *p, struct results *results) {
    struct backend *b = p->backend;
    char *zeros = calloc(1, p->cache.buffer.bytes);
    assert_non_null(zeros);
    b->ops->upload(b, p->arrays.data, p->first_arrays, p->arrays.bytes);
    b->ops->upload(b, p->cache.buffer.data, zeros, p->cache.buffer.bytes);
    kernel_fixture_synchronize(b);
    memset(p->host_pool.data, 0, p->host_pool.bytes);
    memset(results, 0xff, sizeof(*results));
    free(zeros);
}

/* --- The batch --- */

static void fill_step(struct inputs *in, uint64_t *seed) {
    for (int t = 0; t < TOKENS; t++) {
        bool is_second = t >= FIRST;
        in->token_ids[t] = kernel_fixture_random_in(seed, 0, VOCAB - 1);
        in->positions[t] = is_second ? t - FIRST : t + 5; /* five were there */
        in->slots[t] = (is_second ? 2 * BLOCK_SIZE : 0) + in->positions[t];
    }
    in->query_start[1] = FIRST;
    in->query_start[2] = TOKENS;
    in->context_lens[0] = FIRST + 5;
    in->context_lens[1] = TOKENS - FIRST;
    for (int i = 0; i < SEQS * 2; i++)
        in->tables[i] = i;
    in->dst[0] = in->pool_blocks[0] = 4;
    in->pool_blocks[1] = 5;
    in->host_blocks[0] = 1;
    in->host_blocks[1] = 3;
}

static struct inputs *make_inputs(void) {
    struct inputs *in = calloc(1, sizeof(*in));
    uint64_t seed = 9;
    assert_non_null(in);
    fill_step(in, &seed);
    for (int r = 0; r < ROWS; r++) {
        in->logit_rows[r] = kernel_fixture_random_in(&seed, 0, TOKENS - 1);
        in->rows[r] = sample_fixture_plain;
        in->rows[r].seed = kernel_fixture_random(&seed);
        in->rows[r].settings.frequency_penalty = 0.5f;
        in->rows[r].first_bias = in->rows[r].first_count = in->rows[r].mask = r;
        in->rows[r].num_biases = in->rows[r].num_counts = 1;
        in->rows[r].num_logprobs = 2;
        in->rows[r].first_listed = in->rows[r].first_listed_logprob = r * LISTED;
        in->rows[r].num_listed = LISTED;
        in->biases[r] = (struct token_bias){kernel_fixture_random_in(&seed, 0, VOCAB - 1), 3};
        in->counts[r] = (struct token_count){kernel_fixture_random_in(&seed, 0, VOCAB - 1), 2};
        for (int w = 0; w < SAMPLE_MASK_WORDS(VOCAB); w++)
            in->masks[r][w] = kernel_fixture_random(&seed) | kernel_fixture_random(&seed);
    }
    for (int i = 0; i < ROWS * LISTED; i++)
        in->listed[i] = kernel_fixture_random_in(&seed, 0, VOCAB - 1);
    for (int i = 0; i < SUMS * WIDTH; i++)
        in->sums[i] = kernel_fixture_uniform(&seed);
    for (int i = 0; i < SUMS; i++)
        in->spans[i] = (struct row_span){i * 7, 6 + i};
    return in;
}

static void begin_step(struct parts *p, const struct inputs *in) {
    struct backend *b = p->backend;
    b->ops->step_begin(b, &(struct step_inputs){.num_tokens = TOKENS,
                                                .num_seqs = SEQS,
                                                .max_blocks_per_seq = 2,
                                                .token_ids = in->token_ids,
                                                .positions = in->positions,
                                                .slot_mapping = in->slots,
                                                .query_start = in->query_start,
                                                .context_lens = in->context_lens,
                                                .block_tables = in->tables});
}

static void enqueue_linear(struct parts *p, enum array x, const struct matrix *weight,
                           enum array out, int32_t num_rows) {
    struct backend *b = p->backend;
    b->ops->linear(b, &(struct linear_args){.x = array_of(p, x),
                                            .weight = weight,
                                            .out = array_of(p, out),
                                            .num_rows = num_rows,
                                            .scale = 0.1f,
                                            .accumulate = out == GATE_UP,
                                            .float_out = shapes[out].is_float});
}

static void enqueue_attention(struct parts *p) {
    struct backend *b = p->backend;
    b->ops->rope_store_kv(b, &(struct rope_store_args){.qkv = array_of(p, QKV),
                                                       .rope_table = array_of(p, ROPE),
                                                       .cache = &p->cache,
                                                       .num_q_heads = HEADS,
                                                       .rotary_dim = HEAD_DIM});
    b->ops->paged_attention(b, &(struct attention_args){.qkv = array_of(p, QKV),
                                                        .out = array_of(p, ATTENDED),
                                                        .cache = &p->cache,
                                                        .num_q_heads = HEADS,
                                                        .scale = 0.125f,
                                                        .sinks = array_of(p, WEIGHT)});
}

static void enqueue_expert_linear(struct parts *p, const struct expert_choices *choices,
                                  enum array x, const struct matrix *weight, enum array out) {
    struct backend *b = p->backend;
    b->ops->linear_experts(b, &(struct expert_linear_args){.x = array_of(p, x),
                                                           .per_choice = x == EXPERT_ACTED,
                                                           .weight = weight,
                                                           .choices = choices,
                                                           .out = array_of(p, out),
                                                           .num_tokens = TOKENS,
                                                           .num_chosen = CHOSEN,
                                                           .num_own = EXPERTS});
}

/* What is chosen depends on what the batches before left in the rows. */
static void enqueue_experts(struct parts *p) {
    struct backend *b = p->backend;
    const struct expert_choices choices =
        expert_choices_at(array_of(p, CHOICES), TOKENS, CHOSEN, EXPERTS);
    enqueue_linear(p, NORMED, p->router, ROUTER_LOGITS, TOKENS);
    b->ops->route(b, &(struct route_args){.logits = array_of(p, ROUTER_LOGITS),
                                          .choices = choices,
                                          .num_tokens = TOKENS,
                                          .num_experts = EXPERTS,
                                          .num_chosen = CHOSEN,
                                          .num_own = EXPERTS,
                                          .scoring = ROUTE_SIGMOID,
                                          .scale = 1,
                                          .num_groups = 1,
                                          .num_chosen_groups = 1});
    enqueue_expert_linear(p, &choices, NORMED, p->to_expert_gate_up, EXPERT_GATE_UP);
    b->ops->act_mul(b, &(struct act_mul_args){.gate_up = array_of(p, EXPERT_GATE_UP),
                                              .out = array_of(p, EXPERT_ACTED),
                                              .num_rows = TOKENS * CHOSEN,
                                              .width = FFN,
                                              .activation = ACTIVATION_CLAMPED_SWIGLU});
    enqueue_expert_linear(p, &choices, EXPERT_ACTED, p->to_expert_out, EXPERT_OUT);
    b->ops->combine_experts(b, &(struct combine_args){.x = array_of(p, EXPERT_OUT),
                                                      .choices = &choices,
                                                      .out = array_of(p, NORMED),
                                                      .num_tokens = TOKENS,
                                                      .num_chosen = CHOSEN,
                                                      .num_own = EXPERTS,
                                                      .width = WIDTH,
                                                      .scale = 0.01f,
                                                      .accumulate = true});
}

static void enqueue_forward(struct parts *p) {
    struct backend *b = p->backend;
    b->ops->embed(
        b, &(struct embed_args){.table = p->table, .out = array_of(p, HIDDEN), .scale = 0.5f});
    b->ops->norm(b, &(struct norm_args){.x = array_of(p, HIDDEN),
                                        .weight = array_of(p, WEIGHT),
                                        .out = array_of(p, NORMED),
                                        .num_rows = TOKENS,
                                        .row_stride = WIDTH,
                                        .width = WIDTH,
                                        .epsilon = 1e-5f,
                                        .accumulate = true});
    enqueue_linear(p, NORMED, p->to_qkv, QKV, TOKENS);
    enqueue_attention(p);
    enqueue_linear(p, NORMED, p->to_gate_up, GATE_UP, TOKENS);
    b->ops->act_mul(b, &(struct act_mul_args){.gate_up = array_of(p, GATE_UP),
                                              .out = array_of(p, ACTED),
                                              .num_rows = TOKENS,
                                              .width = FFN});
    enqueue_experts(p);
}

static void enqueue_sampling(struct parts *p, const struct inputs *in, struct results *results) {
    struct backend *b = p->backend;
    b->ops->gather_rows(b, &(struct gather_rows_args){.x = array_of(p, NORMED),
                                                      .rows = in->logit_rows,
                                                      .out = array_of(p, HEAD_ROWS),
                                                      .num_rows = ROWS,
                                                      .width = WIDTH});
    enqueue_linear(p, HEAD_ROWS, p->table, LOGITS, ROWS);
    b->ops->soft_cap(b,
                     &(struct soft_cap_args){
                         .x = array_of(p, LOGITS), .num_rows = ROWS, .width = VOCAB, .cap = 2.0f});
    b->ops->sample(b, &(struct sample_args){.logits = array_of(p, LOGITS),
                                            .num_sample_rows = ROWS,
                                            .vocab_size = VOCAB,
                                            .rows = in->rows,
                                            .counts = in->counts,
                                            .biases = in->biases,
                                            .masks = in->masks[0],
                                            .listed = in->listed,
                                            .out = results->out,
                                            .listed_logprobs = results->listed_logprobs});
}

static void enqueue_swap(struct parts *p, const struct inputs *in, enum swap_direction direction) {
    struct backend *b = p->backend;
    b->ops->swap_blocks(b, &(struct swap_blocks_args){.cache = &p->cache,
                                                      .host_pool = p->host_pool.data,
                                                      .direction = direction,
                                                      .device_blocks = in->pool_blocks,
                                                      .host_blocks = in->host_blocks,
                                                      .num_blocks = 2});
}

/* Every op of the table that only enqueues, but for a group's. What the pool's last two blocks get
 * from the step goes out, and comes back in the next batch before it is overwritten. */
static void enqueue_batch(struct parts *p, const struct inputs *in, struct results *results) {
    struct backend *b = p->backend;
    enqueue_swap(p, in, SWAP_IN);
    begin_step(p, in);
    enqueue_forward(p);
    enqueue_sampling(p, in, results);
    b->ops->upload(b, array_of(p, SUM_ROWS), in->sums, sizeof(in->sums));
    b->ops->add_rows(b, &(struct add_rows_args){.x = array_of(p, NORMED),
                                                .spans = in->spans,
                                                .sums = array_of(p, SUM_ROWS),
                                                .num_spans = SUMS,
                                                .width = WIDTH});
    b->ops->download(b, results->sums, array_of(p, SUM_ROWS), sizeof(results->sums));
    b->ops->copy_blocks(b,
                        &(struct copy_blocks_args){
                            .cache = &p->cache, .src = in->src, .dst = in->dst, .num_blocks = 1});
    enqueue_swap(p, in, SWAP_OUT);
}

/* --- What it wrote --- */

static struct state read_state(struct parts *p, const struct results *results) {
    struct state s = {.arrays = kernel_fixture_memory(p->arrays.bytes),
                      .pool = kernel_fixture_memory(p->cache.buffer.bytes),
                      .host_pool = kernel_fixture_memory(p->host_pool.bytes)};
    kernel_fixture_download(p->backend, s.arrays, p->arrays.data, p->arrays.bytes);
    kernel_fixture_download(p->backend, s.pool, p->cache.buffer.data, p->cache.buffer.bytes);
    memcpy(s.host_pool, p->host_pool.data, p->host_pool.bytes);
    s.results = *results;
    return s;
}

static void free_state(struct state *s) {
    free(s->arrays);
    free(s->pool);
    free(s->host_pool);
}

static void assert_same(struct parts *p, struct state *actual, struct state *expected) {
    for (enum array i = 0; i <= ROPE; i++) {
        size_t at = array_offset(p, i), bytes = array_offset(p, i + 1) - at;
        if (memcmp(actual->arrays + at, expected->arrays + at, bytes) != 0)
            fail_msg("array %d differs", (int)i);
    }
    assert_memory_equal(actual->pool, expected->pool, p->cache.buffer.bytes);
    assert_memory_equal(actual->host_pool, expected->host_pool, p->host_pool.bytes);
    assert_memory_equal(&actual->results, &expected->results, sizeof(actual->results));
    free_state(actual);
    free_state(expected);
}

/* After this many batches, one after the other. */
static struct state run_directly(struct parts *p, int num_batches) {
    struct inputs *in = make_inputs();
    struct results results;
    put_back(p, &results);
    for (int i = 0; i < num_batches; i++)
        enqueue_batch(p, in, &results);
    kernel_fixture_synchronize(p->backend);
    free(in);
    return read_state(p, &results);
}

static struct recording *record(struct parts *p, struct results *results) {
    struct backend *b = p->backend;
    struct error err = {0};
    struct inputs *in = make_inputs();
    struct recording *recording = NULL;
    if (b->ops->recording->begin(b, HOST_BYTES, &err) != 0)
        fail_msg("%s", err.message);
    enqueue_batch(p, in, results);
    if (b->ops->recording->end(b, &recording, &err) != 0)
        fail_msg("%s", err.message);
    memset(in, 0xff, sizeof(*in));
    free(in);
    return recording;
}

/* --- Tests --- */

static void test_cpu_has_none(void **state) {
    assert_null(fixture.oracle->ops->recording);
    for (int i = 0; i < fixture.num_backends; i++)
        assert_null(fixture.backends[i]->ops->recording);
}

static void test_replays_are_the_batch(void **state) {
    struct parts p;
    struct results results;
    parts_init(&p, fixture.backends[0]);
    const struct recording_ops *ops = p.backend->ops->recording;
    struct state once = run_directly(&p, 1), thrice = run_directly(&p, 3);
    assert_memory_not_equal(once.arrays, thrice.arrays, p.arrays.bytes);
    size_t choices = array_offset(&p, CHOICES); /* begin with the experts */
    assert_memory_not_equal(once.arrays + choices, thrice.arrays + choices,
                            TOKENS * CHOSEN * sizeof(int32_t));

    put_back(&p, &results);
    struct state untouched = read_state(&p, &results);
    struct recording *recording = record(&p, &results);
    kernel_fixture_synchronize(p.backend);
    struct state recorded = read_state(&p, &results);
    assert_same(&p, &recorded, &untouched);

    ops->replay(p.backend, recording);
    kernel_fixture_synchronize(p.backend);
    struct state replayed = read_state(&p, &results);
    assert_same(&p, &replayed, &once);

    put_back(&p, &results);
    for (int i = 0; i < 3; i++)
        ops->replay(p.backend, recording);
    kernel_fixture_synchronize(p.backend);
    replayed = read_state(&p, &results);
    assert_same(&p, &replayed, &thrice);
    ops->free(p.backend, recording);
    parts_finish(&p);
}

/* Steps that end, with a replay each: its results are there after the wait for its step. */
static void test_replays_in_steps(void **state) {
    struct parts p;
    struct results results;
    parts_init(&p, fixture.backends[0]);
    struct backend *b = p.backend;
    struct state twice = run_directly(&p, 2);
    put_back(&p, &results);
    struct recording *recording = record(&p, &results);
    for (int i = 0; i < 2; i++) {
        memset(&results, 0xff, sizeof(results));
        b->ops->recording->replay(b, recording);
        b->ops->step_end(b);
        assert_int_equal(b->ops->step_wait(b, NULL), 0);
    }
    struct state replayed = read_state(&p, &results);
    assert_same(&p, &replayed, &twice);
    b->ops->recording->free(b, recording);
    parts_finish(&p);
}

/* The other step's sequences change their blocks. */
static void swap_blocks_of(struct inputs *in) {
    for (int t = 0; t < TOKENS; t++)
        in->slots[t] += (t < FIRST ? 2 : -2) * BLOCK_SIZE;
    for (int i = 0; i < SEQS * 2; i++)
        in->tables[i] = (i + 2) % (SEQS * 2);
    in->context_lens[0]--; /* one token less is seen of what was there */
}

/* Recorded work without a step of its own is done for the step that was begun last, and direct work
 * behind it for the same. */
static void test_step_begun_before(void **state) {
    struct parts p;
    struct results results;
    struct error err = {0};
    parts_init(&p, fixture.backends[0]);
    struct backend *b = p.backend;
    struct inputs *in = make_inputs(), *other = make_inputs();
    struct recording *recording = NULL;
    swap_blocks_of(other);
    put_back(&p, &results);
    for (int i = 0; i < 4; i++) {
        begin_step(&p, i == 1 || i == 2 ? other : in);
        enqueue_attention(&p);
    }
    kernel_fixture_synchronize(b);
    struct state expected = read_state(&p, &results);

    put_back(&p, &results);
    begin_step(&p, in);
    enqueue_attention(&p);
    assert_int_equal(b->ops->recording->begin(b, 0, &err), 0);
    enqueue_attention(&p);
    assert_int_equal(b->ops->recording->end(b, &recording, &err), 0);
    begin_step(&p, other);
    b->ops->recording->replay(b, recording);
    enqueue_attention(&p);
    begin_step(&p, in);
    b->ops->recording->replay(b, recording);
    kernel_fixture_synchronize(b);
    struct state actual = read_state(&p, &results);
    assert_same(&p, &actual, &expected);
    b->ops->recording->free(b, recording);
    parts_finish(&p);
    free(other);
    free(in);
}

/* Attention of a kind that no step had yet cannot be recorded without a step: its plan would be
 * that of the one it was recorded in. */
static void test_no_plan(void **state) {
    struct parts p;
    struct error err = {0};
    parts_init(&p, fixture.backends[0]);
    struct backend *b = p.backend;
    struct inputs *in = make_inputs();
    struct recording *recording = NULL;
    begin_step(&p, in);
    assert_int_equal(b->ops->recording->begin(b, HOST_BYTES, &err), 0);
    b->ops->paged_attention(b, &(struct attention_args){.qkv = array_of(&p, QKV),
                                                        .out = array_of(&p, ATTENDED),
                                                        .cache = &p.cache,
                                                        .num_q_heads = HEADS,
                                                        .scale = 0.125f,
                                                        .window = 7});
    assert_int_equal(b->ops->recording->end(b, &recording, &err), -1);
    assert_non_null(strstr(err.message, "plan"));
    kernel_fixture_synchronize(b);
    parts_finish(&p);
    free(in);
}

/* The recording is lost, and the device works on. */
static void test_no_room(void **state) {
    struct parts p;
    struct results results;
    struct recording *recording = NULL;
    struct error err = {0};
    parts_init(&p, fixture.backends[0]);
    struct backend *b = p.backend;
    struct inputs *in = make_inputs();
    struct state once = run_directly(&p, 1);
    for (size_t bytes = 0; bytes <= 1024; bytes += 1024) {
        assert_int_equal(b->ops->recording->begin(b, bytes, &err), 0);
        enqueue_batch(&p, in, &results);
        assert_int_equal(b->ops->recording->end(b, &recording, &err), -1);
        assert_int_equal(err.code, ERROR_MEMORY);
        assert_non_null(strstr(err.message, "room"));
    }
    struct state again = run_directly(&p, 1);
    assert_same(&p, &again, &once);
    parts_finish(&p);
    free(in);
}

/* An allocation, which no stream takes that is recorded. */
static void test_forbidden_call(void **state) {
    struct parts p;
    struct results results;
    struct recording *recording = NULL;
    struct buffer buffer = {0};
    struct error err = {0};
    parts_init(&p, fixture.backends[0]);
    struct backend *b = p.backend;
    struct inputs *in = make_inputs();
    struct state once = run_directly(&p, 1);
    assert_int_equal(b->ops->recording->begin(b, HOST_BYTES, &err), 0);
    assert_int_equal(b->ops->buffer_alloc(b, 256, &buffer, &err), -1);
    enqueue_batch(&p, in, &results);
    assert_int_equal(b->ops->recording->end(b, &recording, &err), -1);
    assert_int_equal(err.code, ERROR_DEVICE);
    struct state again = run_directly(&p, 1);
    assert_same(&p, &again, &once);
    parts_finish(&p);
    free(in);
}

/* The simulator's first launch of a graph takes longer than this, where the graph is not on the
 * device before. */
#define PREPARATION_S 100

static void test_first_replay_is_prepared(void **state) {
    struct parts p;
    struct results results;
    struct mark *marks[2];
    parts_init(&p, fixture.backends[0]);
    struct backend *b = p.backend;
    const struct recording_ops *ops = b->ops->recording;
    put_back(&p, &results);
    struct recording *recording = record(&p, &results);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ops->mark_create(b, &marks[i], NULL), 0);
    ops->mark_set(b, marks[0]);
    ops->replay(b, recording);
    ops->mark_set(b, marks[1]);
    kernel_fixture_synchronize(b);
    assert_true(ops->mark_seconds(b, marks[0], marks[1]) < PREPARATION_S);
    for (int i = 0; i < 2; i++)
        ops->mark_destroy(b, marks[i]);
    ops->free(b, recording);
    parts_finish(&p);
}

static void test_marks(void **state) {
    enum { MARKS = 3 };
    struct parts p;
    struct results results;
    struct mark *marks[MARKS];
    parts_init(&p, fixture.backends[0]);
    struct backend *b = p.backend;
    const struct recording_ops *ops = b->ops->recording;
    put_back(&p, &results);
    struct recording *recording = record(&p, &results);
    for (int i = 0; i < MARKS; i++)
        assert_int_equal(ops->mark_create(b, &marks[i], NULL), 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MARKS; i++) {
            ops->mark_set(b, marks[i]);
            ops->replay(b, recording);
        }
        kernel_fixture_synchronize(b);
        double first = ops->mark_seconds(b, marks[0], marks[1]);
        double both = ops->mark_seconds(b, marks[0], marks[2]);
        assert_true(first > 0 && both > first);
    }
    for (int i = 0; i < MARKS; i++)
        ops->mark_destroy(b, marks[i]);
    ops->free(b, recording);
    parts_finish(&p);
}

int main(int argc, char **argv) {
    static const struct backend_config config = {.limits.max_num_batched_tokens = TOKENS,
                                                 .limits.max_num_seqs = SEQS,
                                                 .limits.max_model_len = 2,
                                                 .limits.block_size = 1,
                                                 .limits.max_logit_rows = ROWS,
                                                 .limits.vocab_size = VOCAB,
                                                 .head_dim = HEAD_DIM,
                                                 .num_q_heads = HEADS,
                                                 .num_kv_heads = KV_HEADS};
    const struct CMUnitTest of_cpu[] = {cmocka_unit_test(test_cpu_has_none)};
    const struct CMUnitTest of_device[] = {
        cmocka_unit_test(test_replays_are_the_batch),
        cmocka_unit_test(test_replays_in_steps),
        cmocka_unit_test(test_step_begun_before),
        cmocka_unit_test(test_no_plan),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_forbidden_call),
        cmocka_unit_test(test_first_replay_is_prepared),
        cmocka_unit_test(test_marks),
    };
    kernel_fixture_open(&fixture, argc, argv, &config);
    bool is_cpu = fixture.dtype == DTYPE_F32;
    int failed = is_cpu ? cmocka_run_group_tests_name("cpu", of_cpu, NULL, NULL)
                        : cmocka_run_group_tests_name("device", of_device, NULL, NULL);
    kernel_fixture_close(&fixture);
    return failed;
}
