"""guidellm: a short load on each endpoint; its report says how many requests failed and how many tokens it got."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import transformers

from quire_server import MODEL, NAME

REQUESTS = 8
STREAMS = 4
PROMPT_TOKENS = 48
OUTPUT_TOKENS = 16


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A folder with the model's tokenizer, with which guidellm makes prompts of a given length."""
    folder = tmp_path_factory.mktemp("tokenizer")
    transformers.AutoTokenizer.from_pretrained(MODEL.parent, gguf_file=MODEL.name).save_pretrained(folder)
    return folder


def run_load(server, tokenizer, report, path):
    command = [Path(sys.executable).with_name("guidellm"), "run",
               "--backend", f"kind=openai_http,target={server.url},model={NAME},request_format={path}",
               "--profile", f"kind=concurrent,streams={STREAMS}", "--constraint", f"kind=max_requests,count={REQUESTS}",
               "--tokenizer", f"kind=hf_auto,model={tokenizer}",
               "--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={OUTPUT_TOKENS}",
               "--output", f"kind=json,path={report}", "--disable-console"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(report.read_text())["benchmarks"][0]


# A chat's template adds tokens of its own.
@pytest.mark.parametrize("path, added", [("/v1/completions", range(1)), ("/v1/chat/completions", range(1, 64)),
                                         ("/v1/responses", range(1, 64))])
def test_load_without_failures(server, tokenizer, tmp_path, path, added):
    benchmark = run_load(server, tokenizer, tmp_path / "report.json", path)
    totals = benchmark["metrics"]["request_totals"]
    assert totals["errored"] == totals["incomplete"] == 0
    # On a busy machine, guidellm may leave the last ones out of its report altogether.
    assert REQUESTS - STREAMS < totals["successful"] <= REQUESTS
    for request in benchmark["requests"]["successful"]:
        assert request["input_metrics"]["text_tokens"] - PROMPT_TOKENS in added
        assert request["output_metrics"]["text_tokens"] == OUTPUT_TOKENS
