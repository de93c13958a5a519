/* store_latent, and paged_attention over a latent layout, against the oracle: like check_attention.
 * A row's result has the same bits in any batch, on a device too. */
#include "tests/kernels/attention_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Sizes of DeepSeek's models, and such as leave parts of vectors; 128: more than a tile's rows. */
static void test_sizes(void **state) {
    static const struct {
        int32_t dim, latent_dim, group, lengths[3];
    } shapes[] = {{576, 512, 16, {5, 33, 1}},
                  {576, 512, 128, {2, 18, 1}},
                  {64, 48, 3, {17, 270, 3}},
                  {40, 24, 5, {17, 70, 3}},
                  {24, 16, 1, {17, 270, 3}}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct attention_shape shape = {shapes[i].dim, 1, shapes[i].group, i % 2 ? 32 : 16};
        shape.latent_dim = shapes[i].latent_dim;
        for (enum kv_type type = 0; type < NUM_KV_TYPES; type++) {
            if (shape.group == 128 && type != KV_BF16)
                continue; /* takes its time */
            shape.type = type;
            attention_check_scene(shape, 3, shapes[i].lengths);
        }
        shape.type = KV_F32;
        attention_check(shape, 3, attention_small, "sizes");
    }
}

static void test_windows_caps_and_sinks(void **state) {
    static const int32_t lengths[] = {17, 130, 3};
    for (int i = 0; i < 4; i++) {
        struct attention_shape shape = {64, 1, 4, 16, i % 2 ? KV_F16 : KV_BF16};
        shape.latent_dim = 48;
        shape.window = i == 0 ? 7 : i == 3 ? 70 : 0;
        shape.soft_cap = i == 1 ? 1 : 0;
        shape.has_sinks = i >= 2;
        attention_check_scene(shape, 3, lengths);
        attention_check(shape, 3, attention_small, "a window, a cap, sinks");
    }
}

/* Each row alone, on a device: the same bits as together. */
static void test_batch_invariance(void **state) {
    static const struct attention_chunk together[] = {{0, 40, 40}, {1, 33, 1}, {2, 70, 5}},
                                        apart[] = {{0, 40, 40}}, last[] = {{2, 70, 5}};
    static const int32_t lengths[] = {40, 33, 70};
    struct attention_shape shape = {40, 1, 6, 16, .latent_dim = 24};
    struct attention_scene scene;
    float *all[ATTENTION_MAX_SEQS], *alone[ATTENTION_MAX_SEQS];
    attention_scene_init(&scene, shape, 3, lengths);
    for (int i = 0; i < attention_fixture.num_backends; i++) {
        struct backend *b = attention_fixture.backends[i];
        attention_alloc_outputs(&scene, all);
        attention_alloc_outputs(&scene, alone);
        attention_run_chunks(&scene, b, 1, 3, together, all);
        attention_run_chunks(&scene, b, 2, 1, apart, alone);
        attention_run_chunks(&scene, b, 3, 1, last, alone);
        assert_memory_equal(alone[0], all[0], 40 * (size_t)scene.out_floats * sizeof(float));
        assert_memory_equal(alone[2] + 65 * (size_t)scene.out_floats,
                            all[2] + 65 * (size_t)scene.out_floats,
                            5 * (size_t)scene.out_floats * sizeof(float));
        attention_free_outputs(&scene, all);
        attention_free_outputs(&scene, alone);
    }
    attention_scene_finish(&scene);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_windows_caps_and_sinks),
        cmocka_unit_test(test_batch_invariance),
    };
    attention_fixture_open(argc, argv, 0, KV_MAX_LATENT_ROW - 64);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&attention_fixture);
    return failed;
}
