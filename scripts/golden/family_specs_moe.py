"""The tiny models of tests/golden/families that are mixtures of experts (see family_specs.py)."""

import torch
from transformers import (DeepseekV2Config, DeepseekV3Config, Dots1Config, Glm4MoeConfig, GptOssConfig, GraniteMoeConfig, GraniteMoeSharedConfig,
                          MixtralConfig, OlmoeConfig, PhimoeConfig, Qwen2MoeConfig, Qwen3MoeConfig)

from family_specs import (COMMON, LONG_FACTORS, SHORT_FACTORS, Family, in_modules, in_weights, rope,
                          with_config, with_rms_norms, without_modules)
from golden_routing import routers


# --- Taking something away ----------------------------------------------------------------------

def with_weights(change):
    """The same choices of experts with change(logits, weights, chosen) as their weights."""
    def hook(_, inputs, output):
        logits, weights, chosen = output
        return logits, change(logits, weights, chosen), chosen

    def apply(model, _):
        for router in routers(model):
            router.register_forward_hook(hook)
        return model
    return apply


def softmax_of_all(logits, _, chosen):
    return logits.softmax(dim=-1).gather(1, chosen)


def softmax_of_chosen(logits, _, chosen):
    return logits.gather(1, chosen).softmax(dim=-1)


def equal_weights(_, weights, chosen):
    return torch.full_like(weights, 1 / weights.shape[1])


def without_selection_bias(model, _):
    for router in routers(model):
        router.e_score_correction_bias.zero_()
    return model


def zeroed(*ends):
    return in_weights(ends, lambda weight: weight.zero_())


WITHOUT_RENORMALISING = with_weights(softmax_of_all)
FEWER = with_config(num_experts_per_tok=1)
OPEN_GATE = in_modules("shared_expert_gate", lambda module: module.register_forward_hook(
    lambda _, inputs, output: torch.full_like(output, 50.0)))
Q_AND_K_NORMS = {"q norms": without_modules("q_norm"), "k norms": without_modules("k_norm")}


# --- The families -------------------------------------------------------------------------------

def mixtral():
    yield Family("mixtral", MixtralConfig(
        hidden_size=48, intermediate_size=32, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=1024, rms_norm_eps=1e-5, num_local_experts=8,
        num_experts_per_tok=2, rope_parameters=rope(1000000.0), tie_word_embeddings=False, **COMMON),
        "llama", permuted=True, switches={
            "weights that sum to 1": WITHOUT_RENORMALISING, "two experts": FEWER})


def qwens():
    common = dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
                  max_position_embeddings=1024, rms_norm_eps=1e-6, tie_word_embeddings=False)
    qwen2 = dict(common, shared_expert_intermediate_size=64, moe_intermediate_size=32, num_experts=6,
                 num_experts_per_tok=3, rope_parameters=rope(1000000.0), **COMMON)
    shared = {"weights that do not sum to 1": with_config(norm_topk_prob=True),
              "shared expert": zeroed("shared_expert.down_proj.weight"), "shared gate": OPEN_GATE,
              "biases": in_weights("proj.bias", lambda bias: bias.zero_())}
    yield Family("qwen2-moe", Qwen2MoeConfig(
        num_hidden_layers=2, intermediate_size=48, **qwen2), "qwen2moe", switches=shared)
    yield Family("qwen2-moe-mixed", Qwen2MoeConfig(
        num_hidden_layers=4, intermediate_size=48, decoder_sparse_step=2, mlp_only_layers=[3],
        **dict(qwen2, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True)), switches={
            "weights that sum to 1": with_config(norm_topk_prob=False), "two experts": FEWER})
    yield Family("qwen3-moe", Qwen3MoeConfig(
        num_hidden_layers=2, intermediate_size=96, head_dim=16, moe_intermediate_size=32, num_experts=8,
        num_experts_per_tok=4, norm_topk_prob=True, rope_parameters=rope(1000000.0),
        **dict(common, hidden_size=48, **COMMON)), "qwen3moe", shard_bytes=120000, switches={
            "weights that sum to 1": with_config(norm_topk_prob=False), **Q_AND_K_NORMS})


def olmoe():
    yield Family("olmoe", OlmoeConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=1024, rms_norm_eps=1e-5, num_experts=8,
        num_experts_per_tok=3, rope_parameters=rope(10000.0), tie_word_embeddings=False, **COMMON),
        "olmoe", old_config=False, switches={
            "weights that do not sum to 1": with_config(norm_topk_prob=True), **Q_AND_K_NORMS})


