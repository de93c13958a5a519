#!/usr/bin/env python3
"""Several models behind one port, with memory for fewer: mixed requests from OpenAI's SDK, beside llama.cpp's router.

  bench_models.py --quire build-release/server/quire [--llama-server PATH] --memory 2200M MODEL.gguf MODEL.gguf ...

Each of the clients asks for a model for a few requests, then for another one, half of the answers streamed. Prints for
each server the time of all, the time to the first token, and of Quire the switches, how many requests waited for a
model, the largest resident memory of its processes (sampled; what several share counts once: PSS) beside its budget,
and how many answers differ from those of a server of that model alone. --rounds: in turns.
"""

import argparse
import concurrent.futures
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import openai

READY_SECONDS = 120
SAMPLE_SECONDS = 0.2
WORDS = "river stone lamp quiet engine copper violet harbour window thread orchard signal paper winter".split()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_requests(names, count, seed):
    """Runs of 1 to 8 requests for a model, as somebody has who works on something."""
    rng, requests = random.Random(seed), []
    while len(requests) < count:
        name = rng.choice(names)
        for _ in range(rng.randint(1, 8)):
            prompt = " ".join(rng.choices(WORDS, k=rng.randint(4, 60)))
            requests.append({"model": name, "prompt": prompt, "max_tokens": rng.randint(1, 24), "seed": len(requests),
                             "temperature": rng.choice([0, 1]), "stream": rng.random() < 0.5})
    return requests[:count]


class Server:
    def __init__(self, command, port, log):
        self.url, self.log = f"http://127.0.0.1:{port}", log
        with open(log, "wb") as out:
            self.process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=out)
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                urllib.request.urlopen(self.url + "/health").close()
                return
            except (urllib.error.URLError, ConnectionError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{command[0]} does not start:\n{pathlib.Path(log).read_text(errors='replace')[-2000:]}")
                time.sleep(0.05)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def descendants(pid):
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += descendants(int(child))
    return found


def resident_bytes(pid):
    total = 0
    for each in descendants(pid):
        text = pathlib.Path(f"/proc/{each}/smaps_rollup").read_text()
        total += 1024 * int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])
    return total


class MemoryWatch(threading.Thread):
    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.most, self.ends = pid, 0, threading.Event()

    def run(self):
        while not self.ends.wait(SAMPLE_SECONDS):
            try:
                self.most = max(self.most, resident_bytes(self.pid))
            except (OSError, TypeError):
                pass  # a process that ended meanwhile


def ask(client, request, is_strict):
    """Returns the text and the seconds to its first piece; both None if it failed and may."""
    try:
        return ask_once(client, request)
    except openai.APIError:
        if is_strict:
            raise
        return None, None


def ask_once(client, request):
    begin = time.perf_counter()
    answer = client.completions.create(**request)
    if not request["stream"]:
        return answer.choices[0].text, time.perf_counter() - begin
    text, first = "", None
    for chunk in answer:
        first = first or time.perf_counter() - begin
        text += chunk.choices[0].text if chunk.choices else ""
    return text, first


def run(server, requests, num_clients, is_strict=True):
    """Each client takes the next request. Returns the answers, and the seconds of all. A peer's may fail, and are
    counted."""
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=600)
    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(num_clients) as pool:
        answers = list(pool.map(lambda request: ask(client, request, is_strict), requests))
    return answers, time.perf_counter() - begin


def percentile(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def quire_command(arguments, models, port, memory=None):
    command = [arguments.quire, "serve", "--port", port, "--max-model-len", 512, "--kv-cache-memory-bytes", arguments.kv]
    for model in models:
        command += ["--model", model]
    return command + (["--memory", memory, "--model-turn-seconds", arguments.turn] if memory else [])


def answers_alone(arguments, requests, folder):
    """Of a server for each model."""
    answers = {}
    for model in arguments.models:
        port = free_port()
        server = Server(quire_command(arguments, [model], port), port, folder / "alone.log")
        own = [i for i, request in enumerate(requests) if request["model"] == model.stem]
        for i, (text, _) in zip(own, run(server, [requests[i] for i in own], arguments.clients)[0]):
            answers[i] = text
        server.stop()
    return answers


def report(name, answers, seconds):
    firsts = [first for _, first in answers if first is not None]
    print(f"{name:12} {len(answers)} requests in {seconds:7.1f} s; first token: median {statistics.median(firsts):6.3f} s, "
          f"p99 {percentile(firsts, 0.99):6.3f} s", flush=True)


def run_quire(arguments, requests, folder, expected):
    port = free_port()
    server = Server(quire_command(arguments, arguments.models, port, arguments.memory), port, folder / "quire.log")
    watch = MemoryWatch(server.process.pid)
    watch.start()
    answers, seconds = run(server, requests, arguments.clients)
    watch.ends.set()
    watch.join()
    log = pathlib.Path(server.log).read_text(errors="replace")
    server.stop()
    report("quire", answers, seconds)
    budget = int(re.search(r"at most (\d+) MiB for all models", log)[1])
    planned = [int(used) for used in re.findall(r"ready after \d+ ms; (\d+) of", log)]
    differ = sum(text != expected[i] for i, (text, _) in enumerate(answers))
    print(f"             {log.count('is ready after')} starts and wakes, {log.count('goes to sleep with its')} sleeps with weights, "
          f"{log.count('goes to sleep without')} without; memory {watch.most >> 20} MiB at most (sampled), planned "
          f"{max(planned, default=0)} of {budget} MiB; {differ} answers differ from a server alone", flush=True)
    return seconds


def run_llama(arguments, requests, folder):
    port = free_port()
    models = folder / "models"
    models.mkdir(exist_ok=True)
    for model in arguments.models:
        if not (models / model.name).exists():
            (models / model.name).symlink_to(model.resolve())
    server = Server([arguments.llama_server, "--models-dir", models, "--models-max", arguments.llama_max, "--port", port,
                     "--host", "127.0.0.1", "-c", 4096, "--parallel", 8], port, folder / "llama.log")
    answers, seconds = run(server, requests, arguments.clients, is_strict=False)
    server.stop()
    report("llama.cpp", [answer for answer in answers if answer[0] is not None], seconds)
    print(f"             {sum(answer[0] is None for answer in answers)} requests failed")
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quire", type=pathlib.Path, required=True)
    parser.add_argument("--llama-server", type=pathlib.Path)
    parser.add_argument("--llama-max", type=int, default=2, help="models that llama.cpp's router loads at a time")
    parser.add_argument("--memory", default="2200M")
    parser.add_argument("--kv", default="128M", help="KV cache of each model")
    parser.add_argument("--turn", type=int, default=10)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("models", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    requests = make_requests([model.stem for model in arguments.models], arguments.requests, arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        expected = answers_alone(arguments, requests, folder)
        for _ in range(arguments.rounds):
            run_quire(arguments, requests, folder, expected)
            if arguments.llama_server:
                run_llama(arguments, requests, folder)


if __name__ == "__main__":
    main()
