"""What `rehearse` and test_gpu_check.py share: calls of gpu_check on the simulator, as they are made on a lent machine,
and what must be true of each.

A call is from a packed folder that was copied elsewhere, with nothing but Python on the path, by a clock that charges
each item what is expected of it. `pretend` is the schedule alone: every item is there and none does anything."""

import copy
import fnmatch
import importlib
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpu_context import Context
from gpu_models import MODELS
from gpu_report import make_table
from gpu_results import FAILED, NOT_RUN, Results
from gpu_schedule import CHECK, GPU, PRESETS, TABLE_SECONDS, WRITER, Item, RehearsedClock, Schedule, find_row
from stages import NAMES

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOOLS = ("dirname",)  # of the launcher; sh is named by its path
JOBS = 6
# What comes back from a lent machine, and what is seen of what was printed.
MOST_FILES, MOST_FILE_BYTES = 6, 16 << 20
TABLE_LINES, TABLE_COLUMNS, TABLE_BYTES = 60, 120, 10_000
MOST_SECONDS = {9: 570, 3: 170}  # of a call in all
# The first call does what is worth so much at least, the second so much.
LEAST_WORTH = {9: 45, 3: 41}
COMMAND = 'PYTHONUNBUFFERED=1 build-pack/gpu-check/gpu_check --minutes {minutes} {more} --out "$OUT"'
AFTER = "--after build-pack/prev"
# Why an item may not be run in a rehearsal.
ONLY_ON_A_GPU = ("it watches a GPU only", "2 ranks need a GPU each", "has no torch", "has no numpy",
                 "has no transformers")
SHARED = ("checks", "golden", "memcheck", "racecheck", "reference", "embedding")
FIRST = "build-pack/gpu-check"


def collect():
    return {name: importlib.import_module(f"stages.{name}") for name in NAMES}


class Machine:
    """An empty folder with a pack in it, and nothing but Python on the path."""

    def __init__(self, *pack_words):
        self.folder = Path(tempfile.mkdtemp(prefix="gpu-check-"))
        self.work, self.tools, self.out = (self.folder / name for name in ("work", "tools", "out"))
        self.pack = self.work / FIRST
        subprocess.run([HERE / "gpu_pack", *pack_words, "--out", self.folder / "packed"], check=True, stdout=sys.stderr)
        self.pack.parent.mkdir(parents=True)
        shutil.copytree(self.folder / "packed", self.pack)
        self.tools.mkdir()
        (self.tools / "python3").symlink_to(sys.executable)
        for name in TOOLS:
            (self.tools / name).symlink_to(shutil.which(name))

    def remove(self):
        shutil.rmtree(self.folder)

    def unpack(self):
        """As the first call does; returns where."""
        if not list(self.pack.glob("unpacked-*")):
            self.call("--minutes 0")
        return next(self.pack.glob("unpacked-*"))

    def environment(self, env=None):
        return {"PATH": str(self.tools), "OUT": str(self.out), **(env or {})}

    def call(self, words, env=None, fresh=True):
        """Returns the exit status, what was printed, and the items."""
        if fresh:
            shutil.rmtree(self.out, ignore_errors=True)
        line = f'{FIRST}/gpu_check --device cuda-sim --out "$OUT" {words}'
        done = subprocess.run(["/bin/sh", "-c", line], cwd=self.work, stdout=subprocess.PIPE, text=True, check=False,
                              env=self.environment(env))
        return done.returncode, done.stdout, json.loads((self.out / "results.json").read_text())

    def lent(self, minutes, factor=1):
        """The command line of a lent machine, after what came back of the one before; on the simulator."""
        previous, words = self.work / "build-pack/prev", ""
        shutil.rmtree(previous, ignore_errors=True)
        if minutes != max(PRESETS):
            shutil.copytree(self.out, previous)
            words = AFTER
        shutil.rmtree(self.out, ignore_errors=True)
        line = COMMAND.format(minutes=minutes, more=words) + f" --device cuda-sim --charge {factor}"
        done = subprocess.run(["/bin/sh", "-c", line], cwd=self.work, stdout=subprocess.PIPE, text=True, check=False,
                              env=self.environment())
        return Call(minutes, done.returncode, done.stdout.splitlines(), read_items(self.out), read_items(previous),
                    self.out)


def read_items(folder):
    path = folder / "results.json"
    return json.loads(path.read_text()) if path.exists() else {}


class Call:
    """What a call has done: its items, and those that it went on from."""

    def __init__(self, minutes, status, printed, items, earlier, out):
        self.minutes, self.status, self.printed, self.items, self.out = minutes, status, printed, items, out
        number = 1 + max((entry.get("call", 0) for entry in earlier.values()), default=0)
        self.done = sorted((entry["start"], entry["start"] + entry["seconds"], name) for name, entry in items.items()
                           if entry.get("call") == number)

    def complaints(self):
        """Of what must be true of every call."""
        checks = [check_lanes(self.done), check_order(self.done), check_end(self),
                  check_table(self.table(), self.items), check_files(self.out) if self.out else ()]
        return [complaint for found in checks for complaint in itertools.islice(found, 5)]

    def table(self):
        """The last lines printed."""
        return self.printed[len(self.printed) - self.printed[::-1].index(""):]


# --- What must be true ---------------------------------------------------------------------------

def lane_of(name):
    stage = name.split("/")[0]
    return WRITER if stage == "model" else CHECK if stage in SHARED else GPU


def check_lanes(done):
    """What measures is alone on the GPU; so many checks and writers are under way."""
    for start, _, name in done:
        here = [other for first, last, other in done if first <= start < last]
        lanes = [lane_of(other) for other in here]
        if lanes.count(WRITER) > 3 or lanes.count(CHECK) > JOBS:
            yield f"{len(here)} items at {start:.0f} s: {', '.join(here)}"
        if GPU in lanes and lanes.count(GPU) + lanes.count(CHECK) > 1:
            yield f"not alone on the GPU at {start:.0f} s: {', '.join(here)}"


