"""Small models and every family in both modes, some with quantised KV caches, against what Transformers made of
them."""

from gpu_schedule import CHECK, Item

MODELS = ("tiny-f32", "tiny-f16", "tiny-bf16", "tiny-q8_0", "tiny-q4_0", "tiny-q4_1", "wide-f16", "wide-q4_0",
          "kquants")
TYPES = ("bf16", "f16")
QUANTISED_KV = ("int8", "fp8")
WITH_QUANTISED_KV = ("tiny-bf16", "wide-f16", "gemma2")  # whose error such a cache does not raise above the bound


def item(context, folder, model, dtype, invariant, *more):
    name = " ".join([f"golden/{model} {dtype}", *["batch-invariant"] * invariant, *more])
    words = [folder, model, *context.device_words(dtype, invariant), *more]
    return Item(name, lambda: context.results.command(name, [context.program("test_golden"), *words]) and None, CHECK)


def models(context):
    """(folder, name); in a rehearsal of one family."""
    folder = context.root / "tests/golden"
    families = folder / "families"
    names = sorted(path.stem for path in families.glob("*.gguf"))
    return [(folder, name) for name in MODELS] + [(families, name) for name in (names if context.on_gpu else names[:1])]


def items(context):
    for folder, model in models(context):
        for dtype in TYPES:
            for invariant in (False, True):
                yield item(context, folder, model, dtype, invariant)
        for kv_type in QUANTISED_KV if model in WITH_QUANTISED_KV else ():
            yield item(context, folder, model, "bf16", True, f"kv-{kv_type}")
