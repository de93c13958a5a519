"""Writes a model of family_specs.py as the GGUF file llama.cpp's converter would make of it.

What the files of an architecture carry is that of its conversion/*.py: which metadata keys, which architectures
have the rows of Q and K permuted, that Gemma's norms are stored with the 1 added, and that factors of
rotary embeddings are tensors.
"""

import math

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from make_golden import add_tokenizer, interleave

ARCHITECTURES = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
WRITES_HEAD_DIM = ("llama", "qwen3", "gemma", "gemma2", "gemma3")
WRITES_NO_ROPE = ("gemma", "gemma2")  # theta and dimensions are the architecture's
LAYER_NORM = ("command-r",)


def head_dim(config):
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def global_rope(config):
    return config.rope_parameters.get("full_attention", config.rope_parameters)


def add_sizes(writer, config, architecture):
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if architecture in LAYER_NORM:
        writer.add_layer_norm_eps(config.layer_norm_eps)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if architecture in WRITES_HEAD_DIM:
        writer.add_key_length(head_dim(config))
        writer.add_value_length(head_dim(config))


def add_rope(writer, config, architecture):
    rope = global_rope(config)
    if architecture in WRITES_NO_ROPE:
        return
    writer.add_rope_freq_base(rope["rope_theta"])
    if architecture in ("llama", "smollm3", "granite", "phi3"):
        writer.add_rope_dimension_count(int(rope.get("partial_rotary_factor", 1.0) * head_dim(config)))
    kind = rope["rope_type"]
    if architecture == "command-r":
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    elif kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "beta_fast" in rope:
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    elif kind == "longrope":  # known by its tensors alone
        original = rope["original_max_position_embeddings"]
        scale = config.max_position_embeddings / original
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))


def add_switches(writer, config, architecture):
    if architecture == "phi3":
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
        writer.add_sliding_window(config.sliding_window or 0)
    elif architecture in ("gemma2", "gemma3"):
        writer.add_sliding_window(config.sliding_window)
    elif getattr(config, "sliding_window", None) and architecture == "llama":
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if architecture == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if architecture == "command-r":
        writer.add_logit_scale(config.logit_scale)


def llama3_factors(rope, dim):
    """Returns what each frequency is divided by (Llama 3.1)."""
    frequencies = rope["rope_theta"] ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1.0 - smooth) / rope["factor"] + smooth)


def add_rope_factors(writer, config):
    rope = global_rope(config)
    factors = {}
    if rope["rope_type"] == "llama3":
        factors["rope_freqs"] = llama3_factors(rope, head_dim(config))
    if rope["rope_type"] == "longrope":
        factors["rope_factors_long"] = rope["long_factor"]
        factors["rope_factors_short"] = rope["short_factor"]
    for name, values in factors.items():
        writer.add_tensor(f"{name}.weight", np.array(values, np.float32))


def heads_of(name, config):
    """Returns the heads of a tensor whose rows the file has permuted; 0: it is as it was."""
    if "q_proj" in name:
        return config.num_attention_heads
    return config.num_key_value_heads if "k_proj" in name else 0


def add_tensors(writer, family, weights):
    config = family.config
    names = gguf.get_tensor_name_map(ARCHITECTURES[family.architecture], config.num_hidden_layers)
    for name, values in weights.items():
        if family.norm_plus_one and name.endswith("norm.weight"):
            values = values + 1.0
        heads = heads_of(name, config) if family.permuted else 0
        if heads:
            values = interleave(values.reshape(values.shape[0], -1), heads).reshape(values.shape)
        kind = Type[family.dtype.upper()] if values.ndim == 2 else Type.F32
        data = gguf.quantize(np.ascontiguousarray(values), kind)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), data,
                          raw_dtype=kind)


def write_gguf(path, family, weights, num_merges):
    """weights: {name in Transformers: float32 array}, without a head that is tied."""
    writer = gguf.GGUFWriter(path, family.architecture)
    # (llama.cpp expects more tokens of a model that calls itself phi3.)
    writer.add_name(f"quire test {family.name.replace('phi3', 'phi 3')}")
    add_sizes(writer, family.config, family.architecture)
    add_rope(writer, family.config, family.architecture)
    add_switches(writer, family.config, family.architecture)
    add_tokenizer(writer, num_merges)
    add_rope_factors(writer, family.config)
    add_tensors(writer, family, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
