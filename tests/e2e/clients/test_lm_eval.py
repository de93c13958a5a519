"""lm-evaluation-harness: the figures of its tasks do not depend on how the server is called, and are Transformers'."""

import subprocess
import sys

from quire_server import MODEL, ROOT


def test_same_figures_by_text_by_ids_and_by_the_remote_tokenizer(server):
    command = [sys.executable, ROOT / "scripts/compare/check_lm_eval.py", "--url", server.url, MODEL]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=1200)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
