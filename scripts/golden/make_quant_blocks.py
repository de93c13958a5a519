#!/usr/bin/env python3
"""Writes tests/unit/kernels/quant_blocks.bin: random blocks of every quantised type and their values.

Run by hand after a type was added (needs numpy and gguf):

    python scripts/golden/make_quant_blocks.py tests/unit/kernels/quant_blocks.bin

The values are those of the gguf package. Factors are f16 of any finite size, subnormal ones and zero
among them; all else in a block is random bytes, E8M0 factors too. For each type: its name in 8 bytes, padded with zeros;
int32 num_blocks, block_bytes, block_elements; the blocks; float32 values.
"""
import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

# Where a block's factors are.
FACTORS = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q8_0: [0], Type.Q5_0: [0], Type.Q5_1: [0, 2],
    Type.IQ4_NL: [0], Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2],
    Type.Q6_K: [208], Type.MXFP4: [], Type.IQ4_XS: [0], Type.TQ2_0: [64], Type.TQ1_0: [52],
    Type.IQ1_S: [0], Type.IQ1_M: [], Type.IQ2_XXS: [0], Type.IQ2_XS: [0], Type.IQ2_S: [0], Type.IQ3_XXS: [0],
    Type.IQ3_S: [0],
}
# The bytes whose high nibbles are IQ1_M's factor.
NIBBLES = [49, 51, 53, 55]
SPECIAL_FACTORS = [0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff]


def make_factors(rng, count):
    factors = rng.integers(0, 0x7c00, count, np.uint16) | rng.integers(0, 2, count, np.uint16) << 15
    factors[:len(SPECIAL_FACTORS)] = rng.permutation(SPECIAL_FACTORS)
    return factors


def make_blocks(rng, kind, count):
    _, block_bytes = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (count, block_bytes), np.uint8)
    for at in FACTORS[kind]:
        blocks[:, at:at + 2] = make_factors(rng, count).astype("<u2").view(np.uint8).reshape(count, 2)
    if kind == Type.IQ1_M:
        factors = make_factors(rng, count)
        for i, at in enumerate(NIBBLES):
            blocks[:, at] = blocks[:, at] & 15 | (factors >> 4 * i & 15) << 4
    return blocks


def main():
    rng = np.random.default_rng(1)
    with open(sys.argv[1], "wb") as out:
        for kind in FACTORS:
            elements, block_bytes = GGML_QUANT_SIZES[kind]
            blocks = make_blocks(rng, kind, 7)
            values = np.concatenate([dequantize(block, kind) for block in blocks])
            name = kind.name.lower().encode().ljust(8, b"\0")
            out.write(struct.pack("<8s3i", name, len(blocks), block_bytes, elements))
            out.write(blocks.tobytes() + values.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
