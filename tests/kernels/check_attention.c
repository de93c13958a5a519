/* rope_store_kv and paged_attention against the oracle: steps of prefills, decodes and chunks
 * together, with lengths around the borders of blocks and tiles, block tables in disorder and NaN
 * in every place of the cache that holds no token; blocks that the window has left are NaN too. On
 * the CPU, and on a device opened as batch-invariant, a row's result has the same bits alone, in
 * any batch, in prefill or decode, in whatever physical blocks, and on any number of threads.
 * Sequences that begin with the same blocks are near the oracle whatever they read together. */
#include "kernels/kv_type.h"
#include "tests/kernels/kernel_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_SEQS 24
#define MAX_TOKENS 1600
#define NUM_LAYERS 2
#define LAYER 1
#define INT8_TOLERANCE 0.01
#define PAIRS_TOLERANCE 0.01

static struct kernel_fixture fixture;

/* The linker puts this in front of the C library's; only the backends use it. */
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static bool is_memory_short_in_ops; /* set by a test */
static bool is_memory_short;
static int num_refused;

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    num_refused += is_memory_short;
    return is_memory_short ? NULL : __real_aligned_alloc(alignment, bytes);
}

struct shape {
    int32_t head_dim;
    int32_t num_kv_heads;
    int32_t group; /* query heads per KV head */
    int32_t block_size;
    enum kv_type type; /* of the CPU's cache; a device has fixture.dtype for the plain ones */
    int32_t window;
    float soft_cap;
};

/* The last `num_tokens` tokens of a sequence of `length` are what a step computes. */
struct chunk {
    int32_t sequence;
    int32_t length;
    int32_t num_tokens;
};

/* A set of sequences with all their tokens' q, k, v, before any rotation. */
struct scene {
    struct shape shape;
    int num_seqs;
    int32_t lengths[MAX_SEQS], longest;
    float *qkv[MAX_SEQS]; /* [length, row_floats] */
    int32_t row_floats, out_floats;
    float *rope_table; /* [longest, head_dim]; NULL: nothing rotates */
};

/* On a device, and for quantised types, nothing rotates: the rounding of a rotation would hide that
 * of attention. */
static float *make_rope_table(enum kv_type type, size_t num_positions, size_t half) {
    if (fixture.dtype != DTYPE_F32 || kv_type_has_scales(type))
        return NULL;
    float *table = kernel_fixture_memory(num_positions * 2 * half * sizeof(float));
    for (size_t p = 0; p < num_positions; p++)
        for (size_t i = 0; i < half; i++) {
            double angle = (double)p * pow(10000, -(double)i / (double)half);
            table[p * 2 * half + i] = (float)cos(angle);
            table[p * 2 * half + half + i] = (float)sin(angle);
        }
    return table;
}

static void scene_init(struct scene *scene, struct shape shape, int num_seqs,
                       const int32_t *lengths) {
    uint64_t seed = (uint64_t)(shape.head_dim * 100 + shape.group * 10 + num_seqs);
    if (fixture.dtype != DTYPE_F32 && !kv_type_has_scales(shape.type))
        shape.type = kv_type_of_dtype(fixture.dtype);
    *scene = (struct scene){.shape = shape, .num_seqs = num_seqs};
    scene->out_floats = shape.group * shape.num_kv_heads * shape.head_dim;
    scene->row_floats = scene->out_floats + 2 * shape.num_kv_heads * shape.head_dim;
    for (int s = 0; s < num_seqs; s++) {
        scene->lengths[s] = lengths[s];
        scene->longest = lengths[s] > scene->longest ? lengths[s] : scene->longest;
        scene->qkv[s] = kernel_fixture_rounded_floats(
            &fixture, &seed, (size_t)lengths[s] * (size_t)scene->row_floats);
    }
    scene->rope_table =
        make_rope_table(shape.type, (size_t)scene->longest, (size_t)shape.head_dim / 2);
}

static void scene_finish(struct scene *scene) {
    for (int s = 0; s < scene->num_seqs; s++)
        free(scene->qkv[s]);
    free(scene->rope_table);
}

/* A KV pool of one backend with the sequences' block tables, and what else the ops need there. */
struct pool {
    struct backend *backend;
    enum dtype dtype; /* of the backend's activations */
    struct kv_cache cache;
    void *rope_table;
    int32_t max_blocks;
    int32_t *tables;   /* [num_seqs][max_blocks] */
    int32_t nan_block; /* nothing is ever stored in it */
};

/* Blocks are dealt in an order that depends on the seed, all but block 0, which nobody may read. */
static void deal_blocks(struct pool *pool, const struct scene *scene, uint64_t seed) {
    int32_t num_blocks = pool->cache.num_blocks, next = 0;
    int32_t *ids = kernel_fixture_memory((size_t)num_blocks * sizeof(*ids));
    pool->tables = calloc((size_t)(scene->num_seqs * pool->max_blocks), sizeof(*pool->tables));
    assert_non_null(pool->tables);
    for (int32_t i = 0; i < num_blocks; i++) {
        int32_t j = kernel_fixture_random_in(&seed, 0, i);
        ids[i] = ids[j];
        ids[j] = i;
    }
    for (int s = 0; s < scene->num_seqs; s++)
        for (int32_t i = 0; i * scene->shape.block_size < scene->lengths[s]; i++, next++) {
            next += ids[next] == 0;
            pool->tables[s * pool->max_blocks + i] = ids[next];
        }
    pool->nan_block = 0;
    free(ids);
}

/* The oracle takes what a device rounded in floats, or quantises it likewise. The cache is NaN:
 * what was never stored must not matter. */
static void pool_init(struct pool *pool, const struct scene *scene, struct backend *b,
                      uint64_t seed) {
    const struct shape *shape = &scene->shape;
    bool is_exact = b == fixture.oracle && fixture.dtype != DTYPE_F32;
    int32_t num_blocks = 3, max_blocks = 1;
    for (int s = 0; s < scene->num_seqs; s++) {
        int32_t n = (scene->lengths[s] + shape->block_size - 1) / shape->block_size;
        num_blocks += n;
        max_blocks = n > max_blocks ? n : max_blocks;
    }
    *pool = (struct pool){
        .backend = b, .dtype = is_exact ? DTYPE_F32 : fixture.dtype, .max_blocks = max_blocks};
    pool->cache = (struct kv_cache){.layout = {.num_layers = NUM_LAYERS,
                                               .num_kv_heads = shape->num_kv_heads,
                                               .head_dim = shape->head_dim,
                                               .block_size = shape->block_size,
                                               .type = shape->type},
                                    .num_blocks = num_blocks};
    if (is_exact && !kv_type_has_scales(shape->type))
        pool->cache.layout.type = KV_F32;
    size_t bytes = (size_t)num_blocks * kv_block_bytes(&pool->cache.layout);
    void *data = kernel_fixture_put(b, DTYPE_F32, NULL, bytes / sizeof(float));
    pool->cache.buffer = (struct buffer){.data = data, .bytes = bytes};
    if (scene->rope_table != NULL)
        pool->rope_table = kernel_fixture_put(b, DTYPE_F32, scene->rope_table,
                                              (size_t)scene->longest * (size_t)shape->head_dim);
    deal_blocks(pool, scene, seed);
}

static void pool_finish(struct pool *pool) {
    kernel_fixture_free(pool->backend, pool->cache.buffer.data);
    kernel_fixture_free(pool->backend, pool->rope_table);
    free(pool->tables);
}

/* A step's arrays on the host. */
struct step {
    struct step_inputs inputs;
    int32_t query_start[MAX_SEQS + 1];
    int32_t context_lens[MAX_SEQS];
    int32_t positions[MAX_TOKENS], slots[MAX_TOKENS];
    int32_t *tables;
    float *qkv;
};

