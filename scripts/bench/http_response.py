"""Reads HTTP/1.1 responses from whatever pieces the network delivers, with bounds on everything."""

import re

MAX_HEAD_BYTES = 64 << 10  # of a head, and of a body's trailers
MAX_BODY_BYTES = 256 << 20
STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\r\n]*)?$")
CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,7})[ \t]*(?:;[^\r\n]{0,256})?\r\n")
MAX_SIZE_LINE = 300
DIGITS = re.compile(r"\d{1,9}$")


class HttpError(Exception):
    """What came is no response, is too large, or ended early."""


class ResponseReader:
    """Reads one response after the other. `status` is 0 until the head is there; `done` says that the response is
    complete, and `reusable` that the connection may then carry another."""

    def __init__(self):
        self.buffer = b""
        self.begin()

    def begin(self):
        """Starts on the next response, of which the first bytes may already be here: feed(b"") reads them."""
        self.status, self.headers, self.done, self.reusable = 0, {}, False, False
        self.left = 0  # bytes of the body, or of its chunk, that are still to come
        self.read_body = None
        self.after_chunk = False
        self.total = 0

    def feed(self, data):
        """Takes what was received; returns the bytes of the body in it."""
        self.buffer = self.buffer + data if self.buffer else data
        if self.done or (self.status == 0 and not self.read_head()):
            return b""
        body = self.read_body()
        self.total += len(body)
        if self.total > MAX_BODY_BYTES:
            raise HttpError("a body that is too large")
        return body

    def finish(self):
        """The connection was closed."""
        if self.done:
            return
        if self.status == 0 or self.read_body != self.read_until_close:
            raise HttpError("closed before the response was complete")
        self.done = True

    def read_head(self):
        while self.status == 0:
            end = self.buffer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES + 4)
            if end < 0:
                if len(self.buffer) >= MAX_HEAD_BYTES:
                    raise HttpError("a head that is too large")
                return False
            head, self.buffer = self.buffer[:end], self.buffer[end + 4:]
            self.parse_head(head.split(b"\r\n"))
        return True

    def parse_head(self, lines):
        match = STATUS_LINE.match(lines[0])
        if not match:
            raise HttpError(f"no status line: {lines[0][:80]!r}")
        if match[2][:1] == b"1":  # an interim response
            return
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.decode("latin-1").partition(":")
            name, value = name.lower(), value.strip()
            if not colon or not name or name != name.strip():
                raise HttpError(f"no header: {line[:80]!r}")
            if name == "content-length" and headers.get(name, value) != value:
                raise HttpError("two different lengths")
            headers[name] = value
        self.headers, self.status = headers, int(match[2])
        self.reusable = match[1] == b"1" and headers.get("connection", "").lower() != "close"
        self.choose_body()

    def choose_body(self):
        coding, length = self.headers.get("transfer-encoding"), self.headers.get("content-length")
        if self.status in (204, 304):
            self.left, self.read_body = 0, self.read_length
        elif coding is not None:
            if coding.lower() != "chunked":
                raise HttpError(f"transfer-encoding {coding[:80]}")
            self.read_body = self.read_chunks
        elif length is not None:
            if not DIGITS.match(length) or int(length) > MAX_BODY_BYTES:
                raise HttpError(f"content-length {length[:80]}")
            self.left, self.read_body = int(length), self.read_length
        else:
            self.reusable, self.read_body = False, self.read_until_close

    def read_until_close(self):
        body, self.buffer = self.buffer, b""
        return body

    def read_length(self):
        body, self.buffer = self.buffer[:self.left], self.buffer[self.left:]
        self.left -= len(body)
        self.done = self.left == 0
        return body

    def read_chunks(self):
        buffer, at, body = self.buffer, 0, []
        while at < len(buffer):
            if self.left > 0:
                body.append(buffer[at:at + self.left])
                at += len(body[-1])
                self.left -= len(body[-1])
                self.after_chunk = self.left == 0
            elif self.after_chunk:
                if len(buffer) - at < 2:
                    break
                if buffer[at:at + 2] != b"\r\n":
                    raise HttpError("a chunk is longer than it says")
                at, self.after_chunk = at + 2, False
            else:
                size = CHUNK_SIZE.match(buffer, at)
                if not size:
                    if len(buffer) - at > MAX_SIZE_LINE or b"\n" in buffer[at:]:
                        raise HttpError(f"no size of a chunk: {buffer[at:at + 20]!r}")
                    break
                self.left = int(size[1], 16)
                if self.left == 0:
                    return self.end_chunks(at, size.end(), body)
                at = size.end()
        self.buffer = buffer[at:]
        return b"".join(body)

    def end_chunks(self, last, at, body):
        """The last chunk begins at `last`; trailers, if any, at `at`."""
        end = at - 2 if self.buffer[at:at + 2] == b"\r\n" else self.buffer.find(b"\r\n\r\n", at)
        if end >= 0:
            self.buffer, self.done = self.buffer[end + 4:], True
        elif len(self.buffer) - at > MAX_HEAD_BYTES:
            raise HttpError("trailers that are too large")
        else:
            self.buffer = self.buffer[last:]
        return b"".join(body)
