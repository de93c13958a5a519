"""--rank-process: whatever happens to the process that computes, streams go on as if nothing had."""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from quire_server import MODEL, NAME, BINARY, clean_environment, free_port

MIX = [{"seed": 1, "temperature": 1.0}, {"temperature": 0}, {"seed": 3, "n": 3}, {"n": 2, "use_beam_search": True,
       "temperature": 0, "max_tokens": 24}, {"seed": 5, "repetition_penalty": 1.2, "logprobs": 3},
       {"seed": 6, "structured_outputs": {"regex": "[a-z ]{150}"}}, {"seed": 7, "temperature": 2.0},
       {"seed": 8, "prompt": [100 + i % 900 for i in range(1500)]}]
DEFAULTS = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 150, "ignore_eos": True}


def rank_process(server):
    """The id of the server's rank process; None: there is none."""
    path = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    for task in path.parents[1].iterdir():
        for child in (task / "children").read_text().split():
            return int(child)
    return None


def choices(server, fields):
    answer = server.post("/v1/completions", {**DEFAULTS, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def await_other(server, pid, timeout=60):
    """Waits until ranks run in another process than that."""
    deadline = time.monotonic() + timeout
    while rank_process(server) in (None, pid) or httpx.get(server.url + "/ready").status_code != 200:
        assert time.monotonic() < deadline, server.read_log()
        time.sleep(0.01)
    return rank_process(server)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def await_end(pid, timeout=20):
    deadline = time.monotonic() + timeout
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    from quire_server import QuireServer
    server = QuireServer(tmp_path_factory.mktemp("undisturbed") / "server.log")
    assert rank_process(server) is None  # the default on the CPU
    expected = [choices(server, fields) for fields in MIX]
    server.kill()
    return expected


TIGHT = ("--max-model-len", 2048, "--kv-cache-memory-bytes", 52 << 20, "--swap-space", 0.1)  # preempts


@pytest.mark.parametrize("number, options", [(signal.SIGKILL, ()), pytest.param(signal.SIGSTOP, (), marks=pytest.mark.variant),
                                             (signal.SIGSEGV, TIGHT),
                                             pytest.param(signal.SIGABRT, ("--no-async-scheduling",), marks=pytest.mark.variant)])
def test_streams_go_on(start_server, undisturbed, number, options):
    server = start_server("--rank-process", "on", "--device-timeout", 2, *options)
    pid = rank_process(server)
    with ThreadPoolExecutor(len(MIX)) as pool:
        answers = [pool.submit(choices, server, fields) for fields in MIX]
        server.wait_for(lambda m: m["generation_tokens_total"] > 100)
        os.kill(pid, number)
        await_other(server, pid)
        assert [answer.result() for answer in answers] == undisturbed
    metrics = server.wait_idle()
    assert metrics["rank_restarts_total"] == 1 and metrics["kv_blocks_used"] == 0
    assert not is_alive(pid)
    assert server.terminate() == 0


def test_signals_to_the_whole_group_are_the_servers(start_server):
    server = start_server("--rank-process", "on")
    pid = rank_process(server)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, number)
    assert choices(server, MIX[0]) and rank_process(server) == pid
    assert server.terminate() == 0
    await_end(pid)


def test_an_idle_process_is_replaced(start_server):
    server = start_server("--rank-process", "on")
    pid = rank_process(server)
    expected = choices(server, MIX[2])
    os.kill(pid, signal.SIGKILL)
    server.wait_for(lambda m: m["rank_restarts_total"] == 1)
    await_other(server, pid)
    assert choices(server, MIX[2]) == expected
    metrics = server.metrics()  # of the process that is there now
    assert metrics["rank_process_resident_memory_bytes"] > os.path.getsize(MODEL) and metrics["rank_process_cpu_seconds_total"] > 0
    assert metrics["memory_resident_bytes"] > metrics["rank_process_resident_memory_bytes"] + 1e7
    assert metrics["memory_resident_bytes"] < metrics["memory_planned_bytes"]


def test_nothing_is_left_of_a_killed_server(start_server):
    server = start_server("--rank-process", "on")
    pid = rank_process(server)
    links = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    inherited = [link for link in links if not link.startswith(("/dev/null", "socket:", str(MODEL.resolve()),
                                                                 "/memfd:quire-batches", "/memfd:quire-results", str(server.log_path)))]
    assert inherited == [] and sum(link.startswith("socket:") for link in links) == 1, links
    server.process.kill()
    server.process.wait()
    await_end(pid)


def test_a_request_during_which_ranks_die_twice_is_given_up(start_server):
    server = start_server("--rank-process", "on", "--max-num-batched-tokens", 128)
    for stream in (False, True):
        restarts, pid = server.metrics()["rank_restarts_total"], rank_process(server)
        poisoned = {**DEFAULTS, "prompt": [100 + i % 900 for i in range(6000)], "stream": stream}
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(server.post, "/v1/completions", poisoned)
            for attempt in range(2):
                server.wait_for(lambda m: m["rank_restarts_total"] == restarts + attempt
                                and m["num_requests_running"] == 1)
                steps = server.metrics()["engine_steps_total"]
                server.wait_for(lambda m: m["engine_steps_total"] > steps)
                os.kill(pid, signal.SIGKILL)
                pid = await_other(server, pid)
            answer = answer.result()
        assert answer.status_code == (200 if stream else 500) and answer.text.count('"code":"device_crashed"') == 1, answer.text
        assert answer.text.endswith("data: [DONE]\n\n") if stream else answer.headers["x-should-retry"] == "false"
    assert choices(server, MIX[1])
    assert server.metrics()["kv_blocks_used"] == 0


def test_ranks_that_cannot_start_again(start_server, tmp_path):
    model = tmp_path / "model.gguf"
    shutil.copy(MODEL, model)
    server = start_server("--rank-process", "on", "--model", model)
    model.unlink()
    os.kill(rank_process(server), signal.SIGKILL)
    assert server.process.wait(60) == 70
    assert "the device failed" in server.read_log()


def test_a_start_that_fails_says_why(tmp_path):
    command = [BINARY, "serve", "--model", MODEL, "--rank-process", "on", "--port", free_port(),
               "--kv-cache-memory-bytes", 1000]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60,
                          env=clean_environment())
    assert done.returncode != 0 and "kv-cache-memory-bytes" in done.stderr, done.stderr
    done = subprocess.run([str(BINARY), "rank-process"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 64


def test_watching_a_stream_through_a_crash(start_server):
    """A client sees a pause: no byte less, twice or otherwise."""
    server = start_server("--rank-process", "on")
    body = {**DEFAULTS, **MIX[0], "stream": True}
    expected = [json.loads(line[6:])["choices"] for line in server.post("/v1/completions", body).text.splitlines()
                if line.startswith("data: {")]
    pid, seen, crash = rank_process(server), [], threading.Event()
    with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=300) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                seen.append(json.loads(line[6:])["choices"])
            if len(seen) == 20 and not crash.is_set():
                crash.set()
                os.kill(pid, signal.SIGKILL)
    join = lambda parts: "".join(choice["text"] for part in parts for choice in part)
    assert join(seen) == join(expected) and seen[-1][0]["finish_reason"] == expected[-1][0]["finish_reason"]
    assert server.metrics()["rank_restarts_total"] == 1
