#!/usr/bin/env python3
"""Measures what speculation is worth: tokens per second of servers with and without it, where the output repeats the
prompt and where it does not, and whether the output is the same.

Three sets of chats: `summary` (a text of this tree is to be repeated and summed up), `edit` (a piece of its code is to
be returned with a name changed), `prose` (a story about some words); each at every temperature. In each round all
prompts of a set go to every server, in turn and with the same seeds; the servers' order changes from round to round.
The table shows medians over the rounds, ratios to the first URL, how many drafted tokens were accepted
(/metrics), and how many answers differ from the first URL's. Exits with 1 if any does, or failed.

  quire serve --model MODEL --port 8000 &
  quire serve --model MODEL --port 8001 --speculative-config '{"method": "ngram", "num_speculative_tokens": 8,
    "prompt_lookup_max": 16, "prompt_lookup_min": 2}' &
  scripts/bench/bench_speculative.py --url before=http://127.0.0.1:8000 --url after=http://127.0.0.1:8001

Needs Python 3.9.
"""

import argparse
import http.client
import json
import random
import re
import statistics
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench_prompts import make_prompts
from bench_serve import find_model, get, make_targets

ROOT = Path(__file__).resolve().parents[2]
DRAFTS = re.compile(r"^\S*spec_decode_num_(draft|accepted)_tokens_total\{[^}]*\} (\S+)", re.MULTILINE)
CODE_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


def pick(generator, pieces, num_words):
    """Pieces that follow each other, from a random one on, until they have about num_words."""
    first, words = generator.randrange(len(pieces)), 0
    for end in range(first, len(pieces)):
        words += len(pieces[end].split())
        if words >= num_words:
            return "\n\n".join(pieces[first:end + 1])
    return pick(generator, pieces, num_words)


def read_pieces(patterns):
    """The blocks between empty lines, of all files, in a fixed order."""
    paths = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
    return [piece for path in paths for piece in path.read_text().strip().split("\n\n")]


def summary_prompt(generator, num_words):
    text = pick(generator, read_pieces(["README.md", "CONTRIBUTING.md", "*/README.md"]), num_words)
    return f"{text}\n\nRepeat the text above word for word, then sum it up in a few sentences."


def edit_prompt(generator, num_words):
    code = pick(generator, read_pieces(["engine/*.c", "engine/*/*.c"]), num_words)
    name = generator.choice(sorted(set(CODE_NAME.findall(code))) or ["main"])
    return f"```c\n{code}\n```\n\nReturn all of this code with `{name}` renamed to `{name}_old`. Change nothing else."


def prose_prompt(generator, num_words):
    words = make_prompts(1, 5, generator.random())[0].replace(" ", ", ")
    return f"Write a story of about {num_words} words in which these occur: {words}."


SETS = {"summary": summary_prompt, "edit": edit_prompt, "prose": prose_prompt}


def num_drafted(target):
    """Tokens drafted and accepted so far; none where the server does not draft."""
    found = dict(DRAFTS.findall(get(target.url + "/metrics")))
    return float(found.get("draft", 0)), float(found.get("accepted", 0))


def ask(target, body, timeout):
    """The answer's text, why it ended, and its tokens; or None, after the error was shown."""
    data = json.dumps({"model": target.model, **body}).encode()
    try:
        with urllib.request.urlopen(target.url + "/v1/chat/completions", data=data, timeout=timeout) as reply:
            answer = json.load(reply)
        choice = answer["choices"][0]
        return choice["message"]["content"], choice["finish_reason"], answer["usage"]["completion_tokens"]
    except (OSError, http.client.HTTPException, LookupError, ValueError) as error:
        said = error.read(200).decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else ""
        print(f"{target.name}: {type(error).__name__}: {error} {said}", file=sys.stderr)
        return None


def run_bodies(target, bodies, concurrency, timeout):
    """All bodies over `concurrency` streams; returns the answers in their order, and the figures."""
    before = num_drafted(target)
    with ThreadPoolExecutor(concurrency) as pool:
        start = time.perf_counter()
        answers = list(pool.map(lambda body: ask(target, body, timeout), bodies))
        seconds = time.perf_counter() - start
    after = num_drafted(target)
    tokens = sum(answer[2] for answer in answers if answer)
    return answers, {
        "tokens_per_second": tokens / seconds,
        "output_tokens": tokens,
        "drafted_tokens": after[0] - before[0],
        "accepted_tokens": after[1] - before[1],
        "failures": answers.count(None),
    }


