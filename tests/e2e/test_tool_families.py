"""Calls in the forms of other families than the model's, through the official SDK's stream: a family's template shows
the form, the grammar of tool_choice writes it, and the parser reads it."""

import json

import pytest

from quire_server import NAME, ROOT, QuireServer

TEMPLATES = ROOT / "tests/golden/chat_templates"
FAMILIES = ["qwen3-coder", "glm-4.5", "gpt-oss", "deepseek-v3.1", "kimi-k2", "granite-tools", "command-r7b"]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "required": ["city", "days"],
                       "properties": {"city": {"type": "string", "enum": ["Oslo", "12"]},
                                      "days": {"type": "integer", "minimum": 1, "maximum": 9}}},
    },
}


@pytest.fixture(scope="module", params=FAMILIES)
def family_server(request, tmp_path_factory):
    server = QuireServer(tmp_path_factory.mktemp("family") / "server.log", "--chat-template",
                         TEMPLATES / (request.param + ".jinja"), "--kv-cache-memory-bytes", "256M")
    yield server
    server.kill()


def test_a_forced_call_streams(family_server):
    """One call with arguments of the schema's types, and no marker of the form in the content."""
    stream = family_server.client().chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "The weather in Oslo?"}], tools=[WEATHER],
        tool_choice="required", parallel_tool_calls=False, stream=True, temperature=0, max_tokens=400)
    names, arguments, content, reason = [], "", "", None
    for event in stream:
        [choice] = event.choices
        content += choice.delta.content or ""
        reason = choice.finish_reason or reason
        for made in choice.delta.tool_calls or []:
            names += [made.function.name] if made.function.name else []
            arguments += made.function.arguments or ""
    assert (names, content, reason) == (["get_weather"], "", "tool_calls")
    read = json.loads(arguments)
    assert read["city"] in ("Oslo", "12")
    assert read["days"] in range(1, 10)
    assert set(read) == {"city", "days"}
