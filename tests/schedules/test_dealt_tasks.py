"""Are tasks numbered, dealt to the cores and told apart as plain loops over them would?"""

import random
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pytest

from ascendsim import legal_tilings
from ascendsim.errors import ConfigError, ProgramError
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.schedules.ranges import BlockRun, as_met, cut, cut_at, deal, runs_of, tasks_of
from ascendsim.ops.schedules.wgrad.stream import StreamTasks
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks
from ascendsim.profile import load_profile
from ascendsim.program.walk import alike
from tests.helpers.conv_cases import blocks_of, call_of, segments_of
from tests.helpers.slow_tilings import nest_plan

FOUR = load_profile("950PR_9589", {"cores.cube": 4, "cores.vector": 8})
IN_TURN = Tiling(
    *(16, 16, 16, 2, 2), used_cores=4, single_core_m=16, mapping="interleaved", task_order="batch group d m n"
)


# --- numbers


def test_tasks_are_all_combinations_of_their_axes_the_last_the_fastest():
    tasks = tasks_of("group pixels phase columns", range(2), [(4, 0), (6, 1)], [7, 8])
    assert [(task.group, task.pixels, task.phase, task.columns) for task in tasks[:5]] == [
        *[(0, 4, 0, 7), (0, 4, 0, 8), (0, 6, 1, 7), (0, 6, 1, 8)],
        (1, 4, 0, 7),
    ]
    assert len(tasks) == 8
    assert len(tasks_of("group image", range(2), range(0))) == 0


def test_the_example_of_the_docstring():
    # Blocks 2 and 3 of image 1, all of image 2, blocks 0 and 1 of image 0 of the other group.
    assert runs_of(range(6, 14), 3, 4) == [
        BlockRun(0, range(1, 2), 2, 4),
        BlockRun(0, range(2, 3), 0, 4),
        BlockRun(1, range(1), 0, 2),
    ]


@pytest.mark.parametrize(
    ("begin", "end", "runs"),
    [
        (0, 24, [BlockRun(0, range(3), 0, 4), BlockRun(1, range(3), 0, 4)]),
        (0, 8, [BlockRun(0, range(2), 0, 4)]),
        (5, 7, [BlockRun(0, range(1, 2), 1, 3)]),  # inside one image
        (5, 8, [BlockRun(0, range(1, 2), 1, 4)]),  # up to its end
        (4, 6, [BlockRun(0, range(1, 2), 0, 2)]),  # from its begin
        (7, 7, []),
    ],
)
def test_a_range_is_parts_of_images_and_whole_ones(begin, end, runs):
    assert runs_of(range(begin, end), 3, 4) == runs


@pytest.mark.parametrize("seed", range(30))
def test_runs_are_the_numbers_that_they_stand_for(seed):
    rng = random.Random(seed)
    outers, images, each = rng.randint(1, 3), rng.randint(1, 6), rng.randint(1, 5)
    begin, end = sorted(rng.choices(range(outers * images * each + 1), k=2))
    listed = [(o, i, b) for o in range(outers) for i in range(images) for b in range(each)]
    found = [
        (run.outer, image, block)
        for run in runs_of(range(begin, end), images, each)
        for image in run.images
        for block in range(run.first, run.last)
    ]
    assert found == listed[begin:end]


