"""--access-log: a line of JSON for each HTTP request, whatever became of it, and never a word of its text."""

import json
import os
import signal
import socket

import httpx
import pytest

from quire_server import NAME
from raw_http import open_stream, read_until, wait_until

SECRET = "xylophone"
COMMON = {"time", "request_id", "client", "method", "status", "total_seconds", "received_bytes", "sent_bytes"}
CALL = {"route", "id", "model", "stream", "choices", "prompt_tokens", "cached_tokens", "completion_tokens",
        "finish_reason", "queue_seconds", "first_token_seconds"}


@pytest.fixture
def logged(start_server, tmp_path):
    def start(*options):
        server = start_server("--access-log", tmp_path / "access.log", *options)
        server.access_path = tmp_path / "access.log"
        return server
    return start


def lines(server):
    text = server.access_path.read_text()
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


def find(server, request_id):
    """The line of this request, once it is there."""
    def found():
        return [line for line in lines(server) if line.get("request_id") == request_id]
    wait_until(found)
    assert len(found()) == 1
    return found()[0]


def complete(server, request_id, **fields):
    return server.post("/v1/completions", {"model": NAME, "prompt": f"The {SECRET}", "max_tokens": 8, "temperature": 0, **fields},
                       headers={"X-Request-Id": request_id})


def test_a_call(logged):
    server = logged()
    reply = complete(server, "whole")
    line = find(server, "whole")
    assert line.keys() == COMMON | CALL
    usage = reply.json()["usage"]
    assert (line["prompt_tokens"], line["completion_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert line["id"] == reply.json()["id"] and line["model"] == NAME and line["route"] == "/v1/completions"
    assert (line["status"], line["method"], line["client"], line["stream"]) == (200, "POST", "127.0.0.1", False)
    assert line["finish_reason"] == "length"
    assert line["sent_bytes"] == len(reply.content) and line["received_bytes"] == len(reply.request.content)
    assert 0 <= line["queue_seconds"] and 0 < line["first_token_seconds"] <= line["total_seconds"]


def test_ends_and_streams(logged):
    server = logged()
    text = complete(server, "first").json()["choices"][0]["text"]
    word = text.split()[1]
    reply = complete(server, "stopped", stop=[word], stream=True, n=2, seed=1)
    line = find(server, "stopped")
    assert (line["finish_reason"], line["stop_reason"], line["choices"], line["stream"]) == ("stop", word, 2, True)
    assert line["sent_bytes"] == len(reply.content)
    embedded = server.post("/v1/embeddings", {"model": NAME, "input": ["a", "b c"]}, headers={"X-Request-Id": "embedded"})
    line = find(server, "embedded")
    assert (line["prompt_tokens"], line["completion_tokens"]) == (embedded.json()["usage"]["prompt_tokens"], 0)
    assert "first_token_seconds" not in line


@pytest.mark.parametrize("method, path, body, status, error", [
    ("POST", "/v1/completions", {"prompt": 1}, 400, "invalid_type"),
    ("POST", "/v1/completions", {"prompt": "a", "max_tokens": -2}, 400, "out_of_range"),
    ("GET", "/nowhere", None, 404, "not_found"),
    ("DELETE", "/v1/completions", None, 405, "method_not_allowed"),
    ("GET", "/health", None, 200, None),
    ("HEAD", "/v1/models", None, 200, None),
    ("POST", "/tokenize", {"prompt": "a"}, 200, None),
])
def test_other_answers(logged, method, path, body, status, error):
    server = logged()
    reply = httpx.request(method, server.url + path, json=body, headers={"X-Request-Id": "one"})
    line = find(server, "one")
    assert line["status"] == status == reply.status_code and line.get("error") == error
    assert line["sent_bytes"] == len(reply.content)
    assert line.get("route") == (None if status == 404 else path) and "id" not in line


def test_refused_before_it_is_a_request(logged):
    server = logged()
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n bad\r\n\r\n")
        while sock.recv(4096):
            pass
    wait_until(lambda: any(line["status"] == 400 and line["error"] == "bad_request" and line["client"] == "127.0.0.1"
                           for line in lines(server)))


def test_client_that_hangs_up(logged):
    server = logged()
    with open_stream(server, max_tokens=1000, ignore_eos=True) as sock:
        read_until(sock, b"data: ")
    wait_until(lambda: any(line.get("finish_reason") == "abort" for line in lines(server)))
    line = next(line for line in lines(server) if line.get("finish_reason") == "abort")
    assert line["status"] == 200 and 0 < line["completion_tokens"] < 1000
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: half\r\nContent-Length: 10\r\n\r\n{")
        wait_until(lambda: server.metrics()["http_connections"] > 1)
    assert find(server, "half")["status"] == 499


def test_name_of_the_key(logged):
    server = logged("--api-key", "sk-first", "--api-key", "sk-second")
    for key in ("sk-first", "sk-second", "sk-none"):
        httpx.get(server.url + "/v1/models", headers={"Authorization": f"Bearer {key}", "X-Request-Id": key})
    assert [find(server, key).get("key") for key in ("sk-first", "sk-second", "sk-none")] == ["#1", "#2", None]
    assert not any("sk-" in str(value) for line in lines(server) for name, value in line.items() if name != "request_id")


def test_never_a_prompt(logged):
    server = logged()
    assert complete(server, "quiet", stream=True).status_code == 200
    assert complete(server, "bad", n=-1).status_code == 400
    find(server, "quiet"), find(server, "bad")
    assert SECRET not in server.access_path.read_text() and SECRET not in server.read_log()


def test_prompts_when_asked_for(logged):
    server = logged("--log-prompts")
    complete(server, "short")
    assert json.loads(find(server, "short")["body"])["prompt"] == f"The {SECRET}"
    complete(server, "long", prompt="word " * 1000)
    assert len(find(server, "long")["body"]) == 2048
    assert SECRET not in server.read_log()


def test_hangup_opens_it_again(logged):
    server = logged()
    complete(server, "before")
    find(server, "before")
    moved = server.access_path.with_suffix(".1")
    os.rename(server.access_path, moved)
    server.process.send_signal(signal.SIGHUP)
    wait_until(server.access_path.exists)
    complete(server, "after")
    find(server, "after")
    assert '"before"' in moved.read_text() and '"after"' not in moved.read_text()


def test_what_is_in_flight_at_the_end_is_logged(logged):
    server = logged("--shutdown-timeout", 0)
    with open_stream(server, max_tokens=2000, ignore_eos=True) as sock:
        read_until(sock, b"data: ")
        assert server.terminate() == 0
    assert any(line.get("finish_reason") in ("abort", "error") for line in lines(server))


def test_stdout(start_server):
    server = start_server("--access-log", "-")
    complete(server, "out")
    wait_until(lambda: '"request_id":"out"' in server.read_log())


def test_a_pipe_that_nobody_reads(logged, tmp_path):
    """Calls go on; what is lost is counted."""
    os.mkfifo(tmp_path / "access.log")
    reader = os.open(tmp_path / "access.log", os.O_RDONLY | os.O_NONBLOCK)
    server = logged()
    with httpx.Client() as client:
        for _ in range(800):  # 64 KiB of pipe and then some
            assert client.get(server.url + "/health").status_code == 200
    os.close(reader)
    server.wait_for(lambda metrics: metrics["access_log_lines_lost_total"] > 0)
    assert complete(server, "still").status_code == 200
    assert "access-log: cannot be written" in server.read_log()


def test_bad_file(start_server):
    with pytest.raises(RuntimeError, match="exit status 78: .*access-log /nowhere/log: No such file"):
        start_server("--access-log", "/nowhere/log")
