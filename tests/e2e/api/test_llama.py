"""llama.cpp's /completion, /props and /slots, and what chats and completions have of its members."""

import json

import httpx
import jsonschema_rs
import pytest

from quire_server import NAME

FIELDS = {"prompt": "One, two, three,", "n_predict": 6, "temperature": 0}


def complete(server, **fields):
    reply = server.post("/completion", {**FIELDS, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def stream(server, path="/completion", **fields):
    reply = server.post(path, {**FIELDS, "stream": True, **fields})
    assert reply.status_code == 200, reply.text
    return [json.loads(line.removeprefix("data: ")) for line in reply.text.splitlines()
            if line.startswith("data: ") and "[DONE]" not in line]


def test_an_answer_is_llama_cpps(server):
    answer = complete(server)
    same = server.complete(FIELDS["prompt"], max_tokens=6, temperature=0)
    assert answer["content"] == same.choices[0].text
    assert answer["index"] == 0 and answer["model"] == NAME and answer["tokens"] == []
    assert (answer["stop"], answer["stop_type"], answer["stopping_word"]) == (True, "limit", "")
    assert answer["tokens_evaluated"] == same.usage.prompt_tokens and answer["tokens_predicted"] == 6
    assert answer["prompt"] == FIELDS["prompt"] and answer["truncated"] is False
    assert answer["has_new_line"] is ("\n" in answer["content"])
    settings = answer["generation_settings"]
    assert settings["n_predict"] == 6 and settings["temperature"] == 0 and settings["repeat_penalty"] == 1
    timings = answer["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == answer["tokens_evaluated"]
    assert timings["predicted_n"] == 6 and timings["predicted_ms"] > 0 and timings["predicted_per_second"] > 0


def test_the_end_is_named(server):
    word = complete(server)["content"].split()[1]
    answer = complete(server, stop=["@@", word])
    assert (answer["stop_type"], answer["stopping_word"]) == ("word", word)
    chat = server.post("/apply-template", {"messages": [{"role": "user", "content": "Say hi."}]}).json()["prompt"]
    answer = complete(server, prompt=chat, n_predict=-1)
    assert answer["stop_type"] == "eos" and answer["tokens_predicted"] > 1


def test_prompts_have_llama_cpps_forms(server):
    text = FIELDS["prompt"]
    ids = server.tokenize(text)
    want = complete(server)["content"]
    for prompt in (ids, {"prompt_string": text}, {"prompt_string": text, "multimodal_data": []}):
        assert complete(server, prompt=prompt)["content"] == want
    first, rest = text[:4], server.tokenize(text)[len(server.tokenize(text[:4])):]
    mixed = [first, *rest]
    assert complete(server, prompt=mixed)["prompt"] == text
    answers = complete(server, prompt=[text, ids, {"prompt_string": text}, mixed])
    assert [answer["index"] for answer in answers] == [0, 1, 2, 3]
    assert {answer["content"] for answer in answers[:3]} == {want}
    answers = complete(server, n_cmpl=2, seed=3, temperature=1)
    assert len(answers) == 2 and answers[0]["content"] != answers[1]["content"]


def test_a_stream_says_the_same(server):
    whole = complete(server, return_tokens=True)
    *parts, end = stream(server)
    assert "".join(part["content"] for part in parts) == whole["content"]
    assert [token for part in parts for token in part["tokens"]] == whole["tokens"]
    assert [part["stop"] for part in parts] == [False] * len(parts) and "timings" not in parts[0]
    assert end["stop"] is True and end["content"] == "" and end["tokens"] == []
    assert (end["stop_type"], end["tokens_predicted"], end["timings"]["predicted_n"]) == ("limit", 6, 6)
    assert all(part["timings"]["predicted_n"] > 0 for part in stream(server, timings_per_token=True)[:-1])


def test_an_answer_has_the_fields_that_are_asked_for(server):
    whole = complete(server)
    fields = ["content", "generation_settings/n_predict", "timings/predicted_n", "content", "none", "stop/none", "prompt/",
              "tokens_predicted"]
    want = {"content": whole["content"], "generation_settings/n_predict": 6, "timings/predicted_n": 6, "tokens_predicted": 6}
    reply = server.post("/completion", {**FIELDS, "response_fields": fields})
    assert reply.json() == want and reply.text.count('"content"') == 1
    settings = complete(server, seed=1)["generation_settings"]
    assert complete(server, seed=1, response_fields=["generation_settings"]) == {"generation_settings": settings}
    answers = complete(server, prompt=["One,", "}\\\"{"], response_fields=["prompt", "stop_type"])
    assert answers == [{"prompt": "One,", "stop_type": "limit"}, {"prompt": "}\\\"{", "stop_type": "limit"}]
    assert complete(server, response_fields=[]).keys() == complete(server, response_fields=None).keys() == whole.keys()
    *parts, end = stream(server, response_fields=["stop_type"])
    assert end == {"stop_type": "limit"} and "".join(part["content"] for part in parts) == whole["content"]


def test_prompt_logprobs_are_answered(server):
    scores = complete(server, prompt_logprobs=1)["prompt_logprobs"]
    want = server.post("/v1/completions", {"prompt": FIELDS["prompt"], "max_tokens": 1, "prompt_logprobs": 1}).json()
    assert scores == want["choices"][0]["prompt_logprobs"] and len(scores) > 3
    assert "prompt_logprobs" not in complete(server)


def test_empty_stop_strings_are_none(server):
    """As llama.cpp has it, of which clients send them; OpenAI's API and vLLM refuse them."""
    want = complete(server)["content"]
    for stop in ("", [""], ["", "@@", ""], []):
        answer = complete(server, stop=stop)
        assert answer["content"] == want and answer["generation_settings"]["stop"] == (["@@"] if "@@" in stop else [])


def test_properties_stay(server):
    reply = server.post("/props", {"default_generation_settings": {}})
    assert reply.status_code == 501 and reply.json()["error"]["code"] == "not_supported", reply.text


def test_an_event_stream_ends_as_llama_cpps(server):
    assert "[DONE]" not in server.post("/completion", {**FIELDS, "stream": True}).text


@pytest.mark.parametrize("streams", [False, True])
def test_probabilities(server, streams):
    answers = stream(server, n_probs=3) if streams else [complete(server, n_probs=3)]
    listed = [entry for answer in answers for entry in answer.get("completion_probabilities", [])]
    assert len(listed) == 6
    for entry in listed:
        assert len(entry["top_logprobs"]) == 3 and entry["id"] == entry["top_logprobs"][0]["id"]
        assert entry["logprob"] <= 0 and bytes(entry["bytes"]).decode() == entry["token"]
    assert "completion_probabilities" not in complete(server)


def test_progress_of_a_long_prompt(server):
    """In as many frames as the prompt has chunks, the last of them with all of it."""
    prompt = "count to ten and back again " * 80
    for path, body in (("/completion", {"prompt": prompt}), ("/v1/completions", {"prompt": prompt, "max_tokens": 2, "n_predict": None}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], "prompt": None,
                                                 "max_tokens": 2, "n_predict": None})):
        frames = stream(server, path, **body, cache_salt=path, return_progress=True)
        found = [frame["prompt_progress"] for frame in frames if "prompt_progress" in frame]
        assert found and found[-1]["processed"] == found[-1]["total"] > 300 and found[0]["cache"] == 0
        assert [part["processed"] for part in found] == sorted({part["processed"] for part in found})
        assert "prompt_progress" not in frames[-1]
    assert not any("prompt_progress" in frame for frame in stream(server))


def test_timings_on_request(server):
    chat = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 3}
    for path, body in (("/v1/completions", {"prompt": "One,", "max_tokens": 3}), ("/v1/chat/completions", chat)):
        assert "timings" not in server.post(path, body).json()
        timings = server.post(path, {**body, "timings_per_token": True}).json()["timings"]
        assert timings["predicted_n"] == 3 and timings["prompt_n"] + timings["cache_n"] > 0
        reply = server.post(path, {**body, "timings_per_token": True, "stream": True})
        chunks = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
        assert all("timings" in chunk for chunk in chunks) and chunks[-1]["timings"]["predicted_n"] == 3


