"""server/FIELDS.md against the running server: what each row says becomes of a field is what becomes of it,
and every field that the server or OpenAI's package has is in a row."""

import functools
import importlib
import json
import re
import typing

import httpx
import pytest

from quire_server import NAME, ROOT, QuireServer

BASE = {
    "/v1/completions": {"prompt": "One, two, three,", "max_tokens": 4, "temperature": 0},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 4, "temperature": 0},
    "/v1/responses": {"input": "Count.", "max_output_tokens": 4, "temperature": 0},
    "/v1/responses/input_tokens": {"input": "Count."},
    "/v1/messages": {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 4, "temperature": 0},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "Count."}]},
    "/v1/embeddings": {"input": "One, two, three"},
    "/v1/score": {"text_1": "One, two, three", "text_2": ["One, two, four", "A <repo_name> cat"]},
    "/v1/rerank": {"query": "One, two, three", "documents": ["One, two, four", "A <repo_name> cat"]},
    "/v2/rerank": {"query": "One, two, three", "documents": ["One, two, four", "A <repo_name> cat"]},
    "/classify": {"input": "One, two, three"},
    "/api/chat": {"messages": [{"role": "user", "content": "Count."}], "stream": False, "options": {"num_predict": 4, "temperature": 0}},
    "/api/generate": {"prompt": "Count.", "stream": False, "options": {"num_predict": 4, "temperature": 0}},
    "/api/embed": {"input": "One, two, three"},
    "/api/embeddings": {"prompt": "One, two, three"},
    "/tokenize": {"prompt": "One, two, three"},
    "/apply-template": {"messages": [{"role": "user", "content": "Count."}]},
    "/detokenize": {"tokens": [1, 2]},
}
SDK_TYPES = {
    "/v1/completions": ("openai.types.completion_create_params", "CompletionCreateParams"),
    "/v1/chat/completions": ("openai.types.chat.completion_create_params", "CompletionCreateParams"),
    "/v1/responses": ("openai.types.responses.response_create_params", "ResponseCreateParams"),
    "/v1/responses/input_tokens": ("openai.types.responses.input_token_count_params", "InputTokenCountParams"),
    "/v1/messages": ("anthropic.types.message_create_params", "MessageCreateParams"),
    "/v1/messages/count_tokens": ("anthropic.types.message_count_tokens_params", "MessageCountTokensParams"),
    "/v1/embeddings": ("openai.types.embedding_create_params", "EmbeddingCreateParams"),
}
OPENAI_PATHS = [path for path, (module, _) in SDK_TYPES.items() if module.startswith("openai.")]
# Instead of what an endpoint's base has.
INSTEAD = {"content": "prompt", "messages": "prompt", "queries": "text_1", "data_1": "text_1",
           "documents": "text_2", "items": "text_2", "data_2": "text_2", "n_predict": "max_tokens",
           "max_new_tokens": "max_tokens"}
# Supported ones whose examples change nothing that is seen in four likely tokens of this model.
QUIET = set("""
    add_special add_special_tokens bad_words cache_salt chat_template_kwargs continue_final_message dimensions documents dry_base
    keep_alive truncate options.top_p options.top_k options.min_p options.typical_p options.repeat_penalty options.presence_penalty
    options.frequency_penalty options.mirostat options.mirostat_tau options.mirostat_eta options.stop early_stopping echo frequency_penalty ignore_eos include_reasoning include_stop_str_in_output length_penalty
    metadata min_p min_tokens model parallel_tool_calls presence_penalty priority reasoning reasoning.effort
    reasoning_effort repetition_penalty request_id store return_tokens_as_token_ids skip_special_tokens stop_token_ids timeout_ms tokens tool_choice top_k top_logprobs
    thinking thinking.display tool_choice.disable_parallel_tool_use tools[].strict output_config.effort
    top_p use_activation user""".split())
# Where tokens are counted only what the prompt shows changes anything.
COUNTING = ("/v1/responses/input_tokens", "/v1/messages/count_tokens")
SHOWN = {"input", "instructions", "messages", "previous_response_id", "system", "tools"}
PEERS = "OVSLAMXQ"
KINDS = ("supported", "mapped", "neutral", "refused", "ignored")
VARYING = {"id", "created", "created_at", "item_id", "call_id", "signature",  # between two answers to the same request
           "prompt_tokens_details", "input_tokens_details", "total_duration", "prompt_eval_duration", "eval_duration"}


