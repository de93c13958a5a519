#!/usr/bin/env python3
"""The table and the picture of what compare_peers.py measured.

  scripts/bench/peer_report.py result.json                                   # prints the table, as Markdown
  scripts/bench/peer_report.py result.json --readme README.md --svg scripts/bench/figures/serving.svg

--readme replaces what stands there between the lines `<!-- compare_peers -->` and `<!-- end of compare_peers -->`.
"""

import argparse
import json
import statistics
import sys
import textwrap
from pathlib import Path

from plot_bars import write_bar_chart

FIRST, LAST = "<!-- compare_peers -->\n", "<!-- end of compare_peers -->\n"


def count(number, one, many):
    return f"{number} {one if number == 1 else many}"


class Load:
    """One load's results: `peers` has each one's median figures, or None, and `errors` why."""

    def __init__(self, key, measurements):
        workload, _, rest = key.partition("@")
        streams, _, requests = rest.partition("x")
        self.workload, self.streams, self.requests = workload, int(streams), int(requests)
        self.is_prefill = workload.endswith("/1")
        self.unit = "prompt_tokens_per_second" if self.is_prefill else "tokens_per_second"
        self.peers, self.errors = {}, {}
        for one in measurements:
            if one["load"] == key:
                if "error" in one:
                    self.errors[one["peer"]] = one["error"]
                else:
                    self.peers.setdefault(one["peer"], []).append(one["figures"])
        for name in self.errors:
            self.peers.pop(name, None)
        self.peers = {name: {unit: statistics.median(one[unit] for one in rounds)
                             for unit, value in rounds[0].items() if isinstance(value, (int, float))}
                      for name, rounds in self.peers.items()}

    @property
    def name(self):
        tokens_in, _, tokens_out = self.workload.partition("/")
        streams = count(self.streams, "stream", "streams")
        if not tokens_out:
            return f"mixed lengths, {streams}"
        if self.is_prefill:
            return f"prompt of {tokens_in}" + (f", {streams}" if self.streams > 1 else "")
        return f"{tokens_in} in, {tokens_out} out, {streams}"

    def cell(self, name, base):
        """A figure and how many times as fast the first peer is."""
        if name not in self.peers:
            return "failed" if name in self.errors else "-"
        value = self.peers[name][self.unit]
        if name == base or base not in self.peers:
            return f"{value:.0f}"
        return f"{value:.0f} ({self.peers[base][self.unit] / value:.1f}x)"

    def cells(self, names, figure, unit):
        return [f"{self.peers[name][figure]:.0f} {unit}" if name in self.peers else "-" for name in names]


def make_loads(data):
    keys = dict.fromkeys(one["load"] for one in data["measurements"])
    return [Load(key, data["measurements"]) for key in keys]


def row(*cells):
    return f"| {' | '.join(cells)} |\n"


def table(data):
    loads = make_loads(data)
    names = list(dict.fromkeys(one["peer"] for one in data["measurements"]))
    base = names[0]
    cpu = data["processor"]
    lines = row(f"{data['model'].removesuffix('.gguf')}, {count(cpu['cores'], 'core', 'cores')}", *names)
    lines += "|---" * (1 + len(names)) + "|\n"
    for load in loads:
        lines += row(f"{'prompt tokens' if load.is_prefill else 'tokens'}/s, {load.name}", *(load.cell(name, base) for name in names))
    for load in loads:
        if not load.is_prefill:
            lines += row(f"first token, {load.name}",
                         *load.cells(names, "ttft_p50_ms", "ms"))
    for load in (loads[0], max(loads, key=lambda load: load.streams)) if len(loads) > 1 else loads:
        lines += row(f"memory, {load.name}", *load.cells(names, "resident_mb", "MB"))
    starts = data["startup_seconds"]
    return lines + row("start to the first token", *(
        f"{statistics.median(starts[name]):.2f} s" if name in starts else "-" for name in names))


def paragraph(data):
    """What the table is of."""
    cpu = data["processor"]
    measured = dict.fromkeys(one["peer"] for one in data["measurements"])
    versions = [data["versions"][name] if name == "Quire" else f"{name}: {data['versions'][name]}"
                for name in measured]
    failed = dict.fromkeys((one["peer"], one["error"]) for one in data["measurements"] if "error" in one)
    sentences = [
        f"Medians of {count(data['rounds'], 'round', 'rounds')} that alternate between the peers, at temperature 1; "
        f"(x): how many times as fast {next(iter(measured))} is.",
        f"{count(cpu['cores'], 'core', 'cores')} of {cpu['name']}, model {cpu['model']} "
        f"({', '.join(cpu['instructions'])}), governor {cpu['governor']}.",
        f"{'; '.join(versions)}. OpenVINO GenAI runs in process, without HTTP.",
        *(f"{peer} failed: {error}." for peer, error in failed)]
    return textwrap.fill(" ".join(sentences), 120, break_long_words=False, break_on_hyphens=False) + "\n"


def print_report(data):
    print(table(data) + "\n" + paragraph(data), end="")


def write_picture(path, data):
    loads = make_loads(data)
    cpu = data["processor"]
    write_bar_chart(path, f"Tokens per second, {count(cpu['cores'], 'core', 'cores')} of {cpu['name']}",
                    {(load.name, name): figures[load.unit] for load in loads for name, figures in load.peers.items()})


def replace_section(text, section):
    """The text with another section between the two lines."""
    if text.count(FIRST) != 1 or text.count(LAST) != 1 or text.index(FIRST) > text.index(LAST):
        raise ValueError(f"needs one line {FIRST.strip()} and one {LAST.strip()} after it")
    return text[:text.index(FIRST) + len(FIRST)] + section + text[text.index(LAST):]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("result", type=Path, help="what compare_peers.py --json wrote")
    parser.add_argument("--readme", type=Path, help="file whose section is replaced")
    parser.add_argument("--svg", type=Path, help="picture to write")
    options = parser.parse_args()
    data = json.loads(options.result.read_text())
    if not data["measurements"]:
        sys.exit(f"{options.result}: nothing was measured yet")
    if options.svg:
        write_picture(options.svg, data)
    if options.readme:
        try:
            text = replace_section(options.readme.read_text(), f"{table(data)}\n{paragraph(data)}")
        except ValueError as error:
            sys.exit(f"{options.readme}: {error}")
        options.readme.write_text(text)
    else:
        print_report(data)


if __name__ == "__main__":
    main()
