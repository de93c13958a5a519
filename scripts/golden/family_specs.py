"""The tiny dense models of tests/golden/families: one of each family, from Transformers' own config classes.

A family's `switches` say, for each thing that tells it from a plain Llama, how to take that away; with each
one taken away the logits must become other ones, or a golden test of it would prove nothing.
"""

from dataclasses import dataclass, field

import torch
from transformers import (CohereConfig, Gemma2Config, Gemma3TextConfig, GemmaConfig, GraniteConfig,
                          LlamaConfig, MistralConfig, Olmo2Config, Phi3Config, Qwen2Config,
                          Qwen3Config, SmolLM3Config)

VOCAB = 280
COMMON = dict(vocab_size=VOCAB, bos_token_id=1, eos_token_id=2, pad_token_id=None)
# Shapes differ from family to family, so that no two sizes are equal by chance everywhere.
SHORT_FACTORS = [1.0, 1.1, 1.3, 1.6, 2.0, 2.2, 2.5, 3.0]
LONG_FACTORS = [1.2, 1.7, 2.5, 4.0, 6.0, 9.0, 14.0, 20.0]


@dataclass
class Family:
    name: str
    config: object
    architecture: str = ""       # of the GGUF file; empty: the format cannot say what this model is
    dtype: str = "bf16"          # of the matrices
    shard_bytes: int = 0         # of the folder's files; 0: one file
    old_config: bool = True      # config.json as Transformers 4 writes it
    norm_plus_one: bool = False  # norms are stored less 1
    permuted: bool = False       # Q and K rows of the GGUF file: rotated pairs are neighbours
    gain: float = 1.0            # of the matrices of layers
    embedding_gain: float = 1.0
    gains: dict = field(default_factory=dict)  # of the weights whose names end so, in addition
    routing_levels: list = field(default_factory=list)  # of experts; empty: golden_routing.py chooses
    switches: dict = field(default_factory=dict)


# --- Taking something away ----------------------------------------------------------------------

def with_config(**changes):
    """The same weights under another configuration."""
    return lambda model, rebuild: rebuild(model, changes)


def in_modules(ends, change):
    def apply(model, _):
        found = [module for name, module in model.named_modules() if name.endswith(ends)]
        assert found, ends
        for module in found:
            change(module)
        return model
    return apply


def in_weights(ends, change):
    def apply(model, _):
        found = [weight for name, weight in model.named_parameters() if name.endswith(ends)]
        assert found, ends
        with torch.no_grad():
            for weight in found:
                change(weight)
        return model
    return apply


def without_modules(ends):
    """Takes the modules' outputs to be their inputs."""
    return in_modules(ends, lambda module: module.register_forward_hook(
        lambda _, inputs, output: inputs[0]))


def with_scaled_embeddings(scale):
    return in_modules("embed_tokens", lambda module: module.register_forward_hook(
        lambda _, inputs, output: output * scale))