/* Blocks that no token from `first` on sees any more may have become another sequence's. */
static void leave_window(const struct shape *shape, const struct pool *pool, int32_t first,
                         int32_t *table) {
    int32_t first_seen = shape->window > 0 ? first + 1 - shape->window : 0;
    for (int32_t i = 0; (i + 1) * shape->block_size <= first_seen; i++)
        table[i] = pool->nan_block;
}

static void step_init(struct step *step, const struct scene *scene, const struct pool *pool,
                      int num_chunks, const struct chunk *chunks) {
    const struct shape *shape = &scene->shape;
    size_t row = (size_t)scene->row_floats, table_bytes = (size_t)pool->max_blocks * 4;
    *step = (struct step){0};
    for (int i = 0; i < num_chunks; i++)
        step->query_start[i + 1] = step->query_start[i] + chunks[i].num_tokens;
    int32_t num_tokens = step->query_start[num_chunks];
    assert_in_range(num_tokens, 1, MAX_TOKENS);
    step->tables = kernel_fixture_memory((size_t)num_chunks * table_bytes);
    step->qkv = kernel_fixture_memory((size_t)num_tokens * row * sizeof(float));
    for (int i = 0; i < num_chunks; i++) {
        const struct chunk *c = &chunks[i];
        const int32_t *table = pool->tables + c->sequence * pool->max_blocks;
        int32_t first = c->length - c->num_tokens, at = step->query_start[i];
        memcpy(step->tables + i * pool->max_blocks, table, table_bytes);
        leave_window(shape, pool, first, step->tables + i * pool->max_blocks);
        memcpy(step->qkv + (size_t)at * row, scene->qkv[c->sequence] + (size_t)first * row,
               (size_t)c->num_tokens * row * sizeof(float));
        step->context_lens[i] = c->length;
        for (int32_t p = first; p < c->length; p++, at++) {
            step->positions[at] = p;
            step->slots[at] =
                table[p / shape->block_size] * shape->block_size + p % shape->block_size;
        }
    }
    step->inputs = (struct step_inputs){.num_tokens = num_tokens,
                                        .num_seqs = num_chunks,
                                        .max_blocks_per_seq = pool->max_blocks,
                                        .token_ids = step->positions,
                                        .positions = step->positions,
                                        .slot_mapping = step->slots,
                                        .query_start = step->query_start,
                                        .context_lens = step->context_lens,
                                        .block_tables = step->tables};
}

static void step_finish(struct step *step) {
    free(step->tables);
    free(step->qkv);
}

static struct attention_args args_of(const struct scene *scene, const struct pool *pool) {
    const struct shape *shape = &scene->shape;
    return (struct attention_args){.cache = &pool->cache,
                                   .layer = LAYER,
                                   .num_q_heads = shape->group * shape->num_kv_heads,
                                   .scale = 1 / sqrtf((float)shape->head_dim),
                                   .window = shape->window,
                                   .soft_cap = shape->soft_cap};
}

/* Begins the step and stores its tokens. Returns the rows with their rotated queries in the
 * backend's memory; K and V are NaN, for attention is to read the cache. */
static void *store(const struct scene *scene, struct pool *pool, struct step *step) {
    struct backend *b = pool->backend;
    const struct shape *shape = &scene->shape;
    size_t row = (size_t)scene->row_floats, q_floats = (size_t)scene->out_floats;
    size_t num_tokens = (size_t)step->inputs.num_tokens;
    void *qkv = kernel_fixture_put(b, pool->dtype, step->qkv, num_tokens * row);
    is_memory_short = is_memory_short_in_ops;
    b->ops->step_begin(b, &step->inputs);
    b->ops->rope_store_kv(
        b, &(struct rope_store_args){.qkv = qkv,
                                     .rope_table = pool->rope_table,
                                     .cache = &pool->cache,
                                     .layer = LAYER,
                                     .num_q_heads = shape->group * shape->num_kv_heads,
                                     .rotary_dim = shape->head_dim,
                                     .interleaved = shape->group % 2 == 0});
    is_memory_short = false;
    kernel_fixture_get(b, pool->dtype, qkv, step->qkv, num_tokens * row);
    for (size_t t = 0; t < num_tokens; t++)
        memset(step->qkv + t * row + q_floats, 0xff, (row - q_floats) * sizeof(float));
    kernel_fixture_set(b, pool->dtype, qkv, step->qkv, num_tokens * row);
    return qkv;
}

static void call_attention(struct backend *b, const void *args) {
    b->ops->paged_attention(b, args);
}

/* The CPU's threads have checks of their own. */
static void attend(struct pool *pool, const struct attention_args *args, size_t bytes) {
    is_memory_short = is_memory_short_in_ops;
    if (fixture.dtype == DTYPE_F32 || pool->backend == fixture.oracle)
        call_attention(pool->backend, args);
    else
        kernel_fixture_run(pool->backend, call_attention, args, args->out, bytes);
    is_memory_short = false;
}

/* One step of these chunks. Results go to the same rows of out[sequence] ([length, out_floats]). */
static void run_step(const struct scene *scene, struct pool *pool, int num_chunks,
                     const struct chunk *chunks, float **out) {
    struct step step;
    step_init(&step, scene, pool, num_chunks, chunks);
    size_t row = (size_t)scene->out_floats, n = (size_t)step.inputs.num_tokens * row;
    struct attention_args args = args_of(scene, pool);
    void *qkv = store(scene, pool, &step);
    args.qkv = qkv, args.out = kernel_fixture_put(pool->backend, pool->dtype, NULL, n);
    attend(pool, &args, dtype_row_bytes(pool->dtype, n));
    float *result = kernel_fixture_guarded(n);
    kernel_fixture_get(pool->backend, pool->dtype, args.out, result, n);
    for (int i = 0; i < num_chunks; i++) {
        size_t first = (size_t)(chunks[i].length - chunks[i].num_tokens);
        memcpy(out[chunks[i].sequence] + first * row, result + (size_t)step.query_start[i] * row,
               (size_t)chunks[i].num_tokens * row * sizeof(float));
    }
    kernel_fixture_guarded_free(result);
    kernel_fixture_free(pool->backend, args.out);
    kernel_fixture_free(pool->backend, qkv);
    step_finish(&step);
}

static void store_chunk(const struct scene *scene, struct pool *pool, struct chunk chunk) {
    struct step step;
    step_init(&step, scene, pool, 1, &chunk);
    kernel_fixture_free(pool->backend, store(scene, pool, &step));
    step_finish(&step);
}

/* The tokens before those of the chunks, without their attention. */
static void store_before(const struct scene *scene, struct pool *pool, int num_chunks,
                         const struct chunk *chunks) {
    for (int i = 0; i < num_chunks; i++) {
        int32_t n = chunks[i].length - chunks[i].num_tokens;
        if (n > 0)
            store_chunk(scene, pool, (struct chunk){chunks[i].sequence, n, n});
    }
}

static void alloc_outputs(const struct scene *scene, float **out) {
    for (int s = 0; s < scene->num_seqs; s++)
        out[s] = kernel_fixture_guarded((size_t)scene->lengths[s] * (size_t)scene->out_floats);
}

static void free_outputs(const struct scene *scene, float **out) {
    for (int s = 0; s < scene->num_seqs; s++)
        kernel_fixture_guarded_free(out[s]);
}

/* A step of these chunks on a pool of its own. */
static void run_chunks(const struct scene *scene, struct backend *b, uint64_t seed, int num_chunks,
                       const struct chunk *chunks, float **out) {
    struct pool pool;
    pool_init(&pool, scene, b, seed);
    store_before(scene, &pool, num_chunks, chunks);
    run_step(scene, &pool, num_chunks, chunks, out);
    pool_finish(&pool);
}

