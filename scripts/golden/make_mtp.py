#!/usr/bin/env python3
"""Writes tiny models with a layer that predicts further tokens (MTP), and what that layer must compute.

Run by hand after a deliberate change (needs torch, transformers, gguf):

    python scripts/golden/make_mtp.py tests/golden/families tests/golden/mtp

Each is a model of families/ with another such layer after its last. Transformers reads none; what it computes follows
the DeepSeek-V3 report (section 2.2), with Transformers' own decoder layer as the block:

    h'_i = block(eh_proj [enorm(embedding of t_i+1); hnorm(h_i)]),  logits of t_i+2 = head(shared_head.norm(h'_i))

h_i is the model's hidden state after its last norm. For a second draft the layer is applied again at the next
position, to shared_head.norm(h'_i) and the first draft, and so on.

NAME.golden has a prompt of n tokens, k greedy drafts after it, and the logits of n - 1 rows and of the k - 1 drafts
that are read again, as make_golden.py describes. deepseek-v3 has copies of the embedding and the head, as the hub's
files have; glm4.5-air has its own, and glm4.5-air-shared, only a GGUF file, has neither. In `trained` the model and the layer
have learnt a language whose first token says which of four permutations each token comes from the one before it by:
the layer can know that only from hidden states, and is right far more often than chance.
"""
import copy
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, logging

from family_gguf import write_gguf
from family_specs_moe import moe_families
from make_families import NUM_MERGES
from make_golden import save_golden

NUM_PROMPT, NUM_DRAFTS = 40, 5
FIRST_WORD, NUM_WORDS, NUM_MODES = 10, 48, 4  # of the language: tokens, and permutations of them
MODES = range(3, 3 + NUM_MODES)
TRAINING_STEPS, TRAINING_BATCH, TRAINING_LENGTH = 1500, 16, 40


# --- The layer ----------------------------------------------------------------------------------

class Layer(torch.nn.Module):
    def __init__(self, model, own_ends):
        super().__init__()
        config, last = model.config, model.model.layers[-1]
        self.block = copy.deepcopy(last)
        self.block.self_attn.layer_idx = 0
        self.enorm, self.hnorm, self.norm = (copy.deepcopy(model.model.norm) for _ in range(3))
        self.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.embedding = copy.deepcopy(model.model.embed_tokens) if own_ends else model.model.embed_tokens
        self.head = copy.deepcopy(model.lm_head) if own_ends else model.lm_head
        self.own_ends = own_ends
        self.rotary = model.model.rotary_emb

    def forward(self, tokens, states):
        """tokens: [batch, n], each after the one of its state: [batch, n, hidden]. Returns normed states, logits."""
        x = self.eh_proj(torch.cat([self.enorm(self.embedding(tokens)), self.hnorm(states)], -1))
        positions = torch.arange(x.shape[1])[None]
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)[None, None]
        x = self.block(x, attention_mask=mask, position_ids=positions,
                       position_embeddings=self.rotary(x, positions))
        x = self.norm(x[0] if isinstance(x, tuple) else x)
        return x, self.head(x)

    def fill(self, rng):
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if not self.own_ends and name.startswith(("embedding", "head")):
                    continue
                fan_in = weight.shape[-1]
                values = (rng.uniform(0.5, 1.5, weight.shape) if "norm" in name
                          else rng.normal(0.0, 1.6 / np.sqrt(fan_in), weight.shape))
                weight.copy_(torch.from_numpy(values.astype(np.float32)))
        return self

    def tensors(self, prefix):
        """What a checkpoint calls them."""
        named = {prefix + name: weight for name, weight in self.block.state_dict().items()}
        named |= {prefix + name + ".weight": module.weight for name, module in
                  {"enorm": self.enorm, "hnorm": self.hnorm, "eh_proj": self.eh_proj, "shared_head.norm": self.norm,
                   "embed_tokens": self.embedding, "shared_head.head": self.head}.items()}
        return {name: weight.detach().clone().contiguous() for name, weight in named.items()}


def drafts_of(model, layer, prompt):
    """(greedy drafts, logits of all rows): the layer follows the prompt, then its own drafts."""
    with torch.no_grad():
        states = model.model(torch.tensor([prompt])).last_hidden_state[:, :-1]
        tokens, drafts = list(prompt[1:]), []
        for _ in range(NUM_DRAFTS):
            normed, logits = layer(torch.tensor([tokens]), states)
            drafts.append(int(logits[0, -1].argmax()))
            tokens.append(drafts[-1])
            states = torch.cat([states, normed[:, -1:]], 1)
    return drafts, logits[0].numpy()


# --- Files --------------------------------------------------------------------------------------

