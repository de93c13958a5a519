#!/usr/bin/env python3
"""Writes tests/golden/beams.json: what Transformers' beam search finds with the tiny models of the families.

Run by hand after a deliberate change (needs torch, transformers):

    python scripts/golden/make_beam_golden.py tests/golden

One search a line. Settings and lengths of prompts are chosen with a seed; tokens that end a beam are chosen
from those that beams without an end consist of, so that beams do end. Searches with a decision closer than MIN_GAP
are left out, since rounding could turn it.
"""
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from transformers import logging

from beam_reference import Settings, search
from make_families import load

FAMILIES = ["llama3", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "granite", "olmo2",
            "cohere"]
NUM_SEARCHES, MIN_GAP = 10, 1e-4


def golden_prompt(path):
    header = np.fromfile(path, np.int32, 3)
    return np.fromfile(path, np.int32, 3 + header[0])[3:].tolist()


def draw_settings(rng):
    width = int(rng.choice([2, 3, 4, 6, 8, 12]))
    max_tokens = int(rng.integers(1, 25))
    return Settings(
        width=width, n=width if rng.random() < 0.5 else int(rng.integers(1, width + 1)),
        max_tokens=max_tokens,
        min_tokens=min(int(rng.integers(0, 6)), max_tokens) if rng.random() < 0.3 else 0,
        length_penalty=float(rng.choice([-1.0, 0.0, 0.5, 1.0, 2.0])),
        early_stopping=[False, True, "never"][rng.integers(3)], ends=[])


def draw_ends(rng, model, prompt, settings):
    beams, _ = search(model, prompt, settings)
    tokens = sorted({token for beam in beams for token in beam.tokens})
    count = min(int(rng.choice([0, 1, 2, 3, 3])), len(tokens))
    return sorted(int(token) for token in rng.choice(tokens, count, replace=False))


def draw_search(rng, name, model, whole_prompt):
    """A line of the file, and how close it was."""
    prompt = whole_prompt[:int(rng.integers(1, len(whole_prompt) + 1))]
    settings = draw_settings(rng)
    settings = replace(settings, ends=draw_ends(rng, model, prompt, settings))
    beams, gap = search(model, prompt, settings)
    line = {"model": name, "prompt": prompt, **asdict(settings),
            "beams": [{**asdict(beam), "score": round(beam.score, 6)} for beam in beams]}
    return line, gap


def searches_of(folder, name):
    rng = np.random.default_rng(list(b"beams" + name.encode()))
    model = load(folder / name)
    prompt = golden_prompt(folder / f"{name}.golden")
    lines, num_close = [], 0
    while len(lines) < NUM_SEARCHES:
        line, gap = draw_search(rng, name, model, prompt)
        if gap < MIN_GAP:
            num_close += 1
        else:
            lines.append(line)
    num_ended = sum(beam["ended"] for line in lines for beam in line["beams"])
    num_beams = sum(len(line["beams"]) for line in lines)
    print(f"{name}: {len(lines)} searches, {num_close} left out as too close; {num_ended} of "
          f"{num_beams} beams ended")
    return lines


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    out = Path(sys.argv[1])
    lines = [line for name in FAMILIES for line in searches_of(out / "families", name)]
    text = ",\n".join(json.dumps(line) for line in lines)
    (out / "beams.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
