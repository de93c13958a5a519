"""A pytest plugin for run_suites.py: stands in for what a peer's tests import of their own program.

Their servers become `quire serve` with those of the given options that it has; their protocol classes become plain
objects; whatever else a test calls of the peer's Python skips that test, since it does not ask a server anything.
SUITE and, with an end to that name, _BINARY, _MODEL, _REPO and _URL (of the server that run_suites.py has started) say the rest."""

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import socket
import subprocess
import sys
import time
import types
import unittest
import urllib.error
import urllib.request
from pathlib import Path

import pytest

SUITE, BINARY, MODEL, REPO, URL = (os.environ.get("SUITE" + name, "") for name in ("", "_BINARY", "_MODEL", "_REPO", "_URL"))
NOT_HTTP = "calls the peer's own Python"
CONTEXT = 8192  # of the model; a small one often writes until a shorter one ends


class Own:
    """What a class of the peer's stands on: no test gets an object of it."""

    def __init__(self, *_, **__):
        pytest.skip(NOT_HTTP)


class Absent:
    """Anything of the peer's own program: may be named, subscripted and joined; skips the test that calls it."""

    def __init__(self, name):
        self.__name__ = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return absent(f"{self.__name__}.{name}")

    def __getitem__(self, key):
        return self

    def __or__(self, other):
        return self

    __ror__ = __or__

    def __add__(self, other):
        return self()

    def __iter__(self):
        return iter(())

    def __mro_entries__(self, bases):
        return (Own,)

    def __call__(self, *_, **__):
        pytest.skip(f"{NOT_HTTP}: {self.__name__}", allow_module_level=True)


def absent(path):
    name = path.rsplit(".", 1)[-1]
    return type(name, (Exception,), {}) if name.endswith("Error") else Absent(path)


