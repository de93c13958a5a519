#include "models/config/tensor_names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

static const struct model_config gguf = {.naming = TENSOR_NAMING_GGUF, .pre_norm = true};
static const struct model_config folder = {
    .naming = TENSOR_NAMING_HF, .tensor_prefix = "model.", .pre_norm = true};

static void assert_name(const struct model_config *config, enum tensor_role role, int32_t layer,
                        const char *suffix, const char *expected) {
    char name[TENSOR_NAME_BYTES];
    tensor_names_write(config, (struct tensor_place){role, layer}, suffix, name);
    assert_string_equal(name, expected);
}

/* In layer 2. */
static void assert_expert(const struct model_config *config, enum tensor_role role, int32_t expert,
                          const char *expected) {
    char name[TENSOR_NAME_BYTES];
    tensor_names_write(config, (struct tensor_place){role, 2, expert}, "weight", name);
    assert_string_equal(name, expected);
}

static bool is_ignorable(const struct model_config *config, const char *name) {
    return tensor_names_is_ignorable(config, (struct text){name, strlen(name)});
}

static void test_gguf(void **state) {
    static const char *const names[NUM_TENSOR_ROLES] = {
        [TENSOR_EMBEDDING] = "token_embd.weight",
        [TENSOR_OUTPUT_NORM] = "output_norm.weight",
        [TENSOR_HEAD] = "output.weight",
        [TENSOR_SCORE] = "cls.output.weight",
        [TENSOR_ATTENTION_NORM] = "blk.17.attn_norm.weight",
        [TENSOR_ATTENTION_POST_NORM] = "blk.17.post_attention_norm.weight",
        [TENSOR_FFN_NORM] = "blk.17.ffn_norm.weight",
        [TENSOR_FFN_POST_NORM] = "blk.17.post_ffw_norm.weight",
        [TENSOR_Q] = "blk.17.attn_q.weight",
        [TENSOR_K] = "blk.17.attn_k.weight",
        [TENSOR_V] = "blk.17.attn_v.weight",
        [TENSOR_QKV] = "blk.17.attn_qkv.weight",
        [TENSOR_Q_NORM] = "blk.17.attn_q_norm.weight",
        [TENSOR_K_NORM] = "blk.17.attn_k_norm.weight",
        [TENSOR_ATTENTION_OUT] = "blk.17.attn_output.weight",
        [TENSOR_Q_A] = "blk.17.attn_q_a.weight",
        [TENSOR_Q_A_NORM] = "blk.17.attn_q_a_norm.weight",
        [TENSOR_Q_B] = "blk.17.attn_q_b.weight",
        [TENSOR_KV_A] = "blk.17.attn_kv_a_mqa.weight",
        [TENSOR_KV_A_NORM] = "blk.17.attn_kv_a_norm.weight",
        [TENSOR_KV_B] = "blk.17.attn_kv_b.weight",
        [TENSOR_K_B] = "blk.17.attn_k_b.weight",
        [TENSOR_V_B] = "blk.17.attn_v_b.weight",
        [TENSOR_GATE] = "blk.17.ffn_gate.weight",
        [TENSOR_UP] = "blk.17.ffn_up.weight",
        [TENSOR_GATE_UP] = "blk.17.ffn_up.weight",
        [TENSOR_DOWN] = "blk.17.ffn_down.weight",
        [TENSOR_SINKS] = "blk.17.attn_sinks.weight",
        [TENSOR_ROUTER] = "blk.17.ffn_gate_inp.weight",
        [TENSOR_SELECTION_BIAS] = "blk.17.exp_probs_b.bias",
        [TENSOR_EXPERT_GATE] = "blk.17.ffn_gate.0.weight",
        [TENSOR_EXPERT_UP] = "blk.17.ffn_up.0.weight",
        [TENSOR_EXPERT_GATE_UP] = "blk.17.ffn_gate_up_exps.weight",
        [TENSOR_EXPERT_DOWN] = "blk.17.ffn_down.0.weight",
        [TENSOR_SHARED_ROUTER] = "blk.17.ffn_gate_inp_shexp.weight",
        [TENSOR_SHARED_GATE] = "blk.17.ffn_gate_shexp.weight",
        [TENSOR_SHARED_UP] = "blk.17.ffn_up_shexp.weight",
        [TENSOR_SHARED_GATE_UP] = "blk.17.ffn_up_shexp.weight",
        [TENSOR_SHARED_DOWN] = "blk.17.ffn_down_shexp.weight",
        [TENSOR_MTP_PROJECTION] = "blk.17.nextn.eh_proj.weight",
        [TENSOR_MTP_EMBEDDING_NORM] = "blk.17.nextn.enorm.weight",
        [TENSOR_MTP_HIDDEN_NORM] = "blk.17.nextn.hnorm.weight",
        [TENSOR_MTP_OUTPUT_NORM] = "blk.17.nextn.shared_head_norm.weight",
        [TENSOR_MTP_EMBEDDING] = "blk.17.nextn.embed_tokens.weight",
        [TENSOR_MTP_HEAD] = "blk.17.nextn.shared_head_head.weight",
    };
    for (int role = 0; role < NUM_TENSOR_ROLES; role++)
        assert_name(&gguf, (enum tensor_role)role, 17, "weight", names[role]);
    assert_expert(&gguf, TENSOR_EXPERT_GATE, TENSOR_ALL_EXPERTS, "blk.2.ffn_gate_exps.weight");
    assert_expert(&gguf, TENSOR_EXPERT_GATE, 11, "blk.2.ffn_gate.11.weight");
    assert_expert(&gguf, TENSOR_EXPERT_DOWN, 0, "blk.2.ffn_down.0.weight");
    assert_name(&gguf, TENSOR_V, 0, "bias", "blk.0.attn_v.bias");
}