def granites():
    multipliers = dict(embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.7,
                       logits_scaling=2.5)
    switches = {key: with_config(**{key: 1.0}) for key in multipliers}
    switches["weights"] = with_weights(equal_weights)
    common = dict(hidden_size=32, intermediate_size=32, num_attention_heads=4, num_key_value_heads=2,
                  max_position_embeddings=1024, rms_norm_eps=1e-6, rope_parameters=rope(10000.0),
                  tie_word_embeddings=True, **multipliers, **COMMON)
    yield Family("granite-moe", GraniteMoeConfig(
        num_hidden_layers=2, num_local_experts=8, num_experts_per_tok=4, **common), "granitemoe",
        permuted=True, gain=1.5, embedding_gain=0.5, switches=switches)
    yield Family("granite-moe-shared", GraniteMoeSharedConfig(
        num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=64,
        **common), "granitemoe", permuted=True, gain=1.5, embedding_gain=0.5, old_config=False, switches={
            **switches, "shared expert": zeroed("shared_mlp.output_linear.weight")})


def phis():
    longrope = rope(10000.0, "longrope", short_factor=SHORT_FACTORS[:4], long_factor=LONG_FACTORS[:4],
                    original_max_position_embeddings=32, short_mscale=1.1, long_mscale=1.3)
    common = dict(hidden_size=32, intermediate_size=32, num_attention_heads=4, num_key_value_heads=2,
                  max_position_embeddings=1024, rms_norm_eps=1e-5, num_experts_per_tok=2,
                  attention_bias=True, lm_head_bias=True, sliding_window=None, tie_word_embeddings=False)
    norm_bias = in_weights("norm.bias", lambda bias: bias.zero_())
    yield Family("phi3.5-moe", PhimoeConfig(
        num_hidden_layers=2, num_local_experts=4, rope_parameters=longrope, **common, **COMMON),
        "phimoe", switches={
            "sparsemixer": with_weights(softmax_of_chosen), "mean is subtracted": with_rms_norms,
            "norm biases": norm_bias, "head bias": zeroed("lm_head.bias"),
            "attention biases": zeroed("proj.bias"), "o bias": zeroed("o_proj.bias"),
            "long factors": with_config(rope_parameters=dict(longrope, long_factor=SHORT_FACTORS[:4])),
            "mscale": with_config(rope_parameters=dict(longrope, long_mscale=1.0))})
    yield Family("phi3.5-moe-jitter", PhimoeConfig(
        num_hidden_layers=2, num_local_experts=4, router_jitter_noise=0.525,
        rope_parameters=rope(10000.0), **common, **COMMON), routing_levels=[2.6, 1.2, -1.8, -2.0], switches={
            "jitter": with_config(router_jitter_noise=0.01)})


