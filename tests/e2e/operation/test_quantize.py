"""`quire quantize`: a smaller GGUF file of a folder or of another file, and everything that is refused."""

import json
import random
import resource
import shutil
import signal
import struct
import subprocess
import time

import pytest

from quire_server import BINARY, MODEL, ROOT, QuireServer, clean_environment
from test_command_line import run

GGUF = ROOT / "tests/golden/tiny-f32.gguf"
FOLDER = ROOT / "tests/golden/families/llama3"
QUANTISED = ROOT / "tests/golden/tiny-q8_0.gguf"


def quantize(*arguments, **options):
    return run("quantize", *arguments, **options)


def assert_refused(result, *pieces, status=78):
    assert result.returncode == status, result
    lines = [line for line in result.stderr.splitlines() if "ERROR" in line]
    assert len(lines) == 1 and len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stdout == ""
    for piece in pieces:
        assert str(piece) in lines[0]


@pytest.mark.parametrize("source", [GGUF, FOLDER])
def test_a_model_becomes_a_file(tmp_path, source):
    out = tmp_path / "out.gguf"
    result = quantize(source, out, "--type", "q8_0")
    assert result.returncode == 0, result
    last = result.stdout.splitlines()[-1]
    assert last.startswith(f"{out}: ") and "bits per weight, Q8_0" in last and " -> " in last
    assert list(tmp_path.iterdir()) == [out]
    shown = run("inspect", out)
    assert shown.returncode == 0 and "GGUF v3" in shown.stdout and "Q8_0" in shown.stdout


def test_dry_run_writes_nothing(tmp_path):
    result = quantize(GGUF, "--dry-run", "--tensor-type", r"blk\.0\.attn_k=f16", "--token-embedding-type", "q5_1")
    assert result.returncode == 0, result
    types = {line.split()[0]: line.split()[-1] for line in result.stdout.splitlines() if "->" in line and "weight" in line.split()[0]}
    assert types["blk.0.attn_k.weight"] == "f16" and types["blk.1.attn_k.weight"] == "q5_0"
    assert types["token_embd.weight"] == "q5_1" and types["blk.0.attn_norm.weight"] == "f32"
    assert "rows are not whole blocks" in result.stdout
    assert quantize(GGUF, tmp_path / "out.gguf", "--dry-run").returncode == 0
    assert not list(tmp_path.iterdir())


def test_what_is_at_out(tmp_path):
    out, link = tmp_path / "out.gguf", tmp_path / "link.gguf"
    out.write_text("precious")
    assert_refused(quantize(GGUF, out), out, "--force")
    assert out.read_text() == "precious"
    assert quantize(GGUF, out, "--force", "--type", "Q8_0").returncode == 0
    assert out.read_bytes()[:4] == b"GGUF"
    link.symlink_to(GGUF)
    assert_refused(quantize(GGUF, link, "--force"), "not a file")
    assert_refused(quantize(GGUF, tmp_path, "--force"), "not a file")
    copy = shutil.copy(GGUF, tmp_path / "in.gguf")
    assert_refused(quantize(copy, copy, "--force"), "is IN too")
    assert (tmp_path / "in.gguf").read_bytes() == GGUF.read_bytes()
    assert_refused(quantize(GGUF, tmp_path / "missing/out.gguf"), "No such file", status=71)


def test_a_quantised_model_is_taken_only_if_asked(tmp_path):
    out = tmp_path / "out.gguf"
    assert_refused(quantize(QUANTISED, out, "--type", "Q4_0"), "q8_0 already", "--allow-requantize")
    assert not out.exists()
    assert quantize(QUANTISED, out, "--type", "Q4_0", "--allow-requantize").returncode == 0


@pytest.mark.parametrize("arguments, piece", [
    (["--type", "Q9_K"], "--type Q9_K"),
    (["--type", "IQ4_XS"], "--type IQ4_XS"),
    (["--output-tensor-type", "q4_k_m"], "--output-tensor-type q4_k_m"),
    (["--tensor-type", "attn_q"], "PATTERN=TYPE"),
    (["--tensor-type", "(=q8_0"], "--tensor-type ("),
    (["--threads", "0"], "--threads 0"),
    (["--threads", "many"], "--threads many"),
    (["--type", "Q2_K_S"], "needs --imatrix"),
    (["--imatrix", "/nowhere.dat"], "/nowhere.dat"),
    (["--imatrix", str(FOLDER / "config.json")], "is not an importance matrix"),
    (["--imatrix", str(GGUF)], "is not an importance matrix"),
])
def test_refused_options(tmp_path, arguments, piece):
    assert_refused(quantize(GGUF, tmp_path / "out.gguf", *arguments), piece)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [[], ["in.gguf"], ["a", "b", "c"], ["a", "b", "--tpye", "Q8_0"], ["a", "b", "--type"]])
