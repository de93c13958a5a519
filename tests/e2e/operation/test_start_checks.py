"""What can be wrong is found before weights are read: in the page cache is next to nothing of the model's file then."""

import ctypes
import json
import mmap
import socket
import subprocess
import sys

import pytest

from quire_server import ROOT, free_port
from test_command_line import run

sys.path.insert(0, str(ROOT / "scripts/golden"))
from gguf_llama import Shape, write_model  # noqa: E402

LARGE = Shape(hidden=32768, ffn=131072, layers=32, heads=32, kv_heads=8, head_dim=128, vocab=2048, theta=500000.0, tied=False)
SMALL = Shape(hidden=1024, ffn=4096, layers=16, heads=16, kv_heads=8, head_dim=64, vocab=2048, theta=10000.0, tied=True)


def write_zeros(path, shape):
    write_model(path, "zeros", shape, "f16", lambda tensor: "f16", None)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Of 0.5 GB, a hole in the file, which nobody has read."""
    return write_zeros(tmp_path_factory.mktemp("zeros") / "small.gguf", SMALL)


def share_read(path):
    """What of the file's first GB is in the page cache."""
    size = min(path.stat().st_size, 1 << 30)
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size) as view:
        first = ctypes.c_char.from_buffer(view)
        status = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), pages)
        del first
    assert status == 0
    return sum(page & 1 for page in pages) / len(pages)


def assert_refused_unread(model, status, said, *words, port=0, **more):
    result = run("serve", "--model", model, "--port", port, *words, **more)
    assert result.returncode == status and said in result.stderr, result
    assert share_read(model) < 0.05


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Things of which each is wrong for an option."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "text").write_text("a: b: c\n")
    (folder / "other.gguf").symlink_to(ROOT / "tests/golden/tiny-q8_0.gguf")
    (folder / "broken.jinja").write_text("{% if %}")
    for name in ("one", "other"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x",
                        "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt"], check=True, capture_output=True)
    return folder


def draft_of(model):
    return "--speculative-config", json.dumps({"model": str(model), "num_speculative_tokens": 4})


OPTIONS = [
    (78, "host: cannot resolve", ("--host", "999.1.1.1.")),
    (71, "cannot listen on 192.0.2.1 port", ("--host", "192.0.2.1")),
    (71, "cannot listen on UNIX socket", ("--uds", "{place}/none/socket")),
    (71, "cannot listen on UNIX socket", ("--admin-socket", "{place}/none/socket")),
    (78, "none.crt", ("--ssl-certfile", "{place}/none.crt", "--ssl-keyfile", "{place}/one.key")),
    (78, "one.crt", ("--ssl-certfile", "{place}/one.crt", "--ssl-keyfile", "{place}/other.key")),
    (78, "api-key-file", ("--api-key-file", "{place}/none")),
    (78, "text", ("--api-key-file", "{place}/text")),
    (78, "access-log", ("--access-log", "{place}/none/log")),
    (78, "record", ("--record", "{place}/none/record")),
    (78, "record", ("--record", "{place}/text")),
    (78, "response-store-bytes", ("--response-store-bytes", "1")),
    (78, "chat-template", ("--chat-template", "{place}/none")),
    (78, "chat-template", ("--chat-template", "{place}/broken.jinja")),
    (78, "otlp-traces-endpoint", ("--otlp-traces-endpoint", "ftp://127.0.0.1")),
    (78, "speculative-config", ("--speculative-config", '{"method": "eagle"}')),
    (78, "speculative-config: model: {place}/none.gguf: cannot open", draft_of("{place}/none.gguf")),
    (78, "speculative-config: model: {place}/text: ", draft_of("{place}/text")),
    (78, "speculative-config: model: token 259 is \"Ġt\" in ", draft_of("{place}/other.gguf")),
    (78, "one rank only: tensor-parallel-size is 2, and must be 1", (*draft_of("{place}/none.gguf"), "--tensor-parallel-size", 2)),
    (78, "one rank only: pipeline-parallel-size is 2, and must be 1", (*draft_of("{place}/none.gguf"), "--pipeline-parallel-size", 2)),
    (78, "root-path", ("--root-path", "v1")),
    (78, "max-model-len: 262144; the model was trained for at most 131072", ("--max-model-len", "256k")),
    (78, "one sequence of --max-model-len 8192 needs", ("--max-model-len", "8k", "--kv-cache-memory-bytes", "64m")),
    (78, "the system has", ("--kv-cache-memory-bytes", "1000t")),
    (78, "tensor-parallel-size", ("--tensor-parallel-size", 9)),
    (78, "swap-space", ("--swap-space", "16000")),
    (78, "max-num-batched-tokens is 8", ("--max-num-seqs", 16, "--max-num-batched-tokens", 8)),
    (78, "cpu-isa", ("--cpu-isa", "none")),
    (78, "gpu-isa", ("--gpu-isa", "sm_70")),
    (78, "device cuda", ("--device", "cuda")),
]


@pytest.mark.parametrize("status, said, words", OPTIONS, ids=[" ".join(map(str, words)) for _, _, words in OPTIONS])
def test_an_option_that_is_wrong(model, place, status, said, words):
    assert_refused_unread(model, status, said.replace("{place}", str(place)), *(str(word).replace("{place}", str(place)) for word in words))


def test_before_a_download(place):
    missing = ("--chat-template", place / "none")
    result = run("serve", "--model", "org/name", "--port", 0, *missing, environment={"HF_ENDPOINT": "http://127.0.0.1:1", "HF_HOME": str(place)})
    assert result.returncode == 78 and "chat-template" in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("listens", [True, False])
def test_a_port_in_use(model, listens):
    """By a server that already listens, or one that still loads."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        if listens:
            taken.listen()
        port = taken.getsockname()[1]
        assert_refused_unread(model, 71, f"cannot listen on 127.0.0.1 port {port}: Address already in use", port=port)
        endpoint = json.dumps({"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://*:{port}"})
        assert_refused_unread(model, 78, "kv-events", "--kv-events-config", endpoint)


def test_a_socket_file_in_use(model, tmp_path):
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(tmp_path / "socket"))
        taken.listen()
        for option in "--uds", "--admin-socket":
            assert_refused_unread(model, 71, "cannot listen on UNIX socket", option, tmp_path / "socket")


def test_too_few_open_files(model):
    assert_refused_unread(model, 78, "limit of 40 open files", launcher=("sh", "-c", 'ulimit -n 40; exec "$@"', "sh"))


@pytest.mark.parametrize("processes", ["on", "off"])
def test_what_the_ranks_find(model, processes):
    """They are asked last, and another process may ask."""
    small = ("--max-model-len", "8k", "--kv-cache-memory-bytes", "64m", "--rank-process", processes)
    assert_refused_unread(model, 78, "one sequence of --max-model-len 8192 needs", *small)


def test_weights_that_do_not_fit(tmp_path):
    """Of 1 TB, more than a machine's memory that runs tests."""
    large = write_zeros(tmp_path / "large.gguf", LARGE)
    assert_refused_unread(large, 71, "out of memory for the weights: ")


def test_a_start_reads_the_weights(start_server, model):
    """What the others count is there to be counted."""
    start_server("--model", model)
    assert share_read(model) > 0.9
