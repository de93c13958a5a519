/* Attention over caches of quantised types, and of values that are no numbers. */
#include "tests/kernels/attention_fixture.h"

#include "kernels/kv_type.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* With windows, with a cap, of few query heads and of many, in one part and in several. */
static void test_quantised(void **state) {
    static const int32_t lengths[] = {1, 15, 17, 31, 255, 257, 370}, windows[] = {0, 1, 16, 100};
    static const struct attention_chunk decode[] = {{0, 700, 1}};
    for (enum kv_type type = KV_INT8; type <= KV_E4M3; type++) {
        if (!attention_is_taken(type))
            continue;
        for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++)
            attention_check_scene((struct attention_shape){64, 2, 3, 16, type, windows[i]}, 7,
                                  lengths);
        for (int32_t group = 1; group <= 8; group++)
            attention_check_scene(
                (struct attention_shape){40, 1, group, 64, type, .soft_cap = group % 2}, 2,
                (const int32_t[]){33, 130});
        attention_check((struct attention_shape){64, 2, 3, 16, type}, 12, attention_mixed,
                        "quantised");
        attention_check((struct attention_shape){80, 1, 2, 32, type, .window = 40, .soft_cap = 50},
                        3, attention_small, "quantised with a window and a cap");
        attention_check((struct attention_shape){96, 1, 5, 64, type}, 3, attention_small,
                        "quantised");
        attention_check((struct attention_shape){64, 1, 6, 16, type, 40, .has_sinks = true}, 12,
                        attention_mixed, "quantised with a window and sinks");
        attention_check((struct attention_shape){128, 1, 4, 16, type}, 1, decode,
                        "quantised in parts");
        attention_check((struct attention_shape){256, 1, 1, 16, type}, 1, decode,
                        "quantised in parts");
    }
}

/* Keys that lack a bias: of one pair and of as many as there can be, of heads that rotate in part,
 * with windows and with a cap, in one part and in several. */
static void test_key_bias(void **state) {
    static const int32_t lengths[] = {1, 17, 31, 255, 370}, windows[] = {0, 16, 100};
    static const struct attention_chunk decode[] = {{0, 700, 1}};
    for (enum kv_type type = KV_INT8; type <= KV_E4M3; type++) {
        if (!attention_is_taken(type))
            continue;
        for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++)
            attention_check_scene((struct attention_shape){64, 2, 3, 16, type, windows[i],
                                                           .key_pairs = KEY_BIAS_MAX_PAIRS},
                                  5, lengths);
        for (int32_t group = 1; group <= 8; group++)
            attention_check_scene((struct attention_shape){40, 1, group, 64, type,
                                                           .soft_cap = group % 2,
                                                           .key_pairs = group},
                                  2, (const int32_t[]){33, 130});
        attention_check((struct attention_shape){64, 2, 3, 16, type, .key_pairs = 5}, 12,
                        attention_mixed, "keys without their bias");
        attention_check(
            (struct attention_shape){128, 1, 4, 16, type, .window = 400, .key_pairs = 16}, 1,
            decode, "keys without their bias, in parts");
    }
}

/* Rows of an int8 cache of which nothing is lost: K's and V's codes are the numbers, and where a
 * token's score is not the largest, it has a fifth of its weight or none. With V's scales, 1 and
 * 1/3, the weights are 255, 85, 51, 17 and 0 of 255. */
static void fill_exact(const struct attention_scene *scene) {
    const struct attention_shape *shape = &scene->shape;
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
    struct attention_scene scene;
    float *expected[1], *actual[1];
    if (attention_fixture.dtype != DTYPE_F32)
        skip();
    attention_scene_init(&scene, (struct attention_shape){40, 2, 3, 16, KV_INT8}, 1, &length);
    fill_exact(&scene);
    attention_alloc_outputs(&scene, expected);
    attention_run_whole(&scene, attention_fixture.oracle, 1, expected);
    for (int b = 0; b < attention_fixture.num_backends; b++) {
        attention_alloc_outputs(&scene, actual);
        attention_run_whole(&scene, attention_fixture.backends[b], 2, actual);
        for (int32_t t = 0; t < length; t++)
            kernel_fixture_assert_close_by(actual[0] + t * scene.out_floats,
                                           expected[0] + t * scene.out_floats,
                                           (size_t)scene.out_floats, 3e-4, "int8, not rounded");
        attention_free_outputs(&scene, actual);
    }
    attention_free_outputs(&scene, expected);
    attention_scene_finish(&scene);
}

