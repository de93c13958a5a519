#!/usr/bin/env python3
"""Compares the logits of a GGUF model with Transformers. Needs torch, transformers and numpy.

  scripts/gpu/gpu_reference.py MODEL.gguf TOKENS OURS --device cuda --type bf16

TOKENS holds 32-bit ids, OURS the floats [tokens][vocab] that scripts/gpu/dump_logits wrote. The
reference is Transformers in float32 on the same weights; beside it Transformers computes in the 16-bit
type itself, which shows how far roundings of that type bring a row. Ours may be off by twice as much.
Prints one line of JSON; exit status 1 when ours is further off.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
from gguf_llama import read_model, read_shape

ALLOWED = 2.0
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[rest.removesuffix('.weight')]}.weight"


def to_float(dtype, values, device):
    tensor = torch.from_numpy(np.array(values)).to(device)
    if dtype == "f32":
        return tensor
    return tensor.view(torch.bfloat16 if dtype == "bf16" else torch.float16).float()


def deinterleave(rows, heads):
    """Rows of Q or K as Transformers has them: the halves of a rotated pair lie half a head apart."""
    total, cols = rows.shape
    return rows.reshape(heads, total // heads // 2, 2, cols).transpose(1, 2).reshape(total, cols)


def load_model(path, device):
    """LlamaForCausalLM in float32."""
    metadata, tensors = read_model(path)
    shape = read_shape(metadata, tensors)
    config = LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.hidden, intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim,
        max_position_embeddings=shape.context, rms_norm_eps=shape.epsilon,
        tie_word_embeddings=shape.tied,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta},
        attn_implementation="eager")
    with torch.device(device):
        model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            values = to_float(*tensors[gguf_name(name)], device)
            heads = shape.heads if "q_proj" in name else shape.kv_heads if "k_proj" in name else 0
            weight.copy_(deinterleave(values, heads) if heads else values)
    return model


def compute_logits(model, tokens):
    with torch.no_grad():
        return model(tokens[None]).logits[0].float().cpu()


def round_model(model, dtype):
    """In place. The rope frequencies stay float, as Transformers has them in a 16-bit model."""
    frequencies = model.model.rotary_emb.inv_freq.clone()
    model.to(dtype)
    model.model.rotary_emb.inv_freq = frequencies
    return model


def row_errors(values, reference):
    """|a - b| / |b| of each row, in double."""
    difference = (values.double() - reference.double()).norm(dim=-1)
    return difference / reference.double().norm(dim=-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("tokens")
    parser.add_argument("ours")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--type", choices=("bf16", "f16"), default="bf16")
    options = parser.parse_args()
    tokens = torch.from_numpy(np.fromfile(options.tokens, np.int32)).long().to(options.device)
    model = load_model(options.model, options.device)
    reference = compute_logits(model, tokens)
    ours = torch.from_numpy(np.fromfile(options.ours, np.float32)).reshape(reference.shape)
    dtype = torch.bfloat16 if options.type == "bf16" else torch.float16
    theirs = compute_logits(round_model(model, dtype), tokens)
    our_errors, their_errors = row_errors(ours, reference), row_errors(theirs, reference)
    same = (ours.argmax(-1) == reference.argmax(-1)).double().mean().item()
    good = bool(our_errors.max() <= ALLOWED * their_errors.max())  # False for NaN
    print(json.dumps({
        "row_error": our_errors.max().item(), "mean_row_error": our_errors.mean().item(),
        "transformers_row_error": their_errors.max().item(),
        "transformers_mean_row_error": their_errors.mean().item(),
        "allowed": ALLOWED * their_errors.max().item(), "same_choice": same, "tokens": len(tokens),
    }))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
