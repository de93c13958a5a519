"""POST /v1/responses through the official SDK."""

import json

import httpx
import openai
import pytest
from pydantic import BaseModel

from quire_server import NAME

QUESTION = "What is the capital of France?"
TOOL = {"type": "function", "name": "get_weather", "description": "The weather of a city.", "strict": True,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
                       "additionalProperties": False}}


def respond(server, input=QUESTION, **fields):
    fields = {"temperature": 0, "max_output_tokens": 32, **fields}
    return server.client().responses.create(model=NAME, input=input, **fields)


def test_text_is_that_of_the_chat(server):
    response = respond(server)
    chat = server.client().chat.completions.create(model=NAME, temperature=0, max_tokens=32,
                                                   messages=[{"role": "user", "content": QUESTION}])
    assert response.output_text == chat.choices[0].message.content
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    assert response.usage.output_tokens == chat.usage.completion_tokens
    assert response.usage.total_tokens == chat.usage.total_tokens


def test_shape_of_the_object(server):
    body = httpx.post(server.url + "/v1/responses", timeout=60, json={
        "model": NAME, "input": QUESTION, "instructions": "Be brief.", "max_output_tokens": 4, "temperature": 0,
        "metadata": {"k": "v"}, "store": True}).json()
    assert set(body) == {
        "id", "object", "created_at", "status", "model", "error", "incomplete_details", "instructions",
        "max_output_tokens", "metadata", "parallel_tool_calls", "tool_choice", "tools", "text", "reasoning",
        "top_logprobs", "user", "temperature", "top_p", "background", "previous_response_id", "store", "truncation",
        "output", "usage", "system_fingerprint"}
    assert body["id"].startswith("resp_") and body["object"] == "response"
    assert body["status"] == "incomplete" and body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert body["store"] is False  # nothing is stored, whatever was requested
    assert body["metadata"] == {"k": "v"} and body["instructions"] == "Be brief."
    message, = body["output"]
    assert message["type"] == "message" and message["role"] == "assistant" and message["status"] == "incomplete"
    part, = message["content"]
    assert part["type"] == "output_text" and part["annotations"] == [] and part["logprobs"] == []
    assert body["usage"]["output_tokens"] == 4
    assert body["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}


def test_instructions_are_the_system_message(server):
    instructed = respond(server, instructions="You answer in French only.")
    chat = server.client().chat.completions.create(model=NAME, temperature=0, max_tokens=32, messages=[
        {"role": "system", "content": "You answer in French only."}, {"role": "user", "content": QUESTION}])
    assert instructed.output_text == chat.choices[0].message.content


def test_stream_tells_every_step(server):
    whole = respond(server)
    events = list(server.client().responses.create(model=NAME, input=QUESTION, temperature=0, max_output_tokens=32,
                                                   stream=True))
    types = [event.type for event in events]
    assert types[:4] == ["response.created", "response.in_progress", "response.output_item.added",
                         "response.content_part.added"]
    end = "response.completed" if whole.status == "completed" else "response.incomplete"
    assert types[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done", end]
    assert set(types[4:-4]) == {"response.output_text.delta"}
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text == events[-4].text
    assert len({event.item_id for event in events if hasattr(event, "item_id")}) == 1
    assert events[-1].response.usage == whole.usage


def test_streaming_helper_accumulates(server):
    fields = dict(input="Hi!", temperature=0, max_output_tokens=200)
    whole = respond(server, **fields)
    assert whole.status == "completed"  # the helper wants a response that was not cut off
    with server.client().responses.stream(model=NAME, **fields) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == whole.output_text


def test_forced_tool_call_and_its_result(server):
    response = respond(server, "What is the weather in Paris?", tools=[TOOL], tool_choice="required",
                       parallel_tool_calls=False, max_output_tokens=64)
    call, = response.output
    assert call.type == "function_call" and call.name == "get_weather" and call.call_id.startswith("call_")
    assert set(json.loads(call.arguments)) == {"city"}
    answer = respond(server, [{"role": "user", "content": "What is the weather in Paris?"}, call.to_dict(),
                              {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}],
                     tools=[TOOL], tool_choice="none")
    assert answer.output_text


def test_streamed_tool_call(server):
    fields = dict(model=NAME, input="What is the weather in Paris?", tools=[TOOL], temperature=0,
                  tool_choice={"type": "function", "name": "get_weather"}, max_output_tokens=64)
    events = list(server.client().responses.create(stream=True, **fields))
    types = [event.type for event in events]
    assert types[2] == "response.output_item.added" and events[2].item.type == "function_call"
    arguments = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    done, = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert arguments == done.arguments == server.client().responses.create(**fields).output[0].arguments


def test_parse_gives_the_model(server):
    class Person(BaseModel):
        name: str
        age: int

    response = server.client().responses.parse(model=NAME, input="Anna is 31. Who is it?", text_format=Person,
                                               temperature=0, max_output_tokens=64)
    assert isinstance(response.output_parsed, Person)


def test_logprobs_when_included(server):
    response = respond(server, include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=4)
    entries = response.output[0].content[0].logprobs
    assert len(entries) == 4 and all(len(entry.top_logprobs) == 2 for entry in entries)
    assert "".join(entry.token for entry in entries) == response.output_text


@pytest.mark.parametrize("fields, param", [
    ({"input": 1}, "input"),
    ({"input": QUESTION, "previous_response_id": "resp_1"}, "previous_response_id"),
    ({"input": QUESTION, "background": True}, "background"),
    ({"input": QUESTION, "max_output_tokens": -1}, "max_output_tokens"),
    ({"input": QUESTION, "temperature": 3}, "temperature"),
    ({"input": QUESTION, "tools": [{"type": "file_search"}]}, "tools[0].type"),
    ({"input": QUESTION, "tools": [{"type": "function"}]}, "tools[0].name"),
    ({"input": QUESTION, "tools": [TOOL], "tool_choice": {"type": "function", "name": "none"}}, "tool_choice.name"),
    ({"input": QUESTION, "truncation": "some"}, "truncation"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://localhost/"}]}]},
     "input[0].content[0].type"),
])
def test_refusals_name_the_field(server, fields, param):
    with pytest.raises(openai.BadRequestError) as refused:
        server.client().responses.with_raw_response.create(model=NAME, **fields)
    assert refused.value.param == param
    assert refused.value.body["message"]


@pytest.mark.parametrize("fields,param,word", [
    ({"max_output_tokens": 4, "min_tokens": 5}, "min_tokens", "at most max_output_tokens (4), not 5"),
    ({"top_logprobs": 2}, "top_logprobs", "with message.output_text.logprobs in include"),
    ({"max_output_tokens": 100000}, "max_output_tokens", "max_output_tokens must be at most"),
    ({"text": {"format": {"type": "json_schema", "schema": 1}}}, "text.format.schema", "text.format.schema"),
])
def test_messages_name_this_endpoints_fields(server, fields, param, word):
    error = server.post("/v1/responses", {"input": "Hi", **fields}).json()["error"]
    assert error["param"] == param and word in error["message"], error
    assert "max_completion_tokens" not in error["message"] and "response_format" not in error["message"]


def test_what_the_answer_repeats_is_bounded(server):
    with pytest.raises(openai.BadRequestError, match="at most 1048576 are allowed"):
        respond(server, max_output_tokens=1, metadata={"k": "x" * 1048576})
    assert respond(server, max_output_tokens=1, metadata={"k": "x" * 1000000}).metadata["k"] == "x" * 1000000


def test_nothing_is_stored(server):
    with pytest.raises(openai.NotFoundError):
        server.client().responses.retrieve("resp_1")
