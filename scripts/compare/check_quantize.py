#!/usr/bin/env python3
"""`quire quantize` beside llama.cpp's llama-quantize and its converter.

    check_quantize.py QUIRE LLAMA_BIN MODEL... [--text FILE] [--imatrix FILE] [--types Q4_K_M,Q3_K_M] [--source LLAMA_SOURCE]

LLAMA_BIN is the folder of llama-quantize and llama-perplexity. A MODEL is a float GGUF file, or a folder that Quire makes one
of. For each type both make a file; the tensors' types must be equal, the gguf package must read both, and the error of each
type's tensors (root of the mean square, weighted by the importance matrix if there is one) of Quire's file may be 1.02 of
llama.cpp's at most. With --text both files' perplexity is printed. With --source, the folder of convert_hf_to_gguf.py, that
makes a file of each folder too: tensors and settings must be equal. Needs gguf and numpy; for --source torch and transformers."""

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
NO_ERROR = 1e-30  # of a model that is of the type already
# The converter knows tokenizers by their published models: the tiny folders' is called SmolLM's.
CONVERTER = """
import runpy, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
from conversion import base, phi
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "smollm"
base.TextModel._set_vocab_glm = phi.Phi3MiniModel.set_vocab = base.TextModel._set_vocab_gpt2
script = sys.argv[1] + "/convert_hf_to_gguf.py"
sys.argv = [script, *sys.argv[2:]]
runpy.run_path(script, run_name="__main__")
"""
OTHER_FACTOR = "phimoe.rope.scaling.attn_factor"  # the converter leaves out the folder's own


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire", type=Path)
    parser.add_argument("llama", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--imatrix", type=Path)
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--source", type=Path)
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
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with status {done.returncode}: {done.stderr[-600:]}")
    return time.monotonic() - start


def compare(options, model, kind, folder, importance):
    ours, theirs = folder / "quire.gguf", folder / "llama.gguf"
    matrix = ["--imatrix", options.imatrix] if options.imatrix else []
    seconds = (timed(options.quire, "quantize", model, ours, "--type", kind, "--force", *matrix),
               timed(options.llama / "llama-quantize", *matrix, model, theirs, kind))
    types = [{name: tensor.tensor_type for name, tensor in tensors(path).items()} for path in (ours, theirs)]
    assert types[0] == types[1], {name: (kind, types[1].get(name)) for name, kind in types[0].items() if kind != types[1].get(name)}
    errors = [squared_errors(path, tensors(model), importance) for path in (ours, theirs)]
    ratios = {name: (errors[0][name] / max(errors[1][name], NO_ERROR)) ** 0.5 for name in sorted(errors[0])}
    line = f"  {kind}: {seconds[0]:.1f} s, llama.cpp {seconds[1]:.1f} s; error " + ", ".join(f"{n} {r:.3f}" for n, r in ratios.items())
    if options.text:
        line += f"; perplexity {perplexity(options.llama, ours, options.text)}, llama.cpp {perplexity(options.llama, theirs, options.text)}"
    print(line, flush=True)
    return all(ratio <= TOLERANCE for ratio in ratios.values())


# --- Folders ---

def settings(path):
    """The keys of the architecture and of the tokenizer."""
    found = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}
    return {name: value for name, value in found.items() if name.startswith((found["general.architecture"] + ".", "tokenizer."))}


def same_bytes(a, b):
    """A matrix of one row may be a vector."""
    shapes = [[size for size in tensor.shape.tolist() if size != 1] for tensor in (a, b)]
    return a.tensor_type == b.tensor_type and shapes[0] == shapes[1] and a.data.tobytes() == b.data.tobytes()


def compare_converted(options, model, folder):
    """As BF16, which both write of a BF16 folder unchanged. Quire may state more."""
    ours, theirs = folder / "quire-bf16.gguf", folder / "converter.gguf"
    timed(options.quire, "quantize", model, ours, "--type", "BF16")
    timed(sys.executable, "-c", CONVERTER, options.source, model, "--outtype", "bf16", "--outfile", theirs)
    mine, other = tensors(ours), tensors(theirs)
    wrong = [name for name in {**mine, **other} if name not in mine or name not in other or not same_bytes(mine[name], other[name])]
    mine = settings(ours)
    wrong += [name for name, value in settings(theirs).items() if mine.get(name) != value and name != OTHER_FACTOR]
    print(f"  converter: {len(other)} tensors and {len(mine)} settings, " + (f"differ: {', '.join(wrong)}" if wrong else "equal"), flush=True)
    return not wrong


def check(options, model, folder):
    fine = []
    print(model, flush=True)
    if model.is_dir():
        if options.source:
            fine.append(compare_converted(options, model, folder))
        timed(options.quire, "quantize", model, folder / "float.gguf", "--type", "F32")
        model = folder / "float.gguf"
    importance = read_importance(options.imatrix) if options.imatrix else {}
    fine += [compare(options, model, kind, folder, importance) for kind in options.types.split(",") if kind]
    return all(fine)


def main():
    options = arguments()
    fine = True
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            fine = check(options, model, Path(folder)) and fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
