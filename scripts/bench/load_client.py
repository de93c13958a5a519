#!/usr/bin/env python3
"""One process's part of a load (load_run.py starts several): sends completions over its share of the connections and
notes when what came.

Reads jobs, one JSON object a line, from standard input; says "ready" when its connections are open, waits for
"go TIME" (of the monotonic clock, which all processes share), and writes one JSON object with what it saw. Ends with
its input, also in the middle of a job.

  {"host": ..., "port": ..., "path": ..., "stream": true, "connections": 4, "timeout": 600, "seconds": 0,
   "requests": [{"body": "...", "tokens": 128, "at": 0.5}, ...], "repeat": false}

A request is sent as soon as a connection is free and, with "at", that many seconds after the start are over; its
times count from then. "seconds": what is under way by then is cut short; 0: all requests are answered. "tokens":
how many the answer should have. "repeat": the requests go round until the seconds are over.
"""

import json
import re
import select
import socket
import sys
import time

from http_response import HttpError, ResponseReader

RECEIVE_BYTES = 256 << 10
MAX_LINE_BYTES = 16 << 20  # of a server-sent event
CHECK_SECONDS = 0.2  # between two looks at the clock, and at standard input
# A chunk like most, which need not be parsed: it has text, no figures and no error.
TEXT = re.compile(rb'"text": ?"[^"]')
MORE = re.compile(rb'"(?:usage|error)": ?\{')


class RequestFailed(Exception):
    """The answer is none."""


def microseconds(seconds):
    return round(1e6 * seconds)


def make_bytes(job, body):
    head = (f"POST {job['path']} HTTP/1.1\r\nHost: {job['host']}:{job['port']}\r\nAccept: */*\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n")
    return head.encode() + body


class Answer:
    """What came for one request, so far."""

    def __init__(self, request, sent, deadline):
        self.request, self.sent, self.deadline = request, sent, deadline
        self.first = self.last = None  # when text came
        self.gaps = []
        self.num_events = 0
        self.tokens = self.prompt_tokens = None  # as the server counts them
        self.rest = b""

    def take_usage(self, answer):
        if answer.get("error"):
            raise RequestFailed(str(answer["error"])[:200])
        usage = answer.get("usage")
        if usage:
            self.tokens, self.prompt_tokens = usage["completion_tokens"], usage.get("prompt_tokens")

    def take_text(self, now):
        self.num_events += 1
        if self.first is None:
            self.first = now
        else:
            self.gaps.append(now - self.last)
        self.last = now

    def take_event(self, data, now):
        if TEXT.search(data) and not MORE.search(data):
            self.take_text(now)
        elif data != b"[DONE]":
            chunk = json.loads(data)
            self.take_usage(chunk)
            choices = chunk.get("choices")
            if choices and choices[0].get("text"):
                self.take_text(now)
            elif choices:
                self.num_events += 1

    def take_stream(self, body, now):
        *lines, self.rest = (self.rest + body).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self.take_event(line[5:].strip(), now)
        if len(self.rest) > MAX_LINE_BYTES:
            raise RequestFailed("an event that is too large")

    def take_whole(self, body):
        self.rest += body

    def end_whole(self, now):
        answer = json.loads(self.rest)
        self.take_usage(answer)
        if self.tokens is None:
            raise RequestFailed("an answer without usage")
        self.last = now


class Connection:
    def __init__(self, part):
        self.part, self.sock, self.answer = part, None, None
        self.unsent = b""

    def open(self):
        self.sock = socket.create_connection(self.part.address, timeout=10)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.reader = ResponseReader()
        self.is_used = False
        self.part.connections[self.sock.fileno()] = self
        self.part.poll.register(self.sock, select.EPOLLIN)

    def close(self):
        if self.sock:
            del self.part.connections[self.sock.fileno()]
            self.sock.close()  # which ends its registration
        self.sock = None

    def begin(self, answer):
        self.answer, self.is_retried = answer, False
        try:
            self.send_request()
        except OSError as error:
            self.part.fail(self, error)

    def send_request(self):
        if self.sock is None:
            self.open()
        self.unsent = self.answer.request["bytes"]
        self.send()

    def send(self):
        try:
            self.unsent = self.unsent[self.sock.send(self.unsent):]
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):  # what the server said before it closed is still to be read
            self.unsent = b""
        wanted = select.EPOLLIN | (select.EPOLLOUT if self.unsent else 0)
        self.part.poll.modify(self.sock, wanted)

    def receive(self):
        """Returns whether the answer is complete."""
        try:
            data = self.sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""
        now, reader, answer = time.monotonic(), self.reader, self.answer
        self.part.num_reads += 1
        if not data and self.retry():
            return False
        if answer is None:  # closed between two requests
            self.close()
            return False
        body = reader.feed(data) if data else (reader.finish() or b"")
        if reader.status == 200 and self.part.is_stream:
            answer.take_stream(body, now)
        elif body:
            answer.take_whole(body)
        if not reader.done:
            return False
        self.end_answer(now)
        return True

    def retry(self):
        """A server may close a connection just when the next request is sent on it."""
        if self.answer is None or not self.is_used or self.is_retried or self.reader.status or self.reader.buffer:
            return False
        self.is_retried = True
        self.close()
        self.send_request()
        return True

    def end_answer(self, now):
        reader, answer = self.reader, self.answer
        if reader.status != 200:
            raise RequestFailed(f"{reader.status} {answer.rest[:200].decode(errors='replace')}")
        if not self.part.is_stream:
            answer.end_whole(now)
        elif answer.first is None:
            raise RequestFailed("no text")
        self.answer, self.is_used = None, True
        if reader.reusable and not reader.buffer:
            reader.begin()
        else:
            self.close()


