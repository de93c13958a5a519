"""Some thousand calls of tests/soak at once: each is answered as wanted, and nothing of them is left."""

import sys
from pathlib import Path

from quire_server import BINARY

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "soak"))
from soak import soak  # noqa: E402


def test_nothing_is_left_of_mixed_calls(tmp_path):
    figures = soak(BINARY, max_calls=3000, max_seconds=60, folder=tmp_path)
    assert not figures["faults"]
    assert figures["calls"] > 100 and figures["generated tokens"] > 0


def test_nothing_is_left_behind_a_front(tmp_path):
    """TLS, keys, logs and spans, of which all is read again while the calls go on."""
    figures = soak(BINARY, max_calls=2000, max_seconds=60, folder=tmp_path, has_front=True)
    assert not figures["faults"]
    assert figures["calls"] > 100 and figures["generated tokens"] > 0


def test_an_answer_that_is_wrong_is_found(tmp_path):
    """Prompts beyond what this server takes."""
    figures = soak(BINARY, max_calls=50, max_seconds=60, folder=tmp_path, options={"max-model-len": 128})
    assert any("instead of 200" in fault for fault in figures["faults"])
