"""`quire top`: what a running server does, as text."""

import http.server
import re
import subprocess
import threading

import pytest

from quire_server import BINARY, NAME, clean_environment, free_port
from raw_http import open_stream, read_until
from terminal import CTRL_C, Terminal


def top(*words, environment=None, timeout=60):
    return subprocess.run([str(BINARY), "top", *map(str, words)], capture_output=True, text=True, timeout=timeout,
                          env=clean_environment(**(environment or {})))


@pytest.fixture
def impostor():
    """impostor(status, text) -> URL of a server that answers with that to everything."""
    servers = []

    def start(status, text):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *arguments):
                pass
        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("path", ["", "/", "/metrics"])
def test_once(start_server, path):
    server = start_server("--metrics-prefix", "vllm:" if path else "quire:")
    server.complete("Once upon a time", max_tokens=8)
    with open_stream(server, max_tokens=1000, ignore_eos=True) as sock:
        read_until(sock, b"data: ")
        shown = top(server.url + path, "--once")
    assert shown.returncode == 0 and shown.stderr == "" and "\x1b" not in shown.stdout
    assert shown.stdout.startswith(f"{NAME}, up ")
    assert "\nsequences   1 running, 0 waiting, 0 swapped\n" in shown.stdout
    assert re.search(r"\nKV blocks   [1-9]\d* used of \d+ \(\d+\.\d %\), \d+ cached\n", shown.stdout)
    assert re.search(r"\ntokens/s    (?!0\.0)\d+\.\d out, ", shown.stdout)
    assert re.search(r"\nfirst token +\d+\.\d+ +\d+\.\d+ +\d+\.\d+\n", shown.stdout)
    assert "\nkey " not in shown.stdout


def test_keys(start_server):
    server = start_server("--api-key", "sk-a", "--api-key", "sk-b", "--metrics-key-names", "all")
    refused = top(server.url, "--once")
    assert refused.returncode == 69 and "the server answers with status 401" in refused.stderr
    shown = top(server.url, "--once", "--api-key-env", "MINE", environment={"MINE": "sk-b"})
    assert shown.returncode == 0
    assert re.search(r"\nkey +running +out tok/s +in tok/s +requests/s\n#1 .*\n#2 .*\n$", shown.stdout)
    assert top(server.url, "--once", environment={"QUIRE_API_KEY": "sk-a"}).returncode == 0


def test_again_and_again(start_server):
    server = start_server()
    process = subprocess.Popen([str(BINARY), "top", server.url, "--interval", "1"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    seen = 0
    for line in process.stdout:
        seen += line.startswith("sequences")
        if seen == 2:
            server.terminate()
            break
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 69 and "cannot connect" in errors and "\x1b" not in rest


@pytest.mark.parametrize("words", [["a"], ["http://a", "http://b"], ["--interval", "0"], ["--interval"], ["--nothing"],
                                   ["ftp://localhost"]])
def test_bad_words(words):
    result = top(*words)
    assert result.returncode == 64 and result.stdout == "" and result.stderr


def test_a_bad_key_is_no_header(server):
    result = top(server.url, "--once", environment={"QUIRE_API_KEY": "a\r\nX: y"})
    assert result.returncode == 64 and "printable" in result.stderr


def test_nobody_there(impostor):
    result = top(f"http://127.0.0.1:{free_port()}", "--once")
    assert result.returncode == 69 and "cannot connect" in result.stderr
    result = top(impostor(200, "x" * (17 << 20)), "--once")
    assert result.returncode == 69 and "the answer is longer than 16777216 bytes" in result.stderr


def test_what_a_terminal_would_obey_is_not_shown(impostor):
    url = impostor(200, 'quire:num_requests_running{model_name="\x1b[31mred\x07"} 1\n'
                        'quire:api_key_requests_running{key="\x1b]0;title"} 1\n')
    shown = top(url, "--once")
    assert shown.returncode == 0 and "\x1b" not in shown.stdout and "\x07" not in shown.stdout
    assert shown.stdout.startswith("?[31mred?")


@pytest.mark.parametrize("key,status", [("q", 0), (CTRL_C, 130)], ids=["q", "Ctrl-C"])
def test_a_key_ends_it(start_server, key, status):
    """At once, and the terminal is as it was."""
    server = start_server()
    script = (f"trap : INT; before=$(stty -a); env --default-signal=INT {BINARY} top {server.url} --interval 3600; status=$?; "
              'test "$before" = "$(stty -a)" || status=99; exit $status')
    with Terminal(["sh", "-c", script], clean_environment()) as terminal:
        terminal.wait_for_text("q quits")
        terminal.type(key)
        assert terminal.wait_until_ended() == status
