"""The HTTP layer against requests that are broken, too large, or aimed at the wrong thing. After
each the server must serve the next one."""

import json
import re

import httpx
import pytest

from quire_server import NAME
from raw_http import (connect, exchange, open_stream, read_response, read_until, read_until_close,
                      request_bytes, roundtrip, statuses, wait_until)

GOOD = {"model": NAME, "prompt": "The capital of France is", "max_tokens": 2, "temperature": 0}
CALL = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(autouse=True)
def next_request_is_served(server):
    yield
    assert roundtrip(server, request_bytes("/v1/completions", GOOD)).status == 200


# Framing. The body of each first request hides a second request.

SMUGGLED = b"0\r\n\r\nGET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("fields, status", [
    (b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", 400),
    (b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", 400),
    (b"Content-Length: 5\r\nContent-Length: 50\r\n", 400),
    (b"Content-Length: 5\r\ncontent-length: 5\r\n", 400),
    (b"Transfer-Encoding: xchunked\r\n", 501),
    (b"Transfer-Encoding: gzip, chunked\r\n", 501),
    (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", 501),
    (b"X-Any: a\0b\r\nContent-Length: 5\r\n", 400),
    (b"X-Any: a\nX-Other: b\r\nContent-Length: 5\r\n", 400),
])
def test_doubtful_framing_is_refused_and_closed(server, fields, status):
    received = exchange(server, CALL + fields + b"\r\n" + SMUGGLED)
    assert statuses(received) == [status]
    assert b'"error"' in received


def assert_refused(received, status):
    """One answer, in the error shape, with an id, and the connection is closed behind it."""
    assert statuses(received) == [status]
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"X-Request-Id: " in head and b"Connection: close" in head
    assert json.loads(body)["error"]["message"]


@pytest.mark.parametrize("length", [b"-1", b"abc", b"5, 5", b"", b"0x5", b"5 5", b"+5"])
def test_length_that_is_no_number_is_400(server, length):
    assert_refused(exchange(server, CALL + b"Content-Length: " + length + b"\r\n\r\n" + SMUGGLED),
                   400)


def test_length_beyond_64_bits_is_413(server):
    assert_refused(exchange(server, CALL + b"Content-Length: 1" + b"0" * 24 + b"\r\n\r\n"), 413)


# Lines that RFC 9112 forbids. Behind each stands a request that must not be served.

@pytest.mark.parametrize("line", [
    b"Content-Length : 41", b"Content-Length\t: 41", b"Content-Length:\r\n 41",
    b"Content-Length: 14\r\n\tX: y", b"Transfer-Encoding : chunked", b"Transfer-Encoding:\r\n chunked",
    b"X: a\r\n folded", b" Leading: space", b"no colon", b": no name", b"N@me: x", b"N\xc3\xa4me: x",
    b"X: a\nY: b", b"X: a\n", b"\n", b"X: a\rb", b"X: a\r\rb", b"X: a\0b", b"X\0: a", b"X: \x01", b"X: \x7f",
    b"Host: other", b"host: localhost",
])
def test_forbidden_line_is_400(server, line):
    assert_refused(exchange(server, CALL + line + b"\r\n\r\n" + SMUGGLED), 400)


@pytest.mark.parametrize("head", [
    b"GET /version HTTP/1.1\r\n\r\n",
    b"GET /version HTTP/1.1\nHost: localhost\r\n\r\n",
    b"GET /version HTTP/1.1\r\nHost: localhost\r\n\n",
    b"GET /version HTTP/1.1\r\n Host: localhost\r\n\r\n",
    b"GET /version\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET  /version HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /version  HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /version HTTP/1.1 \r\nHost: localhost\r\n\r\n",
    b"GET /ver sion HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /ver\0sion HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /version%00x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /v1/models/smollm2%00x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET version HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://other/version HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /version HTTP/1.1\r\nHost: a b\r\n\r\n",
    b"GET /version HTTP/x.y\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
])
def test_malformed_head_is_400(server, head):
    assert_refused(exchange(server, head), 400)


def test_other_versions_are_505(server):
    assert_refused(exchange(server, b"GET /version HTTP/2.0\r\nHost: localhost\r\n\r\n"), 505)


BODY = json.dumps(GOOD).encode()


@pytest.mark.parametrize("chunks", [
    b"zz\r\nabc\r\n",
    b"%x\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
    b"%x\r\n%s\n0\r\n\r\n" % (len(BODY), BODY),
    b"%x\r\n%sx0\r\n\r\n" % (len(BODY), BODY),
    b"%x;a\rb\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
    b"%x;a\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
    b" %x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
    b"0x%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
    b"-1\r\n%s\r\n0\r\n\r\n" % BODY,
    b"%x;%s" % (len(BODY), b"x" * 100000),
    b"%x\r\n%s\r\n0\r\nX : y\r\n\r\n" % (len(BODY), BODY),
    b"%x\r\n%s\r\n0\r\nX: y\n\r\n" % (len(BODY), BODY),
    b"%x\r\n%s\r\n0\r\n folded\r\n\r\n" % (len(BODY), BODY),
])
def test_bad_chunk_is_400(server, chunks):
    assert_refused(exchange(server, CALL + b"Transfer-Encoding: chunked\r\n\r\n" + chunks), 400)


def test_chunk_beyond_64_bits_is_413(server):
    chunks = b"f" * 17 + b"\r\n"
    assert_refused(exchange(server, CALL + b"Transfer-Encoding: chunked\r\n\r\n" + chunks), 413)


def test_chunk_extensions_and_trailers_are_read_over(server):
    chunks = b"%x;a=b;c\r\n%s\r\n0;d\r\nX-Trailer: y\r\n\r\n" % (len(BODY), BODY)
    assert roundtrip(server, CALL + b"Transfer-Encoding: chunked\r\n\r\n" + chunks).status == 200


def test_body_in_pieces_of_one_byte_is_served(server):
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
    assert roundtrip(server, CALL + b"Transfer-Encoding: chunked\r\n\r\n" + chunks).status == 200


def test_chunked_body_that_grows_too_large_is_413(server):
    def too_large():
        for _ in range(17):
            yield b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    with connect(server) as sock:
        sock.sendall(CALL + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for piece in too_large():
                sock.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert b"413 Content Too Large" in sock.recv(65536)


def test_request_before_half_a_close_is_answered(server):
    with connect(server) as sock:
        sock.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        sock.shutdown(1)
        assert read_response(sock)[0].status == 200


def test_body_before_half_a_close_is_answered(server):
    """As `nc -N` sends it: the end of what the client has to say comes with its request, in one piece or after it."""
    whole = request_bytes("/v1/completions", GOOD)
    for data in (whole, whole.replace(b"Host", b"Connection: close\r\nHost"), request_bytes("/tokenize", {"prompt": "x" * 300000}),
                 request_bytes("/v1/completions", {**GOOD, "stream": True}), request_bytes("/version") + whole):
        for _ in range(5):
            with connect(server) as sock:
                sock.sendall(data)
                sock.shutdown(1)
                received = read_until_close(sock)
            final = [status for status in re.findall(rb"HTTP/1.1 (\d+) ", received) if status != b"100"]
            assert final == [b"200"] * data.count(b" HTTP/1.1\r\n"), (data[:60], received[-300:])
            assert received.endswith((b"}", b"0\r\n\r\n")), (data[:60], received[-300:])


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_stream_before_half_a_close_is_whole(server, is_begun):
    """The end of what the client has to say comes when it likes: within the stream too."""
    with connect(server) as sock:
        sock.sendall(request_bytes("/v1/completions", {**GOOD, "stream": True, "max_tokens": 200, "ignore_eos": True}))
        received = sock.recv(65536) if is_begun else b""
        sock.shutdown(1)
        received += read_until_close(sock)
    assert b"data: [DONE]" in received and received.endswith(b"0\r\n\r\n")


def test_who_reads_on_is_told_from_who_is_gone(server):
    """A call that takes longer: interim answers go to one half of a connection, and find that the other is gone as well."""
    call = {**GOOD, "n": 8, "ignore_eos": True}
    with connect(server) as sock:
        sock.sendall(request_bytes("/v1/completions", {**call, "max_tokens": 400}))
        sock.shutdown(1)
        found = re.findall(rb"HTTP/1.1 (\d+) ", read_until_close(sock))
    assert found[-1] == b"200" and set(found[:-1]) <= {b"100"}
    before = server.metrics()["generation_tokens_total"]
    sock = connect(server)
    sock.sendall(request_bytes("/v1/completions", {**call, "max_tokens": 7000}))
    wait_until(lambda: server.metrics()["num_requests_running"] == 8)
    sock.close()
    wait_until(lambda: server.metrics()["num_requests_running"] == 0)
    assert server.metrics()["generation_tokens_total"] - before < 8 * 3500
    for data, said in ((request_bytes("/version"), [200]), (request_bytes("/v1/completions", {**call, "max_tokens": 7000}), [])):
        with connect(server) as sock:  # HTTP/1.0 has no interim answers
            sock.sendall(data.replace(b"HTTP/1.1", b"HTTP/1.0"))
            sock.shutdown(1)
            assert statuses(read_until_close(sock)) == said


def test_expectation_without_a_body_takes_nothing_of_the_next_request(server):
    head = request_bytes("/version", headers=[("Expect", "100-continue")])
    received = exchange(server, head + request_bytes("/health", headers=[("Connection", "close")]))
    assert re.findall(rb"HTTP/1.1 (\d+) ", received) == [b"200"] * 2 and received.endswith(b'{"status":"ok"}')


def test_target_may_be_a_url(server):
    data = b"GET http://localhost/version HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert roundtrip(server, data).status == 200


# Sizes.

def test_large_header_is_431(server):
    data = b"GET /version HTTP/1.1\r\nHost: localhost\r\nX-Big: " + b"a" * 65536 + b"\r\n\r\n"
    assert_refused(exchange(server, data), 431)


def test_many_headers_are_431(server):
    fields = b"".join(b"X-%d: a\r\n" % i for i in range(5000))
    data = b"GET /version HTTP/1.1\r\nHost: localhost\r\n" + fields + b"\r\n"
    assert_refused(exchange(server, data), 431)


@pytest.mark.parametrize("target", [b"/health", b"/v1/completions"])
def test_many_arguments_are_431(server, target):
    data = b"GET " + target + b"?" + b"a&" * 2000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert_refused(exchange(server, data), 431)


@pytest.mark.parametrize("cookie", [b"a;" * 2000, b'a="'])
def test_cookies_that_do_not_fit_are_431(server, cookie):
    data = b"GET /version HTTP/1.1\r\nHost: localhost\r\nCookie: " + cookie + b"\r\n\r\n"
    assert_refused(exchange(server, data), 431)


def test_long_url_is_414(server):
    data = b"GET /" + b"a" * 65536 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert_refused(exchange(server, data), 414)


@pytest.mark.parametrize("expect", [b"", b"Expect: 100-continue\r\n"])
def test_large_body_is_413_before_it_is_sent(server, expect):
    received = exchange(server, CALL + expect + b"Content-Length: 17000000\r\n\r\n")
    assert statuses(received) == [413]
    assert b"16777216 bytes" in received


def test_chunked_body_is_served(server):
    data = json.dumps(GOOD).encode()
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(data[i:i + 7]), data[i:i + 7])
                      for i in range(0, len(data), 7))
    received = roundtrip(server, CALL + b"Transfer-Encoding: chunked\r\n\r\n" + pieces
                         + b"0\r\n\r\n")
    assert received.status == 200


