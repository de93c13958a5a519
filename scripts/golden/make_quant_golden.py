#!/usr/bin/env python3
"""Writes tests/golden/kquants.gguf and iquants.gguf, small models of every type the gguf package reads but cannot write.

Run by hand after a deliberate change (needs torch, transformers, gguf); both, or the one named:

    python scripts/golden/make_quant_golden.py tests/golden [iquants]

The matrices are random blocks, each of a type of its own, scaled so that their values spread as weights do. The
golden files are those make_golden.py describes.
"""
import copy
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type

from golden_prompt import check_greedy, choose_prompt, run
from make_golden import (VOCAB, Spec, add_config, add_tokenizer, deinterleave, gguf_name, make_model,
                         round_inputs, save_golden)

# By matrix, of every layer.
MODELS = {
    "kquants": {
        "embed_tokens": [Type.Q6_K],
        "q_proj": [Type.Q2_K, Type.Q5_1], "k_proj": [Type.Q3_K, Type.Q5_K],
        "v_proj": [Type.Q6_K, Type.Q4_K], "o_proj": [Type.Q5_0, Type.Q3_K],
        "gate_proj": [Type.Q4_K, Type.Q2_K], "up_proj": [Type.Q5_K, Type.Q6_K],
        "down_proj": [Type.IQ4_NL, Type.Q4_K],
    },
    "iquants": {
        "embed_tokens": [Type.IQ4_XS],
        "q_proj": [Type.IQ2_XXS, Type.TQ1_0], "k_proj": [Type.IQ3_S, Type.MXFP4],
        "v_proj": [Type.IQ2_S, Type.IQ3_XXS], "o_proj": [Type.IQ2_XS, Type.TQ2_0],
        "gate_proj": [Type.IQ1_M, Type.IQ2_S], "up_proj": [Type.IQ3_XXS, Type.IQ1_S],
        "down_proj": [Type.MXFP4, Type.IQ4_XS],
    },
}
# Where a block has its factor d and, as a multiple of it, the one that makes the mean zero.
FACTORS = {
    Type.Q5_0: ((0, 1.0),), Type.Q5_1: ((0, 1.0), (2, -15.5)), Type.IQ4_NL: ((0, 1.0),),
    Type.Q2_K: ((80, 1.0), (82, 1.5)), Type.Q3_K: ((108, 1.0),),
    Type.Q4_K: ((0, 1.0), (2, 7.5)), Type.Q5_K: ((0, 1.0), (2, 15.5)), Type.Q6_K: ((208, 1.0),),
    Type.IQ4_XS: ((0, 1.0),), Type.TQ1_0: ((52, 1.0),), Type.TQ2_0: ((64, 1.0),), Type.IQ1_S: ((0, 1.0),),
    Type.IQ2_XXS: ((0, 1.0),), Type.IQ2_XS: ((0, 1.0),), Type.IQ2_S: ((0, 1.0),),
    Type.IQ3_XXS: ((0, 1.0),), Type.IQ3_S: ((0, 1.0),),
}


def set_factors(blocks, kind, factors):
    if kind == Type.MXFP4:  # a power of 2
        blocks[:, 0] = 128 + np.round(np.log2(factors))
        return
    if kind == Type.IQ1_M:  # in four nibbles
        values = factors.astype("<f2").view(np.uint16)
        for i in range(4):
            blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | (values >> 4 * i & 15) << 4
        return
    for at, multiple in FACTORS[kind]:
        values = (factors * multiple).astype("<f2")
        blocks[:, at:at + 2] = values.view(np.uint8).reshape(-1, 2)


def random_matrix(rng, kind, rows, cols):
    """The bytes of each row."""
    elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows * cols // elements, block_bytes), np.uint8)
    factors = rng.uniform(0.5, 1.5, len(blocks))
    set_factors(blocks, kind, factors)
    spread = gguf.dequantize(blocks, kind).std()
    set_factors(blocks, kind, factors * 1.3 / np.sqrt(cols) / spread)
    return blocks.reshape(rows, -1)


def kind_of(types, name):
    for part, kinds in types.items():
        if part in name:
            return kinds[int(name.split(".")[2]) % len(kinds)] if "layers" in name else kinds[0]
    return Type.F32


def heads_of(spec, name):
    return spec.heads if "q_proj" in name else spec.kv_heads if "k_proj" in name else 0


def write_model(path, spec, model):
    """Random blocks into the file, and what they stand for into the model."""
    rng = np.random.default_rng(3)
    writer = gguf.GGUFWriter(path, "llama")
    add_config(writer, spec)
    assert add_tokenizer(writer) == VOCAB
    for name, weight in model.named_parameters():
        kind = kind_of(MODELS[spec.name], name)
        if kind == Type.F32:
            writer.add_tensor(gguf_name(name), weight.detach().numpy())
            continue
        data = random_matrix(rng, kind, *weight.shape)
        writer.add_tensor(gguf_name(name), data, raw_dtype=kind)
        values = gguf.dequantize(data, kind).reshape(weight.shape)
        heads = heads_of(spec, name)
        values = deinterleave(values, heads) if heads else values
        with torch.no_grad():
            weight.copy_(torch.from_numpy(np.ascontiguousarray(values)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    for name in sys.argv[2:] or MODELS:
        spec = Spec(name, 256, 256, 2, 4, 1, 64, 10000.0, True, ())
        model = make_model(spec)
        write_model(out / f"{name}.gguf", spec, model)
        rounded = copy.deepcopy(model)
        round_inputs(rounded)
        margin, prompt, continuations = choose_prompt([model, rounded])
        print(f"{name}: smallest margin {margin:.3f} of a row's spread")
        for each, greedy, kind in zip((model, rounded), continuations, ("golden", "a8.golden")):
            check_greedy(each, prompt, greedy)
            save_golden(out / f"{name}.{kind}", prompt, greedy, run(each, [prompt]).logits[0].numpy())


if __name__ == "__main__":
    main()
