"""Speculation: the same answers with and without it, to the byte, and it is used where text repeats."""

import json
import shutil
import struct
import subprocess
import sys

import httpx
import pytest

from quire_server import BINARY, MODEL, NAME, ROOT, QuireServer
from test_load import gather, prompt_of, seeded

sys.path.insert(0, str(ROOT / "scripts/golden"))
from gguf_llama import Reader, pack_string, padding  # noqa: E402

CONFIG = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 8, "prompt_lookup_min": 1}'
REPEATED = "one two three four five six seven eight nine ten, " * 6
CODE = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n\n\ndef mul(a, b):\n"
SCHEMA = {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}, "maxItems": 3}},
          "required": ["names"], "additionalProperties": False}


def completion(client, prompt, **fields):
    """All of the answer's choices but what names the request."""
    async def ask():
        extra = {"ignore_eos": True, **fields.pop("extra_body", {})}
        answer = await client.completions.create(model=NAME, prompt=prompt, extra_body=extra,
                                                 **{"max_tokens": 60, "seed": 7, **fields})
        return [choice.model_dump() for choice in answer.choices], answer.usage.completion_tokens
    return ask()


def chat(client, **fields):
    async def ask():
        answer = await client.chat.completions.create(
            model=NAME, messages=[{"role": "user", "content": "Name three colours, then the same three again."}],
            max_tokens=60, seed=7, **fields)
        return [choice.model_dump() for choice in answer.choices], answer.usage.completion_tokens
    return ask()


def load(client):
    schema = {"type": "json_schema", "json_schema": {"name": "names", "schema": SCHEMA}}
    calls = [seeded(client, number) for number in range(6)]
    for prompt in (REPEATED, CODE):
        for temperature in (0, 0.8):
            calls += [
                completion(client, prompt, temperature=temperature, logprobs=3),
                completion(client, prompt, temperature=temperature, frequency_penalty=0.5, presence_penalty=0.3),
                completion(client, prompt, temperature=temperature, n=3),
                completion(client, prompt, temperature=temperature, stop=[" nine", "return"]),
                completion(client, prompt, temperature=temperature, logit_bias={"30": -5, "28": 2}),
                completion(client, prompt, temperature=temperature, extra_body={"min_p": 0.05, "top_k": 40,
                                                                               "repetition_penalty": 1.1}),
            ]
    return calls + [completion(client, REPEATED, n=2, best_of=4, extra_body={"use_beam_search": True}),
                    chat(client, temperature=0), chat(client, temperature=0.8, response_format=schema)]


@pytest.fixture(scope="module")
def expected(shared_server):
    return gather(shared_server, load)


@pytest.mark.parametrize("arguments", [[], ["--no-async-scheduling"], ["--max-model-len", 256,
                                                                      "--kv-cache-memory-bytes", "16M"]])
def test_speculation_never_changes_the_output(start_server, expected, arguments):
    server = start_server("--speculative-config", CONFIG, *arguments)
    assert gather(server, load) == expected
    for _ in range(4):  # whether drafts pay is measured: a busy machine takes longer to find that they do
        metrics = server.wait_idle()
        if metrics["spec_decode_num_accepted_tokens_total"] > 0:
            break
        assert gather(server, load) == expected
    assert metrics["kv_blocks_used"] == 0
    assert metrics["spec_decode_num_accepted_tokens_total"] > 0
    if "--max-model-len" in arguments:
        assert metrics["num_preemptions_total"] > 0


def test_drafts_are_counted(start_server):
    server = start_server("--speculative-config", CONFIG)
    server.complete(REPEATED, max_tokens=100, temperature=0, extra_body={"ignore_eos": True})
    metrics = server.wait_idle()
    drafts, tokens, accepted = (metrics[f"spec_decode_num_{name}_total"]
                                for name in ("drafts", "draft_tokens", "accepted_tokens"))
    assert 0 < accepted <= tokens <= 5 * drafts
    assert metrics["spec_decode_num_accepted_tokens_per_pos_total"] == accepted
    assert metrics["spec_decode_draft_acceptance_rate"] == pytest.approx(accepted / tokens)


# Draft models: the model with its weights as F32, which is slow, has the usual file of 4 bits as its draft model, which is
# as good and costs a fraction.

def draft_config(model, num_tokens=4):
    """Of n-grams only those of 32 tokens count, so that what is accepted is the draft model's."""
    return json.dumps({"model": str(model), "num_speculative_tokens": num_tokens, "prompt_lookup_max": 32})


def stream(client, number, temperature):
    """The text of a stream, whose prompt repeats nothing."""
    async def ask():
        pieces = await client.completions.create(
            model=NAME, prompt=prompt_of(number), max_tokens=40, temperature=temperature, seed=number, stream=True,
            extra_body={"ignore_eos": True})
        return "".join([piece.choices[0].text async for piece in pieces if piece.choices])
    return ask()


def streams(client):
    return [stream(client, number, temperature) for number in range(4) for temperature in (0, 0.7, 1)]


