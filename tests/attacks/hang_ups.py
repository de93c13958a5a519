"""R2 and R3: clients that go away, at every moment of a request; and connections that stay and say nothing."""

import socket
import time

from arena import attack
from wire import announce, answers, closing, completion, exchange, request_bytes, reset

CROWD = {"max-connections": 2048}
STREAM = {"prompt": "Once", "stream": True, "max_tokens": 7000, "ignore_eos": True}


@attack("R2", "1,500 connections closed right behind the header", options=CROWD)
def closes_behind_the_header(arena):
    for _ in range(arena.many(1500)):
        arena.send(announce(16 << 20)).close()
    arena.sockets.clear()


def cut_requests():
    whole = completion()
    return [b"", b"G", whole[:40], whole[:-5], whole, whole * 3, completion(**STREAM), request_bytes("/health"),
            request_bytes("/health") * 50, announce(60000, "/nothing"), request_bytes("/tokenize", {"prompt": "x" * 9999}),
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"]


@attack("R2", "closed, half-closed and reset at every stage of a request", options=CROWD)
def closes_at_every_stage(arena):
    for _ in range(arena.many(10)):
        for data in cut_requests():
            arena.send(data).close()
            reset(arena.send(data))
            sock = arena.send(data)
            try:
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
    arena.hold(0.5)


@attack("R2", "closes behind the header over a UNIX socket", options=CROWD, is_unix=True)
def closes_on_a_unix_socket(arena):
    for data in cut_requests() + [announce(16 << 20)] * arena.many(300):
        arena.send(data).close()
    arena.sockets.clear()


def idle_pair(arena):
    """A keep-alive connection whose exchange is over, and one that sent nothing: both older than what follows."""
    kept = arena.send(request_bytes("/version"))
    arena.read_some(kept)
    return kept, arena.connect()


def abandon_streams(arena, count):
    for _ in range(count):
        sock = arena.send(completion(**STREAM))
        arena.read_some(sock)
        sock.close()


def await_sockets(arena, most, seconds=5):
    deadline = time.monotonic() + seconds
    while (count := arena.victim.metrics().get("http_connections", 0)) > most and time.monotonic() < deadline:
        time.sleep(0.1)
    return count


@attack("R3", "20 streams begun and left beside older idle connections")
def abandoned_streams(arena):
    kept, silent = idle_pair(arena)
    abandon_streams(arena, arena.many(20))
    # Those two, the others' three and the one that requests /metrics.
    count = await_sockets(arena, 6)
    arena.want(count <= 6, f"{count:.0f} connections while at most 6 clients are there")


@attack("R3", "120 streams begun and left beside an idle connection, 64 connections allowed",
        options={"max-connections": 64})
def abandoned_streams_at_the_limit(arena):
    idle_pair(arena)
    abandon_streams(arena, arena.many(120, least=80))


@attack("R3", "every connection taken by idle clients: /health is answered", options={"max-connections": 64},
        served="health")
def health_at_the_limit(arena):
    for _ in range(80):
        sock = arena.connect()
        arena.push(sock, request_bytes("/version"))
        arena.read_some(sock, 1)
    found, _ = exchange(arena.victim.address, closing(completion()), source="127.0.3.1")
    said = [answer.status for answer in found]
    arena.want(said in ([200], [503]), f"a completion at the limit: {said}")
    if said == [503]:
        arena.want("retry-after" in found[0].fields, "503 at the limit without Retry-After")
        arena.want(bool(found[0].error()), "503 at the limit without the error object")
    arena.hold(0.5)


@attack("R14", "four times as many idle connections as allowed: /health is answered",
        options={"max-connections": 64}, served="health")
def idle_crowd(arena):
    for _ in range(256):
        try:
            arena.connect(timeout=1)
        except OSError:
            break
    time.sleep(3)


@attack("R14", "an idle crowd leaves all at once: who comes then loses its place to nobody", options={"max-connections": 64},
        served="health")
def closing_crowd(arena):
    for _ in range(140):
        arena.connect(timeout=1)
    time.sleep(0.2)
    arena.close_all()
    newcomers = [arena.connect(source=f"127.6.{arena.round}.{i + 1}") for i in range(8)]
    time.sleep(0.2)
    for sock in newcomers:
        arena.push(sock, request_bytes("/health"))
    lost = sum(not arena.read_some(sock).startswith(b"HTTP/1.1 200") for sock in newcomers)
    arena.want(lost == 0, f"{lost} of 8 newcomers behind a crowd that left were closed without a word")


@attack("R14", "new connections without end, each kept and silent", options={"max-connections": 64}, served="health")
def connection_flood(arena):
    for _ in range(arena.many(1000, least=300)):
        try:
            arena.connect(timeout=1)
        except OSError:
            break
    arena.hold(4)


@attack("R14", "100 idle connections where 140 files may be open", max_files=140, served="health")
def few_files(arena):
    """Fewer are refused at start."""
    for _ in range(100):
        try:
            arena.send(b"GET /version HTTP/1.1\r\n", timeout=1)
        except OSError:
            break
    arena.hold(1)


@attack("R3", "20 streams left on a UNIX socket beside idle connections", is_unix=True)
def abandoned_streams_on_a_unix_socket(arena):
    idle_pair(arena)
    abandon_streams(arena, arena.many(20))
    count = await_sockets(arena, 6)
    arena.want(count <= 6, f"{count:.0f} connections while at most 6 clients are there")


@attack("R3", "whole answers awaited and left beside older idle connections")
def abandoned_whole_answers(arena):
    idle_pair(arena)
    for _ in range(arena.many(30)):
        arena.send(completion(prompt="Once", max_tokens=7000, ignore_eos=True)).close()
    count = await_sockets(arena, 6)
    arena.want(count <= 6, f"{count:.0f} connections while at most 6 clients are there")


@attack("R3", "answers left unread and closed, a refused body among them")
def abandoned_answers_of_all_kinds(arena):
    idle_pair(arena)
    kinds = [request_bytes("/openapi.json"), request_bytes("/metrics") * 20, announce(1 << 30), b"nonsense\r\n\r\n",
             request_bytes("/v1/completions", b"{"), request_bytes("/nothing", b"x" * 100)]
    for _ in range(arena.many(10)):
        for data in kinds:
            reset(arena.send(data))
            arena.send(data).close()
    count = await_sockets(arena, 6)
    arena.want(count <= 6, f"{count:.0f} connections while at most 6 clients are there")


def ends_of_half_closed(arena):
    """Each gets its answer, interim ones before it where it takes long, and none keeps its connection."""
    whole = completion()
    for data in (whole, completion(max_tokens=50), request_bytes("/tokenize", {"content": "1" * 9999}), request_bytes("/health"),
                 request_bytes("/health") * 3, completion(stream=True)):
        sock = arena.send(data)
        sock.shutdown(socket.SHUT_WR)
        received, is_closed = arena.read_to_end(sock)
        arena.want(is_closed, "a half-closed connection stays")
        said = [answer.status for answer in answers(received) if answer.status != 100]
        arena.want(said == [200] * data.count(b" HTTP/1.1"), f"half-closed: {said}")


@attack("R3", "the answers of clients that close their sending half and read on")
def half_closed(arena):
    ends_of_half_closed(arena)


@attack("R3", "the same over a UNIX socket", is_unix=True)
def half_closed_on_a_unix_socket(arena):
    ends_of_half_closed(arena)


@attack("R3", "a half-closed crowd whose requests never become whole")
def half_closed_bodies(arena):
    for i in range(arena.many(100)):
        sock = arena.send((announce(60000), announce(60000) + b"{", b"GET /health HTTP/1.1\r\nHost:", b"", completion()[:-3])[i % 5])
        sock.shutdown(socket.SHUT_WR)
    count = await_sockets(arena, 6)
    arena.want(count <= 6, f"{count:.0f} connections while at most 6 clients are there")
