"""Do threads that share work do all of it, each part once, and does nobody see how many there are?"""

from threading import Barrier, get_ident
from time import sleep

import numpy as np
import pytest

from ascendsim.numerics.compiled.gathered import threads as module
from ascendsim.numerics.compiled.gathered.halves import narrowed, on_half_grid, rounded_halves, widened
from ascendsim.numerics.compiled.gathered.threads import ALONE, LEAST, Threads
from ascendsim.numerics.compiled.gathered.turned import turn_to, turned


@pytest.fixture
def sharing_everything(monkeypatch):
    """Share arrays of any size."""
    monkeypatch.setattr(module, "LEAST", 0)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_answers_come_in_the_order_of_the_tasks(count):
    with Threads(count) as threads:
        assert threads.run(divmod, [(7, 2), (9, 4), (5, 5), (8, 3)]) == [(3, 1), (2, 1), (1, 0), (2, 2)]
        assert threads.run(divmod, []) == []


def test_tasks_run_at_once():
    # Each of two tasks waits until the other one has begun.
    meeting = Barrier(2)
    with Threads(2) as threads:
        threads.run(meeting.wait, [(30,), (30,)])


@pytest.mark.parametrize(("count", "tasks"), [(1, 3), (2, 1)])
def test_what_needs_no_thread_runs_in_the_one_that_calls(count, tasks):
    with Threads(count) as threads:
        assert threads.run(lambda _: get_ident(), [(n,) for n in range(tasks)]) == [get_ident()] * tasks


def slow_name(_):
    sleep(0.02)  # so long that another thread would take the next task
    return get_ident()


def test_threads_are_begun_once_and_end_with_their_context():
    with Threads(2) as threads:
        first, *others = threads.run(slow_name, [(0,)] * 4)
        assert first == get_ident()
        # The calling thread is one of the two.
        assert set(others) == set(threads.run(slow_name, [(0,)] * 2)[1:])
        assert len(set(others)) == 1
    with pytest.raises(RuntimeError, match="shutdown"):
        threads.run(divmod, [(1, 1), (1, 1)])


@pytest.mark.parametrize("count", [1, 3])
def test_the_error_of_the_first_task_that_fails_is_raised(count):
    with Threads(count) as threads, pytest.raises(ZeroDivisionError):
        threads.run(divmod, [(1, 1), (1, 0), (1, "")])


@pytest.mark.parametrize(
    ("count", "size", "unit", "parts"),
    [
        (2, 10, 1, [(0, 5), (5, 10)]),
        # Three units of 4 for two threads: one and two; the last unit is short.
        (2, 10, 4, [(0, 4), (4, 10)]),
        # Two units for three threads: one has none.
        (3, 8, 4, [(0, 4), (4, 8)]),
        (1, 10, 4, [(0, 10)]),
        (2, 3, 4, [(0, 3)]),
        (2, 0, 4, []),
    ],
)
def test_parts_are_whole_units_that_follow_each_other(count, size, unit, parts):
    assert [(part.start, part.stop) for part in Threads(count).parts(size, unit)] == parts


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_part_is_made_by_somebody(count):
    with Threads(count) as threads:
        made = threads.share(lambda part: list(range(part.start, part.stop)), 10, 4)
    assert len(made) == count
    assert [number for part in made for number in part] == list(range(10))


def test_only_long_moves_are_shared():
    threads = Threads(2)
    assert threads.for_moving(LEAST) is threads
    assert threads.for_moving(LEAST - 1) is ALONE


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.usefixtures("sharing_everything")
def test_matrices_are_turned_alike_by_any_number_of_threads(count):
    matrices = np.arange(4 * 33 * 20, dtype=np.float32).reshape(4, 33, 20) + 1
    # Columns from the last to the first, with a gap of 3 between them.
    places, target = np.arange(20)[::-1] * 36, np.zeros((4, 20 * 36), np.float32)
    with Threads(count) as threads:
        assert np.array_equal(turned(matrices, threads), matrices.transpose(0, 2, 1))
        turn_to(matrices, places, target, threads)
    for column, place in enumerate(places):
        assert np.array_equal(target[:, place : place + 33], matrices[:, :, column])
    assert np.count_nonzero(target) == matrices.size  # nothing else is touched


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.usefixtures("sharing_everything")
def test_halves_are_converted_alike_by_any_number_of_threads(count):
    # Some panels and a part of one, with values that are off the grid of binary16.
    values = np.random.default_rng(0).standard_normal(1500).astype(np.float32)
    halves = values.astype(np.float16)
    on_grid = halves.astype(np.float32)
    with Threads(count) as threads:
        assert np.array_equal(widened(halves, threads), on_grid)
        assert np.array_equal(on_half_grid(values, threads), on_grid)
        assert np.array_equal(rounded_halves(values, threads), halves)
        assert np.array_equal(narrowed(on_grid, threads), halves)
        # One value off the grid is seen in whichever part it lies.
        for place in (0, 700, 1400, 1499):
            off = on_grid.copy()
            off[place] = 2049.0
            assert narrowed(off, threads) is None
