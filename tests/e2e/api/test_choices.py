"""Several choices of one prompt: they hold it once, and each is as if it had been alone."""

import random
import time

import httpx
import pytest

from metrics_watch import deltas, watch_metrics
from quire_server import NAME

BLOCK = 16


WORDS = "time people water world house day night work life place school hand eye book door art war air".split()


def prompt_of(server, num_tokens, name):
    """Token ids, nobody else's, after which much may follow."""
    generator = random.Random(name)
    return server.tokenize(f"{name}: " + " ".join(generator.choices(WORDS, k=num_tokens)))[:num_tokens]


def texts(completion):
    return [choice.text for choice in completion.choices]


def sample(server, prompt, **fields):
    fields = {"temperature": 0.9, "seed": 5, "max_tokens": 24, "extra_body": {"ignore_eos": True}, **fields}
    return server.complete(prompt, **fields)


def test_choices_hold_their_prompt_once(server):
    """The last block is partly filled; each choice copies it when it writes, but for the last one left."""
    prompt = prompt_of(server, 20 * BLOCK + 5, "shared")
    with watch_metrics(server) as watch:
        answer, rose = deltas(server, lambda: sample(server, prompt, n=8))
    assert len(set(texts(answer))) == 8
    assert watch.most("num_requests_running") == 8
    assert watch.most("kv_blocks_used") <= 20 + 8 * 3
    assert rose["kv_blocks_copied_total"] == 7
    assert rose["prompt_tokens_total"] == len(prompt)
    assert answer.usage.prompt_tokens == len(prompt) and answer.usage.completion_tokens == 8 * 24


def test_full_blocks_need_no_copy(server):
    prompt = prompt_of(server, 4 * BLOCK, "full")
    _, rose = deltas(server, lambda: sample(server, prompt, n=4))
    assert rose["kv_blocks_copied_total"] == 0


def test_choices_are_those_of_requests_alone(server, start_server):
    prompt = prompt_of(server, 3 * BLOCK + 7, "alone")
    greedy = texts(sample(server, prompt, n=4, temperature=0))
    assert greedy == texts(sample(server, prompt, temperature=0)) * 4
    sampled = texts(sample(server, prompt, n=4))
    assert sampled[:1] == texts(sample(server, prompt))
    assert sampled[:2] == texts(sample(server, prompt, n=2))
    narrow = start_server("--max-num-seqs", 1, "--no-enable-prefix-caching")
    answer, rose = deltas(narrow, lambda: sample(narrow, prompt, n=4))
    assert texts(answer) == sampled
    assert narrow.metrics()["kv_blocks_used"] == 0


def test_best_of_tells_the_likeliest(server):
    prompt = prompt_of(server, 30, "best")
    every = sample(server, prompt, n=6, logprobs=0)
    means = [sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs) for choice in every.choices]
    order = sorted(range(6), key=lambda i: -means[i])
    assert texts(sample(server, prompt, n=2, best_of=6)) == [every.choices[i].text for i in order[:2]]


def test_one_choice_stops_early(server):
    """The others continue as they would have."""
    prompt = prompt_of(server, 2 * BLOCK + 3, "early")
    whole = sample(server, prompt, n=4, max_tokens=40)
    stop = whole.choices[2].text[10:14]
    expected = [text.split(stop)[0] for text in texts(whole)]
    assert stop in whole.choices[2].text
    answer = sample(server, prompt, n=4, max_tokens=40, stop=[stop])
    assert texts(answer) == expected
    assert [choice.finish_reason for choice in answer.choices] == [
        "stop" if stop in choice.text else "length" for choice in whole.choices]
    assert server.wait_idle()["kv_blocks_used"] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_more_choices_than_slots(start_server, stream):
    """They are admitted as slots become free; the first are those that fewer choices have."""
    server = start_server("--max-num-seqs", 8)
    body = {"model": NAME, "prompt": prompt_of(server, 40, "many"), "n": 128, "temperature": 0.9, "seed": 5,
            "max_tokens": 6, "ignore_eos": True}
    few = [choice["text"] for choice in server.post("/v1/completions", {**body, "n": 4}).json()["choices"]]
    found = [""] * 128
    if stream:
        with server.client().completions.create(**{k: v for k, v in body.items() if k != "ignore_eos"}, stream=True,
                                              extra_body={"ignore_eos": True}) as events:
            for event in events:
                for choice in event.choices:
                    found[choice.index] += choice.text
    else:
        answer = server.post("/v1/completions", body).json()
        assert answer["usage"]["completion_tokens"] == 128 * 6
        found = [choice["text"] for choice in answer["choices"]]
    assert found[:4] == few
    assert len(set(found)) > 100
    assert server.wait_idle()["kv_blocks_used"] == 0


