"""Whole steps of models, as the server computes them: decodes, prompts and both mixed, greedy and sampled, in
the batch-invariant mode; decodes recorded and replayed, beside those op by op; and the start from nothing."""

from gpu_figures import percent, share, table
from gpu_models import MODELS, WEIGHT_MIB, make_model, make_seconds, pool_mib

EXPECTED_S = {"llama-3-8b": 50, "llama-3.2-1b": 35, "smollm2-135m": 25}
LABELS = ("", " replayed", " sampled", " batch-invariant")
STARTED = [(shape, dtype) for shape in ("llama-3.2-1b", "llama-3-8b") for dtype in ("bf16", "q4_k")]
PARTS_OF_START = ("open_us", "weights_us", "first_step_us")


def words_of(context, shape, few):
    if not context.on_gpu:
        return ["batches", "1,4", "contexts", "64", "prompts", "32", "mixed", "16", "mixed-seqs", 3,
                "mixed-context", 40, "pool-mib", 1, "batch-us", 0]
    return ["batches", "1,64" if few else "1,8,64,256", "contexts", "1024" if few else "128,1024,4096",
            "prompts", "2048" if few else "512,2048,8192", "mixed", "512",
            "pool-mib", pool_mib(WEIGHT_MIB[shape], 96 * 1024)]


def bench(context, name, model, *words):
    return context.results.json_lines(name, [context.program("bench_model"), context.device, "bf16", model, *words],
                                      400)


def measure(context, name, shape, *more, few=False):
    return bench(context, name, make_model(context, shape), *words_of(context, shape, few or context.quick), *more)


def measure_steps(context, shape):
    expect = EXPECTED_S.get(shape, 5)
    name = f"steps/{shape}"
    context.results.item(name, lambda: measure(context, name, shape), expect + make_seconds(context, shape))
    replayed = f"steps/{shape} replayed"
    context.results.item(replayed, lambda: measure(context, replayed, shape, "replay", 1), expect)
    sampled = f"steps/{shape} sampled"
    context.results.item(sampled, lambda: measure(context, sampled, shape, "sampling", "temperature,top-p", few=True),
                         expect // 2)
    invariant = f"steps/{shape} batch-invariant"
    context.results.item(invariant, lambda: measure(context, invariant, shape, "batch-invariant", 1, few=True),
                         expect // 2)


def measure_start(context, shape, dtype):
    name = f"start/{shape} {dtype}"
    context.results.item(name, lambda: bench(context, name, make_model(context, shape, dtype), "pool-mib", 1024),
                         20 + make_seconds(context, shape, dtype))


def run(context):
    for shape in MODELS if context.on_gpu else ("tiny",):
        measure_steps(context, shape)
    for shape, dtype in STARTED if context.on_gpu else ():
        measure_start(context, shape, dtype)


def rows_of(results, item):
    limits, rows = results.data("limits"), []
    for line in results.data(item) or ():
        if line["op"] == "start":
            continue
        parts = [f"{line[part] / 1e3:.3f}" if part in line else "-" for part in ("us", "device_us", "enqueue_us")]
        rows.append([line["op"], line["sampling"], line["shape"], *parts, f"{line['tokens_per_s']:.0f}",
                     percent(share(line, limits))])
    return rows


def start_rows(results):
    """Of the items of their own, and the first line of every other."""
    rows = []
    for name in results.items:
        for line in results.data(name) or () if name.startswith(("start/", "steps/tiny")) else ():
            if line["op"] == "start":
                rows.append([name, *(f"{line[part] / 1e6:.2f}" for part in ("us", *PARTS_OF_START))])
    return rows


def report(context):
    results, page = context.results, []
    for shape in [*MODELS, "tiny"]:
        for label in LABELS:
            rows = rows_of(results, f"steps/{shape}{label}")
            if rows:
                page += [f"### {shape}{label}", "", *table(
                    ["step", "sampling", "sequences x tokens of context", "ms", "of it the device's",
                     "the host's to enqueue", "tokens/s", "share"], rows)]
    rows = start_rows(results)
    if rows:
        page += ["### From nothing to the first token, the file in the page cache", "", *table(
            ["model", "s", "opening", "weights", "first step"], rows)]
    return page


def is_summed_up(shape, of):
    """One context stands for the others where there are many."""
    return shape == "tiny" or not of.endswith((" of 128", " of 4096"))


def summary(context):
    lines = []
    for shape, label in [(shape, label) for shape in [*MODELS, "tiny"] for label in ("", " replayed")]:
        for op, sampling, of, ms, device, enqueue, rate, part in rows_of(context.results, f"steps/{shape}{label}"):
            if not is_summed_up(shape, of) or (label and op != "decode"):
                continue
            lines.append(f"{shape:13} {op + label:17} {of:24} {ms:>9} ms, device {device:>9}, enqueue {enqueue:>7}, "
                         f"{rate:>7} tok/s, {part}")
    return lines + [f"start {row[0].removeprefix('start/'):20} {row[1]:>6} s" for row in start_rows(context.results)
                    if row[0].startswith("start/")]