def model_of(name):
    shape = next((shape for shape in MODELS if shape in name), "none")
    return f"model/{shape} {'q4_k' if name.endswith('q4_k') else 'bf16'}"


def check_order(done):
    """That of the table, but for what waits for its model."""
    ready = {name: last for _, last, name in done}
    ordered = [(start, name) for start, _, name in done if lane_of(name) == GPU]
    for at, (start, name) in enumerate(ordered):
        for _, later in ordered[at + 1:]:
            if find_row(later)[0] < find_row(name)[0] and not ready.get(model_of(later), 0) > start:
                yield f"{name} at {start:.0f} s came before {later}"


def check_end(call):
    most = MOST_SECONDS.get(call.minutes, 60 * call.minutes)
    late = [name for _, last, name in call.done if last > most - TABLE_SECONDS + 0.01]
    if late:
        yield f"after the end: {', '.join(late)}"


def check_fits(call):
    """All that the call is for is done, where items take as long as expected."""
    for name, entry in call.items.items():
        if entry["status"] == NOT_RUN and find_row(name)[2] >= LEAST_WORTH[call.minutes]:
            if not any(reason in entry["detail"] for reason in ONLY_ON_A_GPU):
                yield f"{name} was not run: {entry['detail']}"


def check_passed(call):
    return [f"{name}: {entry['detail']}" for name, entry in call.items.items() if entry["status"] == FAILED]


def check_table(lines, items):
    wide = [line for line in lines if len(line) > TABLE_COLUMNS]
    if len(lines) > TABLE_LINES or wide or sum(len(line) + 1 for line in lines) > TABLE_BYTES:
        yield f"the table has {len(lines)} lines, {len(wide)} of them too wide"
    red = [name for name, entry in items.items() if entry["status"] == FAILED]
    heads = [line.split(" ")[0] for line in lines]
    shown = heads.count("RED")
    first = heads.index("RED") if shown else 0
    if shown < min(len(red), 8) or first > 2 or heads[first:first + shown] != ["RED"] * shown:
        yield f"the table does not begin with what is red: {lines[:4]}"
    if not any(re.match(r"G\d$", head) for head in heads):
        yield "the table has no goals"
    left = [name for name, entry in items.items() if entry.get("left_out")]
    if left and not any(line.startswith("left out") for line in lines):
        yield f"the table does not say that {left[0]} was left out"
    for name, entry in items.items():
        if entry.get("expected") and entry["seconds"] > 2 * entry["expected"] and not any(
                line.startswith("SLOW") for line in lines):
            yield f"the table does not say that {name} took {entry['seconds']:.0f} s, {entry['expected']} were expected"


def check_files(out):
    files = list(out.rglob("*"))
    names = [path.name for path in files]
    good = [path for path in files if path.is_file() and path.parent == out and path.stat().st_size < MOST_FILE_BYTES
            and re.fullmatch(r"[A-Za-z0-9._-]+", path.name)]
    if len(files) > MOST_FILES or good != files:
        yield f"what comes back: {', '.join(names)}"
    if not {"results.json", "gpu_check.log", "table.txt"} <= set(names):
        yield f"what comes back lacks something: {', '.join(names)}"


def describe_schedule(call):
    """Its items, from when to when."""
    yield f"--minutes {call.minutes}: {PRESETS[call.minutes]} s, {len(call.done)} items, the last ends at " \
          f"{max(last for _, last, _ in call.done):.0f} s"
    for start, last, name in call.done:
        entry = call.items[name]
        yield f"  {start:5.0f} {last:5.0f}  {lane_of(name):6} {entry['status']:7}  {name}" + (
            f": {entry['detail']}" if entry["status"] == FAILED else "")
    left = [name for name, entry in call.items.items() if entry.get("left_out")]
    yield f"  left out: {len(left)} items"


# --- The schedule alone --------------------------------------------------------------------------

class UnevenClock(RehearsedClock):
    """Items whose names match take so many times what is expected of them."""

    def __init__(self, factor, slow):
        super().__init__(factor, 60)
        self.slow = slow

    def charge(self, one):
        times = next((times for pattern, times in self.slow.items() if fnmatch.fnmatchcase(one.item.name, pattern)), 1)
        return times * super().charge(one)


def pretend(minutes, factor=1, slow=None, faults=None, earlier=None):
    """faults: of items whose names match, an action that raises."""
    stages, clock = collect(), UnevenClock(factor, slow or {})
    with tempfile.TemporaryDirectory() as out:
        results = Results(Path(out), clock, PRESETS.get(minutes, 60 * minutes) - TABLE_SECONDS)
        results.take_over(copy.deepcopy(earlier or {}))
        results.save = nothing
        context = Context(ROOT, ROOT / "build", Path(out), None, "cuda-sim", results, "pretended")
        items = [item for name in NAMES if name != "build" for item in stages[name].items(context)]
        for item in items:
            item.action = find_action(item.name, faults)

        def write(model):
            name = "model/{} {}".format(*model)
            return Item(name, find_action(name, faults), WRITER)
        Schedule(results, items, write, JOBS).run()
        printed = ["", *make_table(context, stages)]
    return Call(minutes, 0, printed, results.items, earlier or {}, None)


def find_action(name, faults):
    return next((action for pattern, action in (faults or {}).items() if fnmatch.fnmatchcase(name, pattern)), nothing)


def nothing():
    """What a pretended item does."""


def raising(error):
    def action():
        raise error
    return action
