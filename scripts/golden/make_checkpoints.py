#!/usr/bin/env python3
"""Writes a tiny model in every form of quantised checkpoint that folders have, and what it must compute.

Run by hand after a deliberate change (needs torch, transformers, safetensors; with compressed-tensors installed
its own decompression is compared too):

    python scripts/golden/make_checkpoints.py tests/golden/checkpoints [NAME...]

The weights are seeded and random, quantised by rounding, and packed as each method's published layers unpack them
(models/weights/quantised_source.c says how). NAME.golden holds the logits of a prompt and greedy tokens, as
make_golden.py describes, computed by Transformers in float32 on the weights that the published formula gives;
NAME.a8.golden the same with the inputs of the quantised layers rounded to 8 bits.
"""
import importlib.util
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import (DeepseekV3Config, DeepseekV3ForCausalLM, GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

from golden_prompt import choose_prompt, run
from golden_routing import make_clear
from make_golden import round_to_8_bits, save_golden

SIZES = dict(vocab_size=128, hidden_size=128, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False, bos_token_id=1,
             eos_token_id=2)
SEEDS = {"compressed-w8a16": 5, "gpt-oss-mxfp4": 13}  # no activation lies halfway between two of 8 bits
MOE_SIZES = dict(head_dim=32, moe_intermediate_size=128, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True)
GPT_OSS_SIZES = dict(head_dim=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=8)
# Latent attention whose heads have whole blocks of 128 rows of keys and values, as the published model's.
DEEPSEEK_SIZES = dict(q_lora_rank=128, kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64, head_dim=32,
                      first_k_dense_replace=1, num_key_value_heads=4)
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


# --- Integers -----------------------------------------------------------------------------------

def quantise(weight, bits, group, symmetric, scale_type):
    """codes [R, C], scales and zero points [R, G] of unsigned codes"""
    rows, cols = weight.shape
    groups = weight.reshape(rows, -1, group if group > 0 else cols)
    top = 2 ** bits - 1
    if symmetric:
        scale = groups.abs().amax(-1) / 2 ** (bits - 1)
        zero = torch.full_like(scale, 2 ** (bits - 1))
    else:
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        scale = (high - low) / top
        zero = (-low / scale).round().clamp(1, top)
    scale = scale.to(scale_type)
    codes = (groups / scale.float()[..., None]).round() + zero[..., None]
    return codes.clamp(0, top).reshape(rows, cols).int(), scale, zero.int()


def dequantise(codes, scale, zero):
    rows, cols = codes.shape
    groups = codes.reshape(rows, scale.shape[1], -1) - zero[..., None]
    return (groups.float() * scale.float()[..., None]).reshape(rows, cols)


def pack(values, bits, order=None):
    """[A, B] of unsigned codes to int32 [A, B * bits / 32], the first in the lowest bits"""
    per_word = 32 // bits
    words = values.numpy().astype(np.uint64).reshape(values.shape[0], -1, per_word)
    shifts = np.arange(per_word, dtype=np.uint64) * np.uint64(bits)
    words = (words[..., order or range(per_word)] << shifts).sum(-1)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32).copy())


def quantise_in_order(weight, bits, group, symmetric, scale_type, order):
    """The columns order[0], order[1], .. are grouped: (weights, codes, scales, zero points, group of each column)"""
    codes, scale, zero = quantise(weight[:, order], bits, group, symmetric, scale_type)
    back = torch.argsort(order)
    groups = (torch.arange(len(order), dtype=torch.int32) // (group if group > 0 else len(order)))[back]
    return dequantise(codes, scale, zero)[:, back], codes[:, back], scale, zero, groups


def column_order(weight, in_order):
    return torch.arange(weight.shape[1]) if in_order else torch.argsort(weight.square().sum(0), descending=True)


def gptq(bits, group, symmetric, form, scale_type=torch.float16, desc_act=False):
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": desc_act,
              "checkpoint_format": form, "lm_head": False}

    def store(weight):
        order = column_order(weight, not desc_act)
        values, codes, scale, zero, groups = quantise_in_order(weight, bits, group, symmetric, scale_type, order)
        if desc_act:
            values = values.to(scale_type).float()
        return values, {"qweight": pack(codes, bits).T, "qzeros": pack(zero.T - int(form == "gptq"), bits),
                        "scales": scale.T, "g_idx": groups}
    return config, store


