"""`quire serve --record` and `quire replay`: a load of all kinds is run again with the same bits, and what is not the
same is named. QUIRE_TEST_REPLAY_REQUESTS sets how many requests there are."""

import asyncio
import json
import os
import random
import shutil
import stat
import subprocess

import httpx
import pytest

from quire_server import BINARY, MODEL, NAME, ROOT, clean_environment

NUM_REQUESTS = int(os.environ.get("QUIRE_TEST_REPLAY_REQUESTS", 60))
# A pool that is too small for the load, host blocks to swap to, and drafts.
OPTIONS = ("--max-model-len", 256, "--kv-cache-memory-bytes", "12M", "--swap-space", "0.1", "--max-num-seqs", 32,
           "--max-queued-requests", 2000, "--max-connections", 2000, "--max-connections-per-ip", 0,
           "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}')
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}
TEXT = "The sea is wide and the sea is deep, and whoever looks at it for long begins to count the waves. "


def chat(draw, text, **fields):
    messages = [{"role": "system", "content": "You answer in one sentence."}, {"role": "user", "content": text}]
    return "/v1/chat/completions", {"messages": messages, "max_tokens": draw.randint(1, 40), "temperature": 0.8,
                                    **fields}


def completion(draw, text, **fields):
    return "/v1/completions", {"prompt": text, "max_tokens": draw.randint(1, 40), "temperature": 0.8, **fields}


def draw_call(number):
    """Path and body of one of many kinds of API calls, most of them of a seed that the server chooses."""
    draw = random.Random(number)
    text = f"{TEXT * draw.randint(0, 4)}Number {draw.randint(1, 30)}:"
    kinds = [
        lambda: chat(draw, text),
        lambda: chat(draw, text, seed=number, logprobs=True, top_logprobs=draw.randint(0, 5)),
        lambda: chat(draw, text, max_tokens=60,
                     response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}),
        lambda: completion(draw, text, n=draw.randint(2, 5), stop=["\n", " the"]),
        lambda: completion(draw, text, n=2, best_of=4, use_beam_search=True, temperature=0),
        lambda: completion(draw, text, presence_penalty=0.5, frequency_penalty=0.5, repetition_penalty=1.1),
        lambda: completion(draw, text, temperature=0, max_tokens=100, ignore_eos=True),
        lambda: completion(draw, text, max_tokens=140, ignore_eos=True),
        lambda: completion(draw, f"Number {number}:", max_tokens=200, ignore_eos=True),
        lambda: completion(draw, text, prompt_logprobs=2, logprobs=3, max_tokens=4),
        lambda: completion(draw, text, logit_bias={"11": 5, "30": -100}, max_tokens=20, min_tokens=3, bad_words=["sea"]),
        lambda: completion(draw, text, allowed_token_ids=list(range(300, 400)), cache_salt=f"salt {number % 3}"),
        lambda: completion(draw, text, priority=draw.randint(-3, 3), timeout_ms=draw.choice([300, 60000])),
        lambda: ("/v1/embeddings", {"input": text, "pooling": draw.choice(["mean", "last"])}),
    ]
    path, body = draw.choice(kinds)()
    return path, {"model": NAME, **body}


async def ask(client, number, gate):
    """Sends it; some clients hang up, and some read a stream."""
    path, body = draw_call(number)
    draw = random.Random(-number)
    cannot = "embeddings" in path or "use_beam_search" in body or "prompt_logprobs" in body
    streams = draw.random() < 0.3 and not cannot
    async with gate:
        try:
            answer = await client.post(path, json={**body, "stream": streams},
                                       timeout=draw.uniform(0.05, 1) if draw.random() < 0.1 else 300)
        except httpx.TimeoutException:
            return "hung up"
        assert answer.status_code != 400, answer.text
        return answer.status_code


def run_load(server, count):
    async def load():
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=server.url, limits=limits) as client:
            gate = asyncio.Semaphore(48)
            return await asyncio.gather(*[ask(client, number, gate) for number in range(count)])
    return asyncio.run(load())


