/* paged_attention of a device against the oracle: steps of prefills, decodes and chunks together,
 * with lengths around the borders of blocks and tiles, block tables in disorder and NaN in every
 * place of the cache that holds no token; blocks that the window has left are NaN too. In every
 * order of the simulator's threads the bits are the same. With batch-invariant, a row's bits depend
 * on neither its company nor its chunk. */
#include "tests/kernels/device_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_SEQS 12
#define MAX_TOKENS 1024
#define NUM_LAYERS 2
#define LAYER 1

static struct device_fixture fixture;

struct shape {
    int32_t head_dim;
    int32_t num_kv_heads;
    int32_t group;
    int32_t block_size;
    int32_t window;
    float soft_cap;
};

/* The last `num_tokens` tokens of a sequence of `length` are what a step computes. */
struct piece {
    int32_t sequence;
    int32_t length;
    int32_t num_tokens;
};

/* Sequences with all their tokens in both caches, and all their queries. */
struct scene {
    struct shape shape;
    int32_t num_seqs;
    int32_t lengths[MAX_SEQS];
    int32_t max_blocks;
    int32_t *tables;    /* [num_seqs][max_blocks] */
    int32_t nan_block;  /* holds no token */
    float *q[MAX_SEQS]; /* [length, num_q_heads * head_dim] */
    struct kv_cache device_cache, oracle_cache;
    void *device_pool; /* guarded */
};

static int32_t q_floats_of(const struct shape *shape) {
    return shape->num_kv_heads * shape->group * shape->head_dim;
}

static void deal_blocks(struct scene *scene, int32_t num_blocks, uint64_t *seed) {
    int32_t *ids = malloc((size_t)num_blocks * sizeof(*ids));
    scene->tables = calloc((size_t)(scene->num_seqs * scene->max_blocks), sizeof(*scene->tables));
    assert_true(ids != NULL && scene->tables != NULL);
    for (int32_t i = 0; i < num_blocks; i++) {
        int32_t j = kernel_fixture_random_in(seed, 0, i);
        ids[i] = ids[j];
        ids[j] = i;
    }
    int32_t next = 0;
    for (int32_t s = 0; s < scene->num_seqs; s++)
        for (int32_t i = 0; i * scene->shape.block_size < scene->lengths[s]; i++)
            scene->tables[s * scene->max_blocks + i] = ids[next++];
    scene->nan_block = ids[next];
    free(ids);
}

/* Random K and V of all tokens into a pool of floats that is NaN elsewhere. */
static void store_tokens(const struct scene *scene, float *pool, uint64_t *seed) {
    const struct shape *shape = &scene->shape;
    size_t dim = (size_t)shape->head_dim, block_size = (size_t)shape->block_size;
    size_t planes = 2 * (size_t)shape->num_kv_heads; /* of a layer: K of each head, then V */
    for (int32_t s = 0; s < scene->num_seqs; s++)
        for (int32_t t = 0; t < scene->lengths[s]; t++) {
            size_t block = (size_t)scene->tables[s * scene->max_blocks + t / shape->block_size];
            for (size_t p = 0; p < planes; p++) {
                size_t plane = (block * NUM_LAYERS + LAYER) * planes + p;
                float *row = pool + (plane * block_size + (size_t)t % block_size) * dim;
                for (size_t d = 0; d < dim; d++)
                    row[d] = kernel_fixture_normal(seed);
                device_fixture_round(&fixture, row, dim);
            }
        }
}

