"""Is what the buffers of a core hold told as it is, over time and by purpose?

Of kernels whose every cycle is written by hand, and of real ones.
"""

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.program.places import Slot
from ascendsim.program.program import Program
from ascendsim.timing.timeline import CoreTimeline, PhaseTimeline, Tiles, Timeline, levels, occupied
from tests.helpers.fake_machine import Fake
from tests.helpers.hand_timeline import CUBE0, CUBE1, VECTOR0

A, B = (Slot("L1", 96, f"A1[{copy}]", copy) for copy in range(2))
LEFT = Slot("L0A", 64, "A0", 2)
BYTES = {"L1": 192, "L0A": 64}


def work(core, *rows, slots=(A, B, LEFT), buffer_bytes=BYTES):
    """A core's work of rows (instruction, start, end); everything is issued at once."""
    made, starts, ends = zip(*rows, strict=True)
    program = Program(made, slots, buffer_bytes)
    return CoreTimeline((core,), program, [0] * len(made), list(starts), list(ends), list(ends))


def copy(slot):
    return Fake("MTE2", writes=(slot,))


def load(slot):
    return Fake("MTE1", reads=(slot,), writes=(LEFT,))


PRODUCT = Fake("M", reads=(LEFT,))
# Two tiles are copied in turn; each is loaded to L0A and multiplied.
ROWS = [
    (copy(A), 10, 20),
    (load(A), 20, 25),
    (PRODUCT, 25, 30),
    (copy(B), 20, 40),
    (load(B), 40, 45),
    (PRODUCT, 45, 50),
]


def test_a_slot_holds_a_tile_from_its_making_to_its_last_reading():
    found = {(level.buffer, level.cycle): level.bytes for level in levels(work(CUBE0, *ROWS), len(ROWS))}
    # A1[0] from 10 to 25, A1[1] from 20 to 45; A0 from 20 to 30 and from 40 to 50.
    assert found == {
        ("L1", 10): 96,
        ("L1", 20): 192,
        ("L1", 25): 96,
        ("L1", 45): 0,
        ("L0A", 20): 64,
        ("L0A", 30): 0,
        ("L0A", 40): 64,
        ("L0A", 50): 0,
    }


def of(*phases):
    return occupied(Timeline("k", 200, phases, {}))


def test_buffers_are_told_with_their_tiles_and_what_they_hold_most():
    one, two = of(PhaseTimeline("compute", 0, 60, (work(CUBE0, *ROWS),)))
    assert (one.buffer, one.core, one.reserved_bytes, one.most_bytes) == ("L1", CUBE0, 192, 192)
    # Two copies of 96 bytes take turns.
    assert one.tiles == (Tiles("A1", 2, 96),)
    assert one.levels == ((10, 96), (20, 192), (25, 96), (45, 0))
    assert (two.buffer, two.tiles, two.most_bytes) == ("L0A", (Tiles("A0", 1, 64),), 64)


def test_a_copy_that_is_never_used_is_reserved_all_the_same():
    one, _ = of(PhaseTimeline("compute", 0, 60, (work(CUBE0, *ROWS[:3]),)))
    assert (one.tiles, one.most_bytes, one.reserved_bytes) == ((Tiles("A1", 2, 96),), 96, 192)


def test_the_core_that_ends_last_is_told_over_all_phases():
    short, long = work(CUBE0, *ROWS[:3]), work(CUBE1, *ROWS)
    later = work(CUBE1, (copy(A), 70, 80), (load(A), 80, 90))
    first = PhaseTimeline("compute", 0, 60, (short, long))
    found = of(first, PhaseTimeline("again", 70, 90, (later,)))
    assert {one.core for one in found} == {CUBE1}
    assert found[0].levels[-2:] == ((70, 96), (90, 0))


def test_the_vector_core_that_ends_last_has_its_own_buffer():
    tile = Slot("UB", 32, "in", 0)
    adding = work(
        VECTOR0,
        (Fake("MTE2", writes=(tile,)), 70, 75),
        (Fake("V", reads=(tile,)), 75, 80),
        slots=(tile,),
        buffer_bytes={"UB": 32},
    )
    phases = PhaseTimeline("compute", 0, 60, (work(CUBE0, *ROWS),)), PhaseTimeline("add", 70, 80, (adding,))
    assert [(one.buffer, one.core) for one in of(*phases)] == [("L1", CUBE0), ("L0A", CUBE0), ("UB", VECTOR0)]


def test_a_kernel_without_work_has_no_buffers():
    assert of() == []


@pytest.mark.parametrize("product", ["910B2", "950PR_9589", "310P"])
@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_real_kernels_hold_no_more_than_they_reserve_and_reserve_no_more_than_there_is(product, gradient):
    profile = load_profile(product)
    layer = ConvProblem((2, 64, 14, 14), (64, 64, 3, 3), padding=1)
    mask = (gradient == "grad_input", gradient == "grad_weight", False)
    kernel = next(k for k in estimate(layer, product=product, output_mask=mask).kernels if k.macs)
    found = occupied(kernel.timeline)
    assert {"L1", "L0A", "L0B", "L0C"} <= {one.buffer for one in found}
    for one in found:
        assert 0 < one.most_bytes <= one.reserved_bytes <= profile.buffers[one.buffer].capacity_bytes
        assert sum(tile.copies * tile.size_bytes for tile in one.tiles) == one.reserved_bytes
        assert one.levels[-1][1] == 0
        assert one.levels[-1][0] <= kernel.cycles
