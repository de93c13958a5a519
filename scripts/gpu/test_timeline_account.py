#!/usr/bin/env python3
"""Tests timeline_account.py: made-up timelines whose accounts are known, and faults in its arithmetic.

With programs also timeline.c, on the simulator:  test_timeline_account.py BENCH_MODEL MODEL CUPTI LIBRARY..."""

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from unittest import mock

import timeline_account as account
from timeline_account import AccountError, Refused, Timeline, make_account

ROOT = Path(__file__).resolve().parents[2]
KERNELS = {"embed": "_Z12embed_kernelI13__nv_bfloat16Li8EEv12embed_launch", "norm": "(norm_kernel<T, N>)",
           "linear": "nvjet_hsh_128x64_64x10_1x2_h_bz_TNT", "sample": "choose_kernel"}
NAMES = [*KERNELS.values(), "cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaStreamSynchronize_v3020",
         "cudaMalloc_v3020"]
LAUNCH, COPY_CALL, WAIT, MALLOC = range(len(KERNELS), len(NAMES))
STEP = 1000  # ns, of the steps below


class Lines:
    """A timeline, record by record."""

    def __init__(self):
        self.lines = ["quire-timeline 1 130001", *(f"name {i} {name}" for i, name in enumerate(NAMES))]
        self.correlation = 0

    def call(self, start, end, name):
        self.correlation += 1
        self.lines.append(f"call {start} {end} 1 {self.correlation} {name}")
        return self

    def kernel(self, op, start, end, stream=7, called=None):
        """Enqueued at `called`, or 200 ns before it runs."""
        called = start - 200 if called is None else called
        self.call(called, called + 5, LAUNCH)
        self.lines.append(f"kernel {start} {end} {stream} {self.correlation} 0 {list(KERNELS).index(op)}")
        return self

    def copy(self, kind, start, end, stream=7):
        self.call(start - 200, start - 190, COPY_CALL)
        self.lines.append(f"copy {start} {end} {stream} {self.correlation} 0 {kind} 64")
        return self

    def step(self, at):
        """A copy of 50, an embed of 100, a linear of 500, a sample of 100 and a copy of 20 back, each 10 behind
        the one before: 810 from `at`."""
        self.copy("htod", at, at + 50).kernel("embed", at + 60, at + 160).kernel("linear", at + 170, at + 670)
        return self.kernel("sample", at + 680, at + 780).copy("dtoh", at + 790, at + 810)

    def steps(self, num):
        for i in range(num):
            self.step(10_000 + STEP * i)
        return self

    def end(self, dropped=0, cut=0):
        self.lines.append(f"end {len(self.lines)} {dropped} {cut}")
        return self

    def account(self, start, end, num, most_difference=0.03):
        result = make_account(Timeline(self.lines), start, end, num)
        account.check_difference(result, most_difference)
        return result


def parts_of(result):
    return {part["part"]: part["us"] for part in result["parts"]}


