"""/load, /server_info, /reset_prefix_cache, /sleep, /wake_up, /is_sleeping: what each does, and who may use it."""

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from quire_server import BINARY, NAME, ROOT
from raw_http import open_stream, read_until, wait_until

MODULE = BINARY.parents[1] / "kernels/cuda/libquire-cuda-sim.so"
TINY = ROOT / "tests/golden/tiny-bf16.gguf"
SIZES = ("--kv-cache-memory-bytes", "512M", "--max-model-len", 2048)
ADMINS = [("GET", "/server_info"), ("POST", "/reset_prefix_cache"), ("POST", "/sleep"), ("POST", "/wake_up"),
          ("GET", "/is_sleeping")]
MIX = [{"temperature": 0}, {"seed": 3, "temperature": 1.0, "n": 2}, {"seed": 5, "repetition_penalty": 1.2, "logprobs": 2},
       {"temperature": 0, "prompt": "word " * 200}]


def call(server, method, path, **options):
    return httpx.request(method, server.url + path, timeout=60, **options)


def post(server, path):
    reply = call(server, "POST", path)
    assert reply.status_code == 200, reply.text
    return reply.json()


def error_of(reply):
    return reply.status_code, reply.json().get("error", {}).get("code")


def ask(server, **fields):
    body = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 12, "ignore_eos": True, **fields}
    return server.post("/v1/completions", body)


