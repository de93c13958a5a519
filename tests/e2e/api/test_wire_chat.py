"""The wire shape of chat completions, field by field; see test_wire.py. What a 135M model says is of no
matter here: where the shape depends on it, tool_choice forces it."""

import json
import re

import pytest

from quire_server import NAME
from wire_shape import check, read_events

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
                   "additionalProperties": False}}}]

USAGE = {"prompt_tokens": int, "completion_tokens": int, "total_tokens": int,
         "prompt_tokens_details": {"cached_tokens": int}}
REASONS = ("stop", "length", "tool_calls")
HEAD = {"id": re.compile(r"chatcmpl-[\w-]+"), "created": int, "model": NAME, "system_fingerprint": str}
MESSAGE = {"role": "assistant", "content": str, "refusal": None}
CHOICE = {"index": int, "message": MESSAGE, "logprobs": None, "finish_reason": REASONS,
          "stop_reason": (str, int, None), "token_ids": None}
CHAT = {**HEAD, "object": "chat.completion", "choices": [CHOICE], "usage": USAGE, "prompt_logprobs": None,
        "prompt_token_ids": None}
CHUNK_HEAD = {**HEAD, "object": "chat.completion.chunk", "prompt_token_ids?": None}  # in the first chunk
ROLE = {"index": int, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None,
        "stop_reason?": None}
PIECE = {"index": int, "delta": {"content": str}, "logprobs": None, "finish_reason": None, "stop_reason?": None,
         "token_ids": None}
LAST = {"index": int, "delta": {"content?": str}, "logprobs": None, "finish_reason": REASONS,
        "stop_reason": (str, int, None), "token_ids": None}
TOKEN = {"token": str, "logprob": float, "bytes": [int]}
LOGPROBS = {"content": [{**TOKEN, "top_logprobs": [TOKEN]}], "refusal": None}
CALL = {"id": re.compile(r"[\w-]{4,}"), "type": "function", "function": {"name": "get_weather", "arguments": str}}


def ask(server, **fields):
    body = {"model": NAME, "messages": MESSAGES, "temperature": 0, "max_completion_tokens": 8, **fields}
    reply = server.post("/v1/chat/completions", body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def stream(server, **fields):
    body = {"model": NAME, "messages": MESSAGES, "temperature": 0, "max_completion_tokens": 8, "stream": True, **fields}
    return read_events(server, "/v1/chat/completions", body)


def test_chat(server):
    answer = check(ask(server), CHAT)
    [choice] = answer["choices"]
    assert choice["index"] == 0
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    rendered = server.post("/tokenize", {"messages": MESSAGES}).json()
    assert usage["prompt_tokens"] == rendered["count"]


def test_tokenize_messages(server):
    """vLLM's: as the chat's prompt."""
    answer = server.post("/tokenize", {"model": NAME, "messages": MESSAGES}).json()
    check(answer, {"count": int, "max_model_len": 8192, "tokens": [int], "token_strs": None})
    text = server.post("/detokenize", {"tokens": answer["tokens"]}).json()["prompt"]
    assert "What is the capital of France?" in text
    shorter = server.post("/tokenize", {"messages": MESSAGES, "add_generation_prompt": False}).json()
    assert shorter["count"] < answer["count"] and answer["tokens"][:shorter["count"]] == shorter["tokens"]


def test_several_choices(server):
    answer = check(ask(server, n=3, temperature=1, seed=1), CHAT)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]


def test_order_of_chunks(server):
    """The role with empty content, the pieces, the one that says why it ended."""
    chunks = check(stream(server, ignore_eos=True), [{**CHUNK_HEAD, "choices": list}])
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    choices = [check(chunk["choices"], [dict])[0] for chunk in chunks]
    check(choices[0], ROLE)
    check(choices[1:-1], [PIECE])
    assert check(choices[-1], LAST)["finish_reason"] == "length"
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    assert text == ask(server, ignore_eos=True)["choices"][0]["message"]["content"]


def test_every_choice_begins_with_its_role(server):
    chunks = stream(server, n=2, temperature=1, seed=1)
    for index in (0, 1):
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        check(own[0], ROLE)
        assert not any("role" in choice["delta"] for choice in own[1:])
        assert [choice["finish_reason"] is not None for choice in own] == [False] * (len(own) - 1) + [True]


def test_usage_comes_last_and_alone(server):
    chunks = stream(server, stream_options={"include_usage": True})
    check(chunks[:-1], [{**CHUNK_HEAD, "choices": list, "usage": None}])
    assert check(chunks[-1], {**CHUNK_HEAD, "choices": list, "usage": USAGE})["choices"] == []
    assert all(len(chunk["choices"]) == 1 for chunk in chunks[:-1])
    assert chunks[-1]["usage"] == {**ask(server)["usage"],
                                   "prompt_tokens_details": chunks[-1]["usage"]["prompt_tokens_details"]}


