"""Writes a model of family_specs.py as the GGUF file llama.cpp's converter would make of it.

What the files of an architecture carry is that of its conversion/*.py: which metadata keys, which architectures
have the rows of Q and K permuted, that Gemma's norms are stored with the 1 added, and that factors of
rotary embeddings are tensors.
"""

import math
import re

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from make_golden import add_tokenizer, interleave

ARCHITECTURES = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
WRITES_HEAD_DIM = ("llama", "qwen3", "gemma", "gemma2", "gemma3", "qwen3moe", "gpt-oss", "glm4moe", "dots1")
WRITES_NO_ROPE = ("gemma", "gemma2")  # theta and dimensions are the architecture's
LAYER_NORM = ("command-r",)


def head_dim(config):
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def global_rope(config):
    return config.rope_parameters.get("full_attention", config.rope_parameters)


def is_latent(config):
    return getattr(config, "kv_lora_rank", None) is not None


def has_split_heads(config):
    """Whether the parts of all heads that make keys and values are tensors of their own (since 2025), and not
    one matrix. Our file of the lite model is an old one."""
    return is_latent(config) and config.q_lora_rank is not None


def add_latent(writer, config):
    if config.q_lora_rank is not None:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    key, value = config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim
    if not has_split_heads(config):
        writer.add_key_length(key)
        writer.add_value_length(value)
        return
    writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_value_length(config.kv_lora_rank)
    writer.add_key_length_mla(key)
    writer.add_value_length_mla(value)


def add_sizes(writer, config, architecture):
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(num_blocks(config))
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(1 if has_split_heads(config) else config.num_key_value_heads)
    if is_latent(config):
        add_latent(writer, config)
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
    if architecture in ("llama", "smollm3", "granite", "phi3", "granitemoe", "phimoe", "glm4moe"):
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
        if rope.get("mscale_all_dim"):
            writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    elif kind == "longrope":  # known by its tensors alone
        original = rope["original_max_position_embeddings"]
        scale = config.max_position_embeddings / original
        # (The converter has this factor for Phi-3.5-MoE, too, which multiplies by another one.)
        writer.add_rope_scaling_attn_factors(rope.get(
            "long_mscale", math.sqrt(1 + math.log(scale) / math.log(original))))


def add_switches(writer, config, architecture):
    if architecture in ("phi3", "phimoe"):
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
        writer.add_sliding_window(config.sliding_window or 0)
    elif architecture in ("gemma2", "gemma3", "gpt-oss"):
        writer.add_sliding_window(config.sliding_window)
    elif getattr(config, "sliding_window", None) and architecture == "llama":
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if architecture in ("granite", "granitemoe"):
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


def num_extra_layers(config):
    """Layers after the last that predict further tokens (GLM-4.5, DeepSeek-V3)."""
    return getattr(config, "num_mtp_layers", 0)


def num_blocks(config):
    """The converter leaves out DeepSeek's."""
    return config.num_hidden_layers + (0 if is_latent(config) else num_extra_layers(config))


