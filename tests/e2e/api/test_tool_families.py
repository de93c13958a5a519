"""Calls in the forms of other families than the model's, through the official SDK: a family's template shows the form, and
the parser reads it. The grammar of tool_choice writes it, or where the model decides a choice of one text, which it may write
instead of a call of that grammar."""

import json

import pytest

from quire_server import NAME, ROOT, QuireServer

TEMPLATES = ROOT / "tests/golden/chat_templates"
JSON = '{"city": "Oslo", "days": 3}'
LOOK = "Let me look."
DEEPSEEK = ("<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>%s"
            "<\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>")
# What a model of the family writes by itself: text, and a call.
WRITTEN = {
    "qwen2.5": (LOOK, '\n<tool_call>\n{"name": "get_weather", "arguments": %s}\n</tool_call>' % JSON),
    "llama-3.1": ("", '\n{"name": "get_weather", "parameters": %s}' % JSON),
    "mistral-nemo": (LOOK, '[TOOL_CALLS][{"name": "get_weather", "arguments": %s}]' % JSON),
    "qwen3-coder": (LOOK, "\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
                          "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"),
    "glm-4.5": (LOOK, "\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"
                      "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"),
    "deepseek-v3": (LOOK, DEEPSEEK % ("function<\uff5ctool\u2581sep\uff5c>get_weather\n```json\n%s\n```" % JSON)),
    "deepseek-v3.1": (LOOK, DEEPSEEK % ("get_weather<\uff5ctool\u2581sep\uff5c>" + JSON)),
    "kimi-k2": (LOOK, "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
                      + JSON + "<|tool_call_end|><|tool_calls_section_end|>"),
    "granite-tools": (LOOK, '<|tool_call|>[{"name": "get_weather", "arguments": %s}]' % JSON),
    "granite-20b": (LOOK, '\n<function_call> {"name": "get_weather", "arguments": %s}' % JSON),
    "command-r7b": (LOOK, '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": %s}\n]'
                          "<|END_ACTION|>" % JSON),
    "llama-3.2-pythonic": ("", "\n[get_weather(city='Oslo', days=3)]"),
    "llama-4-pythonic": (LOOK, "\n<|python_start|>[get_weather(city='Os' \"lo\", days=0x3,)]<|python_end|>"),
    "toolace": ("", '\n[get_weather(days=3, city="\\x4fslo")]'),
}
FAMILIES = ["gpt-oss", *WRITTEN]
OPTIONS = {"deepseek-v3": ["--reasoning-parser", "none"]}  # its template opens the reasoning, of which there would be no end
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


class Answer:
    """A message, or all chunks of its stream."""

    def __init__(self, answer, stream):
        self.names, self.arguments, self.content, self.reason, self.num_deltas = [], "", "", None, 0
        for part in answer if stream else [answer]:
            for choice in part.choices:
                self.add(choice.delta if stream else choice.message)
                self.reason = choice.finish_reason or self.reason

    def add(self, message):
        self.content += message.content or ""
        for made in message.tool_calls or []:
            self.names += [made.function.name] if made.function.name else []
            self.arguments += made.function.arguments or ""
            self.num_deltas += bool(made.function.arguments)


def ask(server, stream, **fields):
    answer = server.client().chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "The weather in Oslo?"}], tools=[WEATHER], stream=stream,
        temperature=0, max_tokens=400, parallel_tool_calls=False, **fields)
    return Answer(answer, stream)


@pytest.fixture(scope="module")
def family_server(request, tmp_path_factory):
    server = QuireServer(tmp_path_factory.mktemp("family") / "server.log", "--chat-template",
                         TEMPLATES / (request.param + ".jinja"), "--kv-cache-memory-bytes", "256M",
                         *OPTIONS.get(request.param, []))
    server.family = request.param
    yield server
    server.kill()


@pytest.mark.parametrize("family_server", FAMILIES, indirect=True)
def test_a_forced_call_streams(family_server):
    """One call with arguments of the schema's types, and no marker of the form in the content."""
    answer = ask(family_server, True, tool_choice="required")
    assert (answer.names, answer.content, answer.reason) == (["get_weather"], "", "tool_calls")
    read = json.loads(answer.arguments)
    assert read["city"] in ("Oslo", "12")
    assert read["days"] in range(1, 10)
    assert set(read) == {"city", "days"}
    assert answer.num_deltas > 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("family_server", WRITTEN, indirect=True)
def test_a_call_of_the_models_own_choice(family_server, stream):
    """The bias is for the text's beginning, with which no call of the grammar begins."""
    content, call = WRITTEN[family_server.family]
    written = content + call
    first = family_server.post("/tokenize", {"prompt": written, "add_special_tokens": False}).json()["tokens"][0]
    fields = {"tool_choice": "auto", "logit_bias": {str(first): 100},
              "extra_body": {"structured_outputs": {"choice": [written]}}}
    answer = ask(family_server, stream, **fields)
    assert (answer.names, answer.content, answer.reason) == (["get_weather"], content, "tool_calls")
    assert json.loads(answer.arguments) == {"city": "Oslo", "days": 3}
    assert answer.num_deltas == 1  # in a stream too: a call is sent when it is whole
    plain = ask(family_server, stream, **{**fields, "tool_choice": "none"})
    assert (plain.names, plain.content, plain.reason) == ([], written, "stop")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("family_server", ["gpt-oss"], indirect=True)
def test_a_call_in_the_channel_of_calls(family_server, stream):
    """The bias is for that channel; the other is the answer's, of which a form is requested."""
    first = family_server.post("/tokenize", {"prompt": "commentary", "add_special_tokens": False}).json()["tokens"][0]
    answer = ask(family_server, stream, tool_choice="auto", logit_bias={str(first): 100},
                 response_format={"type": "json_object"})
    assert (answer.names, answer.content, answer.reason) == (["get_weather"], "", "tool_calls")
    assert set(json.loads(answer.arguments)) == {"city", "days"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("family_server", ["granite-3.3"], indirect=True)
def test_an_answer_in_tags(family_server, stream):
    """Granite 3.3's, written by the same means."""
    written = "\n<think>\nHm.\n</think>\n<response>\nHi, </response> ends.\n</response>"
    first = family_server.post("/tokenize", {"prompt": written, "add_special_tokens": False}).json()["tokens"][0]
    answer = family_server.client().chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "Hi"}], temperature=0, max_tokens=100, stream=stream,
        logit_bias={str(first): 100}, extra_body={"structured_outputs": {"choice": [written]},
                                                  "chat_template_kwargs": {"thinking": True}})
    messages = [choice.delta if stream else choice.message for part in (answer if stream else [answer]) for choice in part.choices]
    assert "".join(message.model_extra.get("reasoning") or "" for message in messages) == "Hm."
    assert "".join(message.content or "" for message in messages) == "Hi, </response> ends."
