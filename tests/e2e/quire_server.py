"""Starts the real binary and waits until it answers."""

import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

try:
    import httpx
    import openai
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:  # the environments of clients/ do without; what needs them fails by name
    pass

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("QUIRE_TEST_BINARY", ROOT / "build/server/quire"))
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "quire"
MODEL = Path(os.environ.get("QUIRE_TEST_MODEL", CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"))
NAME = "smollm2"
START_TIMEOUT = 120


PORTS_PER_WORKER = 2500
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8
PORTS = itertools.cycle(range(PORTS_PER_WORKER))
for _ in range(random.randrange(PORTS_PER_WORKER)):  # another run of the tests may go on beside
    next(PORTS)


def free_port():
    """A port that no other worker is given, nor any connection that goes out: those begin at 32768."""
    for offset in itertools.islice(PORTS, PORTS_PER_WORKER):
        port = 12000 + WORKER * PORTS_PER_WORKER + offset
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


def clean_environment(**extra):
    """The environment without QUIRE_* options of whoever runs the tests, and what is for the tests' own clients (conftest.py)."""
    kept = {name: value for name, value in os.environ.items()
            if name not in ("SSL_CERT_FILE", "COLUMNS") and (not name.startswith("QUIRE_") or name.startswith("QUIRE_TEST_"))}
    return {**kept, **extra}


class QuireServer:
    """`quire serve` on a free port, unless it is given. Extra arguments are options: "--max-num-seqs", 2. launcher: a
    command that starts it, as mpirun. With "--model" among them it has that one, the last, under the same name; has_model:
    the arguments say which models it has, and their names."""

    def __init__(self, log_path, *arguments, environment=None, binary=BINARY, port=None, launcher=(), has_model=False):
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = Path(log_path)
        self.log = open(self.log_path, "wb")
        model = () if has_model else ("--model", MODEL, "--served-model-name", NAME)
        while not has_model and "--model" in arguments:
            at = arguments.index("--model")
            model, arguments = ("--model", arguments[at + 1], *model[2:]), arguments[:at] + arguments[at + 2:]
        command = [*map(str, launcher), binary, "serve", *model, "--port", self.port, *arguments]
        self.process = subprocess.Popen([str(word) for word in command], stdout=self.log,
                                        stderr=self.log, env=clean_environment(**(environment or {})))
        self.wait_until_ready()

    def wait_until_ready(self):
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"exit status {self.process.returncode}: {self.read_log()}")
            try:
                urllib.request.urlopen(self.url + "/health").close()
                return
            except (urllib.error.URLError, ConnectionError):
                pass
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"not ready after {START_TIMEOUT} s: {self.read_log()}")
            time.sleep(0.02)

    def read_log(self):
        text = self.log_path.read_text(errors="replace")
        return text if len(text) <= 16000 else text[:8000] + "\n...\n" + text[-8000:]

    def client(self, api_key="none", cls=None):
        return (cls or openai.OpenAI)(base_url=self.url + "/v1", api_key=api_key, max_retries=0, timeout=300)

    def complete(self, prompt, **fields):
        """One completion through the SDK; greedy by default."""
        fields = {"temperature": 0, **fields}
        return self.client().completions.create(model=NAME, prompt=prompt, **fields)

    def post(self, path, body, **kwargs):
        return httpx.post(self.url + path, json=body, timeout=300, **kwargs)

    def tokenize(self, text):
        return self.post("/tokenize", {"prompt": text}).json()["tokens"]

    def metrics(self):
        """Sample name without prefix -> value, summed over labels other than buckets."""
        values = {}
        for family in text_string_to_metric_families(httpx.get(self.url + "/metrics").text):
            for sample in family.samples:
                if not sample.name.endswith("_bucket"):
                    name = sample.name.split(":", 1)[-1]
                    values[name] = values.get(name, 0) + sample.value
        return values

    def wait_for(self, condition, timeout=60):
        """Polls the metrics until condition(metrics) holds; returns those metrics."""
        deadline = time.monotonic() + timeout
        while True:
            metrics = self.metrics()
            if condition(metrics):
                return metrics
            assert time.monotonic() < deadline, f"still not so after {timeout} s: {metrics}"
            time.sleep(0.01)

    def wait_idle(self):
        return self.wait_for(lambda m: m["num_requests_running"] + m["num_requests_waiting"] == 0)

    def terminate(self, timeout=60):
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()
