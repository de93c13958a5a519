"""Custom tools, whose input is a text: chats and responses through the official SDK."""

import json
import re

import pytest

from quire_server import NAME
from wire_shape import read_events

REGEX = r"[A-Z]{2}-[0-9]{3}(\.[a-z]+)?"
QUESTION = "Write the code of the part."


def chat_tool(name="write", **fields):
    return {"type": "custom", "custom": {"name": name, **fields}}


def flat_tool(name="write", **fields):
    return {"type": "custom", "name": name, **fields}


def grammar(definition, syntax="regex"):
    return {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}


def flat_grammar(definition, syntax="regex"):
    return {"type": "grammar", "syntax": syntax, "definition": definition}


def chat(server, tools, **fields):
    fields = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 60, "tool_choice": "required",
              "parallel_tool_calls": False, **fields}
    return server.client().chat.completions.create(model=NAME, tools=tools, **fields)


def respond(server, tools, **fields):
    fields = {"input": QUESTION, "max_output_tokens": 60, "tool_choice": "required", "parallel_tool_calls": False, **fields}
    return server.client().responses.create(model=NAME, tools=tools, **fields)


def refused(server, path, **fields):
    body = {"model": NAME, **({"input": "a"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "a"}]})}
    reply = server.post(path, {**body, **fields})
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]


@pytest.mark.parametrize("definition", [REGEX, f"^{REGEX}$"])
def test_a_forced_input_matches_its_grammar(server, definition):
    for seed in range(10):
        call = chat(server, [chat_tool(format=grammar(definition))], seed=seed, temperature=1.5).choices[0].message.tool_calls[0]
        assert call.type == "custom" and call.custom.name == "write" and call.id.startswith("call_")
        assert re.fullmatch(REGEX, call.custom.input) or len(call.custom.input) > 40, call
        item = respond(server, [flat_tool(format=flat_grammar(definition))], temperature=1.5,
                       extra_body={"seed": seed}).output[0]
        assert item.type == "custom_tool_call" and item.name == "write" and item.id.startswith("ctc_")
        assert re.fullmatch(REGEX, item.input) or len(item.input) > 40, item


def test_quotes_and_line_feeds_are_the_inputs_own(server):
    definition = r'say "a\\b"\n(x|y)'
    call = chat(server, [chat_tool(format=grammar(definition))], temperature=0).choices[0].message.tool_calls[0]
    assert call.custom.input in ('say "a\\b"\nx', 'say "a\\b"\ny')


LARK = r"""
start: "begin\n" line+ "end"
line: "  " WORD " = \"" /[^"\n]{0,8}/ "\"" NOTE? "\n"
WORD: /[a-z]{1,6}/
NOTE: /\t# [ -~]{1,6}/
"""
LARK_REGEX = r'begin\n(  [a-z]{1,6} = "[^"\n]{0,8}"(\t# [ -~]{1,6})?\n)+end'


def test_a_forced_input_is_one_of_larks_grammar(server):
    num_whole = 0
    for seed in range(8):
        fields = {"max_tokens": 120, "seed": seed, "temperature": 1.2}
        choice = chat(server, [chat_tool(format=grammar(LARK, "lark"))], **fields).choices[0]
        call, = choice.message.tool_calls
        if choice.finish_reason == "tool_calls":
            assert re.fullmatch(LARK_REGEX, call.custom.input), call
            num_whole += 1
        else:
            assert call.custom.input.startswith("begin\n"[:len(call.custom.input)])
        item = respond(server, [flat_tool(format=flat_grammar(LARK, "lark"))], max_output_tokens=120, temperature=1.2,
                       extra_body={"seed": seed}).output[0]
        assert item.input == call.custom.input
    assert num_whole >= 2
    nested = 'start: "(" start? ")" | "[" start "]"'
    call, = chat(server, [chat_tool(format=grammar(nested, "lark"))], temperature=1.5, seed=1, max_tokens=40).choices[0].message.tool_calls
    opened = []
    for character in call.custom.input:
        assert opened.append(character) is None if character in "([" else opened.pop() + character in ("()", "[]")


def test_functions_say_nothing_of_grammars(server):
    """The field is shown to the model like any other, and holds it to nothing."""
    function = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}},
                                                                             "required": ["n"]}}}
    held = {"type": "function", "function": {**function["function"], "input_grammar": "start: \"x\""}}
    calls = [chat(server, [one], temperature=0).choices[0].message.tool_calls[0] for one in (function, held)]
    assert all(isinstance(json.loads(call.function.arguments)["n"], int) for call in calls)


