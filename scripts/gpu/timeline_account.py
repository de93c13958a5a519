#!/usr/bin/env python3
"""Says where the time of a step goes, from a timeline that timeline.c wrote.

  scripts/gpu/timeline_account.py FILE --start SECONDS --end SECONDS --steps N

START and END are the host's, by CLOCK_MONOTONIC, around N steps one after another: those of the batch that
bench_model prints. Prints the account as JSON.

A step begins with its embed kernel and what comes straight before it: its arrays, copies to the device and fills;
it is one of the N when the call that enqueued its embed kernel lies between START and END. Its time is from the end
of all work of the steps before it to the end of its own. Each nanosecond of it goes to one part: a kernel that runs,
else a copy or fill that runs, else a gap, named by what is on both sides of it. Of several kernels at once the one
that began first has it, so that the parts add up to the time exactly; they are also compared with the host's."""

import argparse
import bisect
import json
import re
import statistics
import sys
from collections import Counter, defaultdict
from typing import NamedTuple

MAX_LINES = 4_000_000
MAX_DIFFERENCE = 0.03  # between the steps' time and the host's

ARRAYS = "step arrays"
# Kernels by their names, mangled or not; the first that fits.
OPS = (
    ("embed", "embed_kernel"), ("rope_store", "rope_store|latent_store"), ("attention", "attention_kernel"),
    ("act_mul", "act_mul_kernel"), ("soft_cap", "soft_cap_kernel"), ("copy_rows", "copy_rows_kernel"),
    ("add_rows", "add_rows_kernel"), ("copy_blocks", "copy_blocks_kernel"), ("norm", "norm_kernel"),
    ("route", "(route|order|adapter)_kernel"), ("linear_experts", "expert_product_kernel|packed_expert_kernel"), ("combine_experts", "combine_kernel"),
    (ARRAYS, "unpack_arrays_kernel"), ("quantise", "quantise_kernel"),
    ("sums over ranks", "sum_parts_kernel|square_sums_kernel|norm_by_sums_kernel|place_columns_kernel"), ("NCCL", "nccl"),
    ("sample", "(choose|chosen|shape|mask|edit|report|report_parts|list|largest|mass|excerpt|place)_kernel"),
    ("linear: split-K sum", "splitK_?reduce|split_k_reduce|reduce_kernel"),
    ("linear", "packed_(narrow|wide)_kernel|nvjet|cutlass|xmma|gemm|gemv|cublas|dot_kernel|matmul"),
)
OPS = tuple((op, re.compile(pattern)) for op, pattern in OPS)
COPIES = {"htod": "copy to the device", "dtoh": "copy to the host", "dtod": "copy on the device",
          "other": "copy, other"}
FILL = "fill"
BETWEEN_KERNELS, BEFORE_COPY, AFTER_COPY, BETWEEN_STEPS = GAPS = (
    "gap between kernels", "gap before a copy", "gap after a copy", "gap between steps")
WAITS = re.compile("Synchronize|Query")
# A step that makes these calls pays for what should have been done before.
COSTLY = re.compile("Malloc|Alloc|Free|Module|Library|Instantiate|Capture|FuncSetAttribute|Occupancy|Create|Destroy")
VERSION = re.compile(r"(_ptsz)?(_v\d+)?(_ptsz)?$")  # at the end of a call's name


class AccountError(Exception):
    """The timeline does not say where the time went; one line."""


class Refused(AccountError):
    """CUPTI does not work on this machine."""


class Work(NamedTuple):
    start: int
    end: int
    part: str
    is_copy: bool  # or a fill
    opens: bool  # comes before the embed kernel of its step, if it does so directly
    correlation: int
    name: str = ""  # of a kernel


class Call(NamedTuple):
    start: int
    end: int
    name: str
    correlation: int


def op_of(kernel):
    return next((op for op, pattern in OPS if pattern.search(kernel)), "other")


