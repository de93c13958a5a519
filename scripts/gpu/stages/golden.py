"""Four small models in both modes, against what Transformers made of them. The others are in the stage
`remaining`."""

MODELS = ("tiny-bf16", "wide-f16", "tiny-q4_0", "kquants")
REHEARSED = ("tiny-bf16",)


def check_model(context, folder, model, dtype="bf16", invariant=False, *more):
    words = [*context.device_words(dtype, invariant), *more]
    name = " ".join([f"golden/{model}", *words])
    context.results.item(name, lambda: context.results.command(
        name, [context.program("test_golden"), folder, model, *words], 300) and None, 10)


def run(context):
    for model in MODELS if context.on_gpu else REHEARSED:
        for invariant in (False, True):
            check_model(context, context.root / "tests/golden", model, invariant=invariant)
