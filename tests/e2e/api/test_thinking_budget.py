"""thinking_token_budget: what a model thinks is ended after so many tokens."""

import json

import pytest

TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
            "<|im_start|>assistant\n<think>\n")
FIELDS = {"messages": [{"role": "user", "content": "Tell me about the sea."}], "max_tokens": 40, "temperature": 0,
          "ignore_eos": True}


@pytest.fixture
def thinker(start_server, tmp_path):
    path = tmp_path / "open.jinja"
    path.write_text(TEMPLATE)
    return start_server("--chat-template", path)


def ask(server, **fields):
    reply = server.post("/v1/chat/completions", {**FIELDS, **fields})
    assert reply.status_code == 200, reply.text
    body = reply.json()
    return body["choices"][0]["message"], body["usage"]


def test_the_reasoning_ends(thinker):
    free, usage = ask(thinker)
    assert not free["content"] and len(thinker.tokenize(free["reasoning"])) > 30
    forced = len(thinker.tokenize("</think>"))
    for budget in [0, 5, 12]:
        message, usage = ask(thinker, thinking_token_budget=budget)
        thought = message["reasoning"] or ""
        assert free["reasoning"].startswith(thought.strip())
        assert len(thinker.tokenize(thought)) <= budget
        assert message["content"]
        assert usage["completion_tokens"] == 40
    assert ask(thinker, thinking_token_budget=-1)[0] == free
    for name in ("thinking_budget", "reasoning_budget", "reasoning_budget_tokens", "thinking_budget_tokens"):
        assert ask(thinker, **{name: 5}) == ask(thinker, thinking_token_budget=5)
    assert ask(thinker, thinking_token_budget=1000)[0] == free
    assert forced < 10


def test_every_choice_has_its_budget(thinker):
    reply = thinker.post("/v1/chat/completions", {**FIELDS, "n": 4, "temperature": 1, "seed": 3, "thinking_token_budget": 8})
    for choice in reply.json()["choices"]:
        assert choice["message"]["content"]
        assert len(thinker.tokenize(choice["message"]["reasoning"] or "")) <= 10  # encoded anew


def test_a_form_behind_the_reasoning(thinker):
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
    message, _ = ask(thinker, thinking_token_budget=6, max_tokens=60, ignore_eos=False,
                     response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    assert set(json.loads(message["content"])) == {"a"}
    assert message["reasoning"]


def test_a_stream(thinker):
    whole, _ = ask(thinker, thinking_token_budget=6)
    reasoning, content = "", ""
    for chunk in thinker.client().chat.completions.create(
            model="smollm2", messages=FIELDS["messages"], max_tokens=40, temperature=0, stream=True,
            extra_body={"thinking_token_budget": 6, "ignore_eos": True}):
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning", None) or ""
            content += choice.delta.content or ""
    assert (reasoning, content) == (whole["reasoning"], whole["content"])


def test_where_it_does_not_go(server, thinker):
    reply = server.post("/v1/chat/completions", {**FIELDS, "thinking_token_budget": 8})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == "thinking_token_budget"
    assert "8" in error["message"] and "--reasoning-parser" in error["message"]
    assert server.post("/v1/completions", {"prompt": "a", "thinking_token_budget": 8}).status_code == 400
    reply = thinker.post("/v1/chat/completions", {**FIELDS, "ignore_eos": False, "n": 2, "use_beam_search": True,
                                                  "thinking_token_budget": 8})
    assert reply.json()["error"]["param"] == "thinking_token_budget"
    assert thinker.post("/v1/chat/completions", {**FIELDS, "thinking_token_budget": -2}).status_code == 400
