"""The CUDA backend behind the real server, on the simulated GPU: a tiny model through block
tables, attention, sampling and all. Speed means nothing here."""

import json
import math
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from test_hostile_checkpoints import FORMS, Folder
from quire_server import BINARY, NAME, ROOT, QuireServer, clean_environment, free_port
from raw_http import connect, read_response, read_until, request_bytes

MODULE = BINARY.parents[1] / "kernels/cuda/libquire-cuda-sim.so"
TINY = ROOT / "tests/golden/tiny-bf16.gguf"
MIB = 1 << 20
MEMORY = 96 * MIB
SMALL = ("--model", TINY, "--max-model-len", 128, "--max-num-seqs", 4,
         "--max-num-batched-tokens", 32)
GPU = ("--device", "cuda-sim", *SMALL)
PROMPTS = ["Once upon a time", "The capital of", "abc", "0 1 2 3 4 5 6 7 8 9"]

pytestmark = pytest.mark.skipif(not MODULE.exists(), reason="the simulated device is not built")


def simulated(**variables):
    """The environment in which the simulated GPU is found."""
    variables = {"MEMORY": MEMORY, **variables}
    return {"LD_LIBRARY_PATH": str(MODULE.parent),
            **{f"QUIRE_CUDASIM_{name}": str(value) for name, value in variables.items()}}


@pytest.fixture
def start_gpu(start_server):
    """start_gpu(*arguments, FAIL_AFTER=...) -> QuireServer on a simulated GPU."""
    def start(*arguments, **variables):
        return start_server(*GPU, "--rank-process", "off", *arguments, environment=simulated(**variables))
    return start


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """As start_gpu() starts one, for what asks and no more."""
    server = QuireServer(tmp_path_factory.mktemp("gpu") / "server.log", *GPU, "--rank-process", "off", environment=simulated())
    yield server
    server.kill()


@pytest.fixture(scope="module")
def invariant(tmp_path_factory):
    server = QuireServer(tmp_path_factory.mktemp("invariant") / "server.log", *GPU, "--rank-process", "off", "--batch-invariant",
                         environment=simulated())
    yield server
    server.kill()


@pytest.fixture(scope="module")
def cpu(tmp_path_factory):
    server = QuireServer(tmp_path_factory.mktemp("cpu") / "server.log", "--device", "cpu", *SMALL)
    yield server
    server.kill()


def refuse(*arguments, environment=None, binary=BINARY):
    """Runs `quire serve` to its end; returns its status and the lines it wrote."""
    command = [binary, "serve", "--port", free_port(), *arguments]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                            timeout=60, env=clean_environment(**(environment or {})))
    return result.returncode, result.stderr.splitlines()


def at_once(calls):
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def ask(server, prompt, **fields):
    fields = {"max_tokens": 12, "extra_body": {"ignore_eos": True}, **fields}
    return server.complete(prompt, **fields)


def tokens_of(completion):
    return completion.choices[0].logprobs.tokens


# What it computes.

def test_greedy_tokens_are_those_of_the_cpu(gpu, cpu):
    """Up to the first choice that 8 bits of mantissa may decide either way."""
    prompts = [f"{prompt} {number}" for prompt in PROMPTS for number in range(4)]
    wanted, got = (at_once([lambda prompt=prompt: ask(server, prompt, logprobs=2, max_tokens=8)
                            for prompt in prompts]) for server in (cpu, gpu))
    compared = 0
    for a, b in zip((c.choices[0].logprobs for c in wanted), (c.choices[0].logprobs for c in got)):
        for i, token in enumerate(a.tokens):
            best, second = sorted(a.top_logprobs[i].values(), reverse=True)[:2]
            if best - second < 0.1:
                break
            assert b.tokens[i] == token
            assert abs(b.token_logprobs[i] - a.token_logprobs[i]) < 0.1
            compared += 1
    assert compared >= 20


def test_blocks_of_any_size(invariant, start_gpu):
    """Block tables lead to the same bits, however many tokens a block has."""
    prompts = [PROMPTS[3] * 2, PROMPTS[0]]
    runs = []
    for size in (16, 32, 64):
        gpu = invariant if size == 16 else start_gpu("--batch-invariant", "--block-size", size)
        runs.append(at_once([lambda prompt=prompt: ask(gpu, prompt, logprobs=2, max_tokens=40)
                             .choices[0].model_dump() for prompt in prompts]))
    assert runs[0] == runs[1] == runs[2]


