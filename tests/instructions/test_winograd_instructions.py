"""Do the transforms of Winograd mean, touch and cost what they say?

A vector instruction of the toy product takes 2 cycles and then 2 for each 256 bytes (binary).
"""

import numpy as np
import pytest

from ascendsim import load_profile
from ascendsim.numerics.winograd import big_line, in_plane, small_line, taps_line
from ascendsim.program.places import Slot
from ascendsim.vector.winograd import BIG_STEPS, SMALL_STEPS, TAPS_STEPS, ToPoints, ToTaps
from tests.helpers.toy_profiles import toy_split
from tests.instructions.test_vector_instructions import TOY, A, B, memory, put

RNG = np.random.default_rng(0)
LINES = {True: small_line, False: big_line}


def to_points(small, tile_shape, tiles, begin=(0, 0)):
    return ToPoints(A, B, small, tile_shape, tiles, begin)


def points_of(step, pixels):
    mem = memory()
    put(mem, B, pixels)
    step.execute(mem)
    return mem.tile(A)


@pytest.mark.parametrize(("small", "window", "size"), [(True, (4, 6), 2), (False, (6, 8), 4)])
def test_each_tile_of_each_channel_goes_through_the_lines(small, window, size):
    pixels = RNG.standard_normal((2, *window, 8)).astype(np.float32)
    made = points_of(to_points(small, pixels.shape, (2, 3)), pixels)
    assert made.shape == (2, 16, 6, 8)
    for group, row, column, channel in np.ndindex(2, 2, 3, 8):
        tile = pixels[group, 2 * row : 2 * row + size, 2 * column : 2 * column + size, channel]
        want = np.array(in_plane(LINES[small], tile)).reshape(-1)
        assert (made[group, :, 3 * row + column, channel] == want).all()


def test_what_lies_outside_of_the_image_is_zero():
    # A window of 6 x 6 that begins a row above and two columns beside the image, and ends a row below it.
    pixels = RNG.standard_normal((1, 4, 3, 8)).astype(np.float32)
    whole = np.zeros((1, 6, 6, 8), np.float32)
    whole[:, 1:5, 2:5] = pixels
    made = points_of(to_points(False, pixels.shape, (2, 2), (1, 2)), pixels)
    assert (made == points_of(to_points(False, whole.shape, (2, 2)), whole)).all()


@pytest.mark.parametrize(
    ("small", "steps", "window"), [(True, SMALL_STEPS, (8, 16)), (False, BIG_STEPS, (10, 18))]
)
def test_a_transform_costs_a_repeat_for_each_step_and_64_elements(small, steps, window):
    # 3 groups x 32 tiles x 8 channels are 12 times 64 elements.
    whole = to_points(small, (3, *window, 8), (4, 8))
    assert whole.cost(TOY).cycles == 2 + 2 * 12 * steps
    # Part of the window lies outside: clearing it takes a repeat for each 64 of its elements.
    less = to_points(small, (3, window[0] - 1, window[1], 8), (4, 8), (1, 0))
    cleared = -(-3 * window[0] * window[1] * 8 // 64)
    assert less.cost(TOY).cycles == 2 + 2 * (12 * steps + cleared)
    assert whole.shape != less.shape


def test_steps_are_those_that_the_lines_have():
    # Two pixels to four points: s0 as it is, a sum, a difference and a change of sign: two columns without
    # the first (it stays where it is), four rows with it. Four to four: four sums for eight lines. Four sums
    # to three taps: six for four columns and three rows.
    assert (SMALL_STEPS, BIG_STEPS, TAPS_STEPS) == (2 * 3 + 4 * 4, 4 * 4 + 4 * 4, 4 * 6 + 3 * 6)


def sums_and_slots(rows, columns):
    mem = memory()
    slots = tuple(Slot("UB", 4096, f"sums {at}", 1 + at) for at in range(16))
    sums = RNG.standard_normal((16, rows, columns)).astype(np.float32)
    for slot, values in zip(slots, sums, strict=True):
        put(mem, slot, values)
    return mem, slots, sums


@pytest.mark.parametrize("turned", [False, True])
def test_sums_become_taps_in_the_layout_of_weights(turned):
    mem, slots, sums = sums_and_slots(16, 8)
    step = ToTaps(A, slots, 16, 8, 8, turned)
    step.execute(mem)
    made = mem.tile(A)
    for row, column in np.ndindex(16, 8):
        taps = np.array(in_plane(taps_line, sums[:, row, column].reshape(4, 4))).reshape(-1)
        small, big = (column, row) if turned else (row, column)
        # Of a row: group of 8 channels of the big side, tap, channel.
        got = made[small].reshape(-1, 9, 8)[big // 8, :, big % 8]
        assert (got == taps).all()
    assert (step.pipe, step.reads, step.writes, step.gm) == ("V", slots, (A,), None)


def test_taps_cost_a_repeat_for_each_step_and_more_where_they_are_turned():
    # 16 x 8 elements are two repeats of 64.
    _, slots, _ = sums_and_slots(16, 8)
    plain, turned = (ToTaps(A, slots, 16, 8, 8, flag) for flag in (False, True))
    assert plain.cost(TOY).cycles == 2 + 2 * 2 * TAPS_STEPS
    transpose = toy_split().vector.instruction_cycles("transpose", 9 * 2)
    assert turned.cost(TOY).cycles == plain.cost(TOY).cycles + transpose
    assert plain.shape != turned.shape


def test_cycles_of_the_vector_clock_become_those_of_the_cube_once():
    # On the 950PR both clocks are one: a head of 23, 32 steps of 16 repeats.
    cost = to_points(False, (4, 10, 18, 8), (4, 8)).cost(load_profile("950PR_9589"))
    assert cost.cycles == 23 + 32 * 16
