#!/usr/bin/env python3
"""Writes a GGUF file of a model with random weights, to measure a machine with. Needs numpy alone.

llama.cpp loads all of them, OpenVINO GenAI those that are not bf16. bench/install_peers.py makes an environment that
has numpy; bench/compare_peers.py makes the model that it is given as random:SHAPE:TYPE.

  scripts/golden/make_random_model.py llama-3-8b /dev/shm/8b.gguf
  scripts/golden/make_random_model.py tiny tiny.gguf --type f16
  scripts/golden/make_random_model.py llama-3.2-1b /dev/shm/1b.gguf --type q4_k

The weights are cut from one tile of random numbers, which is quick; each tensor starts at its own place in
it, and the tile's length is prime, so that rows of a matrix differ. They are scaled to a deviation of
1 / sqrt(columns), so that activations keep their size through the layers: numbers of a plain type are
normally distributed, blocks of a quantised one are random bytes with the factors that give it. With q4_k
the head, and in every other layer attn_v and ffn_down, are q6_k, as files called Q4_K_M have it; rows that
are not whole blocks of 256 are q5_0 and q8_0 instead, as llama.cpp's quantize makes them. The tokenizer is a
plain one for the right number of tokens.
"""

import argparse

import numpy as np

from gguf_llama import BLOCKS, Shape, type_of, write_model

SHAPES = {
    "llama-3-8b": Shape(hidden=4096, ffn=14336, layers=32, heads=32, kv_heads=8, head_dim=128,
                        vocab=128256, theta=500000.0, tied=False),
    "llama-3.2-1b": Shape(hidden=2048, ffn=8192, layers=16, heads=32, kv_heads=8, head_dim=64,
                          vocab=128256, theta=500000.0, tied=True),
    "smollm2-135m": Shape(hidden=576, ffn=1536, layers=30, heads=9, kv_heads=3, head_dim=64,
                          vocab=49152, theta=100000.0, tied=True),
    # Experts as OLMoE-1B-7B has them, half as many layers, and a dense model of the same active parameters.
    "olmoe-half": Shape(hidden=2048, ffn=1024, layers=8, heads=16, kv_heads=16, head_dim=128, vocab=50304,
                        theta=10000.0, tied=False, experts=64, chosen=8),
    "olmoe-half-dense": Shape(hidden=2048, ffn=8192, layers=8, heads=16, kv_heads=16, head_dim=128,
                              vocab=50304, theta=10000.0, tied=False),
    "small-experts": Shape(hidden=512, ffn=256, layers=4, heads=8, kv_heads=2, head_dim=64, vocab=2048,
                           theta=10000.0, tied=True, experts=16, chosen=4),
    "small": Shape(hidden=512, ffn=1536, layers=4, heads=8, kv_heads=2, head_dim=64, vocab=2048,
                   theta=10000.0, tied=True),
    "tiny": Shape(hidden=128, ffn=256, layers=2, heads=4, kv_heads=2, head_dim=64, vocab=512,
                  theta=10000.0, tied=True),
}
TILE_BLOCKS = {1: 4194301, 32: 131071, 256: 16381}  # by elements of a block; primes
# Where a block has its f16 factors, and what they are for a deviation of 1.
FACTORS = {
    "q4_0": {0: 1 / 4.6},
    "q5_0": {0: 1 / 9.25},
    "q8_0": {0: 1 / 73.9},
    "q4_k": {0: 1 / 258, 2: 7.5 / 258},
    "q6_k": {208: 1 / 1366},
}


def to_bf16(values):
    """Bits, rounded to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class RandomWeights:
    """Gives write_model the bytes of each tensor."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.tiles = {}  # by columns and type: blocks

    def make_tile(self, cols, dtype):
        elements, size = BLOCKS[dtype]
        count, scale = TILE_BLOCKS[elements], 1 / np.sqrt(cols)
        if elements == 1:
            values = self.rng.standard_normal(count, np.float32) * np.float32(scale)
            bits = to_bf16(values) if dtype == "bf16" else values.astype("<f2").view(np.uint16)
            return bits.view(np.uint8).reshape(count, size)
        blocks = self.rng.integers(0, 256, (count, size), np.uint8)
        for at, factor in FACTORS[dtype].items():
            blocks[:, at:at + 2] = np.array([factor * scale], "<f2").view(np.uint8)
        return blocks

    def pieces(self, name, count, cols, dtype):
        if name.endswith("ffn_gate_inp"):  # a router whose choices differ from token to token
            yield self.rng.normal(0, 1 / np.sqrt(cols), count).astype("<f4").tobytes()
            return
        if dtype == "f32":  # a norm
            yield self.rng.uniform(0.5, 1.5, count).astype("<f4").tobytes()
            return
        if (cols, dtype) not in self.tiles:
            self.tiles[cols, dtype] = self.make_tile(cols, dtype)
        tile = self.tiles[cols, dtype]
        count, at = count // BLOCKS[dtype][0], int(self.rng.integers(len(tile)))
        while count > 0:
            piece = tile[at:at + count]
            yield piece.data
            count, at = count - len(piece), 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out")
    parser.add_argument("--type", choices=("bf16", "f16", *FACTORS), default="bf16")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    widths = {tensor: cols for tensor, _, cols in shape.tensors()}
    write_model(options.out, f"random {options.shape}", shape, options.type,
                lambda tensor: type_of(tensor, widths[tensor], options.type, shape.tied),
                RandomWeights(options.seed).pieces)


if __name__ == "__main__":
    main()
