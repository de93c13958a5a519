/* The types that tensors get, against what llama-quantize prints for the same models. */
#include "models/convert/quant_mixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct tensor_info matrix = {.dtype = DTYPE_F16, .num_dims = 2, .shape = {512, 256}};

/* Types of one tensor in all layers, one digit each: 2 to 6 for Q2_K to Q6_K, 8 for Q8_0. */
static void types_of(const char *type, struct mixture_model model, const char *stem, char *out) {
    struct mixture_options options = {quant_mixture_find(type), DTYPE_NONE, DTYPE_NONE, false,
                                      false};
    model.num_attention_v = model.num_layers;
    struct mixture_state state = {.model = model, .options = &options};
    for (int layer = 0; layer < model.num_layers; layer++) {
        char name[65];
        snprintf(name, sizeof(name), "blk.%d.%s.weight", layer, stem);
        assert_true(quant_mixture_applies(name, &matrix));
        out[layer] = dtype_name(quant_mixture_choose(&state, name, &matrix))[1];
    }
    out[model.num_layers] = '\0';
}

static void assert_types(const char *type, struct mixture_model model, const char *stem,
                         const char *expected) {
    char types[128];
    types_of(type, model, stem, types);
    if (strcmp(types, expected) != 0)
        fail_msg("%s %s: %s, expected %s", type, stem, types, expected);
}

static const struct mixture_model dense = {.num_layers = 16, .num_heads = 8, .num_kv_heads = 4};
static const struct mixture_model grouped = {.num_layers = 16, .num_heads = 8, .num_kv_heads = 2};
static const struct mixture_model mixtral = {
    .num_layers = 16, .num_heads = 8, .num_kv_heads = 2, .num_experts = 8, .is_llama = true};

static void test_types_of_layers(void **state) {
    assert_types("Q4_K_M", dense, "ffn_down", "6644644644644666");
    assert_types("Q4_K_M", dense, "attn_v", "6644644644644666");
    assert_types("Q4_K_M", dense, "attn_q", "4444444444444444");
    assert_types("Q5_K_M", dense, "ffn_down", "6655655655655666");
    assert_types("Q4_K_S", dense, "attn_v", "5555444444444444");
    assert_types("Q4_K_S", dense, "ffn_down", "5544444444444444");
    assert_types("Q3_K_M", dense, "attn_v", "5544444444444444");
    assert_types("Q3_K_M", dense, "ffn_down", "5444444444444444");
    assert_types("Q3_K_M", dense, "attn_output", "4444444444444444");
    assert_types("Q2_K", dense, "attn_v", "3333333333333333");
    assert_types("Q2_K", grouped, "attn_v", "4444444444444444");
    assert_types("Q2_K", dense, "ffn_down", "3333333333333333");
    assert_types("Q6_K", dense, "ffn_down", "6666666666666666");
}

static void test_types_of_experts(void **state) {
    assert_types("Q4_K_M", mixtral, "attn_v", "8888888888888888");
    assert_types("Q4_K_M", mixtral, "attn_k", "8888888888888888");
    assert_types("Q4_K_M", mixtral, "attn_output", "5555555555555555");
    assert_types("Q4_K_M", mixtral, "ffn_down_exps", "6644644644644666");
}

static enum dtype choose(struct mixture_options options, bool has_output, const char *name) {
    struct mixture_state state = {.model = dense, .options = &options};
    state.model.has_output = has_output;
    return quant_mixture_choose(&state, name, &matrix);
}

static void test_embedding_and_head(void **state) {
    struct mixture_options options = {quant_mixture_find("Q4_K_M"), DTYPE_NONE, DTYPE_NONE, false,
                                      false};
    assert_int_equal(choose(options, true, "output.weight"), DTYPE_Q6_K);
    assert_int_equal(choose(options, true, "token_embd.weight"), DTYPE_Q4_K);
    assert_int_equal(choose(options, false, "token_embd.weight"), DTYPE_Q6_K);
    options.leave_output = true;
    assert_int_equal(choose(options, true, "output.weight"), DTYPE_F16);
    options.embedding_dtype = DTYPE_Q8_0;
    assert_int_equal(choose(options, false, "token_embd.weight"), DTYPE_Q8_0);
    options.mixture = quant_mixture_find("BF16");
    assert_int_equal(choose(options, true, "blk.0.attn_v.weight"), DTYPE_BF16);
    options.mixture = quant_mixture_find("Q8_0");
    options.leave_output = false;
    assert_int_equal(choose(options, true, "output.weight"), DTYPE_Q8_0);
}

static void test_what_is_never_quantised(void **state) {
    static const char *const names[] = {"blk.0.ffn_gate_inp.weight", "blk.0.attn_q_norm.weight",
                                        "blk.0.attn_q.bias", "blk.3.ssm_conv1d.weight"};
    static const struct tensor_info vector = {.num_dims = 1, .shape = {256}};
    static const struct tensor_info row = {.num_dims = 2, .shape = {1, 256}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_false(quant_mixture_applies(names[i], &matrix));
    assert_false(quant_mixture_applies("blk.0.attn_q.weight", &vector));
    assert_false(quant_mixture_applies("blk.0.attn_q.weight", &row));
    assert_true(quant_mixture_applies("blk.0.attn_q.weight", &matrix));
}

static void test_rows_that_are_not_whole_blocks(void **state) {
    static const struct {
        enum dtype dtype, fitting;
    } cases[] = {
        {DTYPE_Q2_K, DTYPE_Q4_0}, {DTYPE_Q3_K, DTYPE_Q4_0}, {DTYPE_Q4_K, DTYPE_Q5_0},
        {DTYPE_Q5_K, DTYPE_Q5_1}, {DTYPE_Q6_K, DTYPE_Q8_0}, {DTYPE_Q8_0, DTYPE_Q8_0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(quant_mixture_fit(cases[i].dtype, 512), cases[i].dtype);
        assert_int_equal(quant_mixture_fit(cases[i].dtype, 576), cases[i].fitting);
        assert_int_equal(quant_mixture_fit(cases[i].dtype, 40), DTYPE_F16);
    }
}

static void test_names(void **state) {
    assert_string_equal(quant_mixture_find("q4_k")->name, "Q4_K_M");
    assert_string_equal(quant_mixture_find("Q5_K_S")->name, "Q5_K_S");
    assert_null(quant_mixture_find("IQ4_XS"));
    assert_null(quant_mixture_find(""));
    assert_int_equal(quant_mixture_find_dtype("Q4_K"), DTYPE_Q4_K);
    assert_int_equal(quant_mixture_find_dtype("q4_k_m"), DTYPE_NONE);
    assert_int_equal(quant_mixture_find_dtype("iq4_nl"), DTYPE_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding_and_head),
        cmocka_unit_test(test_what_is_never_quantised),
        cmocka_unit_test(test_rows_that_are_not_whole_blocks),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_types_of_layers),
        cmocka_unit_test(test_types_of_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
