"""Are tasks that come round after some images dealt, told apart and written down as a plain list is?"""

import random
from dataclasses import replace
from typing import NamedTuple

import pytest

from ascendsim import legal_tilings
from ascendsim.errors import ConfigError
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.schedules.ranges import Rotation, Rounds, deal, rotated
from ascendsim.ops.schedules.wgrad.stream import StreamTasks
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import call_of
from tests.helpers.requests import nest_plan

FOUR = load_profile("950PR_9589", {"cores.cube": 4, "cores.vector": 8})
IN_TURN = Tiling(
    *(16, 16, 16, 2, 2), used_cores=4, single_core_m=16, mapping="interleaved", task_order="batch group d m n"
)


class Block(NamedTuple):
    image: int
    name: str


def test_the_example_of_the_docstring():
    tasks = Rotation([Rounds(range(0, 9, 4), (Block(0, "a"), Block(2, "b")))])
    assert [task.image for task in tasks] == [0, 2, 4, 6, 8, 10]
    assert (len(tasks), tasks[1], tasks[-1]) == (6, Block(2, "b"), Block(10, "b"))


def test_rounds_without_tasks_or_images_are_none():
    assert Rotation([Rounds(range(0), (Block(0, "a"),)), Rounds(range(3), ())]).rounds == ()


