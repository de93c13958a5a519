"""Whole steps of models, as the server computes them: decodes and prompts, greedy and sampled, mixed, in the
batch-invariant mode."""

from gpu_figures import percent, share, table
from gpu_models import MODELS, WEIGHT_MIB, make_model, make_seconds, pool_mib

EXPECTED_S = {"llama-3-8b": 50, "llama-3.2-1b": 35, "smollm2-135m": 25}


def words_of(context, shape, few):
    if not context.on_gpu:
        return ["batches", "1,4", "contexts", "64", "prompts", "32", "pool-mib", 1, "batch-us", 0]
    return ["batches", "1,64" if few else "1,8,64,256", "contexts", "1024" if few else "128,1024,4096",
            "prompts", "2048" if few else "512,2048,8192",
            "pool-mib", pool_mib(WEIGHT_MIB[shape], 96 * 1024)]


def measure(context, name, shape, *more, few=False):
    words = words_of(context, shape, few or context.quick)
    model = make_model(context, shape)
    return context.results.json_lines(name, [context.program("bench_model"), context.device, "bf16", model, *words,
                                             *more], 400)


def measure_steps(context, shape):
    expect = EXPECTED_S.get(shape, 5)
    name = f"steps/{shape}"
    context.results.item(name, lambda: measure(context, name, shape), expect + make_seconds(context, shape))
    invariant = f"steps/{shape} batch-invariant"
    context.results.item(invariant, lambda: measure(context, invariant, shape, "batch-invariant", 1, few=True),
                         expect // 2)


def run(context):
    for shape in MODELS if context.on_gpu else ("tiny",):
        measure_steps(context, shape)


def rows_of(results, item, sampling=""):
    limits, rows = results.data("limits"), []
    for line in results.data(item) or ():
        if line["op"] == "start":
            continue
        device = line.get("device_us")
        rows.append([line["op"], line.get("sampling", sampling), line["shape"], f"{line['us'] / 1e3:.3f}",
                     "-" if device is None else f"{device / 1e3:.3f}",
                     f"{line.get('tokens_per_s', 0):.0f}", percent(share(line, limits))])
    return rows


def report(context):
    results, page = context.results, []
    for shape in [*MODELS, "tiny"]:
        for label in ("", " batch-invariant"):
            rows = rows_of(results, f"steps/{shape}{label}")
            if rows:
                page += [f"### {shape}{label}", "", *table(
                    ["step", "sampling", "sequences x tokens of context", "ms", "of it the device's", "tokens/s",
                     "share"], rows)]
    return page


def summary(context):
    lines = []
    for shape in [*MODELS, "tiny"]:
        for row in rows_of(context.results, f"steps/{shape}"):
            lines.append(f"{shape:13} {row[0]:8} {row[2]:18} {row[3]:>9} ms {row[5]:>8} tok/s {row[6]:>7}")
    return lines
