"""Every op at the shapes of the models, timed by the device's clock from replays of a recorded batch."""

from gpu_figures import floor_us, percent, share, table
from gpu_models import MODELS, NAMES, pool_mib, shape_words
from stages.remaining import QUANTISED_KV

# For attention alone, at the ratios of query to KV heads for which published figures exist.
ATTENTION_ONLY = {"mha 32/32": (4096, 32, 32, 128, 64, 64, 32), "gqa 32/4": (4096, 32, 4, 128, 64, 64, 32)}
EXPECTED_S = {"llama-3-8b": 50, "llama-3.2-1b": 35, "smollm2-135m": 25}


def shape_of(name):
    if name in ATTENTION_ONLY:
        return [word for pair in zip(NAMES, ATTENTION_ONLY[name]) for word in pair]
    return shape_words(name) if name in MODELS else []


def measure(context, name, shape, *more):
    words = shape_of(shape)
    if not context.on_gpu:
        words += ["rotate-mib", 0, "batch-us", 0]
    else:
        words += ["max-tokens", 2048 if context.quick else 8192, "max-seqs", 256, "max-context", 32768,
                  "max-logits", 256, "pool-mib", pool_mib(0, 8192 if context.quick else 36864),
                  "batch-us", 3000 if context.quick else 10000]
    return context.results.json_lines(name, [context.program("bench_device"), context.device, "bf16", *words,
                                             *more], 400)


def measure_item(context, name, shape, expect, *more):
    context.results.item(name, lambda: measure(context, name, shape, *more), expect)


def run(context):
    shapes = MODELS if context.on_gpu else ("tiny",)
    attention = ATTENTION_ONLY if context.on_gpu else ()
    for shape in attention:
        measure_item(context, f"ops/{shape}", shape, 40, "only", "kv")
    for shape in shapes:
        measure_item(context, f"ops/{shape}", shape, EXPECTED_S.get(shape, 5))
    for shape in (*shapes, *attention):
        for kv_type in QUANTISED_KV:
            measure_item(context, f"ops/{shape} kv {kv_type}", shape, 40, "only", "kv", "kv-type", kv_type)


def describe(lines, limits):
    rows = []
    for line in lines:
        floor = floor_us(line, limits)
        rate = f"{line['flops'] / line['us'] / 1e6:.1f}" if line["flops"] else "-"
        rows.append([line["op"], line["shape"], f"{line['us']:.2f}", line.get("clock", "host"),
                     "-" if floor is None else f"{floor:.2f}", percent(share(line, limits)),
                     f"{line['bytes'] / line['us'] / 1e3:.0f}", rate])
    return table(["op", "shape", "us", "clock", "floor us", "share", "GB/s", "TFLOP/s"], rows)


def report(context):
    results, page = context.results, []
    for name in results.items:
        lines = results.data(name) if name.startswith("ops/") else None
        if lines:
            page += [f"### At the shapes of {name.removeprefix('ops/')}", "",
                     *describe(lines, results.data("limits"))]
    return page
