"""--tensor-parallel-size on GPUs: a rank for each of the simulated machine's devices, which NCCL joins. What the ranks
answer is the same in every run, whatever is asked for, and one that fails ends all requests once."""

import json
import os

import pytest

from quire_server import BINARY, NAME, ROOT
from test_command_line import run
from test_cuda_sim import (PROMPTS, WAIT, ask, at_once, is_timeout, plain_until_refused, stream_until_refused,
                           tokens_of)
from test_device_failures import DECODING_ENDS, start_decoding

MODULE = BINARY.parents[1] / "kernels/cuda/libquire-cuda-sim.so"
MODEL = ROOT / "tests/golden/families/llama.gguf"
MACHINE = {"LD_LIBRARY_PATH": str(MODULE.parent), "QUIRE_CUDASIM_MEMORY": str(96 << 20), "QUIRE_CUDASIM_DEVICES": "2"}
GPUS = ("--device", "cuda-sim", "--tensor-parallel-size", 2, "--model", MODEL, "--max-model-len", 256,
        "--max-num-seqs", 8, "--max-num-batched-tokens", 64)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"],
          "additionalProperties": False}

pytestmark = pytest.mark.skipif(not MODULE.exists(), reason="the simulated device is not built")


@pytest.fixture
def start_ranks(start_server):
    def start(*arguments, **variables):
        return start_server(*GPUS, "--rank-process", "off", *arguments, environment={**MACHINE, **variables})
    return start


def everything(server):
    """An answer of every kind, all at once."""
    client = server.client()
    hot = {"temperature": 1.2, "frequency_penalty": 0.4, "presence_penalty": 0.2, "logprobs": 3, "seed": 5,
           "extra_body": {"ignore_eos": True, "top_k": 40, "min_p": 0.001, "repetition_penalty": 1.1}}
    messages = [{"role": "user", "content": "Say something"}]

    def streamed():
        chunks = client.completions.create(model=NAME, prompt=PROMPTS[1], max_tokens=20, temperature=1, seed=4,
                                           stream=True, extra_body={"ignore_eos": True})
        return "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)

    def schema():
        answer = client.chat.completions.create(
            model=NAME, messages=messages, max_tokens=40, temperature=1, seed=2,
            response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}})
        return answer.choices[0].message.content

    def beams():
        answer = server.post("/v1/completions", {"model": NAME, "prompt": PROMPTS[2], "max_tokens": 10, "n": 3,
                                                 "use_beam_search": True, "temperature": 0, "ignore_eos": True})
        assert answer.status_code == 200, answer.text
        return [choice["text"] for choice in answer.json()["choices"]]

    return at_once([
        lambda: ask(server, PROMPTS[0], logprobs=2).choices[0].model_dump(),
        lambda: client.chat.completions.create(model=NAME, messages=messages, max_tokens=12, temperature=0,
                                               extra_body={"ignore_eos": True}).choices[0].message.content,
        streamed,
        lambda: [choice.text for choice in ask(server, "abc", n=2, seed=3, temperature=1).choices],
        lambda: ask(server, "abc", **hot).choices[0].model_dump(),
        schema,
        beams,
    ])


def test_what_is_answered(start_ranks):
    server = start_ranks("--batch-invariant")
    log = server.read_log()
    assert "2 ranks, each Simulated CUDA device" in log and "recorded" in log and "rank 1 " in log, log
    answers = everything(server)
    assert 0 <= json.loads(answers[5])["n"] <= 99
    assert len(set(answers[6])) == 3
    for other in (server, start_ranks("--batch-invariant", QUIRE_CUDASIM_ORDER="reverse"),
                  start_ranks("--batch-invariant", "--enforce-eager"),
                  start_ranks("--batch-invariant", "--no-async-scheduling")):
        assert everything(other) == answers
    assert server.wait_idle()["kv_blocks_used"] == 0
    assert server.terminate() == 0