def test_many_choices_hold_nobody_up(start_server):
    """One that comes later is answered while most of them are still to begin."""
    server = start_server("--max-num-seqs", 8)
    body = {"prompt": "Once upon a time", "n": 1000, "max_tokens": 16, "ignore_eos": True, "stream": True}
    with httpx.Client() as client, client.stream("POST", server.url + "/v1/completions", json=body, timeout=60) as reply:
        lines = reply.iter_lines()
        next(lines)
        assert server.complete("Hello", max_tokens=4).choices[0].text
        assert server.metrics()["num_requests_waiting"] > 500


def test_the_bound_of_n(server, start_server):
    for field in ["n", "best_of"]:
        error = server.post("/v1/completions", {"prompt": "a", field: 1025}).json()["error"]
        assert error["message"] == f"{field} must be an integer from 1 to 1024 (--max-n), not 1025"
        assert error["param"] == field
    error = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "n": 2000}).json()["error"]
    assert error["message"] == "n must be an integer from 1 to 1024 (--max-n), not 2000"
    narrow = start_server("--max-n", 3)
    assert narrow.post("/v1/completions", {"prompt": "a", "n": 4}).status_code == 400
    assert len(narrow.post("/v1/completions", {"prompt": "a", "n": 3, "max_tokens": 1}).json()["choices"]) == 3
    fields = httpx.get(narrow.url + "/openapi.json").json()["components"]["schemas"]["SamplingFields"]["properties"]
    assert fields["n"]["maximum"] == 3 and fields["best_of"]["maximum"] == 3


@pytest.mark.parametrize("stream", [False, True])
def test_hang_up_frees_all_choices(server, stream):
    body = {"prompt": prompt_of(server, 40, "gone"), "n": 8, "max_tokens": 400, "ignore_eos": True, "stream": stream}
    server.wait_idle()
    with httpx.Client() as client:
        with pytest.raises(httpx.TimeoutException):
            with client.stream("POST", server.url + "/v1/completions", json=body, timeout=0.7) as reply:
                deadline = time.monotonic() + 0.7
                for _ in reply.iter_bytes():
                    if time.monotonic() > deadline:
                        raise httpx.ReadTimeout("enough")
    server.wait_for(lambda m: m["num_requests_running"] + m["num_requests_waiting"] == 0 and m["kv_blocks_used"] == 0,
                    timeout=5)


# --- Beam search ---


def search(server, prompt, **fields):
    body = {"model": NAME, "prompt": prompt, "use_beam_search": True, "max_tokens": 16, **fields}
    reply = server.post("/v1/completions", body)
    assert reply.status_code == 200, reply.text
    return reply


def score(choice, length_penalty=1.0):
    logprobs = choice["logprobs"]["token_logprobs"]
    return sum(logprobs) / len(logprobs) ** length_penalty


def test_a_beam_of_one_is_greedy(server):
    prompt = "The capital of France is"
    fields = {"max_tokens": 12, "extra_body": {"ignore_eos": True}}
    greedy = server.complete(prompt, **fields).choices[0].text
    assert search(server, prompt, max_tokens=12, ignore_eos=True).json()["choices"][0]["text"] == greedy


def test_beams_come_in_order_and_differ(server):
    answer = search(server, "Once upon a time", n=4, best_of=6, logprobs=1).json()
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert len({choice["text"] for choice in choices}) == 4
    scores = [score(choice) for choice in choices]
    assert scores == sorted(scores, reverse=True)
    assert answer["usage"]["completion_tokens"] == sum(len(choice["logprobs"]["tokens"]) for choice in choices)
    assert {choice["finish_reason"] for choice in choices} <= {"stop", "length"}
    assert server.wait_idle()["kv_blocks_used"] == 0


