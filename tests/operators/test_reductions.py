"""Is what is remembered of a grad_weight's parts what would be found anew, and of another call another?"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.ops.gradients import reductions as memory
from ascendsim.ops.gradients.reductions import Side, Sides, reductions
from ascendsim.ops.schedules.base import WgradOrder

# Images of 2 x 3 pixels: the small side has two channels, the big side three and a frame of one pixel.
SMALL = Side(1, 12, np.arange(0, 12, 2).tobytes())
BIG = Side(1, 60, np.array([0, 3, 6, 15, 18, 21]).tobytes())
SIDES = Sides(SMALL, BIG, 2, 3, ((0, 0),))
ORDER = WgradOrder(((0, 4), (4, 2)), base_k=3, k_split=2)
MODEL = AccumulationModel.parse("block:2:RNE")


@pytest.fixture(autouse=True)
def _nothing_is_known():
    memory._remembered.cache_clear()


def parts(*asked):
    """Return what the parts read and where they are cut, as plain lists."""
    return [
        (some.left.tolist(), some.right.tolist(), [own.tolist() for own in some.cuts.each()])
        for some in reductions(*asked)
    ]


def test_parts_read_the_pixels_of_their_images_in_the_order_of_the_ranges():
    # Four segments (two images of two ranges), two for each part: an image each. Mmads of 3, 1 and 2 pixels:
    # one that ends in the middle of a block of two ends a piece, and so does the one of a single pixel.
    left, right = np.arange(0, 24, 2), np.array([0, 3, 6, 15, 18, 21])
    assert parts(SIDES, ORDER, MODEL) == [
        (left.tolist(), [*right, *(60 + right)], [[0, 3, 4, 6], [6, 9, 10, 12]])
    ]


def test_parts_of_many_steps_are_made_in_several_goes(monkeypatch):
    # Six steps a part: both fit into twelve, and neither beside the other into eleven.
    (whole,) = parts(SIDES, ORDER, MODEL)
    memory._remembered.cache_clear()
    monkeypatch.setattr(memory, "_STEPS", 11)
    one, two = parts(SIDES, ORDER, MODEL)
    assert (one[0] + two[0], one[1] + two[1]) == whole[:2]
    # Places of cuts count from the begin of each go.
    assert one[2] == two[2] == [[0, 3, 4, 6]]


OTHERS = {
    "small side": (SIDES._replace(small=Side(1, 14, SMALL.places)), ORDER, MODEL),
    "its pixels": (SIDES._replace(small=Side(1, 12, np.arange(12, 0, -2).tobytes())), ORDER, MODEL),
    "big side": (SIDES._replace(big=Side(2, 60, BIG.places)), ORDER, MODEL),
    "images": (SIDES._replace(batch=3), ORDER, MODEL),
    "width": (SIDES._replace(width=2), ORDER, MODEL),
    "depths": (SIDES._replace(pairs=((0, 0), (0, 0))), ORDER, MODEL),
    "parts": (SIDES, replace(ORDER, k_split=1), MODEL),
    "mmads": (SIDES, replace(ORDER, base_k=2), MODEL),
    "model": (SIDES, ORDER, AccumulationModel.parse("seq:RNE")),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_reduction_is_made_anew(other):
    want = parts(*OTHERS[other])
    memory._remembered.cache_clear()
    reductions(SIDES, ORDER, MODEL)
    assert parts(*OTHERS[other]) == want
    assert memory._remembered.cache_info().misses == 2


def test_an_equal_reduction_finds_the_same_arrays():
    first, again = (
        reductions(SIDES, replace(ORDER), AccumulationModel.parse("block:2:RNE")) for _ in range(2)
    )
    assert all(one.left is other.left for one, other in zip(first, again, strict=True))


def test_nobody_can_change_what_later_calls_read():
    for places in reductions(SIDES, ORDER, MODEL)[0][:2]:
        with pytest.raises(ValueError, match="read-only"):
            places[0] = 1


def test_a_long_reduction_is_not_kept():
    # 6 pixels an image: one image more than what is kept.
    long = SIDES._replace(batch=memory._KEPT_STEPS // 6 + 1)
    assert sum(len(left) for left, _, _ in parts(long, ORDER, MODEL)) == 6 * long.batch
    assert memory._remembered.cache_info().currsize == 0


def test_an_order_of_arrivals_is_not_kept():
    order = replace(ORDER, arrivals=np.zeros((2, 1, 1), int))
    assert parts(SIDES, order, MODEL) == parts(SIDES, ORDER, MODEL)
    assert memory._remembered.cache_info().currsize == 1