def test_usage_in_every_chunk(server):
    """0 with the role, then of the text sent so far."""
    chunks = stream(server, return_token_ids=True, ignore_eos=True,
                    stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert chunks[0]["usage"]["completion_tokens"] == 0 and chunks[-1]["usage"]["completion_tokens"] == 8
    ids = 0
    for chunk in chunks:
        ids += sum(len(choice.get("token_ids", [])) for choice in chunk["choices"])
        assert chunk["usage"]["completion_tokens"] == ids
        assert chunk["usage"]["total_tokens"] == chunk["usage"]["prompt_tokens"] + ids


def test_reasoning_is_null_where_there_is_none(start_server):
    server = start_server("--reasoning-parser", "think")
    check(ask(server), {**CHAT, "choices": [{**CHOICE, "message": {**MESSAGE, "reasoning": None,
                                                                   "reasoning_content": None}}]})


@pytest.mark.parametrize("requested", [0, 1, 5])
def test_logprobs(server, requested):
    answer = ask(server, logprobs=True, top_logprobs=requested)
    choice = check(answer["choices"][0], {**CHOICE, "logprobs": LOGPROBS})
    entries = choice["logprobs"]["content"]
    assert len(entries) == answer["usage"]["completion_tokens"]
    assert all(len(entry["top_logprobs"]) == requested for entry in entries)
    for entry in entries:
        assert bytes(entry["bytes"]).decode(errors="replace") == entry["token"]
        if requested:
            assert entry["top_logprobs"][0]["logprob"] == entry["logprob"]  # greedy


def test_logprobs_in_chunks(server):
    choices = [chunk["choices"][0] for chunk in stream(server, logprobs=True, top_logprobs=2)]
    entries = [entry for choice in choices if choice["logprobs"]
               for entry in check(choice["logprobs"], LOGPROBS)["content"]]
    assert entries == ask(server, logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]


def test_forced_call(server):
    """A named function: its call, content null, and as OpenAI has it finish_reason "stop"."""
    answer = ask(server, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "get_weather"}},
                 max_completion_tokens=120)
    choice = check(answer["choices"][0], {**CHOICE, "message": {**MESSAGE, "content": None, "tool_calls": [CALL]}})
    [call] = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["city"] in ("Paris", "Rome")
    assert choice["finish_reason"] == "stop"


def test_required_call(server):
    answer = ask(server, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_completion_tokens=120)
    choice = check(answer["choices"][0], {**CHOICE, "message": {**MESSAGE, "content": None, "tool_calls": [CALL]}})
    assert choice["finish_reason"] == "tool_calls" and len(choice["message"]["tool_calls"]) == 1


def test_call_in_chunks(server):
    """id, type and name in the first delta of a call, and never again: the SDK appends what comes twice."""
    chunks = stream(server, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_completion_tokens=120)
    choices = [chunk["choices"][0] for chunk in chunks]
    check(choices[0], ROLE)
    assert choices[-1]["finish_reason"] == "tool_calls"
    deltas = [delta for choice in choices for delta in choice["delta"].get("tool_calls", [])]
    check(deltas[0], {**CALL, "index": 0})
    check(deltas[1:], [{"index": 0, "function": {"arguments": str}}])
    arguments = "".join(delta["function"]["arguments"] for delta in deltas)
    assert json.loads(arguments)["city"] in ("Paris", "Rome")
    assert not any(choice["delta"].get("content") for choice in choices)


def test_a_call_goes_back_as_it_came(server):
    """The assistant's message and the tool's answer are taken in the next turn."""
    message = ask(server, tools=TOOLS, tool_choice="required", parallel_tool_calls=False,
                  max_completion_tokens=120)["choices"][0]["message"]
    answer = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "Rain"}
    check(ask(server, messages=[*MESSAGES, message, answer], tools=TOOLS, tool_choice="none"), CHAT)


def test_tools_without_a_call(server):
    """No empty tool_calls where there is none."""
    check(ask(server, tools=TOOLS, tool_choice="none"), CHAT)


def test_token_ids(server):
    answer = check(ask(server, return_token_ids=True),
                   {**CHAT, "choices": [{**CHOICE, "token_ids": [int]}], "prompt_token_ids": [int]})
    assert answer["prompt_token_ids"] == server.post("/tokenize", {"messages": MESSAGES}).json()["tokens"]


def test_no_length_given(server):
    """To the end of the context, not 16: the model ends by itself here."""
    answer = ask(server, max_completion_tokens=None, messages=[{"role": "user", "content": "Say hello."}], stop=["."])
    assert answer["choices"][0]["finish_reason"] in ("stop", "length")


ERRORS = [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "a robot", "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
     "messages[0].content[0].type"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"tool_choice": "required"}, "tools"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"functions": [{"name": "f"}], "tools": []}, "functions"),
]


@pytest.mark.parametrize("fields,param", ERRORS, ids=[param for _, param in ERRORS])
def test_errors(server, fields, param):
    reply = server.post("/v1/chat/completions", {"messages": MESSAGES, "max_completion_tokens": 1, **fields})
    assert reply.status_code == 400
    error = check(reply.json(), {"error": {"message": str, "type": "invalid_request_error", "param": str,
                                           "code": (str, None)}})["error"]
    assert error["param"] == param
