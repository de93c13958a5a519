#!/usr/bin/env python3
"""Measures what it costs to hold outputs to JSON schemas: tokens/s of as many constrained completions as unconstrained ones, at once,
in rounds of one after the other.

  quire serve --model MODEL --port 8000 &
  scripts/bench/bench_grammar_load.py --url http://127.0.0.1:8000 --pid $!

Both have the same prompts and numbers of tokens (ignore_eos, and schemas whose texts do not end before). Seeds are new in every round, so
that both write into new blocks; so are schemas, one for each stream, so that every first mask is paid for; with --same there is one for all. With --pid the processor's time of the server is
compared as well, which other programs of the machine disturb less. Ends with 1 when the median ratio is below --least. Needs Python 3.9.
"""

import argparse
import http.client
import json
import os
import statistics
import sys
import threading
import time
from urllib.parse import urlsplit


def schema(number):
    """An array that is longer than the output, of objects as clients have them."""
    name = f"field_{number}"
    item = {"type": "object", "additionalProperties": False, "required": [name, "kind", "size"], "properties": {
        name: {"type": "string", "maxLength": 40}, "kind": {"enum": ["small", "medium", "large"]},
        "size": {"type": "integer", "minimum": 0, "maximum": 9999}, "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3}}}
    return {"type": "array", "items": item, "minItems": 1000}


class Completion(threading.Thread):
    def __init__(self, address, body):
        super().__init__(daemon=True)
        self.address, self.body, self.tokens, self.error = address, body, 0, None

    def run(self):
        connection = http.client.HTTPConnection(*self.address, timeout=600)
        try:
            connection.request("POST", "/v1/completions", json.dumps(self.body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = json.loads(answer.read())
            if answer.status != 200:
                self.error = str(content)[:300]
            else:
                self.tokens = content["usage"]["completion_tokens"]
        except (OSError, http.client.HTTPException) as error:
            self.error = repr(error)
        finally:
            connection.close()


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(options, model, first_seed, schemas):
    """Returns tokens/s, and processor's seconds."""
    address = (options.address.hostname, options.address.port)
    streams = []
    for i in range(options.streams):
        body = {"model": model, "prompt": f"Chapter {i}. A list of all things in the house:", "max_tokens": options.tokens,
                "min_tokens": options.tokens, "ignore_eos": True, "temperature": 1, "seed": first_seed + i}
        if schemas:
            body["structured_outputs"] = {"json": schemas[i]}
        streams.append(Completion(address, body))
    before = processor_seconds(options.pid) if options.pid else 0
    began = time.monotonic()
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.join()
    seconds = time.monotonic() - began
    for stream in streams:
        if stream.error or stream.tokens != options.tokens:
            sys.exit(f"a completion failed: {stream.error or stream.tokens}")
    return options.streams * options.tokens / seconds, (processor_seconds(options.pid) if options.pid else 0) - before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--pid", type=int, help="of the server")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64, help="of a stream")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--same", action="store_true", help="one schema for all")
    parser.add_argument("--least", type=float, default=0.95, help="the ratio that must be reached")
    options = parser.parse_args()
    options.address = urlsplit(options.url)
    connection = http.client.HTTPConnection(options.address.hostname, options.address.port, timeout=60)
    connection.request("GET", "/v1/models")
    model = json.loads(connection.getresponse().read())["data"][0]["id"]
    run(options, model, 0, None)
    ratios, costs = [], []
    for number in range(options.rounds):
        first = (number + 1) * options.streams
        schemas = [schema(0 if options.same else first + i) for i in range(options.streams)]
        order = [None, schemas] if number % 2 == 0 else [schemas, None]
        results = [run(options, model, first, one) for one in order]
        free, held = results if number % 2 == 0 else results[::-1]
        ratios.append(held[0] / free[0])
        costs.append(held[1] / free[1] if free[1] else float("nan"))
        print(f"round {number + 1}: {free[0]:7.1f} tokens/s without a schema, {held[0]:7.1f} with: {100 * ratios[-1]:5.1f} %; "
              f"processor's time {costs[-1]:.3f} times", flush=True)
    print(f"median: {100 * statistics.median(ratios):.1f} % of the tokens/s, {statistics.median(costs):.3f} times the processor's time")
    return 1 if statistics.median(ratios) < options.least else 0


if __name__ == "__main__":
    sys.exit(main())
