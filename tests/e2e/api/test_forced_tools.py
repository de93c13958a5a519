"""Forced tool calls: a small model that knows no tools calls them as their schemas say."""

import json

import pytest

from quire_server import NAME, ROOT, QuireServer

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "days": {"type": "integer"},
        "unit": {"enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "days", "unit"],
    "additionalProperties": False,
}
SUM = {
    "type": "object",
    "properties": {"numbers": {"type": "array", "items": {"type": "integer"}, "maxItems": 4}},
    "required": ["numbers"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "add", "parameters": SUM, "strict": True}},
    {"type": "function", "function": {"name": "now", "description": "the time"}},
]
ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]
ONE_TOOL = {"type": "function", "function": {"name": "get_weather"}}


def chat(server, **fields):
    fields = {"messages": ASK, "tools": TOOLS, "temperature": 0, "max_tokens": 200, **fields}
    return server.client().chat.completions.create(model=NAME, **fields)


def check_arguments(name, arguments):
    values = json.loads(arguments)
    if name == "get_weather":
        assert set(values) == {"city", "days", "unit"}
        assert isinstance(values["city"], str) and isinstance(values["days"], int)
        assert values["unit"] in ("celsius", "fahrenheit")
    elif name == "add":
        assert set(values) == {"numbers"} and len(values["numbers"]) <= 4
        assert all(isinstance(number, int) for number in values["numbers"])
    else:
        assert name == "now" and values == {}


def check_calls(calls, at_most=None):
    assert len(calls) >= 1
    assert at_most is None or len(calls) <= at_most
    assert len({call["id"] for call in calls}) == len(calls)
    for call in calls:
        assert call["id"].startswith("call_") and call["type"] == "function"
        check_arguments(call["function"]["name"], call["function"]["arguments"])


def collect(stream):
    """The calls and the finish reason of a stream, put together as the SDK's accumulator does."""
    calls, reason, content = [], None, ""
    for chunk in stream:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for delta in choice.delta.tool_calls or []:
                if delta.index == len(calls):
                    assert delta.id and delta.type == "function" and delta.function.name
                    calls.append({"id": delta.id, "type": delta.type,
                                  "function": {"name": delta.function.name, "arguments": ""}})
                else:
                    assert delta.id is None and delta.function.name is None
                calls[delta.index]["function"]["arguments"] += delta.function.arguments or ""
    return calls, reason, content


def test_required_gives_one_call(server):
    answer = chat(server, tool_choice="required", parallel_tool_calls=False)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and not choice.message.content
    check_calls([call.model_dump() for call in choice.message.tool_calls], at_most=1)


def test_a_stream_has_the_same_calls(server):
    plain = chat(server, tool_choice="required", parallel_tool_calls=False)
    calls, reason, content = collect(
        chat(server, tool_choice="required", parallel_tool_calls=False, stream=True))
    assert reason == "tool_calls" and content == ""
    check_calls(calls, at_most=1)
    assert [call["function"] for call in calls] == [
        {"name": call.function.name, "arguments": call.function.arguments}
        for call in plain.choices[0].message.tool_calls]


@pytest.mark.parametrize("seed", range(4))
def test_random_calls_match_their_schemas(server, seed):
    answer = chat(server, tool_choice="required", parallel_tool_calls=False, temperature=1.5,
                  seed=seed, n=4)
    for choice in answer.choices:
        assert choice.finish_reason in ("tool_calls", "length")
        if choice.finish_reason == "tool_calls":
            check_calls([call.model_dump() for call in choice.message.tool_calls], at_most=1)


@pytest.mark.parametrize("stream", [False, True])
def test_a_named_function_is_called(server, stream):
    answer = chat(server, tool_choice=ONE_TOOL, stream=stream)
    if stream:
        calls, reason, content = collect(answer)
        assert content == ""
    else:
        choice = answer.choices[0]
        calls, reason = [call.model_dump() for call in choice.message.tool_calls], choice.finish_reason
    assert reason in ("stop", "tool_calls")
    check_calls(calls, at_most=1)
    assert calls[0]["function"]["name"] == "get_weather"


def test_a_function_without_parameters(server):
    answer = chat(server, tools=[TOOLS[2]], tool_choice="required", parallel_tool_calls=False)
    call = answer.choices[0].message.tool_calls[0].function
    assert (call.name, call.arguments) == ("now", "{}")