def gpt_oss():
    yarn = rope(150000.0, "yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                original_max_position_embeddings=64)
    config = dict(
        hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5,
        num_local_experts=4, num_experts_per_tok=2, sliding_window=8, rope_parameters=yarn,
        tie_word_embeddings=False, **COMMON)
    yield Family("gpt-oss", GptOssConfig(**config), "gpt-oss", gains={
        "experts.gate_up_proj": 3.0, "experts.down_proj": 0.3}, switches={
        "sinks": in_weights("sinks", lambda sinks: sinks.fill_(-1e4)),
        "window": with_config(sliding_window=100),
        "layers without a window": with_config(layer_types=["sliding_attention"] * 3),
        "clamp": with_config(swiglu_limit=100.0), "alpha": with_config(swiglu_alpha=1.0),
        "router bias": zeroed("router.bias"), "gate and up bias": zeroed("gate_up_proj_bias"),
        "down bias": zeroed("down_proj_bias"), "attention biases": zeroed("self_attn.q_proj.bias"),
        "o bias": zeroed("o_proj.bias"), "yarn": with_config(rope_parameters=rope(150000.0)),
        "exact ends of yarn": with_config(rope_parameters=dict(yarn, truncate=True)),
        "two experts": FEWER})


def glms():
    partial = rope(1000000.0, partial_rotary_factor=0.5)
    common = dict(
        hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        max_position_embeddings=1024, rms_norm_eps=1e-5, n_shared_experts=1, moe_intermediate_size=32,
        first_k_dense_replace=1, attention_bias=True, rope_parameters=partial, **COMMON)
    switches = {
        "sigmoid": with_weights(softmax_of_chosen), "selection bias": without_selection_bias,
        "scale": with_config(routed_scaling_factor=1.0),
        "shared expert": zeroed("shared_experts.down_proj.weight"), "biases": zeroed("proj.bias"),
        "partial rotation": with_config(rope_parameters=rope(1000000.0, partial_rotary_factor=1.0))}
    yield Family("glm4.5-air", Glm4MoeConfig(
        num_hidden_layers=3, n_routed_experts=6, num_experts_per_tok=2, routed_scaling_factor=2.5,
        norm_topk_prob=True, num_mtp_layers=1, tie_word_embeddings=False, **common), "glm4moe",
        switches={**switches, "weights that sum to 1": with_config(norm_topk_prob=False)})
    yield Family("glm4.5", Glm4MoeConfig(
        num_hidden_layers=3, n_routed_experts=8, num_experts_per_tok=3, routed_scaling_factor=1.5,
        norm_topk_prob=False, use_qk_norm=True, num_mtp_layers=0, tie_word_embeddings=True,
        **dict(common, n_shared_experts=2, first_k_dense_replace=2)), "glm4moe", gain=1.3, embedding_gain=0.6,
        old_config=False, switches={**switches, **Q_AND_K_NORMS,
                  "weights that do not sum to 1": with_config(norm_topk_prob=True)})


def dots():
    yield Family("dots1", Dots1Config(
        hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        max_position_embeddings=512, rms_norm_eps=1e-6, n_shared_experts=2, moe_intermediate_size=32, n_routed_experts=8,
        num_experts_per_tok=3, n_group=2, topk_group=1, first_k_dense_replace=1, routed_scaling_factor=2.5,
        norm_topk_prob=True, sliding_window=None, max_window_layers=3, tie_word_embeddings=False,
        rope_parameters=rope(1000000.0), **COMMON), "dots1", switches={
            "sigmoid": with_weights(softmax_of_chosen), "selection bias": without_selection_bias,
            "scale": with_config(routed_scaling_factor=1.0), "groups": with_config(n_group=1, topk_group=1),
            "shared experts": zeroed("shared_experts.down_proj.weight"),
            "weights that sum to 1": with_config(norm_topk_prob=False), **Q_AND_K_NORMS})


def deepseeks():
    def yarn(mscale):
        return rope(10000.0, "yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, mscale=mscale,
                    mscale_all_dim=mscale, original_max_position_embeddings=64)
    common = dict(
        hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=256, rms_norm_eps=1e-6, moe_intermediate_size=32,
        first_k_dense_replace=1, tie_word_embeddings=False, **COMMON)
    switches = {"kv norm": without_modules("kv_a_layernorm"), "scale": with_config(routed_scaling_factor=1.0),
                "shared experts": zeroed("shared_experts.down_proj.weight")}
    no_scale = dict(mscale=0.0, mscale_all_dim=0.0, attention_factor=1.0)
    yield Family("deepseek-v2-lite", DeepseekV2Config(
        q_lora_rank=None, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=24,
        n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, routed_scaling_factor=1.5,
        topk_method="greedy", norm_topk_prob=False, rope_parameters=yarn(0.707), **common), "deepseek2",
        switches={**switches, "yarn": with_config(rope_parameters=rope(10000.0)),
                  "scale of attention": with_config(rope_parameters=dict(yarn(0.707), **no_scale))})
    yield Family("deepseek-v2", DeepseekV2Config(
        q_lora_rank=40, kv_lora_rank=32, qk_nope_head_dim=24, qk_rope_head_dim=16, v_head_dim=16,
        n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, n_group=4, topk_group=2,
        routed_scaling_factor=2.0, topk_method="group_limited_greedy", norm_topk_prob=False,
        rope_parameters=rope(10000.0), **common), "deepseek2", switches={
            **switches, "q norm": without_modules("q_a_layernorm"),
            "groups": with_config(topk_method="greedy")})
    yield Family("deepseek-v3", DeepseekV3Config(
        q_lora_rank=32, kv_lora_rank=40, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
        n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, n_group=2, topk_group=1,
        routed_scaling_factor=2.5, norm_topk_prob=True, num_mtp_layers=1, rope_parameters=yarn(1.0),
        **common), "deepseek2", switches={
            **switches, "q norm": without_modules("q_a_layernorm"),
            "neighbours": with_config(rope_interleave=False),
            "groups": with_config(n_group=1, topk_group=1), "selection bias": without_selection_bias,
            "weights that sum to 1": with_config(norm_topk_prob=False),
            "scale of attention": with_config(rope_parameters=dict(yarn(1.0), **no_scale))})


def moe_families():
    for group in (mixtral, qwens, olmoe, granites, phis, gpt_oss, glms, dots, deepseeks):
        yield from group()
