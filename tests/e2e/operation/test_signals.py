"""Signals: SIGTERM and SIGINT stop (test_process.py), SIGHUP reads again what may change, no other one does anything."""

import os
import signal
import socket

import httpx
import pytest

from quire_server import NAME, QuireServer
from raw_http import open_stream, read_until, wait_until

IGNORED = [signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM,
           signal.SIGIO, signal.SIGPWR, signal.SIGXCPU, signal.SIGRTMIN]
SILENT = [signal.SIGPIPE, signal.SIGXFSZ]


def stream_text(sock, received=b""):
    """The rest of an open stream, without what differs from call to call."""
    received = read_until(sock, b"0\r\n\r\n", received)
    assert b"data: [DONE]" in received
    pieces = received.split(b'"text":"')[1:]
    return b"".join(piece.split(b'"', 1)[0] for piece in pieces)


def start_streams(server):
    streams = [open_stream(server, max_tokens=40, seed=i, temperature=1) for i in range(3)]
    return streams, [read_until(sock, b"data: ") for sock in streams]


def test_no_other_signal_cuts_a_stream(start_server):
    server = start_server()
    expected = [stream_text(sock, begun) for sock, begun in zip(*start_streams(server))]
    for number in [signal.SIGHUP, *IGNORED, *SILENT]:
        streams, begun = start_streams(server)
        for _ in range(20):
            server.process.send_signal(number)
        assert [stream_text(sock, text) for sock, text in zip(streams, begun)] == expected, number
    for number in IGNORED:
        wait_until(lambda: f"signal {int(number)} (" in server.read_log())
    assert server.terminate() == 0


def test_signals_while_loading_are_no_end(tmp_path):
    server = QuireServer.__new__(QuireServer)
    server.wait_until_ready = lambda: None
    server.__init__(tmp_path / "log")
    try:
        for number in [signal.SIGUSR1, signal.SIGQUIT, signal.SIGHUP] * 10:
            wait_until(lambda: blocks(server.process.pid, number))
            server.process.send_signal(number)
        QuireServer.wait_until_ready(server)
        wait_until(lambda: "reloading" in server.read_log())
        assert server.terminate() == 0
    finally:
        server.kill()


def blocks(pid, number):
    """Does the process have the signal blocked? It may not even be our program yet."""
    with open(f"/proc/{pid}/status") as status:
        mask = next(line for line in status if line.startswith("SigBlk:"))
    return int(mask.split()[1], 16) >> (number - 1) & 1


def test_hangup_reopens_the_log(start_server):
    server = start_server()
    moved = server.log_path.with_suffix(".1")
    os.rename(server.log_path, moved)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log_path.exists() and "reloading" in server.read_log())
    assert "listening on" in moved.read_text() and "reloading" not in moved.read_text()
    assert server.terminate() == 0
    assert "stopped" in server.read_log()


def test_service_manager_is_notified_of_a_reload(tmp_path, start_server):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.settimeout(60)
        notify.bind(str(tmp_path / "notify"))
        server = start_server(environment={"NOTIFY_SOCKET": str(tmp_path / "notify")})

        def wait_for(message):
            text = ""
            while message not in text:
                text = notify.recv(4096).decode()
            return text

        wait_for("READY=1")
        server.process.send_signal(signal.SIGHUP)
        assert "MONOTONIC_USEC=" in wait_for("RELOADING=1")
        wait_for("READY=1")


# Keys.

def ask(server, key, **fields):
    return server.post("/v1/completions", {"model": NAME, "prompt": "word " * 64, "max_tokens": 1, **fields},
                       headers={"Authorization": f"Bearer {key}"})


def status_of(server, key):
    return ask(server, key).status_code


def cached(server, key):
    usage = ask(server, key).json()["usage"]
    return (usage["prompt_tokens_details"] or {}).get("cached_tokens", 0)


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"

    def write(*lines):
        path.write_text("".join(line + "\n" for line in lines))
        path.chmod(0o600)
        return path
    return write


