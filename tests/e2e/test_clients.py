"""Programs written for OpenAI, pointed at the server by its base URL: LangChain, LiteLLM and
instructor, with nothing said to them about whose server it is."""

import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch a list of prices otherwise

import instructor
import litellm
import openai
import pytest
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

from quire_server import NAME

litellm.telemetry = False


class Person(BaseModel):
    name: str = Field(description="the person's first name")
    age: int = Field(ge=0, le=150)


QUESTION = "Anna is 31 years old. Who is it?"


@tool
def get_weather(city: str, celsius: bool = True) -> str:
    """Tells the weather of a city."""
    return f"It is sunny in {city}."


@pytest.fixture
def chain(server):
    return ChatOpenAI(base_url=server.url + "/v1", api_key="none", model=NAME, temperature=0, max_tokens=64,
                      max_retries=0)


def answer(server, question, max_tokens):
    """What the plain SDK gets."""
    return server.client().chat.completions.create(
        model=NAME, temperature=0, max_tokens=max_tokens,
        messages=[{"role": "user", "content": question}]).choices[0].message.content


def test_langchain_answers(server, chain):
    reply = chain.invoke("What is the capital of France?")
    assert reply.content == answer(server, "What is the capital of France?", 64)
    assert reply.usage_metadata["output_tokens"] > 0
    assert reply.response_metadata["finish_reason"] in ("stop", "length")


def test_langchain_streams_what_it_answers(chain):
    whole = chain.invoke("Count to five.").content
    assert "".join(chunk.content for chunk in chain.stream("Count to five.")) == whole
    assert [reply.content for reply in chain.batch(["Count to five."] * 3)] == [whole] * 3


def test_langchain_async(chain):
    reply = asyncio.run(chain.ainvoke("Count to five."))
    assert reply.content == chain.invoke("Count to five.").content


def test_langchain_calls_tools(chain):
    model = chain.bind_tools([get_weather], tool_choice="get_weather")
    call = model.invoke("What is the weather in Paris?").tool_calls[0]
    assert call["name"] == "get_weather" and isinstance(call["args"]["city"], str)
    streamed = None
    for chunk in model.stream("What is the weather in Paris?"):
        streamed = chunk if streamed is None else streamed + chunk
    assert streamed.tool_calls[0]["args"] == call["args"]


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_structured_output(chain, method):
    person = chain.with_structured_output(Person, method=method).invoke(QUESTION)
    assert isinstance(person, Person) and 0 <= person.age <= 150


def test_langchain_completions_and_embeddings(server):
    model = OpenAI(base_url=server.url + "/v1", api_key="none", model=NAME, temperature=0, max_tokens=8)
    assert "Paris" in model.invoke("The capital of France is")
    embeddings = OpenAIEmbeddings(base_url=server.url + "/v1", api_key="none", model=NAME,
                                  check_embedding_ctx_length=False)
    first, second = embeddings.embed_documents(["a cat", "a dog"])
    assert len(first) == len(second) and first != second
    assert embeddings.embed_query("a cat") == pytest.approx(first, abs=1e-6)


def lite(server, **fields):
    return litellm.completion(model=f"openai/{NAME}", api_base=server.url + "/v1", api_key="none", temperature=0,
                              max_tokens=48, **fields)


def test_litellm_answers_and_streams(server):
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    whole = lite(server, messages=messages)
    assert whole.choices[0].message.content == answer(server, messages[0]["content"], 48)
    assert whole.usage.completion_tokens > 0
    chunks = lite(server, messages=messages, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content


def test_litellm_calls_tools(server):
    tools = [{"type": "function", "function": {"name": "add", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"], "additionalProperties": False}}}]
    reply = lite(server, messages=[{"role": "user", "content": "Add 2 and 3."}], tools=tools, tool_choice="required")
    assert reply.choices[0].message.tool_calls[0].function.name == "add"


def test_litellm_embeds(server):
    reply = litellm.embedding(model=f"openai/{NAME}", input=["a cat"], api_base=server.url + "/v1", api_key="none")
    assert len(reply.data[0]["embedding"]) > 0


def test_litellm_maps_errors(server):
    with pytest.raises(litellm.BadRequestError):
        lite(server, messages=[])


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_instructor_returns_the_model(server, mode):
    client = instructor.from_openai(openai.OpenAI(base_url=server.url + "/v1", api_key="none"), mode=mode)
    person = client.chat.completions.create(model=NAME, response_model=Person, max_retries=0, temperature=0,
                                            max_tokens=128, messages=[{"role": "user", "content": QUESTION}])
    assert isinstance(person, Person)
