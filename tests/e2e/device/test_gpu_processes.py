"""GPU ranks that are processes: `mpirun quire serve --device cuda-sim`. They answer what ranks that are threads do, to the byte,
send what docs/scale.md says, and one that is lost ends them all."""

import re
import signal

import pytest

from quire_server import ROOT
from test_command_line import run
from test_cuda_ranks import MACHINE, MODULE, everything
from test_cuda_sim import ask, at_once, tokens_of
from test_mpirun import MPIRUN, PLAIN_MPIRUN, TIMEOUT_S, check_lost_rank, needs_mpirun, settled, stop

pytestmark = [needs_mpirun, pytest.mark.skipif(not MODULE.exists(), reason="the simulated device is not built")]

MODEL = ROOT / "tests/golden/families/llama3.gguf"
HIDDEN_SIZE, NUM_LAYERS, ACTIVATION_BYTES = 64, 2, 2
BLOCK = 4096  # bytes of both KV heads
GPUS = ("--device", "cuda-sim", "--model", MODEL, "--batch-invariant", "--max-model-len", 256, "--max-num-seqs", 8,
        "--max-num-batched-tokens", 64, "--swap-space", 0.001)
FEW = "--kv-cache-memory-bytes", 18 * BLOCK
FEW_OF_FOUR = "--kv-cache-memory-bytes", 36 * BLOCK  # each KV head is on two ranks
ROOMY = "--kv-cache-memory-bytes", 256 * BLOCK
SPECULATION = "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}'
variant = pytest.mark.variant


def machine(num_devices):
    return {**MACHINE, "QUIRE_CUDASIM_DEVICES": str(num_devices)}


@pytest.fixture
def start_threads(start_server):
    def start(count, *options, stages=1):
        return start_server(*GPUS, "--rank-process", "off", "--tensor-parallel-size", count, "--pipeline-parallel-size", stages,
                            *options, environment=machine(count * stages))
    return start


@pytest.fixture
def start_ranks(start_server):
    def start(count, *options, stages=1, launcher=(), num_devices=None):
        number = count * stages
        return start_server(*GPUS, "--tensor-parallel-size", count, "--pipeline-parallel-size", stages, *options,
                            launcher=[*MPIRUN, "-n", number, *launcher], environment=machine(num_devices or number))
    return start


def answers(server):
    """The second time prefixes are cached. Four long ones have not all room at once where blocks are few."""
    first = everything(server)
    assert everything(server) == first
    long = at_once([lambda seed=seed: tokens_of(ask(server, "abc", max_tokens=90, seed=seed, temperature=1, logprobs=0)) for seed in range(4)])
    return first, long, server.complete("a", max_tokens=1).system_fingerprint


@pytest.mark.parametrize("count, stages, options", [
    (2, 2, (*FEW, *SPECULATION)),
    pytest.param(2, 1, (*FEW, *SPECULATION), marks=variant),
    pytest.param(2, 1, (*ROOMY, "--enforce-eager"), marks=variant),
    pytest.param(2, 1, (*ROOMY, "--no-async-scheduling"), marks=variant),
    pytest.param(4, 1, FEW_OF_FOUR, marks=variant),
    pytest.param(4, 1, (*FEW_OF_FOUR, *SPECULATION), marks=variant),
    pytest.param(2, 2, (*ROOMY, "--enforce-eager"), marks=variant),
    pytest.param(1, 2, (*FEW, "--no-async-scheduling"), marks=variant)],
    ids=["two by two", "two", "two eager", "two without async", "four", "four speculation", "two by two eager", "two stages"])
def test_what_threads_answer(start_threads, start_ranks, count, stages, options):
    threads = start_threads(count, *options, stages=stages)
    expected = answers(threads)
    threads.kill()
    ranks = start_ranks(count, "--rank-timeout", 3600, *options, stages=stages)
    assert answers(ranks) == expected
    metrics = ranks.wait_idle()
    assert metrics["kv_blocks_used"] == 0
    assert metrics["prefix_cache_hits_total"] > 0
    if ROOMY[1] not in options:
        assert metrics["kv_blocks_swapped_total"] > 0
    assert stop(ranks) == 0


@variant
def test_stages_change_no_byte(start_threads):
    """Nor do the threads of two stages of two ranks."""
    for count in 1, 2:
        whole = start_threads(count, *ROOMY)
        expected = answers(whole)
        whole.kill()
        assert answers(start_threads(count, *ROOMY, stages=2)) == expected


