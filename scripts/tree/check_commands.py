#!/usr/bin/env python3
"""Checks that every source file or pattern in the command lines of tests/fuzz/README.md matches a file.

Prints each offence as FILE:LINE and exits 1 when there is any. Usage: check_commands.py [ROOT]
"""

import re
import sys
from pathlib import Path

README = "tests/fuzz/README.md"


def expand(word):
    """The patterns that a shell makes of a word with {a,b}."""
    match = re.fullmatch(r"(.*?)\{([^}]*)\}(.*)", word)
    return [word] if match is None else [match[1] + part + match[3] for part in match[2].split(",")]


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
    count, errors = 0, []
    for number, line in enumerate((root / README).read_text().splitlines(), 1):
        words = line.split() if line.startswith("    ") else []
        for pattern in (pattern for word in words if word.endswith(".c") for pattern in expand(word)):
            count += 1
            if next(root.glob(pattern), None) is None:
                errors.append(f"{README}:{number}: {pattern}: matches no file")
    print("\n".join(errors) or f"{count} paths, each matches a file")
    return 1 if errors or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
