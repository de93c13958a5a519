"""R16, and other ways to keep others waiting: what is queued, and work that is heavy before anything is computed."""

import time

from arena import attack
from wire import answers, closing, completion, exchange, request_bytes

LARGE = (16 << 20) - 4096


def retry_after(arena, request):
    found, _ = exchange(arena.victim.address, closing(request), seconds=5)
    return (found[0].status, int(found[0].fields.get("retry-after", -1))) if found else (0, -1)


@attack("R16", "Retry-After says how long the queue is", served="health",
        options={"max-num-seqs": 1, "max-queued-requests": 16, "kv-cache-memory-bytes": "64M"})
def retry_after_follows_the_queue(arena):
    """One call is measured; 16 such calls wait when the 17th is refused."""
    fields = {"prompt": "Once", "max_tokens": 7500, "ignore_eos": True}
    began = time.monotonic()
    exchange(arena.victim.address, closing(completion(**fields)), seconds=60)
    one = time.monotonic() - began
    for _ in range(16):
        arena.send(completion(**fields))
    for _ in range(10):  # where a call takes less than the pause, one of them has ended: another takes its place
        arena.send(completion(**fields))
        time.sleep(0.3)
        status, seconds = retry_after(arena, completion())
        if status == 429:
            break
    arena.want(status == 429, f"17 calls before it: {status}")
    long_enough = 2 if 16 * one > 4 else 1  # how fast a call goes changes with what else runs here
    if status == 429:
        arena.want(long_enough <= seconds <= 16 * one * 20 + 5,
                   f"Retry-After {seconds} where 16 calls of {one:.1f} s are queued")


def crowd(arena, requests, seconds):
    for request in requests:
        arena.send(request)
    arena.hold(seconds)


@attack("R1", "8 prompts of 16 MiB keep no other call from being prepared")
def huge_prompts(arena):
    crowd(arena, [request_bytes("/v1/completions", {"model": "victim", "prompt": "x " * (LARGE // 2)})] * arena.many(8), 2)


@attack("R1", "8 prompts of 4 MiB without a space keep no other call from being prepared")
def unbroken_prompts(arena):
    crowd(arena, [request_bytes("/v1/completions", {"model": "victim", "prompt": "x" * (4 << 20)})] * arena.many(8), 2)


@attack("R1", "8 chats of 2,000 long messages keep no other call from being prepared")
def huge_chats(arena):
    messages = [{"role": "user", "content": "x" * 4000}] * 2000
    crowd(arena, [request_bytes("/v1/chat/completions", {"model": "victim", "messages": messages})] * arena.many(8), 2)


@attack("R1", "8 bodies of millions of JSON values")
def json_bombs(arena):
    bodies = [b"[" * 60000, b'{"prompt":[' + b"1," * 4000000 + b"1]}", b'{"a":' * 60 + b"1" + b"}" * 60,
              b'{"prompt":"x","logit_bias":{' + b",".join(b'"%d":1' % i for i in range(200000)) + b"}}",
              b'{"prompt":["' + b'","'.join(b"x" for _ in range(1000000)) + b'"]}',
              b'{"prompt":"' + b"\\u0041" * 2000000 + b'"}']
    crowd(arena, [request_bytes("/v1/completions", body) for body in bodies] * arena.many(2, least=1), 2)


@attack("R1", "16 schemas and expressions that are large to compile keep no other call from being prepared")
def grammar_bombs(arena):
    regex = "|".join("(?:.{0,300}a.{0,300})" for _ in range(200))
    properties = {f"p{i}": {"type": "string", "pattern": "^(a|b){1,200}$"} for i in range(300)}
    schema = {"type": "object", "properties": properties}
    fields = [{"guided_regex": regex}, {"guided_json": schema}, {"guided_choice": ["x" * 500 + str(i) for i in range(1000)]},
              {"guided_regex": "((a{99}){99}){99}"}]
    crowd(arena, [completion(max_tokens=4, **field) for field in fields] * arena.many(4, least=2), 2)


@attack("R1", "16 texts of 4 MiB to tokenize and ids to detokenize hold up no completion")
def bulk_work(arena):
    texts = [request_bytes("/tokenize", {"content": "x " * (2 << 20)}),
             request_bytes("/detokenize", {"tokens": [7] * 500000})]
    crowd(arena, texts * arena.many(8), 2)


@attack("R1", "bodies of 64 KiB refused on every path, 40 at a time")
def refused_bodies(arena):
    for _ in range(arena.many(40)):
        arena.send(request_bytes("/nothing", b"x" * 60000))
        arena.send(request_bytes("/health", b"x" * 60000))
        arena.send(request_bytes("/v1/completions", b"x" * 60000))


@attack("R1", "2,000 small calls that fail: unknown models, broken JSON, wrong fields")
def refused_calls(arena):
    bad = [request_bytes("/v1/completions", body) for body in
           (b"{", b"", {"model": "other", "prompt": "x"}, {"prompt": 5}, {"prompt": "x", "n": 10 ** 9}, {"prompt": "x", "top_p": 9})]
    for i in range(arena.many(20)):
        sock = arena.send(b"".join(bad) * 16)
        if i % 2:
            sock.close()
    arena.hold(0.3)
    sock = arena.send(b"".join(bad))
    time.sleep(0.2)
    said = [answer.status for answer in answers(arena.read_some(sock))]
    arena.want(set(said) <= {400, 404}, f"calls that fail: {said}")
