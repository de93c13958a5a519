"""`quire serve` while items measure it: a session of theirs, on loopback, started when first asked, and never there
after close(), nor after this process."""

import os
import re
import subprocess
import time
import urllib.request

from gpu_models import model_path
from gpu_results import Failed, NotRun, OutOfTime, dying_with_parent

STOP_SECONDS = 10
IDLE_SECONDS = 30
LISTENING = re.compile(r"listening on (http://127\.0\.0\.1:\d+)")
SAMPLE = re.compile(r"^[^#\s{]*?:?(\w+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


def read_samples(page):
    """Of a page of metrics: sample name without prefix -> value."""
    return {name: float(value) for name, value in SAMPLE.findall(page)}


class GpuServer:
    """Options go to `quire serve`. url() starts it and waits until it is ready; a start that failed is not tried again.
    """

    def __init__(self, context, name, model, *options):
        self.context, self.name, self.model = context, name, model
        self.options = [str(option) for option in options]
        self.process = self.address = self.refusal = None
        self.ready_seconds = 0.0

    def program(self):
        context = self.context
        if context.build and not (context.build / "server/quire").is_file():
            raise NotRun("the server is not built here: its libraries are missing")
        return context.program("quire")

    def url(self):
        if self.refusal:
            raise self.refusal
        if self.process is None:
            try:
                self.start()
            except OutOfTime:
                self.close()
                raise
            except (Failed, NotRun) as reason:
                self.close()
                self.refusal = reason
                raise
        if self.process.poll() is not None:
            self.refusal = Failed(f"the server has ended with status {self.process.returncode}: {self.last_line()}")
            raise self.refusal
        return self.address

    def start(self):
        results = self.context.results
        self.command = [self.program(), "serve", "--model", model_path(self.context, self.model),
                        "--device", self.context.device, "--host", "127.0.0.1", "--port", "0",
                        "--served-model-name", "random", *self.options]
        self.command = [str(word) for word in self.command]
        self.log_path = self.context.scratch("server.log")
        begin = time.monotonic()
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(dying_with_parent(self.command), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env={**os.environ, **results.env})
        while self.address is None or not self.is_healthy():
            if self.process.poll() is not None:
                raise Failed(f"the server did not start, status {self.process.returncode}: {self.last_line()}")
            if results.seconds_left() <= 0:
                raise results.out_of_time(self.last_line())
            found = LISTENING.search(self.read_log())
            self.address = found[1] if found else None
            time.sleep(0.02)
        self.ready_seconds = time.monotonic() - begin

    def is_healthy(self):
        try:
            with urllib.request.urlopen(self.address + "/health", timeout=5) as reply:
                return reply.status == 200
        except OSError:
            return False

    def metrics(self):
        """The page."""
        try:
            with urllib.request.urlopen(self.url() + "/metrics", timeout=30) as reply:
                return reply.read().decode()
        except OSError as error:
            raise Failed(f"/metrics: {error}; the server's last line: {self.last_line()}") from error

    def metrics_when_idle(self):
        """The page once no request is left: those that were cut short end with their step. A device that failed meanwhile is
        a pause for clients, and a failure here."""
        deadline = time.monotonic() + IDLE_SECONDS
        while True:
            page = self.metrics()
            metrics = read_samples(page)
            if metrics.get("rank_restarts_total", 0) > 0:
                lost = [line for line in self.read_log().splitlines() if "the ranks are lost" in line]
                self.refusal = Failed(f"the device failed, and its ranks were restarted: {(lost or ['?'])[0]}")
                raise self.refusal
            if metrics["num_requests_running"] + metrics["num_requests_waiting"] == 0:
                return page
            if time.monotonic() > deadline:
                self.refusal = Failed(f"requests are left {IDLE_SECONDS} s after the last answer")
                raise self.refusal
            time.sleep(0.02)

    def read_log(self):
        return self.log_path.read_text(errors="replace")

    def last_line(self):
        lines = self.read_log().split("\n")
        return next((line for line in reversed(lines) if line.strip()), "nothing")[-300:]

    def close(self):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.context.results.write_log(self.name, self.command, self.read_log(), "")
        self.log_path.unlink(missing_ok=True)
        self.process = self.address = None
