"""The same work by torch and Transformers on the same GPU, beside ours: a decode in a CUDA graph, as ours are
replayed. A rehearsal computes tiny shapes on the CPU, where torch is there."""

from gpu_figures import find, floor_us, measured, percent, table
from gpu_results import figures_of
from gpu_schedule import Item

MODULES = {"products": ["torch"], "attention": ["torch"], "decode": ["torch"],
           "static": ["torch", "transformers"], "continuous": ["torch", "transformers"]}
WANTED = [("decode", "llama-3.2-1b"), ("decode", "llama-3-8b"), ("decode", "smollm2-135m"),
          ("static", "llama-3.2-1b"), ("continuous", "llama-3.2-1b"), ("attention", "llama-3-8b"),
          ("products", "llama-3-8b"), ("products", "llama-3.2-1b")]
OUR_NAMES = {"o": "attention_out"}  # of products


def measure(context, name, kind, shape):
    words = [shape, "--device", "cuda"] if context.on_gpu else ["tiny", "--device", "cpu"]
    return figures_of(context.python(name, MODULES[kind], "gpu/gpu_baselines.py", kind, *words))


def item(context, kind, shape):
    name = f"baselines/{kind} {shape}"
    return Item(name, lambda: measure(context, name, kind, shape))


def items(context):
    return [item(context, kind, shape) for kind, shape in WANTED]


def ours_beside(results, kind, shape, line):
    """Microseconds of our own of the same, or None."""
    if kind == "decode":
        mine = find(results, f"steps/{shape}", op="decode", shape=line["shape"], sampling="greedy", replayed=True)
    elif kind == "attention":
        mine = find(results, f"ops/{shape}", op="paged_attention", shape=line["shape"])
    elif kind == "products":  # theirs is without the residual, and the head's result in 16 bits
        product = line["op"].removeprefix("linear ")
        mine = find(results, f"products/{shape}", product=OUR_NAMES.get(product, product),
                    rows=int(line["shape"].split()[0]))
        return mine["first_us"] if mine else None
    else:
        mine = None
    return mine["us"] if mine else None


def report(context):
    results, page = context.results, []
    limits = results.data("limits")
    for name, lines in measured(results, "baselines/"):
        kind, shape = name.removeprefix("baselines/").split()
        rows = []
        for line in lines:
            floor, ours = floor_us(line, limits) if line["bytes"] else None, ours_beside(results, kind, shape, line)
            rows.append([line["op"], line["shape"], f"{line['us']:.1f}", f"{line.get('tokens_per_s', 0):.0f}",
                         percent(floor / line["us"] if floor else None), "-" if ours is None else f"{ours:.1f}",
                         "-" if ours is None else f"{line['us'] / ours:.2f}"])
        page += [f"### {name.removeprefix('baselines/')}", "", *table(
            ["what", "shape", "us", "tokens/s", "share of the limit", "ours, us", "theirs / ours"], rows)]
    return page


def summary(context):
    for name, lines in measured(context.results, "baselines/decode "):
        shape = name.removeprefix("baselines/decode ")
        found = []
        for line in lines:
            ours = ours_beside(context.results, "decode", shape, line)
            found.append(f"{line['shape'].split(' x ')[0]}: {line['us'] / 1e3:.3f} ms"
                         + (f", {line['us'] / ours:.2f} times ours" if ours else ""))
        yield f"torch {shape} decode {'; '.join(found)}"
