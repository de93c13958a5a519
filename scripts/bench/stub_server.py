#!/usr/bin/env python3
"""A server that computes nothing: answers completions at once with as many tokens as they ask for, to learn what a
load generator can take in at most.

Prints the port of 127.0.0.1 that it listens on; ends with its standard input. With a port as its argument it listens
there until it is ended. All streams are sent a token in turn,
one event in a chunk and a write of its own, as a server does that computes them in steps.
"""

import re
import select
import socket
import sys

MAX_TOKENS = re.compile(rb'"max_tokens": ?(\d{1,7})')
STREAM = re.compile(rb'"stream": ?true')
LENGTH = re.compile(rb"\r\nContent-Length: (\d{1,9})\r\n", re.IGNORECASE)
EVENT = (b'data: {"id":"cmpl-0","object":"text_completion","created":0,"model":"stub","choices":[{"index":0,'
         b'"text":" word","logprobs":null,"finish_reason":null}],"usage":null}\n\n')
USAGE = b'"usage":{"prompt_tokens":1,"completion_tokens":%d,"total_tokens":%d}'
LAST = b'data: {"id":"cmpl-0","object":"text_completion","created":0,"model":"stub","choices":[],' + USAGE + b"}\n\n"
WHOLE = (b'{"id":"cmpl-0","object":"text_completion","created":0,"model":"stub","choices":[{"index":0,"text":"%s",'
         b'"logprobs":null,"finish_reason":"length"}],' + USAGE + b"}")
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


TOKEN = chunk(EVENT)


class Client:
    def __init__(self, sock):
        self.sock, self.received, self.unsent = sock, b"", b""
        self.tokens = self.left = 0  # of the stream

    def send(self, data):
        """What does not fit waits for the next time."""
        data = self.unsent + data
        try:
            self.unsent = data[self.sock.send(data):]
        except BlockingIOError:
            self.unsent = data

    def step(self):
        if self.unsent:
            self.send(b"")
        elif self.left > 0:
            self.left -= 1
            self.send(TOKEN if self.left > 0 else
                      TOKEN + chunk(LAST % (self.tokens, self.tokens + 1)) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    def receive(self):
        """Returns whether the client is still there."""
        data = self.sock.recv(256 << 10)
        self.received += data
        head = self.received.find(b"\r\n\r\n")
        if head >= 0:
            length = LENGTH.search(self.received, 0, head + 2)
            end = head + 4 + (int(length[1]) if length else 0)
            if len(self.received) >= end:
                body, self.received = self.received[head + 4:end], self.received[end:]
                self.answer(body)
        return bool(data)

    def answer(self, body):
        found = MAX_TOKENS.search(body)
        tokens = int(found[1]) if found else 16
        if STREAM.search(body):
            self.tokens = self.left = tokens
            self.send(STREAM_HEAD)
        else:
            answer = WHOLE % (b" word" * tokens, tokens, tokens + 1)
            self.send(WHOLE_HEAD % len(answer) + answer)


def serve(listener, ends_with_input):
    poll, clients = select.epoll(), {}
    if ends_with_input:
        poll.register(sys.stdin, select.EPOLLIN)
    poll.register(listener, select.EPOLLIN)
    while True:
        busy = [client for client in clients.values() if client.left or client.unsent]
        for fd, _ in poll.poll(0 if busy else None):
            if ends_with_input and fd == sys.stdin.fileno():
                return
            if fd == listener.fileno():
                sock, _ = listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[sock.fileno()] = Client(sock)
                poll.register(sock, select.EPOLLIN)
                continue
            try:
                is_there = clients[fd].receive()
            except OSError:
                is_there = False
            if not is_there:
                clients.pop(fd).sock.close()
        for client in busy:
            try:
                client.step()
            except OSError:
                client.left, client.unsent = 0, b""  # its end is seen above


def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    with socket.create_server(("127.0.0.1", port), backlog=1024) as listener:
        print(listener.getsockname()[1], flush=True)
        serve(listener, ends_with_input=port == 0)


if __name__ == "__main__":
    main()
