"""Packed weights in files: nobody can tell from the answers whether a start read the model or mapped a file, whatever happens
to the files."""

import os
import re
import resource
import shutil
import stat

import pytest

from quire_server import MODEL
from raw_http import wait_until
from test_admin_endpoints import post, sleep_state
from test_command_line import run
from test_mpirun import MPIRUN, needs_mpirun

SMALL = ("--max-model-len", 512, "--kv-cache-memory-bytes", "32M")
PROMPT = "The water cycle has three parts:"


def answers(server):
    """A greedy and a seeded text with its logprobs, and the fingerprint."""
    greedy = server.complete(PROMPT, max_tokens=24, logprobs=3)
    seeded = server.complete(PROMPT, max_tokens=24, temperature=1.0, seed=5)
    return greedy.choices[0].text, greedy.choices[0].logprobs.token_logprobs, seeded.choices[0].text, greedy.system_fingerprint


def files_of(folder):
    return sorted(folder.glob("*.packed"))


def has_mapped(server):
    return " mapped from " in server.read_log()


def fill(start_server, folder, *options, count=1):
    """Starts a server that writes files, and ends it once they are there; its answers."""
    server = start_server(*SMALL, "--packed-cache", folder, *options)
    assert not has_mapped(server), server.read_log()
    texts = answers(server)
    wait_until(lambda: server.read_log().count(" written to ") == count)
    assert server.terminate() == 0
    return texts


def mapped(start_server, folder, *options):
    """The answers of a server that maps."""
    server = start_server(*SMALL, "--packed-cache", folder, *options)
    assert has_mapped(server), server.read_log()
    texts = answers(server)
    assert server.terminate() == 0
    return texts


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


@pytest.mark.parametrize("options", [("--rank-process", "off"), ("--rank-process", "on"), ("--tensor-parallel-size", 2)])
def test_the_second_start_maps_and_answers_the_same(start_server, tmp_path, options):
    folder = tmp_path / "packed"
    num_ranks = 2 if "--tensor-parallel-size" in options else 1
    plain = start_server(*SMALL, *options)
    expected = answers(plain)
    assert plain.terminate() == 0
    assert fill(start_server, folder, *options, count=num_ranks) == expected
    files = files_of(folder)
    assert len(files) == num_ranks and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    for _ in range(2):
        assert mapped(start_server, folder, *options) == expected
    assert files_of(folder) == files and len(list(folder.iterdir())) == num_ranks


def test_a_damaged_file_is_never_used(start_server, tmp_path):
    folder = tmp_path / "packed"
    expected = fill(start_server, folder)
    file = files_of(folder)[0]
    size = file.stat().st_size
    for damage in (lambda: flip(file, 100), lambda: flip(file, size // 2), lambda: flip(file, size - 1),
                   lambda: os.truncate(file, size - 4096), lambda: os.truncate(file, 0)):
        damage()
        server = start_server(*SMALL, "--packed-cache", folder)
        assert not has_mapped(server) and "it is not used" in server.read_log()
        assert answers(server) == expected
        wait_until(lambda: " written to " in server.read_log())
        assert server.terminate() == 0
    assert mapped(start_server, folder) == expected


def test_other_options_and_another_file_are_not_found(start_server, tmp_path):
    folder, copy = tmp_path / "packed", tmp_path / "copy.gguf"
    shutil.copy(MODEL, copy)
    model = ("--model", copy)
    expected = fill(start_server, folder, *model)
    fill(start_server, folder, *model, "--cpu-isa", "portable", "--quantization", "int8")
    assert len(files_of(folder)) == 2
    assert mapped(start_server, folder, *model, "--max-num-seqs", 3)[:3] == expected[:3]
    os.rename(copy, tmp_path / "renamed.gguf")
    os.utime(tmp_path / "renamed.gguf")
    fill(start_server, folder, "--model", tmp_path / "renamed.gguf")
    assert len(files_of(folder)) == 3
    fill(start_server, folder, *SMALL, "--quantization", "int8", "--packed-cache-bytes", "200M")
    assert len(files_of(folder)) == 2  # of 92 MiB each


def test_without_a_folder_that_can_be_written_it_reads(start_server, tmp_path):
    (tmp_path / "file").write_text("")
    for folder in ("/proc/packed", tmp_path / "file" / "packed", tmp_path / "file"):
        server = start_server(*SMALL, "--packed-cache", folder)
        assert answers(server)[0] and not has_mapped(server)
        wait_until(lambda: re.search(r"WARNING packed-cache: ", server.read_log()))
        assert server.terminate() == 0


def test_a_short_disk_is_a_line_in_the_log(start_server, tmp_path):
    """A file may not be larger than 20 MB here, which ends a write as a full disk does."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000_000, usual[1]))
    try:
        server = start_server(*SMALL, "--packed-cache", tmp_path / "packed")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    wait_until(lambda: "the next start reads the model again" in server.read_log())
    assert answers(server)[0] and list((tmp_path / "packed").iterdir()) == []


@pytest.mark.parametrize("process", ["off", "on"])
def test_it_wakes_from_the_file(start_server, tmp_path, process):
    server = start_server(*SMALL, "--enable-admin", "--packed-cache", tmp_path / "packed", "--rank-process", process)
    expected = answers(server)
    wait_until(lambda: " written to " in server.read_log())
    for wakes in (1, 2):
        assert post(server, "/sleep?level=2") == {"is_sleeping": True} and sleep_state(server) == "discard_all"
        assert post(server, "/wake_up") == {"is_sleeping": False}
        assert server.read_log().count(" mapped from ") == wakes
        assert answers(server) == expected


@needs_mpirun
def test_ranks_of_mpirun_map_one_by_one(start_server, tmp_path):
    """Each process reads its own share, so one may map while the other reads; the fingerprint is that of both."""
    folder = tmp_path / "packed"

    def start():
        return start_server(*SMALL, "--packed-cache", folder, "--tensor-parallel-size", 2, launcher=[*MPIRUN, "-n", 2])

    expected = []
    for maps in (0, 2, 1):
        server = start()
        expected.append(answers(server))
        assert server.read_log().count(" mapped from ") == maps
        wait_until(lambda: len(files_of(folder)) == 2)
        server.terminate()  # mpirun says that its processes were ended
        if maps == 2:
            files_of(folder)[0].unlink()
    assert expected[0] == expected[1] == expected[2]


@needs_mpirun
def test_a_broadcast_has_no_cache(tmp_path):
    result = run("serve", "--model", MODEL, "--packed-cache", tmp_path, "--tensor-parallel-size", 2, "--load-mode", "broadcast",
                 launcher=[*MPIRUN, "-n", 2])
    assert result.returncode != 0 and "packed-cache: cannot be used with load-mode broadcast" in result.stderr
