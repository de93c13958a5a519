"""One attack on one server, beside others that want to be served: what an attack is, and how it is run and judged."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from victim import Victim
from wire import open_socket, read_to_end, reset

WITNESS_SOURCE = "127.0.0.2"
MAX_ATTACK_S = 900
SETTLE_S = 8

ATTACKS = {}


@dataclass(frozen=True)
class Attack:
    """`run(arena)` attacks once. `served` says who is to be served meanwhile: "all", "health" (of what the connection limit
    leaves), or "nobody" where the attack is about something else. `is_fresh` starts a server for each repetition."""
    name: str
    defect: str
    text: str
    run: callable
    options: dict = field(default_factory=dict)
    served: str = "all"
    is_fresh: bool = False
    is_unix: bool = False
    max_files: int = None
    has_stuck_log: bool = False
    skips_sanitizer: bool = False


def attack(defect, text, **fields):
    def register(function):
        name = f"{defect}-{function.__name__.replace('_', '-')}"
        ATTACKS[name] = Attack(name, defect, text, function, **fields)
        return function
    return register


class Arena:
    """What an attack gets. Sockets opened here are closed after each repetition. A full run has a scale of 1, a short one
    less; `many` scales a count, `hold` a time."""

    def __init__(self, victim, planned, scale=1.0):
        self.victim, self.scale, self.planned = victim, scale, planned
        self.is_sanitized = victim.is_sanitized()
        self.problems, self.notes, self.sockets, self.round = [], [], [], 0

    def many(self, count, least=4):
        return max(int(count * self.scale), min(least, count))

    def hold(self, seconds):
        time.sleep(seconds * self.scale)

    def connect(self, **how):
        """From another address of 127/8 in each round, for the sake of the ports that TIME_WAIT keeps."""
        how.setdefault("source", f"127.0.1.{self.round % 200 + 1}")
        sock = open_socket(self.victim.address, **how)
        self.sockets.append(sock)
        return sock

    def send(self, data, **how):
        """A new connection that sent this. What the server closes at once is no surprise here."""
        sock = self.connect(**how)
        self.push(sock, data)
        return sock

    @staticmethod
    def push(sock, data):
        try:
            sock.sendall(data)
            return True
        except OSError:
            return False

    def read_some(self, sock, seconds=10):
        """Waits for the first bytes of an answer; empty when none came."""
        sock.settimeout(seconds)
        try:
            return sock.recv(4096)
        except OSError:
            return b""

    def want(self, condition, message):
        if not condition:
            self.problems.append(message)

    def note(self, text):
        """A figure for whoever reads the results."""
        self.notes.append(text)

    def close_all(self, abruptly=False):
        for sock in self.sockets:
            if abruptly and sock.fileno() >= 0:
                reset(sock)
            sock.close()
        self.sockets.clear()

    def read_to_end(self, sock, seconds=10):
        return read_to_end(sock, seconds)


@dataclass
class Outcome:
    attack: Attack
    repeats: int = 0
    problems: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    refused_ms: dict = field(default_factory=lambda: {"health": [0, 0], "completion": [0, 0]})
    verdicts: dict = field(default_factory=dict)
    rss_start: int = 0
    rss_peak: int = 0
    rss_end: int = 0
    planned: int = 0
    sockets_peak: int = 0
    sockets_left: int = 0
    seconds: float = 0
    skipped: str = ""

    def take_report(self, report):
        for kind, (total, longest) in report["refused_ms"].items():
            sums = self.refused_ms[kind]
            self.refused_ms[kind] = [sums[0] + total, max(sums[1], longest)]
        for kind, counts in report["verdicts"].items():
            known = self.verdicts.setdefault(kind, {})
            for said, count in counts.items():
                known[said] = known.get(said, 0) + count
        self.rss_peak = max(self.rss_peak, report["rss_peak"])
        self.sockets_peak = max(self.sockets_peak, report["sockets_peak"])

    def num_changed(self):
        """Background streams that were not the same bytes to their end."""
        return sum(count for said, count in self.verdicts.get("stream", {}).items() if said in ("changed", "cut"))

    def num_streams(self):
        return sum(self.verdicts.get("stream", {}).values())

    def faults(self):
        """All that is not as wanted, in words."""
        found = list(dict.fromkeys(self.problems))
        kinds = {"all": ("health", "completion", "stream"), "health": ("health",), "nobody": ()}[self.attack.served]
        for kind in kinds:
            bad = {said: count for said, count in self.verdicts.get(kind, {}).items() if said not in ("ok", "same", "slow")}
            if bad:
                found.append(f"{kind} of others: {bad}")
        if self.attack.served != "nobody" and self.num_changed():
            found.append(f"{self.num_changed()} background streams changed or cut")
        if self.planned and self.rss_peak > self.planned and not self.is_sanitized:
            found.append(f"{self.rss_peak >> 20} MiB held, {self.planned >> 20} planned")
        if self.sockets_left:
            found.append(f"{self.sockets_left} sockets left")
        return found

    is_sanitized: bool = False


class WitnessProcess:
    def __init__(self, victim):
        source = [WITNESS_SOURCE] if isinstance(victim.address, int) else []
        words = [sys.executable, str(Path(__file__).with_name("witness.py")), str(victim.address), str(victim.pid),
                 str(MAX_ATTACK_S), *source]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def finish(self):
        text, _ = self.process.communicate(timeout=180)
        return json.loads(text)


def stuck_pipe():
    """(read end, write end) of a small pipe that nobody reads."""
    import fcntl
    import os
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    return reader, writer


def attack_server(attack, outcome, binary, model, folder, repeats, scale):
    """Starts a server, attacks it `repeats` times beside a witness, and adds what was seen to the outcome."""
    import os
    pipe = stuck_pipe() if attack.has_stuck_log else None
    victim = Victim(binary, model, folder, attack.options, attack.max_files, attack.is_unix, pipe[1] if pipe else None)
    witness = None
    try:
        outcome.is_sanitized = victim.is_sanitized()
        if outcome.is_sanitized and attack.skips_sanitizer:
            outcome.skipped = "no memory limit can be set under a sanitizer"
            return
        base = victim.num_sockets()
        outcome.planned = int(victim.metrics().get("memory_planned_bytes", 0))
        witness = WitnessProcess(victim)
        outcome.rss_start = outcome.rss_start or victim.memory()
        arena = Arena(victim, outcome.planned, scale)
        timer = threading.Timer(MAX_ATTACK_S, victim.kill)
        timer.start()
        for _ in range(repeats):
            arena.round = outcome.repeats
            attack.run(arena)
            arena.close_all()
            outcome.repeats += 1
        timer.cancel()
        outcome.problems += arena.problems
        outcome.notes += arena.notes
        outcome.take_report(witness.finish())
        witness = None
        if victim.process.poll() is None:
            outcome.sockets_left = max(outcome.sockets_left, victim.settle(base, SETTLE_S))
            outcome.rss_end = victim.memory()
            outcome.rss_peak = max(outcome.rss_peak, victim.memory("VmHWM"))
        outcome.problems += victim.finish()
    finally:
        if witness:
            witness.process.kill()
        victim.kill()
        for end in pipe or ():
            os.close(end)


def run_attack(attack, binary, model, repeats=20, scale=1.0):
    outcome, began = Outcome(attack), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="quire-attack-") as folder:
        try:
            for _ in range(repeats if attack.is_fresh else 1):
                attack_server(attack, outcome, binary, model, folder, 1 if attack.is_fresh else repeats, scale)
        except (OSError, RuntimeError, ValueError) as error:
            outcome.problems.append(f"{type(error).__name__}: {error}")
    outcome.seconds = time.monotonic() - began
    return outcome
