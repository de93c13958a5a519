"""The `llm` command: models of extra-openai-models.yaml on each endpoint, its log of tokens, schemas, conversations."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quire_server import NAME

QUESTION = "What is the capital of France? Answer in one word."
MODELS = """- {{model_id: chat, model_name: {name}, api_base: "{url}", supports_schema: true, supports_tools: true}}
- {{model_id: responses, model_name: {name}, api_base: "{url}", supports_schema: true, supports_tools: true,
   responses: true}}
- {{model_id: text, model_name: {name}, api_base: "{url}", completion: true}}
"""
WEATHER = '''def weather(city: str) -> str:
    "Tells the weather of a city."
    return "sunny in " + city
'''


@pytest.fixture
def llm(base_url, tmp_path):
    """llm(*arguments): what the command prints; its settings and its log are in a folder of this test's own."""
    (tmp_path / "extra-openai-models.yaml").write_text(MODELS.format(name=NAME, url=base_url))

    def run(*arguments):
        environment = {**os.environ, "LLM_USER_PATH": str(tmp_path)}
        command = [Path(sys.executable).with_name("llm"), *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
    return run


def options(max_tokens=64):
    return ["-o", "temperature", 0, "-o", "max_tokens", max_tokens]


@pytest.mark.parametrize("model", ["chat", "responses"])
def test_answers_and_streams(llm, answer, model):
    expected = answer(QUESTION, 64).strip()
    assert llm("-m", model, *options(), QUESTION) == expected
    assert llm("-m", model, "--no-stream", *options(), QUESTION) == expected
    streamed, whole = json.loads(llm("logs", "-n", 2, "--json"))
    assert streamed["input_tokens"] == whole["input_tokens"] > 0
    assert streamed["output_tokens"] == whole["output_tokens"] > 0


@pytest.mark.parametrize("stream", [[], ["--no-stream"]])
def test_completes(llm, stream):
    assert "Paris" in llm("-m", "text", *stream, *options(8), "The capital of France is")


@pytest.mark.parametrize("model", ["chat", "responses"])
def test_schema(llm, model):
    reply = json.loads(llm("-m", model, *options(), "--schema", "name, age int", "Anna is 31 years old. Who is it?"))
    assert isinstance(reply["name"], str) and isinstance(reply["age"], int)


@pytest.mark.parametrize("model", ["chat", "responses"])
def test_goes_on_with_a_conversation(llm, model):
    llm("-m", model, *options(), "-s", "Answer in one word.", QUESTION)
    assert llm("-c", *options(), "And of Italy?")
    first, second = json.loads(llm("logs", "-n", 2, "--json"))
    assert second["input_tokens"] > first["input_tokens"] + first["output_tokens"]


@pytest.mark.parametrize("model", ["chat", "responses"])
def test_takes_tools(llm, model):
    assert llm("-m", model, *options(16), "--functions", WEATHER, "What is the weather in Paris?")


def test_lists_models_of_an_endpoint(llm, base_url):
    assert llm("openai", "endpoint", base_url, "--models") == NAME
