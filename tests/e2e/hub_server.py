"""A hub for the tests: the part of Hugging Face's that is asked for models, with a second host for large files, to which
it redirects as there. It notes every request, and fails in every way that a test asks for.

    with Hub() as hub:
        hub.add("org/name", {"config.json": b"{}", "model.gguf": Content(...)})
        subprocess.run(["quire", "pull", "org/name"], env={"HF_ENDPOINT": hub.url, ...})

As a program it serves one folder, for the documentation: hub_server.py ORG/NAME FOLDER [PORT]
"""

import hashlib
import json
import re
import ssl
import sys
import threading
import time
import urllib.parse
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CHUNK = 1 << 18


class Content:
    """So many bytes without holding them: a pattern that repeats."""

    def __init__(self, size, pattern=b"quire"):
        repeated = pattern * (2 * CHUNK // len(pattern) + 1)
        self.size, self.period, self.pattern = size, len(pattern), memoryview(repeated)
        digest = hashlib.sha256()
        for piece in self.pieces(0, size):
            digest.update(piece)
        self.sha256 = digest.hexdigest()

    def pieces(self, begin, end):
        while begin < end:
            at = begin % self.period
            piece = self.pattern[at:at + min(CHUNK, end - begin)]
            yield piece
            begin += len(piece)


class Bytes(Content):
    def __init__(self, data):
        self.data, self.size, self.sha256 = memoryview(data), len(data), hashlib.sha256(data).hexdigest()

    def pieces(self, begin, end):
        for at in range(begin, end, CHUNK):
            yield self.data[at:min(at + CHUNK, end)]


@dataclass
class File:
    content: Content
    is_large: bool

    @property
    def etag(self):
        """SHA-256 of what is in large-file storage, git's hash of the rest."""
        if self.is_large:
            return self.content.sha256
        data = b"".join(bytes(piece) for piece in self.content.pieces(0, self.content.size))
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Faults:
    """What goes wrong, by name of a file or for all of them."""
    cut: object = None  # () -> bytes of a body after which the connection breaks, or None
    answers: list = field(default_factory=list)  # (part of a path, status, fields), each used once
    ignores_range: bool = False
    wrong_bytes: set = field(default_factory=set)  # names whose content is another of the same size
    linked_size: dict = field(default_factory=dict)  # name: what X-Linked-Size and the list say
    body_size: dict = field(default_factory=dict)  # name: bytes that are sent
    drips: set = field(default_factory=set)  # names whose body comes by ten bytes a second, "" is a listing, once each
    stalls: set = field(default_factory=set)  # names after whose first bytes nothing comes, once each
    seconds_per_chunk: float = 0.0
    redirect: str | None = None  # where large files are instead
    listing: object = None  # bytes instead of the list of files
    without_hashes: bool = False  # an ETag that says nothing, and no hash in the list


class Hub:
    def __init__(self, token=None, port=0, certificate=None):
        """certificate: PEM file, with its key; the front then speaks TLS as localhost."""
        self.token, self.faults = token, Faults()
        self.repositories, self.gated, self.private = {}, set(), set()
        self.requests, self.begins, self.sent, self.leaks = [], [], Counter(), []
        self.lock = threading.Lock()
        self.front = self.start("127.0.0.1", port, FrontHandler)
        self.store = self.start("127.0.0.2", 0, StoreHandler)
        self.url = f"http://127.0.0.1:{self.front.server_port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.front.socket = context.wrap_socket(self.front.socket, server_side=True)
            self.url = f"https://localhost:{self.front.server_port}"
        self.store_url = f"http://127.0.0.2:{self.store.server_port}"

    def start(self, host, port, handler):
        server = ThreadingHTTPServer((host, port), handler)
        server.daemon_threads, server.hub = True, self
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server

    def close(self):
        for server in (self.front, self.store):
            server.shutdown()
            server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def add(self, name, files, revision="main"):
        """Makes a commit of it; returns its name."""
        made = {}
        for path, content in files.items():
            content = content if isinstance(content, Content) else Bytes(content)
            made[path] = File(content, path.endswith((".gguf", ".safetensors")))
        listed = json.dumps([(path, made[path].etag) for path in sorted(made)])
        commit = hashlib.sha1(f"{name} {listed}".encode()).hexdigest()
        commits = self.repositories.setdefault(name, {})
        commits[commit] = commits[revision] = (commit, made)
        return commit

    def find_large(self, sha256):
        for commits in self.repositories.values():
            for _, files in commits.values():
                for path, file in files.items():
                    if file.content.sha256 == sha256:
                        return path, file
        return None

    def count(self, method, part):
        """Requests to the front whose path has that part."""
        return sum(1 for host, verb, path in self.requests if host == "front" and verb == method and part in path)

    def bytes_sent(self):
        return sum(self.sent.values())

    def forget(self):
        self.requests, self.begins, self.sent = [], [], Counter()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    host = ""

    def log_message(self, *_):
        pass

    @property
    def hub(self):
        return self.server.hub

    def do_HEAD(self):
        self.serve()

    def do_GET(self):
        self.serve()

    def serve(self):
        with self.hub.lock:
            self.hub.requests.append((self.host, self.command, self.path))
        try:
            if not self.answer_planned():
                self.respond()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer_planned(self):
        with self.hub.lock:
            for planned in self.hub.faults.answers:
                part, status, fields = planned
                if part in f"{self.host} {self.command} {self.path}":
                    self.hub.faults.answers.remove(planned)
                    break
            else:
                return False
        if status is None:  # no answer at all
            self.close_connection = True
            return True
        self.say(status, b"" if status < 400 else b'{"error": "planned"}', fields)
        return True

    def say(self, status, body=b"", fields=None):
        self.send_response(status)
        for name, value in (fields or {}).items():
            self.send_header(name, str(value))
        if "Content-Length" not in (fields or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and not ("application/json" in (fields or {}).values() and self.drip("", body)):
            self.wfile.write(body)

    def drip(self, name, content):
        """Returns whether it is one that drips; then somebody else has hung up."""
        if name not in self.hub.faults.drips:
            return False
        self.hub.faults.drips.discard(name)
        try:
            for i in range(100):
                self.wfile.write(content[i:i + 1])
                time.sleep(0.1)
        except OSError:
            pass
        self.close_connection = True
        return True

    def fail(self, status, code=None, message=""):
        self.say(status, json.dumps({"error": message}).encode(),
                 {**({"X-Error-Code": code} if code else {}), "X-Error-Message": message or code or ""})

    def say_content(self, path, file, fields):
        """Its bytes from where a range says, with all that may go wrong on the way."""
        faults, content = self.hub.faults, file.content
        size = faults.body_size.get(path, content.size)
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        begin = int(wanted[1]) if wanted and not faults.ignores_range else 0
        if begin >= size and begin > 0:
            return self.say(416, b"", {"Content-Range": f"bytes */{size}"})
        fields = {**fields, "Content-Length": size - begin, "Accept-Ranges": "bytes"}
        if begin > 0 or (wanted and not faults.ignores_range):
            fields["Content-Range"] = f"bytes {begin}-{size - 1}/{size}"
        self.say(206 if "Content-Range" in fields else 200, b"", fields)
        if self.command == "HEAD":
            return None
        return self.send_body(path, content, begin, size)

    def send_body(self, path, content, begin, size):
        faults = self.hub.faults
        with self.hub.lock:
            self.hub.begins.append((path, begin))
        if self.drip(path, b"".join(map(bytes, content.pieces(begin, min(size, begin + 1000))))):
            return
        end = size
        limit = faults.cut() if faults.cut else None
        if path in faults.stalls:
            limit = min(1000, size - begin)
        if limit is not None:
            end = min(size, begin + limit)
        for piece in content.pieces(begin, min(end, content.size)):
            piece = bytes(len(piece)) if path in faults.wrong_bytes else piece
            self.wfile.write(piece)
            with self.hub.lock:
                self.hub.sent[path] += len(piece)
            if faults.seconds_per_chunk:
                time.sleep(faults.seconds_per_chunk)
        if end > content.size:
            self.wfile.write(bytes(end - content.size))
        if path in faults.stalls:
            faults.stalls.discard(path)
            time.sleep(4)
        if end < size:
            self.close_connection = True


class StoreHandler(Handler):
    """Where large files are; nobody may bring a token here."""
    host = "store"

    def respond(self):
        if self.headers.get("Authorization"):
            self.hub.leaks.append(self.path)
        found = self.hub.find_large(urllib.parse.urlsplit(self.path).path.rpartition("/")[2])
        if found is None:
            return self.fail(403)
        return self.say_content(*found, {"ETag": '"of-the-store"'})


class FrontHandler(Handler):
    host = "front"

    def respond(self):
        path = urllib.parse.urlsplit(self.path).path
        for pattern, answer in ((r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", self.answer_list),
                                (r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", self.answer_tree),
                                (r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.answer_file)):
            match = re.fullmatch(pattern, path)
            if match:
                return self.answer_repository(answer, *map(urllib.parse.unquote, match.groups()))
        return self.fail(404)

    def answer_repository(self, answer, name, revision, *rest):
        given = self.headers.get("Authorization")
        if given and given != f"Bearer {self.hub.token}":
            return self.fail(401, None, "Invalid credentials in Authorization header")
        if name not in self.hub.repositories or (name in self.hub.private and not given):
            return self.fail(404 if given else 401, "RepoNotFound", "Repository not found")
        if revision not in self.hub.repositories[name]:
            return self.fail(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if name in self.hub.gated and not given and answer == self.answer_file:
            return self.fail(401, "GatedRepo", "Access to this model is restricted")
        return answer(name, *self.hub.repositories[name][revision], *rest)

    def size(self, path, file):
        return self.hub.faults.linked_size.get(path, file.content.size)

    def answer_list(self, name, commit, files):
        if self.hub.faults.listing is not None:
            return self.say(200, self.hub.faults.listing, {"Content-Type": "application/json"})
        siblings = []
        for path, file in files.items():
            entry = {"rfilename": path, "size": self.size(path, file), "blobId": hashlib.sha1(path.encode()).hexdigest()}
            if file.is_large:
                entry["lfs"] = {"sha256": file.etag, "size": self.size(path, file), "pointerSize": 134}
            else:
                entry["blobId"] = file.etag
            if self.hub.faults.without_hashes:
                entry = {"rfilename": path}
            siblings.append(entry)
        return self.say_json({"id": name, "sha": commit, "private": False, "siblings": siblings})

    def answer_tree(self, name, commit, files):
        return self.say_json([{"type": "file", "oid": file.etag[:40], "size": file.content.size, "path": path,
                               **({"lfs": {"oid": file.etag, "size": file.content.size, "pointerSize": 134}}
                                  if file.is_large else {})} for path, file in files.items()])

    def say_json(self, value):
        return self.say(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def answer_file(self, name, commit, files, path):
        if path not in files:
            return self.say(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        file = files[path]
        if self.hub.faults.without_hashes:
            return self.say_content(path, file, {"X-Repo-Commit": commit, "ETag": '"v1-of-it"'})
        if not file.is_large:
            return self.say_content(path, file, {"X-Repo-Commit": commit, "ETag": f'"{file.etag}"'})
        where = self.hub.faults.redirect or f"{self.hub.store_url}/blob/{file.etag}?signature=x"
        return self.say(302, b"", {"X-Repo-Commit": commit, "X-Linked-Etag": f'"{file.etag}"',
                                   "X-Linked-Size": self.size(path, file), "Location": where})


def main(name, folder, port=0):
    with Hub(port=int(port)) as hub:
        hub.add(name, {str(path.relative_to(folder)): path.read_bytes()
                       for path in sorted(Path(folder).rglob("*")) if path.is_file()})
        print(hub.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
