"""llama.cpp's steps of sampling: each does what it says, and a value that asks for nothing changes no byte; the same
tokens in any company, through preemption, in flight, with drafts, and in choices."""

import pytest

from quire_server import NAME
from test_load import gather

STORY = "Once upon a time, in a village by the sea,"
LOOP = "one two three four five six seven eight nine ten, " * 3 + "one two"
NOTHING = {"typical_p": 1, "xtc_probability": 0, "dynatemp_range": 0, "dry_multiplier": 0, "mirostat": 0, "top_n_sigma": -1}
STEPS = [{"typical_p": 0.4}, {"xtc_probability": 0.8, "xtc_threshold": 0.05}, {"dynatemp_range": 0.7},
         {"dynatemp_range": 0.9, "dynatemp_exponent": 3}, {"top_n_sigma": 1}, {"mirostat": 1, "mirostat_tau": 3},
         {"mirostat": 2, "mirostat_tau": 3, "mirostat_eta": 0.3}, {"dry_multiplier": 2, "dry_allowed_length": 1}]
ALL = {"typical_p": 0.95, "xtc_probability": 0.5, "dynatemp_range": 0.4, "top_n_sigma": 2, "dry_multiplier": 0.8,
       "min_p": 0.01, "top_k": 60, "top_p": 0.97, "repetition_penalty": 1.05}


def text_of(server, prompt=STORY, **fields):
    fields = {"max_tokens": 32, "temperature": 1, "top_p": 1, "seed": 3, **fields}
    extra = {"ignore_eos": True, "top_k": -1, "min_p": 0, **fields.pop("steps", {})}
    return server.complete(prompt, extra_body=extra, **fields).choices[0].text


@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_a_step_changes_the_text(server, steps):
    plain = [text_of(server, seed=seed) for seed in range(3)]
    bent = [text_of(server, seed=seed, steps=steps) for seed in range(3)]
    assert bent != plain
    assert bent == [text_of(server, seed=seed, steps=steps) for seed in range(3)]


@pytest.mark.parametrize("name", NOTHING)
def test_what_asks_for_nothing_changes_nothing(server, name):
    for fields in ({}, {"temperature": 0}, {"top_p": 0.8}):
        assert text_of(server, steps={name: NOTHING[name]}, **fields) == text_of(server, **fields)


def test_tiny_ones_are_greedy(server):
    greedy = text_of(server, temperature=0)
    assert text_of(server, steps={"top_n_sigma": 1e-6}) == greedy
    assert text_of(server, steps={"mirostat": 2, "mirostat_tau": 0, "mirostat_eta": 1}) == greedy
    assert text_of(server, steps={"dynatemp_range": 1, "dynatemp_exponent": 10, "top_n_sigma": 1e-6}) == greedy
    steps = {"xtc_probability": 1, "typical_p": 0.5, "dynatemp_range": 1, "mirostat": 1, "top_n_sigma": 1}
    assert text_of(server, temperature=0, steps=steps) == greedy


def test_dry_stops_a_loop(server):
    def rounds(**steps):
        return text_of(server, LOOP, temperature=0, max_tokens=60, steps=steps).count("six seven eight")
    assert rounds() >= 3
    dry = {"dry_multiplier": 5, "dry_sequence_breakers": []}
    assert rounds(**dry) <= 1
    assert rounds(**dry, dry_penalty_last_n=0) == rounds()
    assert rounds(**dry, dry_allowed_length=1000) == rounds()
    assert rounds(**{**dry, "dry_sequence_breakers": ["e", "o", "x", "r", "n"]}) == rounds()  # each word ends a repetition


@pytest.mark.parametrize("path,body", [("/v1/completions", {"prompt": STORY}),
                                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": STORY}]}),
                                       ("/v1/responses", {"input": STORY}),
                                       ("/v1/messages", {"messages": [{"role": "user", "content": STORY}]})])
def test_every_endpoint_has_them(server, path, body):
    def answer(**steps):
        most = {"/v1/responses": "max_output_tokens"}.get(path, "max_tokens")
        temperature = 1 if path == "/v1/messages" else 1.5
        reply = server.post(path, {"model": NAME, most: 24, "temperature": temperature, "seed": 5, **body, **steps})
        assert reply.status_code == 200, reply.text
        assert "x-ignored-params" not in reply.headers
        said = reply.json()
        return str([said.get(name) for name in ("content",)] + [choice.get("text", choice.get("message")) for choice in
                   said.get("choices", [])] + [part.get("content") for part in said.get("output", [])])
    greedy = answer(top_n_sigma=1e-6)
    assert greedy == answer(top_k=1) != answer()


