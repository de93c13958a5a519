#!/usr/bin/env python3
"""Runs OpenVINO GenAI in this process with the prompts and lengths of bench_serve.py, for a
comparison: its LLMPipeline with a SchedulerConfig does paged attention and continuous batching.

  bench_openvino.py MODEL.gguf --concurrency 1,8,32 --json openvino.json

Needs the package openvino-genai. The batch is handed over whole and returned whole, so the time to
first token is what the pipeline reports.
"""

import argparse
import json
import statistics
import sys
import time

import openvino_genai

from bench_prompts import make_prompts


def resident_mb():
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["VmRSS"].split()[0]) / 1024


def run_round(pipeline, prompts, max_tokens):
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = max_tokens
    config.ignore_eos = True
    config.do_sample = False
    config.apply_chat_template = False
    start = time.perf_counter()
    result = pipeline.generate(prompts, config)
    seconds = time.perf_counter() - start
    metrics = result.perf_metrics
    return {
        "tokens_per_second": metrics.get_num_generated_tokens() / seconds,
        "ttft_mean_ms": metrics.get_ttft().mean,
        "tpot_mean_ms": metrics.get_tpot().mean,
        "output_tokens": metrics.get_num_generated_tokens(),
        "seconds": seconds,
        "resident_mb": resident_mb(),
    }


def measure(pipeline, options):
    for concurrency in options.concurrency:
        rounds = []
        for number in range(options.rounds):
            prompts = make_prompts(concurrency, options.prompt_tokens, options.seed, concurrency,
                                   number)
            rounds.append(run_round(pipeline, prompts, options.max_tokens))
            print(f"{concurrency} streams, round {number + 1} of {options.rounds}: "
                  f"{rounds[-1]['tokens_per_second']:.1f} tok/s", file=sys.stderr, flush=True)
        median = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        yield {"name": "openvino-genai", "concurrency": concurrency, "rounds": rounds,
               "median": median}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", help="GGUF file")
    parser.add_argument("--concurrency", type=lambda text: [int(part) for part in text.split(",")],
                        default=[1, 8, 32], metavar="N,N", help="default 1,8,32")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache-gb", type=int, default=2, help="KV cache; default 2")
    parser.add_argument("--json", metavar="PATH", help="write all figures there")
    return parser.parse_args()


def main():
    options = parse_options()
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = options.cache_gb
    scheduler.enable_prefix_caching = False
    start = time.perf_counter()
    pipeline = openvino_genai.LLMPipeline(options.model, "CPU", scheduler_config=scheduler)
    ready = time.perf_counter() - start
    run_round(pipeline, make_prompts(1, 16, "warm-up"), 8)
    print(f"ready after {ready:.2f} s", file=sys.stderr)
    results = list(measure(pipeline, options))
    print(f"{'streams':>7} {'tok/s':>8} {'TTFT':>9} {'TPOT':>9} {'RSS MB':>7}")
    for result in results:
        median = result["median"]
        print(f"{result['concurrency']:7} {median['tokens_per_second']:8.1f} "
              f"{median['ttft_mean_ms']:6.0f} ms {median['tpot_mean_ms']:6.1f} ms "
              f"{median['resident_mb']:7.0f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "ready_seconds": ready, "results": results}, file,
                      indent=2)


if __name__ == "__main__":
    main()