def test_prompt_logprobs_are_those_of_the_cpu(gpu, cpu):
    wanted, got = (ask(server, PROMPTS[3] * 4, max_tokens=0, echo=True,
                       logprobs=3).choices[0].logprobs
                   for server in (cpu, gpu))
    assert got.tokens == wanted.tokens and len(got.tokens) > 32  # more than one step
    for a, b in zip(got.token_logprobs[1:], wanted.token_logprobs[1:]):
        assert abs(a - b) < 0.2


def test_streams_curl_and_sampling(gpu):
    whole = ask(gpu, PROMPTS[0]).choices[0].text
    stream = gpu.client().completions.create(model=NAME, prompt=PROMPTS[0], max_tokens=12,
                                              temperature=0, stream=True,
                                              extra_body={"ignore_eos": True})
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == whole
    body = json.dumps({"model": NAME, "prompt": PROMPTS[0], "max_tokens": 12, "temperature": 0,
                       "ignore_eos": True})
    curl = subprocess.run(["curl", "-sS", gpu.url + "/v1/completions", "-d", body],
                          capture_output=True, check=True, timeout=60)
    assert json.loads(curl.stdout)["choices"][0]["text"] == whole

    hot = {"temperature": 1.3, "top_p": 0.95, "frequency_penalty": 0.4, "presence_penalty": 0.2,
           "logprobs": 5, "extra_body": {"ignore_eos": True, "top_k": 60, "min_p": 0.001,
                                         "repetition_penalty": 1.1}}
    once, again, other = (tokens_of(ask(gpu, "abc", seed=seed, **hot)) for seed in (7, 7, 8))
    assert once == again != other
    biased = ask(gpu, "abc", logprobs=0, logit_bias={"65": 100})
    assert set(tokens_of(biased)) == {gpu.post("/detokenize", {"tokens": [65]}).json()["prompt"]}
    several = gpu.client().completions.create(model=NAME, prompt="abc", n=3, max_tokens=8, seed=1,
                                               temperature=1, extra_body={"ignore_eos": True})
    assert len({choice.text for choice in several.choices}) > 1


def test_logprobs(gpu):
    logprobs = ask(gpu, "abc", logprobs=20).choices[0].logprobs
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
        assert logprob == max(top.values()) == top[token]
        assert sum(map(math.exp, top.values())) <= 1.001


# Who shares the step does not matter, when that is requested.

def answers(server, together):
    calls = [lambda i=i: ask(server, PROMPTS[i % 4] + str(i), logprobs=2, max_tokens=20, seed=i,
                             temperature=i % 2).choices[0].model_dump() for i in range(7)]
    return at_once(calls) if together else [call() for call in calls]


def grow(server):
    """Each begins with a block and grows to a full sequence: in a pool of little more than one, some must give way,
    however slowly the threads start."""
    return at_once([lambda seed=seed: ask(server, "abc", max_tokens=56, seed=seed, temperature=1,
                                          logprobs=2).choices[0].model_dump() for seed in range(3)])


def test_batch_invariance_and_preemption(invariant, start_gpu):
    roomy = invariant
    tight = start_gpu("--batch-invariant", "--max-model-len", 64,
                       "--kv-cache-memory-bytes", 5 * 4096)
    alone = answers(roomy, together=False)
    for server in (roomy, tight):
        assert answers(server, together=True) == alone
    choices = [ask(server, PROMPTS[0], max_tokens=40, n=4, seed=3, temperature=1,
                   logprobs=2).model_dump()["choices"] for server in (roomy, tight)]
    assert choices[0] == choices[1]
    assert grow(tight) == grow(roomy)
    assert roomy.metrics()["num_preemptions_total"] == 0
    assert tight.metrics()["num_preemptions_total"] > 0


def test_fingerprints_differ(gpu, invariant, cpu, start_gpu):
    servers = [gpu, invariant, start_gpu("--dtype", "float16"), cpu]
    prints = {ask(server, "a", max_tokens=1).model_dump()["system_fingerprint"]
              for server in servers}
    assert len(prints) == 4 and all(text.startswith("quire-") for text in prints)


# What is chosen and recorded at start.

def timed(server):
    """Products that were timed, that were not, and that take another algorithm than the first."""
    found = re.search(r"products +(\d+) timed in \d+\.\d s, (\d+) untimed; (\d+) not by", server.read_log())
    return found and tuple(map(int, found.groups()))


