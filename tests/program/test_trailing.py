"""Is what the compiled engine would know too late refused there, and nothing else?"""

import pytest

from ascendsim.errors import ProgramError
from ascendsim.program.places import Slot
from ascendsim.program.program import Program
from ascendsim.timing import kernel as door
from tests.helpers.both_engines import time_kernel
from tests.helpers.fake_machine import Fake, FakeProfile, kernel, program

PROFILE = FakeProfile(read=(12, 9), write=(8, 8), depth=1)
WRITE = Fake("FIX", kind="write", bytes=40, peak=3)
LOAD = Fake("MTE2", kind="read", bytes=58, peak=3)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        # MTE1 waits for a long read; M trails MTE1, and Fixpipe, which writes, trails M.
        (
            (LOAD, (Fake("MTE1"), (0,)), (Fake("M"), (), (), (1,)), (WRITE, (), (), (2,))),
            "itself trails another",
        ),
        ((WRITE, (Fake("M", 5), (), (), (0,))), "trails one that moves bytes"),
    ],
)
def test_what_would_be_known_too_late_is_refused_and_not_timed_wrong(rows, says):
    # A second core writes as well: which share of the link it has hangs on when the first one began.
    made = kernel([program(*rows), program(WRITE, WRITE)])
    assert door.time_kernel(made, PROFILE, engine="simpy").cycles > 0
    for asked in (door.time_kernel, door.measure_kernel):
        with pytest.raises(ProgramError, match=f"{says}.*only the engine simpy obeys this"):
            asked(made, PROFILE, engine="compiled")


def test_fixpipe_trails_a_product_that_trails_nothing():
    made = kernel([program(LOAD, (Fake("M", 5), (0,)), (WRITE, (), (), (1,))), program(WRITE, WRITE)])
    assert time_kernel(made, PROFILE).cycles > 0


def test_only_the_newest_result_in_a_slot_counts():
    # The first product trails a load. The second is put over it and trails nothing; Fixpipe trails that one.
    loaded, tile = Slot("L1", 32, "loaded", 0), Slot("L1", 32, "tile", 1)
    made = [
        Fake("MTE1", 3, writes=(loaded,)),
        Fake("M", 5, reads=(loaded,), writes=(tile,), trails=True),
        Fake("M", 5, writes=(tile,)),
        Fake("FIX", kind="write", bytes=40, peak=3, reads=(tile,), trails=True),
    ]
    assert time_kernel(kernel([Program(made, (loaded, tile), {})]), PROFILE).cycles > 0