BEYOND = [("typical_p", 0), ("typical_p", 1.1), ("xtc_probability", -0.1), ("xtc_probability", 1.1), ("xtc_threshold", 0),
          ("xtc_threshold", 2), ("dynatemp_range", -1), ("dynatemp_range", 5.5), ("dynatemp_exponent", -1),
          ("dynatemp_exponent", 11), ("top_n_sigma", -2), ("top_n_sigma", 101), ("mirostat", 3), ("mirostat", -1),
          ("mirostat", 1.5), ("mirostat_tau", -1), ("mirostat_tau", 101), ("mirostat_eta", -1), ("mirostat_eta", 11),
          ("dry_multiplier", -1), ("dry_multiplier", 101), ("dry_base", 0.9), ("dry_base", 11), ("dry_allowed_length", 0),
          ("dry_allowed_length", 1025), ("dry_penalty_last_n", -2), ("dry_penalty_last_n", 32769),
          ("dry_sequence_breakers", "x"), ("dry_sequence_breakers", [1]), ("dry_sequence_breakers", [""]),
          ("dry_sequence_breakers", ["x" * 65]), ("dry_sequence_breakers", ["x"] * 33), ("samplers", ["top_k"]),
          ("samplers", "kfypmt"), ("logits_processors", ["x"])]


@pytest.mark.parametrize("name,value", BEYOND, ids=str)
def test_what_is_beyond_its_bounds_is_refused(server, name, value):
    reply = server.post("/v1/completions", {"prompt": "a", "max_tokens": 1, name: value})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].split("[")[0] == name


@pytest.mark.parametrize("steps", [{"typical_p": 0.5}, {"xtc_probability": 0.5}, {"dynatemp_range": 1}, {"top_n_sigma": 1},
                                   {"mirostat": 2}, {"dry_multiplier": 1}], ids=str)
def test_beams_take_none(server, steps):
    body = {"prompt": "a", "max_tokens": 2, "n": 2, "use_beam_search": True, "temperature": 0}
    reply = server.post("/v1/completions", {**body, **steps})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, *steps)
    neutral = {name: NOTHING[name] for name in steps if name != "top_n_sigma"}
    assert server.post("/v1/completions", {**body, **neutral, "top_n_sigma": 0}).status_code == 200


def load(client):
    def call(number, steps, count):
        async def ask():
            answer = await client.completions.create(
                model=NAME, prompt=LOOP if number % 2 else f"Tell me {number} things about the sea:", n=count, max_tokens=50,
                temperature=0.9, seed=number, extra_body={"ignore_eos": True, **steps})
            return [choice.text for choice in answer.choices]
        return ask()
    return [call(number, steps, 1 + number % 2) for number, steps in enumerate([*STEPS, ALL])]


@pytest.fixture(scope="module")
def alone(shared_server):
    """One after the other."""
    num_calls = len(STEPS) + 1

    def only(client, number):
        calls = load(client)
        for other in calls[:number] + calls[number + 1:]:
            other.close()
        return [calls[number]]
    return [gather(shared_server, lambda client, number=number: only(client, number))[0] for number in range(num_calls)]


@pytest.mark.parametrize("arguments", [
    [], ["--no-async-scheduling"], ["--max-num-seqs", 3],
    ["--max-model-len", 128, "--kv-cache-memory-bytes", "6M", "--swap-space", "0.1"],
    ["--max-model-len", 128, "--kv-cache-memory-bytes", "6M", "--swap-space", 0],
    ["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 8, "prompt_lookup_min": 1}'],
    ["--rank-process", "on"]], ids=str)
def test_the_same_in_any_company(start_server, alone, arguments):
    server = start_server(*arguments)
    assert gather(server, load) == alone
    metrics = server.wait_idle()
    if "--kv-cache-memory-bytes" in arguments:
        assert metrics["num_preemptions_total"] > 0
    if "--speculative-config" in arguments:
        assert metrics["spec_decode_num_accepted_tokens_total"] > 0
