#!/usr/bin/env python3
"""Writes scripts/paged_memory/beam_rows.inc: log probabilities that a real model gives in beam search.

Runs beam search with Transformers' model of a GGUF file on the prompts below, keeps the best log
probabilities of every beam at every step, and picks the rows of the table from those of the
narrowest search. Ends are banned: how long an output is, the simulation decides.

Prints, for each width, how many histories the beams have some steps back, and what sharing saves,
computed from the parents of the recorded beams alone: COMMON_STEPS_PERCENT of beam_rows.c is chosen
so that searches of width 2 on the table agree with it; those of width 6 then do so as well.

usage: make_beam_rows.py MODEL.gguf [--tokens N] [--recording FILE]    (needs torch, transformers)
"""

import argparse
import json
import random
from pathlib import Path

OUT = Path(__file__).parent / "beam_rows.inc"
NUM_ROWS, NUM_LOGPROBS = 256, 6
WIDTHS = (2, 4, 6)
BLOCK_SIZE = 16
PROMPTS = [
    "Give three tips for staying healthy.", "What are the three primary colors?",
    "Describe the structure of an atom.", "How can we reduce air pollution?",
    "Write a short story about a fox who learns to share.",
    "Explain why the sky is blue to a child.",
    "Suggest a name for a bakery and say why it fits.",
    "Summarize the causes of the First World War.",
    "Write a polite email asking for a day off.",
    "What is the difference between a virus and a bacterium?",
    "List five uses of a paper clip.", "Describe a rainy day in a big city.",
    "How do you make tea with milk?", "Write a poem about the sea.",
    "Explain how a bicycle stays upright.", "Give an argument for and against homework.",
    "Translate 'Good morning, my friend' into French and explain it.",
    "What should I look at when I buy a used car?", "Plan a weekend trip to the mountains.",
    "Explain recursion with an example.", "Describe your favourite season of the year.",
    "Why do cats purr?", "Write a product description of a wooden chair.",
    "How does a bank earn money?",
]


def record(path, num_tokens):
    """[{width, parents: [step][slot], rows: [step][slot][NUM_LOGPROBS]}]"""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name,
                                                 dtype=torch.float32).eval()
    banned = sorted({0, 1, 2, tokenizer.eos_token_id})

    def best(logits):
        logprobs = torch.log_softmax(logits[:, -1].float(), -1)
        logprobs[:, banned] = -1e9
        return logprobs.topk(NUM_LOGPROBS, -1)

    chats = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    tokenizer.padding_side = "left"
    inputs = tokenizer.apply_chat_template(chats, add_generation_prompt=True, padding=True,
                                           return_tensors="pt", return_dict=True)

    @torch.no_grad()
    def search(width):
        """All prompts at once: slot l of prompt p is row p * width + l."""
        mask = inputs["attention_mask"].repeat_interleave(width, 0)
        first = torch.arange(len(PROMPTS))[:, None] * width
        output = model(inputs["input_ids"].repeat_interleave(width, 0), attention_mask=mask,
                       position_ids=(mask.cumsum(-1) - 1).clamp(min=0), use_cache=True,
                       logits_to_keep=1)
        top = best(output.logits)
        tops, parents = [top.values[::width, None]], [torch.zeros_like(first).expand(-1, width)]
        scores = top.values[::width, :width]
        tokens = top.indices[::width, :width]
        for _ in range(num_tokens - 1):
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], -1)
            output = model(tokens.reshape(-1, 1), attention_mask=mask, use_cache=True,
                           position_ids=mask.sum(-1, keepdim=True) - 1,
                           past_key_values=output.past_key_values)
            top = best(output.logits)
            values = top.values.view(-1, width, NUM_LOGPROBS)
            chosen = (scores[:, :, None] + values).flatten(1).topk(width)
            slots = chosen.indices // NUM_LOGPROBS
            tops.append(values)
            parents.append(slots)
            scores = chosen.values
            tokens = top.indices.view(len(PROMPTS), -1).gather(1, chosen.indices)
            output.past_key_values.reorder_cache((first + slots).flatten())
        return [{"width": width, "parents": [step[place].tolist() for step in parents],
                 "rows": [step[place].tolist() for step in tops]}
                for place in range(len(PROMPTS))]

    return [one for width in WIDTHS for one in search(width)]


def num_apart(parents):
    """[step]: how many histories of the last step's beams are different there."""
    slots = set(range(len(parents[-1])))
    counts = []
    for step in reversed(parents):
        counts.append(len(slots))
        slots = {step[slot] for slot in slots}
    return counts[::-1]


def saved(parents, num_prompt_tokens):
    """Share of blocks that beams save by sharing those whose tokens are all the same."""
    width, shared, total = len(parents[0]), 0, 0
    for last in range(len(parents)):
        apart = num_apart(parents[:last + 1])
        num_held = num_prompt_tokens + last
        total += width * -(-num_held // BLOCK_SIZE)
        for end in range(BLOCK_SIZE - 1, num_held, BLOCK_SIZE):
            shared += width - (1 if end < num_prompt_tokens else apart[end - num_prompt_tokens])
    return shared / total


def describe(searches):
    for width in WIDTHS:
        parents = [search["parents"] for search in searches if search["width"] == width]
        back = [sum(num_apart(one)[-1 - steps] for one in parents) / len(parents)
                for steps in (0, 1, 2, 4, 8, 16, 32, 64)]
        print(f"width {width}: histories 0, 1, 2, 4, 8, 16, 32, 64 steps back: "
              + ", ".join(f"{count:.2f}" for count in back))
        for num_prompt_tokens, num_tokens in ((20, 58), (160, 128)):
            share = sum(saved(one[:num_tokens], num_prompt_tokens) for one in parents) / len(parents)
            print(f"  {num_prompt_tokens} tokens, then {num_tokens}: {100 * share:.1f} % saved")


def write_table(searches, path):
    rows = [row for search in searches if search["width"] == min(WIDTHS)
            for step in search["rows"] for row in step]
    drawn = random.Random(1).sample(rows, NUM_ROWS)
    lines = [", ".join(str(round(1000 * value)) for value in row[:NUM_LOGPROBS]) for row in drawn]
    path.write_text("".join(f"{{{line}}},\n" for line in lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--recording", type=Path, help="read it from there, or write it there")
    arguments = parser.parse_args()
    if arguments.recording and arguments.recording.exists():
        searches = json.loads(arguments.recording.read_text())
    else:
        searches = record(arguments.model, arguments.tokens)
        if arguments.recording:
            arguments.recording.write_text(json.dumps(searches))
    describe(searches)
    write_table(searches, OUT)


if __name__ == "__main__":
    main()
