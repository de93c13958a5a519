#!/usr/bin/env python3
"""Fits the cost of a step (cost_model.h) to measured or published steps, by least squares of relative errors.

  fit_cost_model.py BENCH_MODEL_OUTPUT...   lines of bench_model (--batches, --contexts, --prompts, --mixed); several
                                            runs are fitted together
  fit_cost_model.py --h100                  the paper model of an 8B model on an H100 (H100_STEPS)

Prints the coefficients in nanoseconds and how far each step is from them. A coefficient that would be negative is 0."""

import json
import re
import sys

NAMES = ("step", "token", "context_token", "pair", "sample")

# A roofline of the 8B shape (15.0 GB of bf16 weights, 128 KiB of KV a token) on an H100 SXM, with allowances for launches,
# gaps and the efficiency of products and attention: computed, not measured. (tokens of each sequence, sequences, context):
# milliseconds.
H100_STEPS = {(1, 1, 1024): 6.8, (1, 8, 1024): 7.1, (1, 64, 1024): 10.2, (1, 256, 1024): 22.6,
              (512, 1, 512): 17, (2048, 1, 2048): 55, (8192, 1, 8192): 284}


def features(sequences):
    """Of (tokens, context after them) of each sequence of a step, what its cost is made of."""
    pairs = sum(n * (context - n) + n * (n + 1) / 2 for n, context in sequences)
    return [1, sum(n for n, _ in sequences), sum(context for _, context in sequences), pairs, len(sequences)]


def sequences_of(line):
    """The sequences of a line of bench_model: `SEQS x TOKENS of CONTEXT` and, of a mixed step, `+ CHUNK`."""
    seqs, tokens, context, chunk = re.fullmatch(r"(\d+) x (\d+) of (\d+)(?: \+ (\d+))?", line["shape"]).groups()
    chunk = [(int(chunk), int(chunk))] if chunk else []
    return [(int(tokens), int(context))] * int(seqs) + chunk


def solve(matrix, right):
    """The solution of the linear equations, by elimination with the largest pivots."""
    rows = [row + [value] for row, value in zip(matrix, right)]
    for column in range(len(rows)):
        pivot = max(range(column, len(rows)), key=lambda row: abs(rows[row][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for row in range(len(rows)):
            if row != column:
                factor = rows[row][column] / rows[column][column]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[column])]
    return [row[-1] / row[place] for place, row in enumerate(rows)]


def least_squares(rows):
    """The coefficients with which the sums over each row are nearest to 1."""
    columns = list(zip(*rows))
    scales = [max(column) for column in columns]
    columns = [[value / scale for value in column] for column, scale in zip(columns, scales)]
    products = [[sum(a * b for a, b in zip(x, y)) for y in columns] for x in columns]
    return [value / scale for value, scale in zip(solve(products, [sum(x) for x in columns]), scales)]


def fit(steps):
    """[(features, nanoseconds)] -> coefficients, none negative: those that would be are left out one by one."""
    kept = list(range(len(NAMES)))
    while True:
        found = least_squares([[row[i] / time for i in kept] for row, time in steps])
        if min(found) >= 0:
            return [dict(zip(kept, found)).get(i, 0.0) for i in range(len(NAMES))]
        kept.remove(kept[found.index(min(found))])


def main():
    if sys.argv[1:] == ["--h100"]:
        steps = {f"{seqs} x {n} of {context}": (features([(n, context)] * seqs), ms * 1e6)
                 for (n, seqs, context), ms in H100_STEPS.items()}
    else:
        steps = {}
        for path in sys.argv[1:]:
            for line in map(json.loads, open(path)):
                if line["op"] != "start":
                    steps[f"{line['shape']} ({path})"] = (features(sequences_of(line)), line["us"] * 1e3)
    coefficients = fit(list(steps.values()))
    for name, value in zip(NAMES, coefficients):
        print(f"{name:14} {value:14.2f} ns")
    for name, (row, time) in steps.items():
        print(f"{name:60} {time / 1e6:10.2f} ms, model {sum(a * b for a, b in zip(row, coefficients)) / time - 1:+.0%}")


if __name__ == "__main__":
    main()
