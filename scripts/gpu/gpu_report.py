"""gpu_check.json and gpu_check.md: what was measured, beside the goals; and the short table that ends a call."""

import json
import platform
import time

from gpu_context import ask
from gpu_figures import find, percent, share, table
from gpu_models import MODELS
from gpu_results import FAILED, NOT_RUN, PASSED

TABLE_LINES = 100  # of the short table: what a terminal's end still shows

# What is aimed at: (what, item, op, shape, kind, floor, stretch). The floors are what good systems were
# reported to reach: calm and "No Bubbles" for a single stream, FlashInfer for attention.
GOALS = [
    ("G1 single stream, 8B", "steps/llama-3-8b", "decode", "1 x 1 of 1024", "share", 0.80, 0.90),
    ("G2 single stream, 1B", "steps/llama-3.2-1b", "decode", "1 x 1 of 1024", "share", 0.50, 0.70),
    ("G3 single stream, 135M, us per layer", "steps/smollm2-135m", "decode", "1 x 1 of 128", "us/layer", 15.0, 10.0),
    ("G4 decode attention, MHA, 64 x 1k", "ops/mha 32/32", "paged_attention", "decode 64 x 1 of 1024", "share",
     0.80, 0.88),
    ("G4 decode attention, GQA 8, 64 x 1k", "ops/gqa 32/4", "paged_attention", "decode 64 x 1 of 1024", "share",
     0.55, 0.61),
    ("G4 decode attention, GQA 8, 64 x 8k", "ops/gqa 32/4", "paged_attention", "decode 64 x 1 of 8192", "share",
     0.80, 0.88),
    ("G5 decode steps, 8B, 64 x 1k (the step alone)", "steps/llama-3-8b", "decode", "64 x 1 of 1024", "share",
     0.50, 0.60),
    ("G6 prefill steps, 8B, 2k (the step alone)", "steps/llama-3-8b", "prefill", "1 x 2048 of 2048", "share",
     0.45, 0.60),
]
IDLE_GOAL = ("G7 GPU idle in a single stream's step, 1B", "timelines/llama-3.2-1b decode 1 x 1 of 1024", 0.10, 0.03)


def goal_row(results, limits, goal):
    what, item, op, shape, kind, floor, stretch = goal
    line = find(results, item, op=op, shape=shape)
    if kind == "us/layer":
        value = line["us"] / MODELS[item.split("/")[1]][-1] if line else None
        cells = ["not measured" if value is None else f"{value:.1f} us", f"{floor} us", f"{stretch} us"]
        met = value is not None and value <= floor
    else:
        value = share(line, limits) if line else None
        cells = ["not measured" if value is None else percent(value), percent(floor), percent(stretch)]
        met = value is not None and value >= floor
    return [what, *cells, "-" if value is None else "yes" if met else "no"]


def idle_row(results):
    what, item, floor, stretch = IDLE_GOAL
    account = results.data(item)
    if account is None:
        return [what, "not measured", percent(floor), percent(stretch), "-"]
    idle = account["idle_share"]
    return [what, percent(idle), percent(floor), percent(stretch), "yes" if idle <= floor else "no"]


def describe_goals(context, stages):
    results = context.results
    limits = results.data("limits")
    rows = [goal_row(results, limits, goal) for goal in GOALS] + [idle_row(results)]
    for stage in stages.values():
        rows += stage.goals(context) if hasattr(stage, "goals") else []
    return table(["goal", "measured", "floor", "stretch", "met"], rows)


def describe_items(results):
    rows = []
    for name, entry in results.items.items():
        data = entry.get("data")
        note = entry.get("detail", "")
        if isinstance(data, dict) and "row_error" in data:
            note = f"largest error of a row {data['row_error']:.2e}, allowed {data['allowed']:.2e}"
        rows.append([name, entry["status"], f"{entry['seconds']:.1f}", note])
    return table(["item", "result", "s", ""], rows)


def describe_counts(results):
    return ", ".join(f"{results.count(status)} {status}" for status in (PASSED, FAILED, NOT_RUN))


def describe_machine(context):
    """Of the call that writes the report; what the inventory found is in its item."""
    inventory = context.results.data("inventory") or {}
    return {"device": context.device, "gpu": inventory.get("gpu", "none"), "host": platform.machine(),
            "commit": context.commit or ask("git", "-C", str(context.root), "describe", "--always", "--dirty"),
            "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "quick": context.quick}


def lines_of(stage, name, context):
    """What stage.report or stage.summary says; what it cannot show is in results.json."""
    if not hasattr(stage, name):
        return []
    try:
        return list(getattr(stage, name)(context))
    except Exception as error:
        return [f"{stage.__name__}: no {name}: {type(error).__name__}: {error}", ""]


def make_page(context, stages, machine):
    results = context.results
    page = [f"# gpu_check on {machine['gpu']}", ""]
    if not context.on_gpu:
        page += [f"A rehearsal on {context.device}: no figure here says anything about a GPU.", ""]
    page += table(["", ""], [[key, value] for key, value in machine.items() if value != ""])
    page += ["## Goals", "", *describe_goals(context, stages)]
    for name, stage in stages.items():
        lines = lines_of(stage, "report", context)
        if lines:
            page += [f"## {name.capitalize()}", "", *lines]
    return "\n".join(page + ["## Every item", "", describe_counts(results), "", *describe_items(results)])


def write_report(context, stages):
    """Returns where it is."""
    machine = describe_machine(context)
    path = context.out / "gpu_check.md"
    path.write_text(make_page(context, stages, machine))
    path.with_suffix(".json").write_text(json.dumps({"machine": machine, "items": context.results.items}, indent=1)
                                         + "\n")
    return path


def describe_wrong(results):
    lines = []
    for status in (FAILED, NOT_RUN):
        names = [name for name in results.items if results.status(name) == status]
        lines += [f"{status}:" for _ in names[:1]]
        lines += [f"  {name}: {results.items[name]['detail']}"[:200] for name in names]
    return lines


def make_table(context, stages):
    """What is worth most, in TABLE_LINES lines: what is wrong, the goals, then each stage's own summary."""
    results = context.results
    wrong = describe_wrong(results)
    lines = [f"{describe_machine(context)['gpu']}, {describe_counts(results)}", *describe_goals(context, stages)]
    for stage in stages.values():
        lines += lines_of(stage, "summary", context)
    room = TABLE_LINES - min(len(wrong), TABLE_LINES // 3)
    return lines[:room] + wrong[:TABLE_LINES - min(len(lines), room)]
