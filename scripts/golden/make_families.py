#!/usr/bin/env python3
"""Writes a tiny model of every family, as a Hugging Face folder and as GGUF, and what it must compute.

Run by hand after a deliberate change (needs torch, transformers, tokenizers, gguf):

    python scripts/golden/make_families.py tests/golden/families [NAME...]

The weights are seeded and random. NAME/ is what save_pretrained writes, with a tokenizer; NAME.gguf holds the same
weights where the format can say what the model is; NAME.golden holds the logits of a prompt and 32 greedy
tokens, as make_golden.py describes, computed by Transformers in float32 from the folder. The prompt is the
one of many whose greedy choices are clearest.

Each of a family's switches (family_specs.py) is taken away once: that must change the logits by far more than
the tests tolerate.
"""
import copy
import functools
import itertools
import json
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast,
                          logging)

from family_gguf import num_extra_layers, write_gguf
from family_specs import VOCAB, families
from family_specs_moe import moe_families
from golden_prompt import check_greedy, choose_prompt, routing_margins, run
from golden_routing import make_clear, routers
from make_golden import CHAT_TEMPLATE, SPECIAL, byte_alphabet, save_golden, train_merges

NUM_MERGES = VOCAB - len(SPECIAL) - 256
MAX_MODEL_LEN = 512  # of the golden tests; rope.h says what it decides
MIN_CHANGE = 0.02  # of a row by a switch, against a tolerance of 1e-3
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


# --- The model ----------------------------------------------------------------------------------

def fill(model, family):
    rng = np.random.default_rng(list(family.name.encode()))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name and not name.endswith("bias"):
                values = rng.uniform(0.5, 1.5, weight.shape) - family.norm_plus_one
            elif name.endswith(("bias", "sinks")):
                values = rng.normal(0.0, 0.5, weight.shape)
            else:
                gain = family.gain if "layers" in name else family.embedding_gain
                gain *= math.prod(more for end, more in family.gains.items() if name.endswith(end))
                values = rng.normal(0.0, gain / np.sqrt(fan_in(family, name, weight)), weight.shape)
            weight.copy_(torch.from_numpy(values.astype(np.float32)))
    if routers(model):
        make_clear(model, rng, family.routing_levels)
    return model


def fan_in(family, name, weight):
    return weight.shape[-2 if "experts." in name and family.config.model_type == "gpt_oss" else -1]


def from_config(config):
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    return settle(model)


def settle(model):
    """Dynamic scaling remembers the longest context it saw; ours has one for all contexts. Phi-3.5-MoE's rope
    forgets the length of the context, and uses the short factors beyond the original one, too."""
    if global_rope_type(model.config) == "dynamic":
        run(model, [[0] * MAX_MODEL_LEN])
    if model.config.model_type == "phimoe" and global_rope_type(model.config) == "longrope":
        rope = model.model.rotary_emb
        rope.rope_init_fn = functools.partial(rope.rope_init_fn, seq_len=MAX_MODEL_LEN)
    return model


def global_rope_type(config):
    return config.rope_parameters.get("rope_type", "")


# --- The folder ---------------------------------------------------------------------------------

def old_config(values):
    """config.json as Transformers 4 writes it: the rope's parameters in several places."""
    rope = values.pop("rope_parameters")
    values["torch_dtype"] = values.pop("dtype")
    values["transformers_version"] = "4.51.0"
    if "full_attention" in rope:
        values["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        values["sliding_window_pattern"] = 6
        rope = rope["full_attention"]
    for key in ("layer_types", "_sliding_window_pattern"):
        values.pop(key, None)
    if values.get("use_sliding_window") is False:
        values["sliding_window"] = 8  # in such files, and counts nothing
    if values["model_type"] == "llama":
        del values["head_dim"]  # hidden_size / num_attention_heads
    values["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        values["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    if rope["rope_type"] == "longrope":
        rope["type"] = rope.pop("rope_type")
        if values["model_type"] != "phimoe":
            del rope["original_max_position_embeddings"]  # is beside it
    values["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    return values


def write_tokenizer(folder):
    alphabet = byte_alphabet()
    merges = train_merges(alphabet, NUM_MERGES)
    tokens = SPECIAL + list(alphabet.values()) + ["".join(pair) for pair in merges]
    vocab = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=SPECIAL[1],
                                   eos_token=SPECIAL[2], model_max_length=1024,
                                   chat_template=CHAT_TEMPLATE)
    fast.save_pretrained(folder, save_jinja_files=False)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()), ensure_ascii=False) + "\n")


