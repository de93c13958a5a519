#!/usr/bin/env python3
"""Measures what tiers of the KV cache do for a long prefix, and what a store costs those who do not use it.

Starts servers of its own, on the CPU. Time to the first token of the same prefix: computed, on the device, in host
blocks, in the store after a restart (with the page cache as it is, and dropped with --drop-caches, which needs root);
the longest pause between two tokens of streams beside a store that writes and reads all the time, and without one.
Medians over rounds, in which the cases alternate.

  scripts/bench/bench_kv_tiers.py --binary build/server/quire --model model.gguf --folder /var/tmp/kv --json out.json

Needs Python 3.9 and a folder with some GiB free; what it makes there is removed.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

PROMPT_WORDS = ["sea", "river", "stone", "house", "green", "light", "seven", "early", "north", "paper", "window", "garden"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, options, *arguments):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [options.binary, "serve", options.model, "--port", self.port, "--device", "cpu", "--log-level", "error",
                   "--max-inter-token-ms", options.inter_token_ms, *arguments]
        self.process = subprocess.Popen([str(word) for word in command])
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(self.url + "/health").close()
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server does not start: {command}")
            time.sleep(0.05)

    def post(self, body):
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=900)

    def first_token(self, prompt):
        """Seconds, cached tokens, and the text."""
        begin = time.perf_counter()
        with self.post({"prompt": prompt, "max_tokens": 1, "temperature": 0}) as reply:
            answer = json.load(reply)
        seconds = time.perf_counter() - begin
        return seconds, answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["choices"][0]["text"]

    def metric(self, name, label):
        text = urllib.request.urlopen(self.url + "/metrics").read().decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if name + "{" in line and label in line)

    def store_blocks(self):
        return self.metric("kv_tier_blocks", 'tier="store"')

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def make_prompt(seed, num_tokens):
    """About so many tokens; the seed is in the first words."""
    words = [f"{seed} {PROMPT_WORDS[seed % 12]}"]
    while len(words) < num_tokens:
        words.append(PROMPT_WORDS[(len(words) * 7 + seed + len(words) // 5) % 12])
    return " ".join(words)


def await_stored(server):
    """Until nothing more is written for a while."""
    last, since = -1, time.monotonic()
    while time.monotonic() - since < 1.5:
        now = server.store_blocks()
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.1)


def drop_caches():
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("1")


def measure_prefix(options, times):
    """One round of every case; all have to give the same token."""
    folder = Path(options.folder) / "kv-tiers"
    shutil.rmtree(folder, ignore_errors=True)
    store = ["--kv-store", folder, "--kv-store-bytes", options.store_bytes]
    prompt, other = make_prompt(1, options.tokens), make_prompt(2, options.tokens)
    texts = set()

    def note(case, server, least_cached):
        seconds, cached, text = server.first_token(prompt)
        if cached < least_cached:
            raise SystemExit(f"{case}: only {cached} tokens were found")
        times.setdefault(case, []).append(seconds)
        texts.add(text)

    server = Server(options)
    note("computed", server, 0)
    note("device", server, options.tokens // 2)
    server.stop()
    pool = ["--kv-cache-memory-bytes", options.one_prompt_bytes]
    server = Server(options, *pool, "--kv-host-bytes", options.host_bytes)
    server.first_token(prompt)
    server.first_token(other)
    note("host", server, options.tokens // 2)
    server.stop()
    server = Server(options, *store)
    note("computed, with a store", server, 0)
    await_stored(server)
    server.stop()
    server = Server(options, *store)
    server.first_token("Hello")
    note("store, after a restart", server, options.tokens // 2)
    server.stop()
    if options.drop_caches:
        drop_caches()
        server = Server(options, *store)
        note("store, after a restart, cold", server, options.tokens // 2)
        server.stop()
    if len(texts) != 1:
        raise SystemExit(f"answers differ: {texts}")
    shutil.rmtree(folder)


# Reading a block takes as long as from a disk of THROTTLE_MB megabytes a second.
THROTTLE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
ssize_t pread64(int fd, void *data, size_t bytes, off64_t at) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (real == NULL)
        real = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    const char *rate = getenv("THROTTLE_MB");
    ssize_t count = real(fd, data, bytes, at);
    if (rate != NULL && bytes >= 65536) {
        double seconds = (double)bytes / (atof(rate) * 1e6);
        struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
        nanosleep(&pause, NULL);
    }
    return count;
}
ssize_t pread(int fd, void *data, size_t bytes, off_t at) { return pread64(fd, data, bytes, at); }
"""


