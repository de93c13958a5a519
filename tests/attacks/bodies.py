"""R1: bodies that are announced, trickled, cut into crumbs or never end."""

import time

from arena import attack
from wire import announce, answers, completion, reset

LARGE = 16 << 20
CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
CROWD = {"max-connections": 2048}


@attack("R1", "16 bodies of 16 MiB announced, nothing sent")
def announced_bodies(arena):
    for _ in range(16):
        arena.send(announce(LARGE))
    arena.hold(1.5)


@attack("R1", "200 bodies of 16 MiB announced from as many addresses", options=CROWD)
def announced_from_everywhere(arena):
    for i in range(arena.many(200)):
        arena.send(announce(LARGE), source=f"127.3.{arena.round}.{i + 1}")
    arena.hold(1.5)


@attack("R1", "16 bodies of 16 MiB trickled at 1.1 KiB/s")
def trickled_bodies(arena):
    socks = [arena.send(announce(LARGE) + b" ") for _ in range(16)]
    end = time.monotonic() + 2 * arena.scale
    while time.monotonic() < end:
        for sock in socks:
            arena.push(sock, b" " * 113)
        time.sleep(0.1)


@attack("R1", "24 bodies of 16 MiB sent but for the last byte")
def bodies_without_their_end(arena):
    """More than the memory budget of bodies holds, in earnest: what is refused gets an answer, others are served."""
    filler, socks = b" " * (LARGE - 1), []
    for _ in range(arena.many(24, least=18)):
        socks.append(arena.connect())
        arena.push(socks[-1], announce(LARGE))
        arena.push(socks[-1], filler)
    arena.hold(1)


@attack("R1", "1,200 headers of bodies that never come", options=CROWD)
def headers_without_bodies(arena):
    for _ in range(arena.many(1200)):
        arena.send(announce(20000))
    arena.hold(1)


@attack("R1", "bodies announced to routes that want none, and to /tokenize", options=CROWD)
def announced_to_other_routes(arena):
    paths = [("GET", "/health"), ("GET", "/v1/models"), ("POST", "/ping"), ("POST", "/tokenize"), ("OPTIONS", "/tokenize"),
             ("POST", "/detokenize"), ("HEAD", "/version"), ("POST", "/nothing"), ("DELETE", "/v1/models")]
    for _ in range(arena.many(16)):
        for method, path in paths:
            arena.send(announce(LARGE if method != "DELETE" else 60000, path, method))
    arena.hold(1)


@attack("R1", "chunks of 16 MiB announced, nothing sent")
def announced_chunks(arena):
    for _ in range(arena.many(64)):
        arena.send(CHUNKED + b"1000000\r\n")
    arena.hold(1)


@attack("R1", "chunked bodies with a rate that no deadline waits for: a byte now and then")
def trickled_chunks(arena):
    socks = [arena.send(CHUNKED) for _ in range(arena.many(64))]
    end = time.monotonic() + 1.5 * arena.scale
    while time.monotonic() < end:
        for sock in socks:
            arena.push(sock, b"1\r\n \r\n")
        time.sleep(0.1)


@attack("R1", "a body of 40,000 chunks of one byte is served")
def crumbs(arena):
    request = completion()
    body = request.partition(b"\r\n\r\n")[2] + b" " * arena.many(40000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    sock = arena.send(CHUNKED)
    arena.push(sock, chunks + b"0\r\n\r\n")
    received = arena.read_some(sock)
    arena.want(received.startswith(b"HTTP/1.1 200"), f"one-byte chunks: {received[:80]!r}")


@attack("R1", "a chunk extension of 4 MiB")
def endless_chunk_extension(arena):
    sock = arena.send(CHUNKED + b"1;a=")
    for _ in range(arena.many(64)):
        if not arena.push(sock, b"a" * 65536):
            break
    received, is_closed = arena.read_to_end(sock)
    arena.want(is_closed, "a chunk extension of 4 MiB continues")
    arena.want([a.status for a in answers(received)] in ([], [400], [413], [431]), f"chunk extension: {received[:80]!r}")


@attack("R1", "trailers without end")
def endless_trailers(arena):
    body = completion().partition(b"\r\n\r\n")[2]
    sock = arena.send(CHUNKED + b"%x\r\n%s\r\n0\r\n" % (len(body), body))
    for i in range(arena.many(20000, least=8000)):
        if not arena.push(sock, b"X-Trailer-%d: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" % i):
            break
    received, is_closed = arena.read_to_end(sock)
    arena.want(is_closed, "trailers of a megabyte are read on")
    arena.want([a.status for a in answers(received)] in ([], [400], [413], [431]), f"trailers: {received[:80]!r}")


@attack("R1", "300 clients expect 100 Continue and are silent", options=CROWD)
def silent_after_continue(arena):
    head = announce(LARGE // 2).replace(b"Content-Type", b"Expect: 100-continue\r\nContent-Type")
    socks = [arena.send(head) for _ in range(arena.many(300))]
    arena.read_some(socks[0], 2)
    arena.hold(1)


@attack("R1", "200 headers that come byte by byte", options=CROWD)
def slow_headers(arena):
    socks = [arena.send(b"POST /v1/completions HTTP/1.1\r\n") for _ in range(arena.many(200))]
    end = time.monotonic() + 1.5 * arena.scale
    while time.monotonic() < end:
        for sock in socks:
            arena.push(sock, b"X")
        time.sleep(0.1)


@attack("R1", "300 resets in the middle of a body")
def resets_within_bodies(arena):
    for i in range(arena.many(300)):
        sock = arena.send(announce(LARGE) + b" " * (i * 97 % 60000))
        reset(sock)


@attack("R1", "bodies over a UNIX socket, announced and trickled", is_unix=True)
def bodies_on_a_unix_socket(arena):
    socks = [arena.send(announce(LARGE)) for _ in range(arena.many(64, least=32))]
    end = time.monotonic() + 1.5 * arena.scale
    while time.monotonic() < end:
        for sock in socks[::2]:
            arena.push(sock, b" " * 113)
        time.sleep(0.1)


@attack("R1", "bodies of 16 MiB from 40 addresses, each kept going by a byte now and then")
def bodies_from_many_addresses(arena):
    """An address may hold what is left for all others; 40 of them must leave something to the next one, too."""
    filler, socks = b" " * (LARGE - 9000), []
    for i in range(40):
        socks.append(arena.connect(source=f"127.5.{arena.round}.{i + 1}", timeout=1))
        arena.push(socks[-1], announce(LARGE) + filler)
    end = time.monotonic() + 2 * arena.scale
    while time.monotonic() < end:
        for sock in socks:
            arena.push(sock, b" ")
        time.sleep(0.1)


@attack("R1", "an honest client gets a 413 though it sends all of its 17 MiB")
def too_large_but_honest(arena):
    sock = arena.send(announce(17 << 20))
    for _ in range(17):
        if not arena.push(sock, b" " * (1 << 20)):
            break
    received = arena.read_some(sock)
    arena.want(received.startswith(b"HTTP/1.1 413"), f"after a body of 17 MiB: {received[:40]!r}")
