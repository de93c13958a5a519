"""--verify-weights: a model's files against the SHA-256 that is known of them."""

import hashlib
import json
import shutil

import pytest

from quire_server import ROOT
from test_command_line import run

GGUF = ROOT / "tests/golden/tiny-f32.gguf"
FOLDER = ROOT / "tests/golden/families/llama3"  # weights in several files


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def flip(path):
    """The least bit of the last weight: nothing that the loader could notice."""
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(content)


def serve(path):
    return run("serve", "--model", path, "--port", 0, "--verify-weights")


def assert_refused(result, path, source):
    assert result.returncode == 78, result
    errors = [line for line in result.stderr.splitlines() if "ERROR" in line or line.startswith("quire:")]
    assert len(errors) == 1
    assert str(path) in errors[0] and source in errors[0] and "SHA-256" in errors[0]


@pytest.fixture
def file(tmp_path):
    return shutil.copy(GGUF, tmp_path / "model.gguf")


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER, tmp_path / "model")


def test_a_flipped_bit_is_refused(file, start_server):
    (file.parent / "SHA256SUMS").write_text(f"{sha256(file)}  {file.name}\n")
    server = start_server("--model", file, "--verify-weights")
    assert "1 of 1 files have the SHA-256" in server.read_log()
    flip(file)
    assert_refused(serve(file), file, "SHA256SUMS")
    plain = start_server("--model", file)  # without the option the file is taken as it is
    assert "SHA-256" not in plain.read_log()


def test_a_draft_model_too(file, start_server):
    draft = shutil.copy(file, file.parent / "draft.gguf")
    sums = file.parent / "SHA256SUMS"
    sums.write_text("".join(f"{sha256(path)}  {path.name}\n" for path in (file, draft)))
    words = "--model", file, "--verify-weights", "--speculative-config", json.dumps({"model": str(draft), "num_speculative_tokens": 2})
    log = start_server(*words).read_log()
    assert log.count("1 of 1 files have the SHA-256") == 2 and "verify-weights of the draft model: " in log
    flip(draft)
    assert_refused(run("serve", "--port", 0, *words), draft, "SHA256SUMS")


def test_nothing_known_is_said(file, start_server):
    log = start_server("--model", file, "--verify-weights").read_log()
    line = next(line for line in log.splitlines() if "verify-weights" in line)
    assert "WARNING" in line and "0 of 1 files" in line and str(file) in line


def test_every_shard_of_a_folder(folder):
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 1
    (folder / "SHA256SUMS").write_text("".join(f"{sha256(shard)} *{shard.name}\n" for shard in shards))
    result = run("inspect", folder, "--verify-weights")
    assert result.returncode == 0 and f"{len(shards)} of {len(shards)} files have" in result.stdout
    flip(shards[-1])
    assert_refused(run("inspect", folder, "--verify-weights"), shards[-1], "SHA256SUMS")
    assert_refused(serve(folder), shards[-1], "SHA256SUMS")


def test_cache_of_the_hub(folder, tmp_path):
    """snapshots/REVISION/NAME are links to blobs that are named by their hash."""
    blobs = tmp_path / "models--a--b/blobs"
    snapshot = tmp_path / "models--a--b/snapshots/0123456789abcdef0123456789abcdef01234567"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for path in folder.iterdir():
        large = path.suffix == ".safetensors"
        blob = blobs / (sha256(path) if large else hashlib.sha1(path.read_bytes()).hexdigest())
        shutil.copy(path, blob)
        (snapshot / path.name).symlink_to(f"../../blobs/{blob.name}")
    result = run("inspect", snapshot, "--verify-weights", "--plan", "--max-model-len", 64)
    assert result.returncode == 0, result
    assert "files have the SHA-256 that is known, by the name of the file" in result.stdout
    shard = sorted(snapshot.glob("*.safetensors"))[0]
    flip(shard.resolve())
    assert_refused(run("inspect", snapshot, "--verify-weights"), shard, "the name of the file")


def test_record_of_a_download(folder):
    records = folder / ".cache/huggingface/download"
    records.mkdir(parents=True)
    shards = sorted(folder.glob("*.safetensors"))
    for shard in shards[1:]:
        (records / f"{shard.name}.metadata").write_text(f"{'0' * 40}\n{sha256(shard)}\n17.5\n")
    result = run("inspect", folder, "--verify-weights")
    assert result.returncode == 0
    assert f"{len(shards) - 1} of {len(shards)} files have" in result.stdout and str(shards[0]) in result.stdout
    flip(shards[1])
    assert_refused(run("inspect", folder, "--verify-weights"), shards[1], ".metadata")


def test_broken_checksum_file(file):
    (file.parent / "model.gguf.sha256").write_text("not a checksum\n")
    assert_refused(serve(file), "model.gguf.sha256", "does not begin with a SHA-256")
