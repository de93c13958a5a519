"""The short form of each scenario of tests/faults: nothing lost, left or cut. What is timed is printed and not judged."""

import sys
from pathlib import Path

import pytest

from quire_server import BINARY, MODEL

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "faults"))
import faults  # noqa: E402
from scenario import run_scenario  # noqa: E402


@pytest.mark.parametrize("chosen", faults.chosen(""), ids=lambda chosen: chosen.name)
def test_scenario(chosen, monkeypatch):
    monkeypatch.setenv("QUIRE_TEST_MODEL", str(MODEL))
    stage = run_scenario(chosen, BINARY, is_short=True)
    for figure in stage.figures:
        print(figure)
    assert not stage.problems
    assert stage.figures and [figure for figure in stage.figures if not figure.is_good and not figure.is_timed] == []
