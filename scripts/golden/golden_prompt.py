"""Chooses a prompt whose greedy continuation leaves no doubt, so that rounding does not change it."""

import numpy as np
import torch

from golden_routing import RoutingWatch, routers
from make_golden import NUM_GREEDY, NUM_PROMPT, SPECIAL

NUM_CANDIDATES, MIN_DISTINCT = 2000, 8
MIN_ROUTING = 0.2  # of the spread of a router's scores between an expert that is chosen and one that is not


def run(model, tokens, **options):
    with torch.no_grad():
        return model(torch.tensor(tokens), **options)


def greedy_margins(model, prompts):
    """[prompts][NUM_GREEDY] tokens, and by how much of a row's spread each was ahead of the second."""
    result = run(model, prompts, use_cache=True)
    tokens, margins = [], []
    for i in range(NUM_GREEDY):
        last = result.logits[:, -1]
        best = last.topk(2, dim=-1)
        tokens.append(best.indices[:, 0])
        margins.append((best.values[:, 0] - best.values[:, 1]) / last.std(dim=-1))
        if i + 1 < NUM_GREEDY:
            result = run(model, best.indices[:, :1].tolist(), use_cache=True,
                         past_key_values=result.past_key_values)
    return torch.stack(tokens, 1).tolist(), torch.stack(margins, 1).min(dim=1).values.numpy()


def routing_margins(model, prompts, greedy):
    """[prompts] the least margin of a choice of experts, by the spread of a row of scores; inf: no experts"""
    if not routers(model):
        return np.full(len(prompts), np.inf)
    with RoutingWatch(model, len(prompts)) as watch:
        run(model, [prompt + tokens for prompt, tokens in zip(prompts, greedy)])
    return watch.smallest.numpy()


def choose_prompt(models):
    """(its smallest margin in any of the models, the prompt, each model's greedy tokens)"""
    rng = np.random.default_rng(1)
    best = (0.0, None, None)
    for _ in range(0, NUM_CANDIDATES, 250):
        prompts = rng.integers(len(SPECIAL), models[0].config.vocab_size, (250, NUM_PROMPT)).tolist()
        tokens, margins = zip(*(greedy_margins(model, prompts) for model in models))
        routing = np.minimum.reduce([routing_margins(model, prompts, greedy)
                                     for model, greedy in zip(models, tokens)])
        margins = np.where(routing >= MIN_ROUTING, np.minimum.reduce(margins), 0.0)
        for prompt, margin, *greedy in zip(prompts, margins, *tokens):
            if margin > best[0] and len(set(greedy[0])) >= MIN_DISTINCT:
                best = (margin, prompt, greedy)
    assert best[1], "no prompt has a varied continuation that is clear"
    return best


def check_greedy(model, prompt, greedy):
    """Without a cache of keys and values."""
    logits = run(model, [prompt + greedy]).logits[0, len(prompt) - 1:-1]
    assert logits.argmax(-1).tolist() == greedy
