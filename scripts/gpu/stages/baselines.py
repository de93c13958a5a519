"""The same work by torch and Transformers on the same GPU, beside ours. A rehearsal computes tiny shapes on the
CPU, where torch is there."""

from gpu_figures import find, floor_us, percent, table
from gpu_results import figures_of

MODULES = {"products": ["torch"], "attention": ["torch"], "decode": ["torch"],
           "static": ["torch", "transformers"], "continuous": ["torch", "transformers"]}
WANTED = [("decode", "llama-3.2-1b"), ("decode", "llama-3-8b"), ("decode", "smollm2-135m"),
          ("static", "llama-3.2-1b"), ("continuous", "llama-3.2-1b"), ("attention", "llama-3-8b"),
          ("products", "llama-3-8b"), ("products", "llama-3.2-1b")]
EXPECTED_S = {"products": 40, "attention": 15, "decode": 30, "static": 40, "continuous": 60}
OUR_NAMES = {"o": "attention_out"}  # of products


def measure(context, name, kind, shape):
    out = context.python(name, MODULES[kind], "gpu/gpu_baselines.py", kind, shape, "--device",
                         "cuda" if context.on_gpu else "cpu")
    return figures_of(out)


def run(context):
    wanted = WANTED if context.on_gpu else [(kind, "tiny") for kind in MODULES]
    for kind, shape in wanted:
        name = f"baselines/{kind} {shape}"
        context.results.item(name, lambda: measure(context, name, kind, shape),
                             EXPECTED_S[kind] if context.on_gpu else 5)


def ours_beside(results, kind, shape, line):
    """Microseconds of our own of the same, or None."""
    if kind == "decode":
        mine = find(results, f"steps/{shape}", op="decode", shape=line["shape"])
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
    for name in results.items:
        lines = results.data(name) if name.startswith("baselines/") else None
        if not lines:
            continue
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
