"""Loads of completions: how many tokens go in and come out, and the prompts."""

import math
import random
import re

from bench_prompts import make_prompts

# Log-normal laws cut off at MOST_TOKENS, whose means are those of ShareGPT's conversations as vLLM reports them for its
# benchmarks, 202 tokens in and 179 out: (logarithm of the median, deviation). The deviations are a choice.
SHAREGPT_IN = (4.9396, 1.1)
SHAREGPT_OUT = (4.8547, 0.9)
LEAST_TOKENS, MOST_TOKENS = 4, 1024


def draw_length(generator, law, most):
    while True:
        length = round(math.exp(generator.normalvariate(*law)))
        if LEAST_TOKENS <= length <= most:
            return length


class Workload:
    """`IN/OUT`: every request has so many tokens; `sharegpt`: their lengths differ, as above; `sharegpt-N`: likewise,
    and none is longer than N."""

    def __init__(self, name):
        fixed = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", name)
        drawn = re.fullmatch(r"sharegpt(?:-(\d{1,6}))?", name)
        self.name = name
        self.fixed = (int(fixed[1]), int(fixed[2])) if fixed else None
        self.most = int(drawn[1]) if drawn and drawn[1] else MOST_TOKENS
        if not (fixed or drawn) or self.most < LEAST_TOKENS:
            raise ValueError(f"{name} (known: IN/OUT as in 100/128, sharegpt, sharegpt-N)")

    def lengths(self, count, *seeds):
        """(tokens in, tokens out) of each of `count` requests; equal seeds give equal lengths."""
        if self.fixed:
            return [self.fixed] * count
        generator = random.Random(repr((self.name, seeds)))
        return [tuple(draw_length(generator, law, self.most) for law in (SHAREGPT_IN, SHAREGPT_OUT))
                for _ in range(count)]

    def prompts(self, count, vocab, *seeds):
        """Texts of about that many tokens or, with a vocabulary's size, lists of exactly as many token ids; with how
        many tokens come out: (prompt, tokens out) of each."""
        lengths = self.lengths(count, *seeds)
        if vocab:
            generator = random.Random(repr((self.name, seeds, "ids")))
            prompts = (generator.choices(range(vocab), k=tokens_in) for tokens_in, _ in lengths)
        elif self.fixed:
            prompts = make_prompts(count, self.fixed[0], *seeds)
        else:
            prompts = (make_prompts(1, tokens_in, *seeds, number)[0] for number, (tokens_in, _) in enumerate(lengths))
        return [(prompt, tokens_out) for prompt, (_, tokens_out) in zip(prompts, lengths)]


def arrival_times(count, rate, *seeds):
    """Seconds at which requests come that arrive at random, `rate` of them a second."""
    generator, now = random.Random(repr((seeds, "arrivals"))), 0.0
    for _ in range(count):
        now += generator.expovariate(rate)
        yield now
