"""One check of each op against the oracle, on the device: wrong results are not worth measuring. The other
types and modes are in the stage `remaining`. `group` has as many ranks as there are GPUs, up to 4, by NCCL: with one GPU
it is a rank alone."""

from gpu_results import NotRun

CHECKS = ("ops", "blocks", "matrix", "linear", "attention", "sample", "steps", "record", "group")
HAS_INVARIANT_MODE = ("linear", "attention")
REHEARSED = ("ops",)  # the test suites have all of them


def check_op(context, op, dtype="bf16", invariant=False):
    words = context.device_words(dtype, invariant)
    name = " ".join([f"checks/{op}", *words])

    def check():
        if context.device == "cpu":
            raise NotRun("the CPU's ops have tests of their own")
        context.results.command(name, [context.program(f"check_{op}"), *words], 300)
    context.results.item(name, check, 10)


def run(context):
    for op in CHECKS if context.on_gpu else REHEARSED:
        check_op(context, op)
        if op in HAS_INVARIANT_MODE:
            check_op(context, op, invariant=True)
