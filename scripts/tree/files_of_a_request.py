#!/usr/bin/env python3
"""Counts the source files that one request passes: those with a function that is entered more often
in a server that answers it than in one that does not. What the start, its own test of a token and
the end run in any case is thereby left out, unless the request runs it once more.

    meson setup build-coverage -Db_coverage=true -Dc_args=-fprofile-update=prefer-atomic -Dserver=enabled
    ninja -C build-coverage server/quire
    scripts/tree/files_of_a_request.py build-coverage MODEL.gguf [--list]

Every run starts the server alone, on one CPU thread, waits until it listens, and stops it with
SIGTERM; the counters are those that gcov reads from the build folder."""

import argparse
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("config", "kernels", "models", "engine", "server")
REQUESTS = {
    "completion": ("/v1/completions", {"prompt": "The capital of France is", "max_tokens": 8}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "system", "content": "Be brief."},
                                                   {"role": "user", "content": "Hello!"}], "max_tokens": 8}),
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(build, model, request):
    """Starts a server, sends it the request if there is one, and stops it."""
    for path in build.rglob("*.gcda"):
        path.unlink()
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
    command = [build / "server/quire", "serve", "--model", model, "--port", str(port), "--threads", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        for line in server.stderr:
            if "listening on" in line:
                break
        else:
            sys.exit("the server did not start")
        if request is not None:
            path, body = REQUESTS[request]
            call = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                          {"Content-Type": "application/json"})
            with urllib.request.urlopen(call) as answer:
                answer.read()
        server.send_signal(signal.SIGTERM)
        server.stderr.read()


def entries(build):
    """{(file, function): how often it was entered}"""
    counts = Counter()
    data = sorted(str(path.resolve()) for path in build.rglob("*.gcda"))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["gcov", "--json-format", *data], cwd=folder, check=True, capture_output=True)
        for report in Path(folder).glob("*.json.gz"):
            for file in json.loads(gzip.decompress(report.read_bytes()))["files"]:
                path = os.path.normpath(os.path.join(build.resolve(), file["file"]))
                path = os.path.relpath(path, build.resolve().parent)
                if path.endswith(".c") and path.split("/")[0] in ROOMS:
                    for function in file["functions"]:
                        counts[path, function["name"]] += function["execution_count"]
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--list", action="store_true", help="print the files too")
    options = parser.parse_args()
    idle = Counter()
    for _ in range(3):  # the most of several, as timers are not always as often due
        serve(options.build, options.model, None)
        idle |= entries(options.build)
    for request in REQUESTS:
        serve(options.build, options.model, request)
        counts = entries(options.build)
        files = sorted({path for (path, function), count in counts.items() if count > idle[path, function]})
        print(f"{request}: {len(files)} files")
        if options.list:
            print("\n".join(f"  {path}" for path in files))


if __name__ == "__main__":
    main()
