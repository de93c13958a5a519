#!/usr/bin/env python3
"""Adds up the JUnit reports (*.xml) of a folder: names what failed, then "N passed, N failed, N skipped".

A line in the folder's file failed_parts names a part that ended with an error. When no report shows
a failed test for it (a build error, a crash before the first result), it counts as one failure.
Exits 1 unless everything passed. Usage: count_tests.py FOLDER
"""

import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def describe(report, case):
    fault = case.find("failure") if case.find("failure") is not None else case.find("error")
    why = (fault.get("message") or fault.text or "").strip().split("\n")[0][:160]
    name = " / ".join(filter(None, (case.get("classname"), case.get("name"))))
    return f"failed: {report.stem}: {name}" + (f": {why}" if why else "")


def count(report):
    passed = failed = skipped = 0
    root = xml.parse(report)
    for suite in root.iter("testsuite"):  # one that crashed or ran out of time has no failed case
        if suite.get("errors", "0") != "0" and suite.find(".//failure") is suite.find(".//error") is None:
            print(f"failed: {report.stem}: {suite.get('name')} ended early")
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
            print(describe(report, case))
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
