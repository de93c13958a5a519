"""Other servers' fields of a request: truncate_prompt_tokens, return_tokens_as_token_ids, request_id; no limit of tokens."""

import pytest

from quire_server import NAME

TEXT = "one two three four five six seven eight nine ten"
CHAT = {"model": NAME, "messages": [{"role": "user", "content": TEXT}], "max_tokens": 2, "temperature": 0}
COMPLETION = {"model": NAME, "prompt": TEXT, "max_tokens": 2, "temperature": 0}
PATHS = {"/v1/completions": COMPLETION, "/v1/chat/completions": CHAT,
         "/v1/responses": {"model": NAME, "input": TEXT, "max_output_tokens": 2}}


def post(server, path, **fields):
    reply = server.post(path, {**PATHS[path], **fields})
    assert reply.status_code == 200, reply.text
    assert "x-ignored-params" not in reply.headers
    return reply.json()


def refusal(server, path, **fields):
    reply = server.post(path, {**PATHS[path], **fields})
    assert reply.status_code == 400
    return reply.json()["error"]["param"]


# ---- truncate_prompt_tokens ----

def ids_of(server, **fields):
    return post(server, "/v1/completions", return_token_ids=True, **fields)["choices"][0]["prompt_token_ids"]


def test_the_last_tokens_stay(server):
    ids = ids_of(server)
    assert ids_of(server, truncate_prompt_tokens=4) == ids[-4:]
    assert ids_of(server, truncate_prompt_tokens=4, truncation_side="right") == ids[:4]
    assert ids_of(server, truncate_prompt_tokens=100) == ids
    assert ids_of(server, prompt=[ids, ids[:3]], truncate_prompt_tokens=5) == ids[-5:]
    chat = post(server, "/v1/chat/completions", return_token_ids=True)["prompt_token_ids"]
    cut = post(server, "/v1/chat/completions", return_token_ids=True, truncate_prompt_tokens=7)
    assert cut["prompt_token_ids"] == chat[-7:] and cut["usage"]["prompt_tokens"] == 7
    assert post(server, "/v1/responses", truncate_prompt_tokens=7)["usage"]["input_tokens"] == 7


def test_echo_is_what_is_left(server):
    choice = post(server, "/v1/completions", truncate_prompt_tokens=3, echo=True, logprobs=0)["choices"][0]
    assert choice["text"].startswith(" eight nine ten")
    for token, offset in zip(choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]):
        assert choice["text"][offset:offset + len(token)] == token
    whole = post(server, "/v1/completions", truncate_prompt_tokens=300, echo=True)["choices"][0]["text"]
    assert whole.startswith(TEXT)


def test_beyond_the_context(start_server):
    """-1 leaves what the output needs; a number is that of the tokens that stay."""
    server = start_server("--max-model-len", 96)
    long = " word" * 300
    assert refusal(server, "/v1/completions", prompt=long) == "prompt"
    ids = ids_of(server, prompt=long, truncate_prompt_tokens=-1, max_tokens=10)
    assert len(ids) == 86 and ids == server.tokenize(long)[-86:]
    assert len(ids_of(server, prompt=server.tokenize(long), truncate_prompt_tokens=-1, max_tokens=10)) == 86
    messages = [{"role": "user", "content": long}]
    answer = post(server, "/v1/chat/completions", messages=messages, truncate_prompt_tokens=-1, max_tokens=10)
    assert answer["usage"]["prompt_tokens"] == 86
    embeddings = {"model": NAME, "input": long}
    assert server.post("/v1/embeddings", embeddings).status_code == 400
    usage = server.post("/v1/embeddings", {**embeddings, "truncate_prompt_tokens": -1}).json()["usage"]
    assert usage["prompt_tokens"] == 96
    assert refusal(server, "/v1/completions", prompt="a" * (2**20 + 1), truncate_prompt_tokens=4) == "prompt"
    assert len(ids_of(server, prompt="a " * 2**19, truncate_prompt_tokens=4)) == 4
    for value in (0, -2, 97, 1.5, "3"):
        assert refusal(server, "/v1/completions", truncate_prompt_tokens=value) == "truncate_prompt_tokens"
    assert refusal(server, "/v1/completions", truncation_side="middle") == "truncation_side"


# ---- return_tokens_as_token_ids ----

def test_tokens_as_ids(server):
    fields = {"logprobs": 2, "return_token_ids": True, "return_tokens_as_token_ids": True}
    choice = post(server, "/v1/completions", echo=True, **fields)["choices"][0]
    shown = [f"token_id:{token}" for token in choice["prompt_token_ids"] + choice["token_ids"]]
    assert choice["logprobs"]["tokens"] == shown
    for token, top in list(zip(shown, choice["logprobs"]["top_logprobs"]))[1:]:
        assert token in top and all(name.startswith("token_id:") for name in top)
    assert choice["text"].startswith(TEXT)
    plain = post(server, "/v1/completions", logprobs=2, echo=True)["choices"][0]["logprobs"]
    assert plain["text_offset"] == choice["logprobs"]["text_offset"]
    assert plain["token_logprobs"] == choice["logprobs"]["token_logprobs"]


def test_tokens_of_a_chat_as_ids(server):
    fields = {"logprobs": True, "top_logprobs": 2, "return_token_ids": True, "return_tokens_as_token_ids": True}
    choice = post(server, "/v1/chat/completions", **fields)["choices"][0]
    entries = choice["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == [f"token_id:{token}" for token in choice["token_ids"]]
    assert all(top["token"].startswith("token_id:") for entry in entries for top in entry["top_logprobs"])
    assert bytes(b for entry in entries for b in entry["bytes"]).decode() == choice["message"]["content"]
    [item] = post(server, "/v1/responses", include=["message.output_text.logprobs"],
                  return_tokens_as_token_ids=True)["output"]
    assert all(entry["token"].startswith("token_id:") for entry in item["content"][0]["logprobs"])


# ---- request_id ----

@pytest.mark.parametrize("path, prefix", [("/v1/completions", "cmpl-"), ("/v1/chat/completions", "chatcmpl-"),
                                          ("/v1/responses", "resp_")])
def test_request_id(server, path, prefix):
    for request_id in ("a", "My.id:7_-x", "z" * 128):
        assert post(server, path, request_id=request_id)["id"] == prefix + request_id
    for request_id in ("", "z" * 129, "a b", "a\n", "é", "\"", 7):
        assert refusal(server, path, request_id=request_id) == "request_id"


# ---- No limit of tokens ----

@pytest.mark.parametrize("path,field", [
    ("/v1/completions", "max_tokens"), ("/v1/completions", "n_predict"), ("/v1/chat/completions", "max_tokens"),
    ("/v1/chat/completions", "n_predict"), ("/v1/chat/completions", "max_completion_tokens")])
def test_minus_one_is_as_many_as_the_context_holds(start_server, path, field):
    """As in llama.cpp, whose clients send it."""
    server = start_server("--max-model-len", 128)
    body = {name: value for name, value in PATHS[path].items() if name != "max_tokens"}
    reply = server.post(path, {**body, "ignore_eos": True, field: -1})
    assert reply.status_code == 200, reply.text
    assert reply.json()["usage"]["total_tokens"] == 128
    assert reply.json()["choices"][0]["finish_reason"] == "length"
    reply = server.post(path, {**body, field: -2})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == field


def test_no_limit_is_no_value_elsewhere(server):
    assert refusal(server, "/v1/responses", max_output_tokens=-1) == "max_output_tokens"
    assert server.post("/v1/messages", {**CHAT, "max_tokens": -1}).status_code == 400