def choices(server):
    """What the mix is answered, and how many tokens came from the prefix cache."""
    answers = [ask(server, **fields).json() for fields in MIX]
    return ([answer["choices"] for answer in answers],
            [(answer["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0) for answer in answers])


def resident(server):
    """KiB of the server and the process of its ranks."""
    pid = server.process.pid
    tasks = Path(f"/proc/{pid}/task").iterdir()
    pids = [pid, *(child for task in tasks for child in (task / "children").read_text().split())]
    return sum(int(line.split()[1]) for number in pids for line in Path(f"/proc/{number}/status").read_text().splitlines()
               if line.startswith("VmRSS"))


def sleep_state(server):
    lines = call(server, "GET", "/metrics").text.splitlines()
    states = [line for line in lines if line.startswith("quire:engine_sleep_state{") and line.endswith(" 1.0")]
    assert len(states) == 1
    return states[0].split('sleep_state="')[1].split('"')[0]


def statuses(server):
    return tuple(call(server, "GET", path).status_code for path in ("/live", "/health", "/ready"))


# Who may.

def test_without_the_option_there_are_no_such_paths(server):
    for method, path in ADMINS:
        reply = call(server, method, path)
        assert error_of(reply) == (404, "not_found") and "--enable-admin" in reply.json()["error"]["message"]
        assert path not in call(server, "GET", "/").text
    assert call(server, "GET", "/load").json() == {"server_load": 0}


def test_who_is_an_administrator(start_server, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("one-key-of-many\n")
    only = start_server("--enable-admin", "--api-key", "the-only-key")
    two = start_server("--enable-admin", "--api-key", "first-of-two", "--api-key-file", plain)
    for method, path in ADMINS:
        assert error_of(call(only, method, path)) == (401, "invalid_api_key")
        assert call(only, method, path, headers={"X-Api-Key": "the-only-key"}).status_code == 200, path
        assert error_of(call(two, method, path, headers={"X-Api-Key": "first-of-two"})) == (403, "admin_required")
    assert call(two, "GET", "/load", headers={"X-Api-Key": "first-of-two"}).status_code == 200


def test_a_file_says_which_keys_are_administrators(start_server, tmp_path):
    import hashlib
    lines = ["keys:"]
    for name, admin in (("root", "true"), ("user", "false"), ("other", None)):
        digest = hashlib.sha256(f"key-of-{name}".encode()).hexdigest()
        lines += [f"  - name: {name}", f"    hash: sha256:{digest}", *([f"    admin: {admin}"] if admin else [])]
    path = tmp_path / "keys.yaml"
    path.write_text("\n".join(lines))
    server = start_server("--enable-admin", "--api-key-file", path)
    allowed = {name: call(server, "GET", "/is_sleeping", headers={"X-Api-Key": f"key-of-{name}"}).status_code
               for name in ("root", "user", "other")}
    assert allowed == {"root": 200, "user": 403, "other": 403}
    path.write_text("\n".join(lines[:4]).replace("admin: true", "weight: 1"))
    alone = start_server("--enable-admin", "--api-key-file", path)  # it has an entry, which does not say so
    assert call(alone, "GET", "/is_sleeping", headers={"X-Api-Key": "key-of-root"}).status_code == 403
    path.write_text("\n".join(lines).replace("admin: true", "admin: perhaps"))
    refused = subprocess.run([BINARY, "serve", "--model", TINY, "--api-key-file", path], capture_output=True, text=True,
                             timeout=60)
    assert refused.returncode == 78 and "admin must be true or false" in refused.stderr


def test_pages_of_other_sites_are_no_administrators(start_server):
    server = start_server("--enable-admin")
    for method, path in ADMINS:
        origin = {"Origin": "https://evil.example"}
        assert call(server, method, path, headers={"Sec-Fetch-Site": "cross-site", **origin}).status_code == 403
        linked = call(server, method, path, headers={"Sec-Fetch-Site": "cross-site"})  # as an image, which it cannot read
        assert linked.status_code == (403 if method == "POST" else 200)
    assert call(server, "POST", "/sleep", headers={"Origin": "https://evil.example"}).status_code == 403
    assert call(server, "GET", "/is_sleeping", headers={"Host": "evil.example"}).status_code == 421
    assert not call(server, "GET", "/is_sleeping").json()["is_sleeping"]


# What they do.

def test_load_counts_what_is_in_flight(server):
    with open_stream(server, max_tokens=300, ignore_eos=True) as stream:
        received = read_until(stream, b"data: ")
        assert call(server, "GET", "/load").json() == {"server_load": 1}
        read_until(stream, b"data: [DONE]", received)
    wait_until(lambda: call(server, "GET", "/load").json() == {"server_load": 0})


def test_the_info_has_options_and_sizes_and_no_secret(start_server, tmp_path):
    secrets = ["secret-flag-key", "secret-file-key", "secret-env-key"]
    (tmp_path / "keys").write_text(secrets[1] + "\n")
    path = tmp_path / "config.yaml"
    path.write_text("max-n: 7\n")
    server = start_server("--enable-admin", "--config", path, "--api-key", secrets[0], "--api-key-file", tmp_path / "keys",
                          "--max-num-seqs", 4, environment={"QUIRE_MAX_LOGPROBS": "11"})
    assert error_of(call(server, "GET", "/server_info", headers={"X-Api-Key": secrets[0]})) == (403, "admin_required")
    server.kill()
    server = start_server("--enable-admin", "--config", path, "--max-num-seqs", 4,
                          environment={"QUIRE_MAX_LOGPROBS": "11", "QUIRE_API_KEY": secrets[2]})
    reply = call(server, "GET", "/server_info", headers={"X-Api-Key": secrets[2]})
    info, options = reply.json(), reply.json()["options"]
    assert not any(secret in reply.text for secret in secrets)
    assert options["api-key"] == {"is_set": True}
    assert (options["max-n"], options["max-logprobs"], options["max-num-seqs"]) == (7, 11, 4)
    assert options["port"] == server.port and options["enable-admin"] is True and options["ssl-keyfile"] is None
    helped = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True).stdout
    assert all(f"--{name}" in helped for name in options) and len(options) > 60
    assert info["sizes"]["max_num_seqs"] == 4 and info["sizes"]["num_blocks"] > 0
    assert info["model"]["names"] == [NAME] and info["device"]["name"] == "cpu"
    memory = info["memory_bytes"]
    assert memory["weights"] > 50 << 20 and memory["system_total"] >= memory["weights"] + memory["kv_cache"]
    assert info["version"] == call(server, "GET", "/version", headers={"X-Api-Key": secrets[2]}).json()["version"]


def test_the_prefix_cache_is_reset(start_server):
    server = start_server("--enable-admin")
    expected, _ = choices(server)
    assert choices(server)[1][-1] > 0
    post(server, "/reset_prefix_cache")
    answers, cached = choices(server)
    assert answers == expected and cached[-1] == 0
    assert error_of(call(server, "POST", "/reset_prefix_cache?reset_running_requests=true")) == (400, "unsupported_value")
    assert post(server, "/reset_prefix_cache?reset_running_requests=false&reset_external=false") == {"success": True}


@pytest.mark.parametrize("path", ["/sleep?level=0", "/sleep?level=3", "/sleep?level=", "/sleep?level", "/sleep?mode=keep",
                                  "/sleep?depth=1", "/wake_up?tags=everything", "/server_info?config_format=text",
                                  "/is_sleeping?x=1"])
def test_arguments_have_bounds(start_server, path):
    server = start_server("--enable-admin")
    reply = call(server, "GET" if "i" in path.split("?")[0] else "POST", path)
    assert error_of(reply) == (400, "unsupported_value"), reply.text
    assert reply.json()["error"]["param"] == path.split("?")[1].split("=")[0]
    assert sleep_state(server) == "awake"


# Sleep.

@pytest.mark.parametrize("ranks", [("--rank-process", "off"), ("--rank-process", "on"),
                                   pytest.param(("--tensor-parallel-size", 3), marks=pytest.mark.variant)])
def test_sleep_gives_memory_back_and_changes_no_answer(start_server, ranks):
    server = start_server("--enable-admin", *SIZES, *ranks)
    words = [1000 + i * 37 % 9000 for i in range(1900)]  # fills blocks
    assert ask(server, prompt=words, max_tokens=1).status_code == 200
    expected, _ = choices(server)
    awake, asleep, woken = resident(server), [], []
    for i in range(6):
        level = 1 + i % 2
        assert post(server, f"/sleep?level={level}") == {"is_sleeping": True}
        assert sleep_state(server) == ["weights_offloaded", "discard_all"][level - 1]
        asleep.append(resident(server))
        assert post(server, "/wake_up") == {"is_sleeping": False} and sleep_state(server) == "awake"
        answers, cached = choices(server)
        assert answers == expected and cached[-1] == 0
        woken.append(resident(server))
    for level in (1, 2):
        assert post(server, f"/sleep?level={level}") == {"is_sleeping": True}
    assert post(server, "/wake_up") == {"is_sleeping": False} and choices(server)[0] == expected
    print(f"{ranks}: KiB awake {awake}, asleep {asleep}, woken {woken}")
    kv_kib = 1900 // 16 * 16 * 23040 // 1024  # of those blocks: 30 layers of 3 heads of 64, keys and values, 2 bytes
    weights_kib = 60 << 10
    assert max(asleep[0::2]) < awake - 0.8 * kv_kib
    assert max(asleep[1::2]) < awake - 0.8 * kv_kib - weights_kib
    assert max(asleep[4:]) < max(asleep[:4]) + (4 << 10) and max(woken[4:]) < max(woken[:4]) + (16 << 10)
    assert server.terminate() == 0


@pytest.mark.parametrize("ranks", ["off", "on"])
def test_a_server_that_sleeps(start_server, ranks):
    server = start_server("--enable-admin", "--rank-process", ranks, *SIZES)
    expected, _ = choices(server)
    assert call(server, "GET", "/is_sleeping").json() == {"is_sleeping": False}
    post(server, "/sleep")
    assert call(server, "GET", "/is_sleeping").json() == {"is_sleeping": True}
    assert statuses(server) == (200, 200, 503)
    for reply in (ask(server), server.post("/v1/embeddings", {"model": NAME, "input": "x"}),
                  server.post("/v1/chat/completions", {"model": NAME, "messages": [{"role": "user", "content": "x"}]})):
        assert error_of(reply) == (503, "sleeping") and int(reply.headers["retry-after"]) >= 1
    assert server.tokenize("needs no weights") and call(server, "GET", "/v1/models").status_code == 200
    assert post(server, "/sleep?level=1") == {"is_sleeping": True} and sleep_state(server) == "weights_offloaded"
    with_weights = resident(server)
    assert post(server, "/sleep?level=2") == {"is_sleeping": True} and sleep_state(server) == "discard_all"
    assert ranks == "on" or resident(server) < with_weights - (60 << 10)
    assert post(server, "/sleep?level=2") == {"is_sleeping": True}
    assert error_of(call(server, "POST", "/sleep?level=1")) == (409, "conflicting_state")
    post(server, "/reset_prefix_cache")
    time.sleep(1.5)  # beyond a look at the ranks
    assert statuses(server) == (200, 200, 503)
    assert post(server, "/wake_up?tags=weights") == {"is_sleeping": True} and sleep_state(server) == "discard_all"
    assert post(server, "/wake_up?tags=kv_cache") == {"is_sleeping": False}
    assert post(server, "/wake_up") == {"is_sleeping": False}
    assert statuses(server) == (200, 200, 200) and choices(server)[0] == expected
    post(server, "/sleep?level=2")
    assert server.terminate() == 0


@pytest.mark.parametrize("ranks", ["off", "on"])
def test_streams_end_before_it_sleeps(start_server, ranks):
    server = start_server("--enable-admin", "--rank-process", ranks)
    body = {"prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True, "seed": 1, "temperature": 1.0}
    expected = ask(server, **body).json()["choices"][0]["text"]
    with ThreadPoolExecutor(3) as pool, open_stream(server, **body) as stream:
        received = read_until(stream, b"data: ")
        sleepers = [pool.submit(post, server, "/sleep?level=2") for _ in range(2)]
        wait_until(lambda: error_of(ask(server)) == (503, "sleeping"))
        assert sleep_state(server) == "awake" and not any(s.done() for s in sleepers)
        received = read_until(stream, b"data: [DONE]", received)
        assert [s.result() for s in sleepers] == [{"is_sleeping": True}] * 2
    events = [json.loads(line[6:]) for line in received.split(b"\r\n\r\n", 1)[1].splitlines() if line.startswith(b"data: {")]
    assert "".join(choice["text"] for event in events for choice in event["choices"]) == expected
    post(server, "/wake_up")
    assert ask(server, **body).json()["choices"][0]["text"] == expected


def test_streams_are_aborted_on_request(start_server):
    server = start_server("--enable-admin")
    with open_stream(server, max_tokens=1500, ignore_eos=True) as stream:
        received = read_until(stream, b"data: ")
        assert post(server, "/sleep?mode=abort") == {"is_sleeping": True}
        assert received.count(b"data: ") < 1400 and b"error" in read_until(stream, b"error", received)
    post(server, "/wake_up")
    assert ask(server).status_code == 200


def test_waking_ends_a_sleep_that_has_not_begun(start_server):
    server = start_server("--enable-admin")
    with ThreadPoolExecutor(1) as pool, open_stream(server, max_tokens=200, ignore_eos=True) as stream:
        received = read_until(stream, b"data: ")
        sleeper = pool.submit(call, server, "POST", "/sleep")
        wait_until(lambda: error_of(ask(server)) == (503, "sleeping"))
        assert post(server, "/wake_up") == {"is_sleeping": False}
        assert error_of(sleeper.result()) == (409, "conflicting_state")
        assert ask(server).status_code == 200
        read_until(stream, b"data: [DONE]", received)


def test_an_administrator_who_hangs_up_is_forgotten(start_server):
    server = start_server("--enable-admin", "--shutdown-timeout", 2)
    with open_stream(server, max_tokens=200, ignore_eos=True) as stream:
        received = read_until(stream, b"data: ")
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + "/sleep", timeout=0.2)
        read_until(stream, b"data: [DONE]", received)
    wait_until(lambda: sleep_state(server) == "weights_offloaded")
    post(server, "/wake_up")
    with open_stream(server, max_tokens=1500, ignore_eos=True) as stream, ThreadPoolExecutor(1) as pool:
        read_until(stream, b"data: ")
        sleeper = pool.submit(call, server, "POST", "/sleep")
        wait_until(lambda: error_of(ask(server)) == (503, "sleeping"))
        server.process.terminate()  # the sleeper has an answer, too
        assert sleeper.result().status_code in (200, 503)
        assert server.process.wait(60) == 0


@pytest.mark.parametrize("ranks", ["off", "on"])
def test_a_model_that_changed_is_not_woken(start_server, tmp_path, ranks):
    model = tmp_path / "model.gguf"
    original = TINY.read_bytes()
    model.write_bytes(original)
    server = start_server("--enable-admin", "--model", model, "--rank-process", ranks, "--kv-cache-memory-bytes", "4M",
                          "--max-model-len", 128)
    expected = ask(server, temperature=0, prompt="abc").json()["choices"]
    post(server, "/sleep?level=2")
    with open(model, "r+b") as file:
        file.seek(len(original) - 64)
        file.write(bytes(64))
    refused = call(server, "POST", "/wake_up")
    assert error_of(refused) == (503, "cannot_wake") and statuses(server) == (200, 200, 503)
    assert "the model's files have changed" in server.read_log() and sleep_state(server) == "discard_all"
    with open(model, "r+b") as file:
        file.write(original)
    post(server, "/wake_up")
    assert ask(server, temperature=0, prompt="abc").json()["choices"] == expected


@pytest.mark.parametrize("ranks", ["off", "on"])
def test_the_bytes_at_the_path_decide_who_wakes(start_server, tmp_path, ranks):
    """Another file with the same bytes is the same model; one that was opened and then spoilt is none."""
    model, other = tmp_path / "model.gguf", tmp_path / "other.gguf"
    original = TINY.read_bytes()
    model.write_bytes(original)
    server = start_server("--enable-admin", "--model", model, "--rank-process", ranks, "--kv-cache-memory-bytes", "4M",
                          "--max-model-len", 128)
    expected = ask(server, temperature=0, prompt="abc").json()["choices"]

    def put(content):
        other.write_bytes(content)
        other.rename(model)

    for spoilt in (original[:-64] + bytes(64), original[:-4096], b"GGUF", original.replace(b"general.name", b"general.nome", 1)):
        assert spoilt != original
        for put_spoilt in (put, model.write_bytes):
            post(server, "/sleep?level=2")
            put_spoilt(spoilt)
            assert error_of(call(server, "POST", "/wake_up")) == (503, "cannot_wake")
            put(original)
            assert post(server, "/wake_up") == {"is_sleeping": False}
            assert ask(server, temperature=0, prompt="abc").json()["choices"] == expected


@pytest.mark.skipif(not MODULE.exists(), reason="the simulated device is not built")
@pytest.mark.parametrize("ranks", ["off", "on"])
def test_a_gpu_sleeps(start_server, ranks):
    """Its memory is free for others: a second server fits beside one that sleeps only."""
    environment = {"LD_LIBRARY_PATH": str(MODULE.parent), "QUIRE_CUDASIM_MEMORY": str(96 << 20)}
    server = start_server("--enable-admin", "--device", "cuda-sim", "--model", TINY, "--max-model-len", 128, "--max-num-seqs",
                          4, "--max-num-batched-tokens", 32, "--rank-process", ranks, "--batch-invariant",
                          environment=environment)
    bodies = [{"prompt": "abc", "temperature": 0}, {"prompt": "Once", "seed": 4, "temperature": 1.0, "n": 2}]
    expected = [ask(server, **body).json()["choices"] for body in bodies]
    awake, asleep = resident(server), []
    for levels in ((1,), (2,), (1,), (2,), (2,), (1, 2)):
        for level in levels:
            post(server, f"/sleep?level={level}")
        asleep.append(resident(server))
        post(server, "/wake_up")
        assert [ask(server, **body).json()["choices"] for body in bodies] == expected
    print(f"cuda-sim, --rank-process {ranks}: KiB awake {awake}, asleep {asleep}, woken {resident(server)}")
    assert max(asleep) < awake
    assert server.terminate() == 0