def awq(group):
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm",
              "modules_to_not_convert": None}

    def store(weight):
        codes, scale, zero = quantise(weight, 4, group, False, torch.float16)
        return dequantise(codes, scale, zero), {
            "qweight": pack(codes.T, 4, AWQ_ORDER), "qzeros": pack(zero.T, 4, AWQ_ORDER), "scales": scale.T}
    return config, store


# --- compressed-tensors -------------------------------------------------------------------------

def compressed(form, **weights):
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
            "ignore": ["lm_head"], "kv_cache_scheme": None,
            "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, "weights": weights}}}


def packed(bits, group, symmetric, actorder=None):
    config = compressed("pack-quantized", num_bits=bits, type="int", symmetric=symmetric,
                        strategy="group" if group > 0 else "channel", group_size=group if group > 0 else None,
                        actorder=actorder)

    def store(weight):
        order = column_order(weight, actorder is None)
        values, codes, scale, zero, groups = quantise_in_order(weight, bits, group, symmetric, torch.bfloat16, order)
        tensors = {"weight_packed": pack(codes, bits), "weight_scale": scale,
                   "weight_shape": torch.tensor(weight.shape, dtype=torch.int64)}
        if not symmetric:
            tensors["weight_zero_point"] = pack(zero.T, bits).T
        if actorder is not None:
            tensors["weight_g_idx"] = groups
            values = values.to(torch.bfloat16).float()
        return values, tensors
    return config, store


def int8():
    config = compressed("int-quantized", num_bits=8, type="int", symmetric=True, strategy="channel")

    def store(weight):
        codes, scale, zero = quantise(weight, 8, -1, True, torch.bfloat16)
        return dequantise(codes, scale, zero), {"weight": (codes - 128).to(torch.int8), "weight_scale": scale}
    return config, store


# --- FP8 ----------------------------------------------------------------------------------------

def to_e4m3(weight, scale):
    return (weight / scale).clamp(-448, 448).to(torch.float8_e4m3fn)


def fp8_block():
    config = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}

    def store(weight):
        rows, cols = weight.shape
        padded = torch.nn.functional.pad(weight, (0, -cols % 128, 0, -rows % 128))
        blocks = padded.reshape(padded.shape[0] // 128, 128, -1, 128)
        scale = blocks.abs().amax((1, 3)) / 448
        whole = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :cols]
        codes = to_e4m3(weight, whole)
        return codes.float() * whole, {"weight": codes, "weight_scale_inv": scale}
    return config, store


def fp8_tensor():
    config = {"quant_method": "fp8", "activation_scheme": "static"}

    def store(weight):
        scale = weight.abs().max() / 448
        codes = to_e4m3(weight, scale)
        return codes.float() * scale, {"weight": codes, "weight_scale": scale, "input_scale": torch.tensor(0.5)}
    return config, store


def fp8_channel():
    config = compressed("float-quantized", num_bits=8, type="float", symmetric=True, strategy="channel")

    def store(weight):
        scale = (weight.abs().amax(1, keepdim=True) / 448).to(torch.bfloat16)
        codes = to_e4m3(weight, scale.float())
        return codes.float() * scale.float(), {"weight": codes, "weight_scale": scale}
    return config, store


# --- MXFP4: the experts of gpt-oss, of whose matrices Transformers has the transposed ones --------

def mxfp4():
    config = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}

    def store(weight):
        """[experts, inputs, outputs]"""
        groups = weight.transpose(1, 2).reshape(*weight.transpose(1, 2).shape[:2], -1, 32)
        exponent = groups.abs().amax(-1, keepdim=True).log2().floor() - 2
        codes = (groups / 2 ** exponent)[..., None].sub(E2M1).abs().argmin(-1)
        values = (E2M1[codes] * 2 ** exponent).flatten(2).transpose(1, 2)
        blocks = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
        return values, {"blocks": blocks, "scales": (exponent[..., 0] + 127).to(torch.uint8)}
    return config, store


