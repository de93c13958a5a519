"""Fixtures for programs written for OpenAI or Ollama. Each test_NAME.py runs in an environment of its own, made from NAME.txt;
a package that is missing there is an error, never a skip. No client may reach beyond this machine."""

import json
import os
import socket
import urllib.request

import pytest

from quire_server import NAME

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def away_calls(monkeypatch):
    """The addresses that a test tried to reach beyond this machine: none, also where the client hides the failure."""
    calls = []
    resolve = socket.getaddrinfo

    def resolve_here(host, *arguments, **options):
        if host not in (None, "", b"", "localhost", "127.0.0.1", "::1"):
            calls.append(host)
            raise socket.gaierror(socket.EAI_NONAME, f"{host} is not this machine")
        return resolve(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_here)
    yield calls
    assert not calls


@pytest.fixture
def base_url(server):
    return server.url + "/v1"


@pytest.fixture
def answer(base_url):
    """answer(question, max_tokens): what a plain request gets, without any client."""
    def ask(question, max_tokens):
        body = {"model": NAME, "temperature": 0, "max_tokens": max_tokens,
                "messages": [{"role": "user", "content": question}]}
        request = urllib.request.Request(base_url + "/chat/completions", json.dumps(body).encode())
        with urllib.request.urlopen(request) as response:
            return json.load(response)["choices"][0]["message"]["content"]
    return ask
