#!/usr/bin/env python3
"""Quire beside llama.cpp's server and OpenVINO GenAI on one GGUF file, in one run.

Measures start-up (process start to the first served token), then rounds of bench_serve.py's load
that alternate between all of them, so that a slow moment of the machine hits everyone. Each server
idles while another one is measured; OpenVINO GenAI, which has no server, runs in a process of its
own per round. Prints a table; writes all figures as JSON and a bar chart as SVG.

  compare_peers.py MODEL.gguf --quire build-release/server/quire \\
      --llama-server /path/to/llama-server --openvino-python /path/to/venv/bin/python \\
      --json result.json --svg result.svg

Needs Python 3.9; the openvino interpreter needs openvino-genai.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import bench_serve
from load_run import LoadProcesses
from plot_bars import write_bar_chart
from workloads import Workload

HERE = pathlib.Path(__file__).parent
OPENVINO = "OpenVINO GenAI"
STREAM_TOKENS = 1024  # room llama.cpp's server reserves for each of its slots


def say(text):
    print(text, file=sys.stderr, flush=True)


def server_command(name, options, port):
    if name == "Quire":
        return [options.quire, "serve", "--model", options.model, "--port", str(port),
                "--served-model-name", "bench"]
    slots = max(options.concurrency)
    return [options.llama_server, "-m", options.model, "--port", str(port), "-np", str(slots),
            "-c", str(slots * STREAM_TOKENS), "-t", str(os.cpu_count())]


def first_token(url):
    """Waits for one served token; returns the moment it was there."""
    body = json.dumps({"prompt": "Hello", "max_tokens": 1, "temperature": 0}).encode()
    for _ in range(20000):
        try:
            with urllib.request.urlopen(url + "/v1/completions", data=body, timeout=60) as reply:
                reply.read()
                return time.perf_counter()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.005)
    sys.exit(f"{url} never served a token")


def start_server(name, options, port):
    """Returns the process and the seconds from its start to the first served token."""
    command = server_command(name, options, port)
    environment = dict(os.environ, LD_LIBRARY_PATH=str(pathlib.Path(command[0]).parent))
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env=environment)
    return process, first_token(f"http://127.0.0.1:{port}") - start


def start_servers(options):
    """Each one several times, the page cache warm; the last process of each stays."""
    names = ["Quire"] + (["llama.cpp server"] if options.llama_server else [])
    processes, seconds = {}, {name: [] for name in names}
    for number in range(options.rounds):
        for place, name in enumerate(names):
            if name in processes:
                processes[name].terminate()
                processes[name].wait()
            processes[name], one = start_server(name, options, options.port + place)
            seconds[name].append(one)
            say(f"start {number + 1} of {options.rounds}, {name}: {one:.2f} s to the first token")
    return processes, seconds


def run_openvino(options, concurrency, number):
    """One round in a fresh process; returns bench_serve's kind of figures and the start-up time."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        subprocess.run([options.openvino_python, HERE / "bench_openvino.py", options.model,
                        "--concurrency", str(concurrency), "--rounds", "1", "--seed", str(number),
                        "--prompt-tokens", str(options.prompt_tokens),
                        "--max-tokens", str(options.max_tokens), "--json", report.name],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        result = json.load(report)
    one = result["results"][0]["median"]
    # For a batch the pipeline reports times shared among its members, which nobody waited.
    alone = concurrency == 1
    return {"tokens_per_second": one["tokens_per_second"],
            "ttft_p50_ms": one["ttft_mean_ms"] if alone else None,
            "itl_p50_ms": one["tpot_mean_ms"] if alone else None,
            "resident_mb": one["resident_mb"], "failures": 0}, result["ready_seconds"]


