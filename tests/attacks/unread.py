"""R7: answers that nobody reads. However many and whatever is requested, the process keeps within the total it printed."""

import os
import re
import select
import signal
import time

from arena import attack
from wire import answers, closing, completion, request_bytes

FEW = {"max-connections": 192, "max-model-len": 1024, "kv-cache-memory-bytes": "8M"}
SMALL_WINDOW = 4096
CROWD = {"max-connections": 640, "response-store-bytes": "64M", "enable-admin": None}
GET_ROUTES = ("/openapi.json", "/metrics", "/v1/models", "/v1/models/victim", "/tokenizer_info", "/server_info", "/load",
              "/version", "/live", "/health", "/ready", "/ping", "/is_sleeping", "/")


def leave_unread(arena, request, count, seconds):
    """That many request and take nothing; the witness checks the memory."""
    for _ in range(count):
        arena.send(request, receive_buffer=SMALL_WINDOW)
    arena.hold(seconds)


@attack("R7", "/tokenize with pieces of 1 MiB, 64 answers unread", options=FEW)
def tokenize_unread(arena):
    text = request_bytes("/tokenize", {"content": "1" * (arena.many(1 << 20)), "with_pieces": True})
    leave_unread(arena, text, 64, 12)


@attack("R7", "prompt_logprobs of 900 tokens for 16 choices, 64 answers unread", options=FEW,
        served="health")
def prompt_logprobs_unread(arena):
    request = completion(prompt="x " * 400, max_tokens=1, n=16, prompt_logprobs=20, logprobs=5, echo=True)
    leave_unread(arena, request, arena.many(64), 8)


@attack("R7", "1,000 embeddings at a time, 64 answers unread", options=FEW, served="health")
def embeddings_unread(arena):
    request = request_bytes("/v1/embeddings", {"model": "victim", "input": ["x"] * 1000})
    leave_unread(arena, request, arena.many(64), 6)


@attack("R7", "streams with logprobs whose readers take nothing", options=FEW, served="health")
def streams_unread(arena):
    request = completion(prompt="x", max_tokens=900, n=16, logprobs=5, ignore_eos=True, stream=True)
    leave_unread(arena, request, arena.many(100), 3)


@attack("R7", "an echo of 900 tokens with logprobs is one event: 100 streams unread", options=FEW,
        served="health")
def echo_streams_unread(arena):
    request = completion(prompt="x " * 400, max_tokens=1, n=4, logprobs=5, echo=True, stream=True)
    leave_unread(arena, request, arena.many(100), 5)


@attack("R7", "pages and descriptions requested 50 times on each of 150 connections, unread", options=FEW)
def pages_unread(arena):
    requests = (request_bytes("/openapi.json") + request_bytes("/metrics")
                + request_bytes("/", headers=[("Accept", "text/html"), ("Accept-Encoding", "gzip")])) * 17
    leave_unread(arena, requests, arena.many(150), 2)


def leave_crowd_unread(arena, path, fields=()):
    """500 request the path and take nothing; whoever was answered at all was answered with 200 or a 503."""
    request = request_bytes(path, headers=fields)
    socks = [arena.send(request, receive_buffer=SMALL_WINDOW) for _ in range(arena.many(500))]
    began = {arena.read_some(sock)[:12] for sock in socks}
    arena.want(began <= {b"HTTP/1.1 200", b"HTTP/1.1 503"}, f"{path}, unread: {began}")
    held, arena.counted = arena.victim.memory(), arena.victim.metrics().get("http_held_bytes", -1)
    arena.want(arena.is_sanitized or held <= arena.planned,
               f"{path}: {held >> 20} MiB held by unread answers, {arena.planned >> 20} planned")
    arena.close_all()


@attack("R7", "each route that answers by itself, 500 answers unread", options=CROWD)
def routes_unread(arena):
    for path in GET_ROUTES:
        leave_crowd_unread(arena, path)
    leave_crowd_unread(arena, "/", [("Accept", "text/html"), ("Accept-Encoding", "gzip")])


def keep_response(arena, tokens, **fields):
    """The path of a response that is kept, of whose items each token has 100 bytes."""
    body = {"model": "victim", "input": "x", "include": ["message.output_text.logprobs"], "max_output_tokens": tokens,
            "structured_outputs": {"regex": "[a-z]+"}, "ignore_eos": True, "temperature": 1, **fields}
    received, _ = arena.read_to_end(arena.send(closing(request_bytes("/v1/responses", body))), 60)
    found = re.search(rb'"id":"(resp_[0-9a-f]+)"', received)
    arena.want(found and b'"status":"incomplete"' in received, f"a kept response: {received[-300:]!r}")
    return "/v1/responses/" + found[1].decode() if found else "/v1/responses/none"


