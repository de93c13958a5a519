#!/usr/bin/env python3
"""Adds up the JUnit reports (*.xml) of a folder: names what failed, then "N passed, N failed, N skipped".

Beside a report of Meson's lies its log (*.json): the report alone counts a test that ran out of time, or
that failed after its last result (a leak, a crash at exit), as passed.
A failed test of e2e.xml that passes in every report alone*.xml is named as unsteady, and counts as passed.
A line in the folder's file failed_parts names a part that ended with an error. When no report shows
a failed test for it (a build error, a crash before the first result), it counts as one failure.
Exits 1 unless everything passed. Usage: count_tests.py FOLDER, or count_tests.py --failed REPORT, which
prints what pytest calls the failed tests of its report.
"""

import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def fault_of(case):
    return case.find("failure") if case.find("failure") is not None else case.find("error")


def node_id(case):
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def failed_cases(report):
    return [case for case in xml.parse(report).getroot().iter("testcase") if fault_of(case) is not None]


def unsteady_cases(folder):
    """The tests that failed beside others, and passed each time that they ran alone."""
    runs = list(folder.glob("alone*.xml"))
    failed = {node_id(case) for report in runs for case in failed_cases(report)}
    ran = [{node_id(case) for case in xml.parse(report).getroot().iter("testcase") if case.find("skipped") is None}
           for report in runs]
    return set.intersection(*ran) - failed if runs else set()


def describe(report, case):
    fault = fault_of(case)
    why = (fault.get("message") or fault.text or "").strip().split("\n")[0][:160]
    name = " / ".join(filter(None, (case.get("classname"), case.get("name"))))
    return f"{report.stem}: {name}" + (f": {why}" if why else "")


def log_failures(report):
    """(name, result) of the programs that Meson's log has as failed."""
    log = report.with_suffix(".json")
    lines = map(json.loads, log.read_text().splitlines()) if log.exists() else ()
    return [(line["name"], line["result"]) for line in lines if line["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")]


def count(report, unsteady):
    passed = failed = skipped = 0
    root = xml.parse(report)
    for case in root.iter("testcase"):
        if fault_of(case) is not None and node_id(case) in unsteady:
            passed += 1
            print(f"unsteady, passes alone: {describe(report, case)}")
        elif fault_of(case) is not None:
            failed += 1
            print(f"failed: {describe(report, case)}")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    programs = log_failures(report)
    for name, result in programs:
        print(f"failed: {report.stem}: {name}: {result}")
    return passed, max(failed, len(programs)), skipped


def main():
    if sys.argv[1] == "--failed":
        for case in failed_cases(Path(sys.argv[2])):
            print(node_id(case))
        return 0
    folder = Path(sys.argv[1])
    unsteady = unsteady_cases(folder)
    reports = (report for report in folder.glob("*.xml") if not report.name.startswith("alone"))
    passed, failed, skipped = map(sum, zip((0, 0, 0), *(count(report, unsteady) for report in reports)))
    parts = folder / "failed_parts"
    failed_parts = parts.read_text().splitlines() if parts.exists() else []
    for name in failed_parts:
        print(f"failed: {name}")
    failed = max(failed, len(failed_parts))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
