"""openai-agents: text, streams, tools, hand-offs and typed output on the chat and the responses endpoint. Tracing is
off: it goes to OpenAI."""

import asyncio

import agents
import openai
import pytest
from pydantic import BaseModel, Field

from quire_server import NAME

agents.set_tracing_disabled(True)

QUESTION = "What is the capital of France? Answer in one word."
MODELS = [agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel]


class Person(BaseModel):
    name: str = Field(description="the person's first name", max_length=40)
    age: int = Field(ge=0, le=150)


@pytest.fixture(params=MODELS, ids=["chat", "responses"])
def make_agent(base_url, request):
    """make_agent(**options): an agent on either endpoint; settings are those of the model."""
    client = openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)

    def make(name="helper", settings=None, **options):
        model = request.param(model=NAME, openai_client=client)
        settings = agents.ModelSettings(**{"temperature": 0, "max_tokens": 64, **(settings or {})})
        return agents.Agent(name=name, model=model, model_settings=settings, **options)
    return make


def run(agent, question=QUESTION, **options):
    return asyncio.run(agents.Runner.run(agent, question, max_turns=4, **options))


def test_answers(make_agent, answer):
    result = run(make_agent())
    assert result.final_output == answer(QUESTION, 64)
    assert result.context_wrapper.usage.output_tokens > 0


def test_streams_what_it_answers(make_agent, answer):
    async def stream():
        result = agents.Runner.run_streamed(make_agent(settings={"include_usage": True}), QUESTION)
        text = [event.data.delta async for event in result.stream_events()
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"]
        return "".join(text), result

    text, result = asyncio.run(stream())
    assert text == result.final_output == answer(QUESTION, 64)
    assert result.context_wrapper.usage.output_tokens > 0


def test_calls_a_tool_and_answers(make_agent):
    asked = []

    @agents.function_tool
    def get_weather(city: str) -> str:
        """Tells the weather of a city."""
        asked.append(city)
        return f"It is sunny in {city}."

    agent = make_agent(tools=[get_weather], settings={"tool_choice": "get_weather"})
    result = run(agent, "What is the weather in Paris?")
    assert len(asked) == 1 and result.final_output
    assert [item.type for item in result.new_items][:2] == ["tool_call_item", "tool_call_output_item"]


def test_hands_over_to_another_agent(make_agent):
    italian = make_agent("italian", instructions="Answer in Italian.")
    front = make_agent("front", handoffs=[italian], settings={"tool_choice": "transfer_to_italian"})
    result = run(front)
    assert result.last_agent is italian and result.final_output


def test_typed_output(make_agent):
    person = run(make_agent(output_type=Person), "Anna is 31 years old. Who is it?").final_output
    assert isinstance(person, Person)


def test_goes_on_with_a_conversation(make_agent):
    async def talk():
        first = await agents.Runner.run(make_agent(), QUESTION)
        items = first.to_input_list() + [{"role": "user", "content": "And of Italy? Answer in one word."}]
        return first, await agents.Runner.run(make_agent(), items)

    first, second = asyncio.run(talk())
    assert second.context_wrapper.usage.input_tokens > first.context_wrapper.usage.total_tokens