def test_products_are_timed_at_start(start_gpu):
    """One that a start has chosen otherwise is another fingerprint, and an equal one for an equal choice. In the
    simulator our own product, the first for a few rows, is slower than cuBLASLt's."""
    plain, *chosen = (start_gpu(PRODUCTS=products) for products in ("", "takes:6:50", "takes:6:50"))
    num_timed, num_left, num_changed = timed(plain)
    assert num_timed > 20 and num_left == 0 and num_changed < num_timed
    assert timed(chosen[0])[2] > num_changed + 5 and timed(chosen[1]) == timed(chosen[0])
    prints = [ask(server, "a", max_tokens=1).system_fingerprint for server in (plain, *chosen)]
    assert prints[0] != prints[1] == prints[2]
    assert timed(start_gpu("--batch-invariant", PRODUCTS="takes:1:100")) is None


def test_a_replay_needs_the_same_choice(start_gpu, tmp_path):
    path = tmp_path / "record"
    server = start_gpu("--record", path, "--enforce-eager", PRODUCTS="takes:6:50")
    ask(server, PROMPTS[0])
    assert server.terminate() == 0
    same, other = (subprocess.run([BINARY, "replay", path], env=clean_environment(**simulated(PRODUCTS=products)),
                                  capture_output=True, text=True, timeout=100) for products in ("takes:6:50", ""))
    assert same.returncode == 0, same.stderr
    assert other.returncode == 78 and "numerics" in other.stderr and ", products " in other.stderr


def test_nothing_is_recorded_when_eager(invariant, start_gpu, start_server):
    """In this process and in one of the ranks' own: the same answers and fingerprint, and memory for more tokens."""
    recorded = invariant
    eager = [start_gpu("--batch-invariant", "--enforce-eager"),
             start_server(*GPU, "--batch-invariant", "--enforce-eager", environment=simulated())]
    assert "recorded" in parts(recorded)
    wanted = [ask(recorded, prompt, logprobs=2).choices[0].model_dump() for prompt in PROMPTS]
    for server in eager:
        assert "recorded" not in parts(server)
        assert [ask(server, prompt, logprobs=2).choices[0].model_dump() for prompt in PROMPTS] == wanted
        assert len({ask(other, "a", max_tokens=1).system_fingerprint for other in (recorded, server)}) == 1


@pytest.mark.parametrize("options, is_recorded", [((), True), (("--enforce-eager",), False)])
def test_a_plan_says_what_is_measured_at_start(options, is_recorded):
    plan = subprocess.run([BINARY, "inspect", TINY, "--plan", *map(str, GPU), *options], text=True, timeout=60,
                          capture_output=True, check=True, env=clean_environment(**simulated())).stdout
    lines = [line for line in plan.splitlines() if line.startswith("recorded ")]
    assert len(lines) == is_recorded and all("measured at start" in line for line in lines)


# Quantised keys and values.

@pytest.mark.parametrize("dtype", ["int8", "fp8"])
def test_quantised_kv_cache(cpu, start_gpu, dtype):
    """Nearly the logprobs of the CPU, and the same answers when sequences give way to one another."""
    options = ("--batch-invariant", "--kv-cache-dtype", dtype)
    gpu = start_gpu(*options)
    tight = start_gpu(*options, "--max-model-len", 64, "--kv-cache-memory-bytes", 4096 * 3)
    wanted, got = (ask(server, PROMPTS[3] * 4, max_tokens=0, echo=True, logprobs=0)
                   .choices[0].logprobs.token_logprobs[1:] for server in (cpu, gpu))
    assert wanted != got and max(abs(a - b) for a, b in zip(got, wanted)) < 0.5
    alone = answers(gpu, together=False)
    for server in (gpu, tight):
        assert answers(server, together=True) == alone
    assert grow(tight) == grow(gpu)
    assert tight.metrics()["num_preemptions_total"] > 0


# FP8 activations.

def test_fp8_activations(tmp_path, start_server):
    """Other logprobs than with activations of 16 bits, and the same answers alone and together. Rounding to E4M3 is off by
    some 2.6 % of an activation; the inputs of 4 products of the one layer are rounded, which makes 5 % of logits of about
    2.5: 0.13."""
    folder = Folder(FORMS / "compressed-fp8", tmp_path / "model")
    folder.write()
    options = ("--device", "cuda-sim", *SMALL, "--model", folder.path, "--rank-process", "off", "--batch-invariant")
    plain, rounded = (start_server(*options, *more, environment=simulated()) for more in ((), ("--fp8-activations",)))
    assert ", fp8 activations" in rounded.read_log() and ", fp8 activations" not in plain.read_log()
    wanted, got = (ask(server, PROMPTS[3] * 4, max_tokens=0, echo=True, logprobs=0)
                   .choices[0].logprobs.token_logprobs[1:] for server in (plain, rounded))
    assert 0.01 < math.sqrt(sum((a - b) ** 2 for a, b in zip(got, wanted)) / len(got)) < 0.25
    assert answers(rounded, together=True) == answers(rounded, together=False)
    assert len({ask(server, "a", max_tokens=1).system_fingerprint for server in (plain, rounded)}) == 2