class Row(typing.NamedTuple):
    paths: tuple
    field: str
    peers: str
    kind: str
    same_as: dict  # of a mapped one: the members it stands for
    taken: list    # members that are a 200
    not_taken: list  # members that are a 400
    remark: str


def spans_of(cell):
    return re.findall(r"`([^`]+)`", cell)


def members_of(cell):
    return [json.loads("{" + span + "}") for span in spans_of(cell)]


def read_row(paths, line):
    cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
    assert len(cells) in (4, 5), f"not the five cells of a row: {line}"
    field, peers, here, example = cells[:4]
    kind, _, same_as = here.partition(": ")
    examples = members_of(example)
    is_refused = kind == "refused"
    row = Row(paths, *spans_of(field), peers, kind, (members_of(same_as) or [None])[0], examples[:0 if is_refused else 1],
              examples[0 if is_refused else 1:], cells[4] if len(cells) == 5 else "")
    assert peers and set(peers) <= set(PEERS), line
    assert kind in KINDS and (kind == "mapped") == (row.same_as is not None), line
    assert kind != "neutral" or (row.taken and row.not_taken), f"a neutral one needs both examples: {line}"
    assert all(first_name(row.field) in members for members in examples), f"an example without its field: {line}"
    return row


@functools.cache
def read_rows():
    rows, paths = [], ()
    for line in (ROOT / "server/FIELDS.md").read_text().splitlines():
        if line.startswith("## "):
            paths = tuple(spans_of(line))
            assert paths and set(paths) <= set(BASE), line
        elif line.startswith("| `"):
            rows.append(read_row(paths, line))
    return rows


def rows_of(path):
    return [row for row in read_rows() if path in row.paths]


def first_name(field):
    return re.split(r"[.\[]", field)[0]


def has_name(field, text):
    """Whether the text names the field: messages[2].name is named as messages[].name."""
    return re.search(rf"(?<![\w.]){re.escape(field)}(?!\w)", re.sub(r"\[\d+\]", "[]", text)) is not None


def body_of(path, members, without=()):
    without = {*without, *(INSTEAD.get(name) for name in members)}
    base = {name: value for name, value in BASE[path].items() if name not in without}
    return {"model": NAME, **base, **members}


def shape_of(value):
    """The answer without what differs between two answers to the same request."""
    if isinstance(value, dict):
        return {name: shape_of(member) for name, member in value.items() if name not in VARYING}
    return [shape_of(member) for member in value] if isinstance(value, list) else value


def said_by(path, response):
    """What the answer says, without what it repeats of the request."""
    answer = shape_of(response.json())
    names = {"/v1/responses": ("output", "usage"), "/v1/messages": ("content", "stop_reason")}.get(path, answer)
    return {name: answer[name] for name in names}


def ignored_by(response):
    return [name for name in response.headers.get("x-ignored-params", "").split(",") if name]


def is_quiet(path, field):
    return field in QUIET or path in COUNTING and first_name(field) not in SHOWN


def check_taken(client, path, row, members):
    response = client.post(path, json=body_of(path, members, row.same_as or ()))
    if response.status_code != 200:
        return f"is {response.status_code}: {response.text[:200]}"
    is_named = row.field in ignored_by(response)
    if is_named != (row.kind == "ignored"):
        return "is named in X-Ignored-Params" if is_named else "is not named in X-Ignored-Params"
    if row.kind == "supported" and not is_quiet(path, row.field) and not members.get("stream"):
        others = {name: value for name, value in members.items() if name != first_name(row.field)}
        if said_by(path, response) == said_by(path, client.post(path, json=body_of(path, others))):
            return f"changes nothing: {response.text[:300]}"
    if row.kind == "mapped":
        other = client.post(path, json=body_of(path, row.same_as))
        if other.status_code != 200 or said_by(path, other) != said_by(path, response):
            return f"is not the same as {row.same_as}: {response.text[:300]} and {other.text[:300]}"
    return None


def check_not_taken(client, path, row, members):
    response = client.post(path, json=body_of(path, members))
    if response.status_code != 400:
        return f"is {response.status_code} with {members}"
    error = response.json()["error"]
    error = {"message": error} if isinstance(error, str) else error
    if not has_name(row.field, error.get("param") or "") and not has_name(row.field, error["message"]):
        return f"is a 400 that does not name it: {error}"
    return None


