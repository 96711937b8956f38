"""Do compiled functions see arrays as they are, and never ask for a place that there is not?"""

import numpy as np
import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.native import Native
from ascendsim.ops import graph_times as known_times
from ascendsim.timing.fast import phase as engine
from ascendsim.timing.l2 import phase as l2
from tests.helpers import native_functions as plain

ROOMS = [(engine, "ENGINE"), (l2, "PREPARE"), (l2, "WALK"), (l2, "CLASSIFY")]
# A network's first layer in small: strides, padding, groups of channels that are not full.
PROBLEM = ConvProblem((3, 5, 9, 9), (20, 5, 3, 3), stride=2, padding=1)


class Checked:
    """An array that has its places from 0 on, and no others."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def _place(self, index):
        assert 0 <= index < len(self.values), f"{index} of {len(self.values)}"
        return index

    def __getitem__(self, index):
        return int(self.values[self._place(index)])

    def __setitem__(self, index, value):
        self.values[self._place(index)] = value


class Plain:
    """The plain functions of compiled ones, over checked arrays; counts its calls."""

    def __init__(self, native):
        self.native, self.calls = native, 0

    def __call__(self, *arguments):
        self.calls += 1
        checked = [Checked(one) if isinstance(one, np.ndarray) else one for one in arguments]
        return self.native.python(*checked)


@pytest.mark.parametrize("start", ["warm", "cold", "handed"])
def test_no_index_lies_outside_of_its_array(start, monkeypatch):
    # Compiled code does not look: from -1 it would read what lies before the array.
    profile = load_profile("910B2", {"l2.capacity_bytes": 4096})
    kept = estimate(PROBLEM, product=profile, l2_start=start)
    # Else kernels of vector cores would not run again.
    known_times._remembered.cache_clear()
    watched = {name: Plain(getattr(room, name)) for room, name in ROOMS}
    for room, name in ROOMS:
        monkeypatch.setattr(room, name, watched[name])
    found = estimate(PROBLEM, product=profile, l2_start=start)
    assert [one.times for one in found.kernels] == [one.times for one in kept.kernels]
    assert all(one.calls for one in watched.values())


@pytest.mark.parametrize("checks", ["0", "1"])
def test_numbers_go_in_and_out_as_the_type_of_the_array_has_them(checks, monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", checks)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    kinds = "int64[]", "int32[]", "uint8[]", "float64[]"
    native = Native((plain.put,), kinds)
    given = np.zeros(3, np.int64), np.zeros(3, np.int32), np.zeros(3, np.uint8), np.zeros(3)
    # 300 in eight bits is 44, and 2**32 + 5 in 32 is 5; a half stays one only as a float.
    assert native(*given) == 0
    made = [array.tolist() for array in given]
    assert made == [[0, 2**40, 2], [0, 5, 2], [0, 44, 2], [0, 0.5, 2.5]]
