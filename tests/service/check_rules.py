#!/usr/bin/env python3
"""What config/ has for Prometheus and Grafana, by promtool: the alert rules are good, do what their unit tests say, and
each query of the dashboard is PromQL. Usage: check_rules.py CONFIG_FOLDER. Exits 77 (skipped) where there is no promtool."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROMTOOL = shutil.which("promtool")


def promtool(*words):
    return subprocess.run([PROMTOOL, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def must_pass(*words):
    result = promtool(*words)
    print(result.stdout)
    if result.returncode != 0:
        sys.exit("promtool " + " ".join(map(str, words)) + " failed")


def dashboard_queries(path):
    panels = json.loads(path.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def write_rules(folder, queries):
    """The queries as recording rules, which promtool can check. JSON is YAML."""
    rules = [{"record": f"query_{i}", "expr": query.replace("$__rate_interval", "5m")} for i, query in enumerate(queries)]
    path = folder / "queries.yml"
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    return path


def main():
    if PROMTOOL is None:
        print("promtool is not installed (Debian: prometheus)")
        return 77
    config = Path(sys.argv[1])
    must_pass("check", "rules", config / "prometheus/quire.rules.yml")
    must_pass("test", "rules", config / "prometheus/quire.rules.test.yml")
    queries = dashboard_queries(config / "grafana/quire.json")
    with tempfile.TemporaryDirectory() as name:
        must_pass("check", "rules", write_rules(Path(name), queries))
        if promtool("check", "rules", write_rules(Path(name), ["sum(rate(a[5m])"])).returncode == 0:
            sys.exit("the check itself cannot fail")
    print(f"{len(queries)} queries of the dashboard are PromQL")
    return 0


if __name__ == "__main__":
    sys.exit(main())
