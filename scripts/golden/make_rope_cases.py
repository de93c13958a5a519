#!/usr/bin/env python3
"""Writes tests/unit/models/weights/rope_cases.txt: what Transformers computes for every kind of rotary embedding.

Run by hand after a deliberate change (needs torch, transformers):

    python scripts/golden/make_rope_cases.py tests/unit/models/weights/rope_cases.txt

Each case is a line of what a struct rope_config holds, the two lists of factors, and the rows of the table
at three positions: cosines, then sines. The last position is that of the longest context, so that the kinds
which look at its length see it. The fields of the first line are those tests/unit/models/weights/test_rope.c reads.
"""
import random
import sys

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

def longrope_factors(pairs):
    rng = random.Random(5)
    short = sorted(round(1 + rng.random(), 3) for _ in range(pairs))
    return {"short_factor": short, "long_factor": [round(x * (1 + 20 * i / pairs), 3) for i, x in enumerate(short)]}


def yarn(**more):
    return {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256, "beta_fast": 32.0,
            "beta_slow": 1.0, "truncate": True, **more}


# name, head_dim, partial rotary factor, max_position_embeddings, longest context, parameters
CASES = [
    ("plain", 32, 1.0, 2048, 2048, {"rope_type": "default", "rope_theta": 10000.0}),
    ("linear", 32, 1.0, 2048, 2048, {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}),
    ("dynamic_short", 32, 1.0, 512, 512, {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}),
    ("dynamic_long", 32, 1.0, 512, 1800, {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}),
    ("yarn", 32, 1.0, 1024, 1024, yarn(rope_theta=1000000.0)),
    ("yarn_given_factor", 32, 1.0, 1024, 1024, yarn(rope_theta=10000.0, attention_factor=1.25)),
    ("yarn_mscale", 32, 1.0, 1024, 1024, yarn(rope_theta=10000.0, mscale=0.7, mscale_all_dim=0.3)),
    ("yarn_betas", 32, 0.75, 1024, 1024, yarn(rope_theta=150000.0, beta_fast=8.0, beta_slow=2.0)),
    ("yarn_untruncated", 32, 1.0, 1024, 1024, yarn(rope_theta=150000.0, truncate=False)),
    ("llama3", 64, 1.0, 131072, 2048, {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0,
     "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
    ("longrope_short", 32, 1.0, 2048, 256, {"rope_type": "longrope", "rope_theta": 10000.0,
     "original_max_position_embeddings": 256, **longrope_factors(16)}),
    ("longrope_long", 32, 0.75, 2048, 2048, {"rope_type": "longrope", "rope_theta": 10000.0,
     "original_max_position_embeddings": 256, **longrope_factors(12)}),
]
# In the order of enum rope_scaling.
KINDS = ["default", "linear", "dynamic", "yarn", "llama3", "longrope"]


def line(key, values):
    return " ".join([key, *(f"{float(v):.9g}" for v in values)])


def as_lines(name, head_dim, partial, max_position, longest, parameters):
    config = LlamaConfig(hidden_size=4 * head_dim, num_attention_heads=4, head_dim=head_dim,
                         max_position_embeddings=max_position,
                         rope_parameters={**parameters, "partial_rotary_factor": partial})
    rope = LlamaRotaryEmbedding(config)
    positions = [1, 100, longest - 1]
    cos, sin = rope(torch.zeros(1), torch.tensor([positions]))
    half = cos.shape[-1] // 2
    original = parameters.get("original_max_position_embeddings", max_position)
    scalars = [parameters.get(key, 0) for key in
               ("factor", "beta_fast", "beta_slow", "truncate", "low_freq_factor", "high_freq_factor")]
    yield line(f"case {name} {KINDS.index(parameters['rope_type'])}",
               [2 * half, longest, original, parameters["rope_theta"], rope.attention_scaling, *scalars])
    for key in ("short_factor", "long_factor"):
        yield line(key, parameters.get(key, [1] * half))
    for position, c, s in zip(positions, cos[0], sin[0]):
        yield line(f"row {position}", [*c[:half], *s[:half]])


def main():
    with open(sys.argv[1], "w", encoding="ascii") as out:
        for case in CASES:
            print(*as_lines(*case), sep="\n", file=out)


main()
