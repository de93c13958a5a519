#!/usr/bin/env python3
"""Random models of every type compute: their logits are finite and of the size that the head's factors are to
give. Arguments: dump_logits.

Exits 77 (skipped, for Meson) where Python has no numpy.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

if importlib.util.find_spec("numpy") is None:
    print("this Python has no numpy")
    sys.exit(77)

import numpy as np

MAKER = Path(__file__).with_name("make_random_model.py")
# Of 256 columns' multiples, and of less.
MODELS = [("small", dtype) for dtype in ("bf16", "f16", "q4_0", "q5_0", "q8_0", "q4_k")] + [("tiny", "q4_k")]
NUM_TOKENS, FIRST_STEP = 12, 8


def logits_of(dump_logits, folder, shape, dtype):
    model, tokens, out = folder / "model.gguf", folder / "tokens", folder / "logits"
    subprocess.run([sys.executable, MAKER, shape, model, "--type", dtype], check=True)
    np.arange(3, 3 + NUM_TOKENS, dtype="<i4").tofile(tokens)
    subprocess.run([dump_logits, "cpu", "bf16", model, tokens, str(FIRST_STEP), out], check=True)
    return np.fromfile(out, "<f4").reshape(NUM_TOKENS, -1)


def check(dump_logits, shape, dtype):
    """A norm's weights are 0.5 to 1.5, and a column's of the head of 1 / sqrt(columns): logits have a deviation
    of about 1."""
    with tempfile.TemporaryDirectory() as folder:
        logits = logits_of(dump_logits, Path(folder), shape, dtype)
    deviation = logits.std(axis=1)
    good = np.isfinite(logits).all() and 0.8 < deviation.min() and deviation.max() < 1.25
    print(f"{'ok' if good else 'not ok'}: {shape} {dtype}, deviation {deviation.min():.2f} to {deviation.max():.2f}")
    return good


if __name__ == "__main__":
    sys.exit(0 if all([check(sys.argv[1], *model) for model in MODELS]) else 1)
