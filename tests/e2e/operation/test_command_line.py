"""What the command answers before it serves: mistakes are one line each and status 78."""

import platform
import re
import struct
import subprocess

import pytest

from quire_server import BINARY, MODEL, ROOT, clean_environment
from terminal import Terminal


def run(*arguments, environment=None, launcher=()):
    return subprocess.run([*map(str, launcher), str(BINARY), *map(str, arguments)], capture_output=True, text=True,
                          timeout=60, env=clean_environment(**(environment or {})))


def assert_refused(result, *pieces):
    assert result.returncode == 78, result
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    for piece in pieces:
        assert piece in result.stderr


def test_help():
    overview, limits = run("serve", "--help"), run("serve", "--help", "limits")
    assert overview.returncode == limits.returncode == 0
    assert "--max-num-seqs" in overview.stdout and "--port" in overview.stdout
    assert "--max-num-seqs N" in limits.stdout and "for example" in limits.stdout and "--port" not in limits.stdout
    assert run("help", "serve", "limits").stdout == limits.stdout
    assert len(run("serve", "--help", "all").stdout.splitlines()) > len(overview.stdout.splitlines())
    unknown = run("serve", "--help", "nothing")
    assert unknown.returncode == 64 and "the groups are all, model" in unknown.stderr and not unknown.stdout


def commands():
    return re.findall(r"^  quire ([a-z]+) ", run("--help").stdout, re.MULTILINE)


def test_help_fits_the_terminal():
    """80 columns when it is not one; COLUMNS else; no word is lost at any width."""
    pages = [("--help",), *((name, "--help") for name in commands()), ("serve", "--help", "all")]
    assert len(pages) > 11
    for words in pages:
        plain = run(*words).stdout
        assert max(map(len, plain.splitlines())) <= 80, words
        assert "for example" in plain, words
        for columns in ("60", "132"):
            other = run(*words, environment={"COLUMNS": columns}).stdout
            assert other.split() == plain.split() and max(map(len, other.splitlines())) <= int(columns), words
    with Terminal(["sh", "-c", 'stty columns 50 && exec "$0" chat --help', BINARY], clean_environment()) as terminal:
        terminal.wait_until_ended()
        assert max(len(line) for line in terminal.received.decode().splitlines()) <= 50


def test_help_of_a_command():
    for name in commands():
        assert run("help", name).stdout == run(name, "--help").stdout != ""
    assert run("help").stdout == run("--help").stdout
    unknown = run("help", "srve")
    assert unknown.returncode == 64 and "unknown command 'srve'" in unknown.stderr


def test_inspect():
    result = run("inspect", MODEL)
    assert result.returncode == 0
    assert "llama" in result.stdout and "Q4_1" in result.stdout


def test_bad_options():
    assert_refused(run("serve"), "model")
    assert_refused(run("serve", "--model", MODEL, "--max-num-seqs", -1), "max-num-seqs", "0 to 1024")
    assert_refused(run("serve", "--model", MODEL, "--max-num-seq", 1), "did you mean")
    assert_refused(run("serve", "--model", MODEL, "--fast-sums", "--batch-invariant"), "fast-sums", "batch-invariant")
    assert_refused(run("serve", "--model", MODEL, "--fast-sums", "--pipeline-parallel-size", 2), "fast-sums", "one stage only")
    assert_refused(run("serve", "--model", MODEL, environment={"QUIRE_PORT": "x"}), "port",
                   "environment")


# As people start these servers; what the machine of the tests lacks is smaller.
VLLM = """--served-model-name q --host 127.0.0.1 --port 0 --max-model-len 2k --gpu-memory-utilization 90%
    --tensor-parallel-size 1 --dtype auto --enable-chunked-prefill --enable-prefix-caching --trust-remote-code
    --enable-auto-tool-choice --tool-call-parser hermes --max-num-seqs 64 --disable-log-requests --swap-space 0
    --uvicorn-log-level info""".split()
