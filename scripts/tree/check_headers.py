#!/usr/bin/env python3
"""Compiles every header of the rooms alone, twice in one unit, so that none leans on what its users
happen to include before it. Files named *_template.h are bodies that are compiled once per
instruction set, no headers in this sense; the simulator's are C++.
Usage: check_headers.py ROOT ROOMS COMPILER..., with the rooms that are built separated by commas."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LIBRARIES = ["libcjson", "yaml-0.1", "libpcre2-8", "libutf8proc", "libxxhash"]


def library_flags():
    """Of those that are there: a room is built only with the libraries it needs."""
    flags = []
    for library in LIBRARIES if shutil.which("pkg-config") else []:
        result = subprocess.run(["pkg-config", "--cflags", library], capture_output=True, text=True)
        flags += result.stdout.split()
    return flags


def microhttpd_flags(root):
    """Built from its source, which is there where the server is built."""
    return [f"-I{path}" for path in root.glob("subprojects/libmicrohttpd-*/src/include")]


def compile_alone(header, root, command):
    unit = f'#include "{header}"\n#include "{header}"\n'
    result = subprocess.run(command, cwd=root, input=unit, capture_output=True, text=True)
    return "\n".join(result.stderr.splitlines()[:10]) if result.returncode else None


def main():
    root, rooms, compiler = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
    command = [*compiler, "-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wno-unused-function",
               "-Wno-unused-parameter", "-Wno-psabi", "-Werror", "-I.", "-Ikernels/cudasim/include",
               *microhttpd_flags(root), *library_flags(), "-fsyntax-only", "-xc", "-"]
    headers = sorted(str(path.relative_to(root)) for room in rooms
                     for path in (root / room).rglob("*.h")
                     if not path.name.endswith("_template.h") and root / "kernels/cudasim" not in path.parents)
    with ThreadPoolExecutor(2) as pool:
        errors = list(filter(None, pool.map(lambda h: compile_alone(h, root, command), headers)))
    print("\n".join(errors) or f"{len(headers)} headers compile alone")
    return 1 if errors or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
