#!/usr/bin/env python3
"""Runs a loglikelihood task of lm-evaluation-harness on a running server (local-completions) and on
Transformers with the same GGUF file (hf), and compares the answers one by one.

    check_lm_eval.py --url http://127.0.0.1:8000 MODEL.gguf

Needs lm-eval[api], torch, transformers, gguf and accelerate. The task is tests/e2e/data/facts.jsonl: 64
sentences with four endings each; the most probable ending is the answer."""

import argparse
import json
import os
import tempfile
import urllib.request
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

import lm_eval
import transformers
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

FACTS = Path(__file__).resolve().parents[1] / "tests/e2e/data/facts.jsonl"

TASK = """task: quire_facts
dataset_path: json
dataset_kwargs:
  data_files:
    test: {facts}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{query}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: gold
metric_list:
  - metric: acc
  - metric: acc_norm
"""


def evaluate(model, folder, **options):
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    return lm_eval.simple_evaluate(model=model, tasks=["quire_facts"], task_manager=manager, log_samples=True,
                                   bootstrap_iters=0, **options)


def answers(results):
    """One list of loglikelihoods per sentence, in order."""
    samples = sorted(results["samples"]["quire_facts"], key=lambda sample: sample["doc_id"])
    return [[float(entry[0][0]) for entry in sample["resps"]] for sample in samples]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--name", help="the model's served name, default: what the server reports")
    arguments = parser.parse_args()
    gguf = {"gguf_file": arguments.model.name}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "facts.yaml").write_text(TASK.format(facts=FACTS))
        tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model.parent, **gguf)
        tokenizer.save_pretrained(folder + "/tokenizer")
        network = transformers.AutoModelForCausalLM.from_pretrained(arguments.model.parent, dtype="float32", **gguf)
        theirs = evaluate(HFLM(pretrained=network, tokenizer=tokenizer, batch_size=8), folder)
        name = arguments.name or served_name(arguments.url)
        ours = evaluate("local-completions", folder, model_args={
            "model": name, "base_url": arguments.url + "/v1/completions", "tokenizer": folder + "/tokenizer",
            "num_concurrent": 4, "tokenized_requests": False})
    report(ours, theirs)


def served_name(url):
    with urllib.request.urlopen(url + "/v1/models") as response:
        return json.load(response)["data"][0]["id"]


def report(ours, theirs):
    differences = [abs(a - b) for mine, other in zip(answers(ours), answers(theirs)) for a, b in zip(mine, other)]
    same = sum(mine.index(max(mine)) == other.index(max(other))
               for mine, other in zip(answers(ours), answers(theirs)))
    print(f"{len(differences)} loglikelihoods: largest difference {max(differences):.4f}, "
          f"mean {sum(differences) / len(differences):.4f}")
    print(f"same answer to {same} of {len(answers(ours))} sentences")
    for metric in ("acc", "acc_norm"):
        values = [results["results"]["quire_facts"][f"{metric},none"] for results in (ours, theirs)]
        print(f"{metric}: server {values[0]:.4f}, Transformers {values[1]:.4f}")


if __name__ == "__main__":
    main()