def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def rename_experts(tensors, config):
    """Transformers has all experts in one tensor, checkpoints have each in its own."""
    named = {}
    for name, weight in tensors.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")) or weight.ndim != 3:
            named[name] = weight
            continue
        stem, kind = name.rsplit(".", 1)
        for expert, part in enumerate(weight):
            kinds = zip(("gate_proj", "up_proj"), part.chunk(2)) if kind == "gate_up_proj" else [(kind, part)]
            named |= {f"{stem}.{expert}.{name}.weight": rows.contiguous() for name, rows in kinds}
    return named


def write(source, out, name, family, model, layer):
    folder = out / name
    prefix = f"model.layers.{model.config.num_hidden_layers}."
    own = layer.tensors(prefix)
    if family.architecture == "glm4moe":
        ends = () if layer.own_ends else (f"{prefix}embed_tokens.weight", "shared_head.head.weight")
        weights = {key: value.numpy() for key, value in {**model.state_dict(), **own}.items()
                   if not key.endswith(ends)}
        write_gguf(out / f"{name}.gguf", family, weights, NUM_MERGES)
        if not layer.own_ends:
            return
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    tensors = {key: value for key, value in load_file(folder / "model.safetensors").items()
               if not key.startswith(prefix)}
    trained = rename_experts(model.state_dict(), model.config)
    tensors = {key: trained[key].to(value.dtype).contiguous() for key, value in tensors.items()}
    tensors |= {key: value.to(tensors["model.embed_tokens.weight"].dtype if value.ndim > 1 or "norm" in key
                              else value.dtype) for key, value in rename_experts(own, model.config).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def round_like(folder, module):
    """The files' numbers are of 16 bits."""
    dtype = load_file(folder / "model.safetensors")["model.embed_tokens.weight"].dtype
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.copy_(weight.to(dtype).float())


# --- The language -------------------------------------------------------------------------------

def texts(rng, permutations, count, length):
    modes = rng.integers(NUM_MODES, size=count)
    rows = [np.array(list(MODES))[modes], FIRST_WORD + rng.integers(NUM_WORDS, size=count)]
    while len(rows) < length:
        rows.append(FIRST_WORD + permutations[modes, rows[-1] - FIRST_WORD])
    return torch.from_numpy(np.stack(rows, 1))


def train(model, layer):
    rng = np.random.default_rng(5)
    permutations = np.stack([rng.permutation(NUM_WORDS) for _ in range(NUM_MODES)])
    parameters = {id(p): p for p in [*model.parameters(), *layer.parameters()]}
    optimizer = torch.optim.AdamW(parameters.values(), lr=4e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, TRAINING_STEPS)
    for step in range(TRAINING_STEPS):
        tokens = texts(rng, permutations, TRAINING_BATCH, TRAINING_LENGTH)
        states = model.model(tokens).last_hidden_state
        logits = model.lm_head(states)
        _, further = layer(tokens[:, 1:-1], states[:, :-2])
        loss = (torch.nn.functional.cross_entropy(logits[:, 1:-1].flatten(0, 1), tokens[:, 2:].flatten()) +
                0.3 * torch.nn.functional.cross_entropy(further.flatten(0, 1), tokens[:, 2:].flatten()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == TRAINING_STEPS - 1:
            right = [(found.argmax(-1) == wanted).float().mean() for found, wanted in
                     ((logits[:, 1:-1], tokens[:, 2:]), (further, tokens[:, 2:]))]
            print(f"  step {step}: loss {loss:.3f}, right {right[0]:.3f}, the layer {right[1]:.3f}", flush=True)
    return permutations


# --- All ----------------------------------------------------------------------------------------

def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    logging.set_verbosity_error()
    families, out, names = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    out.mkdir(parents=True, exist_ok=True)
    specs = {family.name: family for family in moe_families()}
    for name, source in (("deepseek-v3", "deepseek-v3"), ("glm4.5-air", "glm4.5-air"),
                         ("glm4.5-air-shared", "glm4.5-air"), ("trained", "deepseek-v3")):
        if names and name not in names:
            continue
        rng = np.random.default_rng(list(name.encode()))
        model, folder = load(families / source), families / source
        layer = Layer(model, own_ends=name == "glm4.5-air").fill(rng).eval()
        if name == "trained":
            train(model.train(), layer.train())
            round_like(folder, model.eval())
        round_like(folder, layer.eval())
        write(folder, out, name, specs[source], model, layer)
        prompt = rng.integers(3, model.config.vocab_size, NUM_PROMPT).tolist()
        drafts, logits = drafts_of(model, layer, prompt)
        print(f"{name}: logits of std {logits.std():.2f}, drafts {drafts}")
        save_golden(out / f"{name}.golden", prompt, drafts, logits)


if __name__ == "__main__":
    main()
