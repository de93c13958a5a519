/* rope_store_kv and paged_attention against the oracle: steps of prefills, decodes and chunks
 * together, with lengths around the borders of blocks and tiles. On the CPU, and on a device opened
 * as batch-invariant, a row's result has the same bits alone, in any batch, in prefill or decode,
 * in whatever physical blocks, and on any number of threads. */
#include "tests/kernels/attention_fixture.h"

#include "kernels/kv_type.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_lengths(void **state) {
    static const int32_t lengths[] = {1, 15, 16, 17, 31, 255, 256, 257, 600};
    attention_check_scene((struct attention_shape){64, 3, 3, 16, KV_F16}, 9, lengths);
    attention_check((struct attention_shape){64, 2, 3, 16}, 12, attention_mixed, "lengths");
}

static void test_long_decode_alone(void **state) {
    attention_check_scene((struct attention_shape){64, 1, 3, 32, KV_F16}, 1,
                          (const int32_t[]){700});
}

static void test_head_dims(void **state) {
    static const int32_t dims[] = {8, 16, 64, 72, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        for (enum kv_type type = 0; type < NUM_KV_TYPES; type++)
            attention_check_scene((struct attention_shape){dims[i], 1, 2, 16, type}, 3,
                                  (const int32_t[]){17, 70, 3});
        attention_check((struct attention_shape){dims[i], 1, 2, 16}, 3, attention_small,
                        "head_dim");
    }
}

/* Every size of head that a model of the family has, with every number of query heads to a KV head
 * and every size of block: nothing in the kernel that one of them decides may lean on another. */
static void test_heads_with_groups_and_blocks(void **state) {
    static const int32_t dims[] = {64, 80, 96, 128, 256}, sizes[] = {16, 32, 64};
    int32_t size = 0;
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
        for (int32_t group = 1; group <= 8; group++)
            attention_check((struct attention_shape){dims[i], 1, group, sizes[size++ % 3]}, 3,
                            attention_small, "head_dim, group and block_size");
}

/* 30: a decode of more rows than a narrow tile has. */
static void test_groups(void **state) {
    static const int32_t groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 30};
    for (int32_t group = 1; group <= 8; group++)
        attention_check_scene((struct attention_shape){64, 2, group, 32, KV_BF16}, 3,
                              (const int32_t[]){33, 130, 16});
    attention_check_scene((struct attention_shape){32, 1, 30, 16, KV_F32}, 2,
                          (const int32_t[]){40, 5});
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        attention_check((struct attention_shape){16, 1, groups[i], 16}, 3, attention_small,
                        "group");
}

static void test_block_sizes(void **state) {
    static const int32_t sizes[] = {16, 32, 64};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        attention_check((struct attention_shape){32, 2, 2, sizes[i]}, 3, attention_small,
                        "block_size");
}

static void test_windows(void **state) {
    static const int32_t windows[] = {1, 5, 7, 16, 64, 100, 1000, INT32_MAX};
    static const int32_t lengths[] = {1, 7, 8, 17, 101, 370};
    static const struct attention_chunk chunks[] = {{0, 90, 90}, {1, 200, 1}, {2, 300, 50}};
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        attention_check_scene(
            (struct attention_shape){64, 1, 3, 16, i % 2 ? KV_F16 : KV_F32, windows[i]}, 6,
            lengths);
        attention_check((struct attention_shape){64, 1, 2, 16, .window = windows[i]}, 3, chunks,
                        "window");
    }
    attention_check_scene((struct attention_shape){64, 1, 1, 32, KV_BF16, .window = 300}, 1,
                          (const int32_t[]){700});
}

/* Caps that scores hardly reach, and such as bend most of them. */
static void test_soft_caps(void **state) {
    static const int32_t lengths[] = {1, 17, 130};
    for (int32_t window = 0; window <= 100; window += 50) {
        attention_check_scene(
            (struct attention_shape){72, 2, 2, 16, KV_F32, window, .soft_cap = 30}, 3, lengths);
        attention_check_scene(
            (struct attention_shape){64, 1, 4, 16, KV_BF16, window, .soft_cap = 1}, 3, lengths);
    }
    attention_check((struct attention_shape){64, 1, 2, 16, .soft_cap = 0.5f}, 3, attention_small,
                    "soft_cap");
    attention_check((struct attention_shape){48, 1, 4, 16, .window = 40, .soft_cap = 50}, 3,
                    attention_small, "soft_cap with a window");
}