def allowed(mode, *names):
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize("seed", range(3))
def test_only_allowed_tools_are_called(server, seed):
    """The prompt stays that of all tools."""
    plain = chat(server, max_tokens=1)
    answer = chat(server, tool_choice=allowed("required", "add", "now"), parallel_tool_calls=False, temperature=1.5,
                  seed=seed, n=4)
    assert answer.usage.prompt_tokens == plain.usage.prompt_tokens
    for choice in answer.choices:
        if choice.finish_reason == "tool_calls":
            check_calls([call.model_dump() for call in choice.message.tool_calls], at_most=1)
            assert choice.message.tool_calls[0].function.name in ("add", "now")
    one = chat(server, tool_choice=allowed("required", "now"), parallel_tool_calls=False).choices[0]
    assert one.finish_reason == "tool_calls" and one.message.tool_calls[0].function.name == "now"


def test_only_allowed_tools_are_called_by_responses(server):
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "now"}]}
    fields = {"model": NAME, "input": ASK[0]["content"], "tools": tools, "tool_choice": choice,
              "parallel_tool_calls": False, "max_output_tokens": 100}
    answer = server.client().responses.create(**fields)
    assert [item.name for item in answer.output] == ["now"]
    assert answer.tool_choice.model_dump()["tools"] == choice["tools"]
    refused = server.post("/v1/responses", {**fields, "tool_choice": {**choice, "tools": [
        {"type": "function", "name": "now"}, {"type": "function", "name": "later"}]}})
    assert refused.json()["error"]["param"] == "tool_choice.tools[1].name"
    assert refused.json()["error"]["message"].startswith('tool_choice.tools[1].name is "later"')


@pytest.mark.parametrize("name", ["mcp/files.read:v1_x-2", "n" * 128])
@pytest.mark.parametrize("template", [None, "mistral-nemo.jinja", "llama-3.1.jinja"])
def test_names_of_other_origins(start_server, name, template):
    """As MCP has them."""
    options = ["--chat-template", ROOT / "tests/golden/chat_templates" / template] if template else []
    server = start_server(*options)
    tool = {"type": "function", "function": {"name": name, "parameters": SUM}}
    for choice in ("required", {"type": "function", "function": {"name": name}}):
        answer = chat(server, tools=[tool], tool_choice=choice, parallel_tool_calls=False)
        made = answer.choices[0].message.tool_calls[0].function
        assert made.name == name
        check_arguments("add", made.arguments)
    answer = server.client().responses.create(
        model=NAME, input="Add 1 and 2.", tools=[{"type": "function", **tool["function"]}], tool_choice="required",
        parallel_tool_calls=False, max_output_tokens=200)
    assert answer.output[0].name == name


def test_parallel_calls_are_all_valid(server):
    calls, reason, content = collect(chat(server, tool_choice="required", stream=True))
    assert reason in ("tool_calls", "length") and content == ""
    assert len(calls) <= 16
    for call in calls if reason == "tool_calls" else calls[:-1]:
        check_arguments(call["function"]["name"], call["function"]["arguments"])


def test_a_call_cut_off_is_no_content(server):
    choice = chat(server, tool_choice=ONE_TOOL, max_tokens=6).choices[0]
    assert choice.finish_reason == "length"
    assert not choice.message.content and not choice.message.tool_calls


def test_what_cannot_be_forced_is_refused_where_it_must_be(server):
    parameters = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}}
    tool = {"type": "function",
            "function": {"name": "f", "parameters": parameters, "strict": True}}
    fields = {"model": NAME, "messages": ASK, "tools": [tool], "tool_choice": "required"}
    refused = server.post("/v1/chat/completions", fields)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"].startswith("tools[0].function.parameters")
    tool["function"]["strict"] = False
    assert server.post("/v1/chat/completions", fields).status_code == 400
    answer = server.post("/v1/chat/completions", {**fields, "tool_choice": "auto", "max_tokens": 40})
    assert answer.status_code == 200


