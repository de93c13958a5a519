"""Low-rank adapters: each is a model of its own for clients, many are in one batch, and administrators load and unload
them while others stream."""

import json
import os
import signal
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from quire_server import BINARY, NAME, ROOT, clean_environment
from test_command_line import run
from test_recorded_clients import write_keys
from test_rank_process import await_other, rank_process

GOLDEN = ROOT / "tests/golden"
BASE = GOLDEN / "families/llama"
ADAPTERS = GOLDEN / "adapters"
NAMES = ["one", "two", "three"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three adapters: the golden one, and two with other scales, which make other texts."""
    folder = tmp_path_factory.mktemp("adapters")
    for name, alpha in zip(NAMES, (16, 6, -1)):
        path = shutil.copytree(ADAPTERS / "llama-r8", folder / name)
        settings = json.loads((path / "adapter_config.json").read_text())
        settings["lora_alpha"] = abs(alpha) * (3 if alpha < 0 else 1)
        (path / "adapter_config.json").write_text(json.dumps(settings))
    return folder


def modules(folder, names=NAMES):
    return [word for name in names for word in ("--lora-modules", f"{name}={folder / name}")]


@pytest.fixture
def adapter_server(start_server, folder):
    return start_server("--model", BASE, "--enable-admin", "--lora-dir", folder, "--max-loras", 4, *modules(folder))


def complete(server, model, seed=1, **fields):
    body = {"model": model, "prompt": "abc", "max_tokens": 24, "temperature": 1, "seed": seed, "ignore_eos": True, **fields}
    answer = server.post("/v1/completions", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def text(server, model, seed=1, **fields):
    return complete(server, model, seed, **fields)["choices"][0]["text"]


def error_of(answer, status):
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def load(server, name, path, **fields):
    return server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path), **fields})


def unload(server, name):
    return server.post("/v1/unload_lora_adapter", {"lora_name": name})


def test_each_is_a_model(adapter_server):
    models = {model["id"]: model for model in httpx.get(adapter_server.url + "/v1/models").json()["data"]}
    assert list(models) == [NAME, *NAMES]
    assert models[NAME]["parent"] is None and all(models[name]["parent"] == NAME for name in NAMES)
    assert httpx.get(adapter_server.url + "/v1/models/two").json()["id"] == "two"
    answers = {name: complete(adapter_server, name) for name in (NAME, *NAMES)}
    assert all(answer["model"] == name for name, answer in answers.items())
    assert len({answer["choices"][0]["text"] for answer in answers.values()}) == 4
    stream = adapter_server.client().completions.create(model="one", prompt="abc", max_tokens=24, temperature=1, seed=1,
                                                        stream=True, extra_body={"ignore_eos": True})
    chunks = list(stream)
    assert {chunk.model for chunk in chunks} == {"one"}
    assert "".join(chunk.choices[0].text for chunk in chunks) == answers["one"]["choices"][0]["text"]
    error = error_of(adapter_server.post("/v1/completions", {"model": "four", "prompt": "a"}), 404)
    assert error["code"] == "model_not_found" and error["param"] == "model"


def test_every_endpoint_takes_them(adapter_server):
    client = adapter_server.client()
    chats = {name: client.chat.completions.create(model=name, messages=[{"role": "user", "content": "hi"}], seed=1,
                                                  max_tokens=24, temperature=1) for name in (NAME, "one")}
    assert chats["one"].model == "one" and chats["one"].choices[0].message.content != chats[NAME].choices[0].message.content
    vectors = {name: adapter_server.post("/v1/embeddings", {"model": name, "input": "abc"}).json() for name in (NAME, "one")}
    assert vectors["one"]["model"] == "one" and vectors["one"]["data"] != vectors[NAME]["data"]
    scores = {name: adapter_server.post("/v1/score", {"model": name, "text_1": "abc", "text_2": "bcd"}).json()["data"]
              for name in (NAME, "one")}
    assert scores["one"] != scores[NAME]
    answer = client.responses.create(model="one", input="hi", max_output_tokens=8)
    assert answer.model == "one"


def test_many_in_one_batch(adapter_server):
    """Mixed with the base model and with each other, with the bytes that each has alone."""
    cases = [([NAME, *NAMES][i % 4], i, {"prompt": "abc" * (1 + i % 5), "n": 1 + i % 3}) for i in range(32)]
    alone = [complete(adapter_server, name, seed, **fields)["choices"] for name, seed, fields in cases]
    with ThreadPoolExecutor(32) as pool:
        together = list(pool.map(lambda case: complete(adapter_server, case[0], case[1], **case[2])["choices"], cases))
    assert together == alone


def test_metrics_and_memory(adapter_server):
    """vLLM's gauge names those that are in use; a counter has the requests of each."""
    def lines():
        return [line for line in httpx.get(adapter_server.url + "/metrics").text.splitlines() if line.startswith("quire:lora_")]
    for _ in range(3):
        complete(adapter_server, "two")
    assert [line for line in lines() if 'adapter="two"' in line][0].endswith(" 3")
    info = [line for line in lines() if "lora_requests_info" in line][0]
    assert 'max_lora="4",running_lora_adapters="",waiting_lora_adapters=""' in info
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(complete, adapter_server, "one", i, n=8, max_tokens=200) for i in range(8)]
        adapter_server.wait_for(lambda _: 'running_lora_adapters="one"' in "".join(lines()))
        for call in calls:
            call.result()
    assert "adapters" in adapter_server.read_log()