/* One head of the most that a group has, windows and a cap; in one part and in several. */
static void test_sinks(void **state) {
    static const int32_t lengths[] = {1, 17, 130, 300};
    static const struct attention_chunk decode[] = {{0, 700, 1}};
    for (int32_t window = 0; window <= 100; window += 50)
        for (enum kv_type type = KV_F32; type <= KV_BF16; type++)
            attention_check_scene(
                (struct attention_shape){64, 2, 3, 16, type, window, .has_sinks = true}, 4,
                lengths);
    attention_check((struct attention_shape){64, 1, 8, 16, .soft_cap = 5, .has_sinks = true}, 3,
                    attention_small, "sinks with a cap");
    attention_check((struct attention_shape){64, 2, 3, 16, .has_sinks = true}, 12, attention_mixed,
                    "sinks");
    attention_check((struct attention_shape){80, 2, 3, 16, .has_sinks = true}, 1, decode,
                    "sinks of a decode in parts");
}

/* So few tiles that long contexts are shared among a device's blocks of threads. */
static void test_split(void **state) {
    static const struct attention_chunk decode[] = {{0, 700, 1}}, prefill[] = {{0, 700, 20}},
                                        long_decode[] = {{0, 2200, 1}},
                                        both[] = {{0, 705, 3}, {1, 650, 40}, {2, 30, 1}};
    static const int32_t dims[] = {64, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        attention_check((struct attention_shape){dims[i], 1, 3, 16}, 1, decode,
                        "a decode in parts");
        attention_check((struct attention_shape){dims[i], 1, 5, 32}, 1, prefill,
                        "a prefill in parts");
    }
    attention_check((struct attention_shape){80, 1, 2, 16, .window = 400}, 3, both,
                    "both in parts, with a window");
    /* On a large GPU more than a warp has lanes. */
    attention_check((struct attention_shape){64, 1, 3, 64}, 1, long_decode, "35 parts");
}

/* Layers of three windows, one after the other and again: rows of `out` are theirs. */
enum { NUM_LAYERS_OF_WINDOWS = 6 };

static void run_windows(const struct attention_scene *scene, struct backend *b, int32_t length,
                        struct attention_pool *pool, float **out) {
    static const int32_t windows[NUM_LAYERS_OF_WINDOWS] = {0, 10, 0, 90, 10, 0};
    const struct attention_chunk chunks[] = {{0, length, 2}, {1, 30, 30}};
    struct attention_step step;
    attention_step_init(&step, scene, pool, 2, chunks);
    size_t n = (size_t)(step.inputs.num_tokens * scene->out_floats);
    struct attention_args args = attention_args_of(scene, pool);
    void *qkv = attention_store(scene, pool, &step);
    args.qkv = qkv, args.out = kernel_fixture_put(b, pool->dtype, NULL, n);
    for (int i = 0; i < NUM_LAYERS_OF_WINDOWS; i++) {
        args.window = windows[i];
        b->ops->paged_attention(b, &args);
        out[i] = kernel_fixture_guarded(n);
        kernel_fixture_get(b, pool->dtype, args.out, out[i], n);
    }
    kernel_fixture_free(b, args.out);
    kernel_fixture_free(b, qkv);
    attention_step_finish(&step);
}

/* Each layer and each step has its plan. */
static void test_plans(void **state) {
    const int32_t lengths[] = {150, 30};
    struct attention_scene scene;
    attention_scene_init(&scene, (struct attention_shape){16, 1, 2, 16}, 2, lengths);
    for (int i = 0; i < attention_fixture.num_backends; i++) {
        struct backend *b = attention_fixture.backends[i];
        struct attention_pool pool, oracle_pool;
        attention_pool_init(&pool, &scene, b, 1);
        attention_pool_init(&oracle_pool, &scene, attention_fixture.oracle, 1);
        attention_store_before(&scene, &pool, 1, &(struct attention_chunk){0, 149, 2});
        attention_store_before(&scene, &oracle_pool, 1, &(struct attention_chunk){0, 149, 2});
        for (int32_t length = 149; length <= 150; length++) {
            float *actual[NUM_LAYERS_OF_WINDOWS], *expected[NUM_LAYERS_OF_WINDOWS];
            run_windows(&scene, b, length, &pool, actual);
            run_windows(&scene, attention_fixture.oracle, length, &oracle_pool, expected);
            for (int w = 0; w < NUM_LAYERS_OF_WINDOWS; w++) {
                kernel_fixture_assert_close(&attention_fixture, actual[w], expected[w],
                                            (size_t)(32 * scene.out_floats),
                                            attention_tolerance_of(KV_F32), "plans");
                kernel_fixture_guarded_free(actual[w]);
                kernel_fixture_guarded_free(expected[w]);
            }
        }
        attention_pool_finish(&oracle_pool);
        attention_pool_finish(&pool);
    }
    attention_scene_finish(&scene);
}

