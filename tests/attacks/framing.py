"""R4 and R15: requests whose framing RFC 9112 forbids or leaves in doubt. Each is to be refused with one answer of JSON, once,
and its connection closed, so that nothing behind it is ever served."""

import socket
from random import Random

from arena import attack
from wire import answers, closing, exchange, refusal_problem

CALL = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
INNER = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
LENGTH = str(len(INNER)).encode()
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(INNER), INNER)
BAD = {400}
BAD_CODING = {400, 501}


def posts(lines, body, wanted=BAD):
    return [(line, CALL + line + b"\r\n\r\n" + body, wanted) for line in lines]


SMUGGLING = posts([
    b"Content-Length : " + LENGTH, b"Content-Length\t: " + LENGTH, b"Content-Length:\r\n " + LENGTH,
    b"Content-Length: " + LENGTH + b"\r\n\tX: y", b"Content-Length: " + LENGTH + b"\r\n 0", b"X: a\r\n Content-Length: " + LENGTH,
    b"Content-Length\x0b: " + LENGTH, b"Content-Length\x00: " + LENGTH, b"Content-Length\xa0: " + LENGTH, b"\x80Content-Length: " + LENGTH,
    b"Content Length: " + LENGTH, b": " + LENGTH, b"Content-Length " + LENGTH, b"(Content-Length): " + LENGTH,
    b"Content-Length;: " + LENGTH, b" Content-Length: " + LENGTH, b"Content-Length\r: " + LENGTH, b"Content-Length:" + LENGTH + b"\r",
    b"X: a\rContent-Length: " + LENGTH, b"X: a\nContent-Length : " + LENGTH, b"X\x00: a\r\nContent-Length: 0",
    b"Content-Length: " + LENGTH + b"\r\nContent-Length: 0", b"Content-Length: 0\r\nContent-Length: " + LENGTH,
    b"Content-Length: " + LENGTH + b"\r\nContent-Length: " + LENGTH, b"Content-Length: " + LENGTH + b"\r\nContent-Length : 0",
    b"Content-Length: +" + LENGTH, b"Content-Length: " + LENGTH + b",", b"Content-Length: " + LENGTH + b", " + LENGTH,
    b"Content-Length: 0x26", b"Content-Length: 3_8", b"Content-Length: 38 38", b"Content-Length: 38;", b"Content-Length: -1",
    b"Content-Length: -0", b"Content-Length: 1e1", b"Content-Length: ", b"Content-Length: \"38\"", b"Content-Length: 38.0",
    b"Content-Length: 18446744073709551654", b"Content-Length: " + b"9" * 40, b"Content-Length: \x0b38",
], INNER, {400, 413}) + posts([
    b"Transfer-Encoding : chunked", b"Transfer-Encoding\t: chunked", b"Transfer-Encoding:\r\n chunked",
    b"Transfer-Encoding: chunked\r\n\tX: y", b"Transfer-Encoding\x0b: chunked", b"Transfer-Encoding\x00: chunked",
    b"Transfer Encoding: chunked", b" Transfer-Encoding: chunked", b"X: a\r\n Transfer-Encoding: chunked",
    b"X: a\rTransfer-Encoding: chunked", b"X: a\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 5", b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    b"Content-Length: 5\r\nTransfer-Encoding : chunked", b"Transfer-Encoding: chunked\r\nContent-Length : 5",
    b"Content-Length: 5\r\nTransfer-Encoding: identity",
], CHUNKS, BAD_CODING) + posts([
    b"Transfer-Encoding: identity", b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked;q=1",
    b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding: chunked\x0b", b"Transfer-Encoding: \"chunked\"",
    b"Transfer-Encoding: chunked,", b"Transfer-Encoding: ,chunked", b"Transfer-Encoding: ", b"Transfer-Encoding: chunked\x00",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    b"Transfer-Encoding:\x00chunked", b"Transfer-Encoding: chun\r\n ked",
], CHUNKS, BAD_CODING)

VERSION = b"GET /version HTTP/1.1\r\n"
HOST = b"Host: localhost\r\n"


def heads(*parts, wanted=BAD):
    return [(part, part + b"\r\n" + INNER, wanted) for part in parts]