def test_free_form(server):
    call = chat(server, [chat_tool(description="Writes a part's code.")], temperature=0, max_tokens=200).choices[0].message.tool_calls[0]
    assert call.type == "custom" and isinstance(call.custom.input, str)
    same = respond(server, [flat_tool(description="Writes a part's code.", format={"type": "text"})], temperature=0,
                   max_output_tokens=200).output[0]
    assert same.input == call.custom.input


def test_the_model_is_shown_a_function(server):
    """The prompt is that of the function which stands for the tool."""
    function = {"type": "function", "function": {"name": "write", "description": "d", "parameters": {
        "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"], "additionalProperties": False}}}
    custom = chat(server, [chat_tool(description="d")], temperature=0)
    plain = chat(server, [function], temperature=0)
    assert custom.usage.prompt_tokens == plain.usage.prompt_tokens
    arguments = plain.choices[0].message.tool_calls[0].function.arguments
    try:
        expected = json.loads(arguments)["input"]
    except json.JSONDecodeError:  # cut
        expected = None
    assert expected in (None, custom.choices[0].message.tool_calls[0].custom.input)


@pytest.mark.parametrize("choice", ["named", "allowed"])
def test_the_choice_of_one(server, choice):
    tools = [("plain", None), ("write", REGEX), ("other", None)]
    chat_tools = [chat_tool(name, **({"format": grammar(regex)} if regex else {})) for name, regex in tools]
    flat_tools = [flat_tool(name, **({"format": flat_grammar(regex)} if regex else {})) for name, regex in tools]
    named, flat = {"type": "custom", "custom": {"name": "write"}}, {"type": "custom", "name": "write"}
    if choice == "allowed":
        named = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
        flat = {"type": "allowed_tools", "mode": "required", "tools": [flat]}
    call, = chat(server, chat_tools, tool_choice=named, temperature=0).choices[0].message.tool_calls
    item, = respond(server, flat_tools, tool_choice=flat, temperature=0).output
    assert (call.custom.name, item.name) == ("write", "write") and re.fullmatch(REGEX, item.input) and item.input == call.custom.input


def test_functions_beside_custom_tools_stay_functions(server):
    function = {"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"input": {"enum": ["x"]}}, "required": ["input"], "additionalProperties": False}}}
    named = {"type": "function", "function": {"name": "f"}}
    call, = chat(server, [chat_tool(), function], tool_choice=named).choices[0].message.tool_calls
    assert call.type == "function" and json.loads(call.function.arguments) == {"input": "x"}


def test_streams_say_the_same(server):
    tools = [chat_tool(format=grammar(REGEX))]
    whole = chat(server, tools, temperature=0).choices[0].message.tool_calls[0]
    chunks = read_events(server, "/v1/chat/completions", {
        "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 60, "tool_choice": "required", "temperature": 0,
        "parallel_tool_calls": False, "tools": tools, "stream": True})
    deltas = [delta for chunk in chunks for choice in chunk["choices"] for delta in choice["delta"].get("tool_calls", [])]
    assert deltas[0]["type"] == "custom" and deltas[0]["custom"]["name"] == "write" and deltas[0]["index"] == 0
    assert not any("function" in delta for delta in deltas)
    assert "".join(delta["custom"]["input"] for delta in deltas) == whole.custom.input

    events = list(respond(server, [flat_tool(format=flat_grammar(REGEX))], temperature=0, stream=True))
    types = [event.type for event in events]
    item = events[-1].response.output[0]
    added, done = types.index("response.output_item.added"), types.index("response.custom_tool_call_input.done")
    assert set(types[added + 1:done]) == {"response.custom_tool_call_input.delta"} and done > added + 2
    assert "".join(event.delta for event in events[added + 1:done]) == events[done].input == item.input == whole.custom.input
    assert events[added].item.input == "" and {event.item_id for event in events[added + 1:done + 1]} == {item.id}
    assert events[done + 1].type == "response.output_item.done" and events[done + 1].item == item


def test_calls_and_outputs_come_back(server):
    """As a function's would: the prompt is the same."""
    text = 'say "a"\n'
    custom = server.client().chat.completions.create(model=NAME, max_tokens=8, temperature=0, messages=[
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "write", "input": text}}]},
        {"role": "tool", "tool_call_id": "c", "content": "done"}])
    plain = server.client().chat.completions.create(model=NAME, max_tokens=8, temperature=0, messages=[
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {
            "name": "write", "arguments": json.dumps({"input": text})}}]},
        {"role": "tool", "tool_call_id": "c", "content": "done"}])
    flat = server.client().responses.create(model=NAME, max_output_tokens=8, temperature=0, input=[
        {"role": "user", "content": QUESTION},
        {"type": "custom_tool_call", "call_id": "c", "name": "write", "input": text},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "done"}])
    assert custom.usage.prompt_tokens == plain.usage.prompt_tokens == flat.usage.input_tokens
    assert custom.choices[0].message.content == plain.choices[0].message.content == flat.output_text