/* The bits of no window at all. */
static void test_window_beyond_context(void **state) {
    struct attention_scene scene;
    float *without[1], *with[1];
    if (!attention_fixture.bits_equal)
        skip();
    attention_scene_init(&scene, (struct attention_shape){64, 1, 3, 16, KV_F16}, 1,
                         (const int32_t[]){300});
    for (int i = 0; i < attention_fixture.num_backends; i++) {
        attention_alloc_outputs(&scene, without);
        attention_alloc_outputs(&scene, with);
        scene.shape.window = 0;
        attention_run_whole(&scene, attention_fixture.backends[i], 1, without);
        scene.shape.window = 300;
        attention_run_whole(&scene, attention_fixture.backends[i], 2, with);
        attention_assert_same(&scene, without, with);
        attention_free_outputs(&scene, with);
        attention_free_outputs(&scene, without);
    }
    attention_scene_finish(&scene);
}

/* The rows of sequence 0, computed in a step of these chunks, have the bits they have in `whole`.
 */
static void assert_same_rows(const struct attention_scene *scene, struct backend *b, int num_chunks,
                             const struct attention_chunk *chunks, const float *whole) {
    float *out[ATTENTION_MAX_SEQS];
    size_t row = (size_t)scene->out_floats;
    attention_alloc_outputs(scene, out);
    attention_run_chunks(scene, b, 5, num_chunks, chunks, out);
    for (int i = 0; i < num_chunks; i++) {
        size_t first = (size_t)(chunks[i].length - chunks[i].num_tokens) * row;
        if (chunks[i].sequence == 0)
            assert_memory_equal(out[0] + first, whole + first,
                                (size_t)chunks[i].num_tokens * row * sizeof(float));
    }
    attention_free_outputs(scene, out);
}

/* A sequence alone in one step, in chunks of 7, token by token, and in company. */
static void check_invariance(struct backend *b, struct attention_shape shape) {
    static const int32_t lengths[] = {140, 300, 40};
    static const struct attention_chunk alone = {0, 140, 140};
    static const struct attention_chunk company[] = {{1, 300, 1}, {0, 140, 50}, {2, 40, 40}};
    struct attention_scene scene;
    float *whole[ATTENTION_MAX_SEQS];
    attention_scene_init(&scene, shape, 3, lengths);
    attention_alloc_outputs(&scene, whole);
    attention_run_chunks(&scene, b, 4, 1, &alone, whole);
    for (int32_t length = 7; length <= lengths[0]; length += 7)
        assert_same_rows(&scene, b, 1, &(struct attention_chunk){0, length, 7}, whole[0]);
    for (int32_t length = 1; length <= lengths[0]; length += length < 60 ? 13 : 1)
        if (length < 70 || length > 125)
            assert_same_rows(&scene, b, 1, &(struct attention_chunk){0, length, 1}, whole[0]);
    assert_same_rows(&scene, b, 3, company, whole[0]);
    attention_free_outputs(&scene, whole);
    attention_scene_finish(&scene);
}

static void test_batch_invariance(void **state) {
    if (!attention_fixture.bits_equal)
        skip();
    for (int i = 0; i < attention_fixture.num_backends; i++) {
        struct backend *b = attention_fixture.backends[i];
        if (!kernel_fixture_is_new_level(&attention_fixture, i))
            continue;
        check_invariance(b, (struct attention_shape){16, 1, 3, 16});
        check_invariance(b, (struct attention_shape){96, 1, 2, 64});
        check_invariance(b, (struct attention_shape){128, 1, 4, 16});
        check_invariance(b, (struct attention_shape){256, 1, 1, 32});
        check_invariance(b, (struct attention_shape){16, 1, 1, 32, .window = 37, .soft_cap = 2});
        check_invariance(b, (struct attention_shape){72, 1, 3, 16, KV_BF16});
        check_invariance(b, (struct attention_shape){64, 1, 5, 32, KV_BF16, .window = 37});
        check_invariance(b, (struct attention_shape){64, 1, 3, 16, KV_F16});
        check_invariance(b, (struct attention_shape){72, 1, 7, 32, KV_F16, .window = 90});
        check_invariance(b, (struct attention_shape){40, 1, 1, 16, KV_BF16, .window = 90});
        for (enum kv_type type = KV_INT8; type <= KV_E4M3; type++)
            if (attention_is_taken(type))
                check_invariance(b, (struct attention_shape){64, 1, 3, 16, type, .window = 90});
    }
}

/* No memory but what was allocated at start: as many tokens as there can be, then one that would
 * have its context split among the CPU's threads. */
