#!/usr/bin/env python3
"""Does llama.cpp read GGUF files of the families as we mean them?

    scripts/compare/check_llama_cpp.py PATH/TO/llama-server tests/golden/families [NAME...]
    scripts/compare/check_llama_cpp.py --quire PATH/TO/quire [--type F32,Q8_0] PATH/TO/llama-server tests/golden/families [NAME...]

First form: for every NAME.gguf a server is started and has to continue parts of NAME.golden's prompt by one token, with
the probability of every token, and the same for every choice of the greedy continuation. Printed are the largest relative error of a row
of log-probabilities (both centred, Euclidean norms) and how many greedy tokens are the same.

With --quire: `quire quantize` makes a file of every mixture of experts' folder, and both servers read it and score the
same tokens. Printed are both perplexities, how much they differ, and the largest and the mean error of a row. Fails if a
perplexity differs by more than MOST, except where the reason is known (DIFFERENT). Some folders are changed first, so that both
programs compute the same (CHANGES). Needs numpy.
"""

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

PORT = 8397
ASCII_TOKEN = 100
PARTS = (1, 6, 7, 12, 24, 33, 40)
NUM_TOKENS = 250  # the shortest context of a family is 256
# By which perplexities may differ: of float weights, and where both round activations to 8 bits, each in its own way.
MOST = {True: 1e-3, False: 5e-3}
FLOATS = ("F32", "F16", "BF16")
EXPERTS = ("mixtral", "qwen2-moe", "qwen3-moe", "olmoe", "granite-moe", "granite-moe-shared", "phi3.5-moe", "gpt-oss", "glm4.5",
           "glm4.5-air", "deepseek-v2", "deepseek-v2-lite", "deepseek-v3")
DIFFERENT = {
    "phi3.5-moe": "llama.cpp computes RMSNorm, and softmax in sparsemixer's place",
    "gpt-oss": "llama.cpp rounds the ends of yarn's ramp",
    "deepseek-v2": "llama.cpp scores groups of experts by DeepSeek-V3's rule",
}
NO_YARN = {"rope_scaling": None}
CHANGES = {  # folder: [(what is said of it, keys of config.json, layers)]
    "gpt-oss": [("without yarn", NO_YARN, 0)],
    "deepseek-v2": [("without groups", {"topk_method": "greedy"}, 0)],
    "deepseek-v2-lite": [("of 27 layers", {}, 27)],  # by which llama.cpp knows the lite model
}


def read_golden(path):
    data = path.read_bytes()
    num_prompt, num_greedy, vocab = np.frombuffer(data, np.int32, 3)
    tokens = np.frombuffer(data, np.int32, num_prompt + num_greedy, 12)
    logits = np.frombuffer(data, np.float32, num_prompt * vocab, 12 + 4 * len(tokens))
    return (tokens[:num_prompt].tolist(), tokens[num_prompt:].tolist(),
            logits.reshape(num_prompt, vocab))


def ask(path, **body):
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}",
                                     json.dumps(body).encode() if body else None,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"null")


def wait_for_start(process):
    for _ in range(200):
        if process.poll() is not None:
            return False
        try:
            ask("/health")
            return True
        except OSError:
            time.sleep(0.1)
    return False


def log_probabilities(tokens, vocab):
    """Samples tokens of plain ASCII only: of others the server shows no probabilities."""
    reply = ask("/completion", prompt=tokens, n_predict=1, n_probs=vocab, temperature=-1.0,
                cache_prompt=False, logit_bias=[[ASCII_TOKEN, 1000.0]])
    row = np.full(vocab, np.nan)
    for entry in reply["completion_probabilities"][0]["top_logprobs"]:
        row[entry["id"]] = entry["logprob"]
    return row


def centred_error(row, logits):
    """Log-probabilities and logits differ by a constant. A token the server leaves out counts nothing."""
    known = np.isfinite(row)
    ours = row[known] - row[known].mean()
    theirs = logits[known] - logits[known].mean()
    return np.linalg.norm(ours - theirs) / np.linalg.norm(theirs), known.sum()


def check(path):
    prompt, greedy, logits = read_golden(path.with_suffix(".golden"))
    errors = {}
    for part in PARTS:
        error, known = centred_error(log_probabilities(prompt[:part], logits.shape[1]),
                                     logits[part - 1])
        assert known >= 0.95 * logits.shape[1], f"{known} tokens known"
        errors[part] = error
    tokens = prompt + greedy
    same = 0
    for i in range(len(greedy)):
        row = log_probabilities(tokens[:len(prompt) + i], logits.shape[1])
        same += int(np.nanargmax(row)) == greedy[i]
    worst = max(errors, key=errors.get)
    print(f"{path.stem}: error {errors[worst]:.1e} (after {worst} tokens; "
          + " ".join(f"{part}: {error:.0e}" for part, error in errors.items())
          + f"), {same} of {len(greedy)} greedy tokens", flush=True)


def llama_command(server, path):
    return [server, "-m", path, "--port", str(PORT), "-c", "512", "-t", "1", "-np", "1", "-fa", "off", "-ctk", "f32", "-ctv", "f32",
            "--no-warmup"]


