/* Attention of sequences that begin with the same blocks: near the oracle whatever they read
 * together. */
#include "tests/kernels/attention_fixture.h"

#include "kernels/kv_type.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* So few that the sequences of a test, which are short for a GPU, have more to read than its blocks
 * take at once: a prefix is shared only then. */
enum { NUM_MULTIPROCESSORS = 4 };

/* Sequences that begin alike, with the blocks of the first of them or with their own: the same
 * bits. Prefixes of all lengths, one that ends within a chunk, rows of more than one tile, and a
 * sequence in between that shares nothing or prefills. Without memory for it, nothing is shared. */
static void check_prefixes(struct backend *b, enum kv_type type, int32_t window, bool has_memory) {
    enum { N = 11, UNLIKE = 5 };
    static const int32_t lengths[N] = {700, 513, 530, 800, 600, 540, 520, 512, 300, 590, 256};
    static const int32_t shared[N] = {700, 512, 512, 640, 512, 0, 512, 512, 256, 512, 256};
    struct attention_scene scene;
    struct attention_pool own, pool;
    struct attention_chunk chunks[N];
    float *alone[ATTENTION_MAX_SEQS], *together[ATTENTION_MAX_SEQS];
    attention_scene_init(&scene, (struct attention_shape){32, 2, 4, 32, type, .window = window}, N,
                         lengths);
    for (int s = 0; s < N; s++) {
        chunks[s] = (struct attention_chunk){s, lengths[s], s == UNLIKE ? 3 : 1};
        if (s > 0)
            memcpy(scene.qkv[s], scene.qkv[0],
                   (size_t)shared[s] * (size_t)scene.row_floats * sizeof(float));
    }
    attention_alloc_outputs(&scene, alone);
    attention_alloc_outputs(&scene, together);
    attention_pool_init(&own, &scene, b, 3);
    attention_pool_init(&pool, &scene, b, 4);
    for (int s = 1; s < N; s++)
        memcpy(pool.tables + s * pool.max_blocks, pool.tables,
               (size_t)(shared[s] / 32) * sizeof(*pool.tables));
    attention_store_before(&scene, &own, N, chunks);
    attention_store_before(&scene, &pool, N, chunks);
    attention_run_step(&scene, &own, N, chunks, alone);
    attention_num_refused = 0;
    attention_memory_is_short = !has_memory;
    attention_run_step(&scene, &pool, N, chunks, together);
    attention_memory_is_short = false;
    assert_int_equal(attention_num_refused, !has_memory);
    for (int s = 0; s < N; s++) {
        size_t first = (size_t)((lengths[s] - chunks[s].num_tokens) * scene.out_floats);
        assert_memory_equal(alone[s] + first, together[s] + first,
                            (size_t)(chunks[s].num_tokens * scene.out_floats) * sizeof(float));
    }
    attention_pool_finish(&own);
    attention_pool_finish(&pool);
    attention_free_outputs(&scene, together);
    attention_free_outputs(&scene, alone);
    attention_scene_finish(&scene);
}

static void test_prefixes(void **state) {
    if (!attention_fixture.bits_equal)
        skip();
    for (int i = 0; i < attention_fixture.num_backends; i++)
        for (enum kv_type type = 0; type < NUM_KV_TYPES; type++)
            if (attention_is_taken(type))
                check_prefixes(attention_fixture.backends[i], type, type == KV_F32 ? 500 : 0, true);
    check_prefixes(attention_fixture.backends[0], KV_F32, 0, true);
}

static void test_prefixes_without_memory(void **state) {
    const struct backend_config config = {.num_threads = 2,
                                          .limits.max_num_batched_tokens = ATTENTION_MAX_TOKENS,
                                          .limits.max_num_seqs = 1};
    struct error err = {0};
    if (attention_fixture.dtype != DTYPE_F32)
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
    } seqs[ATTENTION_MAX_SEQS];
};