/* All sequences at once, all their tokens in one step. */
static void run_whole(const struct scene *scene, struct backend *b, uint64_t seed, float **out) {
    struct chunk chunks[MAX_SEQS] = {0};
    for (int s = 0; s < scene->num_seqs; s++)
        chunks[s] = (struct chunk){s, scene->lengths[s], scene->lengths[s]};
    run_chunks(scene, b, seed, scene->num_seqs, chunks, out);
}

/* The sequences in random company and chunks: each step takes some of them, in any order, with a
 * random number of tokens each, often one. */
static void run_mixed(const struct scene *scene, struct backend *b, uint64_t seed, float **out) {
    struct pool pool;
    int32_t done[MAX_SEQS] = {0};
    pool_init(&pool, scene, b, seed);
    for (int num_left = scene->num_seqs; num_left > 0;) {
        int n = 0;
        struct chunk chunks[MAX_SEQS] = {0};
        int first = kernel_fixture_random_in(&seed, 0, scene->num_seqs - 1);
        for (int i = 0; i < scene->num_seqs; i++) {
            int s = (first + i) % scene->num_seqs;
            int32_t left = scene->lengths[s] - done[s];
            if (left == 0 || kernel_fixture_random_in(&seed, 0, 2) == 0)
                continue;
            int32_t most = kernel_fixture_random_in(&seed, 0, 1) ? 5 : 150;
            int32_t take = kernel_fixture_random_in(&seed, 1, left < most ? left : most);
            if (left < 8)
                take = 1;
            done[s] += take;
            chunks[n++] = (struct chunk){s, done[s], take};
            num_left -= take == left;
        }
        if (n > 0)
            run_step(scene, &pool, n, chunks, out);
    }
    pool_finish(&pool);
}

/* A rotation rounded the other way moves a stored K by one unit of the cache's type. */
static double tolerance_of(enum kv_type type) {
    return type == KV_F16 ? 2e-4 : type == KV_BF16 ? 1e-3 : 5e-6;
}

/* On the CPU, queries and weights of an int8 cache are rounded to 8 bits, on some levels those of a
 * bf16 cache to BF16: a little of each element's random numbers remains. */
static void assert_near_oracle(const struct backend *b, enum kv_type type, const float *actual,
                               const float *expected, size_t n, const char *what) {
    if (fixture.dtype == DTYPE_F32 && type == KV_INT8)
        kernel_fixture_assert_close_by(actual, expected, n, INT8_TOLERANCE, what);
    else if (type == KV_BF16 && kernel_fixture_rounds_attention(b))
        kernel_fixture_assert_close_by(actual, expected, n, PAIRS_TOLERANCE, what);
    else
        kernel_fixture_assert_close(&fixture, actual, expected, n, tolerance_of(type), what);
}

static void assert_same(const struct scene *scene, float **a, float **b) {
    for (int s = 0; s < scene->num_seqs; s++)
        assert_memory_equal(a[s], b[s],
                            (size_t)scene->lengths[s] * (size_t)scene->out_floats * sizeof(float));
}

/* The CPU in every way of cutting a batch, with each number of threads; an int8 cache has the same
 * bits on every level. */
static void check_scene(struct shape shape, int num_seqs, const int32_t *lengths) {
    struct scene scene;
    float *expected[MAX_SEQS], *whole[MAX_SEQS], *other[MAX_SEQS], *first[MAX_SEQS];
    if (fixture.dtype != DTYPE_F32)
        return;
    scene_init(&scene, shape, num_seqs, lengths);
    alloc_outputs(&scene, expected);
    run_whole(&scene, fixture.oracle, 1, expected);
    for (int i = 0; i < fixture.num_backends; i++) {
        bool new_level = kernel_fixture_is_new_level(&fixture, i);
        if (new_level && i > 3)
            free_outputs(&scene, whole);
        if (new_level)
            alloc_outputs(&scene, whole);
        if (i == 0)
            memcpy(first, whole, sizeof(first));
        alloc_outputs(&scene, other);
        run_whole(&scene, fixture.backends[i], (uint64_t)i + 2, new_level ? whole : other);
        for (int s = 0; s < num_seqs && new_level; s++)
            assert_near_oracle(fixture.backends[i], shape.type, whole[s], expected[s],
                               (size_t)lengths[s] * (size_t)scene.out_floats, "a whole step");
        if (!new_level)
            assert_same(&scene, whole, other);
        if (shape.type == KV_INT8)
            assert_same(&scene, whole, first);
        run_mixed(&scene, fixture.backends[i], (uint64_t)i + 100, other);
        assert_same(&scene, whole, other);
        free_outputs(&scene, other);
    }
    if (fixture.num_backends > 3)
        free_outputs(&scene, first);
    free_outputs(&scene, whole);
    free_outputs(&scene, expected);
    scene_finish(&scene);
}

/* The chunks' rows of `out`, one after the other. */
static float *gather(const struct scene *scene, int num_chunks, const struct chunk *chunks,
                     float **out, size_t *out_n) {
    size_t row = (size_t)scene->out_floats, n = 0;
    float *rows = kernel_fixture_memory(MAX_TOKENS * row * sizeof(float));
    for (int i = 0; i < num_chunks; i++) {
        size_t first = (size_t)(chunks[i].length - chunks[i].num_tokens) * row;
        size_t count = (size_t)chunks[i].num_tokens * row;
        memcpy(rows + n, out[chunks[i].sequence] + first, count * sizeof(float));
        n += count;
    }
    *out_n = n;
    return rows;
}

/* One step of these chunks, the tokens before them being in the cache. */
static void check(struct shape shape, int num_chunks, const struct chunk *chunks,
                  const char *what) {
    struct scene scene;
    int32_t lengths[MAX_SEQS];
    float *expected[MAX_SEQS], *actual[MAX_SEQS];
    size_t n;
    for (int i = 0; i < num_chunks; i++)
        lengths[chunks[i].sequence] = chunks[i].length;
    scene_init(&scene, shape, num_chunks, lengths);
    alloc_outputs(&scene, expected);
    run_chunks(&scene, fixture.oracle, 1, num_chunks, chunks, expected);
    float *expected_rows = gather(&scene, num_chunks, chunks, expected, &n);
    for (int i = 0; i < fixture.num_backends; i++) {
        if (!kernel_fixture_is_new_level(&fixture, i))
            continue;
        alloc_outputs(&scene, actual);
        run_chunks(&scene, fixture.backends[i], (uint64_t)i + 2, num_chunks, chunks, actual);
        float *rows = gather(&scene, num_chunks, chunks, actual, &n);
        assert_near_oracle(fixture.backends[i], shape.type, rows, expected_rows, n, what);
        free(rows);
        free_outputs(&scene, actual);
    }
    free(expected_rows);
    free_outputs(&scene, expected);
    scene_finish(&scene);
}

/* Prefills, decodes and chunks around the borders of blocks (16) and tiles (64). */
static const struct chunk mixed[] = {{0, 1, 1},    {1, 15, 15}, {2, 16, 1},   {3, 17, 3},
                                     {4, 63, 1},   {5, 64, 9},  {6, 65, 65},  {7, 127, 1},
                                     {8, 129, 33}, {9, 255, 1}, {10, 257, 5}, {11, 300, 1}};

static void test_lengths(void **state) {
    static const int32_t lengths[] = {1, 15, 16, 17, 31, 255, 256, 257, 600};
    check_scene((struct shape){64, 3, 3, 16, KV_F16}, 9, lengths);
    check((struct shape){64, 2, 3, 16}, 12, mixed, "lengths");
}

