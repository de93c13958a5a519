#!/usr/bin/env python3
"""Sizes of the code: per room the files, lines, function lengths and comment shares, the same of
the product in all, then the longest files and functions. A report, not a gate.
Usage: code_stats.py [ROOT]

A function starts at a line in column one that ends in `{` after a `)`, and ends at the next `}` in
column one; the committed .clang-format makes that exact. Its length is that of the body.
"""

import re
import statistics
import sys
from pathlib import Path

ROOMS = ["config", "kernels", "models", "engine", "server", "tests"]
SOURCES = {".c", ".h", ".inc", ".cu", ".cuh"}
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def functions(lines):
    """(name, body length) of every function in the lines of one file."""
    head, start = "", None
    for number, line in enumerate(lines):
        if start is not None:
            if line.startswith("}"):
                yield head, number - start - 1
                head, start = "", None
        elif re.match(r"[A-Za-z_]", line) and "(" in line and not line.endswith(";"):
            found = re.search(r"(\w+)\s*\(", line)
            head = found[1] if found else ""
            start = number if line.endswith("{") and "=" not in line else None
        elif head and line.endswith(") {"):
            start = number
        elif not line.startswith(" "):
            head = ""


def comment_share(text):
    comment = sum(len(match[0].splitlines()) for match in COMMENT.finditer(text))
    lines = sum(1 for line in text.splitlines() if line.strip())
    return comment, lines


def describe(name, files):
    lengths = sorted(length for _, _, fns in files.values() for _, length in fns)
    lines = [count for count, _, _ in files.values()]
    comment, code = map(sum, zip(*(share for _, share, _ in files.values())))
    p90 = lengths[int(len(lengths) * 0.9)] if lengths else 0
    print(f"{name:24} {len(files):5} {sum(lines):7} {statistics.median(lines):7.0f} {max(lines):6} "
          f"{len(lengths):6} {statistics.median(lengths or [0]):7.0f} {p90:5} "
          f"{max(lengths, default=0):5} {100 * comment / max(code, 1):6.0f} %")


def spread(values):
    return f"median {statistics.median(values):.0f}, p90 {sorted(values)[int(len(values) * 0.9)]}"


def describe_product(files):
    """Medians, p90 and small files of all rooms but tests/, and the lines of both. The simulator stands in
    for libraries and is counted apart."""
    def lines(part):
        return f"{sum(count for count, _, _ in part.values())} lines in {len(part)} files"

    tests = {name: f for name, f in files.items() if name.startswith("tests/")}
    simulator = {name: f for name, f in files.items() if "/cudasim/" in name and name not in tests}
    product = {name: f for name, f in files.items() if name not in tests and name not in simulator}
    sources = [count for name, (count, _, _) in product.items() if name.endswith(".c")]
    headers = [count for name, (count, _, _) in product.items() if name.endswith(".h")]
    functions = [length for name, (_, _, found) in product.items() if name.endswith(".c") for _, length in found]
    print(f"\nproduct: {lines(product)}; simulator: {lines(simulator)}; tests: {lines(tests)}")
    print(f"{len(sources)} .c files: {spread(sources)}; {sum(count < 60 for count in sources)} under 60 lines")
    print(f"{len(headers)} headers: {spread(headers)}; {sum(count < 20 for count in headers)} under 20 lines")
    print(f"{len(functions)} functions of .c files: {spread(functions)}")


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
    files = {}
    for path in sorted(p for room in ROOMS for p in (root / room).rglob("*") if p.suffix in SOURCES):
        text = path.read_text()
        lines = text.splitlines()
        files[str(path.relative_to(root))] = len(lines), comment_share(text), list(functions(lines))
    print(f"{'room':24} {'files':>5} {'lines':>7} {'median':>7} {'max':>6} {'fns':>6} {'fn med':>7} "
          f"{'p90':>5} {'max':>5} {'comment':>8}")
    for room in ROOMS:
        for kind in ("c", "h"):
            part = {name: f for name, f in files.items()
                    if name.startswith(room + "/") and (name.endswith(".h")) == (kind == "h")}
            if part:
                describe(f"{room} {'headers' if kind == 'h' else 'sources'}", part)
    describe_product(files)
    longest = sorted(((length, f"{name}: {fn}") for name, (_, _, fns) in files.items()
                      for fn, length in fns), reverse=True)[:15]
    print("\nlongest files")
    for name, (count, _, _) in sorted(files.items(), key=lambda item: -item[1][0])[:10]:
        print(f"{count:6} {name}")
    print("\nlongest functions")
    for length, name in longest:
        print(f"{length:6} {name}")


if __name__ == "__main__":
    main()
