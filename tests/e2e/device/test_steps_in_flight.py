"""Two steps in flight change no answer, whatever the request asks for and whoever runs beside it: neither alone, nor
with preemption, with drafts, or with streams that are given up."""

import concurrent.futures
import json

import pytest

from quire_server import NAME, QuireServer

SPECULATIVE = {"method": "ngram", "num_speculative_tokens": 6, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\n"
REPEATING = "one two three four five six, one two three four five six, one two three"
SCHEMA = {"type": "json_schema", "json_schema": {"name": "place", "schema": {
    "type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "floor": {"type": "integer"}},
    "required": ["name", "floor"], "additionalProperties": False}}}


def completions():
    """Bodies by name: every feature whose inputs depend on the token before, and some that do not."""
    fields = {
        "greedy": {"temperature": 0},
        "sampled": {"temperature": 0.8},
        "hot": {"temperature": 1.5, "top_p": 0.9, "top_k": 50},
        "penalties": {"temperature": 0.7, "frequency_penalty": 0.5, "presence_penalty": 0.3,
                      "repetition_penalty": 1.1},
        "choices": {"temperature": 1, "n": 5, "logprobs": 2},
        "bad words": {"temperature": 0.9, "bad_words": [" of the", " the", " two three"]},
        "stop": {"temperature": 0, "stop": [" four", "\n\n\n"], "include_stop_str_in_output": True},
        "min tokens": {"temperature": 0, "min_tokens": 20},
        "biases": {"temperature": 0.5, "logit_bias": {"28": 3, "198": -100}},
        "beams": {"temperature": 0, "use_beam_search": True, "n": 2, "max_tokens": 12},
        "scores": {"temperature": 0, "echo": True, "logprobs": 1, "max_tokens": 8},
        "listed": {"temperature": 0.8, "logprobs": 1, "logprob_token_ids": [28, 198, 30]},
        "regex": {"temperature": 1, "structured_outputs": {"regex": "(one|two|three)( (one|two|three)){3,12}"}},
    }
    return {f"{name}, {kind}": {"prompt": prompt, "max_tokens": 32, "seed": 7, **extra}
            for name, extra in fields.items()
            for kind, prompt in (("repeating", REPEATING), ("code", CODE))}


def requests():
    bodies = [("/v1/completions", body) for body in completions().values()]
    message = [{"role": "user", "content": f"Return this code as it is:\n{CODE}"}]
    bodies += [("/v1/chat/completions", {"messages": message, "max_tokens": 48, "seed": 3, "temperature": heat,
                                         **extra})
               for heat in (0, 0.8) for extra in ({}, {"response_format": SCHEMA}, {"logprobs": True})]
    bodies.append(("/v1/embeddings", {"input": [REPEATING * 8, CODE]}))
    bodies.append(("/v1/completions", {"prompt": [REPEATING, CODE] * 3, "max_tokens": 160, "seed": 5,
                                       "temperature": 0.8, "ignore_eos": True}))
    return bodies


def without_ids(value):
    """What an answer says; ids, times and what came from the cache differ between runs."""
    if isinstance(value, dict):
        return {key: without_ids(item) for key, item in value.items()
                if key not in ("id", "created", "system_fingerprint", "prompt_tokens_details")}
    return [without_ids(item) for item in value] if isinstance(value, list) else value


def answers(server, parallel):
    def ask(request):
        path, body = request
        response = server.post(path, {"model": NAME, **body})
        assert response.status_code == 200, (body, response.text)
        return without_ids(response.json())

    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(ask, requests()))


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """One request after the other, one step at a time."""
    server = QuireServer(tmp_path_factory.mktemp("plain") / "server.log", "--no-async-scheduling")
    yield answers(server, 1)
    server.kill()


def assert_same(found, expected):
    for request, one, other in zip(requests(), found, expected):
        assert one == other, request


def test_look_ahead_changes_no_answer(start_server, expected):
    assert_same(answers(start_server(), 16), expected)


def test_one_step_at_a_time_side_by_side(start_server, expected):
    assert_same(answers(start_server("--no-async-scheduling"), 16), expected)


def test_few_blocks(start_server, expected):
    """Preemption, with steps in flight and drafts: six sequences that arrive together, a block or two each, grow to
    some 70 blocks of 22, whatever runs beside them."""
    server = start_server("--max-model-len", 256, "--kv-cache-memory-bytes", "8M", "--swap-space", "0.02",
                          "--speculative-config", json.dumps(SPECULATIVE))
    assert_same(answers(server, 16), expected)
    metrics = server.wait_idle()
    assert metrics["num_preemptions_total"] > 0
    assert metrics["spec_decode_num_accepted_tokens_total"] > 0


def test_cancelled_while_in_flight(start_server):
    """Streams that are given up leave nothing behind, and change nothing for the others."""
    server = start_server("--speculative-config", json.dumps(SPECULATIVE))
    reference = server.complete(CODE, max_tokens=60).choices[0].text

    def give_up(number):
        stream = server.client().completions.create(model=NAME, prompt=f"{number}: {REPEATING}", max_tokens=400,
                                                    stream=True, extra_body={"ignore_eos": True})
        for index, _ in enumerate(stream):
            if index == number % 5:
                break
        stream.close()

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        others = [pool.submit(give_up, number) for number in range(32)]
        texts = [pool.submit(lambda: server.complete(CODE, max_tokens=60).choices[0].text) for _ in range(8)]
        for other in others:
            other.result()
        assert {text.result() for text in texts} == {reference}
    server.wait_idle()
    assert server.metrics()["kv_cache_usage_perc"] == 0
