"""Start, stop and the service manager."""

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time

import httpx
import pytest

from quire_server import BINARY, MODEL, NAME, clean_environment, free_port
from raw_http import (connect, open_stream, read_response, read_until, read_until_close,
                      request_bytes, roundtrip, wait_until)


@pytest.fixture
def run(tmp_path):
    """run(*arguments) -> a started `quire` whose output is in .log; killed after the test."""
    processes = []

    def start(*arguments, environment=None, **kwargs):
        log = tmp_path / f"run{len(processes)}.log"
        with open(log, "wb") as output:
            process = subprocess.Popen([str(word) for word in (BINARY, *arguments)], stdout=output,
                                       stderr=output, env=clean_environment(**(environment or {})),
                                       **kwargs)
        process.log = log
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


def finish(process):
    return process.wait(60), process.log.read_text()


def is_ready(process):
    assert process.poll() is None, process.log.read_text()
    return "listening on" in process.log.read_text()


def serve(*arguments):
    return ("serve", "--model", MODEL, "--served-model-name", NAME, *arguments)


# The program.

def test_version_and_usage(run):
    status, text = finish(run("--version"))
    assert status == 0
    facts = dict(line.split(" ", 1) for line in text.splitlines())
    assert re.fullmatch(r"\d+\.\d+\.\d+", facts["quire"])
    assert re.fullmatch(r"[\w.-]+", facts["source:"]) and "-O" in facts["build:"]
    assert "portable" in facts["backends:"] and re.search(r"gnutls \d", facts["libraries:"])
    status, text = finish(run())
    assert status == 64 and "quire serve MODEL" in text
    for arguments in (("dance",), ("inspect",), ("inspect", "a", "b")):
        status, text = finish(run(*arguments))
        assert status == 64 and "usage:" in text


@pytest.mark.parametrize("arguments, said", [
    (("serve", "--model", "/no/such/file.gguf"), "/no/such/file.gguf"),
    (("serve", "--model", "/etc/passwd"), "/etc/passwd"),
    (("inspect", "/etc/passwd"), "/etc/passwd"),
    (("serve", "--port", "1000000"), "port"),
    (serve("--max-model-len", "16777216"), "max-model-len"),
    (serve("--max-model-len", "1"), "max-model-len"),
    (serve("--kv-cache-memory-bytes", "1"), "--kv-cache-memory-bytes"),
    (serve("--max-num-seqs", "1024", "--max-num-batched-tokens", "16"), "max-num-batched-tokens"),
    (serve("--host", "999.999.999.999"), "host"),
])
def test_refused_configuration_is_78_and_one_line(run, arguments, said):
    status, text = finish(run(*arguments))
    assert status == 78
    assert len(text.splitlines()) == 1 and said in text


def test_port_in_use_is_one_line_with_the_address(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, text = finish(run(*serve("--port", port)))
    assert status not in (0, 78)
    errors = [line for line in text.splitlines() if "ERROR" in line]
    assert len(errors) == 1 and "127.0.0.1" in errors[0] and str(port) in errors[0]


def test_the_file_may_change_while_it_is_served(tmp_path, start_server):
    """As `cp` over it does: the mapping's pages are gone, which reading them would not survive."""
    path = tmp_path / "model.gguf"
    shutil.copyfile(MODEL, path)
    server = start_server("--model", path)
    body = {"prompt": "<|im_start|>user\nA list of names:", "max_tokens": 24, "logprobs": 5,
             "ignore_eos": True, "temperature": 0}
    before = server.post("/v1/completions", body).json()["choices"]
    path.write_bytes(b"")
    assert server.post("/v1/completions", body).json()["choices"] == before
    assert len(server.tokenize("<|im_end|> and more")) == 3
    assert server.post("/detokenize", {"tokens": list(range(300))}).status_code == 200


# Stopping.

def test_sigterm_finishes_what_is_in_flight(start_server):
    server = start_server("--shutdown-timeout", 60)
    idle = connect(server)
    idle.sendall(request_bytes("/version"))
    read_response(idle)
    streams = [open_stream(server, max_tokens=40, prompt=f"Number {i} is") for i in range(20)]
    for sock in streams:
        read_until(sock, b"data: ")
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "stopping" in server.read_log())
    idle.sendall(request_bytes("/v1/completions", {"model": NAME, "prompt": "x"}))
    refused, _ = read_response(idle)
    assert refused.status == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["connection"] == "close"
    for sock in streams:
        assert b"data: [DONE]" in read_until(sock, b"0\r\n\r\n")
    assert server.process.wait(30) == 0
    with pytest.raises(ConnectionRefusedError):
        connect(server)


