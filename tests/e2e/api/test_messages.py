"""/v1/messages through Anthropic's SDK."""

import asyncio
import json

import anthropic
import httpx
import pytest
from pydantic import BaseModel

from quire_server import NAME, ROOT
from raw_http import open_stream, read_until, wait_until

TEMPLATE = ROOT / "tests/golden/chat_templates/qwen2.5.jinja"  # hermes calls, ChatML as the model's own
THINKING = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
            "<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}")
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"temperature": 0}
WEATHER = {"name": "get_weather", "description": "The weather of a city",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


def client_of(server, cls=anthropic.Anthropic, **fields):
    return cls(base_url=server.url, max_retries=0, timeout=300, **({"api_key": "none"} | fields))


def ask(server, messages=QUESTION, **fields):
    fields = {"max_tokens": 24, **fields}
    extra_body = {**GREEDY, **fields.pop("extra_body", {})}
    return client_of(server).messages.create(model=NAME, messages=messages, extra_body=extra_body, **fields)


def open_helper(server, messages=QUESTION, **fields):
    extra_body = {**GREEDY, **fields.pop("extra_body", {})}
    return client_of(server).messages.stream(model=NAME, messages=messages, extra_body=extra_body,
                                             **{"max_tokens": 24, **fields})


def asked(city):
    return {"role": "user", "content": f"What is the weather in {city}?"}


def called(city):
    use = {"type": "tool_use", "id": "toolu_" + city, "name": "get_weather", "input": {"city": city}}
    return {"role": "assistant", "content": [use]}


SHOWN = [asked("Rome"), called("Rome"), asked("Oslo"), called("Oslo"), asked("Paris")]


@pytest.fixture
def tool_server(start_server):
    return start_server("--chat-template", TEMPLATE, "--kv-cache-memory-bytes", "256M")


@pytest.fixture
def thinker(start_server, tmp_path):
    path = tmp_path / "thinking.jinja"
    path.write_text(THINKING)
    return start_server("--chat-template", path, "--reasoning-parser", "think")


# --- Text ---


def test_an_answer_is_that_of_the_chat(server):
    message = ask(server, system="Be brief.")
    chat = server.client().chat.completions.create(
        model=NAME, messages=[{"role": "system", "content": "Be brief."}, *QUESTION], temperature=0, max_tokens=24)
    [block] = message.content
    assert block.type == "text" and block.text == chat.choices[0].message.content
    assert message.role == "assistant" and message.model == NAME and message.id.startswith("msg_")
    usage = message.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == chat.usage.prompt_tokens
    assert usage.output_tokens == chat.usage.completion_tokens
    assert message._request_id.startswith("req-")


def test_why_it_ended(server):
    whole = ask(server)
    assert whole.stop_reason == "max_tokens"
    word = whole.content[0].text.split()[4]
    stopped = ask(server, stop_sequences=[word])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", word)
    assert whole.content[0].text.startswith(stopped.content[0].text) and word not in stopped.content[0].text
    assert ask(server, [{"role": "user", "content": "Hi"}], max_tokens=400).stop_reason == "end_turn"


def test_more_than_the_context_has_room_for(start_server):
    server = start_server("--max-model-len", 64)
    message = ask(server, max_tokens=4000, extra_body={"ignore_eos": True})
    assert message.stop_reason == "model_context_window_exceeded"
    assert message.usage.input_tokens + message.usage.output_tokens == 64


def test_blocks_are_texts(server):
    blocks = [{"type": "text", "text": "What is the", "cache_control": {"type": "ephemeral"}},
              {"type": "text", "text": "capital of France?"}]
    whole = ask(server, [{"role": "user", "content": "What is the\ncapital of France?"}], system="Be\nbrief.")
    for messages in ([{"role": "user", "content": blocks}],
                     [{"role": "user", "content": blocks[:1]}, {"role": "user", "content": "capital of France?"}]):
        made = ask(server, messages, system=[{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}])
        assert made.content == whole.content


def test_the_last_words_are_continued(server):
    said = "The capital of France is"
    message = ask(server, [*QUESTION, {"role": "assistant", "content": said}], max_tokens=4)
    assert "Paris" in message.content[0].text and said not in message.content[0].text


def test_the_stream_helper_makes_the_same_message(server):
    whole = ask(server)
    with open_helper(server) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)


