#!/usr/bin/env python3
"""Adds up the JUnit reports (*.xml) of a folder and prints "N passed, N failed, N skipped".

A line in the folder's file failed_parts names a part that ended with an error. When no report shows
a failed test for it (a build error, a crash before the first result), it counts as one failure.
Exits 1 unless everything passed. Usage: count_tests.py FOLDER
"""

import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def count(report):
    passed = failed = skipped = 0
    for case in xml.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main():
    folder = Path(sys.argv[1])
    passed, failed, skipped = map(sum, zip((0, 0, 0), *map(count, folder.glob("*.xml"))))
    parts = folder / "failed_parts"
    failed_parts = parts.read_text().splitlines() if parts.exists() else []
    for name in failed_parts:
        print(f"failed: {name}")
    failed = max(failed, len(failed_parts))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