static void test_without_memory(void **state) {
    const struct backend_config config = {
        .num_threads = 2, .limits.max_num_batched_tokens = 699, .limits.max_num_seqs = 1};
    struct error err = {0};
    struct attention_scene scene;
    struct attention_pool pool;
    float *expected[1], *out[1];
    int32_t length = 700;
    if (attention_fixture.dtype != DTYPE_F32)
        skip();
    struct backend *b = backend_open("cpu", &config, &err);
    assert_non_null(b);
    attention_scene_init(&scene, (struct attention_shape){64, 1, 3, 32, KV_F16}, 1, &length);
    attention_alloc_outputs(&scene, expected);
    attention_alloc_outputs(&scene, out);
    attention_run_whole(&scene, attention_fixture.oracle, 1, expected);
    attention_pool_init(&pool, &scene, b, 6);
    attention_num_refused = 0;
    attention_memory_is_short = true;
    attention_run_step(&scene, &pool, 1, &(struct attention_chunk){0, 699, 699}, out);
    assert_int_equal(attention_num_refused, 0);
    attention_run_step(&scene, &pool, 1, &(struct attention_chunk){0, 700, 1}, out);
    attention_memory_is_short = false;
    assert_int_equal(attention_num_refused, 1);
    attention_assert_near_oracle(b, KV_F16, out[0], expected[0],
                                 (size_t)length * (size_t)scene.out_floats, "without memory");
    attention_pool_finish(&pool);
    attention_free_outputs(&scene, out);
    attention_free_outputs(&scene, expected);
    attention_scene_finish(&scene);
    backend_close(b);
}

/* A decode step reads each token of each KV head once, however many query heads share it. */
static void check_cache_read(struct attention_shape shape, int num_seqs) {
    struct backend *b = attention_fixture.backends[0];
    struct attention_scene scene;
    struct attention_pool pool;
    struct attention_chunk chunks[ATTENTION_MAX_SEQS] = {0};
    struct attention_step step;
    int32_t lengths[ATTENTION_MAX_SEQS];
    size_t num_tokens = 0;
    for (int s = 0; s < num_seqs; s++) {
        lengths[s] = 70 + 67 * s % 130;
        num_tokens += (size_t)lengths[s];
        chunks[s] = (struct attention_chunk){s, lengths[s], 1};
    }
    attention_scene_init(&scene, shape, num_seqs, lengths);
    attention_pool_init(&pool, &scene, b, 1);
    attention_store_before(&scene, &pool, num_seqs, chunks);
    attention_step_init(&step, &scene, &pool, num_seqs, chunks);
    struct attention_args args = attention_args_of(&scene, &pool);
    args.qkv = attention_store(&scene, &pool, &step);
    args.out = kernel_fixture_put(b, pool.dtype, NULL,
                                  (size_t)step.inputs.num_tokens * (size_t)scene.out_floats);
    kernel_fixture_count_reads(b);
    b->ops->paged_attention(b, &args);
    kernel_fixture_synchronize(b);
    const struct kv_layout *l = &pool.cache.layout;
    size_t needed = 2 * (size_t)l->num_kv_heads * num_tokens *
                    (kv_row_bytes(l) + (kv_type_has_scales(l->type) ? sizeof(float) : 0));
    uint64_t num_read = kernel_fixture_bytes_read(b, "attention_kernel", pool.cache.buffer.data,
                                                  pool.cache.buffer.bytes);
    if (num_read < needed || (double)num_read > 1.03 * (double)needed)
        fail_msg("%d sequences read %llu bytes of the cache instead of %zu", num_seqs,
                 (unsigned long long)num_read, needed);
    kernel_fixture_free(b, args.out);
    kernel_fixture_free(b, (void *)(uintptr_t)args.qkv);
    attention_step_finish(&step);
    attention_pool_finish(&pool);
    attention_scene_finish(&scene);
}

static void test_cache_is_read_once(void **state) {
    if (!attention_fixture.is_simulated)
        return; /* nothing counts there */
    for (enum kv_type type = KV_F16; type < NUM_KV_TYPES; type++)
        if (type == kv_type_of_dtype(attention_fixture.dtype) ||
            (kv_type_has_scales(type) && attention_is_taken(type))) {
            check_cache_read((struct attention_shape){256, 1, 2, 16, type}, 1);
            check_cache_read((struct attention_shape){96, 2, 4, 16, type}, 1);
            check_cache_read((struct attention_shape){128, 1, 3, 32, type}, 8);
            check_cache_read((struct attention_shape){64, 1, 8, 16, type}, 24);
        }
}

/* What was compared before was cut into ranges and merged on this device, whatever its size. */
static void test_ranges_were_split(void **state) {
    uint64_t num_split = attention_fixture.backends[0]->paths.split_ranges;
    assert_true(attention_is_cut() ? num_split > 0 : num_split == 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_long_decode_alone),
        cmocka_unit_test(test_head_dims),
        cmocka_unit_test(test_heads_with_groups_and_blocks),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_block_sizes),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_soft_caps),
        cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_window_beyond_context),
        cmocka_unit_test(test_batch_invariance),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_cache_is_read_once),
        cmocka_unit_test(test_ranges_were_split),
    };
    attention_fixture_open(argc, argv, 0, 0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&attention_fixture);
    return failed;
}
