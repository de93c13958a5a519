"""gpu_check.md: what was measured, beside the goals; and the short table that ends a call."""

import platform
import textwrap
import time

from gpu_context import ask
from gpu_figures import find, percent, share, table
from gpu_models import MODELS
from gpu_results import FAILED, NOT_RUN, PASSED
from gpu_schedule import find_row

# Of the short table, which whoever sees the end of the output alone still sees.
TABLE_LINES, TABLE_COLUMNS = 60, 120
RED_LINES = 16  # of it, for what is wrong
NAMES_LINES = 2  # for the names of items of which the same is to be said

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
AS_SERVED = {"decode": {"sampling": "greedy", "replayed": True}, "prefill": {"sampling": "greedy"}}
IDLE_GOAL = ("G7 GPU idle in a single stream's step, 1B", "timelines/llama-3.2-1b decode 1 x 1 of 1024", 0.10, 0.03)


def goal_row(results, limits, goal):
    what, item, op, shape, kind, floor, stretch = goal
    line = find(results, item, op=op, shape=shape, **AS_SERVED.get(op, {}))
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


def goal_rows(context, stages):
    results = context.results
    limits = results.data("limits")
    rows = [goal_row(results, limits, goal) for goal in GOALS] + [idle_row(results)]
    for stage in stages.values():
        rows += stage.goals(context) if hasattr(stage, "goals") else []
    return rows


def describe_items(results):
    rows = []
    for name, entry in results.items.items():
        data = entry.get("data")
        note = entry.get("detail", "")
        if isinstance(data, dict) and "row_error" in data:
            note = f"largest error of a row {data['row_error']:.2e}, allowed {data['allowed']:.2e}"
        rows.append([name, entry["status"], f"{entry.get('start', 0):.0f}", f"{entry['seconds']:.1f}",
                     f"{entry.get('expected', 0):.0f}", note])
    return table(["item", "result", "from s", "s", "expected", ""], rows)


def describe_counts(results):
    return ", ".join(f"{results.count(status)} {status}" for status in (PASSED, FAILED, NOT_RUN))


def describe_machine(context):
    """Of the call that writes the report; what the inventory found is in its item."""
    inventory = context.results.data("inventory") or {}
    return {"device": context.device, "gpu": inventory.get("gpu", "none"), "host": platform.machine(),
            "commit": context.commit or ask("git", "-C", str(context.root), "describe", "--always", "--dirty"),
            "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}


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
    page += ["## Goals", "", *table(["goal", "measured", "floor", "stretch", "met"], goal_rows(context, stages))]
    for name, stage in stages.items():
        lines = lines_of(stage, "report", context)
        if lines:
            page += [f"## {name.capitalize()}", "", *lines]
    return "\n".join(page + ["## Every item", "", describe_counts(results), "", *describe_items(results)])


def write_report(context, stages):
    """The page and the table, which is returned."""
    (context.out / "gpu_check.md").write_text(make_page(context, stages, describe_machine(context)))
    lines = make_table(context, stages)
    (context.out / "table.txt").write_text("\n".join(lines) + "\n")
    return lines


# --- The short table -----------------------------------------------------------------------------

def clip(line):
    return line if len(line) <= TABLE_COLUMNS else line[:TABLE_COLUMNS - 3] + "..."


def list_names(head, names):
    """In few lines; the others are counted."""
    for count in range(len(names), 0, -1):
        text = ", ".join(names[:count]) + (f" and {len(names) - count} more" if count < len(names) else "")
        lines = textwrap.wrap(f"{head}: {text}", TABLE_COLUMNS, subsequent_indent="  ")
        if len(lines) <= NAMES_LINES:
            return lines
    return [clip(f"{head}: {len(names)} items")]


def describe_red(results):
    red = [f"RED {name}: {entry['detail']}" for name, entry in results.items.items() if entry["status"] == FAILED]
    return red if len(red) <= RED_LINES else [*red[:RED_LINES - 1], f"RED and {len(red) - RED_LINES + 1} more"]


def describe_rest(results):
    """What was not run, by its reason, and what took long."""
    reasons, late = {}, []
    for name, entry in results.items.items():
        if entry["status"] == NOT_RUN:
            reasons.setdefault((bool(entry.get("left_out")), entry["detail"]), []).append(name)
        if entry.get("expected") and entry["seconds"] > 2 * entry["expected"]:
            late.append(f"{name} ({entry['seconds']:.0f} s, {entry['expected']:.0f} expected)")
    lines = list_names("SLOW", late) if late else []
    for (is_left_out, reason), names in reasons.items():
        names.sort(key=lambda name: -find_row(name)[2])
        lines += list_names(f"{'left out' if is_left_out else 'not run'}, {reason}", names)
    return lines


def make_table(context, stages):
    """What is worth most, in TABLE_LINES lines: what is wrong, what was not done, the goals, each stage's figures."""
    machine, results = describe_machine(context), context.results
    lines = [f"{machine['gpu']}, {machine['commit']}, {machine['date']}: {describe_counts(results)}",
             *lines_of(stages["inventory"], "summary", context), *describe_red(results)]
    rest = describe_rest(results)[:RED_LINES]
    lines += [f"{what}: {value} (floor {floor}, stretch {stretch}){'' if met == '-' else f', met: {met}'}"
              for what, value, floor, stretch, met in goal_rows(context, stages)]
    for name, stage in stages.items():
        lines += lines_of(stage, "summary", context) if name != "inventory" else []
    room = TABLE_LINES - len(rest)
    if len(lines) > room:
        lines[room - 1:] = [f"and {len(lines) - room + 1} more lines in gpu_check.md"]
    return [clip(line) for line in lines + rest if line]