def test_drain_delay_serves_on_while_health_says_no(start_server):
    server = start_server("--drain-delay", 3600)
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: roundtrip(server, request_bytes("/health")).status == 503)
    assert roundtrip(server, request_bytes("/ready")).status == 503
    assert roundtrip(server, request_bytes("/live")).status == 200
    answer = roundtrip(server, request_bytes("/v1/completions", {"model": NAME, "prompt": "x", "max_tokens": 2}))
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    server.process.send_signal(signal.SIGTERM)  # a second one waits no longer
    assert server.process.wait(20) == 0


def test_drain_delay_ends(start_server):
    server = start_server("--drain-delay", 1)
    began = time.monotonic()
    assert server.terminate(20) == 0
    assert time.monotonic() - began > 0.9
    assert "requests are accepted for another 1000 ms" in server.read_log()


def test_shutdown_timeout_cancels_the_rest(start_server):
    server = start_server("--shutdown-timeout", 1)
    with open_stream(server, max_tokens=4000, n=8) as sock:
        received = read_until(sock, b"data: ")
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        received += read_until_close(sock)
        assert server.process.wait(10) == 0
        assert time.monotonic() - began > 0.9
    assert b'"finish_reason":"' not in received
    assert b'"code":"request_aborted"' in received
    assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_idle_server_stops_at_once(start_server):
    for number in (signal.SIGTERM, signal.SIGINT):
        server = start_server("--shutdown-timeout", 600)
        server.process.send_signal(number)
        assert server.process.wait(10) == 0


def test_second_signal_is_fast(start_server):
    server = start_server("--shutdown-timeout", 600)
    with open_stream(server, max_tokens=4000, n=8) as sock:
        read_until(sock, b"data: ")
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: "stopping" in server.read_log())
        server.process.send_signal(signal.SIGTERM)
        received = read_until_close(sock)
        assert server.process.wait(60) == 0
    assert b'"code":"request_aborted"' in received and b'"finish_reason":"' not in received  # it was not waited for


# A log nobody reads.

@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_blocked_log_holds_up_nobody(kind, tmp_path):
    """Each of these signals is a line of the log, as a malformed request is at debug level."""
    reader, writer = socket.socketpair() if kind == "socket" else map(os.fdopen, os.pipe(), "rw")
    port = free_port()
    with open(tmp_path / "output", "wb") as output:
        process = subprocess.Popen([str(word) for word in (BINARY, *serve("--port", port))],
                                   stdout=output, stderr=writer, env=clean_environment())
    writer.close()
    url = f"http://127.0.0.1:{port}"

    def is_up():
        try:
            return httpx.get(url + "/health", timeout=30).status_code == 200
        except httpx.TransportError:
            return False

    def lost():
        lines = httpx.get(url + "/metrics", timeout=30).text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith("quire:log_lines_lost_total"))

    try:
        wait_until(is_up, 120)
        body = {"model": NAME, "prompt": "Once", "max_tokens": 40, "seed": 1, "ignore_eos": True}
        expected = httpx.post(url + "/v1/completions", json=body, timeout=60).json()["choices"]
        for _ in range(1000):
            for _ in range(100):
                process.send_signal(signal.SIGRTMIN)
            if lost() > 0:
                break
        assert lost() > 0
        assert is_up()
        assert httpx.post(url + "/v1/completions", json=body, timeout=60).json()["choices"] == expected
        seen = b""
        while b"could not be written" not in seen:  # read on until it says so
            process.send_signal(signal.SIGRTMIN)
            seen = seen[-200:] + os.read(reader.fileno(), 65536)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        reader.close()


# UNIX sockets and the service manager.

