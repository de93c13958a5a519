"""The wire shape of OpenAI's API with vLLM's extensions, field by field: what clients were written for.
These are facts of the API, from OpenAI's API reference, the types of the official Python SDK and the answers
of vLLM's server; where the two differ the tests say which it is."""

import base64
import re
import struct
import time

import httpx
import pytest

from quire_server import NAME
from raw_http import open_stream, read_until
from wire_shape import check, read_events

PROMPT = "The capital of France is"
UNICODE = "Ünïcode — 日本 😀 text"

USAGE = {"prompt_tokens": int, "completion_tokens": int, "total_tokens": int,
         "prompt_tokens_details": {"cached_tokens": int}}
LOGPROBS = {"text_offset": [int], "token_logprobs": [(float, None)], "tokens": [str], "top_logprobs": [(dict, None)]}
CHOICE = {"index": int, "text": str, "logprobs": None, "finish_reason": ("stop", "length"),
          "stop_reason": (str, int, None), "prompt_logprobs": None, "token_ids": None, "prompt_token_ids": None}
CHUNK_CHOICE = {name: shape for name, shape in {**CHOICE, "finish_reason": ("stop", "length", None)}.items()
                if name != "prompt_logprobs"}
HEAD = {"id": re.compile(r"cmpl-[\w-]+"), "object": "text_completion", "created": int, "model": NAME,
        "system_fingerprint": str}
COMPLETION = {**HEAD, "choices": [CHOICE], "usage": USAGE}
CHUNK = {**HEAD, "choices": [CHUNK_CHOICE]}
ERROR = {"error": {"message": str, "type": str, "param": (str, None), "code": (str, None)}}


def complete(server, **fields):
    reply = server.post("/v1/completions", {"model": NAME, "prompt": PROMPT, "temperature": 0, **fields})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/json"
    return reply.json()


def stream(server, **fields):
    body = {"model": NAME, "prompt": PROMPT, "temperature": 0, "max_tokens": 6, "stream": True, **fields}
    return read_events(server, "/v1/completions", body)


# ---- completions ----

def test_completion(server):
    answer = check(complete(server, max_tokens=5, ignore_eos=True), COMPLETION)
    assert abs(answer["created"] - time.time()) < 60
    [choice] = answer["choices"]
    assert (choice["index"], choice["finish_reason"], choice["stop_reason"]) == (0, "length", None)
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10,
                               "prompt_tokens_details": answer["usage"]["prompt_tokens_details"]}


def test_every_answer_has_an_id_of_its_own(server):
    assert len({complete(server, max_tokens=1)["id"] for _ in range(5)}) == 5


def test_index_of_several_prompts(server):
    """Prompt's index times n, and on."""
    answer = check(complete(server, prompt=[PROMPT, "Two and two"], n=2, max_tokens=2, temperature=1), COMPLETION)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]


def test_stop_reason(server):
    """vLLM's: the string, the token, or null for the model's own end."""
    text = complete(server, max_tokens=6)["choices"][0]["text"]
    word = text.split()[1]
    stopped = complete(server, max_tokens=6, stop=[word])["choices"][0]
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", word)
    token = server.tokenize(PROMPT + text)[6]
    stopped = complete(server, max_tokens=6, stop_token_ids=[token])["choices"][0]
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", token)
    [end] = server.post("/tokenize", {"content": "<|im_end|>", "parse_special": True}).json()["tokens"]
    ended = complete(server, max_tokens=6, logit_bias={str(end): 100})["choices"][0]
    assert (ended["finish_reason"], ended["stop_reason"]) == ("stop", None)


def test_chunks(server):
    chunks = check(stream(server), [CHUNK])
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    assert all(len(chunk["choices"]) == 1 for chunk in chunks)
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons[-1] == "length" and set(reasons[:-1]) == {None}


def test_usage_comes_last_and_alone(server):
    chunks = stream(server, stream_options={"include_usage": True})
    check(chunks[:-1], [{**CHUNK, "usage": None}])
    check(chunks[-1], {**CHUNK, "choices": [], "usage": USAGE})
    assert chunks[-1]["usage"]["completion_tokens"] == 6


def test_usage_in_every_chunk(server):
    """vLLM's continuous_usage_stats."""
    chunks = check(stream(server, stream_options={"include_usage": True, "continuous_usage_stats": True}),
                   [{**CHUNK, "usage": USAGE}])
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts) and counts[-1] == 6
    ids = 0
    for chunk in stream(server, return_token_ids=True, stream_options={"include_usage": True,
                                                                      "continuous_usage_stats": True}):
        ids += sum(len(choice["token_ids"]) for choice in chunk["choices"])
        assert chunk["usage"]["completion_tokens"] == ids


def test_no_usage_without_asking(server):
    for options in [None, {}, {"include_usage": False}]:
        check(stream(server, stream_options=options), [CHUNK])


