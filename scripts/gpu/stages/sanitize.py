"""compute-sanitizer's memcheck and racecheck on the small checks. Last, since it takes long and finds least: the
simulator has watched the same accesses. Narrow tiles of attention order their copies within a warp alone, which
racecheck may report and is right: judge its findings by hand."""

from gpu_context import find_tool
from gpu_results import NotRun
from stages.checks import CHECKS

SANITIZER = "compute-sanitizer"


def check(context, name, tool, program, words):
    sanitizer = find_tool(SANITIZER)
    if not context.on_gpu:
        raise NotRun("it watches a GPU only")
    if sanitizer is None:
        raise NotRun(f"{SANITIZER} is neither on the path nor in /usr/local/cuda/bin")
    context.results.command(name, [sanitizer, "--tool", tool, "--error-exitcode", "9", context.program(program),
                                   *words, context.device, "bf16"], 400)


def run(context):
    programs = {op: (f"check_{op}", ()) for op in CHECKS}
    programs["golden"] = ("test_golden", (context.root / "tests/golden", "tiny-bf16"))
    if not context.on_gpu:
        programs = {"ops": programs["ops"]}
    for tool, labels in (("memcheck", programs), ("racecheck", ("attention",) if context.on_gpu else ())):
        for label in labels:
            program, words = programs[label]
            name = f"sanitize/{tool} {label}"
            context.results.item(name, lambda: check(context, name, tool, program, words), 60)
