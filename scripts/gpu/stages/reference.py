"""Random models of real sizes against Transformers; embeddings."""

import array
import json
import math
import random
import struct

from gpu_models import MODELS, NAMES, TINY, model_path
from gpu_results import Failed
from gpu_schedule import CHECK, Item

TYPES = ("bf16", "f16")
EMBEDDINGS = ("llama", "olmo2", "cohere")
EMBEDDING_ERROR = {"bf16": "4.5e-2", "f16": "6e-3"}
NUM_TOKENS, FIRST_STEP = 96, 64  # of a sequence that is compared with Transformers
REHEARSAL_ERROR = 0.05  # of a row, 16-bit device against float; the golden tests have the exact bounds
TINY_VOCAB = 320


def embedding_item(context, family, dtype):
    families, name = context.root / "tests/golden/families", f"embedding/{family} {dtype}"
    words = [families / f"{family}.embedding", families / f"{family}.gguf", context.device, dtype,
             EMBEDDING_ERROR[dtype]]

    def check():
        context.results.command(name, [context.program("test_embedding"), *words])
    return Item(name, check, CHECK)


def write_tokens(context, vocab):
    path = context.scratch(f"tokens-{vocab}")
    draw = random.Random(1)
    path.write_bytes(struct.pack(f"<{NUM_TOKENS}i", *(draw.randrange(3, vocab) for _ in range(NUM_TOKENS))))
    return path


def dump_logits(context, name, device, dtype, model, tokens, vocab):
    out = context.scratch(f"logits-{device}-{dtype}", NUM_TOKENS * vocab * 4)
    context.results.command(name, [context.program("dump_logits"), device, dtype, model, tokens, FIRST_STEP, out])
    return out


def compare_with_transformers(context, name, shape, dtype):
    vocab = MODELS[shape][NAMES.index("vocab")]
    model, tokens = model_path(context, (shape, "bf16")), write_tokens(context, vocab)
    ours = dump_logits(context, name, context.device, dtype, model, tokens, vocab)
    return json.loads(context.python(name, ["numpy", "torch", "transformers"], "gpu/gpu_reference.py", model,
                                     tokens, ours, "--type", dtype))


def read_rows(path, vocab):
    values = array.array("f", path.read_bytes())
    return [values[at:at + vocab] for at in range(0, len(values), vocab)]


def row_error(row, reference):
    difference = sum((a - b) ** 2 for a, b in zip(row, reference))
    return math.sqrt(difference / sum(b * b for b in reference))


def compare_with_oracle(context, name):
    """The rehearsal: a small committed model against the project's own oracle."""
    model, tokens = context.root / TINY, write_tokens(context, TINY_VOCAB)
    ours, oracle = (read_rows(dump_logits(context, name, device, "bf16", model, tokens, TINY_VOCAB), TINY_VOCAB)
                    for device in (context.device, "cpu-ref"))
    errors = [row_error(*rows) for rows in zip(ours, oracle)]
    if len(errors) != NUM_TOKENS or not max(errors) <= REHEARSAL_ERROR:
        raise Failed(f"a row is off by {max(errors):.2e}, allowed {REHEARSAL_ERROR}")
    return {"row_error": max(errors), "allowed": REHEARSAL_ERROR, "tokens": len(errors)}


def reference_item(context, shape, dtype):
    name = f"reference/{shape} {dtype}"

    def compare():
        if context.on_gpu:
            return compare_with_transformers(context, name, shape, dtype)
        return compare_with_oracle(context, name)
    return Item(name, compare, CHECK, model=(shape, "bf16"))


def items(context):
    for shape in MODELS:
        for dtype in TYPES:
            yield reference_item(context, shape, dtype)
    for family in EMBEDDINGS:
        for dtype in TYPES:
            yield embedding_item(context, family, dtype)
