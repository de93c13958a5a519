"""Every sampling field changes what it should and nothing else."""

PROMPT = "The capital of France is"
STORY = "Once upon a time, in a village by the sea,"


def text_of(server, prompt, **fields):
    return server.complete(prompt, **fields).choices[0].text


def test_seed_repeats_and_differs(server):
    fields = {"max_tokens": 24, "temperature": 1}
    first = text_of(server, STORY, seed=1, **fields)
    assert text_of(server, STORY, seed=1, **fields) == first
    assert text_of(server, STORY, seed=2, **fields) != first


def test_seeds_of_64_bits(server):
    """Neighbours that are one double are two seeds, and a message has every digit."""
    def tokens(seed):
        body = {"prompt": STORY, "temperature": 1, "max_tokens": 16, "seed": seed, "return_token_ids": True}
        return server.post("/v1/completions", body).json()["choices"][0]["token_ids"]
    seeds = [2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1, -2**63, -2**63 + 1]
    sampled = [tokens(seed) for seed in seeds]
    assert [tokens(seed) for seed in seeds] == sampled
    assert len({tuple(ids) for ids in sampled}) == len(seeds)
    for seed in (2**63, 2**63 + 1, -2**63 - 1, 10**25 + 1):
        error = server.post("/v1/completions", {"prompt": "a", "seed": seed}).json()["error"]
        assert error["message"] == (f"seed must be an integer from {-2**63} to {2**63 - 1}, not {seed}")
    reply = server.post("/v1/completions", {"prompt": "a", "max_tokens": 2**53 + 1})
    assert reply.json()["error"]["message"].endswith(f"not {2**53 + 1}")


def test_no_seed_differs(server):
    texts = {text_of(server, STORY, max_tokens=24, temperature=1) for _ in range(3)}
    assert len(texts) > 1


def test_top_k_one_and_tiny_top_p_are_greedy(server):
    greedy = text_of(server, STORY, max_tokens=16)
    assert text_of(server, STORY, max_tokens=16, temperature=1, extra_body={"top_k": 1}) == greedy
    assert text_of(server, STORY, max_tokens=16, temperature=1, top_p=1e-6) == greedy
    assert text_of(server, STORY, max_tokens=16, temperature=1, extra_body={"min_p": 1}) == greedy


def test_stop_string(server):
    full = text_of(server, STORY, max_tokens=40)
    stop = full[20:24]
    choice = server.complete(STORY, max_tokens=40, stop=["never appears!", stop]).choices[0]
    assert choice.text == full[:full.index(stop)]
    assert choice.finish_reason == "stop"
    assert choice.stop_reason == stop
    kept = server.complete(STORY, max_tokens=40, stop=stop,
                           extra_body={"include_stop_str_in_output": True}).choices[0]
    assert kept.text == full[:full.index(stop)] + stop


def test_stop_string_never_leaks_into_a_stream(server):
    full = text_of(server, STORY, max_tokens=40)
    stop = full[20:30]
    chunks = server.complete(STORY, max_tokens=40, stop=stop, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == full[:full.index(stop)]


def test_stop_token(server):
    [paris] = server.tokenize(" Paris")
    choice = server.complete(PROMPT, max_tokens=8, extra_body={"stop_token_ids": [paris]}).choices[0]
    assert choice.finish_reason == "stop"
    assert choice.stop_reason == paris
    assert choice.text == ""


def test_min_tokens_holds_back_stops(server):
    [paris] = server.tokenize(" Paris")
    completion = server.complete(PROMPT, max_tokens=8,
                                 extra_body={"stop_token_ids": [paris], "min_tokens": 3})
    assert completion.usage.completion_tokens >= 3


def test_logit_bias(server):
    [paris] = server.tokenize(" Paris")
    [banana] = server.tokenize(" banana")
    assert not text_of(server, PROMPT, max_tokens=1, logit_bias={str(paris): -100}).startswith(" Paris")
    assert text_of(server, PROMPT, max_tokens=3,
                   logit_bias={str(banana): 100}) == " banana banana banana"


def test_penalties_break_loops(server):
    prompt = "one two one two one two one two one two one two"

    def num_distinct(**fields):
        choice = server.complete(prompt, max_tokens=40, logprobs=0, **fields).choices[0]
        return len(set(choice.logprobs.tokens))

    plain = num_distinct(extra_body={"ignore_eos": True})
    assert plain < 10
    assert num_distinct(frequency_penalty=2, extra_body={"ignore_eos": True}) > plain
    assert num_distinct(presence_penalty=2, extra_body={"ignore_eos": True}) > plain
    assert num_distinct(extra_body={"ignore_eos": True, "repetition_penalty": 1.5}) > plain


def test_eos_ends_unless_ignored(server):
    end = server.post("/tokenize", {"content": "<|im_end|>", "parse_special": True}).json()["tokens"]
    assert len(end) == 1
    bias = {str(end[0]): 100}
    completion = server.complete(PROMPT, max_tokens=5, logit_bias=bias)
    assert completion.choices[0].finish_reason == "stop"
    assert completion.choices[0].stop_reason is None
    assert completion.choices[0].text == ""
    ignoring = server.complete(PROMPT, max_tokens=5, logit_bias=bias,
                               extra_body={"ignore_eos": True})
    assert ignoring.choices[0].finish_reason == "length"
    assert ignoring.usage.completion_tokens == 5