# --- All ----------------------------------------------------------------------------------------

FORMS = {
    "gptq-4bit-32": gptq(4, 32, False, "gptq"),
    "gptq-4bit-128": gptq(4, 128, True, "gptq_v2"),
    "gptq-4bit-act": gptq(4, 32, False, "gptq", desc_act=True),
    "gptq-8bit": gptq(8, -1, True, "gptq"),
    "gptq-8bit-32": gptq(8, 32, False, "gptq_v2", torch.bfloat16),
    "awq-64": awq(64),
    "compressed-w4a16": packed(4, 32, True),
    "compressed-w4a16-zeros": packed(4, 64, False),
    "compressed-w4a16-act": packed(4, 64, True, "group"),
    "compressed-w8a16": packed(8, -1, True),
    "compressed-w8a8": int8(),
    "compressed-fp8": fp8_channel(),
    "fp8-block": fp8_block(),
    "fp8-tensor": fp8_tensor(),
    "fp8-moe": fp8_block(),
    "fp8-latent": fp8_block(),
    "gptq-moe": gptq(4, 32, False, "gptq"),
    "awq-moe": awq(64),
    "gpt-oss-mxfp4": mxfp4(),
}


def make_model(name):
    torch.manual_seed(SEEDS.get(name, sum(name.encode())))
    if name.endswith("moe"):
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, **MOE_SIZES))
    elif name == "fp8-latent":
        model = DeepseekV3ForCausalLM(DeepseekV3Config(**SIZES | DEEPSEEK_SIZES))
    elif name.startswith("gpt-oss"):
        model = GptOssForCausalLM(GptOssConfig(**SIZES | GPT_OSS_SIZES | {"num_hidden_layers": 2},
                                               rope_parameters={"rope_type": "default", "rope_theta": 10000.0}))
    elif name in ("gptq-4bit-128", "fp8-block"):  # with biases
        model = Qwen2ForCausalLM(Qwen2Config(**SIZES))
    else:
        model = LlamaForCausalLM(LlamaConfig(**SIZES))
    model = model.float().eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            gain = 0.5 if "bias" in key else 1.0 if "embed" in key else 1.5 / weight.shape[-1] ** 0.5
            weight.copy_(torch.rand_like(weight) + 0.5 if "norm" in key else torch.randn_like(weight) * gain)
    if name.endswith("moe") or name.startswith("gpt-oss"):
        make_clear(model, np.random.default_rng(1), [])
    return model


def is_quantised(name, module):
    return isinstance(module, torch.nn.Linear) and "lm_head" not in name


def expert_weights(name, experts):
    """Transformers has all experts in one parameter, the files each in their own."""
    size = experts.gate_up_proj.shape[1] // 2
    for e in range(len(experts.gate_up_proj)):
        yield f"{name}.{e}.gate_proj", experts.gate_up_proj[e, :size]
        yield f"{name}.{e}.up_proj", experts.gate_up_proj[e, size:]
        yield f"{name}.{e}.down_proj", experts.down_proj[e]


def store_experts(model, store):
    """Those of gpt-oss, all in one; nothing else of it is quantised."""
    tensors = {}
    for name, weight in model.named_parameters():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            values, parts = store(weight.detach())
            weight.data.copy_(values)
            tensors |= {f"{name}_{part}": value.contiguous() for part, value in parts.items()}
        else:
            weight.data.copy_(weight.data.to(torch.float16).float())
            tensors[name] = weight.detach().to(torch.float16)
    return tensors, {}


def store_model(model, store):
    """What the folder holds; the model gets the weights that this says."""
    if model.config.model_type == "gpt_oss":
        return store_experts(model, store)
    tensors, quantised = {}, {}
    for name, module in model.named_modules():
        if is_quantised(name, module):
            weight, parts = store(module.weight.detach())
            quantised[name] = weight
            tensors |= {f"{name}.{part}": value.contiguous() for part, value in parts.items()}
            module.weight.data.copy_(weight)
        if hasattr(module, "gate_up_proj"):
            for key, weight in expert_weights(name, module):
                values, parts = store(weight.detach().clone())
                weight.data.copy_(values)
                tensors |= {f"{key}.{part}": value.contiguous() for part, value in parts.items()}
    for name, weight in model.named_parameters():
        is_stored = "mlp.experts." in name or name.rsplit(".", 1)[0] in quantised
        if not is_stored or name.endswith("bias"):
            weight.data.copy_(weight.data.to(torch.float16).float())
            tensors[name] = weight.detach().to(torch.float16)
    return tensors, quantised


