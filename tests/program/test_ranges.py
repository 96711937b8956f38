"""Are ranges of tasks, of which only runs are looked at, the lists that they stand for?"""

import random

import numpy as np
import pytest

from ascendsim.ops.schedules.ranges import Run, TaskRange


def make(outer, image, block):
    return outer, image, block


def both(outers, images, blocks):
    """A range of all tasks, and the list of them by three plain loops."""
    listed = [(o, i, b) for o in outers for i in range(images) for b in blocks]
    return TaskRange(outers, images, blocks, make), listed


def drawn(seed):
    """A part of a random range, with its list, the blocks of an image, and where the part begins."""
    rng = random.Random(seed)
    outers, images = "abc"[: rng.randint(1, 3)], rng.randint(1, 6)
    blocks = list(range(10, 10 + rng.randint(1, 5)))
    whole, listed = both(outers, images, blocks)
    begin, end = sorted(rng.choices(range(len(listed) + 1), k=2))
    return whole[begin:end], listed[begin:end], blocks, begin


EXAMPLE = both("gh", 3, "wxyz")


def test_the_example_of_the_docstring():
    whole, listed = EXAMPLE
    assert len(whole) == len(listed) == 24
    part = whole[6:14]
    assert list(part) == listed[6:14]
    # Blocks 2 and 3 of image 1, all of image 2, blocks 0 and 1 of image 0 of the other group.
    assert list(part.runs()) == [
        Run(0, range(1, 2), 2, 4),
        Run(0, range(2, 3), 0, 4),
        Run(1, range(1), 0, 2),
    ]


@pytest.mark.parametrize(
    ("begin", "end", "runs"),
    [
        (0, 24, [Run(0, range(3), 0, 4), Run(1, range(3), 0, 4)]),
        (0, 8, [Run(0, range(2), 0, 4)]),
        (5, 7, [Run(0, range(1, 2), 1, 3)]),  # inside one image
        (5, 8, [Run(0, range(1, 2), 1, 4)]),  # up to its end
        (4, 6, [Run(0, range(1, 2), 0, 2)]),  # from its begin
        (3, 21, [
            Run(0, range(1), 3, 4), Run(0, range(1, 3), 0, 4),
            Run(1, range(2), 0, 4), Run(1, range(2, 3), 0, 1),
        ]),
        (7, 7, []),
    ],
)  # fmt: skip
def test_runs_are_whole_images_and_the_parts_at_both_ends(begin, end, runs):
    assert list(EXAMPLE[0][begin:end].runs()) == runs


@pytest.mark.parametrize("seed", range(200))
def test_a_part_is_that_part_of_the_list(seed):
    part, listed, blocks, begin = drawn(seed)
    assert len(part) == len(listed)
    assert list(part) == listed
    assert [part[at] for at in range(len(part))] == listed
    whole = part.outers, part.blocks
    assert [
        make(whole[0][run.outer], image, block)
        for run in part.runs()
        for image in run.images
        for block in whole[1][run.first : run.last]
    ] == listed
    assert part.begin == begin % len(blocks)
    symbols = {block: str(block) for block in blocks}
    assert part.spelled([symbols[block] for block in blocks]) == tuple(symbols[block] for *_, block in listed)


@pytest.mark.parametrize("seed", range(100))
def test_rows_are_those_of_the_tasks_one_by_one(seed):
    part, listed, blocks, _ = drawn(seed)
    numbers = {outer: number for number, outer in enumerate("abc")}
    rows = part.rows(np.array([[block, -block] for block in blocks]))
    assert rows.tolist() == [[numbers[outer], image, block, -block] for outer, image, block in listed]


@pytest.mark.parametrize("seed", range(100))
def test_slices_of_slices_are_those_of_the_list(seed):
    part, listed, *_ = drawn(seed)
    rng = random.Random(seed)
    for _ in range(10):
        begin, end = (rng.randint(-len(listed) - 2, len(listed) + 2) for _ in range(2))
        step = rng.choice((None, 1, 2, -1))
        assert list(part[begin:end:step]) == listed[begin:end:step]
    for at in range(-len(listed), len(listed)):
        assert part[at] == listed[at]
    for at in (len(listed), -len(listed) - 1):
        with pytest.raises(IndexError):
            part[at]


@pytest.mark.parametrize("seed", range(100))
def test_a_part_has_few_runs_and_none_of_them_is_empty(seed):
    # Of each outer the part of an image at the begin, whole images, and the part at the end.
    part, *_ = drawn(seed)
    runs = list(part.runs())
    for outer in {run.outer for run in runs}:
        assert sum(run.outer == outer for run in runs) <= 3
    assert all(len(run.images) and run.first < run.last for run in runs)


def test_a_range_of_many_tasks_is_not_listed():
    whole = TaskRange(range(3), 10**15, range(7), make)
    assert len(whole) == 21 * 10**15
    assert whole[7 * 10**15 + 15] == (1, 2, 1)
    part = whole[3 : 7 * 10**15 - 2]
    assert list(part.runs()) == [
        Run(0, range(1), 3, 7),
        Run(0, range(1, 10**15 - 1), 0, 7),
        Run(0, range(10**15 - 1, 10**15), 0, 5),
    ]
    assert part.begin == 3


def test_nothing_has_no_runs():
    for outers, blocks in (("", "ab"), ("ab", "")):
        whole, listed = both(outers, 4, blocks)
        assert (len(whole), list(whole), list(whole.runs())) == (0, listed, [])
        assert whole.begin == 0
