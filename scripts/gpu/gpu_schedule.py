"""What a call of gpu_check does, in which order and for how long: the table, and who goes through it.

Items that measure have the GPU alone, one after the other. Checks share it, several at a time, since most of their
time is their oracle's on one CPU thread. Models are written in the background from the beginning, those that
come first first; an item whose model is not there yet lets others go before it. With a budget, what does not fit is
left out by worth; that is weighed anew after every item, by how long the items before took.
"""

import concurrent.futures
import fnmatch
import statistics
import time
from dataclasses import dataclass

from gpu_models import MODELS
from gpu_results import FAILED, NOT_RUN, OUT_OF_TIME, PASSED

GPU, CHECK, WRITER = "gpu", "check", "writer"  # who an item shares the machine with: see above
NUM_WRITERS = 3
TABLE_SECONDS = 5  # kept of a budget for the report
LATE_SECONDS = 2  # of an item that does not end with the call: then it is left alone
PRESETS = {9: 570, 3: 170}  # --minutes: seconds; for machines that end a command after 600 and 180 s
# Where one of these is red, the sanitizer looks at it, and what is measured is one model.
GATED = ("checks/attention", "checks/linear", "checks/record", "checks/steps")
GATED_MODEL = "llama-3-8b"
ALWAYS = ("inventory", "build/", "model/")  # whatever passed before

# Items by their names, in the order in which they are done: the seconds that one is expected to take on an H100, and
# its worth. "NAME start" is what the first item of a session takes beside its own seconds. A name's first row counts.
TABLE = (
    ("*/stage", 0, 1000),
    ("build/*", 1200, 1000),
    ("model/llama-3-8b bf16", 60, 0),
    ("model/llama-3-8b q4_k", 30, 0),
    ("model/llama-3.2-1b *", 15, 0),
    ("model/smollm2-135m *", 5, 0),
    ("inventory", 3, 100),
    ("limits", 12, 99),
    ("checks/linear bf16*", 18, 98),
    ("checks/attention bf16*", 22, 98),
    ("checks/attention_prefixes bf16*", 35, 97),
    ("checks/attention_quantised bf16*", 16, 97),
    ("checks/sample_ranges bf16", 40, 97),
    ("checks/sample bf16", 28, 97),
    ("checks/sample_shape bf16", 28, 96),
    ("checks/ops bf16", 16, 98),
    ("checks/experts bf16*", 10, 96),
    ("checks/matrix bf16*", 12, 96),
    ("checks/blocks bf16", 8, 96),
    ("checks/steps bf16", 12, 98),
    ("checks/record bf16", 12, 98),
    ("checks/moves* bf16", 12, 96),
    ("checks/group bf16", 16, 95),
    ("checks/sample_parallel bf16", 12, 95),
    ("checks/attention f16", 22, 94),
    ("checks/linear f16", 18, 94),
    ("checks/ops f16", 16, 94),
    ("memcheck/* (red)", 60, 1000),
    ("golden/tiny-bf16 bf16*", 10, 96),
    ("golden/wide-f16 bf16", 10, 95),
    ("golden/wide-f16 bf16 batch-invariant", 10, 95),
    ("golden/tiny-q4_0 bf16", 10, 94),
    ("golden/tiny-q4_0 bf16 batch-invariant", 10, 94),
    ("golden/kquants bf16", 10, 94),
    ("golden/kquants bf16 batch-invariant", 10, 94),
    ("steps/llama-3-8b", 58, 90),
    ("steps/llama-3-8b sm_80", 14, 85),
    ("steps/llama-3-8b batch-invariant", 16, 82),
    ("steps/llama-3.2-1b", 30, 78),
    ("steps/llama-3.2-1b batch-invariant", 10, 60),
    ("steps/smollm2-135m", 30, 74),
    ("timelines/llama-3-8b start", 36, 88),
    ("timelines/llama-3-8b decode 1 x *", 2, 88),
    ("timelines/llama-3-8b *", 2, 86),
    ("timelines/llama-3.2-1b start", 18, 72),
    ("timelines/llama-3.2-1b decode 1 x *", 2, 72),
    ("server/llama-3-8b start", 14, 84),
    ("server/llama-3-8b 100/128 x 1", 11, 84),
    ("server/llama-3-8b 100/128 x 64", 11, 84),
    ("server/llama-3-8b 100/128 x 256", 11, 83),
    ("server/llama-3-8b 1000/1000 x 64", 20, 83),
    ("server/llama-3-8b 2048/16 x 64", 12, 83),
    ("server/llama-3.2-1b start", 8, 64),
    ("server/llama-3.2-1b 100/128 x 1", 9, 64),
    ("server/llama-3.2-1b 100/128 x 256", 9, 64),
    ("server/smollm2-135m start", 5, 56),
    ("server/smollm2-135m 100/128 x 1", 7, 56),
    ("server/smollm2-135m 100/128 x 256", 7, 56),
    ("server/ceiling of the load generator", 8, 62),
    ("ops/mha 32/32", 10, 70),
    ("ops/mha 32/32 kv int8", 10, 70),
    ("ops/gqa 32/4", 10, 70),
    ("ops/gqa 32/4 kv int8", 10, 70),
    ("ops/experts of olmoe-1b-7b", 6, 69),
    ("baselines/decode llama-3-8b", 25, 76),
    ("baselines/decode llama-3.2-1b", 20, 68),
    # Of a second call, where the first did all of the above.
    ("ops/experts of qwen3-30b-a3b", 6, 45),
    ("products/llama-3-8b", 25, 44),
    ("memcheck/attention_prefixes", 60, 43),
    ("memcheck/sample_ranges", 60, 43),
    ("memcheck/moves", 60, 43),
    ("steps/llama-3-8b q4_k", 35, 44),
    ("reference/llama-3.2-1b bf16", 40, 41),
    ("steps/llama-3-8b sm_90", 14, 39),
    ("steps/smollm2-135m batch-invariant", 8, 38),
    # What only longer calls have the time for.
    ("start/*", 25, 30),
    ("server/llama-3-8b eager start", 12, 29),
    ("server/llama-3.2-1b eager start", 8, 29),
    ("server/smollm2-135m eager start", 5, 29),
    ("server/* eager", 11, 29),
    ("server/* engine alone *", 60, 28),
    ("server/*", 28, 27),
    ("timelines/*", 2, 26),
    ("ops/*/* kv fp8", 10, 25),
    ("ops/*", 40, 25),
    ("products/*", 20, 24),
    ("baselines/*", 50, 23),
    ("reference/llama-3-8b *", 90, 22),
    ("reference/*", 40, 22),
    ("checks/linear_fp8 bf16", 18, 28),
    ("checks/*", 20, 21),
    ("golden/*", 5, 20),
    ("embedding/*", 5, 20),
    ("memcheck/*", 100, 10),
    ("racecheck/*", 150, 9),
)


