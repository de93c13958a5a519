"""Tools through the official SDK. The model is small: it writes a call because it is shown one."""

import json

import pytest

from quire_server import NAME, ROOT, QuireServer

TEMPLATE = ROOT / "tests/golden/chat_templates/qwen2.5.jinja"  # hermes calls, ChatML as the model's own
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def question(city):
    return {"role": "user", "content": f"What is the weather in {city}?"}


def call(city):
    function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    return {"role": "assistant", "content": None,
            "tool_calls": [{"id": "call_" + city, "type": "function", "function": function}]}


SHOWN = [question("Rome"), call("Rome"), question("Oslo"), call("Oslo"), question("Paris")]


@pytest.fixture(scope="module")
def tool_server(tmp_path_factory):
    server = QuireServer(tmp_path_factory.mktemp("tools") / "server.log", "--chat-template", TEMPLATE,
                         "--kv-cache-memory-bytes", "256M")
    yield server
    server.kill()


def ask(server, messages=SHOWN, **fields):
    fields = {"temperature": 0, "max_tokens": 60, "tools": [WEATHER], **fields}
    return server.client().chat.completions.create(model=NAME, messages=messages, **fields)


def check_call(choice):
    assert choice.finish_reason == "tool_calls"
    assert not choice.message.content
    [made] = choice.message.tool_calls
    assert made.type == "function"
    assert made.id.startswith("call_") and len(made.id) == 29
    assert made.function.name == "get_weather"
    assert json.loads(made.function.arguments) == {"city": "Paris"}
    return made


def test_a_round_trip(tool_server):
    """A call, its result in the next turn, and an answer."""
    message = ask(tool_server).choices[0].message
    made = check_call(ask(tool_server).choices[0])
    result = {"role": "tool", "tool_call_id": made.id, "content": "sunny"}
    messages = [*SHOWN, message, result]
    prompt = tool_server.post("/tokenize", {"messages": [m if isinstance(m, dict) else m.model_dump() for m in messages],
                                            "tools": [WEATHER]}).json()
    text = tool_server.post("/detokenize", {"tokens": prompt["tokens"]}).json()["prompt"]
    assert text.count('{"name": "get_weather", "arguments": {"city": "Paris"}}') == 1
    assert "<tool_response>\nsunny\n</tool_response>" in text
    answer = ask(tool_server, messages, tool_choice="none")
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].message.content


def test_a_streamed_call(tool_server):
    chunks = list(ask(tool_server, stream=True))
    deltas = [part for chunk in chunks for choice in chunk.choices for part in choice.delta.tool_calls or []]
    assert len([part for part in deltas if part.id]) == 1
    assert [part.function.name for part in deltas if part.function.name] == ["get_weather"]
    assert deltas[0].id and deltas[0].function.name
    assert json.loads("".join(part.function.arguments or "" for part in deltas)) == {"city": "Paris"}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert not any(choice.delta.content for chunk in chunks for choice in chunk.choices)


def test_the_stream_helper_adds_a_call_up(tool_server):
    with tool_server.client().chat.completions.stream(model=NAME, messages=SHOWN, tools=[WEATHER],
                                                      temperature=0) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        check_call(stream.get_final_completion().choices[0])
    assert [event.name for event in done] == ["get_weather"]


def test_choice_none_shows_no_tools(tool_server):
    forbidden = ask(tool_server, tool_choice="none")
    assert forbidden.choices[0].message.tool_calls is None
    assert forbidden.usage.prompt_tokens < ask(tool_server).usage.prompt_tokens


def test_tokenize_counts_the_tools_that_a_chat_shows(tool_server):
    for choice in ("none", "auto", "required", None):
        body = {"messages": [question("Paris")], "tools": [WEATHER], "tool_choice": choice, "model": NAME}
        chat = tool_server.post("/v1/chat/completions", {**body, "max_tokens": 1}).json()
        assert tool_server.post("/tokenize", body).json()["count"] == chat["usage"]["prompt_tokens"]


BARE = '{"name": "get_weather", "arguments": {"city": "Paris"}}'


