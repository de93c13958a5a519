#!/usr/bin/env python3
"""Says which source this is: `git describe` of a checkout, what `git archive` wrote into archived_commit beside this file, or
else the release. Usage: source_version.py ROOT RELEASE."""

import subprocess
import sys
from pathlib import Path


def describe(root):
    """A tag v1.2.3 if there is one, commits since, commit, and whether files have changed since; None without git."""
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", "-C", root, "describe", "--tags", "--match", "v[0-9]*", "--always", "--abbrev=12",
                               "--dirty=-modified"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def archived():
    """The commit by the attribute export-subst (gitattributes(5)), which leaves "$Format" in a checkout."""
    text = Path(__file__).with_name("archived_commit").read_text().strip()
    return text if "$Format" not in text else None


def main():
    root, release = Path(sys.argv[1]), sys.argv[2]
    print(describe(root) or archived() or release)


if __name__ == "__main__":
    main()
