#!/usr/bin/env python3
"""Measures what grammars whose masks take long cost those who share a server with them: the times between two tokens
of plain streams, first alone and then beside as many requests with such grammars.

  quire serve --model MODEL --port 8000 &
  scripts/bench/bench_grammar_bombs.py --url http://127.0.0.1:8000

The text of a seeded stream must be the same alone and beside them. With --refused it measures how long hostile forms that must be refused
take to be answered with 400 while plain streams go on, one at a time, and what they cost those. Needs Python 3.9.
"""

import argparse
import http.client
import json
import sys
import threading
import time
from urllib.parse import urlsplit

BOMBS = {
    "alternatives": {"guided_regex": "|".join("(?:.{0,300}a.{0,300})" for _ in range(200))},
    "repetitions": {"guided_regex": "|".join(f".{{0,{n}}}" for n in range(20000, 20500))},
    "pairs": {"guided_regex": "(?:(?:a|[a-z ]|.){1,40}(?:b|[a-z ]|.){1,40}){1,40}"},
    "schema": {"guided_json": {"anyOf": [{"type": "object", "properties": {"k": {"type": "string", "maxLength": n}},
                                          "required": ["k"]} for n in range(5000, 5200)]}},
    "ambiguous": {"guided_grammar": "root ::= s\ns ::= s s | s [a-z ] s? s | [a-z ] s [a-z ] | [a-z ]"},
    "left_recursive": {"guided_grammar": "root ::= r0\n" + "".join(
        f"r{i} ::= " + " | ".join(f"r{j} [a-{chr(98 + j % 24)} ]" for j in range(30)) + " | [a-z] root? [a-z ]\n" for i in range(30))},
    "ignored": {"guided_grammar": "start: (A* B? (A B*)? C)+\nA: /[a-m ]+/\nB: /[h-z ]+/ | A B?\nC: /(.{0,40}x?){0,40}/s\n%ignore /[ a-z]/"},
    "nested": {"guided_grammar": "root ::= " + "[a-z ] root? [ a-z] | . root? . root? | " * 60 + '"."'},
}
REFUSED = {
    "root of itself": {"guided_grammar": "root ::= root"},
    "rules of each other": {"guided_grammar": "root ::= a\na ::= b\nb ::= a"},
    "counts of many groups": {"guided_regex": "|".join("(a{0,999}b{999}){999}" * 60 for _ in range(200))},
    "groups, 60000 deep": {"guided_regex": "(" * 60000 + "a" + ")" * 60000},
    "grammar, 60000 deep": {"guided_grammar": "root ::= " + "(" * 60000 + '"a"' + ")" * 60000},
    "oneOf of 10000": {"guided_json": {"oneOf": [{"type": "object", "properties": {f"p{i}": {"type": "string"}}} for i in range(10000)]}},
    "oneOf that overlap": {"guided_json": {"oneOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{i}}}"} for i in range(10, 25)]}},
    "reference to itself": {"guided_json": {"$ref": "#"}},
    "reference to elsewhere": {"guided_json": {"$ref": "http://127.0.0.1/x"}},
    "pattern open": {"guided_json": {"type": "string", "pattern": "("}},
    "patterns that multiply": {"guided_json": {"allOf": [{"pattern": f"^(.{{{n}}})*$"} for n in (7, 11, 13, 17, 19, 23)], "type": "string"}},
    "schema, 80 deep": {"guided_json": json.loads('{"items":' * 80 + "{}" + "}" * 80)},
    "unknown type": {"guided_json": {"type": "int"}},
    "look-ahead": {"guided_regex": "(?=a)b"},
    "range upside down": {"guided_regex": "[z-a]"},
}


class Stream(threading.Thread):
    """A completion that is streamed; `times` says when its tokens came."""

    def __init__(self, address, body):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection(*address, timeout=600)
        self.body = {"model": "default", "stream": True, "temperature": 1, **body}
        self.times, self.text, self.error, self.stopped = [], "", None, False

    def take(self, line):
        event = json.loads(line)
        if "error" in event:
            self.error = str(event["error"])
        elif event["choices"] and event["choices"][0]["text"]:
            self.times.append(time.monotonic())
            self.text += event["choices"][0]["text"]

    def run(self):
        try:
            self.connection.request("POST", "/v1/completions", json.dumps(self.body),
                                    {"Content-Type": "application/json"})
            answer = self.connection.getresponse()
            if answer.status != 200:
                self.error = answer.read().decode()[:200]
                return
            for line in answer:
                if self.stopped:
                    break
                if line.startswith(b"data: {"):
                    self.take(line[6:])
        except (OSError, http.client.HTTPException) as error:
            self.error = repr(error)
        finally:
            self.connection.close()

    def gaps(self):
        return [1e3 * (b - a) for a, b in zip(self.times, self.times[1:])]


