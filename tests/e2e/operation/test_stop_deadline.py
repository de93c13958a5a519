"""A stop has a last deadline, --shutdown-timeout and 5 s after SIGTERM, whatever hangs in whatever state of the server."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hung_thread import hang, reap, threads
from quire_server import BINARY, MODEL, free_port
from raw_http import open_stream, read_until, wait_until
from test_admin_endpoints import TINY, ask, call, error_of, post

SMALL = ("--enable-admin", "--model", TINY, "--kv-cache-memory-bytes", "16M", "--shutdown-timeout", 1)
LARGE = ("--enable-admin", "--kv-cache-memory-bytes", "256M", "--max-model-len", 4096, "--shutdown-timeout", 1)
HUNG, LATE_S = 70, 60


def end(process, hung=()):
    """SIGTERM. Returns the exit status, and prints how long it took."""
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    reap([number for number in hung if number != process.pid], LATE_S)
    status = process.wait(LATE_S)
    print(f"ended after {time.monotonic() - begin:.1f} s with {status}")
    return status


def line_of(log):
    lines = [line for line in log.splitlines() if "the stop takes too long" in line]
    assert len(lines) == 1, log
    return lines[0]


def hang_engine(server):
    return hang(threads(server.process.pid)["engine"])


def state_awake(server):
    assert ask(server).status_code == 200


def state_in_a_step(server):
    server.stream = open_stream(server, max_tokens=3500, ignore_eos=True)
    read_until(server.stream, b"data: ")


def state_asleep(server):
    post(server, "/sleep?level=1")


def state_asleep_without_weights(server):
    post(server, "/sleep?level=2")


def options_of(state):
    """Steps of the small model are over too soon."""
    return LARGE if state is state_in_a_step else SMALL


STATES = [state_awake, state_in_a_step, state_asleep, state_asleep_without_weights]


@pytest.mark.parametrize("ranks", ["off", "on"])
@pytest.mark.parametrize("state", STATES)
def test_nothing_hangs(start_server, state, ranks):
    server = start_server(*options_of(state), "--rank-process", ranks)
    state(server)
    assert end(server.process) == 0
    assert "the stop takes too long" not in server.read_log()


@pytest.mark.parametrize("state", STATES)
def test_the_engine_hangs(start_server, state):
    server = start_server(*options_of(state))
    state(server)
    assert end(server.process, hang_engine(server)) == HUNG
    line = line_of(server.read_log())
    assert "the main thread ends the engine" in line and "the engine's thread " in line
    is_asleep = state in (state_asleep, state_asleep_without_weights)
    assert any(doing in line for doing in (("sleeps", "gives memory back") if is_asleep else ("is between steps", "runs a step")))


def test_the_main_thread_hangs(start_server):
    """The guard sees the signal itself."""
    server = start_server(*SMALL)
    hang([server.process.pid])
    assert end(server.process) == HUNG
    assert "the main thread answers clients" in line_of(server.read_log())


def but_for(pid, *names):
    """The threads of other names than these."""
    return [number for name, numbers in threads(pid).items() for number in numbers if name not in names]


@pytest.mark.parametrize("path, said, doing", [("/sleep?level=2", "sleep at level", "gives memory back"),
                                               ("/wake_up", "waking up", "takes memory again")])
def test_the_ranks_hang_as_it_falls_asleep_or_wakes(start_server, path, said, doing):
    """The engine's thread waits for theirs: of those that are there, as a wake from level 1 finds them."""
    server = start_server(*SMALL, "--device-timeout", 0)
    pid = server.process.pid
    if path == "/wake_up":
        post(server, "/sleep?level=1")
    hung = hang([number for number in but_for(pid, "stop guard", "engine") if number != pid])
    client = subprocess.Popen([sys.executable, "-c", "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], b'')",
                               server.url + path], stderr=subprocess.DEVNULL)
    wait_until(lambda: said in server.read_log())
    assert end(server.process, hung) == HUNG
    assert doing in line_of(server.read_log())
    client.wait(10)


def children(pid):
    tasks = [number for numbers in threads(pid).values() for number in numbers]
    return [int(child) for task in tasks for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]


def stop_children(pid):
    for child in children(pid):
        os.kill(child, signal.SIGSTOP)


@pytest.mark.parametrize("state", [state_awake, state_in_a_step])
def test_the_rank_process_is_stopped(start_server, state):
    server = start_server(*options_of(state), "--rank-process", "on")
    state(server)
    stop_children(server.process.pid)
    status = end(server.process)
    assert status == (0 if state is state_awake else HUNG)
    if status:
        assert "the engine's thread runs a step" in line_of(server.read_log())


def is_rank_process(pid):
    """Whether the process runs the program's command of that name already."""
    try:
        return b"rank-process" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def test_the_rank_process_is_stopped_while_it_wakes(start_server):
    server = start_server(*LARGE, "--rank-process", "on")
    post(server, "/sleep?level=2")
    with ThreadPoolExecutor(1) as pool:
        waker = pool.submit(call, server, "POST", "/wake_up")
        # Before its exec it runs in the memory of the engine's thread, which no stop gets out of a call that spawns it.
        wait_until(lambda: any(is_rank_process(pid) for pid in children(server.process.pid)))
        stop_children(server.process.pid)
        assert end(server.process) == 0
        assert error_of(waker.result()) in [(503, "shutting_down"), (503, "cannot_wake")]


def test_it_hangs_while_it_loads(tmp_path):
    """Nobody is served yet: there is nothing to report to a service manager."""
    log = tmp_path / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen([BINARY, "serve", "--model", MODEL, "--port", str(free_port())], stdout=out, stderr=out)
        while "stop guard" not in threads(process.pid):
            pass
        hung = hang(but_for(process.pid, "stop guard"))
        assert end(process, hung) == 0
    assert "the main thread " in line_of(log.read_text())