static void family_scene(struct attention_scene *scene, struct attention_shape shape,
                         const struct family *family) {
    int32_t lengths[ATTENTION_MAX_SEQS] = {0};
    for (int s = 0; s < family->num_seqs; s++)
        lengths[s] = family->seqs[s].length;
    attention_scene_init(scene, shape, family->num_seqs, lengths);
    for (int s = 0; s < family->num_seqs; s++)
        memcpy(scene->qkv[s], scene->qkv[family->seqs[s].like],
               (size_t)family->seqs[s].shared * (size_t)scene->row_floats * sizeof(float));
}

/* Everything before the step is in the cache. */
static void family_pool(struct attention_pool *pool, const struct attention_scene *scene,
                        struct backend *b, uint64_t seed, const struct family *family,
                        struct attention_chunk *chunks) {
    attention_pool_init(pool, scene, b, seed);
    for (int s = 0; s < family->num_seqs; s++) {
        const struct relative *seq = &family->seqs[s];
        int32_t num_blocks = seq->shared / scene->shape.block_size;
        memcpy(pool->tables + s * pool->max_blocks, pool->tables + seq->like * pool->max_blocks,
               (size_t)num_blocks * sizeof(*pool->tables));
        chunks[s] = (struct attention_chunk){s, seq->length, seq->num_tokens};
        int32_t before = seq->length - seq->num_tokens;
        int32_t own = before - num_blocks * scene->shape.block_size;
        if (own > 0)
            attention_store_chunk(scene, pool, (struct attention_chunk){s, before, own});
    }
}

/* The rows of one step of all of them. */
static float *run_family(const struct attention_scene *scene, struct backend *b, uint64_t seed,
                         const struct family *family, size_t *out_n) {
    struct attention_pool pool;
    struct attention_chunk chunks[ATTENTION_MAX_SEQS];
    float *out[ATTENTION_MAX_SEQS];
    attention_alloc_outputs(scene, out);
    family_pool(&pool, scene, b, seed, family, chunks);
    attention_run_step(scene, &pool, family->num_seqs, chunks, out);
    float *rows = attention_gather(scene, family->num_seqs, chunks, out, out_n);
    attention_pool_finish(&pool);
    attention_free_outputs(scene, out);
    return rows;
}

/* shares: whether a device that may read a prefix once does so. */
static void check_family(struct attention_shape shape, const struct family *family, bool shares,
                         const char *what) {
    struct attention_scene scene;
    size_t n;
    family_scene(&scene, shape, family);
    float *expected = run_family(&scene, attention_fixture.oracle, 1, family, &n);
    for (int i = 0; i < attention_fixture.num_backends; i++) {
        if (!kernel_fixture_is_new_level(&attention_fixture, i))
            continue;
        struct backend *b = attention_fixture.backends[i];
        uint64_t num_before = b->paths.shared_prefixes;
        float *actual = run_family(&scene, b, (uint64_t)i + 2, family, &n);
        attention_assert_near_oracle(b, scene.shape.type, actual, expected, n, what);
        if (attention_fixture.dtype != DTYPE_F32)
            assert_int_equal(b->paths.shared_prefixes > num_before, shares && attention_is_cut());
        free(actual);
    }
    free(expected);
    attention_scene_finish(&scene);
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
    const enum kv_type types[] = {kv_type_of_dtype(attention_fixture.dtype), KV_INT8, KV_E4M3};
    int at = 0;
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
        for (int32_t group = 1; group <= 8; group++, at++) {
            enum kv_type type = types[at % 3];
            if (attention_is_taken(type))
                check_family((struct attention_shape){dims[i], 1, group, sizes[at / 3 % 3], type},
                             &mixed_family, true, "shared prefixes");
        }
}

