"""What a client of the soak does: one call, chosen by weight from a seeded generator, whose answer is checked."""

import http.client
import json
import socket

from front import context_of

MODEL = "victim"
WORDS = "once upon a time there was little one who went into the wood and saw what no other had seen before".split()
PREFIXES = [" ".join(WORDS[i:] + WORDS[:i]) * 3 for i in range(8)]  # of many prompts, for the prefix cache
BUSY = (429, 503)
SECONDS = 120
JSON_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
               "required": ["a", "b"], "additionalProperties": False}
REFUSED = [  # (path, body, status)
    ("/v1/completions", b"{", 400),
    ("/v1/completions", {"model": "another", "prompt": "x"}, 404),
    ("/v1/completions", {"model": MODEL, "prompt": "x", "max_tokens": -2}, 400),
    ("/v1/completions", {"model": MODEL, "prompt": "x", "temperature": "hot"}, 400),
    ("/v1/completions", {"model": MODEL, "prompt": "x " * 20000}, 400),
    ("/v1/completions", {"model": MODEL, "prompt": "x", "guided_regex": "("}, 400),
    ("/v1/nothing", {"model": MODEL}, 404),
]


class Unexpected(Exception):
    """An answer that is not as wanted."""


class Client:
    """One keep-alive connection, opened again where a call closes it."""

    def __init__(self, door, rng):
        self.door, self.rng, self.connection = door, rng, None
        self.tls = context_of(door)
        self.headers = {"Authorization": f"Bearer {door.key}"} if door.key else {}
        self.first = {}  # seed -> what it gave
        self.num_busy = 0  # calls that were answered so

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def connect(self):
        if self.tls:
            return http.client.HTTPSConnection("localhost", self.door.port, timeout=SECONDS, context=self.tls)
        return http.client.HTTPConnection("127.0.0.1", self.door.port, timeout=SECONDS)

    def open_socket(self):
        sock = socket.create_connection(("127.0.0.1", self.door.port), SECONDS)
        return self.tls.wrap_socket(sock, server_hostname="localhost") if self.tls else sock

    def send(self, path, body):
        """The response, not read yet. A connection that the server closed while idle is opened once more."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        for is_last in (False, True):
            is_new = self.connection is None
            self.connection = self.connection or self.connect()
            try:
                self.connection.request("POST", path, data, {"Content-Type": "application/json", **self.headers})
                return self.connection.getresponse()
            except (http.client.RemoteDisconnected, ConnectionError):
                self.close()
                if is_new or is_last:
                    raise

    def call(self, path, body, wanted=200):
        """The parsed answer; None where the server was busy."""
        response = self.send(path, body)
        data = response.read()
        if response.will_close:
            self.close()
        if response.status in BUSY and wanted == 200:
            self.num_busy += 1
            return None
        if response.status != wanted:
            raise Unexpected(f"{path}: {response.status} instead of {wanted}: {data[:200]!r}")
        return json.loads(data)

    def prompt(self):
        tail = " ".join(self.rng.choices(WORDS, k=self.rng.randint(1, 60)))
        return self.rng.choice(PREFIXES) + tail if self.rng.random() < 0.5 else tail

    def completion(self, **fields):
        return {"model": MODEL, "prompt": self.prompt(), "max_tokens": self.rng.randint(1, 32), "temperature": 1, **fields}


def complete(client):
    client.call("/v1/completions", client.completion())


def repeat_seeded(client):
    """Whatever else the server does, a seed gives the same text."""
    seed = client.rng.randrange(8)
    answer = client.call("/v1/completions", {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 1,
                                             "seed": seed, "ignore_eos": True})
    text = answer and answer["choices"][0]["text"]
    if text is not None and client.first.setdefault(seed, text) != text:
        raise Unexpected(f"seed {seed} gave {text!r} instead of {client.first[seed]!r}")


def sample_variously(client):
    client.call("/v1/completions", client.completion(
        n=client.rng.randint(1, 4), top_p=0.9, top_k=client.rng.choice((-1, 20)), presence_penalty=0.5, repetition_penalty=1.1,
        logprobs=client.rng.choice((None, 3)), echo=client.rng.random() < 0.3, stop=["xyz"], logit_bias={"5": -3}))


def search_beams(client):
    client.call("/v1/completions", client.completion(use_beam_search=True, n=3, max_tokens=8, temperature=0))


def match_grammar(client):
    form = client.rng.choice(({"guided_regex": "[a-c]{1,9}(x|yz)"}, {"guided_choice": ["yes", "no"]},
                              {"guided_json": JSON_SCHEMA}))
    client.call("/v1/completions", client.completion(max_tokens=24, **form))


def chat(client):
    client.call("/v1/chat/completions", {"model": MODEL, "messages": [{"role": "user", "content": client.prompt()}],
                                         "max_tokens": 8})


def respond(client):
    client.call("/v1/responses", {"model": MODEL, "input": client.prompt(), "max_output_tokens": 8})


def message(client):
    client.call("/v1/messages", {"model": MODEL, "messages": [{"role": "user", "content": client.prompt()}], "max_tokens": 8})


def embed(client):
    client.call("/v1/embeddings", {"model": MODEL, "input": [client.prompt() for _ in range(client.rng.randint(1, 4))]})


def tokenize(client):
    client.call("/tokenize", {"model": MODEL, "prompt": client.prompt()})


def be_refused(client):
    path, body, status = client.rng.choice(REFUSED)
    client.call(path, body, status)


def begin_stream(client):
    response = client.send("/v1/completions", client.completion(
        stream=True, max_tokens=client.rng.randint(1, 200), ignore_eos=client.rng.random() < 0.5))
    if response.status != 200 and response.status not in BUSY:
        raise Unexpected(f"stream: {response.status}: {response.read()[:200]!r}")
    return response


def stream(client):
    response = begin_stream(client)
    data = response.read()
    if response.status == 200 and not data.endswith(b"data: [DONE]\n\n"):
        raise Unexpected(f"a stream ends with {data[-200:]!r}")


def hang_up(client):
    """After some bytes of a stream, or none."""
    if client.rng.random() < 0.5:
        begin_stream(client).read(client.rng.randint(1, 2000))
    else:
        fields = "".join(f"{name}: {value}\r\n" for name, value in client.headers.items())
        with client.open_socket() as sock:
            body = json.dumps(client.completion(max_tokens=400, ignore_eos=True)).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode()
            sock.sendall((head + body)[:client.rng.randint(1, len(head) + len(body))])
    client.close()


WEIGHTS = {complete: 20, repeat_seeded: 10, stream: 20, hang_up: 10, sample_variously: 8, search_beams: 2, match_grammar: 6,
           chat: 6, respond: 4, message: 4, embed: 6, tokenize: 4, be_refused: 6}