def test_beams_are_the_same_again_and_in_company(server):
    fields = {"n": 3, "best_of": 5, "max_tokens": 24}
    first = search(server, "A clock is", **fields).json()["choices"]
    assert search(server, "A clock is", seed=7, **fields).json()["choices"] == first
    several = search(server, ["The sea is", "A clock is"], **fields).json()["choices"]
    assert [choice["text"] for choice in several[3:]] == [choice["text"] for choice in first]


def test_beams_share_their_history(server):
    prompt = prompt_of(server, 20 * BLOCK + 1, "beams")
    with watch_metrics(server) as watch:
        answer, rose = deltas(server, lambda: search(server, prompt, n=8, max_tokens=40, ignore_eos=True).json())
    assert watch.most("kv_blocks_used") < 20 + 8 * 4
    assert rose["prompt_tokens_total"] == len(prompt)
    assert len(answer["choices"]) == 8


def test_beams_of_a_chat(server):
    body = {"messages": [{"role": "user", "content": "Name a colour."}], "use_beam_search": True, "n": 2, "best_of": 4,
            "max_tokens": 12, "length_penalty": 0.5, "early_stopping": "never"}
    reply = server.post("/v1/chat/completions", body)
    assert reply.status_code == 200, reply.text
    assert "x-ignored-params" not in reply.headers
    contents = [choice["message"]["content"] for choice in reply.json()["choices"]]
    assert len(set(contents)) == 2 and all(contents)


def test_fields_of_beam_search_without_it(server):
    reply = server.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "length_penalty": 2, "early_stopping": True})
    assert reply.status_code == 200
    assert reply.headers["x-ignored-params"] == "length_penalty,early_stopping"


@pytest.mark.parametrize("param,fields", [
    ("stream", {"stream": True}), ("temperature", {"temperature": 0.5}), ("top_p", {"top_p": 0.9}),
    ("presence_penalty", {"presence_penalty": 1}), ("stop", {"stop": "x"}), ("logit_bias", {"logit_bias": {"5": 1}}),
    ("guided_regex", {"guided_regex": "a*"}), ("prompt_logprobs", {"prompt_logprobs": 1}),
    ("echo", {"echo": True, "logprobs": 1}), ("best_of", {"best_of": 21}), ("best_of", {"n": 3, "best_of": 2}),
    ("n", {"n": 16, "stop_token_ids": [5, 6, 7, 8, 9]}), ("length_penalty", {"length_penalty": 11}),
    ("early_stopping", {"early_stopping": "always"}), ("use_beam_search", {"use_beam_search": "yes"})])
def test_what_beam_search_does_not_go_with(server, param, fields):
    reply = server.post("/v1/completions", {"prompt": "a", "use_beam_search": True, "max_tokens": 4, **fields})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


def test_beam_search_is_no_field_of_responses(server):
    reply = server.post("/v1/responses", {"input": "a", "use_beam_search": True})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "use_beam_search"


# --- What can never fit ---


def refuse(server, **fields):
    reply = server.post("/v1/completions", {"prompt": "a", "max_tokens": 4, "use_beam_search": True, **fields})
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]


def test_more_beams_than_slots(start_server):
    server = start_server("--max-num-seqs", 4)
    error = refuse(server, n=2, best_of=8)
    assert error["param"] == "best_of"
    assert "8" in error["message"] and "4" in error["message"] and "--max-num-seqs" in error["message"]
    assert refuse(server, n=5)["param"] == "n"
    assert len(search(server, "a", n=4).json()["choices"]) == 4


def test_more_beams_than_memory(start_server):
    """One sequence of the whole context fits, as at start is checked; eight do not."""
    server = start_server("--max-model-len", 256, "--kv-cache-memory-bytes", "16M")
    blocks = int(server.metrics()["kv_blocks_total"])
    prompt = prompt_of(server, 64, "large")
    error = refuse(server, prompt=prompt, n=16, max_tokens=190)
    assert error["param"] == "n"
    assert f"has {blocks}" in error["message"] and "--kv-cache-memory-bytes" in error["message"]
    assert len(search(server, prompt, n=16, max_tokens=8).json()["choices"]) == 16
    assert server.metrics()["num_preemptions_total"] == 0
    # Choices that are sampled take turns instead.
    assert len(sample(server, prompt, n=16, max_tokens=190).choices) == 16
    assert server.wait_idle()["kv_blocks_used"] == 0