LLAMA = """-c 2048 -np 4 -t 2 -tb 2 -ngl 99 -fa on -b 2048 -ub 512 --host 127.0.0.1 --port 0 --jinja --no-mmap --mlock
    -ctk q8_0 -ctv q8_0 --temp 0.7 --metrics -cb""".split()


def serve_until_ready(*words):
    """The log of a server that starts, up to the line that it listens."""
    process = subprocess.Popen([str(word) for word in (BINARY, "serve", *words)], stderr=subprocess.PIPE, text=True,
                               env=clean_environment())
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "listening on" in line:
                break
        assert "listening on" in lines[-1], lines
        return "".join(lines)
    finally:
        process.terminate()
        process.communicate()


def test_keys_with_commas():
    """As llama-server separates them: neither would be a key."""
    result = run("serve", "none.gguf", "--port", 0, "--api-key", "sk-one,sk-two", "sk-three")
    assert result.returncode == 78 and "key 1 contains a comma" in result.stderr
    assert "key 2" not in result.stderr and "sk-" not in result.stderr


def test_a_vllm_line_starts():
    log = serve_until_ready(MODEL, *VLLM)
    for flag in ("--enable-chunked-prefill", "--trust-remote-code", "--enable-auto-tool-choice", "--disable-log-requests"):
        assert f"option {flag} changes nothing: " in log
    assert "model q" in log and "ERROR" not in log


def test_a_llama_server_line_needs_one_correction():
    """All that is wrong is said at once: what is left after it starts."""
    refused = run("serve", "-m", MODEL, *LLAMA)
    assert refused.returncode == 78
    named = re.findall(r"ERROR +option (\S+) of llama-server", refused.stderr)
    assert named == ["-tb", "-ub", "--mlock", "--temp"] and len(refused.stderr.splitlines()) == 4
    words = list(LLAMA)
    for flag in named:
        place = words.index(flag)
        del words[place:place + (1 if flag == "--mlock" else 2)]
    log = serve_until_ready("-m", MODEL, *words)
    assert "option -ngl changes nothing: all layers" in log and "in int8" in log and "ERROR" not in log
    assert "option -c is --max-model-len: of each sequence" in log


def test_every_mistake_at_once(tmp_path):
    (tmp_path / "quire.yaml").write_text("prot: 1\n")
    result = run("serve", MODEL, "--port", "x", "--frobnicate", "--spec-type", "ngram", "--config", tmp_path / "quire.yaml")
    assert result.returncode == 78
    lines = result.stderr.splitlines()
    assert len(lines) == 4
    for line, piece in zip(lines, ('port "x"', "unknown option --frobnicate", "--spec-type", "quire.yaml line 1")):
        assert piece in line


def test_mistakes_of_a_plan_at_once():
    result = run("inspect", MODEL, "--plan", "-c", "2k", "--mlock", "-np", "x")
    assert result.returncode == 78 and len(result.stderr.splitlines()) == 2
    assert "--mlock" in result.stderr and 'max-num-seqs "x"' in result.stderr
    assert "2048" in run("inspect", MODEL, "--plan", "-c", "2k", "-np", "1").stdout


def test_no_model_says_how():
    assert_refused(run("serve"), "quire serve MODEL", "ORG/NAME", "QUIRE_MODEL")


SPECULATIVE = '{"method": "%s", "num_speculative_tokens": %d}'


@pytest.mark.parametrize("environment", [False, True])
def test_bad_speculative_config(environment):
    def refuse(value, *pieces):
        arguments = [] if environment else ["--speculative-config", value]
        variables = {"QUIRE_SPECULATIVE_CONFIG": value} if environment else {}
        assert_refused(run("serve", "--model", MODEL, *arguments, environment=variables), "speculative-config", *pieces)

    refuse(SPECULATIVE % ("eagle", 5), "method", '"ngram", "draft_model" or "mtp"', '"eagle"')
    refuse(SPECULATIVE % ("draft_model", 5), "model must be the draft model", "missing")
    refuse('{"method": "ngram", "model": "small.gguf", "num_speculative_tokens": 5}', "model must be left out", "small.gguf")
    refuse('{"model": "small.gguf", "num_speculative_tokens": 5, "draft_tensor_parallel_size": 1}', "draft_tensor_parallel_size")
    refuse('{"model": "./none.gguf", "num_speculative_tokens": 5}', "model: ./none.gguf: cannot open")
    refuse(SPECULATIVE % ("ngram", 17), "num_speculative_tokens", "1 to 16", "17")
    refuse('{"method": "ngram", "draft": 5}', "draft", "num_speculative_tokens")
    refuse("ngram", "JSON object")


