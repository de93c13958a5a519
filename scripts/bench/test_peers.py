#!/usr/bin/env python3
"""compare_peers.py measures every peer in turn, goes on where it stopped, and reports medians, ratios and failures."""

import json
import os
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from unittest import mock

import install_peers
import peer_report
from compare_peers import Case, Comparison, Results, parse_loads, peer_names
from load_run import LoadProcesses
from peers import HttpPeer, OpenVino

STUB = Path(__file__).with_name("stub_server.py")
CASES = [Case("20/6", 2, 4), Case("30/1", 1, 2)]
# Answers with a token in each step to all that is under way, of which there are FAKE_STREAMS at most.
FAKE_OPENVINO = """
import os

class SchedulerConfig: pass
class GenerationConfig: pass

class Output:
    generated_ids = [7]

class Handle:
    def __init__(self, left): self.left, self.unread = left, 0
    def can_read(self): return self.unread > 0
    def read(self):
        self.unread -= 1
        return {0: Output()}

class Ids:
    def __init__(self, count): self.shape = (1, count)

class Encoded:
    def __init__(self, text): self.input_ids = Ids(len(text.split()))

class Tokenizer:
    def encode(self, text): return Encoded(text)

class ContinuousBatchingPipeline:
    def __init__(self, model, scheduler, device):
        assert os.path.exists(model) and device == "CPU" and not scheduler.enable_prefix_caching
        self.handles = []
    def get_tokenizer(self): return Tokenizer()
    def add_request(self, number, ids, config):
        assert config.ignore_eos
        self.handles.append(Handle(config.max_new_tokens))
        assert len(self.handles) <= int(os.environ["FAKE_STREAMS"])
        return self.handles[-1]
    def has_non_finished_requests(self): return bool(self.handles)
    def step(self):
        for handle in self.handles:
            handle.left -= 1
            handle.unread += 1
        self.handles = [handle for handle in self.handles if handle.left]
"""
FAKES = {"openvino_genai": FAKE_OPENVINO, "numpy": "int64 = int\ndef array(values, dtype): return values\n",
         "openvino": "class Tensor:\n    def __init__(self, rows): self.shape = (1, len(rows[0]))\n"}


def stub(name):
    return HttpPeer(name, lambda case, port: [sys.executable, STUB, port])


def ends(name, words, status=3):
    return HttpPeer(name, lambda case, port: ["sh", "-c", f"echo; echo {words} >&2; exit {status}"])


class Folder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def results(self, **description):
        return Results(self.folder / "result.json", {"model": "a.gguf", "rounds": 2, **description})

    def compare(self, peers, results, budget=0, rounds=2):
        for peer in peers:
            self.addCleanup(peer.stop)
        comparison = Comparison(peers, CASES, rounds, 0, results, budget)
        with LoadProcesses(1) as load, redirect_stderr(StringIO()):
            return comparison, comparison.run(load)


