"""What the pages say apart from their blocks: links, options, codes of errors, exit statuses."""

import re
import subprocess

import pytest

from options_of_quire import FLAG, all_options, serve_options
from quire_server import BINARY, MODEL, clean_environment
from snippets import PAGES, ROOT, slug, strip_code

HUB_NAME = re.compile(r"\b[\w-]+/[\w.-]+-GGUF:Q\w+")
LINK = re.compile(r"\]\(([^)\s]+)\)")
ids = {"argvalues": PAGES, "ids": lambda page: page.name}


def sources():
    """The texts of the rooms that answer clients."""
    return [file.read_text() for room in ("config", "engine", "server") for file in (ROOT / room).rglob("*.c")]


def headings(page):
    found = set()
    for line in strip_code(page.read_text()).splitlines():
        if line.startswith("#"):
            found.add(slug(line.lstrip("#")))
    return found


@pytest.mark.parametrize("page", **ids)
def test_links_lead_somewhere(page):
    for target in LINK.findall(strip_code(page.read_text())):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists() and ROOT in (file, *file.parents), f"{target} does not exist"
        assert not anchor or anchor in headings(file), f"{target}: no such heading"


@pytest.mark.parametrize("page", **ids)
def test_code_is_fenced(page):
    """Indented code would escape the test of blocks."""
    lines = strip_code(page.read_text()).splitlines()
    assert not [line for before, line in zip(lines, lines[1:]) if not before.strip() and line.startswith("    ")]


def test_index_names_every_page():
    index = (ROOT / "docs/README.md").read_text()
    assert all(f"({page.name})" in index for page in PAGES if page.parent.name == "docs" and page.name != "README.md")


def test_package_has_every_page():
    installed = (ROOT / "scripts/package/contents.txt").read_text().splitlines()
    build = (ROOT / "scripts/package/meson.build").read_text()
    pages = [page.name for page in PAGES if page.parent.name == "docs"]
    assert [name for name in pages if f"./usr/share/doc/quire/docs/{name}" not in installed or f"'{name}'" not in build] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "migrating.md"], ids=lambda page: page.name)
def test_options_exist(page):
    for code in re.findall(r"`([^`\n]+)`", strip_code(page.read_text())):
        if code.startswith("--") or code.startswith("quire "):
            assert set(FLAG.findall(code)) <= all_options(), code


def migrating_rows():
    text = (ROOT / "docs/migrating.md").read_text()
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    return rows


def test_counterparts_exist():
    for row in migrating_rows():
        for code in re.findall(r"`(--[^`]+)`", " ".join(row[1:2])):
            assert set(FLAG.findall(code)) <= all_options(), row
        assert row[1], f"{row[0]} has no word on what it becomes"


def test_every_option_is_spoken_of():
    """Each option of serve stands on some page."""
    words = set(FLAG.findall(" ".join(page.read_text() for page in PAGES)))
    words |= {name.removeprefix("no-") for name in words}
    assert sorted(serve_options() - words - {"help", "no"}) == []


@pytest.mark.parametrize("page", **ids)
def test_models_of_a_hub_are_found(page, stages, hub):
    """Each ORG/NAME:QUANTISATION of a page is one file of what that repository lists (hub_files.json)."""
    for name in set(HUB_NAME.findall(page.read_text())):
        done = stages(page).run(["quire", "pull", name])
        assert done.returncode == 0, done.stdout
        assert done.stdout.strip().endswith(f"-{name.partition(':')[2]}.gguf"), done.stdout


def errors_of_source():
    """(status, code) of each refusal that is written out in the source."""
    pattern = re.compile(r'\b([45]\d\d),\s*"[a-z_]+",\s*"([a-z_]+)"')
    found = {pair for text in sources() for pair in pattern.findall(text)}
    found |= {("400", code) for text in sources() for code in re.findall(r'\bbad_request\([^,]+,\s*"([a-z_]+)"', text)}
    assert len(found) > 35
    return found


def errors_of_page():
    text = (ROOT / "docs/memory.md").read_text()
    rows = re.findall(r"^\| ((?:\d{3}(?:, )?)+) \| `([a-z_]+)` \|", text, re.MULTILINE)
    return {(status, code) for statuses, code in rows for status in statuses.split(", ")}


def test_every_refusal_is_explained():
    assert sorted(errors_of_source() - errors_of_page()) == []


def test_explained_refusals_exist():
    source = "\n".join(text for text in sources())
    assert [code for _, code in errors_of_page() if f'"{code}"' not in source] == []


@pytest.mark.parametrize("status, arguments", [
    (0, ["--version"]),
    (64, ["bogus"]),
    (69, ["top", "http://127.0.0.1:9", "--once"]),
    (71, ["serve", "--model", MODEL, "--port", "0", "--host", "192.0.2.1"]),
    (78, ["serve", "--model", MODEL, "--port", "x"]),
    (78, ["serve", "--model", "/nonexistent"]),
])
def test_exit_status(status, arguments):
    done = subprocess.run([str(word) for word in [BINARY, *arguments]], env=clean_environment(), capture_output=True, timeout=60)
    assert done.returncode == status, done.stderr
    assert f"| {status} |" in (ROOT / "docs/memory.md").read_text()
