"""The programs that compare_peers.py compares, each started when it is needed and asked for one load at a time.

Quire runs with its defaults, llama.cpp's server with as many slots as the load has streams, room for the load's longest
request in each, one thread per core and no prompt cache beside the slots; OpenVINO GenAI, which has no server, in a
process of its own without HTTP. None finds anything in a prefix cache: all prompts differ.
"""

import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from bench_serve import make_requests, resident_mb
from load_run import Child, LoadError, summarise

START_SECONDS = 600  # from a program's start to its first token
LOAD_SECONDS = 3600
END_SECONDS = 2  # for a program that fails to be gone
TEMPERATURE = 1


class PeerError(Exception):
    """A peer cannot be measured; why, in one line."""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def memory_of(pid):
    """0 of a process that has ended."""
    try:
        return resident_mb(pid)
    except (OSError, KeyError):
        return 0.0


class Peer:
    """One that is measured. Subclasses start it and put a load on it; both raise PeerError."""

    def __init__(self, name):
        self.name, self.log = name, None

    def last_words(self):
        """Of what it said on standard error."""
        if self.log is None:
            return "it said nothing"
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 4096))
        lines = [line.strip() for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][:200] if lines else "it said nothing"

    def open_log(self):
        if self.log:
            self.log.close()
        self.log = tempfile.TemporaryFile()
        return self.log

    def start(self, case):
        """Makes it ready for the case; returns the seconds until its first token, None where it was ready before."""
        raise NotImplementedError

    def measure(self, load, case, prompts):
        """load_run.summarise's figures of these (prompt, tokens out), with resident_mb."""
        raise NotImplementedError

    def stop(self):
        if self.log:
            self.log.close()
            self.log = None


class HttpPeer(Peer):
    """A server of OpenAI's completions. command(case, port): how it is started; another command, another process."""

    def __init__(self, name, command):
        super().__init__(name)
        self.command, self.process, self.started = command, None, None

    def start(self, case):
        wanted = self.command(case, "PORT")
        if self.process and self.process.poll() is None and self.started == wanted:
            return None
        self.stop()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        start = time.perf_counter()
        try:
            self.process = subprocess.Popen(self.command(case, str(port)), stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=self.open_log())
        except OSError as error:
            raise PeerError(f"cannot be started: {error}") from error
        self.started = wanted
        self.wait_for_token(start + START_SECONDS)
        return time.perf_counter() - start

    def wait_for_token(self, deadline):
        body = json.dumps({"model": "bench", "prompt": [1], "max_tokens": 1, "temperature": 0}).encode()
        while time.perf_counter() < deadline:
            if self.process.poll() is not None:
                raise PeerError(f"ended with status {self.process.returncode} at its start: {self.last_words()}")
            try:
                with urllib.request.urlopen(self.url + "/v1/completions", data=body, timeout=60) as reply:
                    reply.read()
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.005)
        raise PeerError(f"served no token within {START_SECONDS} s")

    def measure(self, load, case, prompts):
        # One token may be no text of its own, so that no event of a stream would tell of it.
        stream = any(tokens > 1 for _, tokens in prompts)
        requests = make_requests("bench", prompts, stream, temperature=TEMPERATURE, seed=1)
        try:
            figures = load.run([self.url], requests, case.streams, stream=stream, timeout=LOAD_SECONDS)
        except LoadError as error:
            raise PeerError(f"the load generator failed: {error}") from error
        if figures["failures"] and self.has_ended():
            raise PeerError(f"ended with status {self.process.returncode}: {self.last_words()}")
        return {**figures, "resident_mb": memory_of(self.process.pid)}

    def has_ended(self):
        """Its connections close before it is gone."""
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
        super().stop()


def quire(binary, model):
    return HttpPeer("Quire", lambda case, port: [binary, "serve", "--model", model, "--port", port,
                                                 "--served-model-name", "bench"])


def llama_server(binary, model):
    def command(case, port):
        return [binary, "-m", model, "--host", "127.0.0.1", "--port", port, "-np", str(case.streams),
                "-c", str(case.streams * case.context), "-t", str(len(os.sched_getaffinity(0))), "--cache-ram", "0"]
    return HttpPeer("llama.cpp's server", command)


class OpenVino(Peer):
    """bench_openvino.py, in the interpreter that has the package."""

    def __init__(self, python, model, cache_gib):
        super().__init__("OpenVINO GenAI")
        self.arguments, self.python, self.child = (str(model), str(cache_gib)), python, None

    def start(self, case):
        if self.child and self.child.process.poll() is None:
            return None
        self.stop()
        start = time.perf_counter()
        try:
            self.child = Child("bench_openvino.py", *self.arguments, python=self.python, stderr=self.open_log())
        except OSError as error:
            raise PeerError(f"cannot be started: {error}") from error
        self.read(START_SECONDS)
        return time.perf_counter() - start

    def read(self, seconds):
        try:
            return self.child.read(time.monotonic() + seconds)
        except LoadError as error:
            raise PeerError(f"{error}: {self.last_words()}") from error

    def measure(self, load, case, prompts):
        requests = [{"prompt": prompt, "tokens": tokens} for prompt, tokens in prompts]
        try:
            self.child.write(json.dumps({"streams": case.streams, "temperature": TEMPERATURE, "requests": requests}))
        except LoadError as error:
            raise PeerError(f"{error}: {self.last_words()}") from error
        figures = summarise([json.loads(self.read(LOAD_SECONDS))])
        return {**figures, "resident_mb": memory_of(self.child.process.pid)}

    def stop(self):
        if self.child:
            self.child.kill()
            self.child = None
        super().stop()
