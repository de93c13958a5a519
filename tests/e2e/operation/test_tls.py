"""--ssl-certfile, --ssl-keyfile, --ssl-ca-certs: which clients get in, and that everything else is as without TLS."""

import contextlib
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import httpx
import pytest

from quire_server import BINARY, MODEL, NAME, START_TIMEOUT, QuireServer, clean_environment
from raw_http import (connect, open_stream, read_response, read_until, read_until_close, request_bytes, roundtrip,
                      wait_until)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of old versions, which are tried

DATA = Path(__file__).resolve().parents[1] / "data/tls"
GOOD = {"model": NAME, "prompt": "The capital of France is", "max_tokens": 2, "temperature": 0}


def client_context(certificate=None, **fields):
    context = ssl.create_default_context(cafile=DATA / "authority.pem")
    context.set_ciphers("ALL:@SECLEVEL=0")  # what is refused is refused by the server
    context.minimum_version = ssl.TLSVersion.TLSv1
    if certificate:
        context.load_cert_chain(DATA / certificate)
    for name, value in fields.items():
        setattr(context, name, value)
    return context


class TlsServer(QuireServer):
    """A server that speaks TLS, and in `tls` what a client of it needs."""

    def __init__(self, log_path, *arguments):
        self.tls = client_context()
        super().__init__(log_path, *arguments)
        self.url = f"https://localhost:{self.port}"

    def wait_until_ready(self):
        wait_until(lambda: self.process.poll() is not None or "listening on" in self.read_log(), START_TIMEOUT)
        assert self.process.poll() is None, self.read_log()

    def http(self):
        return httpx.Client(verify=self.tls, base_url=self.url, timeout=300)

    def running(self):
        """How many sequences run, from a connection of its own."""
        text = roundtrip(self, request_bytes("/metrics")).body.decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("quire:num_requests_running"))


@pytest.fixture
def start_tls(tmp_path):
    servers = []

    def start(*arguments, certificate=DATA / "server.pem"):
        servers.append(TlsServer(tmp_path / f"tls{len(servers)}.log", "--ssl-certfile", certificate, *arguments))
        return servers[-1]

    yield start
    for server in servers:
        print(server.read_log())
        server.kill()


def refused(server, context):
    """Is the client refused, in the handshake or (TLS 1.3) with the first bytes?"""
    server.tls = context
    try:
        return roundtrip(server, request_bytes("/version")).status != 200
    except (ssl.SSLError, ConnectionError, AssertionError):
        return True
    finally:
        server.tls = client_context()


def test_who_gets_in(start_tls):
    server = start_tls()
    versions = ssl.TLSVersion
    for version, is_good in [(versions.TLSv1, False), (versions.TLSv1_1, False), (versions.TLSv1_2, True),
                             (versions.TLSv1_3, True)]:
        assert refused(server, client_context(minimum_version=version, maximum_version=version)) != is_good, version
    for cipher, is_good in [("ECDHE-ECDSA-AES128-GCM-SHA256", True), ("ECDHE-ECDSA-CHACHA20-POLY1305", True),
                            ("ECDHE-ECDSA-AES128-SHA", False), ("ECDHE-ECDSA-AES256-SHA384", False),
                            ("AES128-GCM-SHA256", False), ("DHE-RSA-AES256-GCM-SHA384", False)]:
        context = client_context(maximum_version=versions.TLSv1_2)
        context.set_ciphers(cipher + ":@SECLEVEL=0")
        assert refused(server, context) != is_good, cipher
    for offered, is_good in [(["h2"], False), (["h2", "http/1.1"], True), (["http/1.1"], True)]:
        context = client_context()
        context.set_alpn_protocols(offered)
        assert refused(server, context) != is_good, offered
    with connect(server) as sock:
        assert sock.version() == "TLSv1.3"
    assert server.terminate() == 0


def test_client_certificates(start_tls):
    server = start_tls("--ssl-ca-certs", DATA / "authority.pem")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for certificate in (None, "expired.pem", "foreign.pem", "server.pem"):
            assert refused(server, client_context(certificate, maximum_version=version)), certificate
        assert not refused(server, client_context("client.pem", maximum_version=version))


