"""Ollama's API (/api/...) by plain HTTP; tests/e2e/clients/test_ollama.py has its Python client."""

import datetime
import json
import re

import httpx
import pytest

from quire_server import NAME, ROOT
from raw_http import wait_until
from test_keep_alive import last_records, occupy
from wire_shape import ANY_OBJECT, fits

TEMPLATE = ROOT / "tests/golden/chat_templates/qwen2.5.jinja"  # hermes calls, ChatML as the model's own
THINKING = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
            "<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}")
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
COUNTS = {name: int for name in ("total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration",
                                 "eval_count", "eval_duration")}
LOGPROB = {"token": str, "logprob": float, "bytes": [int]}
HEAD = {"model": NAME, "created_at": TIME, "logprobs?": [{**LOGPROB, "top_logprobs": [LOGPROB]}]}
CALL = {"id": str, "function": {"index": int, "name": str, "arguments": ANY_OBJECT}}
MESSAGE = {"role": "assistant", "content": str, "thinking?": str, "tool_calls?": [CALL]}
END = {"done": True, "done_reason": ("stop", "length"), **COUNTS}
OUTPUT = {"/api/chat": {"message": MESSAGE}, "/api/generate": {"response": str, "thinking?": str}}


def post(server, path, fields, **kwargs):
    return httpx.post(server.url + path, json=fields, timeout=300, **kwargs)


def ask(server, path="/api/chat", options=None, **fields):
    """A whole answer, whose shape is checked."""
    if path == "/api/chat":
        fields = {"messages": QUESTION, **fields}
    body = {"model": NAME, "stream": False, **fields, "options": {"temperature": 0, "num_predict": 12, **(options or {})}}
    response = post(server, path, body)
    assert response.status_code == 200, response.text
    assert fits(response.json(), {**HEAD, **OUTPUT[path], **END}) is None, response.text
    return response.json()


def stream(server, path="/api/chat", options=None, **fields):
    """A stream's lines, whose shapes are checked."""
    if path == "/api/chat":
        fields = {"messages": QUESTION, **fields}
    body = {"model": NAME, **fields, "options": {"temperature": 0, "num_predict": 12, **(options or {})}}
    with httpx.stream("POST", server.url + path, json=body, timeout=300) as response:
        assert response.status_code == 200 and response.headers["content-type"] == "application/x-ndjson"
        text = response.read().decode()
    assert text.endswith("\n") and "\n\n" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines[:-1]:
        assert fits(line, {**HEAD, **OUTPUT[path], "done": False}) is None, line
    assert fits(lines[-1], {**HEAD, **OUTPUT[path], **END}) is None, lines[-1]
    return lines


def said(lines, name="content"):
    return "".join(line["message"].get(name, "") for line in lines)


def refusal(server, path, status=400, **fields):
    response = post(server, path, {"model": NAME, **fields})
    assert response.status_code == status, response.text
    assert response.json().keys() == {"error"}
    return response.json()["error"]


# --- /api/chat ---

def test_chat_is_that_of_openai(server):
    """The same prompt, sampling and text as /v1/chat/completions; a stream, the default, has the same in lines."""
    expected = server.post("/v1/chat/completions", {"messages": QUESTION, "temperature": 0, "max_tokens": 12}).json()
    whole, lines = ask(server), stream(server)
    assert whole["message"]["content"] == said(lines) == expected["choices"][0]["message"]["content"]
    assert len(lines) > 5 and said(lines[-1:]) == ""
    for answer in (whole, lines[-1]):
        assert answer["prompt_eval_count"] == expected["usage"]["prompt_tokens"]
        assert answer["eval_count"] == expected["usage"]["completion_tokens"] == 12
        assert answer["done_reason"] == "length"
        assert answer["total_duration"] >= answer["eval_duration"] > 0 and answer["prompt_eval_duration"] > 0


def test_created_now(server):
    made = datetime.datetime.fromisoformat(ask(server)["created_at"])
    assert abs((datetime.datetime.now(datetime.timezone.utc) - made).total_seconds()) < 3600