def test_echo_comes_with_the_first_token(server):
    chunks = stream(server, echo=True)
    first = chunks[0]["choices"][0]["text"]
    assert first.startswith(PROMPT) and len(first) > len(PROMPT)


@pytest.mark.parametrize("requested", [0, 1, 5])
def test_logprobs(server, requested):
    """As many as requested, and the sampled token where it is not among them; 0 has the sampled one."""
    answer = check(complete(server, max_tokens=4, logprobs=requested, temperature=1, seed=5),
                   {**COMPLETION, "choices": [{**CHOICE, "logprobs": LOGPROBS}]})
    logprobs = answer["choices"][0]["logprobs"]
    assert {len(values) for values in logprobs.values()} == {4}
    for token, own, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]):
        assert max(requested, 1) <= len(top) <= requested + 1 and top[token] == own


def test_echoed_logprobs(server):
    """The prompt's entries come first, the first of them null; offsets count characters of the text."""
    answer = complete(server, prompt=UNICODE, max_tokens=2, logprobs=1, echo=True)
    choice = answer["choices"][0]
    logprobs = check(choice["logprobs"], LOGPROBS)
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert None not in logprobs["token_logprobs"][1:]
    assert len(logprobs["tokens"]) == len(server.tokenize(UNICODE)) + 2
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
        assert token.startswith("bytes:") or choice["text"][offset:offset + len(token)] == token


def test_chunks_have_their_own_logprobs(server):
    check(stream(server, logprobs=2), [{**CHUNK, "choices": [{**CHUNK_CHOICE, "logprobs": LOGPROBS}]}])


def test_prompt_logprobs(server):
    """vLLM's: by token id, the first null, ranks from 1, the token itself among them."""
    choice = complete(server, max_tokens=1, prompt_logprobs=2)["choices"][0]
    ids = server.tokenize(PROMPT)
    assert choice["prompt_logprobs"][0] is None and len(choice["prompt_logprobs"]) == len(ids)
    for token, entries in list(zip(ids, choice["prompt_logprobs"]))[1:]:
        check(list(entries.values()), [{"logprob": float, "rank": int, "decoded_token": str}])
        assert str(token) in entries and 2 <= len(entries) <= 3
        assert {1, 2} <= {entry["rank"] for entry in entries.values()}


def test_token_ids(server):
    """vLLM's return_token_ids."""
    shape = {**CHOICE, "token_ids": [int], "prompt_token_ids": [int]}
    choice = check(complete(server, max_tokens=3, return_token_ids=True)["choices"][0], shape)
    assert choice["prompt_token_ids"] == server.tokenize(PROMPT) and len(choice["token_ids"]) == 3
    chunks = stream(server, return_token_ids=True)
    check(chunks[0]["choices"], [{**CHUNK_CHOICE, "token_ids": [int], "prompt_token_ids": [int]}])
    check([chunk["choices"][0] for chunk in chunks[1:]], [{**CHUNK_CHOICE, "token_ids": [int]}])


def test_defaults(server):
    """OpenAI's: 16 tokens, one choice; null is as absent."""
    for fields in [{}, {"max_tokens": None, "n": None, "stop": None, "logprobs": None, "stream": None}]:
        answer = check(complete(server, ignore_eos=True, **fields), COMPLETION)
        assert answer["usage"]["completion_tokens"] == 16 and len(answer["choices"]) == 1


# ---- embeddings ----

EMBEDDINGS = {"object": "list", "data": [{"object": "embedding", "index": int, "embedding": [float]}], "model": NAME,
              "usage": {"prompt_tokens": int, "total_tokens": int}}


