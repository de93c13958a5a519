/* rope_store_kv and paged_attention of the CPU backend against the oracle, and the promise that a
 * row's result has the same bits alone, in any batch, in prefill or decode, in whatever physical
 * blocks and on any number of threads. */
#include "tests/kernels/kernel_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_SEQS 12

/* The linker puts this in front of the C library's; only the backends use it. */
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

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
    enum dtype dtype;
    int32_t window;
    float soft_cap;
};

/* A set of sequences with all their tokens' q, k, v, before any rotation. */
struct scene {
    struct shape shape;
    int num_seqs;
    int32_t lengths[MAX_SEQS];
    float *qkv[MAX_SEQS]; /* [length, row_floats] */
    int32_t row_floats, out_floats;
    float *rope_table; /* [longest, head_dim] */
};

static void scene_init(struct scene *scene, struct shape shape, int num_seqs,
                       const int32_t *lengths, uint64_t seed) {
    *scene = (struct scene){.shape = shape, .num_seqs = num_seqs};
    scene->out_floats = shape.group * shape.num_kv_heads * shape.head_dim;
    scene->row_floats = scene->out_floats + 2 * shape.num_kv_heads * shape.head_dim;
    int32_t longest = 1;
    for (int s = 0; s < num_seqs; s++) {
        scene->lengths[s] = lengths[s];
        longest = lengths[s] > longest ? lengths[s] : longest;
        scene->qkv[s] =
            kernel_fixture_random_floats(&seed, (size_t)lengths[s] * (size_t)scene->row_floats);
    }
    size_t half = (size_t)shape.head_dim / 2;
    scene->rope_table = malloc((size_t)longest * 2 * half * sizeof(float));
    assert_non_null(scene->rope_table);
    for (size_t p = 0; p < (size_t)longest; p++)
        for (size_t i = 0; i < half; i++) {
            double angle = (double)p * pow(10000, -(double)i / (double)half);
            scene->rope_table[p * 2 * half + i] = (float)cos(angle);
            scene->rope_table[p * 2 * half + half + i] = (float)sin(angle);
        }
}

static void scene_finish(struct scene *scene) {
    for (int s = 0; s < scene->num_seqs; s++)
        free(scene->qkv[s]);
    free(scene->rope_table);
}

/* A KV pool of one backend with the sequences' block tables. */
struct pool {
    struct backend *backend;
    struct kv_cache cache;
    int32_t max_blocks;
    int32_t *tables;   /* [num_seqs][max_blocks] */
    int32_t nan_block; /* nothing is ever stored in it */
};

/* Blocks are dealt in an order that depends on the seed. */
static void pool_init(struct pool *pool, const struct scene *scene, struct backend *b,
                      uint64_t seed) {
    const struct shape *shape = &scene->shape;
    int32_t num_blocks = 3, max_blocks = 1;
    for (int s = 0; s < scene->num_seqs; s++) {
        int32_t n = (scene->lengths[s] + shape->block_size - 1) / shape->block_size;
        num_blocks += n;
        max_blocks = n > max_blocks ? n : max_blocks;
    }
    *pool = (struct pool){.backend = b, .max_blocks = max_blocks};
    pool->cache = (struct kv_cache){.layout = {.num_layers = 2,
                                               .num_kv_heads = shape->num_kv_heads,
                                               .head_dim = shape->head_dim,
                                               .block_size = shape->block_size,
                                               .dtype = shape->dtype},
                                    .num_blocks = num_blocks};
    size_t bytes = (size_t)num_blocks * kv_block_bytes(&pool->cache.layout);
    assert_int_equal(b->ops->buffer_alloc(b, bytes, &pool->cache.buffer, NULL), 0);
    memset(pool->cache.buffer.data, 0xff, bytes); /* NaN: what was never stored must not matter */
    int32_t *ids = malloc((size_t)num_blocks * sizeof(*ids));
    pool->tables = calloc((size_t)scene->num_seqs * (size_t)max_blocks, sizeof(*pool->tables));
    assert_non_null(ids);
    assert_non_null(pool->tables);
    for (int32_t i = 0; i < num_blocks; i++) {
        int32_t j = kernel_fixture_random_in(&seed, 0, i);
        ids[i] = ids[j];
        ids[j] = i;
    }
    int32_t next = 0;
    for (int s = 0; s < scene->num_seqs; s++)
        for (int32_t i = 0; i * shape->block_size < scene->lengths[s]; i++)
            pool->tables[s * max_blocks + i] = ids[next++];
    pool->nan_block = ids[next];
    free(ids);
}

