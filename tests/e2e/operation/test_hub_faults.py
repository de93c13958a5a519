"""Downloads that break, stall, lie or are killed, several at once, and disks that fill: a file that counts has the right
bytes, and one line says what to do."""

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from hub_server import Bytes, Content
from hub_stage import NAME, blobs, check_content, folder_files, pulled, refused, wait_for_bytes
from hub_stage import environment, home, hub, quire  # noqa: F401 (fixtures)
from quire_server import BINARY

# --- What goes wrong on the way --------------------------------------------------------------------------------------


def test_connections_that_break_at_random(hub, quire):
    content, rng = Content(20_000_000), random.Random(7)
    hub.add(NAME, {"m.gguf": content})
    hub.faults.cut = lambda: rng.randrange(0, 6_000_000)
    check_content(pulled(quire("pull", NAME)), content)
    # Bytes in flight when a connection breaks may be sent again; whole files are not.
    assert content.size <= hub.sent["m.gguf"] < 2 * content.size


def test_connections_that_break_where_ranges_are_ignored(hub, quire):
    content, limits = Content(3_000_000), iter([1_000_000, 2_000_000])
    hub.add(NAME, {"m.gguf": content})
    hub.faults.ignores_range, hub.faults.cut = True, lambda: next(limits, None)
    check_content(pulled(quire("pull", NAME)), content)


def test_a_hub_that_always_breaks_off_is_given_up(hub, quire):
    hub.add(NAME, {"m.gguf": Content(3_000_000)})
    hub.faults.cut = lambda: 0
    done = quire("pull", NAME)
    refused(done, 69, "m.gguf")
    assert done.stderr.count("again in") == 5


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408, None])
@pytest.mark.parametrize("part", ["/api/models", "HEAD", "front GET /org", "store GET"])
def test_what_may_be_tried_again(hub, quire, status, part):
    content = Content(100_000)
    hub.add(NAME, {"m.gguf": content})
    hub.faults.answers = [(part, status, {})]
    done = quire("pull", NAME)
    check_content(pulled(done), content)
    # A connection that was kept and is closed without an answer is libcurl's to open again.
    assert done.stderr.count("again in 0.5 s") in ([1] if status else [0, 1]) and hub.faults.answers == []


def test_retry_after_is_obeyed(hub, quire):
    hub.add(NAME, {"m.gguf": b"x"})
    hub.faults.answers = [("HEAD", 429, {"Retry-After": "1"})]
    assert "again in 1.0 s" in quire("pull", NAME).stderr
    hub.add(NAME, {"m.gguf": b"y"})
    hub.faults.answers = [("HEAD", 429, {"Retry-After": "3600"})]
    refused(quire("pull", NAME), 69, "too many requests", "HF_TOKEN")


def test_a_connection_that_stands_still_counts_as_lost(hub, quire):
    content = Content(2_000_000)
    hub.add(NAME, {"m.gguf": content})
    hub.faults.stalls.add("m.gguf")
    done = quire("pull", NAME, HF_HUB_DOWNLOAD_TIMEOUT="1")
    check_content(pulled(done), content)
    assert "in time; again in" in done.stderr


@pytest.mark.parametrize("name", ["", "m.gguf"])
def test_a_connection_that_drips_counts_as_lost(hub, quire, name):
    """Ten bytes a second, of a listing or of a file: it is never silent, and would take for ever."""
    content = Content(2_000_000)
    hub.add(NAME, {"m.gguf": content})
    hub.faults.drips.add(name)
    done = quire("pull", NAME, HF_HUB_DOWNLOAD_TIMEOUT="1")
    check_content(pulled(done), content)
    assert "too little of it, in time; again in" in done.stderr and not hub.faults.drips


def test_wrong_bytes_never_count(hub, quire, home):
    hub.add(NAME, {"m.gguf": Content(500_000), "config.json": b"small"})
    hub.faults.wrong_bytes.add("m.gguf")
    refused(quire("pull", NAME), 69, "m.gguf", "another hash")
    assert list(blobs(home).iterdir()) == []
    hub.faults.wrong_bytes.clear()
    assert pulled(quire("pull", NAME)).stat().st_size == 500_000


