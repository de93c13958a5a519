"""Prompts that begin alike: computed once and held once, for one key and one salt only, and never to be seen in
what comes out."""

import pytest

from metrics_watch import deltas, watch_metrics
from quire_server import NAME, QuireServer
from test_load import gather

BLOCK = 16
KEYS = ["first-key", "second-key"]
CLIENTS = 32
SYSTEM = "You are a helpful assistant of a small library by the sea. " + " ".join(
    f"Rule {i}: shelf {i * 7} holds books about {subject}." for i, subject in enumerate(
        ["ships", "bread", "clocks", "rivers", "snow", "maps", "trains", "birds", "salt", "glass"] * 3))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    server = QuireServer(tmp_path_factory.mktemp("plain") / "server.log", "--no-enable-prefix-caching")
    yield server
    server.kill()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    server = QuireServer(tmp_path_factory.mktemp("guarded") / "server.log", "--api-key", KEYS[0], "--api-key",
                         KEYS[1])
    yield server
    server.kill()


def words_of(name, count=8):
    """A prompt nobody else has, of more than `count` blocks."""
    return f"{name}: " + " ".join(f"{name} {i}" for i in range(BLOCK * count))


def cached(completion):
    return completion.usage.prompt_tokens_details.cached_tokens


def ask(server, prompt, api_key="none", **fields):
    fields = {"max_tokens": 4, "temperature": 0, **fields}
    return server.client(api_key=api_key).completions.create(model=NAME, prompt=prompt, **fields)


def full_blocks(num_tokens):
    """Tokens of a prompt that can come from the cache: whole blocks, and one is left to compute."""
    return (num_tokens - 1) // BLOCK * BLOCK


def questions(client, numbers):
    async def ask_one(number):
        return await client.completions.create(
            model=NAME, prompt=f"{SYSTEM}\nQuestion {number}: what is on shelf {number}?\nAnswer:", max_tokens=16,
            temperature=0.8 if number % 2 else 0, seed=number, extra_body={"ignore_eos": True})
    return [ask_one(number) for number in numbers]


def test_32_clients_share_their_system_prompt(server, plain):
    shared = full_blocks(len(server.tokenize(SYSTEM)))
    assert shared > 20 * BLOCK
    server.complete(SYSTEM, max_tokens=1)
    with watch_metrics(server) as watch:
        answers, rose = deltas(server, lambda: gather(server, lambda client: questions(client, range(CLIENTS))))
    assert [cached(answer) >= shared for answer in answers] == [True] * CLIENTS
    assert rose["prefix_cache_hits_total"] == sum(map(cached, answers))
    assert rose["prefix_cache_queries_total"] == sum(answer.usage.prompt_tokens - 1 for answer in answers)
    assert rose["prompt_tokens_total"] == sum(answer.usage.prompt_tokens for answer in answers)
    # What is each one's own: the question and the answer.
    assert watch.most("num_requests_running") > CLIENTS / 2
    assert watch.most("kv_blocks_used") <= shared / BLOCK + 5 * CLIENTS
    assert server.metrics()["kv_blocks_used"] == 0 and server.metrics()["kv_blocks_cached"] >= shared / BLOCK

    others = gather(plain, lambda client: questions(client, range(CLIENTS)))
    assert [cached(answer) for answer in others] == [0] * CLIENTS
    assert [answer.choices[0].text for answer in answers] == [answer.choices[0].text for answer in others]
    metrics = plain.metrics()
    assert metrics["prefix_cache_hits_total"] == 0 and metrics["kv_blocks_cached"] == 0


def test_a_prompt_being_computed_is_shared_already(server):
    """Eight equal prompts at once: each token is computed once, or little more often."""
    prompt = words_of("at-once", count=20)
    num_tokens = len(server.tokenize(prompt))
    async def ask_one(client):
        return await client.completions.create(model=NAME, prompt=prompt, max_tokens=8, temperature=0)
    answers, rose = deltas(server, lambda: gather(server, lambda client: [ask_one(client) for _ in range(8)]))
    assert len({answer.choices[0].text for answer in answers}) == 1
    assert rose["prompt_tokens_total"] - rose["prompt_tokens_cached_total"] <= num_tokens + 8 * BLOCK
    assert sum(map(cached, answers)) >= 7 * full_blocks(num_tokens)


