"""Limits: what a server refuses, drops or survives by the options it was started with."""

import select
import selectors
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from quire_server import NAME
from raw_http import (connect, exchange, open_stream, read_response, read_until, read_until_close,
                      request_bytes, roundtrip, statuses, wait_until)

GOOD = {"model": NAME, "prompt": "The capital of France is", "max_tokens": 2, "temperature": 0}
CALL = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


def test_chunked_body_is_413_once_it_is_too_large(start_server):
    server = start_server("--max-body-bytes", "64K")
    with connect(server) as sock:
        sock.sendall(CALL + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(4):
            sock.sendall(b"4000\r\n" + b" " * 0x4000 + b"\r\n")
        sock.sendall(b"1\r\n \r\n")
        response, _ = read_response(sock)
        assert response.status == 413
        assert response.json()["error"]["code"] == "body_too_large"
        assert sock.recv(1) == b""


def test_full_queue_is_429(start_server):
    server = start_server("--max-num-seqs", 1, "--max-queued-requests", 2)
    with open_stream(server, max_tokens=4000) as first:
        read_until(first, b"data: ")
        with open_stream(server, max_tokens=1), open_stream(server, max_tokens=1):
            server.wait_for(lambda m: m["num_requests_waiting"] == 2)
            response = roundtrip(server, request_bytes("/v1/completions", GOOD))
            assert response.status == 429
            assert server.metrics()["num_requests_waiting"] == 2  # none of them has ended: it was not waited for
            assert int(response.headers["retry-after"]) >= 1
            assert int(response.headers["retry-after-ms"]) >= 1
            assert response.json()["error"]["type"] == "rate_limit_error"
            # Refused before the body is sent.
            received = exchange(server, CALL + b"Content-Length: 1000000\r\n\r\n")
            assert statuses(received) == [429]
    server.wait_idle()
    assert roundtrip(server, request_bytes("/v1/completions", GOOD)).status == 200
    # What could never be queued is refused as such: a 429 would be tried again for ever.
    response = roundtrip(server, request_bytes("/v1/completions", {"prompt": ["a", "b", "c"]}))
    assert (response.status, response.json()["error"]["param"]) == (400, "prompt")


def test_long_texts_to_tokenize_hold_up_no_completion(server):
    """Each takes half a second; the completion would be prepared after four of them."""
    text = request_bytes("/tokenize", {"prompt": " " * (1 << 20)})
    socks = [connect(server) for _ in range(5)]
    for sock in socks:
        sock.sendall(text)
    wait_until(lambda: server.metrics()["http_connections"] > len(socks))
    assert roundtrip(server, request_bytes("/v1/completions", GOOD)).status == 200
    answered, _, _ = select.select(socks, [], [], 0)
    for sock in socks:
        assert read_response(sock)[0].status == 200
        sock.close()
    assert len(answered) < 4


def test_idle_connections_give_way(start_server):
    """The oldest of the address that has most is closed, so that whoever comes is served."""
    server = start_server("--max-connections", 10)
    with connect(server) as first:
        first.sendall(request_bytes("/version"))
        read_response(first)
        others = [connect(server) for _ in range(30)]
        for _ in range(5):
            assert roundtrip(server, request_bytes("/version")).status == 200
        assert first.recv(1) == b""
        wait_until(lambda: count_open(server) <= 11)
        for sock in others:
            sock.close()


def test_too_many_connections_in_use_are_503(start_server):
    server = start_server("--max-connections", 10, "--max-num-seqs", 1)
    streams = [open_stream(server, max_tokens=4000) for _ in range(10)]
    server.wait_for(lambda m: m["num_requests_running"] + m["num_requests_waiting"] == 10)
    answer = roundtrip(server, request_bytes("/v1/completions", GOOD))
    assert answer.status == 503 and answer.headers["retry-after"]
    assert roundtrip(server, request_bytes("/health")).status == 200
    for sock in streams:
        sock.close()
    wait_until(lambda: try_status(server) == 200)


def test_requests_that_nobody_has_read_yet_hold_their_connections(start_server):
    """A server that was held up finds requests and newcomers at once; who waits with a request is not idle."""
    server = start_server("--max-connections", 10)
    server.process.send_signal(signal.SIGSTOP)
    streams = [open_stream(server, max_tokens=2) for _ in range(10)]
    late = connect(server)
    late.sendall(request_bytes("/health"))
    server.process.send_signal(signal.SIGCONT)
    for sock in streams:
        assert b"data: [DONE]" in read_until(sock, b"[DONE]")
        sock.close()
    assert read_response(late)[0].status == 200
    late.close()


def test_unread_answers_give_way(start_server):
    """Answers that nobody takes hold connections like idle ones."""
    server = start_server("--max-connections", 10)
    unread = []
    for _ in range(10):
        sock = connect(server, 4096)
        sock.sendall(request_bytes("/openapi.json") * 200)
        sock.recv(1, socket.MSG_PEEK)
        unread.append(sock)
    wait_until(lambda: try_status(server) == 200, 10)
    for sock in unread:
        sock.close()


def test_idle_connections_do_not_hurry_a_body(start_server):
    """They give way, so they are no reason for haste."""
    server = start_server("--max-connections", 10)
    idle = [connect(server) for _ in range(9)]
    request = request_bytes("/v1/completions", GOOD)
    with connect(server) as sock:
        sock.sendall(request[:-1])
        time.sleep(3)
        sock.sendall(request[-1:])
        assert read_response(sock)[0].status == 200
    for sock in idle:
        sock.close()


def test_bodies_without_a_key_take_no_memory_of_one(start_server):
    """Routes that need no key look at no body; nine of 15 MiB would be more than a key's share."""
    server = start_server("--api-key", "first", "--api-key", "second")
    strangers = [connect(server) for _ in range(9)]
    for sock in strangers:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16777216\r\n\r\n")
        sock.sendall(b" " * (15 << 20))
    for sock in strangers:
        sock.sendall(b" ")
    with connect(server) as sock:
        sock.sendall(request_bytes("/v1/completions", b" " * (8 << 20),
                                   headers=[("Authorization", "Bearer first")]))
        assert read_response(sock)[0].status == 400
    for sock in strangers:
        sock.close()


def count_open(server):
    """Established connections of the server's port, from the server's side."""
    port = f":{server.port:04X}"
    rows = [line.split() for line in open("/proc/net/tcp")][1:]
    return sum(row[1].endswith(port) and row[3] == "01" for row in rows)


def try_status(server):
    return roundtrip(server, request_bytes("/v1/completions", GOOD)).status


# Clients that go away.

def test_hang_up_while_streaming_frees_the_blocks(start_server):
    server = start_server()
    sock = open_stream(server, max_tokens=4000, n=4)
    read_until(sock, b"data: ")
    server.wait_for(lambda m: m["num_requests_running"] == 4 and m["kv_blocks_used"] > 0)
    sock.close()
    server.wait_for(lambda m: m["num_requests_running"] == 0 and m["kv_blocks_used"] == 0, 2)


def test_hang_up_before_the_first_token(start_server):
    server = start_server("--max-num-seqs", 1)
    with open_stream(server, max_tokens=4000) as first:
        read_until(first, b"data: ")
        for stream in (True, False):
            queued = open_stream(server, max_tokens=4000, stream=stream)
            server.wait_for(lambda m: m["num_requests_waiting"] == 1)
            queued.close()
            server.wait_for(lambda m: m["num_requests_waiting"] == 0, 2)
        assert server.metrics()["num_requests_running"] == 1
        received = read_until(first, b"data: ")
        assert b"error" not in received


def test_hang_up_without_a_stream(server):
    server.wait_idle()
    with open_stream(server, max_tokens=4000, stream=False):
        server.wait_for(lambda m: m["kv_blocks_used"] > 0)
    server.wait_for(lambda m: m["kv_blocks_used"] == 0, 2)


def test_hang_up_in_the_body(start_server):
    server = start_server()
    sock = connect(server)
    sock.sendall(CALL + b"Content-Length: 100000\r\n\r\n{")
    sock.close()
    assert roundtrip(server, request_bytes("/v1/completions", GOOD)).status == 200


def take_slowly(sock, ended):
    """16 KiB a second until that event: a pace of its own, which a busy machine does not change much."""
    while not ended.wait(1 / 16):
        assert sock.recv(1024)


def test_stalled_reader_is_dropped_and_harms_nobody(start_server):
    """A client that takes nothing loses its stream; one that takes little at a time keeps it. The
    kernel lets the server write again only after some 80 KiB, which the second takes five seconds for."""
    server = start_server()
    fields = {"receive_buffer": 4096, "max_tokens": 4000, "n": 8, "logprobs": 5}
    stalled = open_stream(server, **fields)
    slow = open_stream(server, **{**fields, "receive_buffer": 65536})  # through a smaller one the kernel itself stalls for seconds
    read_until(stalled, b"data: ")
    with open_stream(server, max_tokens=200) as reader:
        assert b"data: [DONE]" in read_until(reader, b"[DONE]")
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take_slowly, slow, ended)
        wait_until(lambda: taking.done() or server.metrics()["http_connections"] < 3)
        kv_blocks_used = server.metrics()["kv_blocks_used"]
        ended.set()
        taking.result()
    assert kv_blocks_used > 0
    assert b"[DONE]" not in read_until_close(stalled)
    for _ in range(100):
        assert slow.recv(64)
        time.sleep(0.02)
    slow.close()
    server.wait_for(lambda m: m["num_requests_running"] == 0 and m["kv_blocks_used"] == 0)


