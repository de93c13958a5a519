"""Whole steps of models, as the server computes them: decodes op by op and replayed from recordings, greedy and
sampled; prompts and both mixed; all by one run of a model, whose load costs more than a measurement. In the
batch-invariant mode, which needs a device opened so; and the start from nothing."""

from gpu_context import ask_gpu
from gpu_figures import find, measured, percent, share, table
from gpu_models import MODELS, WEIGHT_MIB, model_path, pool_mib
from gpu_schedule import Item

INVARIANT = " batch-invariant"
LEVELS = ("sm_80", "sm_90")  # of --gpu-isa: what the later ones are worth, or the way out if one is wrong
LEVELS_OF = {80: (), 90: LEVELS}  # by compute capability, where not the first alone is less than what there is
PACKED = ("llama-3-8b", "q4_k")  # weights that are multiplied packed, beside the same shape in 16 bits
STARTED = [("llama-3.2-1b", "q4_k"), ("llama-3-8b", "bf16"), ("llama-3.2-1b", "bf16")]
PARTS_OF_START = ("open_us", "weights_us", "first_step_us")
PROMPTS = {"llama-3-8b": "512,2048,8192"}  # of the others 2048 alone
CONTEXTS = {"smollm2-135m": "128,1024"}  # of the others 1024 alone


def words_of(context, shape, invariant=False, batches=None):
    """batches: these of decodes alone, as the server does them."""
    if not context.on_gpu:
        words = ["batches", "1,4", "contexts", "64", "prompts", "32", "mixed", "16", "mixed-seqs", 3,
                 "mixed-context", 40, "pool-mib", 1, "batch-us", 0]
    else:
        words = ["batches", batches or ("1,64" if invariant else "1,8,64,256"),
                 "contexts", CONTEXTS.get(shape, "1024"), "prompts",
                 "2048" if invariant or batches else PROMPTS.get(shape, "2048"), "mixed", "512",
                 "pool-mib", pool_mib(WEIGHT_MIB[shape], 96 * 1024)]
    if invariant:
        return words + ["batch-invariant", 1, "replay", 1]
    return words + (["sampling", "greedy", "replay", 1] if batches else ["sampling", "greedy,top-p", "replay", 2])


def bench(context, name, model, *words):
    return context.results.json_lines(name, [context.program("bench_model"), context.device, "bf16",
                                             model_path(context, model), *words])


def steps_item(context, shape, invariant):
    name, model = f"steps/{shape}" + INVARIANT * invariant, (shape, "bf16")
    return Item(name, lambda: bench(context, name, model, *words_of(context, shape, invariant)), model=model)


def short_item(context, model, suffix, batches, *more):
    name = f"steps/{model[0]} {suffix}"
    return Item(name, lambda: bench(context, name, model, *words_of(context, model[0], batches=batches), *more), model=model)


def levels_of(context):
    return LEVELS_OF.get(int(ask_gpu("compute_cap")[0].replace(".", "")), LEVELS[:1]) if context.on_gpu else LEVELS


def start_item(context, model):
    name, pool = "start/{} {}".format(*model), 1024 if context.on_gpu else 1
    return Item(name, lambda: bench(context, name, model, "pool-mib", pool), model=model)


def items(context):
    for shape in MODELS:
        for invariant in (False, True):
            yield steps_item(context, shape, invariant)
        if shape == PACKED[0]:
            yield short_item(context, PACKED, PACKED[1], "1,8,32,64")
            for level in levels_of(context):
                yield short_item(context, (shape, "bf16"), level, "1,64", "isa", level)
    for model in STARTED:
        yield start_item(context, model)


def rows_of(results, lines):
    limits, rows = results.data("limits"), []
    for line in lines:
        if line["op"] != "start":
            parts = [f"{line[part] / 1e3:.3f}" if part in line else "-" for part in ("us", "device_us", "enqueue_us")]
            rows.append([line["op"], line["sampling"], "yes" if line["replayed"] else "no", line["shape"], *parts,
                         f"{line['tokens_per_s']:.0f}", percent(share(line, limits))])
    return rows


def start_rows(results):
    of_steps = [(name, lines) for name, lines in measured(results, "steps/") if name.endswith(PACKED[1])]
    starts = [(name, next(line for line in lines if line["op"] == "start"))
              for name, lines in [*measured(results, "start/"), *of_steps]]
    return [[name.partition("/")[2], *(f"{line[part] / 1e6:.2f}" for part in ("us", *PARTS_OF_START))]
            for name, line in starts]


def report(context):
    results, page = context.results, []
    for name, lines in measured(results, "steps/"):
        page += [f"### {name.removeprefix('steps/')}", "", *table(
            ["step", "sampling", "replayed", "sequences x tokens of context", "ms", "of it the device's",
             "the host's to enqueue", "tokens/s", "share"], rows_of(results, lines))]
    rows = start_rows(results)
    if rows:
        page += ["### From nothing to the first token, the file in the page cache", "", *table(
            ["model", "s", "opening", "weights", "first step"], rows)]
    return page


def describe_decode(results, shape, of):
    """The step as the server does it, and what other ways to do it take."""
    line = find(results, f"steps/{shape}", op="decode", shape=of, sampling="greedy", replayed=True)
    if line is None:
        return f"{of}: not measured"
    others = {"op by op": find(results, f"steps/{shape}", op="decode", shape=of, sampling="greedy", replayed=False),
              "top-p": find(results, f"steps/{shape}", op="decode", shape=of, sampling="top-p", replayed=True),
              "invariant": find(results, f"steps/{shape}{INVARIANT}", op="decode", shape=of)}
    beside = ", ".join(f"{name} {other['us'] / 1e3:.3f}" for name, other in others.items() if other)
    return (f"{of}: {line['us'] / 1e3:.3f} ms, {line['tokens_per_s']:.0f} tok/s, "
            f"{percent(share(line, results.data('limits')))}; {beside}")


def summary(context):
    results, limits = context.results, context.results.data("limits")
    for shape in (*MODELS, "{} {}".format(*PACKED), *(f"{PACKED[0]} {level}" for level in LEVELS)):
        lines = results.data(f"steps/{shape}") or []
        shapes = dict.fromkeys(line["shape"] for line in lines if line["op"] == "decode")
        for of in [of for of in shapes if not of.endswith(" of 128")]:  # the goal G3 has that
            yield f"{shape} decode {describe_decode(results, shape, of)}"
        rest = [f"{line['op']} {line['shape']}: {line['us'] / 1e3:.2f} ms {percent(share(line, limits))}"
                for line in lines if line["op"] in ("prefill", "mixed") and line["sampling"] == "greedy"]
        for at in range(0, len(rest), 2):
            yield f"{shape} {'; '.join(rest[at:at + 2])}"
    for row in start_rows(results):
        yield f"start {row[0]}: {row[1]} s"
