#!/usr/bin/env python3
"""How fast `quire pull` fetches one large file over loopback, and in how much memory, beside curl.

  bench_pull.py --quire build-release/server/quire [--megabytes 200,2000] [--rounds 3] [--folder DIR]

The hub of the tests (tests/e2e/hub_server.py) makes up the bytes. Each round fetches the file with `quire pull`, which
compares its SHA-256 and has it written to the disk; with curl, which does neither; and with curl and sha256sum on
the file. Prints medians of the rates, and the highest resident size of each program in all rounds.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/e2e"))

from hub_server import Content, Hub  # noqa: E402

NAME = "bench/large"
FILE = "large.gguf"


def peak_kib(pid):
    """The highest resident size so far (proc(5)); 0 once the process has ended. What wait4(2) says counts the program that
    started it as well."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def run(command, environment):
    """Returns seconds and the highest resident size in MiB."""
    with tempfile.TemporaryFile() as log:
        start, peak = time.perf_counter(), 0
        process = subprocess.Popen([str(word) for word in command], env=environment, stdout=subprocess.DEVNULL, stderr=log)
        while process.poll() is None:
            peak = max(peak, peak_kib(process.pid))
            time.sleep(0.005)
        seconds = time.perf_counter() - start
        if process.returncode != 0:
            log.seek(0)
            sys.exit(f"{command[0]}: {log.read().decode()}")
    return seconds, peak / 1024


def fetch(program, arguments, hub, commit, folder):
    """One fetch into an empty folder."""
    environment = {**os.environ, "HF_HOME": str(folder), "HF_ENDPOINT": hub.url}
    url, target = f"{hub.url}/{NAME}/resolve/{commit}/{FILE}", folder / FILE
    try:
        if program == "quire":
            return run([arguments.quire, "pull", NAME], environment)
        seconds, memory = run(["curl", "-sSfL", "-o", target, url], environment)
        if program == "curl, sha256sum":
            more = run(["sha256sum", target], environment)
            return seconds + more[0], max(memory, more[1])
        return seconds, memory
    finally:
        shutil.rmtree(folder)


def measure(megabytes, arguments, hub):
    content = Content(megabytes * 10**6)
    commit = hub.add(NAME, {FILE: content})
    programs = ("quire", "curl", "curl, sha256sum")
    results = {program: [] for program in programs}
    for _ in range(arguments.rounds):
        for program in programs:
            folder = Path(tempfile.mkdtemp(dir=arguments.folder))
            results[program].append(fetch(program, arguments, hub, commit, folder))
    for program, figures in results.items():
        rate = statistics.median(megabytes / seconds for seconds, _ in figures)
        rates = ", ".join(f"{megabytes / seconds:.0f}" for seconds, _ in figures)
        memory = max(memory for _, memory in figures)
        print(f"{megabytes:6d} MB  {program:16s} {rate:7.0f} MB/s ({rates})  {memory:6.1f} MiB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", required=True, type=Path)
    parser.add_argument("--megabytes", default="200,2000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where the files go meanwhile; default: the system's")
    arguments = parser.parse_args()
    with Hub() as hub:
        for megabytes in arguments.megabytes.split(","):
            measure(int(megabytes), arguments, hub)


if __name__ == "__main__":
    main()