def draft_of(model):
    return "--speculative-config", f'{{"model": "{model}", "num_speculative_tokens": 5}}'


def test_a_draft_model_has_the_vocabulary_of_the_model():
    tiny = ROOT / "tests/golden/tiny-f16.gguf"
    for model, draft in ((MODEL, tiny), (tiny, MODEL)):
        for words in (("serve", "--model", model, "--port", 0), ("inspect", model, "--plan")):
            result = run(*words, *draft_of(draft))
            assert result.returncode == 78 and len(result.stderr.splitlines()) == 1, result
            assert "speculative-config: model: token 3 is " in result.stderr and str(draft) in result.stderr


def test_a_plan_has_the_draft_model():
    lines = run("inspect", MODEL, "--plan", *draft_of(MODEL)).stdout.splitlines()
    plain = run("inspect", MODEL, "--plan").stdout
    assert [line for line in lines if line.startswith("draft ")] and "of the draft model" not in plain
    missing = run("inspect", MODEL, "--plan", *draft_of("org/name"))
    assert missing.returncode == 78 and "model: org/name: cannot open" in missing.stderr


def test_speculative_config_in_the_file(tmp_path):
    config = tmp_path / "quire.yaml"
    config.write_text("speculative-config: {method: ngram, num_speculative_tokens: 99}\n")
    assert_refused(run("serve", "--model", MODEL, "--config", config), "num_speculative_tokens", "1 to 16", "99")


def test_cpu_isa(start_server):
    other = "amx" if platform.machine() == "aarch64" else "neon"
    assert_refused(run("serve", "--model", MODEL, "--cpu-isa", other), f"instruction set '{other}'", "this machine has auto", "portable")
    assert_refused(run("serve", "--model", MODEL, "--cpu-isa", "sse9"), "cpu-isa", "portable")
    server = start_server("--cpu-isa", "portable")
    assert "cpu (portable" in server.read_log()
    assert server.complete("Once upon a time", max_tokens=4).usage.completion_tokens == 4


# As kubelet sets them in every pod beside a service named "quire".
SERVICE_LINKS = {
    "QUIRE_SERVICE_HOST": "10.0.0.1", "QUIRE_SERVICE_PORT": "8000", "QUIRE_SERVICE_PORT_HTTP": "8000",
    "QUIRE_PORT": "tcp://10.0.0.1:8000", "QUIRE_PORT_8000_TCP": "tcp://10.0.0.1:8000",
    "QUIRE_PORT_8000_TCP_PROTO": "tcp", "QUIRE_PORT_8000_TCP_PORT": "8000", "QUIRE_PORT_8000_TCP_ADDR": "10.0.0.1",
}


def test_variables_of_others_are_no_mistake(start_server):
    server = start_server(environment=SERVICE_LINKS)
    assert "QUIRE_" not in server.read_log()


def test_unknown_variables_are_a_warning(start_server):
    server = start_server(environment={"QUIRE_PROT": "1", "QUIRE_HOME": "/srv/quire", "QUIRE_PORT": "none"})
    warnings = [line for line in server.read_log().splitlines() if "WARNING" in line and "QUIRE_" in line]
    assert len(warnings) == 2
    assert any("QUIRE_PROT is ignored; did you mean QUIRE_PORT?" in line for line in warnings)
    assert any("QUIRE_HOME is ignored" in line for line in warnings)


@pytest.mark.parametrize("content, said", [
    (b"", "holds no key"), (b"sk-1\nsk 2\n", "line 2"), (b"k\n" * 1025, "1024 keys")])