def short_name(kernel):
    """Of a mangled name the names that it begins with, of another its first hundred characters."""
    words, at = [], 3 if kernel.startswith("_ZN") else 2
    while kernel.startswith("_Z") and kernel[at:at + 1].isdigit():
        digits = re.match(r"\d+", kernel[at:])[0]
        at += len(digits)
        words.append(kernel[at:at + int(digits)])
        at += int(digits)
    return "::".join(words)[:100] or kernel[:100]


# --- The file ------------------------------------------------------------------------------------

class Timeline:
    def __init__(self, lines):
        self.work, self.calls = [], []
        self.ended = False
        names = {}
        lines = iter(lines)
        head = next(lines, "").split()
        if head[:1] == ["refused"]:
            raise Refused(" ".join(head[1:]))
        if head[:2] != ["quire-timeline", "1"]:
            raise AccountError("it is no timeline")
        for number, line in enumerate(lines, 2):
            if number > MAX_LINES:
                raise AccountError(f"the timeline has more than {MAX_LINES} lines")
            try:
                self.read(line.split(None, 2) if line.startswith("name ") else line.split(), names)
            except (ValueError, IndexError, KeyError):
                raise AccountError(f"line {number} of the timeline is broken: {line.strip()[:80]}") from None
        if not self.ended:
            raise AccountError("the timeline has no end: the program ended by a signal, or still runs")
        self.work.sort()
        self.calls.sort()

    def read(self, words, names):
        kind = words[0]
        if kind == "name":
            names[int(words[1])] = words[2].strip()
        elif kind == "kernel":
            start, end, _, correlation, _, name = map(int, words[1:])
            op = op_of(names[name])
            self.add_work(Work(start, end, op, False, op == ARRAYS, correlation, names[name]))
        elif kind == "copy":
            start, end, _, correlation = map(int, words[1:5])
            self.add_work(Work(start, end, COPIES[words[6]], True, words[6] == "htod", correlation))
        elif kind == "fill":
            start, end, _, correlation = map(int, words[1:5])
            self.add_work(Work(start, end, FILL, True, True, correlation))
        elif kind == "call":
            start, end, _, correlation, name = map(int, words[1:])
            self.calls.append(Call(start, end, VERSION.sub("", names[name]), correlation))
        elif kind == "refused":
            raise Refused(" ".join(words[1:]))
        elif kind == "end":
            _, dropped, cut = map(int, words[1:])
            if dropped + cut > 0:
                raise AccountError(f"the timeline is cut: {dropped} records were dropped, {cut} left out")
            self.ended = True
        else:
            raise ValueError

    def add_work(self, work):
        if not 0 < work.start <= work.end:
            raise AccountError(f"a record of {work.part} has no time")
        self.work.append(work)


# --- Steps ---------------------------------------------------------------------------------------

def find_steps(work):
    """Of sorted work: where each step begins."""
    starts = []
    for at, one in enumerate(work):
        if one.part == "embed":
            least = starts[-1] + 1 if starts else 0
            while at > least and work[at - 1].opens:
                at -= 1
            starts.append(at)
    return starts


class Step(NamedTuple):
    begin: int  # the end of all work before it
    end: int
    work: list  # its own, sorted


def choose_steps(timeline, start, end):
    """The steps whose embed kernel was enqueued from start to end."""
    calls = {call.correlation: call for call in timeline.calls}
    starts = find_steps(timeline.work)
    steps, before = [], 0
    for first, last in zip([0, *starts], [*starts, len(timeline.work)]):
        work = timeline.work[first:last]
        ends = max([before, *(one.end for one in work)])
        heads = [one for one in work if one.part == "embed"]
        if heads:
            enqueued = calls.get(heads[0].correlation, heads[0]).start
            if start <= enqueued <= end:
                steps.append(Step(before or work[0].start, ends, work))
        before = ends
    return steps


# --- Parts ---------------------------------------------------------------------------------------

class Piece(NamedTuple):
    start: int
    end: int
    part: str
    is_copy: bool


