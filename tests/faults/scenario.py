"""What a scenario is: a function that gets a stage, on which it starts servers, and says there what was reached."""

import contextlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("attacks", "soak"):
    sys.path.insert(0, str(ROOT / "tests" / folder))
import bodies  # noqa: E402, F401
import crowding  # noqa: E402, F401
import hang_ups  # noqa: E402, F401
import process  # noqa: E402, F401
import unread  # noqa: E402, F401
from arena import ATTACKS, run_attack  # noqa: E402
from victim import Victim, write_model  # noqa: E402

SCENARIOS = {}
SETTLE_S = 10


@dataclass(frozen=True)
class Scenario:
    """`number` is its place in the list of the README; `run(stage)`."""
    name: str
    number: str
    text: str
    run: callable


@dataclass(frozen=True)
class Figure:
    """One line of the table. What is timed depends on the machine and on what else runs there."""
    what: str
    reached: str
    wanted: str
    is_good: bool
    is_timed: bool = False


def scenario(number, text):
    def register(function):
        name = function.__name__.replace("_", "-")
        SCENARIOS[name] = Scenario(name, number, text, function)
        return function
    return register


@dataclass
class Stage:
    """`is_short` asks for a form that takes seconds; `problems` is everything that nobody may ever see: lost, leaked, cut."""
    binary: Path
    model: Path
    folder: Path
    is_short: bool = False
    figures: list = field(default_factory=list)
    problems: list = field(default_factory=list)

    def pick(self, short, long):
        return short if self.is_short else long

    def real_model(self):
        """The default model of scripts/, for what the tiny one is too fast."""
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "quire"
        return Path(os.environ.get("QUIRE_TEST_MODEL", cache / "SmolLM2-135M-Instruct.Q4_1.gguf"))

    def figure(self, what, reached, wanted, is_good, is_timed=False):
        self.figures.append(Figure(what, str(reached), str(wanted), bool(is_good), is_timed))

    def most(self, what, reached, most, unit="", is_timed=False):
        """A figure that should not be larger."""
        said = "none" if reached is None else f"{reached:.4g}{unit}"
        self.figure(what, said, f"<= {most}{unit}", reached is not None and reached <= most, is_timed)

    def least(self, what, reached, least, unit="", is_timed=False):
        said = "none" if reached is None else f"{reached:.4g}{unit}"
        self.figure(what, said, f">= {least}{unit}", reached is not None and reached >= least, is_timed)

    def want(self, condition, problem):
        if not condition:
            self.problems.append(problem)

    @contextlib.contextmanager
    def server(self, options=None, status=0, **how):
        """A server, of which nothing may be left once the block is over, and which then ends well on SIGTERM. With
        `status` None the block ends it itself."""
        victim = Victim(self.binary, how.pop("model", self.model), self.folder, options, **how)
        sockets, files = victim.num_sockets(), victim.num_files()
        try:
            yield victim
            if status is None:
                return
            if victim.process.poll() is not None:
                self.problems.append(f"the server ended with {victim.process.returncode}: {victim.read_log()[-1200:]}")
                return
            left = victim.what_is_left(sockets, files, SETTLE_S)
            self.figure("left: requests, blocks, sockets, files", left or 0, 0, not left)
            self.problems += victim.finish()
        finally:
            victim.kill()

    def attack(self, *names):
        """Attacks of tests/attacks, which judge for themselves."""
        for name in names:
            outcome = run_attack(ATTACKS[name], self.binary, self.model, self.pick(1, 5), self.pick(0.25, 1.0))
            refused_ms = max(longest for _, longest in outcome.refused_ms.values())
            self.figure(ATTACKS[name].text, f"others refused for {refused_ms} ms", "as wanted", not outcome.faults())
            self.problems += [f"{name}: {fault}" for fault in outcome.faults()]


def run_scenario(chosen, binary, is_short):
    """The stage, once it is over."""
    with tempfile.TemporaryDirectory(prefix="quire-faults-") as folder:
        stage = Stage(Path(binary), write_model(Path(folder) / "tiny.gguf"), Path(folder), is_short)
        try:
            chosen.run(stage)
        except Exception as error:  # the others are to run, and to be reported, all the same
            stage.problems.append(f"{type(error).__name__}: {error}")
    return stage


def await_true(condition, seconds=30, every=0.02):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True
