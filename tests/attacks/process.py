"""R8, R11, R13 and R18: what happens to the process while others are served."""

import json
import os
import resource
import signal
import threading
import time

from arena import attack
from wire import announce, answers, closing, completion, exchange, request_bytes

# 2 MB of frames: more than lies between a server and a client that does not read, so it lasts until it is read.
LONG = {"prompt": "Once", "max_tokens": 7000, "ignore_eos": True, "temperature": 1, "seed": 5}
SHORT = {"shutdown-timeout": 4}
# A stream that shall end by itself: what a busy machine takes to read it is not what is asked.
LONG_ENOUGH = {"shutdown-timeout": 40}


def said_while_draining(arena, path, request, allowed=([503],)):
    found, is_closed = exchange(arena.victim.address, request, seconds=8)
    said = [answer.status for answer in found]
    arena.want(said in allowed and is_closed, f"{path} while draining: {said}, closed: {is_closed}")
    if said == [503]:
        arena.want("retry-after" in found[0].fields, f"{path} while draining: no Retry-After")
        arena.want(bool(found[0].error()) or path == "/health", f"{path} while draining: no error object")


def begin_draining(arena):
    stream = arena.send(completion(stream=True, **LONG), receive_buffer=4096)
    arena.want(arena.read_some(stream).startswith(b"HTTP/1.1 200"), "no stream to drain")
    os.kill(arena.victim.pid, signal.SIGTERM)
    time.sleep(0.3)
    return stream


@attack("R8", "new connections while a stream drains: 503 with Retry-After at once", options=LONG_ENOUGH,
        is_fresh=True, served="nobody")
def new_connections_while_draining(arena):
    stream = begin_draining(arena)
    said_while_draining(arena, "/v1/completions", completion())
    said_while_draining(arena, "/health", request_bytes("/health"))
    said_while_draining(arena, "/v1/models", request_bytes("/v1/models"), ([200], [503]))
    received, is_closed = arena.read_to_end(stream, 40)
    arena.want(is_closed and received.endswith(b"0\r\n\r\n"), f"the drained stream ends with {received[-40:]!r}")


@attack("R8", "a drain with trickling bodies, silent and idle connections ends in time", options=SHORT, is_fresh=True,
        served="nobody")
def trickles_while_draining(arena):
    socks = [arena.send(announce(20000) + b" ") for _ in range(20)] + [arena.connect() for _ in range(20)]
    stream = begin_draining(arena)
    reader = threading.Thread(target=arena.read_to_end, args=(stream, 20))
    reader.start()
    began = time.monotonic()
    while arena.victim.process.poll() is None and time.monotonic() < began + 20:
        for sock in socks:
            arena.push(sock, b" " * 200)
        time.sleep(0.1)
    reader.join()
    status = arena.victim.process.poll()
    arena.want(status == 0, f"a drain of at most 4 s: status {status} after {time.monotonic() - began:.0f} s")


SIGNALS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGALRM, signal.SIGPIPE)


def stream_text(arena, sock):
    """What a stream says; None where it is no whole answer."""
    received, is_closed = arena.read_to_end(sock, 60)
    found = answers(received)
    if not is_closed or len(found) != 1 or found[0].status != 200 or b"data: [DONE]" not in found[0].body:
        return None
    frames = [line[6:] for line in found[0].body.decode().split("\n\n") if line.startswith("data: {")]
    return "".join(choice["text"] for frame in frames for choice in json.loads(frame)["choices"])


@attack("R11", "HUP, USR1, USR2, QUIT, ALRM and PIPE, thrice each during a stream of its own")
def signals_during_streams(arena):
    request = closing(completion(stream=True, **{**LONG, "max_tokens": 2500}))
    wanted = stream_text(arena, arena.send(request))
    arena.want(wanted, "no stream without signals")
    for number in SIGNALS:
        sock = arena.send(request, receive_buffer=4096)
        for _ in range(3):
            if arena.victim.process.poll() is not None:
                arena.want(False, f"{number.name} ends the server: {arena.victim.process.returncode}")
                return
            os.kill(arena.victim.pid, number)
            time.sleep(0.02)
        arena.want(stream_text(arena, sock) == wanted, f"{number.name} changes a stream")


@attack("R11", "500 signals of all these kinds in a row, beside streams")
def storm_of_signals(arena):
    for i in range(arena.many(500)):
        number = SIGNALS[i % len(SIGNALS)]
        if arena.victim.process.poll() is not None:
            arena.want(False, f"{number.name} ends the server: {arena.victim.process.returncode}")
            return
        os.kill(arena.victim.pid, number)
        time.sleep(0.001)


def malformed(arena, count, end):
    for i in range(count):
        if time.monotonic() > end:
            return
        exchange(arena.victim.address, b"GET /version HTTP/1.1\r\nX%d : y\r\n\r\n" % i, seconds=3)


@attack("R13", "a log at debug that nobody reads: 600 malformed requests", options={"log-level": "debug"}, has_stuck_log=True)
def stuck_log(arena):
    count = arena.many(600, least=300)
    end = time.monotonic() + 12
    workers = [threading.Thread(target=malformed, args=(arena, count // 6, end)) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


@attack("R18", "no memory for bodies: each client gets a 503", is_fresh=True, skips_sanitizer=True, served="nobody",
        options={"max-connections": 64})
def no_memory_for_bodies(arena):
    limit = arena.victim.memory("VmSize") + (24 << 20)
    resource.prlimit(arena.victim.pid, resource.RLIMIT_AS, (limit, limit))
    body = completion().partition(b"\r\n\r\n")[2]
    data = closing(announce(8 << 20)) + body + b" " * ((8 << 20) - len(body))
    results = []

    def post():
        found, _ = exchange(arena.victim.address, data, seconds=20)
        results.append([answer.status for answer in found])

    threads = [threading.Thread(target=post) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bad = [said for said in results if said not in ([200], [503], [413], [429])]
    arena.want(not bad, f"with 24 MiB left, {len(bad)} of {len(results)} bodies of 8 MiB: {bad[:4]}")
    arena.want(arena.victim.is_healthy(), "not healthy with 24 MiB left")


@attack("R18", "no memory for anything: the server answers or closes, and lives", is_fresh=True, skips_sanitizer=True,
        served="nobody", options={"max-connections": 1024})
def no_memory_at_all(arena):
    limit = arena.victim.memory("VmSize") + (1 << 20)
    resource.prlimit(arena.victim.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    for i in range(arena.many(200)):
        arena.send(completion(prompt="x " * 3000, stream=bool(i % 2), max_tokens=4, n=4))
        arena.send(request_bytes("/tokenize", {"content": "1" * 200000, "with_pieces": True}))
    arena.hold(1)
    arena.close_all()
    resource.prlimit(arena.victim.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    arena.want(arena.victim.process.poll() is None, f"ended: {arena.victim.process.returncode}")
    end = time.monotonic() + 10
    while not arena.victim.is_healthy() and time.monotonic() < end:
        time.sleep(0.1)
    found, _ = exchange(arena.victim.address, closing(completion()), seconds=10)
    said = [answer.status for answer in found]
    arena.want(said == [200], f"a completion once there is memory again: {said}")