def flatten(works):
    """Pieces that do not overlap: of sorted work, the first that began has the time."""
    pieces, done = [], 0
    for one in works:
        if one.end > done:
            pieces.append(Piece(max(one.start, done), one.end, one.part, one.is_copy))
            done = one.end
    return pieces


def lay(free, pieces):
    """Cuts pieces to the free spans; returns what was laid, and the spans that stay free. All are sorted."""
    laid, left = [], []
    for begin, end in free:
        done, at = begin, max(0, bisect.bisect(pieces, (begin,)) - 1)
        while at < len(pieces) and pieces[at].start < end:
            start, stop = max(pieces[at].start, done), min(pieces[at].end, end)
            if start > done:
                left.append((done, start))
            if stop > start:
                laid.append(pieces[at]._replace(start=start, end=stop))
                done = stop
            at += 1
        if done < end:
            left.append((done, end))
    return laid, left


def name_gap(before, after):
    """The work on both sides; None where a step begins."""
    if before is None:
        return BETWEEN_STEPS
    if before.is_copy:
        return AFTER_COPY
    return BEFORE_COPY if after is not None and after.is_copy else BETWEEN_KERNELS


def divide(step, kernels, copies):
    """A step's time in pieces that follow each other; of kernels and copies all may run in it, flattened."""
    laid, left = lay([(step.begin, step.end)], kernels)
    more, left = lay(left, copies)
    laid += more
    ends = {piece.end: piece for piece in laid}
    starts = {piece.start: piece for piece in laid}
    gaps = [Piece(begin, end, name_gap(ends.get(begin), starts.get(end)), False) for begin, end in left]
    return sorted(laid + gaps)


def check_sums(steps, divided):
    for step, pieces in zip(steps, divided):
        total, time = sum(piece.end - piece.start for piece in pieces), step.end - step.begin
        if total != time:
            raise AccountError(f"the parts of a step are {total} ns together, and the step takes {time}")
    for before, step in zip(steps, steps[1:]):
        if step.begin != before.end:
            raise AccountError(f"{step.begin - before.end} ns between two steps belong to neither")


# --- The host ------------------------------------------------------------------------------------

def enqueue_times(timeline, steps):
    """Of each step: from its first enqueueing call to the end of its last, the time in these calls, and how much
    of its work no call is known for."""
    calls = defaultdict(list)
    for call in timeline.calls:
        calls[call.correlation].append(call)
    spans, inside, unknown = [], [], 0
    for step in steps:
        correlations = {one.correlation for one in step.work}
        unknown += sum(correlation not in calls for correlation in correlations)
        # A call of the driver within one of the runtime has the same correlation.
        own = [max(calls[correlation], key=lambda call: call.end - call.start)
               for correlation in correlations if correlation in calls]
        if own:
            spans.append(max(call.end for call in own) - min(call.start for call in own))
            inside.append(sum(call.end - call.start for call in own))
    return spans, inside, unknown


def other_calls(timeline, start, end, steps):
    """Calls of the batch that enqueue nothing: time of the waits, and the rest by name."""
    enqueueing = {one.correlation for step in steps for one in step.work}
    waits, rest = 0, defaultdict(lambda: [0, 0])
    for call in timeline.calls[bisect.bisect(timeline.calls, (start,)):]:
        if call.start > end:
            break
        if WAITS.search(call.name):
            waits += call.end - call.start
        elif call.correlation not in enqueueing:
            rest[call.name][0] += 1
            rest[call.name][1] += call.end - call.start
    return waits, rest


# --- The account ---------------------------------------------------------------------------------

def microseconds(nanoseconds, steps=1):
    return round(nanoseconds / steps / 1e3, 3)


def add_up(pieces):
    parts = Counter()
    for piece in pieces:
        parts[piece.part] += piece.end - piece.start
    return parts


def span_of(pieces):
    """From the beginning of a step's work to its end."""
    return sum(piece.end - piece.start for piece in pieces if piece.part != BETWEEN_STEPS)


