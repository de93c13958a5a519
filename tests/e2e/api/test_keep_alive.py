"""What a stream sends before its first token and while it is silent: its header at once, then Anthropic's ping, and a comment elsewhere;
errors are events."""

import json
import os
import signal
import threading
import time

import anthropic
import httpx
import openai
import pytest

from quire_server import NAME
from raw_http import connect, read_until, request_bytes, wait_until
from test_rank_process import rank_process

CHAT = [{"role": "user", "content": "Count."}]
BODIES = {
    "/v1/chat/completions": {"messages": CHAT, "max_tokens": 40},
    "/v1/completions": {"prompt": "Count.", "max_tokens": 40},
    "/v1/responses": {"input": CHAT, "max_output_tokens": 40},
    "/v1/messages": {"messages": CHAT, "max_tokens": 40},
}
FOREVER = {"model": NAME, "prompt": "Count.", "max_tokens": 8000, "ignore_eos": True}


def body_of(path, **fields):
    return {"model": NAME, "stream": True, "temperature": 0, "ignore_eos": True, **BODIES[path], **fields}


def is_ping(path, line):
    return line == ("event: ping" if path == "/v1/messages" else ": keep-alive")


class Stream(threading.Thread):
    """Collects the lines of a stream with the time at which each came."""

    def __init__(self, server, path, **fields):
        super().__init__()
        self.server, self.path, self.fields = server, path, fields
        self.status, self.lines = None, []
        self.start()

    def run(self):
        url, body = self.server.url + self.path, body_of(self.path, **self.fields)
        with httpx.stream("POST", url, json=body, timeout=120) as reply:
            self.status = reply.status_code
            for line in reply.iter_lines():
                self.lines.append((time.monotonic(), line))

    def text(self):
        return [line for _, line in self.lines]

    def num_pings(self):
        return sum(is_ping(self.path, line) for line in self.text())

    def events(self):
        return [json.loads(line[6:]) for line in self.text() if line.startswith("data: {")]

    def end(self):
        self.join(100)
        assert not self.is_alive()
        return self.text()


def occupy(server):
    """Takes the only place that runs; closing it gives the place back."""
    sock = connect(server)
    sock.sendall(request_bytes("/v1/completions", FOREVER))
    server.wait_for(lambda m: m["num_requests_running"] == 1)
    return sock


def wait_in_queue(server):
    """Streams that wait to run, all of which were answered and have had two comments."""
    streams = [Stream(server, path) for path in BODIES]
    server.wait_for(lambda m: m["num_requests_waiting"] == len(streams))
    wait_until(lambda: all(stream.num_pings() >= 2 for stream in streams))
    assert server.metrics()["num_requests_waiting"] == len(streams)
    assert [stream.status for stream in streams] == [200] * len(streams)
    return streams


def last_records(path, route):
    return [record for record in map(json.loads, path.read_text().splitlines()) if record.get("route") == route]


def test_streams_that_wait_are_answered_at_once(start_server, tmp_path):
    log = tmp_path / "access.log"
    server = start_server("--max-num-seqs", 1, "--sse-ping-interval", 1, "--queue-timeout", 0, "--access-log", log)
    with occupy(server):
        streams = wait_in_queue(server)
        for stream in streams:
            first = [event["type"] for event in stream.events() if event.get("type") != "ping"]
            assert first == (["response.created"] if stream.path == "/v1/responses" else []), stream.text()
    for stream in streams:
        text = stream.end()
        types = [event.get("type") for event in stream.events()]
        assert ("data: [DONE]" in text) == ("completions" in stream.path)
        assert types.count("response.created") == types.count("response.completed") + types.count("response.incomplete")
        assert not {"error", "response.failed"} & set(types) and not any("error" in event for event in stream.events()), text
        own = lambda: [record for record in last_records(log, stream.path) if record["status"] != 499]  # whose client left
        wait_until(own)
        record = own()[-1]
        assert (record["status"], record["completion_tokens"]) == (200, 40)
        assert record["first_token_seconds"] > record["queue_seconds"] > 1.5  # two comments came before
    server.wait_idle()


