#!/usr/bin/env python3
"""Makes docs/scale.md's tables and pictures of what run_cluster_sim.py wrote.

  scripts/bench/cluster_report.py result.json --page docs/scale.md --figures scripts/bench/figures

Without --page the tables are printed. The page has a line <!-- cluster_report: PART --> before and <!-- end of PART --> after
each of them."""

import argparse
import json
import sys
from pathlib import Path

from plot_lines import write_line_chart
from run_cluster_sim import DIVISIONS, LIMITS, NUM_GPUS, ROUTERS

sys.path.append(str(Path(__file__).with_name("cluster_sim")))
import gpu_model  # noqa: E402

AFTER, LATER = 40, 50  # seconds at which two windows of `lost` begin: the fault is at the first


def row(*cells):
    return f"| {' | '.join(map(str, cells))} |\n"


def head(*cells):
    return row(*cells) + "|---" * len(cells) + "|\n"


def percent(part, whole=1.0):
    return f"{100 * part / whole:.0f} %"


def ms(seconds):
    return f"{1000 * seconds:.0f}"


def pair(run, name):
    return f"{ms(run[name + '_p50_s'])} / {ms(run[name + '_p99_s'])}"


def good(run):
    return percent(run["good"], run["requests"])


def grouped(number):
    return f"{number:,}".replace(",", " ")


def fault_of(run):
    """0: none, 1: killed, 2: drained."""
    return 1 if "kill-s" in run["options"] else 2 if "drain-s" in run["options"] else 0