def test_ranks_as_one(start_ranks, start_server):
    """Up to the first choice that the rounding of sums may decide either way; NCCL's own sums round otherwise."""
    one = start_server("--device", "cuda-sim", *GPUS[4:], "--fast-sums", environment=MACHINE)
    assert "fast-sums: changes nothing here, it is for several GPUs that share each layer" in one.read_log()
    servers = one, start_ranks(), start_ranks("--fast-sums")
    compared = [0, 0]
    for prompt in PROMPTS:
        a, *others = (ask(server, prompt, logprobs=2).choices[0].logprobs for server in servers)
        for number, b in enumerate(others):
            for i, token in enumerate(a.tokens):
                best, second = sorted(a.top_logprobs[i].values(), reverse=True)[:2]
                if best - second < 0.2:
                    break
                assert b.tokens[i] == token and abs(b.token_logprobs[i] - a.token_logprobs[i]) < 0.2
                compared[number] += 1
    assert min(compared) >= 4
    assert len({ask(server, "a").system_fingerprint for server in servers}) == 3


@pytest.mark.variant
def test_blocks_that_are_swapped(start_ranks):
    """Each rank moves its part of a block."""
    def grow(server):
        return at_once([lambda seed=seed: tokens_of(ask(server, "abc", max_tokens=56, seed=seed, temperature=1,
                                                        logprobs=2)) for seed in range(4)])
    roomy = start_ranks("--batch-invariant", "--max-model-len", 64)
    tight = start_ranks("--batch-invariant", "--max-model-len", 64, "--kv-cache-memory-bytes", 6 * 4096,
                        "--swap-space", 0.001)
    assert grow(tight) == grow(roomy)
    metrics = tight.wait_idle()
    assert metrics["num_preemptions_total"] > 0 and metrics["kv_blocks_swapped_total"] > 0
    assert metrics["kv_blocks_used"] == 0


@pytest.mark.parametrize("kind, number, device", [
    ("graph", 0, 1), ("graph", 17, 0), ("graph", 60, 1), ("nccl", 0, 0), ("nccl", 7, 1),
    *(pytest.param(*each, marks=pytest.mark.variant)
      for each in (("graph", 0, 0), ("graph", 17, 1), ("graph", 60, 0), ("nccl", 0, 1), ("nccl", 7, 0)))])
def test_a_rank_fails(start_ranks, tmp_path, kind, number, device):
    """The other does not wait for it."""
    order = tmp_path / "failure"
    server = start_ranks(QUIRE_CUDASIM_FAIL_FILE=str(order), QUIRE_CUDASIM_FAULTY_DEVICE=str(device))
    clients = start_decoding(server)
    whole = order.with_suffix(".new")
    whole.write_text(f"{kind} {number}")
    os.rename(whole, order)
    assert [client.end() for client in clients] == DECODING_ENDS
    assert server.process.wait(20) == 70
    assert not order.exists()
    log = server.read_log()
    errors = [line for line in log.splitlines() if "ERROR" in line]
    assert len(errors) == 1 and "kernels/cuda/" in errors[0] and "the device failed" in log, log


def test_a_rank_that_hangs(start_ranks):
    """Some time after the start; the process waits for neither rank."""
    server = start_ranks(*WAIT, QUIRE_CUDASIM_HANG_AFTER="6000", QUIRE_CUDASIM_FAULTY_DEVICE="1")
    outcomes = at_once([lambda: plain_until_refused(server)] * 2 + [lambda: stream_until_refused(server)] * 2)
    assert server.process.wait(20) == 70
    assert [outcome for outcome, _ in outcomes] == [503, 503, "event", "event"]
    assert is_timeout(server.read_log())


def test_refused():
    for options, words in (((), "tensor-parallel-size: 2 ranks need a GPU each; there are 1 that this process may use"),
                           (("--tensor-parallel-size", 3), "3 ranks need a GPU each")):
        result = run("serve", *GPUS, *options, environment={**MACHINE, "QUIRE_CUDASIM_DEVICES": "1"})
        assert result.returncode == 78
        assert words in result.stderr, result.stderr