def find_row(name):
    """(place in the table, seconds, worth)"""
    for place, (pattern, seconds, worth) in enumerate(TABLE):
        if fnmatch.fnmatchcase(name, pattern):
            return place, seconds, worth
    raise KeyError(f"{name} is not in the table of gpu_schedule.py")


@dataclass(eq=False)
class Item:
    """action() returns what is kept, or raises Failed or NotRun."""
    name: str
    action: object
    lane: str = GPU
    model: tuple = None  # (shape, type) of the file that it reads
    session: object = None  # what items of one name share, with `name` and close(); the first to need it opens it
    sanitized: object = None  # of a check: the item that looks at it with the sanitizer, if it is red
    stage: str = ""

    def __post_init__(self):
        self.place, self.seconds, self.worth = find_row(self.name)


@dataclass
class Running:
    item: Item
    future: object
    start: float
    expected: float  # seconds

    @property
    def limit(self):
        """Seconds after which it counts as hanging."""
        return 2.5 * self.expected + 20


class Clock:
    """Seconds since the call began."""

    def __init__(self):
        self.begin = time.monotonic()

    def now(self):
        return time.monotonic() - self.begin

    def limit(self, one, left):
        """Real seconds that its programs may take, and whether that is all that is left of the call."""
        return min(one.limit, left), left < one.limit

    def judge(self, _one, entry, _deadline):
        """What became of it by this clock."""
        return entry

    def wait(self, running, deadline):
        """Of these one that is done; None: some seconds after the call's end none is."""
        concurrent.futures.wait([one.future for one in running], min(1e6, max(0, deadline + LATE_SECONDS - self.now())),
                                concurrent.futures.FIRST_COMPLETED)
        return next((one for one in running if one.future.done()), None)


class RehearsedClock:
    """Charges every item `factor` times what is expected, and its limit where it hangs, however long it takes."""

    def __init__(self, factor, limit):
        self.factor, self.real_limit = factor, limit
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def limit(self, _one, _left):
        return self.real_limit, False

    def wait(self, running, deadline):
        first = None
        while first is None or first is not min(running, key=self.end):
            first = min(running, key=self.end)
            first.future.result()
        self.seconds = min(deadline, self.end(first))
        return first

    def end(self, one):
        """By what it does once that is known, else as it is expected."""
        hung = one.future.done() and one.future.result()[1]
        return one.start + (one.limit if hung else min(one.limit, self.charge(one)))

    def charge(self, one):
        return self.factor * one.expected

    def judge(self, one, entry, deadline):
        if self.seconds >= deadline:
            return {"status": NOT_RUN, "detail": OUT_OF_TIME, "left_out": True}
        if entry["status"] == PASSED and self.charge(one) > one.limit:
            return {"status": FAILED, "detail": f"still running after {one.limit:.0f} s"}
        return entry


