#!/usr/bin/env python3
"""Writes kernels/quant_grids.h, the grids of GGUF's IQ types: constants of the format.

Run by hand (needs numpy and gguf; written with gguf 0.19.0):

    python scripts/golden/make_quant_grids.py kernels/quant_grids.h && scripts/tree/format.sh fix

The source is the gguf package, `gguf.quants.IQ*.grid`. A grid is a list of points; a point of IQ1 and IQ2 has 8
coordinates of 3 values, one of IQ3 4 of 8. A point is written as one number, its coordinates' ranks as digits in base 3
or 8, the first one the lowest.
"""
import sys

from gguf import quants

HEADER = """/* The grids of GGUF's IQ types, written by scripts/golden/make_quant_grids.py from the gguf package.
 * Included by quant_block.c alone.
 *
 * A point is one number: its coordinates' ranks are the digits, in base 3 for the eight of IQ1 and
 * IQ2, in base 8 for the four of IQ3, the first one lowest. The compiler makes of it the bytes that
 * are looked up. */
#ifndef QUIRE_KERNELS_QUANT_GRIDS_H
#define QUIRE_KERNELS_QUANT_GRIDS_H

#include <stdint.h>

/* The values of ranks. Those of IQ1 are eight times -1, 0 and 1, counted from 128. */
#define IQ1(rank) (UINT64_C(120) + 8 * (rank))
#define IQ2(rank) (UINT64_C(8) + 17 * (rank) + (rank) / 2)
#define IQ3_XXS(rank) (UINT32_C(4) + 8 * (rank) + (rank) / 7 * 2)
#define IQ3_S(rank) (UINT32_C(1) + 2 * (rank))

#define HALF(value, n) \\
    value((n) % 3) | value((n) / 3 % 3) << 8 | value((n) / 9 % 3) << 16 | value((n) / 27 % 3) << 24
#define OF_8(value, n) (HALF(value, n)) | (HALF(value, (n) / 81)) << 32
#define OF_4(value, n) \\
    value((n) % 8) | value((n) / 8 % 8) << 8 | value((n) / 64 % 8) << 16 | value((n) / 512) << 24
#define OF_16(of, value, a, b, c, d, e, f, g, h, ...) \\
    of(value, a), of(value, b), of(value, c), of(value, d), of(value, e), of(value, f), \\
        of(value, g), of(value, h), REST(of, value, __VA_ARGS__)
#define REST(of, value, a, b, c, d, e, f, g, h) \\
    of(value, a), of(value, b), of(value, c), of(value, d), of(value, e), of(value, f), \\
        of(value, g), of(value, h)

/* For every byte of signs the bytes of elements that are negative. */
#define NEGATIVE(n, i) UINT64_C(255) * ((n) >> (i)&1) << 8 * (i)
#define MASK(n) \\
    NEGATIVE(n, 0) | NEGATIVE(n, 1) | NEGATIVE(n, 2) | NEGATIVE(n, 3) | NEGATIVE(n, 4) | \\
        NEGATIVE(n, 5) | NEGATIVE(n, 6) | NEGATIVE(n, 7)
/* 7 bits of signs, and one that makes their sum even. */
#define EVEN(n) (n) | (0x6996 >> (((n) ^ (n) >> 4) & 15) & 1) << 7
#define FROM_4(of, n) of((n)), of((n) + 1), of((n) + 2), of((n) + 3)
#define FROM_16(of, n) \\
    FROM_4(of, n), FROM_4(of, (n) + 4), FROM_4(of, (n) + 8), FROM_4(of, (n) + 12)
#define FROM_64(of, n) \\
    FROM_16(of, n), FROM_16(of, (n) + 16), FROM_16(of, (n) + 32), FROM_16(of, (n) + 48)

static const uint64_t sign_masks[256] = {FROM_64(MASK, 0), FROM_64(MASK, 64), FROM_64(MASK, 128),
                                         FROM_64(MASK, 192)};
static const uint8_t even_signs[128] = {FROM_64(EVEN, 0), FROM_64(EVEN, 64)};

/* clang-format off */
"""
GRIDS = [("iq1", "IQ1", quants.IQ1_S), ("iq2_xxs", "IQ2", quants.IQ2_XXS), ("iq2_xs", "IQ2", quants.IQ2_XS),
         ("iq2_s", "IQ2", quants.IQ2_S), ("iq3_xxs", "IQ3_XXS", quants.IQ3_XXS), ("iq3_s", "IQ3_S", quants.IQ3_S)]


def points_of(kind):
    kind.init_grid()
    values = sorted(kind.grid_map)
    return [sum(values.index(x) * len(values) ** i for i, x in enumerate(point))
            for point in kind.grid.reshape(kind.grid_shape).tolist()]


def main():
    with open(sys.argv[1], "w") as out:
        out.write(HEADER)
        for name, value, kind in GRIDS:
            points = points_of(kind)
            size = kind.grid_shape[1]
            out.write(f"\n#define P(...) OF_16(OF_{size}, {value}, __VA_ARGS__)\n")
            out.write(f"static const uint{8 * size}_t grid_{name}[{len(points)}] = {{\n")
            out.write(",\n".join(f"P({', '.join(map(str, points[i:i + 16]))})" for i in range(0, len(points), 16)))
            out.write("\n};\n#undef P\n")
        out.write("/* clang-format on */\n\n#endif\n")


if __name__ == "__main__":
    main()