/* num_seqs with one prefix and tails of different lengths; behind the prefix, those from `nested`
 * on have more in common. */
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
    for (int num_seqs = 2; num_seqs <= ATTENTION_MAX_SEQS; num_seqs += num_seqs < 5 ? 1 : 19)
        for (int32_t group = 1; group <= 9; group += 4) {
            struct family flat = large_family(num_seqs, 512, num_seqs, 0);
            struct family tree = large_family(num_seqs, 256, num_seqs / 2, 512);
            check_family((struct attention_shape){64, 2, group, 16}, &flat, true, "one prefix");
            check_family((struct attention_shape){32, 1, group, 32, .soft_cap = group - 1}, &tree,
                         true, "a prefix behind a prefix");
            check_family((struct attention_shape){32, 1, group, 16, .has_sinks = true}, &flat, true,
                         "one prefix and sinks");
        }
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        struct family tree = large_family(9, 256, 4, 512);
        check_family((struct attention_shape){64, 1, 4, 16, .window = windows[i]}, &tree,
                     windows[i] > 256, "prefixes and a window");
    }
    /* Windows that end at the prefix's first token, and one behind it. */
    struct family short_tails = large_family(12, 256, 12, 0);
    for (int s = 0; s < short_tails.num_seqs; s++)
        short_tails.seqs[s].length = 257;
    for (int32_t window = 256; window <= 257; window++)
        check_family((struct attention_shape){64, 1, 2, 16, .window = window}, &short_tails,
                     window > 256, "a prefix and a window of its length");
    struct family few = large_family(3, 1024, 3, 0);
    check_family((struct attention_shape){128, 1, 7, 32}, &few, true, "a long prefix in parts");
    check_family((struct attention_shape){64, 1, 21, 64}, &few, true, "a prefix of the most heads");
    check_family((struct attention_shape){64, 1, 30, 64}, &few, false,
                 "too many heads to share a prefix");
}

/* One step of all of them through layers with these windows; rows of `out` are theirs. */
static void run_layers(const struct attention_scene *scene, struct attention_pool *pool,
                       const struct attention_chunk *chunks, int num_layers, const int32_t *windows,
                       float **out) {
    struct backend *b = pool->backend;
    struct attention_step step;
    attention_step_init(&step, scene, pool, scene->num_seqs, chunks);
    size_t n = (size_t)(step.inputs.num_tokens * scene->out_floats);
    struct attention_args args = attention_args_of(scene, pool);
    void *qkv = attention_store(scene, pool, &step);
    args.qkv = qkv, args.out = kernel_fixture_put(b, pool->dtype, NULL, n);
    for (int i = 0; i < num_layers; i++) {
        args.window = windows[i];
        b->ops->paged_attention(b, &args);
        out[i] = kernel_fixture_memory(n * sizeof(float));
        kernel_fixture_get(b, pool->dtype, args.out, out[i], n);
    }
    kernel_fixture_free(b, args.out);
    kernel_fixture_free(b, qkv);
    attention_step_finish(&step);
}

/* Layers that share the prefix and layers whose window ends within it, in turns: each has its plan,
 * made when it asks, and in the second step before. */
static void test_prefixes_of_layers(void **state) {
    enum { NUM = 4 };
    static const int32_t windows[NUM] = {0, 100, 0, 70};
    const struct family family = large_family(8, 256, 8, 0);
    struct backend *b = attention_fixture.backends[0];
    struct attention_scene scene;
    struct attention_pool pool, oracle_pool;
    struct attention_chunk chunks[ATTENTION_MAX_SEQS];
    float *actual[NUM], *expected[NUM];
    family_scene(&scene, (struct attention_shape){64, 2, 2, 16}, &family);
    family_pool(&pool, &scene, b, 1, &family, chunks);
    family_pool(&oracle_pool, &scene, attention_fixture.oracle, 2, &family, chunks);
    run_layers(&scene, &oracle_pool, chunks, NUM, windows, expected);
    for (int step = 0; step < 2; step++) {
        run_layers(&scene, &pool, chunks, NUM, windows, actual);
        for (int i = 0; i < NUM; i++) {
            attention_assert_near_oracle(b, scene.shape.type, actual[i], expected[i],
                                         (size_t)(family.num_seqs * scene.out_floats), "a layer");
            free(actual[i]);
        }
    }
    for (int i = 0; i < NUM; i++)
        free(expected[i]);
    attention_pool_finish(&pool);
    attention_pool_finish(&oracle_pool);
    attention_scene_finish(&scene);
}

