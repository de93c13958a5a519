"""Output of a form that the request sets: JSON schemas, JSON objects, choices and regular expressions,
through the official SDK, checked by pydantic and jsonschema."""

import contextlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, List, Literal, Optional, Union

import httpx
import jsonschema
import openai
import pytest
from pydantic import BaseModel, Field

from metrics_watch import deltas
from quire_server import NAME

Short = Annotated[str, Field(max_length=12)]


class Address(BaseModel):
    street: Short
    number: int = Field(ge=1, le=999)


class Person(BaseModel):
    name: Short
    age: int = Field(ge=0, le=130)
    kind: Literal["friend", "stranger"]
    tags: List[Short] = Field(max_length=3)
    address: Optional[Address] = None
    score: Union[Annotated[float, Field(ge=0, le=1)], None] = None


ASK = [{"role": "user", "content": "Bob is 42 years old, a friend, and likes cars. Describe him in JSON."}]

# Each but the tree ends by itself, whatever the model writes.
SCHEMAS = [
    {"type": "integer"},
    {"type": ["boolean", "null"]},
    {"enum": ["red", "green", 3, None, {"a": [1]}]},
    {"type": "string", "minLength": 3, "maxLength": 8},
    {"type": "string", "pattern": "^[A-Z][a-z]{1,5}-\\d{2}$"},
    {"type": "string", "format": "date-time"},
    {"type": "number", "minimum": -1.5, "exclusiveMaximum": 2},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 2, "maxItems": 4},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": "x"}], "items": False, "minItems": 2},
    {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}, "c": {"const": 1}},
     "required": ["b"]},
    {"type": "object", "additionalProperties": False, "properties": {
        "tree": {"$ref": "#/$defs/tree"}}, "required": ["tree"],
     "$defs": {"tree": {"type": "object", "properties": {
         "leaf": {"type": "boolean"},
         "child": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}}, "required": ["leaf"]}}},
    {"allOf": [{"$ref": "#/$defs/named"}, {"properties": {"n": {"type": "integer"}}, "required": ["n"]}],
     "$defs": {"named": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}},
                         "required": ["name"]}}},
    {"oneOf": [{"type": "object", "properties": {"kind": {"const": k}, "v": {"type": "boolean"}},
                "required": ["kind", "v"]} for k in ("x", "y")]},
]


def json_schema(schema, **fields):
    return {"type": "json_schema", "json_schema": {"name": "form", "schema": schema, **fields}}


def chat(server, **fields):
    fields = {"messages": ASK, "max_tokens": 200, "temperature": 0, **fields}
    return server.client().chat.completions.create(model=NAME, **fields)


@pytest.mark.parametrize("temperature", [0, 0.7, 1.5])
def test_parse(server, temperature):
    for seed in range(2):
        completion = server.client().chat.completions.parse(
            model=NAME, messages=ASK, response_format=Person, temperature=temperature, seed=seed,
            max_tokens=300)
        [choice] = completion.choices
        assert choice.finish_reason == "stop"
        assert isinstance(choice.message.parsed, Person)
        assert choice.message.parsed == Person.model_validate_json(choice.message.content)


def test_parse_streamed(server):
    with server.client().chat.completions.stream(
            model=NAME, messages=ASK, response_format=Person, temperature=1, seed=3,
            max_tokens=300) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "content.delta")
        completion = stream.get_final_completion()
    [choice] = completion.choices
    assert choice.finish_reason == "stop"
    assert isinstance(choice.message.parsed, Person)
    assert deltas == choice.message.content


def test_streamed_as_whole(server):
    fields = {"response_format": json_schema(Person.model_json_schema()), "temperature": 0.8, "seed": 5}
    whole = chat(server, **fields).choices[0]
    pieces = list(chat(server, stream=True, **fields))
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == whole.message.content
    assert [piece.choices[0].finish_reason for piece in pieces][-1] == whole.finish_reason == "stop"


def test_several_choices(server):
    completion = chat(server, response_format=json_schema(Person.model_json_schema()), n=4,
                      temperature=1.2, seed=1)
    assert len(completion.choices) == 4
    for choice in completion.choices:
        assert choice.finish_reason == "stop"
        Person.model_validate_json(choice.message.content)
    assert len({choice.message.content for choice in completion.choices}) > 1


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: str(list(schema.values())[0])[:24])
def test_schemas(server, schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    for temperature, seed in ((0, 0), (1.5, 1)):
        fields = {"temperature": temperature, "seed": seed, "max_tokens": 120}
        [choice] = chat(server, response_format=json_schema(schema), **fields).choices
        answers = [(choice.message.content, choice.finish_reason)]
        [choice] = server.complete("The answer in JSON: ", **fields,
                                   extra_body={"response_format": json_schema(schema)}).choices
        answers.append((choice.text, choice.finish_reason))
        for text, reason in answers:
            if reason == "length" and "$defs" in schema:  # a tree may grow for ever
                continue
            assert reason == "stop"
            jsonschema.validate(json.loads(text), schema, cls=jsonschema.Draft202012Validator)


def test_strict(server):
    """Strict schemas as the SDK makes them are answered; a word that is no keyword is refused."""
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
              "additionalProperties": False}
    answer = chat(server, response_format=json_schema(schema, strict=True)).choices[0].message.content
    assert json.loads(answer)["a"] in (True, False)
    loose = {**schema, "ordering": ["a"]}
    chat(server, response_format=json_schema(loose))
    with pytest.raises(openai.BadRequestError, match="ordering"):
        chat(server, response_format=json_schema(loose, strict=True))