static void test_long_decode_alone(void **state) {
    check_scene((struct shape){64, 1, 3, 32, KV_F16}, 1, (const int32_t[]){700});
}

static const struct chunk small[] = {{0, 17, 17}, {1, 70, 1}, {2, 131, 7}};

static void test_head_dims(void **state) {
    static const int32_t dims[] = {8, 16, 64, 72, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        for (enum kv_type type = 0; type < NUM_KV_TYPES; type++)
            check_scene((struct shape){dims[i], 1, 2, 16, type}, 3, (const int32_t[]){17, 70, 3});
        check((struct shape){dims[i], 1, 2, 16}, 3, small, "head_dim");
    }
}

/* Every size of head that a model of the family has, with every number of query heads to a KV head
 * and every size of block: nothing in the kernel that one of them decides may lean on another. */
static void test_heads_with_groups_and_blocks(void **state) {
    static const int32_t dims[] = {64, 80, 96, 128, 256}, sizes[] = {16, 32, 64};
    int32_t size = 0;
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
        for (int32_t group = 1; group <= 8; group++)
            check((struct shape){dims[i], 1, group, sizes[size++ % 3]}, 3, small,
                  "head_dim, group and block_size");
}

/* 30: a decode of more rows than a narrow tile has. */
static void test_groups(void **state) {
    static const int32_t groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 30};
    for (int32_t group = 1; group <= 8; group++)
        check_scene((struct shape){64, 2, group, 48, KV_BF16}, 3, (const int32_t[]){33, 130, 16});
    check_scene((struct shape){32, 1, 30, 16, KV_F32}, 2, (const int32_t[]){40, 5});
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        check((struct shape){16, 1, groups[i], 16}, 3, small, "group");
}

static void test_block_sizes(void **state) {
    static const int32_t sizes[] = {32, 48, 64};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        check((struct shape){32, 2, 2, sizes[i]}, 3, small, "block_size");
}

static void test_windows(void **state) {
    static const int32_t windows[] = {1, 5, 7, 16, 64, 100, 1000, INT32_MAX};
    static const int32_t lengths[] = {1, 7, 8, 17, 101, 370};
    static const struct chunk chunks[] = {{0, 90, 90}, {1, 200, 1}, {2, 300, 50}};
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        check_scene((struct shape){64, 1, 3, 16, i % 2 ? KV_F16 : KV_F32, windows[i]}, 6, lengths);
        check((struct shape){64, 1, 2, 16, .window = windows[i]}, 3, chunks, "window");
    }
    check_scene((struct shape){64, 1, 1, 32, KV_BF16, .window = 300}, 1, (const int32_t[]){700});
}

/* Caps that scores hardly reach, and such as bend most of them. */
static void test_soft_caps(void **state) {
    static const int32_t lengths[] = {1, 17, 130};
    for (int32_t window = 0; window <= 100; window += 50) {
        check_scene((struct shape){72, 2, 2, 16, KV_F32, window, .soft_cap = 30}, 3, lengths);
        check_scene((struct shape){64, 1, 4, 16, KV_BF16, window, .soft_cap = 1}, 3, lengths);
    }
    check((struct shape){64, 1, 2, 16, .soft_cap = 0.5f}, 3, small, "soft_cap");
    check((struct shape){48, 1, 4, 16, .window = 40, .soft_cap = 50}, 3, small,
          "soft_cap with a window");
}

static bool is_taken(enum kv_type type) {
    return (fixture.backends[0]->kv_types & KV_TYPE_BIT(type)) != 0;
}

/* With windows, with a cap, of few query heads and of many, in one part and in several. */
static void test_quantised(void **state) {
    static const int32_t lengths[] = {1, 15, 17, 31, 255, 257, 370}, windows[] = {0, 1, 16, 100};
    static const struct chunk decode[] = {{0, 700, 1}};
    for (enum kv_type type = KV_INT8; type <= KV_E4M3; type++) {
        if (!is_taken(type))
            continue;
        for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++)
            check_scene((struct shape){64, 2, 3, 16, type, windows[i]}, 7, lengths);
        for (int32_t group = 1; group <= 8; group++)
            check_scene((struct shape){40, 1, group, 48, type, .soft_cap = group % 2}, 2,
                        (const int32_t[]){33, 130});
        check((struct shape){64, 2, 3, 16, type}, 12, mixed, "quantised");
        check((struct shape){80, 1, 2, 32, type, .window = 40, .soft_cap = 50}, 3, small,
              "quantised with a window and a cap");
        check((struct shape){96, 1, 5, 64, type}, 3, small, "quantised");
        check((struct shape){128, 1, 4, 16, type}, 1, decode, "quantised in parts");
        check((struct shape){256, 1, 1, 16, type}, 1, decode, "quantised in parts");
    }
}

/* Rows of an int8 cache of which nothing is lost: K's and V's codes are the numbers, and where a
 * token's score is not the largest, it has a fifth of its weight or none. With V's scales, 1 and
 * 1/3, the weights are 255, 85, 51, 17 and 0 of 255. */
static void fill_exact(const struct scene *scene) {
    const struct shape *shape = &scene->shape;
    const int32_t dim = shape->head_dim, num_q = scene->out_floats;
    static const float scores[] = {0, -2, -120};
    uint64_t seed = 1;
    for (int32_t t = 0; t < scene->lengths[0]; t++) {
        float *q = scene->qkv[0] + (size_t)t * (size_t)scene->row_floats, *k = q + num_q;
        float *v = k + shape->num_kv_heads * dim;
        for (int32_t i = 0; i < num_q; i++)
            q[i] = i % dim == 0 ? sqrtf((float)dim) * logf(5) / 2 : 0;
        for (int32_t h = 0; h < shape->num_kv_heads; h++, k += dim, v += dim) {
            float k_scale = (float)kernel_fixture_random_in(&seed, 1, 2);
            float v_scale = kernel_fixture_random_in(&seed, 0, 1) ? 1 : 1.0f / 3;
            for (int32_t i = 0; i < dim; i++) {
                k[i] = k_scale * (float)kernel_fixture_random_in(&seed, -127, 127);
                v[i] = v_scale * (float)kernel_fixture_random_in(&seed, -127, 127);
            }
            k[0] = scores[kernel_fixture_random_in(&seed, 0, 2)];
            k[1] = 127 * k_scale;
            v[0] = 127 * v_scale;
        }
    }
}

/* What INT8_TOLERANCE leaves room for is rounding alone: without it there is but the error of the
 * power of 2. */
static void test_int8_without_rounding(void **state) {
    static const int32_t length = 300;
    struct scene scene;
    float *expected[1], *actual[1];
    if (fixture.dtype != DTYPE_F32)
        skip();
    scene_init(&scene, (struct shape){40, 2, 3, 16, KV_INT8}, 1, &length);
    fill_exact(&scene);
    alloc_outputs(&scene, expected);
    run_whole(&scene, fixture.oracle, 1, expected);
    for (int b = 0; b < fixture.num_backends; b++) {
        alloc_outputs(&scene, actual);
        run_whole(&scene, fixture.backends[b], 2, actual);
        for (int32_t t = 0; t < length; t++)
            kernel_fixture_assert_close_by(actual[0] + t * scene.out_floats,
                                           expected[0] + t * scene.out_floats,
                                           (size_t)scene.out_floats, 3e-4, "int8, not rounded");
        free_outputs(&scene, actual);
    }
    free_outputs(&scene, expected);
    scene_finish(&scene);
}

/* K and V of token 3 are zeros; V of token 80 has an infinity in head 0, that of token 100 a NaN in
 * head 1. */