static void pool_finish(struct pool *pool) {
    pool->backend->ops->buffer_free(pool->backend, &pool->cache.buffer);
    free(pool->tables);
}

/* Blocks that no token from `begin` on sees any more may have become another sequence's. */
static void leave_window(const struct shape *shape, const struct pool *pool, int32_t begin,
                         int32_t *table) {
    int32_t first_seen = shape->window > 0 ? begin + 1 - shape->window : 0;
    for (int32_t i = 0; (i + 1) * shape->block_size <= first_seen; i++)
        table[i] = pool->nan_block;
}

/* One step: of sequence seqs[i] the tokens begin[i] .. end[i]-1. Results go to the same rows of
 * out[seqs[i]] ([length, out_floats]). */
static void run_step(const struct scene *scene, struct pool *pool, int num_seqs, const int *seqs,
                     const int32_t *begin, const int32_t *end, float **out) {
    const struct shape *shape = &scene->shape;
    size_t row = (size_t)scene->row_floats, out_row = (size_t)scene->out_floats;
    int32_t num_tokens = 0, start[MAX_SEQS + 1] = {0}, lens[MAX_SEQS];
    for (int i = 0; i < num_seqs; i++)
        start[i + 1] = num_tokens += end[i] - begin[i];
    int32_t *positions = malloc((size_t)num_tokens * sizeof(int32_t));
    int32_t *slots = malloc((size_t)num_tokens * sizeof(int32_t));
    int32_t *tables = malloc((size_t)(num_seqs * pool->max_blocks) * sizeof(int32_t));
    float *qkv = kernel_fixture_guarded((size_t)num_tokens * row);
    float *result = kernel_fixture_guarded((size_t)num_tokens * out_row);
    assert_true(positions && slots && tables);
    for (int i = 0, t = 0; i < num_seqs; i++) {
        const int32_t *table = pool->tables + seqs[i] * pool->max_blocks;
        memcpy(tables + i * pool->max_blocks, table, (size_t)pool->max_blocks * sizeof(int32_t));
        leave_window(shape, pool, begin[i], tables + i * pool->max_blocks);
        memcpy(qkv + (size_t)t * row, scene->qkv[seqs[i]] + (size_t)begin[i] * row,
               (size_t)(end[i] - begin[i]) * row * sizeof(float));
        lens[i] = end[i];
        for (int32_t p = begin[i]; p < end[i]; p++, t++) {
            positions[t] = p;
            slots[t] = table[p / shape->block_size] * shape->block_size + p % shape->block_size;
        }
    }
    struct backend *b = pool->backend;
    b->ops->step_begin(b, &(struct step_inputs){.num_tokens = num_tokens,
                                                .num_seqs = num_seqs,
                                                .max_blocks_per_seq = pool->max_blocks,
                                                .positions = positions,
                                                .slot_mapping = slots,
                                                .query_start = start,
                                                .context_lens = lens,
                                                .block_tables = tables});
    int32_t num_q_heads = shape->group * shape->num_kv_heads;
    b->ops->rope_store_kv(b, &(struct rope_store_args){.qkv = qkv,
                                                       .rope_table = scene->rope_table,
                                                       .cache = &pool->cache,
                                                       .layer = 1,
                                                       .num_q_heads = num_q_heads,
                                                       .rotary_dim = shape->head_dim,
                                                       .interleaved = shape->group % 2 == 0});
    b->ops->paged_attention(b, &(struct attention_args){.qkv = qkv,
                                                        .out = result,
                                                        .cache = &pool->cache,
                                                        .layer = 1,
                                                        .num_q_heads = num_q_heads,
                                                        .scale = 1 / sqrtf((float)shape->head_dim),
                                                        .window = shape->window,
                                                        .soft_cap = shape->soft_cap});
    assert_int_equal(b->ops->synchronize(b, NULL), 0);
    for (int i = 0; i < num_seqs; i++)
        memcpy(out[seqs[i]] + (size_t)begin[i] * out_row, result + (size_t)start[i] * out_row,
               (size_t)(end[i] - begin[i]) * out_row * sizeof(float));
    kernel_fixture_guarded_free(qkv);
    kernel_fixture_guarded_free(result);
    free(tables);
    free(slots);
    free(positions);
}

