"""Allocations that fail while requests of every type are answered: the answer is a right one or an error, nothing is left, and
the server goes on."""

import json
import mmap
import os
import signal
import struct
import threading

from flow import LAST_CHUNK
from mix import JSON_SCHEMA
from scenario import scenario
from soak import TEMPLATE
from wire import answers, closing, open_socket, read_to_end, request_bytes

LIBRARY = "tests/faults/libfail_malloc.so"  # of the folder of the build
SEEN, FAILED, FIRST, END, ONE_IN = range(5)  # as in struct control of fail_malloc.c
FOREVER = (1 << 64) - 1
ERRORS = {429, 500, 503}
ANSWER_S = 30
OPTIONS = {"kv-cache-memory-bytes": "1M", "max-num-seqs": 4, "max-model-len": 512, "threads": 1}


class Control:
    """What fail_malloc.c reads."""

    def __init__(self, path):
        path.write_bytes(b"\0" * 40)
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 40)

    def read(self, index):
        return struct.unpack_from("<Q", self.memory, 8 * index)[0]

    def write(self, index, value):
        struct.pack_into("<Q", self.memory, 8 * index, value)

    def fail(self, skip, count=1, one_in=1):
        """Of those to come `skip` succeed; of the `count` after them one of so many fails."""
        seen = self.read(SEEN)
        self.write(FAILED, 0)
        self.write(ONE_IN, one_in)
        self.write(FIRST, seen + skip)
        self.write(END, min(seen + skip + count, FOREVER))

    def stop(self):
        """Returns how many failed."""
        self.write(END, 0)
        return self.read(FAILED)


def call(path, **fields):
    return closing(request_bytes(path, {"model": "victim", **fields}))


TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {
    "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is there?"}]
LENGTH = {"max_tokens": 8, "temperature": 0}
CALLS = {
    "completion": call("/v1/completions", prompt="Once upon a time", n=2, logprobs=2, echo=True, stop=["xyz"], **LENGTH),
    "stream": call("/v1/completions", prompt="Once upon", stream=True, stream_options={"include_usage": True}, **LENGTH),
    "beams": call("/v1/completions", prompt="Once", use_beam_search=True, n=2, **LENGTH),
    "regex": call("/v1/completions", prompt="Once", guided_regex="[a-c]{1,6}(x|yz)", **LENGTH),
    "chat": call("/v1/chat/completions", messages=MESSAGES, **LENGTH),
    "chat with tools": call("/v1/chat/completions", messages=MESSAGES, tools=[TOOL], tool_choice="required", stream=True, **LENGTH),
    "chat with a schema": call("/v1/chat/completions", messages=MESSAGES, response_format={
        "type": "json_schema", "json_schema": {"name": "a", "schema": JSON_SCHEMA}}, **LENGTH),
    "response": call("/v1/responses", input="What is there?", max_output_tokens=8, temperature=0),
    "embedding": call("/v1/embeddings", input=["one", "two words"]),
    "tokenize": call("/tokenize", prompt="Once upon a time"),
    "models": closing(request_bytes("/v1/models")),
    "metrics": closing(request_bytes("/metrics")),
    "not found": call("/v1/nothing", input="x"),
}
CHANGES = {"id", "created", "created_at", "completed_at", "call_id", "system_fingerprint", "item_id", "request_id", "cached_tokens"}


def without_names(value):
    """What two answers to the same call have in common."""
    if isinstance(value, dict):
        return {name: without_names(part) for name, part in value.items() if name not in CHANGES}
    return [without_names(part) for part in value] if isinstance(value, list) else value


def content(answer):
    text = answer.body.decode()
    if text.startswith(("data: ", "event: ")):
        frames = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
        return [without_names(json.loads(frame)) if frame.startswith("{") else frame for frame in frames]
    return without_names(json.loads(text)) if text.startswith("{") else None  # metrics change


def joined(frames):
    """A stream may be cut into other pieces when the client is slow: its text alone."""
    choices = [choice for frame in frames if isinstance(frame, dict) for choice in frame.get("choices", ())]
    return [str(choice.get("text") or choice.get("delta")) for choice in choices]


