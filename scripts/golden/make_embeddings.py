#!/usr/bin/env python3
"""Writes what the hidden states of a prompt must be, pooled: Transformers' last_hidden_state in float32.

Run by hand after a deliberate change (needs torch, transformers, tokenizers, gguf):

    python scripts/golden/make_embeddings.py tests/golden/families        # every folder that has a NAME.golden
    python scripts/golden/make_embeddings.py MODEL.gguf TEXT OUT           # the first tokens of a text

NAME.embedding holds, little-endian: int32 num_tokens, int32 hidden_size, int32 tokens[num_tokens],
float32 mean[hidden_size] of all tokens' states, float32 last[hidden_size].
"""
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, logging

from make_families import load

NUM_TEXT_TOKENS = 100


def write(path, model, tokens):
    with torch.no_grad():
        states = model.base_model(torch.tensor([tokens])).last_hidden_state[0].double().numpy()
    with path.open("wb") as out:
        np.array([len(tokens), states.shape[1]], "<i4").tofile(out)
        np.array(tokens, "<i4").tofile(out)
        states.mean(axis=0).astype("<f4").tofile(out)
        states[-1].astype("<f4").tofile(out)
    print(f"{path.name}: {len(tokens)} tokens, norms of the states "
          f"{np.linalg.norm(states.mean(axis=0)):.3f} (mean) and {np.linalg.norm(states[-1]):.3f} (last)")


def golden_prompt(path):
    numbers = np.fromfile(path, "<i4")
    return numbers[3:3 + numbers[0]].tolist()


def write_families(folder):
    for golden in sorted(folder.glob("*.golden")):
        if golden.with_suffix("").is_dir():
            write(golden.with_suffix(".embedding"), load(golden.with_suffix("")), golden_prompt(golden))


def write_text(model_path, text_path, out):
    source = {"pretrained_model_name_or_path": model_path.parent, "gguf_file": model_path.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(**source)
    tokens = tokenizer(text_path.read_text(), add_special_tokens=False).input_ids
    write(out, model, tokens[:NUM_TEXT_TOKENS])


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    if len(sys.argv) == 2:
        write_families(Path(sys.argv[1]))
    else:
        write_text(*map(Path, sys.argv[1:4]))


if __name__ == "__main__":
    main()
