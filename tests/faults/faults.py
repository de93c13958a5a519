#!/usr/bin/env python3
"""Runs scenarios of load and failure on servers of its own, and prints what each reached:

    faults.py --binary build-release/server/quire [--short] [--only overload-of-two-keys,5.4] [--json FILE] [--list]

Ends with 1 where a figure was missed or something was lost, left or cut."""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from scenario import ROOT, SCENARIOS, run_scenario  # first: it says where the others find what they share

import allocations  # noqa: F401
import breakage  # noqa: F401
import drain  # noqa: F401
import lost_rank  # noqa: F401
import neighbours  # noqa: F401
import overload  # noqa: F401
import rank_process  # noqa: F401
import step_time  # noqa: F401
import streams  # noqa: F401


def chosen(words):
    words = [word for word in words.split(",") if word]
    order = sorted(SCENARIOS.values(), key=lambda each: ([int(part) for part in each.number.split(".")], each.name))
    return [each for each in order if not words or each.name in words or each.number in words]


def line(number, what, reached, wanted, said):
    return f"{number:5} {what[:58]:58} {reached[:34]:>34} {wanted[:18]:>18}  {said}"


def run_all(scenarios, binary, is_short):
    """Prints the table; returns what it says, for JSON, and whether all was good."""
    rows, is_good = [], True
    print(line("", "figure", "reached", "to reach", ""), flush=True)
    for each in scenarios:
        began = time.monotonic()
        stage = run_scenario(each, binary, is_short)
        print(f"{each.number:5} {each.name}: {each.text} ({time.monotonic() - began:.0f} s)")
        for figure in stage.figures:
            print(line("", "  " + figure.what, figure.reached, figure.wanted, "pass" if figure.is_good else "MISS"))
        for problem in stage.problems[:12]:
            print(f"        {problem[:300]}")
        sys.stdout.flush()
        is_good = is_good and not stage.problems and all(figure.is_good for figure in stage.figures)
        rows.append({"scenario": each.name, "number": each.number, "problems": stage.problems,
                     "figures": [asdict(figure) for figure in stage.figures]})
    return rows, is_good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build-release/server/quire", help="default %(default)s")
    parser.add_argument("--short", action="store_true", help="small counts, as tests/e2e/operation/test_faults.py has them")
    parser.add_argument("--only", default="", help="names or numbers, separated by commas")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    scenarios = chosen(arguments.only)
    if arguments.list:
        for each in scenarios:
            print(f"{each.number:5} {each.name:34} {each.text}")
        return 0
    rows, is_good = run_all(scenarios, arguments.binary, arguments.short)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    print("all as wanted" if is_good else "not all as wanted")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
