"""The wire shape of /v1/responses, field by field and event by event; see test_wire.py. After OpenAI's API
reference and the types of the official Python SDK."""

import json
import re

import httpx
import pytest

from quire_server import NAME
from wire_shape import check

QUESTION = "Say hello."
TOOLS = [{"type": "function", "name": "get_weather", "description": "The weather in a city",
          "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
                         "additionalProperties": False}}]

PART = {"type": "output_text", "annotations": [], "logprobs": [], "text": str}
ITEM = {"id": re.compile(r"msg_\w+"), "type": "message", "status": ("completed", "incomplete"), "role": "assistant"}
CALL = {"id": re.compile(r"fc_\w+"), "type": "function_call", "status": "completed", "name": "get_weather",
        "call_id": re.compile(r"call_\w+"), "arguments": str}
USAGE = {"input_tokens": int, "input_tokens_details": {"cached_tokens": int}, "output_tokens": int,
         "output_tokens_details": {"reasoning_tokens": int}, "total_tokens": int}
RESPONSE = {
    "id": re.compile(r"resp_\w+"), "object": "response", "created_at": int, "model": NAME, "error": None,
    "status": str, "incomplete_details": (None, {"reason": "max_output_tokens"}), "instructions": (str, None),
    "max_output_tokens": (int, None), "metadata": dict, "parallel_tool_calls": bool, "tool_choice": (str, dict),
    "tools": list, "text": dict, "reasoning": dict, "top_logprobs": int, "user": (str, None), "temperature": float,
    "top_p": float, "background": False, "previous_response_id": None, "store": False, "truncation": "disabled",
    "output": list, "usage": (USAGE, None), "system_fingerprint": str}


def post(server, **fields):
    return server.post("/v1/responses", {"model": NAME, "input": QUESTION, "temperature": 0, "max_output_tokens": 8,
                                         **fields})


def ask(server, **fields):
    reply = post(server, **fields)
    assert reply.status_code == 200, reply.text
    return check(reply.json(), RESPONSE)


def stream(server, **fields):
    """The events: each named by its type, numbered from 0, and no [DONE] behind them."""
    body = {"model": NAME, "input": QUESTION, "temperature": 0, "max_output_tokens": 8, "stream": True, **fields}
    reply = httpx.post(server.url + "/v1/responses", json=body, timeout=300)
    assert reply.status_code == 200 and reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.text.endswith("}\n\n")
    frames = [frame for frame in reply.text.split("\n\n")[:-1] if not frame.startswith(":")]
    events = []
    for number, frame in enumerate(frames):
        name, data = re.fullmatch(r"event: (\S+)\ndata: (\{.*\})", frame).groups()
        events.append(json.loads(data))
        assert (events[-1]["type"], events[-1]["sequence_number"]) == (name, number)
    return events


def test_response(server):
    answer = ask(server)
    [item] = check(answer["output"], [{**ITEM, "content": [PART]}])
    assert item["content"][0]["text"]
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_cut(server):
    answer = ask(server, max_output_tokens=2)
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert answer["output"][0]["status"] == "incomplete" and answer["usage"]["output_tokens"] == 2


def test_completed(server):
    answer = ask(server, max_output_tokens=200, stop=["!"])
    assert (answer["status"], answer["incomplete_details"]) == ("completed", None)
    assert answer["output"][0]["status"] == "completed"


def test_the_request_is_repeated(server):
    given = {"instructions": "Be brief.", "max_output_tokens": 3, "metadata": {"a": "b"}, "temperature": 0.5,
             "top_p": 0.5, "tools": TOOLS, "tool_choice": "none", "parallel_tool_calls": False, "user": "me"}
    answer = ask(server, **given)
    assert {name: answer[name] for name in given} == given


def test_call(server):
    answer = ask(server, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_output_tokens=120)
    [call] = check(answer["output"], [CALL])
    assert json.loads(call["arguments"])["city"] in ("Paris", "Rome")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "Rain"}
    ask(server, input=[{"role": "user", "content": QUESTION}, call, result], tools=TOOLS, tool_choice="none")


def test_events_of_text(server):
    events = stream(server)
    types = [event["type"] for event in events]
    place = {"type": str, "sequence_number": int, "item_id": events[2]["item"]["id"], "output_index": 0,
             "content_index": 0}
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert types == ["response.created", "response.in_progress", "response.output_item.added",
                     "response.content_part.added", *["response.output_text.delta"] * len(deltas),
                     "response.output_text.done", "response.content_part.done", "response.output_item.done",
                     "response.incomplete"]
    for event in events[:2]:
        check(event, {"type": str, "sequence_number": int, "response": {**RESPONSE, "status": "in_progress",
                                                                         "usage": None}})
        assert event["response"]["output"] == []
    check(events[2]["item"], {**ITEM, "status": "in_progress", "content": list})
    check(events[3], {**place, "part": {**PART, "text": ""}})
    check(deltas, [{**place, "delta": str, "logprobs": []}])
    text = "".join(event["delta"] for event in deltas)
    check(events[-4], {**place, "text": text, "logprobs": []})
    check(events[-3], {**place, "part": {**PART, "text": text}})
    check(events[-2], {"type": str, "sequence_number": int, "output_index": 0,
                       "item": {**ITEM, "content": [{**PART, "text": text}]}})
    check(events[-1]["response"], {**RESPONSE, "status": "incomplete", "usage": USAGE})
    assert events[-1]["response"]["output"] == [events[-2]["item"]]


def test_events_of_a_call(server):
    events = stream(server, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_output_tokens=120)
    deltas = [event for event in events if event["type"] == "response.function_call_arguments.delta"]
    assert [event["type"] for event in events] == [
        "response.created", "response.in_progress", "response.output_item.added",
        *["response.function_call_arguments.delta"] * len(deltas), "response.function_call_arguments.done",
        "response.output_item.done", "response.completed"]
    place = {"type": str, "sequence_number": int, "item_id": events[2]["item"]["id"], "output_index": 0}
    check(events[2]["item"], {**CALL, "status": "in_progress", "arguments": ""})
    check(deltas, [{**place, "delta": str}])
    arguments = "".join(event["delta"] for event in deltas)
    check(events[-3], {**place, "name": "get_weather", "arguments": arguments})
    assert events[-1]["response"]["output"] == [events[-2]["item"]]
    check(events[-2]["item"], {**CALL, "arguments": arguments})


ERRORS = [({"input": 1}, "input"), ({"input": None}, "input"), ({"previous_response_id": "resp_1"}, "previous_response_id"),
          ({"background": True}, "background"), ({"messages": []}, "messages"), ({"max_output_tokens": 0}, "max_output_tokens"),
          ({"tools": [{"type": "file_search"}]}, "tools[0].type"), ({"input": [{"role": "user"}]}, "input[0].content"),
          ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type")]


@pytest.mark.parametrize("fields,param", ERRORS, ids=[str(fields)[:40] for fields, _ in ERRORS])
def test_errors(server, fields, param):
    reply = post(server, **fields)
    assert reply.status_code == 400
    error = check(reply.json(), {"error": {"message": str, "type": "invalid_request_error", "param": str,
                                           "code": (str, None)}})["error"]
    assert error["param"] == param