def test_a_clients_body_is_taken(server):
    """What llama.cpp's own page and SillyTavern send."""
    body = {**FIELDS, "seed": -1, "repeat_last_n": 64, "repeat_penalty": 1.0, "typical_p": 1, "stop": [], "min_keep": 0,
            "n_keep": 0, "cache_prompt": True, "id_slot": -1, "tfs_z": 1, "samplers": [], "n_probs": 0, "n_predict": -1,
            "max_tokens": 4, "post_sampling_probs": False, "logit_bias": [], "t_max_predict_ms": 0, "response_fields": []}
    assert complete(server, **body)["tokens_predicted"] == 4
    token = complete(server, n_predict=1, return_tokens=True)["tokens"][0]
    text = complete(server, n_predict=1)["content"]
    for bias in ([[token, False]], [[token, -50]], [[text, -50]], [[token, 3], [text, False]],
                 {text: -50}, {str(token): -50}, {text: False}, {str(token): False}):
        assert complete(server, n_predict=1, logit_bias=bias)["content"] != text
    assert complete(server, repeat_penalty=5.0, repeat_last_n=-1)["content"] != complete(server)["content"]
    assert complete(server, n_predict=0)["content"] == ""


@pytest.mark.parametrize("fields, param", [
    ({"n_predict": -2}, "n_predict"), ({"n_predict": "a"}, "n_predict"), ({"n_probs": 21}, "n_probs"),
    ({"prompt": None}, "prompt"), ({"prompt": {"prompt_string": 1}}, "prompt.prompt_string"),
    ({"prompt": {"prompt_string": "a", "multimodal_data": ["AA=="]}}, "prompt"), ({"prompt": [{}]}, "prompt.prompt_string"),
    ({"prompt": {"prompt_string": "a", "multimodal_data": "AA=="}}, "prompt"),
    ({"prompt": ["a", 1, None]}, "prompt"), ({"repeat_penalty": 0}, "repeat_penalty"),
    ({"logit_bias": [1]}, "logit_bias[0]"), ({"logit_bias": [[99999999, 1]]}, "logit_bias[0]"),
    ({"logit_bias": [["a", "b"]]}, "logit_bias"), ({"logit_bias": [[1, 1]] * 1025}, "logit_bias"),
    ({"logit_bias": [["a b " * 600, 1]]}, "logit_bias"), ({"logit_bias": {"a b " * 600: 1}}, "logit_bias"),
    ({"response_fields": "content"}, "response_fields"), ({"response_fields": [1]}, "response_fields[0]"),
    ({"response_fields": ["a"] * 65}, "response_fields"), ({"stop": ["", 1]}, "stop"),
    ({"response_fields": ["a" * 257]}, "response_fields[0]"), ({"post_sampling_probs": True}, "post_sampling_probs"),
    ({"repeat_penalty": 2, "repeat_last_n": 64}, "repeat_last_n"), ({"prompt": ["a", 99999999]}, "prompt"),
])
def test_what_is_not_taken_is_named(server, fields, param):
    reply = server.post("/completion", {**FIELDS, **fields})
    assert reply.status_code == 400 and reply.json()["error"]["param"].startswith(param), reply.text