class Comparisons(Folder):
    def test_peers_take_turns(self):
        results = self.results()
        _, is_complete = self.compare([stub("A"), stub("B"), stub("C")], results)
        self.assertTrue(is_complete)
        self.assertEqual([(one["load"], one["round"], one["peer"]) for one in results.data["measurements"]],
                         [(case.key, number, peer) for case in CASES for number in (0, 1) for peer in "ABC"])
        for one in results.data["measurements"]:
            figures = one["figures"]
            self.assertEqual((figures["failures"], figures["wrong_length"]), (0, 0))
            self.assertEqual(figures["output_tokens"], 24 if one["load"] == CASES[0].key else 2)
            self.assertGreater(figures["prompt_tokens_per_second"], 0)
            self.assertGreater(figures["resident_mb"], 0)
        self.assertEqual({name: len(seconds) for name, seconds in results.data["startup_seconds"].items()},
                         {"A": 1, "B": 1, "C": 1})
        self.assertEqual(json.loads((self.folder / "result.json").read_text()), results.data)

    def test_a_budget_stops_and_the_next_run_goes_on(self):
        runs, is_complete = 0, False
        while not is_complete:
            comparison, is_complete = self.compare([stub("A"), stub("B")], self.results(), budget=1e-6)
            runs += 1
            self.assertEqual(len(self.results().data["measurements"]), runs)
            self.assertEqual(len(comparison.missing()), 8 - runs)
        self.assertEqual(runs, 8)
        measured = [(one["load"], one["round"], one["peer"]) for one in self.results().data["measurements"]]
        self.assertEqual(len(set(measured)), 8)

    def test_a_peer_that_fails_is_a_row(self):
        results = self.results()
        peers = [stub("A"), ends("B", "no such model"), HttpPeer("C", lambda case, port: ["/nonexistent/server"])]
        _, is_complete = self.compare(peers, results)
        self.assertTrue(is_complete)
        errors = [(one["load"], one["peer"], one["error"]) for one in results.data["measurements"] if "error" in one]
        self.assertEqual([error[:2] for error in errors], [(case.key, peer) for case in CASES for peer in "BC"])
        self.assertIn("status 3 at its start: no such model", errors[0][2])
        self.assertIn("cannot be started", errors[1][2])
        self.assertEqual(sum(one["peer"] == "A" for one in results.data["measurements"]), 4)

    def test_a_peer_that_dies_under_load_is_a_row(self):
        script = ("import socket, sys\ns = socket.create_server(('127.0.0.1', int(sys.argv[1])))\nc = s.accept()[0]\n"
                  "c.recv(9999)\nc.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n')\nc.close()\n"
                  "c = s.accept()[0]\nsys.exit('out of memory')")
        results = self.results()
        self.compare([HttpPeer("A", lambda case, port: [sys.executable, "-c", script, port]), stub("B")], results)
        self.assertEqual([one["peer"] for one in results.data["measurements"]], ["A", "B", "B"] * 2)
        self.assertIn("out of memory", results.data["measurements"][0]["error"])

    def test_results_of_another_comparison_are_refused(self):
        self.results().write()
        with self.assertRaises(SystemExit) as refused:
            self.results(model="b.gguf")
        self.assertIn("other model", str(refused.exception))


class OpenVinos(Folder):
    def setUp(self):
        super().setUp()
        for name, source in FAKES.items():
            (self.folder / f"{name}.py").write_text(source)

    def compare_one(self, streams, model):
        environment = mock.patch.dict(os.environ, PYTHONPATH=str(self.folder), FAKE_STREAMS=str(streams))
        results = self.results()
        with environment:
            self.compare([OpenVino(sys.executable, model, 1)], results, rounds=1)
        return results.data["measurements"]

    def test_streams_are_limited_and_tokens_counted(self):
        first, second = self.compare_one(2, self.folder)
        wanted = {"requests": 4, "output_tokens": 24, "prompt_tokens": 80, "failures": 0, "wrong_length": 0}
        self.assertEqual({name: first["figures"][name] for name in wanted}, wanted)
        self.assertEqual(second["figures"]["output_tokens"], 2)

    def test_errors_are_named(self):
        self.assertIn("AssertionError", self.compare_one(1, self.folder)[0]["error"])  # two streams are asked for
        (self.folder / "result.json").unlink()
        self.assertIn("AssertionError", self.compare_one(2, self.folder / "none")[0]["error"])


class Names(unittest.TestCase):
    def test_loads(self):
        cases = parse_loads("classic,1500/1@2x6,100/128@8")
        self.assertEqual([case.key for case in cases], ["100/128@1x3", "100/128@8x8", "100/128@32x32", "1500/1@2x6"])
        self.assertEqual(Case.parse("sharegpt@8").context, 2304)
        for text in ("100/128", "100/128@0", "100/128@8x7", "100@8", "bogus", "100/128@300", "100/128@8x99999"):
            with self.assertRaises(ValueError, msg=text):
                parse_loads(text)

    def test_peers(self):
        self.assertEqual(peer_names("openvino,quire"), ["openvino", "quire"])
        for text in ("", "vllm", "quire,quire"):
            with self.assertRaises(ValueError):
                peer_names(text)

    def test_prompts_differ_between_rounds_and_loads(self):
        prompts = [prompt for case in CASES for number in (0, 1) for prompt, _ in case.prompts(0, number)]
        self.assertEqual(len(set(prompts)), len(prompts))


