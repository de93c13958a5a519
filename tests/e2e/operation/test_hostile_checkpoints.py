"""Folders of quantised checkpoints and of experts in which something is wrong: one line that names the file and what
is wrong with it, and status 78. The same folders, unharmed, are served."""

import json
import shutil
import struct

import pytest

from quire_server import ROOT
from test_command_line import run

FORMS = ROOT / "tests/golden/checkpoints"
FAMILIES = ROOT / "tests/golden/families"
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I64": 8, "U8": 1, "I8": 1, "F8_E4M3": 1}


class Folder:
    """A copy of a model's folder whose tensors and settings can be changed."""

    def __init__(self, source, path):
        self.path = path
        shutil.copytree(source, path)
        if not (path / "tokenizer.json").exists():
            for name in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(FAMILIES / "llama" / name, path)
        self.config = json.loads((path / "config.json").read_text())
        data = (path / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        header.pop("__metadata__", None)
        self.tensors = {}  # name: [type, shape, bytes]
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            self.tensors[name] = [entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end]]
        self.add_tokens(280)

    def add_tokens(self, wanted):
        """Up to as many as the tokenizer has."""
        more = wanted - self.config["vocab_size"]
        self.config["vocab_size"] = wanted
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            dtype, (rows, cols), data = self.tensors[name]
            self.tensors[name] = [dtype, [rows + more, cols], data + bytes(more * cols * SIZES[dtype])]

    def find(self, ending):
        return next(name for name in self.tensors if name.endswith(ending))

    def reshape(self, ending, shape):
        """Zeros of another shape."""
        tensor = self.tensors[self.find(ending)]
        size = SIZES[tensor[0]]
        for dimension in shape:
            size *= dimension
        tensor[1:] = [shape, bytes(size)]

    def poke(self, ending, content):
        """Other first bytes."""
        tensor = self.tensors[self.find(ending)]
        tensor[2] = content + tensor[2][len(content):]

    def write(self):
        header, blobs, offset = {}, [], 0
        for name, (dtype, shape, data) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
            blobs.append(data)
            offset += len(data)
        text = json.dumps(header).encode()
        (self.path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
        (self.path / "config.json").write_text(json.dumps(self.config))


def set_config(**values):
    return lambda folder: folder.config.update(values)


def set_quantization(**values):
    return lambda folder: folder.config["quantization_config"].update(values)


def reshape(ending, *shape):
    return lambda folder: folder.reshape(ending, list(shape))


def poke(ending, content):
    return lambda folder: folder.poke(ending, content)


def drop(ending):
    return lambda folder: folder.tensors.pop(folder.find(ending))


NAN_F16, NAN_F32, INFINITE_BF16 = b"\x00\x7e", b"\x00\x00\xc0\x7f", b"\x80\x7f"
CASES = {
    # Of a mixture of experts.
    "no experts": (FAMILIES / "mixtral", set_config(num_local_experts=0), "num_local_experts"),
    "too many experts": (FAMILIES / "mixtral", set_config(num_local_experts=1025), "num_local_experts"),
    "no expert is chosen": (FAMILIES / "mixtral", set_config(num_experts_per_tok=0), "num_experts_per_tok"),
    "more chosen than there are": (FAMILIES / "mixtral", set_config(num_experts_per_tok=31), "num_experts_per_tok"),
    "fewer experts in the files": (FAMILIES / "mixtral", set_config(num_local_experts=64), "expected [64, 48]"),
    "router of another size": (FAMILIES / "mixtral", reshape("block_sparse_moe.gate.weight", 3, 64), "gate.weight"),
    "no router": (FAMILIES / "mixtral", drop("block_sparse_moe.gate.weight"), "gate.weight"),
    "expert of another size": (FAMILIES / "gpt-oss", reshape("experts.down_proj", 2, 8, 8), "down_proj"),
    "no biases of experts": (FAMILIES / "gpt-oss", drop("experts.down_proj_bias"), "down_proj_bias"),
    "sinks of another number of heads": (FAMILIES / "gpt-oss", reshape("self_attn.sinks", 3), "sinks"),
    # Settings of a quantised checkpoint.
    "unknown method": (FORMS / "awq-64", set_quantization(quant_method="spqr"), "'spqr' is not supported"),
    "bits": (FORMS / "gptq-4bit-32", set_quantization(bits=3), "3 is not supported (supported: 4, 8)"),
    "group size": (FORMS / "gptq-4bit-32", set_quantization(group_size=48), "48: must be -1 or a multiple of 32"),
    "groups that do not divide": (FORMS / "gptq-4bit-32", set_quantization(group_size=96), "whole groups"),
    "another group size": (FORMS / "awq-64", set_quantization(group_size=32), "scale for each row and group"),
    "block of columns": (FORMS / "fp8-block", set_quantization(weight_block_size=[128, 96]), "weight_block_size"),
    "block of no rows": (FORMS / "fp8-block", set_quantization(weight_block_size=[0, 128]), "weight_block_size"),
    # Its tensors.
    "no scales": (FORMS / "gptq-4bit-32", drop("q_proj.scales"), "scales is missing"),
    "no zero points": (FORMS / "awq-64", drop("q_proj.qzeros"), "zero points is missing"),
    "scales of another shape": (FORMS / "gptq-4bit-32", reshape("q_proj.scales", 3, 128), "scale for each row and group"),
    "zero points of another shape": (FORMS / "awq-64", reshape("q_proj.qzeros", 1, 16), "zero point for each row and group"),
    "codes that are no matrix": (FORMS / "awq-64", reshape("q_proj.qweight", 2048), "not a matrix of type I32"),
    "group beyond the last": (FORMS / "gptq-4bit-act", poke("q_proj.g_idx", b"\x04\0\0\0"), "does not exist"),
    "negative group": (FORMS / "gptq-4bit-act", poke("q_proj.g_idx", b"\xff\xff\xff\xff"), "does not exist"),
    "groups out of order": (FORMS / "gptq-4bit-32", poke("q_proj.g_idx", b"\x01\0\0\0"), "not in order"),
    "order of fewer columns": (FORMS / "gptq-4bit-act", reshape("q_proj.g_idx", 96), "group for each column"),
    "a scale that is no number": (FORMS / "gptq-4bit-32", poke("q_proj.scales", NAN_F16), "not a finite number"),
    "an infinite scale": (FORMS / "compressed-w4a16", poke("q_proj.weight_scale", INFINITE_BF16), "not a finite number"),
    "scales of blocks": (FORMS / "fp8-block", reshape("q_proj.weight_scale_inv", 2, 3), "tensor, row or block"),
    "a scale of FP8": (FORMS / "fp8-tensor", poke("q_proj.weight_scale", NAN_F32), "not a finite number"),
    "a weight of FP8": (FORMS / "fp8-tensor", poke("q_proj.weight", b"\x7f"), "a weight is NaN"),
    "no scale of FP8": (FORMS / "fp8-tensor", drop("q_proj.weight_scale"), "scales is missing"),
    "no expert's weight": (FORMS / "fp8-moe", drop("experts.2.up_proj.weight"), "up_proj"),
    "scales of MXFP4": (FORMS / "gpt-oss-mxfp4", reshape("experts.down_proj_scales", 4, 128, 3), "scale for each block"),
    "blocks of MXFP4": (FORMS / "gpt-oss-mxfp4", reshape("experts.down_proj_blocks", 4, 128, 2, 8), "blocks, 16"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_named(case, tmp_path):
    source, change, said = CASES[case]
    folder = Folder(source, tmp_path / "model")
    change(folder)
    folder.write()
    result = run("serve", "--model", folder.path, "--port", 0, "--device", "cpu", "--log-level", "error")
    assert result.returncode == 78, result
    (line,) = result.stderr.strip().splitlines()
    assert said in line and str(folder.path) in line, line


@pytest.mark.parametrize("source", [FAMILIES / "mixtral", FAMILIES / "gpt-oss", FORMS / "gptq-4bit-act",
                                    FORMS / "fp8-moe", FORMS / "gpt-oss-mxfp4"], ids=lambda path: path.name)
def test_the_folder_unharmed_is_served(source, tmp_path, start_server):
    folder = Folder(source, tmp_path / "model")
    folder.write()
    start_server("--model", folder.path)
