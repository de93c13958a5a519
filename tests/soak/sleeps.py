#!/usr/bin/env python3
"""Puts a server of its own to sleep and wakes it, many times, by one client or several at once:

    sleeps.py --binary build/server/quire [--pairs 1000] [--clients 1,4] [--ranks off,on] [--requests no,yes]

Ends with 1 where an answer was not as wanted, a seeded text changed, or the server does not end well. With one client each sleep
and each wake is as told, and a completion after it has the text of the first; with several a sleep may be called off (409), and a
completion may find it asleep (503)."""

import argparse
import http.client
import itertools
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/attacks"))
from victim import NAME, TINY, Victim  # noqa: E402

OPTIONS = {"enable-admin": None, "kv-cache-memory-bytes": "8M", "max-model-len": 256}
BODY = json.dumps({"model": NAME, "prompt": "Once upon a time", "max_tokens": 12, "ignore_eos": True, "seed": 7, "temperature": 1})
TIMEOUT_S = 60  # an answer later than this does not come


class Client:
    """One connection; counts what it is answered, and keeps what it must not be."""

    def __init__(self, victim, is_alone):
        self.connection = http.client.HTTPConnection("127.0.0.1", victim.address, timeout=TIMEOUT_S)
        self.is_alone, self.counts, self.faults = is_alone, Counter(), []

    def post(self, path, body=""):
        self.connection.request("POST", path, body, {"Content-Type": "application/json"} if body else {})
        reply = self.connection.getresponse()
        return reply.status, reply.read()

    def want(self, what, status, body, allowed):
        self.counts[f"{what} {status}"] += 1
        if status not in allowed:
            self.faults.append(f"{what}: {status} {body[:200]!r}")

    def complete(self, expected):
        status, body = self.post("/v1/completions", BODY)
        self.want("completion", status, body, (200,) if self.is_alone else (200, 503))
        text = json.loads(body)["choices"][0]["text"] if status == 200 else None
        if expected is not None and text not in (expected, None):
            self.faults.append(f"another text: {text!r} instead of {expected!r}")
        return text

    def run(self, pairs, expected, has_requests):
        try:
            for i in range(pairs):
                status, body = self.post(f"/sleep?level={1 + i % 2}")
                self.want("sleep", status, body, (200,) if self.is_alone else (200, 409))
                status, body = self.post("/wake_up")
                self.want("wake", status, body, (200,))
                if has_requests:
                    self.complete(expected)
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            self.faults.append(f"no answer: {type(error).__name__}: {error}")


def sleeps(binary, folder, pairs, clients, ranks, has_requests):
    """`pairs` of all clients together. Returns what was counted, and the faults."""
    victim = Victim(binary, TINY, folder, {**OPTIONS, "rank-process": ranks})
    try:
        expected = Client(victim, True).complete(None)
        each = [Client(victim, clients == 1) for _ in range(clients)]
        threads = [threading.Thread(target=client.run, args=(pairs // clients, expected, has_requests)) for client in each]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        last = Client(victim, True)
        last.run(1, expected, True)
        faults = [fault for client in [*each, last] for fault in client.faults]
        return sum((client.counts for client in [*each, last]), Counter()), faults + victim.finish()
    finally:
        victim.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build/server/quire")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--clients", default="1,4")
    parser.add_argument("--ranks", default="off,on")
    parser.add_argument("--requests", default="no,yes")
    arguments = parser.parse_args()
    is_good = True
    with tempfile.TemporaryDirectory(prefix="quire-sleeps-") as folder:
        for clients, ranks, requests in itertools.product(*(words.split(",") for words in (
                arguments.clients, arguments.ranks, arguments.requests))):
            began = time.monotonic()
            counts, faults = sleeps(arguments.binary, folder, arguments.pairs, int(clients), ranks, requests == "yes")
            is_good = is_good and not faults
            print(f"{clients} clients, rank process {ranks}, requests {requests}: {dict(sorted(counts.items()))}, "
                  f"{len(faults)} faults, {time.monotonic() - began:.0f} s", flush=True)
            for fault in faults[:10]:
                print(f"        {fault[:300]}", flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