def test_body_is_asked_for(server):
    """curl waits for this before it sends a body of more than 1 MiB."""
    body = json.dumps({**GOOD, "user": "x" * (2 << 20)}).encode()
    with connect(server) as sock:
        sock.sendall(CALL + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert read_until(sock, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert read_response(sock)[0].status == 200


# Paths and methods.

def test_unknown_path_is_404(server):
    response = roundtrip(server, request_bytes("/v1/nothing"))
    assert response.status == 404
    assert response.json()["error"]["code"] == "not_found"
    assert "/v1/nothing" in response.json()["error"]["message"]


@pytest.mark.parametrize("method, path, allowed", [
    ("GET", "/v1/completions", "POST"), ("DELETE", "/v1/models", "GET, HEAD"),
    ("POST", "/health", "GET, HEAD")])
def test_wrong_method_is_405(server, method, path, allowed):
    response = roundtrip(server, request_bytes(path, method=method))
    assert response.status == 405
    assert response.headers["allow"] == allowed


def test_options_names_the_methods(server):
    response = roundtrip(server, request_bytes("/v1/completions", method="OPTIONS"))
    assert (response.status, response.headers["allow"]) == (204, "POST")
    assert "access-control-allow-origin" not in response.headers


def test_head_has_no_body(server):
    with connect(server) as sock:
        sock.sendall(request_bytes("/version", method="HEAD") + request_bytes("/health"))
        head = read_until(sock, b"\r\n\r\n")
        head, _, rest = head.partition(b"\r\n\r\n")
        assert statuses(head) == [200]
        assert read_response(sock, rest)[0].json() == {"status": "ok"}


def test_small_answers(server):
    assert set(roundtrip(server, request_bytes("/version")).json()) == {"version"}
    assert roundtrip(server, request_bytes("/health")).json() == {"status": "ok"}
    assert roundtrip(server, request_bytes("/")).body.startswith(b"quire\n")
    assert b"num_requests_running" in roundtrip(server, request_bytes("/metrics")).body
    models = roundtrip(server, request_bytes("/v1/models")).json()
    assert [model["id"] for model in models["data"]] == [NAME]
    assert roundtrip(server, request_bytes("/v1/models/" + NAME)).json()["id"] == NAME
    unknown = roundtrip(server, request_bytes("/v1/models/other"))
    assert (unknown.status, unknown.json()["error"]["param"]) == (404, "model")


# Connections and headers.

def test_pipelined_requests_are_answered_in_order(server):
    with connect(server) as sock:
        sock.sendall(request_bytes("/v1/completions", GOOD) + request_bytes("/version")
                     + request_bytes("/v1/completions", GOOD) + request_bytes("/health"))
        rest, bodies = b"", []
        for _ in range(4):
            response, rest = read_response(sock, rest)
            assert response.status == 200
            bodies.append(response.json())
    assert "choices" in bodies[0] and "version" in bodies[1]
    assert bodies[2]["choices"] == bodies[0]["choices"] and bodies[3] == {"status": "ok"}


def test_refusal_of_a_small_body_keeps_the_connection(server):
    with connect(server) as sock:
        head, _, body = request_bytes("/v1/nothing", GOOD).partition(b"\r\n\r\n")
        sock.sendall(head + b"\r\n\r\n")
        sock.sendall(body)
        response, rest = read_response(sock)
        assert response.status == 404
        sock.sendall(request_bytes("/version"))
        assert read_response(sock, rest)[0].status == 200


def test_stream_leaves_the_connection_usable(server):
    with open_stream(server, max_tokens=3) as sock:
        received = read_until(sock, b"0\r\n\r\n")
        assert b"data: [DONE]" in received
        head = received.split(b"\r\n\r\n")[0].lower()
        assert b"content-type: text/event-stream; charset=utf-8" in head
        assert b"cache-control: no-cache" in head and b"x-accel-buffering: no" in head
        sock.sendall(request_bytes("/version"))
        assert read_response(sock)[0].status == 200


def test_http_1_0_stream_ends_with_the_connection(server):
    body = b'{"model":"%s","prompt":"Hi","max_tokens":3,"stream":true}' % NAME.encode()
    received = exchange(server, b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s"
                        % (len(body), body))
    assert b"chunked" not in received.lower()
    assert received.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("sent, is_echoed", [("abc-1.2:3_X", True), ("two words", False),
                                             ("a" * 200, False)])
def test_request_id(server, sent, is_echoed):
    response = roundtrip(server, request_bytes("/version", headers=[("X-Request-Id", sent)]))
    assert (response.headers["x-request-id"] == sent) == is_echoed
    assert response.headers["x-request-id"]


def test_a_compressed_body_is_415(server):
    for coding, status in (("gzip", 415), ("deflate, gzip", 415), ("identity", 200), ("", 200)):
        reply = httpx.post(server.url + "/v1/completions", json={"prompt": "a", "max_tokens": 1}, headers={"Content-Encoding": coding})
        assert reply.status_code == status
        if status == 415:
            assert reply.json()["error"]["code"] == "unsupported_encoding" and coding in reply.json()["error"]["message"]


def test_a_slash_may_end_a_path(server):
    for path in ("/v1/models", f"/v1/models/{NAME}", "/health", "/models"):
        assert httpx.get(server.url + path + "/").json() == httpx.get(server.url + path).json()
        assert httpx.get(server.url + path + "//").status_code == 404
    assert httpx.post(server.url + "/v1/completions/", json={"prompt": "a", "max_tokens": 1}).status_code == 200
    assert httpx.get(server.url + "/v1/completions/").status_code == 405
