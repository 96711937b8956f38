"""Do the examples run as they say?"""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
# What each prints somewhere; 03 runs the command and takes the longest.
SAID = {
    "01_gradients_and_cycles.py": "cycles",
    "02_products_side_by_side.py": "910B",
    "03_your_own_tensors.py": "cube_math_type 2",
    "04_your_own_schedule.py": "equal bits: True",
}


def test_every_example_is_listed():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs(name, capsys):
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert SAID[name] in capsys.readouterr().out
