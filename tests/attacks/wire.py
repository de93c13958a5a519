"""HTTP by hand, for requests that no client library would send, and a strict reading of what comes back."""

import json
import socket
import struct
import time

ERROR_MEMBERS = {"message", "type", "param", "code"}


HOST = b"Host: localhost\r\n"


def request_bytes(path, body=None, method=None, headers=()):
    """A request with JSON, or bytes as they are."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = [*headers] if body is None else [*headers, ("Content-Type", "application/json"), ("Content-Length", len(data))]
    head = f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1\r\n".encode() + HOST
    return head + b"".join(f"{name}: {value}\r\n".encode() for name, value in fields) + b"\r\n" + data


def authorization(key):
    """The header field of an API key; nothing for None."""
    return [("Authorization", f"Bearer {key}")] if key else []


def closing(request):
    """The same request, after which the connection ends."""
    return request.replace(HOST, HOST + b"Connection: close\r\n")


def open_socket(address, source=None, receive_buffer=None, timeout=10, tls=None):
    """`address` is a port of 127.0.0.1 or the path of a UNIX socket; `source`, an address of 127/8 to come from; `tls`, an
    ssl.SSLContext."""
    is_unix = isinstance(address, str)
    sock = socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET)
    try:
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source and not is_unix:
            sock.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
            sock.bind((source, 0))
        sock.settimeout(timeout)
        sock.connect(address if is_unix else ("127.0.0.1", address))
        return tls.wrap_socket(sock, server_hostname="localhost") if tls else sock
    except OSError:
        sock.close()
        raise


def reset(sock):
    """Closes with RST instead of FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def read_to_end(sock, seconds, most=1 << 26):
    """(bytes, whether the peer closed): what comes until then, at most `most` bytes and for `seconds`."""
    # A window of a few KB drops segments that the sender repeats after seconds: only who does not read keeps one.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    received, deadline = bytearray(), time.monotonic() + seconds
    while len(received) < most:
        left = deadline - time.monotonic()
        if left <= 0:
            return bytes(received), False
        sock.settimeout(left)
        try:
            data = sock.recv(65536)
        except TimeoutError:
            return bytes(received), False
        except OSError:
            return bytes(received), True
        if not data:
            return bytes(received), True
        received += data
    return bytes(received), False


class Answer:
    def __init__(self, status, fields, body):
        self.status, self.fields, self.body = status, fields, body

    def error(self):
        """The error object, or None where the body is anything else."""
        try:
            error = json.loads(self.body.decode()).get("error")
        except (ValueError, AttributeError):
            return None
        return error if isinstance(error, dict) and set(error) >= ERROR_MEMBERS else None


def take_chunks(rest):
    body = b""
    while True:
        line, found, rest = rest.partition(b"\r\n")
        size = int(line.split(b";")[0], 16) if found else 0
        if size == 0:
            return body, rest.partition(b"\r\n")[2]
        body, rest = body + rest[:size], rest[size + 2:]


def answers(received):
    """All answers in a run of bytes; what is none, or is cut, stands at the end with status 0."""
    found, rest = [], received
    while rest:
        head, is_whole, rest = rest.partition(b"\r\n\r\n")
        if not is_whole or not head.startswith(b"HTTP/1."):
            return found + [Answer(0, {}, head + rest)]
        lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        status = int(lines[0].split()[1])
        if status < 200 or status == 204:
            body = b""
        elif "chunked" in fields.get("transfer-encoding", ""):
            body, rest = take_chunks(rest)
        else:
            length = int(fields.get("content-length", len(rest)))
            if len(rest) < length:
                return found + [Answer(0, fields, rest)]
            body, rest = rest[:length], rest[length:]
        found.append(Answer(status, fields, body))
    return found


def exchange(address, data, seconds=5, **where):
    """Sends data, even while answers come, and returns (answers, whether the peer closed)."""
    with open_socket(address, **where) as sock:
        try:
            sock.sendall(data)
        except OSError:
            pass
        received, is_closed = read_to_end(sock, seconds)
    return answers(received), is_closed


def refusal_problem(found, is_closed, wanted):
    """What is wrong with a refusal: it is to be one answer with a status of `wanted`, OpenAI's error object as JSON,
    and the end of the connection. None when it is."""
    said = [answer.status for answer in found]
    if len(found) != 1 or said[0] not in wanted:
        return f"answers {said}, wanted one of {sorted(wanted)}"
    if not found[0].fields.get("content-type", "").startswith("application/json") or not found[0].error():
        return f"{said[0]} without the error object: {found[0].body[:60]!r}"
    if not is_closed:
        return f"{said[0]}, but the connection stays open"
    return None


def completion(key=None, **fields):
    body = {"model": "victim", "prompt": "x", "max_tokens": 1, "temperature": 0, **fields}
    return request_bytes("/v1/completions", body, headers=authorization(key))


def announce(length, path="/v1/completions", method="POST"):
    """The head of a request whose body never comes, or comes later."""
    return (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n\r\n").encode()