def test_wrong_bytes_of_a_small_file(hub, quire, home):
    hub.add(NAME, folder_files())
    hub.faults.wrong_bytes.add("config.json")
    refused(quire("pull", NAME), 69, "config.json", "another hash")


@pytest.mark.parametrize("size", [499_999, 500_001, 1])
def test_wrong_sizes(hub, quire, home, size):
    hub.add(NAME, {"m.gguf": Content(500_000)})
    hub.faults.body_size["m.gguf"] = size
    refused(quire("pull", NAME), 69, "m.gguf")
    hub.faults.body_size = {}
    hub.faults.linked_size["m.gguf"] = size
    refused(quire("pull", NAME), 69, "m.gguf")
    assert not any(blob.name.count(".") == 0 for blob in blobs(home).iterdir())


def test_a_hub_without_hashes(hub, quire):
    hub.add(NAME, {"m.gguf": b"content"})
    hub.faults.without_hashes = True
    done = quire("pull", NAME)
    assert pulled(done).read_bytes() == b"content"
    assert "no hash" in done.stderr


def test_what_an_earlier_run_left_is_not_fetched_again(hub, quire, home):
    content = Content(5_000_000)
    hub.add(NAME, {"m.gguf": content})
    blobs(home).mkdir(parents=True)
    (blobs(home) / f"{content.sha256}.incomplete").write_bytes(b"".join(map(bytes, content.pieces(0, 3_000_000))))
    check_content(pulled(quire("pull", NAME)), content)
    assert hub.begins == [("m.gguf", 3_000_000)] and hub.sent["m.gguf"] == 2_000_000


@pytest.mark.parametrize("left", [b"?" * 3_000_000, b"?" * 5_000_000, b"?" * 6_000_000])
def test_what_an_earlier_run_left_may_be_wrong(hub, quire, home, left):
    content = Content(5_000_000)
    hub.add(NAME, {"m.gguf": content})
    blobs(home).mkdir(parents=True)
    (blobs(home) / f"{content.sha256}.incomplete").write_bytes(left)
    check_content(pulled(quire("pull", NAME)), content)


def test_another_content_begins_anew(hub, quire, home, environment):
    """The bytes of a commit that is gone are not those of the next."""
    first, second = Content(50_000_000), Content(5_000_000, b"another")
    hub.add(NAME, {"m.gguf": first})
    hub.faults.seconds_per_chunk = 0.02
    process = subprocess.Popen([BINARY, "pull", NAME], env=environment, stderr=subprocess.DEVNULL)
    wait_for_bytes(hub, "m.gguf", 2_000_000)
    process.kill()
    process.wait()
    hub.faults.seconds_per_chunk = 0
    hub.add(NAME, {"m.gguf": second})
    hub.forget()
    check_content(pulled(quire("pull", NAME)), second)
    assert hub.sent["m.gguf"] >= second.size
    assert (blobs(home) / f"{first.sha256}.incomplete").exists()


