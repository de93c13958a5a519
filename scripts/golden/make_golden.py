#!/usr/bin/env python3
"""Writes the small models of tests/golden and what they must compute.

Run by hand after a deliberate change (needs torch, transformers, gguf):

    python scripts/golden/make_golden.py tests/golden
    python scripts/golden/make_golden.py tests/golden MODEL.gguf tests/e2e/data/quires.txt

Each model is a LLaMA decoder with seeded random weights and a small byte-level BPE vocabulary, written
as GGUF in several element types. The golden file beside it holds a prompt, the logits Transformers
computes for every position of it in float32 on the weights as the file rounds them, and the tokens a
greedy continuation gives, up to the first that is not clear. For quantised files NAME.a8.golden holds
the same with the input of every linear layer rounded to 8 bits, in groups of 32 with one scale each:

    int32 num_prompt, num_greedy, vocab_size; int32 prompt[]; int32 greedy[]; float32 logits[][]

The second form takes a real model and writes MODEL.logprobs: the ids of the first tokens of a text, each
with its log-probability after those before it (0 for the first), one a line.
"""
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

NUM_SCORED, CLEAR_MARGIN = 320, 0.02
# The seed is one whose greedy choices are all clear (margin > 0.03) in the float files.
NUM_PROMPT, NUM_GREEDY, SEED = 40, 32, 8
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
NUM_MERGES = 61
TEXT = """The pages of a book are gathered into quires, and the quires are sewn together in their
order. A reader who opens the book in the middle does not care where each sheet was printed; the
thread keeps the order, and the page numbers tell where to look. In the same way the server keeps the
keys and values of a text in small blocks, and a table for every sequence tells where they are."""
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass
class Spec:
    name: str
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    theta: float
    tied: bool
    types: tuple


SPECS = [
    Spec("tiny", 64, 160, 2, 4, 2, 16, 10000.0, True,
         (Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1)),
    # Heads wider than hidden / heads, three of them on one KV head, and an output head of its own.
    Spec("wide", 96, 128, 2, 3, 1, 64, 500000.0, False, (Type.F16, Type.Q4_0)),
]