def test_options(server):
    plain = ask(server)["message"]["content"]
    assert ask(server, options={"num_predict": 3})["eval_count"] == 3
    stopped = ask(server, options={"stop": [plain[4:7]]})
    assert stopped["message"]["content"] == plain[:4] and stopped["done_reason"] == "stop"
    assert ask(server, options={"logit_bias": {}, "repeat_penalty": 1.9})["message"]["content"] != plain
    hot = {"temperature": 2, "seed": 7}
    assert ask(server, options=hot)["message"] == ask(server, options=hot)["message"]
    assert ask(server, options={**hot, "top_k": 1})["message"]["content"] == plain
    for unlimited in (-1, -2, 0):
        assert ask(server, options={"num_predict": unlimited, "stop": [plain[4:7]]})["done_reason"] == "stop"
    assert ask(server, options={"num_predict": 100000, "stop": [plain[4:7]]})["done_reason"] == "stop"  # cut to the context


def test_options_of_the_program_are_listed(server):
    response = post(server, "/api/chat", {"model": NAME, "messages": QUESTION, "keep_alive": "5m", "stream": False, "options": {
        "num_predict": 1, "num_ctx": 8192, "num_gpu": 99, "num_thread": 2, "repeat_last_n": 64, "seed": -1, "stream": True}})
    assert set(response.headers["X-Ignored-Params"].split(",")) == {"options.num_ctx", "options.num_gpu", "options.num_thread"}
    assert response.headers["content-type"] == "application/json"


def test_range_of_penalties(server):
    """Programs send it with the penalty: it is listed, as penalties count all that was written; with 0 there are none."""
    body = {"model": NAME, "messages": QUESTION, "stream": False}
    options = {"temperature": 0, "num_predict": 12, "repeat_penalty": 1.9}
    plain, penalised = ask(server)["message"], ask(server, options={"repeat_penalty": 1.9})["message"]
    for last, ignored, message in ((64, "options.repeat_last_n", penalised), (-1, None, penalised), (0, None, plain)):
        response = post(server, "/api/chat", {**body, "options": {**options, "repeat_last_n": last}})
        assert response.headers.get("X-Ignored-Params") == ignored
        assert response.json()["message"] == message


def test_rates_of_one_token(server):
    """Programs divide by the durations."""
    answer = ask(server, options={"num_predict": 1})
    assert answer["eval_count"] == 1 and answer["eval_duration"] > 0 and answer["prompt_eval_duration"] > 0


def test_last_message_of_the_assistant_is_continued(server):
    continued = ask(server, messages=[*QUESTION, {"role": "assistant", "content": "The capital of France is"}])
    assert "Paris" in continued["message"]["content"]


def test_logprobs(server):
    whole = ask(server, logprobs=True, top_logprobs=2)
    assert len(whole["logprobs"]) == whole["eval_count"]
    assert all(len(one["top_logprobs"]) == 2 for one in whole["logprobs"])
    lines = stream(server, logprobs=True)
    tokens = [one for line in lines for one in line.get("logprobs", [])]
    assert [one["token"] for one in tokens] == [one["token"] for one in whole["logprobs"]]
    assert "top_logprobs" in refusal(server, "/api/chat", messages=QUESTION, top_logprobs=2)


@pytest.mark.parametrize("form", ["json", {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"],
                                           "additionalProperties": False}])
def test_format(server, form):
    for answer in (ask(server, format=form, options={"num_predict": 200}),
                   stream(server, format=form, options={"num_predict": 200})):
        text = said(answer) if isinstance(answer, list) else answer["message"]["content"]
        value = json.loads(text)
        assert isinstance(value, dict) and (form == "json" or isinstance(value["age"], int))


def test_think(start_server, tmp_path):
    path = tmp_path / "thinking.jinja"
    path.write_text(THINKING)
    thinker = start_server("--chat-template", path, "--reasoning-parser", "think")
    for think in (True, "high"):
        thought = ask(thinker, think=think)
        assert thought["message"]["thinking"] and thought["message"]["content"] == ""
        assert said(stream(thinker, think=think), "thinking") == thought["message"]["thinking"]
    assert ask(thinker, "/api/generate", prompt="What is the capital of France?", think=True)["thinking"]
    assert "thinking" not in ask(thinker, think=False)["message"]
    assert "think" in refusal(thinker, "/api/chat", messages=QUESTION, think="very")


def test_think_of_a_model_that_does_not(server):
    response = post(server, "/api/chat", {"model": NAME, "messages": QUESTION, "think": True, "stream": False,
                                          "options": {"num_predict": 1}})
    assert response.status_code == 200 and response.headers["X-Ignored-Params"] == "think"


