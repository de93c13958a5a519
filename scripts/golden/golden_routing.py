"""Makes routers of mixtures of experts decide clearly, and watches how clearly they did.

A choice of experts is no continuous function of its input: where the last expert that is chosen and the first that is
not are nearly equal, rounding to 16 bits decides, and everything after it differs. Random routers come that close with
some token in every prompt. So the first elements of the hidden state say which of NUM_KINDS kinds a token is of; what
layers add leaves them nearly as they are. A router gives the experts evenly spaced logits by a token's kind, in another
order for each kind and layer, and a part that depends on the context, which is smaller than the space between.
"""

import math

import numpy as np
import torch

NUM_KINDS = 8
SIGNATURE = 4.0  # of a kind in the first hidden state; layers add elements of about 1
LEAK = 0.02      # what is left of what layers add to the signature
SPREAD = 1.2     # of a router's logits, where they are evenly spaced
CONTEXT = 0.06   # of the part of the context in them
ROUTER_BIAS = 0.12


def routers(model):
    return [module for module in model.modules() if "topkrouter" in type(module).__name__.lower()]


WRITERS = ("o_proj.weight", "o_proj.bias", "down_proj.weight", "output_linear.weight", "experts.down_proj",
           "experts.down_proj_bias")


def sign_tokens(model, kinds, scale):
    """Gives each token of the vocabulary its kind's signature, and keeps layers from writing over it."""
    embedding = model.get_input_embeddings().weight
    tied = model.config.tie_word_embeddings
    embedding[:, :NUM_KINDS] = torch.nn.functional.one_hot(kinds, NUM_KINDS) * (SIGNATURE * scale)
    for name, weight in model.named_parameters():
        if name.endswith(WRITERS):
            # The rows of what is written: the first of [rows, cols], the second of all experts' [e, rows, cols],
            # and the last of biases and of gpt-oss' transposed experts.
            transposed = model.config.model_type == "gpt_oss" and weight.ndim == 3
            rows = -1 if transposed or name.endswith("bias") else -2
            weight.transpose(rows, 0)[:NUM_KINDS] *= LEAK
        elif name.endswith("norm.bias") or (tied and name == "model.norm.weight"):
            weight[:NUM_KINDS] *= LEAK  # (else a tied head would prefer tokens of the same kind)


def signature_at(model, router, kinds):
    """[kinds] what a router is given of a signature, in the mean over tokens of that kind."""
    found = []
    hook = router.register_forward_pre_hook(
        lambda _, inputs: found.append(inputs[0].reshape(-1, inputs[0].shape[-1])))
    tokens = torch.arange(len(kinds)).repeat(2)
    model(tokens[None])
    hook.remove()
    return torch.stack([found[0][kinds[tokens] == kind, kind].mean() for kind in range(NUM_KINDS)]).numpy()


def even_levels(num_experts):
    levels = np.linspace(-1.0, 1.0, num_experts)
    return levels * SPREAD / levels.std()


def set_router(router, rng, levels, signature):
    """The experts' logits are `levels`, in another order for each kind: one order, rotated, so that what all
    signatures have in common (the mean that LayerNorm subtracts) favours no expert."""
    num_experts, hidden_size = router.weight.shape
    weight = rng.normal(0.0, CONTEXT / math.sqrt(hidden_size), router.weight.shape)
    order = rng.permutation(levels)
    logits = np.stack([np.roll(order, by) for by in rng.permutation(NUM_KINDS)], axis=1)
    weight[:, :NUM_KINDS] = logits / signature
    router.weight.copy_(torch.from_numpy(weight.astype(np.float32)))
    if getattr(router, "bias", None) is not None:
        router.bias.copy_(torch.from_numpy(rng.normal(0.0, ROUTER_BIAS, num_experts)))
    if hasattr(router, "e_score_correction_bias"):
        router.e_score_correction_bias.copy_(clear_bias(rng, logits, router))


