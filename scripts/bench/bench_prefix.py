#!/usr/bin/env python3
"""Measures what the prefix cache is worth: the time to the first token of many clients that share a long system
prompt, after one of them has had its answer.

In each round one client asks with a new system prompt, then 32 ask at once, each a question of its own behind it,
then 8 one after the other. With several --url the rounds alternate between the servers; the table shows medians
over the rounds and ratios to the first URL.

  quire serve --model MODEL --port 8000 &
  quire serve --model MODEL --port 8001 --no-enable-prefix-caching &
  scripts/bench/bench_prefix.py --url on=http://127.0.0.1:8000 --url off=http://127.0.0.1:8001

Needs Python 3.9.
"""

import argparse
import json
import re
import statistics
import sys
import threading

from bench_prompts import make_prompts
from bench_serve import find_model, get, make_targets, run_round as run_load
from load_run import LoadProcesses

QUESTION_TOKENS = 12
USED_BLOCKS = re.compile(r"^\S*kv_blocks_used\{[^}]*\} (\S+)", re.MULTILINE)


def used_blocks(target):
    """None where the server has no such metric."""
    found = USED_BLOCKS.search(get(target.url + "/metrics"))
    return float(found[1]) if found else None


class BlockWatch:
    """Remembers the most blocks that were in use while the block runs."""

    def __init__(self, target):
        self.target, self.most, self.over = target, 0.0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self):
        while (used := used_blocks(self.target)) is not None and not self.over.wait(0.02):
            self.most = max(self.most, used)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def first_tokens(load, target, prompts, max_tokens, at_once):
    """Milliseconds to the first token: their median and 95th percentile."""
    figures = run_load(load, target, [(prompt, max_tokens) for prompt in prompts], len(prompts) if at_once else 1)
    if figures["failures"]:
        sys.exit(f"{target.name}: {figures['first_error']}")
    return figures["ttft_p50_ms"], figures["ttft_p95_ms"]


def run_round(load, target, options, number):
    prefix = make_prompts(1, options.prefix_tokens, options.seed, number)[0]
    questions = make_prompts(options.clients + options.one_by_one + 1, QUESTION_TOKENS, options.seed, number, "questions")
    prompts = [f"{prefix}\n{question}" for question in questions]
    together, apart = prompts[1:options.clients + 1], prompts[options.clients + 1:]
    first = first_tokens(load, target, prompts[:1], options.max_tokens, False)
    with BlockWatch(target) as watch:
        at_once = first_tokens(load, target, together, options.max_tokens, True)
    one_by_one = first_tokens(load, target, apart, 1, False)
    return {
        "first_ms": first[0],
        "at_once_p50_ms": at_once[0],
        "at_once_p95_ms": at_once[1],
        "one_by_one_p50_ms": one_by_one[0],
        "one_by_one_p95_ms": one_by_one[1],
        "most_used_blocks": watch.most,
    }


def measure(targets, options):
    rounds = {target.name: [] for target in targets}
    with LoadProcesses() as load:
        for target in targets:
            target.model = options.model or find_model(target)
            run_load(load, target, [(make_prompts(1, 16, "warm-up")[0], 8)], 1)
        for number in range(options.rounds):
            for target in targets:
                rounds[target.name].append(run_round(load, target, options, number))
                print(f"round {number + 1} of {options.rounds}, {target.name}: " + ", ".join(
                    f"{name} {value:.1f}" for name, value in rounds[target.name][-1].items()), file=sys.stderr)
    return rounds


def print_table(rounds):
    medians = {name: {figure: statistics.median(one[figure] for one in of_one) for figure in of_one[0]}
               for name, of_one in rounds.items()}
    base = next(iter(medians.values()))
    print(f"{'median of rounds':22}" + "".join(f"{name:>12} {'ratio':>7}" for name in medians))
    for figure in base:
        print(f"{figure:22}" + "".join(
            f"{median[figure]:12.1f} {median[figure] / base[figure] if base[figure] else 0:7.2f}"
            for median in medians.values()))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--url", action="append", required=True, metavar="[NAME=]URL",
                        help="base address without /v1; repeatable")
    parser.add_argument("--model", help="name to ask for (default: the first of /v1/models)")
    parser.add_argument("--clients", type=int, default=32, help="after the first; default 32")
    parser.add_argument("--one-by-one", type=int, default=8, help="after those; default 8")
    parser.add_argument("--prefix-tokens", type=int, default=1000, help="about; default 1000")
    parser.add_argument("--max-tokens", type=int, default=16, help="of those at once; default 16")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--seed", type=int, default=0, help="of the prompts; default 0")
    parser.add_argument("--json", metavar="PATH", help="write all figures there")
    options = parser.parse_args()
    options.pid = []
    return options


def main():
    options = parse_options()
    rounds = measure(make_targets(options), options)
    print_table(rounds)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "rounds": rounds}, file, indent=2)


if __name__ == "__main__":
    main()
