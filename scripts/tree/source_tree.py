"""Reads the sources of the product, and the functions in them, for the checks of this folder."""

import re

ROOMS = ["config", "kernels", "models", "engine", "server"]  # each may include those before it
SOURCES = {".c", ".h", ".inc", ".cu", ".cuh"}

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
# The head of a function that other files may call; clang-format puts it in column one.
FUNCTION = re.compile(r"^(?!static|typedef|inline)[A-Za-z_][\w \t*]*?\b(\w+)\([^;{}]*\)\s*([;{])", re.M)


def read_sources(root, rooms=None):
    """{path from the root: text}, without kernels/cudasim, which stands in for libraries."""
    simulator = root / "kernels/cudasim"
    return {str(path.relative_to(root)): path.read_text()
            for room in rooms or ROOMS for path in sorted((root / room).rglob("*"))
            if path.suffix in SOURCES and simulator not in path.parents}


def declared_functions(text):
    return [name for name, end in FUNCTION.findall(COMMENT.sub("", text)) if end == ";"]


def defined_functions(text):
    return [name for name, end in FUNCTION.findall(COMMENT.sub("", text)) if end == "{"]
