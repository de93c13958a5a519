#!/usr/bin/env python3
"""Measures how well the KV memory is used: the PagedAttention paper's figures beside ours.

Runs scripts/paged_memory (built by Meson), which serves seeded traces of requests by the project's
engine and by the reservation policies that the paper compares with, for OPT-13B on a GPU of 40 GB;
prints tables in Markdown. Simulated time: the GPU is a formula, the engine is the real one.

The paper: Kwon et al., "Efficient Memory Management for Large Language Model Serving with
PagedAttention", SOSP 2023, arXiv 2309.06180: figures 2, 13 and 15, and section 6.3.

usage: paged_memory_report.py [--tool PATH] [--minutes M] [--seed S] [--svg FILE] [--update README]

The figures of README.md: --svg scripts/paged_memory/paged_memory.svg --update scripts/paged_memory/README.md
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from paged_memory_plot import write_plot

ROOT = Path(__file__).resolve().parents[2]
RATES = {"sharegpt": 2, "alpaca": 30}  # requests per second
# The share of the simulated time that a run takes: ten thousand short requests come in minutes, and
# what sharing saves is a ratio that holds at any moment.
TIME = {"sharegpt": 1, "alpaca": 1 / 12}
TIME_OF_SHARING = {"sharegpt": 1 / 4, "alpaca": 1 / 16}
NAMES = {"sharegpt": "ShareGPT", "alpaca": "Alpaca"}
POLICIES = {"max": "Orca (Max)", "pow2": "Orca (Pow2)", "oracle": "Orca (Oracle)", "paged": "paged"}
BLOCK_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
WIDTHS = [2, 4, 6]
KINDS = {"choices": "parallel sampling,", "beams": "beam search,"}
BEGIN, END = "<!-- paged_memory_report.py: begin -->", "<!-- paged_memory_report.py: end -->"

# Percent of the KV memory: token states, reservation, internal, external & others.
PAPER_MEMORY = {"max": (20.4, 13.3, 57.3, 8.9), "pow2": (26.8, 17.9, 13.6, 41.6),
                "oracle": (38.2, 25.2, 0, 36.6), "paged": (96.3, 0, 0, 0)}
PAPER_REQUESTS = {("sharegpt", "max"): 7.00, ("sharegpt", "pow2"): 9.81,
                  ("sharegpt", "oracle"): 13.62, ("sharegpt", "paged"): 30.42,
                  ("alpaca", "max"): 7.00, ("alpaca", "pow2"): 43.24,
                  ("alpaca", "oracle"): 72.75, ("alpaca", "paged"): 132.44}
PAPER_SAVED = {("alpaca", "choices"): ("6.09", "8.53", "9.79"),
               ("alpaca", "beams"): ("37.56", "53.13", "55.16"),
               ("sharegpt", "choices"): ("16.2 to 30.5",) * 3,
               ("sharegpt", "beams"): ("44.3 to 66.3",) * 3}


def scenarios(minutes):
    """{key: options of the tool}."""
    runs = {}
    for trace, rate in RATES.items():
        common = {"trace": trace, "rate": rate, "minutes": minutes * TIME[trace]}
        for policy in POLICIES:
            runs[trace, policy] = common | {"policy": policy}
        runs[trace, "caching"] = common | {"prefix-caching": 1}
        for size in BLOCK_SIZES:
            runs[trace, "block", size] = common | {"block-size": size}
        common["minutes"] = minutes * TIME_OF_SHARING[trace]
        for kind in KINDS:
            for width in WIDTHS:
                runs[trace, kind, width] = common | {"rate": rate / width, kind: width}
    return runs


def simulate(tool, minutes, seed):
    """{key: what the tool printed}."""
    def run(options):
        words = [f"--{name}={value}" for name, value in options.items()]
        output = subprocess.run([tool, *words, f"--seed={seed}"], check=True, capture_output=True)
        return json.loads(output.stdout)

    runs = scenarios(minutes)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(runs, pool.map(run, runs.values())))


def memory_shares(result):
    return [100 * result[use] for use in ("token", "reserved", "internal", "others")]


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def memory_table(results):
    rows = []
    for policy, name in POLICIES.items():
        ours = memory_shares(results["sharegpt", policy])
        paper = [f"{share:.1f}" if share else "" for share in PAPER_MEMORY[policy]]
        row = [name] + [f"{p} / {o:.1f}" if p else f"{o:.1f}" for p, o in zip(paper, ours)]
        for trace in RATES:
            requests = results[trace, policy]["requests"]
            row.append(f"{PAPER_REQUESTS[trace, policy]:.2f} / {requests:.2f}")
        rows.append(row)
    rows.append(["paged, with the prefix cache"]
                + [f"{share:.1f}" for share in memory_shares(results["sharegpt", "caching"])]
                + [f"{results[trace, 'caching']['requests']:.2f}" for trace in RATES])
    return table(["paper / ours", "token states %", "reservation %", "internal %",
                  "external & others %", "at once, ShareGPT", "at once, Alpaca"], rows)


def ratio_lines(results):
    """What the tables do not say directly."""
    for trace, name in NAMES.items():
        ours = results[trace, "paged"]["requests"]
        ratios = [f"{PAPER_REQUESTS[trace, 'paged'] / PAPER_REQUESTS[trace, policy]:.2f} / "
                  f"{ours / results[trace, policy]['requests']:.2f} times {POLICIES[policy]}"
                  for policy in ("oracle", "max")]
        useful = 100 * results[trace, "paged"]["useful"]
        yield (f"- {name}: {useful:.1f} % of the blocks given out hold tokens; requests at once "
               f"(paper / ours) {' and '.join(ratios)}.")


def saved_table(results):
    rows = []
    for kind, name in KINDS.items():
        for place, width in enumerate(WIDTHS):
            rows.append([f"{name} {width}"]
                        + [f"{PAPER_SAVED[trace, kind][place]} / "
                           f"{100 * results[trace, kind, width]['saved']:.1f}" for trace in RATES])
    return table(["saved by sharing %, paper / ours"] + list(NAMES.values()), rows)


def sweep_table(results):
    rows = []
    for size in BLOCK_SIZES:
        row = [size]
        for trace in RATES:
            result = results[trace, "block", size]
            row += [f"{100 * result['useful']:.1f}", f"{result['requests']:.1f}"]
        rows.append(row)
    head = ["block size"]
    for name in NAMES.values():
        head += [f"{name}: useful %", "at once"]
    return table(head, rows)


def markdown(results):
    return "\n".join([memory_table(results), *ratio_lines(results), "", saved_table(results),
                      sweep_table(results).rstrip("\n"), ""])


def draw(path, results):
    memory = {name: (PAPER_MEMORY[policy], memory_shares(results["sharegpt", policy]))
              for policy, name in POLICIES.items()}
    requests = {f"{NAMES[trace]}, {rate}/s":
                {name.removeprefix("Orca (").rstrip(")"): (PAPER_REQUESTS[trace, policy],
                                              results[trace, policy]["requests"])
                 for policy, name in POLICIES.items()} for trace, rate in RATES.items()}
    saved = {name.rstrip(","): {str(width): (float(PAPER_SAVED["alpaca", kind][place]),
                                             100 * results["alpaca", kind, width]["saved"])
                                for place, width in enumerate(WIDTHS)}
             for kind, name in KINDS.items()}
    sweep = {name: {size: 100 * results[trace, "block", size]["useful"] for size in BLOCK_SIZES}
             for trace, name in NAMES.items()}
    write_plot(path, memory, requests, saved, sweep)


def update(path, content):
    """Replaces what is between the two marks of a file."""
    old = path.read_text()
    if BEGIN not in old or END not in old:
        sys.exit(f"{path} has no lines {BEGIN} and {END}")
    head, tail = old.split(BEGIN)[0], old.split(END)[1]
    path.write_text(f"{head}{BEGIN}\n{content}{END}{tail}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", type=Path,
                        default=ROOT / "build" / "scripts" / "paged_memory" / "paged_memory")
    parser.add_argument("--minutes", type=float, default=60, help="of simulated time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--svg", type=Path, help="write the plot there")
    parser.add_argument("--update", type=Path, help="put the tables between that file's two marks")
    arguments = parser.parse_args()
    if not arguments.tool.exists():
        sys.exit(f"{arguments.tool} does not exist: build first (meson setup build, ninja -C build)")
    results = simulate(arguments.tool, arguments.minutes, arguments.seed)
    print(markdown(results))
    if arguments.svg:
        draw(arguments.svg, results)
    if arguments.update:
        update(arguments.update, markdown(results))


if __name__ == "__main__":
    main()
