"""--tensor-parallel-size: what several ranks compute is what one does, but for rounding, and the same in every run;
--pipeline-parallel-size: what several stages compute is the same to the byte."""

import re

import httpx
import pytest

from quire_server import MODEL, NAME
from test_command_line import run
from test_embeddings import TEXTS, cosine, embed, floats
from test_load import complete, gather, prompt_of, seeded
from test_streaming import stream

RANKS = "--tensor-parallel-size", 2
STAGES = "--pipeline-parallel-size", 2
SMALL = "--max-model-len", 256, "--kv-cache-memory-bytes", "8M"
NUMBERS = list(range(8))


@pytest.fixture(scope="module")
def answers():
    """Of the servers that this file starts, by what was asked: each must say the same."""
    return {}


def load(client):
    return [seeded(client, i) for i in NUMBERS] + [
        complete(client, prompt_of(i), max_tokens=40, n=2, seed=i, temperature=1, extra_body={"ignore_eos": True})
        for i in NUMBERS[:2]]


@pytest.mark.parametrize("options", [(), ("--threads", 3), ("--no-async-scheduling", "--no-enable-prefix-caching"),
                                     ("--max-model-len", 256, "--kv-cache-memory-bytes", "8M", "--swap-space", 0),
                                     ("--max-model-len", 256, "--kv-cache-memory-bytes", "8M", "--swap-space", 0.1)],
                         ids=["again", "threads", "plain", "recomputed", "swapped"])
def test_seeded_output_is_the_same_in_every_run(start_server, answers, options):
    server = start_server(*RANKS, *options)
    texts = gather(server, load)
    assert answers.setdefault("texts", texts) == texts
    alone = gather(server, lambda client: [seeded(client, 3)])
    assert alone == [texts[3]]
    metrics = server.wait_idle()
    assert metrics["kv_blocks_used"] == 0
    if "8M" in options:
        assert metrics["num_preemptions_total"] > 0
        assert (metrics["kv_blocks_swapped_total"] > 0) == (options[-1] > 0)


@pytest.mark.parametrize("options", [("--threads", 3), ("--no-async-scheduling",), (*SMALL, "--swap-space", 0),
                                     (*SMALL, "--swap-space", 0.1), ("--rank-process", "on")],
                         ids=["threads", "sync", "recomputed", "swapped", "process"])
def test_stages_answer_what_one_rank_does(server, start_server, answers, options):
    if "one" not in answers:
        answers["one"] = gather(server, load), embed(server, TEXTS)
    stages = start_server(*STAGES, *options)
    assert (gather(stages, load), embed(stages, TEXTS)) == answers["one"]
    if "8M" not in options:  # another --max-model-len
        one, two = (each.complete("a", max_tokens=1).system_fingerprint for each in (server, stages))
        assert one == two
    metrics = stages.wait_idle()
    assert metrics["kv_blocks_used"] == 0
    if "8M" in options:
        assert metrics["num_preemptions_total"] > 0
        assert (metrics["kv_blocks_swapped_total"] > 0) == (options[-1] > 0)


def test_what_one_rank_answers(server, start_server):
    """The model's activations are rounded to 8 bits, and sums of another order round otherwise: single tokens differ a
    little, and the probability of a text hardly (tests/golden compares models that are not rounded)."""
    ranks = start_server(*RANKS)
    one, two = (each.complete(" ".join(TEXTS), max_tokens=1, logprobs=1, echo=True) for each in (server, ranks))
    assert one.choices[0].text == two.choices[0].text
    assert one.system_fingerprint != two.system_fingerprint
    sums = [sum(answer.choices[0].logprobs.token_logprobs[1:]) for answer in (one, two)]
    assert sums[0] != sums[1] and abs(sums[0] / sums[1] - 1) < 0.01
    for one, two in zip(embed(server, TEXTS), embed(ranks, TEXTS)):
        assert cosine(floats(one), floats(two)) > 0.999
    assert embed(ranks, TEXTS) == embed(ranks, TEXTS[:1]) + embed(ranks, TEXTS[1:])


def test_streams_and_those_given_up(start_server):
    server = start_server(*RANKS)
    expected = [server.complete(prompt_of(i), max_tokens=30).choices[0].text for i in NUMBERS]

    async def streamed(client, number):
        chunks = await client.completions.create(model=NAME, prompt=prompt_of(number), max_tokens=30, temperature=0,
                                                 stream=True)
        return "".join([chunk.choices[0].text async for chunk in chunks])

    assert gather(server, lambda client: [streamed(client, i) for i in NUMBERS]) == expected
    body = {"prompt": "Count for ever: one", "max_tokens": 1000, "stream": True, "ignore_eos": True}
    for _ in range(3):
        with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=60) as reply:
            next(reply.iter_lines())
    metrics = server.wait_idle()
    assert metrics["kv_blocks_used"] == 0
    pieces = [chunk.choices[0].text for chunk in stream(server, prompt_of(0), max_tokens=30)]
    assert "".join(pieces) == expected[0]
    assert server.terminate() == 0


@pytest.mark.parametrize("ways", [RANKS, STAGES], ids=["ranks", "stages"])
def test_memory_of_each_rank(start_server, ways):
    def parts(text):
        ranks = re.findall(r"rank (\d) +([\d.]+) MiB: weights ([\d.]+), workspace ([\d.]+), KV cache ([\d.]+), "
                           r"swap ([\d.]+)", text)
        sums = re.findall(r"(weights|workspace|KV cache|swap) +([\d.]+) MiB", text)
        return [[float(number) for number in rank] for rank in ranks], {name: float(mib) for name, mib in sums}

    options = [*ways, "--kv-cache-memory-bytes", "64M", "--swap-space", 0.05, "--max-model-len", 512]
    planned = run("inspect", MODEL, "--plan", *options)
    assert planned.returncode == 0, planned.stderr
    ranks, sums = parts(planned.stdout)
    assert [rank[0] for rank in ranks] == [0, 1]
    for i, name in enumerate(("weights", "workspace", "KV cache", "swap")):
        assert all(rank[2 + i] > 0 for rank in ranks)
        assert abs(sum(rank[2 + i] for rank in ranks) - sums[name]) < 0.2
    assert sums["KV cache"] <= 64
    server = start_server(*options)
    assert parts(server.read_log()) == (ranks, sums)
    assert "2 ranks, each" in server.read_log()


@pytest.mark.parametrize("options, words", [
    (("--tensor-parallel-size", 9), ["tensor-parallel-size", "1 to 8"]),
    (("--tensor-parallel-size", 0), ["tensor-parallel-size", "1 to 8"]),
    (("--tensor-parallel-size", 2, "--device", "cuda"), ["tensor-parallel-size: "]),
    ((*STAGES, "--device", "cuda"), ["pipeline-parallel-size: "]),
    (("--tensor-parallel-size", 3, "--pipeline-parallel-size", 3), ["pipeline-parallel-size: 3", "must be 1 to 2"]),
])
def test_refused(options, words):
    result = run("serve", "--model", MODEL, *options)
    assert result.returncode == 78
    assert all(word in result.stderr for word in words), result.stderr