def replay(path, *arguments):
    return subprocess.run([str(word) for word in (BINARY, "replay", path, *arguments)], capture_output=True, text=True,
                          timeout=600, env=clean_environment())


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """The path of a recording of the load."""
    from quire_server import QuireServer
    folder = tmp_path_factory.mktemp("recording")
    path = folder / "record"
    server = QuireServer(folder / "server.log", *OPTIONS, "--record", path)
    try:
        answers = run_load(server, NUM_REQUESTS)
        assert set(answers) <= {200, 408, 503, "hung up"} and answers.count(200) > NUM_REQUESTS / 2
        metrics = server.wait_idle()
        print({name: metrics[name] for name in ("num_preemptions_total", "kv_blocks_swapped_total")})
        assert metrics["num_preemptions_total"] > 0 and metrics["kv_blocks_swapped_total"] > 0
        assert metrics["spec_decode_num_draft_tokens_total"] > 0 and metrics["prefix_cache_hits_total"] > 0
        assert metrics["recording"] == 1 and metrics["recorded_bytes_total"] > 0
        assert server.terminate() == 0
    finally:
        server.kill()
    return path


def test_runs_again_bit_for_bit(recording):
    result = replay(recording)
    print(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("equal: ") and " (0 open at the end)" in result.stdout
    assert int(result.stdout.split(" requests")[0].split()[-1]) > NUM_REQUESTS / 2


@pytest.mark.variant
def test_drafts_of_a_model_run_again(start_server, tmp_path):
    """The draft model lies at another path then; another one is refused."""
    path, draft, other = (tmp_path / name for name in ("record", "draft.gguf", "other.gguf"))
    shutil.copy(MODEL, draft)
    config = {"model": str(draft), "num_speculative_tokens": 4, "prompt_lookup_max": 32}
    server = start_server(*OPTIONS[:-2], "--speculative-config", json.dumps(config), "--record", path)
    answers = run_load(server, 12)
    assert set(answers) <= {200, 408, 503, "hung up"} and answers.count(200) > 6
    assert server.wait_idle()["spec_decode_num_draft_tokens_total"] > 0
    assert server.terminate() == 0
    result = replay(path)
    assert result.returncode == 0 and result.stdout.startswith("equal: "), result.stdout + result.stderr
    draft.rename(other)
    assert "speculative-config: model: " in replay(path).stderr
    moved = "--speculative-config", json.dumps({**config, "model": str(other)})
    assert replay(path, *moved).returncode == 0
    change_weight(other)
    result = replay(path, *moved)
    assert result.returncode == 78 and "draft" in result.stderr, result.stderr


def test_only_its_owner_reads_it(recording):
    assert stat.S_IMODE(recording.stat().st_mode) == 0o600


def test_other_arithmetic_is_named(recording):
    result = replay(recording, "--cpu-isa", "portable")
    assert result.returncode == 78
    assert "numerics" in result.stderr and '"portable' in result.stderr and "--cpu-isa" in result.stderr


def change_weight(model):
    with open(model, "r+b") as file:
        file.seek(-1000, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1000, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def test_a_changed_weight_is_named(recording, tmp_path):
    model = tmp_path / "model.gguf"
    shutil.copy(MODEL, model)
    change_weight(model)
    result = replay(recording, "--model", model)
    assert result.returncode == 78
    assert "the weights are not the same" in result.stderr


def test_a_changed_byte_is_named(recording, tmp_path):
    damaged = tmp_path / "damaged"
    data = bytearray(recording.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    result = replay(damaged)
    assert result.returncode in (0, 78), result.stdout + result.stderr
    if result.returncode == 78:
        assert "is damaged" in result.stderr and "at byte" in result.stderr
    else:  # it was a length's: what is left is taken for a record that is not whole
        assert "the file ends within a record" in result.stdout


def test_what_a_crash_left_runs(recording, tmp_path):
    cut = tmp_path / "cut"
    cut.write_bytes(recording.read_bytes()[:-7])
    result = replay(cut)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "the file ends within a record" in result.stdout


def test_a_killed_server_leaves_a_recording(start_server, tmp_path):
    server = start_server("--record", tmp_path / "record")
    server.complete("One, two,", max_tokens=5)
    recorded = server.metrics()["recorded_bytes_total"]
    server.wait_for(lambda _: (tmp_path / "record").stat().st_size >= recorded)
    server.kill()
    result = replay(tmp_path / "record")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("ranks", ["on", "off"])
def test_a_chat_template_of_its_own(start_server, tmp_path, ranks):
    """Prompts are recorded as tokens: the file need not be there any more."""
    template, path = tmp_path / "template.jinja", tmp_path / "record"
    template.write_text("{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}")
    server = start_server("--record", path, "--chat-template", template, "--rank-process", ranks)
    prints = {server.complete("One, two,", max_tokens=5).system_fingerprint}
    assert server.post("/v1/chat/completions", {"model": NAME, "messages": [{"role": "user", "content": "Hello"}],
                                                "max_tokens": 5}).status_code == 200
    assert server.terminate() == 0
    template.unlink()
    result = replay(path)
    assert result.returncode == 0, result.stdout + result.stderr
    prints.add(start_server("--rank-process", ranks).complete("One, two,", max_tokens=5).system_fingerprint)
    assert len(prints) == 2


def test_rotates_when_nothing_runs(start_server, tmp_path):
    path, old = tmp_path / "record", tmp_path / "record.1"
    server = start_server("--record", path, "--record-max-bytes", "1M", "--generation-config", "none")
    begun = 0
    while not old.exists():
        server.complete(f"{begun} " + TEXT, n=8, max_tokens=20, logprobs=5,
                        extra_body={"ignore_eos": True, "allowed_token_ids": list(range(8000))})
        begun += 1
        assert begun < 200
    server.complete("After that:", max_tokens=5)
    assert server.terminate() == 0
    assert path.stat().st_size <= 512 * 1024 and old.stat().st_size <= 512 * 1024
    for file in (old, path):
        result = replay(file)
        assert result.returncode == 0, result.stdout + result.stderr


def test_a_server_started_again_keeps_the_recording(start_server, tmp_path):
    path = tmp_path / "record"
    for _ in range(2):
        server = start_server("--record", path)
        server.complete("One, two,", max_tokens=5)
        assert server.terminate() == 0
    assert replay(path).returncode == 0 and replay(tmp_path / "record.1").returncode == 0


def test_a_server_that_does_not_start_keeps_the_recordings(start_server, tmp_path):
    path = tmp_path / "record"
    server = start_server("--record", path)
    server.complete("One, two,", max_tokens=5)
    assert server.terminate() == 0
    before = path.read_bytes()
    (tmp_path / "record.1").write_bytes(before)
    command = [str(BINARY), "serve", str(tmp_path / "none.gguf"), "--port", "0", "--record", str(path)]
    assert subprocess.run(command, capture_output=True, timeout=60, env=clean_environment()).returncode == 78
    assert path.read_bytes() == before and (tmp_path / "record.1").read_bytes() == before


def test_other_files_are_not_overwritten(tmp_path):
    other = tmp_path / "novel.txt"
    other.write_text("It was a dark and stormy night.")
    command = [str(BINARY), "serve", "--model", str(MODEL), "--port", "0", "--record", str(other)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment())
    assert result.returncode == 78 and "exists and is not a recording" in result.stderr
    assert other.read_text() == "It was a dark and stormy night."


def test_a_full_disk_stops_the_recording_alone(start_server, tmp_path):
    """/dev/full cannot be renamed: a file-size limit stands for it."""
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / "record"
    server = start_server("--record", path, "--generation-config", "none")
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (path.stat().st_size + 4096, hard))
    for number in range(100):
        assert server.complete(f"{number} " + TEXT, n=8, max_tokens=60, logprobs=5,
                               extra_body={"ignore_eos": True}).choices[0].text
        if server.metrics()["recording"] == 0:
            break
    assert server.metrics()["recording"] == 0
    assert server.complete("And then", max_tokens=5).choices[0].text
    assert server.terminate() == 0
    assert replay(path).returncode == 0


def test_refuses_what_is_no_recording(tmp_path):
    for arguments, status in (((ROOT / "README.md",), 78), ((tmp_path / "absent",), 78), ((), 64),
                              ((ROOT / "README.md", "--max-num-seqs", 3), 64)):
        result = subprocess.run([str(word) for word in (BINARY, "replay", *arguments)], capture_output=True, text=True,
                                timeout=60, env=clean_environment())
        assert result.returncode == status and result.stderr
