"""How much memory is taken: the context that fits the KV cache where none is asked for, and the limits of control groups."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from quire_server import BINARY, MODEL, NAME, ROOT
from test_command_line import assert_refused, run
from test_mpirun import MPIRUN, needs_mpirun

MODULE = BINARY.parents[1] / "kernels/cuda/libquire-cuda-sim.so"
TINY = ROOT / "tests/golden/tiny-f32.gguf"  # 256 tokens, 16 KiB of keys and values for 16
MEMORY = Path("/sys/fs/cgroup/memory")  # of version 1


def lengths(server):
    info = server.client().models.list().data[0]
    return info.max_model_len, server.post("/tokenize", {"prompt": "a"}).json()["max_model_len"]


def fingerprint(server):
    return server.complete("a", max_tokens=1).system_fingerprint


def complete_log(server):
    """mpirun passes lines on when it likes."""
    deadline = time.monotonic() + 10
    while "listening on" not in server.read_log() and time.monotonic() < deadline:
        time.sleep(0.01)
    return server.read_log()


@pytest.mark.parametrize("options, launcher", [
    ((), ()), (("--rank-process", "on"), ()), (("--tensor-parallel-size", 2), ()),
    pytest.param(("--tensor-parallel-size", 2), (*MPIRUN, "-n", 2), marks=needs_mpirun)])
def test_the_context_that_fits(start_server, options, launcher):
    small = ("--kv-cache-memory-bytes", "20M", "--served-model-name", NAME, *options)
    server = start_server(*small, launcher=launcher)
    said = re.findall(r"context +(\d+) tokens fit --kv-cache-memory-bytes; the model's 8192 need 180.0 MiB .*--max-model-len", complete_log(server))
    assert len(said) == 1
    chosen = int(said[0])
    assert lengths(server) == (chosen, chosen) and chosen == (20 << 20) // (16 * 23040) * 16
    reply = server.post("/v1/completions", {"prompt": "a", "max_tokens": chosen, "model": NAME})
    assert reply.status_code == 400 and reply.json()["error"]["code"] == "context_length_exceeded"
    assert server.complete("word " * (chosen - 200), max_tokens=1).usage.completion_tokens == 1
    same = start_server(*small, "--max-model-len", chosen, launcher=launcher)
    assert fingerprint(same) == fingerprint(server) and f"context    {chosen} tokens, by --max-model-len" in complete_log(same)


def test_a_length_is_kept(start_server):
    """Asleep at level 2 all of the ranks goes; what they are woken with is what they had."""
    server = start_server("--kv-cache-memory-bytes", "20M", "--enable-admin")
    before = lengths(server)
    assert server.post("/sleep?level=2", {}).status_code == 200
    assert server.post("/wake_up", {}).status_code == 200
    assert lengths(server) == before and server.complete("a", max_tokens=1).usage.completion_tokens == 1


@pytest.mark.parametrize("words, said", [
    (("--max-model-len", "8k", "--kv-cache-memory-bytes", "20m"), "one sequence of --max-model-len 8192 needs 188743680 bytes"),
    (("--kv-cache-memory-bytes", "1000"), "one sequence of --max-model-len 16 needs"),
    (("--max-model-len", "8x"), "suffix K, M, G or T allowed, or auto")])
def test_what_cannot_fit_is_refused(words, said):
    assert_refused(run("serve", "--model", MODEL, "--port", 0, *words), said)


@pytest.mark.skipif(not MODULE.exists(), reason="the simulated device is not built")
def test_the_context_that_fits_a_gpu(start_server):
    environment = {"LD_LIBRARY_PATH": str(MODULE.parent), "QUIRE_CUDASIM_MEMORY": str(96 << 20)}
    options = ("--device", "cuda-sim", "--model", TINY, "--max-num-seqs", 2, "--max-num-batched-tokens", 32, "--batch-invariant")
    server = start_server(*options, "--kv-cache-memory-bytes", 4096 * 9, environment=environment)
    assert lengths(server) == (144, 144)
    assert start_server(*options, environment=environment).client().models.list().data[0].max_model_len == 256


# Control groups.

def memory_group():
    """A folder for groups of one's own; None: none can be made here. Of version 2 the unit tests have trees alone."""
    folder = MEMORY / f"quire-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        return None
    folder.rmdir()
    return folder


@pytest.fixture
def group():
    outer = memory_group()
    inner = outer / "container"
    outer.mkdir()
    inner.mkdir()
    yield outer, inner
    inner.rmdir()
    outer.rmdir()


def run_in(group, script):
    enter = f"echo $$ > {group}/cgroup.procs"
    return subprocess.run(["sh", "-ec", f"{enter}\n{script}"], capture_output=True, text=True, timeout=300, check=True).stdout


def kv_bytes(group):
    output = run_in(group, f"{BINARY} inspect {MODEL} --plan")
    return float(re.search(r"KV cache +([\d.]+) MiB", output)[1]) * (1 << 20), output


@pytest.mark.skipif(memory_group() is None, reason="needs to make control groups of version 1 for memory")
def test_a_container_of_1_gib(group, tmp_path):
    """Nested in what is limited, with its page cache full of a file that was copied, and in one that is too small for all."""
    outer, inner = group
    (outer / "memory.limit_in_bytes").write_text(str(1 << 30))
    chosen, _ = kv_bytes(inner)
    assert 308 << 20 < chosen < 436 << 20  # a context of 180 MiB and a quarter of what weights and steps leave
    script = f"dd if=/dev/zero of={tmp_path}/copy bs=1M count=1000 2>/dev/null; cat {tmp_path}/copy > /dev/null; "
    output = run_in(inner, script + f"cat {outer}/memory.usage_in_bytes; {BINARY} inspect {MODEL} --plan")
    assert int(output.splitlines()[0]) > 900 << 20  # the cache is full
    cached = float(re.search(r"KV cache +([\d.]+) MiB", output)[1]) * (1 << 20)
    assert 0.9 * chosen < cached <= chosen
    (inner / "memory.limit_in_bytes").write_text(str(400 << 20))
    chosen, output = kv_bytes(inner)
    assert 64 << 20 < chosen < 180 << 20
    assert re.search(r"context +\d+ tokens fit half of the available memory; the model's 8192", output)