def with_half_rotation(model, _):
    """Swaps the meaning of Q and K rows: neighbours against halves."""
    config = model.config
    dim = config.hidden_size // config.num_attention_heads
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                rows = weight.reshape(-1, 2, dim // 2, weight.shape[1]).swapaxes(1, 2)
                weight.copy_(rows.reshape(weight.shape).clone())
    return model


def one_after_the_other(model, _):
    """A decoder layer of Cohere's with its two parts in sequence."""
    def forward(layer, hidden_states, **options):
        attended, _ = layer.self_attn(hidden_states=layer.input_layernorm(hidden_states), **options)
        hidden_states = hidden_states + attended
        return hidden_states + layer.mlp(layer.input_layernorm(hidden_states))
    for layer in model.model.layers:
        layer.forward = forward.__get__(layer)
    return model


def with_rms_norms(model, _):
    def rms(module, inputs, output):
        x = inputs[0]
        scaled = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * module.weight
        bias = getattr(module, "bias", None)
        return scaled if bias is None else scaled + bias
    for name, module in model.named_modules():
        if name.endswith("norm"):
            module.register_forward_hook(rms)
    return model


def rope(theta, kind="default", **values):
    return {"rope_theta": theta, "rope_type": kind, **values}


PLAIN_ROPE = with_config(rope_parameters=rope(10000.0))
NO_PLUS_ONE = in_weights("norm.weight", lambda weight: weight.sub_(1.0))
SILU_FOR_GELU = with_config(hidden_activation="silu", hidden_act="silu")

LLAMA3_ROPE = rope(10000.0, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32)
YARN_ROPE = rope(1000000.0, "yarn", factor=4.0, original_max_position_embeddings=64)


def llamas():
    yield Family("llama", LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=256, rms_norm_eps=1e-6, rope_parameters=rope(10000.0),
        tie_word_embeddings=False, **COMMON), "llama", permuted=True, switches={
            "theta": with_config(rope_parameters=rope(500.0))})
    yield Family("llama3", LlamaConfig(
        hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=1024, rms_norm_eps=1e-5,
        rope_parameters=LLAMA3_ROPE, tie_word_embeddings=True, **COMMON), "llama", permuted=True,
        shard_bytes=60000, old_config=False, switches={"llama3 scaling": PLAIN_ROPE})
    yield Family("llama-linear", LlamaConfig(
        hidden_size=40, intermediate_size=56, num_hidden_layers=2, num_attention_heads=5,
        num_key_value_heads=1, max_position_embeddings=1024, rms_norm_eps=1e-5,
        rope_parameters=rope(10000.0, "linear", factor=4.0), tie_word_embeddings=False, **COMMON),
        "llama", permuted=True, dtype="f16", switches={"linear scaling": PLAIN_ROPE})
    yield Family("llama-dynamic", LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32, rms_norm_eps=1e-5,
        rope_parameters=rope(10000.0, "dynamic", factor=4.0), tie_word_embeddings=True, **COMMON),
        dtype="f32", gain=0.8, old_config=False, switches={"dynamic scaling": PLAIN_ROPE})
    yield Family("smollm3", SmolLM3Config(
        hidden_size=32, intermediate_size=48, num_hidden_layers=5, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=1024, rms_norm_eps=1e-6,
        rope_parameters=rope(50000.0), tie_word_embeddings=True, **COMMON), "smollm3",
        permuted=True, gain=0.9, old_config=False, switches={
            "layers without rope": with_config(no_rope_layers=[1] * 5)})
    yield Family("mistral", MistralConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=24, max_position_embeddings=1024, rms_norm_eps=1e-5,
        sliding_window=8, rope_parameters=rope(10000.0), tie_word_embeddings=False, **COMMON),
        "llama", permuted=True, switches={"window": with_config(sliding_window=None)})


def qwens():
    biases = in_weights("proj.bias", lambda bias: bias.zero_())
    yield Family("qwen2", Qwen2Config(
        hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, max_position_embeddings=1024, rms_norm_eps=1e-6,
        rope_parameters=rope(1000000.0), use_sliding_window=False, sliding_window=8,
        max_window_layers=1, tie_word_embeddings=False, **COMMON), "qwen2", shard_bytes=60000,
        switches={"biases": biases, "windows being off": with_config(
            use_sliding_window=True, sliding_window=8, layer_types=["sliding_attention"] * 2)})
    yield Family("qwen2-yarn", Qwen2Config(
        hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, max_position_embeddings=1024, rms_norm_eps=1e-6,
        rope_parameters=YARN_ROPE, tie_word_embeddings=True, **COMMON), "qwen2", switches={
            "biases": biases, "yarn": with_config(rope_parameters=rope(1000000.0))})
    yield Family("qwen3", Qwen3Config(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=1024, rms_norm_eps=1e-6,
        rope_parameters=rope(1000000.0), tie_word_embeddings=True, **COMMON), "qwen3",
        old_config=False, switches={
            "q norms": without_modules("q_norm"), "k norms": without_modules("k_norm")})
    yield Family("qwen3-yarn", Qwen3Config(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, head_dim=32, max_position_embeddings=1024, rms_norm_eps=1e-6,
        rope_parameters=dict(YARN_ROPE, beta_fast=16.0, beta_slow=2.0),
        tie_word_embeddings=False, **COMMON), "qwen3", switches={
            "q norms": without_modules("q_norm"),
            "betas": with_config(rope_parameters=YARN_ROPE),
            "yarn": with_config(rope_parameters=rope(1000000.0))})


def phis():
    yield Family("phi3", Phi3Config(
        hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=3,
        max_position_embeddings=1024, original_max_position_embeddings=1024, rms_norm_eps=1e-5,
        sliding_window=11, rope_parameters=rope(10000.0), tie_word_embeddings=False, **COMMON),
        "phi3", switches={"window": with_config(sliding_window=None)})
    longrope = rope(10000.0, "longrope", short_factor=SHORT_FACTORS, long_factor=LONG_FACTORS,
                    original_max_position_embeddings=32)
    yield Family("phi3-longrope", Phi3Config(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=1024, original_max_position_embeddings=32, rms_norm_eps=1e-5,
        sliding_window=2048, rope_parameters=longrope, tie_word_embeddings=False, **COMMON),
        "phi3", switches={
            "long factors": with_config(rope_parameters=dict(longrope, long_factor=SHORT_FACTORS)),
            "attention factor": with_config(rope_parameters=dict(longrope, attention_factor=1.0))})
    partial = rope(10000.0, "longrope", short_factor=SHORT_FACTORS[:6], long_factor=LONG_FACTORS[:6],
                   original_max_position_embeddings=1024, partial_rotary_factor=0.75)
    whole = dict(partial, short_factor=SHORT_FACTORS, long_factor=LONG_FACTORS,
                 partial_rotary_factor=1.0)
    yield Family("phi4-mini", Phi3Config(
        hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, original_max_position_embeddings=1024,
        rms_norm_eps=1e-5, rope_parameters=partial, tie_word_embeddings=True, **COMMON),
        "phi3", switches={
            "partial rotation": with_config(rope_parameters=whole),
            "short factors": with_config(rope_parameters=dict(partial, short_factor=[1.0] * 6))})


