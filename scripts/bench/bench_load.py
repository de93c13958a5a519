#!/usr/bin/env python3
"""How long `quire serve` takes to load a model, and how much memory, beside reading its files.

  bench_load.py --quire build-release/server/quire MODEL.gguf FOLDER ... [-- serve options]

Each round reads every model's files once from the page cache, and starts a server on it, in turn.
Memory is the process's highest resident size until it is ready (VmHWM of /proc/PID/status), of
which the KV cache is only what the self-test touched; its full size is shown too. Prints medians.
"""

import argparse
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

PIECE = 1 << 22
READY_TIMEOUT = 300


def files_of(model):
    """What is read of a model: the file, all parts of a split one, or a folder's safetensors."""
    if model.is_dir():
        return sorted(model.glob("*.safetensors"))
    split = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", model.name)
    return sorted(model.parent.glob(f"{split[1]}-?????-of-{split[2]}.gguf")) if split else [model]


def read_seconds(files):
    """Reading all bytes once; the caller has warmed the cache."""
    buffer = bytearray(PIECE)
    start = time.perf_counter()
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.perf_counter() - start


def status_bytes(pid, field):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB", text, re.M)[1]) * 1024


def load(quire, model, arguments):
    """Starts a server until it is ready. Returns seconds, peak bytes, and bytes by part."""
    command = [quire, "serve", "--model", model, "--port", "0", "--log-level", "debug", *arguments]
    process = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True)
    watchdog = threading.Timer(READY_TIMEOUT, process.kill)
    watchdog.start()
    log, seconds = [], None
    try:
        for line in process.stderr:
            log.append(line)
            ready = re.search(r"ready after (\d+) ms", line)
            if ready:
                seconds = int(ready[1]) / 1e3
                break
        if seconds is None:
            sys.exit("".join(log))
        peak = status_bytes(process.pid, "VmHWM")
    finally:
        watchdog.cancel()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stderr.close()
    parts = {name: float(mib) * 2**20 for name, mib in
             re.findall(r"(weights|workspace|KV cache)\s+([\d.]+) MiB", "".join(log))}
    return seconds, peak, parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quire", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("models", type=pathlib.Path, nargs="+")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:end])
    results = {model: [] for model in options.models}
    for model in options.models:
        read_seconds(files_of(model))
    for _ in range(options.rounds):
        for model in options.models:
            reading = read_seconds(files_of(model))
            results[model].append((reading, *load(options.quire, model, words[end + 1:])))
    print("| model | files | read | load | load : read | peak | peak : files | KV | workspace |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model, rounds in results.items():
        size = sum(os.path.getsize(path) for path in files_of(model))
        reading = statistics.median(entry[0] for entry in rounds)
        loading = statistics.median(entry[1] for entry in rounds)
        peak = statistics.median(entry[2] for entry in rounds)
        parts = rounds[0][3]
        print(f"| {model.name} | {size / 2**20:.0f} MiB | {size / reading / 2**30:.2f} GiB/s "
              f"| {loading:.2f} s, {size / loading / 2**30:.2f} GiB/s | {loading / reading:.1f} "
              f"| {peak / 2**20:.0f} MiB | {peak / size:.2f} | {parts['KV cache'] / 2**20:.0f} MiB "
              f"| {parts['workspace'] / 2**20:.0f} MiB |")


if __name__ == "__main__":
    main()