@pytest.mark.parametrize(("tasks", "period"), [(7, 4), (6, 2), (8, 1), (1, 4)])
def test_tasks_come_round_when_images_have_used_up_whole_turns_of_the_cores(tasks, period):
    dealt = rotated(16, tasks, 4, lambda image, task: [Block(image, task)])
    assert {made.rounds[0].images for made in dealt} == {range(0, 16, period)}
    # As many numbers as there are in `period` images, on 4 cores.
    assert {len(made.rounds[0].tasks) for made in dealt} == {tasks * period // 4}


def test_no_core_gets_anything_where_there_is_none():
    assert rotated(8, 0, 4, lambda image, task: [Block(image, task)]) == []


@pytest.mark.parametrize("seed", range(40))
def test_each_core_gets_what_it_gets_of_a_list(seed):
    rng = random.Random(seed)
    images, tasks, cores = rng.randint(1, 40), rng.randint(1, 9), rng.randint(1, 8)
    each = [rng.randint(1, 3) for _ in range(tasks)]

    def blocks_of(image, task):
        return [Block(image, f"{task}/{part}") for part in range(each[task])]

    listed = [blocks_of(image, task) for image in range(images) for task in range(tasks)]
    tiling = Tiling(16, 16, 16, used_cores=cores, mapping="interleaved")
    assert [list(tasks) for tasks in rotated(images, tasks, cores, blocks_of)] == deal(listed, tiling)


def drawn(seed):
    """A random problem, in two or three dimensions."""
    rng = random.Random(seed)
    size = (rng.randint(3, 9), rng.randint(3, 9))
    channels, out, batch = rng.choice((16, 30, 48)), rng.choice((16, 40, 64)), rng.choice((1, 2, 5, 13, 24))
    if rng.random() < 0.5:
        return ConvProblem((batch, channels, *size), (out, channels, 3, 3), rng.choice((1, 2)), 1)
    kernel, pad = rng.choice((1, 2, 3)), rng.choice((0, 1))
    deep = (batch, channels, rng.randint(3, 6), *size)
    return ConvProblem(deep, (out, channels, kernel, 2, 2), (rng.choice((1, 2)), 1, 1), (pad, 0, 0))


def planned(problem, gradient, cores=4):
    """A call under the plan of 910_95 with a few cores, or one like it."""
    profile = load_profile("950PR_9589", {"cores.cube": cores, "cores.vector": 2 * cores})
    plan = nest_plan(problem, gradient, "float16", profile)
    if plan.schedule == "dgrad_split":
        # The nest whose tasks are numbered is that of shares, which takes the same blocks.
        whole = replace(plan.tiling, kernel_split="", al1_buffers=2, bl1_buffers=2)
        plan = replace(plan, schedule="dgrad_shares", tiling=whole)
    # Small tiles, so that a task is several of them, and what L1 holds matters.
    small = replace(plan.tiling, base_m=min(plan.tiling.base_m, 32), base_n=min(plan.tiling.base_n, 32))
    return call_of(problem, "float16", profile=profile, tilings={gradient: replace(plan, tiling=small)})


def partition(signatures):
    """Return which cores are alike."""
    return [signatures.index(signature) for signature in signatures]


@pytest.mark.parametrize("seed", range(60))
def test_cores_are_alike_that_are_alike_when_all_tiles_are_numbered(seed, monkeypatch):
    problem = drawn(seed)
    schedule = planned(problem, "grad_input").schedule("grad_input")
    dealt = schedule.dealt()
    listed = [schedule.tasks._spelled(list(tasks)) for tasks in dealt]
    assert partition([schedule.signature(tasks) for tasks in dealt]) == partition(listed)
    schedule = planned(problem, "grad_weight").schedule("grad_weight")
    dealt = schedule.dealt()
    made = partition([schedule.signature(tasks) for tasks in dealt])
    monkeypatch.setattr(StreamTasks, "shares_tiles", True)
    assert made == partition([WgradTasks.signature(schedule.tasks, tasks) for tasks in dealt])


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
@pytest.mark.parametrize("seed", range(20))
def test_rows_are_those_of_the_tasks_one_by_one(seed, gradient):
    cut = (schedule := planned(drawn(seed), gradient).schedule(gradient)).tasks
    for tasks in schedule.dealt():
        assert cut.rows(tasks).tolist() == cut.rows(list(tasks)).tolist()


def told_by_boxes(cut, tasks):
    """The signature of the tasks of a core of grad_weight, with all boxes of taps in it as they are."""
    lefts, rights, met = {}, {}, []
    for task in tasks:
        group, depth, part, row, rows, (box, first_group, groups, _) = task
        # Numbered whether or not kernel depths share tiles.
        tiles = _numbered(lefts, (group, part, row)), _numbered(rights, (group, part, box))
        if len(cut.gemm.depths) > 1:
            tiles = tuple(
                (_numbered(lefts, (group, small, row, run)), _numbered(rights, (group, big, box, run)))
                for small, big, run in cut.segments(task)
            )
        met.append((rows, box[1:], first_group, groups, cut._part_shapes[depth, part], tiles))
    return tuple(met)


def _numbered(known, key):
    return known.setdefault(key, len(known))


@pytest.mark.parametrize("size", [(12, 9), (5, 9, 8)])
def test_cores_of_grad_weight_are_alike_by_numbers_as_they_are_by_boxes(size):
    kernel = (3,) * len(size)
    problem = ConvProblem((3, 32, *size), (48, 32, *kernel), padding=1)
    profile = load_profile("950PR_9589")
    for tiling in legal_tilings(problem, "grad_weight", profile).sample(12, seed=3):
        schedule = call_of(problem, "float16", profile=profile, tilings={"grad_weight": tiling}).schedule(
            "grad_weight"
        )
        dealt = [tasks for tasks in schedule.dealt() if tasks]
        signatures = [schedule.signature(tasks) for tasks in dealt]
        listed = [told_by_boxes(schedule.tasks, tasks) for tasks in dealt]
        assert partition(signatures) == partition(listed), tiling


def test_a_list_that_deals_fewer_blocks_than_there_are_is_noticed():
    problem = ConvProblem((6, 16, 4, 4), (16, 16, 3, 3), 1, 1)
    call = call_of(problem, profile=FOUR, tilings={"grad_input": Plan("dgrad_shares", IN_TURN)})
    schedule = call.schedule("grad_input")
    assert sum(map(len, schedule._checked())) == 6
    own = type("Own", (type(schedule),), {"dealt": lambda self: [[*self.tasks.tasks][1:]]})
    with pytest.raises(ConfigError, match="it leaves out 1 and repeats 0"):
        own(schedule.gemm, schedule.tiling, schedule.profile)._checked()