def test_what_cannot_be_forced_is_named_on_demand(tmp_path):
    unique = {"type": "array", "items": {"type": "string", "maxLength": 3}, "uniqueItems": True, "maxItems": 2}
    parameters = {"type": "object", "properties": {"a": unique}, "required": ["a"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    fields = {"model": NAME, "messages": ASK, "tools": [tool], "tool_choice": "required", "max_tokens": 60}
    server = QuireServer(tmp_path / "server.log", "--unsupported-schema-keywords", "ignore")
    try:
        for _ in range(2):  # the second one finds its grammar compiled
            answer = server.post("/v1/chat/completions", fields)
            assert answer.status_code == 200
            assert answer.headers["X-Ignored-Params"] == "tools[0].function.parameters.properties.a.uniqueItems"
            assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "f"
        check_names_of_the_client(server, parameters)
    finally:
        server.kill()


def check_names_of_the_client(server, schema):
    """What is left out of a schema is named by the path in the body that was sent."""
    keyword = "properties.a.uniqueItems"
    function = {"type": "function", "name": "f", "parameters": schema}
    tools = [{"type": "web_search"}, {"type": "namespace", "name": "n", "tools": [{**function, "name": "g", "parameters": {}}, function]}, function]
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    ask = {"model": NAME, "input": "Hi", "max_output_tokens": 60}
    old = {"name": "f", "parameters": schema}
    for path, body, names in (
            ("/v1/responses", {**ask, "text": {"format": form}}, [f"text.format.schema.{keyword}"]),
            ("/v1/responses", {**ask, "tools": tools, "tool_choice": "required", "messages_x": 1},
             ["tools.web_search", "messages_x", f"tools[1].tools[1].parameters.{keyword}", f"tools[2].parameters.{keyword}"]),
            ("/v1/messages", {"messages": ASK, "max_tokens": 60, "tool_choice": {"type": "any"}, "stop_x": 1,
                              "tools": [{"name": "f", "input_schema": schema}]}, ["stop_x", f"tools[0].input_schema.{keyword}"]),
            ("/v1/messages", {"messages": ASK, "max_tokens": 60, "output_config": {"format": {"type": "json_schema", "schema": schema}}},
             [f"output_config.format.schema.{keyword}"]),
            ("/v1/chat/completions", {"messages": ASK, "max_tokens": 60, "functions": [old], "function_call": {"name": "f"}},
             [f"functions[0].parameters.{keyword}"])):
        reply = server.post(path, body)
        assert reply.status_code == 200 and reply.headers["X-Ignored-Params"].split(",") == names, (path, reply.headers, reply.text[:300])


BROKEN = [({"type": "array"}, ".type"), ({"type": "objct"}, ".type"), ({"properties": {"a": {"type": "text"}}}, ".properties.a"),
          ({"properties": []}, ""), ({"required": "a"}, ""), ({"properties": {"a": {"enum": 1}}}, ".properties.a"),
          ({"properties": {"a": {"$ref": "#/none"}}}, ".properties.a")]


@pytest.mark.parametrize("parameters,place", BROKEN, ids=str)
def test_a_schema_that_is_none_is_refused_whatever_the_choice(server, parameters, place):
    broken = {"type": "function", "function": {"name": "broken", "parameters": parameters}}
    fields = {"model": NAME, "messages": ASK, "tools": [TOOLS[0], broken], "max_tokens": 4}
    forced = server.post("/v1/chat/completions", {**fields, "tool_choice": "required"})
    assert forced.status_code == 400
    assert forced.json()["error"]["param"] == "tools[1].function.parameters" + place
    for choice in (None, "auto", "none", ONE_TOOL):
        assert server.post("/v1/chat/completions", {**fields, "tool_choice": choice}).json() == forced.json()
    tools = [{"type": "function", **tool["function"]} for tool in fields["tools"]]
    reply = server.post("/v1/responses", {"model": NAME, "input": "Hi", "tools": tools, "max_output_tokens": 4})
    assert reply.json()["error"]["param"] == "tools[1].parameters" + place


def test_a_schema_that_cannot_be_forced_is_no_fault_where_the_model_decides(server):
    """JSON schemas all the same."""
    for schema in ({"pattern": "^(?!a)b$"}, {"$ref": "http://localhost/x"}, {"type": "string", "maxLength": 10 ** 9},
                   {"not": {}}, {"minimum": 1, "exclusiveMinimum": True}):
        tool = {"type": "function", "function": {"name": "f", "strict": True,
                                                 "parameters": {"type": "object", "properties": {"a": schema}}}}
        fields = {"model": NAME, "messages": ASK, "tools": [tool], "max_tokens": 4}
        assert server.post("/v1/chat/completions", fields).status_code == 200


def test_a_forced_answer_thinks_only_where_the_prompt_lets_it(start_server):
    server = start_server("--chat-template", ROOT / "tests/golden/chat_templates/qwen3.jinja")
    less_than = server.post("/tokenize", {"prompt": "<"}).json()["tokens"][0]
    fields = {"messages": ASK, "temperature": 0, "max_tokens": 60, "response_format": {"type": "json_object"}}
    for thinks in (True, False):
        answer = server.post("/v1/chat/completions", {
            **fields, "logit_bias": {less_than: 100}, "chat_template_kwargs": {"enable_thinking": thinks}}).json()
        message = answer["choices"][0]["message"]
        assert (message["reasoning"] is not None) == thinks
        assert thinks or message["content"].startswith("{")
