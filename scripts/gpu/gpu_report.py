"""gpu_check.json and gpu_check.md: what was measured, as shares of what the GPU can do.

A call's floor is the longer of two times: its bytes over the bandwidth, its operations over the rate of
the large matrix product, both measured in the same run. Its share is the floor over the measured time.
"""

import json
import platform
import subprocess
import time

from gpu_results import FAILED, NOT_RUN, PASSED
from gpu_stages import ATTENTION_ONLY, MODELS, QUANTISED_KV

COPYING = {"norm", "act_mul", "soft_cap", "rope_store_kv", "copy_blocks"}  # as much written as read, about
OFF_GPU = {"swap_out", "swap_in"}  # bound by the way to the host, whose limit is not measured

# What is aimed at: (what, item, op, shape, kind, floor, stretch). The floors are what good systems were
# reported to reach: calm and "No Bubbles" for a single stream, FlashInfer for attention.
GOALS = [
    ("G1 single stream, 8B", "models/llama-3-8b", "decode", "1 x 1 of 1024", "share", 0.80, 0.90),
    ("G2 single stream, 1B", "models/llama-3.2-1b", "decode", "1 x 1 of 1024", "share", 0.50, 0.70),
    ("G3 single stream, 135M, us per layer", "models/smollm2-135m", "decode", "1 x 1 of 128", "us/layer",
     15.0, 10.0),
    ("G4 decode attention, MHA, 64 x 1k", "ops/mha 32/32", "paged_attention", "decode 64 x 1 of 1024",
     "share", 0.80, 0.88),
    ("G4 decode attention, GQA 8, 64 x 1k", "ops/gqa 32/4", "paged_attention", "decode 64 x 1 of 1024",
     "share", 0.55, 0.61),
    ("G4 decode attention, GQA 8, 64 x 8k", "ops/gqa 32/4", "paged_attention", "decode 64 x 1 of 8192",
     "share", 0.80, 0.88),
    ("G5 decode steps, 8B, 64 x 1k (the step alone, no server)", "models/llama-3-8b", "decode",
     "64 x 1 of 1024", "share", 0.50, 0.60),
    ("G6 prefill steps, 8B, 2k (the step alone, no server)", "models/llama-3-8b", "prefill",
     "1 x 2048 of 2048", "share", 0.45, 0.60),
]


def floor_us(line, limits):
    """None where no limit was measured, or none applies."""
    if limits is None or line["op"] in OFF_GPU:
        return None
    bandwidth = limits["copy_bytes_per_s" if line["op"] in COPYING else "read_bytes_per_s"]
    return 1e6 * max(line["bytes"] / bandwidth, line["flops"] / limits["bf16_flops_per_s"])


def share(line, limits):
    floor = floor_us(line, limits)
    return None if floor is None else floor / line["us"]


def percent(value):
    return "-" if value is None else f"{100 * value:.1f} %"


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows] + [""]


def describe_limits(limits):
    if limits is None:
        return ["The limits of the GPU were not measured: no share can be given.", ""]
    return table(["limit, measured in this run", "value"], [
        ["large copy, bytes read and written", f"{limits['copy_bytes_per_s'] / 1e9:.0f} GB/s"],
        ["large sum, bytes read", f"{limits['read_bytes_per_s'] / 1e9:.0f} GB/s"],
        ["bf16 product of 8192 cubed, random data", f"{limits['bf16_flops_per_s'] / 1e12:.0f} TFLOP/s"],
    ])


def find(results, item, op, shape):
    for line in results.data(item) or ():
        if line["op"] == op and line["shape"] == shape:
            return line
    return None


def describe_goals(results, limits):
    rows = []
    for what, item, op, shape, kind, floor, stretch in GOALS:
        line = find(results, item, op, shape)
        if kind == "us/layer":
            value = line["us"] / MODELS[item.split("/")[1]][-1] if line else None
            shown = ["not measured" if value is None else f"{value:.1f} us", f"{floor} us", f"{stretch} us"]
            met = value is not None and value <= floor
        else:
            value = share(line, limits) if line else None
            shown = ["not measured" if value is None else percent(value), percent(floor),
                     percent(stretch)]
            met = value is not None and value >= floor
        rows.append([what, *shown, "-" if value is None else "yes" if met else "no"])
    return table(["goal", "measured", "floor", "stretch", "met"], rows) + [
        "G7, the share of a single stream's step in which the GPU idles, takes a profiler and is not "
        "measured here.", ""]