def quantile(values, share):
    values = sorted(values)
    return values[min(int(share * len(values)), len(values) - 1)] if values else float("nan")


def run_streams(address, model, count, tokens):
    """Plain streams to their end; prints what came between their tokens."""
    streams = [Stream(address, {"model": model, "prompt": f"Chapter {i}. Once upon a time", "max_tokens": tokens, "seed": i,
                                "ignore_eos": True}) for i in range(count)]
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.join()
    for stream in streams:
        if stream.error:
            sys.exit(f"a plain stream failed: {stream.error}")
    return streams


def report(name, streams):
    gaps = [gap for stream in streams for gap in stream.gaps()]
    print(f"{name:24} {len(gaps):6} gaps, ms: p50 {quantile(gaps, 0.5):7.1f}  p90 {quantile(gaps, 0.9):7.1f}"
          f"  p99 {quantile(gaps, 0.99):7.1f}  most {max(gaps):7.1f}", flush=True)


def ask_refused(address, model, body):
    """Returns the status, and how long the answer took, in ms."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    content = json.dumps({"model": model, "prompt": "x", "max_tokens": 4, **body})
    began = time.monotonic()
    connection.request("POST", "/v1/completions", content, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, 1e3 * (time.monotonic() - began)


def measure_refused(address, model, options):
    """Asks them all again and again as long as plain streams go on."""
    alone = run_streams(address, model, options.streams, options.tokens)
    report("alone", alone)
    beside, times, wrong = [], {name: [] for name in REFUSED}, set()
    runner = threading.Thread(target=lambda: beside.extend(run_streams(address, model, options.streams, options.tokens)), daemon=True)
    runner.start()
    time.sleep(0.3)
    is_first = True
    while is_first or runner.is_alive():  # once at least, however fast the streams are
        is_first = False
        for name, body in REFUSED.items():
            status, took = ask_refused(address, model, body)
            times[name].append(took)
            if status != 400:
                wrong.add(f"{name}: {status}")
    runner.join()
    report("beside refused ones", beside)
    for name, values in times.items():
        print(f"{name:24} {len(values):6} times, ms: p50 {quantile(values, 0.5):7.1f}  most {max(values):7.1f}")
    changed = sum(a.text != b.text for a, b in zip(alone, beside))
    print(f"{changed} streams with another text than alone; {len(wrong)} were not refused {wrong or ''}")
    return 1 if changed or wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--bombs", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=100, help="of a stream")
    parser.add_argument("--kinds", default=",".join(BOMBS), help="of the grammars, separated by commas")
    parser.add_argument("--refused", action="store_true", help="measure those that are refused")
    arguments = parser.parse_args()
    parts = urlsplit(arguments.url)
    address = (parts.hostname, parts.port)
    connection = http.client.HTTPConnection(*address, timeout=60)
    connection.request("GET", "/v1/models")
    model = json.loads(connection.getresponse().read())["data"][0]["id"]
    run_streams(address, model, arguments.streams, 4)
    if arguments.refused:
        return measure_refused(address, model, arguments)
    alone = run_streams(address, model, arguments.streams, arguments.tokens)
    report("alone", alone)
    changed = 0
    for kind in arguments.kinds.split(","):
        bombs = [Stream(address, {"model": model, "prompt": f"Say {i}:", "max_tokens": 4000, "seed": i, "ignore_eos": True, **BOMBS[kind]})
                 for i in range(arguments.bombs)]
        for bomb in bombs:
            bomb.start()
        time.sleep(1)
        began = time.monotonic()
        streams = run_streams(address, model, arguments.streams, arguments.tokens)
        num_tokens = sum(t > began for bomb in bombs for t in list(bomb.times))
        report(f"beside {len(bombs)} {kind}", streams)
        changed += sum(a.text != b.text for a, b in zip(alone, streams))
        errors = {bomb.error for bomb in bombs if bomb.error}
        print(f"{'':24} {sum(bomb.is_alive() for bomb in bombs)} grammars go on, which got {num_tokens} tokens in "
              f"{time.monotonic() - began:.1f} s {errors or ''}", flush=True)
        for bomb in bombs:
            bomb.stopped = True
        for bomb in bombs:
            bomb.join(5)
        time.sleep(1)
    print(f"{changed} streams with another text than alone")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