# Slow clients.

def test_slow_headers_and_bodies_are_cut_off(start_server):
    server = start_server()
    slow = [connect(server) for _ in range(200)]
    for i, sock in enumerate(slow):
        sock.setblocking(False)
        sock.send(CALL if i % 2 else CALL + b"Content-Length: 100000\r\n\r\n{")
    began = time.monotonic()
    alive = set(slow)
    while alive and time.monotonic() - began < 60:
        for sock in list(alive):
            try:
                sock.send(b"X")
                if sock.recv(1) == b"":
                    raise ConnectionResetError
            except BlockingIOError:
                pass
            except OSError:
                alive.remove(sock)
        assert roundtrip(server, request_bytes("/health")).status == 200
        time.sleep(0.5)
    assert not alive
    assert 8 < time.monotonic() - began


# Many streams.

def test_a_thousand_streams_at_once(start_server):
    server = start_server("--max-num-seqs", 64, "--queue-timeout", 0)
    count = 1000
    selector = selectors.DefaultSelector()
    for i in range(count):
        sock = open_stream(server, prompt=f"Number {i} is", max_tokens=2)
        selector.register(sock, selectors.EVENT_READ, bytearray())
    received, deadline = [], time.monotonic() + 180
    while len(received) < count:
        assert time.monotonic() < deadline, f"{len(received)} of {count} streams ended"
        for key, _ in selector.select(1):
            data = key.fileobj.recv(65536)
            key.data.extend(data)
            if not data or key.data.endswith(b"0\r\n\r\n"):
                received.append(bytes(key.data))
                selector.unregister(key.fileobj)
                key.fileobj.close()
    assert all(b"HTTP/1.1 200" in data and b"data: [DONE]" in data for data in received)
    metrics = server.wait_idle()
    assert metrics["kv_blocks_used"] == 0


