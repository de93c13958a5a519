"""R22: work that one client piles up, and what another one's short calls cost beside it. Clients are told apart by address here,
as by key elsewhere. The figures that are noted say how long a one-token call takes, in steps of the engine and as a multiple
of its time alone; beside as many processes that just compute, for comparison."""

import multiprocessing
import socket
import statistics
import threading
import time

from arena import attack
from wire import answers, closing, completion, open_socket, read_to_end, request_bytes

GREEDY, NEIGHBOUR = "127.0.2.{}", "127.0.3.1"
NUM_ALONE, NUM_BESIDE = 100, 200
OPTIONS = {"kv-cache-memory-bytes": "512M"}  # for a larger model too
CALM_S = 1.0  # for what was begun before to end


class Greedy:
    """Clients that send again as soon as they are answered. Counts what they are told."""

    def __init__(self, arena, requests, addresses=1, first=1):
        self.arena, self.stopped, self.sockets, self.told, self.waits = arena, threading.Event(), set(), {}, []
        self.threads = [threading.Thread(target=self.repeat, args=(request, GREEDY.format(first + i % addresses)), daemon=True)
                        for i, request in enumerate(requests)]

    def ask(self, request, source):
        """The status of its answer; 0 where there is none."""
        with open_socket(self.arena.victim.address, source=source, timeout=90) as sock:
            self.sockets.add(sock)
            try:
                sock.sendall(closing(request))
                found = answers(read_to_end(sock, 90)[0])
            finally:
                self.sockets.discard(sock)
        return found[0].status if found else 0

    def repeat(self, request, source):
        while not self.stopped.is_set():
            began = time.monotonic()
            try:
                status = self.ask(request, source)
            except OSError:
                status = 0
            if self.stopped.is_set():
                return
            self.told[status] = self.told.get(status, 0) + 1
            self.waits.append((status, time.monotonic() - began))
            if status != 200:
                self.stopped.wait(0.05)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for sock in list(self.sockets):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has just ended
        for thread in self.threads:
            thread.join()


def compute():
    while True:
        pass


class Busy:
    """So many processes that compute."""

    def __init__(self, count):
        self.processes = [multiprocessing.Process(target=compute, daemon=True) for _ in range(count)]

    def __enter__(self):
        for process in self.processes:
            process.start()

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()


def steps_of(arena):
    return arena.victim.metrics().get("engine_steps_total", 0)


def call(arena, number):
    """(status, seconds) of a call of one token whose prompt nobody has sent."""
    began = time.monotonic()
    try:
        with open_socket(arena.victim.address, source=NEIGHBOUR, timeout=90) as sock:
            sock.sendall(closing(completion(prompt=f"{number} Once", max_tokens=1)))
            found = answers(read_to_end(sock, 90)[0])
    except OSError:
        found = []
    return found[0].status if found else 0, time.monotonic() - began


def calls(arena, count):
    """Sorted times of calls one after the other, and the most and middle steps that some of them saw pass. Reading the
    counter takes steps too, so that it is too many rather than too few."""
    times, steps = [], []
    for i in range(count):
        before = steps_of(arena) if i % 4 == 0 else None
        status, seconds = call(arena, time.monotonic_ns())
        if before is not None:
            steps.append(steps_of(arena) - before)
        arena.want(status == 200, f"a neighbour's call: {status} after {seconds:.1f} s")
        times.append(seconds)
    return sorted(times), steps


def late(times):
    return times[int(len(times) * 0.99)]


def compare(arena, greedy, num_busy):
    """Notes what a neighbour's call takes alone, beside the greedy and beside processes that compute."""
    alone, _ = calls(arena, arena.many(NUM_ALONE))
    middle = statistics.median(alone)
    with greedy:
        time.sleep(CALM_S)
        beside, steps = calls(arena, arena.many(NUM_BESIDE))
    time.sleep(CALM_S)
    with Busy(num_busy):
        busy, _ = calls(arena, arena.many(NUM_ALONE))
    arena.note(f"alone {middle * 1e3:.1f} ms; beside it p50 {statistics.median(beside) / middle:.1f}, p99 "
               f"{late(beside) / middle:.1f} times that, beside {num_busy} processes p50 {statistics.median(busy) / middle:.1f}, "
               f"p99 {late(busy) / middle:.1f}; steps p50 {statistics.median(steps):.0f}, most {max(steps):.0f}; "
               f"the greedy were told {greedy.told}")