def test_a_kept_call_is_continued(start_server):
    server = start_server("--response-store-bytes", "1M")
    first = respond(server, [flat_tool(format=flat_grammar("x{3}"))])
    call, = first.output
    assert call.input == "xxx"
    second = server.client().responses.create(model=NAME, max_output_tokens=8, previous_response_id=first.id, input=[
        {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "done"}])
    items = server.client().responses.input_items.list(second.id, order="asc").data
    assert [item.type for item in items] == ["message", "custom_tool_call", "custom_tool_call_output"]
    assert items[1].input == "xxx"


WRONG = [
    ({"name": "a b"}, "name"), ({"name": ""}, "name"), ({"name": 1}, "name"), ({}, "name"), ({"name": "n" * 129}, "name"),
    ({"name": "a", "description": 1}, "description"), ({"name": "a", "format": 1}, "format"),
    ({"name": "a", "format": {}}, "format.type"), ({"name": "a", "format": {"type": "json"}}, "format.type"),
]
GRAMMARS = [({"syntax": "lark", "definition": "start: a"}, "definition"), ({"syntax": "lark", "definition": "start: \"a"}, "definition"), ({"syntax": "ebnf", "definition": "a"}, "syntax"),
            ({"definition": "a"}, "syntax"), ({"syntax": "regex"}, "definition"), ({"syntax": "regex", "definition": 1}, "definition"),
            ({"syntax": "regex", "definition": "("}, "definition"), ({"syntax": "regex", "definition": "(?i)a"}, "definition"),
            ({"syntax": "regex", "definition": "(?=a)b"}, "definition")]


def test_what_cannot_be_is_refused_by_its_path(server):
    for fields, where in WRONG:
        assert refused(server, "/v1/chat/completions", tools=[{"type": "custom", "custom": fields}])["param"] == f"tools[0].custom.{where}"
        assert refused(server, "/v1/responses", tools=[{"type": "custom", **fields}])["param"] == f"tools[0].{where}"
    for members, where in GRAMMARS:
        tool = {"type": "custom", "custom": {"name": "a", "format": {"type": "grammar", "grammar": members}}}
        error = refused(server, "/v1/chat/completions", tools=[chat_tool("b"), tool], tool_choice="required")
        assert error["param"] == f"tools[1].custom.format.grammar.{where}", error
        flat = {"type": "custom", "name": "a", "format": {"type": "grammar", **members}}
        error = refused(server, "/v1/responses", tools=[flat_tool("b"), flat], tool_choice="required")
        assert error["param"] == f"tools[1].format.{where}" and error["message"].startswith(error["param"]), error
    assert refused(server, "/v1/chat/completions", tools=[{"type": "custom"}])["param"] == "tools[0].custom"
    tools = [chat_tool("a"), {"type": "function", "function": {"name": "f"}}]
    for choice, where in [({"type": "custom"}, "custom"), ({"type": "custom", "custom": {}}, "custom.name"),
                          ({"type": "custom", "custom": {"name": "b"}}, "custom.name"),
                          ({"type": "custom", "custom": {"name": "f"}}, "custom.name")]:
        assert refused(server, "/v1/chat/completions", tools=tools, tool_choice=choice)["param"] == f"tool_choice.{where}"
    assert refused(server, "/v1/responses", tools=[flat_tool("a")], tool_choice={"type": "custom", "name": "b"})["param"] == "tool_choice.name"
    call = {"id": "c", "type": "custom", "custom": {"name": "a"}}
    error = refused(server, "/v1/chat/completions", messages=[{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}])
    assert error["param"] == "messages[1].tool_calls[0].custom.input"
    error = refused(server, "/v1/responses", input=[{"type": "custom_tool_call", "call_id": "c", "name": "a"}])
    assert error["param"] == "input[0].input"
    assert refused(server, "/v1/chat/completions", tools=[chat_tool("a"), chat_tool("a")])["code"] == "duplicate_name"