static void test_folder(void **state) {
    static const char *const names[NUM_TENSOR_ROLES] = {
        [TENSOR_EMBEDDING] = "model.embed_tokens.weight",
        [TENSOR_OUTPUT_NORM] = "model.norm.weight",
        [TENSOR_HEAD] = "lm_head.weight",
        [TENSOR_SCORE] = "score.weight",
        [TENSOR_ATTENTION_NORM] = "model.layers.3.input_layernorm.weight",
        [TENSOR_ATTENTION_POST_NORM] = "model.layers.3.post_attention_layernorm.weight",
        [TENSOR_FFN_NORM] = "model.layers.3.post_attention_layernorm.weight",
        [TENSOR_FFN_POST_NORM] = "model.layers.3.post_feedforward_layernorm.weight",
        [TENSOR_Q] = "model.layers.3.self_attn.q_proj.weight",
        [TENSOR_K] = "model.layers.3.self_attn.k_proj.weight",
        [TENSOR_V] = "model.layers.3.self_attn.v_proj.weight",
        [TENSOR_QKV] = "model.layers.3.self_attn.qkv_proj.weight",
        [TENSOR_Q_NORM] = "model.layers.3.self_attn.q_norm.weight",
        [TENSOR_K_NORM] = "model.layers.3.self_attn.k_norm.weight",
        [TENSOR_ATTENTION_OUT] = "model.layers.3.self_attn.o_proj.weight",
        [TENSOR_Q_A] = "model.layers.3.self_attn.q_a_proj.weight",
        [TENSOR_Q_A_NORM] = "model.layers.3.self_attn.q_a_layernorm.weight",
        [TENSOR_Q_B] = "model.layers.3.self_attn.q_b_proj.weight",
        [TENSOR_KV_A] = "model.layers.3.self_attn.kv_a_proj_with_mqa.weight",
        [TENSOR_KV_A_NORM] = "model.layers.3.self_attn.kv_a_layernorm.weight",
        [TENSOR_KV_B] = "model.layers.3.self_attn.kv_b_proj.weight",
        [TENSOR_K_B] = "model.layers.3.self_attn.kv_b_proj.weight",
        [TENSOR_V_B] = "model.layers.3.self_attn.kv_b_proj.weight",
        [TENSOR_GATE] = "model.layers.3.mlp.gate_proj.weight",
        [TENSOR_UP] = "model.layers.3.mlp.up_proj.weight",
        [TENSOR_GATE_UP] = "model.layers.3.mlp.gate_up_proj.weight",
        [TENSOR_DOWN] = "model.layers.3.mlp.down_proj.weight",
        [TENSOR_SINKS] = "model.layers.3.self_attn.sinks",
        [TENSOR_ROUTER] = "model.layers.3.mlp.gate.weight",
        [TENSOR_SELECTION_BIAS] = "model.layers.3.mlp.gate.e_score_correction_bias",
        [TENSOR_EXPERT_GATE] = "model.layers.3.mlp.experts.0.gate_proj.weight",
        [TENSOR_EXPERT_UP] = "model.layers.3.mlp.experts.0.up_proj.weight",
        [TENSOR_EXPERT_GATE_UP] = "model.layers.3.block_sparse_moe.input_linear.weight",
        [TENSOR_EXPERT_DOWN] = "model.layers.3.mlp.experts.0.down_proj.weight",
        [TENSOR_SHARED_ROUTER] = "model.layers.3.mlp.shared_expert_gate.weight",
        [TENSOR_SHARED_GATE] = "model.layers.3.mlp.shared_expert.gate_proj.weight",
        [TENSOR_SHARED_UP] = "model.layers.3.mlp.shared_expert.up_proj.weight",
        [TENSOR_SHARED_GATE_UP] = "model.layers.3.shared_mlp.input_linear.weight",
        [TENSOR_SHARED_DOWN] = "model.layers.3.mlp.shared_expert.down_proj.weight",
        [TENSOR_MTP_PROJECTION] = "model.layers.3.eh_proj.weight",
        [TENSOR_MTP_EMBEDDING_NORM] = "model.layers.3.enorm.weight",
        [TENSOR_MTP_HIDDEN_NORM] = "model.layers.3.hnorm.weight",
        [TENSOR_MTP_OUTPUT_NORM] = "model.layers.3.shared_head.norm.weight",
        [TENSOR_MTP_EMBEDDING] = "model.layers.3.embed_tokens.weight",
        [TENSOR_MTP_HEAD] = "model.layers.3.shared_head.head.weight",
    };
    for (int role = 0; role < NUM_TENSOR_ROLES; role++)
        assert_name(&folder, (enum tensor_role)role, 3, "weight", names[role]);
    assert_expert(&folder, TENSOR_EXPERT_UP, 11, "model.layers.2.mlp.experts.11.up_proj.weight");
    assert_expert(&folder, TENSOR_EXPERT_DOWN, TENSOR_ALL_EXPERTS,
                  "model.layers.2.block_sparse_moe.output_linear.weight");
    assert_name(&folder, TENSOR_SINKS, 3, "weight", "model.layers.3.self_attn.sinks");
    struct model_config both = folder;
    both.post_norm = true;
    assert_name(&both, TENSOR_FFN_NORM, 3, "weight",
                "model.layers.3.pre_feedforward_layernorm.weight");
}

