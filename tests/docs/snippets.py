"""Reads the fenced blocks of README.md and docs/, and holds every rule of how they are tested: what an info string asks for,
what of a text is replaced, and what cannot run here.

An info string is a language and a kind: ```sh, ```sh serve, ```python langchain, ```yaml quire.yaml. A ```text block is the
output of the sh or python block before it, "..." in it stands for any text; ```text prompt is what a model reads. Blocks of a
page run in order, in one folder, and a file named by a kind (quire.yaml, keys.yaml) lies in that folder from its block on."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# Kinds that cannot run here, and why. Their syntax and their options of quire are checked all the same.
NOT_RUN = {
    "build": "installs packages and builds: what scripts/test, which runs this, does first itself",
    "root": "changes the machine that it runs on; scripts/package/check_install and check_tarball do the same in a system of their own",
    "container": "there is no container engine in the tests; scripts/package/check_container does what the Containerfile says",
    "cluster": "there is no Kubernetes cluster in the tests",
    "gpu": "needs an NVIDIA GPU",
    "files": "needs files of models that the tests do not fetch; test_adapters.py and test_classifiers.py in tests/e2e/api do the same",
    "machines": "needs Open MPI on several machines; tests/e2e/device/test_mpirun.py runs the same on one",
    "pair": "needs a server of each role and a proxy, which tests/e2e/device/test_prefill_decode.py has",
    "program": "starts a program that is not among those installed for the tests",
    "sdk": "needs a package of npm, which the tests do not install",
    "peer": "a command of another server",
    "proxy": "tests/e2e/clients/test_litellm.py runs the proxy with such a file",
}

FENCE = re.compile(r"^```(.*)$")


@dataclass
class Block:
    page: Path
    line: int
    language: str
    kind: str
    text: str
    output: str | None = None  # what the text block behind it says

    @property
    def name(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def read_blocks(page):
    blocks, opened, lines = [], None, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if fence and opened is None:
            opened, lines = (number, fence.group(1).strip()), []
        elif fence:
            start, info = opened
            language, _, kind = info.partition(" ")
            blocks.append(Block(page, start, language, kind, "\n".join(lines) + "\n"))
            opened = None
        elif opened:
            lines.append(line)
    assert opened is None, f"{page}: a fence is not closed"
    return join_outputs(blocks)


def join_outputs(blocks):
    joined = []
    for block in blocks:
        if block.language != "text" or block.kind == "prompt":
            joined.append(block)
            continue
        before = joined[-1] if joined else None
        assert before and before.language in ("sh", "python", "js") and before.output is None, \
            f"{block.name}: a text block follows the block whose output it is"
        before.output = block.text
    return joined


def localise(text, folder, model, address):
    """What of a page is replaced before it runs: where the server is, the model, and folders of the system."""
    host, port = address.split(":")
    for old, new in (("/var/lib/quire/model.gguf", str(model)),
                     ("/models/model.gguf", str(model)),
                     ("127.0.0.1:8000", address),
                     ("localhost:8000", f"localhost:{port}"),
                     ("/etc/quire/", f"{folder}/"),
                     ("/var/lib/quire/", f"{folder}/"),
                     ("/var/log/quire/", f"{folder}/"),
                     ("/run/quire/", f"{folder}/"),
                     ("0.0.0.0", host)):
        text = text.replace(old, new)
    return text


def output_pattern(text):
    """Of an expected output: trailing white space does not count, "..." is any text."""
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return re.compile(".*?".join(re.escape(part) for part in lines.split("...")), re.DOTALL)


def strip_code(text):
    """A page without its fenced blocks, the number of its lines kept."""
    return re.sub(r"^```.*?^```$", lambda block: "\n" * block.group(0).count("\n"), text,
                  flags=re.DOTALL | re.MULTILINE)


def slug(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", "")).replace(" ", "-")