def test_what_was_generated_is_found_as_well(server):
    """The next turn of a conversation begins with the last one's answer."""
    prompt = words_of("turns")
    tokens = server.tokenize(prompt)
    first = ask(server, tokens, max_tokens=3 * BLOCK, extra_body={"ignore_eos": True, "return_token_ids": True})
    answer = first.choices[0].model_extra["token_ids"]
    second = ask(server, tokens + answer + server.tokenize(" And then?"))
    assert cached(second) >= full_blocks(len(tokens) + len(answer) - 1)


def test_salts_divide(server):
    prompt = words_of("salted")
    expected = full_blocks(len(server.tokenize(prompt)))
    found = [cached(ask(server, prompt, extra_body={"cache_salt": salt}))
             for salt in ["a", "a", "b", None, "a", "b", "ab"]]
    assert found == [0, expected, 0, 0, expected, expected, 0]
    assert cached(ask(server, prompt)) == expected


def test_keys_divide(guarded):
    prompt = words_of("keyed")
    first = ask(guarded, prompt, api_key=KEYS[0])
    expected = full_blocks(first.usage.prompt_tokens)
    assert cached(first) == 0
    assert cached(ask(guarded, prompt, api_key=KEYS[1])) == 0
    assert [cached(ask(guarded, prompt, api_key=key)) for key in KEYS] == [expected, expected]
    salt = {"cache_salt": "the same"}
    assert [cached(ask(guarded, prompt, api_key=key, extra_body=salt)) for key in KEYS * 2] == [
        0, 0, expected, expected]


@pytest.mark.parametrize("path,body", [
    ("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ("/v1/responses", {"input": "a"}), ("/v1/embeddings", {"input": "a"})])
def test_bad_salts(server, path, body):
    for salt in ("", "x" * 257, 5, [], {}):
        reply = server.post(path, {**body, "cache_salt": salt})
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == "cache_salt"


def test_every_endpoint_tells_how_much_was_cached(server):
    text = words_of("told")
    chat = {"model": NAME, "messages": [{"role": "user", "content": text}], "max_tokens": 2}
    for _ in range(2):
        plain = server.post("/v1/chat/completions", chat).json()["usage"]
        responses = server.post("/v1/responses", {"input": text, "max_output_tokens": 2}).json()["usage"]
    expected = full_blocks(plain["prompt_tokens"])
    assert plain["prompt_tokens_details"]["cached_tokens"] == expected
    assert responses["input_tokens_details"]["cached_tokens"] == full_blocks(responses["input_tokens"])
    stream = server.client().chat.completions.create(**chat, stream=True, stream_options={"include_usage": True})
    assert list(stream)[-1].usage.prompt_tokens_details.cached_tokens == expected
    several = ask(server, [text, text])
    again = ask(server, [text, text], n=2)
    assert cached(again) == 2 * full_blocks(again.usage.prompt_tokens // 2)
    assert cached(several) >= full_blocks(several.usage.prompt_tokens // 2)


def test_scores_of_a_prompt_are_those_of_the_first_time(server):
    fields = {"extra_body": {"prompt_logprobs": 2}, "max_tokens": 4}
    prompt = words_of("scored", count=3)
    answers = [ask(server, prompt, **fields).choices[0].model_dump() for _ in range(3)]
    assert len(answers[0]["prompt_logprobs"]) == len(server.tokenize(prompt))
    assert answers[1] == answers[0] and answers[2] == answers[0]
    echoed = [ask(server, prompt, echo=True, logprobs=1).choices[0].model_dump() for _ in range(2)]
    assert echoed[0] == echoed[1]


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_embeddings_are_those_of_the_first_time(server, plain, pooling):
    text = words_of(f"embedded {pooling}", count=3)
    body = {"input": [text, text + " more"], "pooling": pooling}
    first, second, other = (one.post("/v1/embeddings", body).json()["data"] for one in (server, server, plain))
    assert first == second == other


def test_a_small_pool_forgets_the_oldest_first(start_server):
    """Prefixes nobody holds give way to what needs the room; nothing is refused, nothing is wrong."""
    small = start_server("--max-model-len", 256, "--kv-cache-memory-bytes", "12M")
    pool = small.metrics()["kv_blocks_total"]
    prompts = [words_of(f"forgotten {i}", count=1)[:600] for i in range(int(pool / 4))]
    texts = [ask(small, prompt, max_tokens=2).choices[0].text for prompt in prompts]
    assert cached(ask(small, prompts[-1], max_tokens=2)) > 0
    assert cached(ask(small, prompts[0], max_tokens=2)) == 0
    assert small.metrics()["kv_blocks_used"] == 0
    assert [ask(small, prompt, max_tokens=2).choices[0].text for prompt in prompts] == texts
