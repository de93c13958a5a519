#!/usr/bin/env python3
"""Checks the pages of the tree: a folder's README.md has at most 80 lines, and what pages call a source file, a
folder, a test or a link's target (with its heading) exists. Prints each offence as FILE:LINE; exits 1 when there is any.
Usage: check_readmes.py ROOT

A name counts when it ends as a source does (`name.c`), stands in backticks and begins with a folder (`engine/kv`), or,
in a README.md, is in the first column of a table of files or folders (`| file |`) or begins a line of an indented picture.
Capitals in it stand for anything: `cpu_gemm_LEVEL.c`. A test is `FILE::FUNCTION`, the file as seen from the page; in a table of
promises (`| promise | test |`) every row has one, but for those that are a heading (`| **heading** | |`).
"""

import fnmatch
import posixpath
import re
import sys
from pathlib import Path

MAX_LINES = 80
FOLDERS = ["config", "docs", "engine", "kernels", "models", "scripts", "server", "subprojects/packagefiles", "tests"]
ENDS_AS_A_SOURCE = re.compile(r"(?:\./)?(\w[\w./*-]*\.(?:c|h|cu|cuh|cpp|py|sh))")
A_PATH = re.compile(r"(?:\./)?(\w[\w.*-]*(?:/[\w.*-]*)+)")
A_NAME = re.compile(r"[a-z][\w.*/-]+")
PICTURE = re.compile(r" {4,}((?:[a-z]\w*_\w+(?:, |  ))+)")
A_TEST = re.compile(r"`([\w./-]+)::(\w+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")

# Pages and names of other programs' files, and of what a build unpacks.
OTHERS = {"CHANGELOG.md", "docs/migrating.md", "server/FIELDS.md", "tests/golden/chat_templates/SOURCES.md"}
OTHER_NAMES = {"llama.cpp", "vendor/llama.cpp", "jinja2/lexer.py", "parser.py", "filters.py", "sandbox.py",
               "subprojects/libmicrohttpd-0.9.75"}


class Tree:
    def __init__(self, root):
        files = [path for path in root.iterdir() if path.is_file()]
        for folder in FOLDERS:
            files += [path for path in (root / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        paths = {path.relative_to(root).as_posix() for path in files}
        self.root = root
        self.pages = {path: (root / path).read_text() for path in sorted(paths) if path.endswith(".md")}
        folders = {parent.as_posix() for path in paths for parent in Path(path).parents}
        # As "/a/b.c", "/a/b" and "/a", so that a name can be searched as the end of one.
        self.paths = {f"/{path}" for path in paths | {path.rsplit(".", 1)[0] for path in paths} | folders}
        self.ends = {path[i:] for path in self.paths for i, sign in enumerate(path) if sign == "/"}

    def has(self, name, under=""):
        """Whether a file or folder below `under` has a path that ends with the name."""
        name = "/" + re.sub(r"[A-Z]{2,}(?!\w*\.md)", "*", name).strip("/")
        if "*" not in name and not under:
            return name in self.ends
        pattern = re.compile(fnmatch.translate(f"/{under}*{name}" if under else f"*{name}"))
        return any(pattern.fullmatch(path) for path in self.paths)

    def has_target(self, page, target):
        path, _, anchor = target.partition("#")
        path = posixpath.normpath(f"{Path(page).parent.as_posix()}/{path}") if path else page
        headings = [re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
                    for line in self.pages.get(path, "").splitlines() if line.startswith("#")]
        return f"/{path}" in self.paths and (not anchor or anchor in headings)

    def has_test(self, page, file, function):
        path = posixpath.normpath(f"{Path(page).parent.as_posix()}/{file}")
        definition = re.compile(rf"^(?:def|static void|static int|int) {function}\(", re.MULTILINE)
        return f"/{path}" in self.paths and bool(definition.search((self.root / path).read_text()))

    def begins_with_folder(self, name, page):
        first = name.split("/")[0]
        return f"/{first}" in self.paths or f"/{Path(page).parent.as_posix()}/{first}" in self.paths


def named_in_words(tree, page, line):
    """The names of sources and folders in backticks, and those of sources in an indented picture."""
    for name in re.findall(r"`([^`]+)`", line):
        source, path = ENDS_AS_A_SOURCE.fullmatch(name), A_PATH.fullmatch(name)
        if source or path and tree.begins_with_folder(path[1], page):
            yield (source or path)[1]
    if line.startswith("    "):
        yield from (match[1] for match in re.finditer(r"(?<![\w./-])" + ENDS_AS_A_SOURCE.pattern + r"(?![\w.])", line))


def named_as_files(line, is_row_of_files):
    """The names without an ending: of a table of files, and of a picture in which each line begins with one."""
    if is_row_of_files:
        yield from filter(A_NAME.fullmatch, re.findall(r"`([^`]+)`", line.split("|")[1]))
    picture = PICTURE.match(line)
    if picture:
        yield from re.findall(r"\w+", picture[1])


def check_page(tree, page, text):
    lines = text.splitlines()
    if page.endswith("/README.md") and len(lines) > MAX_LINES:
        yield f"{page}:{len(lines)}: more than {MAX_LINES} lines"
    is_row_of_files = is_promise = is_code = False
    folder = Path(page).parent.as_posix()
    for number, line in enumerate(lines, 1):
        is_code ^= line.startswith("```")
        is_row_of_files = line.startswith("|") and (is_row_of_files or bool(re.match(r"\| (files?|folder|script) \|", line)))
        for target in LINK.findall(line) if not is_code else []:
            if "://" not in target and not tree.has_target(page, target):
                yield f"{page}:{number}: there is no {target} to link to"
        tests = A_TEST.findall(line)
        yield from (f"{page}:{number}: there is no {file}::{function}" for file, function in tests if not tree.has_test(page, file, function))
        is_promise = line.startswith("|") and (is_promise or line.startswith("| promise |"))
        if is_promise and not tests and not line.startswith(("| promise |", "|-", "| **")):
            yield f"{page}:{number}: a promise without a test"
        names = [name for name in named_in_words(tree, page, line) if name not in OTHER_NAMES and not tree.has(name)]
        if page.endswith("/README.md"):
            names += [name for name in named_as_files(line, is_row_of_files) if not tree.has(name, "" if "/" in name else folder)]
        yield from (f"{page}:{number}: there is no {name}" for name in names)


def main():
    tree = Tree(Path(sys.argv[1]))
    pages = {page: text for page, text in tree.pages.items() if page not in OTHERS}
    errors = [error for page, text in pages.items() for error in check_page(tree, page, text)]
    print("\n".join(errors) or f"{len(pages)} pages, what they name exists")
    return 1 if errors or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
