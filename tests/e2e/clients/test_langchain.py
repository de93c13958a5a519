"""LangChain: models, tools, structured output, embeddings and an agent."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

from quire_server import NAME


class Person(BaseModel):
    name: str = Field(description="the person's first name")
    age: int = Field(ge=0, le=150)


QUESTION = "Anna is 31 years old. Who is it?"


@tool
def get_weather(city: str, celsius: bool = True) -> str:
    """Tells the weather of a city."""
    return f"It is sunny in {city}."


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def chain(base_url, request):
    return ChatOpenAI(base_url=base_url, api_key="none", model=NAME, temperature=0, max_tokens=64, max_retries=0,
                      stream_usage=True, use_responses_api=request.param)


def test_answers(answer, chain):
    reply = chain.invoke("What is the capital of France?")
    assert reply.text == answer("What is the capital of France?", 64)
    assert reply.usage_metadata["output_tokens"] > 0


def test_says_why_it_ended(base_url):
    model = ChatOpenAI(base_url=base_url, api_key="none", model=NAME, temperature=0, max_tokens=4)
    assert model.invoke("Count to five.").response_metadata["finish_reason"] == "length"


def test_streams_what_it_answers(chain):
    whole = chain.invoke("Count to five.")
    streamed = None
    for chunk in chain.stream("Count to five."):
        streamed = chunk if streamed is None else streamed + chunk
    assert streamed.text == whole.text
    assert streamed.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]
    assert [reply.text for reply in chain.batch(["Count to five."] * 3)] == [whole.text] * 3


def test_async(base_url, answer):
    model = ChatOpenAI(base_url=base_url, api_key="none", model=NAME, temperature=0, max_tokens=64)
    assert asyncio.run(model.ainvoke("Count to five.")).text == answer("Count to five.", 64)


def test_logprobs(base_url):
    model = ChatOpenAI(base_url=base_url, api_key="none", model=NAME, temperature=0, max_tokens=4, logprobs=True,
                       top_logprobs=2)
    tokens = model.invoke("Count to five.").response_metadata["logprobs"]["content"]
    assert len(tokens) == 4 and all(len(token["top_logprobs"]) == 2 for token in tokens)


def test_calls_tools(chain):
    model = chain.bind_tools([get_weather], tool_choice="get_weather")
    call = model.invoke("What is the weather in Paris?").tool_calls[0]
    assert call["name"] == "get_weather" and isinstance(call["args"]["city"], str)
    streamed = None
    for chunk in model.stream("What is the weather in Paris?"):
        streamed = chunk if streamed is None else streamed + chunk
    assert streamed.tool_calls[0]["args"] == call["args"]


def test_agent_calls_a_tool_and_answers(chain):
    @wrap_model_call
    def call_first(request, handler):
        first = len(request.messages) == 1
        return handler(request.override(tool_choice="get_weather" if first else "none"))

    agent = create_agent(chain, [get_weather], system_prompt="You help with the weather.", middleware=[call_first])
    messages = agent.invoke({"messages": [("user", "What is the weather in Paris?")]})["messages"]
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai"]
    assert messages[2].content == f"It is sunny in {messages[1].tool_calls[0]['args']['city']}."
    assert messages[3].text and not messages[3].tool_calls


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(chain, method):
    person = chain.with_structured_output(Person, method=method).invoke(QUESTION)
    assert isinstance(person, Person) and 0 <= person.age <= 150


def test_completions_and_embeddings(base_url):
    model = OpenAI(base_url=base_url, api_key="none", model=NAME, temperature=0, max_tokens=8)
    assert "Paris" in model.invoke("The capital of France is")
    embeddings = OpenAIEmbeddings(base_url=base_url, api_key="none", model=NAME, check_embedding_ctx_length=False)
    first, second = embeddings.embed_documents(["a cat", "a dog"])
    assert len(first) == len(second) and first != second
    assert embeddings.embed_query("a cat") == pytest.approx(first, abs=1e-6)