def test_streams_that_wait_too_long_end_with_an_event(start_server, tmp_path):
    log = tmp_path / "access.log"
    server = start_server("--max-num-seqs", 1, "--sse-ping-interval", 1, "--queue-timeout", 4, "--access-log", log)
    with occupy(server):
        streams = wait_in_queue(server)
        texts = {stream.path: (stream.end(), stream.events()) for stream in streams}
        clients = (lambda: list(openai.OpenAI(base_url=server.url + "/v1", api_key="x").chat.completions.create(
                       model=NAME, messages=CHAT, stream=True)),
                   lambda: list(anthropic.Anthropic(base_url=server.url, api_key="x").messages.create(
                       model=NAME, messages=CHAT, max_tokens=5, stream=True)))
        for client in clients:
            with pytest.raises((openai.APIError, anthropic.APIError), match="waited too long to run"):
                client()
    for path in ("/v1/chat/completions", "/v1/completions"):
        text, events = texts[path]
        assert [event["error"]["code"] for event in events] == ["queue_timeout"] and text[-2:] == ["data: [DONE]", ""], text
    text, events = texts["/v1/messages"]
    assert {event["type"] for event in events} == {"ping", "error"} and text.count("event: error") == 1
    assert events[-1]["error"]["type"] == "overloaded_error", events[-1]
    text, events = texts["/v1/responses"]
    assert [event["type"] for event in events] == ["response.created", "response.failed"]
    assert [event["sequence_number"] for event in events] == [0, 1]
    assert events[1]["response"]["status"] == "failed" and events[1]["response"]["error"]["code"] == "queue_timeout"
    metrics = httpx.get(server.url + "/metrics").text
    counted = [line for line in metrics.splitlines() if "http_errors_total{" in line and 'code="queue_timeout"' in line]
    assert len(counted) == 1 and 'status="503"' in counted[0] and float(counted[0].split()[-1]) == 6, counted
    wait_until(lambda: last_records(log, "/v1/responses"))
    record = last_records(log, "/v1/responses")[-1]
    assert (record["status"], record["error"], record["finish_reason"]) == (200, "queue_timeout", "error")
    assert "first_token_seconds" not in record and "queue_seconds" not in record
    server.wait_idle()


def test_what_is_known_before_is_a_status(start_server):
    server = start_server("--max-num-seqs", 1, "--max-queued-requests", 1)
    with occupy(server), connect(server) as waiting:
        waiting.sendall(request_bytes("/v1/completions", FOREVER))
        server.wait_for(lambda m: m["num_requests_waiting"] == 1)
        for path in BODIES:
            full = httpx.post(server.url + path, json=body_of(path))
            assert (full.status_code, full.json()["error"].get("code", "queue_full")) == (429, "queue_full"), full.text
            assert full.headers["content-type"] == "application/json" and int(full.headers["retry-after"]) >= 1
    server.wait_idle()
    for path in BODIES:
        bad = httpx.post(server.url + path, json=body_of(path, temperature=-1))
        assert (bad.status_code, bad.headers["content-type"]) == (400, "application/json"), bad.text


@pytest.mark.parametrize("interval", [0, -1])
def test_without_pings(start_server, interval):
    server = start_server("--max-num-seqs", 1, "--sse-ping-interval", interval)
    with occupy(server):
        streams = [Stream(server, path) for path in ("/v1/completions", "/v1/messages")]
        wait_until(lambda: all(stream.status == 200 for stream in streams))
        time.sleep(2)
        assert [stream.lines for stream in streams] == [[], []]
    for stream in streams:
        assert ": keep-alive" not in stream.end()


def test_a_client_that_leaves_while_it_waits_is_noticed(start_server):
    """It has had its header, and sends nothing more, as one that reads on may do: a comment finds out."""
    server = start_server("--max-num-seqs", 1, "--sse-ping-interval", -1, "--queue-timeout", 0)
    with occupy(server):
        sock = connect(server)
        sock.sendall(request_bytes("/v1/completions", body_of("/v1/completions")))
        read_until(sock, b"\r\n\r\n")
        server.wait_for(lambda m: m["num_requests_waiting"] == 1)
        sock.shutdown(1)
        assert b": keep-alive" in read_until(sock, b": keep-alive")
        gone = connect(server)
        gone.sendall(request_bytes("/v1/completions", body_of("/v1/completions")))
        read_until(gone, b"\r\n\r\n")
        server.wait_for(lambda m: m["num_requests_waiting"] == 2)
        gone.close()
        server.wait_for(lambda m: m["num_requests_waiting"] == 1)
        sock.close()


def test_silent_streams_are_kept_alive(start_server):
    """The device's process is stopped for a while."""
    server = start_server("--rank-process", "on", "--device-timeout", 120, "--no-async-scheduling", "--sse-ping-interval", 4)
    streams = [Stream(server, path) for path in ("/v1/messages", "/v1/completions")]
    wait_until(lambda: all(any(line.startswith("data:") for line in stream.text()) for stream in streams))
    pid = rank_process(server)
    os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        time.sleep(6)
    finally:
        resumed = time.monotonic()
        os.kill(pid, signal.SIGCONT)
    messages, completions = (stream.end() for stream in streams)
    pings = [i for i, line in enumerate(messages) if line == "event: ping"]
    assert len(pings) == 2 and pings[0] < 5  # the first one follows message_start, as Anthropic has it
    at = pings[1]
    assert messages[at - 1:at + 3] == ["", "event: ping", 'data: {"type":"ping"}', ""] and ": keep-alive" not in messages
    assert stopped < streams[0].lines[at][0] < resumed
    assert completions.count(": keep-alive") == 1 and not any("ping" in line for line in completions)
    assert "event: message_stop" in messages[at:] and "data: [DONE]" in completions
