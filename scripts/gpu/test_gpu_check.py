#!/usr/bin/env python3
"""The short form of `rehearse`: packs what a build folder holds, and makes the calls of a lent machine from it on the
simulator. Then faults are planted, in what is checked and in those who check it, each of which must be seen.

  scripts/gpu/test_gpu_check.py BUILD [CLASS | CLASS.TEST]...
"""

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import gpu_report
import gpu_schedule
from gpu_histograms import medians_between
from gpu_results import Failed, Hung, NotRun, Results
from gpu_schedule import Clock, Item, Schedule
from rehearsal import Machine, check_fits, check_passed, pretend, raising, read_items
from stages import checks

# Checks that take seconds on the simulator and that the suites have; a program that passes stands for them.
HEAVY = ("attention", "attention_prefixes", "attention_quantised", "experts", "group", "linear", "matrix", "ops",
         "sample", "sample_ranges", "sample_shape")
BRIEFLY = " --charge 1 --budget "  # chooses as much as is worth most
# In place of the server: answers every completion with an error, or with a token too few.
WRONG_SERVER = '''
import http.server, json, os, sys
if os.environ["WRONG_SERVER"] == "exit":
    sys.exit(3)

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, data):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        names = ("num_requests_running", "num_requests_waiting", "generation_tokens_total", "prompt_tokens_total")
        self.answer(200, "".join(f"vllm:{name}{{}} 0\\n" for name in names).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        choices = [{"text": "a"}]
        answer = {"choices": choices, "usage": {"prompt_tokens": len(body["prompt"]),
                                                "completion_tokens": body["max_tokens"] - 1}}
        if os.environ["WRONG_SERVER"] == "refuse":
            self.answer(500, b"{}")
        else:
            self.answer(200, (b"data: " if body["stream"] else b"") + json.dumps(answer).encode() + b"\\n\\n")

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
'''


class Histograms(unittest.TestCase):
    PAGE = """# TYPE quire:gap_seconds histogram
quire:gap_seconds_bucket{model_name="a",le="0.0"} %d
quire:gap_seconds_bucket{model_name="a",le="1e-05"} %d
quire:gap_seconds_bucket{model_name="a",le="+Inf"} %d
quire:host_seconds_bucket{part="plan",le="2e-06"} 7
quire:host_seconds_bucket{part="plan",le="+Inf"} 7
quire:host_seconds_sum{part="plan"} 3.5
"""

    def median(self, *counts):
        return medians_between(self.PAGE % (3, 5, 6), self.PAGE % counts, "gap_seconds")

    def test_medians(self):
        self.assertEqual(self.median(3 + 5, 5 + 6, 6 + 9), {None: 0.0}, "most had none")
        self.assertEqual(self.median(3, 5 + 4, 6 + 4), {None: 5e-6}, "all within one bucket")
        self.assertEqual(self.median(3, 5, 6 + 4), {None: 1e-5}, "above the last bound")
        self.assertEqual(self.median(3, 5, 6), {None: None}, "nothing came")
        self.assertEqual(medians_between(self.PAGE % (0, 0, 0), (self.PAGE % (0, 0, 0)).replace("} 7", "} 9"),
                                         "host_seconds"), {"plan": 1e-6})


