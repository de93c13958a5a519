"""Responses made in the background whose events are followed (background with stream, and retrieve with stream), through the
official SDK."""

import http.client
import socket
import threading
import time

import httpx
import openai
import pytest

from quire_server import NAME

STORE = ("--response-store-bytes", "4M")
LONG = {"max_output_tokens": 4000, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    from quire_server import QuireServer
    server = QuireServer(tmp_path_factory.mktemp("background") / "server.log", *STORE)
    yield server
    server.kill()


def begin(server, api_key="none", **fields):
    """A stream of a response in the background."""
    fields = {"temperature": 0, "max_output_tokens": 12, **fields}
    return server.client(api_key).responses.create(model=NAME, input="Count.", background=True, stream=True, **fields)


def follow(server, response_id, api_key="none", **fields):
    return server.client(api_key).responses.retrieve(response_id, stream=True, **fields)


def as_dicts(events):
    return [event.to_dict() for event in events]


def refuse(server, path, param, **params):
    reply = httpx.get(server.url + path, params=params, timeout=60)
    assert reply.status_code == 400 and reply.json()["error"]["param"] == param, reply.text


def test_a_stream_in_the_background_is_the_answer(stored):
    whole = stored.client().responses.create(model=NAME, input="Count.", temperature=0, max_output_tokens=12)
    events = list(begin(stored))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert events[0].response.status == "queued" and events[0].response.background is True
    assert events[-1].type == "response.incomplete" and events[-1].response.output_text == whole.output_text
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    kept = stored.client().responses.retrieve(events[0].response.id)
    assert kept.to_dict() == events[-1].response.to_dict()
    assert stored.client().responses.create(model=NAME, input="More.", previous_response_id=kept.id, max_output_tokens=1).output


def test_events_come_again_after_each_number(stored):
    events = as_dicts(begin(stored))
    name = events[0]["response"]["id"]
    assert as_dicts(follow(stored, name)) == events
    for after in range(len(events)):
        assert as_dicts(follow(stored, name, starting_after=after)) == events[after + 1:]
    path = f"/v1/responses/{name}"
    for after in (str(len(events)), "-1", "1.5", "x", "", "9" * 30):
        refuse(stored, path, "starting_after", stream="true", starting_after=after)
    refuse(stored, path, "starting_after", starting_after="1")
    for stream in ("1", "", "yes"):
        refuse(stored, path, "stream", stream=stream)
    reply = httpx.get(stored.url + path, params={"stream": "true"}, timeout=60)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert httpx.head(stored.url + path, params={"stream": "true"}, timeout=60).status_code == 200


def test_what_was_no_stream_has_no_events(stored):
    client = stored.client().responses
    ended = client.create(model=NAME, input="Count.", max_output_tokens=2)
    running = client.create(model=NAME, input="Count.", background=True, **LONG)
    for name in (ended.id, running.id):
        with pytest.raises(openai.BadRequestError) as caught:
            client.retrieve(name, stream=True)
        assert caught.value.param == "stream"
    client.cancel(running.id)
    with pytest.raises(openai.NotFoundError):
        client.retrieve("resp_none", stream=True)


def test_many_readers_follow_from_many_places(stored):
    stream = begin(stored, max_output_tokens=150, extra_body={"ignore_eos": True})
    events = [next(stream) for _ in range(20)]
    name, found = events[0].response.id, {}

    def read(after):
        found[after] = as_dicts(follow(stored, name, starting_after=after))

    threads = [threading.Thread(target=read, args=(after,)) for after in range(0, 20, 2)]
    for thread in threads:
        thread.start()
    events = as_dicts(events) + as_dicts(stream)
    for thread in threads:
        thread.join(120)
    assert events[-1]["type"] == "response.incomplete" and len(events) > 150
    assert found == {after: events[after + 1:] for after in range(0, 20, 2)}


def test_a_client_that_leaves_does_not_end_it(stored):
    stream = begin(stored, max_output_tokens=60, extra_body={"ignore_eos": True})
    first = [next(stream) for _ in range(5)]
    stream.close()
    rest = list(follow(stored, first[0].response.id, starting_after=first[-1].sequence_number))
    assert rest[0].sequence_number == 5 and rest[-1].type == "response.incomplete"
    assert rest[-1].response.usage.output_tokens == 60
    stored.wait_idle()


def test_a_reader_that_does_not_read_holds_nobody_up(stored):
    stream = begin(stored, max_output_tokens=300, extra_body={"ignore_eos": True})
    name = next(stream).response.id
    host, port = stored.url.removeprefix("http://").split(":")
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    lazy.connect((host, int(port)))
    lazy.sendall(f"GET /v1/responses/{name}?stream=true HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    events = [event.to_dict() for event in stream]
    assert events[-1]["type"] == "response.incomplete"
    assert as_dicts(follow(stored, name, starting_after=0)) == events
    lazy.settimeout(60)
    read = b""
    while b"response.incomplete" not in read or not read.endswith(b"0\r\n\r\n"):
        part = lazy.recv(65536)
        assert part, read[-500:]
        read += part
    lazy.close()
    stored.wait_idle()


def test_what_is_deleted_is_read_to_its_end(stored):
    """By clients that had begun, of whose answers the sockets take a part."""
    events = list(begin(stored, max_output_tokens=300, top_logprobs=20,
                        extra_body={"ignore_eos": True, "include": ["message.output_text.logprobs"]}))
    name, host = events[0].response.id, stored.url.removeprefix("http://")
    paths = [f"/v1/responses/{name}{query}" for query in ("", "?stream=true", "?stream=true&starting_after=100")]
    wholes, answers = [httpx.get(stored.url + path, timeout=60).content for path in paths], []
    assert len(wholes[1]) > 1 << 20
    for path in paths:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.connect(("127.0.0.1", stored.port))
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        answers.append(http.client.HTTPResponse(sock))
        answers[-1].begin()
    stored.client().responses.delete(name)
    assert httpx.get(stored.url + paths[0], timeout=60).status_code == 404
    assert [answer.read() for answer in answers] == wholes
    assert "event: response.output_text.delta" in wholes[2].decode() and wholes[1].endswith(wholes[2])


@pytest.mark.parametrize("how", ["cancel", "delete"])
def test_cancel_while_readers_follow(stored, how):
    stream = begin(stored, **LONG)
    name = next(stream).response.id
    other = follow(stored, name, starting_after=0)
    next(other)
    client = stored.client().responses
    said = getattr(client, how)(name)
    ends = [list(events)[-1] for events in (stream, other)]
    assert [end.type for end in ends] == ["response.incomplete"] * 2
    assert ends[0].response.status == "cancelled" and ends[0].to_dict() == ends[1].to_dict()
    stored.wait_idle()
    if how == "cancel":
        assert said.to_dict() == ends[0].response.to_dict() == client.retrieve(name).to_dict()
        assert list(follow(stored, name))[-1].to_dict() == ends[0].to_dict()
    else:
        with pytest.raises(openai.NotFoundError):
            client.retrieve(name, stream=True)


def test_what_is_forgotten_is_read_to_its_end(start_server):
    """A store without room for the events: those who follow get all of them, whoever comes later nothing."""
    server = start_server("--response-store-bytes", 64 * 1024)
    stream = begin(server, max_output_tokens=500, extra_body={"ignore_eos": True})
    name = next(stream).response.id
    other = follow(server, name, starting_after=0)
    assert as_dicts(stream) == as_dicts(other)
    with pytest.raises(openai.NotFoundError):
        server.client().responses.retrieve(name, stream=True)
    assert server.metrics()["response_store_refused_total"] == 1 and f"{name} is not kept" in server.read_log()


def test_other_keys_do_not_follow(start_server):
    server = start_server(*STORE, "--api-key", "one", "--api-key", "two")
    stream = begin(server, "one", **LONG)
    name = next(stream).response.id
    with pytest.raises(openai.NotFoundError):
        follow(server, name, "two")
    server.client("one").responses.cancel(name)
    assert list(stream)[-1].response.status == "cancelled"
    with pytest.raises(openai.NotFoundError):
        follow(server, name, "two")


@pytest.mark.parametrize("grace,status", [(30, "incomplete"), (0, "failed")])
def test_a_stop_ends_the_streams_that_follow(start_server, grace, status):
    server = start_server(*STORE, "--shutdown-timeout", grace)
    tokens = 100 if grace else 8000
    stream = begin(server, max_output_tokens=tokens, extra_body={"ignore_eos": True})
    name = next(stream).response.id
    other = follow(server, name, starting_after=0)
    next(other), next(stream)
    ends = {}
    threads = [threading.Thread(target=lambda i=i, s=s: ends.update({i: list(s)[-1].to_dict()}))
               for i, s in enumerate((stream, other))]
    for thread in threads:
        thread.start()
    assert server.terminate() == 0
    for thread in threads:
        thread.join(60)
    assert ends[0] == ends[1] and ends[0]["response"]["status"] == status
    assert ends[0]["type"] == f"response.{status}"
