"""OpenAI's old form of tools through the official SDK: the same prompts and calls as the new one's."""

import json

import pytest

from quire_server import NAME, ROOT, QuireServer

TEMPLATE = ROOT / "tests/golden/chat_templates/qwen2.5.jinja"  # hermes calls, ChatML as the model's own
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def question(city):
    return {"role": "user", "content": f"What is the weather in {city}?"}


def call(city):
    return {"role": "assistant", "content": None,
            "function_call": {"name": "get_weather", "arguments": json.dumps({"city": city})}}


def new_call(city):
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": call(city)["function_call"]}]}


SHOWN = [question("Rome"), call("Rome"), question("Oslo"), call("Oslo"), question("Paris")]
NEW = [question("Rome"), new_call("Rome"), question("Oslo"), new_call("Oslo"), question("Paris")]
RESULT = {"role": "function", "name": "get_weather", "content": "sunny"}


@pytest.fixture(scope="module")
def function_server(tmp_path_factory):
    server = QuireServer(tmp_path_factory.mktemp("functions") / "server.log", "--chat-template", TEMPLATE,
                         "--kv-cache-memory-bytes", "256M")
    yield server
    server.kill()


def ask(server, messages=SHOWN, **fields):
    fields = {"temperature": 0, "max_tokens": 60, "functions": [WEATHER], **fields}
    return server.client().chat.completions.create(model=NAME, messages=messages, **fields)


def check_call(choice, finish_reason="function_call"):
    assert choice.finish_reason == finish_reason
    assert not choice.message.content and choice.message.tool_calls is None
    assert choice.message.function_call.name == "get_weather"
    assert json.loads(choice.message.function_call.arguments) == {"city": "Paris"}


def test_a_round_trip(function_server):
    answer = ask(function_server)
    check_call(answer.choices[0])
    message = answer.choices[0].message.model_dump(exclude_none=True)
    last = ask(function_server, [*SHOWN, message, RESULT], function_call="none")
    assert last.choices[0].message.function_call is None
    assert last.choices[0].message.content


def test_the_prompt_is_that_of_tools(function_server):
    old = {"messages": [*SHOWN, call("Paris"), RESULT], "functions": [WEATHER]}
    new = {"messages": [*NEW, new_call("Paris"), {"role": "tool", "content": "sunny"}],
           "tools": [{"type": "function", "function": WEATHER}]}
    tokens = [function_server.post("/tokenize", body).json()["tokens"] for body in (old, new)]
    assert tokens[0] == tokens[1]
    chat = function_server.post("/v1/chat/completions", {"model": NAME, "max_tokens": 1, **old}).json()
    assert chat["usage"]["prompt_tokens"] == len(tokens[0])


@pytest.mark.parametrize("choice, finish_reason", [("auto", "function_call"), ({"name": "get_weather"}, "stop")])
def test_a_stream_has_the_same_call(function_server, choice, finish_reason):
    check_call(ask(function_server, function_call=choice).choices[0], finish_reason)
    chunks = list(ask(function_server, function_call=choice, stream=True))
    parts = [item.delta.function_call for chunk in chunks for item in chunk.choices if item.delta.function_call]
    assert [part.name for part in parts if part.name] == ["get_weather"] and parts[0].name
    assert json.loads("".join(part.arguments or "" for part in parts)) == {"city": "Paris"}
    assert not any(item.delta.tool_calls for chunk in chunks for item in chunk.choices)
    assert chunks[-1].choices[0].finish_reason == finish_reason


def test_every_choice_calls(function_server):
    choices = ask(function_server, n=2).choices
    assert len(choices) == 2
    for choice in choices:
        check_call(choice)


@pytest.mark.parametrize("fields, param", [
    ({"functions": "f"}, "functions"),
    ({"functions": [1]}, "functions[0]"),
    ({"functions": [{}]}, "functions[0].name"),
    ({"functions": [{"name": "f" * 129}]}, "functions[0].name"),
    ({"functions": [{"name": "f", "description": 1}]}, "functions[0].description"),
    ({"functions": [{"name": "f", "parameters": []}]}, "functions[0].parameters"),
    ({"functions": [{"name": "f", "parameters": {"type": "array"}}]}, "functions[0].parameters.type"),
    ({"functions": [WEATHER, WEATHER]}, "functions[1].name"),
    ({"functions": [{"name": f"f{i}"} for i in range(129)]}, "functions"),
    ({"functions": []}, None),
    ({"functions": [{"name": f"f{i}"} for i in range(128)], "max_tokens": 1}, None),
    ({"tools": []}, "functions"),
    ({"tool_choice": "auto"}, "functions"),
    ({"parallel_tool_calls": False}, "functions"),
    ({"function_call": "required"}, "function_call"),
    ({"function_call": {"name": "other"}}, "function_call.name"),
    ({"function_call": {}}, "function_call.name"),
    ({"functions": None, "function_call": "auto"}, "functions"),
    ({"functions": None, "function_call": "none"}, None),
    ({"messages": [{"role": "user", "content": "a", "function_call": {"name": "f"}}]}, "messages[0].function_call"),
    ({"messages": [{"role": "assistant", "function_call": {"name": "f"}, "tool_calls": [{}]}]}, "messages[0].function_call"),
    ({"messages": [{"role": "function", "content": "a"}]}, "messages[0].name"),
    ({"messages": [{"role": "function", "name": "f"}]}, "messages[0].content"),
])
def test_bounds(function_server, fields, param):
    body = {"model": NAME, "messages": SHOWN, "functions": [WEATHER], "max_tokens": 4, **fields}
    reply = function_server.post("/v1/chat/completions", body)
    assert reply.status_code == (400 if param else 200), reply.text
    if param:
        assert reply.json()["error"]["param"] == param
        assert "tool_choice needs" not in reply.json()["error"]["message"]