def test_words_that_make_no_command(arguments):
    result = quantize(*arguments)
    assert result.returncode == 64 and "usage: quire quantize" in result.stderr and not result.stdout


def test_models_that_cannot_be_converted(tmp_path):
    out = tmp_path / "out.gguf"
    families = ROOT / "tests/golden/families"
    assert_refused(quantize(families / "llama-dynamic", out), "max_position_embeddings")
    assert_refused(quantize(families / "gemma2-scalar", out), "the attention's scale")
    assert_refused(quantize("/nowhere.gguf", out), "/nowhere.gguf")
    assert_refused(quantize(tmp_path, out), "config.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("family, settings, piece", [
    ("granite-moe", {"num_local_experts": 7}, "8 experts of 64 x 32; the settings say 7 of 64 x 32"),
    ("gpt-oss", {"intermediate_size": 32}, "4 experts of 128 x 32; the settings say 4 of 64 x 32"),
    ("mixtral", {"intermediate_size": 64}, "1 experts of 32 x 48; the settings say 1 of 64 x 48"),
    ("qwen3-moe", {"num_experts": 9}, "expert 8 is missing"),
    ("deepseek-v3", {"kv_lora_rank": 48}, "kv_b_proj.weight': is not a matrix of the settings' sizes"),
    ("deepseek-v3", {"num_attention_heads": 3}, "kv_b_proj.weight': is not a matrix of the settings' sizes"),
])
def test_experts_and_heads_of_other_sizes(tmp_path, family, settings, piece):
    folder = tmp_path / family
    shutil.copytree(ROOT / "tests/golden/families" / family, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    assert_refused(quantize(folder, tmp_path / "out.gguf"), piece)
    assert [path.name for path in tmp_path.iterdir()] == [family]


def packed_gpt_oss(folder):
    """The family gpt-oss' folder with experts as their maker publishes them: MXFP4 of random codes."""
    shutil.copytree(ROOT / "tests/golden/families/gpt-oss", folder)
    config = json.loads((folder / "config.json").read_text())
    experts, hidden, inner = (config[key] for key in ("num_local_experts", "hidden_size", "intermediate_size"))
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "mxfp4"}}))
    content = (folder / "model.safetensors").read_bytes()
    length, source, tensors = int.from_bytes(content[:8], "little"), random.Random(7), {}
    for name, entry in json.loads(content[8:8 + length]).items():
        if name == "__metadata__":
            continue
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[name] = entry["dtype"], entry["shape"], content[slice(*(8 + length + at for at in entry["data_offsets"]))]
            continue
        rows, blocks = (2 * inner, hidden // 32) if "gate_up" in name else (hidden, inner // 32)
        count = experts * rows * blocks
        tensors[name + "_blocks"] = "U8", [experts, rows, blocks, 16], source.randbytes(16 * count)
        tensors[name + "_scales"] = "U8", [experts, rows, blocks], bytes(source.choices(range(120, 126), k=count))
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + b"".join(data for _, _, data in tensors.values()))
    return folder


def prompt_logprobs(tmp_path, model):
    server = QuireServer(tmp_path / "server.log", "--model", model, "--kv-cache-dtype", "f32")
    try:
        answer = server.complete([number * 37 % 250 + 5 for number in range(60)], max_tokens=1, echo=True, logprobs=0)
    finally:
        server.terminate()
    return answer.choices[0].logprobs.token_logprobs[1:60]


def test_packed_experts_stay_as_they_are(tmp_path):
    """gpt-oss' experts are MXFP4 in both kinds of file, so the model is the same, whatever --type says of the rest."""
    folder, out = packed_gpt_oss(tmp_path / "in"), tmp_path / "out.gguf"
    assert quantize(folder, out, "--type", "BF16").returncode == 0
    assert prompt_logprobs(tmp_path, out) == pytest.approx(prompt_logprobs(tmp_path, folder), abs=1e-5)
    plan = quantize(folder, "--dry-run", "--type", "Q8_0", "--leave-output-tensor").stdout.splitlines()
    types = {line.split()[0]: line.split()[-1] for line in plan if "->" in line and "weight" in line.split()[0]}
    assert {types[f"blk.1.ffn_{part}_exps.weight"] for part in ("gate", "up", "down")} == {"mxfp4"}
    assert types["blk.1.attn_q.weight"] == "q8_0" and types["output.weight"] == "bf16"
    again = quantize(folder, out, "--type", "Q8_0", "--tensor-type", "ffn_down_exps=q4_0", "--force")
    assert_refused(again, "blk.0.ffn_down_exps.weight", "mxfp4 already", "--allow-requantize")


