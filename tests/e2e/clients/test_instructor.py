"""instructor: answers as pydantic models, whole, streamed in part, and as a list."""

import instructor
import openai
import pytest
from pydantic import BaseModel, Field

from quire_server import NAME


class Person(BaseModel):
    name: str = Field(description="the person's first name", max_length=40)
    age: int = Field(ge=0, le=150)


FIELDS = {"model": NAME, "max_retries": 0, "temperature": 0, "max_tokens": 128,
          "messages": [{"role": "user", "content": "Anna is 31 years old. Who is it?"}]}
MODES = [instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA]


@pytest.fixture(params=MODES, ids=[mode.name for mode in MODES])
def client(base_url, request):
    return instructor.from_openai(openai.OpenAI(base_url=base_url, api_key="none"), mode=request.param)


def test_returns_the_model(client):
    person, raw = client.chat.completions.create_with_completion(response_model=Person, **FIELDS)
    assert isinstance(person, Person)
    assert raw.usage.completion_tokens > 0


def test_streams_parts_of_the_model(client):
    parts = list(client.chat.completions.create_partial(response_model=Person, **FIELDS))
    assert parts[-1].age == client.chat.completions.create(response_model=Person, **FIELDS).age
    assert len(parts) > 1