def test_prefixes_are_not_shared(adapter_server):
    def cached(name):
        usage = complete(adapter_server, name, prompt="x" * 200, max_tokens=1)["usage"]
        return (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    assert [cached(name) for name in (NAME, *NAMES)] == [0, 0, 0, 0]
    assert all(cached(name) >= 128 for name in (NAME, *NAMES))


def test_loading_and_unloading(adapter_server, folder):
    expected = text(adapter_server, "one")
    answer = load(adapter_server, "four", "one")
    assert answer.status_code == 200 and "added successfully" in answer.text
    assert text(adapter_server, "four") == expected
    assert "--max-loras" in error_of(load(adapter_server, "five", "two"), 400)["message"]
    assert "already" in error_of(load(adapter_server, "four", "two"), 400)["message"]
    assert load(adapter_server, "four", folder / "two", load_inplace=True).status_code == 200
    assert text(adapter_server, "four") == text(adapter_server, "two")
    assert unload(adapter_server, "four").status_code == 200
    assert error_of(unload(adapter_server, "four"), 404)["param"] == "lora_name"
    assert error_of(adapter_server.post("/v1/completions", {"model": "four", "prompt": "a"}), 404)["code"] == "model_not_found"
    assert "four" not in httpx.get(adapter_server.url + "/v1/models").text


def test_wrong_adapters(adapter_server, folder, tmp_path):
    before = text(adapter_server, "one")
    (folder / "outside").unlink(missing_ok=True)
    (folder / "outside").symlink_to(ADAPTERS / "llama-r8")
    broken = shutil.copytree(folder / "one", folder / "broken", dirs_exist_ok=True)
    (broken / "adapter_model.safetensors").write_bytes(b"\xff" * 100)
    dora = shutil.copytree(folder / "one", folder / "dora", dirs_exist_ok=True)
    settings = json.loads((dora / "adapter_config.json").read_text())
    (dora / "adapter_config.json").write_text(json.dumps({**settings, "use_dora": True}))
    shutil.copytree(ADAPTERS / "granite-r8", folder / "granite", dirs_exist_ok=True)
    shutil.copytree(ADAPTERS / "qwen2-r64", folder / "qwen2", dirs_exist_ok=True)
    for path, status, said in (("../" * 8 + "etc", 400, "not in the folder"), ("/etc/passwd", 400, "not in the folder"),
                               ("outside", 400, "not in the folder"), ("nowhere", 404, "does not exist"),
                               ("broken", 400, "adapter_model.safetensors"), ("dora", 400, "use_dora"),
                               ("granite", 400, "wants"), ("qwen2", 400, "rank is 64 (allowed: 1 to 8")):
        error = error_of(load(adapter_server, "wrong", path), status)
        assert said in error["message"] and error["param"] == "lora_path", error
        assert str(folder) not in error["message"]
    for body, param in (({}, "lora_name"), ({"lora_name": "a"}, "lora_path"), ({"lora_name": "", "lora_path": "one"}, "lora_name"),
                        ({"lora_name": "a" * 256, "lora_path": "one"}, "lora_name"), ({"lora_name": 5}, "lora_name"),
                        ({"lora_name": "a", "lora_path": "one", "other": 1}, "other")):
        assert error_of(adapter_server.post("/v1/load_lora_adapter", body), 400)["param"] == param
    assert text(adapter_server, "one") == before


def test_who_may(start_server, folder, tmp_path):
    keys = write_keys(tmp_path / "keys.yaml", a=", admin: true", b=f", models: [{NAME}, two]", c=", models: [three]", d=", models: [four]")
    server = start_server("--model", BASE, "--api-key-file", keys, "--enable-admin", "--lora-dir", folder, *modules(folder))
    some = {"Authorization": "Bearer " + "b" * 16}
    ids = [model["id"] for model in httpx.get(server.url + "/v1/models", headers=some).json()["data"]]
    assert ids == [NAME, "two"]
    for name, status in (("two", 200), ("one", 404), (NAME, 200)):
        answer = httpx.post(server.url + "/v1/completions", headers=some, json={"model": name, "prompt": "a", "max_tokens": 1})
        assert answer.status_code == status, answer.text
    alone = {"Authorization": "Bearer " + "c" * 16}
    for body, status in (({"model": "three"}, 200), ({"model": NAME}, 404), ({"model": "one"}, 404), ({}, 404)):
        answer = httpx.post(server.url + "/v1/completions", headers=alone, json={**body, "prompt": "a", "max_tokens": 1})
        assert answer.status_code == status, answer.text
    assert [model["id"] for model in httpx.get(server.url + "/v1/models", headers=alone).json()["data"]] == ["three"]
    none = {"Authorization": "Bearer " + "d" * 16}
    answer = httpx.post(server.url + "/v1/completions", headers=none, json={"model": "four", "prompt": "a"})
    assert answer.status_code == 404 and "none of the models" in answer.text
    for path in ("load", "unload"):
        answer = httpx.post(f"{server.url}/v1/{path}_lora_adapter", headers=some, json={"lora_name": "two", "lora_path": "one"})
        assert answer.status_code == 403


def test_loads_beside_streams(adapter_server):
    """100 loads and unloads change no byte of what streams meanwhile, and leave no slot behind."""
    def stream(name):
        return text(adapter_server, name, prompt="abcd", max_tokens=100)
    before = [stream(name) for name in NAMES]
    seen, stop = [], threading.Event()

    def keep_streaming(i):
        while not stop.is_set():
            seen.append(stream(NAMES[i]) == before[i])
    threads = [threading.Thread(target=keep_streaming, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for i in range(100):
        assert load(adapter_server, f"extra {i}", NAMES[i % 3]).status_code == 200
        assert unload(adapter_server, f"extra {i}").status_code == 200
    stop.set()
    for thread in threads:
        thread.join()
    assert len(seen) >= 3 and all(seen)


@pytest.mark.parametrize("words", [("--tensor-parallel-size", 2), ("--pipeline-parallel-size", 2), ("--lora-dtype", "float32"),
                                   ("--max-lora-rank", 64)])
def test_ranks_and_rooms(words, start_server, folder):
    """The text of the most likely tokens is the same however the model is computed."""
    def texts(*more):
        server = start_server("--model", BASE, *modules(folder), *more)
        return [text(server, name, temperature=0) for name in (NAME, *NAMES)]
    assert texts(*words) == texts()


def test_a_lost_rank_process(start_server, folder):
    server = start_server("--model", BASE, "--rank-process", "on", *modules(folder))
    before = [text(server, name) for name in NAMES]
    pid = rank_process(server)
    os.kill(pid, signal.SIGKILL)
    await_other(server, pid)
    assert [text(server, name) for name in NAMES] == before


def test_after_a_sleep(start_server, folder):
    server = start_server("--model", BASE, "--enable-admin", "--max-loras", 4, "--lora-dir", folder, *modules(folder))
    before = [text(server, name) for name in NAMES]
    for level in (1, 2):
        assert httpx.post(f"{server.url}/sleep?level={level}", timeout=60).status_code == 200
        assert "sleeps" in error_of(load(server, "four", "one"), 503)["message"]
        assert httpx.post(f"{server.url}/wake_up", timeout=60).status_code == 200
        assert [text(server, name) for name in NAMES] == before


def test_a_recording(start_server, folder, tmp_path):
    record = tmp_path / "record.bin"
    server = start_server("--model", BASE, "--record", record, *modules(folder))
    for name in (NAME, *NAMES, "one"):
        complete(server, name, n=2)
    server.terminate()
    def replay(words):
        return subprocess.run([BINARY, "replay", record, *words], capture_output=True, text=True, env=clean_environment(),
                              timeout=60)
    result = replay(modules(folder))
    assert result.returncode == 0, result.stdout + result.stderr
    for words in ((), (*modules(folder, NAMES[1:]), "--lora-modules", f"one={folder / 'two'}")):
        result = replay(words)
        assert result.returncode == 78 and "one" in result.stderr, result.stdout + result.stderr


@pytest.mark.parametrize("words, said", [
    (("--lora-modules", "one"), "must be NAME=PATH"),
    (("--lora-modules", "=path"), "must be NAME=PATH"),
    (("--lora-modules", '{"name": "a"}'), "must be a JSON object with the texts name and path"),
    (("--lora-modules", "a=/nowhere/at/all"), "/nowhere/at/all"),
    (("--lora-modules", f"a={ADAPTERS / 'qwen2-r64'}"), "wants"),
    (("--lora-modules", f"a={ADAPTERS / 'llama-r8'}", "--lora-modules", f"a={ADAPTERS / 'llama-r8'}"), "another module"),
    (("--max-loras", 257), "0 to 256"),
])
def test_wrong_options(words, said):
    result = run("serve", "--model", BASE, "--port", 0, *words)
    assert result.returncode == 78 and said in result.stderr, result
    assert len(result.stderr.strip().splitlines()) == 1
