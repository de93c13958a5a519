#!/usr/bin/env python3
"""Measures OpenAI-compatible servers under load: throughput, time to first token, latency.

In each round N streams start together (closed loop: a stream sends its next request when the last
one has ended; with --rate requests arrive at random instead, and N bounds how many are under way).
With several --url the rounds alternate between the servers, so that a slow moment of
the machine hits all of them; the table shows medians over the rounds and ratios to the first URL.

  scripts/bench/bench_serve.py --url http://127.0.0.1:8000 --concurrency 1,8,32 --json result.json
  scripts/bench/bench_serve.py --url a=http://127.0.0.1:8000 --pid 12 --url b=http://127.0.0.1:8080 --pid 34
  scripts/bench/bench_serve.py --url http://127.0.0.1:8000 --workload sharegpt --prompt-ids 49152 --no-stream

The load is sent by several processes (load_run.py). What they take in from a server that computes nothing is
measured in the same run, and stands below the table beside the first server's figure. Needs Python 3.9.
"""

import argparse
import json
import statistics
import sys
import urllib.request
from dataclasses import dataclass

from load_run import LoadError, LoadProcesses, StubServers, default_processes
from workloads import Workload, arrival_times

CEILING_SECONDS = 1
CEILING_SHARE = 0.5  # of the ceiling: a figure above it may be the load generator's


@dataclass
class Target:
    name: str
    url: str
    model: str = ""
    pid: int = 0


def resident_mb(pid):
    if not pid:
        return 0.0
    with open(f"/proc/{pid}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["VmRSS"].split()[0]) / 1024


def get(url, timeout=600):
    with urllib.request.urlopen(url, timeout=timeout) as reply:
        return reply.read().decode()


def find_model(target):
    try:
        return json.loads(get(target.url + "/v1/models"))["data"][0]["id"]
    except (OSError, ValueError, LookupError) as error:
        sys.exit(f"{target.url}/v1/models does not list a model: {error}")


def make_request(model, prompt, max_tokens, stream=True, **fields):
    """A greedy completion of exactly max_tokens, as load_client.py takes it."""
    body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": stream,
            "ignore_eos": True, **fields}
    if stream:
        body["stream_options"] = {"include_usage": True}
    return {"body": json.dumps(body), "tokens": max_tokens}


def make_requests(model, prompts, stream=True, times=None, **fields):
    """Of (prompt, tokens out); `times`: when they arrive; `fields`: of every body."""
    requests = [make_request(model, prompt, tokens, stream, **fields) for prompt, tokens in prompts]
    for request, at in zip(requests, times or ()):
        request["at"] = at
    return requests


def run_round(load, target, prompts, concurrency, stream=True, times=None, timeout=600):
    """All prompts over `concurrency` streams; returns the figures of the round."""
    figures = load.run([target.url], make_requests(target.model, prompts, stream, times), concurrency, stream=stream,
                       timeout=timeout)
    return {**figures, "resident_mb": resident_mb(target.pid)}


def measure_ceiling(load, prompts, concurrency, stream=True):
    """What the processes take in of the same requests when the answers cost nothing."""
    with StubServers(load.count) as stubs:
        return load.run(stubs.urls, make_requests("stub", prompts, stream), concurrency, stream=stream,
                        seconds=CEILING_SECONDS, repeat=True)


def describe_ceiling(ceiling, figures, stream=True):
    """A line about both."""
    name, unit = ("events_per_second", "events/s") if stream else ("requests_per_second", "requests/s")
    share = figures[name] / ceiling[name] if ceiling[name] else 0
    line = (f"load generator, {ceiling['processes']} processes: at most {ceiling[name]:.0f} {unit}; measured "
            f"{figures[name]:.0f}, {100 * share:.1f} % of it, with processes busy "
            f"{100 * figures['client_busy']:.0f} % of the time")
    is_limit = share > CEILING_SHARE or figures["client_busy"] > CEILING_SHARE
    return line + ": THE LOAD GENERATOR MAY BE THE LIMIT" * is_limit


def summarise(rounds):
    """Medians over the rounds; failures are added up."""
    summary = {name: statistics.median(one[name] for one in rounds)
               for name, value in rounds[0].items() if isinstance(value, (int, float))}
    for name in ("failures", "wrong_length"):
        summary[name] = sum(one[name] for one in rounds)
    return summary


