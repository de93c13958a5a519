#!/usr/bin/env python3
"""Adds up the JUnit reports (*.xml) of a folder: names what failed, then "N passed, N failed, N skipped".

Beside a report of Meson's lies its log (*.json): the report alone counts a test that ran out of time, or
that failed after its last result (a leak, a crash at exit), as passed.
A line in the folder's file failed_parts names a part that ended with an error. When no report shows
a failed test for it (a build error, a crash before the first result), it counts as one failure.
Exits 1 unless everything passed. Usage: count_tests.py FOLDER
"""

import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def describe(report, case):
    fault = case.find("failure") if case.find("failure") is not None else case.find("error")
    why = (fault.get("message") or fault.text or "").strip().split("\n")[0][:160]
    name = " / ".join(filter(None, (case.get("classname"), case.get("name"))))
    return f"failed: {report.stem}: {name}" + (f": {why}" if why else "")


def log_failures(report):
    """(name, result) of the programs that Meson's log has as failed."""
    log = report.with_suffix(".json")
    lines = map(json.loads, log.read_text().splitlines()) if log.exists() else ()
    return [(line["name"], line["result"]) for line in lines if line["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")]


def count(report):
    passed = failed = skipped = 0
    root = xml.parse(report)
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
            print(describe(report, case))
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    programs = log_failures(report)
    for name, result in programs:
        print(f"failed: {report.stem}: {name}: {result}")
    return passed, max(failed, len(programs)), skipped


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
