#!/usr/bin/env python3
"""Compares the beam search of a running server with Transformers' on the same GGUF file, in float32.

    check_beam.py MODEL.gguf --write-float FLOAT.gguf
    quire serve --model FLOAT.gguf --device cpu &
    check_beam.py MODEL.gguf --url http://127.0.0.1:8000 [--cache FILE]

With --cache what Transformers finds is kept in the file, and not computed again by a later run. Needs torch,
transformers, gguf.

Every search must give the same tokens for every choice as Transformers does, unless one of its decisions was closer
than --near-tie (nats of a whole sequence; beam_reference.py says how it is measured). In front of quantised weights
the server rounds activations to 8 bits: log probabilities of whole sequences differ by tenths, and few searches are
clear enough. Hence the first form, which writes the same weights as floats. And a search with other tokens is done
again by Transformers' rules on the log probabilities that the server itself gives, where there is no rounding to
excuse anything: that must give its tokens ("rounded"), or the search is WRONG and the exit status 1.
"""
import argparse
import json
import math
import sys
import urllib.request
from dataclasses import asdict
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, logging
from transformers.modeling_outputs import CausalLMOutputWithPast

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
from beam_reference import Beam, Settings, search

PROMPTS = [
    "The capital of France is",
    "Once upon a time there was a little house",
    "Water boils at",
    "def fibonacci(n):\n",
    "The best way to learn a language is to",
    "In 1969, the first men",
    "Dear Sir or Madam,\n\nI am writing to",
    "1, 2, 3, 4,",
]
STYLES = [(1.0, False), (1.0, True), (0.0, "never"), (2.0, "never")]


# --- The same weights as floats ------------------------------------------------------------------

def write_float(source, target):
    import gguf  # of no use to the comparison
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind, *inner = field.types
        writer.add_key_value(field.name, field.contents(), kind, inner[-1] if inner else None)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# --- The comparison ------------------------------------------------------------------------------

def post(url, body):
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"]


def ask(url, prompt, settings):
    body = {"prompt": prompt, "use_beam_search": True, "best_of": settings.width, "n": settings.n,
            "max_tokens": settings.max_tokens, "length_penalty": settings.length_penalty,
            "early_stopping": settings.early_stopping, "ignore_eos": True,
            "stop_token_ids": settings.ends, "return_token_ids": True}
    return [choice["token_ids"] for choice in post(url, body)]


class ServerLogits:
    """Has the server answer for the model: the last row of each sequence, of which the server gives the most
    probable tokens. What is left of the probability is spread over the others."""

    def __init__(self, model, url):
        self.model, self.url = model, url

    def __enter__(self):
        self.model.forward = self.forward

    def __exit__(self, *_):
        del self.model.forward

    def forward(self, input_ids=None, **_):
        sequences = [tuple(row) for row in input_ids.tolist()]
        distinct = list(dict.fromkeys(sequences))
        body = {"prompt": [[*row, 0] for row in distinct], "max_tokens": 1, "prompt_logprobs": 20}
        tops = [choice["prompt_logprobs"][-1] for choice in post(self.url, body)]
        rows = dict(zip(distinct, map(self.row, tops)))
        return CausalLMOutputWithPast(logits=torch.stack([rows[row] for row in sequences])[:, None])

    def row(self, top):
        top = {int(token): entry["logprob"] for token, entry in top.items()}
        vocab = self.model.config.vocab_size
        left = max(1 - sum(map(math.exp, top.values())), 1e-12)
        row = torch.full((vocab,), math.log(left / (vocab - len(top))))
        row[list(top)] = torch.tensor(list(top.values()))
        return row


def expect(model, prompt, settings, cache):
    """Returns what Transformers finds, and the gap."""
    key = json.dumps([prompt, asdict(settings)])
    kept = json.loads(cache.read_text()) if cache and cache.exists() else {}
    if key not in kept:
        beams, gap = search(model, prompt, settings)
        kept[key] = {"beams": [asdict(beam) for beam in beams], "gap": gap}
        if cache:
            cache.write_text(json.dumps(kept))
    return [Beam(**beam) for beam in kept[key]["beams"]], kept[key]["gap"]


def count_same(found, beams):
    return sum(tokens == beam.tokens for tokens, beam in zip(found, beams))


def compare(arguments, model, prompt, settings):
    """(choices with the same tokens, the gap, verdict)"""
    found = ask(arguments.url, prompt, settings)
    beams, gap = expect(model, prompt, settings, arguments.cache)
    same = count_same(found, beams)
    if same == settings.n:
        return same, gap, "equal"
    if gap < arguments.near_tie:
        return same, gap, "near-tie"
    with ServerLogits(model, arguments.url):
        beams, _ = search(model, prompt, settings, use_cache=False)
    return same, gap, "rounded" if count_same(found, beams) == settings.n else "WRONG"


def searches(tokenizer, widths, max_tokens):
    ends = [*tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"]),
            *tokenizer(".", add_special_tokens=False).input_ids]
    for width in widths:
        for i, text in enumerate(PROMPTS):
            length_penalty, early_stopping = STYLES[i % len(STYLES)]
            prompt = tokenizer(text, add_special_tokens=False).input_ids
            yield text, prompt, Settings(width, width, max_tokens, 0, length_penalty,
                                         early_stopping, ends)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--write-float", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--widths", type=int, nargs="+", default=[2, 4, 6])
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--near-tie", type=float, default=1e-3)
    arguments = parser.parse_args()
    if arguments.write_float:
        return write_float(arguments.model, arguments.write_float)
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    source = {"pretrained_model_name_or_path": arguments.model.parent, "gguf_file": arguments.model.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).eval()
    counts = {"equal": 0, "near-tie": 0, "rounded": 0, "WRONG": 0}
    for text, prompt, settings in searches(tokenizer, arguments.widths, arguments.max_tokens):
        same, gap, verdict = compare(arguments, model, prompt, settings)
        counts[verdict] += 1
        print(f"width {settings.width} {text[:24]!r:28} {same}/{settings.n} equal, gap {gap:.4f}, "
              f"{verdict}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
