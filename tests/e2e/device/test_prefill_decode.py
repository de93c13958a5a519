"""Prompts that one server computes and another one continues (--kv-role), through scripts/prefill_proxy.py as through a
gateway: clients get the bytes of one server, whatever becomes of the server that prefills and of the folder between them."""

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from quire_server import NAME, ROOT, QuireServer, clean_environment, free_port
from test_adapters import ADAPTERS, BASE
from test_kv_store import TEXT, blocks_of, disk, flip, shared, why_refused  # noqa: F401 (a fixture)

TO_PREFILL = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
              "remote_host": None, "remote_port": None}
TO_DECODE = {**TO_PREFILL, "do_remote_decode": False, "do_remote_prefill": True}
VLLM = '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}'


def prompt_of(number):
    return " ".join(f"Item {i} of list {number} is number {i * 7919 % 1000 + number}." for i in range(2))


def request_of(number):
    """A seeded request; every eighth one has the same kind, and half of each kind are chats, half of those streams."""
    body = {"model": NAME, "max_tokens": 8, "temperature": 0.9, "seed": number, "stream": number // 2 % 2 == 1}
    is_chat = number % 2 == 1
    if is_chat:
        body["messages"] = [{"role": "system", "content": "You count."}, {"role": "user", "content": prompt_of(number)}]
    else:
        body["prompt"] = prompt_of(number)
    body |= [{}, {"n": 2}, {"logprobs": True, "top_logprobs": 2} if is_chat else {"logprobs": 2},
             {"structured_outputs": {"regex": "(yes|no), [a-z]{2,40}"}}, {"stop": ["a", "e"]}, {"cache_salt": f"salt {number}"},
             {"presence_penalty": 0.5, "min_tokens": 6}, {"max_tokens": 1}][number // 4 % 8]
    if body["stream"]:
        body["stream_options"] = {"include_usage": True}
    return "/v1/chat/completions" if is_chat else "/v1/completions", body


def merge(choice, piece):
    """Adds what a chunk has of a choice."""
    for name, value in piece.items():
        if isinstance(value, dict):
            merge(choice.setdefault(name, {}), value)
        elif isinstance(value, (str, list)) and isinstance(choice.get(name), type(value)) and name != "role":
            choice[name] += value
        elif value is not None:
            choice[name] = value


def read_stream(text):
    choices, usage = {}, None
    assert text.endswith("data: [DONE]\n\n"), text
    for line in text.split("\n\n")[:-2]:
        if line.startswith(":"):  # a slow server says that it is there
            continue
        chunk = json.loads(line.removeprefix("data: "))
        usage = chunk.get("usage") or usage
        for piece in chunk["choices"]:
            merge(choices.setdefault(piece["index"], {}), piece)
    return [choices[i] for i in sorted(choices)], usage


async def ask_all(url, requests, width=16, headers=None):
    """The choices and the usage of each answer, in order."""
    gate = asyncio.Semaphore(width)

    async def ask(client, path, body):
        async with gate:
            answer = await client.post(url + path, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        if body.get("stream"):
            return read_stream(answer.text)
        return answer.json()["choices"], answer.json()["usage"]
    async with httpx.AsyncClient(timeout=300) as client:
        return await asyncio.gather(*(ask(client, *request) for request in requests))


def answers_of(url, requests, **options):
    return asyncio.run(ask_all(url, requests, **options))


def without_cached(answers):
    """What must be equal: all but how much of the prompt was found."""
    return [(choices, {**(usage or {}), "prompt_tokens_details": None}) for choices, usage in answers]


def handovers(server, direction, headers=None):
    """Requests, tokens, and tokens that were missing."""
    names = ["kv_handovers_total", "kv_handover_tokens_total", "kv_handover_missing_tokens_total"]
    families = text_string_to_metric_families(httpx.get(server.url + "/metrics", headers=headers).text)
    values = {sample.name.split(":", 1)[-1]: sample.value for family in families for sample in family.samples
              if sample.labels.get("direction") == direction}
    return [values[name] for name in names]


@contextmanager
def proxy_of(prefill, decode):
    port = free_port()
    process = subprocess.Popen([sys.executable, ROOT / "scripts/prefill_proxy.py", "--port", str(port), "--prefill", f"127.0.0.1:{prefill}",
                                "--decode", f"127.0.0.1:{decode}"], env=clean_environment(), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    try:
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/health")
                break
            except httpx.ConnectError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    store = shared(folder / "kv")
    prefill = QuireServer(folder / "prefill.log", *store, "--kv-role", "prefill")
    decode = QuireServer(folder / "decode.log", *store, "--kv-transfer-config", VLLM)
    with proxy_of(prefill.port, decode.port) as url:
        yield SimpleNamespace(prefill=prefill, decode=decode, url=url, folder=folder / "kv")
    prefill.kill()
    decode.kill()


def test_as_one_server(server, pair):
    requests = [request_of(i) for i in range(64)]
    right = answers_of(server.url, requests)
    before = handovers(pair.decode, "in"), handovers(pair.prefill, "out")
    answers = answers_of(pair.url, requests)
    assert without_cached(answers) == without_cached(right)
    assert len({json.dumps(choices) for choices, _ in answers}) > 40
    for (_, usage), (_, alone) in zip(answers, right):  # all full blocks but the one that the last token may be in
        assert usage["prompt_tokens_details"]["cached_tokens"] == (usage["prompt_tokens"] - 1) // 16 * 16
    (num_in, tokens_in, missing_in), (num_out, tokens_out, missing_out) = (
        [now - then for now, then in zip(handovers(pair.decode, "in"), before[0])],
        [now - then for now, then in zip(handovers(pair.prefill, "out"), before[1])])
    assert num_in == num_out == 64 and missing_in == missing_out == 0
    assert tokens_in == tokens_out == sum(usage["prompt_tokens_details"]["cached_tokens"] for _, usage in answers)


WORD = {"type": "function", "function": {"name": "say", "parameters": {"type": "object", "properties": {"word": {"enum": ["yes", "no"]}},
                                                                        "required": ["word"], "additionalProperties": False}}}


def test_other_requests_as_one_server(server, pair):
    """What needs the whole prompt, several prompts, beams, tools, and one that ends with its first token."""
    def completion(number, **fields):
        return "/v1/completions", body_of(prompt_of(100 + number), **fields)

    requests = [completion(0, prompt_logprobs=1, logprobs=1), completion(1, echo=True, logprobs=0), completion(2, n=2, best_of=3),
                completion(3, use_beam_search=True, n=2, temperature=0), completion(4, prompt=[prompt_of(i) for i in (104, 105)]),
                completion(6, max_tokens=1), completion(7, allowed_token_ids=[0]),
                ("/v1/chat/completions", {"model": NAME, "messages": [{"role": "user", "content": prompt_of(108)}], "seed": 1,
                                          "max_completion_tokens": 40, "tools": [WORD], "tool_choice": "required"})]
    before = handovers(pair.decode, "in")

    def without_ids(answers):
        return json.loads(re.sub(r'"call_\w+"', '"call"', json.dumps(without_cached(answers))))
    assert without_ids(answers_of(pair.url, requests)) == without_ids(answers_of(server.url, requests))
    assert handovers(pair.decode, "in")[2] == before[2]


@pytest.mark.variant
@pytest.mark.parametrize("options", [("--rank-process", "on"), ("--tensor-parallel-size", 2, "--threads", 2), ("--kv-cache-dtype", "int8"),
                                     ("--no-async-scheduling",), ("--max-model-len", 256, "--kv-cache-memory-bytes", "12M", "--swap-space", "0.02"),
                                     ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}')])
def test_options_as_one_server(start_server, tmp_path, options):
    store = shared(tmp_path / "kv")
    alone, prefill, decode = (start_server(*options, *role) for role in (
        (), (*store, "--kv-role", "prefill"), (*store, "--kv-role", "decode")))
    requests = [request_of(i) for i in range(64)]
    with proxy_of(prefill.port, decode.port) as url:
        assert without_cached(answers_of(url, requests)) == without_cached(answers_of(alone.url, requests))
    assert handovers(decode, "in")[0] == 64 and handovers(decode, "in")[1] > 1000


def hand_over(pair, body, path="/v1/completions", **options):
    asked = {**body, "max_tokens": 1, "stream": False, "kv_transfer_params": TO_PREFILL}
    answer = pair.prefill.post(path, asked, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()["kv_transfer_params"]


def take_over(pair, body, params, path="/v1/completions", **options):
    answer = pair.decode.post(path, {**body, "kv_transfer_params": params}, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"], answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def body_of(text, **fields):
    return {"model": NAME, "prompt": text, "max_tokens": 6, "temperature": 0.9, "seed": 3, **fields}


def test_what_is_said_of_the_blocks(pair):
    """At once, although the folder is listed once a second only."""
    body = body_of(f"Said. {TEXT[:600]}")
    params = hand_over(pair, body)
    num_tokens = pair.prefill.tokenize(body["prompt"])
    assert params == {**TO_DECODE, "remote_engine_id": params["remote_engine_id"], "remote_num_tokens": (len(num_tokens) - 1) // 16 * 16}
    assert take_over(pair, body, params)[1] == params["remote_num_tokens"]
    assert hand_over(pair, body) == params  # all of it was cached
    assert f"same store, {params['remote_engine_id']}" in pair.decode.read_log()


def test_nothing_to_hand_over(pair):
    """A prompt shorter than a block, and one whose gateway has lost the parameters."""
    body = body_of("Short.")
    params = hand_over(pair, body)
    assert params["remote_num_tokens"] == 0
    assert take_over(pair, body, params) == take_over(pair, body, None)
    body = body_of(f"Lost. {TEXT[:300]}")
    hand_over(pair, body)
    without = take_over(pair, body, None)
    assert without[0] == take_over(pair, body, {**TO_DECODE, "remote_num_tokens": None})[0]


@pytest.mark.parametrize("damage", ["remove", "flip", "truncate", "another's name", "more than there is", "before it is there"])
def test_what_is_not_there_is_computed(server, pair, damage):
    number = random.Random(7)
    body = body_of(f"{damage}: {TEXT[:500]}")
    right = server.post("/v1/completions", body).json()["choices"]
    before, there = set(blocks_of(pair.folder)), handovers(pair.decode, "in")
    params = {**TO_DECODE, "remote_num_tokens": 10_000} if damage == "before it is there" else hand_over(pair, body)
    written = sorted(set(blocks_of(pair.folder)) - before)
    assert (len(written) > 5) == (damage != "before it is there")
    for path in written:
        if damage == "remove":
            path.unlink()
        elif damage == "truncate":
            os.truncate(path, 5000)
        elif damage == "flip":
            data = bytearray(path.read_bytes())
            flip(data, number)
            path.write_bytes(data)
    if damage == "another's name":
        params["remote_engine_id"] = "quire-0123456789abcdef"
    if damage == "more than there is":
        params["remote_num_tokens"] = 2**31 - 1
    answer, cached = take_over(pair, body, params)
    assert answer == right
    _, found, missing = [now - then for now, then in zip(handovers(pair.decode, "in"), there)]
    if damage == "more than there is":
        assert cached == found > 100 and missing == 0
    elif damage == "another's name":
        assert found == missing == 0
    else:
        assert cached == found == 0 and missing > 100


def test_a_killed_server_costs_no_answer(server, pair, start_server, request):
    """That prefills, at random moments; another one takes its place."""
    variant = request.config.getoption("-m") != "not variant"
    requests = [("/v1/completions", body_of(f"Killed {i}. {prompt_of(i)}", stream=i % 2 == 1)) for i in range(8)]
    right = answers_of(server.url, requests)
    port = free_port()
    store = shared(pair.folder)
    with proxy_of(port, pair.decode.port) as url:
        assert without_cached(answers_of(url, requests[:1])) == without_cached(right[:1])  # there was none yet
        for i in range(20 if variant else 2):
            prefill = start_server(*store, "--kv-role", "prefill", port=port)
            salted = [(path, {**body, "cache_salt": f"{i}"}) for path, body in requests]

            async def run():
                answers = asyncio.ensure_future(ask_all(url, salted, 4))
                await asyncio.sleep(random.random())
                prefill.kill()
                return await answers
            answers = asyncio.run(run())
            assert without_cached(answers) == without_cached(right)


def test_an_adapter(start_server, tmp_path):
    lora = "--model", BASE, "--lora-modules", f"one={ADAPTERS / 'llama-r8'}"
    store = shared(tmp_path / "kv", "64M")
    alone, prefill, decode = (start_server(*lora, *options) for options in (
        (), (*store, "--kv-role", "kv_producer"), (*store[:-1], "shared-read-only", "--kv-role", "decode")))
    pair = SimpleNamespace(prefill=prefill, decode=decode)
    for model in ("one", NAME):
        body = body_of("abc " * 20, model=model, ignore_eos=True)
        params = hand_over(pair, body)
        answer, cached = take_over(pair, body, params)
        assert answer == alone.post("/v1/completions", body).json()["choices"]
        assert params["remote_num_tokens"] >= 16 and cached in (params["remote_num_tokens"], 0)  # so small a model may be computed


def test_keys_stay_apart(start_server, tmp_path):
    """With the parameters that another key's prompt has got, nobody finds more than without."""
    keys = tmp_path / "keys"
    keys.write_text("alpha\nbeta\n")
    keys.chmod(0o600)
    store = (*shared(tmp_path / "kv", "64M"), "--api-key-file", keys, "--kv-role", "both")
    pair = SimpleNamespace(prefill=start_server(*store), decode=start_server(*store))
    alpha, beta = ({"Authorization": f"Bearer {key}"} for key in ("alpha", "beta"))
    body = body_of(TEXT[:500])
    params = hand_over(pair, body, headers=alpha)
    assert params["remote_num_tokens"] > 100
    answer, cached = take_over(pair, body, params, headers=beta)
    assert cached == 0
    assert take_over(pair, body, params, headers=alpha) == (answer, params["remote_num_tokens"])
    assert take_over(pair, {**body, "cache_salt": "x"}, params, headers=alpha) == (answer, 0)


@pytest.mark.variant
def test_a_disk_that_hangs(server, start_server, tmp_path, disk):  # noqa: F811
    """What is not written in time is not waited for."""
    options = (*shared(tmp_path / "kv", "64M"), "--kv-role", "both")
    prefill = start_server(*options, environment=disk.environment)
    pair = SimpleNamespace(prefill=prefill, decode=start_server(*options))
    disk("write", 10**9)
    body = body_of(TEXT[:500])
    params = hand_over(pair, body)
    assert params["remote_num_tokens"] == 0 and "are not in the store" in prefill.read_log()
    assert take_over(pair, body, params)[0] == server.post("/v1/completions", body).json()["choices"]
    assert handovers(prefill, "out")[2] > 100


@contextmanager
def cut_off():
    """The port of a server whose answers end before all of them has come, but for /health."""
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "2" if self.path == "/health" else "1000")
            self.end_headers()
            self.wfile.write(b"{}")
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_the_proxy_cuts_off_what_was_cut_off():
    with cut_off() as port, proxy_of(port, port) as url, pytest.raises(httpx.RemoteProtocolError):
        httpx.get(url + "/v1/models")


def test_the_proxy_passes_refusals_on(pair):
    """Of a body that is nested too deeply for it to read, and of one that the server does not read to its end."""
    for body, status in (('{"prompt": ' + "[" * 50_000 + "]" * 50_000 + "}", 400), (json.dumps({"prompt": "a " * (9 << 20)}), 413)):
        answers = [httpx.post(url + "/v1/completions", content=body, timeout=60) for url in (pair.url, pair.decode.url)]
        assert [answer.status_code for answer in answers] == [status] * 2
        assert answers[0].json() == answers[1].json()


@pytest.mark.parametrize("params, param, message", [
    ([1], "kv_transfer_params", "must be an object"),
    ({"do_remote_prefill": 1}, "kv_transfer_params.do_remote_prefill", "must be true or false, not 1"),
    ({"do_remote_decode": True}, "kv_transfer_params.do_remote_decode", "this server decodes (--kv-role)"),
    (TO_DECODE | {"do_remote_decode": True}, "kv_transfer_params.do_remote_prefill", "must not be true with do_remote_decode"),
    (TO_DECODE | {"remote_port": 65536}, "kv_transfer_params.remote_port", "from 0 to 65535, not 65536"),
    (TO_DECODE | {"remote_host": "h" * 257}, "kv_transfer_params.remote_host", "has 257 bytes: at most 256"),
    (TO_DECODE | {"remote_engine_id": 5}, "kv_transfer_params.remote_engine_id", "not 5"),
    (TO_DECODE | {"remote_num_tokens": -1}, "kv_transfer_params.remote_num_tokens", "not -1"),
    (TO_DECODE | {"remote_block_ids": "1"}, "kv_transfer_params.remote_block_ids", "must be a list or null")])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_bad_parameters(pair, path, params, param, message):
    body = {"model": NAME, "prompt": "a", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "kv_transfer_params": params}
    answer = pair.decode.post(path, body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param and message in answer.json()["error"]["message"]


def test_parameters_elsewhere(server, pair):
    body = body_of("a b c", kv_transfer_params=TO_PREFILL)
    answer = pair.decode.post("/v1/responses", {"model": NAME, "input": "a", "kv_transfer_params": TO_DECODE})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "kv_transfer_params"
    for where, path, fields in ((pair.decode, "/completion", {"n_predict": 2}),
                                (server, "/v1/completions", {}), (pair.prefill, "/v1/completions", {"kv_transfer_params": TO_DECODE}),
                                (pair.prefill, "/v1/completions", {"stream": True})):
        answer = where.post(path, {**body, **fields})
        assert answer.status_code == 400 and "kv_transfer_params" in answer.json()["error"]["message"], (path, answer.text)
    answer = pair.decode.post("/v1/completions", {**body, "kv_transfer_params": {**TO_DECODE, "transfer_id": "x"}})
    assert answer.headers["X-Ignored-Params"] == "kv_transfer_params.transfer_id"
    assert server.post("/v1/completions", {**body, "kv_transfer_params": None}).status_code == 200


@pytest.mark.parametrize("options, message", [
    (("--kv-role", "prefill"), "kv-role: needs kv-store"),
    (("--kv-role", "prefiller"), "kv-role: \"prefiller\"; must be one of: prefill decode both"),
    (("--kv-store", "/proc/none", "--kv-role", "decode"), "kv-role: needs kv-store-mode shared or shared-read-only, not keep"),
    (("--kv-store", "/proc/none", "--kv-store-mode", "shared-read-only", "--kv-role", "both"), "needs kv-store-mode shared, not shared-read-only"),
    (("--kv-transfer-config", '{"kv_connector": "P2pNcclConnector"}'), "kv-role: kv_role must be \"kv_producer\""),
    (("--kv-transfer-config", '{"kv_role": "kv_both", "kv_port": 1}'), "kv_port"),
    (("--kv-transfer-config", '{"kv_role": "kv_both", "kv_load_failure_policy": "fail"}'), "must be \"recompute\""),
    (("--kv-transfer-config", '{"kv_role"'), "kv-role: must be a role or a JSON object")])
def test_bad_roles(start_server, options, message):
    assert message in why_refused(start_server, *options)