def embed(server, given, **fields):
    reply = server.post("/v1/embeddings", {"model": NAME, "input": given, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_embeddings(server):
    answer = check(embed(server, [PROMPT, UNICODE]), EMBEDDINGS)
    assert [item["index"] for item in answer["data"]] == [0, 1]
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"]
    assert len(answer["data"][0]["embedding"]) == len(answer["data"][1]["embedding"])


def test_embeddings_in_base64(server):
    """Little-endian float32, which the official SDK requests by default."""
    numbers = embed(server, PROMPT)["data"][0]["embedding"]
    coded = embed(server, PROMPT, encoding_format="base64")["data"][0]
    check(coded, {"object": "embedding", "index": 0, "embedding": str})
    data = base64.b64decode(coded["embedding"], validate=True)
    assert struct.unpack(f"<{len(numbers)}f", data) == pytest.approx(numbers, rel=1e-6)


# ---- models, tokenize, detokenize ----

MODEL = {"id": NAME, "object": "model", "created": int, "owned_by": "quire", "root": str, "parent": None,
         "max_model_len": int, "permission": []}


def test_models(server):
    models = httpx.get(server.url + "/v1/models").json()
    check(models, {"object": "list", "data": [MODEL]})
    assert httpx.get(server.url + f"/v1/models/{NAME}").json() == models["data"][0]


def test_tokenize_vllm(server):
    answer = server.post("/tokenize", {"model": NAME, "prompt": PROMPT}).json()
    check(answer, {"count": 5, "max_model_len": 8192, "tokens": [int], "token_strs": None})
    answer = server.post("/tokenize", {"prompt": PROMPT, "return_token_strs": True}).json()
    check(answer, {"count": 5, "max_model_len": 8192, "tokens": [int], "token_strs": [str]})
    check(server.post("/detokenize", {"model": NAME, "tokens": answer["tokens"]}).json(),
          {"prompt": PROMPT, "content": PROMPT})


def test_tokenize_llama_cpp(server):
    check(server.post("/tokenize", {"content": PROMPT}).json(), {"tokens": [int]})
    pieces = server.post("/tokenize", {"content": PROMPT, "with_pieces": True}).json()
    check(pieces, {"tokens": [{"id": int, "piece": str}]})
    assert "".join(token["piece"] for token in pieces["tokens"]) == PROMPT


# ---- errors ----

ERRORS = [
    ("no JSON", "POST", "/v1/completions", b"{", 400, "invalid_request_error", None, "invalid_json"),
    ("wrong type", "POST", "/v1/completions", {"prompt": "a", "n": "2"}, 400, "invalid_request_error", "n",
     "invalid_type"),
    ("out of range", "POST", "/v1/completions", {"prompt": "a", "n": 0}, 400, "invalid_request_error", "n",
     "out_of_range"),
    ("missing", "POST", "/v1/completions", {}, 400, "invalid_request_error", "prompt",
     "missing_required_parameter"),
    ("stream_options without stream", "POST", "/v1/completions",
     {"prompt": "a", "stream_options": {"include_usage": True}}, 400, "invalid_request_error", "stream_options",
     "unsupported_value"),
    ("too long", "POST", "/v1/completions", {"prompt": "word " * 10000}, 400, "invalid_request_error", "prompt",
     "context_length_exceeded"),
    ("unknown model", "POST", "/v1/completions", {"prompt": "a", "model": "x"}, 404, "invalid_request_error",
     "model", "model_not_found"),
    ("unknown model by path", "GET", "/v1/models/x", None, 404, "invalid_request_error", "model",
     "model_not_found"),
    ("unknown path", "GET", "/v1/nothing", None, 404, "invalid_request_error", None, "not_found"),
    ("wrong method", "GET", "/v1/completions", None, 405, "invalid_request_error", None, "method_not_allowed"),
]


@pytest.mark.parametrize("method,path,body,status,kind,param,code", [error[1:] for error in ERRORS],
                         ids=[error[0] for error in ERRORS])
def test_error(server, method, path, body, status, kind, param, code):
    content = {"content": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
    reply = httpx.request(method, server.url + path, **content)
    assert reply.status_code == status and reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"]
    error = check(reply.json(), ERROR)["error"]
    assert (error["type"], error["param"], error["code"]) == (kind, param, code)


def test_both_numbers_of_a_long_prompt(server):
    message = server.post("/v1/completions", {"prompt": "word " * 10000}).json()["error"]["message"]
    assert "maximum context length is 8192 tokens" in message and re.search(r"has (at least )?\d+ tokens", message)


def test_no_key(start_server):
    server = start_server("--api-key", "secret")
    reply = server.post("/v1/completions", {"prompt": "a"})
    assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
    error = check(reply.json(), ERROR)["error"]
    assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")


def test_busy(start_server):
    """429 with the header fields that the SDK obeys."""
    server = start_server("--max-queued-requests", 1, "--max-num-seqs", 1)
    with open_stream(server, max_tokens=8000) as running:
        read_until(running, b"data: ")
        with open_stream(server):
            server.wait_for(lambda metrics: metrics["num_requests_waiting"] == 1)
            body = {"prompt": "a", "max_tokens": 1}
            reply = server.post("/v1/completions", body, headers={"X-Request-Id": "mine"})
    assert reply.status_code == 429
    assert int(reply.headers["retry-after"]) >= 1 and int(reply.headers["retry-after-ms"]) >= 1
    assert reply.headers["x-request-id"] == "mine"
    assert check(reply.json(), ERROR)["error"]["type"] == "rate_limit_error"


def test_ignored_fields(server):
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})):
        assert server.post(path, {**body, "unheard_of": 1, "absent": None}).headers["x-ignored-params"] == "unheard_of"
    reply = server.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "unheard_of": 1, "x y": 2})
    assert reply.status_code == 200 and reply.headers["x-ignored-params"] == "unheard_of,x_y"
    assert "x-ignored-params" not in server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).headers