# --- Tools ---

def asked(city):
    return {"role": "user", "content": f"What is the weather in {city}?"}


def called(city):
    call = {"function": {"name": "get_weather", "arguments": {"city": city}}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


SHOWN = [asked("Rome"), called("Rome"), asked("Oslo"), called("Oslo"), asked("Paris")]
RESULT = {"role": "tool", "content": "12 degrees"}


def test_tool_calls(start_server):
    """Their arguments are an object; a stream has each in one line, once it is complete."""
    tool_server = start_server("--chat-template", TEMPLATE, "--kv-cache-memory-bytes", "256M")
    whole = ask(tool_server, messages=SHOWN, tools=[WEATHER], options={"num_predict": 60})
    lines = stream(tool_server, messages=SHOWN, tools=[WEATHER], options={"num_predict": 60})
    streamed = [call for line in lines for call in line["message"].get("tool_calls", [])]
    for calls in (whole["message"]["tool_calls"], streamed):
        assert [call["function"] for call in calls] == [{"index": 0, "name": "get_weather", "arguments": {"city": "Paris"}}]
    assert whole["message"]["content"] == said(lines) == ""
    expected = tool_server.post("/v1/chat/completions", {
        "messages": [*SHOWN[:2], {**RESULT, "name": "get_weather"}], "tools": [WEATHER], "temperature": 0, "max_tokens": 12}).json()
    answer = ask(tool_server, messages=[*SHOWN[:2], {**RESULT, "tool_name": "get_weather"}], tools=[WEATHER])
    assert answer["prompt_eval_count"] == expected["usage"]["prompt_tokens"]
    assert answer["message"]["content"] == expected["choices"][0]["message"]["content"]


# --- /api/generate ---

def test_generate_is_a_chat_of_one_message(server):
    messages = [{"role": "system", "content": "Be brief."}, *QUESTION]
    expected = ask(server, messages=messages)
    fields = {"prompt": QUESTION[0]["content"], "system": "Be brief."}
    whole, lines = ask(server, "/api/generate", **fields), stream(server, "/api/generate", **fields)
    assert whole["response"] == expected["message"]["content"] == "".join(line["response"] for line in lines)
    assert whole["prompt_eval_count"] == expected["prompt_eval_count"]


def test_generate_raw(server):
    expected = server.complete("The capital of France is", max_tokens=12, temperature=0).choices[0].text
    assert ask(server, "/api/generate", prompt="The capital of France is", raw=True)["response"] == expected
    form = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    shaped = ask(server, "/api/generate", prompt="Ages:", raw=True, format=form, options={"num_predict": 30})
    assert json.loads(shaped["response"])["a"] in (1, 2)
    assert "prompt" in refusal(server, "/api/generate", prompt="a " * 9000, raw=True)
    assert "from 0 to 20" in refusal(server, "/api/generate", prompt="a", raw=True, logprobs=True, top_logprobs=21)


def test_suffix_needs_tokens_that_this_model_lacks(server):
    assert "suffix" in refusal(server, "/api/generate", prompt="def f(", suffix=")")


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
def test_loading(server, path):
    """One object, also where a stream is the default; the model stays."""
    for keep_alive, reason in ((None, "load"), ("5m", "load"), (-1, "load"), (0, "unload"), ("0s", "unload"), ("-1s", "load"),
                               ("0h1.5m", "load"), ("0h0m", "unload"), ("-0", "unload")):
        response = post(server, path, {"model": NAME, "keep_alive": keep_alive, "logprobs": True})
        output = {"response": ""} if path == "/api/generate" else {"message": {"role": "assistant", "content": ""}}
        assert fits(response.json(), {"model": NAME, "created_at": TIME, **output, "done": True, "done_reason": reason}) is None
        assert response.headers["content-type"] == "application/json"


# --- Embeddings ---

def test_embed(server):
    data = server.post("/v1/embeddings", {"input": ["One", "Two three"]}).json()
    expected = [item["embedding"] for item in data["data"]]
    answer = post(server, "/api/embed", {"model": NAME, "input": ["One", "Two three"], "keep_alive": "1m"})
    assert fits(answer.json(), {"model": NAME, "embeddings": [[float]], "total_duration": int, "load_duration": 0,
                                "prompt_eval_count": data["usage"]["prompt_tokens"]}) is None
    assert answer.json()["embeddings"] == expected and "X-Ignored-Params" not in answer.headers
    assert post(server, "/api/embed", {"model": NAME, "input": "One"}).json()["embeddings"] == expected[:1]


@pytest.mark.variant
def test_embed_cuts_long_inputs(server):
    long = "word " * 9000
    cut = post(server, "/api/embed", {"model": NAME, "input": long}).json()
    assert cut["prompt_eval_count"] == 8192
    assert "input" in refusal(server, "/api/embed", input=long, truncate=False)


def test_embeddings_of_the_older_form(server):
    data = server.post("/v1/embeddings", {"input": "One", "normalize": False}).json()
    assert post(server, "/api/embeddings", {"model": NAME, "prompt": "One"}).json() == {"embedding": data["data"][0]["embedding"]}


def test_embeddings_of_the_older_form_take_one_text(server):
    assert "prompt must be a string" in refusal(server, "/api/embeddings", prompt=["One", "Two"])
    assert "prompt must be a string" in refusal(server, "/api/embeddings", input="One")
    assert "input" in refusal(server, "/api/embeddings", prompt="One", input="One")


# --- Models ---

def test_tags_and_ps(server):
    model = {"name": NAME + ":latest", "model": NAME + ":latest", "size": int, "digest": re.compile("[0-9a-f]{64}"),
             "details": ANY_OBJECT}
    tags, ps = (httpx.get(server.url + path).json() for path in ("/api/tags", "/api/ps"))
    assert fits(tags, {"models": [{**model, "modified_at": TIME}]}) is None and len(tags["models"]) == 1
    assert fits(ps, {"models": [{**model, "expires_at": TIME, "size_vram": int, "context_length": 8192}]}) is None
    assert tags["models"][0]["digest"] == ps["models"][0]["digest"]


@pytest.mark.parametrize("body", [{"model": NAME}, {"model": NAME + ":latest"}, {"name": NAME}])
def test_show(server, body):
    shown = post(server, "/api/show", body).json()
    assert shown["capabilities"] == ["completion", "tools"]
    assert "<|im_start|>" in shown["template"]
    assert shown["model_info"][shown["model_info"]["general.architecture"] + ".context_length"] == 8192


def test_version_and_root(server):
    assert re.fullmatch(r"\d+\.\d+\.\d+", httpx.get(server.url + "/api/version").json()["version"])
    assert httpx.head(server.url + "/").status_code == 200


@pytest.mark.parametrize("method,path", [("POST", "/api/pull"), ("POST", "/api/push"), ("POST", "/api/create"),
                                         ("POST", "/api/copy"), ("DELETE", "/api/delete"), ("POST", "/api/blobs/sha256:00")])
def test_what_manages_models_is_not_here(server, method, path):
    response = httpx.request(method, server.url + path, json={"model": "a"})
    assert response.status_code == 501 and path[:9] in response.json()["error"]


def test_model_names(server):
    assert ask(server, model=NAME + ":latest")["model"] == NAME
    for path, fields in (("/api/chat", {"messages": QUESTION}), ("/api/generate", {"prompt": "a"}), ("/api/embed", {"input": "a"}),
                         ("/api/embeddings", {"prompt": "a"}), ("/api/show", {})):
        for name in ("other", NAME + ":135m", "x:latest"):
            error = refusal(server, path, 404, **fields, model=name)
            assert error == f"model '{name.removesuffix(':latest')}' not found: this server has '{NAME}'"
        assert "model" in refusal(server, path, **fields, model="")
        assert "model" in refusal(server, path, **fields, model=None)


def test_name_with_a_tag(start_server):
    tagged = start_server("--served-model-name", "a:latest", "--served-model-name", "b:1b")
    names = [model["name"] for model in httpx.get(tagged.url + "/api/tags").json()["models"]]
    assert names == [NAME + ":latest", "a:latest", "b:1b"]
    for name in ("a:latest", "b:1b", NAME, NAME + ":latest"):
        assert post(tagged, "/api/show", {"model": name}).status_code == 200
    assert post(tagged, "/api/show", {"model": "b"}).status_code == 404


# --- Errors ---

@pytest.mark.parametrize("fields,named", [
    ({"options": {"temperature": 9}}, "options.temperature must be a number from 0 to 2, not 9"),
    ({"options": {"num_predict": "3"}}, "options.num_predict must be an integer"),
    ({"options": {"repeat_penalty": 100}}, "options.repeat_penalty"),
    ({"options": {"stop": [1]}}, "options.stop[0]"),
    ({"options": {"repeat_last_n": "64", "repeat_penalty": 1.1}}, "options.repeat_last_n"),
    ({"options": {"tfs_z": 0.5}}, "options.tfs_z"),
    ({"options": {"repetition_penalty": 1.1}}, "repetition_penalty"),
    ({"options": [1]}, "options must be an object, not an array"),
    ({"options": {f"o{i}": 1 for i in range(65)}}, "options has too many members"),
    ({"options": {"n": 2}}, "n is a field of"),
    ({"format": "xml"}, "format must be"),
    ({"format": {"type": "strange"}}, "format"),
    ({"keep_alive": "soon"}, "keep_alive must be"),
    ({"keep_alive": []}, "keep_alive must be"),
    ({"keep_alive": "nan"}, "keep_alive must be"),
    ({"keep_alive": "5 minutes"}, "keep_alive must be"),
    ({"keep_alive": "5m" * 33}, "keep_alive must be"),
    ({"messages": [{"role": "user", "content": "a", "images": ["aGk="]}]}, "messages[0].images are not supported"),
    ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
    ({"messages": [1]}, "messages[0] must be an object"),
    ({"messages": "a"}, "messages must be an array"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}]}, "arguments"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"template": "{{ .Prompt }}"}, "template is not supported"),
    ({"shift": True}, "shift is not supported"),
    ({"stream": 1}, "stream must be true or false"),
    ({"n": 2}, "n is a field of"),
    ({"prompt": "a"}, "prompt is a field of"),
])
def test_refused_chats(server, fields, named):
    assert named in refusal(server, "/api/chat", **{"messages": QUESTION, **fields})


