"""Fields of other servers that would change the answer: refused by name unless their value requests nothing.
The table of server/api/fields/unknown_fields.c is read as it stands there."""

import re

import httpx
import pytest

from quire_server import NAME, ROOT

LINE = re.compile(r'^    \{"(\w+)",\s+NEUTRAL_(\w+)(?:,\s+\.word = "(\w+)")?', re.MULTILINE)
FIELDS = LINE.findall((ROOT / "server/api/fields/unknown_fields.c").read_text())

# Values that request nothing, and some that request something.
VALUES = {"NONE": ([], [1, "a", {"a": 1}, False]), "FALSE": ([False], [True, 1]), "TRUE": ([True], [False, 0]),
          "EMPTY": (["", [], {}], ["a", ["a"], {"a": 1}, True, 0]), "ZERO": ([0, 0.0], [1, -1, True, "0"]),
          "ONE": ([1, 1.0], [0, 0.5, 2]), "NEGATIVE": ([-1], [0, 5]), "NOT_POSITIVE": ([0, -1], [1, 0.5]),
          "WORD": ([], ["other", 1])}
BODIES = {"/v1/completions": {"model": NAME, "prompt": "a", "max_tokens": 1},
          "/v1/chat/completions": {"model": NAME, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
          "/v1/responses": {"model": NAME, "input": "a", "max_output_tokens": 1},
          "/v1/embeddings": {"model": NAME, "input": "a"},
          "/tokenize": {"prompt": "a"}, "/detokenize": {"tokens": [1]}}
# Read by the endpoint itself.
OWN = {("/v1/chat/completions", "chat_template"), ("/v1/responses", "chat_template"), ("/v1/responses", "reasoning"),
       ("/v1/chat/completions", "messages"), ("/v1/responses", "messages"), ("/tokenize", "messages"),
       ("/v1/chat/completions", "max_completion_tokens"), ("/v1/responses", "max_completion_tokens"),
       ("/v1/chat/completions", "thinking_token_budget"), ("/v1/responses", "thinking_token_budget"),
       ("/tokenize", "content"), ("/tokenize", "chat_template")}
# Other names of fields that these read (server/api/call/body_names.h, .c).
SAMPLING = ("repeat_penalty", "typical", "typ_p", "nsigma", "mirostat_mode", "random_seed", "sampler_seed", "sampling_seed",
            "ban_eos_token", "no_stop_trim")
OWN |= {(path, name) for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses") for name in SAMPLING}
OWN |= {(path, name) for path in ("/v1/chat/completions", "/v1/responses")
        for name in ("reasoning_budget", "reasoning_budget_tokens", "thinking_budget", "thinking_budget_tokens")}
OWN |= {(path, name) for path in ("/v1/completions", "/v1/chat/completions")
        for name in ("n_predict", "max_new_tokens", "n_cmpl", "return_tokens")}


def test_table_is_read():
    assert len(FIELDS) > 80 and {name for name, _, _ in FIELDS} >= {"grammar_string", "structural_tag", "stop_regex", "mirostat_mode"}


@pytest.mark.parametrize("path", BODIES)
def test_every_field(server, path):
    with httpx.Client(base_url=server.url, timeout=300) as client:
        check_fields(client, path)


def check_fields(client, path):
    for name, neutral, word in FIELDS:
        if (path, name) in OWN:
            continue
        passes, fails = VALUES[neutral]
        for value in [None, *passes] + ([word] if word else []):
            reply = client.post(path, json={**BODIES[path], name: value})
            assert reply.status_code == 200, (name, value, reply.text)
            assert "x-ignored-params" not in reply.headers
        for value in fails:
            reply = client.post(path, json={**BODIES[path], name: value})
            error = reply.json()["error"]
            assert (reply.status_code, error["param"], error["code"]) == (400, name, "unsupported_parameter"), reply.text


def test_harmless_fields_are_named(server):
    for path, body in BODIES.items():
        reply = server.post(path, {**body, "safety_identifier": "x", "prompt_cache_key": "a", "adaptive_decay": 0.5})
        assert reply.status_code == 200
        assert reply.headers["x-ignored-params"] == "safety_identifier,prompt_cache_key,adaptive_decay"