def roundtrip_over(path, target, body=None):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(30)
        sock.connect(str(path))
        sock.sendall(request_bytes(target, body))
        return read_response(sock)[0].json()


def test_unix_socket_and_a_model_named_after_its_file(run, tmp_path):
    path = tmp_path / "quire.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    process = run("serve", "--model", MODEL, "--uds", path)
    wait_until(lambda: is_ready(process))
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert roundtrip_over(path, "/v1/models")["data"][0]["id"] == MODEL.stem
    completion = roundtrip_over(path, "/v1/completions", {"prompt": "a", "max_tokens": 1})
    assert completion["model"] == MODEL.stem
    process.terminate()
    assert process.wait(30) == 0
    assert not path.exists()


def test_service_manager_is_notified(run, tmp_path):
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.settimeout(60)
    notify.bind(str(tmp_path / "notify"))
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000"}
    process = run(*serve("--port", 0), environment=environment)

    def wait_for(message):
        text = ""
        while message not in text:
            text = notify.recv(4096).decode()
        return text

    wait_for("EXTEND_TIMEOUT_USEC=")
    wait_for("READY=1")
    assert "running 0" in wait_for("STATUS=")
    wait_for("WATCHDOG=1")
    wait_for("WATCHDOG=1")
    process.terminate()
    wait_for("STOPPING=1")
    assert process.wait(30) == 0


def test_watchdog_aborts_an_engine_that_finishes_no_step(start_server):
    """A step of a long prompt takes longer here than it may."""
    server = start_server("--watchdog-sec", 1, "--max-num-batched-tokens", 8192, "--max-inter-token-ms", 0)
    assert server.post("/v1/completions", {"model": NAME, "prompt": "One", "max_tokens": 2}).status_code == 200
    with connect(server) as sock:
        sock.sendall(request_bytes("/v1/completions", {"model": NAME, "prompt": "word " * 8000, "max_tokens": 1}))
        assert server.process.wait(60) == -signal.SIGABRT
    assert "watchdog: the engine has had work" in server.read_log()


