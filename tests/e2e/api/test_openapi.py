"""/openapi.json, and what schemathesis finds when it drives every operation of it with data that the
description allows and data that it forbids.

Schemathesis checks each answer: no 5xx (but for a request whose own time limit was over), only statuses, content types, header fields and bodies that the
description has for the operation, and no success for data that it forbids. What it may not request is
long work: generation is kept to a few tokens."""

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from quire_server import NAME
from wire_shape import read_events

# What makes work: how much of it is enough, and what is out of range and stays as it is.
TOKENS = 2 ** 31
BOUNDS = {"max_tokens": (4, TOKENS), "max_completion_tokens": (4, TOKENS), "max_output_tokens": (4, TOKENS),
          "n_predict": (4, TOKENS),
          "min_tokens": (2, TOKENS), "n": (2, 1025), "best_of": (3, 1025)}

# Without it an answer may be as long as the context.
LENGTHS = {"/v1/chat/completions": "max_completion_tokens", "/v1/responses": "max_output_tokens", "/completion": "n_predict"}

EXAMPLES = [1, pytest.param(3, marks=pytest.mark.variant)]  # per operation and mode
TIMEOUT = 120


def keep_small(path, body):
    """Smaller numbers where they are in range, and the right model where any text stands."""
    if not isinstance(body, dict):
        return
    if path in ("/api/chat", "/api/generate") and isinstance(body.get("options"), (dict, type(None))):
        options = body.get("options") or {}
        if type(options.get("num_predict")) in (int, type(None)):
            body["options"] = {**options, "num_predict": 4}
    if path in LENGTHS and body.get(LENGTHS[path]) in (None, -1):
        body[LENGTHS[path]] = 4
    for name, (most, too_much) in BOUNDS.items():
        if type(body.get(name)) is int and most < body[name] < too_much:
            body[name] = most
    if isinstance(body.get("model"), str) and body["model"]:
        body["model"] = NAME


def was_late(case, response):
    """Whether the answer is a 503 that the description has for requests with little time."""
    if response.status_code != 503 or "X-Request-Timeout" not in (case.headers or {}) and "timeout_ms" not in case.body:
        return False
    error = response.json()["error"]  # Anthropic's has no code, and Ollama's is a text
    return isinstance(error, str) or error.get("code", "queue_timeout") in ("queue_timeout", "deadline_exceeded")


def drive(operation, mode, examples):
    """The statuses that came."""
    statuses = set()

    @settings(max_examples=examples, derandomize=True, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        keep_small(operation.path, case.body)
        response = case.call(timeout=TIMEOUT)
        excluded = [positive_data_acceptance] + ([not_a_server_error] if was_late(case, response) else [])
        case.validate_response(response, excluded_checks=excluded)
        statuses.add(response.status_code)

    check()
    return statuses


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_every_operation(server, subtests, mode, examples):
    description = schemathesis.openapi.from_url(server.url + "/openapi.json")
    for operation in description.get_all_operations():
        operation = operation.ok()
        is_never = "200" not in operation.definition.raw["responses"]  # a 501, always
        if mode is GenerationMode.NEGATIVE and not operation.body or is_never:
            continue
        with subtests.test(operation.label):
            statuses = drive(operation, mode, examples)
            is_off = "administration" in operation.tags and statuses == {404}
            # This model; see test_infill.py and test_classifiers.py.
            lacks_tokens = operation.path in ("/infill", "/classify") and statuses == {400}
            assert mode is GenerationMode.NEGATIVE or operation.path_parameters or 200 in statuses or is_off or lacks_tokens


def test_document(server):
    document = httpx.get(server.url + "/openapi.json")
    assert document.headers["content-type"] == "application/json"
    assert document.json()["openapi"] == "3.1.0"
    assert document.json()["info"]["version"] == httpx.get(server.url + "/version").json()["version"]


# What the description leaves to prose: the events of streams.
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"key": {"enum": ["a", "b"]}}}}}
MESSAGES = [{"role": "user", "content": "Look it up."}]
STREAMS = [
    ("/v1/completions", "CompletionChunk", {"prompt": "One two"}),
    ("/v1/completions", "CompletionChunk", {"prompt": ["One", "Two"], "n": 2, "logprobs": 2, "echo": True,
                                            "return_token_ids": True, "prompt_logprobs": 0,
                                            "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", "ChatCompletionChunk", {"messages": MESSAGES}),
    ("/v1/chat/completions", "ChatCompletionChunk", {"messages": MESSAGES, "n": 2, "logprobs": True, "top_logprobs": 2,
                                                     "return_token_ids": True, "prompt_logprobs": 0,
                                                     "stream_options": {"include_usage": True,
                                                                        "continuous_usage_stats": True}}),
    ("/v1/chat/completions", "ChatCompletionChunk", {"messages": MESSAGES, "tools": [TOOL], "tool_choice": "required",
                                                     "max_tokens": 120}),
]


@pytest.mark.parametrize("path,name,fields", STREAMS)
def test_events_of_streams(server, path, name, fields):
    document = httpx.get(server.url + "/openapi.json").json()
    validator = jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", "components": document["components"]})
    for event in read_events(server, path, {"max_tokens": 8, "stream": True, **fields}):
        validator.validate(event)