def test_props_and_slots(server):
    props = httpx.get(server.url + "/props").json()
    slots = httpx.get(server.url + "/slots").json()
    assert props["total_slots"] == len(slots) and not any(slot["is_processing"] for slot in slots)
    assert props["model_alias"] == props["model_path"] == NAME
    assert "{%" in props["chat_template"] and props["is_sleeping"] is False
    assert props["default_generation_settings"]["n_ctx"] == slots[0]["n_ctx"]
    assert props["default_generation_settings"]["params"]["top_p"] > 0
    assert httpx.get(server.url + "/slots?fail_on_no_slot=1").status_code == 200


def test_the_answers_are_as_described(server):
    document = httpx.get(server.url + "/openapi.json").json()
    answers = {"LlamaCompletion": complete(server, n_probs=1), "LlamaProps": httpx.get(server.url + "/props").json(),
               "LlamaCompletionRequest": FIELDS, "LlamaSlots": httpx.get(server.url + "/slots").json()}
    for name, answer in answers.items():
        jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", "components": document["components"]}).validate(answer)


def test_completions_is_either(server):
    """llama.cpp's own where it has n_predict, else OpenAI's without /v1."""
    assert server.post("/completions", FIELDS).json()["content"] == complete(server)["content"]
    assert server.post("/completions", {"prompt": "One,", "max_tokens": 2}).json()["object"] == "text_completion"
    assert server.post("/v1/completions", FIELDS).json()["object"] == "text_completion"