static void spoil(const struct scene *scene) {
    const struct shape *shape = &scene->shape;
    size_t row = (size_t)scene->row_floats, dim = (size_t)shape->head_dim;
    size_t k = (size_t)scene->out_floats, v = k + (size_t)shape->num_kv_heads * dim;
    memset(scene->qkv[0] + 3 * row + k, 0, (row - k) * sizeof(float));
    scene->qkv[0][80 * row + v + 5] = -INFINITY;
    scene->qkv[0][100 * row + v + dim + 7] = NAN;
}

/* Whoever sees such a token has no number in any element of that head, and in no other. A device
 * multiplies the 64 tokens of a tile by weights of 0 and more: who sees one of them may have none.
 */
static bool may_be_no_number(size_t token) {
    return fixture.dtype != DTYPE_F32 && token >= 64;
}

static void test_quantised_not_finite(void **state) {
    static const int32_t length = 140;
    for (enum kv_type type = KV_INT8; type <= KV_E4M3; type++) {
        struct scene scene;
        float *expected[1], *actual[1];
        if (!is_taken(type))
            continue;
        scene_init(&scene, (struct shape){24, 2, 2, 16, type}, 1, &length);
        spoil(&scene);
        size_t n = (size_t)(length * scene.out_floats);
        alloc_outputs(&scene, expected);
        run_whole(&scene, fixture.oracle, 1, expected);
        for (size_t i = 0; i < n; i++) {
            size_t token = i / (size_t)scene.out_floats, head = i / 48 % 2; /* 2 query heads each */
            assert_int_equal(isnan(expected[0][i]) != 0, token >= (head == 0 ? 80 : 100));
        }
        for (int b = 0; b < fixture.num_backends; b++) {
            alloc_outputs(&scene, actual);
            run_whole(&scene, fixture.backends[b], 2, actual);
            float *numbers = kernel_fixture_memory(n * sizeof(float));
            for (size_t i = 0; i < n; i++) {
                bool is_number = isnan(actual[0][i]) == 0;
                if (isnan(expected[0][i]) || !may_be_no_number(i / (size_t)scene.out_floats))
                    assert_int_equal(is_number, isnan(expected[0][i]) == 0);
                numbers[i] = is_number ? expected[0][i] : 0;
                actual[0][i] = is_number ? actual[0][i] : 0;
            }
            assert_near_oracle(fixture.backends[b], type, actual[0], numbers, n,
                               "quantised, not finite");
            free(numbers);
            free_outputs(&scene, actual);
        }
        free_outputs(&scene, expected);
        scene_finish(&scene);
    }
}

/* V of token 81 is infinite and that of token 100 NaN: whoever sees one has no number, and nobody
 * else, though he sees the token before the one or after the other. */
static void test_not_finite(void **state) {
    static const int32_t length = 140;
    if (fixture.dtype != DTYPE_F32)
        skip();
    for (enum kv_type type = KV_F32; type <= KV_BF16; type++) {
        struct scene scene;
        float *actual[1];
        scene_init(&scene, (struct shape){24, 1, 2, 16, type, .window = 25}, 1, &length);
        size_t row = (size_t)scene.row_floats, v = row - 24;
        for (size_t i = 0; i < 24; i++) {
            scene.qkv[0][81 * row + v + i] = INFINITY;
            scene.qkv[0][100 * row + v + i] = NAN;
        }
        for (int b = 0; b < fixture.num_backends; b++) {
            alloc_outputs(&scene, actual);
            run_whole(&scene, fixture.backends[b], 2, actual);
            for (size_t i = 0; i < (size_t)(length * scene.out_floats); i++) {
                size_t token = i / (size_t)scene.out_floats;
                assert_int_equal(isfinite(actual[0][i]) == 0, token >= 81 && token < 100 + 25);
            }
            free_outputs(&scene, actual);
        }
        scene_finish(&scene);
    }
}

/* So few tiles that long contexts are shared among a device's blocks of threads. */
static void test_split(void **state) {
    static const struct chunk decode[] = {{0, 700, 1}}, prefill[] = {{0, 700, 20}},
                              both[] = {{0, 705, 3}, {1, 650, 40}, {2, 30, 1}};
    static const int32_t dims[] = {64, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        check((struct shape){dims[i], 1, 3, 16}, 1, decode, "a decode in parts");
        check((struct shape){dims[i], 1, 5, 32}, 1, prefill, "a prefill in parts");
    }
    check((struct shape){80, 1, 2, 16, .window = 400}, 3, both, "both in parts, with a window");
}

/* Layers of three windows, one after the other and again: rows of `out` are theirs. */
enum { NUM_LAYERS_OF_WINDOWS = 6 };

static void run_windows(const struct scene *scene, struct backend *b, int32_t length,
                        struct pool *pool, float **out) {
    static const int32_t windows[NUM_LAYERS_OF_WINDOWS] = {0, 10, 0, 90, 10, 0};
    const struct chunk chunks[] = {{0, length, 2}, {1, 30, 30}};
    struct step step;
    step_init(&step, scene, pool, 2, chunks);
    size_t n = (size_t)(step.inputs.num_tokens * scene->out_floats);
    struct attention_args args = args_of(scene, pool);
    void *qkv = store(scene, pool, &step);
    args.qkv = qkv, args.out = kernel_fixture_put(b, pool->dtype, NULL, n);
    for (int i = 0; i < NUM_LAYERS_OF_WINDOWS; i++) {
        args.window = windows[i];
        b->ops->paged_attention(b, &args);
        out[i] = kernel_fixture_guarded(n);
        kernel_fixture_get(b, pool->dtype, args.out, out[i], n);
    }
    kernel_fixture_free(b, args.out);
    kernel_fixture_free(b, qkv);
    step_finish(&step);
}

/* Each layer and each step has its plan. */
static void test_plans(void **state) {
    const int32_t lengths[] = {150, 30};
    struct scene scene;
    scene_init(&scene, (struct shape){16, 1, 2, 16}, 2, lengths);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        struct pool pool, oracle_pool;
        pool_init(&pool, &scene, b, 1);
        pool_init(&oracle_pool, &scene, fixture.oracle, 1);
        store_before(&scene, &pool, 1, &(struct chunk){0, 149, 2});
        store_before(&scene, &oracle_pool, 1, &(struct chunk){0, 149, 2});
        for (int32_t length = 149; length <= 150; length++) {
            float *actual[NUM_LAYERS_OF_WINDOWS], *expected[NUM_LAYERS_OF_WINDOWS];
            run_windows(&scene, b, length, &pool, actual);
            run_windows(&scene, fixture.oracle, length, &oracle_pool, expected);
            for (int w = 0; w < NUM_LAYERS_OF_WINDOWS; w++) {
                kernel_fixture_assert_close(&fixture, actual[w], expected[w],
                                            (size_t)(32 * scene.out_floats), tolerance_of(KV_F32),
                                            "plans");
                kernel_fixture_guarded_free(actual[w]);
                kernel_fixture_guarded_free(expected[w]);
            }
        }
        pool_finish(&oracle_pool);
        pool_finish(&pool);
    }
    scene_finish(&scene);
}

/* The bits of no window at all. */
static void test_window_beyond_context(void **state) {
    struct scene scene;
    float *without[1], *with[1];
    if (!fixture.bits_equal)
        skip();
    scene_init(&scene, (struct shape){64, 1, 3, 16, KV_F16}, 1, (const int32_t[]){300});
    for (int i = 0; i < fixture.num_backends; i++) {
        alloc_outputs(&scene, without);
        alloc_outputs(&scene, with);
        scene.shape.window = 0;
        run_whole(&scene, fixture.backends[i], 1, without);
        scene.shape.window = 300;
        run_whole(&scene, fixture.backends[i], 2, with);
        assert_same(&scene, without, with);
        free_outputs(&scene, with);
        free_outputs(&scene, without);
    }
    scene_finish(&scene);
}

