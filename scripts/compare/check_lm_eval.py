#!/usr/bin/env python3
"""Runs tasks of lm-evaluation-harness on a running server (local-completions) with text prompts, with token ids and
with the server as tokenizer, and on Transformers with the same GGUF file (hf). Prints the figures; ends with status 1
when one way of asking the server gives another answer than the others, or Transformers gives another answer to more
than one sentence in twenty.

    check_lm_eval.py --url http://127.0.0.1:8000 MODEL.gguf

Needs lm-eval[api], torch, transformers, gguf and accelerate. The tasks are made of tests/e2e/data/facts.jsonl, 64
sentences with four endings each: facts, the most probable ending is the answer; chats, the perplexity of the true
sentences as chats with the model's control tokens; endings, what the model writes."""

import argparse
import json
import os
import sys
import tempfile
import urllib.request
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

import lm_eval
import transformers
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

FACTS = Path(__file__).resolve().parents[2] / "tests/e2e/data/facts.jsonl"

TASK = """task: quire_{name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
"""
TASKS = {
    "facts": """output_type: multiple_choice
doc_to_text: "{{query}}"
doc_to_choice: "{{choices}}"
doc_to_target: gold
metric_list:
  - metric: acc
  - metric: acc_norm
""",
    "chats": """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{chat}}"
metric_list:
  - metric: byte_perplexity
""",
    "endings": """output_type: generate_until
doc_to_text: "{{query}}"
doc_to_target: " {{choices[gold]}}"
generation_kwargs:
  until: [".", ",", "\\n"]
  max_gen_toks: 8
metric_list:
  - metric: exact_match
""",
}
FIGURES = [("facts", "acc"), ("facts", "acc_norm"), ("chats", "byte_perplexity"), ("endings", "exact_match")]


def write_tasks(folder, tokenizer):
    documents = [json.loads(line) for line in FACTS.read_text().splitlines()]
    for document in documents:
        messages = [{"role": "user", "content": document["query"]},
                    {"role": "assistant", "content": document["choices"][document["gold"]]}]
        document["chat"] = tokenizer.apply_chat_template(messages, tokenize=False)
    data = folder / "documents.jsonl"
    data.write_text("".join(json.dumps(document) + "\n" for document in documents))
    for name, task in TASKS.items():
        (folder / f"{name}.yaml").write_text(TASK.format(name=name, data=data) + task)


def evaluate(model, folder, tasks=tuple(TASKS), **options):
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    return lm_eval.simple_evaluate(model=model, tasks=[f"quire_{name}" for name in tasks], task_manager=manager,
                                   log_samples=True, bootstrap_iters=0, **options)


def answers(results, name):
    """Returns what the model said to every document of a task, in order: log likelihoods or texts."""
    samples = sorted(results["samples"].get(f"quire_{name}", []), key=lambda sample: sample["doc_id"])
    return [[entry[0][0] if isinstance(entry[0], (list, tuple)) else entry[0] for entry in sample["resps"]]
            for sample in samples]


def evaluate_server(arguments, folder):
    """Way of asking -> its results."""
    common = {"model": arguments.name or served_name(arguments.url), "base_url": arguments.url + "/v1/completions",
              "num_concurrent": 4}
    local = {**common, "tokenizer_backend": "huggingface", "tokenizer": str(folder / "tokenizer")}
    return {
        "text prompts": evaluate("local-completions", folder, model_args={**local, "tokenized_requests": False}),
        "token ids": evaluate("local-completions", folder, model_args={**local, "tokenized_requests": True}),
        "remote tokenizer": evaluate("local-completions", folder, model_args={**common, "tokenizer_backend": "remote"}),
        # Without a tokenizer, lm-eval knows no log likelihoods.
        "no tokenizer": evaluate("local-completions", folder, ["endings"],
                                 model_args={**common, "tokenizer_backend": "none"}),
    }


def served_name(url):
    with urllib.request.urlopen(url + "/v1/models") as response:
        return json.load(response)["data"][0]["id"]


def print_figures(ways):
    print(f"{'':18}" + "".join(f"{name + ' ' + metric:>24}" for name, metric in FIGURES))
    for way, results in ways.items():
        figures = [results["results"].get(f"quire_{name}", {}).get(f"{metric},none") for name, metric in FIGURES]
        print(f"{way:18}" + "".join(f"{'-' if figure is None else f'{figure:.6f}':>24}" for figure in figures))


def agrees_with_transformers(ours, theirs):
    mine, other = answers(ours, "facts"), answers(theirs, "facts")
    differences = [abs(a - b) for row, other_row in zip(mine, other) for a, b in zip(row, other_row)]
    same = sum(row.index(max(row)) == other_row.index(max(other_row)) for row, other_row in zip(mine, other))
    print(f"facts, server and Transformers: {len(differences)} log likelihoods, largest difference "
          f"{max(differences):.4f}, mean {sum(differences) / len(differences):.4f}; same answer to {same} of {len(mine)}")
    return same >= 0.95 * len(mine)


def count_differences(ways):
    """Answers of the server that are not those to token ids, over all tasks."""
    wrong = 0
    for way, results in ways.items():
        for name in TASKS:
            given = answers(results, name)
            different = sum(a != b for a, b in zip(given, answers(ways["token ids"], name)))
            if different:
                print(f"{way}: {different} of {len(given)} answers of {name} are not those to token ids")
            wrong += different
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(". ")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--name", help="the model's served name, default: what the server reports")
    arguments = parser.parse_args()
    gguf = {"gguf_file": arguments.model.name}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model.parent, **gguf)
        tokenizer.save_pretrained(folder / "tokenizer")
        write_tasks(folder, tokenizer)
        ways = evaluate_server(arguments, folder)
        network = transformers.AutoModelForCausalLM.from_pretrained(arguments.model.parent, dtype="float32", **gguf)
        theirs = evaluate(HFLM(pretrained=network, tokenizer=tokenizer, batch_size=8), folder)
    print_figures({**ways, "Transformers": theirs})
    agrees = agrees_with_transformers(ways["token ids"], theirs)
    return 0 if count_differences(ways) == 0 and agrees else 1


if __name__ == "__main__":
    sys.exit(main())
