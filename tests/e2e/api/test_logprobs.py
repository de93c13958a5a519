"""logprobs in the legacy completions shape, and pure scoring as lm-evaluation-harness does it."""

import json
import math
from pathlib import Path

from quire_server import MODEL

PROMPT = "The capital of France is"
DATA = Path(__file__).resolve().parents[1] / "data"


def test_generated_tokens(server):
    choice = server.complete(PROMPT, max_tokens=4, logprobs=3).choices[0]
    logprobs = choice.logprobs
    assert "".join(logprobs.tokens) == choice.text
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 4
    assert logprobs.text_offset == [len("".join(logprobs.tokens[:i])) for i in range(4)]
    for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
        assert 3 <= len(top) <= 4
        assert top[token] == value == max(top.values())  # greedy
        assert sum(map(math.exp, top.values())) < 1.0001


def test_zero_still_gives_the_sampled_token(server):
    logprobs = server.complete(PROMPT, max_tokens=2, logprobs=0).choices[0].logprobs
    assert len(logprobs.token_logprobs) == 2
    assert all(value <= 0 for value in logprobs.token_logprobs)


def test_echo_scores_prompt_and_output(server):
    choice = server.complete(PROMPT, max_tokens=3, echo=True, logprobs=1).choices[0]
    logprobs = choice.logprobs
    assert "".join(logprobs.tokens) == choice.text
    assert len(logprobs.tokens) == 8
    assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])
    # As vLLM has it, the token itself comes first, whatever is likelier.
    assert [next(iter(top)) for top in logprobs.top_logprobs[1:5]] == logprobs.tokens[1:5]
    generated = server.complete(PROMPT, max_tokens=3, logprobs=1).choices[0].logprobs
    assert logprobs.token_logprobs[5:] == generated.token_logprobs


def test_pure_scoring(server):
    completion = server.complete(PROMPT + " Paris", max_tokens=0, echo=True, logprobs=1)
    [choice] = completion.choices
    assert choice.text == PROMPT + " Paris"
    assert completion.usage.completion_tokens == 0
    assert choice.finish_reason == "length"
    assert choice.logprobs.tokens[-1] == " Paris"
    right = choice.logprobs.token_logprobs[-1]
    wrong = server.complete(PROMPT + " Banana", max_tokens=0, echo=True,
                            logprobs=1).choices[0].logprobs.token_logprobs[-1]
    assert right > wrong + 2


def test_end_of_text_has_an_entry(server):
    """lm-evaluation-harness requests one token and drops the last entry, whatever that token was."""
    [end] = server.post("/tokenize", {"content": "<|im_end|>", "parse_special": True}).json()["tokens"]
    choice = server.complete(PROMPT, max_tokens=1, echo=True, logprobs=1,
                             logit_bias={str(end): 100}).choices[0]
    assert choice.finish_reason == "stop"
    assert choice.text == PROMPT
    assert choice.logprobs.tokens == ["The", " capital", " of", " France", " is", "<|im_end|>"]
    assert choice.logprobs.token_logprobs[-1] < -5  # raw, before the bias


def test_scoring_does_not_depend_on_company(server):
    """lm-evaluation-harness sends batches; a prompt's score must not change with its neighbours."""
    prompts = [PROMPT + end for end in (" Paris", " London", " a", ", as everybody knows, Paris")]
    together = server.complete(prompts, max_tokens=0, echo=True, logprobs=1).choices
    for prompt, choice in zip(prompts, together):
        alone = server.complete(prompt, max_tokens=0, echo=True, logprobs=1).choices[0]
        assert alone.logprobs == choice.logprobs


def test_perplexity_matches_the_reference(server):
    """Within 1 % of Transformers in float32 on the same weights (scripts/golden/make_perplexity.py)."""
    reference = json.loads((DATA / "perplexity.json").read_text())
    assert MODEL.name == reference["model"]
    text = (DATA / reference["text"]).read_text()
    logprobs = server.complete(text, max_tokens=0, echo=True, logprobs=1).choices[0].logprobs
    assert len(logprobs.tokens) == reference["num_tokens"] >= 2000
    assert "".join(logprobs.tokens) == text
    scored = logprobs.token_logprobs[1:]
    perplexity = math.exp(-sum(scored) / len(scored))
    print(f"perplexity {perplexity:.4f}, reference {reference['perplexity']:.4f}")
    assert abs(perplexity / reference["perplexity"] - 1) < 0.01