static void alloc_outputs(const struct scene *scene, float **out) {
    for (int s = 0; s < scene->num_seqs; s++)
        out[s] = kernel_fixture_guarded((size_t)scene->lengths[s] * (size_t)scene->out_floats);
}

static void free_outputs(const struct scene *scene, float **out) {
    for (int s = 0; s < scene->num_seqs; s++)
        kernel_fixture_guarded_free(out[s]);
}

/* All sequences at once, all their tokens in one step. */
static void run_whole(const struct scene *scene, struct backend *b, uint64_t seed, float **out) {
    struct pool pool;
    int seqs[MAX_SEQS];
    int32_t begin[MAX_SEQS] = {0};
    pool_init(&pool, scene, b, seed);
    for (int s = 0; s < scene->num_seqs; s++)
        seqs[s] = s;
    run_step(scene, &pool, scene->num_seqs, seqs, begin, scene->lengths, out);
    pool_finish(&pool);
}

/* The sequences in random company and pieces: each step takes some of them, in any order, with a
 * random number of tokens each, often one. */
static void run_mixed(const struct scene *scene, struct backend *b, uint64_t seed, float **out) {
    struct pool pool;
    int32_t done[MAX_SEQS] = {0};
    pool_init(&pool, scene, b, seed);
    for (int num_left = scene->num_seqs; num_left > 0;) {
        int n = 0, seqs[MAX_SEQS];
        int32_t begin[MAX_SEQS], end[MAX_SEQS];
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
            seqs[n] = s, begin[n] = done[s], end[n] = done[s] += take;
            num_left -= take == left;
            n++;
        }
        run_step(scene, &pool, n, seqs, begin, end, out);
    }
    pool_finish(&pool);
}

static void assert_same(const struct scene *scene, float **a, float **b) {
    for (int s = 0; s < scene->num_seqs; s++)
        assert_memory_equal(a[s], b[s],
                            (size_t)scene->lengths[s] * (size_t)scene->out_floats * sizeof(float));
}

/* A rotation rounded the other way moves a stored K by one unit of the cache's type. */
static double tolerance_of(enum dtype dtype) {
    return dtype == DTYPE_F32 ? 5e-6 : dtype == DTYPE_F16 ? 2e-4 : 1e-3;
}

static void check_scene(const struct kernel_fixture *f, struct shape shape, int num_seqs,
                        const int32_t *lengths) {
    struct scene scene;
    float *expected[MAX_SEQS], *whole[MAX_SEQS], *other[MAX_SEQS];
    scene_init(&scene, shape, num_seqs, lengths, (uint64_t)(shape.head_dim * 10 + shape.group));
    alloc_outputs(&scene, expected);
    run_whole(&scene, f->oracle, 1, expected);
    for (int i = 0; i < f->num_backends; i++) {
        bool new_level = i % 3 == 0; /* the next two are the same level with more threads */
        if (new_level)
            alloc_outputs(&scene, whole);
        alloc_outputs(&scene, other);
        run_whole(&scene, f->backends[i], (uint64_t)i + 2, new_level ? whole : other);
        for (int s = 0; s < num_seqs && new_level; s++)
            kernel_fixture_assert_near(whole[s], expected[s],
                                       (size_t)lengths[s] * (size_t)scene.out_floats,
                                       tolerance_of(shape.dtype));
        if (!new_level)
            assert_same(&scene, whole, other);
        run_mixed(&scene, f->backends[i], (uint64_t)i + 100, other);
        assert_same(&scene, whole, other);
        free_outputs(&scene, other);
        if (i % 3 == 2)
            free_outputs(&scene, whole);
    }
    free_outputs(&scene, expected);
    scene_finish(&scene);
}

static void test_lengths(void **state) {
    static const int32_t lengths[] = {1, 15, 16, 17, 31, 255, 256, 257, 600};
    check_scene(*state, (struct shape){64, 3, 3, 16, DTYPE_F16}, 9, lengths);
}

static void test_long_decode_alone(void **state) {
    check_scene(*state, (struct shape){64, 1, 3, 32, DTYPE_F16}, 1, (const int32_t[]){700});
}

