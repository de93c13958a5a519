"""What scripts/gpu/gpu_check has done so far: one entry per item, kept in a file, so that a run that was cut
short is continued by the next. An item passes, fails, or was not run; the last is never called passed."""

import json
import os
import shlex
import subprocess
import time

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
ABSENT_STATUS = 77  # of a program whose device is not there


class Failed(Exception):
    """The item ran and is wrong."""


class NotRun(Exception):
    """The item could not run here, or not now."""


class OutOfTime(NotRun):
    """It can run in the next call."""


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


class Results:
    def __init__(self, folder, budget, fresh):
        self.folder = folder
        self.path = folder / "results.json"
        self.deadline = time.monotonic() + budget if budget else None
        self.items = {}
        self.touched = []  # names of this call, in order
        self.ran_out = False
        (folder / "logs").mkdir(parents=True, exist_ok=True)
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

    def seconds_left(self):
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def item(self, name, action, expect=5):
        """Runs action() unless it has passed before; `expect` is about how many seconds it takes. Returns
        what it gave, or None."""
        self.touched.append(name)
        if self.status(name) == PASSED:
            return self.items[name].get("data")
        start, entry = time.monotonic(), {"status": PASSED}
        try:
            if self.seconds_left() < expect:
                raise OutOfTime("no time left in this call")
            entry["data"] = action()
        except Failed as reason:
            entry.update(status=FAILED, detail=str(reason))
        except NotRun as reason:
            entry.update(status=NOT_RUN, detail=str(reason))
            self.ran_out |= isinstance(reason, OutOfTime)
        entry["seconds"] = round(time.monotonic() - start, 2)
        self.items[name] = entry
        self.save()
        detail = f": {entry['detail']}" if "detail" in entry else ""
        print(f"{entry['status']:8} {name} ({entry['seconds']:.1f} s){detail}", flush=True)
        return entry.get("data")

    def command(self, name, command, timeout=600, env=None):
        """Runs a program and returns its standard output; both streams go to a log named after the item."""
        log = self.folder / "logs" / (name.replace("/", "_").replace(" ", "_") + ".log")
        command = [str(word) for word in command]
        limit = min(timeout, max(self.seconds_left(), 1))
        with open(log, "w") as stream:
            print("$", shlex.join(command), file=stream, flush=True)
            try:
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=stream, text=True,
                                      timeout=limit, env={**os.environ, **(env or {})})
            except subprocess.TimeoutExpired as error:
                if limit < timeout:
                    raise OutOfTime("no time left in this call") from error
                raise Failed(f"still running after {timeout} s") from error
            except OSError as error:
                raise Failed(f"cannot run {command[0]}: {error.strerror}") from error
        complaint = last_line(log.read_text().split("\n", 1)[1]) or last_line(done.stdout)
        with open(log, "a") as stream:
            stream.write(done.stdout)
        if done.returncode == 0:
            return done.stdout
        if done.returncode == ABSENT_STATUS:
            raise NotRun(complaint)
        how = f"status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        raise Failed(f"{how}, see {log}: {complaint}")

    def json_lines(self, name, command, timeout=600):
        """The same for a program that prints JSON, one object a line."""
        lines = [json.loads(line) for line in self.command(name, command, timeout).splitlines()
                 if line.startswith("{")]
        if not lines:
            raise Failed(f"{command[0]} printed no figure")
        return lines
