#!/usr/bin/env python3
"""`quire quantize` beside llama.cpp's llama-quantize, on a float GGUF file.

    check_quantize.py QUIRE LLAMA_BIN MODEL.gguf [--text FILE] [--imatrix FILE] [--types Q4_K_M,Q3_K_M]

LLAMA_BIN is the folder of llama-quantize and llama-perplexity. For each type both make a file; the tensors' types must be
equal, the gguf package must read both, and the error of each type's tensors (root of the mean square, weighted by the
importance matrix if there is one) of Quire's file may be 1.02 of llama.cpp's at most. With --text both files' perplexity
is printed. Needs gguf and numpy."""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import gguf
import numpy as np

TYPES = "Q2_K,Q3_K_S,Q3_K_M,Q3_K_L,Q4_0,Q4_1,Q4_K_S,Q4_K_M,Q5_0,Q5_1,Q5_K_S,Q5_K_M,Q6_K,Q8_0,F16,BF16,F32"
TOLERANCE = 1.02


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire", type=Path)
    parser.add_argument("llama", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--imatrix", type=Path)
    parser.add_argument("--types", default=TYPES)
    return parser.parse_args()


def tensors(path):
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def values(tensor):
    return gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)


def read_importance(path):
    """{tensor: the mean square of each column}, of the GGUF format and of tensors without experts."""
    found = tensors(path)
    return {name.removesuffix(".in_sum2"): sums.data.reshape(-1) for name, sums in found.items()
            if name.endswith(".in_sum2") and found[name.replace(".in_sum2", ".counts")].data.size == 1}


def squared_errors(path, source, importance):
    """{type: the sum of squares} of the file's quantised tensors."""
    sums = defaultdict(float)
    for name, tensor in tensors(path).items():
        if tensor.tensor_type.name.startswith("Q"):
            error = (values(tensor) - values(source[name])).astype(np.float64) ** 2
            sums[tensor.tensor_type.name] += (error * importance.get(name, 1.0)).sum() / error.size
    return sums


def perplexity(llama, path, text):
    done = subprocess.run([llama / "llama-perplexity", "-m", path, "-f", text, "-c", "512", "--chunks", "40"],
                          capture_output=True, text=True, check=True)
    return re.search(r"Final estimate: PPL = ([\d.]+ \+/- [\d.]+)", done.stdout + done.stderr)[1]


def timed(*command):
    start = time.monotonic()
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    return time.monotonic() - start


def compare(options, kind, folder, source, importance):
    ours, theirs = folder / "quire.gguf", folder / "llama.gguf"
    matrix = ["--imatrix", options.imatrix] if options.imatrix else []
    seconds = (timed(options.quire, "quantize", options.model, ours, "--type", kind, "--force", *matrix),
               timed(options.llama / "llama-quantize", *matrix, options.model, theirs, kind))
    types = [{name: tensor.tensor_type for name, tensor in tensors(path).items()} for path in (ours, theirs)]
    assert types[0] == types[1], {name: (kind, types[1].get(name)) for name, kind in types[0].items() if kind != types[1].get(name)}
    errors = [squared_errors(path, source, importance) for path in (ours, theirs)]
    ratios = {name: (errors[0][name] / errors[1][name]) ** 0.5 for name in sorted(errors[0])}
    line = f"{kind}: {seconds[0]:.1f} s, llama.cpp {seconds[1]:.1f} s; error " + ", ".join(f"{n} {r:.3f}" for n, r in ratios.items())
    if options.text:
        line += f"; perplexity {perplexity(options.llama, ours, options.text)}, llama.cpp {perplexity(options.llama, theirs, options.text)}"
    print(line, flush=True)
    return all(ratio <= TOLERANCE for ratio in ratios.values())


def main():
    options = arguments()
    source = tensors(options.model)
    importance = read_importance(options.imatrix) if options.imatrix else {}
    with tempfile.TemporaryDirectory() as folder:
        fine = [compare(options, kind, Path(folder), source, importance) for kind in options.types.split(",")]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
