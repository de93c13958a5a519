"""The small endpoints: models, tokenize, detokenize, metrics."""

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from quire_server import NAME, ROOT

TEXTS = ["Hello, world!", " leading and trailing ", "naïve café — déjà vu", "日本語のテキスト", "😀👩‍👩‍👧‍👦🏳️‍🌈",
         "tabs\tand\nnewlines\r\n\r\n  \n", "def f(x):\n    return x ** 2  # 12345\n", "مرحبا بالعالم",
         "<|im_start|>user", "a" * 500, "\u0301\u0301 combining", "1234567890 3.14159"]


def test_models(server):
    models = server.client().models.list().data
    assert [model.id for model in models] == [NAME]
    model = server.client().models.retrieve(NAME)
    assert model.object == "model" and model.created > 1_600_000_000
    assert model.max_model_len == 8192


def test_head_options_and_wrong_methods(server):
    """HEAD is GET without the body, OPTIONS names the methods, any other method is a 405 that does too."""
    for path, methods in [("/v1/models", "GET, HEAD"), (f"/v1/models/{NAME}", "GET, HEAD"), ("/version", "GET, HEAD"),
                          ("/live", "GET, HEAD"), ("/health", "GET, HEAD"), ("/ready", "GET, HEAD"), ("/ping", "GET, HEAD, POST"), ("/tokenize", "POST")]:
        options = httpx.options(server.url + path)
        assert (options.status_code, options.headers["allow"], options.content) == (204, methods, b"")
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "ET"]:
            reply = httpx.request(method, server.url + path)
            assert (reply.status_code == 405) == (method not in methods.split(", ")), (method, path)
            if reply.status_code == 405:
                assert reply.headers["allow"] == methods
        if "GET" in methods:
            get, head = httpx.get(server.url + path), httpx.head(server.url + path)
            assert head.content == b"" and head.headers["content-length"] == str(len(get.content))


def test_the_version_may_be_left_out(server):
    """As llama.cpp and others have it; what the paths answer is the same."""
    bodies = {"/completions": {"prompt": "One"}, "/chat/completions": {"messages": [{"role": "user", "content": "One"}]},
             "/responses": {"input": "One"}, "/embeddings": {"input": "One"}}
    for path, body in bodies.items():
        limit = "max_output_tokens" if path == "/responses" else "max_tokens"
        if path != "/embeddings":
            body |= {limit: 2, "temperature": 0}
        with_version, without = (server.post(prefix + path, body) for prefix in ("/v1", ""))
        assert (with_version.status_code, without.status_code) == (200, 200)
        assert with_version.json().keys() == without.json().keys()
        assert with_version.json()["object"] == without.json()["object"]
        assert httpx.get(server.url + path).status_code == 405
    assert httpx.get(server.url + "/models").json() == httpx.get(server.url + "/v1/models").json()
    assert httpx.get(server.url + f"/models/{NAME}").json()["id"] == NAME
    for path in ("/v1/health", "/v1/v1/models", "/v1", "/v1/", "/models//", "/v2/models", "/v1models"):
        assert httpx.get(server.url + path).status_code == 404, path


def test_unknown_model(server):
    for method in ["GET", "HEAD"]:
        assert httpx.request(method, server.url + "/v1/models/nobody").status_code == 404
    error = httpx.get(server.url + "/v1/models/nobody").json()["error"]
    assert error["code"] == "model_not_found" and "nobody" in error["message"]


