"""Keys and values in 8 bits: what sharing, copying, swapping and windows promise holds in them too, and answers are
nearly as good."""

import json
import math
import re
import subprocess

import pytest

from metrics_watch import deltas
from quire_server import BINARY, MODEL, NAME, ROOT, QuireServer
from test_load import gather, seeded
from test_prefix_cache import cached, full_blocks, questions, SYSTEM, words_of
from test_swap import beams, choices, FAMILIES

DATA = ROOT / "tests/e2e/data"
MOST_PERPLEXITY = {"int8": 1.005, "fp8": 1.01}  # of F16's; measured: 1.0027 and 1.0053
TYPES = list(MOST_PERPLEXITY)
SMALL = ("--max-model-len", 256, "--kv-cache-memory-bytes", "5M")


@pytest.fixture(scope="module", params=TYPES)
def roomy(request, tmp_path_factory):
    server = QuireServer(tmp_path_factory.mktemp(request.param) / "server.log", "--kv-cache-dtype", request.param)
    server.kv_type = request.param
    yield server
    server.kill()


def load(client):
    return [seeded(client, i) for i in range(10)] + [choices(client, i) for i in range(2)] + [
        beams(client, i) for i in range(2)]


def bytes_per_token(model, kv_type):
    printed = subprocess.run([BINARY, "inspect", model], capture_output=True, text=True, check=True).stdout
    number, unit = re.search(rf"KV per token, {kv_type} +([\d.]+) (\w+)", printed).groups()
    return float(number) * {"B": 1, "KiB": 1024}[unit]


def test_swapped_and_computed_again(start_server, roomy):
    """Copies of blocks, among beams too, take their scales along."""
    expected = gather(roomy, load)
    for swap in ("0.1", "0"):
        server = start_server(*SMALL, "--kv-cache-dtype", roomy.kv_type, "--swap-space", swap)
        assert gather(server, load) == expected
        metrics = server.wait_idle()
        assert metrics["num_preemptions_total"] > 0
        assert (metrics["kv_blocks_swapped_total"] > 0) == (swap != "0")
        assert metrics["kv_blocks_used"] == metrics["swap_blocks_used"] == 0


def test_shared_prompts(start_server, roomy):
    shared = full_blocks(len(roomy.tokenize(SYSTEM)))
    roomy.complete(SYSTEM, max_tokens=1)
    answers, rose = deltas(roomy, lambda: gather(roomy, lambda client: questions(client, range(8))))
    assert [cached(answer) >= shared for answer in answers] == [True] * 8
    assert rose["prefix_cache_hits_total"] == sum(map(cached, answers))
    plain = start_server("--kv-cache-dtype", roomy.kv_type, "--no-enable-prefix-caching")
    others = gather(plain, lambda client: questions(client, range(8)))
    assert [answer.choices[0].text for answer in answers] == [answer.choices[0].text for answer in others]


def test_scores_of_a_prompt_are_those_of_the_first_time(roomy):
    fields = {"extra_body": {"prompt_logprobs": 2}, "max_tokens": 4}
    answers = [roomy.complete(words_of("scored", count=3), **fields).choices[0].model_dump() for _ in range(2)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("kv_type", TYPES)
def test_windows(start_server, kv_type):
    """As test_swap: four texts that do not fit the pool, but within their windows."""
    model = FAMILIES / "mistral"
    server = start_server("--model", model, "--max-model-len", 640, "--max-num-seqs", 4, "--kv-cache-dtype", kv_type,
                          "--kv-cache-memory-bytes", int(40 * 16 * bytes_per_token(model, kv_type)))
    assert server.metrics()["kv_blocks_total"] == 40
    fields = {"max_tokens": 600, "extra_body": {"ignore_eos": True}}
    alone = server.complete("The quick brown fox", **fields).choices[0].text

    async def ask(client):
        answer = await client.completions.create(model=NAME, prompt="The quick brown fox", temperature=0, **fields)
        return answer.choices[0].text
    assert gather(server, lambda client: [ask(client) for _ in range(4)]) == [alone] * 4
    metrics = server.wait_idle()
    assert metrics["kv_blocks_used"] == metrics["num_preemptions_total"] == 0


def perplexity(server):
    text = (DATA / json.loads((DATA / "perplexity.json").read_text())["text"]).read_text()
    scored = server.complete(text, max_tokens=0, echo=True, logprobs=1).choices[0].logprobs.token_logprobs[1:]
    assert len(scored) > 2000
    return math.exp(-sum(scored) / len(scored))


@pytest.fixture(scope="module")
def plain_perplexity(shared_server):
    """In F16, which is what auto is for this model."""
    assert "tokens in f16" in shared_server.read_log()
    return perplexity(shared_server)


def test_perplexity(roomy, plain_perplexity):
    quantised = perplexity(roomy)
    print(f"perplexity {quantised:.4f} in {roomy.kv_type}, {plain_perplexity:.4f} in f16")
    assert quantised < plain_perplexity * MOST_PERPLEXITY[roomy.kv_type]


def test_memory_of_a_token(roomy):
    """A byte for each element, and a scale for each of K and V, layer and head: 53 % of F16."""
    table = re.search(r"KV cache +[\d.]+ MiB = \d+ blocks of 16 = \d+ tokens in (\w+), (\d+) bytes each",
                      roomy.read_log())
    assert table.groups() == (roomy.kv_type, str(2 * 30 * 3 * (64 + 4)))
    assert bytes_per_token(MODEL, roomy.kv_type) == pytest.approx(int(table[2]), rel=0.01)