/* The rows of sequence 0, computed in a step of these chunks, have the bits they have in `whole`.
 */
static void assert_same_rows(const struct scene *scene, struct backend *b, int num_chunks,
                             const struct chunk *chunks, const float *whole) {
    float *out[MAX_SEQS];
    size_t row = (size_t)scene->out_floats;
    alloc_outputs(scene, out);
    run_chunks(scene, b, 5, num_chunks, chunks, out);
    for (int i = 0; i < num_chunks; i++) {
        size_t first = (size_t)(chunks[i].length - chunks[i].num_tokens) * row;
        if (chunks[i].sequence == 0)
            assert_memory_equal(out[0] + first, whole + first,
                                (size_t)chunks[i].num_tokens * row * sizeof(float));
    }
    free_outputs(scene, out);
}

/* A sequence alone in one step, in chunks of 7, token by token, and in company. */
static void check_invariance(struct backend *b, struct shape shape) {
    static const int32_t lengths[] = {140, 300, 40};
    static const struct chunk alone = {0, 140, 140};
    static const struct chunk company[] = {{1, 300, 1}, {0, 140, 50}, {2, 40, 40}};
    struct scene scene;
    float *whole[MAX_SEQS];
    scene_init(&scene, shape, 3, lengths);
    alloc_outputs(&scene, whole);
    run_chunks(&scene, b, 4, 1, &alone, whole);
    for (int32_t length = 7; length <= lengths[0]; length += 7)
        assert_same_rows(&scene, b, 1, &(struct chunk){0, length, 7}, whole[0]);
    for (int32_t length = 1; length <= lengths[0]; length += length < 60 ? 13 : 1)
        if (length < 70 || length > 125)
            assert_same_rows(&scene, b, 1, &(struct chunk){0, length, 1}, whole[0]);
    assert_same_rows(&scene, b, 3, company, whole[0]);
    free_outputs(&scene, whole);
    scene_finish(&scene);
}

static void test_batch_invariance(void **state) {
    if (!fixture.bits_equal)
        skip();
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        if (!kernel_fixture_is_new_level(&fixture, i))
            continue;
        check_invariance(b, (struct shape){16, 1, 3, 16});
        check_invariance(b, (struct shape){96, 1, 2, 64});
        check_invariance(b, (struct shape){128, 1, 4, 16});
        check_invariance(b, (struct shape){256, 1, 1, 32});
        check_invariance(b, (struct shape){16, 1, 1, 32, .window = 37, .soft_cap = 2});
        check_invariance(b, (struct shape){72, 1, 3, 16, KV_BF16});
        check_invariance(b, (struct shape){64, 1, 5, 32, KV_BF16, .window = 37});
        for (enum kv_type type = KV_INT8; type <= KV_E4M3; type++)
            if (is_taken(type))
                check_invariance(b, (struct shape){64, 1, 3, 16, type, .window = 90});
    }
}

/* Sequences that begin alike, with the blocks of the first of them or with their own: the same
 * bits. Prefixes of all lengths, one that ends within a chunk, rows of more than one tile, and a
 * sequence in between that shares nothing or prefills. Without memory for it, nothing is shared. */
static void check_prefixes(struct backend *b, enum kv_type type, int32_t window, bool has_memory) {
    enum { N = 11, UNLIKE = 5 };
    static const int32_t lengths[N] = {700, 513, 530, 800, 600, 540, 520, 512, 300, 590, 256};
    static const int32_t shared[N] = {700, 512, 512, 640, 512, 0, 512, 512, 256, 512, 256};
    struct scene scene;
    struct pool own, pool;
    struct chunk chunks[N];
    float *alone[MAX_SEQS], *together[MAX_SEQS];
    scene_init(&scene, (struct shape){32, 2, 4, 32, type, .window = window}, N, lengths);
    for (int s = 0; s < N; s++) {
        chunks[s] = (struct chunk){s, lengths[s], s == UNLIKE ? 3 : 1};
        if (s > 0)
            memcpy(scene.qkv[s], scene.qkv[0],
                   (size_t)shared[s] * (size_t)scene.row_floats * sizeof(float));
    }
    alloc_outputs(&scene, alone);
    alloc_outputs(&scene, together);
    pool_init(&own, &scene, b, 3);
    pool_init(&pool, &scene, b, 4);
    for (int s = 1; s < N; s++)
        memcpy(pool.tables + s * pool.max_blocks, pool.tables,
               (size_t)(shared[s] / 32) * sizeof(*pool.tables));
    store_before(&scene, &own, N, chunks);
    store_before(&scene, &pool, N, chunks);
    run_step(&scene, &own, N, chunks, alone);
    num_refused = 0;
    is_memory_short_in_ops = !has_memory;
    run_step(&scene, &pool, N, chunks, together);
    is_memory_short_in_ops = false;
    assert_int_equal(num_refused, !has_memory);
    for (int s = 0; s < N; s++) {
        size_t first = (size_t)((lengths[s] - chunks[s].num_tokens) * scene.out_floats);
        assert_memory_equal(alone[s] + first, together[s] + first,
                            (size_t)(chunks[s].num_tokens * scene.out_floats) * sizeof(float));
    }
    pool_finish(&own);
    pool_finish(&pool);
    free_outputs(&scene, together);
    free_outputs(&scene, alone);
    scene_finish(&scene);
}

static void test_prefixes(void **state) {
    if (!fixture.bits_equal)
        skip();
    for (int i = 0; i < fixture.num_backends; i++)
        for (enum kv_type type = 0; type < NUM_KV_TYPES; type++)
            if (is_taken(type))
                check_prefixes(fixture.backends[i], type, type == KV_F32 ? 500 : 0, true);
    check_prefixes(fixture.backends[0], KV_F32, 0, true);
}

static void test_prefixes_without_memory(void **state) {
    const struct backend_config config = {
        .num_threads = 2, .limits.max_num_batched_tokens = MAX_TOKENS, .limits.max_num_seqs = 1};
    struct error err = {0};
    if (fixture.dtype != DTYPE_F32)
        skip();
    struct backend *b = backend_open("cpu", &config, &err);
    assert_non_null(b);
    check_prefixes(b, KV_F16, 0, false);
    backend_close(b);
}

/* Sequences of which each begins with the first `shared` tokens of another one before it, in that
 * one's blocks. */
struct family {
    int num_seqs;
    struct relative {
        int32_t length;
        int32_t num_tokens; /* in the step */
        int32_t like;       /* the other one */
        int32_t shared;
    } seqs[MAX_SEQS];
};

static void family_scene(struct scene *scene, struct shape shape, const struct family *family) {
    int32_t lengths[MAX_SEQS] = {0};
    for (int s = 0; s < family->num_seqs; s++)
        lengths[s] = family->seqs[s].length;
    scene_init(scene, shape, family->num_seqs, lengths);
    for (int s = 0; s < family->num_seqs; s++)
        memcpy(scene->qkv[s], scene->qkv[family->seqs[s].like],
               (size_t)family->seqs[s].shared * (size_t)scene->row_floats * sizeof(float));
}

/* Everything before the step is in the cache. */
static void family_pool(struct pool *pool, const struct scene *scene, struct backend *b,
                        uint64_t seed, const struct family *family, struct chunk *chunks) {
    pool_init(pool, scene, b, seed);
    for (int s = 0; s < family->num_seqs; s++) {
        const struct relative *seq = &family->seqs[s];
        int32_t num_blocks = seq->shared / scene->shape.block_size;
        memcpy(pool->tables + s * pool->max_blocks, pool->tables + seq->like * pool->max_blocks,
               (size_t)num_blocks * sizeof(*pool->tables));
        chunks[s] = (struct chunk){s, seq->length, seq->num_tokens};
        int32_t before = seq->length - seq->num_tokens;
        int32_t own = before - num_blocks * scene->shape.block_size;
        if (own > 0)
            store_chunk(scene, pool, (struct chunk){s, before, own});
    }
}