def test_json_object(server):
    """Whatever is sampled, a choice that ended is a JSON object, and one that was cut began as one."""
    completion = chat(server, response_format={"type": "json_object"}, n=8, temperature=1, seed=7,
                      max_tokens=120)
    for choice in completion.choices:
        assert choice.message.content.startswith("{")
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)
        else:
            assert choice.finish_reason == "length"
    assert isinstance(json.loads(chat(server, response_format={"type": "json_object"},
                                      messages=[{"role": "user", "content": "An empty JSON object: {}"}],
                                      logit_bias={server.tokenize("{}")[0]: 100}).choices[0].message.content), dict)


def test_no_name_comes_twice(server):
    """The likeliest answer repeats family_family_name as long as it may."""
    schema = {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 9,
              "maxProperties": 14}
    for fields in ({"temperature": 0}, {"n": 4, "temperature": 0.3, "seed": 3}):
        completion = chat(server, messages=[{"role": "user", "content": "Describe a family in JSON."}],
                          response_format=json_schema(schema), max_tokens=300, **fields)
        for choice in completion.choices:
            names = re.findall(r'"((?:[^"\\]|\\.)*)":', choice.message.content)
            assert len(names) > 5 and len(set(names)) == len(names)
            assert choice.finish_reason == "length" or 9 <= len(json.loads(choice.message.content)) <= 14


def test_text_is_free(server):
    assert chat(server, response_format={"type": "text"}, max_tokens=10).choices[0].message.content == \
        chat(server, max_tokens=10).choices[0].message.content


@pytest.mark.parametrize("fields", [{"structured_outputs": {"choice": ["Paris", "London", "Par"]}},
                                    {"guided_choice": ["Paris", "London", "Par"]}])
def test_choice(server, fields):
    for seed in range(4):
        [choice] = server.complete("The capital of France is", temperature=2, seed=seed,
                                   extra_body=fields).choices
        assert choice.text in ("Paris", "London", "Par")
        assert choice.finish_reason == "stop"


@pytest.mark.parametrize("regex", ["\\d{1,3}(\\.\\d{1,3}){3}", "(?:yes|no)!?", "[^a-z\\s]{2,5}é?", "a+?b*c"])
def test_regex(server, regex):
    for name, value in (("guided_regex", regex), ("structured_outputs", {"regex": regex}), ("regex", regex)):
        for seed in range(3):
            [choice] = server.complete("My address is", temperature=1.5, seed=seed, max_tokens=300,
                                       extra_body={name: value}).choices
            if choice.finish_reason == "stop":
                assert re.fullmatch(regex, choice.text)


SUM = r"\d+( [-+*] \d+)*( = \d+)?"
GRAMMARS = [
    ('root ::= sum (" = " [0-9]+)?\nsum ::= sum " " [-+*] " " sum | [0-9]{1,4}', SUM),
    ('start: sum [" = " /[0-9]{1,4}/]\n?sum: sum " " OPERATOR " " sum | /[0-9]{1,4}/\nOPERATOR: "+" | "-" | "*"', SUM),
    ('start: "select"i NAME ("," NAME)* "from"i NAME\nNAME: /[a-z]{1,8}/\n%ignore " "',
     r" *(?i:select) *[a-z]{1,8} *(, *[a-z]{1,8} *)*(?i:from) *[a-z]{1,8} *"),
]


LIKELY_END = {"2": 8}  # where it is allowed, <|im_end|> comes soon


@pytest.mark.parametrize("grammar, regex", GRAMMARS, ids=["gbnf", "lark", "ignore"])
def test_grammar(server, grammar, regex):
    ended = 0
    for fields in ({"structured_outputs": {"grammar": grammar}}, {"guided_grammar": grammar}, {"ebnf": grammar},
                   {"grammar": grammar}):
        for seed in range(3):
            [choice] = server.complete("1 + 2 =", temperature=1.5, seed=seed, max_tokens=60, logit_bias=LIKELY_END,
                                       extra_body=fields).choices
            ended += choice.finish_reason == "stop"
            assert choice.finish_reason != "stop" or re.fullmatch(regex, choice.text), choice.text
    assert ended


