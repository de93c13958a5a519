"""Completions with a suffix, on a copy of the model in which three control tokens have the names of Qwen's tokens for
filling in the middle: the ids of the prompt are known, what the model makes of them is not the point."""

import pytest

from quire_server import MODEL, NAME, QuireServer

RENAMED = {b"<issue_closed>": b"<|fim_prefix|>", b"<jupyter_text>": b"<|fim_suffix|>", b"<jupyter_code>": b"<|fim_middle|>"}
BEFORE, BEHIND = "def add(a, b):\n    return ", "\n\nprint(add(1, 2))\n"


@pytest.fixture(scope="module")
def fim_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suffix")
    data = MODEL.read_bytes()
    for old, new in RENAMED.items():
        assert data.count(old) == 1 and len(old) == len(new)
        data = data.replace(old, new)
    (folder / "fim.gguf").write_bytes(data)
    server = QuireServer(folder / "server.log", "--model", folder / "fim.gguf", "--kv-cache-memory-bytes", "256M",
                         "--max-model-len", 256)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def marks(fim_server):
    found = [fim_server.tokenize(name.decode()) for name in RENAMED.values()]
    assert [len(ids) for ids in found] == [1, 1, 1]
    return [ids[0] for ids in found]


def ids_of(choice):
    return choice.model_extra["prompt_token_ids"]


def plain(server, text):
    return server.post("/tokenize", {"prompt": text, "parse_special": False}).json()["tokens"]


def expected(server, marks, before=BEFORE, behind=BEHIND):
    pre, suf, mid = marks
    before = plain(server, before) if isinstance(before, str) else before
    return [pre, *before, suf, *plain(server, behind), mid]


def fill(server, prompt=BEFORE, suffix=BEHIND, **fields):
    fields = {"max_tokens": 4, "extra_body": {"return_token_ids": True, **fields.pop("extra", {})}, **fields}
    return server.complete(prompt, suffix=suffix, **fields)


def test_the_order_is_that_of_infill(fim_server, marks):
    answer = fill(fim_server)
    want = expected(fim_server, marks)
    assert ids_of(answer.choices[0]) == want
    assert answer.usage.prompt_tokens == len(want)
    same = fim_server.complete(want, max_tokens=4)
    assert same.choices[0].text == answer.choices[0].text


@pytest.mark.parametrize("before", [[504, 314], [], ""])
def test_other_forms_of_a_prompt(fim_server, marks, before):
    if before == []:
        before = [[]]  # a list of one prompt of no ids
    want = [] if before == [[]] else before
    assert ids_of(fill(fim_server, before).choices[0]) == expected(fim_server, marks, want)


def test_prompts_of_a_list_have_the_same_suffix(fim_server, marks):
    answer = fill(fim_server, ["a = ", "", "b = "], n=2)
    assert len(answer.choices) == 6
    for i, before in enumerate(["a = ", "", "b = "]):
        assert ids_of(answer.choices[2 * i]) == expected(fim_server, marks, before)


def test_control_tokens_in_code_are_text_unless_asked_for(fim_server, marks):
    text = "x = '<|fim_middle|>'"
    assert ids_of(fill(fim_server, text, text).choices[0]).count(marks[2]) == 1
    assert ids_of(fill(fim_server, text, text, extra={"parse_special": True}).choices[0]).count(marks[2]) == 3


def test_echo_is_of_the_prompt(fim_server, marks):
    whole = fill(fim_server)
    echoed = fill(fim_server, echo=True, logprobs=0)
    assert echoed.choices[0].text == BEFORE + whole.choices[0].text
    logprobs = echoed.choices[0].logprobs
    want = expected(fim_server, marks)
    assert len(logprobs.tokens) == len(want) + echoed.usage.completion_tokens
    assert logprobs.tokens[0] == "<|fim_prefix|>" and logprobs.tokens[len(want) - 1] == "<|fim_middle|>"
    assert logprobs.text_offset[0] == 0 and logprobs.text_offset[len(want)] == len(BEFORE)
    scored = fill(fim_server, echo=True, max_tokens=0)
    assert scored.choices[0].text == BEFORE


