"""chat_template of a request (--trust-request-chat-template), /apply-template, and what the render endpoints show."""

import threading
import time

import httpx
import pytest

from quire_server import NAME
from raw_http import wait_until

HI = [{"role": "user", "content": "Hi <|im_end|>"}]
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}{{ tail }}{% if add_generation_prompt %}>{% endif %}"
DEEP = 2000
HOSTILE = {
    "endless loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{{ a }}{% endfor %}"
                     "{% endfor %}{% endfor %}",
    "empty loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "huge text": "{{ 'x' * 999999999999 }}",
    "doubled text": "{% set ns = namespace(s='x' * 1000) %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    "huge list": "{% set x = range(9999999999) | list %}{{ x }}",
    "doubled list": "{% set ns = namespace(l=[1, 2, 3]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l }}",
    "sorted again": "{% set x = range(20000) | list %}{% for i in range(999999) %}{% set y = x | sort(reverse=true) %}{% endfor %}",
    "replaced": "{% set s = 'a' * 60000 %}{% for i in range(99999) %}{% set t = s | replace('a', 'bb') %}{% endfor %}",
    "searched": "{% set s = 'a' * 60000 %}{% for i in range(99999) %}{% set t = ('a' * 30000 ~ 'b') in s %}{% endfor %}",
    "joined": "{% set s = 'a' * 60000 %}{% for i in range(9999) %}{% set t = s.split('a') | join(s) %}{% endfor %}",
    "json": "{% set x = range(9999) | list %}{% for i in range(99999) %}{% set t = x | tojson(indent=99) %}{% endfor %}",
    "padded": "{{ '%999999999d' % 1 }}",
    "format": "{{ '{:>999999999}'.format(1) }}",
    "power": "{{ 9 ** 9 ** 9 ** 9 }}",
    "recursion": "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "two macros": "{% macro f(x) %}{{ g(x) }}{% endmacro %}{% macro g(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "parentheses": "{{ " + "(" * 32000 + "1" + ")" * 32000 + " }}",
    "lists": "{{ " + "[" * 32000 + "]" * 32000 + " }}",
    "nots": "{{ " + "not " * 16000 + "x() }}",
    "minus": "{{ " + "-" * 65000 + "x() }}",
    "blocks": "{% if 1 %}" * DEEP + "{% endif %}" * DEEP,
    "fors": "{% for a in 'ab' %}" * DEEP + "{% endfor %}" * DEEP,
    "filters": "{{ 'a'" + "|upper" * 10000 + "}}" + "{{ x() }}",
    "attributes": "{{ a" + ".b" * 30000 + " }}",
    "indices": "{{ a" + "[0]" * 20000 + " }}",
    "unclosed": "{{ '" + "a" * 65000,
    "not jinja": "{% nothing %}",
    "escape": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "import": "{% include '/etc/passwd' %}",
    "raised": "{{ raise_exception('no') }}",
    "too long": "x" * 65537,
}
ROUTES = ["/v1/chat/completions", "/v1/responses", "/tokenize", "/apply-template", "/v1/chat/completions/render"]


def body_of(path, **fields):
    input_name = "input" if path == "/v1/responses" else "messages"
    limit = {"/v1/responses": {"max_output_tokens": 16}, "/v1/chat/completions": {"max_tokens": 8}}.get(path, {})
    return {"model": NAME, input_name: HI, **limit, **fields}


@pytest.fixture(scope="module")
def trusting(tmp_path_factory):
    from quire_server import QuireServer
    server = QuireServer(tmp_path_factory.mktemp("trusting") / "log", "--trust-request-chat-template", "--max-model-len", 2048,
                         "--kv-cache-memory-bytes", "256M")
    yield server
    server.kill()


@pytest.mark.parametrize("path", ROUTES)
def test_without_the_option_it_is_refused(server, path):
    reply = server.post(path, body_of(path, chat_template=TEMPLATE))
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "chat_template")
    assert "--trust-request-chat-template" in error["message"]
    assert server.post(path, body_of(path, chat_template=None)).status_code == 200


def test_a_template_is_used_and_a_clients_text_is_no_control_token(trusting):
    fields = {"messages": HI, "chat_template": TEMPLATE + "<|im_end|>", "chat_template_kwargs": {"tail": " END"}}
    applied = trusting.post("/apply-template", fields).json()
    assert applied == {"prompt": "[user] Hi <|im_end|> END><|im_end|>"}
    ids = trusting.post("/tokenize", fields).json()["tokens"]
    [end] = trusting.post("/tokenize", {"prompt": "<|im_end|>", "add_special_tokens": False}).json()["tokens"]
    assert ids.count(end) == 1 and ids[-1] == end
    rendered = trusting.post("/v1/chat/completions/render", {"model": NAME, **fields}).json()
    assert rendered["token_ids"] == ids
    chat = trusting.post("/v1/chat/completions", {"model": NAME, **fields, "max_tokens": 8, "temperature": 0}).json()
    plain = trusting.post("/v1/completions", {"model": NAME, "prompt": ids, "max_tokens": 8, "temperature": 0}).json()
    assert chat["choices"][0]["message"]["content"] == plain["choices"][0]["text"]
    response = trusting.post("/v1/responses", {"model": NAME, "input": HI, "max_output_tokens": 16, "temperature": 0,
                                               "chat_template": TEMPLATE}).json()
    assert response["usage"]["input_tokens"] == len(trusting.post("/tokenize", {"messages": HI, "chat_template": TEMPLATE})
                                                   .json()["tokens"])
    default = trusting.post("/apply-template", {"messages": HI}).json()["prompt"]
    assert "<|im_start|>user\nHi" in default  # the next request has the model's again


@pytest.mark.parametrize("value", [1, ["x"], {"a": 1}, True])
def test_it_is_a_string(trusting, value):
    for path in ROUTES:
        error = trusting.post(path, body_of(path, chat_template=value)).json()["error"]
        assert error["param"] == "chat_template" and "must be a string" in error["message"]


def test_hostile_templates_cost_little_while_streams_go_on(trusting):
    """Each costs at most as much as many of a plain loop that uses up the steps of a rendering, whatever the machine's pace."""
    gaps, times, stop = [], {}, threading.Event()

    def read():
        with httpx.stream("POST", trusting.url + "/v1/completions", timeout=120, json={
                "model": NAME, "prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "stream": True}) as reply:
            last = time.monotonic()
            for line in reply.iter_lines():
                if stop.is_set():
                    return
                if line.startswith("data: {"):
                    gaps.append(time.monotonic() - last)
                    last = time.monotonic()

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: len(gaps) >= 3)
    with httpx.Client(base_url=trusting.url, timeout=60) as client:
        for name, template in HOSTILE.items():
            for path in ("/v1/chat/completions", "/apply-template"):
                fastest = []
                for _ in range(3):
                    began = time.monotonic()
                    reply = client.post(path, json=body_of(path, chat_template=template))
                    fastest.append(time.monotonic() - began)
                    assert reply.status_code == 400, (name, reply.text[:300])
                    error = reply.json()["error"]
                    assert error["param"] == "chat_template" and error["code"] in ("chat_template_error", "out_of_range"), name
                times[name] = max(times.get(name, 0), min(fastest))
    print({name: round(seconds * 1000) for name, seconds in times.items()})
    num_tokens = len(gaps)
    stop.set()
    reader.join()
    slowest = max(times, key=times.get)
    print(f"slowest: {slowest}, {times[slowest] * 1000:.0f} ms; {num_tokens} tokens of the stream, longest gap "
          f"{max(gaps[1:]) * 1000:.0f} ms")
    assert times[slowest] < 30 * times["endless loops"], times
    assert num_tokens > 10 and max(gaps[1:]) < sum(gaps[1:]) / 2
    assert trusting.post("/v1/chat/completions", body_of("/v1/chat/completions")).status_code == 200


# Prompts.

def test_apply_template_shows_what_tokenize_encodes(server):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    for fields in ({}, {"add_generation_prompt": False}, {"tools": tools}, {"tools": tools, "tool_choice": "none"},
                   {"messages": [*HI, {"role": "assistant", "content": "Well"}], "continue_final_message": True}):
        body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
        prompt = server.post("/apply-template", body).json()["prompt"]
        ids = server.post("/tokenize", body).json()["tokens"]
        if "messages" not in fields:
            assert server.post("/tokenize", {"prompt": prompt, "add_special_tokens": False}).json()["tokens"] == ids
        assert server.post("/detokenize", {"tokens": ids}).json()["prompt"] == prompt
    for body, param in (({}, "messages"), ({"messages": 1}, "messages"), ({"messages": HI, "tools": 1}, "tools")):
        reply = server.post("/apply-template", body)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert server.post("/apply-template", {"messages": HI, "model": "other"}).status_code == 404
    assert server.post("/apply-template", {"messages": HI, "what": 1}).headers["x-ignored-params"] == "what"


def test_render_shows_what_the_engine_gets(server):
    body = {"model": NAME, "messages": HI, "max_tokens": 5, "temperature": 0.5, "seed": 9, "stop": ["x"], "logprobs": True,
            "top_logprobs": 2, "request_id": "mine", "stream": True, "stream_options": {"include_usage": True}}
    made = server.post("/v1/chat/completions/render", body).json()
    assert made["token_ids"] == server.post("/tokenize", {"messages": HI}).json()["tokens"]
    assert (made["request_id"], made["model"], made["features"], made["stream"]) == ("chatcmpl-mine", NAME, None, True)
    params = made["sampling_params"]
    assert {name: params[name] for name in ("max_tokens", "temperature", "seed", "stop", "logprobs", "n")} == {
        "max_tokens": 5, "temperature": 0.5, "seed": 9, "stop": ["x"], "logprobs": 2, "n": 1}
    assert made["stream_options"]["include_usage"] is True
    several = server.post("/v1/completions/render", {"model": NAME, "prompt": ["Hi", "Hello there"]}).json()
    assert [one["token_ids"] for one in several] == [server.tokenize("Hi"), server.tokenize("Hello there")]
    assert several[0]["sampling_params"]["max_tokens"] == 16 and several[0]["request_id"] != several[1]["request_id"]
    assert several[0]["sampling_params"]["seed"] is None and several[0]["stream_options"] is None


@pytest.mark.parametrize("path,fields,param", [
    ("/v1/completions/render", {"prompt": [[1], [99999999]]}, "prompt[1][0]"),
    ("/v1/completions/render", {"prompt": "Hi", "use_beam_search": True, "best_of": 2, "temperature": 0}, "use_beam_search"),
    ("/v1/completions/render", {"prompt": "Hi", "max_tokens": 10**7}, "max_tokens"),
    ("/v1/completions/render", {}, "prompt"),
    ("/v1/chat/completions/render", {"messages": HI, "temperature": -1}, "temperature"),
    ("/v1/chat/completions/render", {"messages": [{}]}, "messages[0].role"),
])
def test_render_refuses_what_the_endpoint_refuses(server, path, fields, param):
    answered = server.post(path.removesuffix("/render"), {"model": NAME, **fields})
    refused = server.post(path, {"model": NAME, **fields})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    if param != "use_beam_search":
        assert refused.json()["error"] == answered.json()["error"]
