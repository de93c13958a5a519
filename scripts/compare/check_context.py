#!/usr/bin/env python3
"""Prints a table: which context `quire serve` chooses for models of known shapes, by the limit of memory.

  scripts/compare/check_context.py build/server/quire
  scripts/compare/check_context.py build/server/quire --limits 8 --serve     # starts them, and generates a token
  scripts/compare/check_context.py build/server/quire --options --kv-cache-dtype int8

A limit is that of a control group (version 1 or 2) on a machine that has 64 GB, all available: a file in the place of
/proc/meminfo says so. Models are GGUF files in 4 bits as llama.cpp's Q4_K_M, whose weights are a hole in the file, so they
take no room. Needs root.
"""

import argparse
import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
from gguf_llama import Shape, type_of, write_model  # noqa: E402


def shape(*sizes, vocab, context, tied=True):
    hidden, ffn, layers, heads, kv_heads, head_dim = sizes
    return Shape(hidden, ffn, layers, heads, kv_heads, head_dim, vocab, 500000.0, tied, context)


SHAPES = {
    "Qwen3 0.6B": shape(1024, 3072, 28, 16, 8, 128, vocab=151936, context=40960),
    "SmolLM2 1.7B": shape(2048, 8192, 24, 32, 32, 64, vocab=49152, context=8192),
    "Qwen3 1.7B": shape(2048, 6144, 28, 16, 8, 128, vocab=151936, context=40960),
    "Llama 3.2 3B": shape(3072, 8192, 28, 24, 8, 128, vocab=128256, context=131072),
    "Phi-4-mini": shape(3072, 8192, 32, 24, 8, 128, vocab=200064, context=131072),
    "Gemma 3 4B": shape(2560, 10240, 34, 8, 4, 256, vocab=262144, context=131072),
    "Qwen3 4B": shape(2560, 9728, 36, 32, 8, 128, vocab=151936, context=40960),
    "Llama 3.1 8B": shape(4096, 14336, 32, 32, 8, 128, vocab=128256, context=131072, tied=False),
    "Qwen3 8B": shape(4096, 12288, 36, 32, 8, 128, vocab=151936, context=40960, tied=False),
}
MACHINE_KIB = 64 << 20
GROUPS = (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"))
ENTER = 'echo $$ > "$0/cgroup.procs"; mount --bind "$1" /proc/meminfo; shift; exec "$@"'


def make_model(folder, name):
    path, of = folder / f"{name.replace(' ', '-')}.gguf", SHAPES[name]
    cols = {tensor: cols for tensor, _, cols in of.tensors()}
    write_model(path, name, of, "q4_k", lambda tensor: type_of(tensor, cols[tensor], "q4_k", of.tied), None)
    return path


@contextlib.contextmanager
def control_group(limit_bytes):
    root, name = next((root, name) for root, name in GROUPS if (Path(root) / "cgroup.procs").exists() and
                      (root.endswith("memory") or "memory" in (Path(root) / "cgroup.subtree_control").read_text()))
    folder = Path(root) / f"quire-context-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / name).write_text(str(limit_bytes))
        yield folder
    finally:
        folder.rmdir()


def in_group(folder, meminfo, *command):
    return ["unshare", "--mount", "sh", "-ec", ENTER, str(folder), str(meminfo), *map(str, command)]


def serve(command):
    """The log of a server, up to a token of it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([*command, "--port", str(port)], stderr=log)
        while process.poll() is None:
            with contextlib.suppress(OSError):
                body = b'{"prompt": "a", "max_tokens": 1}'
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/completions", body, timeout=60).read()
                process.terminate()
                break
            time.sleep(0.2)
        process.wait()
        log.seek(0)
        return log.read()


def plan(command):
    result = subprocess.run(command, capture_output=True, text=True)
    return result.stdout if result.returncode == 0 else result.stderr


def row(name, limit, text):
    found = {part: re.search(rf"{part} +([\d.]+)", text) for part in ("weights", "context", "KV cache", "total")}
    if None in found.values():
        return f"| {name} | {limit} GB | does not start: {text.strip().splitlines()[-1][:160]} |"
    mib = {part: float(match[1]) for part, match in found.items()}
    full = SHAPES[name].context
    return (f"| {name} | {limit} GB | {mib['weights'] / 1024:.1f} | {mib['context']:,.0f}{' (all)' if mib['context'] == full else ''} "
            f"of {full:,} | {mib['KV cache'] / 1024:.1f} | {mib['total'] / 1024:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--limits", type=lambda text: [float(word) for word in text.split(",")], default=[8, 16, 24])
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[])
    options = parser.parse_args()
    print("| model | limit | weights, GiB | context | KV cache, GiB | most in total, GiB |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        meminfo = Path(made) / "meminfo"
        meminfo.write_text(f"MemTotal: {MACHINE_KIB} kB\nMemAvailable: {MACHINE_KIB} kB\n")
        for name in SHAPES:
            model = make_model(Path(made), name)
            for limit in options.limits:
                with control_group(int(limit * 1e9)) as group:
                    command = ("serve", "--model", model) if options.serve else ("inspect", model, "--plan")
                    command = in_group(group, meminfo, options.binary, *command, *options.options)
                    print(row(name, f"{limit:g}", serve(command) if options.serve else plan(command)), flush=True)
            model.unlink()


if __name__ == "__main__":
    main()
