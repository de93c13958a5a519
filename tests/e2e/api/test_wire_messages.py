"""The wire shape of /v1/messages, field by field and event by event; see test_wire.py. After the types of
Anthropic's Python SDK."""

import json
import re

import httpx
import pytest

from quire_server import NAME
from wire_shape import check

QUESTION = [{"role": "user", "content": "Say hello."}]
TOOLS = [{"name": "get_weather", "description": "The weather in a city",
          "input_schema": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
                           "additionalProperties": False}}]

TEXT = {"type": "text", "text": str}
CALL = {"type": "tool_use", "id": re.compile(r"toolu_[0-9a-f]{24}"), "name": "get_weather", "input": dict}
USAGE = {"input_tokens": int, "cache_creation_input_tokens": 0, "cache_read_input_tokens": int, "output_tokens": int,
         "output_tokens_details": {"thinking_tokens": int}}
MESSAGE = {"id": re.compile(r"msg_\w+"), "type": "message", "role": "assistant", "model": NAME, "content": list,
           "stop_reason": (str, None), "stop_sequence": (str, None), "usage": USAGE}
ERROR = {"type": "error", "error": {"type": str, "message": str, "details?": {"error_code": str}}, "request_id": str}


def post(server, path="/v1/messages", **fields):
    return server.post(path, {"model": NAME, "messages": QUESTION, "temperature": 0, "max_tokens": 8, **fields})


def ask(server, **fields):
    reply = post(server, **fields)
    assert reply.status_code == 200, reply.text
    assert reply.headers["request-id"] == reply.headers["x-request-id"]
    return check(reply.json(), MESSAGE)


def stream(server, **fields):
    """The events, each named by its type."""
    body = {"model": NAME, "messages": QUESTION, "temperature": 0, "max_tokens": 8, "stream": True, **fields}
    reply = httpx.post(server.url + "/v1/messages", json=body, timeout=300)
    assert reply.status_code == 200 and reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.text.endswith("}\n\n")
    events = []
    for frame in reply.text.split("\n\n")[:-1]:
        name, data = re.fullmatch(r"event: (\S+)\ndata: (\{.*\})", frame).groups()
        events.append(json.loads(data))
        assert events[-1]["type"] == name
    return events


def test_message(server):
    answer = ask(server)
    check(answer["content"], [TEXT])
    assert answer["content"][0]["text"] and answer["stop_reason"] == "max_tokens" and answer["usage"]["output_tokens"] == 8


def test_call(server):
    answer = ask(server, tools=TOOLS, tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=120)
    [call] = check(answer["content"], [CALL])
    assert call["input"]["city"] in ("Paris", "Rome") and answer["stop_reason"] == "tool_use"


def test_events_of_text(server):
    events = stream(server)
    deltas = [event for event in events if event["type"] == "content_block_delta"]
    assert [event["type"] for event in events] == [
        "message_start", "ping", "content_block_start", *["content_block_delta"] * len(deltas), "content_block_stop",
        "message_delta", "message_stop"]
    check(events[0], {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None,
                                                           "stop_sequence": None}})
    check(events[1], {"type": "ping"})
    check(events[2], {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    check(deltas, [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": str}}])
    assert "".join(event["delta"]["text"] for event in deltas) == ask(server)["content"][0]["text"]
    check(events[-3], {"type": "content_block_stop", "index": 0})
    check(events[-2], {"type": "message_delta", "delta": {"stop_reason": "max_tokens", "stop_sequence": None},
                       "usage": {**USAGE, "output_tokens": 8}})
    check(events[-1], {"type": "message_stop"})


def test_events_of_a_call(server):
    events = stream(server, tools=TOOLS, tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=120)
    deltas = [event for event in events if event["type"] == "content_block_delta"]
    check(events[2], {"type": "content_block_start", "index": 0, "content_block": {**CALL, "input": {}}})
    check(deltas, [{"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": str}}])
    assert json.loads("".join(event["delta"]["partial_json"] for event in deltas))["city"] in ("Paris", "Rome")
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_counts(server):
    count = server.post("/v1/messages/count_tokens", {"model": NAME, "messages": QUESTION}).json()
    check(count, {"input_tokens": int})
    check(server.post("/v1/responses/input_tokens", {"model": NAME, "input": "Say hello."}).json(),
          {"object": "response.input_tokens", "input_tokens": count["input_tokens"]})


ERRORS = [
    ("POST", "/v1/messages", {}, 400, "invalid_request_error"),
    ("POST", "/v1/messages", {"messages": QUESTION, "max_tokens": 1, "model": "x"}, 404, "not_found_error"),
    ("POST", "/v1/messages", {"messages": QUESTION}, 400, "invalid_request_error"),
    ("POST", "/v1/messages/count_tokens", {"messages": []}, 400, "invalid_request_error"),
    ("GET", "/v1/messages", None, 405, "invalid_request_error"),
]


@pytest.mark.parametrize("method,path,body,status,kind", ERRORS)
def test_errors(server, method, path, body, status, kind):
    reply = httpx.request(method, server.url + path, json=body, headers={"X-Request-Id": "mine"})
    assert reply.status_code == status and reply.headers["request-id"] == "mine"
    error = check(reply.json(), ERROR)
    assert error["error"]["type"] == kind and error["error"]["message"] and error["request_id"] == "mine"


def test_ignored_fields(server):
    blocks = [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}, "citations": None}]
    reply = post(server, messages=[{"role": "user", "content": blocks}], metadata={"user_id": "u"}, service_tier="auto",
                 cache_control={"type": "ephemeral"})
    assert set(reply.headers["x-ignored-params"].split(",")) == {
        "messages[].content[].cache_control", "metadata", "service_tier", "cache_control"}