def choose(scores, router):
    """([rows, chosen] experts by descending score, [rows] by how much the choice was clear), of scores
    [rows, experts]."""
    num_groups = 1 if getattr(router, "topk_method", "") == "greedy" else getattr(router, "num_group", None) or 1
    group_margins = torch.full((len(scores),), math.inf)
    if num_groups > 1:
        grouped = scores.view(len(scores), num_groups, -1)
        is_biased = hasattr(router, "e_score_correction_bias")
        of_groups = grouped.topk(2, dim=-1).values.sum(-1) if is_biased else grouped.max(dim=-1).values
        ranked = of_groups.sort(dim=-1, descending=True).values
        last = ranked[:, router.topk_group - 1]
        group_margins = (last - ranked[:, router.topk_group]).float()
        scores = grouped.masked_fill((of_groups < last[:, None])[..., None], -math.inf).view(scores.shape)
    ranked, order = scores.sort(dim=-1, descending=True)
    k = router.top_k
    return order[:, :k], torch.minimum(group_margins, (ranked[:, k - 1] - ranked[:, k]).float())


def clear_bias(rng, logits, router):
    """A bias that changes some choice and leaves all clear. (logits: [experts, kinds])"""
    scores = torch.from_numpy(1 / (1 + np.exp(-logits))).T.contiguous()
    plain, _ = choose(scores, router)
    best, best_margin = None, 0.0
    for _ in range(2000):
        bias = rng.normal(0.0, 0.3, scores.shape[1])
        chosen, margins_of_kinds = choose(scores + torch.from_numpy(bias), router)
        margin = margins_of_kinds.min()
        changed = any(set(a) != set(b) for a, b in zip(chosen.tolist(), plain.tolist()))
        if changed and margin > best_margin:
            best, best_margin = bias, margin
    return torch.from_numpy(best.astype(np.float32))


def make_clear(model, rng, levels):
    kinds = torch.from_numpy(rng.integers(0, NUM_KINDS, model.config.vocab_size))
    with torch.no_grad():
        sign_tokens(model, kinds, 1 / getattr(model.config, "embedding_multiplier", 1.0))
        for router in routers(model):
            chosen = levels or even_levels(len(router.weight))
            set_router(router, rng, chosen, signature_at(model, router, kinds))


def margins(router, hidden):
    """[tokens] by how much of the spread of a row of scores the choice of experts was clear."""
    logits = torch.nn.functional.linear(hidden, router.weight, getattr(router, "bias", None)).float()
    scores, k = logits, router.top_k
    if hasattr(router, "e_score_correction_bias"):
        scores = logits.sigmoid() + router.e_score_correction_bias
    ranked = scores.sort(dim=-1, descending=True).values
    _, result = choose(scores, router)
    if hasattr(router, "router_jitter_noise") and hasattr(router, "input_jitter_noise"):
        for i in range(k):  # sparsemixer: the order counts, and who is near the largest
            result = torch.minimum(result, ranked[:, i] - ranked[:, i + 1])
            largest = ranked[:, i:i + 1]
            distance = (largest - ranked) / torch.maximum(ranked.abs(), largest)
            near = (distance - 2 * router.router_jitter_noise).abs()[:, i + 1:].min(dim=-1).values
            result = torch.minimum(result, near * largest[:, 0])
    return result / scores.std(dim=-1)


class RoutingWatch:
    """Keeps the smallest margin of every prompt of a batch, while it is entered."""

    def __init__(self, model, num_prompts):
        self.model, self.hooks = model, []
        self.smallest = torch.full((num_prompts,), math.inf)

    def __enter__(self):
        self.hooks = [router.register_forward_pre_hook(self.watch) for router in routers(self.model)]
        return self

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()

    def watch(self, router, inputs):
        hidden = inputs[0].reshape(-1, inputs[0].shape[-1])
        found = margins(router, hidden).reshape(len(self.smallest), -1).min(dim=1).values
        self.smallest = torch.minimum(self.smallest, found)
