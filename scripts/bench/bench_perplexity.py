#!/usr/bin/env python3
"""Measures the perplexity of the same texts on several running servers, as of one model with different
--kv-cache-dtype: of each text its first tokens in one prompt. Prints what each server has more than the first.

    bench_perplexity.py --url f16=http://127.0.0.1:8001 --url int8=http://127.0.0.1:8002 TEXT.txt..."""

import argparse
import json
import math
import urllib.request
from pathlib import Path


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as response:
        return json.load(response)


def negative_logprobs(url, text, most):
    """Of the tokens after the first."""
    tokens = post(url, "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"][:most]
    answer = post(url, "/v1/completions", {"prompt": tokens, "max_tokens": 0, "echo": True, "logprobs": 1})
    return [-value for value in answer["choices"][0]["logprobs"]["token_logprobs"][1:]]


def mean(values):
    return sum(values) / len(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", action="append", required=True, metavar="LABEL=URL")
    parser.add_argument("--tokens", type=int, default=1000, help="of each text at most")
    parser.add_argument("texts", nargs="+", type=Path)
    args = parser.parse_args()
    first = None
    for label, url in (item.split("=", 1) for item in args.url):
        values = [negative_logprobs(url, path.read_text(), args.tokens) for path in args.texts]
        every = sum(values, [])
        first = first or values
        more = [f"{100 * math.expm1(mean(a) - mean(b)):+.2f} %" for a, b in zip([every, *values], [sum(first, []), *first])]
        print(f"{label}: {len(every)} tokens, perplexity {math.exp(mean(every)):.4f} ({more[0]}; by text {', '.join(more[1:])})",
              flush=True)


if __name__ == "__main__":
    main()
