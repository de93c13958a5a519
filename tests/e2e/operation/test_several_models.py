"""Several models behind one port: which one answers, which are in memory, who waits, and what administrators see."""

import contextlib
import json
import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from quire_server import MODEL, ROOT
from raw_http import wait_until
from test_keys import headers, keys  # noqa: F401 (a fixture)

FAMILIES = ROOT / "tests/golden/families"
NAMES = ["qwen3", "gemma3", "llama3"]
SMALL = ["--max-num-seqs", 4, "--kv-cache-memory-bytes", "1M", "--max-queued-requests", 64, "--enable-admin"]
FOR_TWO = ["--memory", "100M"]  # each takes some 41 MiB


def model_arguments(names):
    return [word for name in names for word in ("--model", FAMILIES / f"{name}.gguf")]


@pytest.fixture
def start(start_server):
    def start(*arguments, names=NAMES):
        return start_server(*model_arguments(names), *SMALL, *arguments, has_model=True)
    return start


def body_of(name, seed=0, **fields):
    return {**({"model": name} if name else {}), "prompt": [1 + seed % 50, 2, 3], "max_tokens": 12, "seed": seed, "temperature": 1,
            "logprobs": 2, "ignore_eos": True, **fields}


def ask(server, name, seed=0, **fields):
    return server.post("/v1/completions", body_of(name, seed, **fields))


def choice(response):
    assert response.status_code == 200, response.text
    return response.json()["choices"]


def states(server, **headers):
    response = httpx.get(server.url + "/v1/models", headers=headers)
    return {model["id"]: model["status"]["value"] for model in response.json()["data"]}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What each model answers where it is the only one, by seed."""
    from quire_server import QuireServer
    answers = {}
    for name in NAMES:
        server = QuireServer(tmp_path_factory.mktemp("alone") / f"{name}.log", *model_arguments([name]), *SMALL, has_model=True)
        answers[name] = [choice(ask(server, name, seed)) for seed in range(8)]
        server.kill()
    return answers


def test_each_answers_as_it_does_alone(start, alone):
    server = start()
    assert states(server) == {"qwen3": "loaded", "gemma3": "unloaded", "llama3": "unloaded"}
    for seed in range(8):
        for name in NAMES:
            assert choice(ask(server, name, seed)) == alone[name][seed]
    assert set(states(server).values()) == {"loaded"}
    assert choice(ask(server, None, 3)) == alone["qwen3"][3]  # the first is the default


def test_memory_for_two_of_three(start, alone):
    """All are answered, with the bytes of a server for each, and the plan is never above the budget."""
    server = start(*FOR_TWO, "--model-turn-seconds", 1)
    work = [(name, seed) for seed in range(8) for name in NAMES] * 3
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda item: choice(ask(server, *item)), work))
    for (name, seed), answer in zip(work, answers):
        assert answer == alone[name][seed]
    assert sorted(states(server).values()).count("loaded") <= 2
    used = [int(mib) for mib in re.findall(r"ready after \d+ ms; (\d+) of 100 MiB are used", server.read_log())]
    assert used and max(used) <= 100
    assert "goes to sleep" in server.read_log()


def test_names(start):
    server = start()
    response = ask(server, "nobody")
    assert response.status_code == 404
    error = response.json()["error"]
    assert error["code"] == "model_not_found" and error["param"] == "model"
    assert all(f'"{name}"' in error["message"] for name in NAMES)
    assert ask(server, 5).json()["error"]["param"] == "model"
    assert server.post("/v1/completions", {"model": "gemma3", "prompt": 1.5}).status_code == 400
    assert httpx.post(server.url + "/v1/completions", content=b"{").json()["error"]["code"] == "invalid_json"
    assert server.post("/api/generate", {"model": "llama3:latest", "prompt": "a", "stream": False}).status_code == 200
    assert httpx.get(server.url + "/v1/models/gemma3").json()["id"] == "gemma3"
    assert httpx.get(server.url + "/v1/models/nobody").status_code == 404


def test_what_does_not_fit_is_refused_with_figures(start, tmp_path):
    config = tmp_path / "quire.yaml"
    config.write_text(f"""