class StandIn(types.ModuleType):
    """A module of the peer: the names of `provided`, and everything else absent."""

    def __init__(self, name, provided):
        super().__init__(name)
        self.provided = provided

    def __getattr__(self, name):
        if name in self.provided:
            return self.provided[name]
        if name.startswith("__"):
            raise AttributeError(name)
        if name.endswith("Response"):
            return Shape
        if name.startswith("DEFAULT_"):
            return name  # of a model
        return absent(f"{self.__name__}.{name}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds StandIns for modules below `names`; those directly below a key of `real` are the checkout's own."""

    def __init__(self, names, provided, real=()):
        self.names = re.compile(r"(%s)(\.|$)" % "|".join(map(re.escape, names)))
        self.provided, self.real = provided, dict(real)

    def find_spec(self, name, path=None, target=None):
        if not self.names.match(name) or name.rpartition(".")[0] in self.real:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = [self.real[name]] if name in self.real else []
        return spec

    def create_module(self, spec):
        return StandIn(spec.name, self.provided)

    def exec_module(self, module):
        pass


class Shape:
    """What a protocol class of the peer makes of an answer: its members as attributes."""

    def __init__(self, members):
        self.__dict__.update({name: Shape.of(value) for name, value in members.items()})

    @staticmethod
    def of(value):
        if isinstance(value, list):
            return [Shape.of(one) for one in value]
        return Shape(value) if isinstance(value, dict) else value

    @classmethod
    def model_validate(cls, value):
        assert "error" not in value, value
        return cls.of(value)


class No:
    """Says no to whatever it is asked, as which platform this is."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        return lambda *_, **__: ""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


# What is about another machine or model.
LEFT_OUT = {"--model", "--port", "--host", "--dtype", "--config", "--enforce-eager", "--gpu-memory-utilization", "--speculative-config",
            "--tensor-parallel-size", "--tool-call-parser", "--reasoning-parser", "--chat-template", "--max-num-batched-tokens"}
SAME = {"--context-length": "--max-model-len", "--max-running-requests": "--max-num-seqs"}


@functools.cache
def known_options():
    text = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True).stdout
    return set(re.findall(r"^  (--[a-z-]+)", text, re.M)) - LEFT_OUT


def own_options(words):
    """Those of a peer's command that Quire has, with their values."""
    found = []
    for k, word in enumerate(words):
        option = SAME.get(word, word)
        if option not in known_options():
            continue
        value = words[k + 1:k + 2] if not "".join(words[k + 1:k + 2]).startswith("--") else []
        found += [option, *(value if option != "--max-model-len" or int(value[0]) <= CONTEXT else ["2048"])]
    return found


class Server:
    """`quire serve` by the name of the model that a test wants."""

    DUMMY_API_KEY = "token-abc123"
    running = {}

    def __init__(self, model, words=(), port=None, names=(), env_dict=None, **_):
        self.host, self.port, self.uds = "127.0.0.1", port or free_port(), None
        self.url_root = f"http://{self.host}:{self.port}"
        key = (env_dict or {}).get("VLLM_API_KEY")
        options = own_options([*map(str, words), *(("--api-key", key) if key else ())])
        if "--max-model-len" not in options:
            options += ["--max-model-len", str(CONTEXT // 2)]
        if "--served-model-name" not in options:
            options += [word for name in (model, *names) for word in ("--served-model-name", name)]
        self.process = subprocess.Popen([BINARY, "serve", "--model", MODEL, "--port", str(self.port), "--enable-admin",
                                         "--response-store-bytes", "16M", "--log-level", "warning", *options])
        self.pid = self.process.pid
        Server.running[self.pid] = self
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url_root + "/health").close()
                return
            except urllib.error.URLError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"the server does not start with {options}")

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def url_for(self, *parts):
        return "/".join([self.url_root, *(part.strip("/") for part in parts)])

    def client_of(self, package, name, base, words):
        module = importlib.import_module(package)
        return getattr(module, name)(**{"base_url": base, "api_key": self.DUMMY_API_KEY, "max_retries": 0, **words})

    def get_client(self, **words):
        return self.client_of("openai", "OpenAI", self.url_for("v1"), words)

    def get_async_client(self, **words):
        return self.client_of("openai", "AsyncOpenAI", self.url_for("v1"), words)

    def get_client_anthropic(self, **words):
        return self.client_of("anthropic", "Anthropic", self.url_root, words)

    def get_async_client_anthropic(self, **words):
        return self.client_of("anthropic", "AsyncAnthropic", self.url_root, words)


@functools.cache
def tokenizer_of_model(*_, **__):
    """That of the served GGUF file, by Transformers."""
    import transformers
    return transformers.AutoTokenizer.from_pretrained(str(Path(MODEL).parent), gguf_file=Path(MODEL).name)


class ModelConfig:
    def __init__(self, *_, **__):
        pass

    def get_vocab_size(self):
        return len(tokenizer_of_model())

    def get_hidden_size(self):
        return 0


def stand_in_for_vllm():
    skip = pytest.mark.skip(NOT_HTTP)
    version = subprocess.run([BINARY, "--version"], capture_output=True, text=True).stdout.split()[1]
    sys.meta_path.insert(0, Finder(("vllm", "tests.utils", "tests.conftest", "tests.models"), {
        "RemoteOpenAIServer": Server, "get_tokenizer": tokenizer_of_model, "ModelConfig": ModelConfig, "current_platform": No(),
        "hf_api": No, "ROCM_EXTRA_ARGS": [], "multi_gpu_only": skip, "requires_fp8": skip, "VLLM_PATH": Path(REPO),
        "__version__": version}))


def launch_server(model, base_url, timeout=0, api_key=None, other_args=(), **_):
    words = [*other_args, *(("--api-key", api_key) if api_key else ())]
    return Server(model, words, int(base_url.rsplit(":", 1)[1]), ("*",))


def stand_in_for_sglang():
    kits = str(Path(REPO) / "python/sglang/test/kits")
    sys.meta_path.insert(0, Finder(("sglang",), {
        "popen_launch_server": launch_server, "kill_process_tree": lambda pid, *_, **__: Server.running[pid].stop(),
        "get_tokenizer": tokenizer_of_model, "CustomTestCase": unittest.TestCase, "DEFAULT_TIMEOUT_FOR_SERVER_LAUNCH": 600,
        "DEFAULT_URL_FOR_TEST": f"http://127.0.0.1:{free_port()}", "register_cuda_ci": No, "register_amd_ci": No,
        "TEST_RERANK_QUERY_DOCS": [{"query": "What is a cat?", "documents": ["A cat is an animal.", "It rains."]}] * 2,
    }, {"sglang.test.kits": kits}))


def stand_in_for_hub():
    """All providers of huggingface_hub's clients are the server at URL, which has every model."""
    from huggingface_hub.hf_api import InferenceProviderMapping
    from huggingface_hub.inference import _client, _providers
    from huggingface_hub.inference._generated import _async_client
    from huggingface_hub.inference._providers import _common, hf_inference

    def here(request):
        path = re.search(r"(chat/)?completions$", request.url)
        request.url = f"{URL}/v1/{path.group()}" if path else URL + re.search(r"(/models/.*)?$", request.url).group()
        return request

    for owner in (_client.InferenceClient, _async_client.AsyncInferenceClient):
        post = owner._inner_post
        owner._inner_post = lambda self, request, post=post, **words: post(self, here(request), **words)

    def mapping(model, provider="hf-inference", task="conversational"):
        return InferenceProviderMapping(provider=provider, hf_model_id=model, providerId=model, status="live", task=task)

    _common.TaskProviderHelper._prepare_mapping_info = lambda self, model: mapping(model, self.provider, self.task)
    _providers._fetch_inference_provider_mapping = lambda model: [mapping(model)]
    hf_inference._check_supported_task = functools.lru_cache(lambda *_: None)
    hf_inference._fetch_recommended_models = No


def say_what_the_server_says():
    """An error of requests' says no more than its status."""
    import requests
    check = requests.Response.raise_for_status

    def raise_for_status(self):
        try:
            check(self)
        except requests.HTTPError as error:
            raise requests.HTTPError(f"{error}: {self.text}", response=self) from None

    requests.Response.raise_for_status = raise_for_status


def pytest_collection_modifyitems(items):
    """Runs the tests of huggingface_hub that are skipped since they go to the hub: they come here."""
    for item in items if SUITE == "huggingface_hub" else ():
        for node in item.listchain():
            node.own_markers = [mark for mark in node.own_markers if not (mark.name == "skip" and "emporary" in str(mark))]
        if hasattr(item.module, "hf_hub_download"):
            item.module.hf_hub_download = lambda *_, **__: __file__


{"vllm": stand_in_for_vllm, "sglang": stand_in_for_sglang, "huggingface_hub": stand_in_for_hub}[SUITE]()
say_what_the_server_says()
