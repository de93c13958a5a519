"""HAProxy and nginx as config/ has them, in front of replicas on this machine, and the load that goes through them."""

import http.client
import json
import shutil
import socket
import struct
import subprocess
import threading
import time

from quire_server import CACHE, ROOT, QuireServer, free_port

TINY = ROOT / "tests/golden/tiny-f32.gguf"
CONTEXT_KEY = b"llama.context_length"
PORTS = (8001, 8002, 8003)  # of the replicas in config/
NGINX_MAIN = """daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    include {folder}/quire.conf;
}}
"""


def find_program(name):
    return shutil.which(name, path="/usr/sbin") or shutil.which(name) or shutil.which(name, path=CACHE / "tools")


def make_model(path, context=16384):
    """The tiny model, with room for streams that last."""
    content = bytearray(TINY.read_bytes())
    at = content.index(CONTEXT_KEY) + len(CONTEXT_KEY)
    assert struct.unpack_from("<I", content, at) == (4,)  # uint32
    struct.pack_into("<I", content, at + 4, context)
    path.write_bytes(content)
    return path


class Gateway:
    """`haproxy` or `nginx` with its file of config/, in which the addresses are replaced, what is commented out there shows which
    replica answered, and sockets have small buffers, so that a stream of some megabytes is longer than what lies between."""

    def __init__(self, name, folder, ports):
        self.name, self.folder, self.program, self.port = name, folder, find_program(name), free_port()
        folder.mkdir(exist_ok=True)
        source = ROOT / ("config/haproxy/quire.cfg" if name == "haproxy" else "config/nginx/quire.conf")
        self.path = folder / source.name
        text = source.read_text()
        replaced = [(f"127.0.0.1:{old}", f"127.0.0.1:{new}") for old, new in zip(PORTS, ports)]
        replaced += [("bind :8080", f"bind 127.0.0.1:{self.port}"), ("# http-response", "http-response"),
                     ("tune.bufsize 65536", "tune.bufsize 65536\n    tune.sndbuf.client 32768\n    tune.rcvbuf.server 32768")] if name == "haproxy" else \
                    [("listen 8080", f"listen 127.0.0.1:{self.port} sndbuf=32k"), ("# add_header", "add_header"),
                     ("fail_timeout=5s", "fail_timeout=1s")]
        for old, new in replaced:
            assert old in text, f"{source}: no {old}"
            text = text.replace(old, new)
        self.path.write_text(text)
        if name == "nginx":
            (folder / "nginx.conf").write_text(NGINX_MAIN.format(folder=folder))

    def command(self, check):
        if self.name == "haproxy":
            return [self.program, *(["-c"] if check else ["-db"]), "-f", self.path]
        return [self.program, *(["-t"] if check else []), "-p", self.folder, "-c", self.folder / "nginx.conf"]

    def check(self):
        """The program's own opinion: its exit status, and what it said."""
        done = subprocess.run(self.command(True), capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def start(self):
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(self.command(False), stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            assert self.process.poll() is None and time.monotonic() < deadline, self.read_log()
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except ConnectionRefusedError:
                time.sleep(0.02)

    def read_log(self):
        return "".join(path.read_text() for path in (self.folder / "log", self.folder / "error.log") if path.exists())[-4000:]

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


class Replicas:
    """Three servers with the same model and options, each of which can be ended and started again where it was."""

    def __init__(self, folder, *arguments):
        self.folder, self.arguments, self.num_started = folder, arguments, 0
        self.model = make_model(folder / "model.gguf")
        self.servers = [self.start(port) for port in [free_port() for _ in PORTS]]

    def start(self, port):
        self.num_started += 1
        return QuireServer(self.folder / f"server{self.num_started}.log", "--model", self.model, "--threads", 1,
                           "--kv-cache-memory-bytes", "64M", "--max-num-seqs", 64, *self.arguments, port=port)

    def ports(self):
        return [server.port for server in self.servers]

    def restart(self, i):
        """After it has ended."""
        self.servers[i].process.wait(60)
        self.servers[i].kill()  # closes its log
        self.servers[i] = self.start(self.servers[i].port)

    def totals(self, name):
        return sum(server.metrics()[name] for server in self.servers)

    def kill(self):
        for server in self.servers:
            server.kill()


def send(gateway, body, session=None):
    """Requests a completion on a connection of its own, whose buffer is small: what is not read is not generated."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    connection.sock = socket.socket()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    connection.sock.settimeout(60)
    connection.sock.connect(("127.0.0.1", gateway.port))
    headers = {"Content-Type": "application/json", **({"X-Session-Id": session} if session else {})}
    connection.request("POST", "/v1/completions", json.dumps({"temperature": 0, "ignore_eos": True, **body}), headers)
    return connection


def ask(gateway, body, session=None):
    """(response, its content)"""
    connection = send(gateway, body, session)
    try:
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def replica_of(gateway, replicas, response):
    """Which one answered, by the field that the gateway adds."""
    said = response.getheader("X-Replica").split(", ")[-1]
    if gateway.name == "haproxy":
        return int(said.removeprefix("replica")) - 1
    return replicas.ports().index(int(said.split(":")[1]))


class Stream(threading.Thread):
    """A long stream, read slowly until finish() lets it go: whatever happens meanwhile happens while it runs. Logprobs make it
    longer than what lies between it and the server."""

    def __init__(self, gateway, replicas, session):
        super().__init__(daemon=True)
        self.connection = send(gateway, {"prompt": "once", "max_tokens": 3000, "logprobs": 20, "stream": True}, session)
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        self.tail = self.response.read(1)  # it has begun
        self.replica = replica_of(gateway, replicas, self.response)
        self.may_end, self.is_whole = threading.Event(), False
        self.start()

    def run(self):
        try:
            while data := self.response.read1(2048):
                self.tail = (self.tail + data)[-64:]
                self.may_end.wait(0.05)
            self.is_whole = self.tail.endswith(b"data: [DONE]\n\n")
        except (OSError, http.client.HTTPException):
            pass
        finally:
            self.connection.close()

    def finish(self):
        """Returns whether all of it came."""
        self.may_end.set()
        self.join(60)
        return self.is_whole


class Load:
    """Short requests all the time, from so many clients: streams and others, of sessions and of none. pause() returns when
    none is in flight."""

    def __init__(self, gateway, num_clients=4):
        self.gateway, self.failures, self.num_done = gateway, [], 0
        self.lock = threading.Condition()
        self.num_busy, self.is_paused, self.is_over = 0, False, False
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(num_clients)]
        for thread in self.threads:
            thread.start()

    def find_failure(self, i, count):
        stream = count % 2 == 0
        response, content = ask(self.gateway, {"prompt": f"client {i}", "max_tokens": 40, "stream": stream},
                                f"session {i} {count % 7}" if i % 2 else None)
        is_whole = content.endswith(b"data: [DONE]\n\n" if stream else b"}")
        return None if response.status == 200 and is_whole else (response.status, content[-200:])

    def run(self, i):
        for count in range(1_000_000):
            with self.lock:
                self.lock.wait_for(lambda: not self.is_paused or self.is_over)
                if self.is_over:
                    return
                self.num_busy += 1
            try:
                failure = self.find_failure(i, count)
            except (OSError, http.client.HTTPException) as error:
                failure = repr(error)
            with self.lock:
                self.num_busy -= 1
                self.num_done += 1
                if failure:
                    self.failures.append(failure)
                self.lock.notify_all()

    def pause(self):
        with self.lock:
            self.is_paused = True
            assert self.lock.wait_for(lambda: self.num_busy == 0, 60)

    def resume(self):
        with self.lock:
            self.is_paused = False
            self.lock.notify_all()

    def await_more(self, count=60):
        """Until so many more have been answered."""
        with self.lock:
            wanted = self.num_done + count
            assert self.lock.wait_for(lambda: self.num_done >= wanted, 60)

    def finish(self):
        """Returns what failed, and of how many."""
        with self.lock:
            self.is_over = True
            self.lock.notify_all()
        for thread in self.threads:
            thread.join(60)
        return self.failures, self.num_done
