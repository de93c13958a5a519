"""Transformers' beam search, and by how little the outcome could have been another one.

For scripts that compare a beam search with it. The search is Transformers' own; its helper functions are
watched to see how close every decision was that the outcome depends on.
"""

from dataclasses import dataclass

import torch
from transformers import GenerationConfig

FINISHED = -1e8  # Transformers' placeholders for unfinished beams have scores around -1e9


@dataclass
class Settings:
    width: int
    n: int
    max_tokens: int
    min_tokens: int
    length_penalty: float
    early_stopping: bool | str
    ends: list


@dataclass
class Beam:
    tokens: list  # generated, the end token included
    score: float
    ended: bool


class Watch:
    """Puts itself before a model's helpers for the time of a search. `gap` is the smallest difference, in
    nats of a whole sequence, between what was chosen and what was not."""

    def __init__(self, model, settings):
        self.model, self.settings = model, settings
        self.gap, self.length = float("inf"), 0
        self.watched = {"_get_top_k_continuations": self.watch_candidates,
                        "_update_finished_beams": self.watch_finished,
                        "_check_early_stop_heuristic": self.watch_heuristic}

    def __enter__(self):
        for name, watch in self.watched.items():
            original = getattr(self.model, name)
            setattr(self.model, name, self.before(watch, original))
        return self

    def __exit__(self, *_):
        for name in self.watched:
            delattr(self.model, name)

    @staticmethod
    def before(watch, original):
        def call(**arguments):
            watch(arguments)
            return original(**arguments)
        return call

    def see(self, kept, left):
        """Two lists of sums."""
        if kept and left:
            self.gap = min(self.gap, min(kept) - max(left))

    def watch_candidates(self, arguments):
        """The first `width` of all may finish; the first `width` that do not end run on."""
        width, ends = self.settings.width, self.settings.ends
        flat = arguments["accumulated_log_probs"][0].double()
        vocab = len(flat) // width
        sums, indices = flat.topk(min(len(flat), (len(ends) + 2) * width + 1))
        sums, is_end = sums.tolist(), [i % vocab in ends for i in indices.tolist()]
        self.length = arguments["cur_len"] + 1 - arguments["decoder_prompt_len"]
        is_last = self.length == self.settings.max_tokens
        for i in range(width):
            others = [s for s, e in zip(sums[width:], is_end[width:]) if is_last or is_end[i] or e]
            self.see([sums[i]], others)
        running = [s for s, e in zip(sums, is_end) if not e]
        if not is_last:
            self.see(running[:width], running[width:])

    def watch_finished(self, arguments):
        """The best `width` finished ones are kept."""
        width, power = self.settings.width, self.length ** self.settings.length_penalty
        finishes = arguments["next_token_hits_stopping_criteria"] & arguments["top_num_beam_mask"]
        scores = arguments["beam_scores"][0].double().tolist()
        scores += (arguments["topk_log_probs"][finishes].double() / power).tolist()
        ranked = sorted((s * power for s in scores if s > FINISHED), reverse=True)
        self.see(ranked[:width], ranked[width:])

    def watch_heuristic(self, arguments):
        """Returns whether the best running beam can still be better than the worst finished one."""
        length, penalty = self.length, self.settings.length_penalty
        if self.settings.early_stopping is True or not arguments["is_sent_finished"].all():
            return
        if self.settings.early_stopping == "never" and penalty > 0:
            length = self.settings.max_tokens
        worst = arguments["beam_scores"].double().min().item() * length ** penalty
        best = arguments["running_beam_scores"][0, 0].double().item()
        self.gap = min(self.gap, abs(best - worst))


def generation_config(settings, use_cache):
    return GenerationConfig(
        use_cache=use_cache,
        num_beams=settings.width, num_return_sequences=settings.n, do_sample=False,
        max_new_tokens=settings.max_tokens, min_new_tokens=settings.min_tokens or None,
        length_penalty=settings.length_penalty, early_stopping=settings.early_stopping,
        eos_token_id=settings.ends or None, pad_token_id=0, return_dict_in_generate=True,
        output_scores=True)


def read_beams(output, num_prompt, ends):
    lengths = (output.beam_indices >= 0).sum(1).tolist()
    beams = []
    for row, length, score in zip(output.sequences, lengths, output.sequences_scores.tolist()):
        tokens = row[num_prompt:num_prompt + length].tolist()
        beams.append(Beam(tokens, score, tokens[-1] in ends))
    return beams


def search(model, prompt, settings, use_cache=True):
    """(the best n beams, best first; the gap)"""
    model.generation_config = GenerationConfig()  # what a model recommends for drawing has no say
    model.config.eos_token_id = model.config.pad_token_id = None
    with torch.no_grad(), Watch(model, settings) as watch:
        output = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)),
                                generation_config=generation_config(settings, use_cache))
    beams = read_beams(output, len(prompt), settings.ends)
    for better, worse in zip(beams, beams[1:]):
        power = min(len(b.tokens) ** settings.length_penalty for b in (better, worse))
        watch.gap = min(watch.gap, (better.score - worse.score) * power)
    return beams, watch.gap
