"""Every algorithm that cuBLASLt names for a model's products, timed beside the first: what choosing by
measurement at start gains, which the server does among the first eight. Their results are compared, so that a wrong one is seen."""

from gpu_figures import floor_us, measured, percent, table
from gpu_models import MODELS, NAMES
from gpu_schedule import Item

BUDGET_MS = 800  # for a product and number of rows
ROWS = "1,8,64"
TINY = ["rows", "1,3,8", "rotate-mib", 0, "launches", 2, "replays", 1]
CONFIGURATION = ("tile", "stages", "splits", "cluster")


def words_of(context, shape):
    if not context.on_gpu:
        return TINY
    words = [word for pair in zip(NAMES, MODELS[shape]) for word in pair if pair[0] != "layers"]
    return [*words, "budget-ms", BUDGET_MS, "rows", ROWS]


def item(context, shape):
    name, program = f"products/{shape}", "bench_products" if context.on_gpu else "bench_products_sim"
    return Item(name, lambda: context.results.json_lines(name, [context.program(program), "bf16",
                                                                *words_of(context, shape)]))


def items(context):
    return [item(context, shape) for shape in MODELS]


def gain(first, best):
    return percent(1 - best / first)


def product_rows(lines, limits):
    for line in lines:
        floor = floor_us(line, limits)
        shares = [percent(floor / line[us] if floor else None) for us in ("first_us", "us")]
        best = ", ".join(f"{name} {line[name]}" for name in CONFIGURATION if line.get(name))
        yield [line["product"], line["rows"], f"{line['first_us']:.2f}", f"{line['us']:.2f}",
               gain(line["first_us"], line["us"]), *shares, f"{line['best_index']} of {line['num_candidates']}", best]


def step_rows(lines, layers):
    """All products of a step whose rows are all sampled, as long as the head was measured for as many."""
    for rows in dict.fromkeys(line["rows"] for line in lines):
        first = best = 0.0
        for line in lines:
            if line["rows"] == rows:
                times = 1 if line["product"] == "head" else layers
                first, best = first + times * line["first_us"], best + times * line["us"]
        head = any(line["rows"] == rows and line["product"] == "head" for line in lines)
        yield [rows, f"{first / 1e3:.3f}", f"{best / 1e3:.3f}", gain(first, best), "yes" if head else "no"]


def report(context):
    results, page = context.results, []
    for name, lines in measured(results, "products/"):
        shape = name.removeprefix("products/")
        page += [f"### At the shapes of {shape}", "", *table(
            ["product", "rows", "first us", "best us", "gain", "first's share", "best's share", "best's place",
             "best's configuration"], product_rows(lines, results.data("limits")))]
        layers = dict(zip(NAMES, MODELS[shape]))["layers"]
        page += table(["rows", "products of a step, first ms", "best ms", "gain", "with the head"],
                      step_rows(lines, layers))
    return page


def summary(context):
    """The step of one row, which reads every weight once."""
    found = []
    for shape, numbers in MODELS.items():
        lines = context.results.data(f"products/{shape}")
        for row in step_rows([line for line in lines or () if line["rows"] == 1], numbers[-1]):
            found.append(f"{shape} {row[1]} -> {row[2]} ms ({row[3]})")
    return [f"products of a step of 1 row, first -> best candidate: {'; '.join(found)}"] if found else []
