"""stream: true. The pieces make up the text of the plain answer, in OpenAI's order."""

import json

import httpx

from quire_server import NAME

PROMPT = "The capital of France is"


def stream(server, prompt=PROMPT, **fields):
    fields = {"temperature": 0, "max_tokens": 12, **fields}
    return list(server.client().completions.create(model=NAME, prompt=prompt, stream=True, **fields))


def test_pieces_make_up_the_text(server):
    plain = server.complete(PROMPT, max_tokens=12)
    chunks = stream(server)
    assert "".join(chunk.choices[0].text for chunk in chunks) == plain.choices[0].text
    assert len(chunks) > 3
    assert len({chunk.id for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"text_completion"}
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons[-1] == plain.choices[0].finish_reason
    assert set(reasons[:-1]) == {None}
    assert all(chunk.usage is None for chunk in chunks)


def test_include_usage(server):
    chunks = stream(server, stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens == 5
    assert chunks[-1].usage.total_tokens == 5 + chunks[-1].usage.completion_tokens
    assert all(chunk.usage is None and len(chunk.choices) == 1 for chunk in chunks[:-1])


def test_several_choices(server):
    chunks = stream(server, prompt=[PROMPT, "Once upon"], n=2, seed=3, temperature=1)
    texts = {}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    plain = server.complete([PROMPT, "Once upon"], n=2, seed=3, temperature=1, max_tokens=12)
    assert texts == {choice.index: choice.text for choice in plain.choices}


def test_echo_comes_first(server):
    chunks = stream(server, echo=True)
    text = "".join(chunk.choices[0].text for chunk in chunks)
    assert chunks[0].choices[0].text.startswith(PROMPT)
    assert text == server.complete(PROMPT, max_tokens=12, echo=True).choices[0].text


def test_logprobs(server):
    chunks = stream(server, logprobs=2)
    plain = server.complete(PROMPT, max_tokens=12, logprobs=2).choices[0].logprobs
    streamed = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].logprobs]
    assert [token for part in streamed for token in part.tokens] == plain.tokens
    assert [value for part in streamed for value in part.token_logprobs] == plain.token_logprobs
    assert [offset for part in streamed for offset in part.text_offset] == plain.text_offset


def test_bytes_on_the_wire(server):
    body = {"prompt": PROMPT, "max_tokens": 3, "stream": True}
    with httpx.stream("POST", server.url + "/v1/completions", json=body) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        raw = reply.read().decode()
    events = [event for event in raw.split("\n\n") if event and not event.startswith(":")]
    assert raw.endswith("data: [DONE]\n\n")
    assert all(event.startswith("data: ") for event in events)
    assert all(json.loads(event[6:])["choices"] for event in events[:-1])


def test_no_piece_cuts_a_character(server):
    """Every event is valid UTF-8 by itself, also where a character takes several tokens."""
    ids = server.tokenize("😀🎉🚀")
    bias = {str(token): 100 for token in ids}
    fields = {"extra_body": {"ignore_eos": True}, "logit_bias": bias, "temperature": 1, "seed": 4,
              "max_tokens": 60}
    chunks = stream(server, **fields)
    plain = server.complete(PROMPT, **fields).choices[0].text
    assert "".join(chunk.choices[0].text for chunk in chunks) == plain
