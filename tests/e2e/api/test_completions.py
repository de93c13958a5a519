"""POST /v1/completions as the OpenAI SDK and curl see it."""

import json
import subprocess

from quire_server import NAME

PROMPT = "The capital of France is"


def test_curl_without_content_type(server):
    body = {"model": NAME, "prompt": PROMPT, "max_tokens": 8, "temperature": 0}
    result = subprocess.run(["curl", "-sS", server.url + "/v1/completions", "-d", json.dumps(body)],
                            capture_output=True, check=True, timeout=60)
    assert json.loads(result.stdout)["choices"][0]["text"].startswith(" Paris")


def test_object(server):
    completion = server.complete(PROMPT, max_tokens=5)
    assert completion.id.startswith("cmpl-")
    assert completion.object == "text_completion"
    assert completion.model == NAME
    assert completion.created > 1_600_000_000
    [choice] = completion.choices
    assert choice.index == 0
    assert choice.text.startswith(" Paris")
    assert choice.finish_reason == "length"
    assert choice.logprobs is None
    assert completion.usage.prompt_tokens == 5
    assert completion.usage.completion_tokens == 5
    assert completion.usage.total_tokens == 10


def test_default_max_tokens_is_16(server):
    completion = server.complete(PROMPT, extra_body={"ignore_eos": True})
    assert completion.usage.completion_tokens == 16


def test_model_may_be_left_out(server):
    reply = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 1})
    assert reply.status_code == 200
    assert reply.json()["model"] == NAME


def test_four_forms_of_a_prompt(server):
    other = "Water boils at"
    text = server.complete(PROMPT, max_tokens=6).choices[0].text
    other_text = server.complete(other, max_tokens=6).choices[0].text
    ids, other_ids = server.tokenize(PROMPT), server.tokenize(other)
    assert server.complete(ids, max_tokens=6).choices[0].text == text
    for prompts in ([PROMPT, other], [ids, other_ids]):
        completion = server.complete(prompts, max_tokens=6)
        assert [choice.index for choice in completion.choices] == [0, 1]
        assert [choice.text for choice in completion.choices] == [text, other_text]
        assert completion.usage.prompt_tokens == len(ids) + len(other_ids)
        assert completion.usage.completion_tokens == 12


def test_n_choices_per_prompt(server):
    completion = server.complete([PROMPT, "Once upon a time"], n=3, max_tokens=8, temperature=1,
                                 seed=5, extra_body={"ignore_eos": True})
    assert [choice.index for choice in completion.choices] == list(range(6))
    assert len({choice.text for choice in completion.choices}) > 3
    assert completion.usage.completion_tokens == 48
    assert completion.usage.prompt_tokens == len(server.tokenize(PROMPT)) + 4


def test_echo(server):
    plain = server.complete(PROMPT, max_tokens=4).choices[0].text
    assert server.complete(PROMPT, max_tokens=4, echo=True).choices[0].text == PROMPT + plain


def test_a_text_makes_control_tokens_unless_turned_off(server):
    assert len(server.tokenize("<|im_start|>")) == 1
    for fields, is_parsed in [({}, True), ({"parse_special": True}, True), ({"parse_special": False}, False)]:
        completion = server.complete("<|im_end|>", max_tokens=1, extra_body=fields)
        assert (completion.usage.prompt_tokens == 1) == is_parsed


def test_ignored_fields_are_named(server):
    reply = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 1, "frobnicate": 1,
                                            "adaptive_decay": 2})
    assert reply.status_code == 200
    assert set(reply.headers["X-Ignored-Params"].replace(" ", "").split(",")) == {"frobnicate",
                                                                                  "adaptive_decay"}
    reply = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 1})
    assert "X-Ignored-Params" not in reply.headers