@pytest.mark.parametrize("seed", range(20))
def test_ranges_are_cut_where_rows_end(seed):
    draw = random.Random(seed)
    width = draw.randint(1, 9)
    ranges = cut(width * draw.randint(1, 9), draw.randint(1, 30))
    of_rows = [[pixel // width for pixel in range(first, first + count)] for first, count in ranges]
    runs = [(row, rows.count(row)) for rows in of_rows for row in dict.fromkeys(rows)]
    parts = cut_at(ranges, width)
    assert [(first // width, count) for first, count in parts] == runs
    pixels = [pixel for first, count in parts for pixel in range(first, first + count)]
    assert pixels == [pixel for first, count in ranges for pixel in range(first, first + count)]


def test_runs_of_more_images_than_anybody_could_list():
    assert runs_of(range(7 * 10**15 + 3, 14 * 10**15), 10**15, 7) == [
        BlockRun(1, range(1), 3, 7),
        BlockRun(1, range(1, 10**15), 0, 7),
    ]


# --- cores


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_each_core_gets_what_it_gets_of_a_list(seed, in_turn):
    rng = random.Random(seed)
    units, cores = rng.randint(1, 30), rng.randint(1, 8)
    tasks = tasks_of("unit block", range(units), range(rng.randint(1, 3)))
    tasks = tasks[rng.sample(range(len(tasks)), rng.randint(1, len(tasks)))]
    listed = [[task for task in tasks.tolist() if task[0] == unit] for unit in range(units)]
    cores = min(cores, units)
    if in_turn:
        shares = [listed[core::cores] for core in range(cores)]
    else:
        # The first ones have one unit more where it is not even.
        ends = np.cumsum([0, *[units // cores + (core < units % cores) for core in range(cores)]])
        shares = [listed[first:last] for first, last in pairwise(ends)]
    made = deal(tasks, tasks["unit"], units, cores, in_turn=in_turn)
    assert [own.tolist() for own in made] == [[*chain(*share)] for share in shares]


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
    """The schedule of a plan of 910_95 with a few cores, or of one like it."""
    profile = load_profile("950PR_9589", {"cores.cube": cores, "cores.vector": 2 * cores})
    plan = nest_plan(problem, gradient, "float16", profile)
    # Small tiles, so that a task is several of them, and what L1 holds matters.
    tiling = replace(plan.tiling, base_m=min(plan.tiling.base_m, 32), base_n=min(plan.tiling.base_n, 32))
    if plan.schedule == "dgrad_split":
        # The nest whose tasks are numbered is that of shares, which takes the same blocks.
        tiling = replace(tiling, kernel_split="", al1_buffers=2, bl1_buffers=2)
        plan = replace(plan, schedule="dgrad_shares")
    plan = replace(plan, tiling=tiling)
    return call_of(problem, "float16", profile=profile, tilings={gradient: plan}).schedule(gradient)


def partition(signatures):
    """Return which cores are alike."""
    return [signatures.index(signature) for signature in signatures]


def spelled(cut, tasks):
    """What a core of grad_input does: the shapes of its tiles, and which of them are met again."""
    lefts, rights, found, t = {}, {}, [], cut.tiling
    for block in blocks_of(cut, tasks):
        run = block.first_pixel, block.pixels
        shapes = [cut.tile(run, box)._replace(rows=None, cols=None) for box in cut.left_boxes]
        tiles = [
            (
                lefts.setdefault((block.group, block.image, source, run), len(lefts)),
                rights.setdefault((block.group, kernel, block.first_column), len(rights)),
            )
            for kernel, source in cut.gemm.depths[block.depth]
        ]
        # Places in L1 follow from the numbers of a block in its task.
        rows = [first for first, _ in cut.pixel_tiles if first // t.block_m == run[0] // t.block_m]
        columns = [first for first, _ in cut.column_tiles if first // t.block_n == block[5] // t.block_n]
        counted = rows.index(run[0]) % t.al1_buffers, columns.index(block.first_column) % t.bl1_buffers
        found.append((shapes, block.pixels, block.columns, tiles, counted if cut.counted else ()))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_cores_of_grad_input_are_alike_that_meet_alike_tiles(seed):
    schedule = planned(drawn(seed), "grad_input")
    dealt = schedule.dealt()
    listed = [spelled(schedule.tasks, tasks) for tasks in dealt]
    assert partition([schedule.signature(tasks) for tasks in dealt]) == partition(listed)


@pytest.mark.parametrize("seed", range(60))
def test_cores_of_stream_k_are_alike_that_are_alike_when_all_tiles_are_numbered(seed, monkeypatch):
    schedule = planned(drawn(seed), "grad_weight")
    dealt = schedule.dealt()
    made = partition([schedule.signature(tasks) for tasks in dealt])
    monkeypatch.setattr(StreamTasks, "shares_tiles", True)
    assert made == partition([WgradTasks.signature(schedule.tasks, tasks) for tasks in dealt])


def told_by_boxes(cut, tasks):
    """The signature of the tasks of a core of grad_weight, with all boxes of taps in it as they are."""
    lefts, rights, met = {}, {}, []
    for task in blocks_of(cut, tasks):
        group, depth, part, row, rows, (box, first_group, groups, _) = task
        # Numbered whether or not kernel depths share tiles.
        tiles = _numbered(lefts, (group, part, row)), _numbered(rights, (group, part, box))
        if len(cut.gemm.depths) > 1:
            tiles = tuple(
                (_numbered(lefts, (group, small, row, run)), _numbered(rights, (group, big, box, run)))
                for small, big, run in segments_of(cut, depth, part)
            )
        met.append((rows, box[1:], first_group, groups, cut._part_shapes[depth, part], tiles))
    return tuple(met)


def _numbered(known, key):
    return known.setdefault(key, len(known))


@pytest.mark.parametrize("seed", range(12))
def test_segments_of_all_parts_are_those_that_are_listed_one_by_one(seed):
    cut = planned(drawn(seed), "grad_weight").tasks
    parts = [(depth, part) for depth in range(len(cut.gemm.depths)) for part in range(cut.splits)]
    listed = [(at, own) for at, part in enumerate(parts) for own in segments_of(cut, *part)]
    place, (small, big, image, pixels) = cut._segments_of(np.arange(len(parts)))
    assert place.tolist() == [at for at, _ in listed]
    depths_and_images = zip(*(numbers.tolist() for numbers in (small, big, image)), strict=True)
    assert [*depths_and_images] == [(small, big, image) for _, (small, big, (image, *_)) in listed]
    # Pixels are told by number.
    assert alike(pixels.tolist()) == alike([tuple(run) for _, (_, _, (_, *run)) in listed])


@pytest.mark.parametrize("size", [(12, 9), (5, 9, 8)])
def test_cores_of_grad_weight_are_alike_by_numbers_as_they_are_by_boxes(size):
    kernel = (3,) * len(size)
    problem = ConvProblem((3, 32, *size), (48, 32, *kernel), padding=1)
    profile = load_profile("950PR_9589")
    for tiling in legal_tilings(problem, "grad_weight", profile).sample(12, seed=3):
        schedule = call_of(problem, "float16", profile=profile, tilings={"grad_weight": tiling}).schedule(
            "grad_weight"
        )
        dealt = [tasks for tasks in schedule.dealt() if len(tasks)]
        signatures = [schedule.signature(tasks) for tasks in dealt]
        listed = [told_by_boxes(schedule.tasks, tasks) for tasks in dealt]
        assert partition(signatures) == partition(listed), tiling


# --- what is refused


def own_dealing(deal):
    """A schedule that deals the tasks of another as `deal(tasks)` says."""
    problem = ConvProblem((6, 16, 4, 4), (16, 16, 3, 3), 1, 1)
    call = call_of(problem, profile=FOUR, tilings={"grad_input": Plan("dgrad_shares", IN_TURN)})
    schedule = call.schedule("grad_input")
    own = type("Own", (type(schedule),), {"dealt": lambda self: deal(self.tasks.tasks)})
    return own(schedule.gemm, schedule.tiling, schedule.profile)


def test_a_list_that_deals_fewer_blocks_than_there_are_is_noticed():
    assert sum(map(len, own_dealing(lambda tasks: [tasks])._checked())) == 6
    with pytest.raises(ConfigError, match="it leaves out 1 and repeats 0"):
        own_dealing(lambda tasks: [[*tasks][1:]])._checked()


def test_tasks_of_other_fields_are_refused_by_their_nest():
    schedule = own_dealing(lambda tasks: [tasks])
    nest = schedule.program(schedule.tasks.tasks).nest
    with pytest.raises(
        ProgramError, match="tasks have the fields row; they must have group, image, depth, pix"
    ):
        nest.require_tasks(tasks_of("row", range(3)))


@pytest.mark.parametrize("told", [[], [7], [4, 4, 9, 4, 0, 9], [3, 2, 1, 0, 3], [5, 5, 5]])
def test_things_are_numbered_as_they_are_met_first(told):
    assert np.frombuffer(as_met(np.array(told, np.int64)), np.int64).tolist() == alike(told)
