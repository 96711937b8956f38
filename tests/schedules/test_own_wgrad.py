"""Can a user write a loop nest of grad_weight from instructions on single tiles, and get the same bits?"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from ascendsim.errors import ConfigError
from ascendsim.instructions.movers import FillL1
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.blocks import BlockSchedule, Writeback, tile_rings
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.ops.schedules.wgrad.tasks import WgradTiles
from ascendsim.program.nest import Nest
from ascendsim.program.program import NestProgram
from ascendsim.program.walk import Axis
from ascendsim.timing.kernel import time_kernel
from tests.helpers.conv_cases import SPLIT, UNIFIED, assert_same_bits, call_of, run, tensors_of

ONLY_WEIGHT = (False, True, False)
PROBLEMS = [
    ConvProblem((3, 20, 9, 10), (24, 20, 3, 3), 1, 1),
    ConvProblem((2, 20, 7, 6), (20, 40, 2, 2), 2, transposed=True),
    ConvProblem((1, 18, 4, 5, 5), (18, 18, 2, 1, 2)),
]


class ForgetfulNest(Nest):
    """Nothing stays in L1: every range of pixels loads both its tiles, into the slots whose turn it is."""

    def __init__(self, schedule, sizes):
        super().__init__(schedule.profile, "forgetful")
        cut, gemm, target = schedule.tasks, schedule.gemm, schedule.target
        left, right, l0a, l0b, l0c = tile_rings(self, schedule.tiling, sizes, gemm.sliding.itemsize)
        out = Writeback(self, target, sizes.m, sizes.n, 0)
        t = WgradTiles(self, cut)
        group, depth, part, row, column = self.task(
            group=gemm.groups, depth=len(gemm.depths), part=cut.splits, row=t.rows, column=t.columns
        )
        box = t.box_of[column]
        c, begun = self.next(l0c), self.let(0, "begun", Axis(2, [0, 1]))
        with self.loop(t.runs[depth * cut.splits + part], "run") as run_:
            small, big = t.small_of[run_], t.big_of[run_]
            with self.loop(t.images_of(run_), "image") as image, self.loop(t.ranges_of(run_), "range") as at:
                a1, b1 = self.next(left), self.next(right)
                in_left, in_right = t.left_of[at], t.right_of[at]
                self.emit(t.copy_small, [a1], [group, image, small, row, in_left])
                seen = [in_right, box, *t.sizes_of(in_right, box)]
                self.emit(t.clear, [b1], seen)
                self.emit(t.copy_big, [b1], [group, image, big, *seen])
                with self.loop(t.slices_of[at], "slice") as slice_:
                    a, b = self.next(l0a), self.next(l0b)
                    self.emit(t.load_small, [a, a1], [row, slice_])
                    self.emit(t.load_big, [b, b1], [slice_, column])
                    self.emit(t.barrier, (), [begun, row, column])
                    self.emit(t.mmad, [c, a, b], [begun, row, column, t.depth_of[slice_]])
                    self.set(begun, 1)
        place = [group, depth, row, column] if target is gemm.output else [part, group, depth, row, column]
        out.write(c, place, t.size, t.output, (column, t.widths), atomic=schedule.atomic)


@dataclass(frozen=True)
class Forgetful(Wgrad):
    """The base blocks of `Wgrad`, by another nest."""

    name: ClassVar[str] = "forgetful"

    def nest(self, sizes):
        return ForgetfulNest(self, sizes)


def planned(problem, schedule, split=1, profile=SPLIT):
    tiling = Tiling(16, 32, 16, 2, 2, k_split=split, used_cores=2)
    call = call_of(problem, profile=profile, deterministic=True)
    return replace(call, plans=call.plans | {"grad_weight": Plan(schedule, tiling)})


@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=lambda profile: profile.variant)
@pytest.mark.parametrize("split", [1, 3])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_bits_are_those_of_the_definition(problem, split, profile):
    call, tensors = planned(problem, Forgetful, split, profile), tensors_of(problem, data="wide")
    made, _ = run(call, tensors, 3, ONLY_WEIGHT)
    want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)
    assert_same_bits(made["grad_weight"], want["grad_weight"])


def test_it_loads_a_pair_of_tiles_for_every_task_where_the_usual_nest_keeps_them():
    # 32 x 32 channels, one tap, 16 pixels: 2 x 2 tasks of one segment, each tile 16 pixels of 16 channels of
    # 2 bytes. The usual nest loads two of the small side and, in its two slots, two of the big side.
    tiling = Tiling(16, 16, 16, used_cores=1)
    call, found = call_of(ConvProblem((1, 32, 4, 4), (32, 32, 1, 1))), {}
    for name in ("wgrad", Forgetful):
        kernel = lower(replace(call, plans={"grad_weight": Plan(name, tiling)}), ONLY_WEIGHT).kernels[0]
        found[name] = time_kernel(kernel, SPLIT).bytes["l2_read"]
    assert found == {"wgrad": (2 + 2) * 512, Forgetful: 4 * 2 * 512}


# --- what all schedules share


def test_a_schedule_must_say_what_it_does():
    assert Schedule.__abstractmethods__ == {"tensors", "dealt", "program", "order"}
    # A nest over base blocks adds its cut, and its loops; all else follows from them.
    assert BlockSchedule.__abstractmethods__ == {"tensors", "order", "tasks", "nest"}


def test_a_schedule_has_no_programs_for_cores_without_tasks():
    # One group of 16 x 16 channels and one tap: a single base block, whatever number of cores is asked for.
    schedule = planned(ConvProblem((1, 16, 3, 3), (16, 16, 1, 1)), "wgrad").schedule("grad_weight")
    [phase] = schedule.phases()
    assert [work.core.index for work in phase.work] == [0]
    assert not schedule.casts_sums


def test_tasks_are_dealt_in_ranges_of_their_sequence():
    schedule = planned(PROBLEMS[0], "wgrad").schedule("grad_weight")
    assert np.array_equal(np.concatenate(schedule.dealt()), schedule.sequence())
    assert len(schedule.dealt()) == 2


def test_a_tiling_is_refused_when_the_schedule_is_made():
    schedule = planned(PROBLEMS[0], "wgrad").schedule("grad_weight")
    with pytest.raises(ConfigError, match="swizzle is 2, but schedule wgrad does not read it"):
        replace(schedule, tiling=replace(schedule.tiling, swizzle=2))
    with pytest.raises(ConfigError, match="base_m is 8, which is no multiple of 16"):
        replace(schedule, tiling=replace(schedule.tiling, base_m=8))


def test_parts_without_pixels_are_told():
    # 3 images of 90 pixels in ranges of 32: nine segments, so ten parts leave one without any.
    assert not planned(PROBLEMS[0], "wgrad", 9).schedule("grad_weight").tasks.has_gaps
    assert planned(PROBLEMS[0], "wgrad", 10).schedule("grad_weight").tasks.has_gaps


def test_a_tile_is_loaded_where_no_slot_holds_it():
    nest = Nest(SPLIT)
    ring = nest.ring("L1", 32, "A1", 2)
    [tile] = nest.task(tile=3)
    with nest.hold(ring, tile) as slot:
        nest.emit(lambda slot, tile: FillL1(slot, 32, (tile,)), [slot], [tile])
    nest.emit(lambda slot: FillL1(slot, 16, ("used",)), [slot])
    steps = NestProgram(nest, [["abc".index(name)] for name in "abacab"]).instructions
    loads = [(step.dst.name[-2], "abc"[step.tile_shape[0]]) for step in steps if step.bytes == 32]
    # Two slots: a and b stay until c takes the older one, a's; then a takes b's, and b takes c's.
    assert loads == [("0", "a"), ("1", "b"), ("0", "c"), ("1", "a"), ("0", "b")]
    assert [step.dst.name[-2] for step in steps if step.bytes == 16] == ["0", "1", "0", "0", "1", "0"]