def quire_command(quire, path, vocab):
    return [quire, "serve", "--model", path, "--port", str(PORT), "--kv-cache-dtype", "f32", "--max-logprobs", str(vocab),
            "--threads", "1"]


def with_server(name, command, function):
    """Returns what function() does while the server runs; None if it does not start."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
        try:
            if wait_for_start(process):
                return function()
            log.seek(0)
            print(f"{name}: refused:", log.read()[-600:])
            return None
        finally:
            process.terminate()
            process.wait()


def check_files(server, folder, names):
    for path in sorted(folder.glob("*.gguf")):
        if not names or path.stem in names:
            with_server(path.stem, llama_command(server, path), lambda path=path: check(path))


# --- Both servers on the files that we make ---

def read_tensors(path):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (entry, content[slice(*(8 + length + offset for offset in entry["data_offsets"]))]) for name, entry in header.items()}


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, (entry, data) in tensors.items():
        header[name] = {**entry, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data for _, data in tensors.values()))


def repeat_layers(path, have, want):
    """The last layer again and again."""
    tensors, last = read_tensors(path), f".layers.{have - 1}."
    for layer in range(have, want):
        tensors |= {name.replace(last, f".layers.{layer}."): value for name, value in tensors.items() if last in name}
    write_tensors(path, tensors)


def change_folder(folder, keys, num_layers):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if num_layers:
        repeat_layers(folder / "model.safetensors", config["num_hidden_layers"], num_layers)
        config["num_hidden_layers"] = num_layers
    path.write_text(json.dumps(config | keys))


def llama_rows(tokens, vocab):
    return np.array([log_probabilities(tokens[:i], vocab) for i in range(1, len(tokens))])


def quire_rows(tokens, vocab):
    answer = ask("/v1/completions", prompt=tokens, max_tokens=1, echo=True, logprobs=vocab, return_tokens_as_token_ids=True)
    rows = np.full((len(tokens) - 1, vocab), np.nan)
    for row, top in zip(rows, answer["choices"][0]["logprobs"]["top_logprobs"][1:]):
        for name, value in top.items():
            row[int(name.removeprefix("token_id:"))] = value
    return rows


def perplexity(rows, tokens, known):
    values = rows[np.arange(len(rows)), tokens[1:]][known]
    return math.exp(-values.mean())


def score(label, options, path, vocab, most):
    """Returns whether both servers give the same."""
    tokens = np.random.default_rng(len(label)).integers(3, vocab, NUM_TOKENS).tolist()
    theirs = with_server(label, llama_command(options.server, path), lambda: llama_rows(tokens, vocab))
    ours = with_server(label, quire_command(options.quire, path, vocab), lambda: quire_rows(tokens, vocab))
    if theirs is None or ours is None:
        return False
    known = np.isfinite(theirs[np.arange(len(theirs)), tokens[1:]])  # see log_probabilities
    assert known.mean() > 0.5 and np.isfinite(ours).all()
    values = [perplexity(rows, tokens, known) for rows in (ours, theirs)]
    errors = [centred_error(row, own)[0] for row, own in zip(theirs, ours)]
    difference = values[0] / values[1] - 1
    print(f"{label}: perplexity {values[0]:.4f}, llama.cpp {values[1]:.4f} ({100 * difference:+.4f} %), {known.sum()} tokens; rows of "
          f"{vocab} differ by {max(errors):.1e} at most, {np.mean(errors):.1e} on average", flush=True)
    return abs(difference) <= most


def check_family(options, name, label, kind, changes, work):
    # (llama.cpp expects certain tokens of a model whose name begins with phi3.)
    folder, out = work / f"quire test {label.replace('phi3', 'phi 3')}", work / "out.gguf"
    shutil.copytree(options.folder / name, folder, dirs_exist_ok=True)
    change_folder(folder, *changes)
    done = subprocess.run([options.quire, "quantize", folder, out, "--type", kind, "--force"], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{label}: {done.stderr.strip()}")
        return False
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
    return score(f"{label}, {kind}", options, out, vocab, MOST[kind in FLOATS])


def check_experts(options):
    failed = []
    for name in options.names or EXPERTS:
        for kind in options.type.split(","):
            for what, *changes in [("", {}, 0), *CHANGES.get(name, [])]:
                label = f"{name} {what}".strip()
                if name == "deepseek-v2-lite" and not what:
                    continue
                with tempfile.TemporaryDirectory() as work:
                    fine = check_family(options, name, label, kind, changes, Path(work))
                if not fine and not what and name in DIFFERENT:
                    print(f"  known: {DIFFERENT[name]}")
                elif not fine:
                    failed.append(f"{label} as {kind}")
    print("agree" if not failed else f"differ: {', '.join(failed)}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", type=Path)
    parser.add_argument("--type", default="F32")
    parser.add_argument("server", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.quire:
        return check_experts(options)
    return check_files(options.server, options.folder, options.names)


if __name__ == "__main__":
    sys.exit(main())
