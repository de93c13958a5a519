"""LlamaIndex: models, structured output, an agent, embeddings, and questions to an index of documents."""

import asyncio

import pytest
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, Field

from quire_server import NAME

DOCUMENTS = ["The harbour of Ostend opens at six in the morning.", "Cats sleep for most of the day.",
             "A quire is a gathering of pages."]


class Person(BaseModel):
    """A person."""
    name: str = Field(description="the person's first name", max_length=40)
    age: int = Field(ge=0, le=150)


def get_weather(city: str) -> str:
    """Tells the weather of a city."""
    return f"It is sunny in {city}."


@pytest.fixture
def make_model(base_url):
    """make_model(**options): chat by default."""
    def make(**options):
        return OpenAILike(**{"model": NAME, "api_base": base_url, "api_key": "none", "temperature": 0, "max_tokens": 64,
                             "max_retries": 0, "is_chat_model": True, "is_function_calling_model": True, **options})
    return make


@pytest.fixture
def embedding(base_url):
    return OpenAILikeEmbedding(model_name=NAME, api_base=base_url, api_key="none", max_retries=0)


def test_chats_and_streams(make_model, answer):
    messages = [ChatMessage(role="user", content="What is the capital of France?")]
    whole = make_model().chat(messages)
    assert whole.message.content == answer(messages[0].content, 64)
    assert whole.raw.usage.completion_tokens > 0
    assert "".join(part.delta or "" for part in make_model().stream_chat(messages)) == whole.message.content
    assert asyncio.run(make_model().achat(messages)).message.content == whole.message.content


def test_completes_and_streams(make_model):
    model = make_model(is_chat_model=False, max_tokens=8)
    whole = model.complete("The capital of France is").text
    assert "Paris" in whole
    assert "".join(part.delta for part in model.stream_complete("The capital of France is")) == whole


@pytest.mark.parametrize("by_schema", [True, False])
def test_structured_output(make_model, by_schema):
    model = make_model(should_use_structured_outputs=by_schema)
    prompt = PromptTemplate("Anna is {age} years old. Who is it?")
    person = model.structured_predict(Person, prompt, age=31)
    assert isinstance(person, Person)


def test_agent_calls_a_tool_and_answers(make_model):
    agent = FunctionAgent(tools=[get_weather], llm=make_model(), initial_tool_choice="get_weather", streaming=True)

    async def run():
        return await agent.run("What is the weather in Paris?", max_iterations=4)

    result = asyncio.run(run())
    assert result.tool_calls[0].tool_output.content.startswith("It is sunny in")
    assert result.response.content


def test_index_answers_from_documents(make_model, embedding):
    index = VectorStoreIndex.from_documents([Document(text=text) for text in DOCUMENTS], embed_model=embedding)
    found = index.as_retriever(similarity_top_k=3).retrieve("A quire is a gathering of pages.")
    assert found[0].text == DOCUMENTS[2] and len(found) == 3
    reply = index.as_query_engine(llm=make_model(), similarity_top_k=1, streaming=True).query("What is a quire?")
    assert "".join(reply.response_gen)
