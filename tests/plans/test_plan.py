"""Does a plan say what it sets, and is it refused where a schedule would obey it in part?"""

from dataclasses import FrozenInstanceError, fields, replace

import pytest

from ascendsim.errors import ConfigError
from ascendsim.ops.plan import (
    OF_ONE_BASE_BLOCK,
    UNCUT,
    Plan,
    Tiling,
    require_obeyed,
    require_whole_units,
    shares,
)
from ascendsim.ops.schedules.base import TILES
from tests.helpers.toy_profiles import toy_split

BASE = Tiling(16, 32, 64)
FOUR = toy_split(**{"cores.cube": 4})


def test_a_tiling_is_a_value():
    assert Tiling(base_m=16, base_n=32, base_k=64) == BASE
    assert len({BASE, Tiling(16, 32, 64), replace(BASE, base_m=32)}) == 2
    with pytest.raises(FrozenInstanceError):
        BASE.base_m = 32


def test_a_block_of_a_core_is_one_base_block_unless_it_is_told():
    assert (BASE.block_m, BASE.block_n) == (16, 32)
    told = replace(BASE, single_core_m=48, single_core_n=96)
    assert (told.block_m, told.block_n) == (48, 96)
    defaults = {field.name: field.default for field in fields(Tiling) if field.type == "int"}
    assert {name for name, default in defaults.items() if default == 0} == {*OF_ONE_BASE_BLOCK, *UNCUT}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, {}),  # base sizes have no default, so they are never news
        ({"base_m": 48}, {}),
        ({"cl0_buffers": 2}, {"cl0_buffers": 2}),
        ({"cl0_buffers": 1}, {}),  # 1 is its default
        ({"swizzle": 3, "unit_flag": True}, {"swizzle": 3, "unit_flag": True}),
        ({"reuse_l1": True, "panels": "columns"}, {"panels": "columns"}),
    ],
)
def test_the_fields_that_are_set_are_those_that_left_their_default(changes, found):
    assert replace(BASE, **changes).set_fields() == found


def test_what_a_schedule_does_not_read_is_refused_by_name():
    require_obeyed("grad_input", "dgrad", BASE, frozenset())  # nothing is set
    told = replace(BASE, swizzle=2)
    require_obeyed("matmul", "matmul", told, frozenset(["swizzle"]))
    with pytest.raises(
        ConfigError, match=r"tiling of grad_input: swizzle is 2, but schedule dgrad does not read it; leave"
    ):
        require_obeyed("grad_input", "dgrad", told, TILES)


def test_every_nest_reads_at_least_the_sizes_that_have_no_default():
    names = [field.name for field in fields(Tiling)]
    assert set(names[:3]) == {"base_m", "base_n", "base_k"} <= TILES <= set(names)


@pytest.mark.parametrize(
    ("tiling", "message"),
    [
        (Tiling(16, 24, 64), "tiling of x: base_n is 24, which is no multiple of 16; take 32"),
        (Tiling(16, 32, 8), "base_k is 8, which is no multiple of 16; take 16"),
        (replace(BASE, used_cores=5), "used_cores is 5, but toy_split has 4 cores; take no more"),
    ],
)
def test_whole_units_and_no_more_cores_than_there_are(tiling, message):
    units = {"base_n": 16, "base_k": 16}
    require_whole_units("x", replace(BASE, used_cores=4), units, FOUR)
    with pytest.raises(ConfigError, match=message):
        require_whole_units("x", tiling, units, FOUR)


def test_shares_by_hand():
    # 7 = 3 + 2 + 2: the first core takes the one more; two tasks are for two cores only.
    assert shares(7, 3) == [range(3), range(3, 5), range(5, 7)]
    assert shares(2, 5) == [range(1), range(1, 2)]
    assert shares(0, 5) == []


def test_a_plan_holds_a_name_or_a_class():
    assert Plan("dgrad", BASE) == Plan("dgrad", Tiling(16, 32, 64)) != Plan("wgrad", BASE)
    assert Plan(int, BASE).schedule is int
