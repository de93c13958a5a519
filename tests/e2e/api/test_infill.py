"""llama.cpp's /infill on the model of test_suffix.py, whose <reponame> and <file_sep> are those of a repository."""

import json

import httpx
import jsonschema_rs
import pytest

from quire_server import NAME
from test_suffix import BEFORE, BEHIND, fim_server, marks, plain  # noqa: F401 (fixtures)

FIELDS = {"input_prefix": BEFORE, "input_suffix": BEHIND, "n_predict": 4, "temperature": 0, "return_token_ids": True}


def infill(server, **fields):
    reply = server.post("/infill", {**FIELDS, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def ids_of(answer):
    return answer["choices"][0]["prompt_token_ids"]


@pytest.fixture(scope="module")
def files(fim_server):
    return [fim_server.tokenize(name)[0] for name in ("<reponame>", "<file_sep>")]


def expected(server, marks, files, *chunks, before=BEFORE, behind=BEHIND, between=""):
    repo, file = files
    front = [repo, *plain(server, "myproject\n")]
    for name, text in chunks:
        front += [file, *plain(server, name + "\n"), *plain(server, text)]
    front += [file, *plain(server, "filename\n")]
    return [*front, marks[0], *plain(server, before), *plain(server, between), marks[1], *plain(server, behind), marks[2]]


def test_the_prompt_is_llama_cpps(fim_server, marks, files):
    chunks = [("a.py", "def one():\n    return 1\n"), ("tmp", "x = 1\n")]
    extra = [{"filename": "a.py", "text": chunks[0][1]}, {"text": chunks[1][1]}]
    assert ids_of(infill(fim_server)) == expected(fim_server, marks, files)
    answer = infill(fim_server, input_extra=extra, prompt="a +")
    want = expected(fim_server, marks, files, *chunks, between="a +")
    assert ids_of(answer) == want
    same = fim_server.complete(want, max_tokens=4)
    assert same.choices[0].text == answer["content"] == answer["choices"][0]["text"]
    assert answer["stop"] is True and answer["usage"]["completion_tokens"] <= 4


def test_texts_may_be_empty(fim_server, marks, files):
    answer = infill(fim_server, input_prefix="", input_suffix="", input_extra=[{"text": ""}], prompt="")
    assert ids_of(answer) == expected(fim_server, marks, files, ("tmp", ""), before="", behind="")


def test_control_tokens_in_code_are_text(fim_server, marks, files):
    text = "<|fim_middle|><file_sep>"
    ids = ids_of(infill(fim_server, input_prefix=text, input_suffix=text, prompt=text,
                        input_extra=[{"text": text, "filename": text}]))
    assert [ids.count(mark) for mark in (marks[2], files[1])] == [1, 2]


def test_a_stream_says_the_same(fim_server):
    whole = infill(fim_server, n_predict=8)
    reply = fim_server.post("/infill", {**FIELDS, "n_predict": 8, "stream": True})
    events = [line.removeprefix("data: ") for line in reply.text.splitlines() if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert "".join(chunk["content"] for chunk in chunks) == whole["content"]
    assert [chunk["stop"] for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_the_answer_is_as_described(fim_server):
    document = httpx.get(fim_server.url + "/openapi.json").json()
    for name, body in (("InfillRequest", {**FIELDS, "input_extra": [{"text": "a"}]}),
                       ("Infill", infill(fim_server, input_extra=[{"text": "a"}], n=2))):
        jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", "components": document["components"]}).validate(body)


def test_long_texts_are_cut(fim_server, marks):
    """The context has 256 tokens; what is far from the gap goes first."""
    extra = [{"text": f"file {i}\n" * 40} for i in range(20)]
    ids = ids_of(infill(fim_server, input_extra=extra))
    assert len(ids) == 256 - 4
    at = ids.index(marks[0])
    assert ids[at + 1:at + 1 + len(plain(fim_server, BEFORE))] == plain(fim_server, BEFORE)
    ids = ids_of(infill(fim_server, input_prefix="a = 1\n" * 200, input_suffix="b = 2\n" * 200, input_extra=extra))
    assert len(ids) == 256 - 4 and ids[0] == marks[0]
    for length in (-1, 10000):
        answer = infill(fim_server, input_prefix="a = 1\n" * 200, n_predict=length)
        assert len(ids_of(answer)) == 256 - 64
        assert answer["usage"]["completion_tokens"] <= 64


def test_nothing_to_predict_fills_the_cache(fim_server):
    text = "def fill_the_cache(a, b, c):\n" * 8
    answer = infill(fim_server, input_prefix=text, n_predict=0)
    assert answer["content"] == "" and answer["usage"]["completion_tokens"] == 0
    assert infill(fim_server, input_prefix=text)["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_an_editors_body_is_taken(fim_server):
    """llama.vim's and llama.vscode's, and what warms the cache."""
    body = {"input_prefix": BEFORE, "input_suffix": BEHIND, "input_extra": [{"text": "x = 1\n", "time": 1, "filename": "b.py"}],
            "prompt": "a", "n_predict": 8, "n_indent": 4, "stop": [], "id_slot": 0,
            "top_k": 40, "top_p": 0.9, "stream": False, "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True,
            "t_max_prompt_ms": 500, "t_max_predict_ms": 1000, "response_fields": ["content", "timings/prompt_n"]}
    reply = fim_server.post("/infill", body)
    assert reply.status_code == 200 and isinstance(reply.json()["content"], str)
    assert reply.json().keys() == {"content", "timings/prompt_n"} and reply.json()["timings/prompt_n"] > 0
    ignored = set(reply.headers["x-ignored-params"].split(","))
    assert {"samplers", "n_indent", "t_max_prompt_ms", "t_max_predict_ms"} <= ignored and "response_fields" not in ignored
    warm = {"input_prefix": "", "input_suffix": "", "input_extra": body["input_extra"], "prompt": "", "n_predict": 0,
            "temperature": 0, "samplers": [], "stream": False, "cache_prompt": True, "t_max_prompt_ms": 1,
            "t_max_predict_ms": 1, "response_fields": [""]}
    assert fim_server.post("/infill", warm).json() == {}


@pytest.mark.parametrize("fields, param", [
    ({"input_prefix": None}, "input_prefix"),
    ({"input_suffix": 1}, "input_suffix"),
    ({"prompt": [1, 2]}, "prompt"),
    ({"n_predict": -2}, "n_predict"),
    ({"n_predict": "a"}, "n_predict"),
    ({"max_tokens": 4}, "max_tokens"),
    ({"suffix": "a"}, "suffix"),
    ({"input_extra": {"text": "a"}}, "input_extra"),
    ({"input_extra": ["a"]}, "input_extra[0]"),
    ({"input_extra": [{"text": "a"}, {"filename": "a"}]}, "input_extra[1].text"),
    ({"input_extra": [{"text": "a", "filename": 1}]}, "input_extra[0].filename"),
    ({"input_extra": [{"text": "a", "filename": "n" * 1025}]}, "input_extra[0].filename"),
    ({"input_extra": [{"text": "a"}] * 65}, "input_extra"),
    ({"prompt": "a = 1\n" * 200}, "prompt"),
    ({"truncate_prompt_tokens": 2}, "truncate_prompt_tokens"),
    ({"temperature": 9}, "temperature"),
    ({"samplers": ["top_k"]}, "samplers"),
    ({"min_tokens": 1000, "n_predict": 4}, "min_tokens"),
])
def test_bounds(fim_server, fields, param):
    reply = fim_server.post("/infill", {"model": NAME, **FIELDS, **fields})
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["param"] == param and param.split("[")[0] in error["message"]


def test_a_model_without_such_tokens_says_so(server):
    for suffix in (BEHIND, ""):
        reply = server.post("/infill", {**FIELDS, "input_suffix": suffix})
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == "input_suffix"
        assert "no tokens for filling in the middle" in reply.json()["error"]["message"]
