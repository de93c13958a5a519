"""Bad bodies: the status, the field it names, and a server that continues to serve. What is wrong below
the body is in test_http.py."""

import httpx
import openai
import pytest

from quire_server import NAME

PROMPT = "The capital of France is"

# (fields that replace or extend a good request, status, param, code)
BAD_FIELDS = [
    ({"prompt": None}, 400, "prompt"),
    ({"prompt": ""}, 400, "prompt"),
    ({"prompt": []}, 400, "prompt"),
    ({"prompt": [[]]}, 400, "prompt[0]"),
    ({"prompt": ["a", ""]}, 400, "prompt[1]"),
    ({"prompt": 7}, 400, "prompt"),
    ({"prompt": [10 ** 9]}, 400, None),
    ({"prompt": [-1]}, 400, None),
    ({"prompt": [1.5]}, 400, None),
    ({"prompt": "word " * 20000}, 400, "prompt"),
    ({"model": "gpt-4"}, 404, "model"),
    ({"max_tokens": -2}, 400, "max_tokens"),
    ({"max_tokens": 0}, 400, "max_tokens"),
    ({"max_tokens": 2 ** 63}, 400, "max_tokens"),
    ({"max_tokens": "5"}, 400, "max_tokens"),
    ({"max_tokens": 1.5}, 400, "max_tokens"),
    ({"n": 0}, 400, "n"),
    ({"n": 1000000}, 400, "n"),
    ({"n": "3"}, 400, "n"),
    ({"best_of": 1000000}, 400, "best_of"),
    ({"n": 3, "best_of": 2}, 400, "best_of"),
    ({"suffix": "end"}, 400, "suffix"),
    ({"temperature": -1}, 400, "temperature"),
    ({"temperature": 3}, 400, "temperature"),
    ({"top_p": 0}, 400, "top_p"),
    ({"top_p": 1.1}, 400, "top_p"),
    ({"top_k": -2}, 400, "top_k"),
    ({"min_p": -0.1}, 400, "min_p"),
    ({"presence_penalty": 3}, 400, "presence_penalty"),
    ({"frequency_penalty": -3}, 400, "frequency_penalty"),
    ({"repetition_penalty": 0}, 400, "repetition_penalty"),
    ({"seed": 1.5}, 400, "seed"),
    ({"seed": 2**63}, 400, "seed"),
    ({"seed": -2**63 - 1}, 400, "seed"),
    ({"seed": 2**64 + 1}, 400, "seed"),
    ({"logprobs": -1}, 400, "logprobs"),
    ({"logprobs": 1000}, 400, "logprobs"),
    ({"logprobs": True}, 400, "logprobs"),
    ({"echo": "yes"}, 400, "echo"),
    ({"stop": 5}, 400, "stop"),
    ({"stop": [""]}, 400, "stop[0]"),
    ({"stop": ["a"] * 100}, 400, "stop"),
    ({"stop": ["x" * 10000]}, 400, "stop[0]"),
    ({"stop_token_ids": [10 ** 6]}, 400, "stop_token_ids[0]"),
    ({"logit_bias": {"x": 1}}, 400, "logit_bias"),
    ({"logit_bias": {"99999999": 1}}, 400, "logit_bias"),
    ({"logit_bias": {"5": 101}}, 400, "logit_bias.5"),
    ({"logit_bias": [1]}, 400, "logit_bias"),
    ({"min_tokens": 9}, 400, "min_tokens"),
    ({"stream": "true"}, 400, "stream"),
    ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
    ({"stream": True, "stream_options": 1}, 400, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, 400, "stream_options.include_usage"),
]

BAD_BODIES = [
    b"", b"not json", b"{", b"[]", b"null", b'{"prompt":"a"}xyz', b'{"prompt":"a"}{"prompt":"b"}',
    b'{"prompt":"a","prompt":"b"}', b'{"prompt":"a\x00b"}',
    b'{"prompt":"a\x01"}', b'{"prompt":"\xff\xfe"}',
    b'{"prompt":"a","max_tokens":01}', b'{"prompt":"a","max_tokens":1.}',
    b'{"prompt":"a","temperature":1e400}', b'{"prompt":"a","temperature":NaN}',
    b'{"prompt":' + b"[" * 2000 + b"]" * 2000 + b"}",
    b'{"prompt":"a","x":[' + b"1," * 1100000 + b"1]}",
]


@pytest.fixture(autouse=True)
def still_serves(server):
    yield
    assert server.complete(PROMPT, max_tokens=1).choices[0].text == " Paris"


def assert_error(reply, status, param=...):
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] and "\n" not in error["message"] and len(error["message"]) < 600
    assert param is ... or error["param"] == param, error


