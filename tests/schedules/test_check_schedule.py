"""Does the check of a user's schedule pass what is right, and say of what is wrong what it is?"""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from ascendsim import ConvProblem, Tiling, check_schedule, load_profile
from ascendsim.errors import AclnnError, ConfigError, ProgramError
from ascendsim.ops.schedules import Axis, Dgrad, DgradTiles, NestProgram
from ascendsim.ops.schedules.base import schedule_named
from ascendsim.program.instruction import HAZARDS
from tests.schedules.test_own_schedule import ImagesTogether, TogetherNest, WeightsStay
from tests.schedules.test_own_wgrad import Forgetful

FEW = load_profile("910B2", {"cores.cube": 3})
SMALL = ConvProblem((2, 20, 6, 7), (24, 20, 3, 3), 1, 1)
FLAT = ConvProblem((3, 16, 8, 8), (16, 16, 1, 1))


@pytest.mark.parametrize("name", ["dgrad", "dgrad_columns_outer", "wgrad", WeightsStay, Forgetful])
def test_what_is_right_passes(name):
    to_input, to_weight = Tiling(32, 16, 16, 2, 3, used_cores=2), Tiling(16, 32, 16, 2, 2, used_cores=2)
    tiling = replace(to_weight, k_split=2) if schedule_named(name).makes == "grad_weight" else to_input
    found = check_schedule(name, SMALL, product=FEW, tiling=tiling, orders=2)
    assert found.orders == ("program", "seed 0", "seed 1", "arrival")
    assert found.plan.schedule is name
    assert found.cycles > 0
    assert found.instructions > 100


def test_every_format_is_checked_by_its_own_definition():
    for dtype, mode in (("bfloat16", 0), ("float32", 0), ("float32", 3)):
        assert check_schedule("dgrad", FLAT, dtype, mode, product=FEW, orders=0).cycles > 0
    with pytest.raises(AclnnError, match="grad_output is float8_e5m2"):
        check_schedule("dgrad", FLAT, "float8_e5m2", product=FEW)


# --- what is wrong


class Backwards(Dgrad):
    """The blocks from the last one to the first."""

    def sequence(self):
        return self.tasks.tasks[::-1]


class Forgotten(Dgrad):
    """All blocks but one."""

    def sequence(self):
        return self.tasks.tasks[1:]


@pytest.mark.parametrize("product", ["910B", "310P", "910_95"])
def test_an_order_of_ones_own_is_followed_where_the_product_would_choose_a_grid(product):
    # The cells of a grid have their own order, so such a nest is given none.
    assert not check_schedule(Backwards, SMALL, product=product, orders=1).plan.tiling.has_grid
    with pytest.raises(
        ConfigError, match=r"schedule Forgotten must deal each of its \d+ tasks once; it leaves out 1"
    ):
        check_schedule(Forgotten, SMALL, product=product, orders=1)


@dataclass(frozen=True)
class Hasty(Dgrad):
    """Claims to add its products in two parts, which it does not."""

    name: ClassVar[str] = "hasty"

    def order(self):
        right = super().order()
        return replace(right, parts=(1, len(right.slices) - 1))


def test_another_order_of_additions_is_told():
    plan = {"grad_input": Tiling(32, 16, 8, used_cores=2)}
    message = (
        r"schedule hasty: grad_input in program order differs from the definition in [\d,]+ of 1,680 "
        r"elements, first at \(\d, \d+, \d, \d\): got .*, due .*; a product is left out, comes twice, or in"
    )
    # In float32, where sums show their last bit.
    with pytest.raises(ProgramError, match=message):
        check_schedule(Hasty, SMALL, "float32", product=FEW, tiling=plan)


class Hurried(Dgrad):
    """Lets a load into a slot begin before the slot has been read."""

    name = "hurried"

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "hazards", HAZARDS - {"WAR"})


def test_a_wait_too_few_is_told():
    # In program order every tile is still there when it is read; in some legal order the next one has come.
    even = ConvProblem((3, 32, 8, 8), (32, 32, 1, 1))
    plan = {"grad_input": Tiling(16, 16, 16, used_cores=1)}
    message = (
        r"schedule hurried: grad_input in seed \d+ order differs .*; an instruction reads or writes what it"
    )
    with pytest.raises(ProgramError, match=message):
        check_schedule(Hurried, even, product=FEW, orders=20, tiling=plan)
    # Where the next tile has another shape the machine itself sees it.
    with pytest.raises(ProgramError, match="a wait is missing"):
        check_schedule(Hurried, SMALL, product=FEW, orders=20, tiling=plan)


class Alike(ImagesTogether):
    """Has a signature that does not tell its cores apart."""

    name = "alike"
    signature = Dgrad.signature


class OneForAll(Dgrad):
    """Has one signature for all cores."""

    name = "one_for_all"

    def dealt(self):
        return super().dealt()[::-1]

    def signature(self, _):
        return 0


def test_a_signature_that_tells_too_little_is_told():
    # Two images and one on two cores differ in their instructions, which is noticed as they are timed.
    with pytest.raises(ProgramError, match="have equal signatures, but 11 and 12 instructions"):
        check_schedule(Alike, FLAT, product=FEW, tiling={"grad_input": Tiling(32, 16, 16, used_cores=3)})
    # 64 pixels in tiles of 16 and 48 are as many instructions each, of which those of the second take longer.
    one_image = ConvProblem((1, 16, 8, 8), (16, 16, 1, 1))
    uneven = {"grad_input": Tiling(48, 16, 16, used_cores=2)}
    message = r"one_for_all: [\d,]+ cycles if cores of equal signatures are timed as one, [\d,]+ if each by"
    with pytest.raises(ProgramError, match=message):
        check_schedule(OneForAll, one_image, product=FEW, tiling=uneven)


class AlikeTiles(DgradTiles):
    """Takes all column tiles for alike, of however many channels they are."""

    def __init__(self, nest, cut):
        super().__init__(nest, cut)
        self.columns = Axis(self.columns.extent)


class Careless(ImagesTogether):
    """Says of its column tiles that all cost the same."""

    name = "careless"

    def program(self, tasks):
        return NestProgram(TogetherNest(self, AlikeTiles), self.tasks.rows(tasks), self.hazards)


def test_axes_that_tell_too_little_are_told():
    # 40 channels in tiles of 32 are 32, and what is left of three groups of 16.
    uneven = {"grad_input": Tiling(64, 32, 16, used_cores=1)}
    message = r"nest careless: copy_right\(.*\) makes .*, which does not cost what .*; let `Axis.costs` tell"
    with pytest.raises(ProgramError, match=message):
        check_schedule(Careless, ConvProblem((1, 40, 8, 8), (16, 40, 1, 1)), product=FEW, tiling=uneven)


def test_what_makes_no_gradient_is_refused():
    with pytest.raises(ConfigError, match="check_schedule: matmul makes matmul; it checks gradients alone"):
        check_schedule("matmul", SMALL)
    with pytest.raises(ConfigError, match="schedule is 'dgrat'; did you mean dgrad"):
        check_schedule("dgrat", SMALL)
    with pytest.raises(TypeError, match="'tilling'; did you mean tiling"):
        check_schedule("dgrad", SMALL, tilling=None)
