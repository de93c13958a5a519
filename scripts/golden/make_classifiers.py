#!/usr/bin/env python3
"""Writes tiny models that give scores, and the scores that Transformers computes with them.

Run by hand after a deliberate change (needs torch, transformers, tokenizers, gguf):

    python scripts/golden/make_classifiers.py tests/golden/classifiers

The weights are seeded and random. NAME/ is what save_pretrained writes, with a tokenizer, for a class
...ForSequenceClassification, and for a language model that answers "no" or "yes" (reranker/; reranker.gguf has
the same weights, and the parts that llama.cpp's converter adds). NAME.json has texts and pairs of texts, with the
numbers of each label (`logits`) and the scores that vLLM and sentence-transformers make of them: softmax, or
sigmoid of one label or if there may be several.
"""
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import torch
from transformers import (AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, GemmaConfig,
                          LlamaConfig, Qwen3Config)

from family_gguf import add_rope, add_sizes, add_tensors
from make_families import write_tokenizer
from make_golden import CHAT_TEMPLATE

VOCAB = 280
NO, YES = VOCAB - 3, VOCAB - 1  # the tokens, see add_words
SIZES = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 1024,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SENTIMENTS = {0: "negative", 1: "neutral", 2: "positive"}
MODELS = {
    "qwen3": Qwen3Config(**SIZES, num_labels=1, tie_word_embeddings=True),
    "llama": LlamaConfig(**SIZES, id2label=SENTIMENTS, label2id={name: i for i, name in SENTIMENTS.items()}),
    "gemma": GemmaConfig(**SIZES, num_labels=3, problem_type="multi_label_classification"),
}
RERANKER = Qwen3Config(**SIZES, tie_word_embeddings=True)
TEXTS = ["The cat sat on the mat.", "x", "Quires are gatherings of leaves. " * 8, "one two three", "木を見て森を見ず"]
QUERY = "where are the keys"
DOCUMENTS = ["In the hall, by the door.", "A quire has 24 leaves.", "no", "The keys are where they were."]
INSTRUCTION = "Find the place that is asked for"
# The prompt of Qwen3-Reranker's model card.
CARD_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
CARD = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n"
        "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n")


def fill(model, name):
    rng = np.random.default_rng(list(name.encode()))
    plus_one = model.config.model_type == "gemma"
    with torch.no_grad():
        for key, weight in model.named_parameters():
            spread = 1.3 / np.sqrt(weight.shape[-1])
            values = rng.uniform(0.5, 1.5, weight.shape) - plus_one if "norm" in key else rng.normal(0, spread, weight.shape)
            weight.copy_(torch.from_numpy(values.astype(np.float32)))
    return model


def add_words(folder):
    """Makes the last three tokens "no", "ye" and "yes"."""
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text())
    tokens = list(values["model"]["vocab"])
    values["model"]["vocab"] = {token: i for i, token in enumerate(tokens[:-3] + ["no", "ye", "yes"])}
    values["model"]["merges"][-3:] = [["n", "o"], ["y", "e"], ["ye", "s"]]
    path.write_text(json.dumps(values, ensure_ascii=False) + "\n")


def write_folder(folder, kind, config):
    shutil.rmtree(folder, ignore_errors=True)
    fill(kind.from_config(config), folder.name).to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    write_tokenizer(folder)
    add_words(folder)


def numbers_of(model, tokens):
    """The logits of the labels, or those of the last token's words."""
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
    return logits.double() if logits.dim() == 1 else logits[-1].double()


def scores_of(logits, problem):
    if len(logits) == 1 or problem == "multi_label_classification":
        return torch.sigmoid(logits)
    return torch.softmax(logits, dim=0)


def write_classifier(folder, config):
    write_folder(folder, AutoModelForSequenceClassification, config)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    cases = []
    for text in TEXTS + [QUERY + document for document in DOCUMENTS]:
        tokens = tokenizer(text).input_ids
        logits = numbers_of(model, tokens)
        cases.append({"text": text, "tokens": tokens, "logits": logits.tolist(),
                      "scores": scores_of(logits, config.problem_type).tolist()})
    write_json(folder, {"query": QUERY, "documents": DOCUMENTS,
                        "labels": [model.config.id2label[i] for i in range(model.config.num_labels)], "cases": cases})


def write_reranker(folder):
    write_folder(folder, AutoModelForCausalLM, RERANKER)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.convert_tokens_to_ids(["no", "yes"]) == [NO, YES]
    cases = []
    for instruction in (None, INSTRUCTION):
        for document in DOCUMENTS:
            prompt = CARD.format(instruction=instruction or CARD_INSTRUCTION, query=QUERY, document=document)
            logits = numbers_of(model, tokenizer(prompt).input_ids)[[NO, YES]]
            cases.append({"document": document, "instruction": instruction, "logits": logits.tolist(),
                          "score": torch.softmax(logits, dim=0)[1].item()})
    write_json(folder, {"query": QUERY, "documents": DOCUMENTS, "instruction": INSTRUCTION, "cases": cases})
    write_reranker_gguf(folder.with_suffix(".gguf"), model, json.loads((folder / "tokenizer.json").read_text()))


def add_tokens(writer, tokenizer):
    tokens = list(tokenizer["model"]["vocab"])
    special = {token["content"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


def write_reranker_gguf(path, model, tokenizer):
    config = model.config
    family = SimpleNamespace(name=path.stem, architecture="qwen3", config=config, dtype="bf16", norm_plus_one=False,
                             permuted=False)
    writer = gguf.GGUFWriter(path, family.architecture)
    writer.add_name("quire test reranker")
    add_sizes(writer, config, family.architecture)
    add_rope(writer, config, family.architecture)
    add_tokens(writer, tokenizer)
    writer.add_pooling_type(gguf.PoolingType.RANK)
    writer.add_classifier_output_labels(["yes", "no"])
    card = CARD.replace("{instruction}", CARD_INSTRUCTION)
    writer.add_chat_template([{"name": "default", "template": CHAT_TEMPLATE}, {"name": "rerank", "template": card}])
    weights = {name: values.float().numpy() for name, values in model.state_dict().items() if name != "lm_head.weight"}
    rows = weights["model.embed_tokens.weight"][[YES, NO]]
    writer.add_tensor("cls.output.weight", rows, raw_dtype=gguf.GGMLQuantizationType.F32)
    add_tensors(writer, family, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_json(folder, values):
    folder.with_suffix(".json").write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n")
    scores = [round(score, 3) for case in values["cases"] for score in case.get("scores", [case.get("score")])]
    print(f"{folder.name}: scores {scores}")


def main():
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    out.mkdir(exist_ok=True)
    for name, config in MODELS.items():
        write_classifier(out / name, config)
    write_reranker(out / "reranker")


if __name__ == "__main__":
    main()