static void test_a_language_model_within_another(void **state) {
    static const struct {
        const char *prefix, *head;
    } cases[] = {
        {"", "lm_head.weight"},
        {"model.", "lm_head.weight"},
        {"model.language_model.", "lm_head.weight"},
        {"language_model.model.", "language_model.lm_head.weight"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model_config config = folder;
        char embedding[TENSOR_NAME_BYTES];
        snprintf(config.tensor_prefix, sizeof(config.tensor_prefix), "%s", cases[i].prefix);
        snprintf(embedding, sizeof(embedding), "%sembed_tokens.weight", cases[i].prefix);
        assert_name(&config, TENSOR_HEAD, 0, "weight", cases[i].head);
        assert_name(&config, TENSOR_EMBEDDING, 0, "weight", embedding);
        assert_int_equal(is_ignorable(&config, "vision_tower.layers.0.norm.weight"), i >= 2);
        assert_false(is_ignorable(&config, cases[i].head));
    }
}

static void test_spare(void **state) {
    struct model_config tied_gguf = gguf, tied_folder = folder;
    tied_gguf.tied_embeddings = tied_folder.tied_embeddings = true;
    assert_true(is_ignorable(&gguf, "rope_freqs.weight"));
    assert_true(is_ignorable(&gguf, "rope_factors_long.weight"));
    assert_true(is_ignorable(&gguf, "rope_factors_short.weight"));
    assert_false(is_ignorable(&folder, "rope_freqs.weight"));
    assert_true(is_ignorable(&folder, "model.layers.0.self_attn.rotary_emb.inv_freq"));
    assert_false(is_ignorable(&gguf, "model.layers.0.self_attn.rotary_emb.inv_freq"));
    assert_true(is_ignorable(&tied_folder, "lm_head.weight"));
    assert_false(is_ignorable(&tied_folder, "lm_head.bias"));
    assert_false(is_ignorable(&folder, "lm_head.weight"));
    assert_true(is_ignorable(&tied_gguf, "output.weight"));
    assert_false(is_ignorable(&gguf, "output.weight"));
    assert_false(is_ignorable(&folder, "model.layers.0.mlp.gate.weight"));
}

/* The classifier's matrix is read with the settings. */
static void test_a_classifier(void **state) {
    (void)state;
    struct model_config scored_gguf = gguf, scored_folder = folder;
    scored_gguf.has_score = scored_folder.has_score = true;
    assert_true(is_ignorable(&scored_gguf, "cls.output.weight"));
    assert_true(is_ignorable(&scored_gguf, "cls.output.bias"));
    assert_false(is_ignorable(&scored_gguf, "cls.weight"));
    assert_false(is_ignorable(&gguf, "cls.output.weight"));
    assert_true(is_ignorable(&scored_folder, "score.weight"));
    assert_true(is_ignorable(&scored_folder, "score.bias"));
    assert_false(is_ignorable(&folder, "score.weight"));
}

static void test_layers_that_are_not_read(void **state) {
    (void)state;
    struct model_config config = {.naming = TENSOR_NAMING_HF,
                                  .tensor_prefix = "model.",
                                  .num_layers = 46,
                                  .num_extra_layers = 1};
    assert_true(is_ignorable(&config, "model.layers.46.eh_proj.weight"));
    assert_false(is_ignorable(&config, "model.layers.45.mlp.gate.weight"));
    assert_false(is_ignorable(&config, "model.layers.4.mlp.gate.weight"));
    assert_false(is_ignorable(&config, "model.layers.47.eh_proj.weight"));
    config.naming = TENSOR_NAMING_GGUF;
    config.tensor_prefix[0] = '\0';
    assert_true(is_ignorable(&config, "blk.46.nextn.eh_proj.weight"));
    assert_false(is_ignorable(&config, "blk.45.ffn_gate_inp.weight"));
    config.num_layers++;
    config.num_extra_layers--;
    config.is_mtp = true;
    assert_false(is_ignorable(&config, "blk.46.nextn.eh_proj.weight"));
    assert_true(is_ignorable(&config, "blk.45.ffn_gate_inp.weight"));
    assert_true(is_ignorable(&config, "output.weight"));
    assert_true(is_ignorable(&config, "blk.46.nextn.shared_head_head.weight"));
    config.has_own_head = true;
    assert_false(is_ignorable(&config, "blk.46.nextn.shared_head_head.weight"));
    assert_true(is_ignorable(&config, "blk.46.nextn.embed_tokens.weight"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_a_language_model_within_another),
        cmocka_unit_test(test_spare),
        cmocka_unit_test(test_a_classifier),
        cmocka_unit_test(test_layers_that_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
