"""The server that is attacked: the real binary on a tiny model, with small limits."""

import os
import resource
import signal
import struct
import subprocess
import time
from pathlib import Path

from wire import answers, authorization, open_socket, read_to_end, request_bytes

TINY = Path(__file__).resolve().parents[1] / "golden/tiny-q8_0.gguf"
CONTEXT_KEY = b"llama.context_length" + struct.pack("<I", 4)  # the key, and its type: a 32-bit number
CONTEXT = 8192
NAME = "victim"
BASE_OPTIONS = {"kv-cache-memory-bytes": "16M", "max-num-seqs": 16, "max-connections": 256,
                "max-queued-requests": 1024, "threads": 1,
                "shutdown-timeout": 16}
START_TIMEOUT = 60
SANITIZER_MARKS = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:")
SANITIZERS = (b"libasan", b"libtsan")
COUNTS = ("num_requests_running", "num_requests_waiting", "kv_blocks_used", "swap_blocks_used")


def write_model(path):
    """The tiny model of tests/golden, but with a context that a stream can fill for seconds."""
    data = bytearray(TINY.read_bytes())
    at = data.index(CONTEXT_KEY) + len(CONTEXT_KEY)
    data[at:at + 4] = struct.pack("<I", CONTEXT)
    Path(path).write_bytes(data)
    return path


def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Victim:
    """`options` overrides BASE_OPTIONS by name, None for one without a value; `max_files` is its RLIMIT_NOFILE;
    `is_unix` makes it listen on a UNIX socket; `stderr` is where its log goes instead of a file; `tls` is what its clients
    need where it speaks TLS, `key` where it wants one; `listener` is a socket passed as systemd does; `launcher` is a command
    that starts it."""

    def __init__(self, binary, model, folder, options=None, max_files=None, is_unix=False, stderr=None, tls=None, key=None,
                 environment=None, listener=None, launcher=()):
        folder = Path(folder)
        self.log_path = folder / f"victim-{time.monotonic_ns()}.log"
        self.tls, self.key = tls, key
        self.address = (listener.getsockname()[1] if listener else str(folder / "victim.sock") if is_unix else free_port())
        place = ["--uds", self.address] if is_unix else ["--port", str(self.address)]
        words = [*launcher, str(binary), "serve", "--model", str(model), "--served-model-name", NAME, *place]
        for name, value in {**BASE_OPTIONS, **(options or {})}.items():
            words += [f"--{name}"] if value is None else [f"--{name}", str(value)]
        if listener:  # LISTEN_PID must be the server's own
            words = ["sh", "-c", 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"', "sh", *words]
        environment = {**{name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")},
                       **(environment or {})}
        environment.setdefault("ASAN_OPTIONS", "detect_leaks=1")

        def prepare():
            """As a service manager starts it, whatever this program was started by."""
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            if max_files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
            if listener:
                os.dup2(listener.fileno(), 3)
                os.set_inheritable(3, True)  # also where it was that already

        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=stderr or log,
                                            env=environment, preexec_fn=prepare, close_fds=listener is None)
        self.pid = self.process.pid
        self.await_ready()

    def await_ready(self):
        deadline = time.monotonic() + START_TIMEOUT
        while not self.is_healthy():
            if self.process.poll() is not None:
                raise RuntimeError(f"exit status {self.process.returncode}: {self.read_log()}")
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"not ready after {START_TIMEOUT} s: {self.read_log()}")
            time.sleep(0.02)

    def get(self, path, seconds=5):
        """The answer to a GET from a connection of its own; None where there is none."""
        try:
            with open_socket(self.address, timeout=seconds, tls=self.tls) as sock:
                sock.sendall(request_bytes(path, headers=[("Connection", "close"), *authorization(self.key)]))
                found = answers(read_to_end(sock, seconds)[0])
        except OSError:
            return None
        return found[0] if found and found[0].status else None

    def is_healthy(self):
        answer = self.get("/health", 1)
        return answer is not None and answer.status == 200

    def metrics(self):
        answer = self.get("/metrics")
        lines = answer.body.decode().splitlines() if answer else []
        return {line.split("{")[0].split(":")[-1]: float(line.split()[-1]) for line in lines if not line.startswith("#")}

    def read_log(self):
        return self.log_path.read_text(errors="replace")[-8000:]

    def memory(self, field="VmRSS"):
        """Bytes, by the name of a line of /proc/PID/status; 0 where the process has ended."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")), 0)

    def num_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def num_sockets(self):
        count = 0
        for entry in os.listdir(f"/proc/{self.pid}/fd"):
            try:
                count += os.readlink(f"/proc/{self.pid}/fd/{entry}").startswith("socket:")
            except OSError:
                pass
        return count

    def settle(self, base, seconds):
        """Sockets beyond `base` that are still open when that long has passed."""
        deadline = time.monotonic() + seconds
        while (left := self.num_sockets() - base) > 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        return max(left, 0)

    def what_is_left(self, sockets, files, seconds):
        """After the last call: names and counts of what has not been given back within that time, beyond so many sockets
        and files."""
        deadline = time.monotonic() + seconds
        while True:
            metrics = self.metrics()
            left = {name: metrics.get(name, "unknown") for name in COUNTS if metrics.get(name) != 0}
            left["sockets"] = self.num_sockets() - sockets
            left["files"] = self.num_files() - files
            left = {name: count for name, count in left.items() if count == "unknown" or count > 0}
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.1)

    def is_sanitized(self):
        maps = Path(f"/proc/{self.pid}/maps").read_bytes()
        return any(name in maps for name in SANITIZERS)

    def finish(self, seconds=20):
        """Stops it. A list of what is wrong with how it ended: status, sanitizer reports, or that it waits for clients
        who are gone."""
        problems, began = [], time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            status = f"none within {seconds} s of SIGTERM"
        if time.monotonic() - began > 12:  # of the 16 that it waits for clients
            problems.append(f"stopped only {time.monotonic() - began:.0f} s after SIGTERM, though no client was there")
        if status != 0:
            problems.append(f"exit status {status}")
        log = self.log_path.read_text(errors="replace")
        problems += [line for line in log.splitlines() if any(mark in line for mark in SANITIZER_MARKS)][:3]
        return problems

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