/* The rows of one step of all of them. */
static float *run_family(const struct scene *scene, struct backend *b, uint64_t seed,
                         const struct family *family, size_t *out_n) {
    struct pool pool;
    struct chunk chunks[MAX_SEQS];
    float *out[MAX_SEQS];
    alloc_outputs(scene, out);
    family_pool(&pool, scene, b, seed, family, chunks);
    run_step(scene, &pool, family->num_seqs, chunks, out);
    float *rows = gather(scene, family->num_seqs, chunks, out, out_n);
    pool_finish(&pool);
    free_outputs(scene, out);
    return rows;
}

static void check_family(struct shape shape, const struct family *family, const char *what) {
    struct scene scene;
    size_t n;
    family_scene(&scene, shape, family);
    float *expected = run_family(&scene, fixture.oracle, 1, family, &n);
    for (int i = 0; i < fixture.num_backends; i++) {
        if (!kernel_fixture_is_new_level(&fixture, i))
            continue;
        float *actual = run_family(&scene, fixture.backends[i], (uint64_t)i + 2, family, &n);
        assert_near_oracle(fixture.backends[i], scene.shape.type, actual, expected, n, what);
        free(actual);
    }
    free(expected);
    scene_finish(&scene);
}

/* Two sets that take turns, of sequences of different lengths, and within the first a longer prefix
 * of some; a chunk of a prompt that begins alike, and a sequence that is like none. */
static const struct family mixed_family = {.num_seqs = 9,
                                           .seqs = {{150, 1, 0, 0},
                                                    {140, 1, 1, 0},
                                                    {129, 1, 0, 128},
                                                    {180, 1, 1, 128},
                                                    {260, 1, 0, 128},
                                                    {150, 3, 0, 128},
                                                    {257, 1, 4, 256},
                                                    {270, 1, 4, 256},
                                                    {70, 1, 8, 0}}};

/* Every size of head with every size of group and every type of cache that the device takes. */
static void test_shared_prefixes(void **state) {
    static const int32_t dims[] = {64, 80, 96, 128, 256}, sizes[] = {16, 32, 64};
    const enum kv_type types[] = {kv_type_of_dtype(fixture.dtype), KV_INT8, KV_E4M3};
    int at = 0;
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
        for (int32_t group = 1; group <= 8; group++, at++) {
            enum kv_type type = types[at % 3];
            if (is_taken(type))
                check_family((struct shape){dims[i], 1, group, sizes[at / 3 % 3], type},
                             &mixed_family, "shared prefixes");
        }
}

/* num_seqs with one prefix and tails of different lengths; behind the prefix, those from `nested` on
 * have more in common. */
static struct family large_family(int num_seqs, int32_t shared, int nested, int32_t also_shared) {
    struct family family = {.num_seqs = num_seqs};
    for (int s = 0; s < num_seqs; s++)
        family.seqs[s] =
            s < nested
                ? (struct relative){shared + 1 + s * 37 % 90, 1, 0, s > 0 ? shared : 0}
                : (struct relative){also_shared + 1 + s * 13 % 80, 1, s > nested ? nested : 0,
                                    s > nested ? also_shared : shared};
    return family;
}

/* Several tiles to a prefix, prefixes in parts, prefixes behind prefixes, caps and windows: such as
 * end within the prefix, and such as see all of it. */
static void test_large_families(void **state) {
    static const int32_t windows[] = {100, 530, 2000};
    for (int num_seqs = 2; num_seqs <= MAX_SEQS; num_seqs += num_seqs < 5 ? 1 : 19)
        for (int32_t group = 1; group <= 9; group += 4) {
            struct family flat = large_family(num_seqs, 512, num_seqs, 0);
            struct family tree = large_family(num_seqs, 256, num_seqs / 2, 512);
            check_family((struct shape){64, 2, group, 16}, &flat, "one prefix");
            check_family((struct shape){32, 1, group, 32, .soft_cap = group - 1}, &tree,
                         "a prefix behind a prefix");
        }
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        struct family tree = large_family(9, 256, 4, 512);
        check_family((struct shape){64, 1, 4, 16, .window = windows[i]}, &tree,
                     "prefixes and a window");
    }
    /* Windows that end at the prefix's first token, and one behind it. */
    struct family short_tails = large_family(12, 256, 12, 0);
    for (int s = 0; s < short_tails.num_seqs; s++)
        short_tails.seqs[s].length = 257;
    for (int32_t window = 256; window <= 257; window++)
        check_family((struct shape){64, 1, 2, 16, .window = window}, &short_tails,
                     "a prefix and a window of its length");
    struct family few = large_family(3, 1024, 3, 0);
    check_family((struct shape){128, 1, 7, 32}, &few, "a long prefix in parts");
    check_family((struct shape){64, 1, 21, 48}, &few, "a prefix of the most heads");
    check_family((struct shape){64, 1, 30, 64}, &few, "too many heads to share a prefix");
}

/* One step of all of them through layers with these windows; rows of `out` are theirs. */
static void run_layers(const struct scene *scene, struct pool *pool, const struct chunk *chunks,
                       int num_layers, const int32_t *windows, float **out) {
    struct backend *b = pool->backend;
    struct step step;
    step_init(&step, scene, pool, scene->num_seqs, chunks);
    size_t n = (size_t)(step.inputs.num_tokens * scene->out_floats);
    struct attention_args args = args_of(scene, pool);
    void *qkv = store(scene, pool, &step);
    args.qkv = qkv, args.out = kernel_fixture_put(b, pool->dtype, NULL, n);
    for (int i = 0; i < num_layers; i++) {
        args.window = windows[i];
        b->ops->paged_attention(b, &args);
        out[i] = kernel_fixture_memory(n * sizeof(float));
        kernel_fixture_get(b, pool->dtype, args.out, out[i], n);
    }
    kernel_fixture_free(b, args.out);
    kernel_fixture_free(b, qkv);
    step_finish(&step);
}

/* Layers that share the prefix and layers whose window ends within it, in turns: each has its plan,
 * made when it asks, and in the second step before. */
static void test_prefixes_of_layers(void **state) {
    enum { NUM = 4 };
    static const int32_t windows[NUM] = {0, 100, 0, 70};
    const struct family family = large_family(8, 256, 8, 0);
    struct backend *b = fixture.backends[0];
    struct scene scene;
    struct pool pool, oracle_pool;
    struct chunk chunks[MAX_SEQS];
    float *actual[NUM], *expected[NUM];
    family_scene(&scene, (struct shape){64, 2, 2, 16}, &family);
    family_pool(&pool, &scene, b, 1, &family, chunks);
    family_pool(&oracle_pool, &scene, fixture.oracle, 2, &family, chunks);
    run_layers(&scene, &oracle_pool, chunks, NUM, windows, expected);
    for (int step = 0; step < 2; step++) {
        run_layers(&scene, &pool, chunks, NUM, windows, actual);
        for (int i = 0; i < NUM; i++) {
            assert_near_oracle(b, scene.shape.type, actual[i], expected[i],
                               (size_t)(family.num_seqs * scene.out_floats), "a layer");
            free(actual[i]);
        }
    }
    for (int i = 0; i < NUM; i++)
        free(expected[i]);
    pool_finish(&pool);
    pool_finish(&oracle_pool);
    scene_finish(&scene);
}

