#!/usr/bin/env python3
"""Writes low-rank adapters of the tiny families, as PEFT saves them and as GGUF, and what they must compute.

Run by hand after a deliberate change (needs torch, transformers, peft, gguf):

    python scripts/golden/make_adapters.py tests/golden/families tests/golden/adapters [NAME...]

The numbers are seeded and random, and exact in 16 bits. NAME/ is a PEFT folder, NAME.gguf what llama.cpp's
convert_lora_to_gguf.py makes of it, and NAME.golden holds the logits of a prompt and greedy tokens, as make_golden.py
describes, computed by Transformers in float32 on the model that PEFT has merged the adapter into.
"""
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import gguf
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from golden_prompt import choose_prompt, run
from make_golden import save_golden

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
GGUF_NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
              "qkv_proj": "attn_qkv", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "gate_up_proj": "ffn_up",
              "down_proj": "ffn_down"}


@dataclass
class Adapter:
    base: str
    rank: int
    alpha: float
    modules: list
    dtype: torch.dtype = torch.float32
    gguf: str = ""          # the base's architecture; "": no file
    permuted: bool = False  # q and k of that file
    rslora: bool = False


ADAPTERS = {
    "llama-r8": Adapter("llama", 8, 16, ALL, gguf="llama", permuted=True),
    "qwen2-r64": Adapter("qwen2", 64, 16, ["q_proj", "v_proj", "gate_proj", "down_proj"], torch.float16, "qwen2", rslora=True),
    "gemma2-r256": Adapter("gemma2", 256, 512, ["q_proj", "down_proj"], torch.bfloat16),
    "phi3-r8": Adapter("phi3", 8, 8, ["qkv_proj", "o_proj", "gate_up_proj"], gguf="phi3"),
    "granite-r8": Adapter("granite", 8, 32, ["o_proj", "down_proj", "k_proj"]),
}


def fill(model, dtype):
    for name, weight in model.named_parameters():
        if "lora_" not in name:
            continue
        rank = min(weight.shape)
        gain = 1.0 / weight.shape[1] ** 0.5 if "lora_A" in name else 0.25 / rank ** 0.5
        exact = torch.bfloat16 if dtype == torch.bfloat16 else torch.float16
        weight.data.copy_((torch.randn_like(weight) * gain).to(exact).float())


def permute(weight, heads):
    rows, cols = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def write_gguf(path, adapter, tensors, config):
    writer = gguf.GGUFWriter(path, adapter.gguf)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", adapter.alpha * (adapter.rank ** 0.5 if adapter.rslora else 1))
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in tensors.items():
        parts = name.split(".")  # base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight
        layer, module, matrix = parts[4], parts[6], parts[7]
        if adapter.permuted and module in heads and matrix == "lora_B":
            weight = permute(weight, heads[module])
        writer.add_tensor(f"blk.{layer}.{GGUF_NAMES[module]}.weight.{matrix.lower()}", weight.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_adapter(families, out, name):
    adapter = ADAPTERS[name]
    torch.manual_seed(sum(name.encode()))
    base = AutoModelForCausalLM.from_pretrained(families / adapter.base, dtype=torch.float32,
                                                attn_implementation="eager").eval()
    config = LoraConfig(r=adapter.rank, lora_alpha=adapter.alpha, target_modules=adapter.modules,
                        use_rslora=adapter.rslora, task_type="CAUSAL_LM")
    model = get_peft_model(base, config)
    fill(model, adapter.dtype)
    shutil.rmtree(out / name, ignore_errors=True)
    model.save_pretrained(out / name)
    (out / name / "README.md").unlink(missing_ok=True)
    settings = json.loads((out / name / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = adapter.base
    (out / name / "adapter_config.json").write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")
    path = out / name / "adapter_model.safetensors"
    tensors = {key: weight.to(adapter.dtype).contiguous() for key, weight in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)
    if adapter.gguf:
        write_gguf(out / f"{name}.gguf", adapter, tensors, base.config)
    merged = model.merge_and_unload()
    margin, prompt, (greedy,) = choose_prompt([merged])
    logits = run(merged, [prompt]).logits[0].numpy()
    save_golden(out / f"{name}.golden", prompt, greedy, logits)
    plain = AutoModelForCausalLM.from_pretrained(families / adapter.base, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    change = (run(plain, [prompt]).logits[0] - torch.from_numpy(logits)).norm() / torch.from_numpy(logits).norm()
    print(f"{name}: changes rows by {change:.2f}; smallest margin {margin:.3f} of a row's spread")


def main():
    torch.set_num_threads(1)
    families, out, *names = sys.argv[1:]
    Path(out).mkdir(exist_ok=True)
    for name in names or ADAPTERS:
        write_adapter(Path(families), Path(out), name)


if __name__ == "__main__":
    main()
