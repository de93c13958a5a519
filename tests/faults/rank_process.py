#!/usr/bin/env python3
"""Kills, stops and crashes the rank process of a server again and again under streams, and says whether a client saw it:

    rank_process.py --binary build-release/server/quire --model MODEL [--times 50] [--streams 32]

Every stream whose output follows from its request must be what a server without such a process says; others must be
whole. Prints how long nothing came, from the blow to the next byte of any stream, and what was left. Ends with 1 where a
stream differed or something was left."""

import argparse
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

BLOWS = [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGABRT]
TIMEOUT_S = 2  # --device-timeout: a stopped process is given up after it
START_S, END_S, STREAM_S = 120, 30, 600
# Too little for all streams at once, so that some are swapped out; a prompt of 600 tokens is computed over several steps.
OPTIONS = ["--max-model-len", 1024, "--max-num-batched-tokens", 256, "--kv-cache-memory-bytes", 80 << 20,
           "--swap-space", 0.05, "--max-num-seqs", 48]


def bodies(count):
    """Requests of all kinds; the last of each round is not seeded."""
    kinds = [{"temperature": 1.0}, {"temperature": 0}, {"n": 3}, {"n": 3, "use_beam_search": True, "temperature": 0,
             "max_tokens": 16, "stream": False}, {"repetition_penalty": 1.2, "logprobs": 2},
             {"structured_outputs": {"regex": "[a-z ]{90}"}}, {"prompt": [100 + i for i in range(600)]},
             {"temperature": 1.0, "seed": None}]
    for i in range(count):
        body = {"prompt": f"Once upon a time, in year {i}", "max_tokens": 40 + 10 * (i % 9), "ignore_eos": True,
                "seed": i, "stream": True, **kinds[i % len(kinds)]}
        yield {name: value for name, value in body.items() if value is not None}


class Server:
    def __init__(self, arguments, log, *options):
        self.log = log
        command = [arguments.binary, "serve", "--model", arguments.model, "--port", 0, *OPTIONS, *options]
        self.process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
        self.port = self.find_port()

    def find_port(self):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            said = Path(self.log.name).read_text(errors="replace").split("listening on http://127.0.0.1:")
            if len(said) > 1:
                return int(said[-1].split(",")[0])
            time.sleep(0.02)
        sys.exit(f"the server does not start: {Path(self.log.name).read_text(errors='replace')[-2000:]}")

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=STREAM_S) as answer:
            return answer.read().decode()

    def metric(self, name):
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.get("/metrics").splitlines()
                   if line.startswith(f"quire:{name}{{"))

    def is_ready(self):
        try:
            return bool(self.get("/ready"))
        except urllib.error.HTTPError:
            return False

    def rank_process(self):
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                return int(child)
        return None

    def num_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(END_S)


def read_stream(port, body, on_bytes):
    """What each choice got: its text, tokens' logprobs and end. None: the stream is not whole."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=STREAM_S)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Connection": "close"})
    answer, choices, is_whole = connection.getresponse(), {}, False
    if not body["stream"]:
        whole = json.loads(answer.read())
        on_bytes()
        return whole.get("choices")
    for line in answer:
        on_bytes()
        if line.startswith(b"data: [DONE]"):
            is_whole = True
        elif line.startswith(b"data: "):
            for choice in json.loads(line[6:]).get("choices", []):
                text, logprobs, _ = choices.get(choice["index"], ("", [], None))
                logprobs = logprobs + ((choice["logprobs"] or {}).get("token_logprobs") or [])
                choices[choice["index"]] = (text + choice["text"], logprobs, choice["finish_reason"])
    connection.close()
    return choices if is_whole and answer.status == 200 else None


class Stream(threading.Thread):
    """Sends its request again and again, and compares."""

    def __init__(self, server, body, expected):
        super().__init__(daemon=True)
        self.server, self.body, self.expected = server, body, expected
        self.last_s, self.num_whole, self.differences, self.is_over = 0.0, 0, [], False

    def note(self):
        self.last_s = time.monotonic()

    def run(self):
        while not self.is_over:
            try:
                got = read_stream(self.server.port, self.body, self.note)
            except (OSError, http.client.HTTPException, ValueError) as error:
                got, self.differences = None, self.differences + [repr(error)]
            if got is None or ("seed" in self.body and got != self.expected):
                self.differences.append({"body": self.body, "got": got, "expected": self.expected})
            self.num_whole += got is not None


def await_true(condition, what, seconds=STREAM_S):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"still not after {seconds} s: {what}")
        time.sleep(0.002)


def strike(server, streams, blow):
    """Returns the seconds until a stream goes on, and until all have."""
    pid, began = server.rank_process(), time.monotonic()
    os.kill(pid, blow)
    await_true(lambda: server.rank_process() not in (None, pid), "another process")
    restarted = time.monotonic()
    await_true(lambda: any(stream.last_s > restarted for stream in streams), "a stream that goes on")
    first = min(stream.last_s for stream in streams if stream.last_s > restarted)
    await_true(lambda: all(stream.last_s > restarted for stream in streams), "every stream")
    return first - began, max(stream.last_s for stream in streams) - began


def figure(what, values):
    print(f"{what:52} median {statistics.median(values):6.2f} s   most {max(values):6.2f} s   of {len(values)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build-release/server/quire")
    parser.add_argument("--model", required=True)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance, requests = random.Random(arguments.seed), list(bodies(arguments.streams))
    with tempfile.NamedTemporaryFile("wb", suffix=".log") as log:
        reference = Server(arguments, log, "--rank-process", "off")
        expected = [read_stream(reference.port, body, lambda: None) for body in requests]
        reference.stop()
    if None in expected:
        sys.exit(f"refused: {requests[expected.index(None)]}")
    with tempfile.NamedTemporaryFile("wb", suffix=".log") as log:
        server = Server(arguments, log, "--rank-process", "on", "--device-timeout", TIMEOUT_S)
        files = server.num_files()
        streams = [Stream(server, body, answer) for body, answer in zip(requests, expected)]
        for stream in streams:
            stream.start()
        times = {blow: [] for blow in BLOWS}
        for i in range(arguments.times):
            time.sleep(chance.random())
            times[BLOWS[i % len(BLOWS)]].append(strike(server, streams, BLOWS[i % len(BLOWS)]))
        for stream in streams:
            stream.is_over = True
        for stream in streams:
            stream.join(STREAM_S)
        last = server.rank_process()
        left = {"blocks": server.metric("kv_blocks_used") + server.metric("swap_blocks_used"),
                "restarts more than blows": server.metric("rank_restarts_total") - arguments.times}
        await_true(lambda: server.num_files() <= files + 1, "descriptors closed", END_S)
        swaps = server.metric("kv_blocks_swapped_total")
        left["exit status"] = server.stop()
        left["processes"] = int(Path(f"/proc/{last}").exists())
    for blow, pairs in times.items():
        if pairs:
            figure(f"{blow.name}: until a stream goes on", [first for first, _ in pairs])
            figure(f"{blow.name}: until every stream has", [every for _, every in pairs])
    differences = [difference for stream in streams for difference in stream.differences]
    print(f"{sum(stream.num_whole for stream in streams)} streams, {len(differences)} different, "
          f"{swaps:.0f} blocks swapped; left: {left}")
    for difference in differences[:3]:
        print(json.dumps(difference, default=str)[:2000])
    sys.exit(bool(differences) or any(left.values()))


if __name__ == "__main__":
    main()
