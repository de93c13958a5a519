"""HTTP by hand: bytes in, bytes out, for requests no client library would send."""

import json
import socket
import time


def connect(server, receive_buffer=None):
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(30)
    sock.connect(("127.0.0.1", server.port))
    tls = getattr(server, "tls", None)
    return tls.wrap_socket(sock, server_hostname="localhost") if tls else sock


def request_bytes(path, body=None, method=None, headers=(), host="localhost"):
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines.append(f"Content-Length: {len(data)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def read_until_close(sock):
    """All bytes up to the end; a reset counts as one."""
    received = b""
    try:
        while data := sock.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


def exchange(server, data):
    """Sends data, and returns what comes until the server closes."""
    with connect(server) as sock:
        sock.sendall(data)
        return read_until_close(sock)


def read_until(sock, marker, received=b""):
    while marker not in received:
        data = sock.recv(65536)
        assert data, f"closed before {marker!r}: {received[-500:]!r}"
        received += data
    return received


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


def read_response(sock, rest=b""):
    """One response with a Content-Length; returns it and the bytes that came after it."""
    head, _, rest = read_until(sock, b"\r\n\r\n", rest).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in
               (line.partition(":") for line in lines[1:])}
    length = int(headers.get("content-length", 0))
    while len(rest) < length:
        data = sock.recv(65536)
        assert data, "closed inside a body"
        rest += data
    return Response(int(lines[0].split()[1]), headers, rest[:length]), rest[length:]


def roundtrip(server, data):
    with connect(server) as sock:
        sock.sendall(data)
        return read_response(sock)[0]


def statuses(received):
    """Status codes of all responses in a run of bytes."""
    return [int(line.split()[1]) for line in received.split(b"\r\n")
            if line.startswith(b"HTTP/1.")]


def open_stream(server, receive_buffer=None, **fields):
    """Starts a streamed completion and returns its socket."""
    body = {"model": "smollm2", "prompt": "Once upon a time", "stream": True, "temperature": 0,
            "ignore_eos": True, **fields}
    sock = connect(server, receive_buffer)
    sock.sendall(request_bytes("/v1/completions", body))
    return sock


def wait_until(condition, timeout=30):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {timeout} s"
        time.sleep(0.02)