def test_the_client_without_threads(server):
    async def run():
        async with client_of(server, anthropic.AsyncAnthropic) as client:
            async with client.messages.stream(model=NAME, max_tokens=24, messages=QUESTION, extra_body=GREEDY) as stream:
                return await stream.get_final_text()
    assert asyncio.run(run()) == ask(server).content[0].text


def test_the_beta_path(server):
    message = client_of(server).beta.messages.create(model=NAME, max_tokens=24, messages=QUESTION, extra_body=GREEDY,
                                                     betas=["context-1m-2025-08-07"])
    assert message.content[0].text == ask(server).content[0].text


# --- Tools ---


def test_a_round_trip(tool_server):
    message = ask(tool_server, SHOWN, tools=[WEATHER], max_tokens=60)
    [use] = message.content
    assert (use.type, use.name, use.input, message.stop_reason) == ("tool_use", "get_weather", {"city": "Paris"}, "tool_use")
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "rain"}]}
    messages = [*SHOWN, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    answer = ask(tool_server, messages, tools=[WEATHER], tool_choice={"type": "none"})
    assert answer.content[0].type == "text" and answer.stop_reason in ("end_turn", "max_tokens")


def test_the_prompt_is_that_of_the_chat(tool_server):
    """Calls and their results, in the words of either endpoint, make the same tokens."""
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city",
                                               "parameters": WEATHER["input_schema"]}}]
    call = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    chat = [asked("Rome"), {"role": "assistant", "content": "Look", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "rain"}, asked("Oslo")]
    count = tool_server.post("/tokenize", {"messages": chat, "tools": tools}).json()["count"]
    use = {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Rome"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "rain"}
    messages = [asked("Rome"), {"role": "assistant", "content": [{"type": "text", "text": "Look"}, use]},
                {"role": "user", "content": [result, {"type": "text", "text": asked("Oslo")["content"]}]}]
    counted = client_of(tool_server).messages.count_tokens(model=NAME, messages=messages, tools=[WEATHER])
    assert counted.input_tokens == count
    worse = [messages[0], messages[1], {"role": "user", "content": [{**result, "is_error": True}, messages[2]["content"][1]]}]
    assert client_of(tool_server).messages.count_tokens(model=NAME, messages=worse, tools=[WEATHER]).input_tokens > count


def test_a_streamed_call(tool_server):
    with open_helper(tool_server, SHOWN, tools=[WEATHER], max_tokens=60) as stream:
        events = list(stream)
        final = stream.get_final_message()
    types = [event.type for event in events if event.type != "input_json"]
    assert types[:2] == ["message_start", "content_block_start"]
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(types[2:-3]) == {"content_block_delta"}
    [use] = final.content
    assert (use.name, use.input, final.stop_reason) == ("get_weather", {"city": "Paris"}, "tool_use")
    parts = [event.delta.partial_json for event in events if event.type == "content_block_delta"]
    assert json.loads("".join(parts)) == {"city": "Paris"}


@pytest.mark.parametrize("choice", [{"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "roll"}])
def test_a_forced_call(server, choice):
    tools = [{"name": "roll", "input_schema": {"type": "object", "properties": {"sides": {"enum": [6, 20]}},
                                               "required": ["sides"], "additionalProperties": False}}]
    message = ask(server, tools=tools, tool_choice=choice, max_tokens=60)
    [use] = message.content
    assert use.type == "tool_use" and use.input["sides"] in (6, 20)


def test_the_runner_calls_and_goes_on(server):
    """The SDK's own loop: a call, its result, an answer."""
    seen = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        seen.append(city)
        return "sunny"

    runner = client_of(server).beta.messages.tool_runner(model=NAME, max_tokens=60, messages=SHOWN, tools=[get_weather],
                                                         max_iterations=2, extra_body=GREEDY)
    answers = list(runner)
    assert seen and answers[0].stop_reason == "tool_use" and len(answers) == 2


# --- Thinking, and a form ---


def test_thinking_is_a_block(thinker):
    fields = {"max_tokens": 48, "extra_body": {"ignore_eos": True}}
    message = ask(thinker, thinking={"type": "enabled", "budget_tokens": 8}, **fields)
    thinking, text = message.content
    assert (thinking.type, text.type) == ("thinking", "text") and thinking.signature and text.text
    assert 0 < len(thinker.tokenize(thinking.thinking)) <= 10  # encoded anew
    assert message.usage.output_tokens_details.thinking_tokens > 0
    hidden = ask(thinker, thinking={"type": "enabled", "budget_tokens": 8, "display": "omitted"}, **fields)
    assert hidden.content[0].thinking == "" and hidden.content[1].text == text.text
    [alone] = ask(thinker, thinking={"type": "disabled"}, **fields).content
    assert alone.type == "text"
    back = [*QUESTION, {"role": "assistant", "content": message.content}, {"role": "user", "content": "And of Spain?"}]
    assert ask(thinker, back, thinking={"type": "disabled"}, **fields).content


def test_streamed_thinking(thinker):
    with open_helper(thinker, thinking={"type": "enabled", "budget_tokens": 8}, max_tokens=40,
                     extra_body={"ignore_eos": True}) as stream:
        types = [event.type for event in stream if event.type in ("thinking", "signature", "text")]
        final = stream.get_final_message()
    assert types.index("signature") == types.count("thinking") and types[-1] == "text"
    assert final.content[0].thinking and final.content[0].signature


def test_a_budget_means_nothing_to_a_model_that_does_not_think(server):
    raw = client_of(server).messages.with_raw_response.create(model=NAME, messages=QUESTION, max_tokens=2,
                                                              thinking={"type": "enabled", "budget_tokens": 1024})
    assert raw.headers["x-ignored-params"] == "thinking.budget_tokens"


def test_parse_gives_the_model(server):
    class Person(BaseModel):
        name: str
        age: int

    message = client_of(server).messages.parse(model=NAME, max_tokens=64, output_format=Person, extra_body=GREEDY,
                                               messages=[{"role": "user", "content": "Anna is 31. Who is it?"}])
    assert isinstance(message.parsed_output, Person)


# --- Counting ---


def test_counted_tokens_are_those_of_the_prompt(server):
    fields = {"system": "Be brief.", "tools": [WEATHER]}
    count = client_of(server).messages.count_tokens(model=NAME, messages=SHOWN, **fields).input_tokens
    usage = ask(server, SHOWN, max_tokens=1, **fields).usage
    assert count == usage.input_tokens + usage.cache_read_input_tokens


def test_what_is_read_from_the_cache(server):
    text = [{"role": "user", "content": "Tell me of " + "apples and pears and " * 40}]
    ask(server, text, max_tokens=1)
    again = ask(server, text, max_tokens=1).usage
    assert again.cache_read_input_tokens > 64 and again.input_tokens < 64


# --- Errors ---


@pytest.mark.parametrize("fields,word", [
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://a/"}}]}]},
     'messages[0].content[0].type is "image"'),
    ({"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "a"}}]}]},
     'messages[0].content[0].type is "document"'),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, 'tools[0].type is "web_search_20250305"'),
    ({"tools": [{"name": "f", "input_schema": {"type": "object"}}] * 2}, "tools[1].name"),
    ({"extra_body": {"mcp_servers": [{"type": "url"}]}}, "mcp_servers"),
    ({"extra_body": {"temperature": 3}}, "temperature"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"stop_sequences": [""]}, "stop_sequences[0]"),
])
def test_bad_requests_name_the_field(server, fields, word):
    with pytest.raises(anthropic.BadRequestError) as refused:
        ask(server, **fields)
    assert refused.value.type == "invalid_request_error" and word in refused.value.api_message
    assert refused.value.request_id == refused.value.body["request_id"]


def test_another_model(server):
    with pytest.raises(anthropic.NotFoundError) as refused:
        client_of(server).messages.create(model="claude-next", max_tokens=1, messages=QUESTION)
    assert refused.value.type == "not_found_error" and "claude-next" in refused.value.api_message
    assert refused.value.error_code == "model_not_found"


def test_keys_come_in_either_field(start_server):
    server = start_server("--api-key", "secret")
    for fields in ({"api_key": "secret"}, {"api_key": None, "auth_token": "secret"}):
        assert client_of(server, **fields).messages.create(model=NAME, max_tokens=1, messages=QUESTION).content
    for fields in ({"api_key": "wrong"}, {"api_key": None, "auth_token": "wrong"}):
        with pytest.raises(anthropic.AuthenticationError) as refused:
            client_of(server, **fields).messages.count_tokens(model=NAME, messages=QUESTION)
        assert refused.value.type == "authentication_error"
    assert httpx.get(server.url + "/v1/models", headers={"X-Api-Key": "secret"}).status_code == 200
    assert "secret" not in server.read_log()


def test_a_body_that_is_too_large(start_server):
    server = start_server("--max-body-bytes", 2000)
    with pytest.raises(anthropic.RequestTooLargeError) as refused:
        ask(server, [{"role": "user", "content": "a " * 2000}])
    assert refused.value.body["error"]["type"] == "request_too_large"


def test_a_server_that_is_busy(start_server):
    server = start_server("--max-queued-requests", 1, "--max-num-seqs", 1)
    with open_stream(server, max_tokens=8000) as running:
        read_until(running, b"data: ")
        with open_stream(server):
            server.wait_for(lambda metrics: metrics["num_requests_waiting"] == 1)
            with pytest.raises(anthropic.RateLimitError) as refused:
                ask(server)
    assert refused.value.type == "rate_limit_error" and refused.value.response.headers["retry-after"]


def test_a_call_is_in_the_access_log(start_server, tmp_path):
    server = start_server("--access-log", tmp_path / "access.log")
    message = ask(server, max_tokens=2)

    def lines():
        return [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines() if '"POST"' in line]
    wait_until(lines)
    [line] = lines()
    assert (line["route"], line["id"], line["request_id"]) == ("/v1/messages", message.id, message._request_id)
    assert line["finish_reason"] == "length" and line["completion_tokens"] == 2


def test_models_in_anthropics_shape(server):
    """Where the SDK asks, which sends anthropic-version."""
    client = client_of(server)
    listed = client.models.list()
    assert [(model.type, model.id, model.display_name) for model in listed] == [("model", NAME, NAME)]
    assert listed.has_more is False and listed.first_id == listed.last_id == NAME
    assert client.models.retrieve(NAME).created_at == listed.data[0].created_at
    with pytest.raises(anthropic.NotFoundError) as info:
        client.models.retrieve("no such")
    assert info.value.body["error"]["type"] == "not_found_error"
    assert httpx.get(server.url + "/v1/models").json()["object"] == "list"


@pytest.mark.parametrize("path", ["/v1/messages/batches", "/messages/batches/x/results"])
def test_errors_of_paths_that_are_not_here(server, path):
    answer = httpx.get(server.url + path)
    assert answer.status_code == 404 and answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == "not_found_error" and answer.headers["request-id"] == answer.json()["request_id"]
    assert "type" not in httpx.get(server.url + "/v1/else").json()
