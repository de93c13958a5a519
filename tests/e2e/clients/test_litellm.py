"""LiteLLM: as a library, and its proxy between OpenAI's SDK and the server."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch a list of prices otherwise

import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import litellm
import openai
import pytest

from quire_server import NAME, free_port

litellm.telemetry = False

QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"], "additionalProperties": False}}}]

CONFIG = """model_list:
  - model_name: openai
    litellm_params: {{model: openai/{name}, api_base: "{base_url}", api_key: none}}
  - model_name: hosted_vllm
    litellm_params: {{model: hosted_vllm/{name}, api_base: "{base_url}", api_key: none}}
general_settings:
  master_key: {key}
litellm_settings:
  telemetry: false
"""


@pytest.fixture(params=["openai", "hosted_vllm"])
def lite(base_url, request):
    """lite(**fields): a chat through the library, as a server of OpenAI's kind and as a vLLM."""
    def call(**fields):
        return litellm.completion(model=f"{request.param}/{NAME}", api_base=base_url, api_key="none", temperature=0,
                                  max_tokens=48, num_retries=0, **fields)
    return call


def test_answers_and_streams(lite, answer):
    whole = lite(messages=QUESTION)
    assert whole.choices[0].message.content == answer(QUESTION[0]["content"], 48)
    assert whole.usage.completion_tokens > 0
    chunks = list(lite(messages=QUESTION, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_calls_tools(lite):
    reply = lite(messages=[{"role": "user", "content": "Add 2 and 3."}], tools=TOOLS, tool_choice="required")
    assert reply.choices[0].message.tool_calls[0].function.name == "add"


def test_maps_errors(lite):
    with pytest.raises(litellm.BadRequestError):
        lite(messages=QUESTION, top_p=7)


def test_completes_and_embeds(base_url):
    where = {"api_base": base_url, "api_key": "none"}
    reply = litellm.text_completion(model=f"text-completion-openai/{NAME}", prompt="The capital of France is",
                                    max_tokens=8, temperature=0, **where)
    assert "Paris" in reply.choices[0].text
    reply = litellm.embedding(model=f"openai/{NAME}", input=["a cat", "a dog"], **where)
    assert len(reply.data) == 2 and reply.usage.prompt_tokens > 0


def test_responses(base_url, answer):
    reply = litellm.responses(model=f"openai/{NAME}", input=QUESTION[0]["content"], max_output_tokens=48, temperature=0,
                              api_base=base_url, api_key="none")
    assert reply.output[0].content[0].text == answer(QUESTION[0]["content"], 48)


class Proxy:
    """The proxy's process, on loopback, with two names for the server."""

    def __init__(self, folder, base_url):
        self.key = "sk-" + secrets.token_hex(32)  # it does not start without one
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = folder / "proxy.log"
        config = folder / "config.yaml"
        config.write_text(CONFIG.format(name=NAME, base_url=base_url, key=self.key))
        command = [Path(sys.executable).with_name("litellm"), "--config", config, "--host", "127.0.0.1",
                   "--port", self.url.rsplit(":", 1)[1], "--telemetry", "False"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)

    def wait_until_ready(self, timeout=180):
        deadline = time.monotonic() + timeout
        while True:
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()[-8000:]
            try:
                urllib.request.urlopen(self.url + "/health/liveliness").close()
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)


@pytest.fixture(scope="module")
def proxy(shared_server, tmp_path_factory):
    process = Proxy(tmp_path_factory.mktemp("proxy"), shared_server.url + "/v1")
    try:
        process.wait_until_ready()
        yield openai.OpenAI(base_url=process.url + "/v1", api_key=process.key, max_retries=0)
    finally:
        process.process.terminate()
        process.process.wait(60)


@pytest.fixture(params=["openai", "hosted_vllm"])
def ask(proxy, request):
    """ask(**fields): a chat by way of the proxy."""
    def call(**fields):
        return proxy.chat.completions.create(**{"model": request.param, "temperature": 0, "max_tokens": 48,
                                                "messages": QUESTION, **fields})
    return call


def test_proxy_answers_and_streams(ask, answer):
    whole = ask()
    assert whole.choices[0].message.content == answer(QUESTION[0]["content"], 48)
    chunks = list(ask(stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_proxy_calls_tools(ask):
    call = ask(tools=TOOLS, tool_choice="required").choices[0].message.tool_calls[0]
    assert call.function.name == "add"


def test_proxy_maps_errors(ask):
    with pytest.raises(openai.BadRequestError, match="top_p"):
        ask(top_p=7)


def test_proxy_embeds_and_responds(proxy, answer):
    assert len(proxy.embeddings.create(model="openai", input=["a cat"]).data[0].embedding) > 0
    reply = proxy.responses.create(model="openai", input=QUESTION[0]["content"], max_output_tokens=48, temperature=0)
    assert reply.output_text == answer(QUESTION[0]["content"], 48)
