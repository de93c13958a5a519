"""One check of each op against the oracle, on the device: wrong results are not worth measuring. `group` and
`sample_parallel` have as many ranks as there are GPUs, up to 4, by NCCL: with one GPU the first is a rank alone, and
the second says that it needs two. A check that is red where the schedule has a gate is looked at by compute-sanitizer;
others are when there is time, since the simulator has watched the same accesses. Narrow tiles of attention order their
copies within a warp alone, which racecheck may report and is right: judge its findings by hand."""

import re

from gpu_context import find_tool
from gpu_results import Failed, Hung, NotRun
from gpu_schedule import CHECK, Item

CHECKS = ("linear", "attention", "attention_prefixes", "attention_quantised", "sample_ranges", "sample", "sample_shape",
          "ops", "experts", "matrix", "blocks", "steps", "record", "moves", "moves_recorded", "group", "sample_parallel")
HAS_INVARIANT_MODE = ("linear", "attention", "attention_prefixes", "attention_quantised", "experts", "matrix")
SEES_NO_ACTIVATIONS = ("sample_ranges", "sample", "sample_shape")
SANITIZER = "compute-sanitizer"
SANITIZER_SECONDS = 60  # by then it has found the first error, if a small check has one
# Its first line; what follows is indented.
FINDING = re.compile(r"^========= (?!COMPUTE-SANITIZER|ERROR SUMMARY|Target application)(\S.*)", re.MULTILINE)


def words_of(context, op, dtype, invariant):
    return [context.program(f"check_{op}"), *context.device_words(dtype, invariant)]


def sanitize(context, name, tool, op, dtype, invariant):
    sanitizer = find_tool(SANITIZER)
    if not context.on_gpu:
        raise NotRun("it watches a GPU only")
    if sanitizer is None:
        raise NotRun(f"{SANITIZER} is neither on the path nor in /usr/local/cuda/bin")
    try:
        context.results.command(name, [sanitizer, "--tool", tool, "--error-exitcode", "9",
                                       *words_of(context, op, dtype, invariant)], SANITIZER_SECONDS)
    except Failed as failed:
        found = FINDING.findall(failed.output)
        if isinstance(failed, Hung) and not found:
            raise NotRun(f"nothing was found in {SANITIZER_SECONDS} s, which were not enough") from failed
        raise Failed(f"{found[0]} ({len(found)} such lines)" if found else str(failed), failed.output) from failed


def sanitize_item(context, name, op, dtype="bf16", invariant=False):
    return Item(name, lambda: sanitize(context, name, name.split("/")[0], op, dtype, invariant), CHECK)


def check_item(context, op, dtype, invariant):
    what = f"{op} {dtype}" + " batch-invariant" * invariant
    name = f"checks/{what}"
    return Item(name, lambda: context.results.command(name, words_of(context, op, dtype, invariant)) and None, CHECK,
                sanitized=sanitize_item(context, f"memcheck/{what} (red)", op, dtype, invariant))


def fp8_item(context):
    """Products of E4M3 by E4M3, by tensor cores of compute capability 8.9 and later; skipped on others."""
    name = "checks/linear_fp8 bf16"
    words = [*words_of(context, "linear", "bf16", False), "fp8-activations"]
    return Item(name, lambda: context.results.command(name, words) and None, CHECK)


def items(context):
    for op in CHECKS:
        for dtype in ("bf16",) if op in SEES_NO_ACTIVATIONS else ("bf16", "f16"):
            for invariant in (False, True)[:2 if op in HAS_INVARIANT_MODE else 1]:
                yield check_item(context, op, dtype, invariant)
    yield fp8_item(context)
    for op in CHECKS:
        yield sanitize_item(context, f"memcheck/{op}", op)
    yield sanitize_item(context, "racecheck/attention", "attention")