@pytest.mark.parametrize("fields,status,param", BAD_FIELDS, ids=lambda value: str(value)[:40])
def test_bad_field(server, fields, status, param):
    body = {"model": NAME, "prompt": PROMPT, "max_tokens": 4, **fields}
    assert_error(server.post("/v1/completions", body), status, ... if param is None else param)


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: repr(body[:30]))
def test_bad_body(server, body):
    reply = httpx.post(server.url + "/v1/completions", content=body, timeout=60)
    assert_error(reply, 400, None if not body.endswith(b"}") else ...)


@pytest.mark.parametrize("path,body", [
    ("/v1/completions", b'{"prompt": "a\\u0000b", "max_tokens": 1}'),
    ("/v1/completions", b'{"prompt": "a\\ud83d", "max_tokens": 1}'),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "a\\u0000b"}], "max_tokens": 1}'),
    ("/v1/chat/completions", b"""{"messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "b", "type": "function",
            "function": {"name": "f", "arguments": "{\\"c\\": \\"\\\\u0000\\"}"}}]},
        {"role": "tool", "tool_call_id": "b", "content": "x\\u0000y\\u0000"}], "max_tokens": 1}"""),
    ("/v1/responses", b'{"input": "a\\u0000b", "max_output_tokens": 1}'),
    ("/v1/messages", b"""{"max_tokens": 1, "messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "b", "name": "f", "input": {"c": "\\u0000"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": "\\u0000"}]}]}"""),
    ("/api/chat", b"""{"model": "smollm2", "options": {"num_predict": 1}, "messages": [{"role": "user", "content": "\\u0000"},
        {"role": "assistant", "thinking": "\\u0000", "tool_calls": [{"function": {"name": "f", "arguments": {"c": "\\u0000"}}}]},
        {"role": "tool", "content": "\\u0000", "tool_name": "\\u0000"}]}"""),
    ("/v1/embeddings", b'{"input": ["a\\u0000b"]}'),
    ("/tokenize", b'{"prompt": "a\\u0000b"}'),
])
def test_every_escape_of_json_is_taken(server, path, body):
    reply = httpx.post(server.url + path, content=body, timeout=60)
    assert reply.status_code == 200, reply.text


def test_an_escape_that_no_text_holds_is_a_replacement_character(server):
    counts = [server.post("/tokenize", {"prompt": text}).json()["tokens"] for text in ("a\0b", "a\ufffdb")]
    assert counts[0] == counts[1]


def test_sdk_raises_the_right_classes(server):
    with pytest.raises(openai.BadRequestError) as info:
        server.complete(PROMPT, max_tokens=-2)
    assert info.value.param == "max_tokens"
    with pytest.raises(openai.NotFoundError) as info:
        server.client().completions.create(model="other", prompt=PROMPT)
    assert info.value.code == "model_not_found"


def test_context_length(server):
    limit = server.post("/tokenize", {"prompt": "a"}).json()["max_model_len"]
    reply = server.post("/v1/completions", {"prompt": [5] * (limit + 1), "max_tokens": 1})
    assert_error(reply, 400, "prompt")
    assert reply.json()["error"]["code"] == "context_length_exceeded"
    assert str(limit) in reply.json()["error"]["message"]


MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("path,body,name", [
    ("/v1/completions", {"prompt": [5] * 40}, "max_tokens"),
    ("/v1/completions", {"prompt": [[5], [5] * 40]}, "max_tokens"),
    ("/v1/chat/completions", {"messages": MESSAGES}, "max_tokens"),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1}, "max_completion_tokens"),
    ("/v1/responses", {"input": "Hi"}, "max_output_tokens"),
])
def test_output_beyond_the_context_is_refused(server, path, body, name):
    limit = server.post("/tokenize", {"prompt": "a"}).json()["max_model_len"]
    used = 40 if "prompt" in body else server.post("/tokenize", {"messages": MESSAGES}).json()["count"]
    reply = server.post(path, {**body, name: limit - used + 1})
    assert_error(reply, 400, name)
    error = reply.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["message"].startswith(f"{name} must be at most {limit - used}, not {limit - used + 1}")
    assert str(limit) in error["message"] and f"has {used}" in error["message"]
    assert server.post(path, {**body, name: limit - used, "stop": list(" aeinrst")[:4]}).status_code == 200


def test_output_that_is_not_given_ends_with_the_context(start_server):
    server = start_server("--max-model-len", 256)
    limit = server.post("/tokenize", {"prompt": "a"}).json()["max_model_len"]
    completion = server.complete([5] * (limit - 3), extra_body={"ignore_eos": True})
    assert completion.usage.completion_tokens == 3
