"""A model's own layer that drafts (multi-token prediction): the same answers with and without it, to the byte, and most
of its drafts are right in the language that a tiny model has learnt with its layer (scripts/golden/make_mtp.py)."""

import random
import subprocess

import httpx
import pytest

from quire_server import BINARY, NAME, ROOT, QuireServer, clean_environment
from test_load import gather

GOLDEN = ROOT / "tests/golden"
TRAINED = GOLDEN / "mtp/trained"
# Only n-grams of 32 tokens are looked up, so that what is accepted is the layer's.
CONFIG = '{"method": "mtp", "num_speculative_tokens": 3, "prompt_lookup_max": 32}'
DRAFTS = ("--speculative-config", CONFIG)


def answer(client, prompt, **fields):
    async def ask():
        result = await client.completions.create(model=NAME, prompt=prompt, logprobs=2, seed=7,
                                                 extra_body={"ignore_eos": True}, **{"max_tokens": 30, **fields})
        return [choice.model_dump() for choice in result.choices]
    return ask()


def of_language(number):
    return [3 + number % 4, 10 + number * 7 % 48]


def of_noise(number):
    """All begin alike, and then repeat nothing."""
    rng = random.Random(number)
    return [rng.randrange(3, 280) if i >= 40 else i * 5 + 3 for i in range(50 + number)]


def calls(client):
    return [answer(client, prompt(number), temperature=temperature, n=1 + number // 5)
            for number in range(6) for temperature in (0, 0.7, 1) for prompt in (of_language, of_noise)]


def one(client):
    return [answer(client, of_language(1), temperature=0, max_tokens=100)]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Those without drafts."""
    server = QuireServer(tmp_path_factory.mktemp("plain") / "server.log", "--model", TRAINED)
    try:
        return gather(server, calls), gather(server, one)
    finally:
        server.kill()


@pytest.mark.parametrize("arguments", [
    [], ["--rank-process", "on"], ["--no-async-scheduling", "--no-enable-prefix-caching"],
    ["--max-model-len", 128, "--kv-cache-memory-bytes", "144K", "--swap-space", "0"],
    ["--max-model-len", 128, "--kv-cache-memory-bytes", "144K", "--swap-space", "0.01"]],
    ids=["threads", "rank process", "no prefixes", "recomputed", "swapped"])
def test_a_layer_never_changes_the_output(answers, start_server, arguments):
    server = start_server("--model", TRAINED, *DRAFTS, *arguments)
    assert "draft      the model's layer 3, which predicts further tokens (MTP); at most 3 " in server.read_log()
    is_short = "--max-model-len" in arguments
    for i in range(80):  # whether drafts pay is measured, and calls that come one by one do not take memory from each other
        assert (gather(server, calls), gather(server, one)) == answers
        metrics = server.wait_idle()
        if i >= 2 and metrics["spec_decode_num_accepted_tokens_total"] > 0 and (not is_short or metrics["num_preemptions_total"] > 0):
            break
    assert metrics["spec_decode_num_accepted_tokens_total"] > 0
    assert metrics["kv_blocks_used"] == 0
    if is_short:
        assert metrics["num_preemptions_total"] > 0


def test_most_drafts_are_right(start_server):
    """The first are made whatever they cost. A word follows another with a chance of 1 in 48. The layer has learnt to
    draft one token after those of the model, and not more."""
    server = start_server("--model", TRAINED, "--speculative-config", CONFIG.replace(": 3", ": 1"))
    for number in range(8):
        server.complete(of_language(number), max_tokens=30, temperature=0, extra_body={"ignore_eos": True})
    metrics = server.wait_idle()
    assert metrics["spec_decode_num_draft_tokens_total"] >= 32
    assert metrics["spec_decode_draft_acceptance_rate"] > 0.9


def test_random_weights(start_server):
    """Nearly all drafts are wrong."""
    for model in (GOLDEN / "mtp/deepseek-v3", GOLDEN / "mtp/glm4.5-air", GOLDEN / "mtp/glm4.5-air-shared.gguf"):
        plain, drafting = start_server("--model", model), start_server("--model", model, *DRAFTS)
        assert gather(drafting, calls) == gather(plain, calls)
        assert drafting.wait_idle()["spec_decode_num_draft_tokens_total"] > 0
        plain.kill()
        drafting.kill()


def test_after_a_sleep(answers, start_server):
    server = start_server("--model", TRAINED, "--enable-admin", *DRAFTS)
    for level in (1, 2):
        assert (gather(server, calls), gather(server, one)) == answers
        assert httpx.post(f"{server.url}/sleep?level={level}", timeout=60).status_code == 200
        assert httpx.post(f"{server.url}/wake_up", timeout=60).status_code == 200
    assert (gather(server, calls), gather(server, one)) == answers


def test_a_recording(answers, start_server, tmp_path):
    record = tmp_path / "record.bin"
    server = start_server("--model", TRAINED, "--record", record, *DRAFTS)
    assert (gather(server, calls), gather(server, one)) == answers
    server.terminate()
    result = subprocess.run([BINARY, "replay", record], capture_output=True, text=True, env=clean_environment(), timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr


def run(*words):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, env=clean_environment(), timeout=60)


def test_a_plan_has_the_layer():
    lines = run("inspect", TRAINED, "--plan", *DRAFTS).stdout.splitlines()
    assert [line for line in lines if line.startswith("draft ")]


@pytest.mark.parametrize("words, said", [
    (("--model", GOLDEN / "families/llama.gguf"), "speculative-config: mtp: "),
    (("--model", GOLDEN / "families/deepseek-v2"), "has no layer that predicts further tokens (MTP)"),
    (("--model", TRAINED, "--tensor-parallel-size", 2), "speculative-config: mtp works with one rank only: tensor-parallel-size is 2"),
])
def test_what_is_refused(words, said):
    result = run("serve", "--port", 0, *words, *DRAFTS)
    assert result.returncode == 78 and len(result.stderr.splitlines()) == 1, result
    assert said in result.stderr
