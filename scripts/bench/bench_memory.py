#!/usr/bin/env python3
"""Reads from /metrics how much of the KV memory in use holds no token, while a mixed load runs: chats of many
lengths, a part of which share a system prompt, some with several choices, some searched with beams.

Lengths are drawn from log-normal laws with the means of ShareGPT's conversations as the PagedAttention paper gives
them (Kwon et al., SOSP 2023, section 6.1: 161 tokens in, 338 out).

  quire serve --model MODEL --port 8000 &
  scripts/bench/bench_memory.py --url http://127.0.0.1:8000

Needs Python 3.9.
"""

import argparse
import json
import math
import random
import re
import statistics
import sys
import threading

from bench_prompts import make_prompts
from bench_serve import Target, find_model, get
from load_run import LoadProcesses

MEAN_IN, MEAN_OUT, SIGMA = 161, 338, 1.0
MOST_TOKENS = 1000  # of a prompt, and of an answer
SYSTEM_TOKENS = 200
NAMES = ("kv_cache_waste_perc", "kv_blocks_used", "kv_tokens_held", "kv_block_size", "num_requests_running",
         "prefix_cache_hits_total", "prefix_cache_queries_total", "kv_blocks_copied_total", "num_preemptions_total")
SAMPLE = re.compile(r"^[^#\s]*?:?(\w+)\{[^}]*\} (\S+)", re.MULTILINE)


def draw_length(generator, mean):
    length = generator.lognormvariate(math.log(mean) - SIGMA * SIGMA / 2, SIGMA)
    return max(4, min(MOST_TOKENS, round(length)))


def make_load(options):
    """Bodies of completions."""
    generator = random.Random(options.seed)
    system = make_prompts(1, SYSTEM_TOKENS, options.seed, "system")[0]
    for number in range(options.requests):
        prompt = make_prompts(1, draw_length(generator, MEAN_IN), options.seed, number)[0]
        if generator.random() < options.shared:
            prompt = f"{system}\n{prompt}"
        body = {"prompt": prompt, "max_tokens": draw_length(generator, MEAN_OUT), "ignore_eos": True, "seed": number}
        kind = generator.random()
        if kind < options.several:
            body["n"] = generator.choice([2, 4])
        elif kind < options.several + options.beams:
            body |= {"use_beam_search": True, "n": 2, "best_of": 4, "max_tokens": min(body["max_tokens"], 200)}
        yield body


def read_metrics(target):
    found = dict(SAMPLE.findall(get(target.url + "/metrics")))
    return {name: float(found[name]) for name in NAMES}


def watch(target, samples, over):
    samples.append(read_metrics(target))
    while not over.wait(0.05):
        samples.append(read_metrics(target))


def run(target, options):
    target.model = find_model(target)
    requests = [{"body": json.dumps({"model": target.model, **body})} for body in make_load(options)]
    samples, over = [], threading.Event()
    watcher = threading.Thread(target=watch, args=(target, samples, over), daemon=True)
    with LoadProcesses(1) as load:
        watcher.start()
        figures = load.run([target.url], requests, options.concurrency, stream=False, timeout=3600)
    over.set()
    watcher.join()
    if figures["failures"]:
        sys.exit(figures["first_error"])
    return samples


def report(samples, concurrency):
    """The start, where most of the load has yet to come, and the end, where it runs out, do not count."""
    most = max(sample["num_requests_running"] for sample in samples)
    busy = [sample for sample in samples if sample["num_requests_running"] >= min(concurrency, most) / 2]
    waste = [sample["kv_cache_waste_perc"] for sample in busy]
    held = sum(sample["kv_tokens_held"] for sample in busy)
    room = sum(sample["kv_blocks_used"] * sample["kv_block_size"] for sample in busy)
    rose = {name: samples[-1][name] - samples[0][name] for name in NAMES}
    print(f"samples                {len(busy)} of {len(samples)} with at least half the load")
    print(f"sequences running      {statistics.mean(s['num_requests_running'] for s in busy):.1f} on average")
    print(f"waste of KV memory     {1 - held / room:.2%} over all samples; median {statistics.median(waste):.2%}, "
          f"most {max(waste):.2%}")
    hits, queries = (rose[f"prefix_cache_{name}_total"] for name in ("hits", "queries"))
    print(f"prompt tokens cached   {hits / queries if queries else 0:.1%} of {queries:.0f}")
    print(f"blocks copied          {rose['kv_blocks_copied_total']:.0f}")
    print(f"preemptions            {rose['num_preemptions_total']:.0f}")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--url", required=True, help="base address without /v1")
    parser.add_argument("--concurrency", type=int, default=24, help="requests at once; default 24")
    parser.add_argument("--requests", type=int, default=150, help="in all; default 150")
    parser.add_argument("--shared", type=float, default=0.3, help="share with the system prompt; default 0.3")
    parser.add_argument("--several", type=float, default=0.15, help="share with 2 or 4 choices; default 0.15")
    parser.add_argument("--beams", type=float, default=0.1, help="share searched with 4 beams; default 0.1")
    parser.add_argument("--seed", type=int, default=0, help="of the load; default 0")
    parser.add_argument("--json", metavar="PATH", help="write all samples there")
    return parser.parse_args()


def main():
    options = parse_options()
    samples = run(Target("quire", options.url.rstrip("/")), options)
    report(samples, options.concurrency)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "samples": samples}, file, indent=2)


if __name__ == "__main__":
    main()