def test_killed_twenty_times(hub, environment, quire, home):
    content, rng = Content(40_000_000), random.Random(3)
    hub.add(NAME, {"m.gguf": content})
    hub.faults.seconds_per_chunk = 0.01
    for _ in range(20):
        process = subprocess.Popen([BINARY, "pull", NAME], env=environment, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, 0.12))
        process.kill()
        process.wait()
    hub.faults.seconds_per_chunk = 0
    left = sum(blob.stat().st_size for blob in blobs(home).iterdir()) if blobs(home).exists() else 0
    hub.forget()
    check_content(pulled(quire("pull", NAME)), content)
    assert left > 0 and hub.begins == [("m.gguf", left)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once(hub, environment, quire, home, number):
    content = Content(50_000_000)
    hub.add(NAME, {"m.gguf": content})
    hub.faults.seconds_per_chunk = 0.1
    process = subprocess.Popen([BINARY, "pull", NAME], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_bytes(hub, "m.gguf", 1_000_000)
    process.send_signal(number)
    out, log = process.communicate(timeout=20)
    assert process.returncode == 75 and out == ""
    assert "interrupted; the downloaded part is kept" in log.splitlines()[-1]
    left = sum(blob.stat().st_size for blob in blobs(home).iterdir())
    assert left > 0
    hub.faults.seconds_per_chunk = 0
    hub.forget()
    check_content(pulled(quire("pull", NAME)), content)
    assert hub.begins == [("m.gguf", left)]


# --- Several at once ---------------------------------------------------------------------------------------------------


def test_two_processes_fetch_each_byte_once(hub, environment):
    files = {f"model-{i}.safetensors": Content(2_000_000 + i, b"shard%d" % i) for i in range(8)}
    index = json.dumps({"weight_map": {name: name for name in files}}).encode()
    hub.add(NAME, {**files, "config.json": b"{}", "tokenizer.json": b"[]", "model.safetensors.index.json": index})
    hub.faults.seconds_per_chunk = 0.02
    both = [subprocess.Popen([BINARY, "pull", NAME], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)]
    paths = set()
    for process in both:
        out, log = process.communicate(timeout=100)
        assert process.returncode == 0, log
        paths.add(out)
    assert len(paths) == 1
    folder = Path(paths.pop().strip())
    for name, content in files.items():
        check_content(folder / name, content)
        assert hub.sent[name] == content.size


def test_the_second_process_says_that_it_waits(hub, environment, quire):
    hub.add(NAME, {"m.gguf": Content(10_000_000)})
    hub.faults.seconds_per_chunk = 0.05
    first = subprocess.Popen([BINARY, "pull", NAME], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_bytes(hub, "m.gguf", 1_000_000)
    second = quire("pull", NAME)
    assert first.wait(60) == 0
    assert "waiting    for m.gguf, which is being fetched already" in second.stderr
    assert pulled(second).exists() and hub.sent["m.gguf"] == 10_000_000


def test_two_files_of_one_content(hub, quire):
    hub.add(NAME, {**folder_files(), "chat_template.jinja": b"{{ x }}", "chat_template.json": b"{{ x }}"})
    path = pulled(quire("pull", NAME))
    assert os.readlink(path / "chat_template.jinja") == os.readlink(path / "chat_template.json")


# --- The disk ----------------------------------------------------------------------------------------------------------


def test_a_disk_that_is_too_small(hub, quire, home):
    hub.add(NAME, {"m.gguf": Content(1000)})
    hub.faults.linked_size["m.gguf"] = 1 << 49
    refused(quire("pull", NAME), 71, "512.0 TiB are to come", "HF_HUB_CACHE")
    assert hub.bytes_sent() == 0


def test_a_disk_that_fills_meanwhile(hub, quire, home):
    """A file that may not grow stands for it."""
    hub.add(NAME, {"m.gguf": Content(10_000_000)})
    done = quire("pull", NAME, before=["prlimit", "--fsize=2000000"])
    refused(done, 71, "cannot write", "HF_HUB_CACHE")
    assert [blob.stat().st_size for blob in blobs(home).iterdir()] == [2_000_000]


def test_a_cache_that_cannot_be_written(hub, quire, tmp_path):
    hub.add(NAME, {"m.gguf": b"x"})
    (tmp_path / "file").write_text("")
    refused(quire("pull", NAME, HF_HUB_CACHE=str(tmp_path / "file/hub")), 71, "cannot make this folder", "HF_HUB_CACHE")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_a_cache_of_another_user(hub, environment):
    hub.add(NAME, {"m.gguf": b"x"})
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        shutil.copy(BINARY, f"{folder}/quire")
        Path(folder, "hub").mkdir()
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"{folder}/quire", "pull", NAME],
                              env={**environment, "HF_HOME": folder}, text=True, capture_output=True, timeout=100)
    refused(done, 71, "Permission denied", "make it writable")