class Reports(Folder):
    def setUp(self):
        super().setUp()
        def of(load, peer, number, rate, **figures):
            return {"load": load, "peer": peer, "round": number, "figures": {
                "tokens_per_second": rate, "prompt_tokens_per_second": 10 * rate, "ttft_p50_ms": 12,
                "resident_mb": 100, "first_error": "", **figures}}
        self.data = {
            "model": "a.gguf", "rounds": 3, "startup_seconds": {"Quire": [0.1, 0.3, 0.2]},
            "processor": {"name": "Chip & Co", "model": "1", "cores": 2, "instructions": [], "governor": "unknown"},
            "versions": {"Quire": "quire 1", "B": "2", "C": "3"},
            "measurements": [of("100/128@8x8", "Quire", i, rate) for i, rate in enumerate((90, 100, 900))]
            + [of("100/128@8x8", "B", i, rate) for i, rate in enumerate((40, 10, 50))]
            + [of("500/1@1x2", "Quire", 0, 6), {"load": "500/1@1x2", "peer": "B", "error": "too long"}]}

    def test_table(self):
        lines = peer_report.table(self.data).splitlines()
        self.assertEqual(lines[0], "| a, 2 cores | Quire | B |")
        self.assertIn("| tokens/s, 100 in, 128 out, 8 streams | 100 | 40 (2.5x) |", lines)
        self.assertIn("| prompt tokens/s, prompt of 500 | 60 | failed |", lines)
        self.assertIn("| start to the first token | 0.20 s | - |", lines)
        text = " ".join(peer_report.paragraph(self.data).split())
        self.assertIn("B failed: too long", text)
        self.assertIn("Chip & Co", text)
        self.assertNotIn("C 3", text)

    def test_picture(self):
        peer_report.write_picture(self.folder / "a.svg", self.data)
        texts = [one.text for one in xml.etree.ElementTree.parse(self.folder / "a.svg").iter() if one.text]
        self.assertTrue({"Quire", "B", "100", "40", "60", "prompt of 500"} <= set(texts))

    def test_section(self):
        text = f"before\n{peer_report.FIRST}old\n{peer_report.LAST}after\n"
        self.assertEqual(peer_report.replace_section(text, "new\n"), text.replace("old", "new"))
        for broken in ("", text.replace(peer_report.LAST, ""), text + peer_report.FIRST):
            with self.assertRaises(ValueError):
                peer_report.replace_section(broken, "new\n")


class Installs(Folder):
    def setUp(self):
        super().setUp()
        server = self.folder / "llama" / "build" / "bin" / "llama-server"
        for name, value in (("PYTHON", self.folder / "venv" / "bin" / "python"), ("LLAMA_SERVER", server),
                            ("LLAMA_FOLDER", self.folder / "llama")):
            patch = mock.patch.object(install_peers, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def test_what_fails_is_named(self):
        with self.assertRaisesRegex(install_peers.InstallError, "could not try .*status 1: no network"):
            install_peers.run("try", ["sh", "-c", "echo no network; exit 1"])
        with self.assertRaisesRegex(install_peers.InstallError, "could not try: /nonexistent"):
            install_peers.run("try", ["/nonexistent"])

    def test_nothing_is_done_twice(self):
        programs = [install_peers.LLAMA_SERVER.with_name(name) for name in install_peers.LLAMA_PROGRAMS]
        for path in (install_peers.PYTHON, *programs):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (self.folder / "venv" / "peers.txt").write_bytes(install_peers.REQUIREMENTS.read_bytes())
        with mock.patch.object(install_peers, "run", side_effect=AssertionError):
            install_peers.install()
        programs[-1].unlink()
        with mock.patch.object(install_peers, "run", side_effect=install_peers.InstallError("no network")), \
                redirect_stderr(StringIO()), self.assertRaisesRegex(install_peers.InstallError, "no network"):
            install_peers.install()


if __name__ == "__main__":
    unittest.main()