class LoadPart:
    def __init__(self, job):
        self.address, self.is_stream, self.timeout = (job["host"], job["port"]), job["stream"], job["timeout"]
        self.limit = job["seconds"] or float("inf")
        self.requests, self.repeat, self.next = job["requests"], job["repeat"], 0
        for request in self.requests:
            request["bytes"] = make_bytes(job, request["body"].encode())
        self.poll, self.connections = select.epoll(), {}
        self.poll.register(sys.stdin, select.EPOLLIN)
        self.idle = [Connection(self) for _ in range(job["connections"])]
        self.num_connections = len(self.idle)
        self.num_reads = self.num_events = self.num_failed = self.num_cut = self.cut_tokens = 0
        self.answers, self.firsts, self.gaps, self.errors = [], [], [], []
        try:
            for connection in self.idle:
                connection.open()
        except OSError:
            pass  # the first request on it says why

    def take_request(self, now):
        """The next request whose time has come, or None."""
        if self.next == len(self.requests) and self.repeat:
            self.next = 0
        if self.next == len(self.requests) or self.start + self.requests[self.next].get("at", 0) > now:
            return None
        self.next += 1
        return self.requests[self.next - 1]

    def begin_requests(self, now):
        while self.idle:
            request = self.take_request(now)
            if request is None:
                return
            sent = self.start + request["at"] if "at" in request else now
            self.idle.pop().begin(Answer(request, sent, now + self.timeout))

    def note(self, answer):
        self.num_events += answer.num_events
        self.gaps += map(microseconds, answer.gaps)
        if answer.first is not None:
            self.firsts.append(microseconds(answer.first - answer.sent))

    def end(self, connection, answer):
        """The answer is complete."""
        self.note(answer)
        tokens = answer.num_events if answer.tokens is None else answer.tokens
        self.answers.append((microseconds(answer.last - answer.sent), tokens, answer.request.get("tokens"),
                             answer.prompt_tokens or 0))
        self.idle.append(connection)

    def fail(self, connection, error):
        self.num_failed += 1
        if len(self.errors) < 3:
            self.errors.append(f"{type(error).__name__}: {error}")
        connection.answer = None
        connection.close()
        self.idle.append(connection)

    def handle(self, connection, events):
        answer = connection.answer
        try:
            if events & select.EPOLLOUT:
                connection.send()
            if events & ~select.EPOLLOUT and connection.receive():
                self.end(connection, answer)
        except (HttpError, RequestFailed, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            self.fail(connection, error)

    def end_late(self, now):
        for connection in list(self.connections.values()):
            if connection.answer and connection.answer.deadline < now:
                self.fail(connection, TimeoutError(f"no answer after {self.timeout} s"))

    def finish(self):
        """Closes the connections; what is still under way is cut short."""
        for connection in list(self.connections.values()):
            if connection.answer:
                self.note(connection.answer)
                self.num_cut += 1
                self.cut_tokens += connection.answer.num_events
            connection.close()
        self.poll.close()

    def is_over(self):
        return self.next == len(self.requests) and not self.repeat and len(self.idle) == self.num_connections

    def wait_seconds(self, now):
        seconds = min(CHECK_SECONDS, self.start + self.limit - now)
        if self.idle and self.next < len(self.requests):
            seconds = min(seconds, self.start + self.requests[self.next].get("at", 0) - now)
        return max(0, seconds)

    def run(self, start):
        self.start = start
        time.sleep(max(0, start - time.monotonic()))
        cpu, now, check = time.process_time(), start, start + CHECK_SECONDS
        while now < start + self.limit:
            self.begin_requests(now)
            if self.is_over():
                break
            for fd, events in self.poll.poll(self.wait_seconds(now)):
                if fd == sys.stdin.fileno():
                    sys.exit("whoever started this has gone")
                if fd in self.connections:
                    self.handle(self.connections[fd], events)
            now = time.monotonic()
            if now > check:
                self.end_late(now)
                check = now + CHECK_SECONDS
        self.finish()
        return {"seconds": now - start, "cpu_seconds": time.process_time() - cpu, "answers": self.answers,
                "firsts_us": self.firsts, "gaps_us": self.gaps, "failures": self.num_failed, "errors": self.errors,
                "cut": self.num_cut, "cut_tokens": self.cut_tokens, "events": self.num_events,
                "reads": self.num_reads}


def main():
    for line in sys.stdin:
        part = LoadPart(json.loads(line))
        print("ready", flush=True)
        word, _, start = sys.stdin.readline().partition(" ")
        if word != "go":
            return
        print(json.dumps(part.run(float(start))), flush=True)


if __name__ == "__main__":
    main()
