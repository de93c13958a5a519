"""What scripts/gpu/gpu_check has done so far: one entry per item, kept in a file, so that a run that was cut
short is continued by the next, on another machine with the same GPU too. An item passes, fails, or was not run;
the last is never called passed."""

import contextlib
import json
import os
import shlex
import subprocess
import time
import traceback

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
ABSENT_STATUS = 77  # of a program whose device is not there
LOG_BYTES = 64 << 10  # of one command's output, at most


class Failed(Exception):
    """The item ran and is wrong. `output` is what the program printed before."""

    def __init__(self, reason, output=""):
        super().__init__(reason)
        self.output = output


class NotRun(Exception):
    """The item could not run here, or not now."""


class OutOfTime(NotRun):
    """It can run in the next call."""


def figures_of(text):
    """The lines of JSON that a program printed; one that was cut is left out."""
    figures = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            if line.startswith("{"):
                figures.append(json.loads(line))
    return figures


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def shorten(text):
    """Its beginning and end."""
    half = LOG_BYTES // 2
    return text if len(text) <= LOG_BYTES else f"{text[:half]}\n[cut]\n{text[-half:]}"


class Results:
    """Few files, so that they travel: results.json, and gpu_check.log with the output of every command.
    `env` is added to the environment of each."""

    def __init__(self, folder, budget, fresh):
        self.folder = folder
        self.path = folder / "results.json"
        self.log = folder / "gpu_check.log"
        self.deadline = time.monotonic() + budget if budget else None
        self.env = {}
        self.items = {}
        self.ran_out = False
        folder.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and not fresh:
            self.items = json.loads(self.path.read_text())

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
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def item(self, name, action, expect=5):
        """Runs action() unless it has passed before; `expect` is about how many seconds it takes. What it
        gives is kept at once, and returned; None unless it passes."""
        if self.status(name) == PASSED:
            return self.items[name].get("data")
        start, entry = time.monotonic(), {"status": PASSED}
        try:
            if self.seconds_left() < expect:
                raise OutOfTime("no time left in this call")
            entry["data"] = action()
        except Failed as reason:  # its figures are kept, and count for nothing
            entry.update(status=FAILED, detail=str(reason), figures=figures_of(reason.output))
        except NotRun as reason:
            entry.update(status=NOT_RUN, detail=str(reason))
            self.ran_out |= isinstance(reason, OutOfTime)
        except Exception as error:  # what nobody thought of ends this item, not the call
            entry.update(status=FAILED, detail=f"{type(error).__name__}: {error}")
            self.write_log(name, [type(error).__name__], "", traceback.format_exc())
        entry["seconds"] = round(time.monotonic() - start, 2)
        self.items[name] = entry
        self.save()
        detail = f": {entry['detail']}" if "detail" in entry else ""
        print(f"{entry['status']:8} {name} ({entry['seconds']:.1f} s){detail}", flush=True)
        return entry.get("data")

    def write_log(self, name, command, output, errors):
        with open(self.log, "a") as log:
            print(f"=== {name}\n$ {shlex.join(command)}\n{shorten(errors)}{shorten(output)}", file=log)

    def command(self, name, command, timeout=600, env=None):
        """Runs a program and returns its standard output; both streams go to the log, under the item's name."""
        command = [str(word) for word in command]
        limit = min(timeout, max(self.seconds_left(), 1))
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  errors="replace", timeout=limit,
                                  env={**os.environ, **self.env, **(env or {})})
        except subprocess.TimeoutExpired as error:
            self.write_log(name, command, *((part or b"").decode(errors="replace")
                                            for part in (error.stdout, error.stderr)))
            if limit < timeout:
                raise OutOfTime("no time left in this call") from error
            raise Failed(f"still running after {timeout} s") from error
        except OSError as error:
            raise Failed(f"cannot run {command[0]}: {error.strerror}") from error
        self.write_log(name, command, done.stdout, done.stderr)
        if done.returncode == 0:
            return done.stdout
        complaint = last_line(done.stderr) or last_line(done.stdout)
        if done.returncode == ABSENT_STATUS:
            raise NotRun(complaint)
        how = f"status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        raise Failed(f"{how}: {complaint}", done.stdout)

    def json_lines(self, name, command, timeout=600, env=None):
        """The same for a program that prints JSON, one object a line."""
        lines = figures_of(self.command(name, command, timeout, env))
        if not lines:
            raise Failed(f"{command[0]} printed no figure")
        return lines