def add_experts(writer, config, architecture):
    if getattr(config, "num_local_experts", None) is None and getattr(config, "num_experts", None) is None:
        return
    writer.add_expert_count(config.num_local_experts if hasattr(config, "num_local_experts") else config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    if architecture == "gpt-oss":
        writer.add_expert_feed_forward_length(config.intermediate_size)
    elif hasattr(config, "moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if hasattr(config, "shared_expert_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if getattr(config, "shared_intermediate_size", 0):
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    if architecture in ("glm4moe", "dots1", "deepseek2"):
        if config.n_group is not None:
            writer.add_expert_group_count(config.n_group)
            writer.add_expert_group_used_count(config.topk_group)
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX if config.model_type == "deepseek_v2"
                                      else gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        if architecture == "glm4moe":
            writer.add_nextn_predict_layers(config.num_mtp_layers)


def split_experts(name, values, config):
    """Yields gates and ups that are fused in Transformers' memory as the file has them, which is experts first:
    rows of gate before those of up, in gpt-oss in turn."""
    turned = config.model_type == "gpt_oss" and "experts." in name
    if turned and values.ndim == 3:
        values = values.swapaxes(1, 2)
    if not re.search(r"(experts\.gate_up_proj|shared_mlp\.input_linear)", name):
        yield name, values
        return
    half = values.shape[1 if "experts." in name else 0] // 2
    parts = (values[:, 0::2], values[:, 1::2]) if turned else np.split(values, [half], axis=values.ndim - 2)
    for stem, part in zip(("gate_proj", "up_proj"), parts):
        yield re.sub(r"gate_up_proj|input_linear", stem, name), part


def split_heads(name, values, config):
    """Yields the parts of all heads that make keys, transposed, and values."""
    if not has_split_heads(config) or not name.endswith("kv_b_proj.weight"):
        yield name, values
        return
    heads = values.reshape(config.num_attention_heads, -1, values.shape[-1])
    keys, parts = np.split(heads, [config.qk_nope_head_dim], axis=1)
    yield name.replace("kv_b_proj", "k_b_proj"), keys.swapaxes(1, 2)
    yield name.replace("kv_b_proj", "v_b_proj"), parts


def gguf_name(name, names):
    """The name of a tensor that Transformers calls otherwise than the hub's files."""
    name = re.sub(r"(block_sparse_moe|mlp)\.(router|gate)\.", "mlp.gate.", name)
    name = name.replace("block_sparse_moe.", "mlp.").replace("shared_mlp.", "mlp.shared_expert.")
    name = name.replace("output_linear", "down_proj").replace("score_correction_bias", "score_correction.bias")
    name = re.sub(r"(experts\.\w+_proj)_bias$", r"\1.bias", name)
    name = re.sub(r"(experts\.\w+_proj|sinks)$", r"\1.weight", name)
    return names.get_name(name, try_suffixes=(".weight", ".bias"))


def heads_of(name, config):
    """Returns the heads of a tensor whose rows the file has permuted; 0: it is as it was."""
    if "q_proj" in name:
        return config.num_attention_heads
    return config.num_key_value_heads if "k_proj" in name else 0


def kind_of(name, values, family):
    """The converter leaves vectors, biases and routers as float."""
    rounded = values.ndim >= 2 and name.endswith(".weight") and "ffn_gate_inp" not in name
    return Type[family.dtype.upper()] if rounded else Type.F32


def add_tensors(writer, family, weights):
    config = family.config
    names = gguf.get_tensor_name_map(ARCHITECTURES[family.architecture], num_blocks(config))
    for name, values in weights.items():
        if f"layers.{num_blocks(config)}." in name:
            continue
        if family.norm_plus_one and name.endswith("norm.weight"):
            values = values + 1.0
        heads = heads_of(name, config) if family.permuted else 0
        if heads:
            values = interleave(values.reshape(values.shape[0], -1), heads).reshape(values.shape)
        parts = split_heads if "kv_b_proj" in name else split_experts
        for part_name, part in parts(name, values, config):
            new_name = gguf_name(part_name, names)
            assert new_name, part_name
            part = part.reshape(-1) if "ffn_gate_inp_shexp" in new_name else part
            kind = kind_of(new_name, part, family)
            writer.add_tensor(new_name, gguf.quantize(np.ascontiguousarray(part), kind), raw_dtype=kind)


def write_gguf(path, family, weights, num_merges):
    """weights: {name in Transformers: float32 array}, without a head that is tied."""
    writer = gguf.GGUFWriter(path, family.architecture)
    # (llama.cpp expects more tokens of a model that calls itself phi3.)
    writer.add_name(f"quire test {family.name.replace('phi3', 'phi 3')}")
    add_sizes(writer, family.config, family.architecture)
    add_rope(writer, family.config, family.architecture)
    add_switches(writer, family.config, family.architecture)
    add_experts(writer, family.config, family.architecture)
    add_tokenizer(writer, num_merges)
    add_rope_factors(writer, family.config)
    add_tensors(writer, family, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