def check_by_library(folder, quantised):
    """compressed-tensors reads such folders itself, and computes in the type of the scales."""
    if importlib.util.find_spec("compressed_tensors") is None:
        return
    from transformers import AutoModelForCausalLM, CompressedTensorsConfig
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 quantization_config=CompressedTensorsConfig(run_compressed=False))
    for name, weight in quantised.items():
        module = model.get_submodule(name)
        error = (module.weight.detach().float() - weight).abs().max().item()
        assert error <= 2 ** -8 * weight.abs().max().item(), (folder.name, name, error)
    print(f"{folder.name}: compressed-tensors dequantises to the same weights, rounded to bf16")


def rounded_experts(experts):
    """Qwen's experts or gpt-oss', with the inputs of their products rounded."""
    def forward(hidden, indices, weights):
        out = torch.zeros_like(hidden)
        for token, choice in np.ndindex(*indices.shape):
            e = indices[token, choice]
            x = round_to_8_bits(hidden[token])
            if hasattr(experts, "limit"):
                inner = experts._apply_gate(x @ experts.gate_up_proj[e] + experts.gate_up_proj_bias[e])
                y = round_to_8_bits(inner) @ experts.down_proj[e] + experts.down_proj_bias[e]
            else:
                gate, up = (experts.gate_up_proj[e] @ x).chunk(2)
                y = experts.down_proj[e] @ round_to_8_bits(experts.act_fn(gate) * up)
            out[token] += y * weights[token, choice]
        return out
    return forward


def round_inputs(model):
    """Of the layers whose weights are quantised."""
    for name, module in model.named_modules():
        if is_quantised(name, module) and model.config.model_type != "gpt_oss":
            module.register_forward_pre_hook(lambda _, inputs: (round_to_8_bits(inputs[0]),))
        if hasattr(module, "gate_up_proj") and name.endswith("experts"):
            module.forward = rounded_experts(module)


def write_form(folder, name):
    config, store = FORMS[name]
    model = make_model(name)
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).mkdir(parents=True)
    tensors, quantised = store_model(model, store)
    save_file(tensors, folder / name / "model.safetensors", metadata={"format": "pt"})
    values = json.loads(model.config.to_json_string(use_diff=False))
    wanted = {*SIZES, *MOE_SIZES, "num_local_experts", "decoder_sparse_step", "architectures", "model_type", "hidden_act", "rms_norm_eps", "head_dim", "rope_parameters",
              *GPT_OSS_SIZES, *DEEPSEEK_SIZES, "rope_interleave", "layer_types", "swiglu_alpha", "swiglu_limit", "attention_bias"}
    values = {key: value for key, value in values.items() if key in wanted}
    values |= {"architectures": [type(model).__name__], "dtype": "float16", "quantization_config": config}
    (folder / name / "config.json").write_text(json.dumps(values, indent=1) + "\n")
    if name.startswith("compressed") and "act" not in name:  # which newer versions no longer read
        check_by_library(folder / name, quantised)
    margin, prompt, (greedy,) = choose_prompt([model])
    logits = run(model, [prompt]).logits[0].numpy()
    save_golden(folder / f"{name}.golden", prompt, greedy, logits)
    if "fp8" not in name and "act" not in name:
        round_inputs(model)
        save_golden(folder / f"{name}.a8.golden", prompt, greedy, run(model, [prompt]).logits[0].numpy())
    print(f"{name}: smallest margin {margin:.3f} of a row's spread")


def main():
    torch.set_num_threads(1)
    folder, *names = sys.argv[1:]
    for name in names or FORMS:
        write_form(Path(folder), name)


if __name__ == "__main__":
    main()
