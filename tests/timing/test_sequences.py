"""Does a call behind others find in L2 what those have left, and nothing else?"""

from dataclasses import replace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.frozen import FrozenMap
from ascendsim.ops.sequences import L2Left, estimate_behind, left_by_call
from ascendsim.profile import parse_changes
from ascendsim.studies.engine.measure import left_before, measure
from ascendsim.studies.engine.point import NETWORK, Point
from ascendsim.studies.hardware.gains import base_points
from ascendsim.studies.hardware.records import Question, StudiedLayer

# A product whose kernels change no layouts, so that a call's tensors are those that the user knows.
ON = {"product": "910_95", "output_mask": (True, True, False)}
LATER = ConvProblem((2, 32, 14, 14), (48, 32, 1, 1))
EARLIER = ConvProblem((2, 64, 14, 14), (32, 64, 3, 3), padding=1)
OTHER = ConvProblem((2, 64, 14, 14), (40, 64, 3, 3), padding=1)
BOTH = (True, True, False)


def read_from_memory(result):
    return sum(kernel.bytes["memory_read"] for kernel in result.kernels)


def test_behind_nothing_is_chained():
    chained = estimate(EARLIER, l2_start="chained", **ON)
    behind = estimate_behind(L2Left(), EARLIER, **ON)
    assert behind.kernels == chained.kernels
    assert "L2 holds what the calls before this one have left" in " ".join(behind.notes)


def test_the_grad_input_of_the_layer_behind_is_found_as_grad_output():
    left = left_by_call(L2Left(), LATER, **ON)
    alone, behind = estimate(EARLIER, l2_start="chained", **ON), estimate_behind(left, EARLIER, **ON)
    # All tensors of both calls fit, so that just grad_output is not fetched: 2 x 32 x 14 x 14 numbers.
    assert read_from_memory(alone) - read_from_memory(behind) == 2 * 32 * 14 * 14 * 2


def test_what_has_another_size_is_fetched():
    left = left_by_call(L2Left(), LATER, **ON)
    alone, behind = estimate(OTHER, l2_start="chained", **ON), estimate_behind(left, OTHER, **ON)
    assert read_from_memory(alone) == read_from_memory(behind)


def test_weights_and_activations_of_another_call_are_not_found():
    # The same call once more: its tensors have the names and sizes of those in L2, and are others. What it
    # made is no grad_output of its size: 64 channels, not 32.
    left = left_by_call(L2Left(), EARLIER, **ON)
    alone, again = estimate(EARLIER, l2_start="chained", **ON), estimate_behind(left, EARLIER, **ON)
    assert read_from_memory(alone) == read_from_memory(again)


def test_of_two_grad_inputs_of_one_size_the_latest_is_found():
    held = FrozenMap({"call 0: grad_input": (100, 100), "call 1: grad_input": (50, 50)})
    count = 2 * 32 * 14 * 14
    made = (("call 1: grad_input", count, "float16"), ("call 0: grad_input", count, "float16"))
    found = L2Left(held, made, 2).found_by(EARLIER, "float16")
    assert dict(found) == {"call 0: grad_input": (100, 100), "grad_output": (50, 50)}
    # In another format it is another tensor.
    assert L2Left(held, made, 2).found_by(EARLIER, "float32") == held


def test_no_more_is_left_than_l2_holds():
    small = load_profile("910_95", overrides={"l2.capacity_bytes": 100_000})
    left = left_by_call(L2Left(), LATER, output_mask=BOTH, product=small)
    left = left_by_call(left, EARLIER, output_mask=BOTH, product=small)
    assert 0 < sum(held for held, _ in left.held.values()) <= 100_000
    assert all(0 <= dirty <= held for held, dirty in left.held.values())


# ---- As points of a study


def point(**options):
    before = ((LATER, BOTH),)
    return Point(EARLIER, "910_95", gradients=BOTH, l2_start=NETWORK, before=before, **options)


def test_a_point_is_the_call_behind_those_before_it():
    made = estimate_behind(left_by_call(L2Left(), LATER, **ON), EARLIER, **ON)
    answer = measure(point())
    assert (answer.cycles, answer.time_us) == (sum(k.cycles for k in made.kernels), made.time_us)


def test_the_key_knows_the_calls_before():
    assert (
        len({point().key, replace(point(), before=()).key, replace(point(), before=((OTHER, BOTH),)).key})
        == 3
    )


@pytest.mark.parametrize("path", ["paths.GM_L1.bytes_per_cycle", "links.memory.nominal_tb_per_s"])
def test_a_figure_of_speed_changes_nothing_of_what_is_left(path):
    # So `left_before` leaves such figures out; here they are in.
    fast = load_profile("910_95", overrides={path: 2 * load_profile("910_95").figures[path].value})
    assert left_by_call(L2Left(), LATER, output_mask=BOTH, product=fast) == left_before(point())


def test_a_smaller_l2_is_left_with_less():
    small = FrozenMap({"l2.capacity_bytes": 100_000})
    assert sum(held for held, _ in left_before(point(changes=small)).held.values()) <= 100_000


def test_the_layers_behind_run_before_the_last_one_first():
    layers = tuple(StudiedLayer(str(at), one, BOTH) for at, one in enumerate((OTHER, EARLIER, LATER)))
    points = base_points(Question("t", "910_95", layers, parse_changes("cores.cube=x2"), (NETWORK, "warm")))
    said = [points[layer, NETWORK].before for layer in layers]
    assert said == [((LATER, BOTH), (EARLIER, BOTH)), ((LATER, BOTH),), ()]
    assert points[layers[0], "warm"].before == ()