models:
  small: {{model: {FAMILIES / "qwen3.gguf"}, aliases: [tiny], pin: true}}
  large: {{model: {FAMILIES / "gemma3.gguf"}, kv-cache-memory-bytes: 80M}}
  other: {{model: {FAMILIES / "llama3.gguf"}, kv-cache-memory-bytes: 40M}}
""")
    server = start("--config", config, *FOR_TWO, names=[])
    for name, words in (("large", "more than all models may have together"), ("other", "pinned models have too much of it")):
        response = ask(server, name)
        assert response.status_code == 503
        error = response.json()["error"]
        assert error["code"] == "model_too_large" and words in error["message"] and "100 MiB" in error["message"]
    assert choice(ask(server, "tiny")) == choice(ask(server, "small"))
    assert states(server)["small"] == "loaded"


def test_a_model_that_cannot_be_loaded(start, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes((FAMILIES / "llama3.gguf").read_bytes()[:3000])
    server = start("--model", broken)
    for _ in range(2):
        response = ask(server, "broken")
        assert response.status_code == 503 and response.json()["error"]["code"] == "model_not_loaded"
        assert str(tmp_path) not in response.text and int(response.headers["retry-after"]) >= 1
    assert server.read_log().count("broken.gguf") >= 1
    assert ask(server, "gemma3").status_code == 200


def test_load_and_unload(start, alone):
    server = start()
    events = []

    def follow():
        with contextlib.suppress(httpx.RemoteProtocolError), \
                httpx.stream("GET", server.url + "/models/sse", timeout=30) as stream:  # until the server is killed
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    events.append(json.loads(line[6:]))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    wait_until(lambda: len(events) == 3)
    assert server.post("/models/load", {"model": "gemma3"}).json() == {"success": True}
    wait_until(lambda: states(server)["gemma3"] == "loaded")
    assert server.post("/models/load", {"model": "gemma3"}).status_code == 400
    assert server.post("/models/unload", {"model": "gemma3"}).json() == {"success": True}
    wait_until(lambda: states(server)["gemma3"] == "unloaded")
    assert server.post("/models/unload", {"model": "gemma3"}).status_code == 400
    assert server.post("/models/load", {"model": "nobody"}).status_code == 404
    assert choice(ask(server, "gemma3")) == alone["gemma3"][0]  # a request wakes it
    of_gemma = [event["data"]["status"] for event in events if event["model"] == "gemma3"]
    wait_until(lambda: [e["data"]["status"] for e in events if e["model"] == "gemma3"].count("loaded") >= 2)
    assert all(event["event"] == "status_change" for event in events) and of_gemma[0] == "unloaded"
    assert httpx.post(server.url + "/sleep").status_code == 400


def stream_of(server, name, seed, **fields):
    """All bytes of a stream but its ids."""
    with httpx.stream("POST", server.url + "/v1/completions", json=body_of(name, seed, stream=True, **fields), timeout=60) as stream:
        return re.sub(r'"(id|created)":[^,]*,', "", "".join(stream.iter_text()))


def rank_processes(server):
    tasks = os.listdir(f"/proc/{server.process.pid}/task")
    children = [open(f"/proc/{server.process.pid}/task/{task}/children").read().split() for task in tasks]
    return {int(child) for group in children for child in group}


def test_a_model_that_crashes_is_a_pause_of_it_alone(start, alone):
    server = start("--max-model-len", 64)
    expected = [stream_of(server, "qwen3", seed, max_tokens=50) for seed in range(4)]
    before = rank_processes(server)
    ask(server, "gemma3")
    ends = threading.Event()

    def watch(seed):
        count = 0
        while not ends.is_set() or count == 0:
            assert stream_of(server, "qwen3", seed, max_tokens=50) == expected[seed]
            count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        watching = [pool.submit(watch, seed) for seed in range(4)]
        for _ in range(5):
            wait_until(lambda: rank_processes(server) - before)
            os.kill((rank_processes(server) - before).pop(), signal.SIGKILL)
            assert choice(ask(server, "gemma3", 1)) == alone["gemma3"][1]
        ends.set()
        assert all(future.result() > 0 for future in watching)


def test_two_that_do_not_fit_take_turns(start, alone):
    """Each is asked for all the time; neither is starved, and turns are not shorter than was asked."""
    server = start("--memory", "60M", "--model-turn-seconds", 1, names=NAMES[:2])
    ends = threading.Event()

    def use(name):
        times = []
        while not ends.is_set():
            assert choice(ask(server, name, 2)) == alone[name][2]
            times.append(time.monotonic())
        return times

    with ThreadPoolExecutor(4) as pool:
        futures = [(name, pool.submit(use, name)) for name in NAMES[:2] for _ in range(2)]
        time.sleep(6)
        ends.set()
        times = [(name, t) for name, future in futures for t in future.result()]
    names = [name for name, _ in sorted(times, key=lambda item: item[1])]
    num_turns = 1 + sum(a != b for a, b in zip(names, names[1:]))
    assert 3 <= num_turns <= 9, num_turns


def test_keys(start, keys):
    keys.add("one", "--models", "gemma3").add("all", "--admin", "true")
    server = start("--api-key-file", keys.path)
    one, everyone = headers(keys.keys["one"]), headers(keys.keys["all"])
    post = lambda path, body, of: httpx.post(server.url + path, json=body, headers=of, timeout=60)
    assert list(states(server, **one)) == ["gemma3"] and len(states(server, **everyone)) == 3
    response = post("/v1/completions", body_of("llama3"), one)
    assert response.status_code == 404 and "qwen3" not in response.text
    assert choice(post("/v1/completions", body_of(None), one)) == choice(post("/v1/completions", body_of("gemma3"), everyone))
    assert post("/models/unload", {"model": "gemma3"}, one).status_code == 403
    assert states(server, **everyone)["gemma3"] == "loaded"


def test_reload_adds_and_removes(start, tmp_path, alone):
    config = tmp_path / "quire.yaml"
    lines = {name: f"  {name}: {{model: {FAMILIES / name}.gguf, max-model-len: 64}}\n" for name in NAMES}
    config.write_text("models:\n" + lines["qwen3"] + lines["gemma3"])
    server = start("--config", config, names=[])
    expected = stream_of(server, "gemma3", 1, max_tokens=50)
    with ThreadPoolExecutor(1) as pool:
        streams = pool.submit(lambda: [stream_of(server, "qwen3", 1, max_tokens=50) for _ in range(20)])
        before = stream_of(server, "qwen3", 1, max_tokens=50)
        config.write_text("models:\n" + lines["qwen3"] + lines["llama3"])
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "llama3" in states(server) and "gemma3" not in states(server))
        assert set(streams.result()) == {before}
    assert ask(server, "gemma3").status_code == 404 and choice(ask(server, "llama3", 4)) == alone["llama3"][4]
    config.write_text("models:\n" + lines["gemma3"] + lines["qwen3"])
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: list(states(server)) == ["gemma3", "qwen3"])
    assert stream_of(server, "gemma3", 1, max_tokens=50) == expected == stream_of(server, None, 1, max_tokens=50)
    config.write_text("models: {a: 5}\n")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "the models stay as they were" in server.read_log())
    assert list(states(server)) == ["gemma3", "qwen3"]


def test_a_stop_ends_a_start(start):
    """The real model takes some time to load."""
    server = start("--model", MODEL, "--kv-cache-memory-bytes", "256M", "--shutdown-timeout", 0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, server, MODEL.stem)
        wait_until(lambda: states(server)[MODEL.stem] != "unloaded")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
        assert waiting.result().status_code in (200, 503)
