"""Models as people have them: Hugging Face folders and GGUF files of several families, what their
authors recommend, and the plan of memory before anything is loaded."""

import json
import re
import shutil

import httpx
import pytest

from quire_server import NAME, ROOT
from test_command_line import assert_refused, run

FAMILIES = ROOT / "tests/golden/families"
LLAMA = FAMILIES / "llama"  # one file of weights; the others are in parts
SMALL = ("--device", "cpu", "--max-model-len", 256, "--max-num-seqs", 4,
         "--kv-cache-memory-bytes", "4M")


@pytest.fixture
def start(start_server):
    return lambda model, *arguments: start_server("--model", model, *SMALL, *arguments)


@pytest.fixture
def folder(tmp_path):
    """A copy to break."""
    return shutil.copytree(LLAMA, tmp_path / "broken-1.5B")


def tokens(server, prompt="The quick brown fox", **fields):
    fields = {"max_tokens": 24, "logprobs": 0, "extra_body": {"ignore_eos": True}, **fields}
    return server.complete(prompt, **fields).choices[0].logprobs.tokens


@pytest.mark.parametrize("family", ["llama", "gemma2", "phi3", "olmo2", "granite"])
def test_folder_and_gguf_say_the_same(start, family):
    folder, file = start(FAMILIES / family), start(FAMILIES / f"{family}.gguf")
    assert tokens(folder) == tokens(file)
    stream = folder.client().completions.create(model=NAME, prompt="The quick brown fox",
                                                max_tokens=24, temperature=0, stream=True,
                                                extra_body={"ignore_eos": True})
    text = "".join(chunk.choices[0].text for chunk in stream if chunk.choices)
    assert text == file.complete("The quick brown fox", max_tokens=24,
                                 extra_body={"ignore_eos": True}).choices[0].text


def test_quantised_while_loading(start):
    model = ROOT / "tests/golden/tiny-f32.gguf"
    plain, int8 = start(model), start(model, "--quantization", "int8")
    weights = [float(re.search(r"weights +([\d.]+) MiB", server.read_log())[1])
               for server in (plain, int8)]
    assert weights[1] < weights[0]
    prints = {server.complete("a", max_tokens=1).model_dump()["system_fingerprint"]
              for server in (plain, int8)}
    assert len(prints) == 2
    got = [server.complete("The quick", max_tokens=1, logprobs=5).choices[0].logprobs
           for server in (plain, int8)]
    assert abs(got[0].token_logprobs[0] - got[1].token_logprobs[0]) < 0.2


def test_fingerprint(start, tmp_path):
    model, other = ROOT / "tests/golden/tiny-f32.gguf", tmp_path / "tiny-f32.gguf"
    content = bytearray(model.read_bytes())
    content[-4] ^= 1  # the least bit of the last weight
    other.write_bytes(content)
    servers = [start(model), start(model), start(other), start(model, "--kv-cache-dtype", "f16")]
    prints = [server.complete("a", max_tokens=1).model_dump()["system_fingerprint"]
              for server in servers]
    assert re.fullmatch("quire-[0-9a-f]{16}", prints[0])
    assert prints[0] == prints[1] and len(set(prints)) == len(prints) - 1


# What the authors of a model recommend.

def recommend(folder, **fields):
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def seeded(server, **fields):
    """One sample without a temperature of its own."""
    body = {"prompt": "abc", "max_tokens": 20, "seed": 5, "ignore_eos": True, **fields}
    return server.post("/v1/completions", body).json()["choices"][0]["text"]


def test_recommended_sampling(start, folder):
    recommend(folder, temperature=0.25, top_p=0.5, top_k=3, repetition_penalty=1.5)
    advised, plain = start(folder), start(folder, "--generation-config", "none")
    spelt_out = {"temperature": 0.25, "top_p": 0.5, "top_k": 3, "repetition_penalty": 1.5}
    openais = {"temperature": 1, "top_p": 1, "top_k": -1, "repetition_penalty": 1}
    assert seeded(advised) == seeded(plain, **spelt_out) != seeded(plain)
    assert seeded(plain) == seeded(advised, **openais)


def sampling_line(server):
    return re.search(r"sampling   (.*)", server.read_log())[1]


def test_sampling_that_nobody_recommends(start, folder):
    """Is llama.cpp's, or OpenAI's; in /props, the log and the answers."""
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    llamas, plain = start(folder), start(folder, "--generation-config", "none")
    spelt_out = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
    openais = {"temperature": 1, "top_k": -1, "top_p": 1, "min_p": 0}
    for server, fields in (llamas, spelt_out), (plain, openais):
        params = httpx.get(server.url + "/props").json()["default_generation_settings"]["params"]
        assert {name: round(params[name], 4) for name in fields} == fields and params["repeat_penalty"] == 1
    assert seeded(llamas) == seeded(plain, **spelt_out) != seeded(plain)
    assert seeded(plain) == seeded(llamas, **openais)
    assert sampling_line(llamas) == ("temperature 0.8, top_p 0.95, top_k 40, min_p 0.05 by default: llama.cpp's, as the "
                                     "model recommends none")
    assert sampling_line(plain) == "temperature 1 by default: --generation-config none"
    recommend(folder, temperature=0.6)
    assert sampling_line(start(folder)) == "temperature 0.6 by default: the model recommends it"


