#!/usr/bin/env python3
"""cluster_sim is run, its results make tables and pictures, and the cost model's fit finds what it was made of.

QUIRE_CLUSTER_SIM: the program."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path
from unittest import mock

import cluster_report
import run_cluster_sim
from plot_lines import ticks, write_line_chart

sys.path.append(str(Path(__file__).with_name("cluster_sim")))
import fit_cost_model  # noqa: E402
import gpu_model  # noqa: E402

BINARY = os.environ["QUIRE_CLUSTER_SIM"]
SMALL = {"replicas": 3, "requests": 200, "rate": 0.5, "think-s": 10, "warmup-s": 10, "window-s": 40, "device": "cpu-135m"}


def start(**changes):
    arguments = [str(word) for option, value in {**SMALL, **changes}.items() for word in (option, value)]
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True)


class Program(unittest.TestCase):
    def test_the_same_options_print_the_same(self):
        for router in ("round-robin", "least", "affinity", "prefix"):
            first, second, other = (start(router=router, seed=seed) for seed in (1, 1, 2))
            self.assertEqual(first.returncode, 0, first.stderr)
            self.assertEqual(first.stdout, second.stdout)
            self.assertNotEqual(first.stdout, other.stdout)

    def test_the_sums_add_up(self):
        result = json.loads(start(**{"kill-s": 60, "retry-s": -1, "warmup-s": 0, "turns": 1}).stdout)
        self.assertEqual(result["requests"], 200)
        self.assertEqual(result["done"] + result["lost"], 200)
        self.assertGreater(result["lost"], 0)
        self.assertLessEqual(sum(window["requests"] for window in result["windows"]), 200)
        self.assertEqual(sum(window["lost"] for window in result["windows"]), result["lost"])
        later = json.loads(start().stdout)
        self.assertLess(later["requests"], 200)

    def test_what_is_wrong_is_named(self):
        for changes, name in (({"router": "random"}, "router: random"), ({"device": "tpu"}, "device: tpu"),
                              ({"replicas": 0}, "replicas: 0"), ({"rate": "fast"}, "rate: fast"),
                              ({"colour": 1}, "colour: no such option"), ({"blocks": 10}, "blocks: must be at least 256"),
                              ({"return-s": 5}, "return-s"), ({"kill-s": 5, "return-s": 4}, "return-s"),
                              ({"kill-s": 5, "drain-s": 5}, "kill-s, drain-s")):
            done = start(**changes)
            self.assertEqual(done.returncode, 1, changes)
            self.assertIn(name, done.stderr)


ALL_RUNS = run_cluster_sim.list_runs


def small_runs():
    """Every part, with few requests."""
    runs = ALL_RUNS()
    for part, options in runs.items():
        options[:] = [dict(one, device="cpu-135m", requests=40, replicas=3, **{"warmup-s": 0}) for one in options]
    return {part: options[:12] for part, options in runs.items()}


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.json = Path(cls.folder.name) / "result.json"
        with mock.patch.object(run_cluster_sim, "list_runs", small_runs):
            cls.run_main("--part", "rate", "--part", "limits")
            cls.first = json.loads(cls.json.read_text())
            cls.run_main("--part", "rate", "--part", "limits", "--part", "cpu")
        cls.results = json.loads(cls.json.read_text())

    @classmethod
    def run_main(cls, *arguments):
        with mock.patch("sys.argv", ["run", BINARY, "--json", str(cls.json), *arguments]), \
                contextlib.redirect_stderr(io.StringIO()):
            run_cluster_sim.main()

    def test_goes_on_where_it_stopped(self):
        self.assertEqual(self.results[:len(self.first)], self.first)
        self.assertEqual({run["part"] for run in self.results}, {"rate", "limits", "cpu"})
        self.assertEqual(len(self.results), 36)
        for run in self.results:
            self.assertEqual(run["done"] + run["lost"], run["requests"])

    def test_a_row_for_every_value_and_a_cell_for_every_router(self):
        lines = cluster_report.Report(self.results).rate().splitlines()
        self.assertEqual(len(lines), 2 + 3)
        for line in lines:
            self.assertEqual(line.count("|"), 6)
        self.assertTrue(lines[2].startswith("| 10 | "))
        run, = (run for run in self.results if run["part"] == "rate" and run["options"]["rate"] == 10 and run["router"] == "prefix")
        self.assertTrue(lines[2].endswith(f"{run['goodput_per_s'] / 16:.1f}, {1000 * run['ttft_p99_s']:.0f} ms |"))

    def test_the_page_gets_its_tables(self):
        text = "a\n<!-- cluster_report: rate -->\nold\n<!-- end of rate -->\nb\n"
        self.assertEqual(cluster_report.replace_part(text, "rate", "new\n"), text.replace("old", "new"))
        with self.assertRaises(ValueError):
            cluster_report.replace_part(text, "scale", "new\n")

    def test_pictures_are_drawn(self):
        path = Path(self.folder.name) / "lines.svg"
        write_line_chart(path, "a < b", "x", "y", {"one": [(1, 0), (4, 10)], "two": [(1, 5), (2, 8), (4, 9)]}, log_x=True)
        root = xml.etree.ElementTree.parse(path).getroot()
        lines = [one.attrib["points"].split() for one in root if one.tag.endswith("polyline")]
        self.assertEqual([len(points) for points in lines], [2, 3])
        places = [tuple(map(float, point.split(","))) for point in lines[1]]
        self.assertAlmostEqual(places[1][0] - places[0][0], places[2][0] - places[1][0], 0)
        self.assertGreater(places[0][1], places[1][1])
        self.assertEqual(ticks(10), [0, 2, 4, 6, 8, 10])
        self.assertEqual(ticks(31)[-1], 40)
        self.assertEqual(ticks(0.09)[1], 0.02)


class Fit(unittest.TestCase):
    def test_finds_what_the_steps_were_made_of(self):
        made_of = [5e6, 2e4, 40.0, 3.0, 0.0]
        steps = [(row, sum(a * b for a, b in zip(row, made_of))) for row in (
            fit_cost_model.features([(tokens, context)] * seqs)
            for tokens, seqs, context in ((1, 1, 100), (1, 64, 1000), (1, 256, 50), (512, 1, 512), (2048, 2, 4096), (64, 3, 64)))]
        for found, expected in zip(fit_cost_model.fit(steps), made_of):
            self.assertAlmostEqual(found, expected, delta=1e-3 * max(expected, 1.0))

    def test_reads_the_shapes_of_bench_model(self):
        self.assertEqual(fit_cost_model.sequences_of({"shape": "2 x 1 of 128"}), [(1, 128)] * 2)
        self.assertEqual(fit_cost_model.sequences_of({"shape": "1 x 1 of 8 + 64"}), [(1, 8), (64, 64)])
        self.assertEqual(fit_cost_model.features([(3, 10)]), [1, 3, 10, 8 + 9 + 10, 1])


class GpuModel(unittest.TestCase):
    def test_an_8b_on_one_gpu_takes_what_was_fitted(self):
        steps = [(fit_cost_model.features([(n, context)] * seqs), 1e6 * ms)
                 for (n, seqs, context), ms in fit_cost_model.H100_STEPS.items()]
        found = gpu_model.coefficients(gpu_model.MODELS["8b"], 1, 1)
        for name, fitted in zip(fit_cost_model.NAMES, fit_cost_model.fit(steps)):
            self.assertAlmostEqual(1e9 * found.get(name, 0), fitted, delta=0.02 * fitted)

    def test_experts_that_are_read(self):
        model = gpu_model.MODELS["120b"]
        self.assertAlmostEqual(model.experts_read(1), model.experts * 4 / 128)
        self.assertGreater(model.experts_read(256), 0.999 * model.experts)

    def test_the_program_and_the_page_have_what_it_computes(self):
        source = (Path(__file__).resolve().parent / "cluster_sim" / "cost_model.c").read_text()
        there = {name: [float(number) for number in numbers.split(",")]
                 for name, numbers in re.findall(r'H100\("([^"]+)",([^)]+)\)', source)}
        self.assertAlmostEqual(there.pop("h100-8b")[0], 1e9 * gpu_model.coefficients(gpu_model.MODELS["8b"], 1, 1)["step"],
                               delta=1e5)
        self.assertEqual(set(there), set(gpu_model.devices()))
        for name, (cost, blocks) in gpu_model.devices().items():
            for found, expected in zip(there[name], [*cost.values(), blocks]):
                self.assertAlmostEqual(found, expected, delta=0.5, msg=name)
        self.assertIn(gpu_model.table(), (Path(__file__).resolve().parents[2] / "docs" / "scale.md").read_text())


if __name__ == "__main__":
    unittest.main()