class Accounts(unittest.TestCase):
    def test_steps_one_after_another(self):
        # The first is the warm-up: of the second the copy is enqueued at 10800, and the host waits until 13815.
        result = Lines().steps(4).end().account(10_815, 13_815, 3)
        self.assertEqual(parts_of(result), {
            "linear": 0.5, "gap between steps": 0.19, "embed": 0.1, "sample": 0.1, "copy to the device": 0.05,
            "copy to the host": 0.02, "gap between kernels": 0.02, "gap before a copy": 0.01, "gap after a copy": 0.01})
        self.assertEqual((result["us"], result["host_us"], result["median_us"]), (1.0, 1.0, 1.0))
        self.assertEqual(result["span_us"], 0.81)
        self.assertEqual((result["busy_us"], result["idle_us"], result["idle_share"]), (0.77, 0.23, 0.23))
        # From the copy's call at -200 of the step to the end of the other copy's at 600.
        self.assertEqual(result["enqueue_us"], 0.8)
        self.assertEqual(result["enqueue_calls_us"], 0.035)
        self.assertEqual(result["work_of_unknown_calls"], 0)
        self.assertEqual(result["kernels"][0], {"part": "linear", "name": KERNELS["linear"], "us": 0.5, "per_step": 1})
        self.assertEqual(result["kernels"][1]["name"], "embed_kernel")
        self.assertEqual(result["middle_step"][:3], [["gap between steps", 0.19], ["copy to the device", 0.05],
                                                     ["gap after a copy", 0.01]])
        gaps = {part["part"]: part["per_step"] for part in result["parts"]}
        self.assertEqual((gaps["gap between kernels"], gaps["gap between steps"], gaps["linear"]), (2, 1, 1))

    def test_records_in_any_order(self):
        lines = Lines().steps(4)
        straight = lines.end().account(10_815, 13_815, 3)
        head, names = lines.lines[:1 + len(NAMES)], lines.lines[1 + len(NAMES):-1]
        lines.lines = head + names[::-1] + lines.lines[-1:]
        self.assertEqual(lines.account(10_815, 13_815, 3), straight)

    def test_kernels_that_overlap(self):
        """The second begins in the first, on another stream, and outlasts it; a third lies within the two."""
        lines = Lines().kernel("sample", 9_000, 9_010).kernel("embed", 10_000, 10_100)
        lines.kernel("linear", 10_050, 10_300, stream=8).kernel("norm", 10_090, 10_200, stream=9)
        result = lines.kernel("sample", 10_300, 10_400).end().account(9_000, 10_400, 1)
        self.assertEqual(parts_of(result), {"embed": 0.1, "linear": 0.2, "sample": 0.1, "gap between steps": 0.99})
        self.assertEqual(result["busy_us"], 0.4)

    def test_a_copy_beside_kernels(self):
        """Only what no kernel covers is the copy's, and what it covers is no gap."""
        lines = Lines().kernel("sample", 9_000, 9_010).kernel("embed", 10_000, 10_100)
        lines.copy("dtoh", 10_050, 10_140, stream=8).kernel("linear", 10_120, 10_200)
        result = lines.kernel("sample", 10_230, 10_300).end().account(9_000, 10_300, 1)
        self.assertEqual(parts_of(result), {"embed": 0.1, "linear": 0.08, "sample": 0.07, "copy to the host": 0.02,
                                            "gap between kernels": 0.03, "gap between steps": 0.99})

    def test_work_of_one_step_in_the_next(self):
        """A copy back that still runs when the next step's kernels do: both steps' times add up."""
        lines = Lines()
        for at in (10_000, 11_000, 12_000):
            lines.kernel("embed", at, at + 300).kernel("sample", at + 300, at + 900)
            lines.copy("dtoh", at + 900, at + 1_200, stream=8)
        result = lines.end().account(10_200, 13_200, 2, most_difference=0.4)
        self.assertEqual(result["us"], 1.0)
        self.assertEqual(parts_of(result), {"sample": 0.6, "copy to the host": 0.2, "embed": 0.2})
        self.assertEqual(result["idle_share"], 0)

    def test_without_copies(self):
        lines = Lines()
        for at in (10_000, 11_000, 12_000):
            lines.kernel("embed", at, at + 100).kernel("linear", at + 100, at + 950)
        result = lines.end().account(10_750, 12_950, 2, most_difference=0.1)
        self.assertEqual(parts_of(result), {"linear": 0.85, "embed": 0.1, "gap between steps": 0.05})
        self.assertEqual(result["idle_share"], 0.05)

    def test_a_step_begins_within_its_kernels(self):
        """Two of them have begun when the last work of the step before ends, and the first goes on."""
        lines = Lines().kernel("embed", 10_000, 10_100).copy("dtoh", 10_100, 11_300, stream=8)
        lines.kernel("embed", 11_000, 11_600).kernel("norm", 11_050, 11_200, stream=9)
        result = lines.end().account(10_800, 11_600, 1, most_difference=0.7)
        self.assertEqual(parts_of(result), {"embed": 0.3})

    def test_the_last_to_begin_is_not_the_last_to_end(self):
        lines = Lines()
        for at in (10_000, 11_000):
            lines.kernel("embed", at, at + 100).kernel("linear", at + 100, at + 950)
            lines.kernel("norm", at + 200, at + 300, stream=8)
        result = lines.end().account(10_800, 11_950, 1, most_difference=0.2)
        self.assertEqual(parts_of(result), {"linear": 0.85, "embed": 0.1, "gap between steps": 0.05})

    def test_steps_belong_to_the_time_in_which_they_were_enqueued(self):
        """The second was before the batch began, and ran in it, as with two steps in flight."""
        lines = Lines().kernel("embed", 10_000, 10_990)
        for at in (11_000, 12_000):
            lines.kernel("embed", at, at + 500, called=at - 900).kernel("linear", at + 500, at + 990, called=at - 950)
        result = lines.end().account(11_090, 11_990, 1, most_difference=0.2)
        self.assertEqual(result["us"], 1.0)
        self.assertEqual(result["enqueue_us"], 0.055)

    def test_a_graph_has_one_call(self):
        lines = Lines().steps(1)
        lines.call(10_900, 10_910, LAUNCH)
        for op, start, end in (("embed", 11_000, 11_100), ("linear", 11_100, 11_500), ("sample", 11_500, 11_600)):
            lines.lines.append(f"kernel {start} {end} 7 {lines.correlation} 3 {list(KERNELS).index(op)}")
        result = lines.end().account(10_810, 11_600, 1)
        self.assertEqual((result["enqueue_us"], result["enqueue_calls_us"]), (0.01, 0.01))
        self.assertEqual(result["work_of_unknown_calls"], 0)

    def test_calls_that_enqueue_nothing(self):
        lines = Lines().steps(3)
        lines.call(11_700, 11_815, WAIT).call(11_650, 11_670, MALLOC).call(20_000, 20_010, MALLOC)
        result = lines.end().account(10_815, 12_815, 2)
        self.assertEqual(result["waits_us"], 0.058)
        self.assertEqual(result["other_calls"], {"cudaMalloc": {"per_step": 0.5, "us": 0.01}})
        self.assertEqual(result["costly_calls"], ["cudaMalloc"])

    def test_names(self):
        for name, op in (("nvjet_hsh_64x8_64x16_4x1_v_bz_splitK_TNT", "linear"),
                         ("_ZN8cublasLt19splitKreduce_kernelILi32ELi16Ei13__nv_bfloat16", "linear: split-K sum"),
                         ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize96x64x32_stage4", "linear"),
                         ("_ZN7cutlass7Kernel2I66cutlass_80_wmma_tensorop_bf16_s161616gemm", "linear"),
                         ("_Z17gemv2T_kernel_valIiffffLi128ELi16", "linear"), ("simulated_gemm_kernel", "linear"),
                         ("_Z16attention_kernelI13__nv_bfloat16S0_Li64ELi3EEv16attention_launch", "attention"),
                         ("something_else", "other")):
            self.assertEqual(account.op_of(name), op, name)
        self.assertEqual(account.short_name("_ZN8cublasLt19splitKreduce_kernelILi32ELi16Ei13__nv_bfloat16"),
                         "cublasLt::splitKreduce_kernel")
        self.assertEqual(account.short_name("nvjet" + 200 * "x"), "nvjet" + 95 * "x")

    def test_every_kernel_of_ours_has_an_op(self):
        launched = set()
        for path in (ROOT / "kernels/cuda").rglob("*.cu*"):
            launched.update(re.findall(r"^\s+LAUNCH(?:_EARLY\([\w.]+, |\()\(?(\w+)", path.read_text(), re.M))
        self.assertGreater(len(launched), 10)
        for name in launched:
            self.assertNotEqual(account.op_of(name), "other", name)


