#!/usr/bin/env python3
"""What models take on one or several H100s: a model on paper, computed, not measured.

  gpu_model.py            the table of docs/scale.md
  gpu_model.py --devices  the entries of cost_model.c

A step is a sum: the weights are read, layers are launched, and every token, token of context and pair of query and key
takes its time, all divided among the ranks; then the ranks' sums. The rates are those at which the 8B model on one GPU
takes what `fit_cost_model.py --h100` says; those of the sums are from elsewhere."""

import sys
from dataclasses import dataclass

READ = 2.67e12      # bytes of weights a second: 0.8 of the memory's 3.35 TB/s
CONTEXT = 3.56e12   # bytes of keys and values a second, beside that
PRODUCTS = 760e12   # operations a second of large products in bf16
PAIRS = 151.5e12    # of attention
LAYER = 31e-6       # seconds of launches and gaps, each layer
LINK = 366e9        # bytes a second that a GPU receives in NCCL's collectives on 4 x H100 (nccl-collectives-bench, 2026)
COLLECTIVE = 10e-6  # seconds of one of few bytes: assumed
SLICED = 512 * 2**10  # bytes from which more than two ranks sum in slices (kernels/cuda/ops/cuda_collectives.c)
MEMORY, SHARE, OTHER = 79.6 * 2**30, 0.9, 2.5e9  # of a GPU; --gpu-memory-utilization; workspace and libraries
BLOCK = 16          # tokens


@dataclass(frozen=True)
class Model:
    """Sizes in bytes; `read` is what a step reads of the weights beside the experts."""
    name: str
    layers: int
    hidden: int
    heads: int
    head_dim: int
    kv_token: int      # of layers that see the whole context
    weights: float
    read: float
    active: float      # parameters that a token is multiplied with
    experts: float = 0
    num_experts: int = 0
    num_chosen: int = 0

    def experts_read(self, tokens):
        """Of the experts, what tokens that choose independently need."""
        return self.experts and self.experts * (1 - (1 - self.num_chosen / self.num_experts) ** tokens)


# Llama 3.1 8B and 70B; the 70B as Q4_K_M has 4.85 bits a weight. gpt-oss-120b: experts in MXFP4 of 4.25 bits, the rest in
# bf16; every other layer sees 128 tokens.
LLAMA_70B = dict(layers=80, hidden=8192, heads=64, head_dim=128, kv_token=2 * 80 * 8 * 128 * 2, active=69.5e9)
MODELS = {
    "8b": Model("8B, bf16", 32, 4096, 32, 128, 2 * 32 * 8 * 128 * 2, 16.06e9, 15.0e9, 7.5e9),
    "70b": Model("70B, bf16", weights=141.1e9, read=139e9, **LLAMA_70B),
    "70b-q4": Model("70B, Q4_K_M", weights=42.8e9, read=42.2e9, **LLAMA_70B),
    "120b": Model("120B of 128 experts, MXFP4", 36, 2880, 64, 64, 2 * 18 * 8 * 64 * 2, 65.1e9, 3.07e9, 5.1e9, 60.9e9, 128, 4),
}
RANKS = (1, 2, 4, 8)


def is_sliced(model, ranks, tokens):
    return ranks > 2 and tokens * model.hidden * 2 >= SLICED


def received(model, ranks, tokens):
    """Bytes for a token of a step of so many, by each rank: two sums a layer and one for the embedding, of bf16, either all
    others' parts at once, or those of its slice and then all other slices."""
    shares = 2 * (ranks - 1) / ranks if is_sliced(model, ranks, tokens) else ranks - 1
    return (2 * model.layers + 1) * shares * model.hidden * 2


def coefficients(model, ranks, tokens):
    """The seconds of cost_model.h of a step of about that many tokens."""
    sums = 2 * model.layers + 1 if ranks > 1 else 0
    rounds = 2 if is_sliced(model, ranks, tokens) else 1
    return {"step": (model.read + model.experts_read(tokens)) / READ / ranks + model.layers * LAYER + sums * rounds * COLLECTIVE,
            "token": 2 * model.active / PRODUCTS / ranks + received(model, ranks, tokens) / LINK,
            "context_token": model.kv_token / CONTEXT / ranks,
            "pair": 4 * model.layers * model.heads * model.head_dim / PAIRS / ranks}


def step_seconds(model, ranks, tokens, context_tokens, pairs):
    cost = coefficients(model, ranks, tokens)
    return cost["step"] + cost["token"] * tokens + cost["context_token"] * context_tokens + cost["pair"] * pairs


def decode_seconds(model, ranks, sequences, context=1024):
    return step_seconds(model, ranks, sequences, sequences * context, sequences * context)


def kv_tokens(model, ranks):
    """How many fit; each of up to 8 ranks has its KV heads."""
    return max(0, int((MEMORY * SHARE - OTHER - model.weights / ranks) / (model.kv_token / ranks)))


def device_name(key, ranks):
    return f"h100-{key}" + (f"-tp{ranks}" if ranks > 1 else "")


def devices():
    """{name: (coefficients in nanoseconds, blocks)} of every division that fits, but for the fitted h100-8b."""
    return {device_name(key, ranks):
            ({name: 1e9 * value for name, value in coefficients(model, ranks, 10**6).items()}, kv_tokens(model, ranks) // BLOCK)
            for key, model in MODELS.items() for ranks in RANKS if kv_tokens(model, ranks) > 0 and (key, ranks) != ("8b", 1)}


def rows():
    yield ("model", "GPUs", "weights of each, GB", "tokens of KV", "received a token and GPU, MB, of 1 / of 64",
           "step, ms, of 1 / 64 / 256 sequences of 1 024 tokens", "tokens/s", "prompt of 2 048, ms")
    for model in MODELS.values():
        for ranks in RANKS:
            if kv_tokens(model, ranks) == 0:
                yield model.name, ranks, f"{model.weights / ranks / 1e9:.1f}", "does not fit", "", "", "", ""
                continue
            steps = {n: decode_seconds(model, ranks, n) for n in (1, 64, 256) if n * 1024 <= kv_tokens(model, ranks)}
            yield (model.name, ranks, f"{model.weights / ranks / 1e9:.1f}", f"{kv_tokens(model, ranks):,}".replace(",", " "),
                   " / ".join(f"{received(model, ranks, n) / 1e6:.2f}" for n in (1, 64)) if ranks > 1 else "-",
                   " / ".join(f"{1000 * seconds:.1f}" for seconds in steps.values()),
                   " / ".join(f"{n / seconds:.0f}" for n, seconds in steps.items()),
                   f"{1000 * step_seconds(model, ranks, 2048, 2048, 2048 * 2049 / 2):.0f}")


def table():
    lines = [f"| {' | '.join(map(str, row))} |\n" for row in rows()]
    return lines[0] + "|---" * (lines[0].count("|") - 1) + "|\n" + "".join(lines[1:])


def main():
    if sys.argv[1:] == ["--devices"]:
        for name, (cost, blocks) in devices().items():
            numbers = ", ".join(f"{cost[key]:.{0 if key == 'step' else 2}f}" for key in ("step", "token", "context_token", "pair"))
            print(f'    H100("{name}", {numbers}, {blocks}),')
    elif len(sys.argv) == 1:
        print(table(), end="")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