class Caller:
    """Sends calls, and says what is wrong with an answer: None where nothing is."""

    def __init__(self, victim):
        self.victim, self.right, self.num_closed, self.num_errors, self.num_right = victim, {}, 0, 0, 0

    def ask(self, name):
        """(answers, whether the connection ended); a stream that was cut is no answer."""
        try:
            with open_socket(self.victim.address, timeout=ANSWER_S) as sock:
                sock.sendall(CALLS[name])
                received, is_closed = read_to_end(sock, ANSWER_S)
        except OSError as error:
            return [], not isinstance(error, TimeoutError)
        is_cut = b"chunked" in received.partition(b"\r\n\r\n")[0] and not received.endswith(LAST_CHUNK)
        return [] if is_cut and is_closed else answers(received), is_closed

    def learn(self):
        """What the answers are while nothing fails."""
        for name in CALLS:
            found, _ = self.ask(name)
            self.right[name] = (found[0].status, content(found[0]))

    def problem(self, name):
        found, is_closed = self.ask(name)
        if not is_closed:
            return f"{name}: no end within {ANSWER_S} s: {found[0].body[:100] if found else ''!r}"
        if not found or found[0].status == 0:
            self.num_closed += 1
            return None
        status, wanted = self.right[name]
        if found[0].status in ERRORS:
            self.num_errors += 1
            return None if found[0].error() else f"{name}: {found[0].status} without the error object: {found[0].body[:100]!r}"
        if found[0].status != status:
            return f"{name}: {found[0].status} instead of {status}: {found[0].body[:200]!r}"
        got = content(found[0])
        if isinstance(got, list):
            is_right = got[-1:] == wanted[-1:] and joined(got) == joined(wanted) or b'"error"' in found[0].body
        else:
            is_right = got == wanted
        self.num_right += is_right
        return None if is_right else f"{name}: another answer: {str(got)[:200]}"


def one_after_the_other(stage, victim, control, caller, stride):
    """The first, second, third ... allocation of each call, until none is left to fail."""
    total = 0
    for name in CALLS:
        skip = 0
        while victim.process.poll() is None:
            control.fail(skip)
            problem = caller.problem(name)
            failed = control.stop()
            stage.want(problem is None, f"allocation {skip}: {problem}")
            total += failed
            if failed == 0 or len(stage.problems) > 20:
                break
            skip += stride
    stage.figure("allocations failed, one each", total, ">= 40", total >= 40)


def some_of_all(stage, victim, control, caller, one_in, rounds):
    """An Nth of all, beside each other, while the keys and the log are read again."""
    def work(first):
        names = list(CALLS)
        for i in range(rounds):
            if victim.process.poll() is None:
                try:
                    problem = caller.problem(names[(first + i) % len(names)])
                except ValueError as error:
                    problem = f"an answer that is no JSON: {error}"
                stage.want(problem is None, f"1 of {one_in}: {problem}")

    control.fail(0, FOREVER // 2, one_in)
    threads = [threading.Thread(target=work, args=(3 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        if victim.process.poll() is None:
            os.kill(victim.pid, signal.SIGHUP)
        threads[0].join(0.05)
    for thread in threads:
        thread.join()
    total = control.stop()
    stage.figure(f"allocations failed, 1 of {one_in}", total, ">= 10", total >= 10)


@scenario("5.15", "each allocation of each type of call fails, then some of all")
def failing_allocations(stage):
    """Without TLS: GMP, which GnuTLS computes with, aborts the program when it gets no memory."""
    library = stage.binary.resolve().parents[1] / LIBRARY
    control = Control(stage.folder / "control")
    template = stage.folder / "template.jinja"
    template.write_text(TEMPLATE)
    environment = {"LD_PRELOAD": str(library), "FAIL_MALLOC_FILE": str(stage.folder / "control")}
    with stage.server({**OPTIONS, "chat-template": template}, environment=environment) as victim:
        caller = Caller(victim)
        caller.learn()
        one_after_the_other(stage, victim, control, caller, stage.pick(23, 1))
        for one_in in (400, 100, 20):
            some_of_all(stage, victim, control, caller, one_in, stage.pick(40, 400))
        said = f"{caller.num_right}, {caller.num_errors}, {caller.num_closed}"
        stage.figure("right answers, errors, closed without one", said, "-", True)
        for name in CALLS:
            problem = caller.problem(name)
            stage.want(problem is None, f"once there is memory again: {problem}")
