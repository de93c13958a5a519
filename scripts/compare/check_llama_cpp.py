#!/usr/bin/env python3
"""Does llama.cpp read the GGUF files of tests/golden/families as we mean them?

    scripts/compare/check_llama_cpp.py PATH/TO/llama-server tests/golden/families [NAME...]

For every NAME.gguf a server is started and has to continue parts of NAME.golden's prompt by one token, with
the probability of every token, and the same for every choice of the greedy continuation. Printed are the largest relative error of a row
of log-probabilities (both centred, Euclidean norms) and how many greedy tokens are the same.
"""

import json
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
        return json.load(answer)


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


def start(server, path, log):
    return subprocess.Popen(
        [server, "-m", path, "--port", str(PORT), "-c", "512", "-t", "1", "-np", "1", "-fa", "off",
         "-ctk", "f32", "-ctv", "f32", "--no-warmup"], stdout=log, stderr=log)


def main():
    server, folder, *names = sys.argv[1:]
    for path in sorted(Path(folder).glob("*.gguf")):
        if names and path.stem not in names:
            continue
        with tempfile.TemporaryFile("w+") as log:
            process = start(server, path, log)
            try:
                if wait_for_start(process):
                    check(path)
                else:
                    log.seek(0)
                    print(f"{path.stem}: refused:", log.read()[-600:])
            finally:
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