def test_a_stream_has_the_same_text(fim_server):
    for fields in ({}, {"echo": True}, {"n": 2}):
        whole = fill(fim_server, **fields)
        texts = [""] * len(whole.choices)
        for chunk in fill(fim_server, stream=True, **fields):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        assert texts == [choice.text for choice in whole.choices]


@pytest.mark.parametrize("most", [3, 4, 8, 11, 40])
def test_truncation_keeps_what_is_around_the_gap(fim_server, marks, most):
    before, behind = plain(fim_server, BEFORE), plain(fim_server, BEHIND)
    ids = ids_of(fill(fim_server, extra={"truncate_prompt_tokens": most}).choices[0])
    at = ids.index(marks[1])
    assert len(ids) == min(most, len(before) + len(behind) + 3)
    assert ids[0] == marks[0] and ids[-1] == marks[2]
    front, back = ids[1:at], ids[at + 1:-1]
    assert front == before[len(before) - len(front):] and back == behind[:len(back)]
    assert len(back) == len(behind) or len(back) >= (most - 3) // 4


def test_the_context_truncates(fim_server):
    answer = fill(fim_server, "a b " * 400, "c d " * 400, extra={"truncate_prompt_tokens": -1})
    assert answer.usage.prompt_tokens == 256 - 4


def test_no_suffix_is_a_plain_completion(fim_server):
    for suffix in ("", None):
        assert ids_of(fill(fim_server, BEFORE, suffix).choices[0]) == fim_server.tokenize(BEFORE)


def test_render_shows_the_prompt_with_its_suffix(fim_server, marks):
    body = {"model": NAME, "prompt": BEFORE, "suffix": BEHIND, "max_tokens": 4}
    rendered, = fim_server.post("/v1/completions/render", body).json()
    assert rendered["token_ids"] == expected(fim_server, marks)
    assert set(fim_server.tokenize("<file_sep>")) <= set(rendered["sampling_params"]["stop_token_ids"])


@pytest.mark.parametrize("name", ["<file_sep>", "<repo_name>", "<|im_end|>"])
def test_what_begins_another_file_ends_the_text(fim_server, name):
    """But for <|im_end|>, which ends every text, only where a gap is filled."""
    [token] = fim_server.tokenize(name)
    fields = {"logit_bias": {token: 100}, "max_tokens": 8, "temperature": 0}
    choice = fill(fim_server, **fields).choices[0]
    is_common = name == "<|im_end|>"
    assert (choice.text, choice.finish_reason) == ("", "stop")
    assert choice.model_extra["stop_reason"] == (None if is_common else token)
    plain = fim_server.complete(BEFORE, **fields).choices[0]
    assert plain.finish_reason == ("stop" if is_common else "length")
    assert fill(fim_server, **fields, extra={"ignore_eos": True}).choices[0].finish_reason == "length"


@pytest.mark.parametrize("fields, param", [
    ({"suffix": 1}, "suffix"),
    ({"suffix": ["a"]}, "suffix"),
    ({"suffix": "a b " * 400}, "suffix"),
    ({"prompt": "a b " * 80, "suffix": "a b " * 80}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": 1}, "prompt"),
    ({"truncate_prompt_tokens": 2}, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": 5, "truncation_side": "right"}, "truncation_side"),
    ({"max_tokens": 300}, "max_tokens"),
    ({"stop_token_ids": list(range(63))}, "stop_token_ids"),
])
def test_bounds(fim_server, fields, param):
    reply = fim_server.post("/v1/completions", {"model": NAME, "prompt": BEFORE, "suffix": BEHIND, **fields})
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


def test_a_model_without_such_tokens_says_so(server):
    reply = server.post("/v1/completions", {"model": NAME, "prompt": BEFORE, "suffix": BEHIND})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "suffix"
    assert "no tokens for filling in the middle" in reply.json()["error"]["message"]
