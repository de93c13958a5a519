"""Logprobs beyond the twenty likeliest: of more tokens, of the whole vocabulary, and of tokens that a request names."""

import math

import pytest

MESSAGES = [{"role": "user", "content": "Name a colour."}]
LETTERS = ["A", "B", "C", " the"]


def complete(server, **fields):
    reply = server.post("/v1/completions", {"prompt": "The capital of France is", "max_tokens": 3, "temperature": 0, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]


def refused(server, path="/v1/completions", **fields):
    body = {"messages": MESSAGES} if "chat" in path else {"prompt": "a"}
    reply = server.post(path, {**body, "max_tokens": 2, **fields})
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]


def ids_of(server, texts):
    return [server.tokenize(text)[0] for text in texts]


def test_beyond_the_bound(server):
    for field in ["logprobs", "prompt_logprobs"]:
        for value in [21, -1]:
            error = refused(server, **{field: value})
            assert error["message"] == f"{field} must be an integer from 0 to 20 (--max-logprobs), not {value}"
            assert error["param"] == field
    error = refused(server, "/v1/chat/completions", logprobs=True, top_logprobs=21)
    assert error["message"] == "top_logprobs must be an integer from 0 to 20 (--max-logprobs), not 21"


def test_the_whole_vocabulary(server, start_server):
    open_server = start_server("--max-logprobs", -1)
    choice = complete(open_server, logprobs=-1)
    few = complete(server, logprobs=20)
    assert choice["text"] == few["text"]
    assert choice["logprobs"]["token_logprobs"] == few["logprobs"]["token_logprobs"]
    for every, top in zip(choice["logprobs"]["top_logprobs"], few["logprobs"]["top_logprobs"]):
        values = list(every.values())
        assert len(values) > 40000  # less those that are written alike
        assert values == sorted(values, reverse=True)
        assert {text: every[text] for text in top} == top
        assert math.fsum(math.exp(value) for value in values) == pytest.approx(1, abs=2e-3)
    body = {"messages": MESSAGES, "max_tokens": 2, "temperature": 0, "logprobs": True}
    long = open_server.post("/v1/chat/completions", {**body, "top_logprobs": 50}).json()
    short = server.post("/v1/chat/completions", {**body, "top_logprobs": 20}).json()
    for more, less in zip(long["choices"][0]["logprobs"]["content"], short["choices"][0]["logprobs"]["content"]):
        assert len(more["top_logprobs"]) == 50
        assert more["top_logprobs"][:20] == less["top_logprobs"]


@pytest.mark.parametrize("options", [("--rank-process", "on"), ("--tensor-parallel-size", 2)])
def test_more_than_the_sampler_finds_from_other_ranks(start_server, options):
    fields = {"logprobs": 100, "prompt_logprobs": 100, "max_tokens": 4, "temperature": 0}
    one, other = (complete(start_server("--max-logprobs", 100, *more), **fields) for more in ((), options))
    if "--rank-process" in options:
        assert one == other
    for found in (one, other):
        for top in found["logprobs"]["top_logprobs"]:
            assert len(top) >= 100 and list(top.values())[:100] == sorted(top.values(), reverse=True)[:100]


def test_prompts_of_the_whole_vocabulary(server, start_server):
    open_server = start_server("--max-logprobs", 49152)
    scores = complete(open_server, prompt_logprobs=-1, max_tokens=1)["prompt_logprobs"]
    few = complete(server, prompt_logprobs=5, max_tokens=1)["prompt_logprobs"]
    assert scores[0] is None and few[0] is None
    for every, top in zip(scores[1:], few[1:]):
        assert len(every) == 49152
        assert {token: every[token] for token in top} == top


@pytest.mark.parametrize("stream", [False, True])
def test_named_tokens(server, stream):
    ids = ids_of(server, LETTERS)
    fields = {"logprobs": 1, "logprob_token_ids": ids + ids[:1]}
    if stream:
        events = server.complete("The capital of France is", max_tokens=3, stream=True, logprobs=1,
                                 extra_body={"logprob_token_ids": ids})
        found = [event.choices[0].logprobs for event in events if event.choices and event.choices[0].logprobs]
        tops = [top for logprobs in found for top in logprobs.top_logprobs]
        tokens = [token for logprobs in found for token in logprobs.tokens]
    else:
        logprobs = complete(server, **fields)["logprobs"]
        tops, tokens = logprobs["top_logprobs"], logprobs["tokens"]
    assert len(tops) == 3
    likeliest = complete(server, logprobs=20)["logprobs"]
    assert tokens == likeliest["tokens"]
    for top, token, best in zip(tops, tokens, likeliest["top_logprobs"]):
        assert list(top) == LETTERS + [token] * (token not in LETTERS)
        assert all(top[text] == best[text] for text in top if text in best)
        assert top[token] == best[token]


def test_named_tokens_of_a_chat(server):
    ids = ids_of(server, LETTERS)
    body = {"messages": MESSAGES, "max_tokens": 3, "temperature": 0, "logprobs": True, "logprob_token_ids": ids}
    content = server.post("/v1/chat/completions", {**body, "top_logprobs": 2}).json()["choices"][0]["logprobs"]["content"]
    assert len(content) == 3
    for entry in content:
        assert [top["token"] for top in entry["top_logprobs"]] == [entry["token"]] + LETTERS
        assert entry["top_logprobs"][0]["logprob"] == entry["logprob"]
    plain = server.post("/v1/chat/completions", {**body, "top_logprobs": 2, "logprob_token_ids": []}).json()
    assert [len(entry["top_logprobs"]) for entry in plain["choices"][0]["logprobs"]["content"]] == [2, 2, 2]


def test_where_named_tokens_do_not_go(server):
    assert refused(server, logprob_token_ids=[1])["message"] == "logprob_token_ids is only allowed with logprobs"
    assert refused(server, "/v1/chat/completions", logprob_token_ids=[1])["param"] == "logprob_token_ids"
    assert refused(server, logprobs=1, logprob_token_ids=[1], use_beam_search=True)["param"] == "logprob_token_ids"
    assert refused(server, logprobs=1, logprob_token_ids=[49152])["param"] == "logprob_token_ids[0]"
    assert "1024" in refused(server, logprobs=1, logprob_token_ids=list(range(1025)))["message"]
    assert refused(server, logprobs=1, logprob_token_ids="A")["param"] == "logprob_token_ids"
