#!/usr/bin/env python3
"""Measures OpenAI-compatible servers under load: throughput, time to first token, latency.

In each round N streams start together (closed loop: a stream sends its next request when the last
one has ended). With several --url the rounds alternate between the servers, so that a slow moment of
the machine hits all of them; the table shows medians over the rounds and ratios to the first URL.

  scripts/bench/bench_serve.py --url http://127.0.0.1:8000 --concurrency 1,8,32 --json result.json
  scripts/bench/bench_serve.py --url a=http://127.0.0.1:8000 --pid 12 --url b=http://127.0.0.1:8080 --pid 34

Needs Python 3.9 and aiohttp.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from dataclasses import dataclass, field

import aiohttp

from bench_prompts import make_prompts


@dataclass
class Stream:
    """What one request did."""
    first: float = 0.0  # seconds from sending to the first token
    last: float = 0.0
    num_tokens: int = 0
    gaps: list = field(default_factory=list)  # seconds between two arrivals
    error: str = ""


@dataclass
class Target:
    name: str
    url: str
    model: str = ""
    pid: int = 0


def percentile(values, share):
    """Nearest rank; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def resident_mb(pid):
    if not pid:
        return 0.0
    with open(f"/proc/{pid}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["VmRSS"].split()[0]) / 1024


async def find_model(session, target):
    try:
        async with session.get(target.url + "/v1/models") as reply:
            return (await reply.json())["data"][0]["id"]
    except (aiohttp.ClientError, KeyError, IndexError) as error:
        sys.exit(f"{target.url}/v1/models does not list a model: {error}")


def take_chunk(stream, chunk, sent, previous):
    """Counts one chunk; returns the time of the last one that held text."""
    if chunk.get("error"):
        raise RuntimeError(chunk["error"])
    now = time.perf_counter()
    if chunk.get("usage"):
        stream.num_tokens = chunk["usage"]["completion_tokens"]
    elif chunk["choices"]:
        stream.num_tokens += 1
    if not chunk["choices"] or not chunk["choices"][0].get("text"):
        return previous
    if previous is None:
        stream.first = now - sent
    else:
        stream.gaps.append(now - previous)
    return now


async def run_request(session, target, prompt, max_tokens):
    body = {"model": target.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
            "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
    stream, sent, previous = Stream(), time.perf_counter(), None
    try:
        async with session.post(target.url + "/v1/completions", json=body) as reply:
            if reply.status != 200:
                raise RuntimeError(f"{reply.status} {(await reply.text())[:200]}")
            async for line in reply.content:
                if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                    previous = take_chunk(stream, json.loads(line[6:]), sent, previous)
        if previous is None:
            raise RuntimeError("no text")
        stream.last = previous - sent
    except (aiohttp.ClientError, asyncio.TimeoutError, RuntimeError, KeyError, ValueError) as error:
        stream.error = f"{type(error).__name__}: {error}"
    return stream


async def run_round(session, target, prompts, concurrency, max_tokens):
    """All prompts over `concurrency` streams; returns the figures of the round."""
    waiting, streams = list(reversed(prompts)), []

    async def worker():
        while waiting:
            streams.append(await run_request(session, target, waiting.pop(), max_tokens))

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    seconds = time.perf_counter() - start
    good = [stream for stream in streams if not stream.error]
    gaps = [gap for stream in good for gap in stream.gaps]
    return {
        "tokens_per_second": sum(stream.num_tokens for stream in good) / seconds,
        "ttft_p50_ms": 1000 * percentile([stream.first for stream in good], 0.5),
        "ttft_p99_ms": 1000 * percentile([stream.first for stream in good], 0.99),
        "itl_p50_ms": 1000 * percentile(gaps, 0.5),
        "itl_p99_ms": 1000 * percentile(gaps, 0.99),
        "request_p50_ms": 1000 * percentile([stream.last for stream in good], 0.5),
        "output_tokens": sum(stream.num_tokens for stream in good),
        "seconds": seconds,
        "failures": len(streams) - len(good),
        "first_error": next((stream.error for stream in streams if stream.error), ""),
        "resident_mb": resident_mb(target.pid),
    }


def summarise(rounds):
    """Medians over the rounds; failures are added up."""
    summary = {name: statistics.median(one[name] for one in rounds)
               for name, value in rounds[0].items() if isinstance(value, (int, float))}
    summary["failures"] = sum(one["failures"] for one in rounds)
    return summary


async def measure(targets, options, progress):
    results = []
    timeout = aiohttp.ClientTimeout(total=options.timeout)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        for target in targets:
            target.model = options.model or await find_model(session, target)
            progress(f"warming up {target.name}")
            await run_round(session, target, make_prompts(1, 16, "warm-up"), 1, 8)
        for concurrency in options.concurrency:
            rounds = {target.name: [] for target in targets}
            for number in range(options.rounds):
                prompts = make_prompts(concurrency * options.requests, options.prompt_tokens,
                                       options.seed, concurrency, number)
                for target in targets:
                    one = await run_round(session, target, prompts, concurrency, options.max_tokens)
                    rounds[target.name].append(one)
                    progress(f"{concurrency} streams, round {number + 1} of {options.rounds}, "
                             f"{target.name}: {one['tokens_per_second']:.1f} tok/s"
                             + (f", {one['failures']} failed: {one['first_error']}"
                                if one["failures"] else ""))
            results += [{"name": name, "concurrency": concurrency, "rounds": of_one,
                         "median": summarise(of_one)} for name, of_one in rounds.items()]
    return results


def print_table(results):
    first = {}
    print(f"{'streams':>7} {'server':16} {'tok/s':>8} {'ratio':>6} {'TTFT p50':>9} {'p99':>8} "
          f"{'ITL p50':>8} {'p99':>8} {'RSS MB':>7} {'failed':>6}")
    for result in results:
        median = result["median"]
        base = first.setdefault(result["concurrency"], median["tokens_per_second"])
        ratio = median["tokens_per_second"] / base if base else 0
        print(f"{result['concurrency']:7} {result['name']:16} {median['tokens_per_second']:8.1f} "
              f"{ratio:6.2f} {median['ttft_p50_ms']:6.0f} ms {median['ttft_p99_ms']:5.0f} ms "
              f"{median['itl_p50_ms']:5.1f} ms {median['itl_p99_ms']:5.1f} ms "
              f"{median['resident_mb']:7.0f} {median['failures']:6.0f}")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--url", action="append", required=True, metavar="[NAME=]URL",
                        help="base address without /v1; repeatable")
    parser.add_argument("--pid", action="append", type=int, default=[],
                        help="process whose resident memory is read; one per --url, in order")
    parser.add_argument("--model", help="name to ask for (default: the first of /v1/models)")
    parser.add_argument("--concurrency", type=lambda text: [int(part) for part in text.split(",")],
                        default=[1, 8, 32], metavar="N,N", help="default 1,8,32")
    parser.add_argument("--prompt-tokens", type=int, default=64, help="about; default 64")
    parser.add_argument("--max-tokens", type=int, default=128, help="per request; default 128")
    parser.add_argument("--requests", type=int, default=1, help="per stream and round; default 1")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--seed", type=int, default=0, help="of the prompts; default 0")
    parser.add_argument("--timeout", type=float, default=600,
                        help="seconds per request; default 600")
    parser.add_argument("--json", metavar="PATH", help="write all figures there")
    return parser.parse_args()


def make_targets(options):
    targets = []
    for number, text in enumerate(options.url):
        name, _, url = text.rpartition("=")
        pid = options.pid[number] if number < len(options.pid) else 0
        targets.append(Target(name or url.split("//")[-1], url.rstrip("/"), pid=pid))
    return targets


def main():
    options = parse_options()
    results = asyncio.run(measure(make_targets(options), options,
                                  lambda text: print(text, file=sys.stderr, flush=True)))
    print_table(results)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "results": results}, file, indent=2)
    return 1 if any(result["median"]["failures"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