class Refusals(unittest.TestCase):
    def assert_refused(self, lines, message, start=10_815, end=13_815, num=3, kind=AccountError):
        with self.assertRaises(kind) as caught:
            lines.account(start, end, num)
        self.assertIn(message, str(caught.exception))

    def test_no_step(self):
        self.assert_refused(Lines().end(), "no step")
        self.assert_refused(Lines().kernel("linear", 11_000, 13_000).end(), "no step")
        self.assert_refused(Lines().steps(4).end(), "no step", start=20_000, end=21_000)

    def test_steps_that_are_missing(self):
        lines = Lines().steps(4).end()
        self.assert_refused(lines, "has 2 steps where the host did 3", end=12_815)
        lines.lines = [line for line in lines.lines if not line.startswith("kernel 12060 ")]
        self.assert_refused(lines, "has 2 steps where the host did 3")

    def test_work_that_is_missing(self):
        lines = Lines().steps(4).end()
        lines.lines = [line for line in lines.lines if not re.match("(kernel 13680|copy 13790) ", line)]
        self.assert_refused(lines, "-4.7 %")

    def test_the_host_measured_something_else(self):
        self.assert_refused(Lines().steps(4).end(), "-9.1 %", start=10_815, end=14_115)

    def test_cut(self):
        self.assert_refused(Lines().steps(4), "has no end")
        self.assert_refused(Lines().steps(4).end(dropped=3), "3 records were dropped")
        self.assert_refused(Lines().steps(4).end(cut=5), "5 left out")
        lines = Lines().steps(4).end()
        lines.lines[30] = lines.lines[30][:9]
        self.assert_refused(lines, "line 31 of the timeline is broken")

    def test_other_files(self):
        lines = Lines()
        for content, message in (([], "no timeline"), (["PK"], "no timeline"), (["quire-timeline 2 1"], "no timeline"),
                                 ([lines.lines[0], "orange 1 2"], "line 2"), ([lines.lines[0], ""], "line 2"),
                                 ([lines.lines[0], "kernel 1 2 7 1 0 99"], "line 2"),
                                 ([lines.lines[0], "copy 1 2 7 1 0 sideways 4"], "line 2")):
            lines.lines = content or []
            self.assert_refused(lines, message)
            lines = Lines()
        with mock.patch.object(account, "MAX_LINES", 10):
            self.assert_refused(Lines().steps(4).end(), "more than 10 lines")

    def test_records_without_a_time(self):
        for start, end in ((0, 0), (12_000, 11_000)):
            lines = Lines().steps(4)
            lines.lines.append(f"kernel {start} {end} 7 99 0 1")
            self.assert_refused(lines.end(), "a record of norm has no time")

    def test_cupti_refuses(self):
        lines = Lines()
        for head in ([], lines.lines[:1]):
            lines.lines = [*head, "refused cuptiActivityEnable: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"]
            self.assert_refused(lines, "INSUFFICIENT_PRIVILEGES", kind=Refused)


