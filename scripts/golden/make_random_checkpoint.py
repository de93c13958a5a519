#!/usr/bin/env python3
"""Writes a folder of a quantised checkpoint with random weights, to measure a machine with. Needs numpy alone.

  scripts/golden/make_random_checkpoint.py gptq|awq|fp8|mxfp4 OUT [--layers N]

GPTQ and AWQ have 4 bits in groups of 128, FP8 blocks of 128 x 128, in a Llama of 2048 elements; MXFP4 are the experts of
a small gpt-oss. `quire quantize OUT same.gguf --allow-requantize --pure --type Q4_0` (or Q8_0) makes a file of the same
shape; --leave-output-tensor and --token-embedding-type f16 leave what the folder has not quantised. The tokenizer is that
of tests/golden/families: prompts are ids below 280.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np

TOKENIZER = Path(__file__).resolve().parents[2] / "tests" / "golden" / "families" / "llama"
GROUP = 128
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
         "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "rope_theta": 10000.0}
GPT_OSS = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 1024, "intermediate_size": 1024,
           "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "rope_theta": 150000.0, "sliding_window": 128,
           "num_local_experts": 16, "num_experts_per_tok": 4, "swiglu_limit": 7.0}
COMMON = {"vocab_size": 4096, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
          "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "torch_dtype": "float16"}
METHODS = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False, "checkpoint_format": "gptq_v2"},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"},
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "mxfp4": {"quant_method": "mxfp4"},
}
TYPES = {np.dtype("<f2"): "F16", np.dtype("<f4"): "F32", np.dtype("<i4"): "I32", np.dtype("u1"): "U8"}
RNG = np.random.default_rng(1)


def floats(*shape):
    return RNG.normal(0, 1 / np.sqrt(shape[-1]), shape).astype("<f2")


def words(*shape):
    return RNG.integers(-2**31, 2**31, shape, np.int64).astype("<i4")


def scales(rows, cols):
    """Of codes of 4 bits, whose deviation is 4.6."""
    return np.full((cols // GROUP, rows), 1 / (4.6 * np.sqrt(cols)), "<f2")


def gptq(rows, cols):
    zeros = np.full((cols // GROUP, rows // 8), 0x88888888, np.uint32).view("<i4")
    return {"qweight": words(cols // 8, rows), "qzeros": zeros, "scales": scales(rows, cols),
            "g_idx": np.arange(cols, dtype="<i4") // GROUP}


def awq(rows, cols):
    return {"qweight": words(cols, rows // 8), "qzeros": words(cols // GROUP, rows // 8), "scales": scales(rows, cols)}


def fp8(rows, cols):
    """Values of up to 1.9, with either sign."""
    codes = RNG.integers(0, 0x40, (rows, cols), np.uint8) | RNG.integers(0, 2, (rows, cols), np.uint8) << 7
    blocks = np.full(((rows + 127) // 128, (cols + 127) // 128), 1.5 / np.sqrt(cols), "<f4")
    return {"weight": codes, "weight_scale_inv": blocks}


def llama_matrices(config):
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    return {"self_attn.q_proj": (heads, hidden), "self_attn.k_proj": (kv_heads, hidden), "self_attn.v_proj": (kv_heads, hidden),
            "self_attn.o_proj": (hidden, heads), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner)}


def packed_experts(experts, rows, cols, stem):
    return {f"{stem}_blocks": RNG.integers(0, 256, (experts, rows, cols // 32, 16), np.uint8),
            f"{stem}_scales": np.full((experts, rows, cols // 32), 127 - round(np.log2(3 * np.sqrt(cols))), np.uint8),
            f"{stem}_bias": np.zeros((experts, rows), "<f2")}


def gpt_oss_layer(config):
    hidden, inner, experts = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    layer = {"self_attn.sinks": np.zeros(config["num_attention_heads"], "<f2"), "mlp.router.weight": floats(experts, hidden),
             "mlp.router.bias": np.zeros(experts, "<f2")}
    for name, shape in llama_matrices(config).items():
        if name.startswith("self_attn"):
            layer |= {f"{name}.weight": floats(*shape), f"{name}.bias": np.zeros(shape[0], "<f2")}
    return layer | packed_experts(experts, 2 * inner, hidden, "mlp.experts.gate_up_proj") | \
        packed_experts(experts, hidden, inner, "mlp.experts.down_proj")


def make_layer(form, config):
    hidden = config["hidden_size"]
    layer = {f"{name}.weight": np.ones(hidden, "<f2") for name in ("input_layernorm", "post_attention_layernorm")}
    if form == "mxfp4":
        return layer | gpt_oss_layer(config)
    for name, shape in llama_matrices(config).items():
        layer |= {f"{name}.{suffix}": values for suffix, values in {"gptq": gptq, "awq": awq, "fp8": fp8}[form](*shape).items()}
    return layer


def tensors_of(form, config):
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    tensors = {"model.embed_tokens.weight": floats(vocab, hidden), "lm_head.weight": floats(vocab, hidden),
               "model.norm.weight": np.ones(hidden, "<f2")}
    for layer in range(config["num_hidden_layers"]):
        tensors |= {f"model.layers.{layer}.{name}": values for name, values in make_layer(form, config).items()}
    return tensors


def type_name(form, name, values):
    return "F8_E4M3" if form == "fp8" and name.endswith("_proj.weight") else TYPES[values.dtype]


def write(folder, form, config, tensors):
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    header, at = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": type_name(form, name, values), "shape": values.shape, "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in tensors.values():
            file.write(np.ascontiguousarray(values).data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("form", choices=METHODS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=8)
    options = parser.parse_args()
    shape = GPT_OSS if options.form == "mxfp4" else LLAMA
    config = {**shape, **COMMON, "num_hidden_layers": options.layers, "quantization_config": METHODS[options.form]}
    write(options.out, options.form, config, tensors_of(options.form, config))


if __name__ == "__main__":
    main()