/* A step of these sequences, whose attention is the recorded one if there is any. */
static void run_recorded(const struct scene *scene, struct pool *pool, int num_chunks,
                         const struct chunk *chunks, const struct attention_args *args,
                         struct recording *recording, float *out) {
    struct backend *b = pool->backend;
    struct step step;
    step_init(&step, scene, pool, num_chunks, chunks);
    size_t n = (size_t)step.inputs.num_tokens * (size_t)scene->out_floats;
    kernel_fixture_free(b, store(scene, pool, &step));
    kernel_fixture_set(b, pool->dtype, (void *)args->qkv, step.qkv,
                       (size_t)step.inputs.num_tokens * (size_t)scene->row_floats);
    if (recording != NULL)
        b->ops->recording->replay(b, recording);
    else
        b->ops->paged_attention(b, args);
    kernel_fixture_get(b, pool->dtype, args->out, out, n);
    step_finish(&step);
}

static struct recording *record_attention(struct backend *b, const struct attention_args *args) {
    struct recording *recording = NULL;
    struct error err = {0};
    if (b->ops->recording->begin(b, 1 << 20, &err) != 0)
        fail_msg("%s", err.message);
    b->ops->paged_attention(b, args);
    if (b->ops->recording->end(b, &recording, &err) != 0)
        fail_msg("%s", err.message);
    return recording;
}

enum { RECORDED_SEQS = 8, NUM_RECORDED_STEPS = 4 };

/* Recorded in a step that shares nothing, replayed in steps that share much, a part, and nothing:
 * the bits of the same steps without a recording, near those of the oracle. */
static void test_recorded_prefixes(void **state) {
    static const int32_t steps[NUM_RECORDED_STEPS][RECORDED_SEQS] = {
        {8, 9, 10, 11, 12, 13, 14, 15},
        {0, 1, 2, 3, 4, 5, 6, 7},
        {0, 8, 1, 9, 2, 10, 3, 11},
        {15, 14, 13, 12, 11, 10, 9, 8}};
    struct scene scene;
    struct family family = large_family(RECORDED_SEQS, 256, 4, 512);
    struct backend *b = fixture.backends[0];
    if (b->ops->recording == NULL)
        return;
    for (family.num_seqs = 0; family.num_seqs < 2 * RECORDED_SEQS; family.num_seqs++)
        if (family.num_seqs >= RECORDED_SEQS)
            family.seqs[family.num_seqs] =
                (struct relative){300 + family.num_seqs, 1, family.num_seqs, 0};
    family_scene(&scene, (struct shape){64, 2, 3, 16}, &family);
    struct pool pool, oracle_pool;
    struct chunk chunks[MAX_SEQS];
    family_pool(&oracle_pool, &scene, fixture.oracle, 1, &family, chunks);
    family_pool(&pool, &scene, b, 2, &family, chunks);
    size_t n = RECORDED_SEQS * (size_t)scene.out_floats;
    size_t num_in = RECORDED_SEQS * (size_t)scene.row_floats;
    struct attention_args args = args_of(&scene, &pool), expected = args_of(&scene, &oracle_pool);
    args.qkv = kernel_fixture_put(b, pool.dtype, NULL, num_in);
    args.out = kernel_fixture_put(b, pool.dtype, NULL, n);
    expected.qkv = kernel_fixture_put(fixture.oracle, oracle_pool.dtype, NULL, num_in);
    expected.out = kernel_fixture_put(fixture.oracle, oracle_pool.dtype, NULL, n);
    struct recording *recording = NULL;
    float *rows[3];
    for (int i = 0; i < 3; i++)
        rows[i] = kernel_fixture_memory(n * sizeof(float));
    for (int i = 0; i < NUM_RECORDED_STEPS; i++) {
        struct chunk some[RECORDED_SEQS];
        for (int s = 0; s < RECORDED_SEQS; s++)
            some[s] = chunks[steps[i][s]];
        run_recorded(&scene, &oracle_pool, RECORDED_SEQS, some, &expected, NULL, rows[0]);
        run_recorded(&scene, &pool, RECORDED_SEQS, some, &args, NULL, rows[1]);
        if (recording == NULL)
            recording = record_attention(b, &args);
        kernel_fixture_set(b, pool.dtype, args.out, rows[0], n);
        run_recorded(&scene, &pool, RECORDED_SEQS, some, &args, recording, rows[2]);
        assert_near_oracle(b, scene.shape.type, rows[1], rows[0], n, "before a recording");
        assert_memory_equal(rows[1], rows[2], n * sizeof(float));
    }
    for (int i = 0; i < 3; i++)
        free(rows[i]);
    b->ops->recording->free(b, recording);
    kernel_fixture_free(b, (void *)args.qkv);
    kernel_fixture_free(b, args.out);
    kernel_fixture_free(fixture.oracle, (void *)expected.qkv);
    kernel_fixture_free(fixture.oracle, expected.out);
    pool_finish(&pool);
    pool_finish(&oracle_pool);
    scene_finish(&scene);
}

/* No memory but what was allocated at start: as many tokens as there can be, then one that would
 * have its context split among the CPU's threads. */
static void test_without_memory(void **state) {
    const struct backend_config config = {
        .num_threads = 2, .limits.max_num_batched_tokens = 699, .limits.max_num_seqs = 1};
    struct error err = {0};
    struct scene scene;
    struct pool pool;
    float *expected[1], *out[1];
    int32_t length = 700;
    if (fixture.dtype != DTYPE_F32)
        skip();
    struct backend *b = backend_open("cpu", &config, &err);
    assert_non_null(b);
    scene_init(&scene, (struct shape){64, 1, 3, 32, KV_F16}, 1, &length);
    alloc_outputs(&scene, expected);
    alloc_outputs(&scene, out);
    run_whole(&scene, fixture.oracle, 1, expected);
    pool_init(&pool, &scene, b, 6);
    num_refused = 0;
    is_memory_short_in_ops = true;
    run_step(&scene, &pool, 1, &(struct chunk){0, 699, 699}, out);
    assert_int_equal(num_refused, 0);
    run_step(&scene, &pool, 1, &(struct chunk){0, 700, 1}, out);
    is_memory_short_in_ops = false;
    assert_int_equal(num_refused, 1);
    kernel_fixture_assert_near(out[0], expected[0], (size_t)length * (size_t)scene.out_floats,
                               tolerance_of(KV_F16));
    pool_finish(&pool);
    free_outputs(&scene, out);
    free_outputs(&scene, expected);
    scene_finish(&scene);
    backend_close(b);
}

int main(int argc, char **argv) {
    static const struct backend_config config = {.limits.max_num_batched_tokens = MAX_TOKENS,
                                                 .limits.max_num_seqs = 64,
                                                 .limits.max_model_len = 64,
                                                 .limits.block_size = 1,
                                                 .head_dim = KV_MAX_HEAD_DIM,
                                                 .num_q_heads = 30,
                                                 .num_kv_heads = 2};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_long_decode_alone),
        cmocka_unit_test(test_head_dims),
        cmocka_unit_test(test_heads_with_groups_and_blocks),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_block_sizes),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_soft_caps),
        cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_int8_without_rounding),
        cmocka_unit_test(test_quantised_not_finite),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_window_beyond_context),
        cmocka_unit_test(test_batch_invariance),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_prefixes_without_memory),
        cmocka_unit_test(test_shared_prefixes),
        cmocka_unit_test(test_large_families),
        cmocka_unit_test(test_prefixes_of_layers),
        cmocka_unit_test(test_recorded_prefixes),
        cmocka_unit_test(test_without_memory),
    };
    kernel_fixture_open(&fixture, argc, argv, &config);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&fixture);
    return failed;
}
