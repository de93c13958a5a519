"""Locust: eight users for a few seconds; its report says how many requests failed."""

import json
import subprocess
import sys
from pathlib import Path


def test_load_without_failures(server, tmp_path):
    command = [Path(sys.executable).with_name("locust"), "-f", Path(__file__).with_name("locustfile.py"), "--headless",
               "--users", 8, "--spawn-rate", 8, "--run-time", "6s", "--stop-timeout", 120, "--host", server.url,
               "--only-summary", "--json-file", tmp_path / "report"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert {entry["name"] for entry in report} == {"/v1/chat/completions", "/v1/completions", "/v1/embeddings"}
    assert all(entry["num_requests"] > 0 and entry["num_failures"] == 0 for entry in report)
