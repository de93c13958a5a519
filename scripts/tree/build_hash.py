#!/usr/bin/env python3
"""Writes a C file with a hash of all that decides what numbers the program computes: the sources
below the given folders, and words that name compiler and options. A program built from anything
else has another hash. Usage: build_hash.py ROOT OUT DEPFILE FOLDER,... WORD..."""

import hashlib
import sys
from pathlib import Path

SUFFIXES = {".c", ".h", ".cu", ".cuh", ".build", ".in"}

TEMPLATE = """#include "config/build_hash.h"

const char *build_hash(void) {{
    return "{}";
}}
"""


def main():
    root, out, depfile = (Path(arg) for arg in sys.argv[1:4])
    folders, words = sys.argv[4].split(","), sys.argv[5:]
    files = sorted(path for folder in folders for path in (root / folder).rglob("*")
                   if path.suffix in SUFFIXES)
    files.append(root / "meson.build")
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    digest.update("\n".join(words).encode())
    out.write_text(TEMPLATE.format(digest.hexdigest()[:32]))
    names = " ".join(str(path).replace(" ", "\\ ") for path in files)
    depfile.write_text(f"{out}: {names}\n")


if __name__ == "__main__":
    main()