class TheSchedule(unittest.TestCase):
    def pretend(self, *words, **more):
        with contextlib.redirect_stdout(io.StringIO()):
            return pretend(*words, **more)

    def names(self, call, *statuses):
        return {name for _, _, name in call.done if call.items[name]["status"] in statuses}

    def test_presets_fit(self):
        first = self.pretend(9)
        second = self.pretend(3, earlier=first.items)
        for call in (first, second):
            self.assertEqual(call.complaints() + list(check_fits(call)), [])
        done = {name for _, _, name in second.done}
        self.assertFalse({name for _, _, name in first.done} & done - {"inventory"} - {
            name for name in done if name.startswith("model/")}, "what has passed is not done again")

    def test_other_minutes(self):
        for minutes in (1, 2, 5, 20):
            self.assertEqual(self.pretend(minutes).complaints(), [], minutes)
        self.assertIn("steps/llama-3-8b", self.names(self.pretend(4), "passed"))
        self.assertEqual(self.pretend(0).done, [])

    def test_items_that_take_twice_as_long(self):
        call = self.pretend(9, 2)
        self.assertEqual(call.complaints(), [])
        self.assertLessEqual({"steps/llama-3-8b", "timelines/llama-3-8b decode 1 x 1 of 1024",
                              "server/llama-3-8b 100/128 x 64"}, self.names(call, "passed"), "what is worth most")

    def test_an_expectation_that_is_a_lie(self):
        """Of an item that takes eight times as long; in the table, where the rest no longer fits."""
        call = self.pretend(9, slow={"steps/llama-3-8b": 8})
        self.assertEqual(call.complaints(), [])
        self.assertEqual(call.items["steps/llama-3-8b"]["detail"], "still running after 165 s")
        self.assertIn("SLOW: steps/llama-3-8b (165 s, 58 expected)", call.table())
        self.assertIn("server/llama-3-8b 100/128 x 64", self.names(call, "passed"))
        table = [(name, 400 if name == "steps/llama-3-8b" else seconds, worth)
                 for name, seconds, worth in gpu_schedule.TABLE]
        with mock.patch.object(gpu_schedule, "TABLE", table):
            self.assertIn("server/smollm2-135m 100/128 x 1 was not run: no time left in this call",
                          list(check_fits(self.pretend(9))))

    def test_a_red_check_has_the_sanitizer_and_one_model(self):
        for fault in (Failed("off by 1"), Hung("still running")):
            call = self.pretend(9, faults={"checks/linear bf16 batch-invariant": raising(fault)})
            self.assertEqual(call.complaints(), [])
            self.assertIn("memcheck/linear bf16 batch-invariant (red)", self.names(call, "not run"))
            self.assertIn("timelines/llama-3-8b decode 1 x 1 of 1024", self.names(call, "passed"))
            self.assertEqual([name for _, _, name in call.done if name.startswith("steps/") and "8b" not in name], [])
            again = self.pretend(3, earlier=call.items)
            self.assertEqual([name for _, _, name in again.done if name.startswith("checks/")][:1],
                             ["checks/linear bf16 batch-invariant"], "what failed comes first")

    def test_a_model_that_is_not_written(self):
        call = self.pretend(9, faults={"model/llama-3.2-1b bf16": raising(NotRun("no numpy"))})
        self.assertEqual(call.items["steps/llama-3.2-1b"]["detail"], "its model was not written: no numpy")
        self.assertEqual(call.complaints(), [])
        self.assertIn("steps/llama-3-8b", self.names(call, "passed"))

    def complaints_with(self, owner, name, value, **more):
        with mock.patch.object(owner, name, value):
            return " ".join(self.pretend(9, **more).complaints())[:2000]

    def test_the_rehearsal_sees_what_is_wrong(self):
        """The GPU shared by what must be alone; another order; a call that does not end; a table that is too long, too
        wide, or does not say what is red."""
        self.assertIn("not alone", self.complaints_with(Schedule, "has_room", lambda self, _: len(self.running) < 5))
        self.assertIn("came before", self.complaints_with(Schedule, "rank", lambda _, item: -item.place))
        with mock.patch.dict(gpu_schedule.PRESETS, {9: 640}):
            self.assertIn("after the end", " ".join(self.pretend(9).complaints()))
        red = {"checks/*": raising(Failed("a long reason " * 20))}
        self.assertEqual(self.pretend(9, faults=red).complaints(), [])
        self.assertIn("too wide", self.complaints_with(gpu_report, "TABLE_COLUMNS", 200, faults=red))
        with mock.patch.object(gpu_report, "RED_LINES", 100):
            all_red = {"*": raising(Failed("no"))}
            self.assertIn("lines", self.complaints_with(gpu_report, "TABLE_LINES", 100, faults=all_red))
        self.assertIn("what is red", self.complaints_with(gpu_report, "describe_red", lambda _: [], faults=red))
        self.assertIn("left out", self.complaints_with(gpu_report, "describe_rest", lambda _: []))

    def test_an_item_that_outlives_the_call(self):
        """By the real clock."""
        never = threading.Event()
        with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
            results = Results(Path(out), Clock(), 0.5)
            with mock.patch.object(gpu_schedule, "LATE_SECONDS", 0):
                Schedule(results, [Item("limits/stage", never.wait)], None, 1).run()
            never.set()
        self.assertEqual(results.items["limits/stage"]["detail"], "no time left in this call")

    def test_every_row_of_the_table_is_of_an_item(self):
        names = set(self.pretend(9).items) | {f"{name} start" for name in (
            *(f"server/{shape}{eager}" for shape in gpu_schedule.MODELS for eager in ("", " eager")),
            *(f"timelines/{shape}" for shape in gpu_schedule.MODELS))}
        used = {gpu_schedule.find_row(name)[0] for name in names}
        unused = [row[0] for place, row in enumerate(gpu_schedule.TABLE) if place not in used]
        self.assertEqual(unused, ["*/stage", "build/*", "model/llama-3-8b q4_k", "memcheck/* (red)"])


