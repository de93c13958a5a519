/* test_model FOLDER: FOLDER holds the small models of tests/golden. */
#include "models/config/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static struct model *open_model(const char *folder, const char *name) {
    char path[4096];
    struct model *model = NULL;
    struct error err = {0};
    snprintf(path, sizeof(path), "%s/%s.gguf", folder, name);
    if (model_open(path, &model, &err) != 0)
        fail_msg("%s", err.message);
    return model;
}

static void test_opens(void **state) {
    struct model *model = open_model(*state, "wide-f16");
    assert_int_equal(model->config.num_heads, 3);
    assert_int_equal(model->config.head_dim, 64);
    assert_false(model->config.tied_embeddings);
    model_close(model);
    model_close(NULL);
}

static void test_refuses(void **state) {
    struct model *model = NULL;
    struct error err = {0};
    assert_int_equal(model_open(*state, &model, &err), -1);
    assert_null(model);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_non_null(strstr(err.message, "is a folder"));
}

static void test_dtypes(void **state) {
    static const struct {
        const char *name;
        enum dtype main;
        enum kv_type kv;
    } models[] = {
        {"tiny-f32", DTYPE_F32, KV_F32},    {"tiny-f16", DTYPE_F16, KV_F16},
        {"tiny-bf16", DTYPE_BF16, KV_BF16}, {"tiny-q4_1", DTYPE_Q4_1, KV_F16},
        {"tiny-q8_0", DTYPE_Q8_0, KV_F16},
    };
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct model *model = open_model(*state, models[i].name);
        assert_int_equal(model_main_dtype(model), models[i].main);
        assert_int_equal(model_default_kv_type(model), models[i].kv);
        assert_int_equal(model_default_activation_dtype(model),
                         models[i].main == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16);
        model->config.overflows_f16 = true;
        assert_int_equal(model_default_activation_dtype(model), DTYPE_BF16);
        model_close(model);
    }
}

static char *print_model(const struct model *model) {
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    assert_non_null(stream);
    model_print(model, stream);
    assert_int_equal(fclose(stream), 0);
    return text;
}

static void test_window(void **state) {
    struct model_config config = {.num_layers = 3};
    config.layers[0].window = 8;
    config.layers[1].window = 24;
    assert_int_equal(model_window(&config), 0);
    config.layers[2].window = 16;
    assert_int_equal(model_window(&config), 24);
    config.layers[0].window = 0;
    assert_int_equal(model_window(&config), 0);
}

static void assert_prints(const struct model *model, const char *line) {
    char *text = print_model(model);
    if (strstr(text, line) == NULL)
        fail_msg("expected '%s' in '%s'", line, text);
    free(text);
}

static void test_print_experts(void **state) {
    struct model *model = open_model(*state, "tiny-q4_1");
    struct model_config *config = &model->config;
    config->moe = (struct moe_config){.num_experts = 64, .num_chosen = 8, .expert_size = 1024};
    config->moe.num_groups = 1;
    config->moe.scale = 1.0F;
    config->layers[0].is_sparse = config->layers[1].is_sparse = true;
    assert_prints(model, "experts                 64, 8 per token, inner 1024\n"
                         "routing                 softmax\n");
    config->moe = (struct moe_config){.num_experts = 64,
                                      .num_chosen = 8,
                                      .expert_size = 1024,
                                      .shared_size = 2048,
                                      .shared_gate = true,
                                      .scoring = ROUTE_SIGMOID,
                                      .selection_bias = true,
                                      .renormalise = true,
                                      .num_groups = 8,
                                      .num_chosen_groups = 4,
                                      .scale = 2.5F};
    config->layers[0].is_sparse = false;
    assert_prints(
        model, "experts                 64, 8 per token, inner 1024, shared 2048 with a gate, in "
               "1 of 2 layers\n"
               "routing                 sigmoid, a bias for the choice, weights sum to 1, 4 of 8 "
               "groups, times 2.5\n");
    config->head_bias = config->attention_sinks = config->norm_bias = true;
    config->norm = NORM_LAYER;
    config->activation = ACTIVATION_CLAMPED_SWIGLU;
    assert_prints(model, "output head             the embedding, with a bias\n");
    assert_prints(model, "attention sinks         one score per head\n");
    assert_prints(model, "norm                    LayerNorm with biases\n");
    assert_prints(model, "activation              clamped SwiGLU\n");
    model_close(model);
}

static void test_print(void **state) {
    static const char *const lines[] = {
        "format                  GGUF v3\n",
        "name                    quire test tiny\n",
        "architecture            llama\n",
        "layers                  2\n",
        "attention heads         4 x 16, 2 for keys and values\n",
        "output head             the embedding\n",
        "context length          256 tokens\n",
        "tensors                 20\n",
        "  f32   x 5             1.2 KiB\n",
        "vocabulary              320 tokens\n",
        "KV per token, f32       512 B\nKV per token, f16       256 B\n"
        "KV per token, bf16      256 B\nKV per token, int8      160 B\n"
        "KV per token, fp8       160 B\n",
    };
    struct model *model = open_model(*state, "tiny-q4_1");
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        assert_prints(model, lines[i]);
    model_close(model);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_opens, argv[1]),
        cmocka_unit_test_prestate(test_refuses, argv[1]),
        cmocka_unit_test_prestate(test_dtypes, argv[1]),
        cmocka_unit_test_prestate(test_window, argv[1]),
        cmocka_unit_test_prestate(test_print, argv[1]),
        cmocka_unit_test_prestate(test_print_experts, argv[1]),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