def reload(server, said):
    before = server.read_log().count(said)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.read_log().count(said) > before)


def test_hangup_reads_the_keys_again(keys, start_server):
    server = start_server("--api-key-file", keys("# first", "sk-a", "sk-b"), "--api-key", "sk-fixed")
    assert [status_of(server, key) for key in ("sk-a", "sk-b", "sk-fixed", "sk-c", "# first")] == [200, 200, 200, 401, 401]
    keys("sk-b", "sk-c")
    assert status_of(server, "sk-a") == 200  # not before it is requested
    reload(server, "2 API keys from")
    assert [status_of(server, key) for key in ("sk-a", "sk-b", "sk-fixed", "sk-c")] == [401, 200, 200, 200]
    assert not any(key in server.read_log() for key in ("sk-a", "sk-b", "sk-c", "sk-fixed"))


@pytest.mark.parametrize("lines, said", [
    ((), "holds no key"), (("sk-a", "sk b"), "line 2"), (None, "No such file")])
def test_a_bad_key_file_keeps_the_old_keys(keys, start_server, lines, said):
    path = keys("sk-a")
    server = start_server("--api-key-file", path)
    if lines is None:
        path.unlink()
    else:
        keys(*lines)
    reload(server, "the keys stay as they were")
    assert said in server.read_log() and "ERROR" in server.read_log()
    assert [status_of(server, key) for key in ("sk-a", "sk", "b")] == [200, 401, 401]
    keys("sk-new")
    reload(server, "1 API keys from")
    assert [status_of(server, key) for key in ("sk-a", "sk-new")] == [401, 200]


def test_what_is_cached_stays_with_its_key(keys, start_server):
    """A key that stays finds its prefix again; nobody gets that of a key that is gone."""
    server = start_server("--api-key-file", keys("sk-a", "sk-b"))
    assert cached(server, "sk-a") == 0 and cached(server, "sk-b") == 0
    assert cached(server, "sk-a") > 0 and cached(server, "sk-b") > 0
    keys("sk-c", "sk-b")
    reload(server, "2 API keys from")
    assert cached(server, "sk-c") == 0
    assert cached(server, "sk-b") > 0
    keys("sk-d", "sk-a", "sk-b")
    reload(server, "3 API keys from")
    assert cached(server, "sk-d") == 0 and cached(server, "sk-a") == 0
    assert cached(server, "sk-b") > 0


def test_reloads_are_not_counted(keys, start_server):
    """10,240 keys over ten reloads: the one that was stolen is out after each, and nobody finds what it cached."""
    server = start_server("--api-key-file", keys("sk-0"))
    for i in range(10):
        assert cached(server, f"sk-{i}") == 0 and cached(server, f"sk-{i}") > 0
        keys(f"sk-{i + 1}", *(f"sk-{i}-{j}" for j in range(1023)))
        reload(server, "1024 API keys from")
        assert [status_of(server, key) for key in (f"sk-{i}", f"sk-{i}-1022")] == [401, 200]


def test_a_stream_outlives_its_key(keys, start_server):
    server = start_server("--api-key-file", keys("sk-a"))
    body = {"model": NAME, "prompt": "Once", "max_tokens": 200, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=300,
                      headers={"Authorization": "Bearer sk-a"}) as reply:
        lines = reply.iter_lines()
        next(lines)
        keys("sk-b")
        reload(server, "1 API keys from")
        assert "data: [DONE]" in list(lines)
    assert status_of(server, "sk-a") == 401


def test_others_who_can_read_the_keys_are_a_warning(keys, start_server):
    path = keys("sk-a")
    path.chmod(0o644)
    assert "others may read or change it" in start_server("--api-key-file", path).read_log()
    path.chmod(0o640)
    assert "others may read" not in start_server("--api-key-file", path).read_log()