@attack("R7", "a kept response of 1 MB, its events of 5 MB, items of 600 KB: 500 answers unread", options=CROWD)
def kept_responses_unread(arena):
    path = keep_response(arena, 850, background=True, stream=True, top_logprobs=20)
    for asked in (path, path + "?stream=true", path + "?stream=true&starting_after=500"):
        leave_crowd_unread(arena, asked)
        arena.want(arena.counted < 1 << 20, f"{asked}: {arena.counted} bytes counted for what is not copied")
    long = keep_response(arena, 6000)
    after = keep_response(arena, 1, previous_response_id=long.rpartition("/")[2])
    leave_crowd_unread(arena, after + "/input_items?limit=100")
    arena.want(arena.counted > 1 << 24, f"input_items: {arena.counted} bytes counted")


@attack("R7", "400 requests for /metrics at one moment: /health does not wait for all of them", options=CROWD)
def answers_take_turns(arena):
    """They are sent while the server stands still, so that one turn of its loop finds all."""
    request = request_bytes("/metrics")
    socks, other = [arena.send(request_bytes("/version")) for _ in range(arena.many(400, least=100))], arena.connect()
    for sock in socks:
        arena.read_some(sock)
    os.kill(arena.victim.pid, signal.SIGSTOP)
    for sock in socks:
        arena.push(sock, request)
    arena.push(other, request_bytes("/health"))
    os.kill(arena.victim.pid, signal.SIGCONT)
    arena.read_some(other)
    answered = select.poll()
    for sock in socks:
        answered.register(sock, select.POLLIN)
    count = len(answered.poll(0))
    arena.want(count < len(socks) / 2, f"{count} of {len(socks)} long answers were made before that to /health")


@attack("R7", "answers unread over a UNIX socket, where no acknowledgement shows a reader", options=FEW, is_unix=True)
def unread_on_a_unix_socket(arena):
    text = request_bytes("/tokenize", {"content": "1" * arena.many(1 << 19), "with_pieces": True})
    leave_unread(arena, text, 8, 3)


@attack("R7", "an answer taken at 20 KiB/s is whole", options=FEW)
def slow_reader(arena):
    request = request_bytes("/tokenize", {"content": "1" * 3000, "with_pieces": True}, headers=[("Connection", "close")])
    sock = arena.send(request, receive_buffer=SMALL_WINDOW)
    received = bytearray()
    while len(received) < 40960 and (data := arena.read_some(sock)):
        received += data
        time.sleep(0.02)
    rest, is_closed = arena.read_to_end(sock)
    said = [answer.status for answer in answers(bytes(received) + rest)]
    arena.want(said == [200] and is_closed, f"read slowly: {said}")


@attack("R7", "5,000 requests pipelined by one client that reads nothing", options=FEW)
def pipelined_flood(arena):
    sock = arena.connect(receive_buffer=SMALL_WINDOW)
    sock.setblocking(False)
    data = memoryview(request_bytes("/health") * 2500 + completion() * 2500)
    end = time.monotonic() + 2 * arena.scale
    while data and time.monotonic() < end:
        try:
            data = data[sock.send(data[:65536]):]
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            break


@attack("R7", "names of unknown fields: 64 KiB of them come back in no header that breaks the answer", options=FEW)
def ignored_names(arena):
    for count, length in ((1, 60000), (2000, 8), (500, 200), (1, 20)):
        fields = {f"{i}" + "n" * length: 1 for i in range(count)}
        sock = arena.send(completion(**fields))
        received = arena.read_some(sock)
        arena.want(received[:12] in (b"HTTP/1.1 200", b"HTTP/1.1 400"),
                   f"{count} unknown names of {length} bytes: {received[:40]!r}")


@attack("R7", "an Accept, an id, a path that come back stay what they were", options=FEW)
def echoed_words(arena):
    for name in ("X-Request-Id", "Accept", "Authorization", "Cookie", "User-Agent"):
        for value in ("a" * 20000, "\xff\xfe", "a\tb", "\"'<>&", "%0d%0aX: y"):
            head = f"GET /nothing\" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{name}: {value}\r\n\r\n".encode("latin-1")
            found = answers(arena.read_to_end(arena.send(head))[0])
            said = [answer.status for answer in found]
            arena.want(said in ([400], [404], [431]) and found[0].error(), f"{name} of {value[:10]!r}: {said}")


@attack("R7", "64 streams that nobody reads hold none of 4 running slots", options={**FEW, "max-num-seqs": 4, "max-model-len": 8192},
        served="health")
def stalled_streams_hold_no_slot(arena):
    request = completion(prompt="x", max_tokens=7000, ignore_eos=True, stream=True, logprobs=5)
    leave_unread(arena, request, arena.many(64, least=16), 3)
    received, _ = arena.read_to_end(arena.send(closing(completion())), 30)
    said = [answer.status for answer in answers(received)]
    arena.want(said == [200], f"a completion behind streams that nobody reads: {said}")


@attack("R7", "streams of many choices, read by a byte a second", options=FEW, served="health")
def crawling_readers(arena):
    request = completion(prompt="x", max_tokens=900, n=8, ignore_eos=True, stream=True, logprobs=5)
    socks = [arena.send(request, receive_buffer=SMALL_WINDOW) for _ in range(arena.many(40))]
    end = time.monotonic() + 2 * arena.scale
    while time.monotonic() < end:
        for sock in socks:
            sock.settimeout(0.001)
            try:
                sock.recv(1)
            except OSError:
                pass
        time.sleep(0.1)