static void test_head_dims(void **state) {
    static const int32_t dims[] = {8, 64, 72, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
        for (enum dtype dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++)
            check_scene(*state, (struct shape){dims[i], 1, 2, 16, dtype}, 3,
                        (const int32_t[]){17, 70, 3});
}

static void test_groups(void **state) {
    for (int32_t group = 1; group <= 8; group++)
        check_scene(*state, (struct shape){64, 2, group, 48, DTYPE_BF16}, 3,
                    (const int32_t[]){33, 130, 16});
    check_scene(*state, (struct shape){32, 1, 30, 16, DTYPE_F32}, 2, (const int32_t[]){40, 5});
}

static void test_windows(void **state) {
    static const int32_t windows[] = {1, 7, 16, 100, INT32_MAX};
    static const int32_t lengths[] = {1, 7, 8, 17, 101, 370};
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++)
        check_scene(
            *state,
            (struct shape){64, 1, 3, 16, i % 2 ? DTYPE_F16 : DTYPE_F32, .window = windows[i]}, 6,
            lengths);
    check_scene(*state, (struct shape){64, 1, 1, 32, DTYPE_BF16, .window = 300}, 1,
                (const int32_t[]){700});
}

/* A cap that scores hardly reach, and one that bends most of them. */
static void test_soft_caps(void **state) {
    static const int32_t lengths[] = {1, 17, 130};
    for (int32_t window = 0; window <= 100; window += 50) {
        const struct shape shape = {72, 2, 2, 16, DTYPE_F32, window, .soft_cap = 30};
        check_scene(*state, shape, 3, lengths);
        check_scene(*state, (struct shape){64, 1, 4, 16, DTYPE_BF16, window, .soft_cap = 1}, 3,
                    lengths);
    }
}

/* The bits of no window at all. */
static void test_window_beyond_context(void **state) {
    const struct kernel_fixture *f = *state;
    const struct shape shape = {64, 1, 3, 16, DTYPE_F16};
    struct scene scene;
    float *without[1], *with[1];
    scene_init(&scene, shape, 1, (const int32_t[]){300}, 3);
    for (int i = 0; i < f->num_backends; i++) {
        alloc_outputs(&scene, without);
        alloc_outputs(&scene, with);
        scene.shape.window = 0;
        run_whole(&scene, f->backends[i], 1, without);
        scene.shape.window = 300;
        run_whole(&scene, f->backends[i], 2, with);
        assert_same(&scene, without, with);
        free_outputs(&scene, with);
        free_outputs(&scene, without);
    }
    scene_finish(&scene);
}

/* No memory but what was allocated at start: as many tokens as there can be, then one that would
 * have its context split among the threads. */
static void test_without_memory(void **state) {
    const struct kernel_fixture *f = *state;
    const struct backend_config config = {
        .num_threads = 2, .max_step_tokens = 699, .max_step_seqs = 1};
    struct error err = {0};
    struct backend *b = backend_open("cpu", &config, &err);
    assert_non_null(b);
    struct scene scene;
    struct pool pool;
    float *expected[1], *out[1];
    int32_t length = 700, last = 699, first = 0;
    scene_init(&scene, (struct shape){64, 1, 3, 32, DTYPE_F16}, 1, &length, 5);
    alloc_outputs(&scene, expected);
    alloc_outputs(&scene, out);
    run_whole(&scene, f->oracle, 1, expected);
    pool_init(&pool, &scene, b, 6);
    num_refused = 0;
    is_memory_short = true;
    run_step(&scene, &pool, 1, (const int[]){0}, &first, &last, out);
    assert_int_equal(num_refused, 0);
    run_step(&scene, &pool, 1, (const int[]){0}, &last, &length, out);
    is_memory_short = false;
    assert_int_equal(num_refused, 1);
    kernel_fixture_assert_near(out[0], expected[0], (size_t)length * (size_t)scene.out_floats,
                               tolerance_of(DTYPE_F16));
    pool_finish(&pool);
    free_outputs(&scene, out);
    free_outputs(&scene, expected);
    scene_finish(&scene);
    backend_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_long_decode_alone),
        cmocka_unit_test(test_head_dims),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_soft_caps),
        cmocka_unit_test(test_window_beyond_context),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, kernel_fixture_setup, kernel_fixture_teardown);
}
