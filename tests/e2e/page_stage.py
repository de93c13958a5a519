"""A server that passes everything on to the real binary, header fields included, but for the chat: its
replies are scripted, so that a test says what the model writes and when."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

PASSED_ON = {"accept", "authorization", "if-none-match"}
HELD_BACK = {"date", "server", "connection", "content-length", "content-encoding", "transfer-encoding"}


def delta(**fields):
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def text_chunks(text, size=3):
    """A role, the text in pieces, the end and the usage, in a chat stream's order."""
    pieces = [text[at:at + size] for at in range(0, len(text), size)]
    yield delta(role="assistant", content="")
    yield from (delta(content=piece) for piece in pieces)
    end = delta()
    end["choices"][0]["finish_reason"] = "stop"
    yield end
    usage = {"prompt_tokens": 10, "completion_tokens": len(pieces),
             "total_tokens": 10 + len(pieces)}
    yield {**delta(), "choices": [], "usage": usage}


class Stage:
    """`reply` makes the events of the next chats: an iterable of chunks, or (status, body) for an answer
    without a stream. `chats` collects the bodies that came, `paths` where to; `models`, if set, makes the answer to
    /v1/models, and `events` that to /models/sse, like `reply`."""

    def __init__(self, server):
        stage = self
        self.target, self.chats, self.paths, self.reply = server.url, [], [], lambda: text_chunks("Hello")
        self.models = self.events = None
        self.gate = threading.Event()  # a script may wait for it
        self.gone = threading.Event()  # the client closed a stream before its end

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                stage.pass_on(self)

            def do_POST(self):
                stage.chat(self)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def pass_on(self, handler):
        if self.models and handler.path == "/v1/models":
            status, body = self.models()
            self.answer(handler, status, [("Content-Type", "application/json")], json.dumps(body).encode())
            return
        if self.events and handler.path == "/models/sse":
            self.send(handler, self.events())
            return
        fields = {name: value for name, value in handler.headers.items() if name.lower() in PASSED_ON}
        answer = httpx.get(self.target + handler.path, headers=fields)
        kept = [(name, value) for name, value in answer.headers.items() if name not in HELD_BACK]
        self.answer(handler, answer.status_code, kept, answer.content)

    def chat(self, handler):
        self.paths.append(handler.path)
        self.chats.append(json.loads(handler.rfile.read(int(handler.headers["Content-Length"]))))
        self.send(handler, self.reply())

    def send(self, handler, reply):
        if isinstance(reply, tuple):
            status, body = reply
            self.answer(handler, status, [("Content-Type", "application/json")], json.dumps(body).encode())
            return
        handler.close_connection = True
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Connection", "close")
        handler.end_headers()
        try:
            for event in reply:
                handler.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            handler.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            self.gone.set()

    @staticmethod
    def answer(handler, status, fields, body):
        handler.send_response(status)
        for name, value in fields:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def close(self):
        self.gate.set()
        self.http.shutdown()
        self.http.server_close()
