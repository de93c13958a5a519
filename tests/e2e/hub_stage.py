"""What the tests of the hub share: fixtures for a hub (hub_server.py), a home of the cache, the environment that names both and
a `quire` to run in it; and how its answers are checked."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from hub_server import Hub
from quire_server import BINARY, ROOT, clean_environment

NAME = "org/tiny"
TOKEN = "hf_a-secret-of-the-tests"
FAMILY = ROOT / "tests/golden/families/llama3"


@pytest.fixture
def hub():
    with Hub(token=TOKEN) as started:
        yield started
        assert started.leaks == [], "a token came to another host"


@pytest.fixture
def home(tmp_path):
    return tmp_path / "huggingface"


@pytest.fixture
def environment(hub, home):
    kept = {name: value for name, value in clean_environment().items()
            if not name.startswith(("HF_", "HUGGING", "TRANSFORMERS_")) and not name.lower().endswith("_proxy")}
    return {**kept, "HF_ENDPOINT": hub.url, "HF_HOME": str(home)}


@pytest.fixture
def quire(environment):
    """quire(*words, **variables) -> the finished process; an interpreter's words come first where given."""
    def run(*words, before=(), timeout=100, **variables):
        done = subprocess.run([*before, str(BINARY), *map(str, words)], env={**environment, **variables}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout)
        assert TOKEN not in done.stdout + done.stderr
        return done
    return run


def pulled(done):
    """The path that a pull printed."""
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def refused(done, status, *words):
    """One line that says why, with these words in it, and no path."""
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert " ERROR " in last and all(word in last for word in words), last


def folder_files():
    return {file.name: file.read_bytes() for file in sorted(FAMILY.iterdir())}


def blobs(home, repository=NAME):
    return home / "hub" / ("models--" + repository.replace("/", "--")) / "blobs"


def wait_for_bytes(hub, name, count):
    deadline = time.monotonic() + 60
    while hub.sent[name] < count:
        assert time.monotonic() < deadline, "nothing comes"
        time.sleep(0.005)


def check_content(path, content):
    assert path.stat().st_size == content.size
    with open(path, "rb") as file:
        for piece in content.pieces(0, content.size):
            assert file.read(len(piece)) == piece
