"""`quire list`: the models in the hub's cache, and those that are named."""

import json
import subprocess

import pytest

from hub_stage import FAMILY, NAME, folder_files, pulled
from hub_stage import environment, home, hub, quire  # noqa: F401 (fixtures)
from quire_server import BINARY, MODEL, clean_environment


def planned_mib():
    plan = subprocess.run([BINARY, "inspect", MODEL, "--plan"], env=clean_environment(), text=True, capture_output=True).stdout
    return float(next(line for line in plan.splitlines() if line.startswith("total")).split()[1])


def test_list(hub, quire, tmp_path):
    hub.add(NAME, folder_files())
    hub.add("org/broken", {"m.gguf": b"GGUF"})
    pulled(quire("pull", NAME))
    pulled(quire("pull", "org/broken"))
    (tmp_path / "models").mkdir()
    (tmp_path / "models/smol.gguf").symlink_to(MODEL)
    for _ in range(20):  # a part of the memory at hand is planned, which changes as other programs take it
        total = planned_mib()
        done = quire("list", tmp_path / "models", "--json")
        assert done.returncode == 0, done.stderr
        if abs(planned_mib() - total) < 8:
            break
    models = {model["name"]: model for model in json.loads(done.stdout)["models"]}
    assert list(models) == ["org/broken:m.gguf", NAME, f"{tmp_path}/models/smol.gguf"]
    assert models[NAME]["family"] and models[NAME]["fits"] and models[NAME]["problem"] is None
    assert models["org/broken:m.gguf"]["problem"] and not models["org/broken:m.gguf"]["fits"]
    smol = models[f"{tmp_path}/models/smol.gguf"]
    assert (smol["family"], smol["weights"], smol["bytes"]) == ("llama", "Q4_1", MODEL.stat().st_size)
    assert smol["memory_bytes"] / 2**20 == pytest.approx(total, abs=16)
    table = quire("list").stdout.splitlines()
    assert table[0].split() == ["NAME", "FAMILY", "WEIGHTS", "SIZE", "FITS"] and len(table) == 3
    assert table[2].split()[0] == NAME and table[2].split()[-1] == "yes"


def test_list_names_what_can_be_served(hub, quire):
    hub.add(NAME, {"m.Q8_0.gguf": MODEL.read_bytes()})
    commit = hub.add(NAME, {"m.Q4_1.gguf": MODEL.read_bytes()}, revision="v2")
    pulled(quire("pull", NAME))
    pulled(quire("pull", NAME + "@v2"))
    names = [model["name"] for model in json.loads(quire("list", "--json").stdout)["models"]]
    assert sorted(names) == [f"{NAME}:m.Q8_0.gguf", f"{NAME}@v2:m.Q4_1.gguf"]
    for name in names:
        assert pulled(quire("pull", name, HF_HUB_OFFLINE="1")).exists()
    assert pulled(quire("pull", f"{NAME}@{commit}", HF_HUB_OFFLINE="1")).name == "m.Q4_1.gguf"


NASTY = "a\x1b]0;owned\x07\x1b[2J\nb\x9b31m\u202ec"


def test_names_do_not_reach_a_terminal_as_commands(quire, tmp_path):
    """A file's name, and what a file says of itself."""
    folder = tmp_path / "models"
    folder.mkdir()
    path = folder / f"{NASTY}.gguf"
    content = MODEL.read_bytes()
    name = b"general.name" + (8).to_bytes(4, "little")
    begin = content.index(name) + len(name)
    length = int.from_bytes(content[begin:begin + 8], "little")
    evil = b"\x1b[2J\n\x7f".ljust(length, b"x")[:length]
    path.write_bytes(content[:begin + 8] + evil + content[begin + 8 + length:])
    (folder / f"{NASTY}2.gguf").write_bytes(b"none")
    table = quire("list", folder)
    assert table.returncode == 0 and table.stdout.count("a?]0;owned??[2J?b??31m???c") == 3  # of one the problem too
    assert len(table.stdout.splitlines()) == 3
    shown = quire("inspect", path)
    refused = quire("inspect", folder / f"{NASTY}2.gguf")
    assert shown.returncode == 0 and refused.returncode != 0
    for text in (table.stdout, shown.stdout, refused.stderr):
        assert not set(text) & set(map(chr, [*range(10), *range(11, 32), *range(127, 160), 0x202e])), text
    assert "?[2J??x" in shown.stdout


def test_list_of_nothing(quire, tmp_path):
    assert json.loads(quire("list", "--json").stdout) == {"models": []}
    assert quire("list", tmp_path / "missing").returncode == 78
    assert quire("list", "--what").returncode == 64
