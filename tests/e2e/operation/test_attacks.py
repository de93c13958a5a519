"""Each attack of tests/attacks once, with small counts and short times: as wanted, and no one else refused."""

import sys
from pathlib import Path

import pytest

from quire_server import BINARY

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "attacks"))
from arena import run_attack  # noqa: E402
from run import chosen  # noqa: E402
from victim import write_model  # noqa: E402

SCALE = 0.25


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.mark.parametrize("attack", chosen(""), ids=lambda attack: attack.name)
def test_attack(attack, model):
    outcome = run_attack(attack, BINARY, model, repeats=1, scale=SCALE)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.repeats == 1
    assert not outcome.faults()
    assert outcome.num_streams() > 0
