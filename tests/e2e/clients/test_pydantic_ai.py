"""pydantic-ai: agents on the chat and the responses endpoint, with text, typed output, tools, streams, embeddings."""

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent, Embedder, NativeOutput, ToolOutput
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from quire_server import NAME

QUESTION = "What is the capital of France? Answer in one word."
SETTINGS = {"temperature": 0, "max_tokens": 64}


class Person(BaseModel):
    """A person."""
    name: str = Field(description="the person's first name", max_length=40)
    age: int = Field(ge=0, le=150)


@pytest.fixture
def provider(base_url):
    return OpenAIProvider(base_url=base_url, api_key="none")


@pytest.fixture(params=[OpenAIChatModel, OpenAIResponsesModel], ids=["chat", "responses"])
def make_agent(provider, request):
    """make_agent(**options): an agent on either endpoint."""
    def make(**options):
        return Agent(request.param(NAME, provider=provider), **{"retries": 0, "model_settings": SETTINGS, **options})
    return make


def test_answers(make_agent, answer):
    result = make_agent().run_sync(QUESTION)
    assert result.output == answer(QUESTION, 64)
    assert result.usage.output_tokens > 0 and result.usage.input_tokens > 0


def test_streams_what_it_answers(make_agent):
    whole = make_agent().run_sync(QUESTION)
    streamed = make_agent().run_stream_sync(QUESTION)
    assert "".join(streamed.stream_text(delta=True)) == whole.output
    assert streamed.usage.output_tokens == whole.usage.output_tokens


def test_goes_on_with_a_conversation(make_agent):
    agent = make_agent()
    first = agent.run_sync(QUESTION)
    second = agent.run_sync("And of Italy?", message_history=first.all_messages())
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens


@pytest.mark.parametrize("output", [ToolOutput, NativeOutput])
def test_typed_output(make_agent, output):
    agent = make_agent(output_type=output(Person))
    result = agent.run_sync("Anna is 31 years old. Who is it?")
    assert isinstance(result.output, Person)


@pytest.mark.parametrize("allowed", [["get_weather"], ["get_weather", "get_forecast"]])
def test_calls_a_tool_and_answers(make_agent, allowed):
    def settings(context):
        return {**SETTINGS, "tool_choice": allowed if context.run_step == 1 else "none"}

    agent = make_agent(model_settings=settings)
    asked = []

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Tells the weather of a city."""
        asked.append(city)
        return f"It is sunny in {city}."

    @agent.tool_plain
    def get_forecast(city: str) -> str:
        """Tells tomorrow's weather of a city."""
        asked.append(city)
        return f"It will be sunny in {city}."

    @agent.tool_plain
    def get_time() -> str:
        """Tells the time."""
        raise AssertionError("not among the tools of this step")

    result = agent.run_sync("What is the weather in Paris?")
    assert asked and result.output and result.usage.requests == 2


def test_embeds(provider):
    embedder = Embedder(OpenAIEmbeddingModel(NAME, provider=provider))
    result = embedder.embed_documents_sync(["a cat", "a dog"])
    assert len(result.embeddings) == 2 and result.usage.input_tokens > 0


def test_errors_name_the_field(make_agent):
    with pytest.raises(ModelHTTPError, match="top_p"):
        make_agent().run_sync(QUESTION, model_settings={"top_p": 7})
