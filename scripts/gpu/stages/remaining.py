"""What the stages `checks` and `golden` left out: the other types and modes, every family, quantised KV caches,
embeddings, and random models of real sizes against Transformers."""

import array
import json
import math
import random
import struct

from gpu_models import MODELS, NAMES, TINY, make_model, make_seconds
from gpu_results import Failed
from stages.checks import CHECKS, HAS_INVARIANT_MODE, check_op
from stages.golden import REHEARSED, check_model

TYPES = ("bf16", "f16")
QUANTISED_KV = ("int8", "fp8")
GOLDEN = ("tiny-f32", "tiny-f16", "tiny-bf16", "tiny-q8_0", "tiny-q4_0", "tiny-q4_1", "wide-f16", "wide-q4_0",
          "kquants")
EMBEDDINGS = ("llama", "olmo2", "cohere")
EMBEDDING_ERROR = {"bf16": "4.5e-2", "f16": "6e-3"}
NUM_TOKENS, FIRST_STEP = 96, 64  # of a sequence that is compared with Transformers
REHEARSAL_ERROR = 0.05  # of a row, 16-bit device against float; the golden tests have the exact bounds
TINY_VOCAB = 320


def golden_models(context):
    """(folder, name) of every model; in a rehearsal of one."""
    folder = context.root / "tests/golden"
    if not context.on_gpu:
        return [(folder, name) for name in REHEARSED]
    families = folder / "families"
    return [(folder, name) for name in GOLDEN] + [(families, path.stem) for path in sorted(families.glob("*.gguf"))]


def check_ops(context):
    for op in CHECKS:
        for dtype in TYPES:
            for invariant in (False, True)[:2 if op in HAS_INVARIANT_MODE else 1]:
                check_op(context, op, dtype, invariant)


def check_golden(context):
    for folder, model in golden_models(context):
        for dtype in TYPES if context.on_gpu else TYPES[:1]:
            for invariant in (False, True):
                check_model(context, folder, model, dtype, invariant)
        for kv_type in QUANTISED_KV:
            check_model(context, folder, model, "bf16", True, f"kv-{kv_type}")


def check_embeddings(context):
    families = context.root / "tests/golden/families"
    for family in EMBEDDINGS if context.on_gpu else EMBEDDINGS[:1]:
        for dtype in TYPES:
            name = f"embedding/{family} {context.device} {dtype}"
            words = [families / f"{family}.embedding", families / f"{family}.gguf", context.device, dtype,
                     EMBEDDING_ERROR[dtype]]
            context.results.item(name, lambda: context.results.command(
                name, [context.program("test_embedding"), *words], 300) and None, 10)


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
    model, tokens = make_model(context, shape), write_tokens(context, vocab)
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


def compare_logits(context):
    if not context.on_gpu:
        name = "reference/oracle tiny-bf16"
        context.results.item(name, lambda: compare_with_oracle(context, name))
        return
    for shape in ("smollm2-135m", "llama-3.2-1b") + (() if context.quick else ("llama-3-8b",)):
        for dtype in TYPES:
            name = f"reference/{shape} {dtype}"
            context.results.item(name, lambda: compare_with_transformers(context, name, shape, dtype),
                                 40 + make_seconds(context, shape))


def run(context):
    compare_logits(context)
    if context.on_gpu:
        check_ops(context)
    check_golden(context)
    check_embeddings(context)