class Sanitizer(unittest.TestCase):
    FOUND = "========= COMPUTE-SANITIZER\n========= Invalid __global__ read of size 4 bytes\n=========     at kernel\n"

    def run_with(self, error):
        context = mock.Mock(on_gpu=True, device="cuda", device_words=lambda *_: [])
        context.results.command.side_effect = error
        with mock.patch.object(checks, "find_tool", return_value="compute-sanitizer"):
            next(item for item in checks.items(context) if item.name == "memcheck/moves").action()

    def test_what_it_says(self):
        """What it found counts, also where its time was over; that it found nothing by then is no failure."""
        for error in (Failed("status 9", self.FOUND), Hung("still running", self.FOUND)):
            with self.assertRaisesRegex(Failed, "Invalid __global__ read of size 4 bytes .1 such lines"):
                self.run_with(error)
        with self.assertRaisesRegex(NotRun, "nothing was found in 60 s"):
            self.run_with(Hung("still running", self.FOUND.splitlines()[0]))
        with self.assertRaisesRegex(Failed, "signal 11"):
            self.run_with(Failed("signal 11", "========= ERROR SUMMARY: 0 errors\n"))
        self.run_with(None)


class Rehearsal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machine = Machine("--build", BUILD, "--simulator-only")
        cls.packed = cls.machine.unpack()
        cls.restore = {name: cls.put_program(f"check_{name}", "exit 0") for name in HEAVY}

    @classmethod
    def tearDownClass(cls):
        cls.machine.remove()

    @classmethod
    def put_program(cls, name, text):
        """In place of one of the pack; returns what restores it."""
        path = cls.packed / "bin" / name
        kept = cls.machine.folder / f"{name}.kept"
        path.rename(kept)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return lambda: kept.replace(path)

    def check(self, *words, **more):
        before = sorted(self.machine.work.iterdir())
        done = self.machine.call(" ".join(words), **more)
        self.assertEqual(sorted(self.machine.work.iterdir()), before, "a call leaves nothing where it was made")
        return done

    def assert_failed(self, item, *words, env=None):
        """Returns the item."""
        status, printed, items = self.check(*words, env=env)
        self.assertEqual(items[item]["status"], "failed", printed)
        self.assertEqual(status, 1)
        self.assertIn(f"RED {item}: {items[item]['detail']}"[:117], printed)
        return items[item]

    def test_the_calls_of_a_lent_machine(self):
        """The two command lines, from a folder without a compiler, by a clock that charges what is expected."""
        first = self.machine.lent(9)
        steps = first.items["server/llama-3-8b 100/128 x 64"]["data"]["step_host_p50_us"].items()
        self.assertTrue(all(name and us > 0 for name, us in steps), steps)
        page = (self.machine.out / "gpu_check.md").read_text()
        for call in (first, self.machine.lent(3)):
            self.assertEqual(call.complaints() + [*check_fits(call), *check_passed(call)], [])
            self.assertEqual(call.status, 75)
        self.assertRegex(page, r"\| decode \| greedy \| no \| 4 x 1 of 64 \| .*\n(.*\n)*\| decode \| top-p \| yes ")
        self.assertRegex("\n".join(first.table()), "llama-3-8b decode 4 x 1 of 64: .* op by op .*, top-p .*, invar")

    def test_programs_that_crash_hang_or_fail(self):
        fail = "echo '[  ERROR   ] --- matrix is wrong' >&2; echo ' 4 SKIPPED TEST(S)' >&2; exit 3"
        restore = [self.put_program("check_record", "kill -SEGV $$"), self.put_program("check_steps", "kill -STOP $$"),
                   self.put_program("check_matrix", fail)]
        try:
            status, printed, items = self.check("--stage checks,steps --charge 1:5 --budget 250")
        finally:
            for undo in restore:
                undo()
        self.assertEqual(status, 1)
        red = {name: entry["detail"] for name, entry in items.items() if entry["status"] == "failed"}
        self.assertEqual(red["checks/record bf16"], "signal 11: ")
        self.assertEqual(red["checks/matrix bf16"], "status 3: matrix is wrong")
        self.assertIn("still running", red["checks/steps bf16"])
        self.assertEqual(items["memcheck/steps bf16 (red)"]["detail"], "it watches a GPU only")
        self.assertIn("is red", items["steps/smollm2-135m"]["detail"])
        self.assertIn("start", items["steps/llama-3-8b"], printed)
        self.assertEqual(self.left_running(), [])

    def test_a_call_that_is_killed_is_continued(self):
        line = f'exec {self.machine.pack}/gpu_check --device cuda-sim --stage inventory,limits,golden --out "$OUT"'
        with subprocess.Popen(["/bin/sh", "-c", line], stdout=subprocess.PIPE, text=True,
                              env=self.machine.environment()) as call:
            while "passed   golden" not in call.stdout.readline():
                self.assertIsNone(call.poll())
            call.send_signal(signal.SIGKILL)
        first = read_items(self.machine.out)
        passed = {name for name, entry in first.items() if entry["status"] == "passed"}
        self.assertIn("limits", passed)
        _, _, second = self.check("--stage inventory,limits,golden", BRIEFLY + "40", '--after "$OUT"', fresh=False)
        self.assertEqual({name: second[name] for name in passed - {"inventory"}},
                         {name: first[name] for name in passed - {"inventory"}}, "what has passed is not done again")
        self.assertGreater(len(second), len(first))
        status, printed, third = self.check('--minutes 0 --after "$OUT"', fresh=False)
        self.assertEqual({name: third[name] for name in passed}, {name: second[name] for name in passed})
        self.assertEqual(status, 75)
        self.assertIn("G1 ", printed)

    def test_a_product_that_is_left_undone(self):
        self.assert_failed("golden/tiny-bf16 bf16", "--stage golden", BRIEFLY + "16",
                           env={"QUIRE_CUDASIM_SKIP": "cublasLtMatmul"})

    def test_a_kernel_that_is_left_undone(self):
        self.restore["ops"]()
        try:
            self.assert_failed("checks/ops bf16", "--stage checks", BRIEFLY + "50",
                               env={"QUIRE_CUDASIM_SKIP": "rope_store_kernel"})
        finally:
            self.put_program("check_ops", "exit 0")

    def test_a_limit_of_work_that_is_not_done(self):
        self.assert_failed("limits", "--stage limits", env={"QUIRE_CUDASIM_SKIP": "read_kernel"})

    def test_copies_that_are_left_undone(self):
        self.assert_failed("golden/tiny-bf16 bf16", "--stage golden", BRIEFLY + "16",
                           env={"QUIRE_CUDASIM_SKIP": "cudaMemcpyAsync"})

    def test_an_algorithm_that_is_wrong(self):
        item = self.assert_failed("products/llama-3-8b", "--stage products", env={"QUIRE_CUDASIM_PRODUCTS": "wrong:6"})
        self.assertNotIn("data", item, "what is wrong counts for nothing")
        self.assertEqual(item["figures"][0]["op"], "product", "and is kept")

    def test_steps_that_no_timeline_shows(self):
        self.assert_failed("timelines/llama-3.2-1b decode 1 x 1 of 1024", "--stage timelines", BRIEFLY + "41",
                           env={"QUIRE_CUDASIM_SKIP": "embed_kernel"})

    def test_a_timeline_that_is_added_up_wrongly(self):
        """Gaps are left out, or a step, or half of the host's time."""
        path = self.packed / "scripts/gpu/timeline_account.py"
        right = path.read_text()
        for part, wrong in (("left.append((done, start))", "pass"), ("    return steps\n", "    return steps[1:]\n"),
                            ("total, host = sum(totals.values()), end - start",
                             "total, host = sum(totals.values()), (end - start) / 2")):
            self.assertEqual(right.count(part), 1, part)
            path.write_text(right.replace(part, wrong))
            try:
                self.assert_failed("timelines/llama-3.2-1b decode 1 x 1 of 1024", "--stage timelines", BRIEFLY + "41")
            finally:
                path.write_text(right)

    def assert_server_failed(self, reason, env):
        """With a program of this file in the server's place; nothing of it is left."""
        program = self.packed / "bin/quire"
        program.rename(self.machine.folder / "kept")
        try:
            program.write_text(f"#!{sys.executable}\n{WRONG_SERVER}")
            program.chmod(0o755)
            item = self.assert_failed("server/llama-3-8b 100/128 x 64", "--stage server", BRIEFLY + "120", env=env)
            self.assertIn(reason, item["detail"])
        finally:
            (self.machine.folder / "kept").replace(program)
        self.assertEqual(self.left_running(), [])

    def left_running(self):
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
        return [command for command in commands if bytes(self.machine.work) in command]

    def test_a_server_that_answers_500(self):
        self.assert_server_failed("500 ", {"WRONG_SERVER": "refuse"})

    def test_a_server_whose_answers_are_short(self):
        self.assert_server_failed("another number of tokens", {"WRONG_SERVER": "short"})

    def test_a_server_that_does_not_start(self):
        self.assert_server_failed("did not start, status 3", {"WRONG_SERVER": "exit"})

    def test_a_server_whose_device_fails(self):
        self.assert_failed("server/llama-3-8b 100/128 x 64", "--stage server", BRIEFLY + "120",
                           env={"QUIRE_CUDASIM_FAIL_AFTER": "3300"})
        self.assertEqual(self.left_running(), [])

    def test_a_server_does_not_outlive_a_call_that_is_killed(self):
        call = subprocess.Popen([self.machine.pack / "gpu_check", "--device", "cuda-sim", "--out", self.machine.out,
                                 "--models", self.machine.folder, "--stage", "server"], stdout=subprocess.DEVNULL,
                                env=self.machine.environment())
        deadline = time.monotonic() + 60
        while not any(b"\0serve\0" in command for command in self.left_running()):
            self.assertLess(time.monotonic(), deadline, "the server was never started")
            time.sleep(0.01)
        call.kill()
        call.wait()
        while self.left_running():
            self.assertLess(time.monotonic(), deadline, self.left_running())
            time.sleep(0.01)

    def test_errors_that_nobody_thought_of(self):
        """In an item, in a stage between its items, and in what it says at the end: each is seen, all else goes on."""
        folder = self.packed / "scripts/gpu/stages"
        kept = {name: (folder / f"{name}.py").read_text() for name in ("limits", "golden", "products")}
        for name, head in (("limits", "def measure(context):"), ("golden", "def items(context):"),
                           ("products", "def summary(context):")):
            self.assertEqual(kept[name].count(head), 1)
            (folder / f"{name}.py").write_text(kept[name].replace(head, f"{head}\n    {{}}['{name}']"))
        words = "--stage limits,golden,products"
        try:
            status, printed, items = self.check(words)
        finally:
            for name, text in kept.items():
                (folder / f"{name}.py").write_text(text)
        self.assertEqual(status, 1)
        self.assertEqual({name: items[name]["status"] for name in ("limits", "golden/stage", "products/llama-3-8b")},
                         {"limits": "failed", "golden/stage": "failed", "products/llama-3-8b": "passed"})
        self.assertIn("no summary: KeyError: 'products'", printed)
        self.assertIn("G1 ", printed)
        after = self.check(words, BRIEFLY + "40", '--after "$OUT"', fresh=False)[2]
        self.assertNotIn("failed", [entry["status"] for entry in after.values()], "the next call is not held up by it")

    def test_a_program_that_is_not_there(self):
        program = self.packed / "bin/check_ops"
        program.rename(self.machine.folder / "kept")
        try:
            self.assert_failed("checks/ops bf16", "--stage checks", BRIEFLY + "50")
        finally:
            (self.machine.folder / "kept").rename(program)


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    for name in ("QUIRE_CUDASIM_SKIP", "QUIRE_CUDASIM_PRODUCTS"):
        os.environ.pop(name, None)
    unittest.main()
