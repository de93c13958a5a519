#include "models/weights/model_shard.h"

#include "tests/unit/models/config/model_image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

enum { MAX_RANKS = 8 };

/* Every part of the model belongs to one rank, but for KV heads that several have; a rank's query
 * heads read its KV heads, each as many of them. */
static void check_cut(const struct model *model, enum dtype quantization, int32_t num_ranks,
                      int32_t head_block, int32_t ffn_block) {
    const struct model_config *config = &model->config;
    struct model_shard last = {0};
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        struct model_shard s;
        struct error err = {0};
        if (model_shard_init(model, quantization, rank, num_ranks, &s, &err) != 0)
            fail_msg("rank %d of %d: %s", rank, num_ranks, err.message);
        assert_int_equal(s.rank, rank);
        assert_int_equal(s.num_ranks, num_ranks);
        assert_true(s.num_heads > 0 && s.num_kv_heads > 0 && s.intermediate_size > 0 &&
                    s.vocab_size > 0);
        assert_int_equal(s.first_head, last.first_head + last.num_heads);
        assert_int_equal(s.first_intermediate, last.first_intermediate + last.intermediate_size);
        assert_int_equal(s.first_vocab, last.first_vocab + last.vocab_size);
        int32_t group = config->num_heads / config->num_kv_heads;
        assert_int_equal(s.num_heads % s.num_kv_heads, 0);
        for (int32_t h = 0; h < s.num_heads; h++)
            assert_int_equal((s.first_head + h) / group,
                             s.first_kv_head + h / (s.num_heads / s.num_kv_heads));
        assert_int_equal(s.first_head * config->head_dim % head_block, 0);
        assert_int_equal(s.first_intermediate % ffn_block, 0);
        last = s;
    }
    assert_int_equal(last.first_head + last.num_heads, config->num_heads);
    assert_int_equal(last.first_kv_head + last.num_kv_heads, config->num_kv_heads);
    assert_int_equal(last.first_intermediate + last.intermediate_size, config->intermediate_size);
    assert_int_equal(last.first_vocab + last.vocab_size, config->vocab_size);
}