# Memory of bodies and answers.

def held(server):
    return server.metrics()["http_held_bytes"]


def test_announced_bodies_hold_nothing(server):
    """Sixteen of the largest would fill the memory budget."""
    server.wait_idle()
    socks = [connect(server) for _ in range(32)]
    for sock in socks:
        sock.sendall(CALL + b"Content-Length: 16777216\r\n\r\n{")
    wait_until(lambda: server.metrics()["http_connections"] >= 33)
    assert held(server) <= 32
    assert roundtrip(server, request_bytes("/v1/completions", GOOD)).status == 200
    for sock in socks:
        sock.close()
    wait_until(lambda: held(server) == 0)


def test_one_client_gets_half_of_the_memory_for_bodies(start_server):
    """Of 256 MiB. Of its bodies those that stand still give way, or the newest is refused."""
    server = start_server()
    socks, most = [], 0
    for _ in range(12):
        sock = connect(server)
        socks.append(sock)
        try:
            sock.sendall(CALL + b"Content-Length: 16000000\r\n\r\n" + b" " * 15_999_999)
        except OSError:
            pass  # refused while it was being sent
        most = max(most, held(server))
        assert roundtrip(server, request_bytes("/v1/completions", GOOD)).status == 200
    assert 60e6 < most <= 128 << 20
    assert select.select(socks, [], [], 0)[0]  # somebody was answered, or cut off
    for sock in socks:
        sock.close()
    wait_until(lambda: held(server) == 0)