static void make_caches(struct scene *scene, int32_t num_blocks, uint64_t *seed) {
    const struct shape *shape = &scene->shape;
    struct kv_cache *cache = &scene->oracle_cache;
    *cache = (struct kv_cache){.layout = {.num_layers = NUM_LAYERS,
                                          .num_kv_heads = shape->num_kv_heads,
                                          .head_dim = shape->head_dim,
                                          .block_size = shape->block_size,
                                          .dtype = DTYPE_F32},
                               .num_blocks = num_blocks};
    size_t bytes = (size_t)num_blocks * kv_block_bytes(&cache->layout);
    assert_int_equal(fixture.oracle->ops->buffer_alloc(fixture.oracle, bytes, &cache->buffer, NULL),
                     0);
    memset(cache->buffer.data, 0xff, bytes);
    store_tokens(scene, cache->buffer.data, seed);
    scene->device_cache = *cache;
    scene->device_cache.layout.dtype = fixture.dtype;
    scene->device_pool =
        device_fixture_put(&fixture, fixture.dtype, cache->buffer.data, bytes / sizeof(float));
    scene->device_cache.buffer.data = scene->device_pool;
}

static void scene_init(struct scene *scene, struct shape shape, int32_t num_seqs,
                       const int32_t *lengths) {
    uint64_t seed = (uint64_t)(shape.head_dim * 100 + shape.group * 10 + num_seqs);
    *scene = (struct scene){.shape = shape, .num_seqs = num_seqs};
    int32_t num_blocks = 3;
    for (int32_t s = 0; s < num_seqs; s++) {
        int32_t n = (lengths[s] + shape.block_size - 1) / shape.block_size;
        scene->lengths[s] = lengths[s];
        scene->max_blocks = n > scene->max_blocks ? n : scene->max_blocks;
        num_blocks += n;
        size_t q_floats = (size_t)lengths[s] * (size_t)q_floats_of(&shape);
        scene->q[s] = kernel_fixture_random_floats(&seed, q_floats);
        device_fixture_round(&fixture, scene->q[s], q_floats);
    }
    deal_blocks(scene, num_blocks, &seed);
    make_caches(scene, num_blocks, &seed);
}

static void scene_finish(struct scene *scene) {
    device_fixture_free(&fixture, scene->device_pool);
    fixture.oracle->ops->buffer_free(fixture.oracle, &scene->oracle_cache.buffer);
    for (int32_t s = 0; s < scene->num_seqs; s++)
        free(scene->q[s]);
    free(scene->tables);
}

/* A step's arrays on the host. */
struct step {
    struct step_inputs inputs;
    int32_t query_start[MAX_SEQS + 1];
    int32_t context_lens[MAX_SEQS];
    int32_t zeros[MAX_TOKENS]; /* for what attention does not look at */
    int32_t *tables;
    float *qkv; /* NaN for k and v */
};

/* Blocks that no token from `first` on sees any more may have become another sequence's. */
static void leave_window(const struct scene *scene, int32_t first, int32_t *table) {
    int32_t window = scene->shape.window, size = scene->shape.block_size;
    for (int32_t i = 0; window > 0 && (i + 1) * size <= first - (window - 1); i++)
        table[i] = scene->nan_block;
}

static void step_init(struct step *step, const struct scene *scene, int32_t num_pieces,
                      const struct piece *pieces) {
    *step = (struct step){0};
    size_t table_bytes = (size_t)scene->max_blocks * sizeof(int32_t);
    step->tables = malloc((size_t)num_pieces * table_bytes);
    assert_non_null(step->tables);
    for (int32_t i = 0; i < num_pieces; i++) {
        step->query_start[i + 1] = step->query_start[i] + pieces[i].num_tokens;
        step->context_lens[i] = pieces[i].length;
        memcpy(step->tables + i * scene->max_blocks,
               scene->tables + pieces[i].sequence * scene->max_blocks, table_bytes);
        leave_window(scene, pieces[i].length - pieces[i].num_tokens,
                     step->tables + i * scene->max_blocks);
    }
    int32_t num_tokens = step->query_start[num_pieces];
    assert_true(num_tokens <= MAX_TOKENS);
    step->inputs = (struct step_inputs){.num_tokens = num_tokens,
                                        .num_seqs = num_pieces,
                                        .max_blocks_per_seq = scene->max_blocks,
                                        .token_ids = step->zeros,
                                        .positions = step->zeros,
                                        .slot_mapping = step->zeros,
                                        .query_start = step->query_start,
                                        .context_lens = step->context_lens,
                                        .block_tables = step->tables};
    size_t q_floats = (size_t)q_floats_of(&scene->shape);
    size_t row_floats = q_floats + 2 * (size_t)(scene->shape.num_kv_heads * scene->shape.head_dim);
    step->qkv = malloc((size_t)num_tokens * row_floats * sizeof(float));
    assert_non_null(step->qkv);
    memset(step->qkv, 0xff, (size_t)num_tokens * row_floats * sizeof(float));
    for (int32_t i = 0; i < num_pieces; i++)
        for (int32_t t = 0; t < pieces[i].num_tokens; t++)
            memcpy(step->qkv + (size_t)(step->query_start[i] + t) * row_floats,
                   scene->q[pieces[i].sequence] +
                       (size_t)(pieces[i].length - pieces[i].num_tokens + t) * q_floats,
                   q_floats * sizeof(float));
}