class Report:
    def __init__(self, results):
        self.results = results

    def runs(self, part, **wanted):
        """The runs of a part with these options, the routers in their order."""
        runs = [run for run in self.results if run["part"] == part
                and all(run["options"].get(key.replace("_", "-")) == value for key, value in wanted.items())]
        return sorted(runs, key=lambda run: ROUTERS.index(run["router"]))

    def values(self, part, option):
        return list(dict.fromkeys(run["options"].get(option) for run in sorted(
            (run for run in self.results if run["part"] == part), key=lambda run: run["options"].get(option) or 0)))

    def scale(self):
        lines = head("replicas", "router", "requests/s", "good", "prompt tokens cached", "first token, ms, p50 / p99",
                     "per token, ms, p50 / p99", "busiest replica / mean")
        for replicas in self.values("scale", "replicas"):
            for run in self.runs("scale", replicas=replicas):
                lines += row(replicas, run["router"], f"{run['requests_per_s']:.0f}", good(run), percent(run["hit_rate"]),
                             pair(run, "ttft"), pair(run, "tpot"), f"{run['most_of_mean']:.2f}")
        return lines

    def by_router(self, part, option, first, cell):
        lines = head(first, *ROUTERS)
        for value in self.values(part, option):
            cells = {run["router"]: cell(run) for run in self.runs(part, **{option: value})}
            lines += row(value, *(cells.get(router, "-") for router in ROUTERS))
        return lines

    def rate(self):
        return self.by_router("rate", "rate", "requests/s of each of 16 replicas",
                              lambda run: f"{run['goodput_per_s'] / 16:.1f}, {ms(run['ttft_p99_s'])} ms")

    def cpu(self):
        return self.by_router("cpu", "rate", "requests/s of each of 4 replicas",
                              lambda run: f"{good(run)}, {percent(run['hit_rate'])}, {run['ttft_p99_s']:.1f} s")

    def limits(self):
        lines = head("what is other", *ROUTERS)
        for name in LIMITS:
            lines += row(name, *(f"{percent(run['hit_rate'])}, {good(run)}, {ms(run['ttft_p99_s'])} ms"
                                 for run in self.runs("limits", name=name)))
        return lines

    def lost(self):
        lines = head("replicas", "router", "requests cut", "cached, 10 s after", "cached, 10 to 20 s after",
                     "first token p99, ms, 10 s after", "10 to 20 s after")
        for replicas in self.values("lost", "replicas"):
            for router in ROUTERS:
                runs = [run for run in self.runs("lost", replicas=replicas) if run["router"] == router]
                if len(runs) == 3:
                    lines += row(replicas, router, *self.lost_cells(sorted(runs, key=fault_of)))
        return lines

    def lost_cells(self, runs):
        def of_windows(time, figure):
            return " / ".join(figure(window) for run in runs for window in run["windows"] if window["from_s"] == time)

        return (runs[1]["resent"],
                *(of_windows(time, lambda window: percent(window["hit_rate"])) for time in (AFTER, LATER)),
                *(of_windows(time, lambda window: ms(window["ttft_p99_s"])) for time in (AFTER, LATER)))

    def gpus(self):
        counts = sorted({gpus for _, divisions in DIVISIONS.values() for gpus in divisions})
        lines = head("model", "requests/s", *(f"{NUM_GPUS // gpus} servers of {gpus}" for gpus in counts))
        runs = {(run["options"]["device"], run["options"]["rate"] * run["replicas"]): run for run in self.runs("gpus")}
        for model, (rates, _) in DIVISIONS.items():
            for rate in rates:
                found = [runs.get((gpu_model.device_name(model, gpus), rate)) for gpus in counts]
                lines += row(gpu_model.MODELS[model].name, rate, *(
                    f"{good(run)}, {ms(run['ttft_p99_s'])}, {ms(run['tpot_p50_s'])} ms" if run else "-" for run in found))
        return lines

    def million(self):
        run, = self.runs("million")
        return (f"One run of {grouped(run['options']['requests'])} requests on {run['replicas']} replicas, "
                f"{grouped(run['steps'])} steps, took {run['cost']['cpu_s']:.0f} seconds of one core and "
                f"{run['cost']['max_rss_mib']:.0f} MiB.\n")

    def lines(self, part, option, figure):
        return {router: [(run["options"][option], figure(run)) for value in self.values(part, option)
                         for run in self.runs(part, **{option: value}) if run["router"] == router] for router in ROUTERS}

    def write_figures(self, folder):
        write_line_chart(folder / "cluster_rate.svg", "Goodput of 16 replicas (simulated, paper model of an 8B on an H100)",
                         "requests a second sent to each replica", "good requests a second of each",
                         self.lines("rate", "rate", lambda run: run["goodput_per_s"] / 16))
        write_line_chart(folder / "cluster_scale.svg", "Prompt tokens found cached (simulated)", "replicas", "%",
                         self.lines("scale", "replicas", lambda run: 100 * run["hit_rate"]), log_x=True)


PARTS = ("scale", "rate", "limits", "lost", "gpus", "cpu", "million")


def replace_part(text, part, content):
    """The text with other content between the two lines of that part."""
    first, last = f"<!-- cluster_report: {part} -->\n", f"<!-- end of {part} -->\n"
    if text.count(first) != 1 or text.count(last) != 1 or text.index(first) > text.index(last):
        raise ValueError(f"needs one line {first.strip()} and one {last.strip()} after it")
    return text[:text.index(first) + len(first)] + content + text[text.index(last):]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("result", type=Path, help="what run_cluster_sim.py --json wrote")
    parser.add_argument("--page", type=Path, help="file whose tables are replaced")
    parser.add_argument("--figures", type=Path, help="folder of the pictures to write")
    options = parser.parse_args()
    report = Report(json.loads(options.result.read_text()))
    there = [part for part in PARTS if report.runs(part)]
    if options.figures:
        report.write_figures(options.figures)
    text = options.page.read_text() if options.page else ""
    for part in there:
        content = getattr(report, part)()
        if not options.page:
            print(content)
            continue
        try:
            text = replace_part(text, part, content)
        except ValueError as error:
            sys.exit(f"{options.page}: {error}")
    if options.page:
        options.page.write_text(text)


if __name__ == "__main__":
    main()