@pytest.mark.parametrize("fields,named", [
    ({"prompt": 1}, "prompt must be a string"),
    ({"system": 1}, "system must be a string"),
    ({"suffix": []}, "suffix must be a string"),
    ({"raw": "yes"}, "raw must be true or false"),
    ({"template": "{{ .Prompt }}"}, "template is not supported"),
    ({"context": [1, 2]}, "context is not supported"),
    ({"images": ["aGk="]}, "images are not supported"),
    ({"messages": QUESTION}, "messages is a field of"),
    ({"options": {"top_p": 2}}, "options.top_p must be"),
])
def test_refused_prompts(server, fields, named):
    assert named in refusal(server, "/api/generate", **{"prompt": "a", **fields})


def test_other_errors_have_ollamas_form(server, start_server):
    assert httpx.post(server.url + "/api/chat", content=b"{").json().keys() == {"error"}
    assert httpx.get(server.url + "/api/chat").json().keys() == {"error"}
    missing = httpx.get(server.url + "/api/nothing")
    assert missing.status_code == 404 and missing.json().keys() == {"error"}
    strict = start_server("--api-key", "secret", "--unknown-params", "reject")
    assert post(strict, "/api/show", {"model": NAME}).status_code == 401
    assert post(strict, "/api/show", {"model": NAME}).json().keys() == {"error"}
    headers = {"Authorization": "Bearer secret"}
    assert post(strict, "/api/show", {"model": NAME}, headers=headers).status_code == 200
    refused = post(strict, "/api/chat", {"model": NAME, "messages": QUESTION, "options": {"num_ctx": 1}}, headers=headers)
    assert refused.status_code == 400 and "num_ctx" in refused.json()["error"]


def test_a_stream_that_waits(start_server):
    """What keeps it open is white space, which no reader of lines takes for an object; its error is a line."""
    server = start_server("--max-num-seqs", 1, "--sse-ping-interval", 1, "--queue-timeout", 4)
    with occupy(server):
        with httpx.stream("POST", server.url + "/api/chat", json={"model": NAME, "messages": QUESTION}, timeout=300) as response:
            assert response.status_code == 200
            text = response.read().decode()
    assert text.startswith("  ") and text.count("\n") == 1
    assert "waited too long" in json.loads(text)["error"]


def test_counted_and_logged_by_route(start_server, tmp_path):
    log = tmp_path / "access.log"
    server = start_server("--access-log", log)
    ask(server)
    wait_until(lambda: last_records(log, "/api/chat"))
    record, = last_records(log, "/api/chat")
    assert (record["status"], record["completion_tokens"]) == (200, 12)