def make_bodies(options, set_name, temperature, concurrency, number):
    generator = random.Random(repr((options.seed, set_name, temperature, concurrency, number)))
    return [{"messages": [{"role": "user", "content": SETS[set_name](generator, options.prompt_words)}],
             "max_tokens": options.max_tokens, "temperature": temperature, "seed": generator.randrange(1 << 31)}
            for _ in range(concurrency * options.requests)]


def run_round(targets, options, case, number):
    """The figures of each server in this round, by name."""
    set_name, temperature, concurrency = case
    bodies = make_bodies(options, set_name, temperature, concurrency, number)
    answers, figures = {}, {}
    for target in targets if number % 2 == 0 else reversed(targets):
        answers[target.name], figures[target.name] = run_bodies(target, bodies, concurrency, options.timeout)
    expected = answers[targets[0].name]
    for target in targets:
        figures[target.name]["different"] = sum(
            one != other for one, other in zip(answers[target.name], expected) if one and other)
    return figures


def summarise(rounds):
    """The median speed; the rest is added up."""
    summary = {name: sum(one[name] for one in rounds) for name in rounds[0]}
    summary["tokens_per_second"] = statistics.median(one["tokens_per_second"] for one in rounds)
    return summary


def measure(targets, options):
    results = []
    cases = [(name, temperature, concurrency) for name in options.sets for temperature in options.temperatures
             for concurrency in options.concurrency]
    for target in targets:
        target.model = options.model or find_model(target)
        run_bodies(target, [{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}], 1, options.timeout)
    for case in cases:
        rounds = []
        for number in range(options.rounds):
            rounds.append(run_round(targets, options, case, number))
            print(f"{case[0]}, temperature {case[1]}, {case[2]} streams, round {number + 1} of {options.rounds}: "
                  + ", ".join(f"{name} {one['tokens_per_second']:.1f} tok/s" for name, one in rounds[-1].items()),
                  file=sys.stderr)
        for target in targets:
            of_one = [figures[target.name] for figures in rounds]
            results.append({"set": case[0], "temperature": case[1], "concurrency": case[2], "name": target.name,
                            "rounds": of_one, "summary": summarise(of_one)})
    return results


def print_table(results):
    first = {}
    print(f"{'set':8} {'temp':>4} {'streams':>7} {'server':12} {'tok/s':>8} {'ratio':>6} {'tokens':>7} {'drafted':>8} "
          f"{'accepted':>8} {'different':>9} {'failed':>6}")
    for result in results:
        summary, case = result["summary"], (result["set"], result["temperature"], result["concurrency"])
        base = first.setdefault(case, summary["tokens_per_second"])
        drafted = summary["drafted_tokens"]
        accepted = f"{100 * summary['accepted_tokens'] / drafted:.1f} %" if drafted else "-"
        print(f"{case[0]:8} {case[1]:4g} {case[2]:7} {result['name']:12} {summary['tokens_per_second']:8.1f} "
              f"{summary['tokens_per_second'] / base if base else 0:6.2f} {summary['output_tokens']:7} {drafted:8.0f} "
              f"{accepted:>8} {summary['different']:9} {summary['failures']:6}")


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--url", action="append", required=True, metavar="[NAME=]URL",
                        help="base address without /v1; repeatable")
    parser.add_argument("--model", help="name to ask for (default: the first of /v1/models)")
    parser.add_argument("--sets", type=lambda text: text.split(","), default=list(SETS), metavar="SET,SET",
                        help=f"default {','.join(SETS)}")
    parser.add_argument("--temperatures", type=numbers(float), default=[0.0, 0.8], metavar="X,X", help="default 0,0.8")
    parser.add_argument("--concurrency", type=numbers(int), default=[1], metavar="N,N", help="default 1")
    parser.add_argument("--prompt-words", type=int, default=250, help="of the text or code, about; default 250")
    parser.add_argument("--max-tokens", type=int, default=256, help="per request; default 256")
    parser.add_argument("--requests", type=int, default=4, help="per stream and round; default 4")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--seed", type=int, default=0, help="of the prompts and of what is sampled; default 0")
    parser.add_argument("--timeout", type=float, default=600, help="seconds per request; default 600")
    parser.add_argument("--json", metavar="PATH", help="write all figures there")
    options = parser.parse_args()
    unknown = [name for name in options.sets if name not in SETS]
    if unknown:
        parser.error(f"--sets: {', '.join(unknown)}: must be of {', '.join(SETS)}")
    options.pid = []
    return options


def main():
    options = parse_options()
    results = measure(make_targets(options), options)
    print_table(results)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "results": results}, file, indent=2)
    return 1 if any(result["summary"]["failures"] or result["summary"]["different"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
