#!/usr/bin/env python3
"""Runs cluster_sim for every row of docs/scale.md's section "Simulated", and goes on where it stopped.

  scripts/bench/run_cluster_sim.py build/scripts/bench/cluster_sim/cluster_sim --json result.json [--part NAME]... [--jobs 2]

The parts: `scale` (numbers of replicas), `rate` (requests a second), `limits` (where
affinity does not help), `lost` (a replica killed, one drained, none), `gpus` (16 of them, divided among servers), `cpu` (a
small device), `million` (1,000,000 requests).
scripts/bench/cluster_report.py makes tables and pictures of the result."""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

sys.path.append(str(Path(__file__).with_name("cluster_sim")))
import gpu_model  # noqa: E402

ROUTERS = ("round-robin", "least", "affinity", "prefix")


def timed(seconds, rate, replicas, **options):
    """Options of a run of that many virtual seconds."""
    return dict(options, rate=rate, replicas=replicas, requests=max(1, round(seconds * rate * replicas)))


def h100(seconds, rate, replicas, **options):
    return timed(seconds, rate, replicas, **{"device": "h100-8b", "think-s": 5, "ttft-ms": 500, "tpot-ms": 50,
                                             "warmup-s": 30, **options})


def cpu(seconds, rate, replicas, **options):
    return timed(seconds, rate, replicas, **{"device": "cpu-135m", "system-tokens": 100, "think-s": 20, "ttft-ms": 10000,
                                             "tpot-ms": 250, "warmup-s": seconds / 3, **options})


# Of `limits`: what is other than in `scale`.
LIMITS = {"single requests": {"turns": 1, "system-prompts": 0}, "single requests, 20 system prompts": {"turns": 1},
          "6 000 blocks instead of 27 000": {"blocks": 6000}}
# Of `gpus`: requests a second of all, and the devices by the GPUs of each.
NUM_GPUS = 16
DIVISIONS = {"8b": ((200, 400, 600, 800), (1, 2, 4, 8)), "70b": ((50, 100, 150), (2, 4, 8)),
             "70b-q4": ((50, 100, 150), (1, 2, 4, 8)), "120b": ((200, 400, 600), (1, 2, 4, 8))}
FAULTS = ({}, {"kill-s": 40}, {"drain-s": 40})


def list_runs():
    """{part: [options of a run]}"""
    return {
        "rate": [h100(60, rate, 16, router=router) for rate in (10, 15, 20, 25, 30, 35) for router in ROUTERS],
        "scale": [h100(60, 20, n, router=router) for n in (1, 4, 16, 64, 256) for router in ROUTERS],
        "lost": [h100(61, 15, n, router=router, **{"window-s": 10}, **fault)
                 for n in (4, 16, 64) for router in ("least", "affinity") for fault in FAULTS],
        "limits": [h100(60, 20, 16, router=router, name=name, **changes)
                   for name, changes in LIMITS.items() for router in ROUTERS],
        "gpus": [h100(40, rate * gpus / NUM_GPUS, NUM_GPUS // gpus, router="affinity",
                      **{"device": gpu_model.device_name(model, gpus), "warmup-s": 20})
                 for model, (rates, divisions) in DIVISIONS.items() for rate in rates for gpus in divisions],
        "cpu": [cpu(1500, rate, 4, router=router) for rate in (0.2, 0.3, 0.4, 0.5) for router in ROUTERS],
        "million": [dict(h100(60, 10, 256, router="affinity"), requests=1000000)],
    }


def run(binary, options):
    """The run's figures and what the program took."""
    arguments = [str(word) for option, value in options.items() if option != "name" for word in (option, value)]
    done = subprocess.run([binary, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return {"options": options, **json.loads(done.stdout), "cost": json.loads(done.stderr.splitlines()[-1])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--json", type=Path, required=True, help="file of the results; what it has is not run again")
    parser.add_argument("--part", action="append", choices=list_runs(), help="run these only")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    options = parser.parse_args()
    results = json.loads(options.json.read_text()) if options.json.exists() else []
    known = [(result["part"], result["options"]) for result in results]
    todo = [(part, run_options) for part, runs in list_runs().items() if not options.part or part in options.part
            for run_options in runs if (part, run_options) not in known]
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(run, options.binary.resolve(), run_options): part for part, run_options in todo}
        for future in as_completed(futures):
            results.append({"part": futures[future], **future.result()})
            options.json.write_text(json.dumps(results))
            print(f"{len(results)} of {len(known) + len(todo)} runs", file=sys.stderr)


if __name__ == "__main__":
    main()
