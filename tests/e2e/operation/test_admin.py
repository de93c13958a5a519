"""--admin-socket: drain, resume, flush the prefix cache, change the log's level, say how things are."""

import re
import socket
import stat

import httpx
import pytest

from quire_server import NAME
from raw_http import connect, open_stream, read_until, request_bytes, roundtrip, wait_until

PROMPT = "word " * 100
GOOD = {"model": NAME, "prompt": "The capital of France is", "max_tokens": 2, "temperature": 0}


@pytest.fixture
def served(tmp_path, start_server):
    path = tmp_path / "admin"
    server = start_server("--admin-socket", path)
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://admin", timeout=60) as admin:
        yield server, admin, path


def cached_tokens(server):
    reply = server.post("/v1/completions", {"model": NAME, "prompt": PROMPT, "max_tokens": 1})
    return (reply.json()["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0)


def test_the_socket_is_its_users_alone(served):
    server, admin, path = served
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    status = admin.get("/admin/status")
    assert status.status_code == 200 and status.headers["content-type"] == "application/json"
    assert status.json()["state"] == "serving" and status.json()["log_level"] == "info"
    assert httpx.get(server.url + "/admin/status").status_code == 404  # not for clients
    assert admin.get("/v1/models").status_code == 404
    assert server.terminate() == 0 and not path.exists()


def test_drain_lets_streams_end_and_takes_nothing_new(served):
    server, admin, _ = served
    with open_stream(server, max_tokens=300, ignore_eos=True) as stream:
        received = read_until(stream, b"data: ")
        drained = admin.post("/admin/drain").json()
        assert (drained["state"], drained["requests_in_flight"]) == ("draining", 1)
        for path in ("/v1/completions", "/tokenize"):
            refused = roundtrip(server, request_bytes(path, GOOD))
            assert (refused.status, refused.json()["error"]["code"]) == (503, "draining")
            assert int(refused.headers["retry-after"]) >= 1 and refused.headers["connection"] == "close"
        statuses = {path: httpx.get(server.url + path).status_code for path in ("/ready", "/health", "/live")}
        assert statuses == {"/ready": 503, "/health": 503, "/live": 200}
        received = read_until(stream, b"data: [DONE]", received)
        assert received.count(b"data: ") >= 300
    wait_until(lambda: admin.get("/admin/status").json()["requests_in_flight"] == 0)
    assert admin.post("/admin/resume").json()["state"] == "serving"
    assert httpx.get(server.url + "/ready").status_code == httpx.get(server.url + "/health").status_code == 200
    assert roundtrip(server, request_bytes("/v1/completions", GOOD)).status == 200


def test_the_flushed_cache_is_empty_and_streams_do_not_change(served):
    server, admin, _ = served
    assert cached_tokens(server) == 0 and cached_tokens(server) > 0
    body = {"model": NAME, "prompt": PROMPT, "max_tokens": 64, "seed": 1, "temperature": 1, "ignore_eos": True}
    expected = server.post("/v1/completions", body).json()["choices"]
    with open_stream(server, prompt=PROMPT, max_tokens=200, ignore_eos=True) as stream:
        received = read_until(stream, b"data: ")
        assert admin.post("/admin/flush-cache").json()["blocks_cached"] >= 0
        assert b"[DONE]" in read_until(stream, b"[DONE]", received)
    assert admin.post("/admin/flush-cache").status_code == 200
    assert cached_tokens(server) == 0
    assert server.post("/v1/completions", body).json()["choices"] == expected
    assert cached_tokens(server) > 0


def test_the_logs_level(served):
    server, admin, _ = served
    assert "libmicrohttpd: " not in server.read_log()
    assert admin.post("/admin/log-level", json={"level": "debug"}).json()["log_level"] == "debug"
    with connect(server) as sock:
        sock.sendall(b"G(T / HTTP/1.1\r\n\r\n")
        sock.recv(4096)
    assert "admin: log level debug" in server.read_log()
    assert admin.get("/admin/status").json()["log_level"] == "debug"
    before = server.log_path.stat().st_size
    server.post("/v1/completions", {**GOOD, "max_tokens": 3, "ignore_eos": True})
    server.wait_idle()
    said = server.log_path.read_bytes()[before:].decode()
    number = re.search(r"request (\d+): waits, \d+ tokens of prompt, 1 sequence\n", said)[1]
    assert re.search(rf"request {number}: admitted, \d+ of its \d+ tokens are there\n", said)
    assert len(re.findall(r"step \d+: sequences 1, tokens \d+, rows 1, blocks \d+ of \d+, \d+ us\n", said)) >= 3
    assert f"request {number}: choice 0 ends after 3 tokens, length\n" in said
    refused = admin.post("/admin/log-level", json={"level": "loud"})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "level"
    assert admin.get("/admin/status").json()["log_level"] == "debug"


def test_what_is_refused(served):
    _, admin, path = served
    wrong = admin.get("/admin/drain")
    assert (wrong.status_code, wrong.headers["allow"], wrong.json()["error"]["code"]) == (405, "POST", "method_not_allowed")
    assert admin.post("/admin/log-level", content=b"x" * 5000).status_code == 413
    assert admin.post("/admin/nothing").json()["error"]["code"] == "not_found"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        sock.sendall(b"nonsense\r\n\r\n")
        assert b" 400 " in sock.recv(4096)
    assert admin.get("/admin/status").json()["state"] == "serving"


def test_silent_administrators_hold_up_nobody(served):
    """More connections than are served at once, none of which asks."""
    server, _, path = served
    socks = [socket.socket(socket.AF_UNIX) for _ in range(40)]
    for sock in socks:
        sock.connect(str(path))
    assert roundtrip(server, request_bytes("/v1/completions", GOOD)).status == 200
    for sock in socks:
        sock.close()