def test_several_ends(start, folder):
    """Every id of eos_token_id ends a text."""
    def choice(server):
        return server.complete("abc", max_tokens=8, logit_bias={"65": 100}).choices[0]

    assert choice(start(folder)).finish_reason == "length"
    recommend(folder, eos_token_id=[2, 65])
    last = choice(start(folder))
    assert last.finish_reason == "stop" and last.text == ""


# Names, inspection, the plan.

def test_inspect_and_plan(folder):
    result = run("inspect", folder, "--plan", *SMALL)
    assert result.returncode == 0, result.stderr
    assert "LlamaForCausalLM" in result.stdout
    assert re.search(r"KV cache +4\.0 MiB = \d+ blocks of 16", result.stdout)


def test_plan_is_what_serving_takes(start, folder):
    def parts(text):
        return re.findall(r"(weights|workspace|KV cache|swap|requests|HTTP) +([\d.]+) MiB", text)

    swap = "--swap-space", "0.01"
    planned = run("inspect", folder, "--plan", *SMALL, *swap)
    assert len(parts(planned.stdout)) == 6
    assert parts(planned.stdout) == parts(start(folder, "--log-level", "debug", *swap).read_log())


@pytest.mark.parametrize("options", [
    (), ("--max-num-seqs", 3, "--kv-cache-dtype", "int8"), ("--rank-process", "on"), ("--tensor-parallel-size", 2),
    ("--max-logprobs", 50), ("--response-store-bytes", 1000000),
])
def test_plan_is_printed_again_when_serving(start, folder, options):
    def table(text):
        lines = [re.sub(r"^\S+Z +[A-Z]+ +", "", line).strip() for line in text.splitlines()]
        first = next(i for i, line in enumerate(lines) if line.startswith("device "))
        last = next(i for i, line in enumerate(lines) if line.startswith("total "))
        return lines[first:last + 1]

    printed = table(run("inspect", folder, "--plan", *SMALL, *options).stdout)
    assert len(printed) >= 9
    assert table(start(folder, "--log-level", "debug", *options).read_log()) == printed


def test_memory_adds_up(start, folder):
    """The parts of the table make its total, which the process does not exceed."""
    server = start(folder, "--swap-space", "0.01", "--log-level", "debug")
    table = [(name.strip(), float(mib)) for name, mib in
             re.findall(r"INFO +(\S[a-zA-Z ]*?) +([\d.]+) MiB", server.read_log())]
    *parts, (last, total) = table
    assert last == "total" and {"swap", "program"} < {name for name, _ in parts}
    assert abs(sum(mib for _, mib in parts) - total) < 0.05 * len(table)
    server.complete("abc", max_tokens=20)
    metrics = server.metrics()
    assert abs(metrics["memory_planned_bytes"] / 2**20 - total) < 0.1
    assert 0 < metrics["memory_resident_bytes"] < metrics["memory_planned_bytes"]


def test_plan_takes_the_options_of_serve(folder):
    assert_refused(run("inspect", folder, "--plan", "--max-model-len", 5000), "max-model-len",
                   "at most 256 tokens")
    assert_refused(run("inspect", folder, "--plan", "--max-num-sex", 5), "did you mean")
    assert run("inspect", folder, "--pan").returncode == 64
    assert run("inspect").returncode == 64


# Broken folders: one line, status 78.

def change(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize("fields, pieces", [
    ({"architectures": ["BertModel"], "model_type": "bert"}, ["BertModel", "an encoder"]),
    ({"architectures": ["MambaForCausalLM"], "model_type": "mamba"}, ["Mamba", " llama,"]),
    ({"num_hidden_layers": 0}, ["num_hidden_layers", "0"]),
    ({"num_attention_heads": 0}, ["num_attention_heads"]),
    ({"num_hidden_layers": 3}, ["model.layers.2", "missing"]),
    ({"hidden_act": "relu"}, ["hidden_act", "relu"]),
    ({"rope_scaling": {"rope_type": "mystery", "factor": 2.0}}, ["mystery"]),
    ({"quantization_config": {"quant_method": "gptq"}}, ["quantization_config"]),
])
def test_broken_settings(folder, fields, pieces):
    change(folder / "config.json", **fields)
    assert_refused(run("serve", "--model", folder, "--port", 0, *SMALL), "config.json" if
                   "missing" not in pieces else "tensor", *pieces)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff\xfe", b"[]", b"{\"a\":1,\"a\":2}"])
def test_broken_files(folder, name, content):
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    assert_refused(run("serve", "--model", folder, "--port", 0, *SMALL), str(folder))


def test_every_truncation_is_refused(folder):
    """At every 4 KiB: never a crash."""
    weights = (folder / "model.safetensors").read_bytes()
    for end in range(0, len(weights), 4096):
        (folder / "model.safetensors").write_bytes(weights[:end])
        assert_refused(run("serve", "--model", folder, "--port", 0, *SMALL), "model.safetensors")


def test_pickles_are_never_read(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert_refused(run("inspect", folder), "safetensors")
