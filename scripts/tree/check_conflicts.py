#!/usr/bin/env python3
"""Checks that no text file has a conflict marker of a merge. Prints each as FILE:LINE; exits 1 when there is any.
Usage: check_conflicts.py ROOT"""

import re
import sys
from pathlib import Path

MARKER = re.compile(rb"^(<{7}|>{7}|\|{7}) ", re.MULTILINE)
FOLDERS = [".ci", "config", "docs", "engine", "kernels", "models", "scripts", "server", "tests"]


def find_conflicts(root):
    files = [path for path in root.iterdir() if path.is_file()]
    for folder in FOLDERS:
        files += [path for path in (root / folder).rglob("*") if path.is_file()]
    for path in sorted(files):
        data = path.read_bytes()
        for match in MARKER.finditer(data):
            yield f"{path.relative_to(root)}:{data.count(bytes([10]), 0, match.start()) + 1}"


def main():
    conflicts = list(find_conflicts(Path(sys.argv[1])))
    for place in conflicts:
        print(f"{place}: a conflict marker of a merge")
    return 1 if conflicts else 0


if __name__ == "__main__":
    sys.exit(main())