static void step_finish(struct step *step) {
    free(step->tables);
    free(step->qkv);
}

static void run_attention(struct device_fixture *f, const void *args) {
    f->device->ops->paged_attention(f->device, args);
}

/* Results of the pieces' tokens, one after the other, into `out`, which is freed by free(). */
static float *run_device(const struct scene *scene, const struct step *step,
                         struct attention_args args) {
    struct device_fixture *f = &fixture;
    size_t num_tokens = (size_t)step->inputs.num_tokens;
    size_t q_floats = (size_t)q_floats_of(&scene->shape), n = num_tokens * q_floats;
    size_t kv_floats = (size_t)(2 * scene->shape.num_kv_heads * scene->shape.head_dim);
    void *qkv = device_fixture_put(f, f->dtype, step->qkv, num_tokens * (q_floats + kv_floats));
    void *out = device_fixture_put(f, f->dtype, NULL, n);
    args.qkv = qkv, args.out = out, args.cache = &scene->device_cache;
    f->device->ops->step_begin(f->device, &step->inputs);
    device_fixture_run(f, run_attention, &args, out, dtype_row_bytes(f->dtype, n));
    float *actual = malloc(n * sizeof(float));
    assert_non_null(actual);
    device_fixture_get(f, f->dtype, out, actual, n);
    device_fixture_free(f, out);
    device_fixture_free(f, qkv);
    return actual;
}

static struct attention_args args_of(const struct shape *shape) {
    return (struct attention_args){.layer = LAYER,
                                   .num_q_heads = shape->num_kv_heads * shape->group,
                                   .scale = 1 / sqrtf((float)shape->head_dim),
                                   .window = shape->window,
                                   .soft_cap = shape->soft_cap};
}

static void check_step(const struct scene *scene, int32_t num_pieces, const struct piece *pieces,
                       const char *what) {
    struct step step;
    step_init(&step, scene, num_pieces, pieces);
    size_t n = (size_t)(step.inputs.num_tokens * q_floats_of(&scene->shape));
    struct attention_args args = args_of(&scene->shape);
    float *actual = run_device(scene, &step, args);
    float *expected = kernel_fixture_guarded(n);
    args.qkv = step.qkv, args.out = expected, args.cache = &scene->oracle_cache;
    fixture.oracle->ops->step_begin(fixture.oracle, &step.inputs);
    fixture.oracle->ops->paged_attention(fixture.oracle, &args);
    device_fixture_assert_close(actual, expected, n, fixture.tolerance, what);
    kernel_fixture_guarded_free(expected);
    free(actual);
    step_finish(&step);
}

static void check(struct shape shape, int32_t num_pieces, const struct piece *pieces,
                  const char *what) {
    struct scene scene;
    int32_t lengths[MAX_SEQS];
    for (int32_t i = 0; i < num_pieces; i++)
        lengths[pieces[i].sequence] = pieces[i].length;
    scene_init(&scene, shape, num_pieces, lengths);
    check_step(&scene, num_pieces, pieces, what);
    scene_finish(&scene);
}

