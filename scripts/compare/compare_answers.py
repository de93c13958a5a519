#!/usr/bin/env python3
"""Sends the same requests to two binaries and shows where the answers differ: after a change that is to change no byte.

    compare_answers.py BEFORE AFTER --model MODEL.gguf [--show N]

The requests are the examples of server/FIELDS.md, what it says is taken and what is refused, each at every path of its row,
whole and streamed, and some of other endpoints. What differs between any two answers (ids, times, fingerprints) is left out.
Ends with status 1 where an answer differs."""

import argparse
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAME = "smollm2"
OTHERS = [("GET", path, None) for path in ("/health", "/live", "/ready", "/v1/models", "/v1/models/smollm2", "/v1/models/none", "/props",
                                           "/tokenizer_info", "/openapi.json", "/nothing", "/v1/responses/resp_none", "/slots")]
OTHERS += [("POST", "/v1/completions", text) for text in (b"", b"{", b"[]", b'{"prompt":1,"prompt":2}', b'{"prompt":"a\xff"}', b'{"prompt":01}',
                                                          b'{"prompt":"a\\u0000b","max_tokens":3,"temperature":0}', b'{"max_tokens":1e400}')]
VARYING = re.compile(
    rb'("(?:id|item_id|call_id|response_id|tool_call_id|request_id|signature|system_fingerprint|build_info|previous_response_id)":\s*)"[^"]*"'
    rb'|("(?:created|created_at|completed_at|[a-z_]*_ms|[a-z_]*_per_second|[a-z_]*_seconds|timestamp|seed|version)":\s*)"?[-+0-9.e]+"?')


def comparable(text):
    """An answer without what varies; chunks of several choices, which come as they are computed, ordered by choice."""
    frames = VARYING.sub(lambda match: match[1] or match[2], text).split(b"\n\n")
    index = re.compile(rb'"index":(\d+)')
    return b"\n\n".join(sorted(frames, key=lambda frame: int((index.search(frame) or [0, 0])[1]))) if len(frames) > 2 else frames[0]


class Server:
    def __init__(self, binary, model, folder):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        self.log = open(Path(folder) / f"{self.port}.log", "wb")
        self.process = subprocess.Popen(
            [binary, "serve", "--model", model, "--served-model-name", NAME, "--port", str(self.port), "--seed", "1",
             "--max-num-seqs", "4", "--kv-cache-memory-bytes", "512M", "--response-store-bytes", "1M"], stdout=self.log, stderr=self.log)
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"{binary} ends with {self.process.returncode}: {Path(self.log.name).read_text()}")
            if self.ask("GET", "/ready", None)[0] == 200:
                return
            time.sleep(0.1)
        sys.exit(f"{binary} does not get ready")

    def ask(self, method, path, body):
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return reply.status, reply.headers.get("X-Ignored-Params"), reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("Retry-After"), error.read()
        except OSError as error:
            return 0, None, str(error).encode()

    def end(self):
        self.process.terminate()
        self.process.wait(60)


def requests():
    sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/e2e/api")]
    from test_fields import body_of, read_rows  # what FIELDS.md says
    seen = set()
    for row in read_rows():
        for path in row.paths:
            for members in [*row.taken, *row.not_taken]:
                for stream in (False, True):
                    body = body_of(path, members) | {"model": members.get("model", NAME)} | ({"stream": True} if stream else {})
                    key = path + json.dumps(body)
                    if (not stream or path.startswith("/v1/")) and key not in seen:
                        seen.add(key)
                        yield "POST", path, body
    yield from OTHERS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--model", required=True)
    parser.add_argument("--show", type=int, default=20)
    options = parser.parse_args()
    count, differing = 0, []
    with tempfile.TemporaryDirectory() as folder:
        servers = [Server(binary, options.model, folder) for binary in (options.before, options.after)]
        try:
            for method, path, body in requests():
                answers = []
                for server in servers:
                    status, header, text = server.ask(method, path, body)
                    answers.append((status, header, comparable(text)))
                count += 1
                if answers[0] != answers[1]:
                    differing.append((method, path, body, *answers))
        finally:
            for server in servers:
                server.end()
    for method, path, body, before, after in differing[:options.show]:
        print(f"{method} {path} {json.dumps(body) if isinstance(body, dict) else body}\n  - {before}\n  + {after}")
    print(f"{count} requests, {len(differing)} answers differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