def gemmas():
    post_norms = {"norm after attention": without_modules("post_attention_layernorm"),
                  "norm after FFN": without_modules("post_feedforward_layernorm")}
    common = {"1 + w": NO_PLUS_ONE, "embedding scale": with_scaled_embeddings(0.125),
              "GELU": SILU_FOR_GELU}
    yield Family("gemma", GemmaConfig(
        hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, head_dim=24, max_position_embeddings=1024, rms_norm_eps=1e-6,
        rope_parameters=rope(10000.0), tie_word_embeddings=True, **COMMON), "gemma",
        norm_plus_one=True, gain=1.35, switches=common)
    gemma2 = dict(
        hidden_size=48, intermediate_size=48, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, head_dim=24, max_position_embeddings=1024, rms_norm_eps=1e-6,
        sliding_window=8, attn_logit_softcapping=1.5, final_logit_softcapping=2.0,
        rope_parameters=rope(10000.0), tie_word_embeddings=True, **COMMON)
    capped = {**common, **post_norms, "window": with_config(sliding_window=100),
              "attention cap": with_config(attn_logit_softcapping=None),
              "final cap": with_config(final_logit_softcapping=None)}
    yield Family("gemma2", Gemma2Config(query_pre_attn_scalar=24, **gemma2), "gemma2",
                 norm_plus_one=True, old_config=False, embedding_gain=0.6, switches=capped)
    gemma2["num_hidden_layers"] = 2
    yield Family("gemma2-scalar", Gemma2Config(query_pre_attn_scalar=4, **gemma2),
                 norm_plus_one=True, embedding_gain=0.4, switches={
                     "query scalar": with_config(query_pre_attn_scalar=24)})
    ropes = {"full_attention": rope(1000000.0, "linear", factor=3.0),
             "sliding_attention": rope(10000.0)}
    yield Family("gemma3", Gemma3TextConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=6, num_attention_heads=2,
        num_key_value_heads=1, head_dim=24, max_position_embeddings=1024, rms_norm_eps=1e-6,
        sliding_window=8, query_pre_attn_scalar=24, rope_parameters=ropes,
        tie_word_embeddings=True, **COMMON), "gemma3", norm_plus_one=True, gain=0.8,
        shard_bytes=80000,
        switches={**common, **post_norms, "window": with_config(sliding_window=100),
                  "q norms": without_modules("q_norm"), "k norms": without_modules("k_norm"),
                  "global theta": with_config(rope_parameters={
                      **ropes, "full_attention": rope(10000.0, "linear", factor=3.0)}),
                  "linear scaling": with_config(rope_parameters={
                      **ropes, "full_attention": rope(1000000.0)}),
                  "local theta": with_config(rope_parameters={
                      **ropes, "sliding_attention": rope(1000000.0)})})


def others():
    granite = dict(embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.7,
                   logits_scaling=2.5)
    yield Family("granite", GraniteConfig(
        hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, max_position_embeddings=1024, rms_norm_eps=1e-5,
        rope_parameters=rope(10000.0), tie_word_embeddings=True, **granite, **COMMON), "granite",
        permuted=True, gain=1.2, switches={key: with_config(**{key: 1.0}) for key in granite})
    yield Family("olmo2", Olmo2Config(
        hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=1024, rms_norm_eps=1e-6,
        rope_parameters=rope(500000.0), tie_word_embeddings=False, **COMMON), "olmo2",
        old_config=False, switches={
            "q norms": without_modules("q_norm"), "k norms": without_modules("k_norm"),
            "norm after attention": without_modules("post_attention_layernorm"),
            "norm after FFN": without_modules("post_feedforward_layernorm")})
    yield Family("cohere", CohereConfig(
        hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, max_position_embeddings=1024, layer_norm_eps=1e-5, logit_scale=0.4,
        rope_parameters=rope(10000.0), tie_word_embeddings=True, **COMMON), "command-r",
        old_config=False, switches={
            "logit scale": with_config(logit_scale=1.0), "parallel parts": one_after_the_other,
            "neighbours rotate": with_half_rotation, "mean is subtracted": with_rms_norms})


def families():
    for group in (llamas, qwens, phis, gemmas, others):
        yield from group()