/* Prefills, decodes and chunks around the borders of blocks (16) and tiles (64). */
static const struct piece mixed[] = {{0, 1, 1},    {1, 15, 15}, {2, 16, 1},   {3, 17, 3},
                                     {4, 63, 1},   {5, 64, 9},  {6, 65, 65},  {7, 127, 1},
                                     {8, 129, 33}, {9, 255, 1}, {10, 257, 5}, {11, 300, 1}};

static void test_lengths(void **state) {
    check((struct shape){64, 2, 3, 16, 0, 0}, 12, mixed, "lengths");
}

static const struct piece small[] = {{0, 17, 17}, {1, 70, 1}, {2, 131, 7}};

static void test_head_dims(void **state) {
    static const int32_t dims[] = {8, 16, 64, 72, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
        check((struct shape){dims[i], 1, 2, 16, 0, 0}, 3, small, "head_dim");
}

/* Every size of head that a model of the family has, with every number of query heads to a KV head
 * and every size of block: nothing in the kernel that one of them decides may lean on another. */
static void test_heads_with_groups_and_blocks(void **state) {
    static const int32_t dims[] = {64, 80, 96, 128, 256}, sizes[] = {16, 32, 64};
    int32_t size = 0;
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
        for (int32_t group = 1; group <= 8; group++)
            check((struct shape){dims[i], 1, group, sizes[size++ % 3], 0, 0}, 3, small,
                  "head_dim, group and block_size");
}

/* 30: a decode of more rows than a narrow tile has. */
static void test_groups(void **state) {
    static const int32_t groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 30};
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        check((struct shape){16, 1, groups[i], 16, 0, 0}, 3, small, "group");
}

static void test_block_sizes(void **state) {
    static const int32_t sizes[] = {32, 48, 64};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        check((struct shape){32, 2, 2, sizes[i], 0, 0}, 3, small, "block_size");
}

static void test_windows(void **state) {
    static const int32_t windows[] = {1, 5, 64, 100, 1000};
    static const struct piece pieces[] = {{0, 90, 90}, {1, 200, 1}, {2, 300, 50}};
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++)
        check((struct shape){64, 1, 2, 16, windows[i], 0}, 3, pieces, "window");
}

/* Caps that bend nearly all scores, and few. */
static void test_soft_caps(void **state) {
    check((struct shape){64, 1, 2, 16, 0, 0.5f}, 3, small, "soft_cap");
    check((struct shape){48, 1, 4, 16, 40, 50}, 3, small, "soft_cap with a window");
}

/* So few tiles that long contexts are shared among blocks. */
static void test_split(void **state) {
    static const struct piece decode[] = {{0, 700, 1}}, chunk[] = {{0, 700, 20}},
                              both[] = {{0, 705, 3}, {1, 650, 40}, {2, 30, 1}};
    static const int32_t dims[] = {64, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        check((struct shape){dims[i], 1, 3, 16, 0, 0}, 1, decode, "a decode in parts");
        check((struct shape){dims[i], 1, 5, 32, 0, 0}, 1, chunk, "a chunk in parts");
    }
    check((struct shape){80, 1, 2, 16, 400, 0}, 3, both, "both in parts, with a window");
}

/* Layers of three windows, one after the other and again, and the next step: each has its plan. */
static void test_plans(void **state) {
    struct scene scene;
    const int32_t lengths[] = {150, 30};
    scene_init(&scene, (struct shape){16, 1, 2, 16, 0, 0}, 2, lengths);
    for (int32_t length = 149; length <= 150; length++) {
        const struct piece pieces[] = {{0, length, 2}, {1, 30, 30}};
        struct step step;
        step_init(&step, &scene, 2, pieces);
        size_t n = (size_t)(step.inputs.num_tokens * q_floats_of(&scene.shape));
        float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
        void *qkv = device_fixture_put(&fixture, fixture.dtype, step.qkv, 2 * n);
        void *out = device_fixture_put(&fixture, fixture.dtype, NULL, n);
        fixture.device->ops->step_begin(fixture.device, &step.inputs);
        fixture.oracle->ops->step_begin(fixture.oracle, &step.inputs);
        static const int32_t windows[] = {0, 10, 0, 90, 10, 0};
        for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
            struct attention_args args = args_of(&scene.shape);
            args.window = windows[i];
            args.qkv = qkv, args.out = out, args.cache = &scene.device_cache;
            fixture.device->ops->paged_attention(fixture.device, &args);
            device_fixture_get(&fixture, fixture.dtype, out, actual, n);
            args.qkv = step.qkv, args.out = expected, args.cache = &scene.oracle_cache;
            fixture.oracle->ops->paged_attention(fixture.oracle, &args);
            device_fixture_assert_close(actual, expected, n, fixture.tolerance, "plans");
        }
        device_fixture_free(&fixture, out);
        device_fixture_free(&fixture, qkv);
        kernel_fixture_guarded_free(actual);
        kernel_fixture_guarded_free(expected);
        step_finish(&step);
    }
    scene_finish(&scene);
}

