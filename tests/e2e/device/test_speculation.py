"""Speculation: the same answers with and without it, to the byte, and it is used where text repeats."""

import httpx
import pytest

from quire_server import NAME
from test_load import gather, seeded

CONFIG = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 8, "prompt_lookup_min": 1}'
REPEATED = "one two three four five six seven eight nine ten, " * 6
CODE = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n\n\ndef mul(a, b):\n"
SCHEMA = {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}, "maxItems": 3}},
          "required": ["names"], "additionalProperties": False}


def completion(client, prompt, **fields):
    """All of the answer's choices but what names the request."""
    async def ask():
        extra = {"ignore_eos": True, **fields.pop("extra_body", {})}
        answer = await client.completions.create(model=NAME, prompt=prompt, extra_body=extra,
                                                 **{"max_tokens": 60, "seed": 7, **fields})
        return [choice.model_dump() for choice in answer.choices], answer.usage.completion_tokens
    return ask()


def chat(client, **fields):
    async def ask():
        answer = await client.chat.completions.create(
            model=NAME, messages=[{"role": "user", "content": "Name three colours, then the same three again."}],
            max_tokens=60, seed=7, **fields)
        return [choice.model_dump() for choice in answer.choices], answer.usage.completion_tokens
    return ask()


def load(client):
    schema = {"type": "json_schema", "json_schema": {"name": "names", "schema": SCHEMA}}
    calls = [seeded(client, number) for number in range(6)]
    for prompt in (REPEATED, CODE):
        for temperature in (0, 0.8):
            calls += [
                completion(client, prompt, temperature=temperature, logprobs=3),
                completion(client, prompt, temperature=temperature, frequency_penalty=0.5, presence_penalty=0.3),
                completion(client, prompt, temperature=temperature, n=3),
                completion(client, prompt, temperature=temperature, stop=[" nine", "return"]),
                completion(client, prompt, temperature=temperature, logit_bias={"30": -5, "28": 2}),
                completion(client, prompt, temperature=temperature, extra_body={"min_p": 0.05, "top_k": 40,
                                                                               "repetition_penalty": 1.1}),
            ]
    return calls + [completion(client, REPEATED, n=2, best_of=4, extra_body={"use_beam_search": True}),
                    chat(client, temperature=0), chat(client, temperature=0.8, response_format=schema)]


@pytest.fixture(scope="module")
def expected(shared_server):
    return gather(shared_server, load)


@pytest.mark.parametrize("arguments", [[], ["--no-async-scheduling"], ["--max-model-len", 256,
                                                                      "--kv-cache-memory-bytes", "16M"]])
def test_speculation_never_changes_the_output(start_server, expected, arguments):
    server = start_server("--speculative-config", CONFIG, *arguments)
    assert gather(server, load) == expected
    for _ in range(4):  # whether drafts pay is measured: a busy machine takes longer to find that they do
        metrics = server.wait_idle()
        if metrics["spec_decode_num_accepted_tokens_total"] > 0:
            break
        assert gather(server, load) == expected
    assert metrics["kv_blocks_used"] == 0
    assert metrics["spec_decode_num_accepted_tokens_total"] > 0
    if "--max-model-len" in arguments:
        assert metrics["num_preemptions_total"] > 0


def test_drafts_are_counted(start_server):
    server = start_server("--speculative-config", CONFIG)
    server.complete(REPEATED, max_tokens=100, temperature=0, extra_body={"ignore_eos": True})
    metrics = server.wait_idle()
    drafts, tokens, accepted = (metrics[f"spec_decode_num_{name}_total"]
                                for name in ("drafts", "draft_tokens", "accepted_tokens"))
    assert 0 < accepted <= tokens <= 5 * drafts
    assert metrics["spec_decode_num_accepted_tokens_per_pos_total"] == accepted
    assert metrics["spec_decode_draft_acceptance_rate"] == pytest.approx(accepted / tokens)


def test_no_drafts_without_the_option(server):
    assert "spec_decode" not in httpx.get(server.url + "/metrics").text


def test_no_async_scheduling(start_server, expected):
    assert gather(start_server("--no-async-scheduling"), load) == expected