def describe_checks(results):
    rows = []
    for name, entry in results.items.items():
        data = entry.get("data")
        note = entry.get("detail", "")
        if isinstance(data, dict) and "row_error" in data:
            note = f"largest error of a row {data['row_error']:.2e}, allowed {data['allowed']:.2e}"
        rows.append([name, entry["status"], f"{entry['seconds']:.1f}", note.replace("|", "/")])
    return table(["item", "result", "s", ""], rows)


def describe_ops(lines, limits):
    rows = []
    for line in lines:
        floor = floor_us(line, limits)
        rate = f"{line['flops'] / line['us'] / 1e6:.1f}" if line["flops"] else "-"
        rows.append([line["op"], line["shape"], f"{line['us']:.2f}", "-" if floor is None else
                     f"{floor:.2f}", percent(share(line, limits)),
                     f"{line['bytes'] / line['us'] / 1e3:.0f}", rate])
    return table(["op", "shape", "us", "floor us", "share", "GB/s", "TFLOP/s"], rows)


def describe_model(lines, limits, invariant):
    """With the cost of batch invariance where it was measured."""
    costs = {(line["op"], line["shape"]): line["us"] for line in invariant or ()}
    rows = []
    for line in lines:
        cost = costs.get((line["op"], line["shape"]))
        rows.append([line["op"], line["shape"], f"{line['us'] / 1e3:.3f}", f"{line['tokens_per_s']:.0f}",
                     percent(share(line, limits)),
                     "-" if cost is None else f"{100 * (cost / line['us'] - 1):+.1f} %"])
    return table(["step", "sequences x tokens of context", "ms", "tokens/s", "share",
                  "batch-invariant takes"], rows)


def ask(*command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def describe_machine(context, limits):
    driver = ask("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    nvcc = ask("nvcc", "--version").splitlines()[-1:]
    return {"device": context.device, "gpu": limits["gpu"] if limits else driver or "none",
            "driver": driver, "nvcc": nvcc[0] if nvcc else "", "host": platform.machine(),
            "commit": ask("git", "-C", str(context.root), "describe", "--always", "--dirty"),
            "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "quick": context.quick}


def make_page(context, machine, limits):
    results = context.results
    page = [f"# gpu_check on {machine['gpu']}", ""]
    if not context.on_gpu:
        page += [f"A rehearsal on {context.device}: no figure here says anything about a GPU.", ""]
    page += table(["", ""], [[key, value] for key, value in machine.items() if value != ""])
    page += ["## Limits", "", *describe_limits(limits), "## Goals", "", *describe_goals(results, limits)]
    for shape in [*MODELS, "tiny"]:
        lines = results.data(f"models/{shape}")
        if lines:
            invariant = results.data(f"models/{shape} batch-invariant")
            page += [f"## Steps of {shape}", "", *describe_model(lines, limits, invariant)]
    for shape in [*MODELS, *ATTENTION_ONLY, "tiny"]:
        for part in [shape, *(f"{shape} kv {kv_type}" for kv_type in QUANTISED_KV)]:
            lines = results.data(f"ops/{part}")
            if lines:
                page += [f"## Ops at the shapes of {part}", "", *describe_ops(lines, limits)]
    counts = ", ".join(f"{sum(results.status(name) == status for name in results.items)} {status}"
                       for status in (PASSED, FAILED, NOT_RUN))
    return "\n".join(page + ["## Every item", "", counts, "", *describe_checks(results)])


def write_report(context):
    """Returns where it is."""
    limits = context.results.data("limits")
    machine = describe_machine(context, limits)
    path = context.out / "gpu_check.md"
    path.write_text(make_page(context, machine, limits))
    path.with_suffix(".json").write_text(json.dumps(
        {"machine": machine, "limits": limits, "items": context.results.items}, indent=1) + "\n")
    return path
