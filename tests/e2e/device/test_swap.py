"""A pool that is too small for its load: sequences are swapped out or computed again, and nobody can see it from the
answers."""

import pytest

from quire_server import NAME, ROOT
from metrics_watch import watch_metrics
from test_load import gather, seeded

SMALL = ("--max-model-len", 256, "--kv-cache-memory-bytes", "16M")
FAMILIES = ROOT / "tests/golden/families"
NUMBERS = list(range(32))


def choices(client, number):
    """Several choices that share a prompt and go with it."""
    async def ask():
        answer = await client.completions.create(
            model=NAME, prompt=f"Tell me {number} things about the sea, and why:", n=3, max_tokens=60, temperature=0.9,
            seed=number, extra_body={"ignore_eos": True})
        return [choice.text for choice in answer.choices]
    return ask()


def beams(client, number):
    async def ask():
        answer = await client.completions.create(
            model=NAME, prompt=f"Story number {number}:", n=2, best_of=4, max_tokens=60,
            extra_body={"use_beam_search": True})
        return [choice.text for choice in answer.choices]
    return ask()


def load(client):
    return [seeded(client, i) for i in NUMBERS] + [choices(client, i) for i in range(6)] + [
        beams(client, i) for i in range(4)]


@pytest.fixture(scope="module")
def expected(shared_server):
    return gather(shared_server, load)


@pytest.mark.parametrize("caching", ["--enable-prefix-caching", "--no-enable-prefix-caching"])
def test_swapped_out_and_in(start_server, expected, caching):
    server = start_server(*SMALL, caching, "--swap-space", "0.1")
    assert gather(server, load) == expected
    metrics = server.wait_idle()
    assert metrics["num_preemptions_total"] > 0
    assert metrics["kv_blocks_swapped_total"] > 0
    assert metrics["kv_blocks_used"] == 0 and metrics["swap_blocks_used"] == 0


@pytest.mark.parametrize("caching", ["--enable-prefix-caching", "--no-enable-prefix-caching"])
def test_computed_again(start_server, expected, caching):
    server = start_server(*SMALL, caching, "--swap-space", 0)
    assert gather(server, load) == expected
    metrics = server.wait_idle()
    assert metrics["num_preemptions_total"] == metrics["preemptions_by_mode_total"] > 0
    assert metrics["kv_blocks_swapped_total"] == metrics["swap_blocks_total"] == 0
    assert metrics["kv_blocks_used"] == 0


def test_a_window_holds_no_more_than_it_sees(start_server):
    """Every layer of this model sees 8 tokens back: four texts of 600 tokens fit a pool of 40 blocks, and each is in
    few of them."""
    server = start_server("--model", FAMILIES / "mistral", "--max-model-len", 640, "--max-num-seqs", 4,
                          "--kv-cache-memory-bytes", 368640)
    assert server.metrics()["kv_blocks_total"] == 40
    fields = {"max_tokens": 600, "extra_body": {"ignore_eos": True}}
    alone = server.complete("The quick brown fox", **fields).choices[0].text
    with watch_metrics(server, every=0) as watch:
        for _ in range(500):  # one may be over before anybody looks
            assert server.complete("The quick brown fox", **fields).choices[0].text == alone
            if watch.samples and watch.most("kv_blocks_used") > 0:
                break
    assert 0 < watch.most("kv_blocks_used") <= 4

    async def ask(client):
        answer = await client.completions.create(model=NAME, prompt="The quick brown fox", temperature=0, **fields)
        return answer.choices[0].text
    assert gather(server, lambda client: [ask(client) for _ in range(4)]) == [alone] * 4
    metrics = server.wait_idle()
    assert metrics["kv_blocks_used"] == metrics["num_preemptions_total"] == 0