def problems_of(client, path, row):
    found = [check_taken(client, path, row, members) for members in row.taken]
    found += [check_not_taken(client, path, row, members) for members in row.not_taken]
    return [f"{row.field} ({row.kind}) {problem}" for problem in found if problem]


def open_client(server):
    return httpx.Client(base_url=server.url, timeout=300)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """Of a server whose model is a classifier."""
    server = QuireServer(tmp_path_factory.mktemp("fields") / "classifier.log", "--model", ROOT / "tests/golden/classifiers/llama",
                         "--device", "cpu", "--kv-cache-memory-bytes", "16M", "--max-model-len", 512)
    with open_client(server) as client:
        yield client
    server.kill()


@pytest.fixture
def client_of(client, request):
    return lambda path: request.getfixturevalue("classifier") if path == "/classify" else client


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Of a server that keeps responses, and has one: resp_stored."""
    server = QuireServer(tmp_path_factory.mktemp("fields") / "server.log", "--response-store-bytes", "1M")
    with open_client(server) as client:
        kept = client.post("/v1/responses", json=body_of("/v1/responses", {"request_id": "stored"}))
        assert kept.json()["id"] == "resp_stored"
        yield client
    server.kill()


def properties_of(document, schema):
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    names = set(schema.get("properties", {}))
    for word in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(word, []):
            names |= properties_of(document, part)
    return names


def sdk_fields(path):
    module, name = SDK_TYPES[path]
    types = getattr(importlib.import_module(module), name)
    return set().union(*(kind.__annotations__ for kind in typing.get_args(types) or (types,)))


@pytest.mark.parametrize("path", BASE)
def test_rows_are_true(client_of, path):
    assert len(rows_of(path)) > 2
    problems = [problem for row in rows_of(path) for problem in problems_of(client_of(path), path, row)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("path", BASE)
def test_every_field_of_the_description_has_a_row(client, path):
    document = client.get("/openapi.json").json()
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    known = properties_of(document, content["schema"])
    assert known and not known - {row.field for row in rows_of(path)}


@pytest.mark.parametrize("path", SDK_TYPES)
def test_every_field_of_an_sdk_has_a_row(path):
    theirs = sdk_fields(path)
    letter = "O" if path in OPENAI_PATHS else "A"
    marked = {row.field for row in rows_of(path) if letter in row.peers}
    assert "model" in theirs and not theirs - marked


def test_no_row_says_of_openai_what_it_has_not():
    for row in read_rows():
        is_theirs = [first_name(row.field) in sdk_fields(path) for path in row.paths if path in OPENAI_PATHS]
        assert any(is_theirs) or "O" not in row.peers, row.field


def test_a_field_has_one_row():
    for path in BASE:
        names = [row.field for row in rows_of(path)]
        assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


def test_an_ignored_one_says_why():
    assert not [row.field for row in read_rows() if row.kind == "ignored" and not row.remark]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses"])
def test_every_unsupported_one_has_a_row(path):
    source = (ROOT / "server/api/fields/unknown_fields.c").read_text()
    names = set(re.findall(r'^    \{"([\w.]+)", *NEUTRAL_', source, re.MULTILINE))
    assert len(names) > 80 and not names - {row.field for row in read_rows()}


def test_ignored_ones_are_refused_on_demand(tmp_path):
    server = QuireServer(tmp_path / "server.log", "--unknown-params", "reject")
    try:
        with open_client(server) as client:
            problems = [f"{path} {row.field} {problem}" for row in read_rows() if row.kind == "ignored"
                        for path in row.paths if (problem := check_not_taken(client, path, row, row.taken[0]))]
    finally:
        server.kill()
    assert not problems, "\n".join(problems)


def lie(row, kind):
    """The row as it would be if it said something else."""
    examples = row.taken + row.not_taken
    same_as = {"max_tokens": 2} if kind == "mapped" else None
    is_refused = kind == "refused"
    return row._replace(kind=kind, same_as=same_as, taken=[] if is_refused else examples[:1],
                        not_taken=examples[:1] if is_refused else examples[1:])


@pytest.mark.parametrize("field,kinds", [("temperature", ("refused", "ignored")), ("store", ("supported", "refused")),
                                         ("grammar_triggers", ("supported", "ignored")), ("n", ("mapped", "refused"))])
def test_a_row_that_lies_is_found(client, field, kinds):
    path = "/v1/completions"
    row, = (row for row in rows_of(path) if row.field == field)
    for kind in kinds:
        assert problems_of(client, path, lie(row, kind)), f"{field} as {kind}"