def describe_parts(steps, divided, totals):
    counts = Counter(one.part for step in steps for one in step.work)
    counts.update(piece.part for pieces in divided for piece in pieces if piece.part in GAPS)
    times, n = [add_up(pieces) for pieces in divided], len(steps)
    return [{"part": part, "us": microseconds(total, n), "per_step": round(counts[part] / n, 2),
             "median_us": microseconds(statistics.median(parts[part] for parts in times))}
            for part, total in totals.most_common()]


def describe_kernels(steps):
    """Time by the kernels' own names, of each as long as it ran, whatever ran beside it."""
    times = defaultdict(list)
    for step in steps:
        for one in step.work:
            if one.name:
                times[one.part, one.name].append(one.end - one.start)
    return sorted(({"part": part, "name": short_name(name), "us": microseconds(sum(each), len(steps)),
                    "per_step": round(len(each) / len(steps), 2)} for (part, name), each in times.items()),
                  key=lambda kernel: -kernel["us"])


def describe_middle(steps, divided):
    """The step of median length, piece by piece: part and us."""
    order = sorted(range(len(steps)), key=lambda at: steps[at].end - steps[at].begin)
    return [[piece.part, microseconds(piece.end - piece.start)] for piece in divided[order[len(order) // 2]]]


def make_account(timeline, start, end, num_steps):
    """start and end in nanoseconds. Everything is per step, the mean unless it is called a median. Whether the sum
    is what the host measured is left to check_difference."""
    steps = choose_steps(timeline, start, end)
    if not steps:
        raise AccountError("the timeline has no step in the time that the host measured")
    if len(steps) != num_steps:
        raise AccountError(f"the timeline has {len(steps)} steps where the host did {num_steps}")
    kernels = flatten(one for one in timeline.work if not one.is_copy)
    copies = flatten(one for one in timeline.work if one.is_copy)
    divided = [divide(step, kernels, copies) for step in steps]
    check_sums(steps, divided)
    totals = add_up(piece for pieces in divided for piece in pieces)
    total, host = sum(totals.values()), end - start
    idle = sum(totals[gap] for gap in GAPS)
    spans, inside, unknown = enqueue_times(timeline, steps)
    waits, rest = other_calls(timeline, start, end, steps)
    return {
        "steps": num_steps, "us": microseconds(total, num_steps), "host_us": microseconds(host, num_steps),
        "difference": round(total / host - 1, 5), "parts": describe_parts(steps, divided, totals),
        "median_us": microseconds(statistics.median(step.end - step.begin for step in steps)),
        "span_us": microseconds(statistics.median(span_of(pieces) for pieces in divided)),
        "busy_us": microseconds(total - idle, num_steps), "idle_us": microseconds(idle, num_steps),
        "idle_share": round(idle / total, 5),
        "enqueue_us": microseconds(statistics.median(spans)) if spans else None,
        "enqueue_calls_us": microseconds(statistics.median(inside)) if inside else None,
        "waits_us": microseconds(waits, num_steps),
        "work_of_unknown_calls": unknown,
        "other_calls": {name: {"per_step": round(count / num_steps, 2), "us": microseconds(time, num_steps)}
                        for name, (count, time) in sorted(rest.items())},
        "costly_calls": sorted(name for name in rest if COSTLY.search(name)),
        "kernels": describe_kernels(steps),
        "middle_step": describe_middle(steps, divided),
    }


def check_difference(account, most=MAX_DIFFERENCE):
    if abs(account["difference"]) > most:
        raise AccountError(f"the parts are {account['us']} us a step together, and the host measured "
                           f"{account['host_us']}: {100 * account['difference']:+.1f} %")


def read_timeline(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            return Timeline(lines)
    except OSError as error:
        raise AccountError(f"there is no timeline: {error.strerror}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--start", type=float, required=True)
    parser.add_argument("--end", type=float, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    try:
        account = make_account(read_timeline(options.file), round(1e9 * options.start), round(1e9 * options.end),
                               options.steps)
        print(json.dumps(account, indent=1))
        check_difference(account)
    except AccountError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