@pytest.fixture
def activate():
    """A listening socket, and what starts a server on it as a service manager does."""
    processes = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(4096)

        def start():
            command = ["sh", "-c", 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"', "sh", BINARY, *serve("--port", free_port())]
            processes.append(subprocess.Popen([str(word) for word in command], env=clean_environment(),
                                              stderr=subprocess.PIPE, text=True, close_fds=False,
                                              preexec_fn=lambda: os.dup2(listener.fileno(), 3)))
            return processes[-1]

        yield listener.getsockname()[1], start
    for process in processes:
        process.kill()
        process.wait()


def test_socket_activation(activate):
    port, start = activate
    process = start()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(request_bytes("/version"))  # waits in the backlog while the server starts
        assert read_response(sock)[0].status == 200
    process.terminate()
    log = process.communicate(timeout=30)[1]
    assert process.returncode == 0
    assert f"host, port and uds are not used: the service manager (quire.socket) listens on http://127.0.0.1:{port}\n" in log
    # The socket outlives the server: connections wait for the next one.
    socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_restarts_through_the_socket_refuse_nobody(activate):
    port, start = activate
    stop, answers = threading.Event(), []

    def ask():
        while not stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
                    sock.sendall(request_bytes("/v1/completions", {"model": NAME, "prompt": "One", "max_tokens": 2}))
                    answers.append(read_response(sock)[0].status)
            except (OSError, AssertionError) as err:
                answers.append(repr(err))

    process = start()
    clients = [threading.Thread(target=ask) for _ in range(8)]
    for thread in clients:
        thread.start()
    for _ in range(3):
        num_before = len(answers)
        wait_until(lambda: len(answers) > num_before + 50)
        process.terminate()
        assert process.wait(30) == 0
        process = start()
    num_before = len(answers)
    wait_until(lambda: len(answers) > num_before + 50)
    stop.set()
    for thread in clients:
        thread.join()
    assert set(answers) == {200}, [answer for answer in answers if answer != 200]


def test_ready_log_line_names_address_and_time(start_server):
    server = start_server()
    assert roundtrip(server, request_bytes("/version")).status == 200
    line = [line for line in server.read_log().splitlines() if "listening on" in line][0]
    assert server.url in line and " ms" in line


def start_log(server):
    """Label -> text of the log's lines up to the one that says that it listens; and its warnings."""
    lines = server.read_log().split("listening on")[0].splitlines()
    said = dict(re.findall(r"INFO    (\S.{9}) (.+)", "\n".join(line for line in lines if "INFO" in line)))
    return {label.strip(): text for label, text in said.items()}, [line for line in lines if "WARNING" in line]


def test_start_log_says_what_a_user_needs(start_server):
    server = start_server("--max-num-seqs", 8, "--max-model-len", 1024)
    said, warnings = start_log(server)
    assert re.fullmatch(r"\d+\.\d+\.\d+ \(\S+\)", said["quire"])
    assert said["model"] == f"{MODEL.stem}: llama, 134.5 million parameters, Q4_1"
    assert said["sequences"].startswith("8 at a time (--max-num-seqs), of at most 1024 tokens each; ")
    assert re.match(r"[1-9]\d* of at most [1-9]\d* MiB in use;", said["memory"])
    assert said["API keys"].startswith("none") and said["page"] == server.url + "/"
    assert "<!doctype html>" in httpx.get(said["page"], headers={"Accept": "text/html"}).text.lower() and warnings == []
    assert len(server.read_log().split("listening on")[0].splitlines()) <= 14
    assert "HTTP " not in said and "HTTP" in start_log(start_server("--log-level", "debug"))[0]


@pytest.mark.parametrize("host,url", [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
def test_start_log_warns_of_an_open_port(start_server, host, url):
    server = start_server("--host", host)
    said, warnings = start_log(server)
    assert said["page"] == f"http://{url}:{server.port}/"
    assert len(warnings) == 1 and "without an API key" in warnings[0] and "--api-key-file" in warnings[0]
    guarded = start_server("--host", host, "--api-key", "sk-a", "--api-key", "sk-b")
    said, warnings = start_log(guarded)
    assert said["API keys"].startswith("2") and warnings == [] and "sk-a" not in guarded.read_log()


def test_refusals_are_logged_with_their_cause(start_server):
    """Not with what the client sent, and not each of many."""
    server = start_server()
    body = {"model": NAME, "prompt": "x", "max_tokens": 1}
    assert server.post("/v1/completions", {**body, "n": 0}, headers={"X-Request-Id": "r-1"}).status_code == 400
    assert server.post("/v1/completions", {**body, "stop": "xylophone" * 99}).status_code == 400
    assert server.post("/v1/completions", {**body, "ignore_eos": "xylophone"}).status_code == 400
    assert httpx.get(server.url + "/xy%0Alophone").status_code == 404
    assert roundtrip(server, b"GET / HTTP/3.0\r\n\r\n").status == 505
    for _ in range(20):
        assert server.post("/v1/completions", {**body, "model": "llama"}).status_code == 404
    wait_until(lambda: "more with 404 model_not_found" in server.read_log())
    log = [line.split("refused    ")[1] for line in server.read_log().splitlines() if "INFO    refused" in line]
    assert ("POST /v1/completions: 400 out_of_range: n must be an integer from 1 to 1024 (--max-n), not 0 "
            "(param n, from 127.0.0.1, r-1)") in log
    assert any(line.startswith("GET: 404 not_found: ") for line in log)
    assert any(line.startswith("505 http_version: ") for line in log)
    assert any(line.startswith('POST /v1/completions: 404 model_not_found: The model "llama" does not exist') for line in log)
    assert len([line for line in log if "llama" in line]) < 20 and not any("xylophone" in line for line in log)


def test_traffic_is_logged(start_server):
    server = start_server()
    server.complete("Once upon a time", max_tokens=50, extra_body={"ignore_eos": True})
    wait_until(lambda: "traffic    " in server.read_log())
    line = [line for line in server.read_log().splitlines() if "traffic    " in line][0]
    found = re.search(r"prompt (\d+\.\d) tokens/s, generation (\d+\.\d) tokens/s; 0 running, 0 waiting; KV cache 0\.0 % used", line)
    assert found and 0 < float(found[1]) < 4 and 0 < float(found[2]) <= 5