def test_answer_that_is_too_large_is_400(server):
    answer = roundtrip(server, request_bytes("/tokenize", {"content": "1" * 4_000_000,
                                                           "with_pieces": True}))
    assert answer.status == 400 and answer.json()["error"]["code"] == "answer_too_large"


def test_unread_answers_are_bounded(start_server):
    """Each has some 20 MB and its client takes none of it."""
    server = start_server("--max-connections", 64)
    body = {"content": "1" * 1_000_000, "with_pieces": True}
    socks = []
    for _ in range(10):
        sock = connect(server, receive_buffer=4096)
        sock.sendall(request_bytes("/tokenize", body))
        socks.append(sock)
    most = 0
    while not all(select.select([sock], [], [], 0)[0] for sock in socks):
        most = max(most, held(server))
        assert roundtrip(server, request_bytes("/v1/completions", GOOD)).status == 200
    assert 20e6 < most <= 128 << 20
    wait_until(lambda: held(server) == 0)


def test_draining_answers_new_connections(start_server):
    server = start_server()
    with open_stream(server, max_tokens=1000, ignore_eos=True) as stream:
        received = read_until(stream, b"data: ")
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: roundtrip(server, request_bytes("/health")).status == 503)
        assert roundtrip(server, request_bytes("/ready")).status == 503
        assert roundtrip(server, request_bytes("/live")).status == 200
        answer = roundtrip(server, request_bytes("/v1/completions", GOOD))
        assert answer.status == 503 and answer.headers["retry-after"]
        assert answer.json()["error"]["code"] == "shutting_down"
        assert b"data: [DONE]" in read_until(stream, b"[DONE]", received)
    assert server.process.wait(20) == 0


def test_retry_after_grows_with_the_queue(start_server):
    server = start_server("--max-num-seqs", 1, "--max-queued-requests", 40)
    finished = open_stream(server, max_tokens=200, ignore_eos=True)
    read_until(finished, b"[DONE]")
    socks = [open_stream(server, max_tokens=4000, ignore_eos=True) for _ in range(60)]
    wait_until(lambda: server.metrics()["num_requests_waiting"] >= 39)
    socks.append(open_stream(server, max_tokens=4000))  # where the burst found the queue full
    time.sleep(0.5)  # the waiting ones are counted four times a second
    answer = roundtrip(server, request_bytes("/v1/completions", GOOD))
    assert answer.status == 429 and int(answer.headers["retry-after"]) >= 2
    ready = roundtrip(server, request_bytes("/ready"))
    assert (ready.status, ready.json()["error"]["code"]) == (503, "not_ready") and ready.headers["retry-after"]
    assert roundtrip(server, request_bytes("/health")).status == 200  # a full queue is no reason to start it anew
    for sock in socks:
        sock.close()
