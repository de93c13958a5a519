"""Many calls at once from one thread, each at its time and on a connection of its own, whoever is waited for."""

import heapq
import select
import socket
import ssl
import time

from wire import answers, open_socket

READ_BYTES = 65536
CUT = "cut"
LAST_CHUNK = b"0\r\n\r\n"


class Call:
    """A request, which should end its connection, and what came of it. Times are of time.monotonic(), None where nothing
    came; `at` is when it should be sent, in seconds after the start."""
    __slots__ = ("request", "at", "label", "source", "began", "first", "ended", "received", "error", "sock", "unsent")

    def __init__(self, request, at=0.0, label=None, source=None):
        self.request, self.at, self.label, self.source = request, at, label, source
        self.began = self.first = self.ended = self.error = self.sock = None
        self.received, self.unsent = bytearray(), request

    @property
    def status(self):
        """0 where there is no answer, or the head of one is not whole."""
        return int(self.received[9:12]) if len(self.received) > 12 else 0

    def has_begun(self):
        """A stream's head comes before its first token."""
        head, _, body = self.received.partition(b"\r\n\r\n")
        return b"data: " in body if b"text/event-stream" in head else bool(head)

    def answer(self):
        found = answers(bytes(self.received))
        return found[0] if len(found) == 1 else None

    def is_whole_stream(self):
        return self.status == 200 and self.received.endswith(LAST_CHUNK) and b"data: [DONE]\n\n" in self.received[-64:]


class Flow:
    """`tls` is an ssl.SSLContext where the server speaks TLS; `again(call)` says what follows a call that has ended: a call,
    or None."""

    def __init__(self, address, tls=None, again=None):
        self.address, self.tls, self.again = address, tls, again
        self.poll, self.calls = select.epoll(), {}

    def run(self, calls, seconds, tick=None, tick_s=0.1):
        """Sends all of them and reads until each has ended or the seconds are over; `tick(now)` is called now and then, and
        ends the run by returning True. Calls that have not ended are cut."""
        start = time.monotonic()
        coming = [(call.at, i, call) for i, call in enumerate(calls)]
        heapq.heapify(coming)
        next_tick = start
        while coming or self.calls:
            now = time.monotonic()
            if now - start > seconds:
                break
            while coming and coming[0][0] <= now - start:
                self.begin(heapq.heappop(coming)[2])
            if tick and now >= next_tick:
                next_tick = now + tick_s
                if tick(now):
                    break
            wait = min(coming[0][0] - (now - start) if coming else 1, next_tick - now if tick else 1)
            for fd, events in self.poll.poll(max(wait, 0)):
                self.serve(self.calls[fd], events)
        for call in list(self.calls.values()):
            self.end(call, CUT)

    def begin(self, call):
        call.began = time.monotonic()
        try:
            call.sock = open_socket(self.address, call.source)
            if self.tls:
                call.sock.setblocking(False)
                call.sock = self.tls.wrap_socket(call.sock, server_hostname="localhost", do_handshake_on_connect=False)
            call.sock.setblocking(False)
        except OSError as error:
            call.error, call.ended = type(error).__name__, time.monotonic()
            return
        self.calls[call.sock.fileno()] = call
        self.poll.register(call.sock, select.EPOLLIN | select.EPOLLOUT)

    def serve(self, call, events):
        try:
            if call.unsent:
                call.unsent = call.unsent[call.sock.send(call.unsent):]
            if not call.unsent:
                self.poll.modify(call.sock, select.EPOLLIN)
            if events & ~select.EPOLLOUT:
                self.read(call)
        except (BlockingIOError, ssl.SSLWantReadError):
            self.poll.modify(call.sock, select.EPOLLIN)
        except ssl.SSLWantWriteError:
            self.poll.modify(call.sock, select.EPOLLIN | select.EPOLLOUT)
        except OSError as error:
            self.end(call, type(error).__name__)

    def read(self, call):
        """TLS keeps what it has decrypted: all of it is taken."""
        while True:
            data = call.sock.recv(READ_BYTES)
            if not data:
                self.end(call, None)
                return
            call.received += data
            if not call.first and call.has_begun():
                call.first = time.monotonic()
            if not isinstance(call.sock, ssl.SSLSocket):
                return

    def end(self, call, error):
        call.ended, call.error = time.monotonic(), error
        if call.sock.fileno() >= 0:
            self.calls.pop(call.sock.fileno(), None)
            call.sock.close()
        following = self.again(call) if self.again and error != CUT else None
        if following:
            self.begin(following)


def percentile(values, share):
    """Nearest rank; None without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