@pytest.mark.parametrize("model", [None, "tests/golden/families/llama3", "tests/golden/families/llama3.gguf"])
def test_tokenizer_info(server, start_server, model):
    """What evaluation programs need that have no tokenizer: vLLM's, for folders and GGUF files."""
    if model is not None:
        server = start_server("--model", ROOT / model)
    info = httpx.get(server.url + "/tokenizer_info").json()
    assert isinstance(info["tokenizer_class"], str)
    assert (info["bos_token"], info["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert info["chat_template"].startswith("{% for message in messages %}") and "im_start" in info["chat_template"]
    for name in ("bos_token", "eos_token"):
        [token] = server.post("/tokenize", {"prompt": info[name], "add_special_tokens": False}).json()["tokens"]
        assert info["added_tokens_decoder"][str(token)] == {"content": info[name], "special": True}


def test_tokenizer_info_needs_the_key_and_shows_the_template_in_use(start_server, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}")
    server = start_server("--api-key", "secret", "--chat-template", template)
    assert httpx.get(server.url + "/tokenizer_info").status_code == 401
    reply = httpx.get(server.url + "/tokenizer_info", headers={"Authorization": "Bearer secret"})
    assert reply.json()["chat_template"] == "{{ messages[0].content }}"


def test_root_path(start_server):
    server = start_server("--root-path", "/llm/here")
    for path, status in [("/health", 200), ("/llm/here/health", 200), ("/llm/here/v1/models", 200), ("/llm/here/models", 200),
                         ("/llm/here", 200), ("/llm/here/", 200), ("/llm", 404), ("/llm/hereabouts", 404),
                         ("/llm/here/llm/here/health", 404)]:
        assert httpx.get(server.url + path).status_code == status, path


@pytest.mark.parametrize("path", ["llm", "/llm/", "/l m", "/l?m"])
def test_root_paths_that_are_refused(path, start_server):
    with pytest.raises(RuntimeError, match="exit status 78.*root-path"):
        start_server("--root-path", path)


def test_ready(server):
    server.wait_idle()
    reply = httpx.get(server.url + "/ready")
    assert reply.status_code == 200 and reply.json() == {"status": "ready"}


def test_ping(server):
    for reply in [httpx.get(server.url + "/ping"), server.post("/ping", {"any": "thing"}),
                  httpx.post(server.url + "/ping")]:
        assert reply.status_code == 200 and reply.json() == {"status": "ok"}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text[:12]))
def test_tokenize_round_trip(server, text):
    reply = server.post("/tokenize", {"model": NAME, "prompt": text, "return_token_strs": True}).json()
    assert reply["count"] == len(reply["tokens"]) == len(reply["token_strs"])
    assert reply["max_model_len"] == 8192
    assert server.post("/detokenize", {"tokens": reply["tokens"]}).json() == {"prompt": text, "content": text}


def test_tokenize_without_strings(server):
    assert server.post("/tokenize", {"prompt": "a"}).json()["token_strs"] is None


def test_tokenize_llama_cpp_shape(server):
    tokens = server.post("/tokenize", {"content": "Hello there"}).json()["tokens"]
    assert tokens == server.tokenize("Hello there")
    assert server.post("/detokenize", {"tokens": tokens}).json()["prompt"] == "Hello there"


def test_bad_tokens(server):
    for tokens in ([-1], [10 ** 9], ["a"], "a", None, [1.5]):
        assert server.post("/detokenize", {"tokens": tokens}).status_code == 400


def test_metrics_parse_and_count(server):
    server.wait_idle()
    before = server.metrics()
    server.complete("The capital of France is", max_tokens=7, extra_body={"ignore_eos": True})
    after = server.wait_for(lambda m: m["generation_tokens_total"] > before["generation_tokens_total"])
    assert after["generation_tokens_total"] - before["generation_tokens_total"] == 7
    assert after["prompt_tokens_total"] - before["prompt_tokens_total"] == 5
    assert after["request_success_total"] - before["request_success_total"] == 1
    assert after["kv_blocks_used"] == 0
    assert after["kv_blocks_total"] > 0


def test_metrics_have_vllms_names(server):
    text = httpx.get(server.url + "/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for name, kind in [("num_requests_running", "gauge"), ("num_requests_waiting", "gauge"),
                       ("kv_cache_usage_perc", "gauge"), ("prompt_tokens", "counter"),
                       ("generation_tokens", "counter"), ("num_preemptions", "counter"),
                       ("num_requests_swapped", "gauge"), ("prefix_cache_queries", "counter"),
                       ("prefix_cache_hits", "counter"),
                       ("request_success", "counter"), ("time_to_first_token_seconds", "histogram"),
                       ("inter_token_latency_seconds", "histogram"),
                       ("e2e_request_latency_seconds", "histogram")]:
        family = families["quire:" + name]
        assert family.type == kind
        assert all(sample.labels["model_name"] == NAME for sample in family.samples)