static void check_refused(const struct model *model, enum dtype quantization, int32_t num_ranks,
                          const char *piece) {
    struct error err = {0};
    struct model_shard shard;
    assert_int_equal(model_shard_init(model, quantization, 0, num_ranks, &shard, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    if (strstr(err.message, "tensor-parallel-size") == NULL || strstr(err.message, piece) == NULL)
        fail_msg("'%s' without '%s'", err.message, piece);
}

static void open_image(struct model_image *image, const struct model_config *config,
                       enum dtype dtype) {
    model_image_init(image, config, (struct image_form){.dtype = dtype});
    model_image_open(image);
}

static void test_heads_of_every_kind(void **state) {
    static const struct {
        int32_t num_heads, num_kv_heads, most_ranks;
    } cases[] = {{6, 2, 6}, {9, 3, 8}, {8, 8, 8}, {7, 1, 7}, {4, 4, 4}, {32, 8, 8}, {6, 3, 6}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model_config config = model_image_config();
        struct model_image image;
        config.num_heads = cases[i].num_heads;
        config.num_kv_heads = cases[i].num_kv_heads;
        open_image(&image, &config, DTYPE_F32);
        for (int32_t n = 1; n <= cases[i].most_ranks; n++)
            check_cut(&image.model, DTYPE_NONE, n, 1, 1);
        if (cases[i].most_ranks < MAX_RANKS) {
            char last[32];
            snprintf(last, sizeof(last), " or %d", cases[i].most_ranks);
            check_refused(&image.model, DTYPE_NONE, cases[i].most_ranks + 1, last);
        }
        model_image_finish(&image);
    }
}

/* Q8_0 has blocks of 32: the FFN of 96 makes three, two heads of 16 one. */
static void test_blocks_stay_whole(void **state) {
    struct model_config config = model_image_config();
    struct model_image image;
    open_image(&image, &config, DTYPE_Q8_0);
    check_cut(&image.model, DTYPE_NONE, 1, 1, 1);
    check_refused(&image.model, DTYPE_NONE, 2, "6 query heads on 2 KV heads");
    model_image_finish(&image);
    config.num_heads = 8, config.num_kv_heads = 4;
    open_image(&image, &config, DTYPE_Q8_0);
    check_cut(&image.model, DTYPE_NONE, 2, 32, 32);
    check_cut(&image.model, DTYPE_NONE, 3, 32, 32);
    check_refused(&image.model, DTYPE_NONE, 4, "an FFN of 96, in blocks of 32 and 32");
    model_image_finish(&image);
    open_image(&image, &config, DTYPE_F32);
    check_cut(&image.model, DTYPE_NONE, 4, 1, 1);
    check_cut(&image.model, DTYPE_Q8_0, 3, 32, 32);
    check_refused(&image.model, DTYPE_Q8_0, 4, "must be 1, 2 or 3");
    model_image_finish(&image);
}

/* One KV head in every second rank twice as often as in the others would weigh more in the norm. */
static void test_a_norm_over_all_heads(void **state) {
    struct model_config config = model_image_config();
    struct model_image image;
    config.qk_norm = QK_NORM_FULL;
    open_image(&image, &config, DTYPE_F32);
    check_cut(&image.model, DTYPE_NONE, 2, 1, 1);
    check_refused(&image.model, DTYPE_NONE, 3, "must be 1, 2, 4 or 6");
    check_cut(&image.model, DTYPE_NONE, 4, 1, 1);
    image.model.config.norm = NORM_LAYER;
    check_refused(&image.model, DTYPE_NONE, 2, "must be 1");
    model_image_finish(&image);
}

static void test_shares_are_even(void **state) {
    struct model_config config = model_image_config();
    struct model_image image;
    struct model_shard shard;
    config.num_heads = 32, config.num_kv_heads = 8, config.intermediate_size = 11008;
    config.vocab_size = 4001;
    model_image_init(&image, &config, (struct image_form){.dtype = DTYPE_F32});
    model_image_open(&image);
    for (int32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(model_shard_init(&image.model, DTYPE_NONE, rank, 2, &shard, NULL), 0);
        assert_int_equal(shard.num_heads, 16);
        assert_int_equal(shard.num_kv_heads, 4);
        assert_int_equal(shard.intermediate_size, 5504);
        assert_in_range(shard.vocab_size, 1985, 2016);
        assert_int_equal(shard.first_vocab % 16, 0);
    }
    model_image_finish(&image);
}

/* SmolLM2's sizes: two sums a layer and one of the embedding, of 4 bytes to and fro. */
static struct model_shard shard_of(int32_t rank, int32_t num_ranks) {
    return (struct model_shard){.rank = rank,
                                .num_ranks = num_ranks,
                                .vocab_size = 49152 / num_ranks,
                                .num_layers = 30,
                                .has_embedding = true,
                                .has_head = true};
}

static void test_traffic(void **state) {
    struct model_config config = {.num_layers = 30, .hidden_size = 576};
    const struct model_shard one = shard_of(0, 1), first = shard_of(0, 2), second = shard_of(1, 2);
    assert_int_equal(model_shard_token_traffic(&one, &config), 0);
    assert_int_equal(model_shard_row_traffic(&one), 0);
    assert_int_equal(model_shard_token_traffic(&first, &config), 61 * 576 * 4);
    assert_int_equal(model_shard_token_traffic(&second, &config), 61 * 576 * 4);
    assert_int_equal(model_shard_row_traffic(&first), 84);
    assert_int_equal(model_shard_row_traffic(&second), 72);
    const struct model_shard of_four = shard_of(0, 4);
    config.qk_norm = QK_NORM_FULL;
    assert_int_equal(model_shard_token_traffic(&of_four, &config), 61 * 576 * 6 + 30 * 2 * 3 * 8);
    assert_int_equal(model_shard_row_traffic(&of_four), 252);
}

/* The first stage has the embedding's sum and hands each hidden state on; the last one samples. */
static void test_traffic_of_stages(void **state) {
    const struct model_config config = {.num_layers = 30, .hidden_size = 576};
    struct model_shard first = shard_of(1, 2), last = shard_of(1, 2);
    first.num_layers = 19, first.has_head = false;
    last.num_layers = 11, last.has_embedding = false;
    assert_int_equal(model_shard_token_traffic(&first, &config), 39 * 576 * 4 + 576 * 4);
    assert_int_equal(model_shard_row_traffic(&first), 0);
    assert_int_equal(model_shard_token_traffic(&last, &config), 22 * 576 * 4);
    assert_int_equal(model_shard_row_traffic(&last), 72);
    last.rank = 0;
    assert_int_equal(model_shard_row_traffic(&last), 80);
}

/* --- Stages --- */

static void check_stages(const struct model *model, int32_t num_ranks, int32_t num_stages) {
    struct model_shard last = {0};
    for (int32_t number = 0; number < num_ranks * num_stages; number++) {
        struct model_shard s, flat;
        int32_t rank = number % num_ranks, stage = number / num_ranks;
        assert_int_equal(
            model_shard_init_stage(model, DTYPE_NONE, number, num_ranks, num_stages, &s, NULL), 0);
        assert_int_equal(model_shard_init(model, DTYPE_NONE, rank, num_ranks, &flat, NULL), 0);
        assert_int_equal(s.rank, rank);
        assert_int_equal(s.first_head, flat.first_head);
        assert_int_equal(s.vocab_size, flat.vocab_size);
        assert_true(s.num_layers > 0);
        assert_int_equal(s.first_layer,
                         rank == 0 ? last.first_layer + last.num_layers : last.first_layer);
        assert_int_equal(s.has_embedding, stage == 0);
        assert_int_equal(s.has_head, stage == num_stages - 1);
        last = s;
    }
    assert_int_equal(last.first_layer + last.num_layers, model->config.num_layers);
}

static void test_stages_have_all_layers(void **state) {
    struct model_config config = model_image_config();
    struct model_image image;
    for (config.num_layers = 1; config.num_layers <= 9; config.num_layers++) {
        open_image(&image, &config, DTYPE_F32);
        for (int32_t n = 1; n <= config.num_layers && n <= MAX_RANKS; n++)
            check_stages(&image.model, 1, n);
        for (int32_t n = 1; n <= config.num_layers && n <= MAX_RANKS / 2; n++)
            check_stages(&image.model, 2, n);
        model_image_finish(&image);
    }
}

/* A head of as many weights as 8 layers of 30: the last stage has as many layers fewer. */
static void test_the_head_counts_as_layers(void **state) {
    struct model model = {.config = {.num_layers = 30,
                                     .hidden_size = 576,
                                     .num_heads = 9,
                                     .num_kv_heads = 3,
                                     .head_dim = 64,
                                     .intermediate_size = 1536,
                                     .vocab_size = 49152}};
    struct model_shard first, last;
    assert_int_equal(model_shard_init_stage(&model, DTYPE_NONE, 0, 1, 2, &first, NULL), 0);
    assert_int_equal(model_shard_init_stage(&model, DTYPE_NONE, 1, 1, 2, &last, NULL), 0);
    assert_int_equal(first.num_layers, 19);
    assert_int_equal(last.num_layers, 11);
}

static void assert_stages_refused(const struct model *model, int32_t num_ranks, int32_t num_stages,
                                  const char *range) {
    struct error err = {0};
    struct model_shard shard;
    assert_int_equal(
        model_shard_init_stage(model, DTYPE_NONE, 0, num_ranks, num_stages, &shard, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    if (strstr(err.message, "pipeline-parallel-size") == NULL || strstr(err.message, range) == NULL)
        fail_msg("'%s' without '%s'", err.message, range);
}

static void test_stages_refused(void **state) {
    struct model_config config = model_image_config();
    struct model_image image;
    config.num_layers = 6;
    open_image(&image, &config, DTYPE_F32);
    assert_stages_refused(&image.model, 1, 7, "must be 1 to 6");
    assert_stages_refused(&image.model, 2, 5, "must be 1 to 4");
    model_image_finish(&image);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_of_every_kind),
        cmocka_unit_test(test_blocks_stay_whole),
        cmocka_unit_test(test_a_norm_over_all_heads),
        cmocka_unit_test(test_shares_are_even),
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_traffic_of_stages),
        cmocka_unit_test(test_stages_have_all_layers),
        cmocka_unit_test(test_the_head_counts_as_layers),
        cmocka_unit_test(test_stages_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
