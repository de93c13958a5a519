#!/usr/bin/env python3
"""Packs what a build folder holds, and rehearses gpu_check from it on the simulator: in an empty folder, with
nothing but Python on the path. Then faults are planted, each of which must turn the right item red.

  scripts/gpu/test_gpu_check.py BUILD
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from gpu_histograms import medians_between

HERE = Path(__file__).resolve().parent
TOOLS = ("dirname",)  # of the launcher; sh is named by its path
# What a rehearsal leaves out, and the reason that it must give.
ONLY_ON_A_GPU = {"sanitize/memcheck ops": "a GPU only"}
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


class Rehearsal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="gpu-check-"))
        cls.packed = cls.folder / "packed"
        subprocess.run([HERE / "gpu_pack", "--build", BUILD, "--simulator-only", "--out", cls.packed], check=True)
        cls.tools = cls.folder / "tools"
        cls.tools.mkdir()
        (cls.tools / "python3").symlink_to(sys.executable)
        for name in TOOLS:
            (cls.tools / name).symlink_to(shutil.which(name))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def check(self, *words, env=None, out="results"):
        """Returns the exit status, what was printed, and the items."""
        empty = self.folder / "empty"
        shutil.rmtree(empty, ignore_errors=True)
        empty.mkdir()
        path = self.folder / out
        done = subprocess.run([self.packed / "gpu_check", "--device", "cuda-sim", "--out", path, *words],
                              cwd=empty, stdout=subprocess.PIPE, text=True, check=False,
                              env={"PATH": str(self.tools), **(env or {})})
        self.assertEqual(list(empty.iterdir()), [], "a call leaves nothing where it was made")
        return done.returncode, done.stdout, json.loads((path / "results.json").read_text())

    def assert_failed(self, item, *words, env=None):
        """Returns the item."""
        status, printed, items = self.check("--fresh", *words, env=env, out="wrong")
        self.assertEqual(items[item]["status"], "failed", printed)
        self.assertEqual(status, 1)
        self.assertIn(f"  {item}: {items[item]['detail']}"[:200], printed)
        return items[item]

    def test_everything_is_rehearsed_without_a_compiler(self):
        status, printed, items = self.check("--fresh")
        missing = {name: entry for name, entry in items.items() if entry["status"] != "passed"}
        for name, entry in missing.items():
            self.assertEqual(entry["status"], "not run", f"{name}: {entry}\n{printed}")
            reason = ONLY_ON_A_GPU.get(name) or "has no torch"
            self.assertIn(reason, entry["detail"])
            self.assertTrue(name in ONLY_ON_A_GPU or name.startswith("baselines/"), name)
        self.assertEqual(status, 0)
        stages = {name.split("/")[0] for name in items}
        for stage in ("inventory", "limits", "checks", "golden", "steps", "timelines", "server", "products", "ops",
                      "reference", "embedding"):
            self.assertIn(stage, stages)
        steps = next(line for line in items["server/tiny 20/6 x 4 eager"]["data"]["step_host_p50_us"].items())
        self.assertTrue(steps[0] and steps[1] > 0, steps)
        page = (self.folder / "results/gpu_check.md").read_text()
        self.assertRegex(page, r"\| 20/6 \| 4 \| recorded \| .*\n\| 20/6 \| 4 \| op by op \| ")
        last = printed.splitlines()[-100:]
        self.assertTrue(any(line.startswith("| G1 ") for line in last), "the table comes last")

    def test_a_call_continues_the_one_before(self):
        stages = ("--stage", "inventory,golden")
        status, _, items = self.check("--fresh", "--budget", "0.001", *stages, out="continued")
        self.assertEqual(status, 75)
        self.assertTrue(all(entry["status"] == "not run" for entry in items.values()), items)
        status, _, first = self.check("--stage", "inventory", out="continued")
        self.assertEqual((status, first["inventory"]["status"]), (0, "passed"))
        status, _, second = self.check(*stages, out="continued")
        self.assertEqual(second["inventory"], first["inventory"], "what has passed is not done again")
        self.assertTrue(all(entry["status"] == "passed" for entry in second.values()), second)
        self.assertEqual(status, 0)

    def test_a_product_that_is_left_undone(self):
        self.assert_failed("golden/tiny-bf16 cuda-sim bf16", "--stage", "golden",
                           env={"QUIRE_CUDASIM_SKIP": "cublasLtMatmul"})

    def test_a_kernel_that_is_left_undone(self):
        self.assert_failed("checks/ops cuda-sim bf16", "--stage", "checks",
                           env={"QUIRE_CUDASIM_SKIP": "rope_store_kernel"})

    def test_a_limit_of_work_that_is_not_done(self):
        self.assert_failed("limits", "--stage", "limits", env={"QUIRE_CUDASIM_SKIP": "read_kernel"})

    def test_copies_that_are_left_undone(self):
        self.assert_failed("golden/tiny-bf16 cuda-sim bf16", "--stage", "golden",
                           env={"QUIRE_CUDASIM_SKIP": "cudaMemcpyAsync"})

    def test_an_algorithm_that_is_wrong(self):
        item = self.assert_failed("products/tiny", "--stage", "products", env={"QUIRE_CUDASIM_PRODUCTS": "wrong:6"})
        self.assertNotIn("data", item, "what is wrong counts for nothing")
        self.assertEqual(item["figures"][0]["op"], "product", "and is kept")

    def test_steps_that_no_timeline_shows(self):
        self.assert_failed("timelines/tiny decode 1 x 1 of 64", "--stage", "timelines",
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
                self.assert_failed("timelines/tiny decode 1 x 1 of 64", "--stage", "timelines")
            finally:
                path.write_text(right)

    def assert_server_failed(self, reason, env):
        """With a program of this file in the server's place; nothing of it is left."""
        program = self.packed / "bin/quire"
        program.rename(self.folder / "kept")
        try:
            program.write_text(f"#!{sys.executable}\n{WRONG_SERVER}")
            program.chmod(0o755)
            for item in ("server/tiny 20/6 x 1", "server/tiny 20/6 x 4 whole"):
                self.assert_failed(item, "--stage", "server", env=env)
            self.assertIn(reason, self.check("--stage", "server", env=env, out="wrong")[2][item]["detail"])
        finally:
            (self.folder / "kept").replace(program)
        self.assertEqual(self.left_running(), [])

    def left_running(self):
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
        return [command for command in commands if bytes(self.packed) in command]

    def test_a_server_that_answers_500(self):
        self.assert_server_failed("500 ", {"WRONG_SERVER": "refuse"})

    def test_a_server_whose_answers_are_short(self):
        self.assert_server_failed("another number of tokens", {"WRONG_SERVER": "short"})

    def test_a_server_that_does_not_start(self):
        self.assert_server_failed("did not start, status 3", {"WRONG_SERVER": "exit"})

    def test_a_server_whose_device_fails(self):
        self.assert_failed("server/tiny 20/6 x 4", "--stage", "server", env={"QUIRE_CUDASIM_FAIL_AFTER": "3300"})
        self.assertEqual(self.left_running(), [])

    def test_a_server_does_not_outlive_a_call_that_is_killed(self):
        call = subprocess.Popen([self.packed / "gpu_check", "--device", "cuda-sim", "--out", self.folder / "killed",
                                 "--stage", "server"], stdout=subprocess.DEVNULL, env={"PATH": str(self.tools)})
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
        for name, head in (("limits", "def measure(context):"), ("golden", "def run(context):"),
                           ("products", "def summary(context):")):
            self.assertEqual(kept[name].count(head), 1)
            (folder / f"{name}.py").write_text(kept[name].replace(head, f"{head}\n    {{}}['{name}']"))
        words = ("--stage", "limits,golden,products")
        try:
            status, printed, items = self.check("--fresh", *words, out="wrong")
        finally:
            for name, text in kept.items():
                (folder / f"{name}.py").write_text(text)
        self.assertEqual(status, 1)
        self.assertEqual({name: entry["status"] for name, entry in items.items()},
                         {"limits": "failed", "golden/stage": "failed", "products/tiny": "passed"})
        self.assertIn("no summary: KeyError: 'products'", printed)
        self.assertIn("| G1 ", printed)
        self.assertEqual(self.check(*words, out="wrong")[0], 0, "the next call is not held up by it")

    def test_a_program_that_is_not_there(self):
        program = self.packed / "bin/check_ops"
        program.rename(self.folder / "kept")
        try:
            self.assert_failed("checks/ops cuda-sim bf16", "--stage", "checks")
        finally:
            (self.folder / "kept").rename(program)


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    for name in ("QUIRE_CUDASIM_SKIP", "QUIRE_CUDASIM_PRODUCTS"):
        os.environ.pop(name, None)
    unittest.main()
