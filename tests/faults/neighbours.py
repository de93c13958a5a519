"""What the work of some costs others: a call of 1,024 prompts, a KV pool that is too small, and the attacks of tests/attacks."""

import json
import threading

from drain import Streams
from scenario import scenario
from wire import closing, completion, exchange, request_bytes


@scenario("5.2", "a call of 1,024 prompts beside other clients")
def many_prompts(stage):
    """By five addresses: each has a share of its own, of a queue that has room for such a call beside them."""
    options = {"max-num-seqs": 16, "max-queued-requests": 1200, "kv-cache-memory-bytes": "16M", "queue-timeout": 0}
    with stage.server(options) as victim:
        is_over, said = threading.Event(), []

        def ask(i):
            while not is_over.is_set():
                try:
                    found, _ = exchange(victim.address, closing(completion(max_tokens=2)), seconds=60, timeout=60,
                                        source=f"127.0.3.{i + 1}")
                    said.append(found[0].status if found else "closed")
                except OSError as error:
                    said.append(type(error).__name__)

        threads = [threading.Thread(target=ask, args=(i,), daemon=True) for i in range(4)]
        for thread in threads:
            thread.start()
        large = request_bytes("/v1/completions", {"model": "victim", "prompt": ["Once upon a time"] * 1024, "max_tokens": 16,
                                                  "ignore_eos": True})
        results = []
        for _ in range(stage.pick(2, 10)):
            found, _ = exchange(victim.address, closing(large), seconds=120, timeout=120)
            results.append(found[0].status if found else "closed")
        is_over.set()
        for thread in threads:
            thread.join()
        bad = [status for status in said if status != 200]
        stage.figure("calls of 1,024 prompts answered", f"{results.count(200)} of {len(results)}", "all", set(results) == {200})
        stage.figure(f"refused of {len(said)} calls of others", f"{len(bad)} {bad[:3]}", 0, not bad and len(said) > 0)


@scenario("5.5", "clients that go away at every moment")
def hang_ups(stage):
    stage.attack("R2-closes-at-every-stage", "R3-abandoned-streams", "R3-abandoned-whole-answers")


@scenario("5.12", "readers that are slow, or take nothing")
def slow_readers(stage):
    stage.attack("R7-streams-unread", "R7-stalled-streams-hold-no-slot", "R7-crawling-readers", "R7-slow-reader")


@scenario("5.13", "headers and bodies that come byte by byte, connections without end")
def slowloris(stage):
    stage.attack("R1-slow-headers", "R1-trickled-bodies", "R14-connection-flood")


@scenario("5.14", "bad requests beside good streams")
def poison(stage):
    stage.attack("R1-refused-calls", "R1-json-bombs", "R1-grammar-bombs")


@scenario("5.15", "no files and no memory left")
def exhaustion(stage):
    stage.attack("R14-few-files", "R18-no-memory-for-bodies", "R18-no-memory-at-all")


@scenario("5.6", "a KV pool that is too small for what runs: no stream differs")
def small_pool(stage):
    """Each prompt alone first, then all at once."""
    fields = [{"prompt": f"{i} times", "seed": i, "temperature": 1, "max_tokens": 900} for i in range(stage.pick(24, 64))]
    with stage.server({"kv-cache-memory-bytes": "400K", "swap-space": 0.0001, "max-model-len": 1024}) as victim:
        wanted = []
        for each in fields:
            alone = Streams(victim, 1, **each)
            stage.want(not alone.finish(), "a stream alone is not whole")
            wanted.append(text_of(alone.calls[0]))
        streams = [Streams(victim, 1, **each) for each in fields]
        cut = sum(bool(each.finish()) for each in streams)
        changed = sum(text_of(each.calls[0]) != text for each, text in zip(streams, wanted)) if not cut else 0
        preempted = victim.metrics().get("num_preemptions_total", 0)
        stage.figure(f"changed, cut of {len(streams)}; preemptions", f"{changed}, {cut}; {preempted:.0f}", "0, 0; some",
                     not changed and not cut and preempted > 0)


def text_of(call):
    """The text of each choice; how it is cut into frames does not count."""
    texts = {}
    for line in call.answer().body.decode().split("\n"):
        if line.startswith("data: {"):
            for choice in json.loads(line[6:]).get("choices", ()):
                texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts
