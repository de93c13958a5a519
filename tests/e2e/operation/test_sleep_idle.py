"""--sleep-idle-seconds: the engine falls asleep when there are no requests, and wakes with the next one."""

import contextlib
import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from quire_server import BINARY, MODEL, NAME
from raw_http import connect, open_stream, read_until, request_bytes, wait_until
from test_admin_endpoints import SIZES, TINY, ask, call, error_of, post, resident, sleep_state, statuses

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "soak"))
from sleeps import OPTIONS, sleeps  # noqa: E402

IDLE = ("--sleep-idle-seconds", 1)
SMALL = (*IDLE, "--model", TINY, "--kv-cache-memory-bytes", "64M")
SEEDED = {"prompt": "Once upon a time", "max_tokens": 16, "seed": 7, "temperature": 1.0}


def await_sleep(server):
    wait_until(lambda: sleep_state(server) == "weights_offloaded")


def text_of(server, **fields):
    reply = ask(server, **{**SEEDED, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["text"]


def streamed_text(server):
    with httpx.stream("POST", server.url + "/v1/completions", timeout=120,
                      json={"model": NAME, "ignore_eos": True, "stream": True, **SEEDED}) as reply:
        assert reply.status_code == 200
        lines = [line[6:] for line in reply.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return "".join(choice["text"] for line in lines[:-1] for choice in json.loads(line)["choices"])


@pytest.mark.parametrize("ranks", ["off", "on"])
def test_it_sleeps_and_wakes_with_the_same_answers(start_server, ranks):
    server = start_server(*IDLE, *SIZES, "--rank-process", ranks)
    prompt = [1000 + i * 37 % 9000 for i in range(300)]  # fills blocks
    assert ask(server, prompt=prompt, max_tokens=1).status_code == 200
    text = text_of(server)
    awake, asleep = resident(server), []
    for again in (text_of, streamed_text, text_of):
        await_sleep(server)
        asleep.append(resident(server))
        assert again(server) == text and server.metrics()["idle_wakes_total"] == len(asleep)
    metrics = server.metrics()
    print(f"--rank-process {ranks}: KiB awake {awake}, asleep {asleep}, woken {resident(server)}; "
          f"ms to wake {metrics['idle_wake_seconds_total'] / 3 * 1000:.1f}")
    kv_kib = len(prompt) * 23040 // 1024  # of those blocks: 30 layers of 3 heads of 64, keys and values, 2 bytes
    assert asleep[0] < awake - 0.8 * kv_kib
    assert metrics["idle_wake_seconds_total"] > 0 and metrics["idle_wake_failures_total"] == 0
    assert metrics["idle_sleeps_total"] in (3, 4)


def test_what_needs_no_engine_wakes_nobody(start_server):
    server = start_server(*SMALL, "--enable-admin")
    await_sleep(server)
    assert statuses(server) == (200, 200, 200)
    for path in ("/metrics", "/v1/models", "/load", "/ping", "/version", "/server_info", "/"):
        assert call(server, "GET", path).status_code == 200, path
    assert server.tokenize("needs no engine") and post(server, "/reset_prefix_cache")
    assert call(server, "GET", "/is_sleeping").json() == {"is_sleeping": True}
    assert server.post("/v1/completions", {"model": "nobody", "prompt": "x"}).status_code == 404
    assert error_of(ask(server, temperature=-1))[0] == 400
    assert sleep_state(server) == "weights_offloaded" and server.metrics()["idle_wakes_total"] == 0


@pytest.mark.parametrize("ranks", ["off", "on"])
def test_many_requests_wake_it_once(start_server, ranks):
    server = start_server(*SMALL, "--sleep-idle-seconds", 3, "--rank-process", ranks)
    text = text_of(server)
    await_sleep(server)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: streamed_text(server) if i % 2 else text_of(server), range(8)))
    assert answers == [text] * 8 and server.metrics()["idle_wakes_total"] == 1


def test_each_kind_of_call_wakes_it(start_server):
    server = start_server(*SMALL, "--response-store-bytes", "1M")
    message = {"model": NAME, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
    for path, body in (("/v1/chat/completions", message), ("/v1/messages", message),
                       ("/v1/embeddings", {"model": NAME, "input": "x"}), ("/api/generate", {"model": NAME})):
        await_sleep(server)
        assert server.post(path, body).status_code == 200, path
    await_sleep(server)
    made = server.post("/v1/responses", {"model": NAME, "input": "Count.", "background": True, "max_output_tokens": 16}).json()
    path = "/v1/responses/" + made["id"]
    wait_until(lambda: call(server, "GET", path).json()["status"] in ("completed", "incomplete"))
    await_sleep(server)
    assert call(server, "GET", path).status_code == 200  # what is kept is read asleep
    assert server.metrics()["idle_wakes_total"] == 5


def test_a_long_request_is_no_idleness(start_server):
    server = start_server(*IDLE)
    with open_stream(server, max_tokens=1500, ignore_eos=True) as stream:
        received, began = read_until(stream, b"data: "), time.monotonic()
        while time.monotonic() < began + 2.5 and b"[DONE]" not in received:
            received = received[-100:] + stream.recv(65536)
        assert server.metrics()["idle_sleeps_total"] == 0
    await_sleep(server)  # the client is gone


@pytest.mark.parametrize("ranks", ["off", "on"])
def test_requests_about_when_it_falls_asleep(start_server, ranks):
    server = start_server(*SMALL, "--rank-process", ranks)
    text = text_of(server)
    for i in range(6):
        time.sleep(0.985 + 0.007 * i)
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(lambda _: text_of(server), range(2))) == [text] * 2
    metrics = server.metrics()
    print(f"--rank-process {ranks}: asleep {metrics['idle_sleeps_total']:.0f} times, woken {metrics['idle_wakes_total']:.0f}")
    assert 0 <= metrics["idle_sleeps_total"] - metrics["idle_wakes_total"] <= 1 and metrics["idle_wake_failures_total"] == 0


def test_a_sleep_that_is_requested_goes_on(start_server):
    server = start_server(*SMALL, "--enable-admin")
    await_sleep(server)
    assert post(server, "/sleep") == {"is_sleeping": True}
    assert error_of(ask(server)) == (503, "sleeping") and statuses(server) == (200, 200, 503)
    assert post(server, "/wake_up") == {"is_sleeping": False}
    text = text_of(server)
    await_sleep(server)
    assert post(server, "/sleep?level=2") == {"is_sleeping": True} and sleep_state(server) == "discard_all"
    assert error_of(ask(server)) == (503, "sleeping")
    assert post(server, "/wake_up") == {"is_sleeping": False} and text_of(server) == text
    await_sleep(server)
    before = server.metrics()["idle_wakes_total"]
    assert post(server, "/wake_up") == {"is_sleeping": False} and server.metrics()["idle_wakes_total"] == before + 1
    await_sleep(server)
    assert text_of(server) == text


def test_a_drained_server_sleeps_on(start_server, tmp_path):
    server = start_server(*SMALL, "--admin-socket", tmp_path / "admin")

    def admin(action):
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "admin"))) as client:
            return client.post(f"http://localhost/admin/{action}").json()["state"]

    await_sleep(server)
    assert admin("drain") == "asleep"
    assert error_of(ask(server)) == (503, "draining") and statuses(server) == (200, 503, 503)
    assert sleep_state(server) == "weights_offloaded" and admin("resume") == "asleep"
    assert text_of(server)


# Told to sleep and to wake.

@pytest.mark.parametrize("has_requests", [False, True], ids=["alone", "requests"])
@pytest.mark.parametrize("clients", [1, 4])
@pytest.mark.parametrize("ranks", ["off", "on"])
def test_sleep_right_after_waking(tmp_path, ranks, clients, has_requests):
    """The long form is tests/soak/sleeps.py."""
    counts, faults = sleeps(BINARY, tmp_path, 32 if ranks == "on" else 200, clients, ranks, has_requests)
    print(dict(counts))
    assert not faults
    assert counts["sleep 200"] > 0 and counts["wake 200"] > 0


def test_an_answer_that_is_wrong_is_found(tmp_path, monkeypatch):
    """Completions that take more than this server has room for."""
    monkeypatch.setattr("sleeps.OPTIONS", {**OPTIONS, "max-model-len": 8})
    _, faults = sleeps(BINARY, tmp_path, 2, 1, "off", True)
    assert faults and all("completion: 400" in fault for fault in faults)


# What goes wrong while it wakes.

def test_clients_that_leave_while_it_wakes(start_server):
    server = start_server(*SMALL, "--rank-process", "on")
    text = text_of(server)
    for wait in (0, 0.01, 0.05):
        await_sleep(server)
        with connect(server) as sock:
            sock.sendall(request_bytes("/v1/completions", {"model": NAME, "prompt": "x", "max_tokens": 200, "ignore_eos": True}))
            time.sleep(wait)
        assert text_of(server) == text
    server.wait_idle()
    await_sleep(server)


@contextlib.contextmanager
def no_memory(server):
    """The server gets no more than it has."""
    pid = server.process.pid
    kib = next(int(line.split()[1]) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmSize"))
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, ((kib + (16 << 10)) << 10, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_AS, before)


def test_memory_that_is_not_there(start_server):
    server = start_server(*SMALL)
    text = text_of(server)
    await_sleep(server)
    with no_memory(server):
        refused = ask(server, **SEEDED)
        assert error_of(refused) == (503, "cannot_wake") and int(refused.headers["retry-after"]) >= 1
        streamed = ask(server, **SEEDED, stream=True)
        assert streamed.status_code == 200 and '"code":"cannot_wake"' in streamed.text
        with ThreadPoolExecutor(4) as pool:
            assert {error_of(reply) for reply in pool.map(lambda _: ask(server), range(4))} <= {(503, "cannot_wake")}
        assert statuses(server) == (200, 200, 200)
    assert text_of(server) == text
    metrics = server.metrics()
    assert metrics["idle_wake_failures_total"] >= 3 and metrics["idle_wakes_total"] == 1
    assert "cannot wake up: " in server.read_log()


def test_a_model_that_changed(start_server, tmp_path):
    model = tmp_path / "model.gguf"
    original = TINY.read_bytes()
    model.write_bytes(original)
    server = start_server(*SMALL, "--model", model, "--rank-process", "on")
    text = text_of(server)
    await_sleep(server)
    with open(model, "r+b") as file:
        file.seek(len(original) - 64)
        file.write(bytes(64))
    assert error_of(ask(server)) == (503, "cannot_wake") and "the model's files have changed" in server.read_log()
    with open(model, "r+b") as file:
        file.write(original)
    assert text_of(server) == text


# The end.

@pytest.mark.parametrize("ranks", ["off", "on"])
def test_it_stops_about_when_it_falls_asleep(start_server, ranks):
    servers = [start_server(*SMALL, "--rank-process", ranks) for _ in range(4)]

    def stop(server, wait):
        text_of(server)
        time.sleep(wait)
        return server.terminate(timeout=20)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(stop, servers, (0.99, 1.0, 1.01, 1.6))) == [0] * 4


def test_it_stops_asleep_after_a_delay(start_server):
    server = start_server(*SMALL, "--drain-delay", 2)
    text = text_of(server)
    await_sleep(server)
    server.process.terminate()
    wait_until(lambda: call(server, "GET", "/health").status_code == 503)
    assert text_of(server) == text  # until then all is as before
    assert server.process.wait(20) == 0


@pytest.mark.parametrize("grace, allowed", [(30, {200}), (0, {200, 503})])
def test_it_stops_while_it_wakes(start_server, grace, allowed):
    server = start_server(*IDLE, "--rank-process", "on", "--shutdown-timeout", grace)
    await_sleep(server)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server)
        wait_until(lambda: call(server, "GET", "/load").json()["server_load"] == 1 or answer.done())
        assert server.terminate(timeout=20) == 0
        assert answer.result().status_code in allowed


@pytest.mark.parametrize("value", ["-2", "31536001", "soon"])
def test_the_value_has_bounds(value):
    refused = subprocess.run([BINARY, "serve", "--model", MODEL, "--sleep-idle-seconds", value], capture_output=True, text=True,
                             timeout=60)
    assert refused.returncode == 78 and "sleep-idle-seconds" in refused.stderr and "31536000" in refused.stderr
