"""Ollama's Python client: models, chats, tools, schemas, prompts, embeddings, streams, errors."""

import asyncio
import json

import ollama
import pytest
from pydantic import BaseModel

from quire_server import NAME, ROOT

QUESTION = "What is the capital of France? Answer in one word."
MESSAGES = [{"role": "user", "content": QUESTION}]
GREEDY = {"temperature": 0, "num_predict": 24}


class Person(BaseModel):
    name: str
    age: int


def add(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
        a: The first number
        b: The second number
    """
    return a + b


@pytest.fixture
def client(server):
    return ollama.Client(host=server.url)


def test_chats(client, answer):
    whole = client.chat(NAME, MESSAGES, options=GREEDY)
    assert whole.message.content == answer(QUESTION, 24)
    assert whole.done and whole.done_reason in ("stop", "length") and whole.eval_count > 0 < whole.total_duration
    parts = list(client.chat(NAME + ":latest", MESSAGES, options=GREEDY, stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True] and len(parts) > 2
    assert parts[-1].eval_count == whole.eval_count and parts[-1].prompt_eval_count == whole.prompt_eval_count


def test_continues_a_conversation(client):
    first = client.chat(NAME, MESSAGES, options=GREEDY)
    more = [*MESSAGES, first.message, {"role": "user", "content": "And of Italy?"}]
    assert client.chat(NAME, more, options=GREEDY).prompt_eval_count > first.prompt_eval_count


def test_generates(client, answer):
    whole = client.generate(NAME, QUESTION, options=GREEDY, keep_alive="5m")
    assert whole.response == answer(QUESTION, 24)
    assert "".join(part.response for part in client.generate(NAME, QUESTION, options=GREEDY, stream=True)) == whole.response
    assert "Paris" in client.generate(NAME, "The capital of France is", raw=True, options=GREEDY).response
    assert client.generate(NAME).done_reason == "load"


def test_schema(client):
    ask = [{"role": "user", "content": "Anna is 31 years old. Who is it?"}]
    options = {**GREEDY, "num_predict": 64}
    reply = client.chat(NAME, ask, format=Person.model_json_schema(), options=options)
    assert Person.model_validate_json(reply.message.content).name
    assert isinstance(json.loads(client.chat(NAME, ask, format="json", options={**options, "num_predict": 300}).message.content), dict)


def test_tools(client):
    """A function of Python's is taken, and a call and its result are part of the conversation."""
    reply = client.chat(NAME, MESSAGES, tools=[add], options=GREEDY)
    assert reply.message.content or reply.message.tool_calls
    call = ollama.Message.ToolCall(function={"name": "add", "arguments": {"a": 1, "b": 2}})
    history = [*MESSAGES, ollama.Message(role="assistant", content="", tool_calls=[call]),
               ollama.Message(role="tool", tool_name="add", content="3")]
    assert client.chat(NAME, history, tools=[add], options=GREEDY).message.content
    assert client.chat(NAME, history, tools=[add], options=GREEDY, think=False).prompt_eval_count > reply.prompt_eval_count


def test_calls_tools(start_server):
    """Shown how, this small model calls one; a stream has the same call."""
    template = ROOT / "tests/golden/chat_templates/qwen2.5.jinja"
    client = ollama.Client(host=start_server("--chat-template", template, "--kv-cache-memory-bytes", "256M").url)

    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    shown = []
    for city in ("Rome", "Oslo"):
        call = {"function": {"name": "weather", "arguments": {"city": city}}}
        shown += [{"role": "user", "content": f"What is the weather in {city}?"}, {"role": "assistant", "tool_calls": [call]}]
    shown.append({"role": "user", "content": "What is the weather in Paris?"})
    reply = client.chat(NAME, shown, tools=[weather], options={**GREEDY, "num_predict": 60})
    call, = reply.message.tool_calls
    assert weather(**call.function.arguments) == "sunny in Paris"
    parts = client.chat(NAME, shown, tools=[weather], options={**GREEDY, "num_predict": 60}, stream=True)
    assert [call.function.arguments for part in parts for call in part.message.tool_calls or ()] == [{"city": "Paris"}]
    answered = [*shown, reply.message, {"role": "tool", "tool_name": "weather", "content": "sunny"}]
    assert client.chat(NAME, answered, tools=[weather], options=GREEDY).prompt_eval_count > reply.prompt_eval_count


def test_logprobs(client):
    reply = client.chat(NAME, MESSAGES, options=GREEDY, logprobs=True, top_logprobs=2)
    assert len(reply.logprobs) == reply.eval_count and len(reply.logprobs[0].top_logprobs) == 2


def test_embeds(client):
    reply = client.embed(NAME, ["One", "Two three"])
    assert len(reply.embeddings) == 2 and abs(sum(x * x for x in reply.embeddings[0]) - 1) < 1e-3
    assert client.embed(NAME, "One").embeddings[0] == reply.embeddings[0]
    old = client.embeddings(NAME, "One").embedding
    scale = old[0] / reply.embeddings[0][0]
    assert all(abs(a - scale * b) < 1e-4 * scale for a, b in zip(old, reply.embeddings[0]))


def test_models(client):
    listed, running = client.list().models[0], client.ps().models[0]
    assert listed.model == running.model == NAME + ":latest" and listed.digest == running.digest
    assert listed.modified_at and running.expires_at and running.context_length == 8192
    shown = client.show(listed.model)
    assert "completion" in shown.capabilities and shown.modelinfo["quire.context_length"] == 8192 and shown.template


def test_without_waiting(server, answer):
    async def ask():
        client = ollama.AsyncClient(host=server.url)
        whole = await client.chat(NAME, MESSAGES, options=GREEDY)
        parts = [part.message.content async for part in await client.chat(NAME, MESSAGES, options=GREEDY, stream=True)]
        return whole.message.content, "".join(parts), len((await client.embed(NAME, "One")).embeddings)
    assert asyncio.run(ask()) == (answer(QUESTION, 24), answer(QUESTION, 24), 1)


def test_errors(client):
    with pytest.raises(ollama.ResponseError, match="model 'other' not found") as failed:
        client.chat("other", MESSAGES)
    assert failed.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="model 'other' not found"):
        list(client.chat("other", MESSAGES, stream=True))
    with pytest.raises(ollama.ResponseError, match="options.temperature must be"):
        client.chat(NAME, MESSAGES, options={"temperature": 9})
    with pytest.raises(ollama.ResponseError, match="images are not supported"):
        client.chat(NAME, [{"role": "user", "content": "What is it?", "images": [b"PNG"]}])
    for manage in (lambda: client.pull("other"), lambda: client.delete(NAME), lambda: client.copy(NAME, "other"),
                   lambda: list(client.create("other", from_=NAME, stream=True))):
        with pytest.raises(ollama.ResponseError, match="is not supported") as failed:
            manage()
        assert failed.value.status_code == 501


def test_key(start_server, monkeypatch):
    server = start_server("--api-key", "secret")
    monkeypatch.setenv("OLLAMA_API_KEY", "secret")
    assert ollama.Client(host=server.url).list().models
    monkeypatch.setenv("OLLAMA_API_KEY", "wrong")
    with pytest.raises(ollama.ResponseError) as failed:
        ollama.Client(host=server.url).list()
    assert failed.value.status_code == 401