def test_answers_are_those_of_plain_http(start_tls, server):
    secure = start_tls()
    assert secure.url.replace("localhost", "127.0.0.1") in secure.read_log()
    long_text = {"content": "All work and no play. " * 20000, "with_pieces": True}
    with secure.http() as http:
        for path, body in [("/v1/completions", GOOD), ("/tokenize", long_text)]:
            plain, tls = server.post(path, body), http.post(path, json=body)
            assert plain.status_code == tls.status_code == 200
            field = "choices" if path == "/v1/completions" else "tokens"
            assert plain.json()[field] == tls.json()[field]
    fields = {"max_tokens": 60, "seed": 3, "temperature": 1}
    texts = []
    for one in (server, secure):
        with open_stream(one, **fields) as sock:
            received = read_until(sock, b"0\r\n\r\n")
            texts.append([part.split(b'"')[0] for part in received.split(b'"text":"')[1:]])
    assert len(texts[0]) > 20 and texts[0] == texts[1]


def test_quire_as_a_client_over_https(start_tls):
    """The certificate must be of an authority that the environment names, as for curl(1), and for the URL's name."""
    server = start_tls("--host", "0.0.0.0")
    known = str(DATA / "authority.pem")

    def run(*words, **environment):
        environment = {"CURL_CA_BUNDLE": "", "SSL_CERT_FILE": "", **environment}
        return subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=60,
                              env=clean_environment(**environment))

    def top(url, **environment):
        return run("top", url, "--once", **environment)

    for name in ("CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        shown = top(server.url, **{name: known})
        assert shown.returncode == 0 and shown.stdout.startswith(f"{NAME}, up "), shown.stderr
    chat = ("chat", "--url", server.url, "--set", "max_tokens=4", "Hi")
    answered = run(*chat, CURL_CA_BUNDLE=known)
    assert answered.returncode == 0 and answered.stdout, answered.stderr
    refused_chat = run(*chat)
    assert refused_chat.returncode == 1 and "certificate is refused" in refused_chat.stderr
    wrong_name = server.url.replace("localhost", "127.0.0.2")
    for url, environment in [(server.url, {}), (server.url, {"CURL_CA_BUNDLE": str(DATA / "foreign.pem")}),
                             (wrong_name, {"CURL_CA_BUNDLE": known})]:
        shown = top(url, **environment)
        assert shown.returncode == 69 and shown.stdout == "" and len(shown.stderr.splitlines()) == 1
        assert "certificate" in shown.stderr, shown.stderr


def test_a_client_that_hangs_up_is_noticed(start_tls):
    server = start_tls()
    socks = [open_stream(server, max_tokens=4000) for _ in range(4)]
    for sock in socks:
        read_until(sock, b"data: ")
    socks[0].close()  # without a word
    with contextlib.suppress(ssl.SSLError):  # tokens that were on their way
        socks[1].unwrap()  # by TLS's farewell
    socks[1].close()
    wait_until(lambda: server.running() == 2)
    for sock in socks[2:]:
        sock.shutdown(socket.SHUT_WR)  # says no more than that nothing more is sent
        sock.close()
    wait_until(lambda: server.running() == 0)
    with connect(server) as sock:  # of its answer nothing has been sent, and nothing is soon
        sock.sendall(request_bytes("/v1/completions", {**GOOD, "n": 8, "max_tokens": 7000, "ignore_eos": True}))
        wait_until(lambda: server.running() == 8)
    wait_until(lambda: server.running() == 0)


def exchange_half_closed(server, data, has_farewell):
    """Sends data and the end of it, with TLS's farewell (close_notify) or without, and returns what comes until the server ends."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls, received = server.tls.wrap_bio(incoming, outgoing, server_hostname="localhost"), b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock:
        def exchange(step):
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    sock.sendall(outgoing.read())
                    incoming.write(sock.recv(65536))

        exchange(tls.do_handshake)
        tls.write(data)
        if has_farewell:
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.unwrap()
        sock.sendall(outgoing.read())
        sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ssl.SSLZeroReturnError, ssl.SSLEOFError, ConnectionError):
            data = b" "
            while data:
                try:
                    data = tls.read(65536)
                    received += data
                except ssl.SSLWantReadError:
                    data = sock.recv(65536)
                    incoming.write(data)
    return received


@pytest.mark.parametrize("has_farewell", [True, False])
def test_a_request_before_half_a_close_is_answered(start_tls, has_farewell):
    server = start_tls()
    text = request_bytes("/tokenize", {"content": "1" * 50_000, "with_pieces": True})
    for data in (request_bytes("/version"), request_bytes("/openapi.json"), request_bytes("/v1/completions", GOOD), text):
        for _ in range(20):
            received = exchange_half_closed(server, data, has_farewell)
            while received.startswith(b"HTTP/1.1 100"):  # asks a client that lets it wait whether it is there
                received = received.partition(b"\r\n\r\n")[2]
            head, _, body = received.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            assert f"Content-Length: {len(body)}".encode() in head


def test_several_requests_on_a_connection_and_an_end(start_tls):
    server = start_tls()
    with connect(server) as sock:
        sock.sendall(request_bytes("/version") * 3 + request_bytes("/v1/completions", GOOD))
        rest = b""
        for _ in range(4):
            answer, rest = read_response(sock, rest)
            assert answer.status == 200
        sock.sendall(request_bytes("/version", headers=[("Connection", "close")]))
        assert read_until_close(sock).startswith(b"HTTP/1.1 200")  # and a farewell: no SSLEOFError


def test_what_is_no_tls_holds_up_nobody(start_tls):
    server = start_tls("--max-connections", 4)
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(150)]  # more than there is room for
    assert roundtrip(server, request_bytes("/v1/completions", GOOD)).status == 200
    for garbage in (request_bytes("/version"), b"\x16\x03\x01\xff\xff" + b"\xff" * 3000, b"\0" * 100):
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.settimeout(30)
            sock.sendall(garbage)
            assert b"HTTP" not in read_until_close(sock)
    assert roundtrip(server, request_bytes("/v1/completions", GOOD)).status == 200
    for sock in silent:
        sock.close()


def served_certificate(server):
    with connect(server) as sock:
        return dict(part[0] for part in sock.getpeercert()["subject"])["commonName"]


def reload(server, said):
    before = server.read_log().count(said)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.read_log().count(said) > before)


def test_hangup_reads_the_certificates_again(start_tls, tmp_path):
    path = tmp_path / "certificate.pem"
    shutil.copy(DATA / "server.pem", path)
    path.chmod(0o600)
    server = start_tls(certificate=path)
    assert "others may read" not in server.read_log()
    stop, failures, num_served = threading.Event(), [], [0]

    def load():
        while not stop.is_set():
            try:
                assert roundtrip(server, request_bytes("/version")).status == 200
                num_served[0] += 1
            except (OSError, AssertionError) as err:
                failures.append(err)

    clients = [threading.Thread(target=load) for _ in range(4)]
    for thread in clients:
        thread.start()
    with open_stream(server, max_tokens=400) as stream:
        received = read_until(stream, b"data: ")
        assert served_certificate(server) == "server"
        shutil.copy(DATA / "renewed.pem", path)
        reload(server, "TLS certificate")
        assert served_certificate(server) == "renewed"
        path.write_text("nonsense")
        reload(server, "the certificates stay as they were")
        assert served_certificate(server) == "renewed"
        assert b"data: [DONE]" in read_until(stream, b"[DONE]", received)
    stop.set()
    for thread in clients:
        thread.join()
    assert failures == [] and num_served[0] > 0


def test_sigterm_cuts_no_stream(start_tls):
    server = start_tls("--shutdown-timeout", 60)
    socks = [open_stream(server, max_tokens=40) for _ in range(20)]
    for sock in socks:
        read_until(sock, b"data: ")
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "stopping" in server.read_log())
    assert roundtrip(server, request_bytes("/v1/completions", GOOD)).status == 503
    for sock in socks:
        assert b"data: [DONE]" in read_until(sock, b"0\r\n\r\n")
    assert server.process.wait(30) == 0


def test_readers_that_stop_do_not_stop_others(start_tls):
    server = start_tls()
    body = {"content": "1" * 1_000_000, "with_pieces": True}
    stopped = [connect(server, receive_buffer=4096) for _ in range(5)]
    for sock in stopped:
        sock.sendall(request_bytes("/tokenize", body))
    assert roundtrip(server, request_bytes("/v1/completions", GOOD)).status == 200
    whole = read_response(stopped[0])[0]
    assert len(whole.json()["tokens"]) == 1_000_000
    for sock in stopped:
        sock.close()


@pytest.mark.parametrize("arguments, said", [
    (["--ssl-keyfile", DATA / "server.pem"], "needs ssl-certfile"),
    (["--ssl-ca-certs", DATA / "authority.pem"], "needs ssl-certfile"),
    (["--ssl-certfile", DATA / "nowhere.pem"], "ssl-certfile"),
    (["--ssl-certfile", DATA / "server.pem", "--ssl-keyfile", DATA / "client.pem"], "match"),
    (["--ssl-certfile", DATA / "authority.pem"], "ssl-certfile"),
    (["--ssl-certfile", DATA / "server.pem", "--ssl-ca-certs", DATA / "make.sh"], "ssl-ca-certs")])
def test_files_that_are_refused(arguments, said):
    command = [BINARY, "serve", "--model", MODEL, "--port", 0, *arguments]
    done = subprocess.run([str(word) for word in command], env=clean_environment(), stderr=subprocess.PIPE, text=True,
                          timeout=60)
    assert done.returncode == 78 and said in done.stderr, done.stderr
