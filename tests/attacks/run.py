#!/usr/bin/env python3
"""Attacks a server of its own and says what became of it and of others:

    run.py --binary build/server/quire [--repeat 20] [--only R1,R4-smuggling] [--json FILE] [--scale 1.0]"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import bodies  # noqa: F401
import crowding  # noqa: F401
import framing  # noqa: F401
import hang_ups  # noqa: F401
import process  # noqa: F401
import turns  # noqa: F401
import unread  # noqa: F401
from arena import ATTACKS, run_attack
from victim import write_model

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ("attack", "times", "as wanted", "refused ms: most, sum", "health ms", "changed", "MiB: most", "planned", "left", "s")


def chosen(words):
    words = [word for word in words.split(",") if word]
    names = sorted(ATTACKS, key=lambda name: (int(name[1:name.index("-")]), name))
    return [ATTACKS[name] for name in names
            if not words or any(name == word or name.startswith(word + "-") for word in words)]


def row(outcome):
    (all_ms, most_ms), (health_ms, health_most_ms) = outcome.refused_ms["completion"], outcome.refused_ms["health"]
    if outcome.skipped:
        return outcome.attack.name, 0, "skipped", *["-"] * 7
    return (outcome.attack.name, outcome.repeats, "no" if outcome.faults() else "yes", f"{most_ms}, {all_ms}",
            f"{health_most_ms}, {health_ms}", outcome.num_changed(), outcome.rss_peak >> 20, outcome.planned >> 20,
            outcome.sockets_left, f"{outcome.seconds:.0f}")


def line(cells):
    widths = (46, 5, 9, 21, 14, 7, 9, 7, 5, 4)
    return "  ".join(f"{cell!s:{'<' if i == 0 else '>'}{width}}" for i, (cell, width) in enumerate(zip(cells, widths)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build/server/quire")
    parser.add_argument("--model", type=Path, help="another one than the tiny model")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--only", default="", help="names or defects, separated by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="of counts and times")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    attacks, outcomes = chosen(arguments.only), []
    if arguments.list:
        for attack in attacks:
            print(f"{attack.name:48} {attack.text}")
        return 0
    print(line(COLUMNS), flush=True)
    with tempfile.TemporaryDirectory(prefix="quire-attacks-") as folder:
        model = arguments.model or write_model(Path(folder) / "tiny.gguf")
        for attack in attacks:
            outcome = run_attack(attack, arguments.binary, model, arguments.repeat, arguments.scale)
            outcomes.append(outcome)
            print(line(row(outcome)), flush=True)
            for said in outcome.notes + outcome.faults()[:12]:
                print(f"        {said[:320]}", flush=True)
    if arguments.json:
        rows = [{**asdict(outcome), "attack": outcome.attack.name, "faults": outcome.faults()} for outcome in outcomes]
        arguments.json.write_text(json.dumps(rows, indent=1, default=str))
    failed = sum(bool(outcome.faults()) for outcome in outcomes)
    print(f"{len(outcomes)} attacks, {failed} not as wanted")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