FUNCTION = {"type": "structural_tag", "triggers": ["<f="], "structures": [
    {"begin": "<f=get>", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, "end": "</f>"}]}
DIGITS = {"type": "tag", "begin": "<n>", "content": {"type": "regex", "pattern": "[0-9]{1,3}"}, "end": "</n>"}
TAGS = {"type": "structural_tag", "format": {"type": "tags_with_separator", "tags": [DIGITS], "separator": ", ", "at_least_one": True}}


def test_structural_tag(server):
    for fields in ({"structured_outputs": {"structural_tag": json.dumps(TAGS)}}, {"response_format": TAGS}):
        for seed in range(3):
            [choice] = server.complete("Numbers:", temperature=1.5, seed=seed, max_tokens=60, logit_bias=LIKELY_END,
                                       extra_body=fields).choices
            assert re.match("<n>[0-9]{1,3}</n>", choice.text), choice.text
            if choice.finish_reason == "stop":
                assert re.fullmatch("<n>[0-9]{1,3}</n>(, <n>[0-9]{1,3}</n>)*", choice.text), choice.text


def test_structural_tag_in_text(server):
    """Behind a trigger the tag follows, however unlikely; text without one is free."""
    plain = server.complete("Once upon a time", temperature=0, max_tokens=8).choices[0].text
    tagged = {"structured_outputs": {"structural_tag": FUNCTION}}
    assert server.complete("Once upon a time", temperature=0, max_tokens=8, extra_body=tagged).choices[0].text == plain
    [choice] = server.complete("Once upon a time", temperature=0, max_tokens=60, extra_body={
        **tagged, "logit_bias": {server.post("/tokenize", {"prompt": " <", "add_special_tokens": False}).json()["tokens"][0]: 100}}).choices
    assert "<f=" not in choice.text or re.search(r'<f=get>\{"n": ?-?\d', choice.text), choice.text


@pytest.mark.parametrize("fields", [{"guided_grammar": "root ::= [a-z ]{8,20}"}, {"guided_json": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}}],
                         ids=["grammar", "json"])
def test_known_forms(start_server, fields):
    """A form that was compiled before is found, and gives the same text; others wait for nobody."""
    server = start_server()
    call = {"model": NAME, "prompt": "Say:", "seed": 3, "temperature": 1, "max_tokens": 12, **fields}
    first, rose = deltas(server, lambda: answer_of(server, call))
    assert (rose["grammar_cache_misses_total"], rose["grammar_cache_hits_total"]) == (1, 0)
    with ThreadPoolExecutor(6) as pool:
        again, rose = deltas(server, lambda: list(pool.map(lambda _: answer_of(server, call), range(12))))
    assert again == [first] * 12
    assert (rose["grammar_cache_misses_total"], rose["grammar_cache_hits_total"]) == (0, 12)
    assert rose["grammar_cache_bytes"] >= 0


def test_guided_json(server):
    for name in ("guided_json", "json_schema"):
        for schema in (SCHEMAS[0], json.dumps(SCHEMAS[0])):
            text = server.complete("One: ", max_tokens=40, extra_body={name: schema}).choices[0].text
            assert isinstance(json.loads(text), int)


def nested(depth):
    schema = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