class PlantedFaults(unittest.TestCase):
    """A wrong function of the account's own, in the place of the right one, ends in a refusal."""

    def assert_found(self, name, wrong, message):
        lines = Lines().steps(4).kernel("norm", 12_400, 12_700, stream=8).copy("dtoh", 12_500, 12_600, stream=9).end()
        lines.account(10_815, 13_815, 3)
        with mock.patch.object(account, name, wrong), self.assertRaises(AccountError) as caught:
            lines.account(10_815, 13_815, 3)
        self.assertIn(message, str(caught.exception))

    def test_overlap_counted_twice(self):
        def wrong(free, pieces):
            laid, left = right(free, pieces)
            return [one for one in pieces if one.start < free[-1][1] and one.end > free[0][0]] or laid, left
        right = account.lay
        self.assert_found("lay", wrong, "ns together, and the step takes")

    def test_gaps_left_out(self):
        right = account.lay
        self.assert_found("lay", lambda free, pieces: (right(free, pieces)[0], []), "and the step takes")

    def test_a_step_left_out(self):
        right = account.choose_steps
        self.assert_found("choose_steps", lambda *words: right(*words)[:-1], "2 steps where the host did 3")

    def test_a_step_counted_twice(self):
        right = account.choose_steps
        self.assert_found("choose_steps", lambda *words: right(*words)[1:] + right(*words)[-1:], "belong to neither")

    def test_time_from_the_first_kernel(self):
        """As when the gap between steps is nobody's."""
        right = account.choose_steps
        self.assert_found("choose_steps", lambda *words: [
            step._replace(begin=step.work[0].start) for step in right(*words)],
            "190 ns between two steps belong to neither")


