"""Every block of README.md and docs/ runs, or says by its kind why it cannot (snippets.NOT_RUN). There is no third way."""

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib

import pytest
import yaml

from options_of_quire import check_yaml_keys, check_words
from quire_server import CACHE, MODEL
from snippets import NOT_RUN, PAGES, ROOT, output_pattern, read_blocks

BLOCKS = [block for page in PAGES for block in read_blocks(page)]
CLIENTS = ("langchain", "litellm", "llama_index", "ollama")
START_SECONDS = 60


def named(language, *kinds, but=()):
    """A parameter `block` for each block of that language and of these kinds."""
    chosen = [block for block in BLOCKS if block.language == language and (not kinds or block.kind in kinds)
              and block.kind not in but]
    return pytest.mark.parametrize("block", chosen, ids=lambda block: block.name)


KNOWN = {
    "sh": {"", "serve", *NOT_RUN}, "python": {"", *CLIENTS}, "js": {"", "sdk"},
    "yaml": {"quire.yaml", "keys.yaml", "proxy", "program"}, "json": {"program"}, "toml": {"program"}, "nginx": {""},  # by test_nginx.py
    "ini": {"systemd"}, "text": {"prompt"},
}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_block_has_a_test(block):
    assert block.kind in KNOWN.get(block.language, set()), f"no test runs ```{block.language} {block.kind}"


def compare(block, output):
    if block.output is not None:
        shown = "\n".join(line.rstrip() for line in output.strip().splitlines())
        assert output_pattern(block.output).fullmatch(shown), f"printed:\n{shown}\nthe page says:\n{block.output}"


@named("sh", "")
def test_command_runs(block, stages):
    stage = stages(block.page)
    done = stage.run(["bash", "-euo", "pipefail", "-c", stage.text(block)])
    assert done.returncode == 0, done.stdout
    compare(block, done.stdout)


@named("sh", "serve")
def test_server_starts(block, stages, port, tmp_path):
    """A command that serves: it listens, and ends with status 0 when it is told to."""
    stage = stages(block.page)
    text = re.sub(r"--port \d+", "", stage.text(block)).rstrip()
    check_words(text)
    log = tmp_path / "log"
    environment = {**stage.environment, "QUIRE_PORT": str(port)}
    with open(log, "wb") as out:
        process = subprocess.Popen(["bash", "-euc", "exec " + text], cwd=stage.folder, env=environment, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + START_SECONDS
        while "listening on" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@named("sh", *NOT_RUN)
def test_command_that_cannot_run(block, stages, not_run):
    done = stages(block.page).run(["bash", "-n", "-c", block.text])
    assert done.returncode == 0, done.stdout
    if block.kind != "peer":
        check_words(block.text)
    not_run(block, NOT_RUN[block.kind])


@named("python")
def test_python_runs(block, stages, not_run):
    stage, python = stages(block.page), sys.executable
    text = stage.text(block)
    ast.parse(text)
    if block.kind:
        python = CACHE / "clients" / block.kind / "bin/python"
        if not python.exists():
            not_run(block, f"the environment of {block.kind} is not here: scripts/test makes it, some with --slow alone")
            return
    stage.environment["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    done = stage.run([python, "-c", text])
    assert done.returncode == 0, done.stdout
    compare(block, done.stdout)


@named("js")
def test_javascript_runs(block, stages, not_run):
    node = shutil.which("node")
    if node is None:
        not_run(block, "there is no node")
        return
    stage = stages(block.page)
    file = stage.folder / "snippet.mjs"
    file.write_text(stage.text(block))
    done = stage.run([node, *(["--check"] if block.kind == "sdk" else []), file])
    assert done.returncode == 0, done.stdout
    if block.kind == "sdk":
        not_run(block, NOT_RUN["sdk"])
    else:
        compare(block, done.stdout)


@named("yaml", "quire.yaml")
def test_configuration_is_taken(block, stages):
    """By the server's own reader, which plans the memory of the model with it."""
    stage = stages(block.page)
    check_yaml_keys(yaml.safe_load(block.text))
    file = stage.folder / "quire.yaml"
    file.write_text(stage.text(block))
    done = stage.run(["quire", "inspect", MODEL, "--plan", "--config", file])
    assert done.returncode == 0, done.stdout


@named("yaml", "keys.yaml")
def test_keys_are_taken(block, stages):
    stage = stages(block.page)
    (stage.folder / "keys.yaml").write_text(block.text)
    done = stage.run(["quire", "key", "check", "keys.yaml"])
    assert done.returncode == 0, done.stdout


@named("yaml", "proxy", "program")
def test_configuration_of_others(block, not_run):
    assert isinstance(yaml.safe_load(block.text), dict)
    not_run(block, NOT_RUN[block.kind])


@named("json", "program")
def test_json_configuration_of_others(block, not_run):
    assert isinstance(json.loads(block.text), dict)
    not_run(block, NOT_RUN[block.kind])


@named("toml", "program")
def test_toml_configuration_of_others(block, not_run):
    assert tomllib.loads(block.text)
    not_run(block, NOT_RUN[block.kind])


def test_container_file():
    """What the image starts with are options, and the page names the paths and the user that it has."""
    text, page = (ROOT / "Containerfile").read_text(), (ROOT / "docs/deploy.md").read_text()
    words = text.split("ENTRYPOINT", 1)[1]
    check_words(" ".join(json.loads(words[:words.index("]") + 1])))
    variables = dict(re.findall(r"(QUIRE_[A-Z_]+)=(\S+)", text))
    check_yaml_keys(name.removeprefix("QUIRE_").lower().replace("_", "-") for name in variables)
    assert f"`{variables['QUIRE_MODEL']}`" in page and "USER quire" in text


@named("ini", "systemd")
def test_unit(block, stages, not_run):
    """The sample unit with this drop-in."""
    if shutil.which("systemd-analyze") is None:
        not_run(block, "there is no systemd-analyze")
        return
    stage = stages(block.page)
    folder = stage.folder / "units"
    (folder / "quire.service.d").mkdir(parents=True, exist_ok=True)
    unit = (stage.folder / "config/quire.service").read_text()
    (folder / "quire.service").write_text(unit.replace("/usr/local/bin/quire", str(stage.folder / "bin/quire")))
    (folder / "quire.service.d/docs.conf").write_text(block.text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", "quire.service"], cwd=folder, text=True,
                          env={**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0 and "docs.conf" not in done.stdout, done.stdout
