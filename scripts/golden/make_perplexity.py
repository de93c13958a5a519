#!/usr/bin/env python3
"""Computes the reference figure of the perplexity test: Transformers in float32 on the dequantised
weights of a GGUF file. Needs torch, transformers and gguf, which the tests themselves do not.

Usage: make_perplexity.py MODEL.gguf tests/e2e/data/quires.txt tests/e2e/data/perplexity.json
"""

import hashlib
import json
import math
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    model_path, text_path, out_path = map(Path, sys.argv[1:4])
    source = {"pretrained_model_name_or_path": model_path.parent, "gguf_file": model_path.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).eval()
    tokens = tokenizer(text_path.read_text(), return_tensors="pt", add_special_tokens=False).input_ids
    with torch.no_grad():
        logprobs = model(tokens).logits[0, :-1].log_softmax(-1)
    nll = -logprobs.gather(1, tokens[0, 1:, None]).double().mean().item()
    out_path.write_text(json.dumps({
        "model": model_path.name,
        "model_sha256": hashlib.sha256(model_path.read_bytes()).hexdigest(),
        "text": text_path.name,
        "num_tokens": tokens.numel(),
        "mean_negative_logprob": round(nll, 6),
        "perplexity": round(math.exp(nll), 5),
        "made_with": f"transformers float32, torch {torch.__version__}",
    }, indent=2) + "\n")
    print(out_path.read_text())


if __name__ == "__main__":
    main()