class Schedule:
    def __init__(self, results, items, make_writer, jobs):
        """make_writer(model): the item that writes a model's file. results.deadline is the call's."""
        self.results, self.clock, self.jobs, self.make_writer = results, results.clock, jobs, make_writer
        self.waiting = [item for item in items
                        if item.name.startswith(ALWAYS) or results.status(item.name) != PASSED]
        self.again = {item.name for item in self.waiting if results.status(item.name) == FAILED}
        self.refused = {name for name, entry in results.items.items()
                        if entry["status"] == NOT_RUN and not entry.get("left_out")}
        self.running, self.writers, self.session = [], {}, None
        self.ratios = []  # of the seconds that items took to those expected
        # The threads last as long as the call: a program that dies with its thread is a server.
        self.pools = {GPU: concurrent.futures.ThreadPoolExecutor(1), WRITER: concurrent.futures.ThreadPoolExecutor(
            NUM_WRITERS), CHECK: concurrent.futures.ThreadPoolExecutor(jobs)}

    def run(self):
        """An item that outlives the call may still run after it."""
        while True:
            self.start_what_may()
            if not self.running:
                break
            one = self.clock.wait(self.running, self.results.deadline)
            if one is None:
                break
            self.finish(one)
        self.change_session(None)
        for item in [*self.waiting, *(one.item for one in self.running)]:
            self.results.leave_out(item.name, OUT_OF_TIME)
        self.results.save()

    # --- What comes next -----------------------------------------------------------------------------

    def seconds_left(self):
        return self.results.deadline - self.clock.now()

    def pace(self):
        """How many times as long as expected items take here, of most of them."""
        return max(1.0, statistics.median(self.ratios)) if len(self.ratios) >= 5 else 1.0

    def rank(self, item):
        """What failed in an earlier call comes before all that may pass."""
        return (item.name not in self.again, item.place)

    def choose(self):
        """By worth, as much as fits: what failed in an earlier call first, what that could not run last."""
        now, pace, chosen, opened = self.clock.now(), self.pace(), [], {self.session}
        left = {lane: [max(0, (one.start - now) / pace + one.expected) for one in self.running if one.item.lane == lane]
                for lane in (GPU, CHECK)}
        alone, shared, longest = sum(left[GPU]), sum(left[CHECK]), max(left[CHECK], default=0)
        order = {item: (item.name in self.refused, item.name not in self.again, -item.worth, item.place)
                 for item in self.waiting}
        for item in sorted(self.waiting, key=order.get):
            more = self.expected(item, opened)
            lanes = (alone, shared + more, max(longest, more)) if item.lane == CHECK else (
                alone + more, shared, longest)
            if pace * (lanes[0] + max(lanes[1] / self.jobs, lanes[2])) < self.seconds_left():
                alone, shared, longest = lanes
                chosen.append(item)
                opened.add(item.session)
        return sorted(chosen, key=self.rank)

    def expected(self, item, opened):
        is_new = item.session is not None and item.session not in opened
        return item.seconds + (find_row(f"{item.session.name} start")[1] if is_new else 0)

    def start_what_may(self):
        started = True
        while started:
            started = False
            chosen = self.choose()
            for item in chosen:
                self.write_model(item)
            item = next((item for item in chosen if self.is_ready(item)), None)
            if item is not None and self.has_room(item):
                self.waiting.remove(item)
                self.start(item)
                started = True

    def has_room(self, item):
        busy = [one.item.lane for one in self.running if one.item.lane != WRITER]
        return not busy if item.lane == GPU else GPU not in busy and len(busy) < self.jobs

    def write_model(self, item):
        num_running = sum(one.item.lane == WRITER for one in self.running)
        if item.model and item.model not in self.writers and num_running < NUM_WRITERS:
            self.writers[item.model] = writer = self.make_writer(item.model)
            self.start(writer)

    def is_ready(self, item):
        return item.model is None or (item.model in self.writers and not any(
            one.item is self.writers[item.model] for one in self.running))

    # --- Doing it ------------------------------------------------------------------------------------

    def start(self, item):
        expected = self.expected(item, {self.session})
        if item.lane != WRITER:
            self.change_session(item.session)
        writer = self.writers.get(item.model)
        one = Running(item, None, self.clock.now(), expected)
        limit = self.clock.limit(one, self.seconds_left())
        one.future = self.pools[item.lane].submit(self.results.execute, item, writer and writer.name, *limit)
        self.running.append(one)

    def change_session(self, session):
        if session is not self.session and self.session is not None:
            self.session.close()
        self.session = session

    def finish(self, one):
        self.running.remove(one)
        entry, _ = one.future.result()
        took, expected = self.clock.now() - one.start, one.expected
        entry = self.clock.judge(one, entry, self.results.deadline)
        self.results.record(one.item.name, {**entry, "start": round(one.start, 2), "seconds": round(took, 2),
                                            "expected": expected})
        if expected >= 5 and entry["status"] == PASSED and one.item.lane != WRITER:
            self.ratios.append(took / expected)
        if entry["status"] == FAILED and one.item.name.startswith(GATED):
            self.close_gate(one.item)

    def close_gate(self, red):
        if red.sanitized:
            self.waiting.append(red.sanitized)
        if self.seconds_left() == float("inf"):
            return
        others = [item for item in self.waiting
                  if any(shape in item.name for shape in MODELS if shape != GATED_MODEL)]
        for item in others:
            self.waiting.remove(item)
            self.results.leave_out(item.name, f"{red.name} is red: the time goes to {GATED_MODEL}")
