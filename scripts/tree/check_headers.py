#!/usr/bin/env python3
"""Compiles every header of the rooms alone, twice in one unit, so that none leans on what its users
happen to include before it. And x.h that declares functions must have an x.c (or x.cu) that defines
some of them: without one its functions live in a file that includes it for another reason. What the
files of one module share is in x_private.h, beside the module's x.c.

Files named *_template.h are bodies that are compiled once per instruction set, no headers in this
sense; the simulator's are C++.
Usage: check_headers.py ROOT ROOMS [COMPILER...], with the rooms that are built separated by commas;
without a compiler only the second check is made."""

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from source_tree import declared_functions, defined_functions, read_sources

# Headers that need no source of their name, each with the reason.
WITHOUT_SOURCE = [
    ("the build generates its source", re.compile(r"config/build_hash\.h|server/program/build_facts\.h")),
    ("the list of endpoints, each in a file of its name", re.compile(r"server/api/call/endpoints\.h")),
    ("NVIDIA's functions, found at run time or simulated", re.compile(r"kernels/cuda/nccl/nccl\.h")),
    ("what the .cu before _launch defines for C", re.compile(r"kernels/cuda/\w+/\w+_launch\.h")),
]

LIBRARIES = ["libcjson", "yaml-0.1", "libpcre2-8", "libutf8proc", "libxxhash"]


def library_flags():
    """Returns the flags of those that are there: a room is built only with the libraries it needs."""
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


def check_source(header, sources):
    functions = declared_functions(sources[header])
    if header.endswith("_private.h"):
        source = header.replace("_private.h", ".c")
        return None if source in sources else f"{header}: there is no {source} whose module shares it"
    if not functions or any(pattern.fullmatch(header) for _, pattern in WITHOUT_SOURCE):
        return None
    stem = header.removesuffix(".h")
    for path in (f"{stem}.c", f"{stem}.cu"):
        if set(functions) & set(defined_functions(sources.get(path, ""))):
            return None
    return f"{header}: declares {functions[0]}, but no {Path(stem).name}.c defines a function of it"


def main():
    root, rooms, compiler = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
    command = [*compiler, "-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wno-unused-function",
               "-Wno-unused-parameter", "-Wno-psabi", "-Werror", "-I.", "-Ikernels/cudasim/include", "-Ikernels/cuda/nccl",
               *microhttpd_flags(root), *library_flags(), "-fsyntax-only", "-xc", "-"]
    sources = read_sources(root, rooms)
    headers = sorted(path for path in sources if path.endswith(".h") and not path.endswith("_template.h"))
    lonely = list(filter(None, (check_source(header, sources) for header in headers)))
    errors = []
    if compiler:
        with ThreadPoolExecutor(2) as pool:
            errors = list(filter(None, pool.map(lambda h: compile_alone(h, root, command), headers)))
    print("\n".join(lonely + errors) or f"{len(headers)} headers compile alone and have their sources")
    return 1 if lonely or errors or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