def measure_concurrency(load, targets, options, concurrency, progress):
    rounds = {target.name: [] for target in targets}
    count = concurrency * options.requests
    for number in range(options.rounds):
        seeds = (options.seed, concurrency, number)
        prompts = options.workload.prompts(count, options.prompt_ids, *seeds)
        times = list(arrival_times(count, options.rate, *seeds)) if options.rate else None
        if number == 0:
            ceiling = measure_ceiling(load, prompts, concurrency, options.stream)
        for target in targets:
            one = run_round(load, target, prompts, concurrency, options.stream, times, options.timeout)
            rounds[target.name].append(one)
            progress(f"{concurrency} streams, round {number + 1} of {options.rounds}, "
                     f"{target.name}: {one['tokens_per_second']:.1f} tok/s"
                     + (f", {one['failures']} failed: {one['first_error']}" if one["failures"] else "")
                     + (f", {one['wrong_length']} answers of another length" if one["wrong_length"] else ""))
    return [{"name": name, "concurrency": concurrency, "rounds": of_one, "median": summarise(of_one),
             "ceiling": ceiling} for name, of_one in rounds.items()]


def measure(targets, options, progress):
    with LoadProcesses(options.processes) as load:
        for target in targets:
            target.model = options.model or find_model(target)
            progress(f"warming up {target.name}")
            run_round(load, target, Workload("16/8").prompts(1, 0, "warm-up"), 1)
        return [result for concurrency in options.concurrency
                for result in measure_concurrency(load, targets, options, concurrency, progress)]


def milliseconds(value, digits):
    return f"{value:.{digits}f} ms" if value else "-"


def print_table(results, stream=True):
    first = {}
    print(f"{'streams':>7} {'server':16} {'tok/s':>8} {'ratio':>6} {'TTFT p50':>9} {'p99':>8} "
          f"{'ITL p50':>8} {'p99':>8} {'request':>9} {'RSS MB':>7} {'failed':>6}")
    for result in results:
        median = result["median"]
        base = first.setdefault(result["concurrency"], median["tokens_per_second"])
        ratio = median["tokens_per_second"] / base if base else 0
        print(f"{result['concurrency']:7} {result['name']:16} {median['tokens_per_second']:8.1f} {ratio:6.2f} "
              f"{milliseconds(median['ttft_p50_ms'], 0):>9} {milliseconds(median['ttft_p99_ms'], 0):>8} "
              f"{milliseconds(median['itl_p50_ms'], 1):>8} {milliseconds(median['itl_p99_ms'], 1):>8} "
              f"{milliseconds(median['request_p50_ms'], 0):>9} {median['resident_mb']:7.0f} "
              f"{median['failures']:6.0f}")
    for result in results:
        if result["name"] == results[0]["name"]:
            print(f"{result['concurrency']:7} {describe_ceiling(result['ceiling'], result['median'], stream)}")


def numbers(text):
    values = [int(part) for part in text.split(",")]
    if min(values) < 1:
        raise ValueError(text)
    return values


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--url", action="append", required=True, metavar="[NAME=]URL",
                        help="base address without /v1; repeatable")
    parser.add_argument("--pid", action="append", type=int, default=[],
                        help="process whose resident memory is read; one per --url, in order")
    parser.add_argument("--model", help="name to ask for (default: the first of /v1/models)")
    parser.add_argument("--concurrency", type=numbers, default=[1, 8, 32], metavar="N,N", help="default 1,8,32")
    parser.add_argument("--workload", type=Workload, metavar="IN/OUT|sharegpt",
                        help="lengths; default those of the next two options")
    parser.add_argument("--prompt-tokens", type=int, default=64, help="about; default 64")
    parser.add_argument("--max-tokens", type=int, default=128, help="per request; default 128")
    parser.add_argument("--prompt-ids", type=int, default=0, metavar="VOCABULARY",
                        help="prompts are token ids below this, of exactly the workload's length; default: words")
    parser.add_argument("--no-stream", dest="stream", action="store_false",
                        help="whole answers: no first tokens and gaps, tokens as `usage` says")
    parser.add_argument("--rate", type=float, default=0, help="requests that arrive per second; default: closed loop")
    parser.add_argument("--processes", type=int, default=default_processes(),
                        help="that send the load; default half the cores, at most 8")
    parser.add_argument("--requests", type=int, default=1, help="per stream and round; default 1")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--seed", type=int, default=0, help="of the prompts; default 0")
    parser.add_argument("--timeout", type=float, default=600,
                        help="seconds per request; default 600")
    parser.add_argument("--json", metavar="PATH", help="write all figures there")
    options = parser.parse_args()
    options.workload = options.workload or Workload(f"{options.prompt_tokens}/{options.max_tokens}")
    return options


def make_targets(options):
    targets = []
    for number, text in enumerate(options.url):
        name, _, url = text.rpartition("=")
        pid = options.pid[number] if number < len(options.pid) else 0
        targets.append(Target(name or url.split("//")[-1], url.rstrip("/"), pid=pid))
    return targets


def main():
    options = parse_options()
    try:
        results = measure(make_targets(options), options, lambda text: print(text, file=sys.stderr, flush=True))
    except LoadError as error:
        sys.exit(f"the load generator failed: {error}")
    print_table(results, options.stream)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": {**vars(options), "workload": options.workload.name}, "results": results}, file,
                      indent=2)
    return 1 if any(result["median"]["failures"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
