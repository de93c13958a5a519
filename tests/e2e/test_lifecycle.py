"""Start, stop, hang-ups, and the service manager's protocol."""

import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest

from quire_server import BINARY, MODEL, NAME, clean_environment

PROMPT = "Once upon a time"
LONG = {"ignore_eos": True}


def open_stream(server, max_tokens):
    """Starts a completion and returns (chunks, iterator over the rest) once it is running."""
    stream = server.client().completions.create(model=NAME, prompt=PROMPT, stream=True, temperature=0,
                                                max_tokens=max_tokens, extra_body=LONG)
    iterator = iter(stream)
    return stream, [next(iterator)], iterator


def test_sigterm_finishes_what_is_in_flight(start_server):
    server = start_server()
    _, chunks, rest = open_stream(server, 100)
    server.process.send_signal(signal.SIGTERM)
    chunks += list(rest)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert server.process.wait(60) == 0


def test_new_work_is_refused_while_draining(start_server):
    server = start_server()
    with httpx.Client() as client:
        assert client.get(server.url + "/health").status_code == 200  # a connection to keep
        _, _, rest = open_stream(server, 300)
        server.process.send_signal(signal.SIGTERM)
        try:
            while (reply := client.get(server.url + "/health")).status_code == 200:
                pass
            assert reply.status_code == 503
            reply = client.post(server.url + "/v1/completions", json={"prompt": "a"})
            assert reply.status_code == 503
        except httpx.TransportError:
            pass  # closed: refused as well
        assert list(rest)[-1].choices[0].finish_reason == "length"
    assert server.process.wait(60) == 0


def test_shutdown_timeout_cuts_off(start_server):
    server = start_server("--shutdown-timeout", 0)
    _, _, rest = open_stream(server, 8000)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    with pytest.raises(Exception):  # an error event or a closed connection, but no silent end
        list(rest)


def test_idle_server_stops_at_once(start_server):
    for number in (signal.SIGTERM, signal.SIGINT):
        server = start_server()
        server.process.send_signal(number)
        assert server.process.wait(10) == 0


def test_hang_up_frees_the_blocks(server):
    server.wait_idle()
    before = server.metrics()
    stream, _, _ = open_stream(server, 4000)
    server.wait_for(lambda m: m["kv_blocks_used"] > 0)
    stream.close()
    after = server.wait_for(lambda m: m["kv_blocks_used"] == 0)
    assert after["num_requests_running"] == 0
    assert after["generation_tokens_total"] - before["generation_tokens_total"] < 4000


def test_hang_up_without_a_stream(server):
    server.wait_idle()
    body = b'{"prompt":"a","max_tokens":4000,"ignore_eos":true}'
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s"
                           % (len(body), body))
        server.wait_for(lambda m: m["kv_blocks_used"] > 0)
    server.wait_for(lambda m: m["kv_blocks_used"] == 0)


def test_unix_socket(tmp_path):
    path = tmp_path / "quire.sock"
    process = subprocess.Popen([BINARY, "serve", "--model", MODEL, "--uds", path],
                               env=clean_environment())
    try:
        client = httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=60)
        for _ in range(1000):
            try:
                if client.get("http://a/health").status_code == 200:
                    break
            except httpx.TransportError:
                assert process.poll() is None
                time.sleep(0.02)
        reply = client.post("http://a/v1/completions", json={"prompt": "a", "max_tokens": 1})
        assert reply.status_code == 200
        assert reply.json()["model"].startswith("SmolLM2")  # named after the file
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()


def test_service_manager_protocol(tmp_path, start_server):
    path = tmp_path / "notify"
    messages = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(path))
        notify.settimeout(60)

        def receive():
            while not any("STOPPING=1" in message for message in messages):
                messages.append(notify.recv(4096).decode())

        reader = threading.Thread(target=receive)
        reader.start()
        server = start_server(environment={"NOTIFY_SOCKET": str(path)})
        assert server.terminate() == 0
        reader.join()
    lines = "\n".join(messages).split("\n")
    assert lines.index("READY=1") < lines.index("STOPPING=1")