def add_extra_layers(tensors, config):
    """Adds the layers that predict further tokens: others read them, Transformers and we do not. Their parts are
    those of the last layer and of the model."""
    last = f"model.layers.{config.num_hidden_layers - 1}."
    for i in range(num_extra_layers(config)):
        extra = f"model.layers.{config.num_hidden_layers + i}."
        tensors.update({extra + name.removeprefix(last): tensor.clone()
                        for name, tensor in tensors.items() if name.startswith(last)})
        copies = {"enorm": "model.norm", "hnorm": "model.norm", "shared_head.norm": "model.norm",
                  "embed_tokens": "model.embed_tokens", "shared_head.head": "lm_head",
                  "eh_proj": last + "self_attn.o_proj"}
        for name, source in copies.items():
            tensors[f"{extra}{name}.weight"] = tensors[f"{source}.weight"].clone()


def finish_folder(folder, config):
    """What files of the hub have and save_pretrained does not write."""
    path = folder / "config.json"
    text = path.read_text()
    path.write_text(text.replace("PhimoeForCausalLM", "PhiMoEForCausalLM"))
    if num_extra_layers(config):
        path = folder / "model.safetensors"
        tensors = load_file(path)
        add_extra_layers(tensors, config)
        save_file(tensors, path, metadata={"format": "pt"})


def write_folder(folder, family):
    shutil.rmtree(folder, ignore_errors=True)
    model = fill(from_config(family.config), family)
    biases = [getattr(router, "e_score_correction_bias", None) for router in routers(model)]
    model = model.to(DTYPES[family.dtype])
    for router, bias in zip(routers(model), biases):
        if bias is not None:
            router.e_score_correction_bias = bias  # remains float
    model.generation_config = GenerationConfig(do_sample=True, temperature=0.6, top_p=0.95,
                                               bos_token_id=1, eos_token_id=[2, 0])
    model.save_pretrained(folder, max_shard_size=family.shard_bytes or "1GB")
    write_tokenizer(folder)
    finish_folder(folder, family.config)
    if family.old_config:
        path = folder / "config.json"
        values = old_config(json.loads(path.read_text()))
        path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")


# --- What it computes ---------------------------------------------------------------------------

def change_of_rows(logits, reference):
    return np.linalg.norm(logits - reference, axis=1) / np.linalg.norm(reference, axis=1)


def rebuild(model, changes):
    values = {key: value for key, value in model.config.to_dict().items() if key != "model_type"}
    other = from_config(type(model.config)(**{**values, **changes}))
    other.load_state_dict(model.state_dict())
    return settle(other)


def check_switches(model, family, prompt, logits):
    for label, take_away in family.switches.items():
        other = take_away(copy.deepcopy(model), rebuild)
        change = change_of_rows(run(other, [prompt]).logits[0].numpy(), logits).max()
        print(f"  without {label}: a row changes by {change:.2f}")
        assert change > MIN_CHANGE, f"{family.name}: {label} makes no difference"


def weights_of(model):
    tied = model.config.tie_word_embeddings
    weights = {name: weight for name, weight in model.state_dict().items()
               if not (tied and name == "lm_head.weight")}
    add_extra_layers(weights, model.config)
    return {name: weight.numpy() for name, weight in weights.items()}


def write_family(out, family):
    folder = out / family.name
    write_folder(folder, family)
    model = load(folder)
    margin, prompt, [greedy] = choose_prompt([model])
    check_greedy(model, prompt, greedy)
    logits = run(model, [prompt]).logits[0].numpy()
    print(f"{family.name}: logits of std {logits.std():.2f}, smallest margin {margin:.3f} of it, "
          f"{len(set(greedy))} different tokens")
    if routers(model):
        print(f"  experts are chosen by at least {routing_margins(model, [prompt], [greedy])[0]:.2f} "
              "of a row of scores' spread")
    check_switches(model, family, prompt, logits)
    save_golden(out / f"{family.name}.golden", prompt, greedy, logits)
    if family.architecture:
        write_gguf(out / f"{family.name}.gguf", family, weights_of(model), NUM_MERGES)


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    out, names = Path(sys.argv[1]), sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    for family in itertools.chain(families(), moe_families()):
        if not names or family.name in names:
            write_family(out, family)


if __name__ == "__main__":
    main()