def test_values_that_are_not_numbers(tmp_path):
    broken, out = tmp_path / "broken.gguf", tmp_path / "out.gguf"
    content = GGUF.read_bytes()
    broken.write_bytes(content[:-16384] + struct.pack("<f", float("nan")) * 1024 + content[-12288:])
    for kind in ("Q4_0", "Q8_0", "F16", "F32"):
        assert_refused(quantize(broken, out, "--type", kind), "tensor 'blk.1.", "not finite")
    assert list(tmp_path.iterdir()) == [broken]


def test_no_space(tmp_path):
    """A limit of the file's size stands for a full disk."""
    out = tmp_path / "out.gguf"
    done = subprocess.run([BINARY, "quantize", GGUF, out, "--type", "F16"], capture_output=True, text=True, env=clean_environment(),
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)))
    assert_refused(done, "File too large", status=71)
    assert not list(tmp_path.iterdir())


def test_interrupted(tmp_path):
    out = tmp_path / "out.gguf"
    command = [BINARY, "quantize", MODEL, out, "--type", "Q2_K", "--allow-requantize", "--threads", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean_environment())
    while process.poll() is None and not list(tmp_path.iterdir()):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 75
    assert "interrupted" in process.stderr.read()
    assert not list(tmp_path.iterdir())


TOKENIZERS = ROOT / "tests/unit/models/tokenizer/tokenizers"


def folder_with_tokenizer(folder, name):
    """The family llama's folder with another tokenizer; embedding and head are zeros."""
    shutil.copytree(TOKENIZERS / name, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    ids = [*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"])]
    config = json.loads((ROOT / "tests/golden/families/llama/config.json").read_text())
    config["vocab_size"] = max(ids) + 1
    (folder / "config.json").write_text(json.dumps(config))
    content = (ROOT / "tests/golden/families/llama/model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data, out = json.loads(content[8:8 + length]), content[8 + length:], b""
    for tensor, entry in header.items():
        if tensor != "__metadata__":
            begin, end = entry["data_offsets"]
            values = data[begin:end]
            if entry["shape"][0] == 280:
                entry["shape"][0] = config["vocab_size"]
                values = bytes(2 * entry["shape"][0] * entry["shape"][1])
            entry["data_offsets"] = [len(out), len(out) + len(values)]
            out += values
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + out)
    return folder


@pytest.mark.parametrize("name", ["command", "gpt2", "llama2", "llama3", "mistral-v3", "o200k", "olmo2", "phi3", "phi4", "qwen2", "smollm",
                                  "tekken"])
def test_tokenizers(tmp_path, name):
    """The command compares the ids of a sample text itself."""
    assert quantize(folder_with_tokenizer(tmp_path / "in", name), tmp_path / "out.gguf").returncode == 0
    shown = run("inspect", tmp_path / "out.gguf").stdout
    assert "tokenizer" in shown


@pytest.mark.parametrize("name, reason", [
    ("steps-bytes", "GGUF files have no name for its pre-tokenizer"),
    ("steps-characters", "its tokenizer would make other tokens"),
])
def test_tokenizers_that_the_format_cannot_have(tmp_path, name, reason):
    assert_refused(quantize(folder_with_tokenizer(tmp_path / "in", name), tmp_path / "out.gguf"), reason)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def mean_logprob(tmp_path, model):
    """Of the tokens of a text."""
    text = (ROOT / "tests/e2e/data/quires.txt").read_text()[:1500]
    server = QuireServer(tmp_path / "server.log", "--model", model, "--max-model-len", "512")
    try:
        answer = server.complete(text, max_tokens=1, echo=True, logprobs=0)
    finally:
        server.terminate()
    values = [value for value in answer.choices[0].logprobs.token_logprobs[:-1] if value is not None]
    assert len(values) > 200
    return sum(values) / len(values)


def test_a_real_model_stays_what_it_is(tmp_path):
    before = mean_logprob(tmp_path, MODEL)
    for kind, tolerance in (("Q8_0", 0.02), ("Q5_K_M", 0.05), ("Q3_K_M", 0.2)):
        out = tmp_path / f"{kind}.gguf"
        assert quantize(MODEL, out, "--type", kind, "--allow-requantize").returncode == 0
        assert mean_logprob(tmp_path, out) == pytest.approx(before, abs=tolerance), kind