def run_rounds(options, targets, startup):
    rounds = {}
    workload = Workload(f"{options.prompt_tokens}/{options.max_tokens}")
    with LoadProcesses() as load:
        for target in targets:
            target.model = bench_serve.find_model(target)
        for concurrency in options.concurrency:
            for number in range(options.rounds):
                prompts = workload.prompts(concurrency, 0, concurrency, number)
                for target in targets:
                    one = bench_serve.run_round(load, target, prompts, concurrency)
                    rounds.setdefault((target.name, concurrency), []).append(one)
                if options.openvino_python:
                    one, ready = run_openvino(options, concurrency, number)
                    rounds.setdefault((OPENVINO, concurrency), []).append(one)
                    startup.setdefault(OPENVINO, []).append(ready)
                say(f"{concurrency} streams, round {number + 1} of {options.rounds}: " + ", ".join(
                    f"{name} {of_one[-1]['tokens_per_second']:.0f} tok/s"
                    for (name, streams), of_one in rounds.items() if streams == concurrency))
    return rounds


def summarise(rounds):
    keys = ("tokens_per_second", "ttft_p50_ms", "itl_p50_ms", "resident_mb")
    summary = {key: None if rounds[0][key] is None else
               statistics.median(one[key] for one in rounds) for key in keys}
    summary["failures"] = sum(one["failures"] for one in rounds)
    return summary


def processor():
    """Name, model number, and the instruction sets that matter here."""
    with open("/proc/cpuinfo") as lines:
        facts = dict(line.split(":", 1) for line in lines if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    sets = [name for name in ("avx2", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8")
            if name in facts.get("flags", "").split()]
    return (f"{os.cpu_count()} cores of {facts.get('model name', 'unknown')}, "
            f"model {facts.get('model', 'unknown')}, {' '.join(sets)}")


def milliseconds(value):
    return "-" if value is None else f"{value:.1f} ms"


def print_table(results, startup):
    print(f"{'streams':>7} {'':18} {'tok/s':>7} {'Quire is':>9} {'TTFT':>9} {'per token':>9} "
          f"{'RSS MB':>7} {'failed':>6}")
    base = {one["concurrency"]: one["tokens_per_second"] for one in results
            if one["name"] == "Quire"}
    for one in sorted(results, key=lambda one: one["concurrency"]):
        ratio = base[one["concurrency"]] / one["tokens_per_second"]
        print(f"{one['concurrency']:7} {one['name']:18} {one['tokens_per_second']:7.1f} "
              f"{ratio:8.2f}x {milliseconds(one['ttft_p50_ms']):>9} "
              f"{milliseconds(one['itl_p50_ms']):>9} "
              f"{one['resident_mb']:7.0f} {one['failures']:6}")
    for name, seconds in startup.items():
        what = "to ready" if name == OPENVINO else "to the first served token"
        print(f"start {what}, {name}: {statistics.median(seconds):.2f} s")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", help="GGUF file")
    parser.add_argument("--quire", default="build-release/server/quire", help="binary")
    parser.add_argument("--llama-server", help="binary")
    parser.add_argument("--openvino-python", help="interpreter that has openvino-genai")
    parser.add_argument("--concurrency", type=lambda text: [int(part) for part in text.split(",")],
                        default=[1, 8, 32], metavar="N,N", help="default 1,8,32")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=8300, help="first of the ports used")
    parser.add_argument("--json", metavar="PATH", help="write all figures there")
    parser.add_argument("--svg", metavar="PATH", help="write a bar chart there")
    return parser.parse_args()


def main():
    options = parse_options()
    processes, startup = start_servers(options)
    try:
        targets = [bench_serve.Target(name, f"http://127.0.0.1:{options.port + place}",
                                      pid=process.pid)
                   for place, (name, process) in enumerate(processes.items())]
        rounds = run_rounds(options, targets, startup)
    finally:
        for process in processes.values():
            process.terminate()
    results = [{"name": name, "concurrency": concurrency, **summarise(of_one)}
               for (name, concurrency), of_one in rounds.items()]
    print(processor())
    print_table(results, startup)
    if options.json:
        report = {"processor": processor(), "options": vars(options), "startup_seconds": startup,
                  "results": results,
                  "rounds": {f"{name} {streams}": of_one
                             for (name, streams), of_one in rounds.items()}}
        pathlib.Path(options.json).write_text(json.dumps(report, indent=2))
    if options.svg:
        write_bar_chart(options.svg, f"Output tokens per second, {processor()}", "streams",
                        {(str(one["concurrency"]), one["name"]): one["tokens_per_second"]
                         for one in results})


if __name__ == "__main__":
    main()
