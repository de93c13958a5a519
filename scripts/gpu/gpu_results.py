"""What scripts/gpu/gpu_check has done so far: one entry per item, kept in a file, so that a call that was cut
short is continued by the next, on another machine with the same GPU too. An item passes, fails, or was not run;
the last is never called passed."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import traceback

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
ABSENT_STATUS = 77  # of a program whose device is not there
LOG_BYTES = 64 << 10  # of one command's output, at most
MOST_LOG_BYTES = 12 << 20  # of all together
KILLED_SECONDS = 5  # until a program that was killed is gone
OUT_OF_TIME = "no time left in this call"
# Starts a program that the system kills when the thread that started it ends, however that happens. A process
# with threads may do nothing of the kind between fork and exec.
DIE_WITH_PARENT = """import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):  # else it ended before it was asked for
    os.execv(sys.argv[2], sys.argv[2:])"""


class Failed(Exception):
    """The item ran and is wrong. `output` is what the program printed before."""

    def __init__(self, reason, output=""):
        super().__init__(reason)
        self.output = output


class Hung(Failed):
    """It did not end in its time."""


class NotRun(Exception):
    """The item could not run here, or not now."""


class OutOfTime(NotRun):
    """It can run in the next call."""

    def __init__(self, output=""):
        super().__init__(OUT_OF_TIME)
        self.output = output


def figures_of(text):
    """The lines of JSON that a program printed; one that was cut is left out."""
    figures = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            if line.startswith("{"):
                figures.append(json.loads(line))
    return figures


def complaint_of(errors, output):
    """What a test says first, or a program last."""
    failed = re.search(r"^\[ +ERROR +\] --- (.*)", errors, re.MULTILINE)
    lines = [line.strip() for line in (errors.strip() or output).splitlines() if line.strip()]
    return failed[1] if failed else lines[-1] if lines else ""


def shorten(text):
    """Its beginning and end."""
    half = LOG_BYTES // 2
    return text if len(text) <= LOG_BYTES else f"{text[:half]}\n[cut]\n{text[-half:]}"


def not_passed(status, reason, **more):
    return {"status": status, "detail": str(reason), **more}


def dying_with_parent(command):
    """The command that does so; with the whole path of its program."""
    return [sys.executable, "-c", DIE_WITH_PARENT, str(os.getpid()), *command]


class Results:
    """Few files, so that they travel: results.json, and gpu_check.log with the output of every command.
    `env` is added to the environment of each. Items are executed in threads, and recorded in that of the schedule.
    """

    def __init__(self, folder, clock, budget=float("inf")):
        self.folder, self.clock, self.deadline = folder, clock, budget
        self.path = folder / "results.json"
        self.log = folder / "gpu_check.log"
        self.env, self.items, self.call = {}, {}, 1
        self.lock = threading.Lock()  # of the log
        self.here = threading.local()  # of this thread's item: its end and limit, and whether that is the call's
        folder.mkdir(parents=True, exist_ok=True)

    def go_on_from(self, path):
        """What an earlier call has left, a folder or its results.json."""
        path = path / self.path.name if path.is_dir() else path
        try:
            self.take_over(json.loads(path.read_text()))
        except (OSError, ValueError) as error:
            print(f"no earlier results, all is done: {error}", flush=True)

    def take_over(self, items):
        self.items = items
        self.call = 1 + max((entry.get("call", 0) for entry in items.values()), default=0)

    def save(self):
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(self.items, indent=1) + "\n")
        os.replace(temporary, self.path)

    def status(self, name):
        return self.items.get(name, {}).get("status")

    def data(self, name):
        """What a passed item gave, or None."""
        return self.items[name].get("data") if self.status(name) == PASSED else None

    def count(self, status):
        return sum(self.status(name) == status for name in self.items)

    def seconds_left(self):
        """Of this thread's item."""
        return getattr(self.here, "deadline", float("inf")) - time.monotonic()

    def out_of_time(self, output=""):
        """What it is to be raised for that took all of an item's time."""
        return OutOfTime(output) if self.here.is_last else Hung(f"still running after {self.here.limit:.0f} s", output)

    # --- Items ---------------------------------------------------------------------------------------

    def execute(self, item, writer, limit, is_last):
        """In a thread: returns the entry, and whether the item hung. `writer` names the item that wrote its model;
        `limit` is in seconds; is_last: no more are left of the call."""
        self.here.is_last, self.here.limit = is_last, limit
        self.here.deadline = time.monotonic() + max(1, limit)
        try:
            if writer and self.status(writer) != PASSED:
                raise NotRun(f"its model was not written: {self.items[writer].get('detail')}")
            return {"status": PASSED, "data": item.action()}, False
        except Failed as reason:  # its figures are kept, and count for nothing
            return not_passed(FAILED, reason, figures=figures_of(reason.output)), isinstance(reason, Hung)
        except OutOfTime as reason:
            return not_passed(NOT_RUN, reason, figures=figures_of(reason.output), left_out=True), False
        except NotRun as reason:
            return not_passed(NOT_RUN, reason), False
        except Exception as error:  # what nobody thought of ends this item, not the call
            self.write_log(item.name, [type(error).__name__], "", traceback.format_exc())
            return not_passed(FAILED, f"{type(error).__name__}: {error}"), False

    def record(self, name, entry):
        self.items[name] = {**entry, "call": self.call}
        self.save()
        detail = f": {entry['detail']}" if "detail" in entry else ""
        print(f"{self.clock.now():5.0f} s  {entry['status']:8} {name} ({entry['seconds']:.1f} s){detail}", flush=True)

    def leave_out(self, name, reason):
        """In this call; what was found before stays. To be saved."""
        if self.items.get(name, {"left_out": True}).get("left_out"):
            self.items[name] = {"status": NOT_RUN, "detail": reason, "seconds": 0, "left_out": True}

    # --- Programs ------------------------------------------------------------------------------------

    def write_log(self, name, command, output, errors):
        text = f"=== {name}\n$ {shlex.join(command)}\n{shorten(errors)}{shorten(output)}\n"
        with self.lock, open(self.log, "a") as log:
            if log.tell() + len(text) <= MOST_LOG_BYTES:
                log.write(text)

    def communicate(self, command, limit, env):
        """(output, errors, status) of a program; None: its time was over, and it was killed with all it had started."""
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                              start_new_session=True, env={**os.environ, **self.env, **(env or {})}) as process:
            try:
                return (*process.communicate(timeout=limit), process.returncode)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            try:
                return (*process.communicate(timeout=KILLED_SECONDS), None)
            except subprocess.TimeoutExpired:  # something of another group has its output
                return "", "", None

    def command(self, name, command, timeout=float("inf"), env=None):
        """Runs a program and returns its standard output; both streams go to the log, under the item's name."""
        command = [str(word) for word in command]
        left = self.seconds_left()
        try:
            output, errors, status = self.communicate(command, max(0.1, min(timeout, left)), env)
        except OSError as error:
            raise Failed(f"cannot run {command[0]}: {error.strerror}") from error
        self.write_log(name, command, output, errors)
        if status is None:
            raise Hung(f"still running after {timeout} s", output) if timeout < left else self.out_of_time(output)
        if status == 0:
            return output
        complaint = complaint_of(errors, output)
        if status == ABSENT_STATUS:
            raise NotRun(complaint)
        how = f"status {status}" if status > 0 else f"signal {-status}"
        raise Failed(f"{how}: {complaint}", output)

    def json_lines(self, name, command, timeout=float("inf"), env=None):
        """The same for a program that prints JSON, one object a line."""
        lines = figures_of(self.command(name, command, timeout, env))
        if not lines:
            raise Failed(f"{command[0]} printed no figure")
        return lines
