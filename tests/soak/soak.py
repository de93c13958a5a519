#!/usr/bin/env python3
"""Loads a server of its own with a mix of calls for a long time, and says what is left of them at the end:

    soak.py --binary build/server/quire --hours 2 | --requests 1000000 [--no-prefix-caching] [--front] [--json FILE]

Ends with 1 where an answer was not as wanted, a block, socket or file stays, or the server does not end well. Beside that it
prints the slope of the memory that is the process's own (RssAnon and VmSwap) over the second half, in bytes a call."""

import argparse
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from front import Door, Front
from mix import WEIGHTS, Client, Unexpected, complete

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/attacks"))
from victim import Victim, write_model  # noqa: E402

PROCESSES, CLIENTS = 2, 8
OPTIONS = {"kv-cache-memory-bytes": "400K", "swap-space": 0.0001, "max-num-seqs": 12, "max-model-len": 1024}
TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
SAMPLE_S = 0.5
SETTLE_S = 20
MAX_FAULTS = 20


def act(door, seed, counts, calls, faults, stopping):
    """One client, until told to stop."""
    rng = random.Random(seed)
    client = Client(door, rng)
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    while not stopping.is_set():
        kind = rng.choices(kinds, weights)[0]
        try:
            kind(client)
        except (Unexpected, OSError, ValueError, KeyError) as error:
            client.close()
            faults.append(f"{kind.__name__}: {type(error).__name__}: {error}")
        counts[kind.__name__] += 1
        with calls.get_lock():
            calls.value += 1
    client.close()
    counts["answered busy"] += client.num_busy


def work(door, seed, calls, stopping, results):
    """A process with CLIENTS clients."""
    counts, faults = Counter(), []
    threads = [threading.Thread(target=act, args=(door, f"{seed}.{i}", counts, calls, faults, stopping))
               for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((counts, faults[:MAX_FAULTS], len(faults)))


def slope(samples):
    """Bytes a call, by least squares over the second half of (calls, bytes)."""
    half = samples[len(samples) // 2:]
    if len({calls for calls, _ in half}) < 2:
        return 0.0
    return statistics.linear_regression(*zip(*half)).slope


class Soak:
    def __init__(self, victim, seed, doors):
        self.victim, self.seed, self.doors = victim, seed, doors
        self.samples, self.faults, self.counts = [], [], Counter()

    def own_bytes(self):
        return self.victim.memory("RssAnon") + self.victim.memory("VmSwap")

    def run(self, max_calls, max_seconds):
        context = multiprocessing.get_context("spawn")
        calls, stopping, results = context.Value("q", 0), context.Event(), context.Queue()
        workers = [context.Process(target=work, args=(self.doors[i % len(self.doors)], f"{self.seed}.{i}", calls, stopping, results))
                   for i in range(PROCESSES)]
        began = time.monotonic()
        for worker in workers:
            worker.start()
        while (calls.value < max_calls and time.monotonic() - began < max_seconds and self.victim.process.poll() is None
               and any(worker.is_alive() for worker in workers)):
            time.sleep(SAMPLE_S)
            self.samples.append((calls.value, self.own_bytes()))
        stopping.set()
        for worker in workers:
            if worker.exitcode:
                raise RuntimeError(f"a process of clients ended with {worker.exitcode}")
        for _ in workers:
            counts, faults, num_faults = results.get(timeout=300)
            self.counts += counts
            self.faults += faults[:MAX_FAULTS]
        for worker in workers:
            worker.join()
        self.seconds, self.num_calls = time.monotonic() - began, calls.value


def soak(binary, max_calls, max_seconds, folder, options=None, model=None, seed=0, has_front=False):
    """Runs it; returns the figures, of which `faults` is empty when all was as wanted."""
    front = Front(folder) if has_front else None
    try:
        return load(binary, max_calls, max_seconds, folder, options, model, seed, front)
    finally:
        if front:
            front.close()


def send_span(front, door):
    """Has a span arrive: libcurl keeps what it opens for the first."""
    client = Client(door, random.Random(0))
    complete(client)
    client.close()
    deadline = time.monotonic() + SETTLE_S
    while not front.collector.num_spans:
        if time.monotonic() > deadline:
            raise RuntimeError("no span came")
        time.sleep(0.05)


def load(binary, max_calls, max_seconds, folder, options, model, seed, front):
    template = Path(folder) / "template.jinja"
    template.write_text(TEMPLATE)
    model = model or write_model(Path(folder) / "tiny.gguf")
    victim = Victim(binary, model, folder, {**OPTIONS, "chat-template": template, **(front.options if front else {}),
                                            **(options or {})}, tls=front and front.tls, key=front and front.key)
    try:
        run = Soak(victim, seed, front.doors(victim.address) if front else [Door(victim.address)])
        if front:
            send_span(front, run.doors[0])
        sockets, files = victim.num_sockets(), victim.num_files()
        if front:
            front.start(victim, run.faults)
        try:
            run.run(max_calls, max_seconds)
        finally:
            if front:
                front.stop()
        if victim.process.poll() is not None:
            raise RuntimeError(f"the server ended with {victim.process.returncode}: {victim.read_log()}")
        left, metrics = victim.what_is_left(sockets, files, SETTLE_S), victim.metrics()
        run.faults += [f"{count} {name} left" for name, count in left.items()]
        run.faults += victim.finish()
        if front and not (front.collector.num_spans and front.num_rounds):
            run.faults.append("no span came, or nothing was read again")
    finally:
        victim.kill()
    half = run.samples[len(run.samples) // 2:]
    return {
        "calls": run.num_calls, "seconds": round(run.seconds, 1), "by kind": dict(run.counts),
        "calls/s": round(run.num_calls / run.seconds, 1),
        "preemptions": metrics.get("num_preemptions_total", 0), "generated tokens": metrics.get("generation_tokens_total", 0),
        "own MiB, half way": round(half[0][1] / 2**20, 1) if half else 0,
        "own MiB, at the end": round(half[-1][1] / 2**20, 1) if half else 0,
        "slope, bytes a call": round(slope(run.samples), 2), "left": left, "faults": run.faults,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build-release/server/quire", help="default %(default)s")
    parser.add_argument("--model", type=Path, help="another one than the tiny model")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--hours", type=float)
    length.add_argument("--requests", type=int)
    parser.add_argument("--no-prefix-caching", action="store_true")
    parser.add_argument("--front", action="store_true", help="with TLS, API keys, access log, spans and the admin socket, read again "
                        "all the time")
    parser.add_argument("--seed", type=int, default=0, help="of the mix; default 0")
    parser.add_argument("--json", type=Path, help="figures, written there too")
    arguments = parser.parse_args()
    options = {"no-enable-prefix-caching": None} if arguments.no_prefix_caching else {}
    with tempfile.TemporaryDirectory(prefix="quire-soak-") as folder:
        figures = soak(arguments.binary, arguments.requests or 1 << 62, 3600 * (arguments.hours or 1 << 20), folder, options,
                       arguments.model, arguments.seed, arguments.front)
    for name, value in figures.items():
        if name != "faults":
            print(f"{name:24} {value}")
    for fault in figures["faults"]:
        print(f"not as wanted: {fault[:300]}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))
    return 1 if figures["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
