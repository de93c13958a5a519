"""A server of chats whose answers are scripted, byte by byte: what a client does with them is what is tested."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def chunk(text=None, reasoning=None, finish_reason=None, usage=None):
    """An event of a stream."""
    delta = {name: value for name, value in (("content", text), ("reasoning_content", reasoning)) if value is not None}
    choices = [] if usage else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    return b"data: " + json.dumps({"choices": choices, "usage": usage}, ensure_ascii=False).encode() + b"\n\n"


def answer(text, finish_reason="stop", prompt_tokens=10, completion_tokens=5):
    return [chunk(text), chunk(finish_reason=finish_reason),
            chunk(usage={"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}), b"data: [DONE]\n\n"]


def refusal(message, code):
    return json.dumps({"error": {"message": message, "type": "x", "param": None, "code": code}}).encode()


class ScriptedServer:
    """`script`: what the next chats get, each a list of pieces (bytes; an Event is waited for; None drops the
    connection) or (status, headers, body). `chats`: their bodies; `gone`: set when a client hangs up in a stream. `models`: "data" of the
    list of models."""

    def __init__(self, max_model_len=100):
        self.script, self.chats, self.headers = [], [], []
        self.gone = threading.Event()
        self.models = [{"id": "stub", "max_model_len": max_model_len}]
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def send(self, status, body, headers):
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", "Content-Length": len(body), **headers}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.send(200, json.dumps({"data": scripted.models}).encode(), {})

            def do_POST(self):
                scripted.chats.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                scripted.headers.append(self.headers)
                reply = scripted.script.pop(0)
                if isinstance(reply, tuple):
                    self.send(reply[0], reply[2], reply[1])
                else:
                    self.stream(reply)

            def stream(self, pieces):
                self.close_connection = True
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.send_header("Connection", "close")
                self.end_headers()
                try:
                    for piece in pieces:
                        if piece is None:
                            return
                        if isinstance(piece, threading.Event):
                            self.wait(piece)
                        else:
                            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                            self.wfile.flush()
                    self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    scripted.gone.set()

            def wait(self, event):
                """Comments keep the stream alive, and show that the client is gone."""
                while not event.wait(0.05):
                    self.wfile.write(b"3\r\n:\n\n\r\n")

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