def byte_alphabet():
    """GPT-2's mapping of bytes to printable characters."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {}, 0
    for byte in range(256):
        if byte in plain:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + extra)
            extra += 1
    return table


def train_merges(alphabet, num_merges):
    """Plain BPE on TEXT: the most frequent pair first, ties by the pair itself."""
    words = Counter(
        tuple(alphabet[b] for b in (" " * (i > 0) + word).encode())
        for i, word in enumerate(TEXT.split())
    )
    merges = []
    while len(merges) < num_merges:
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        merged = Counter()
        for word, count in words.items():
            parts, i = [], 0
            while i < len(word):
                joined = word[i:i + 2] == best
                parts.append("".join(best) if joined else word[i])
                i += 2 if joined else 1
            merged[tuple(parts)] += count
        words = merged
    return merges


def add_tokenizer(writer, num_merges=NUM_MERGES):
    alphabet = byte_alphabet()
    merges = train_merges(alphabet, num_merges)
    tokens = SPECIAL + list(alphabet.values()) + ["".join(pair) for pair in merges]
    kinds = [gguf.TokenType.CONTROL] * len(SPECIAL)
    kinds += [gguf.TokenType.NORMAL] * (len(tokens) - len(SPECIAL))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    return len(tokens)


VOCAB = len(SPECIAL) + 256 + NUM_MERGES


def make_model(spec):
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=spec.hidden, intermediate_size=spec.ffn,
        num_hidden_layers=spec.layers, num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads, head_dim=spec.head_dim, max_position_embeddings=256,
        rms_norm_eps=1e-5, tie_word_embeddings=spec.tied,
        rope_parameters={"rope_type": "default", "rope_theta": spec.theta},
        attn_implementation="eager")
    model = LlamaForCausalLM(config).float().eval()
    rng = np.random.default_rng(SEED)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                values = rng.uniform(0.5, 1.5, weight.shape)
            else:  # large enough that logits differ clearly from token to token
                values = rng.normal(0.0, 1.3 / np.sqrt(weight.shape[-1]), weight.shape)
            weight.copy_(torch.from_numpy(values.astype(np.float32)))
    return model


def interleave(rows, heads):
    """Rows of Q or K as llama-architecture GGUF files have them: rotated pairs are neighbours."""
    total, cols = rows.shape
    return rows.reshape(heads, 2, total // heads // 2, cols).swapaxes(1, 2).reshape(total, cols)


def deinterleave(rows, heads):
    total, cols = rows.shape
    return rows.reshape(heads, total // heads // 2, 2, cols).swapaxes(1, 2).reshape(total, cols)


NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    ends = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight":
            "output_norm.weight", "lm_head.weight": "output.weight"}
    if name in ends:
        return ends[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def add_config(writer, spec):
    writer.add_name(f"quire test {spec.name}")
    writer.add_vocab_size(VOCAB)
    writer.add_context_length(256)
    writer.add_embedding_length(spec.hidden)
    writer.add_block_count(spec.layers)
    writer.add_feed_forward_length(spec.ffn)
    writer.add_head_count(spec.heads)
    writer.add_head_count_kv(spec.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(spec.theta)
    writer.add_rope_dimension_count(spec.head_dim)
    if spec.head_dim * spec.heads != spec.hidden:
        writer.add_key_length(spec.head_dim)
        writer.add_value_length(spec.head_dim)


def write_model(path, spec, model, dtype):
    """Writes the file and puts the weights as the file rounds them back into the model."""
    writer = gguf.GGUFWriter(path, "llama")
    add_config(writer, spec)
    assert add_tokenizer(writer) == VOCAB
    rounded = {}
    for name, weight in model.named_parameters():
        values = weight.detach().numpy()
        heads = spec.heads if "q_proj" in name else spec.kv_heads if "k_proj" in name else 0
        values = interleave(values, heads) if heads else values
        kind = Type.F32 if values.ndim == 1 else dtype
        data = gguf.quantize(np.ascontiguousarray(values), kind)
        writer.add_tensor(gguf_name(name), data, raw_dtype=kind)
        values = gguf.dequantize(data, kind).astype(np.float32).reshape(values.shape)
        rounded[name] = deinterleave(values, heads) if heads else values
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.from_numpy(np.ascontiguousarray(rounded[name])))


def round_to_8_bits(x):
    groups = x.reshape(-1, 32)
    scale = groups.abs().amax(-1, keepdim=True) / 127
    scale[scale == 0] = 1
    return (torch.round(groups / scale) * scale).reshape(x.shape)


def round_inputs(model):
    """Every linear layer, the head too, then sees its input as the fast kernels do."""
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, inputs: (round_to_8_bits(inputs[0]),))


def continue_greedily(model, prompt):
    tokens = list(prompt)
    while len(tokens) < NUM_PROMPT + NUM_GREEDY:
        last = model(torch.tensor([tokens])).logits[0, -1].numpy()
        best, second = np.sort(last)[::-1][:2]
        if best - second < CLEAR_MARGIN:
            break
        tokens.append(int(last.argmax()))
    return tokens[NUM_PROMPT:]


def save_golden(path, prompt, greedy, logits):
    with open(path, "wb") as out:
        np.array([len(prompt), len(greedy), logits.shape[1], *prompt, *greedy], np.int32).tofile(out)
        logits.astype(np.float32).tofile(out)


def write_golden(path, model):
    prompt = np.random.default_rng(SEED + 1).integers(len(SPECIAL), VOCAB, NUM_PROMPT).tolist()
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits[0].numpy()
        greedy = continue_greedily(model, prompt)
    save_golden(path, prompt, greedy, logits)
    print(f"{path.name}: logits of std {logits.std():.2f}, {len(greedy)} clear greedy tokens")
    return logits, prompt


def check_against_loader(path, logits, prompt):
    """Transformers' own GGUF reader must see the same model (names, row order, element types)."""
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name,
                                                 dtype=torch.float32)
    with torch.no_grad():
        other = model(torch.tensor([prompt])).logits[0].numpy()
    error = np.abs(other - logits).max()
    print(f"{path.name}: differs from what Transformers reads from the file by {error:.2e}")
    assert error < 1e-3


def write_logprobs(folder, path, text_path):
    source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).eval()
    tokens = tokenizer(text_path.read_text(), add_special_tokens=True).input_ids[:NUM_SCORED]
    with torch.no_grad():
        logprobs = model(torch.tensor([tokens])).logits[0, :-1].log_softmax(-1)
    scores = logprobs.gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()
    lines = [f"{token} {score:.6f}" for token, score in zip(tokens, [0.0, *scores])]
    (folder / f"{path.stem}.logprobs").write_text("\n".join(lines) + "\n")
    print(f"perplexity of {len(tokens)} tokens: {np.exp(-np.mean(scores)):.4f}")


def write_small_models(folder):
    for spec in SPECS:
        for dtype in spec.types:
            name = f"{spec.name}-{dtype.name.lower()}"
            model = make_model(spec)
            write_model(folder / f"{name}.gguf", spec, model, dtype)
            logits, prompt = write_golden(folder / f"{name}.golden", model)
            check_against_loader(folder / f"{name}.gguf", logits, prompt)
            if dtype.name.startswith("Q"):
                round_inputs(model)
                rounded, _ = write_golden(folder / f"{name}.a8.golden", model)
                error = np.linalg.norm(rounded - logits, axis=1) / np.linalg.norm(logits, axis=1)
                print(f"{name}: 8-bit inputs change a row by {error.mean():.3f}, at most "
                      f"{error.max():.3f}")


def main():
    torch.set_num_threads(1)
    folder, *real = map(Path, sys.argv[1:])
    if real:
        write_logprobs(folder, *real)
    else:
        write_small_models(folder)


if __name__ == "__main__":
    main()