def test_bad_key_file(tmp_path, content, said):
    path = tmp_path / "keys"
    path.write_bytes(content)
    result = run("serve", "--model", MODEL, "--api-key-file", path)
    assert_refused(result, "api-key-file", said)
    assert "sk" not in result.stderr.split("keys", 1)[1]
    assert_refused(run("serve", "--model", MODEL, "--api-key-file", tmp_path / "none"), "No such file")


def test_no_such_chat_template(tmp_path):
    assert_refused(run("serve", "--model", MODEL, "--chat-template", tmp_path / "none.jinja"),
                   "chat-template", "none.jinja", "must be a file")


def test_broken_chat_template(tmp_path):
    path = tmp_path / "chat.jinja"
    path.write_text("{% if %}")
    assert_refused(run("serve", "--model", MODEL, "--chat-template", path), "chat-template", "chat.jinja", "line 1")


def test_bad_configuration_file(tmp_path):
    path = tmp_path / "quire.yaml"
    path.write_text("port: 8000\nblock-size: 17\n")
    assert_refused(run("serve", "--model", MODEL, "--config", path), "block-size", "line 2")


HEADER = MODEL.read_bytes()[:1 << 16] if MODEL.exists() else b""


def broken_files():
    yield "empty", b""
    yield "not a model", b"hello, world " * 1000
    yield "cut in the header", HEADER[:1000]
    yield "cut in the data", HEADER
    yield "version 0", HEADER[:4] + struct.pack("<I", 0) + HEADER[8:]
    yield "version 99", HEADER[:4] + struct.pack("<I", 99) + HEADER[8:]
    yield "2^63 tensors", HEADER[:8] + struct.pack("<Q", 1 << 63) + HEADER[16:]
    yield "2^40 keys", HEADER[:16] + struct.pack("<Q", 1 << 40) + HEADER[24:]
    yield "huge key", HEADER[:24] + struct.pack("<Q", (1 << 64) - 1) + HEADER[32:]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_model_that_computes_no_numbers(tmp_path, value):
    """Another start would compute the same: 78, which the service manager does not try again."""
    path = tmp_path / "broken.gguf"
    content = (ROOT / "tests/golden/tiny-f32.gguf").read_bytes()
    path.write_bytes(content[:-4096] + struct.pack("<f", value) * 1024)
    result = run("serve", "--model", path, "--port", 0)
    assert result.returncode == 78, result
    errors = [line for line in result.stderr.splitlines() if "ERROR" in line]
    assert len(errors) == 1 and "not numbers" in errors[0]


@pytest.mark.parametrize("content", [pytest.param(content, id=name) for name, content in broken_files()])
def test_broken_model(tmp_path, content):
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    assert_refused(run("serve", "--model", path), "broken.gguf")
    assert run("inspect", path).returncode == 78


def test_truncated_everywhere(tmp_path):
    """Cut at each of many places the file is refused, never mapped past its end."""
    size = MODEL.stat().st_size
    path = tmp_path / "cut.gguf"
    path.write_bytes(MODEL.read_bytes())
    for i in range(12, 0, -1):
        with open(path, "r+b") as file:
            file.truncate(size * i // 13 // 4096 * 4096)
        assert run("inspect", path).returncode == 78


def test_the_name_alone_says_what_to_type_next():
    result = run()
    assert result.returncode == 64 and result.stdout == ""
    for command in ("quire serve", "quire run", "quire chat", "quire inspect", "quire bench", "quire --help"):
        assert command in result.stderr
    listed = run("--help")
    assert listed.returncode == 0
    for command in ("serve", "run", "inspect", "key", "replay", "top", "chat", "bench"):
        assert f" quire {command} " in listed.stdout
        assert f"quire {command}" in run(command, "--help").stdout or command == "serve"
    unknown = run("srve")
    assert unknown.returncode == 64 and "unknown command 'srve'" in unknown.stderr and "quire serve" in unknown.stderr
