"""`quire bench`: a load on the real server, and on scripted ones that misbehave."""

import json
import subprocess

import pytest

from quire_server import BINARY, NAME, clean_environment, free_port
from scripted_server import ScriptedServer, refusal


def bench(*words, environment=None):
    return subprocess.run([str(word) for word in (BINARY, "bench", *words)], capture_output=True, text=True, timeout=300,
                          env=clean_environment(**(environment or {})))


def text_event(text, finish_reason=None):
    return b"data: " + json.dumps({"choices": [{"text": text, "finish_reason": finish_reason}]}).encode() + b"\n\n"


def usage_event(tokens):
    usage = {"prompt_tokens": 7, "completion_tokens": tokens}
    return b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"


WHOLE = [text_event("a"), text_event("b", "length"), usage_event(2), b"data: [DONE]\n\n"]


@pytest.fixture
def stub():
    made = ScriptedServer()
    yield made
    made.close()


def test_rounds(start_server, tmp_path):
    server = start_server("--no-enable-prefix-caching")
    path = tmp_path / "figures.json"
    before = server.metrics()["request_success_total"]
    result = bench(server.url, "--concurrency", "1,4", "--requests", 2, "--input-tokens", 40, "--output-tokens", 6,
                   "--json", path)
    assert result.returncode == 0 and result.stderr == "", result.stdout
    assert result.stdout.startswith(f"{NAME} at {server.url}: 40 tokens in, 6 out; milliseconds\n")
    one, four = json.loads(path.read_text())["rounds"]
    assert [(r["concurrency"], r["requests"], r["failures"], r["cut"], r["wrong_length"]) for r in (one, four)] == \
        [(1, 2, 0, 0, 0), (4, 8, 0, 0, 0)]
    assert four["output_tokens"] == 48 and 8 * 38 <= four["prompt_tokens"] <= 8 * 44
    for figures in (one, four):
        assert figures["tokens_per_second"] == pytest.approx(figures["output_tokens"] / figures["seconds"])
        for name in ("ttft_ms", "itl_ms", "request_ms"):
            assert 0 < figures[name]["p50"] <= figures[name]["p90"] <= figures[name]["p99"]
        assert figures["ttft_ms"]["p99"] <= figures["request_ms"]["p99"]
    assert server.metrics()["request_success_total"] - before == 1 + 2 + 8  # and the warm-up


def test_prompts_share_what_is_asked_for(start_server):
    """No block of a prompt is found in the cache, unless that is what is to be measured."""
    server = start_server("--enable-prefix-caching")
    words = ("--concurrency", 2, "--requests", 3, "--input-tokens", 80, "--output-tokens", 2, "--warm-up", 0)
    assert bench(server.url, *words).returncode == 0
    assert server.metrics()["prefix_cache_hits_total"] == 0
    assert bench(server.url, *words, "--seed", 1, "--shared-tokens", 64).returncode == 0
    assert server.metrics()["prefix_cache_hits_total"] >= 4 * 48


def test_by_the_clock(start_server, tmp_path):
    server = start_server()
    result = bench(server.url, "--concurrency", 2, "--seconds", 1, "--output-tokens", 2000, "--json", tmp_path / "j")
    figures, = json.loads((tmp_path / "j").read_text())["rounds"]
    assert result.returncode == 0 and figures["cut"] == 2 and figures["output_tokens"] > 0
    server.wait_idle()  # what was cut short is cancelled


def test_failures_are_counted_by_cause(stub, tmp_path):
    stub.script = [WHOLE, (429, {}, refusal("slow down", "x")), (429, {}, refusal("slow down", "x")),
                   [text_event("a"), None], [text_event("a"), b""], [b"data: [DONE]\n\n"], [b"data: {\n\n"], WHOLE,
                   [text_event("a"), usage_event(9), b"data: [DONE]\n\n"]]
    result = bench(stub.url, "--concurrency", 1, "--requests", 8, "--output-tokens", 2, "--json", tmp_path / "j")
    figures, = json.loads((tmp_path / "j").read_text())["rounds"]
    assert result.returncode == 1 and (figures["requests"], figures["failures"], figures["wrong_length"]) == (2, 6, 1)
    assert figures["errors"]["429 slow down"] == 2 and len(figures["errors"]) == 5
    for cause in ("2 failed: 429 slow down\n", "an answer that ends in its middle", "an answer without text",
                  "an event of the stream", "no whole answer"):
        assert cause in result.stdout, result.stdout
    assert (figures["prompt_tokens"], figures["output_tokens"]) == (7 + 7, 2 + 9)


def test_key_and_fields(stub):
    stub.script = [WHOLE]
    assert bench(stub.url + "/v1", "--model", "mine", "--concurrency", 1, "--requests", 1, "--warm-up", 0,
                 "--temperature", 0.5, "--output-tokens", 2, "--input-tokens", 3, "--api-key-env", "MINE",
                 environment={"MINE": "sk-1"}).returncode == 0
    body = stub.chats[0]
    assert stub.headers[0]["Authorization"] == "Bearer sk-1" and len(body.pop("prompt").split()) == 3
    assert body == {"model": "mine", "max_tokens": 2, "temperature": 0.5, "ignore_eos": True, "stream": True,
                    "stream_options": {"include_usage": True}}


def test_nobody_there(stub):
    result = bench(f"http://127.0.0.1:{free_port()}")
    assert result.returncode == 69 and "cannot connect" in result.stderr
    stub.script = [(401, {}, refusal("no key", "x"))]
    result = bench(stub.url)
    assert result.returncode == 69 and "the warm-up failed: 401 no key" in result.stderr


@pytest.mark.parametrize("words", [
    ["a", "b"], ["ftp://a"], ["--concurrency", "0"], ["--concurrency", "1,,2"], ["--concurrency", "1025"], ["--requests"],
    ["--requests", "1.5"], ["--seconds", "0"], ["--seconds", "nan"], ["--nothing", "1"], ["--shared-tokens", "65"],
    ["--concurrency", ",".join("1" * 17)]])
def test_bad_words(words):
    result = bench(*words)
    assert result.returncode == 64 and result.stdout == "" and result.stderr.count("\n") == 1