/* K and V of token 3 are zeros; V of token 80 has an infinity in head 0, that of token 100 a NaN in
 * head 1. */
static void spoil(const struct attention_scene *scene) {
    const struct attention_shape *shape = &scene->shape;
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
    return attention_fixture.dtype != DTYPE_F32 && token >= 64;
}

static void test_quantised_not_finite(void **state) {
    static const int32_t length = 140;
    for (enum kv_type type = KV_INT8; type <= KV_E4M3; type++) {
        struct attention_scene scene;
        float *expected[1], *actual[1];
        if (!attention_is_taken(type))
            continue;
        attention_scene_init(&scene, (struct attention_shape){24, 2, 2, 16, type}, 1, &length);
        spoil(&scene);
        size_t n = (size_t)(length * scene.out_floats);
        attention_alloc_outputs(&scene, expected);
        attention_run_whole(&scene, attention_fixture.oracle, 1, expected);
        for (size_t i = 0; i < n; i++) {
            size_t token = i / (size_t)scene.out_floats, head = i / 48 % 2; /* 2 query heads each */
            assert_int_equal(isnan(expected[0][i]) != 0, token >= (head == 0 ? 80 : 100));
        }
        for (int b = 0; b < attention_fixture.num_backends; b++) {
            attention_alloc_outputs(&scene, actual);
            attention_run_whole(&scene, attention_fixture.backends[b], 2, actual);
            float *numbers = kernel_fixture_memory(n * sizeof(float));
            for (size_t i = 0; i < n; i++) {
                bool is_number = isnan(actual[0][i]) == 0;
                if (isnan(expected[0][i]) || !may_be_no_number(i / (size_t)scene.out_floats))
                    assert_int_equal(is_number, isnan(expected[0][i]) == 0);
                numbers[i] = is_number ? expected[0][i] : 0;
                actual[0][i] = is_number ? actual[0][i] : 0;
            }
            attention_assert_near_oracle(attention_fixture.backends[b], type, actual[0], numbers, n,
                                         "quantised, not finite");
            free(numbers);
            attention_free_outputs(&scene, actual);
        }
        attention_free_outputs(&scene, expected);
        attention_scene_finish(&scene);
    }
}

/* V of token 81 is infinite and that of token 100 NaN: whoever sees one has no number, and nobody
 * else, though he sees the token before the one or after the other. */
static void test_not_finite(void **state) {
    static const int32_t length = 140;
    if (attention_fixture.dtype != DTYPE_F32)
        skip();
    for (enum kv_type type = KV_F32; type <= KV_BF16; type++) {
        struct attention_scene scene;
        float *actual[1];
        attention_scene_init(&scene, (struct attention_shape){24, 1, 2, 16, type, .window = 25}, 1,
                             &length);
        size_t row = (size_t)scene.row_floats, v = row - 24;
        for (size_t i = 0; i < 24; i++) {
            scene.qkv[0][81 * row + v + i] = INFINITY;
            scene.qkv[0][100 * row + v + i] = NAN;
        }
        for (int b = 0; b < attention_fixture.num_backends; b++) {
            attention_alloc_outputs(&scene, actual);
            attention_run_whole(&scene, attention_fixture.backends[b], 2, actual);
            for (size_t i = 0; i < (size_t)(length * scene.out_floats); i++) {
                size_t token = i / (size_t)scene.out_floats;
                assert_int_equal(isfinite(actual[0][i]) == 0, token >= 81 && token < 100 + 25);
            }
            attention_free_outputs(&scene, actual);
        }
        attention_scene_finish(&scene);
    }
}

/* What was compared before was cut into ranges and merged on this device, whatever its size. */
static void test_ranges_were_split(void **state) {
    uint64_t num_split = attention_fixture.backends[0]->paths.split_ranges;
    assert_true(attention_is_cut() ? num_split > 0 : num_split == 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_key_bias),
        cmocka_unit_test(test_int8_without_rounding),
        cmocka_unit_test(test_quantised_not_finite),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_ranges_were_split),
    };
    attention_fixture_open(argc, argv, 0, 0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&attention_fixture);
    return failed;
}