def one_stream(temperature):
    return lambda client: [stream(client, 1, temperature)]


def answer_all(server):
    """Streams at once, then one after the other, where drafts pay most."""
    return [gather(server, make_calls) for make_calls in (streams, *map(one_stream, (0, 0.7, 1)))]


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    path = tmp_path_factory.mktemp("wide") / "wide.gguf"
    subprocess.run([BINARY, "quantize", MODEL, path, "--type", "F32", "--allow-requantize"], check=True, capture_output=True)
    yield path
    shutil.rmtree(path.parent)  # 0.5 GB


@pytest.fixture(scope="module")
def answers(wide, tmp_path_factory):
    """Those without drafts."""
    server = QuireServer(tmp_path_factory.mktemp("plain") / "server.log", "--model", wide)
    try:
        return answer_all(server)
    finally:
        server.kill()


def accepted_by(server, temperature, answer):
    """What the streams of a temperature add to the accepted drafts; 0 after several tries: none were made or right."""
    begun = server.wait_idle()["spec_decode_num_accepted_tokens_total"]
    for _ in range(4):  # as above
        assert gather(server, one_stream(temperature)) == answer
        accepted = server.wait_idle()["spec_decode_num_accepted_tokens_total"] - begun
        if accepted > 0:
            break
    return accepted


@pytest.mark.parametrize("arguments", [
    [], ["--rank-process", "on"], ["--max-model-len", 256, "--kv-cache-memory-bytes", "24M", "--swap-space", "0.1"]],
    ids=["threads", "rank process", "preempted"])
def test_a_draft_model_never_changes_the_output(wide, answers, start_server, arguments):
    server = start_server("--model", wide, "--speculative-config", draft_config(MODEL), *arguments)
    assert f"draft      {MODEL}: llama, " in server.read_log()
    assert accepted_by(server, 1, answers[3]) > 0  # the first drafts are made whatever they cost
    assert answer_all(server) == answers
    metrics = server.wait_idle()
    assert metrics["spec_decode_num_accepted_tokens_total"] <= metrics["spec_decode_num_draft_tokens_total"]
    assert metrics["kv_blocks_used"] == 0
    if "--max-model-len" in arguments:
        assert metrics["num_preemptions_total"] > 0


def shorten(source, target, num_layers):
    """Writes the model without its last layers. Their bytes stay in the file, and belong to no tensor."""
    reader = Reader(source)
    reader.at = 4
    _, num_tensors, num_entries = reader.take("IQQ")
    begin = reader.at
    for _ in range(num_entries):
        reader.string()
        reader.value(reader.take("I"))
    metadata = bytearray(reader.data[begin:reader.at])
    at = metadata.index(pack_string("llama.block_count")) + len(pack_string("llama.block_count")) + 4
    metadata[at:at + 4] = struct.pack("<I", num_layers)
    kept = []
    for _ in range(num_tensors):
        begin, name = reader.at, reader.string()
        for _ in range(reader.take("I")):
            reader.take("Q")
        reader.take("IQ")
        if not name.startswith("blk.") or int(name.split(".")[1]) < num_layers:
            kept.append(reader.data[begin:reader.at])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(kept), num_entries) + metadata + b"".join(kept)
    target.write_bytes(head + bytes(padding(len(head))) + reader.data[reader.at + padding(reader.at):])


def test_drafts_that_are_wrong_never_change_the_output(wide, answers, expected, start_server, tmp_path):
    """A draft model of three layers knows little, and has another shape."""
    path = tmp_path / "short.gguf"
    shorten(MODEL, path, 3)
    slow = start_server("--model", wide, "--speculative-config", draft_config(path, 16))
    assert answer_all(slow) == answers
    assert slow.wait_idle()["kv_blocks_used"] == 0
    slow.kill()
    server = start_server("--speculative-config", draft_config(path, 16))
    assert gather(server, load) == expected
    assert server.wait_idle()["kv_blocks_used"] == 0


def test_a_draft_model_with_all_kinds_of_requests(expected, start_server):
    server = start_server("--speculative-config", draft_config(MODEL))
    assert gather(server, load) == expected
    assert server.wait_idle()["kv_blocks_used"] == 0


def test_a_draft_model_has_memory_of_its_own(start_server):
    server = start_server("--speculative-config", draft_config(MODEL), "--enable-admin")
    info = httpx.get(server.url + "/server_info").json()
    assert info["model"]["draft"] == str(MODEL)
    memory = info["memory_bytes"]
    assert memory["weights"] * 0.9 < memory["draft"] < 2 * (memory["weights"] + memory["workspace"])
    assert " MiB of the draft model" in server.read_log()


def test_no_drafts_without_the_option(server):
    assert "spec_decode" not in httpx.get(server.url + "/metrics").text


@pytest.mark.variant
def test_no_async_scheduling(start_server, expected):
    assert gather(start_server("--no-async-scheduling"), load) == expected
