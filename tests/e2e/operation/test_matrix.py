"""Every endpoint with every field of its body at, within and beyond its bounds, alone and in pairs:
whatever comes is answered, with 200 or a 4xx that names the field, and the server continues.

The fields come from the server's own description, so that a new one is tried by itself."""

import asyncio
import itertools
import json
import random
import re

import aiohttp
import httpx
import pytest

from quire_server import NAME

CONTEXT = 96  # so that the largest max_tokens is soon done
CONCURRENCY = 16
PAIRS = 400  # per endpoint

BASE = {
    "/v1/completions": {"prompt": "one two", "max_tokens": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1},
    "/v1/responses": {"input": "hi", "max_output_tokens": 1},
    "/v1/embeddings": {"input": "hi"},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [1, 2]},
}

NUMBERS = [-2**63, -2**53 - 1, -2**31 - 1, -2**31, -101, -3, -2, -1, -0.5, 0, 1e-300, 0.5, 1, 1.5, 2, 3, 16,
           17, 20, 21, 100, 101, 1e6, 2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**63, 2**64, 1e300, -1e300]
OTHERS = [None, True, False, "", "3", "x" * 300, "auto", "none", "required", "\u0001\U0001F600", [], [[]],
          [None], [1], [-1], [10**9], [1.5], ["a"], ["a"] * 20, [""], [{}], [["a"]], [[1, 2]], {}, {"a": 1},
          {"1": 1}, {"type": "function"}, {"type": "json_object"}, {"type": "text"}, {"format": {}},
          {"include_usage": True}, {"effort": "low"}]

# Answers whatever is said of one field by the others' leave.
STATUSES = {200, 400, 404}
POINTER = re.compile("0x[0-9a-f]{6,}")


@pytest.fixture(scope="module")
def small_server(tmp_path_factory):
    from quire_server import QuireServer
    server = QuireServer(tmp_path_factory.mktemp("matrix") / "server.log", "--max-model-len", CONTEXT)
    yield server
    server.kill()


def resolve(document, schema):
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def properties_of(document, schema):
    """Name -> schema of every property, those of alternatives and parts too."""
    schema = resolve(document, schema)
    found = dict(schema.get("properties", {}))
    for word in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(word, []):
            found.update(properties_of(document, part))
    return found


def bounds_of(document, schema):
    """The numbers around every bound the schema states."""
    schema, values = resolve(document, schema), []
    step = 1 if schema.get("type") in ("integer", ["integer", "null"]) else 0.001
    for word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if word in schema:
            values += [schema[word] - step, schema[word], schema[word] + step]
    for word in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(word, []):
            values += bounds_of(document, part)
    return values


def fields_of(server, path):
    document = httpx.get(server.url + "/openapi.json").json()
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    properties = properties_of(document, content["schema"])
    return {name: bounds_of(document, schema) + NUMBERS + OTHERS for name, schema in properties.items()}


def check_answer(path, body, status, text):
    shown = f"{path} {json.dumps(body)[:300]} -> {status} {text[:300]}"
    if status == 503 and "timeout_ms" in body:
        assert json.loads(text)["error"]["code"] in ("queue_timeout", "deadline_exceeded"), shown
        return
    assert status in STATUSES, shown
    if status == 200:
        return
    error = json.loads(text)["error"]
    assert error["message"] and error["type"] == "invalid_request_error", shown
    assert not POINTER.search(error["message"]), shown


async def try_all(server, path, bodies):
    limit = asyncio.Semaphore(CONCURRENCY)
    async with aiohttp.ClientSession() as session:
        async def try_one(body):
            async with limit, session.post(server.url + path, json=body) as response:
                check_answer(path, body, response.status, await response.text())
                return response.status
        return await asyncio.gather(*(try_one(body) for body in bodies))


def run(server, path, bodies):
    statuses = asyncio.run(try_all(server, path, bodies))
    assert server.process.poll() is None
    assert server.post("/v1/completions", {"model": NAME, "prompt": "a", "max_tokens": 1}).status_code == 200
    return statuses


@pytest.mark.parametrize("path", [path if "chat" in path else pytest.param(path, marks=pytest.mark.variant) for path in BASE])
def test_every_field_at_its_bounds(small_server, path):
    fields = fields_of(small_server, path)
    assert len(fields) >= 2
    bodies = [{**BASE[path], name: value} for name, values in fields.items() for value in values]
    if path.startswith("/v1/") and path != "/v1/embeddings":
        bodies += [{**body, "stream": True} for body in bodies[::4] if "stream" not in body]
    statuses = run(small_server, path, bodies)
    assert 200 in statuses and 400 in statuses


@pytest.mark.parametrize("path", [path for path in BASE if path.startswith("/v1/")])
def test_pairs_of_fields(small_server, path):
    chooser = random.Random(path)
    fields = fields_of(small_server, path)
    pairs = list(itertools.combinations(sorted(fields), 2))
    chooser.shuffle(pairs)
    bodies = [{**BASE[path], first: chooser.choice(fields[first]), second: chooser.choice(fields[second])}
              for first, second in itertools.islice(itertools.cycle(pairs), PAIRS)]
    run(small_server, path, bodies)
