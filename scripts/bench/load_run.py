"""Load on a server by several processes, so that one Python program's speed is never what is measured.

Each process (load_client.py) has its share of the connections and requests; all start at the same moment, and the
figures are taken from the samples of all of them. `StubServers` answers at once: what the same processes take in from
it is the load generator's own ceiling.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_SECONDS = 30  # until a process is there and has opened its connections
LATE_SECONDS = 30  # after a job should have ended
LEAD_SECONDS = 0.02  # from "go" to the start
MOST_PROCESSES = 8


class LoadError(Exception):
    """The load generator itself failed."""


def default_processes():
    """The server and its device need cores as well."""
    return max(1, min(MOST_PROCESSES, len(os.sched_getaffinity(0)) // 2))


def percentile(values, share):
    """Nearest rank; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Child:
    """A program of this folder that is spoken to in lines, and ends with its input."""

    def __init__(self, script, *arguments, python=sys.executable, stderr=None):
        self.process = subprocess.Popen([python, HERE / script, *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=stderr)
        self.script, self.received = script, b""

    def write(self, text):
        try:
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise LoadError(f"{self.script} has ended") from error

    def read(self, deadline):
        while b"\n" not in self.received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise LoadError(f"{self.script} says nothing")
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                raise LoadError(f"{self.script} has ended")
            self.received += data
        line, self.received = self.received.split(b"\n", 1)
        return line.decode()

    def kill(self):
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):  # what it was still to be told
            self.process.stdin.close()
        self.process.stdout.close()


class Children:
    """Several of one script; killed at the end of the block."""

    def __init__(self, script, count):
        self.script, self.count, self.all = script, count, []

    def __enter__(self):
        try:
            for _ in range(self.count):
                self.all.append(Child(self.script))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in self.all:
            child.kill()
        self.all = []


class StubServers(Children):
    """Servers that compute nothing; `urls` has the address of each."""

    def __init__(self, count):
        super().__init__("stub_server.py", count)

    @property
    def urls(self):
        if not hasattr(self, "known"):
            deadline = time.monotonic() + START_SECONDS
            self.known = [f"http://127.0.0.1:{int(stub.read(deadline))}" for stub in self.all]
        return self.known


class LoadProcesses(Children):
    """The processes that send a load; run() is one job of all of them. After a LoadError they are of no use."""

    def __init__(self, count=0):
        super().__init__("load_client.py", count or default_processes())

    def run(self, urls, requests, connections, stream=True, path="/v1/completions", timeout=600, seconds=0,
            repeat=False):
        """Sends `requests`, as load_client.py describes them, over `connections` to the first URL; with several, each
        process to one of its own. Returns the figures (summarise)."""
        parts = share_out(urls, requests, connections, self.count)
        most = seconds or timeout * (1 + len(requests))  # each process may have to wait for every answer
        start_deadline = time.monotonic() + START_SECONDS
        children = self.all[:len(parts)]
        for child, part in zip(children, parts):
            child.write(json.dumps({**part, "stream": stream, "path": path, "timeout": timeout, "seconds": seconds,
                                     "repeat": repeat}))
        for child in children:
            if child.read(start_deadline) != "ready":
                raise LoadError(f"{child.script} is not ready")
        start = time.monotonic() + LEAD_SECONDS
        for child in children:
            child.write(f"go {start}")
        deadline = start + most + LATE_SECONDS
        return summarise([json.loads(child.read(deadline)) for child in children])


def share_out(urls, requests, connections, num_processes):
    """The jobs of the processes, each with a connection at least."""
    count = min(num_processes, connections, max(1, len(requests)))
    addresses = [urllib.parse.urlsplit(url) for url in urls]
    return [{"host": addresses[i % len(urls)].hostname, "port": addresses[i % len(urls)].port or 80,
             "connections": (connections + count - 1 - i) // count, "requests": requests[i::count]}
            for i in range(count)]


def summarise(parts):
    """Figures of all parts together: rates over the whole time, percentiles over every sample. Of requests that were
    cut short the tokens, first tokens and gaps count, not the latency."""
    seconds = max(1e-6, *(part["seconds"] for part in parts))
    firsts, gaps, answers, errors = ([sample for part in parts for sample in part[name]]
                                     for name in ("firsts_us", "gaps_us", "answers", "errors"))
    latencies = [answer[0] for answer in answers]
    total = {name: sum(part[name] for part in parts)
             for name in ("failures", "cut", "cut_tokens", "events", "reads")}
    output_tokens = sum(answer[1] for answer in answers) + total["cut_tokens"]
    figures = {"tokens_per_second": output_tokens / seconds, "requests_per_second": len(answers) / seconds}
    for name, samples in (("ttft", firsts), ("itl", gaps), ("request", latencies)):
        for share in (50, 95, 99):
            figures[f"{name}_p{share}_ms"] = percentile(samples, share / 100) / 1000
    return {**figures, "output_tokens": output_tokens, "prompt_tokens": sum(answer[3] for answer in answers),
            "requests": len(answers), "seconds": seconds, "failures": total["failures"],
            "first_error": next(iter(errors), ""), "cut": total["cut"],
            "wrong_length": sum(asked is not None and tokens != asked for _, tokens, asked, _ in answers),
            "events": total["events"], "events_per_second": total["events"] / seconds,
            "events_per_read": total["events"] / max(1, total["reads"]), "processes": len(parts),
            "client_busy": max(part["cpu_seconds"] / max(part["seconds"], 1e-6) for part in parts)}