/* A step of these sequences, whose attention is the recorded one if there is any. */
static void run_recorded(const struct attention_scene *scene, struct attention_pool *pool,
                         int num_chunks, const struct attention_chunk *chunks,
                         const struct attention_args *args, struct recording *recording,
                         float *out) {
    struct backend *b = pool->backend;
    struct attention_step step;
    attention_step_init(&step, scene, pool, num_chunks, chunks);
    size_t n = (size_t)step.inputs.num_tokens * (size_t)scene->out_floats;
    kernel_fixture_free(b, attention_store(scene, pool, &step));
    kernel_fixture_set(b, pool->dtype, (void *)args->qkv, step.qkv,
                       (size_t)step.inputs.num_tokens * (size_t)scene->row_floats);
    if (recording != NULL)
        b->ops->recording->replay(b, recording);
    else
        b->ops->paged_attention(b, args);
    kernel_fixture_get(b, pool->dtype, args->out, out, n);
    attention_step_finish(&step);
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
    struct attention_scene scene;
    struct family family = large_family(RECORDED_SEQS, 256, 4, 512);
    struct backend *b = attention_fixture.backends[0];
    if (b->ops->recording == NULL)
        return;
    for (family.num_seqs = 0; family.num_seqs < 2 * RECORDED_SEQS; family.num_seqs++)
        if (family.num_seqs >= RECORDED_SEQS)
            family.seqs[family.num_seqs] =
                (struct relative){300 + family.num_seqs, 1, family.num_seqs, 0};
    family_scene(&scene, (struct attention_shape){64, 2, 3, 16}, &family);
    struct attention_pool pool, oracle_pool;
    struct attention_chunk chunks[ATTENTION_MAX_SEQS];
    family_pool(&oracle_pool, &scene, attention_fixture.oracle, 1, &family, chunks);
    family_pool(&pool, &scene, b, 2, &family, chunks);
    size_t n = RECORDED_SEQS * (size_t)scene.out_floats;
    size_t num_in = RECORDED_SEQS * (size_t)scene.row_floats;
    struct attention_args args = attention_args_of(&scene, &pool),
                          expected = attention_args_of(&scene, &oracle_pool);
    args.qkv = kernel_fixture_put(b, pool.dtype, NULL, num_in);
    args.out = kernel_fixture_put(b, pool.dtype, NULL, n);
    expected.qkv = kernel_fixture_put(attention_fixture.oracle, oracle_pool.dtype, NULL, num_in);
    expected.out = kernel_fixture_put(attention_fixture.oracle, oracle_pool.dtype, NULL, n);
    struct recording *recording = NULL;
    float *rows[3];
    for (int i = 0; i < 3; i++)
        rows[i] = kernel_fixture_memory(n * sizeof(float));
    for (int i = 0; i < NUM_RECORDED_STEPS; i++) {
        struct attention_chunk some[RECORDED_SEQS];
        for (int s = 0; s < RECORDED_SEQS; s++)
            some[s] = chunks[steps[i][s]];
        run_recorded(&scene, &oracle_pool, RECORDED_SEQS, some, &expected, NULL, rows[0]);
        run_recorded(&scene, &pool, RECORDED_SEQS, some, &args, NULL, rows[1]);
        if (recording == NULL)
            recording = record_attention(b, &args);
        kernel_fixture_set(b, pool.dtype, args.out, rows[0], n);
        run_recorded(&scene, &pool, RECORDED_SEQS, some, &args, recording, rows[2]);
        attention_assert_near_oracle(b, scene.shape.type, rows[1], rows[0], n,
                                     "before a recording");
        assert_memory_equal(rows[1], rows[2], n * sizeof(float));
    }
    for (int i = 0; i < 3; i++)
        free(rows[i]);
    b->ops->recording->free(b, recording);
    kernel_fixture_free(b, (void *)args.qkv);
    kernel_fixture_free(b, args.out);
    kernel_fixture_free(attention_fixture.oracle, (void *)expected.qkv);
    kernel_fixture_free(attention_fixture.oracle, expected.out);
    attention_pool_finish(&pool);
    attention_pool_finish(&oracle_pool);
    attention_scene_finish(&scene);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefixes),           cmocka_unit_test(test_prefixes_without_memory),
        cmocka_unit_test(test_shared_prefixes),    cmocka_unit_test(test_large_families),
        cmocka_unit_test(test_prefixes_of_layers), cmocka_unit_test(test_recorded_prefixes),
    };
    attention_fixture_open(argc, argv, NUM_MULTIPROCESSORS, 0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&attention_fixture);
    return failed;
}
