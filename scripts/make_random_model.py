#!/usr/bin/env python3
"""Writes a GGUF file of a model with random weights, to measure a machine with. Needs numpy alone.

  scripts/make_random_model.py llama-3-8b /dev/shm/8b.gguf
  scripts/make_random_model.py tiny tiny.gguf --type f16

The weights are cut from one tile of normally distributed numbers, which is quick; each tensor starts at
its own place in it, and the tile's length is prime, so that rows of a matrix differ. They are scaled by
1 / sqrt(columns), so that activations keep their size through the layers. The tokenizer is a plain one
for the right number of tokens.
"""

import argparse

import numpy as np

from gguf_llama import Shape, write_model

SHAPES = {
    "llama-3-8b": Shape(hidden=4096, ffn=14336, layers=32, heads=32, kv_heads=8, head_dim=128,
                        vocab=128256, theta=500000.0, tied=False),
    "llama-3.2-1b": Shape(hidden=2048, ffn=8192, layers=16, heads=32, kv_heads=8, head_dim=64,
                          vocab=128256, theta=500000.0, tied=True),
    "smollm2-135m": Shape(hidden=576, ffn=1536, layers=30, heads=9, kv_heads=3, head_dim=64,
                          vocab=49152, theta=100000.0, tied=True),
    "tiny": Shape(hidden=128, ffn=256, layers=2, heads=4, kv_heads=2, head_dim=64, vocab=512,
                  theta=10000.0, tied=True),
}
TILE_ELEMENTS = 4194301  # prime


def to_bf16(values):
    """Bits, rounded to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class RandomWeights:
    """Gives write_model the bytes of each tensor."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.normal = self.rng.standard_normal(TILE_ELEMENTS, np.float32)
        self.tiles = {}  # by columns

    def tile(self, cols, dtype):
        if cols not in self.tiles:
            scaled = self.normal / np.float32(np.sqrt(cols))
            bits = to_bf16(scaled) if dtype == "bf16" else scaled.astype(np.float16).view(np.uint16)
            self.tiles[cols] = bits
        return self.tiles[cols]

    def pieces(self, name, count, cols, dtype):
        if dtype == "f32":  # a norm
            yield self.rng.uniform(0.5, 1.5, count).astype("<f4").tobytes()
            return
        tile, at = self.tile(cols, dtype), int(self.rng.integers(TILE_ELEMENTS))
        while count > 0:
            piece = tile[at:at + count]
            yield piece.data
            count, at = count - len(piece), 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out")
    parser.add_argument("--type", choices=("bf16", "f16"), default="bf16")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    name = f"random {options.shape}"
    write_model(options.out, name, SHAPES[options.shape], options.type,
                RandomWeights(options.seed).pieces)


if __name__ == "__main__":
    main()
