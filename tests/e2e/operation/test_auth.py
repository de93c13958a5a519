"""--api-key: every path but /live, /health, /ready, /ping and the page needs one of the keys, before anything else is checked."""

from pathlib import Path

import httpx
import openai
import pytest

from quire_server import QuireServer

KEYS = ["first-key", "second-key"]
PATHS = [("GET", "/v1/models"), ("POST", "/v1/completions"), ("POST", "/tokenize"),
         ("POST", "/detokenize"), ("GET", "/tokenizer_info"), ("GET", "/metrics"), ("GET", "/version"), ("GET", "/nowhere"),
         ("PUT", "/v1/completions"), ("GET", "/models"), ("POST", "/chat/completions")]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    log = tmp_path_factory.mktemp("auth") / "server.log"
    server = QuireServer(log, "--api-key", KEYS[0], "--api-key", KEYS[1])
    yield server
    server.kill()


def test_both_keys_work(guarded):
    for key in KEYS:
        client = guarded.client(api_key=key)
        assert client.models.list().data
        completion = client.completions.create(model="smollm2", prompt="Hi", max_tokens=1)
        assert completion.usage.completion_tokens == 1


def test_wrong_key(guarded):
    for key in ["wrong", "first-ke", "first-key2", "FIRST-KEY", "second-key first-key"]:
        with pytest.raises(openai.AuthenticationError) as info:
            guarded.client(api_key=key).models.list()
        assert info.value.code == "invalid_api_key"


@pytest.mark.parametrize("method,path", PATHS)
@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer x", "Basic first-key", "first-key"])
def test_every_path_is_guarded(guarded, method, path, header):
    headers = {} if header is None else {"Authorization": header}
    reply = httpx.request(method, guarded.url + path, headers=headers)
    assert reply.status_code == 401
    assert reply.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("headers,said", [
    ({}, "no API key was sent"), ({"Authorization": "Bearer"}, "no API key was sent"),
    ({"X-Api-Key": ""}, "no API key was sent"), ({"Authorization": "Bearer sk-wrong"}, "incorrect API key"),
    ({"X-Api-Key": "sk-wrong"}, "incorrect API key"), ({"Authorization": "sk-wrong"}, "must be 'Bearer KEY'")])
def test_wrong_key_reads_differently_from_none(guarded, headers, said):
    for path in ("/v1/models", "/v1/chat/completions"):
        reply = httpx.get(guarded.url + path, headers=headers)
        message = reply.json()["error"]["message"]
        assert reply.status_code == 401 and said in message and "sk-wrong" not in message


@pytest.mark.parametrize("path", ["/live", "/health", "/ready", "/ping", "/"])
def test_open_paths(guarded, path):
    assert httpx.get(guarded.url + path).status_code == 200


def test_keys_are_not_in_the_list_of_processes(guarded):
    words = (Path("/proc") / str(guarded.process.pid) / "cmdline").read_bytes().split(b"\0")
    assert words.count(b"--api-key") == 2
    assert not any(key.encode() in word for key in KEYS for word in words)


def test_keys_are_not_logged(guarded):
    assert not any(key in guarded.read_log() for key in KEYS)
