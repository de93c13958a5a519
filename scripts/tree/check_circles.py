#!/usr/bin/env python3
"""Checks that no source files call each other in a circle, beyond those of RECURSIVE.

A file depends on another one where it names a function that the other defines and a header
declares; bodies that it includes (*_template.h, *.cuh, *.inc) count as its own text. Prints each
circle with the calls that make it, and exits 1 when there is any. Usage: check_circles.py [ROOT]
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

from source_tree import COMMENT, STRING, declared_functions, defined_functions, read_sources

# Circles that are meant: why, and the files that may be in one.
RECURSIVE = [
    ("schemas contain schemas", re.compile(r"engine/grammar/read/json_schema\w*\.c")),
    ("expressions call macros, which are statements", re.compile(r"models/chat_template/template_(eval|statement)\.c")),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
BODY = re.compile(r"\S+(_template\.h|\.cuh|\.inc)")


def text_of(path, sources, seen):
    """The file's text with that of the bodies it includes."""
    seen.add(path)
    text = sources[path]
    for target in INCLUDE.findall(text):
        if target in sources and target not in seen and BODY.fullmatch(target):
            text += text_of(target, sources, seen)
    return text


def find_calls(sources):
    """{file: {file it depends on: a function of it that is named}}"""
    declared = {name for path, text in sources.items() if path.endswith((".h", ".cuh"))
                for name in declared_functions(text)}
    definers = defaultdict(set)
    for path, text in sources.items():
        if path.endswith((".c", ".cu")):
            for name in declared.intersection(defined_functions(text)):
                definers[name].add(path)
    # A function of several definitions has stand-ins, of which a build takes one.
    definer = {name: min(paths) for name, paths in definers.items() if len(paths) == 1}
    calls = {path: {} for path in sources if path.endswith((".c", ".cu"))}
    for path, called in calls.items():
        text = STRING.sub('""', COMMENT.sub("", text_of(path, sources, set())))
        for name in sorted(definer.keys() & set(re.findall(r"\w+", text))):
            if definer[name] != path:
                called.setdefault(definer[name], name)
    return calls


def find_circles(calls):
    """Sets of files that all reach each other (Tarjan's strongly connected components)."""
    index, low, stack, circles = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in calls[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            cut = stack.index(node)
            circles.append(set(stack[cut:]))
            del stack[cut:]

    for node in sorted(calls):
        if node not in index:
            visit(node)
    return [circle for circle in circles if len(circle) > 1]


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
    calls = find_calls(read_sources(root))
    circles = find_circles(calls)
    allowed = [pattern for _, pattern in RECURSIVE]
    errors = [circle for circle in circles
              if not any(all(pattern.fullmatch(path) for path in circle) for pattern in allowed)]
    for circle in errors:
        print(f"circle of {len(circle)}:")
        for path in sorted(circle):
            for target in sorted(circle & calls[path].keys()):
                print(f"  {path} -> {target} ({calls[path][target]})")
    if not errors:
        print(f"{len(calls)} files, {len(circles)} circles, all of them meant")
    return 1 if errors or not calls else 0


if __name__ == "__main__":
    sys.exit(main())
