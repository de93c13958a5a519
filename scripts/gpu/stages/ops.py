"""Every op at the shapes of the models, timed by the device's clock from replays of a recorded batch."""

from gpu_figures import floor_us, measured, percent, share, table
from gpu_models import MODELS, NAMES, pool_mib, shape_words
from gpu_schedule import Item
from stages.golden import QUANTISED_KV

# For attention alone, at the ratios of query to KV heads for which published figures exist.
ATTENTION_ONLY = {"mha 32/32": (4096, 32, 32, 128, 64, 64, 32), "gqa 32/4": (4096, 32, 4, 128, 64, 64, 32)}
# Mixtures of experts alone: hidden, experts, chosen, expert-ffn.
EXPERTS_ONLY = {"experts of olmoe-1b-7b": (2048, 64, 8, 1024), "experts of qwen3-30b-a3b": (2048, 128, 8, 768)}
EXPERT_NAMES = ("hidden", "experts", "chosen", "expert-ffn")
SUMMED_UP = ("64 x 1 of 1024", "64 x 1 of 8192", "1 x 1 of 8192")


def shape_of(name):
    if name in EXPERTS_ONLY:
        return [word for pair in zip(EXPERT_NAMES, EXPERTS_ONLY[name]) for word in pair]
    if name in ATTENTION_ONLY:
        return [word for pair in zip(NAMES, ATTENTION_ONLY[name]) for word in pair]
    return [*shape_words(name), "experts", 0]


def words_of(context, shape):
    if not context.on_gpu:
        return ["rotate-mib", 0, "batch-us", 0]
    return [*shape_of(shape), "max-tokens", 2048, "max-seqs", 256, "max-context", 8192, "max-logits", 256, "pool-mib",
            pool_mib(0, 16384), "batch-us", 3000]


def item(context, shape, *more, label=""):
    name = f"ops/{shape}{label}"
    return Item(name, lambda: context.results.json_lines(name, [
        context.program("bench_device"), context.device, "bf16", *words_of(context, shape), *more]))


def items(context):
    for shape in ATTENTION_ONLY:
        yield item(context, shape, "only", "kv")
        for kv_type in QUANTISED_KV:
            yield item(context, shape, "only", "kv", "kv-type", kv_type, label=f" kv {kv_type}")
    for shape in EXPERTS_ONLY:
        yield item(context, shape, "only", "experts")
    for shape in MODELS:
        yield item(context, shape)


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
    for name, lines in measured(results, "ops/"):
        page += [f"### At the shapes of {name.removeprefix('ops/')}", "", *describe(lines, results.data("limits"))]
    return page


def summary(context):
    """Attention alone, decodes; products of experts."""
    limits = context.results.data("limits")
    for name, lines in measured(context.results, "ops/"):
        decodes = [line for line in lines if line["op"] == "paged_attention" and line["shape"].startswith("decode ")]
        wanted = [line for line in decodes if line["shape"].removeprefix("decode ") in SUMMED_UP] or decodes
        if name.split(" kv ")[0].removeprefix("ops/") in ATTENTION_ONLY:
            yield f"attention {name.removeprefix('ops/')}: " + "; ".join(
                f"{line['shape'].removeprefix('decode ')}: {line['us']:.0f} us {percent(share(line, limits))}"
                for line in wanted[:len(SUMMED_UP)])
        if name.removeprefix("ops/") in EXPERTS_ONLY:
            products = [line for line in lines if line["op"] == "linear_experts" and line["shape"].startswith("gate_up")]
            yield f"{name.removeprefix('ops/')}, gate and up: " + "; ".join(
                f"{line['shape'].split()[1]} tokens: {line['us']:.0f} us {percent(share(line, limits))}"
                for line in products)