def costly_tools():
    schema = {"type": "object", "patternProperties": {".*a.{12}$": {}}}
    return [{"type": "function", "function": {"name": f"f{i}", "parameters": schema}} for i in range(128)]


@attack("R22", "three clients whose 128 tools each take a worker milliseconds", options=OPTIONS)
def tools_of_three(arena):
    """The prompt is too long in the end."""
    body = {"model": "victim", "messages": [{"role": "user", "content": "x y " * 4096}], "tools": costly_tools(), "max_tokens": 1}
    paths = ("/v1/chat/completions", "/v1/chat/completions/render", "/v1/chat/completions")
    compare(arena, Greedy(arena, [request_bytes(path, body) for path in paths], 3), 2)


@attack("R22", "one client whose 32 connections tokenize 60 KB each", options=OPTIONS)
def texts_of_one(arena):
    body = request_bytes("/tokenize", {"content": "1" * 60000})
    compare(arena, Greedy(arena, [body] * 32), 2)


@attack("R22", "one client whose 8 connections tokenize 4 MB each", options=OPTIONS)
def long_texts_of_one(arena):
    body = request_bytes("/tokenize", {"content": "1" * (4 << 20)})
    compare(arena, Greedy(arena, [body] * 8), 2)


@attack("R22", "one client's cold prompts of 3,000 tokens", options=OPTIONS)
def cold_prompts(arena):
    """Each differs from its first token on."""
    requests = [completion(prompt=f"{i} {time.monotonic_ns()} " + "x y " * 1500, max_tokens=1) for i in range(64)]
    compare(arena, Greedy(arena, requests), 1)


@attack("R22", "one client's 66 streams in 16 slots", options=OPTIONS)
def streams_of_one(arena):
    compare(arena, Greedy(arena, [completion(prompt=f"{i} x", max_tokens=2000, ignore_eos=True) for i in range(66)]), 1)


@attack("R22", "one client's choices in all slots", options=OPTIONS)
def choices_of_one(arena):
    compare(arena, Greedy(arena, [completion(prompt="x", max_tokens=2000, n=16, temperature=1, ignore_eos=True)] * 4), 1)


def served_in(arena, greedy, seconds):
    """Calls served in that time, by each."""
    before = [one.told.get(200, 0) for one in greedy]
    began = time.monotonic()
    arena.hold(seconds)
    took = time.monotonic() - began
    return [(one.told.get(200, 0) - count) / took for one, count in zip(greedy, before)]


@attack("R22", "ten times as many calls of one client as can be served, and a second one that has a tenth of its connections",
        options={**OPTIONS, "max-connections": 1024})
def overload(arena):
    """Refusals are told at once; nobody waits in vain, and what is served is shared."""
    request = completion(prompt="x", max_tokens=100, ignore_eos=True)
    with Greedy(arena, [request] * 16) as few:
        arena.hold(4)
        alone = served_in(arena, [few], 20)[0]
    with Greedy(arena, [request] * arena.many(400)) as most, Greedy(arena, [request] * arena.many(40), first=100) as least:
        arena.hold(4)
        rates = served_in(arena, [most, least], 60)
        times, _ = calls(arena, arena.many(NUM_ALONE))
    refused = sorted(seconds for one in (most, least) for status, seconds in one.waits if status in (429, 503)) or [0]
    jain = sum(rates) ** 2 / (2 * sum(rate ** 2 for rate in rates)) if sum(rates) else 0
    arena.want(refused[-1] < 30, f"a refusal came after {refused[-1]:.0f} s")
    arena.note(f"16 connections {alone:.1f} calls/s; 440 of two clients {rates[0]:.1f} and {rates[1]:.1f}, Jain's index {jain:.3f}; "
               f"{len(refused)} refusals, p50 {statistics.median(refused) * 1e3:.1f} ms, p99 {late(refused) * 1e3:.1f} ms, the last "
               f"after {refused[-1]:.2f} s; a third one's call p99 {late(times) * 1e3:.0f} ms; told {most.told}, {least.told}")