WRONG = [
    {"type": "int"}, {"type": []}, {"type": 3}, {"pattern": "("}, {"type": "string", "pattern": "(?=a)"},
    {"type": "string", "pattern": "a{2,1}"},
    {"$ref": "#"}, {"$ref": "http://127.0.0.1/schema"}, {"$ref": "#/$defs/x"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"allOf": [{"$ref": "#"}]}, {"enum": []}, {"anyOf": []}, {"properties": 1}, {"required": "a"},
    {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    {"minLength": -1}, {"maxLength": 1e300}, {"minItems": 3, "maxItems": 2}, {"minimum": "1"},
    {"oneOf": [{"const": i} for i in range(10000)]}, {"enum": list(range(10000))},
    nested(80), False, [], 3, "x",
]


@pytest.mark.parametrize("schema", WRONG, ids=lambda schema: json.dumps(schema)[:32])
def test_wrong_schemas(server, schema):
    body = {"model": NAME, "max_tokens": 4, "response_format": json_schema(schema)}
    for path, prompt in (("/v1/completions", {"prompt": "x"}), ("/v1/chat/completions", {"messages": ASK})):
        response = server.post(path, {**body, **prompt})
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"]
    assert server.complete("x", max_tokens=1).choices[0].finish_reason == "length"


# Hundreds of ways to read every text: a mask takes long.
AMBIGUOUS = "|".join("(?:.{0,300}a.{0,300})" for _ in range(200))


def ambiguous(seed, **fields):
    return {"model": NAME, "prompt": f"Say {seed}:", "seed": seed, "ignore_eos": True, "guided_regex": AMBIGUOUS, **fields}


def answer_of(server, fields):
    response = server.post("/v1/completions", fields)
    assert response.status_code == 200, response.text
    return [choice["text"] for choice in response.json()["choices"]]


FORCED = {"type": "object", "properties": {"registration_number": {"type": "integer", "maximum": 9}, "manufacturer_name":
          {"enum": ["international business machines", "digital equipment corporation"]}},
          "required": ["registration_number", "manufacturer_name"]}


def test_forced_text_is_not_sampled(server):
    """Where the grammar leaves no choice tokens are appended at once; what comes out is the same where they are not, for their logprobs."""
    def complete(**more):
        answer = httpx.post(f"{server.url}/v1/completions", timeout=60, json={
            "model": NAME, "prompt": "A computer:", "max_tokens": 100, "seed": 5, "temperature": 1, "return_token_ids": True,
            "structured_outputs": {"json": FORCED}, **more}).json()
        return answer["choices"][0], answer["usage"]["completion_tokens"]

    (jumped, num_tokens), rose = deltas(server, complete)
    jsonschema.validate(json.loads(jumped["text"]), FORCED)
    assert rose["grammar_jump_forward_tokens_total"] >= 8
    assert rose["engine_steps_total"] <= num_tokens - 8 + 1
    (sampled, _), rose = deltas(server, lambda: complete(logprobs=1))
    assert rose["grammar_jump_forward_tokens_total"] == 0
    assert sampled["token_ids"] == jumped["token_ids"] and len(jumped["token_ids"]) == num_tokens
    assert len(sampled["logprobs"]["token_logprobs"]) == num_tokens
    stopped, _ = complete(stop=["manufact"])
    assert stopped["finish_reason"] == "stop" and stopped["text"] == jumped["text"].partition("manufact")[0]
    cut, count = complete(max_tokens=6)
    assert count == 6 and cut["finish_reason"] == "length" and cut["token_ids"] == jumped["token_ids"][:6]


def test_masks_that_take_long_are_the_same_beside_others(start_server):
    server = start_server()
    calls = [ambiguous(seed, max_tokens=8, n=1 + seed % 2) for seed in range(4)]
    calls += [{"model": NAME, "prompt": f"Chapter {seed}.", "seed": seed, "max_tokens": 20} for seed in range(4)]
    alone = [answer_of(server, call) for call in calls]
    with ThreadPoolExecutor(len(calls)) as pool:
        beside, rose = deltas(server, lambda: list(pool.map(lambda call: answer_of(server, call), calls)))
    assert beside == alone
    assert rose["grammar_cache_hits_total"] == 0  # masks that are given up depend on those before
    assert all(all(texts) for texts in alone)
    _, rose = deltas(server, lambda: answer_of(server, ambiguous(9, max_tokens=3, guided_regex=AMBIGUOUS + "|b")))
    assert rose["grammar_mask_jobs_total"] >= 3
    assert rose["grammar_mask_job_seconds_total"] > 0


def test_streams_end_beside_masks_that_take_long(start_server):
    server = start_server()
    with contextlib.ExitStack() as stack:
        streams = []
        for seed in range(4):
            call = ambiguous(seed, max_tokens=2000, stream=True)
            response = stack.enter_context(httpx.stream("POST", server.url + "/v1/completions", json=call, timeout=120))
            streams.append(line for line in response.iter_lines() if line.startswith("data: "))
        assert all(json.loads(next(stream)[6:])["choices"] for stream in streams)
        plain = {"model": NAME, "prompt": "Once", "max_tokens": 40, "ignore_eos": True}
        assert len(answer_of(server, {**plain, "n": 4})) == 4
        for stream in streams:
            assert json.loads(next(stream)[6:])["choices"][0]["finish_reason"] is None
    assert answer_of(server, {"model": NAME, "prompt": "Once", "max_tokens": 1})  # those that hung up hold nobody up


@pytest.mark.parametrize("fields, param", [
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": "json_object"}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"structured_outputs": {"grammar": "root ::= root"}}, "structured_outputs.grammar"),
    ({"structured_outputs": {"structural_tag": "["}}, "structured_outputs.structural_tag"),
    ({"guided_grammar": "start: x"}, "guided_grammar"),
    ({"structured_outputs": {"regex": "(a+"}}, "structured_outputs.regex"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    ({"guided_json": {}, "guided_choice": ["a"]}, "guided_choice"),
])
def test_wrong_fields(server, fields, param):
    response = server.post("/v1/completions", {"model": NAME, "prompt": "x", **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