LINES = heads(
    b"GET /version HTTP/1.1\n" + HOST, VERSION + b"Host: localhost\n", VERSION + b"X: y\n" + HOST, b"GET /version HTTP/1.1\nHost: localhost\n",
    VERSION + b" Host: localhost\r\n", VERSION + b"\tHost: localhost\r\n", VERSION + b" X: y\r\n" + HOST,
    VERSION, VERSION + HOST + HOST, VERSION + HOST + b"Host: other\r\n", VERSION + b"Host : localhost\r\n",
    VERSION + HOST + b"X: a\rb\r\n", VERSION + HOST + b"X: a\x00b\r\n", VERSION + HOST + b"X: a\r\r\n", VERSION + HOST + b"X\r: a\r\n",
    VERSION + HOST + b"no colon\r\n", VERSION + HOST + b": empty\r\n", VERSION + HOST + b"X(: y\r\n", VERSION + HOST + b"X\xff: y\r\n",
    VERSION + HOST + b"X: y\r\n folded\r\n", VERSION + HOST + b"X: y\r\n\tfolded\r\n", VERSION + HOST + b"X: \r\n folded\r\n",
    b"GET /version\x00x HTTP/1.1\r\n" + HOST, b"GET\x00 /version HTTP/1.1\r\n" + HOST, b"GET /version\rx HTTP/1.1\r\n" + HOST,
    b"GET /version HTTP/1.1\r\r\n" + HOST, b"GET /ver\x01sion HTTP/1.1\r\n" + HOST, 
    b"GET /version HTTP/1.1\x00\r\n" + HOST, b"\x00GET /version HTTP/1.1\r\n" + HOST, b" GET /version HTTP/1.1\r\n" + HOST,
    b"GET /version http/1.1\r\n" + HOST, b"GET /version HTTP/1.1x\r\n" + HOST,
    b"GET /version HTTP/11\r\n" + HOST, b"GET /version HTTP/1.10\r\n" + HOST, b"GET /version HTTP/ 1.1\r\n" + HOST,
    b"GET /version XTTP/1.1\r\n" + HOST, b"GET /ver sion HTTP/1.1\r\n" + HOST,
) + heads(
    b"GET /version\r\n", b"GET\r\n", b"GET /version \r\n" + HOST, b"GET /version HTTP/2.0\r\n" + HOST, b"GET /version HTTP/0.9\r\n" + HOST,
    b"PRI * HTTP/2.0\r\n", b"GET /version HTTP/3\r\n" + HOST, wanted={400, 505},
) + heads(
    b"GET /version%00x HTTP/1.1\r\n" + HOST, b"GET /v1/models/victim%00x HTTP/1.1\r\n" + HOST,
    wanted={400, 404},
) + [
    (b"a header of 64 KiB", VERSION + HOST + b"X: " + b"a" * 65536 + b"\r\n\r\n" + INNER, {431}),
    (b"a header's name of 64 KiB", VERSION + HOST + b"X" * 65536 + b": a\r\n\r\n" + INNER, {431}),
    (b"5,000 headers", VERSION + HOST + b"".join(b"X-%d: a\r\n" % i for i in range(5000)) + b"\r\n" + INNER, {431}),
    (b"a path of 64 KiB", b"GET /" + b"a" * 65536 + b" HTTP/1.1\r\n" + HOST + b"\r\n" + INNER, {414}),
    (b"a method of 64 KiB", b"G" * 65536 + b" / HTTP/1.1\r\n" + HOST + b"\r\n" + INNER, {400, 405, 414, 431, 501}),
    (b"an unending first line", b"G" * 200000, {400, 405, 414, 431, 501}),
    (b"a TLS greeting", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x07" * 500 + b"\r\n\r\n", BAD),
]

BODY = b'{"model":"victim","prompt":"x","max_tokens":1}'
SIZE = b"%x" % len(BODY)


def chunked(*bodies, wanted=BAD):
    return [(body, CALL + b"Transfer-Encoding: chunked\r\n\r\n" + body + INNER, wanted) for body in bodies]


CHUNK_LINES = chunked(
    SIZE + b"\n" + BODY + b"\r\n0\r\n\r\n", SIZE + b"\r\n" + BODY + b"\n0\r\n\r\n", SIZE + b"\r\n" + BODY + b"\r\n0\n\r\n",
    SIZE + b"\r\n" + BODY + b"\r\n0\r\n\n", SIZE + b"\r\n" + BODY + b"0\r\n\r\n", SIZE + b"\r\n" + BODY + b"xx0\r\n\r\n",
    SIZE + b"\r" + BODY + b"\r\n0\r\n\r\n", b" " + SIZE + b"\r\n" + BODY + b"\r\n0\r\n\r\n", b"0x" + SIZE + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
    b"+" + SIZE + b"\r\n" + BODY + b"\r\n0\r\n\r\n", b"-" + SIZE + b"\r\n" + BODY + b"\r\n0\r\n\r\n", b"\r\n" + BODY + b"\r\n0\r\n\r\n",
    b"zz\r\nabc\r\n0\r\n\r\n", SIZE + b";a\n" + BODY + b"\r\n0\r\n\r\n",
    SIZE + b";a\rb\r\n" + BODY + b"\r\n0\r\n\r\n", SIZE + b" x\r\n" + BODY + b"\r\n0\r\n\r\n", SIZE + b"\x00\r\n" + BODY + b"\r\n0\r\n\r\n", b"1_0\r\n" + BODY + b"\r\n0\r\n\r\n",
    SIZE + b"\r\n" + BODY + b"\r\n0\r\nX : y\r\n\r\n", SIZE + b"\r\n" + BODY + b"\r\n0\r\n X: y\r\n\r\n",
    SIZE + b"\r\n" + BODY + b"\r\n0\r\nX: y\r\n folded\r\n\r\n", SIZE + b"\r\n" + BODY + b"\r\n0\r\nX: y\n\r\n",
    SIZE + b"\r\n" + BODY + b"\r\n0\r\nno colon\r\n\r\n",
) + chunked(
    b"fffffffffffffffff\r\nabc", b"10000000000000000\r\n",
    b"0" * 70000 + b"1\r\na\r\n0\r\n\r\n", wanted={400, 413, 431},
)


def refuse_all(arena, cases):
    for name, data, wanted in cases:
        found, is_closed = exchange(arena.victim.address, data, seconds=1.5, source=f"127.0.2.{arena.round + 1}")
        problem = refusal_problem(found, is_closed, wanted)
        arena.want(problem is None, f"{name[-70:]!r}: {problem}")


@attack("R4", f"{len(SMUGGLING)} ways to hide a request in a body")
def smuggling(arena):
    refuse_all(arena, SMUGGLING)


@attack("R15", f"{len(LINES)} heads that are no HTTP/1.1, too long or ambiguous")
def forbidden_lines(arena):
    refuse_all(arena, LINES)


@attack("R15", f"{len(CHUNK_LINES)} chunked bodies that are none")
def forbidden_chunks(arena):
    refuse_all(arena, CHUNK_LINES)


ALLOWED = [
    (b"HTTP/1.0 without Host", b"GET /version HTTP/1.0\r\n\r\n"),
    (b"an empty line first", b"\r\n" + VERSION + HOST + b"Connection: close\r\n\r\n"),
    (b"spaces around a value", VERSION + b"Host: \t localhost \t \r\nConnection: close\r\n\r\n"),
    (b"no space before a value", VERSION + b"Host:localhost\r\nConnection:close\r\n\r\n"),
    (b"absolute form", b"GET http://localhost/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
    (b"an empty field", VERSION + HOST + b"X:\r\nConnection: close\r\n\r\n"),
    (b"bytes beyond ASCII in a value", VERSION + HOST + b"X: \xc3\xa9\xff\r\nConnection: close\r\n\r\n"),
    (b"Host with a port", VERSION + b"Host: [::1]:8000\r\nConnection: close\r\n\r\n"),
    (b"a query", b"GET /version?a=b&c=%20 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
    (b"a coding in capitals", CALL + b"Connection: close\r\nTransfer-Encoding: Chunked\r\n\r\n" + SIZE.upper() + b"\r\n" + BODY + b"\r\n0\r\n\r\n"),
    (b"a chunk extension", CALL + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + SIZE + b";a=b;c\r\n" + BODY + b"\r\n0\r\n\r\n"),
    (b"zeros before a chunk's size", CALL + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n000" + SIZE + b"\r\n" + BODY + b"\r\n000\r\n\r\n"),
    (b"trailers", CALL + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + SIZE + b"\r\n" + BODY + b"\r\n0\r\nX: y\r\nZ: \r\n\r\n"),
    (b"zeros before a length", CALL + b"Connection: close\r\nContent-Length: 000%d\r\n\r\n" % len(BODY) + BODY),
]


STRANGE = [
    VERSION + b"Host: a b\r\n", VERSION + b"Host: a/b\r\n", VERSION + b"Host: localhost, other\r\n", VERSION + b"Host: a@b\r\n",
    VERSION + b"Host: \xff\r\n", VERSION + b"Host: %00\r\n",
    b"G\x7fT /version HTTP/1.1\r\n" + HOST, b"get /version HTTP/1.1\r\n" + HOST, b"GETGETGETGETGETGETGETGET /version HTTP/1.1\r\n" + HOST,
    b"GET version HTTP/1.1\r\n" + HOST, b"GET /version\xff HTTP/1.1\r\n" + HOST, b"GET /\xc3\x28\xf0\x9f HTTP/1.1\r\n" + HOST,
    b"GET /version%ff HTTP/1.1\r\n" + HOST, b"GET /%c3%28 HTTP/1.1\r\n" + HOST, b"GET /\"<script> HTTP/1.1\r\n" + HOST,
    b"GET /v1/models/%ff%fe HTTP/1.1\r\n" + HOST, b"GET /v1/models/" + b"%f0%9f" * 200 + b" HTTP/1.1\r\n" + HOST,
    b"GET /" + b"a" * 30000 + b" HTTP/1.1\r\n" + HOST, b"GET /%00 HTTP/1.1\r\n" + HOST, b"GET /..%2f..%2fetc/passwd HTTP/1.1\r\n" + HOST,
    b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST, b"TRACE / HTTP/1.1\r\n" + HOST, b"DELETE /version HTTP/1.1\r\n" + HOST,
    b"POST /v1/completions HTTP/1.1\r\n" + HOST, b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n" + HOST[:-2] + b"\r\n\r\n0\r\n",
]


@attack("R15", f"{len(STRANGE)} requests for what is not there, in strange bytes: an error object each, then the next is served")
def strange_requests(arena):
    for data in STRANGE:
        found, _ = exchange(arena.victim.address, data + b"\r\n" + closing(INNER), source=f"127.0.2.{arena.round + 1}")
        said = [answer.status for answer in found]
        is_good = len(found) in (1, 2) and 400 <= said[0] < 500 and found[0].error() and said[1:] in ([], [200])
        arena.want(is_good, f"{data[:60]!r}: {said} {found[0].body[:60] if found else b''!r}")


@attack("R15", "what RFC 9112 allows is served")
def allowed_lines(arena):
    for name, data in ALLOWED:
        found, is_closed = exchange(arena.victim.address, data, seconds=3)
        said = [answer.status for answer in found]
        arena.want(said == [200] and is_closed, f"{name.decode()}: {said}, closed: {is_closed}")


@attack("R15", "a request byte by byte, in two halves at every place, and pipelined with a bad one")
def torn_requests(arena):
    request = VERSION + HOST + b"Connection: close\r\n\r\n"
    step = 1 if arena.scale == 1 else 7
    for at in range(1, len(request), step):
        sock = arena.send(request[:at])
        sock.sendall(request[at:])
        received, is_closed = arena.read_to_end(sock)
        arena.want([a.status for a in answers(received)] == [200] and is_closed, f"torn at {at}: {received[:60]!r}")
        sock.close()
    found, is_closed = exchange(arena.victim.address, INNER * 3 + CALL + b"Content-Length : 38\r\n\r\n" + INNER)
    said = [answer.status for answer in found]
    arena.want(said == [200, 200, 200, 400] and is_closed, f"three good ones and a bad one: {said}")


SEEDS = [
    INNER, CALL + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY, VERSION + b"Host: localhost:80\r\nCookie: a=b; c=\"d\"\r\n\r\n",
    CALL + b"Transfer-Encoding: chunked\r\n\r\n" + SIZE + b";a=b\r\n" + BODY + b"\r\n0\r\nX: y\r\n\r\n",
    b"GET /v1/models/a?b=c&d=%20&e HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nAccept: text/html\r\n\r\n",
    CALL + b"Expect: 100-continue\r\nAuthorization: Bearer x\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY,
    b"OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nAccess-Control-Request-Method: POST\r\n\r\n" + INNER,
]
BITS = [b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b";", b"=", b",", b"\"", b"%", b"%00", b"\xff", b"0", b"-1", b"/", b"?", b"&",
        b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"a" * 5000]


def mutate(random, data):
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data) + 1)
        end = at + random.choice((0, 0, 1, 2, 10))
        data = data[:at] + random.choice(BITS) + data[end:]
    return data


@attack("R15", "mutated requests: JSON or nothing comes back, never a page, never half an answer")
def mutated_requests(arena):
    """Each connection then closes its sending half, so that what waits for more ends."""
    random = Random(arena.round)
    for _ in range(arena.many(12, least=3)):
        sent = [mutate(random, random.choice(SEEDS) + random.choice(SEEDS)) for _ in range(60)]
        socks = [arena.send(data) for data in sent]
        for sock in socks:
            try:
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        for data, sock in zip(sent, socks):
            received, is_closed = arena.read_to_end(sock)
            bad = [a for a in answers(received) if a.status == 0 or (a.status >= 400 and not a.error())]
            arena.want(is_closed and not bad, f"{data[-200:]!r}: {received[:100]!r}, closed: {is_closed}")
        arena.close_all()