def written(server, text, **fields):
    """The model's answer of its own choice, and each API's words for it: calls, text, why it ended."""
    first = server.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"][0]
    fields = {"logit_bias": {str(first): 100}, "structured_outputs": {"choice": [text]}, "temperature": 0, **fields}
    body = {"model": NAME, "messages": [question("Paris")], "tools": [WEATHER], "max_tokens": 200, **fields}
    choice = server.post("/v1/chat/completions", body).json()["choices"][0]
    calls = [call["function"] for call in choice["message"].get("tool_calls") or []]
    yield [json.loads(call["arguments"]) for call in calls], choice["message"]["content"] or "", choice["finish_reason"]
    calls, content, reason = {}, "", None
    with server.client().chat.completions.create(**{name: value for name, value in body.items() if name != "structured_outputs"},
                                                 extra_body={"structured_outputs": body["structured_outputs"]},
                                                 stream=True) as stream:
        for chunk in stream:
            for part in chunk.choices:
                content += part.delta.content or ""
                reason = part.finish_reason or reason
                for call in part.delta.tool_calls or []:
                    calls[call.index] = calls.get(call.index, "") + (call.function.arguments or "")
    yield [json.loads(text) for text in calls.values()], content, reason


# Text in front: what a call of the grammar beside the choice never begins with.
TAGGED = 'I look. <tool_call>{"name":"get_weather","arguments":{"city":"rm -rf %s"}}</tool_call>'


@pytest.mark.parametrize("text, calls, content, reason, fields", [
    (TAGGED % "\\$HOME/tmp/x", [{"city": "rm -rf \\$HOME/tmp/x"}], "I look.", "tool_calls", {}),
    (TAGGED % 'a "b"', [], TAGGED % 'a "b"', "stop", {}),
    (TAGGED % "$HOME/tmp/x", [], (TAGGED % "").split('"}}')[0], "stop", {"stop": ["$HOME"]}),
    (BARE, [{"city": "Paris"}], "", "tool_calls", {}),
    ("I look.\n```json\n" + BARE + "\n```", [{"city": "Paris"}], "I look.", "tool_calls", {}),
    ("An example:\n" + BARE + "\nasks for Paris.", [], "An example:\n" + BARE + "\nasks for Paris.", "stop", {}),
    (BARE.replace("get_weather", "get_time"), [], BARE.replace("get_weather", "get_time"), "stop", {}),
])
def test_a_call_is_whole_or_text(tool_server, text, calls, content, reason, fields):
    for answer in written(tool_server, text, **fields):
        assert answer == (calls, content, reason)


def test_a_call_cut_by_the_length_is_text(tool_server):
    for calls, content, reason in written(tool_server, TAGGED % "x", max_tokens=20):
        assert (calls, reason) == ([], "length")
        assert content.startswith("I look. <tool_call>") and (TAGGED % "x").startswith(content)


def test_one_call_unless_parallel(tool_server):
    check_call(ask(tool_server, parallel_tool_calls=False).choices[0])


def test_a_template_without_tools(server):
    """The model's own: the tools are described in text, calls have hermes' form."""
    ids = server.post("/tokenize", {"messages": SHOWN, "tools": [WEATHER]}).json()["tokens"]
    text = server.post("/detokenize", {"tokens": ids}).json()["prompt"]
    assert WEATHER["function"]["description"] in text
    assert text.count("<tool_call>") == 3  # how to, and two that were made
    check_call(ask(server).choices[0])


@pytest.mark.parametrize("fields, param", [
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name"),
    ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice.function.name"),
    ({"tool_choice": "any"}, "tool_choice"),
])
def test_bad_tools_name_the_field(tool_server, fields, param):
    body = {"model": NAME, "messages": SHOWN, "tools": [WEATHER], **fields}
    reply = tool_server.post("/v1/chat/completions", body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


def test_a_tool_that_is_not_allowed_is_not_called(tool_server):
    """What the model writes all the same is content."""
    other = {"type": "function", "function": {"name": "other"}}
    fields = {"tools": [WEATHER, other]}
    check_call(ask(tool_server, **fields).choices[0])
    for allowed, is_call in (("get_weather", True), ("other", False)):
        choice = ask(tool_server, **fields, tool_choice={"type": "allowed_tools", "allowed_tools": {
            "mode": "auto", "tools": [{"type": "function", "function": {"name": allowed}}]}}).choices[0]
        if is_call:
            check_call(choice)
        else:
            assert choice.finish_reason == "stop" and not choice.message.tool_calls
            assert '"get_weather"' in choice.message.content