def test_where_there_are_no_fp8_activations(start_gpu):
    assert "fp8-activations: changes nothing here" in start_gpu("--fp8-activations").read_log()
    for device, said in ((("cpu",), "needs an NVIDIA GPU of compute capability 8.9 or later"),
                         (("cuda-sim", "--gpu-isa", "sm_80"), "needs kernels of sm_89 or later")):
        status, lines = refuse("--device", *device, *SMALL, "--fp8-activations", environment=simulated())
        assert status == 78 and "fp8-activations: " in lines[-1] and said in lines[-1]


# Which device.

def test_devices_that_are_not_there(tmp_path, start_server):
    nowhere = {"LD_LIBRARY_PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    status, lines = refuse("--device", "cuda", *SMALL, environment=nowhere)
    assert status == 78 and len(lines) == 1 and "device cuda: " in lines[0]
    server = start_server("--device", "auto", *SMALL, environment=nowhere)
    log = server.read_log()
    assert "device     cpu" in log and "not cuda, because" in log


def test_a_machine_without_cuda(tmp_path, start_server):
    """The program alone, with no module in its run path: it needs nothing of CUDA to start."""
    assert str(MODULE.parent).encode() not in BINARY.read_bytes()  # the path begins where the program lies
    binary = shutil.copy(BINARY, tmp_path / "quire")
    libraries = subprocess.run(["ldd", binary], capture_output=True, check=True, text=True).stdout
    assert "libc.so" in libraries and "not found" not in libraries
    assert not re.search("cuda|cublas|nvidia|nvrtc|nccl", libraries, re.IGNORECASE)
    status, lines = refuse("--device", "cuda", *SMALL, binary=binary)
    assert status == 78 and lines[-1].endswith("the module libquire-cuda.so is not installed")
    server = start_server("--device", "auto", *SMALL, binary=binary)
    log = server.read_log()
    assert "device     cpu" in log and "libquire-cuda.so is not installed" in log
    assert ask(server, "abc").choices[0].text


def test_options_that_do_not_suit(start_server):
    status, lines = refuse(*GPU, "--kv-cache-dtype", "f32", environment=simulated())
    assert status == 78 and len(lines) == 1
    assert "kv-cache-dtype: f32" in lines[0] and "must be auto" in lines[0] and "bf16" in lines[0]
    server = start_server("--device", "cpu", *SMALL, "--dtype", "float16")
    assert "dtype float16: the CPU computes in float" in server.read_log()


# Memory.

def parts(server):
    """Part -> MiB, of the table printed at start."""
    return {name: float(mib) for name, mib in
            re.findall(r"INFO +(\S[a-zA-Z ]*?) +([0-9.]+) MiB", server.read_log())}


def test_memory_is_filled_and_reported(start_gpu):
    for utilization in (0.5, 0.9):
        table = parts(start_gpu("--gpu-memory-utilization", utilization))
        used = sum(table[part] for part in ("weights", "workspace", "overhead", "KV cache"))
        assert utilization * 96 - 0.3 < used < utilization * 96 + 0.3
        assert abs(table["left free"] + used - 96) < 0.3


def test_out_of_memory_says_what_and_how_much(start_gpu):
    table = parts(start_gpu())
    used = (table["weights"] + table["workspace"] + table["overhead"] - 0.15) * MIB  # at least: each is rounded
    for memory, arguments, said in [
        (MIB // 64, (), ("device's operations", "--max-num-batched-tokens")),
        (int(used / 0.9), (),
         ("for the KV cache", "--gpu-memory-utilization 0.9", "--max-model-len")),
        (MEMORY, ("--kv-cache-memory-bytes", "1G"), ("--kv-cache-memory-bytes: 1024.0 MiB",)),
        (MEMORY // 2, ("--max-num-batched-tokens", 65536),
         ("for the workspace", "MiB missing", "--max-num-batched-tokens")),
    ]:
        status, lines = refuse(*GPU, *arguments, environment=simulated(MEMORY=memory))
        assert status == (78 if arguments[:1] == ("--kv-cache-memory-bytes",) else 71), lines
        assert len(lines) == 1 and all(word in lines[0] for word in said), lines


def test_gpu_isa(start_server):
    server = start_server(*GPU, "--rank-process", "on", "--gpu-isa", "sm_80", environment=simulated())
    assert "sm_90, kernels of sm_80" in server.read_log()
    assert server.complete("Once upon a time", max_tokens=4).usage.completion_tokens == 4


@pytest.mark.parametrize("memory, step", [((70 << 30) - 1, "2048 tokens, 256 sequences"),
                                          (70 << 30, "8192 tokens, 1024 sequences")])
def test_a_large_gpu_computes_more_at_once(memory, step):
    plan = subprocess.run([BINARY, "inspect", TINY, "--plan", "--device", "cuda-sim"], text=True, timeout=60,
                          capture_output=True, check=True, env=clean_environment(**simulated(MEMORY=memory)))
    assert f" MiB for steps of {step}\n" in plan.stdout


# A GPU that fails.

@pytest.fixture(scope="module")
def start_kernels(tmp_path_factory):
    """How many kernels and products a start with --batch-invariant has, or a few more: found by trying. A try that was
    too low fails while loading."""
    fail_after, folder = 16, tmp_path_factory.mktemp("start")
    while True:
        try:
            QuireServer(folder / "server.log", *GPU, "--rank-process", "off", "--batch-invariant",
                        environment=simulated(FAIL_AFTER=fail_after)).kill()
            return fail_after
        except RuntimeError as refused:
            assert str(refused).startswith("exit status 70: "), refused
            assert is_device_error(str(refused))
        fail_after = fail_after * 5 // 4


def is_device_error(log):
    """One line that names the call that failed, and where."""
    errors = [line for line in log.splitlines() if "ERROR" in line]
    return len(errors) == 1 and re.search(r"kernels/cuda/[\w/]+\.c:\d+", errors[0]) is not None


def send(sock, **fields):
    sock.sendall(request_bytes("/v1/completions", {
        "model": NAME, "prompt": "abc", "max_tokens": 100, "ignore_eos": True, **fields}))


def plain_until_refused(server):
    """One completion after the other. Returns the status of the first that is not 200, and when."""
    while True:
        with connect(server) as sock:
            send(sock)
            response = read_response(sock)[0]
        if response.status != 200:
            assert "retry-after" in response.headers
            return response.status, time.monotonic()


def stream_until_refused(server):
    """Likewise; "event" for a stream that had begun."""
    while True:
        with connect(server) as sock:
            send(sock, stream=True)
            received = read_until(sock, b"\r\n\r\n")
            if not received.startswith(b"HTTP/1.1 200 "):
                return int(received.split()[1]), time.monotonic()
            received = read_until(sock, b"0\r\n\r\n", received)
        if b'"code":"engine_error"' in received:
            assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            return "event", time.monotonic()


@pytest.mark.parametrize("failure", ["FAIL_AFTER", "HANG_AFTER"])
def test_a_failing_gpu_is_a_pause(invariant, start_server, start_kernels, failure):
    """By default the GPU is a process's of its own: requests survive it, however often it fails."""
    body = {"model": NAME, "prompt": "abc", "max_tokens": 24, "ignore_eos": True, "temperature": 0}
    expected = invariant.post("/v1/completions", body).json()["choices"]
    server = start_server(*GPU, "--batch-invariant", "--device-timeout", 3,
                          environment=simulated(**{failure: start_kernels + 300}))
    assert server.post("/v1/completions", body).json()["choices"] == expected
    metrics = server.wait_idle()
    assert metrics["rank_restarts_total"] > 0 and metrics["kv_blocks_used"] == 0
    assert server.terminate() == 0


# A GPU that never finishes.

WAIT = ("--device-timeout", 3)


def is_timeout(log):
    errors = [line for line in log.splitlines() if "ERROR" in line]
    return len(errors) == 1 and "did not finish its work within 3 s (--device-timeout)" in errors[0]


def test_a_hanging_gpu_ends_everything(start_gpu, start_kernels):
    """Every client is answered once, and the process does not wait for the GPU that it leaves."""
    server = start_gpu("--batch-invariant", *WAIT, HANG_AFTER=start_kernels + 300)
    outcomes = at_once([lambda: plain_until_refused(server)] * 2 +
                       [lambda: stream_until_refused(server)] * 2)
    assert server.process.wait(20) == 70
    assert [outcome for outcome, _ in outcomes] == [503, 503, "event", "event"]
    log = server.read_log()
    assert is_timeout(log) and "the device failed" in log


def test_a_gpu_that_hangs_at_start():
    """In the dry run, whichever of its first kernels it is."""
    for kernels_before in (0, 5, 100):
        status, lines = refuse(*GPU, "--rank-process", "off", *WAIT, environment=simulated(HANG_AFTER=kernels_before))
        assert status == 70 and is_timeout("\n".join(lines)), lines
