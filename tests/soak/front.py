"""Everything in front of the engine at once: TLS, API keys, an access log, spans to a collector, the admin socket, and their
being read again, opened again and used while the calls go on."""

import http.server
import json
import os
import shutil
import signal
import socket
import ssl
import threading
from collections import namedtuple
from pathlib import Path

CERTIFICATES = Path(__file__).resolve().parents[1] / "e2e/data/tls"
KEYS = ["soak-key-one", "soak-key-two"]
ADMIN_CALLS = (("flush-cache", b""), ("log-level", b'{"level": "debug"}'), ("log-level", b'{"level": "info"}'))
PAUSE_S = 0.1

# How a client gets in; `authority` is the file that the server's certificate is checked against, None without TLS.
Door = namedtuple("Door", "port authority key", defaults=(None, None))


def context_of(door):
    return ssl.create_default_context(cafile=door.authority) if door.authority else None


class Collector:
    """Takes every span, and counts them."""

    def __init__(self):
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                spans = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                collector.num_spans += sum(len(scope["spans"]) for resource in spans["resourceSpans"]
                                           for scope in resource["scopeSpans"])
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.num_spans = 0
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Front:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.collector = Collector()
        self.certificate, self.keys = self.folder / "certificate.pem", self.folder / "keys"
        self.access_log, self.admin = self.folder / "access.log", self.folder / "admin.sock"
        self.authority = str(CERTIFICATES / "authority.pem")
        shutil.copy(CERTIFICATES / "server.pem", self.certificate)
        self.write_keys(2)
        for path in (self.certificate, self.keys):
            path.chmod(0o600)
        self.options = {"ssl-certfile": self.certificate, "api-key-file": self.keys, "access-log": self.access_log,
                        "otlp-traces-endpoint": self.collector.url, "admin-socket": self.admin}
        self.tls, self.key = ssl.create_default_context(cafile=self.authority), KEYS[0]
        self.is_over = threading.Event()
        self.num_rounds = 0

    def write_keys(self, count):
        self.keys.write_text("".join(key + "\n" for key in KEYS + [f"soak-key-{i}" for i in range(count)]))

    def doors(self, port):
        return [Door(port, self.authority, key) for key in KEYS]

    def command(self, path, body):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)
            sock.connect(str(self.admin))
            sock.sendall(f"POST /admin/{path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
                         .encode() + body)
            return sock.recv(12)[9:]

    def disturb(self, victim, faults):
        """Until told to stop."""
        while not self.is_over.wait(PAUSE_S):
            self.num_rounds += 1
            shutil.copy(CERTIFICATES / ("renewed.pem" if self.num_rounds % 2 else "server.pem"), self.certificate)
            self.write_keys(self.num_rounds % 5)
            if self.access_log.exists():
                self.access_log.replace(self.folder / "access.log.1")
            os.kill(victim.pid, signal.SIGHUP)
            path, body = ADMIN_CALLS[self.num_rounds % len(ADMIN_CALLS)]
            try:
                status = self.command(path, body)
                if status != b"200":
                    faults.append(f"/admin/{path}: {status}")
            except OSError as error:
                faults.append(f"/admin/{path}: {error}")
            victim.metrics()

    def start(self, victim, faults):
        self.thread = threading.Thread(target=self.disturb, args=(victim, faults))
        self.thread.start()

    def stop(self):
        """Before the server is looked at."""
        self.is_over.set()
        self.thread.join()

    def close(self):
        self.is_over.set()
        self.collector.close()