def measure_choice(options, results):
    """Whether reading or computing was the better choice, with disks of several speeds: the time of either alone, and of
    what the server chose. It knows both speeds by then."""
    folder = Path(options.folder) / "kv-tiers"
    shim = folder.with_suffix(".so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-x", "c", "-o", shim, "-"], input=THROTTLE.encode(), check=True)
    shutil.rmtree(folder, ignore_errors=True)
    store = ["--kv-store", folder, "--kv-store-bytes", options.store_bytes]
    server = Server(options, *store)
    for seed in (1, 2):
        server.first_token(make_prompt(seed, options.tokens))
    await_stored(server)
    token_bytes = server.metric("kv_store_bytes_total", 'direction="write"') / server.store_blocks() / 16
    server.stop()
    unthrottled = 0
    for number, rate in enumerate([1e6, *options.throttle]):
        os.environ.update(LD_PRELOAD=str(shim), THROTTLE_MB=str(rate))
        server = Server(options, *store)
        del os.environ["LD_PRELOAD"], os.environ["THROTTLE_MB"]
        server.first_token(make_prompt(2, options.tokens // 4))  # read
        computed = server.first_token(make_prompt(10 + number, options.tokens))[0]
        chosen, cached, _ = server.first_token(make_prompt(1, options.tokens))
        server.stop()
        unthrottled = unthrottled or chosen
        reading = unthrottled + options.tokens * token_bytes / (rate * 1e6)
        results.setdefault(rate, []).append({"computed": computed, "reading": reading, "chosen": chosen, "cached": cached})
    shutil.rmtree(folder)
    shim.unlink()


def read_stream(server, seed, pauses, stopped):
    """Notes the pauses between the tokens of one answer after the other, but for the first of each."""
    body = {"prompt": make_prompt(seed, 40), "max_tokens": 4000, "temperature": 1, "stream": True, "ignore_eos": True}
    while not stopped.is_set():
        last, count = None, 0
        with server.post(body) as reply:
            for line in reply:
                if stopped.is_set():
                    return
                if not line.startswith(b"data: {"):
                    continue
                now, count = time.perf_counter(), count + 1
                if last is not None and count > 20:
                    pauses.append(now - last)
                last = now


# What a client asks next to 8 streams, one request after the other, and whether the server has a store: pairs that differ
# in what the store does alone.
PAUSE_CASES = {"found on the device": ("same", False), "read from the store": ("flushed", True),
               "computed": ("new", False), "computed and written": ("new", True)}


def measure_pauses(options, prompts, has_store):
    folder = Path(options.folder) / "kv-tiers"
    shutil.rmtree(folder, ignore_errors=True)
    server = Server(options, "--enable-admin", *(["--kv-store", folder, "--kv-store-bytes", options.store_bytes] if has_store else []))
    for number in range(6):
        server.first_token(make_prompt(100 + number, 600))
    if has_store:
        await_stored(server)
    pauses, stopped = [], threading.Event()
    streams = [threading.Thread(target=read_stream, args=(server, seed, pauses, stopped)) for seed in range(8)]
    for stream in streams:
        stream.start()
    end, number = time.monotonic() + options.seconds, 0
    while time.monotonic() < end:
        if prompts == "flushed":
            urllib.request.urlopen(urllib.request.Request(server.url + "/reset_prefix_cache", method="POST")).close()
        server.first_token(make_prompt(100 + number % 6 + (1000 + number if prompts == "new" else 0), 600))
        number += 1
    stopped.set()
    for stream in streams:
        stream.join()
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)
    pauses.sort()
    return {"longest": pauses[-1], "p99": pauses[int(len(pauses) * 0.99)], "median": statistics.median(pauses),
            "tokens": len(pauses), "requests": number}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/server/quire")
    parser.add_argument("--model", required=True)
    parser.add_argument("--folder", default="/var/tmp")
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15, help="of streams, in each case of each round; 0: none")
    parser.add_argument("--store-bytes", default="2G")
    parser.add_argument("--host-bytes", default="1G")
    parser.add_argument("--one-prompt-bytes", default="200M", help="a KV cache that holds one prompt")
    parser.add_argument("--inter-token-ms", default="auto")
    parser.add_argument("--drop-caches", action="store_true")
    parser.add_argument("--throttle", type=float, nargs="*", default=[], help="MB/s of disks with which reading or computing is chosen; needs cc")
    parser.add_argument("--json")
    options = parser.parse_args()
    times, choices, pauses = {}, {}, {name: [] for name in PAUSE_CASES}
    for _ in range(options.rounds):
        if options.tokens > 0 and not options.throttle:
            measure_prefix(options, times)
        if options.throttle:
            measure_choice(options, choices)
        for name, case in PAUSE_CASES.items() if options.seconds > 0 else ():
            pauses[name].append(measure_pauses(options, *case))
    medians = {case: statistics.median(values) for case, values in times.items()}
    for case, seconds in medians.items():
        print(f"{case:32} {seconds * 1000:9.0f} ms  {medians['computed'] / seconds:7.1f} times as fast as computed")
    for rate, runs in choices.items():
        run = {what: statistics.median(one[what] for one in runs) for what in runs[0]}
        better = min(run["computed"], run["reading"])
        print(f"disk of {rate:6.0f} MB/s: computed {run['computed'] * 1000:6.0f} ms, read {run['reading'] * 1000:6.0f} ms, chosen "
              f"{run['chosen'] * 1000:6.0f} ms ({run['chosen'] / better:.2f} of the better), {run['cached']:.0f} tokens read")
    for name, runs in pauses.items():
        figures = {what: statistics.median(run[what] for run in runs) for what in runs[0]} if runs else {}
        if figures:
            print(f"8 streams next to prompts {name:22}: pauses {figures['median'] * 1000:6.1f} ms, p99 {figures['p99'] * 1000:6.1f}, "
                  f"longest {figures['longest'] * 1000:6.1f}; {figures['requests']:.0f} prompts")
    if options.json:
        Path(options.json).write_text(json.dumps({"seconds": times, "choices": choices, "pauses": pauses}, indent=1))


if __name__ == "__main__":
    main()
