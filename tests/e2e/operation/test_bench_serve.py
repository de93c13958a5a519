"""What scripts/bench/bench_serve.py counts is what the server says it did."""

import json
import subprocess
import sys

import pytest

from quire_server import ROOT

WARM_UP = {"prompt_tokens_total": 16, "generation_tokens_total": 8, "request_success_total": 1}  # words of a token each
REQUESTS, TOKENS_IN, TOKENS_OUT = 12, 20, 6  # two rounds of a request on each of 6 streams
LOAD = ("--concurrency", "6", "--rounds", "2", "--processes", "2", "--workload", f"{TOKENS_IN}/{TOKENS_OUT}")


def bench(server, tmp_path, *options):
    """Returns the exit status, the rounds of the only result, and what was printed."""
    path = tmp_path / "result.json"
    command = [sys.executable, ROOT / "scripts/bench/bench_serve.py", "--url", server.url, *LOAD, *options,
               "--json", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert path.exists(), done.stderr
    results = json.loads(path.read_text())["results"]
    assert len(results) == 1
    return done.returncode, results[0]["rounds"], done.stdout


@pytest.mark.parametrize("mode", ["stream", "no-stream"])
def test_counts_are_those_of_the_server(start_server, tmp_path, mode):
    server = start_server()
    before = server.metrics()
    status, rounds, printed = bench(server, tmp_path, "--prompt-ids", "1000", *["--no-stream"] * (mode != "stream"))
    rose = {name: value - before.get(name, 0) for name, value in server.wait_idle().items()}
    assert status == 0
    assert [(one["failures"], one["wrong_length"]) for one in rounds] == [(0, 0)] * 2
    counted = {"prompt_tokens_total": sum(one["prompt_tokens"] for one in rounds),
               "generation_tokens_total": sum(one["output_tokens"] for one in rounds),
               "request_success_total": sum(one["requests"] for one in rounds)}
    assert counted == {"prompt_tokens_total": REQUESTS * TOKENS_IN, "generation_tokens_total": REQUESTS * TOKENS_OUT,
                       "request_success_total": REQUESTS}
    assert {name: rose[name] - value for name, value in counted.items()} == WARM_UP
    assert all(one["request_p50_ms"] > 0 for one in rounds)
    assert all((one["ttft_p50_ms"] > 0) == (mode == "stream") for one in rounds)
    assert "load generator, 2 processes: at most " in printed


def test_failures_are_told(start_server, tmp_path):
    status, rounds, _ = bench(start_server(), tmp_path, "--model", "another")
    assert status == 1
    assert [(one["failures"], one["output_tokens"]) for one in rounds] == [(6, 0)] * 2
    assert "404" in rounds[0]["first_error"]
