/* How layers are divided into groups, by the layouts of models that exist. */
#include "models/kv_groups.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#define WINDOW 512

/* Every period-th layer sees everything; 0: all, 1: none. */
static struct model_config *make_config(int32_t num_layers, int32_t period) {
    struct model_config *config = calloc(1, sizeof(*config));
    assert_non_null(config);
    config->num_layers = num_layers;
    for (int32_t i = 0; i < num_layers; i++)
        config->layers[i].window =
            period == 0 || (period > 1 && (i + 1) % period == 0) ? 0 : WINDOW;
    return config;
}

static void test_groups_of_models(void **state) {
    static const struct {
        int32_t num_layers, period, max_model_len;
        int32_t num_groups, num_full, num_places, window;
    } models[] = {
        {18, 6, 32768, 6, 1, 3, WINDOW},   /* Gemma 3 270M */
        {26, 6, 32768, 7, 1, 4, WINDOW},   /* 1B: two places are empty */
        {62, 6, 131072, 7, 1, 10, WINDOW}, /* 27B: eight */
        {26, 2, 8192, 2, 1, 13, WINDOW},   /* Gemma 2 */
        {24, 2, 0, 2, 1, 12, WINDOW},      /* gpt-oss, the length is not known */
        {48, 4, 0, 4, 1, 12, WINDOW},      /* Llama 4 */
        {18, 6, WINDOW, 1, 0, 18, 0},      /* no sequence leaves the window */
        {32, 0, 8192, 1, 0, 32, 0},        {32, 1, 8192, 1, 0, 32, WINDOW},
    };
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct model_config *config = make_config(models[i].num_layers, models[i].period);
        struct model_shard shard = {.num_layers = config->num_layers};
        struct serving_limits limits = {.max_model_len = models[i].max_model_len};
        kv_groups_choose(config, &limits);
        assert_int_equal(limits.num_groups, models[i].num_groups);
        assert_int_equal(limits.num_full_groups, models[i].num_full);
        assert_int_equal(limits.window, models[i].window);
        assert_int_equal(kv_groups_layers(config, &shard, &limits), models[i].num_places);
        free(config);
    }
}

/* One layer with a window among many is not worth a group that is as large as theirs. */
static void test_saves_nothing(void **state) {
    struct model_config *config = make_config(24, 0);
    struct serving_limits limits = {.max_model_len = 8192};
    config->layers[5].window = WINDOW;
    kv_groups_choose(config, &limits);
    assert_int_equal(limits.num_groups, 1);
    assert_int_equal(limits.window, 0);
    free(config);
}

/* Each place has one layer at most, in a group of its kind, on every stage. */
static void test_places(void **state) {
    struct model_config *config = make_config(26, 6);
    struct serving_limits limits = {.max_model_len = 32768};
    kv_groups_choose(config, &limits);
    for (int32_t first = 0; first < 26; first += 9) {
        bool is_taken[KV_GROUPS_MOST][26] = {0};
        struct model_shard shard = {.first_layer = first,
                                    .num_layers = first + 9 < 26 ? 9 : 26 - first};
        int32_t num_places = kv_groups_layers(config, &shard, &limits);
        for (int32_t i = first; i < first + shard.num_layers; i++) {
            const struct kv_place place = kv_groups_place(config, &shard, &limits, i);
            bool is_windowed = config->layers[i].window > 0;
            assert_int_equal(place.group >= limits.num_full_groups, is_windowed);
            assert_true(place.group < limits.num_groups && place.layer < num_places);
            assert_false(is_taken[place.group][place.layer]);
            is_taken[place.group][place.layer] = true;
        }
    }
    free(config);
}

/* Blocks of a sequence, and tokens of blocks, of one group that sees all and five that do not. */
static void test_blocks_and_tokens(void **state) {
    const struct serving_limits limits = {.block_size = 16,
                                          .max_num_batched_tokens = 512,
                                          .window = WINDOW,
                                          .num_groups = 6,
                                          .num_full_groups = 1};
    const struct serving_limits one = {.block_size = 16, .window = WINDOW};
    assert_int_equal(serving_limits_blocks_for(&limits, 100, 1), 6 * 7);
    assert_int_equal(serving_limits_blocks_for(&limits, 32768, 1), 2048 + 5 * 34);
    assert_int_equal(serving_limits_blocks_for(&limits, 32768, 512), 2048 + 5 * 66);
    assert_int_equal(serving_limits_blocks_for(&one, 32768, 1), 2048);
    assert_int_equal(serving_limits_tokens_in(&limits, 2048 + 5 * 66), 32768);
    assert_int_equal(serving_limits_tokens_in(&limits, 6 * 7), 7 * 16);
    assert_int_equal(serving_limits_tokens_in(&one, 2048), 32768);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_of_models),
        cmocka_unit_test(test_saves_nothing),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_blocks_and_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