/* The rows of `piece`, computed in a step of these pieces, have the bits they have in `whole`. */
static void assert_same_rows(const struct scene *scene, int32_t num_pieces,
                             const struct piece *pieces, const float *whole) {
    struct step step;
    step_init(&step, scene, num_pieces, pieces);
    float *actual = run_device(scene, &step, args_of(&scene->shape));
    size_t q_floats = (size_t)q_floats_of(&scene->shape);
    for (int32_t i = 0; i < num_pieces; i++)
        if (pieces[i].sequence == 0)
            assert_memory_equal(actual + (size_t)step.query_start[i] * q_floats,
                                whole +
                                    (size_t)(pieces[i].length - pieces[i].num_tokens) * q_floats,
                                (size_t)pieces[i].num_tokens * q_floats * sizeof(float));
    free(actual);
    step_finish(&step);
}

/* A sequence alone in one step, in pieces of 7, token by token, and in company. */
static void check_invariance(struct shape shape) {
    struct scene scene;
    const int32_t lengths[] = {140, 300, 40};
    scene_init(&scene, shape, 3, lengths);
    const struct piece alone = {0, lengths[0], lengths[0]};
    struct step step;
    step_init(&step, &scene, 1, &alone);
    float *whole = run_device(&scene, &step, args_of(&shape));
    for (int32_t length = 7; length <= lengths[0]; length += 7) {
        const struct piece chunk = {0, length, 7};
        assert_same_rows(&scene, 1, &chunk, whole);
    }
    for (int32_t length = 1; length <= lengths[0]; length += length < 60 ? 13 : 1) {
        const struct piece token = {0, length, 1};
        if (length < 70 || length > 125)
            assert_same_rows(&scene, 1, &token, whole);
    }
    const struct piece company[] = {{1, 300, 1}, {0, 140, 50}, {2, 40, 40}};
    assert_same_rows(&scene, 3, company, whole);
    free(whole);
    step_finish(&step);
    scene_finish(&scene);
}

static void test_batch_invariance(void **state) {
    if (!fixture.batch_invariant)
        skip();
    check_invariance((struct shape){16, 1, 3, 16, 0, 0});
    check_invariance((struct shape){96, 1, 2, 64, 0, 0});
    check_invariance((struct shape){128, 1, 4, 16, 0, 0});
    check_invariance((struct shape){256, 1, 1, 32, 0, 0});
    check_invariance((struct shape){16, 1, 1, 32, 37, 2});
}

int main(int argc, char **argv) {
    const struct backend_config config = {.max_step_tokens = MAX_TOKENS,
                                          .max_step_seqs = MAX_SEQS,
                                          .max_blocks_per_seq = 64,
                                          .head_dim = KV_MAX_HEAD_DIM,
                                          .num_q_heads = 30,
                                          .num_kv_heads = 2};
    device_fixture_open(&fixture, argc, argv, &config);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_head_dims),
        cmocka_unit_test(test_heads_with_groups_and_blocks),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_block_sizes),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_soft_caps),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_batch_invariance),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_fixture_close(&fixture);
    return failed;
}