@variant
def test_four_stages(start_threads, start_ranks):
    """Of a model with five layers."""
    options = *ROOMY, "--model", MODEL.with_name("smollm3.gguf")
    threads = start_threads(1, *options, stages=4)
    expected = answers(threads)
    threads.kill()
    ranks = start_ranks(1, "--rank-timeout", 3600, *options, stages=4)
    assert answers(ranks) == expected
    assert stop(ranks) == 0


FAST = "--no-batch-invariant", "--fast-sums"


@pytest.mark.parametrize("count, stages, options", [
    (2, 2, ()), *(pytest.param(*each, marks=variant) for each in ((2, 1, ()), (4, 1, ()), (1, 2, ()), (2, 1, FAST), (4, 1, FAST)))])
def test_bytes_sent(start_ranks, count, stages, options):
    """As docs/scale.md counts them, in recorded steps too: of tokens at temperature 0, and one that is drawn from all."""
    server = start_ranks(count, *ROOMY, "--no-enable-prefix-caching", "--rank-timeout", 3600, *options, stages=stages)
    before, tokens_before = settled(server)
    reply = server.complete("Once upon a time", max_tokens=20, extra_body={"ignore_eos": True})
    after, tokens_after = settled(server)
    num_tokens, num_sampled = tokens_after - tokens_before + 19, 21
    assert reply.usage.completion_tokens == 20
    token_bytes = HIDDEN_SIZE * ACTIVATION_BYTES
    plan = run("inspect", MODEL, "--plan", *GPUS, *options, "--tensor-parallel-size", count, "--pipeline-parallel-size", stages,
               environment=machine(count * stages)).stdout
    planned = re.findall(r"rank \d +sends (\d+) bytes for a token, (\d+) for one sampled", plan)
    for rank in range(count * stages):
        is_first, is_last, is_sampler = rank < count, rank >= count * (stages - 1), rank % count == 0
        num_sums = 2 * NUM_LAYERS // stages + is_first
        sum_bytes = token_bytes * (count - 1) * (2 if options else count) // count
        each = num_sums * sum_bytes + token_bytes * (not is_last)
        greedy = drawn = 0
        if is_last and count > 1:
            greedy = 8 if not is_sampler else 4 * (count - 1) if stages == 1 else 0  # stages wait for a token
            drawn = 16 * (count - 1)
        assert after[str(rank), None] - before[str(rank), None] == num_tokens * each + num_sampled * greedy + drawn
        assert planned[rank] == (str(each), str(each + greedy + drawn))
    assert stop(server) == 0


@pytest.mark.parametrize("count, stages, rank, how", [
    (2, 1, 1, signal.SIGKILL), *(pytest.param(*each, marks=variant) for each in (
        (2, 1, 0, signal.SIGSTOP), (2, 1, 0, signal.SIGKILL), (2, 1, 1, signal.SIGSTOP), (4, 1, 3, signal.SIGKILL),
        (4, 1, 2, signal.SIGSTOP), (2, 2, 1, signal.SIGKILL), (2, 2, 2, signal.SIGSTOP), (1, 2, 0, signal.SIGSTOP)))])
def test_a_lost_rank_ends_all(start_ranks, count, stages, rank, how):
    server = start_ranks(count, *ROOMY, "--max-model-len", 1024, "--rank-timeout", TIMEOUT_S, stages=stages)
    check_lost_rank(server, rank, how, count * stages, max_tokens=1000)


def test_one_gpu_for_each(start_ranks):
    """A launcher may show each process only its own GPU. Two ranks cannot have the same one."""
    own = "bash", "-c", 'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec "$@"', "bash"
    server = start_ranks(2, *ROOMY, launcher=own, num_devices=1)
    assert server.complete("a", max_tokens=2).choices[0].text
    assert stop(server) == 0
    for num_devices, count, words in ((1, 2, "two of them may have the same GPU"), (2, 3, "3 ranks need a GPU each; there are 2")):
        result = run("serve", *GPUS, "--tensor-parallel-size", count, launcher=[*PLAIN_MPIRUN, "-n", count],
                     environment=machine(num_devices))
        assert result.returncode not in (0, None)
        assert words in result.stderr, result.stderr