class Library(unittest.TestCase):
    """timeline.c, built with NVIDIA's headers too: the simulator's records have their layout."""

    def setUp(self):
        if not PROGRAMS:
            self.skipTest("no programs")
        self.program, self.model, self.cupti, *self.libraries = PROGRAMS
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "timeline"
        self.addCleanup(self.folder.cleanup)

    def run_program(self, library, *words, **env):
        env = {"QUIRE_TIMELINE": str(self.path), "QUIRE_CUPTI": self.cupti, **env}
        done = subprocess.run([self.program, "cuda-sim", "bf16", self.model, "batches", "2", "contexts", "20",
                               "pool-mib", "1", "batch-us", "0", *words], check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "CUDA_INJECTION64_PATH": library, **env})
        line = next(line for line in map(json.loads, done.stdout.splitlines()) if line["op"] == "decode")
        return line, done.stderr

    def test_an_account(self):
        """By the library's clock, or CUPTI's own."""
        for library, env in itertools.product(self.libraries, ({}, {"QUIRE_CUDASIM_CUPTI_CLOCK_STATUS": "999"})):
            line, errors = self.run_program(library, **env)
            self.assertNotIn("timeline", errors)
            timeline = account.read_timeline(self.path)
            result = make_account(timeline, round(1e9 * line["start"]), round(1e9 * line["end"]), line["calls"])
            parts = {part["part"]: part for part in result["parts"]}
            for part in ("embed", "norm", "linear", "rope_store", "attention", "act_mul", "copy_rows", "sample",
                         "step arrays", "copy to the host", "gap between steps"):
                self.assertGreater(parts[part]["us"], 0, part)
            self.assertEqual(parts["attention"]["per_step"], 2)
            self.assertEqual(result["work_of_unknown_calls"], 0)
            self.assertNotIn("other", parts)
            self.assertGreater(result["enqueue_us"], 0)
            names = {call.name for call in timeline.calls}
            self.assertLessEqual({"cudaMalloc", "cudaLaunchKernel", "cuLaunchKernelEx"}, names)
            self.assertFalse(names & {"cudaGetLastError", "cudaPeekAtLastError", "(other)"})

    def test_one_way_in_and_one_out(self):
        """A decode's arrays go over in one launch, and its tokens come back in one copy; a replayed one is one call
        beside that launch, the sampling's and the copy."""
        for replay in "01":
            line, _ = self.run_program(self.libraries[0], "replay", replay)
            timeline = account.read_timeline(self.path)
            start, end = round(1e9 * line["start"]), round(1e9 * line["end"])
            parts = {part["part"]: part["per_step"]
                     for part in make_account(timeline, start, end, line["calls"])["parts"]}
            self.assertEqual((parts["step arrays"], parts["copy to the host"]), (1, 1))
            self.assertNotIn("copy to the device", parts)
            calls = Counter(call.name for call in timeline.calls if start <= call.start <= end)
            self.assertEqual(calls["cudaGraphLaunch"], line["calls"] if replay == "1" else 0)
            self.assertEqual(calls["cudaMemcpyAsync"], line["calls"])
            if replay == "1":
                self.assertEqual(calls["cudaLaunchKernel"] + calls["cublasLtMatmul"], 2 * line["calls"])

    def test_a_limit(self):
        _, errors = self.run_program(self.libraries[0], QUIRE_TIMELINE_RECORDS="100")
        self.assertIn("the timeline is cut: it holds 100 records", errors)
        with self.assertRaisesRegex(AccountError, "left out"):
            account.read_timeline(self.path)

    def test_cupti_refuses(self):
        for env, message in (({"QUIRE_CUDASIM_CUPTI_STATUS": "35"}, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
                             ({"QUIRE_CUPTI": "/nowhere/libcupti.so"}, "/nowhere/libcupti.so"),
                             ({"QUIRE_CUPTI": "libm.so.6"}, "it has no cupti")):
            _, errors = self.run_program(self.libraries[0], **env)
            self.assertIn("no timeline: ", errors)
            self.assertIn(message, errors)
            with self.assertRaisesRegex(Refused, message):
                account.read_timeline(self.path)

    def test_no_file(self):
        _, errors = self.run_program(self.libraries[0], QUIRE_TIMELINE="/nowhere/timeline")
        self.assertIn("no timeline: QUIRE_TIMELINE names no file", errors)
        with self.assertRaisesRegex(AccountError, "there is no timeline"):
            account.read_timeline("/nowhere/timeline")


if __name__ == "__main__":
    PROGRAMS = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
