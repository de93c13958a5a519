"""The server that pages talk to, a scratch folder for each page, and the list of what was not run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from hub_server import Hub  # noqa: E402
from quire_server import BINARY, MODEL, QuireServer, clean_environment, free_port  # noqa: E402
from snippets import ROOT, localise  # noqa: E402

NOT_RUN = pytest.StashKey()


class Stage:
    """Where the blocks of one page run: a folder with `quire` on the path and what the repository has in config/."""

    def __init__(self, folder, server, hub):
        self.folder, self.server = folder, server
        (folder / "bin").mkdir()
        (folder / "bin/quire").symlink_to(BINARY.resolve())
        for name in ("config", "scripts"):
            (folder / name).symlink_to(ROOT / name)
        self.environment = clean_environment(
            PATH=f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}", HOME=str(folder), HF_HOME=str(folder / "huggingface"),
            HF_ENDPOINT=hub.url)

    def text(self, block, address=None):
        return localise(block.text, self.folder, MODEL, address or self.server.url.removeprefix("http://"))

    def run(self, command, **options):
        return subprocess.run([str(word) for word in command], cwd=self.folder, env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, **options)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Its answers end, as some blocks set no max_tokens."""
    started = QuireServer(tmp_path_factory.mktemp("docs") / "server.log", "--admin-socket", tmp_path_factory.mktemp("a") / "s",
                          "--max-model-len", 1024, "--response-store-bytes", "1M")
    yield started
    started.kill()


@pytest.fixture(scope="session")
def hub():
    """Has what the pages fetch, for which the small model stands, and what repositories that they only name list."""
    with Hub() as started:
        started.add("bartowski/SmolLM2-135M-Instruct-GGUF", {"SmolLM2-135M-Instruct-Q4_K_M.gguf": MODEL.read_bytes(),
                                                             "SmolLM2-135M-Instruct-Q8_0.gguf": b"not fetched"})
        for name, files in json.loads((Path(__file__).parent / "hub_files.json").read_text()).items():
            started.add(name, {file: MODEL.read_bytes() if "Q4_K_M" in file else file.encode() for file in files})
        yield started


@pytest.fixture(scope="session")
def stages(server, hub, tmp_path_factory):
    """stages(page) -> Stage, the same for all blocks of a page."""
    made = {}

    def get(page):
        if page not in made:
            made[page] = Stage(tmp_path_factory.mktemp(page.stem), server, hub)
        return made[page]
    return get


@pytest.fixture
def not_run(request):
    """not_run(block, reason): names a block that could not run, at the end of the output."""
    def note(block, reason):
        request.config.stash.setdefault(NOT_RUN, []).append(f"{block.name} ({block.language} {block.kind}): {reason}")
    return note


def pytest_collection_modifyitems(items):
    """Blocks of a page in their order: what one writes, a later one reads."""
    def place(item):
        block = getattr(item, "callspec", None) and item.callspec.params.get("block")
        return (str(block.page), block.line) if block else ("", 0)
    items.sort(key=place)


def pytest_terminal_summary(terminalreporter, config):
    for line in config.stash.get(NOT_RUN, []):
        terminalreporter.write_line(f"not run: {line}")


@pytest.fixture
def port():
    return free_port()
